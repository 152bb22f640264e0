"""The vocabulary of a simulated program: what threads do, and what devices are given to do.

A `Rank` has CPU threads, and each thread is a list of instructions, run in order. Times are
microseconds, as people think of them; the executor rounds each to whole nanoseconds.

    instruction              what the thread does
    Work                     computes, seen by nobody
    Op, Annotation           runs other instructions inside a named row of the trace
    Call                     a runtime call without effect, such as cudaFuncSetAttribute
    Launch, LaunchGraph      gives work to a stream; a blocking copy also waits for it
    Record, StreamWait       CUDA events between streams
    Query, Poll              asks for an event once, or until it has happened
    Synchronize*             waits for an event, a stream or a device
    Signal, Await            hands over between the threads of a rank
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from jaxperf.errors import ConfigError

# ---------------------------------------------------------------------------------------
# Work of a device


@dataclass(frozen=True, slots=True)
class Kernel:
    """A computation on a device.

    Attributes:
        name: as the profiler would write it.
        duration_us: how long it runs.
        kind: the class it belongs to, see `jaxperf.simulator.SELECTABLE_CLASSES`.
        grid, block: launch dimensions in blocks and threads.
        registers_per_thread: registers.
        shared_memory_bytes: dynamic and static shared memory of one block.
    """

    name: str
    duration_us: float
    kind: str = "other"
    grid: tuple[int, int, int] = (132, 1, 1)
    block: tuple[int, int, int] = (256, 1, 1)
    registers_per_thread: int = 32
    shared_memory_bytes: int = 0


@dataclass(frozen=True, slots=True)
class Copy:
    """A copy of `size_bytes`; `direction` is `HtoD`, `DtoH` or `DtoD`."""

    direction: str
    duration_us: float
    size_bytes: int = 4

    kind = "memcpy"

    @property
    def name(self) -> str:
        sides = {"H": "Pinned", "D": "Device"}
        source, target = self.direction.split("to")
        return f"Memcpy {self.direction} ({sides[source]} -> {sides[target]})"


@dataclass(frozen=True, slots=True)
class Set:
    """A memory fill of `size_bytes`."""

    duration_us: float
    size_bytes: int = 4

    kind = "memset"
    name = "Memset (Device)"


@dataclass(frozen=True, slots=True)
class Collective:
    """One member's part of a collective, or of a send and its receive.

    It starts when its stream reaches it, and ends `duration_us` after the last member started: the
    longest duration of the members counts. Members meet in the order in which each rank launches
    on the group; sends and receives meet by direction as well.

    Attributes:
        operation: `allreduce`, `allgather`, `reduce_scatter`, `broadcast`, `send` or `recv`.
        group: name of the process group.
        ranks: the members.
        duration_us: transfer time once all are there.
        elements: elements that each member puts in.
        dtype: their type, as PyTorch writes it.
        description: what the group is for.
        source, destination: ranks of a send or receive.
    """

    operation: str
    group: str
    ranks: tuple[int, ...]
    duration_us: float
    elements: int = 1
    dtype: str = "BFloat16"
    description: str = "undefined"
    source: int | None = None
    destination: int | None = None

    kind = "communication"

    @property
    def name(self) -> str:
        if self.source is not None:
            function = "SendRecv"
        else:
            words = {
                "allreduce": "AllReduce_Sum",
                "allgather": "AllGather",
                "reduce_scatter": "ReduceScatter_Sum",
                "broadcast": "Broadcast",
            }
            dtypes = {"BFloat16": "_bf16", "Half": "_f16", "Float": "_f32"}
            dtype = dtypes[self.dtype] if "Sum" in words[self.operation] else ""
            function = f"{words[self.operation]}{dtype}_RING_LL"
        return f"ncclDevKernel_{function}(ncclDevKernelArgsStorage<4096ul>)"


DeviceWork = Kernel | Copy | Set | Collective

# ---------------------------------------------------------------------------------------
# Instructions of a thread

Sizes = tuple[int, ...]
"""Dimensions of a tensor."""


@dataclass(frozen=True, slots=True)
class Work:
    """Host work that leaves no row of its own."""

    duration_us: float


@dataclass(frozen=True, slots=True)
class Op:
    """An operator: a `cpu_op` row around other instructions.

    Attributes:
        name: such as `aten::addmm`.
        body: what happens inside.
        sequence: autograd's number, the same for a forward operator and its backward.
        backward: this is the backward operator of `sequence`.
        shapes, types, values: of each input, as the profiler would list them; the shape of a list
            of tensors is that of each of them.
    """

    name: str
    body: Sequence["Instruction"] = ()
    sequence: int | None = None
    backward: bool = False
    shapes: tuple[Sizes | tuple[Sizes, ...], ...] = ()
    types: tuple[str, ...] = ()
    values: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Annotation:
    """A `user_annotation` row around other instructions; `ProfilerStep#N` makes an iteration."""

    name: str
    body: Sequence["Instruction"] = ()


@dataclass(frozen=True, slots=True)
class Call:
    """A runtime call that only takes time."""

    name: str
    duration_us: float = 0.5


@dataclass(frozen=True, slots=True)
class Launch:
    """Gives one work to a stream.

    Attributes:
        work: the work.
        stream, device: where it runs.
        blocking: the call returns when the work has ended (`cudaMemcpy`).
        call: name of the call, chosen by the kind of work where `None`.
        call_us: the call's own time; the rank's `Timing.launch_call_us` where `None`.
    """

    work: DeviceWork
    stream: int = 7
    device: int = 0
    blocking: bool = False
    call: str | None = None
    call_us: float | None = None


@dataclass(frozen=True, slots=True)
class LaunchGraph:
    """Gives many works to one stream by one call; it takes one place in the launch queue."""

    works: tuple[DeviceWork, ...]
    stream: int = 7
    device: int = 0
    call_us: float | None = None

    def __post_init__(self):
        if not self.works:
            raise ConfigError("a graph without works", where="LaunchGraph", expected="one or more")


@dataclass(frozen=True, slots=True)
class Record:
    """Records an event on a stream: it happens when all that the stream was given has ended."""

    event: str
    stream: int = 7
    device: int = 0


@dataclass(frozen=True, slots=True)
class StreamWait:
    """Holds a stream's later work until the latest record of an event has happened."""

    event: str
    stream: int = 7
    device: int = 0


@dataclass(frozen=True, slots=True)
class Query:
    """One `cudaEventQuery`, whatever the answer."""

    event: str


@dataclass(frozen=True, slots=True)
class Poll:
    """`cudaEventQuery` again and again, with host work between, until the event has happened."""

    event: str
    between_us: float = 1.0


@dataclass(frozen=True, slots=True)
class SynchronizeEvent:
    """Waits on the host for the latest record of an event."""

    event: str


@dataclass(frozen=True, slots=True)
class SynchronizeStream:
    """Waits on the host for all that a stream was given."""

    stream: int = 7
    device: int = 0


@dataclass(frozen=True, slots=True)
class SynchronizeDevice:
    """Waits on the host for all streams of a device."""

    device: int = 0


@dataclass(frozen=True, slots=True)
class Signal:
    """Raises a flag, once, for another thread of the rank."""

    flag: str


@dataclass(frozen=True, slots=True)
class Await:
    """Sleeps until a flag is raised."""

    flag: str


Instruction = (
    Work
    | Op
    | Annotation
    | Call
    | Launch
    | LaunchGraph
    | Record
    | StreamWait
    | Query
    | Poll
    | SynchronizeEvent
    | SynchronizeStream
    | SynchronizeDevice
    | Signal
    | Await
)

# ---------------------------------------------------------------------------------------
# Ranks


@dataclass(frozen=True, slots=True)
class Timing:
    """Constants of a rank's host and devices.

    Attributes:
        launch_latency_us: from the start of a launch call to the earliest start of its work.
        kernel_gap_us: from the end of a work to the earliest start of the next on its stream.
        wait_lag_us: from an event to the earliest start of the work held by it.
        sync_return_us: from the end of what a blocking call waits for to its return.
        hand_over_us: from a raised flag to the thread that awaits it.
        launch_call_us, event_call_us, query_call_us, sync_call_us: own time of the calls that
            launch, record or wait, query, and synchronise.
        launch_queue: launches a device holds before the next one blocks.
    """

    launch_latency_us: float = 6.0
    kernel_gap_us: float = 1.2
    wait_lag_us: float = 2.0
    sync_return_us: float = 3.0
    hand_over_us: float = 12.0
    launch_call_us: float = 4.0
    event_call_us: float = 1.0
    query_call_us: float = 0.8
    sync_call_us: float = 1.5
    launch_queue: int = 1024


@dataclass(frozen=True, slots=True)
class Rank:
    """One process: its threads, its machine and its clocks.

    Attributes:
        threads: instructions by name of thread; the first is the main thread.
        timing: constants of host and devices.
        clock_offset_us: what this host's clock shows at time zero.
        device_clock_offset_us: how far device rows are stamped late (early where negative)
            against the host's clock.
    """

    threads: Mapping[str, Sequence[Instruction]]
    timing: Timing = field(default_factory=Timing)
    clock_offset_us: float = 0.0
    device_clock_offset_us: float = 0.0


@dataclass(frozen=True, slots=True)
class Noise:
    """Relative standard deviations, drawn once for each task; 0 is exact.

    Attributes:
        kernel: of device work.
        host: of host work and the own time of calls.
        latency: of the launch latency.
    """

    kernel: float = 0.0
    host: float = 0.0
    latency: float = 0.0
