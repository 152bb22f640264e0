"""The performance log of one training run: `result_<id>.txt`."""

from dataclasses import dataclass

import numpy as np

from jaxperf.energy._mllog import LoggedEvent, read_events
from jaxperf.errors import LogError

_KEYS = frozenset(
    {
        "run_start",
        "run_stop",
        "submission_benchmark",
        "submission_platform",
        "global_batch_size",
        "tracked_stats",
    }
)


@dataclass(frozen=True, slots=True)
class ResultLog:
    """When one run trained, and what. NaN and `None` are what the log does not tell.

    Attributes:
        name: of the file, without its ending.
        start_ms, stop_ms: `run_start` and `run_stop`, since the epoch.
        status: of `run_stop`: `success` or `aborted`.
        benchmark, platform: as the log names them.
        global_batch: samples of one step of all ranks.
        samples_per_s: median of the throughput that the run logged.
    """

    name: str
    start_ms: float
    stop_ms: float
    status: str | None
    benchmark: str | None
    platform: str | None
    global_batch: float
    samples_per_s: float

    @property
    def duration_s(self) -> float:
        """From `run_start` to `run_stop`."""
        return (self.stop_ms - self.start_ms) / 1e3

    @property
    def converged(self) -> bool:
        """Whether it ran from start to stop and reached its target."""
        return self.status == "success" and not np.isnan(self.duration_s)


def read_result_log(content: bytes, where: str, name: str) -> ResultLog:
    """What a performance log tells of its run.

    Args:
        content: of the file; lines may have a prefix, such as the rank and a colon.
        where: the file, for messages.
        name: of the file, without its ending.

    Returns:
        The log.

    Raises:
        LogError: an event is not whole, or the run stops before it starts.

    Example:
        >>> text = b'''0: :::MLLOG {"key": "run_start", "time_ms": 1000}
        ... 0: :::MLLOG {"key": "run_stop", "time_ms": 3000, "metadata": {"status": "success"}}'''
        >>> read_result_log(text, "result_0.txt", "result_0").duration_s
        2.0
    """
    by_key: dict[str, list[LoggedEvent]] = {key: [] for key in _KEYS}
    for event in read_events(content, where, _KEYS):
        by_key[event.key].append(event)
    start, stop = _run(by_key["run_start"], by_key["run_stop"])
    if start is not None and stop is not None and stop.time_ms <= start.time_ms:
        raise LogError(
            "the run stops before it starts",
            where=f"{where}, line {stop.line}",
            got=f"run_stop at {stop.time_ms:.0f} ms, run_start at {start.time_ms:.0f} ms",
        )
    throughput = [
        event.value["throughput"]
        for event in by_key["tracked_stats"]
        if isinstance(event.value, dict) and _is_number(event.value.get("throughput"))
    ]
    batch = [event.value for event in by_key["global_batch_size"] if _is_number(event.value)]
    return ResultLog(
        name=name,
        start_ms=start.time_ms if start else np.nan,
        stop_ms=stop.time_ms if stop else np.nan,
        status=_word(stop.metadata.get("status")) if stop else None,
        benchmark=_first_word(by_key["submission_benchmark"]),
        platform=_first_word(by_key["submission_platform"]),
        global_batch=float(batch[0]) if batch else np.nan,
        samples_per_s=float(np.median(throughput)) if throughput else np.nan,
    )


def _run(starts: list[LoggedEvent], stops: list[LoggedEvent]):
    """The first stop, and the last start before it, as the program of the rules takes them."""
    stop = stops[0] if stops else None
    before = [start for start in starts if stop is None or start.line < stop.line]
    return (before or starts or [None])[-1], stop


def _is_number(value) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _word(value) -> str | None:
    return value if isinstance(value, str) else None


def _first_word(events: list[LoggedEvent]) -> str | None:
    return next((word for event in events if (word := _word(event.value))), None)
