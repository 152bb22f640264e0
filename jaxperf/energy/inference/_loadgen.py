"""What loadgen writes of a run: `mlperf_log_detail.txt` and `mlperf_log_summary.txt`."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from jaxperf.energy._mllog import LoggedEvent, read_events
from jaxperf.energy._score_types import Metric
from jaxperf.energy.inference._clock import clock_text, clock_time_us
from jaxperf.errors import LogError

SCENARIOS = ("Offline", "Server", "Interactive", "SingleStream", "MultiStream")

_OFFLINE = "result_samples_per_second"
_SCHEDULED = "result_scheduled_samples_per_sec"
_COMPLETED = "result_completed_samples_per_sec"
_SINGLE_STREAM = "result_90.00_percentile_latency_ns"
_MULTI_STREAM = "result_99.00_percentile_per_query_latency_ns"
_QUERIES_PER_S = "result_qps_with_loadgen_overhead"
_TOKENS = ("result_tokens_per_second", "result_completed_tokens_per_second")

_KEYS = (
    "power_begin",
    "power_end",
    "effective_scenario",
    "result_validity",
    "result_query_count",
    _OFFLINE,
    _SCHEDULED,
    _COMPLETED,
    _SINGLE_STREAM,
    _MULTI_STREAM,
    _QUERIES_PER_S,
    *_TOKENS,
)


@dataclass(frozen=True)
class LoadgenRun:
    """One run of a benchmark, as loadgen logged it.

    Attributes:
        where: its detailed log, for messages.
        begin_us, end_us: of the measured window: the clock of the system under test as it was
            logged, as if it ran in UTC.
        scenario: one of `SCENARIOS`; `None` where no log names it.
        valid: what loadgen says of the result; `None` where it does not.
        query_count: of the window; `None` before loadgen 2.0.
        performance: what the benchmark reports of speed; `None` where it is not logged.
        results: other numbers of the log, by their key.
    """

    where: str
    begin_us: int
    end_us: int
    scenario: str | None
    valid: bool | None
    query_count: int | None
    performance: Metric | None
    results: Mapping[str, float]

    @property
    def duration_s(self) -> float:
        """Length of the window."""
        return (self.end_us - self.begin_us) / 1e6

    @property
    def tokens_per_s(self) -> float | None:
        """Of language models whose loadgen counts tokens, else `None`."""
        return next((self.results[key] for key in _TOKENS if key in self.results), None)

    @property
    def queries_per_s(self) -> float | None:
        """Of a single stream, from its first query to the end of its last, else `None`."""
        return self.results.get(_QUERIES_PER_S)


def read_loadgen(detail: bytes, where: str, summary: Mapping[str, str]) -> LoadgenRun:
    """A run from its logs.

    Args:
        detail: content of `mlperf_log_detail.txt`.
        where: that file, for messages.
        summary: of `read_summary`; empty where there is none.

    Returns:
        The run.

    Raises:
        LogError: the window is not logged, cannot be read, or ends before it starts.

    Example:
        >>> line = ':::MLLOG {{"key": "power_{}", "value": "01-01-2025 00:0{}:00.0", "time_ms": 0}}'
        >>> log = "\\n".join([line.format("begin", 1), line.format("end", 3)])
        >>> run = read_loadgen(log.encode(), "mlperf_log_detail.txt", {"Result is": "INVALID"})
        >>> run.duration_s, run.valid
        (120.0, False)
    """
    events = read_events(detail, where, _KEYS)
    begin, end = _window(events, where)
    values: dict[str, Any] = {event.key: event.value for event in events}
    results = {key: float(value) for key, value in values.items() if _is_number(value)}
    scenario = values.get("effective_scenario") or summary.get("Scenario")
    return LoadgenRun(
        where=where,
        begin_us=begin,
        end_us=end,
        scenario=scenario if scenario in SCENARIOS else None,
        valid=_valid(values.get("result_validity") or summary.get("Result is")),
        query_count=_count(results.get("result_query_count")),
        performance=_performance(scenario, results, summary),
        results=results,
    )


def read_summary(content: bytes) -> dict[str, str]:
    """The lines `label : value` of `mlperf_log_summary.txt`, its additional statistics left out.

    Args:
        content: of the file.

    Returns:
        Values by label.

    Example:
        >>> read_summary(b"Scenario : Server\\nCompleted samples per second    : 28.46")
        {'Scenario': 'Server', 'Completed samples per second': '28.46'}
    """
    head = content.decode("utf-8", errors="replace").partition("Additional Stats")[0]
    pairs = (line.partition(":") for line in head.splitlines())
    return {label.strip(): value.strip() for label, colon, value in pairs if colon}


def _window(events: list[LoggedEvent], where: str) -> tuple[int, int]:
    # As the rules' program does: the last begin before the first end.
    end = next((event for event in events if event.key == "power_end"), None)
    begins = [event for event in events if event.key == "power_begin"]
    earlier = [event for event in begins if end is None or event.line < end.line]
    begin = (earlier[-1:] or begins[:1] or [None])[0]
    if begin is None or end is None:
        missing = "power_begin" if begin is None else "power_end"
        raise LogError(f"{missing} is missing", where=where, remedy="the log was cut, or not made")
    begin_us, end_us = _time_us(begin, where), _time_us(end, where)
    if end_us <= begin_us:
        raise LogError(
            "power_end is not after power_begin",
            where=f"{where}, line {end.line}",
            got=f"{clock_text(begin_us)} to {clock_text(end_us)}",
        )
    return begin_us, end_us


def _time_us(event: LoggedEvent, where: str) -> int:
    time_us = clock_time_us(event.value)
    if time_us is None:
        raise LogError(
            f"{event.key} is not a time",
            where=f"{where}, line {event.line}",
            got=repr(event.value)[:40],
            expected="such as 08-01-2025 00:39:24.362",
        )
    return time_us


def _performance(
    scenario: str | None, results: Mapping[str, float], summary: Mapping[str, str]
) -> Metric | None:
    # From loadgen 4.1 a server's headline is what it completed; before, what was scheduled.
    completed = "Completed samples per second" in summary
    key, name, unit = {
        "Offline": (_OFFLINE, "throughput", "samples/s"),
        "Server": (_COMPLETED if completed else _SCHEDULED, "throughput", "queries/s"),
        "SingleStream": (_SINGLE_STREAM, "90th percentile latency", "ns"),
        "MultiStream": (_MULTI_STREAM, "99th percentile latency", "ns"),
    }.get(scenario or "", ("", "", ""))
    return Metric(name, results[key], unit) if key in results else None


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _count(value: float | None) -> int | None:
    return int(value) if value is not None and value >= 1 else None


def _valid(word: Any) -> bool | None:
    return {"VALID": True, "INVALID": False}.get(word) if isinstance(word, str) else None
