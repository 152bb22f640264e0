"""What `jaxperf energy predict` tells of other clocks, power limits and the frontier."""

import math
from collections.abc import Sequence

import numpy as np
from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from jaxperf.energy import ClockAnswer, ClockWhatIf
from jaxperf.report._energy_words import joules_text, watts_text
from jaxperf.report._json import rounded_us, significant
from jaxperf.report._terminal import plain_table, with_rest
from jaxperf.report._words import UNKNOWN, percent_text, time_text

_MOST_CLOCKS = 16  # the JSON has them all


def clock_whatif_to_json(result: ClockWhatIf) -> dict:
    """The answers as plain values, ready for `json.dumps`.

    Args:
        result: of `jaxperf.energy.predict`.

    Returns:
        The baseline, the answers and the frontier. Times in us, energy in J, power in W,
        clocks in Hz. What cannot be is `None`.

    Example:
        >>> from jaxperf.energy import ClockAnswer, ClockWhatIf
        >>> baseline = ClockAnswer("baseline", {"all": 1e9}, 17.0, 1.0, 0.002, 1.0, 117.6)
        >>> clock_whatif_to_json(ClockWhatIf(baseline, (), (), ()))["baseline"]["energy_j"]
        0.002
    """
    return {
        "baseline": _answer(result.baseline),
        "answers": [_answer(each) for each in result.answers],
        "frontier": [_answer(each) for each in result.frontier],
    }


def _answer(answer: ClockAnswer) -> dict:
    return {
        "name": answer.name,
        "step_us": rounded_us(answer.step_us),
        "ratio": significant(answer.ratio),
        "energy_j": significant(answer.energy_j),
        "energy_ratio": significant(answer.energy_ratio),
        "average_power_w": significant(answer.average_power_w),
        "clock_hz": {name: significant(hz) for name, hz in answer.clock_hz.items()},
    }


def clock_sections(result: ClockWhatIf | None) -> list[tuple[str, RenderableType | None]]:
    """Clocks of the answers, and the frontier, as sections of what is printed.

    Args:
        result: of `jaxperf.energy.predict`.

    Returns:
        Titles and bodies.
    """
    if result is None:
        return []
    return [("Clocks", _clocks(result.answers)), ("Least energy for a step", _frontier(result))]


def clock_answers(result: ClockWhatIf) -> Text:
    """A line for the run as it was, and one for each answer.

    Args:
        result: of `jaxperf.energy.predict`.

    Returns:
        The lines.

    Example:
        >>> from jaxperf.energy import ClockAnswer, ClockWhatIf
        >>> baseline = ClockAnswer("baseline", {"all": 1e9}, 17.0, 1.0, 0.002, 1.0, 117.6)
        >>> slow = ClockAnswer("gemm = 990 MHz", {"gemm": 990e6}, 34.0, 2.0, 0.0015, 0.75, 44.1)
        >>> print(clock_answers(ClockWhatIf(baseline, (slow,), (), ())).plain)
        Step: 17.00 µs, 2.000 mJ, 117.6 W on all accelerators
        gemm = 990 MHz: 34.00 µs, +100.00 %, 1.500 mJ, -25.00 %
    """
    baseline = result.baseline
    text = Text("Step: ")
    text.append(time_text(baseline.step_us), style="bold")
    text.append(f", {joules_text(baseline.energy_j)}, {watts_text(baseline.average_power_w)} ")
    text.append("on all accelerators")
    for answer in result.answers:
        text.append(f"\n{answer.name}: ")
        if math.isfinite(answer.step_us):
            text.append(time_text(answer.step_us), style="bold")
            text.append(f", {_change(answer.ratio)}, {joules_text(answer.energy_j)}, ")
            text.append(_change(answer.energy_ratio))
        else:
            text.append("cannot be", style="bold")
    return text


def _clocks(answers: Sequence[ClockAnswer]) -> RenderableType | None:
    rows = [(each.name, *row) for each in answers for row in each.clock_hz.items()]
    if not rows:
        return None
    table = plain_table("scenario", "tasks", "clock")
    for name, selector, hz in rows[:_MOST_CLOCKS]:
        table.add_row(Text(name), Text(selector), _clock_text(hz))
    return with_rest(table, len(rows) - _MOST_CLOCKS)


def _frontier(result: ClockWhatIf) -> Table | None:
    if not result.frontier:
        return None
    table = plain_table("step", "", "energy", "", "power", "lowest clock", "highest")
    for point in result.frontier:
        clocks = np.array(list(point.clock_hz.values()))
        table.add_row(
            time_text(point.step_us),
            _change(point.ratio),
            joules_text(point.energy_j),
            _change(point.energy_ratio),
            watts_text(point.average_power_w),
            _clock_text(clocks.min()),
            _clock_text(clocks.max()),
        )
    return table


def _change(ratio: float) -> str:
    return percent_text(100.0 * (ratio - 1.0), signed=True)


def _clock_text(hz: float) -> str:
    return f"{hz / 1e6:.0f} MHz" if math.isfinite(hz) else UNKNOWN
