"""The JSON that `jaxperf replay --json` prints."""

import math

from jaxperf.replay import Breakdown, RankSummary, Replay, TimeComparison
from jaxperf.trace import Note

_DECIMALS = 3  # of microseconds
_PERCENT_DECIMALS = 4


def replay_to_json(replay: Replay) -> dict:
    """A replay as plain values, ready for `json.dumps`.

    Args:
        replay: the result of a replay.

    Returns:
        Ranks, window, steps, errors, breakdown, critical path and notes. Times in us, to the
        nanosecond. What cannot be known is `None`. Classes stand in order of their time.

    Example:
        >>> import tempfile
        >>> from jaxperf.replay import replay
        >>> from jaxperf.simulator import SimulatedJob, simulate, write_traces
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     result = replay(write_traces(simulate(SimulatedJob(layers=1)), folder))
        >>> replay_to_json(result)["ranks"][0]["rank"]
        0
    """
    hold_out = replay.hold_out
    return {
        "ranks": [_rank(summary) for summary in replay.ranks],
        "window": times_to_json(replay.window),
        "steps": [{"name": step.name, **times_to_json(step)} for step in replay.steps],
        "mean_abs_error_percent": rounded_percent(replay.mean_abs_error_percent),
        "task_start_error_us": {
            "median": rounded_us(replay.task_start_error_median_us),
            "p95": rounded_us(replay.task_start_error_p95_us),
        },
        "breakdown": {
            "measured": breakdown_to_json(replay.breakdown_measured),
            "replayed": breakdown_to_json(replay.breakdown_replayed),
        },
        "critical_path_us": {
            name: rounded_us(time)
            for name, time in sorted(replay.critical_path_us.items(), key=lambda x: (-x[1], x[0]))
        },
        "hold_out": hold_out
        and {"mean_abs_error_percent": rounded_percent(hold_out.mean_abs_error_percent)},
        "notes": notes_to_json(replay.notes),
    }


def notes_to_json(notes: tuple[Note, ...]) -> list[dict]:
    """Notes as plain values, in their order.

    Args:
        notes: what was repaired, guessed or set aside.

    Returns:
        One object per note, with `code`, `text` and `where`.

    Example:
        >>> notes_to_json((Note("no-steps", "no step marks"),))
        [{'code': 'no-steps', 'text': 'no step marks', 'where': None}]
    """
    return [{"code": note.code, "text": note.text, "where": note.where} for note in notes]


def _rank(summary: RankSummary) -> dict:
    return {
        "rank": summary.rank,
        "files": list(summary.files),
        "device": summary.device,
        "events": summary.events,
        "device_tasks": summary.device_tasks,
        "clock_offset_us": rounded_us(summary.clock.offset_us),
        "clock_uncertainty_us": rounded_us(summary.clock.uncertainty_us),
        "clock_drift_ppm": rounded_us(summary.clock.drift_ppm),
    }


def times_to_json(span: TimeComparison) -> dict:
    """A span measured and replayed, and the error."""
    return {
        "measured_us": rounded_us(span.measured_us),
        "replayed_us": rounded_us(span.replayed_us),
        "error_percent": rounded_percent(span.error_percent),
    }


def breakdown_to_json(breakdown: Breakdown | None) -> dict | None:
    """Where the time goes; `None` where nobody knows."""
    if breakdown is None:
        return None
    return {
        "compute_us": rounded_us(breakdown.compute_us),
        "overlap_us": rounded_us(breakdown.overlap_us),
        "exposed_communication_us": rounded_us(breakdown.exposed_communication_us),
        "memory_us": rounded_us(breakdown.memory_us),
        "idle_us": rounded_us(breakdown.idle_us),
        "total_us": rounded_us(breakdown.total_us),
    }


def rounded_us(value: float) -> float | None:
    """A time to the nanosecond, the resolution of a trace; `None` where it is not known."""
    return _rounded(value, _DECIMALS)


def rounded_percent(value: float) -> float | None:
    """An error or a share; `None` where it is not known."""
    return _rounded(value, _PERCENT_DECIMALS)


def known(value: float) -> float | None:
    """A number to its last digit; `None` where it is not known."""
    return float(value) if math.isfinite(value) else None


def significant(value: float, digits: int = 10) -> float | None:
    """A number of any magnitude to so many digits; `None` where it is not known.

    Args:
        value: such as the energy of a token, or of a training, 15 powers of ten more.
        digits: kept.

    Example:
        >>> significant(0.1 + 0.2), significant(123456.7, 3), significant(float("nan"))
        (0.3, 123000.0, None)
    """
    return float(f"{value:.{digits}g}") if math.isfinite(value) else None


def _rounded(value: float, decimals: int) -> float | None:
    # Adding zero turns -0.0, which looks like an error, into 0.0.
    return round(float(value), decimals) + 0.0 if math.isfinite(value) else None
