"""The nouns of a calibration: what was fitted, how well, and how sure."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from jaxperf.replay import TimeComparison
from jaxperf.trace import Note

if TYPE_CHECKING:
    from jaxperf.cost import Fit


@dataclass(frozen=True, slots=True)
class ClassError:
    """How well the model tells the time of one class of tasks.

    Errors are means of the absolute relative error over different pieces of work; NaN for none.

    Attributes:
        task_class: name of the class, in lower case.
        works: different pieces of work it was fitted to.
        before_percent, after_percent: their error before the fit and after it.
        held_out: pieces of work that were held out.
        held_out_before_percent, held_out_after_percent: their error.
    """

    task_class: str
    works: int
    before_percent: float
    after_percent: float
    held_out: int
    held_out_before_percent: float
    held_out_after_percent: float


@dataclass(frozen=True, slots=True)
class FittedNumber:
    """One number of the model.

    Attributes:
        leaf: its path, such as `memory.latency_us[gemm]`.
        before, value: before the fit and after it.
        interval: within which it lies with 90 % probability.
        told: whether the data tell it; else it is what was believed before.
    """

    leaf: str
    before: float
    value: float
    interval: tuple[float, float]
    told: bool


@dataclass(frozen=True, eq=False)
class Calibration:
    """The result of a calibration.

    Attributes:
        fit: the fitted numbers, for `whatif` and the other verbs.
        loss_before, loss_after: negative logarithm of the posterior, up to a constant.
        spread: standard deviation of the logarithm of what the model leaves unexplained.
        classes: errors by class.
        steps: the steady step of each run, measured, and replayed with modelled durations.
        steps_before: the same before the fit.
        numbers: every fitted number.
        notes: everything that was repaired, guessed or set aside.
    """

    fit: "Fit"
    loss_before: float
    loss_after: float
    spread: float
    classes: tuple[ClassError, ...]
    steps: tuple[TimeComparison, ...]
    steps_before: tuple[TimeComparison, ...]
    numbers: tuple[FittedNumber, ...]
    notes: tuple[Note, ...]
