"""What `jaxperf energy score` prints."""

import math
import os.path
import re
from dataclasses import asdict

from rich.console import Console, Group
from rich.table import Table
from rich.text import Text

from jaxperf.energy import EnergyScore, HostEnergy, MeasuredWindow, Metric, RunScore
from jaxperf.report._energy_words import number_text
from jaxperf.report._json import known, notes_to_json
from jaxperf.report._terminal import PlainTable, notes_table, plain_table, print_sections, with_rest

_OUTCOME_STYLES = {"pass": "green", "warning": "yellow", "fail": "bold red"}
_MOST_RUNS = _MOST_HOSTS = 16  # the JSON has them all
_FLAG_WORDS = {
    "switch_as_readings_ignored_by_summarizer": "switch left out",
    "nodes_missing": "nodes missing",
    "not_converged": "not converged",
}
"""Shorter than their words in JSON, which are those of the published tables."""


def score_to_json(result: EnergyScore) -> dict:
    """A score as plain values, ready for `json.dumps`.

    Args:
        result: of `jaxperf.energy.score`.

    Returns:
        Energies in J, powers in W, times in s. What cannot be known is `None`.

    Example:
        >>> from jaxperf.energy import Check, Metric, MeasuredWindow, EnergyScore
        >>> window = MeasuredWindow(60.0, 6.0, 10.0, float("nan"), 11)
        >>> energy = Metric("energy", 60.0, "J")
        >>> score = EnergyScore("a.csv", "series", None, None, None, energy, None,
        ...                     6.0, 60.0, 10.0, window, window, (), (), ())
        >>> score_to_json(score)["official"]["interconnect_energy_j"] is None
        True
    """
    return {
        "source": result.source,
        "division": result.division,
        "benchmark": result.benchmark,
        "scenario": result.scenario,
        "system": result.system,
        "metric": _metric(result.metric),
        "efficiency": result.efficiency and _metric(result.efficiency),
        "average_power_w": known(result.average_power_w),
        "energy_j": known(result.energy_j),
        "duration_s": known(result.duration_s),
        "official": _numbers(result.official),
        "run_window": _numbers(result.run_window),
        "runs": [_run(run) for run in result.runs],
        "hosts": [_numbers(host) for host in result.hosts],
        "checks": [asdict(check) for check in result.checks],
        "notes": notes_to_json(result.notes),
    }


def _run(run: RunScore) -> dict:
    return {
        "name": run.name,
        "counted": run.counted,
        "duration_s": known(run.duration_s),
        "official": _numbers(run.official),
        "run_window": _numbers(run.run_window),
        "flags": list(run.flags),
    }


def _numbers(noun: MeasuredWindow | HostEnergy) -> dict:
    return {
        key: known(value) if isinstance(value, float) else value
        for key, value in asdict(noun).items()
    }


def _metric(metric: Metric) -> dict:
    return {"name": metric.name, "value": known(metric.value), "unit": metric.unit}


def print_score(result: EnergyScore, console: Console) -> None:
    """Print a score as tables that fit 80 columns.

    Args:
        result: of `jaxperf.energy.score`.
        console: where to print.

    Example:
        >>> from jaxperf.energy import EnergyScore
        >>> window = MeasuredWindow(60.0, 6.0, 10.0, float("nan"), 11)
        >>> score = EnergyScore("a.csv", "series", None, None, None, Metric("energy", 60.0, "J"),
        ...                     None, 6.0, 60.0, 10.0, window, window, (), (), ())
        >>> print_score(score, Console(width=80))  # doctest: +ELLIPSIS
        series: 60 J  energy
        ...
    """
    sections = [
        _windows(result),
        (_runs_title(result), _runs(result)),
        ("Hosts", _hosts(result)),
        ("Rules", _checks(result)),
        ("Notes", notes_table(result.notes)),
    ]
    print_sections(_answer(result), sections, console)


def _answer(result: EnergyScore) -> Text:
    named = (result.division, result.benchmark, result.scenario, result.system)
    text = Text(f"{', '.join(filter(None, named))}: ")
    text.append(metric_text(result.metric), style="bold")
    text.append(f"  {result.metric.name.replace('_', ' ')}")
    if result.efficiency is not None:
        text.append(f"\n{result.efficiency.name.replace('_', ' ')}: ")
        text.append(metric_text(result.efficiency), style="bold")
    return text


def metric_text(metric: Metric) -> str:
    """A metric as a person reads it.

    Example:
        >>> metric_text(Metric("average_power", 6280.2136, "W"))
        '6,280.21 W'
    """
    return f"{number_text(metric.value)} {metric.unit}"


_QUANTITIES = (
    ("energy_j", "energy, J"),
    ("average_power_w", "average power, W"),
    ("duration_s", "duration, s"),
    ("interconnect_energy_j", "of it interconnect, J"),
    ("readings", "readings"),
)


def _windows(result: EnergyScore) -> tuple[str, Table]:
    if result.division == "series":
        return "The readings that count", _one_window(result.official)
    table = plain_table("", "official", "run alone", "difference")
    for field, words in _QUANTITIES:
        pair = getattr(result.official, field), getattr(result.run_window, field)
        if math.isfinite(pair[0]) or math.isfinite(pair[1]):
            table.add_row(words, *(number_text(value) for value in pair), _difference(*pair))
    return "The official window, and the run alone", table


def _one_window(window: MeasuredWindow) -> Table:
    """No rule averages plain readings, so their two windows are one."""
    table = PlainTable(box=None, pad_edge=False, show_header=False)
    table.add_column()
    table.add_column(justify="right")
    for field, words in _QUANTITIES:
        value = getattr(window, field)
        if math.isfinite(value):
            table.add_row(words, number_text(value))
    return table


def _difference(official: float, run: float) -> str:
    if not (math.isfinite(official) and math.isfinite(run) and official):
        return ""
    return f"{100 * (run / official - 1):+.2f} %"


def _shared_name(result: EnergyScore) -> str:
    """What the names of all runs begin with, to the end of a word."""
    common = os.path.commonprefix([run.name for run in result.runs])
    return re.sub(r"[A-Za-z0-9]*$", "", common)


def _runs_title(result: EnergyScore) -> str:
    shared = _shared_name(result)
    return f"Runs {shared}*" if shared else "Runs"


def _runs(result: EnergyScore) -> Group | None:
    if not result.runs:
        return None
    shared = _shared_name(result)
    table = plain_table("run", "counted", "minutes", "official, kJ", "run alone, kJ", "flags")
    for run in result.runs[:_MOST_RUNS]:
        energies = (run.official.energy_j / 1e3, run.run_window.energy_j / 1e3)
        table.add_row(
            run.name.removeprefix(shared),
            "yes" if run.counted else "no",
            f"{run.duration_s / 60:.2f}",
            *(number_text(energy) for energy in energies),
            ", ".join(_FLAG_WORDS.get(flag, flag) for flag in run.flags),
        )
    return with_rest(table, len(result.runs) - _MOST_RUNS)


def _hosts(result: EnergyScore) -> Group | None:
    if len(result.hosts) < 2:
        return None
    table = plain_table("host", "energy, J", "average power, W", "gaps", "longest, s")
    for host in result.hosts[:_MOST_HOSTS]:
        longest = number_text(host.longest_gap_s) if host.gaps else ""
        numbers = (number_text(value) for value in (host.energy_j, host.average_power_w))
        table.add_row(host.host or "", *numbers, str(host.gaps), longest)
    return with_rest(table, len(result.hosts) - _MOST_HOSTS)


def _checks(result: EnergyScore) -> Table | None:
    if not result.checks:
        return None
    table = PlainTable(box=None, pad_edge=False, show_header=False)
    for _ in range(3):
        table.add_column(overflow="fold")
    for check in result.checks:
        style = _OUTCOME_STYLES[check.outcome]
        table.add_row(Text(check.outcome, style=style), Text(check.name), Text(check.text))
    return table
