"""What a session reports: power, or energy per query, and how much work a joule does.

Source: mlcommons/inference, tools/submission/submission_checker/checks/power_check.py.
"""

import math

from jaxperf.energy._efficiency import (
    SAMPLES_PER_QUERY,
    samples_per_joule,
    samples_per_joule_of_stream,
)
from jaxperf.energy._score_types import MeasuredWindow, Metric
from jaxperf.energy.inference._loadgen import LoadgenRun
from jaxperf.trace import Note


def energy_metric(scenario: str | None, window: MeasuredWindow, run: LoadgenRun) -> Metric:
    """The metric of a scenario.

    Args:
        scenario: as submitted. Where it is MultiStream and the run is a single stream, eight of its
            queries make one.
        window: the official one.
        run: the run.

    Returns:
        Average power in W, or energy per query in mJ for streams; NaN where the count of queries
        is not known.

    Example:
        >>> window = MeasuredWindow(30_000.0, 500.0, 60.0, math.nan, 60)
        >>> run = LoadgenRun("", 0, 60_000_000, "MultiStream", True, 6000, None, {})
        >>> metric = energy_metric("MultiStream", window, run)
        >>> metric
        Metric(name='energy per query', value=5000.0, unit='mJ')
    """
    stream = _stream(scenario)
    if stream is None:
        return Metric("average power", window.average_power_w, "W")
    queries, _ = query_count(run)
    inferred = scenario == "MultiStream" and run.scenario == "SingleStream"
    factor = SAMPLES_PER_QUERY[stream] if inferred else 1
    value = factor * window.energy_j * 1000 / queries if queries else math.nan
    return Metric("energy per query", value, "mJ")


def efficiency_metric(
    scenario: str | None, metric: Metric, window: MeasuredWindow, run: LoadgenRun
) -> Metric | None:
    """Work by energy: samples per joule, or tokens per joule where loadgen counts tokens.

    Args:
        scenario: as submitted.
        metric: of `energy_metric`.
        window: the official one.
        run: the run.

    Returns:
        The efficiency; `None` where the log does not tell it.

    Example:
        >>> window = MeasuredWindow(30_000.0, 500.0, 60.0, math.nan, 60)
        >>> run = LoadgenRun("", 0, 60_000_000, "MultiStream", True, 6000, None, {})
        >>> metric = energy_metric("MultiStream", window, run)
        >>> efficiency_metric("MultiStream", metric, window, run)
        Metric(name='samples per joule', value=1.6, unit='1/J')
    """
    stream = _stream(scenario)
    if stream is not None:
        if not math.isfinite(metric.value):
            return None
        per_j = samples_per_joule_of_stream(stream, metric.value / 1000)
        return Metric("samples per joule", per_j, "1/J")
    if run.tokens_per_s is not None:
        per_j = samples_per_joule(run.tokens_per_s, window.average_power_w)
        return Metric("tokens per joule", per_j, "1/J")
    if run.performance is None or run.performance.name != "throughput":
        return None
    per_j = samples_per_joule(run.performance.value, window.average_power_w)
    return Metric("samples per joule", per_j, "1/J")


def _stream(scenario: str | None) -> str | None:
    """A scenario that is scored by energy per query, as the formulae name it."""
    name = (scenario or "").lower()
    return name if name in SAMPLES_PER_QUERY else None


def query_count(run: LoadgenRun) -> tuple[float | None, tuple[Note, ...]]:
    """Queries of a stream in the window.

    Loadgen before 2.0 does not log them, and the energies of rounds 1.0 and 1.1 were published as
    power by the rate of queries.

    Returns:
        The count, and a note where it follows from the rate or is not known.

    Example:
        >>> rate = {"result_qps_with_loadgen_overhead": 100.0}
        >>> run = LoadgenRun("", 0, 60_000_000, "SingleStream", True, None, None, rate)
        >>> queries, (note,) = query_count(run)
        >>> queries, note.code
        (6000.0, 'query-rate-taken')
    """
    if run.query_count is not None:
        return run.query_count, ()
    if run.queries_per_s:
        text = "result_query_count is missing; result_qps_with_loadgen_overhead was taken"
        return run.queries_per_s * run.duration_s, (Note("query-rate-taken", text, run.where),)
    text = "result_query_count is missing, so energy per query is not known"
    return None, (Note("query-count-missing", text, run.where),)
