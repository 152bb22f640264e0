"""The nouns of a what-if about clocks."""

from dataclasses import dataclass

from jaxperf.trace import Note


@dataclass(frozen=True, eq=False)
class ClockAnswer:
    """What a run comes to at some clocks. NaN where they cannot be.

    Attributes:
        name: what is asked.
        clock_hz: by selector, the clocks that follow or were set, the mean over time.
        step_us: the steady step, replayed.
        ratio: of the step to that of the baseline.
        energy_j: of a steady step on all accelerators.
        energy_ratio: of the energy to that of the baseline.
        average_power_w: of all accelerators.
    """

    name: str
    clock_hz: dict[str, float]
    step_us: float
    ratio: float
    energy_j: float
    energy_ratio: float
    average_power_w: float


@dataclass(frozen=True, eq=False)
class ClockWhatIf:
    """Answers about clocks, beside the run as it was.

    Attributes:
        baseline: the run at the clocks that it was recorded or predicted at.
        answers: in the order in which they were asked.
        frontier: least energy for longer and longer steps; empty where it was not asked.
        notes: what was guessed, and what cannot be.
    """

    baseline: ClockAnswer
    answers: tuple[ClockAnswer, ...]
    frontier: tuple[ClockAnswer, ...]
    notes: tuple[Note, ...]
