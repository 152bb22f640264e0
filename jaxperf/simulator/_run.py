"""What happened: the rows of every rank, and the true step times."""

from collections.abc import Mapping
from dataclasses import dataclass

from jaxperf.simulator._program import DeviceWork, Rank, Sizes

STEP_PREFIX = "ProfilerStep#"


@dataclass(frozen=True, slots=True)
class HostRow:
    """An operator, an annotation or a call of a CPU thread.

    Attributes:
        category: `cpu_op`, `user_annotation`, `cuda_runtime` or `cuda_driver`.
        name: of the operator, annotation or call.
        thread: name of the thread.
        start_ns, end_ns: on the simulation's clock.
        waited_ns: how much of it was waiting for devices; the rest is the row's own work.
        correlation: number of a call within its rank, -1 for other rows.
        external_id: number of an operator, or of the operator a call was made under; -1 outside.
        sequence: autograd's number, `None` where it has none.
        backward: it is the backward operator of `sequence`.
        shapes, types, values: of each input of an operator.
    """

    category: str
    name: str
    thread: str
    start_ns: int
    end_ns: int
    waited_ns: int = 0
    correlation: int = -1
    external_id: int = -1
    sequence: int | None = None
    backward: bool = False
    shapes: tuple[Sizes | tuple[Sizes, ...], ...] = ()
    types: tuple[str, ...] = ()
    values: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class DeviceRow:
    """A work of a stream.

    Attributes:
        work: what was run.
        device, stream: where.
        start_ns, end_ns: on the simulation's clock.
        waited_ns: of a collective, the time until its last member started.
        correlation: of the call that launched it.
        external_id: of the operator that launched it.
        sequence: of a collective, its number on the group; -1 otherwise.
        annotations: (number, name) of the annotations it was launched under, outermost first.
    """

    work: DeviceWork
    device: int
    stream: int
    start_ns: int
    end_ns: int
    waited_ns: int
    correlation: int
    external_id: int
    sequence: int
    annotations: tuple[tuple[int, str], ...]


@dataclass(frozen=True, slots=True)
class SyncRow:
    """What a recent profiler tells about a wait: `Stream Wait Event`, `Event Sync` and the like.

    Attributes:
        kind: the profiler's word.
        device, stream: what waited; stream -1 is the whole device.
        start_ns, end_ns: of the call.
        correlation: of the call.
        event: number of the event, -1 where the wait is for a stream or device.
        record_stream: the stream the event was recorded on, -1 where it never was.
        record_correlation: of the call that recorded it, -1 where it never was.
    """

    kind: str
    device: int
    stream: int
    start_ns: int
    end_ns: int
    correlation: int
    event: int = -1
    record_stream: int = -1
    record_correlation: int = -1


@dataclass(frozen=True, eq=False, slots=True)
class RankRecord:
    """Everything one rank did. Rows stand in the order in which they ended."""

    rank: int
    program: Rank
    host: tuple[HostRow, ...]
    device: tuple[DeviceRow, ...]
    syncs: tuple[SyncRow, ...]

    @property
    def step_names(self) -> tuple[str, ...]:
        """Names of the iterations, in order."""
        return tuple(row.name for row in self._step_rows())

    @property
    def steps_us(self) -> tuple[float, ...]:
        """Duration of each iteration: from its start to that of the next, the last to its end."""
        rows = self._step_rows()
        starts = [row.start_ns for row in rows]
        ends = starts[1:] + [row.end_ns for row in rows[-1:]]
        return tuple((end - start) / 1e3 for start, end in zip(starts, ends, strict=True))

    def _step_rows(self) -> list[HostRow]:
        rows = [row for row in self.host if row.name.startswith(STEP_PREFIX)]
        return sorted(rows, key=lambda row: row.start_ns)


@dataclass(frozen=True, eq=False, slots=True)
class SimulatedRun:
    """The rows of every rank, and the truth about its steps.

    Attributes:
        ranks: by rank.
        device_name: as written to the traces.
        streaming_multiprocessors: of each device.
    """

    ranks: Mapping[int, RankRecord]
    device_name: str
    streaming_multiprocessors: int

    @property
    def steps_us(self) -> tuple[float, ...]:
        """Duration of each iteration, averaged over ranks; empty where there are none."""
        per_rank = [record.steps_us for record in self.ranks.values()]
        return tuple(sum(step) / len(step) for step in zip(*per_rank, strict=True))

    @property
    def step_us(self) -> float:
        """The steady step: mean over iterations, without the first where there are three or more.

        NaN where there are none.
        """
        steps = self.steps_us[1:] if len(self.steps_us) >= 3 else self.steps_us
        return sum(steps) / len(steps) if steps else float("nan")

    @property
    def kernels(self) -> int:
        """Number of device works of all ranks."""
        return sum(len(record.device) for record in self.ranks.values())

    @property
    def end_us(self) -> float:
        """When the last row of any rank ended."""
        ends = [
            row.end_ns for record in self.ranks.values() for row in (*record.host, *record.device)
        ]
        return max(ends, default=0) / 1e3
