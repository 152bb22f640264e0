"""Times as PTDaemon and loadgen write them: a clock's reading, without its time zone."""

import re
from collections.abc import Sequence

import numpy as np

_READING = re.compile(r"(\d\d)-(\d\d)-(\d{4}) (\d\d:\d\d:\d\d\.\d{1,6})")

_QUARTER_HOUR_US = 900_000_000
_MOST_QUARTERS = 4 * 26
"""Between the earliest and the latest time zone."""


def clock_times_us(texts: Sequence[str]) -> np.ndarray:
    """Readings of a clock as numbers, as if it ran in UTC.

    Args:
        texts: each as `month-day-year hour:minute:second.fraction`.

    Returns:
        int64 (n): microseconds since 1970.

    Raises:
        ValueError: one of them is no such time.

    Example:
        >>> clock_times_us(["01-02-1970 00:00:00.250"]).tolist()
        [86400250000]
    """
    read = _READING.fullmatch
    readings = [reading for reading in map(read, texts) if reading]
    if len(readings) < len(texts):
        raise ValueError("not a reading of a clock")
    iso = [f"{reading[3]}-{reading[1]}-{reading[2]}T{reading[4]}" for reading in readings]
    return np.array(iso, "datetime64[us]").astype(np.int64)


def clock_time_us(text: object) -> int | None:
    """One reading of a clock as a number; `None` where it is no such time.

    Example:
        >>> clock_time_us("01-02-1970 00:00:00.25"), clock_time_us("01-02-19")
        (86400250000, None)
    """
    if not isinstance(text, str):
        return None
    try:
        return int(clock_times_us([text])[0])
    except ValueError:
        return None


def zone_shifts_us(begin_us: int, end_us: int, first_us: float, last_us: float) -> np.ndarray:
    """What to add to one clock for its window to lie within a span of another's, by time zone.

    Args:
        begin_us, end_us: the window, by the first clock.
        first_us, last_us: the span, by the second.

    Returns:
        int64 (n): whole hours that fit, else quarter hours that fit.

    Example:
        >>> zone_shifts_us(0, 600_000_000, 7.2e9, 8e9).tolist()
        [7200000000]
    """
    shifts = _QUARTER_HOUR_US * np.arange(-_MOST_QUARTERS, _MOST_QUARTERS + 1)
    fits = shifts[(begin_us + shifts >= first_us) & (end_us + shifts <= last_us)]
    hours = fits[fits % (4 * _QUARTER_HOUR_US) == 0]
    return hours if len(hours) else fits


def clock_text(time_us: int) -> str:
    """A reading of a clock, to the millisecond, for a message.

    Example:
        >>> clock_text(86_400_250_000)
        '1970-01-02 00:00:00.250'
    """
    return str(np.datetime64(int(time_us) // 1000, "ms")).replace("T", " ")
