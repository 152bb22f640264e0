"""The nouns of a fit of the power model: what was fitted, how well, and how sure."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from jaxperf.config import PowerDescription
from jaxperf.trace import Note

if TYPE_CHECKING:
    from jaxperf.energy.power._model import PowerModel

Told = Literal["log", "sum", "loosely", "prior", "no-work"]


@dataclass(frozen=True, slots=True)
class FittedPower:
    """One number of a power description.

    Attributes:
        key: as the description has it, such as `flop_j.bf16`.
        prior: what the description said.
        value: fitted.
        interval: within which it lies with 90 % probability.
        told: by what: the `log`, to within 3 %; the log, but only in `sum` with others
            (`PowerFit.sums`); the log `loosely`, to within the interval; the `prior`, as the log
            leaves the interval as wide as it was, and `value` is what the description said; or
            `no-work`, as nothing in the traces needs it.
    """

    key: str
    prior: float
    value: float
    interval: tuple[float, float]
    told: Told

    @property
    def is_identified(self) -> bool:
        """Whether the log alone tells it, to within 3 %."""
        return self.told == "log"


@dataclass(frozen=True, slots=True)
class SeenSum:
    """Numbers that the log tells only together.

    Attributes:
        keys: of the numbers.
        each_w: what each adds to the mean reading, with its fitted value.
        power_w: what they add together.
        interval_w: within which that lies with 90 % probability.
    """

    keys: tuple[str, ...]
    each_w: tuple[float, ...]
    power_w: float
    interval_w: tuple[float, float]


@dataclass(frozen=True, slots=True)
class ReadingErrors:
    """How well readings are modelled that the fit has not seen.

    Both with the fitted delay and window of the meter, without which nothing is compared.

    Attributes:
        readings: how many.
        before_percent, after_percent: mean of the absolute relative error, with the numbers as
            they were, and as fitted.
        before_energy_percent, after_energy_percent: error of their sum, signed.
    """

    readings: int
    before_percent: float
    after_percent: float
    before_energy_percent: float
    after_energy_percent: float


@dataclass(frozen=True, eq=False)
class PowerFit:
    """The result of fitting the power model to a log.

    Attributes:
        description: with the fitted numbers; `write_power` writes it.
        per: whether accelerators or a node were measured.
        parameters: each number that the power depends on.
        sums: groups of which the log tells only the sum.
        held: keys that were kept, as no log at one clock tells them.
        errors: on readings held out.
        readings: that it was fitted to.
        spread_percent: what is left unexplained, of the mean reading.
        condition: of what the log says of the numbers, in shares of their priors; infinite where
            some are told only in sum.
        skew_s: the log's clock minus the traces', with the meter's delay as the description says.
        skew_interval_s: within which it lies with 90 % probability; from the least to the largest
            of those that fit nearly as well, where there are several (the note `skew-ambiguous`).
        window_s: over which the meter takes the mean.
        window_interval_s: likewise.
        notes: everything that was repaired, guessed or set aside.
    """

    description: PowerDescription
    per: Literal["gpu", "node"]
    parameters: tuple[FittedPower, ...]
    sums: tuple[SeenSum, ...]
    held: tuple[str, ...]
    errors: ReadingErrors
    readings: int
    spread_percent: float
    condition: float
    skew_s: float
    skew_interval_s: tuple[float, float]
    window_s: float
    window_interval_s: tuple[float, float]
    notes: tuple[Note, ...]

    @property
    def model(self) -> "PowerModel":
        """The fitted model."""
        from jaxperf.energy.power._model import power_model

        return power_model(self.description)

    @property
    def not_identified(self) -> tuple[str, ...]:
        """Keys of the numbers that the log alone does not tell to within 3 %."""
        return tuple(each.key for each in self.parameters if not each.is_identified)
