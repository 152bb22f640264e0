"""Means of power over stretches of time, one after another, as `energy predict` writes them."""

import numpy as np
from numpy.typing import ArrayLike

from jaxperf.energy._series import PowerSeries, power_series
from jaxperf.energy._series_order import of_host, place
from jaxperf.errors import LogError
from jaxperf.trace import Note


def series_of_averages(
    begin_ns: ArrayLike,
    end_ns: ArrayLike,
    power_w: ArrayLike,
    host: str | None,
    source: str,
    *,
    line: ArrayLike | None = None,
) -> tuple[PowerSeries, tuple[Note, ...]]:
    """The series of mean powers, each from where the one before it ends.

    Args:
        begin_ns, end_ns: (n,) of each stretch.
        power_w: (n,) its mean; NaN where it is missing.
        host: what is measured.
        source: the log, for messages.
        line: (n,) of each stretch in the log, for messages.

    Returns:
        The series, whose first reading is at the first begin, and the notes of `power_series`.

    Raises:
        LogError: a stretch does not begin where the one before ends, or as `power_series`.

    Example:
        >>> series, _ = series_of_averages([0, 5], [5, 7], [100.0, 300.0], None, "series.csv")
        >>> series.time_ns.tolist(), series.power_w.tolist()
        ([0, 5, 7], [100.0, 100.0, 300.0])
    """
    begin, end = np.asarray(begin_ns, np.int64), np.asarray(end_ns, np.int64)
    apart = np.append(False, begin[1:] != end[:-1]) | (end <= begin)
    if apart.any():
        first = int(np.argmax(apart))
        raise LogError(
            f"stretches of time{of_host(host)} that do not follow one another",
            where=place(source, None if line is None else np.asarray(line), first),
            got=f"from {begin[first]} to {end[first]} ns",
            expected="a begin where the stretch before ends, and an end after it",
        )
    # The first mean counts from its begin, at which a series needs a reading.
    power = np.asarray(power_w, np.float64)
    times = np.append(begin[:1], end)
    lines = None if line is None else np.append(np.asarray(line)[:1], line)
    series, notes = power_series(times, np.append(power[:1], power), host, source, line=lines)
    return PowerSeries(host, series.time_ns, series.power_w, source, averaged=True), notes
