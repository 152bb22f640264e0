"""Energy of one run from its power logs, over two windows of time."""

from dataclasses import dataclass

import numpy as np

from jaxperf.energy._score_types import MeasuredWindow
from jaxperf.energy.training._power_logs import PowerLog
from jaxperf.energy.training._run_logs import LoggedRun


@dataclass(frozen=True, slots=True)
class MeasuredPower:
    """Mean power that a log gives for a window.

    Attributes:
        power_w: after the conversion; NaN where no reading is of the window.
        coverage: share of the window that readings are of.
        readings: that count.
    """

    power_w: float
    coverage: float
    readings: int


def measurement_power(log: PowerLog) -> MeasuredPower:
    """Mean over the whole measurement, as the program of the rules takes it.

    Each reading counts from the reading before it; the sum is divided by the time from start to
    stop, or to the last reading where no stop is logged after the start.

    Source: mlcommons/logging, result_summarizer.py.

    Example:
        >>> from jaxperf.energy.training._power_logs import read_power_log
        >>> line = ':::MLLOG {{"key": "power_{}", "time_ms": {}, "value": {}}}'.format
        >>> text = "\\n".join([line("measurement_start", 0, 0), line("reading", 1000, 100),
        ...                   line("reading", 3000, 200), line("measurement_stop", 4000, 0)])
        >>> log = read_power_log(text.encode(), "node_0.txt")
        >>> measurement_power(log).power_w
        125.0
    """
    since_ms = np.diff(log.time_ms, prepend=log.start_ms)
    mean_w = _dot(log.power_w, since_ms) / (log.end_ms - log.start_ms)
    coverage = (log.time_ms[-1] - log.start_ms) / (log.end_ms - log.start_ms)
    return MeasuredPower(log.factor * mean_w, float(coverage), len(log.time_ms))


def window_power(log: PowerLog, start_ms: float, stop_ms: float) -> MeasuredPower:
    """Mean over a window of time, of what readings cover of it.

    Each reading counts from the reading before it, cut to the window.

    Example:
        >>> from jaxperf.energy.training._power_logs import read_power_log
        >>> line = ':::MLLOG {{"key": "power_{}", "time_ms": {}, "value": {}}}'.format
        >>> text = "\\n".join([line("measurement_start", 0, 0), line("reading", 1000, 100),
        ...                   line("reading", 3000, 200), line("measurement_stop", 4000, 0)])
        >>> log = read_power_log(text.encode(), "node_0.txt")
        >>> window_power(log, 2000.0, 3000.0).power_w
        200.0
    """
    begin_ms = np.concatenate([[log.start_ms], log.time_ms[:-1]])
    within_ms = np.minimum(log.time_ms, stop_ms) - np.maximum(begin_ms, start_ms)
    within_ms = np.maximum(within_ms, 0.0)
    covered_ms = float(within_ms.sum())
    if not covered_ms > 0.0:
        return MeasuredPower(np.nan, 0.0, 0)
    return MeasuredPower(
        log.factor * _dot(log.power_w, within_ms) / covered_ms,
        covered_ms / (stop_ms - start_ms),
        int((within_ms > 0.0).sum()),
    )


def _dot(power_w: np.ndarray, time_ms: np.ndarray) -> float:
    with np.errstate(over="ignore"):
        return float(power_w @ time_ms)


def official_window(run: LoggedRun) -> MeasuredWindow:
    """Energy of a run as the program of the rules computes it: mean power times the run's time."""
    return _window(run, [measurement_power(node) for node in run.nodes])


def run_window(run: LoggedRun) -> MeasuredWindow:
    """Energy of a run from `run_start` to `run_stop` alone."""
    return _window(run, node_powers(run))


def node_powers(run: LoggedRun) -> list[MeasuredPower]:
    """Mean power of each node of a run from `run_start` to `run_stop`."""
    return [window_power(node, run.result.start_ms, run.result.stop_ms) for node in run.nodes]


def _window(run: LoggedRun, nodes: list[MeasuredPower]) -> MeasuredWindow:
    duration_s = run.result.duration_s
    # The rules' program counts a switch by its estimate alone, and by 0 where it has none, so that
    # 0 is what the official energy has in it; without switches there is nothing to tell.
    estimates_w = [log.factor * log.interconnect_power_w for log in run.switches]
    interconnect_w = float(np.nansum(estimates_w)) if run.switches else np.nan
    # A run with no node log at all was not measured: its energy is unknown, not 0.
    node_w = sum(node.power_w for node in nodes) if nodes else np.nan
    total_w = node_w + (interconnect_w if run.switches else 0.0)
    return MeasuredWindow(
        energy_j=total_w * duration_s,
        average_power_w=total_w,
        duration_s=duration_s,
        interconnect_energy_j=interconnect_w * duration_s,
        readings=sum(node.readings for node in nodes),
    )
