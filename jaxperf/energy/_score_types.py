"""The nouns of a score: a metric, checks, and the energy of one or two windows of a log."""

from dataclasses import dataclass
from typing import Literal

from jaxperf.trace import Note

Division = Literal["inference", "tiny", "training", "hpc", "series"]
Outcome = Literal["pass", "warning", "fail"]


@dataclass(frozen=True, slots=True)
class Metric:
    """A number with its name and unit, as a benchmark's rules define it."""

    name: str
    value: float
    unit: str


@dataclass(frozen=True, slots=True)
class Check:
    """One rule of a benchmark, applied to a log.

    Attributes:
        name: of the rule.
        outcome: `pass`, `warning` or `fail`.
        text: why; empty where it passed and there is nothing to add.
    """

    name: str
    outcome: Outcome
    text: str


@dataclass(frozen=True, slots=True)
class MeasuredWindow:
    """What was measured in one window of time. NaN is what the log does not tell.

    Attributes:
        energy_j: all of it, interconnect included.
        average_power_w: energy by duration.
        duration_s: length of the window.
        interconnect_energy_j: the part that was estimated for the network; NaN where there are no
            logs of switches. Of switches that were logged as readings it is 0, as the rules' own
            program counts them, with the note `switch-not-counted`.
        readings: of power, inside the window.
    """

    energy_j: float
    average_power_w: float
    duration_s: float
    interconnect_energy_j: float
    readings: int


@dataclass(frozen=True, slots=True)
class RunScore:
    """One run of a training submission.

    Attributes:
        name: of its result log.
        counted: whether the Olympic scoring keeps it.
        duration_s: from `run_start` to `run_stop`.
        official: as the rules' own program computes it.
        run_window: of the readings between `run_start` and `run_stop` alone.
        flags: what is wrong with its power logs, in stable words.
    """

    name: str
    counted: bool
    duration_s: float
    official: MeasuredWindow
    run_window: MeasuredWindow
    flags: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class HostEnergy:
    """What plain readings tell of one host, or of one accelerator, in the window of the score.

    Attributes:
        host: as the log names it; `None` where it does not.
        energy_j: between its first and its last reading there; NaN where it has none.
        average_power_w: that energy by the time between them.
        gaps: how many intervals without a reading are much longer than the others.
        longest_gap_s: length of the longest of them; 0 where there is none.
    """

    host: str | None
    energy_j: float
    average_power_w: float
    gaps: int
    longest_gap_s: float


@dataclass(frozen=True, slots=True)
class EnergyScore:
    """A power log, scored by the rules of its benchmark.

    Attributes:
        source: the folder or archive.
        division: whose rules were applied.
        benchmark, scenario, system: as the logs name them; `None` where they do not.
        metric: what the rules report.
        efficiency: work by energy, such as samples per joule; `None` where the rules have none.
        average_power_w, energy_j, duration_s: of the official window.
        official: as the rules' own program computes it.
        run_window: time-weighted, of the run alone.
        runs: of a training submission, each run; empty otherwise.
        checks: every rule with its outcome.
        notes: what was repaired, guessed, or set aside.
        hosts: of plain readings, each host; empty otherwise.
    """

    source: str
    division: Division
    benchmark: str | None
    scenario: str | None
    system: str | None
    metric: Metric
    efficiency: Metric | None
    average_power_w: float
    energy_j: float
    duration_s: float
    official: MeasuredWindow
    run_window: MeasuredWindow
    runs: tuple[RunScore, ...]
    checks: tuple[Check, ...]
    notes: tuple[Note, ...]
    hosts: tuple[HostEnergy, ...] = ()
