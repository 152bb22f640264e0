"""The nouns of an execution graph: tasks in lanes, and dependencies with a kind and a lag."""

import enum
from dataclasses import dataclass

import numpy as np

from jaxperf.trace import Note


class TaskKind(enum.IntEnum):
    """What a task is."""

    HOST_WORK = 0  # a CPU thread between calls: Python, operators, allocators
    HOST_CALL = 1  # a runtime or driver call; of a blocking call what is not waiting
    # The part of a blocking call after its wait. It starts when the awaited work has ended and runs
    # beside the call's own part: where there was nothing to wait for it ends before that.
    HOST_RETURN = 2
    KERNEL = 3
    MEMCPY = 4
    MEMSET = 5
    COLLECTIVE = (
        6  # communication on a device, as a whole or, joined with other ranks, its transfer
    )
    ARRIVAL = 7  # the moment a rank is ready for a collective: no duration


class DependencyKind(enum.IntEnum):
    """Why a dependency was drawn."""

    THREAD_ORDER = 0
    HAND_OVER = 1
    LAUNCH = 2
    STREAM_ORDER = 3
    EVENT_WAIT = 4
    HOST_SYNC = 5
    QUEUE_FULL = 6
    RENDEZVOUS = 7


@dataclass(frozen=True, slots=True)
class GraphLane:
    """A CPU thread or a stream of one rank."""

    rank: int
    name: str
    device: int
    stream: int

    @property
    def is_stream(self) -> bool:
        return self.device >= 0


@dataclass(frozen=True, slots=True)
class Step:
    """One iteration of one rank.

    Attributes:
        name: text of the annotation.
        rank: the rank.
        begin_task: the iteration starts when this task starts.
        end_task: and it ends when this task ends.
        begin_ns, end_ns: as measured.
    """

    name: str
    rank: int
    begin_task: int
    end_task: int
    begin_ns: int
    end_ns: int


@dataclass(frozen=True, slots=True)
class RankClock:
    """How the clock of a rank relates to the graph's, which is that of the first rank.

    Attributes:
        rank: the rank.
        offset_us: the rank's clock minus the first rank's; NaN where nothing tells.
        uncertainty_us: half the median deviation of the ends of its collectives from the others'.
        drift_ppm: by how much the offset grows over time, in millionths.
    """

    rank: int
    offset_us: float
    uncertainty_us: float
    drift_ppm: float


@dataclass(frozen=True, eq=False)
class ExecutionGraph:
    """Tasks and dependencies of one rank, or of several on one clock.

    A task starts at the latest of its dependencies: `end of source + lag`, or, where `from_start`
    is set, `start of source + lag`; and not before its `release_ns`. It ends `duration_ns` later.

    Attributes:
        ranks: the ranks in the graph.
        names: table that `name` points into.
        lanes: table that `lane` points into.
        name: (n,) int32.
        lane: (n,) int32.
        kind: (n,) int8, a `TaskKind`.
        task_class: (n,) int8, a `TaskClass`.
        trace: (n,) int32, index into `ranks` (and the run's traces) the task belongs to.
        event: (n,) int32, row of the task's event in its trace, -1 for host work between events.
        start_ns: (n,) int64, as measured, on the graph's clock.
        end_ns: (n,) int64, as measured.
        duration_ns: (n,) int64, own work: the measured time without waiting.
        release_ns: (n,) int64, earliest start; `MISSING` where only dependencies bound it.
        order: (n,) int64, order of launch. Of one rank alone every dependency goes from a lower to
            a higher value where the trace is consistent; of joined ranks, whose hosts run ahead of
            each other, it is a hint. The compiler checks, and sorts where it must.
        source, target: (m,) int32, tasks.
        lag_ns: (m,) int64, may be negative.
        unexplained_ns: (m,) int64, the part of `lag_ns` that is this start's own: nothing in the
            trace explains it.
        from_start: (m,) bool.
        dependency: (m,) int8, a `DependencyKind`.
        step: (n,) int32, index into `steps` of the iteration the task belongs to: host work by
            time, device work by its launch; -1 for none.
        arrival: (n,) int32, of a collective that waits for other ranks the task of its own rank's
            arrival; -1 for all others.
        sm_share: (n,) float32, share of the device's multiprocessors (SMs) that a kernel occupies,
            0 to 1, from its blocks per SM; NaN where the trace does not tell, and for all others.
        clocks: the clocks of the ranks.
        steps: the iterations, in order, rank after rank.
        notes: what was inferred, and what the trace could not tell.
    """

    ranks: tuple[int, ...]
    names: tuple[str, ...]
    lanes: tuple[GraphLane, ...]
    name: np.ndarray
    lane: np.ndarray
    kind: np.ndarray
    task_class: np.ndarray
    trace: np.ndarray
    event: np.ndarray
    start_ns: np.ndarray
    end_ns: np.ndarray
    duration_ns: np.ndarray
    release_ns: np.ndarray
    order: np.ndarray
    source: np.ndarray
    target: np.ndarray
    lag_ns: np.ndarray
    unexplained_ns: np.ndarray
    from_start: np.ndarray
    dependency: np.ndarray
    step: np.ndarray
    arrival: np.ndarray
    sm_share: np.ndarray
    clocks: tuple[RankClock, ...]
    steps: tuple[Step, ...]
    notes: tuple[Note, ...]

    @property
    def tasks(self) -> int:
        """Number of tasks."""
        return len(self.duration_ns)
