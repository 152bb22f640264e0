"""What the runner of MLPerf Tiny printed: `results.txt` of an energy run."""

import re
from dataclasses import dataclass

import numpy as np

from jaxperf.errors import LogError

_HEAD = re.compile(
    r"(?:Energy data|Performance results) for (?:window|trial) (?P<number>\d{1,9})(?!\d)"
    r"(?: at time \S+ for (?P<duration_s>[\d.]+) sec)?"
)
_FIELD = re.compile(
    r"(?P<name>Total Energy|Energy|# Inferences|Inferences|Runtime|Elapsed time)\s*:"
    r"\s*(?P<value>[\d.]+)\s*(?P<unit>\w*)"
)
_MEDIAN = re.compile(r"Median energy cost is (?P<value>[\d.]+) (?P<unit>\w+)/inf")
_DUTY = re.compile(r"Average duty cycle: (?P<value>[\d.]+)")
_ACCURACY = re.compile(r"Accuracy: (?P<text>.*\S)")
_FIELDS = {
    "Total Energy": "energy_uj",
    "Energy": "energy_uj",
    "# Inferences": "inferences",
    "Inferences": "inferences",
    "Runtime": "duration_s",
    "Elapsed time": "duration_s",
}


@dataclass(frozen=True, slots=True)
class PrintedWindow:
    """One measured window, as printed."""

    energy_uj: float
    duration_s: float
    inferences: float

    @property
    def per_inference_uj(self) -> float:
        """Energy of one inference."""
        return self.energy_uj / self.inferences


@dataclass(frozen=True, slots=True)
class PrintedResult:
    """The result of an energy run, as printed.

    Attributes:
        windows: in order of time.
        median_uj: energy of one inference, in the median of the windows.
        duty_cycle: of a streaming benchmark, the share of time at work; NaN of another.
        accuracy: of a streaming benchmark, as printed; empty of another.
    """

    windows: tuple[PrintedWindow, ...]
    median_uj: float
    duty_cycle: float
    accuracy: str


def read_printed_result(text: str, where: str) -> PrintedResult:
    """Read `results.txt` of an energy run: of the runner up to v1.2, or from v1.3.

    Args:
        text: of the file.
        where: the file, for messages.

    Raises:
        LogError: no window, no median, or a window without energy, time or inferences.

    Example:
        >>> printed = "\\n".join([
        ...     "Energy data for window 0 at time 2.0 for 10.0 sec.:",
        ...     "Energy : 5000.0 uJ",
        ...     "# Inferences : 20",
        ...     "Median energy cost is 250.0 uJ/inf.",
        ... ])
        >>> read_printed_result(printed, "results.txt").windows[0].per_inference_uj
        250.0
    """
    found = _Found({}, {})
    current: dict[str, float] = {}
    for number, line in enumerate(text.splitlines(), start=1):
        current = _read_line(line, f"{where}, line {number}", number, found, current)
    no_median = np.isnan(found.median_uj)
    if not found.windows or no_median:
        raise LogError(
            "no energy of a whole run",
            where=where,
            got=f"{len(found.windows)} windows, {'no' if no_median else 'a'} median",
            expected="'Energy data for window ...' and 'Median energy cost is ...'",
        )
    _check_windows(found, where)
    windows = tuple(PrintedWindow(**window) for window in found.windows.values())
    return PrintedResult(windows, found.median_uj, found.duty_cycle, found.accuracy)


@dataclass
class _Found:
    """What was read so far: windows by their number, and the line of the head of each."""

    windows: dict[int, dict[str, float]]
    heads: dict[int, int]
    median_uj: float = np.nan
    duty_cycle: float = np.nan
    accuracy: str = ""


def _read_line(
    line: str, place: str, number: int, found: _Found, current: dict[str, float]
) -> dict[str, float]:
    """Put a line into `found`; the window that the next lines are of."""
    if match := _HEAD.search(line):
        found.heads.setdefault(int(match["number"]), number)
        current = found.windows.setdefault(int(match["number"]), {})
        if match["duration_s"]:
            current["duration_s"] = _number(match["duration_s"], place)
    elif match := _MEDIAN.search(line):
        found.median_uj = _microjoules(match, place)
    elif match := _FIELD.search(line):
        name = _FIELDS[match["name"]]
        read = _microjoules(match, place) if name == "energy_uj" else _number(match["value"], place)
        current[name] = read
    elif match := _DUTY.search(line):
        found.duty_cycle = _number(match["value"], place)
    elif match := _ACCURACY.search(line):
        found.accuracy = match["text"]
    return current


def _check_windows(found: _Found, where: str) -> None:
    for key, window in found.windows.items():
        for field in ("energy_uj", "duration_s", "inferences"):
            if not window.get(field, 0.0) > 0.0:
                raise LogError(
                    f"window {key} has no {field.split('_')[0]} above 0",
                    where=f"{where}, line {found.heads[key]}",
                )


def _number(text: str, where: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise LogError("not a number", where=where, got=repr(text)) from None


def _microjoules(found: re.Match[str], where: str) -> float:
    if found["unit"] != "uJ":
        raise LogError("not in microjoules", where=where, got=found["unit"] or "no unit")
    return _number(found["value"], where)
