"""What the runner of MLPerf Tiny printed: `results.txt` of an energy run."""

import re
from dataclasses import dataclass

import numpy as np

from jaxperf.errors import LogError

_HEAD = re.compile(
    r"(?:Energy data|Performance results) for (?:window|trial) (?P<number>\d+)"
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
    """
    windows: dict[int, dict[str, float]] = {}
    heads: dict[int, int] = {}
    current: dict[str, float] = {}
    median_uj, duty_cycle, accuracy = np.nan, np.nan, ""
    for number, line in enumerate(text.splitlines(), start=1):
        place = f"{where}, line {number}"
        if found := _HEAD.search(line):
            heads.setdefault(int(found["number"]), number)
            current = windows.setdefault(int(found["number"]), {})
            if found["duration_s"]:
                current["duration_s"] = _number(found["duration_s"], place)
        elif found := _MEDIAN.search(line):
            median_uj = _microjoules(found, place)
        elif found := _FIELD.search(line):
            name = _FIELDS[found["name"]]
            is_energy = name == "energy_uj"
            current[name] = (
                _microjoules(found, place) if is_energy else _number(found["value"], place)
            )
        elif found := _DUTY.search(line):
            duty_cycle = _number(found["value"], place)
        elif found := _ACCURACY.search(line):
            accuracy = found["text"]
    if not windows or np.isnan(median_uj):
        raise LogError(
            "no energy of a whole run",
            where=where,
            got=f"{len(windows)} windows, {'no' if np.isnan(median_uj) else 'a'} median",
            expected="'Energy data for window ...' and 'Median energy cost is ...'",
        )
    for key, window in windows.items():
        for field in ("energy_uj", "duration_s", "inferences"):
            if not window.get(field, 0.0) > 0.0:
                raise LogError(
                    f"window {key} has no {field.split('_')[0]} above 0",
                    where=f"{where}, line {heads[key]}",
                )
    return PrintedResult(
        tuple(PrintedWindow(**window) for window in windows.values()),
        median_uj,
        duty_cycle,
        accuracy,
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
