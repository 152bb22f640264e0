"""The nouns of a replay: a timeline, and what was found by comparing it with the measured one."""

from dataclasses import dataclass

import numpy as np

from jaxperf.graph import ExecutionGraph, RankClock
from jaxperf.trace import Note


@dataclass(frozen=True, eq=False)
class Timeline:
    """Start and end of every task of a graph.

    Attributes:
        start_us: (n,) float64, from the graph's time zero.
        end_us: (n,) float64.
    """

    start_us: np.ndarray
    end_us: np.ndarray


@dataclass(frozen=True, slots=True)
class TimeComparison:
    """One span of time, measured and replayed. Values are NaN where they cannot be known."""

    name: str
    measured_us: float
    replayed_us: float

    @property
    def error_percent(self) -> float:
        """Signed error of the replay; NaN where the measured span is empty."""
        if not self.measured_us > 0:
            return float("nan")
        return 100.0 * (self.replayed_us - self.measured_us) / self.measured_us


@dataclass(frozen=True, slots=True)
class Breakdown:
    """Where the time of a rank's step goes; the first five add up to `total_us`.

    Attributes:
        compute_us: computation alone.
        overlap_us: computation and communication at once.
        exposed_communication_us: communication alone.
        memory_us: copies and sets alone.
        idle_us: nothing on the device.
        total_us: the span.
    """

    compute_us: float
    overlap_us: float
    exposed_communication_us: float
    memory_us: float
    idle_us: float
    total_us: float


@dataclass(frozen=True, slots=True)
class StepBreakdown:
    """Where the time of one iteration of one rank goes, measured and replayed.

    Attributes:
        rank: the rank.
        step: name of the iteration; `None` where the rank has none, for its whole window.
        measured, replayed: the breakdowns.
    """

    rank: int
    step: str | None
    measured: Breakdown
    replayed: Breakdown


@dataclass(frozen=True, slots=True)
class RankSummary:
    """What was read of one rank.

    Attributes:
        rank: the rank.
        files: the files it was read from.
        device: name of the device; `None` where the trace does not say.
        events: number of events.
        device_tasks: kernels, copies and sets.
        clock: its clock against that of the first rank; NaN where nothing tells.
    """

    rank: int
    files: tuple[str, ...]
    device: str | None
    events: int
    device_tasks: int
    clock: RankClock


@dataclass(frozen=True, slots=True)
class HoldOut:
    """Error on steps whose durations came from the other steps."""

    steps: tuple[TimeComparison, ...]
    mean_abs_error_percent: float


@dataclass(frozen=True, eq=False)
class Replay:
    """The result of replaying a run, beside what was measured.

    Attributes:
        graph: the execution graph.
        measured, replayed: timelines over the graph's tasks.
        binding: (tasks,) int32, the dependency that bound each task's start in the replay; -1 where
            only its release did.
        ranks: what was read, per rank.
        window: first start to last end of all tasks.
        steps: per iteration, averaged over ranks.
        mean_abs_error_percent: over the steps, or of the window where there are none.
        task_start_error_median_us, task_start_error_p95_us: of all tasks, relative to the start of
            their rank's window.
        breakdown_measured, breakdown_replayed: per step, averaged over ranks and steps; `None`
            where there is no device work.
        step_breakdowns: per rank and iteration, rank after rank.
        rank_breakdowns: per rank, measured and replayed: the mean over its iterations.
        critical_path_us: time on the path that bounds the window, or the one step that was asked
            for, by class name.
        hold_out: `None` where it was not asked for or there are too few steps.
        notes: everything that was repaired, guessed or set aside.
        critical_path_step: name of the step that `critical_path_us` is of; `None` for the window.
    """

    graph: ExecutionGraph
    measured: Timeline
    replayed: Timeline
    binding: np.ndarray
    ranks: tuple[RankSummary, ...]
    window: TimeComparison
    steps: tuple[TimeComparison, ...]
    mean_abs_error_percent: float
    task_start_error_median_us: float
    task_start_error_p95_us: float
    breakdown_measured: Breakdown | None
    breakdown_replayed: Breakdown | None
    step_breakdowns: tuple[StepBreakdown, ...]
    rank_breakdowns: tuple[tuple[int, Breakdown, Breakdown], ...]
    critical_path_us: dict[str, float]
    hold_out: HoldOut | None
    notes: tuple[Note, ...]
    critical_path_step: str | None = None
