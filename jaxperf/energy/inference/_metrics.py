"""What a session reports: power, or energy per query, and how much work a joule does.

Source: mlcommons/inference, tools/submission/submission_checker/checks/power_check.py.
"""

import math

from jaxperf.energy._score_types import MeasuredWindow, Metric
from jaxperf.energy.inference._loadgen import LoadgenRun
from jaxperf.trace import Note

_STREAMS = {"SingleStream": 1, "MultiStream": 8}
"""Samples per query."""


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
    """
    if scenario not in _STREAMS:
        return Metric("average power", window.average_power_w, "W")
    queries, _ = query_count(run)
    inferred = scenario == "MultiStream" and run.scenario == "SingleStream"
    factor = _STREAMS[scenario] if inferred else 1
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
    """
    if scenario in _STREAMS:
        samples = _STREAMS[scenario]
        per_j = samples * 1000 / metric.value
        return Metric("samples per joule", per_j, "1/J") if math.isfinite(per_j) else None
    if run.tokens_per_s is not None:
        return Metric("tokens per joule", run.tokens_per_s / window.average_power_w, "1/J")
    if run.performance is None or run.performance.name != "throughput":
        return None
    return Metric("samples per joule", run.performance.value / window.average_power_w, "1/J")


def query_count(run: LoadgenRun) -> tuple[float | None, tuple[Note, ...]]:
    """Queries of a stream in the window.

    Loadgen before 2.0 does not log them, and the energies of rounds 1.0 and 1.1 were published as
    power by the rate of queries.

    Returns:
        The count, and a note where it follows from the rate or is not known.
    """
    if run.query_count is not None:
        return run.query_count, ()
    if run.queries_per_s:
        text = "result_query_count is missing; result_qps_with_loadgen_overhead was taken"
        return run.queries_per_s * run.duration_s, (Note("query-rate-taken", text, run.where),)
    text = "result_query_count is missing, so energy per query is not known"
    return None, (Note("query-count-missing", text, run.where),)
