"""The nouns of a trace: columns, not objects.

A `Trace` holds the events of one rank. Each event is one row, in order of start time (the longer
event first where two start together, so that a parent precedes its children). Names, lanes, shapes
and collectives are stored once in tables; the columns hold indices into them.

Conventions: times are int64 nanoseconds from `Trace.origin_ns`. An index column holds -1 where
nothing is known; an int64 value column holds `MISSING`; a float column holds NaN.
"""

import enum
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

MISSING: int = int(np.iinfo(np.int64).min)
"""The value of an int64 column where the trace says nothing."""

ALL_STREAMS: int = -1
"""Stream of a device-wide synchronisation; profilers write -1 or 4294967295."""


class Category(enum.IntEnum):
    """What kind of row an event is, whatever the profiler called it."""

    OTHER = 0
    CPU_OP = 1
    ANNOTATION = 2  # record_function and ProfilerStep on a CPU thread
    PYTHON = 3
    RUNTIME = 4  # cudaXxx, hipXxx
    DRIVER = 5  # cuXxx
    KERNEL = 6
    MEMCPY = 7
    MEMSET = 8
    SYNC = 9  # cuda_sync rows: not device work
    GPU_ANNOTATION = 10  # the shadow of an annotation on a device lane: not device work
    OVERHEAD = 11
    PROFILER = 12  # the row that spans the capture


@dataclass(frozen=True, slots=True)
class Note:
    """Something that was repaired, guessed or set aside.

    Attributes:
        code: a stable word, listed in docs/notes.md.
        text: one sentence for the user.
        where: the file, or file and place in it; `None` where it concerns the whole run.
    """

    code: str
    text: str
    where: str | None = None


@dataclass(frozen=True, slots=True)
class Lane:
    """A CPU thread, or a stream of a device.

    Attributes:
        process: `pid` as the trace writes it.
        thread: `tid` as the trace writes it.
        name: a readable name, such as `thread 123 (python)` or `GPU 0 stream 7`.
        device: index of the device, -1 for a CPU thread.
        stream: number of the stream, -1 for a CPU thread.
    """

    process: str
    thread: str
    name: str
    device: int = -1
    stream: int = -1

    @property
    def is_stream(self) -> bool:
        return self.device >= 0


@dataclass(frozen=True, slots=True)
class Collective:
    """What the profiler said of one collective or one send or receive.

    Attributes:
        name: the operation as written, such as `allreduce` or `_reduce_scatter_base`.
        group: name of the process group, `None` where not written.
        group_size: number of members, `None` where not written.
        ranks: the members, empty where not written (long lists are abbreviated by the profiler).
        dtype: type of the elements as written, such as `BFloat16`.
        in_elements: elements sent by each member.
        out_elements: elements received by each member.
        sequence: number within the group, `None` where not written.
        source, destination: peer ranks of a send or receive.
    """

    name: str
    group: str | None = None
    group_size: int | None = None
    ranks: tuple[int, ...] = ()
    dtype: str | None = None
    in_elements: int | None = None
    out_elements: int | None = None
    sequence: int | None = None
    source: int | None = None
    destination: int | None = None


@dataclass(frozen=True, eq=False)
class Flows:
    """Arrows between events, as the profiler drew them: one row per end of an arrow.

    Attributes:
        identity: (n,) int64, shared by the ends of one arrow.
        lane: (n,) int32, index into `Trace.lanes`.
        time_ns: (n,) int64, from the trace's origin.
        is_start: (n,) bool.
        is_forward_backward: (n,) bool, `fwdbwd` arrows; launch arrows otherwise.
    """

    identity: np.ndarray
    lane: np.ndarray
    time_ns: np.ndarray
    is_start: np.ndarray
    is_forward_backward: np.ndarray


@dataclass(frozen=True, eq=False)
class Trace:
    """The complete (`ph` X) events of one rank; see the module's text for order and conventions.

    Attributes:
        rank: the rank, as found (see `Run`).
        world_size: ranks of the job as the trace says, `None` where it does not.
        files: the files it was read from.
        device_name: such as `NVIDIA H100 80GB HBM3`; `None` where not written.
        origin_ns: time zero in nanoseconds of the trace's own clock (`baseTimeNanoseconds` added).
        metadata: the top-level values of the file other than the events.
        truncated: the file ended before its time.
        notes: repairs and guesses of the reader.
        names, lanes, shapes, input_types, input_values, collectives: tables that the index columns
            point into.
        start_ns: (n,) int64, from the origin; the first event of the file starts at 0.
        duration_ns: (n,) int64, never negative.
        category: (n,) int8, a `Category`.
        name: (n,) int32, index into `names`.
        lane: (n,) int32, index into `lanes`.
        correlation: (n,) int64, joins a runtime or driver call with its device work.
        external_id: (n,) int64, joins an operator with the calls made under it.
        device, stream: (n,) int64, from the arguments; of device work, and of synchronisation rows.
        bytes: (n,) int64, size of a copy or set.
        blocks_per_sm: (n,) float32.
        sequence: (n,) int64, autograd's sequence number of an operator.
        forward_thread: (n,) int64, autograd's id of the forward thread.
        wait_on_stream: (n,) int64, of `SYNC` rows.
        wait_on_record: (n,) int64, of `SYNC` rows: correlation of the event record waited for.
        shape: (n,) int32, index into `shapes`: input dimensions of an operator, or grid and
            block of a kernel, as text.
        input_type: (n,) int32, index into `input_types`: input types of an operator, as text.
        input_value: (n,) int32, index into `input_values`: its inputs that are no tensors, as text.
        collective: (n,) int32, index into `collectives`.
        flows: arrows between events.
    """

    rank: int
    world_size: int | None
    files: tuple[str, ...]
    device_name: str | None
    origin_ns: int
    metadata: Mapping[str, object]
    truncated: bool
    notes: tuple[Note, ...]
    names: tuple[str, ...]
    lanes: tuple[Lane, ...]
    shapes: tuple[str, ...]
    input_types: tuple[str, ...]
    input_values: tuple[str, ...]
    collectives: tuple[Collective, ...]
    start_ns: np.ndarray
    duration_ns: np.ndarray
    category: np.ndarray
    name: np.ndarray
    lane: np.ndarray
    correlation: np.ndarray
    external_id: np.ndarray
    device: np.ndarray
    stream: np.ndarray
    bytes: np.ndarray
    blocks_per_sm: np.ndarray
    sequence: np.ndarray
    forward_thread: np.ndarray
    wait_on_stream: np.ndarray
    wait_on_record: np.ndarray
    shape: np.ndarray
    input_type: np.ndarray
    input_value: np.ndarray
    collective: np.ndarray
    flows: Flows

    @property
    def events(self) -> int:
        """Number of rows."""
        return len(self.start_ns)

    @property
    def end_ns(self) -> np.ndarray:
        """(n,) int64, end of each event from the origin."""
        return self.start_ns + self.duration_ns


@dataclass(frozen=True, slots=True)
class SetAside:
    """A file of the folder that is no trace, and why it was left out."""

    file: str
    reason: str


@dataclass(frozen=True, eq=False)
class Run:
    """The traces of one run, one per rank, in order of rank.

    Attributes:
        traces: one per rank, ranks strictly increasing.
        set_aside: files that were left out, with the reason.
        notes: what concerns the run as a whole (how ranks were found, and the like); each trace
            carries its own notes too.
    """

    traces: tuple[Trace, ...]
    set_aside: tuple[SetAside, ...]
    notes: tuple[Note, ...]
