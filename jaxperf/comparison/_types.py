"""The nouns of a comparison: what each run takes, and what is different between them."""

import enum
from dataclasses import dataclass

from jaxperf.graph import TaskClass
from jaxperf.replay import Breakdown
from jaxperf.trace import Note


class ChangeKind(enum.Enum):
    """What became of tasks between the first run, A, and the second, B."""

    SAME = "same"  # they take as long as before
    SLOWER = "slower"
    QUICKER = "quicker"
    REPLACED = "replaced"  # another kernel or call at the same place of the program
    ADDED = "added"
    REMOVED = "removed"
    MOVED = "moved"  # to another stream or thread
    REORDERED = "reordered"  # launched at another place among the work of other streams


@dataclass(frozen=True, eq=False)
class Baseline:
    """What one run takes. Times are means over ranks; NaN where they cannot be known.

    Attributes:
        unit: what `step_us` is the time of: `step`, `graph launch` where launches of one CUDA graph
            take the place of steps, or `window`, the whole capture.
        devices: names of the devices in the traces.
        names: of the repetitions that count, in order.
        step_us: mean over the repetitions that count, as measured.
        replayed_us: the same, as replayed.
        spread_us: standard deviation of one repetition; NaN of less than two.
        breakdown: mean over ranks and the repetitions; `None` where there is no device work.
        dependencies: how many of each kind lead to the tasks of a repetition and rank, by name.
    """

    unit: str
    devices: tuple[str, ...]
    names: tuple[str, ...]
    step_us: float
    replayed_us: float
    spread_us: float
    breakdown: Breakdown | None
    dependencies: dict[str, float]


@dataclass(frozen=True, slots=True)
class ClassDifference:
    """The tasks of one class, per step and rank.

    Attributes:
        task_class: the class; `LAUNCH` also stands for what passes between calls and their work.
        a_us, b_us: sum of durations without waiting.
        critical_us: by how much the step of A grows if this class alone takes what it takes in B.
    """

    task_class: TaskClass
    a_us: float
    b_us: float
    critical_us: float

    @property
    def difference_us(self) -> float:
        """B minus A."""
        return self.b_us - self.a_us


@dataclass(frozen=True, slots=True)
class Change:
    """Tasks of one name to which the same happened, per step and rank.

    Attributes:
        kind: what happened.
        name: their name in A; of what was added, in B.
        b_name: their name in B where they were replaced.
        task_class: their class in A; of what was added, in B.
        on_device: device work, or host work.
        a_lane, b_lane: of what moved, the first's stream or thread in each run.
        count_a, count_b: how many.
        a_us, b_us: sum of durations without waiting.
        critical_us: by how much the step of A grows if this change is made alone.
        within_variation: the difference is no more than what steps of one run differ by; `None`
            where there are too few steps to tell.
    """

    kind: ChangeKind
    name: str
    b_name: str | None
    task_class: TaskClass
    on_device: bool
    a_lane: str | None
    b_lane: str | None
    count_a: float
    count_b: float
    a_us: float
    b_us: float
    critical_us: float
    within_variation: bool | None

    @property
    def difference_us(self) -> float:
        """B minus A."""
        return self.b_us - self.a_us


@dataclass(frozen=True, slots=True)
class Coverage:
    """How many tasks found their counterpart, per step and rank.

    Attributes:
        same: tasks of the same name in both runs.
        replaced: tasks with another at their place.
        only_a, only_b: tasks of one run alone.
    """

    same: float
    replaced: float
    only_a: float
    only_b: float

    @property
    def matched_percent(self) -> float:
        """Share of all tasks of both runs that have a counterpart; NaN where there are none."""
        paired = 2 * (self.same + self.replaced)
        total = paired + self.only_a + self.only_b
        return 100.0 * paired / total if total else float("nan")


@dataclass(frozen=True, eq=False)
class Comparison:
    """What changed from run A to run B, and what it cost.

    Attributes:
        a, b: what each run takes.
        within_variation: the difference is no more than the spread of either run's steps; `None`
            where there are too few steps to tell.
        explained_us: by how much the step of A grows in a replay with all durations and lags of B,
            what was removed without time, and what was added behind its predecessor.
        by_class: what differs by class.
        changes: what differs by name, the largest effect first.
        device, host: how many tasks found their counterpart.
        notes: what was repaired, guessed or set aside in either run, and in comparing them.
    """

    a: Baseline
    b: Baseline
    within_variation: bool | None
    explained_us: float
    by_class: tuple[ClassDifference, ...]
    changes: tuple[Change, ...]
    device: Coverage
    host: Coverage
    notes: tuple[Note, ...]

    @property
    def difference_us(self) -> float:
        """Step of B minus step of A, as measured."""
        return self.b.step_us - self.a.step_us

    @property
    def difference_percent(self) -> float:
        """The same in percent of A."""
        return _percent(self.difference_us, self.a.step_us)

    @property
    def predicted_b_step_us(self) -> float:
        """The step of B as it follows from A's structure and what its tasks take in B."""
        return self.a.step_us + self.explained_us

    @property
    def prediction_error_percent(self) -> float:
        """Signed error of the prediction."""
        return _percent(self.predicted_b_step_us - self.b.step_us, self.b.step_us)

    @property
    def structure_us(self) -> float:
        """The rest of the difference: order and dependencies, and what a replay misses."""
        return self.difference_us - self.explained_us

    @property
    def identical(self) -> bool:
        """No task differs, nor does the step."""
        return not self.changes and self.difference_us == 0


def _percent(difference_us: float, of_us: float) -> float:
    return 100.0 * difference_us / of_us if of_us > 0 else float("nan")
