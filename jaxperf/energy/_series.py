"""Power over time: one host's series of readings, and integrals of it over windows of time."""

import math
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from jaxperf.energy._series_order import (
    in_order,
    merged_note,
    of_host,
    place,
    suspect_notes,
    zero_notes,
)
from jaxperf.errors import LogError
from jaxperf.trace import Note

Window = tuple[int, int]
"""Begin and end of a stretch of time, in nanoseconds since the epoch."""

SLOWEST_S = 1.05
"""One reading per second (MLPerf training_policies/power_measurement.adoc), and what the jitter of
a timer may add."""

_GAP_MEDIANS = 3.0
"""An interval longer than this many median ones is a gap: one lost reading makes it 2."""


@dataclass(frozen=True, eq=False)
class PowerSeries:
    """Readings of one meter.

    Attributes:
        host: what it measures, as the log names it; `None` where it does not.
        time_ns: (n,) int64, since the epoch, strictly rising.
        power_w: (n,) float64, finite and not negative.
        source: the log, for messages.
        averaged: each reading is the mean since the reading before it, as differences of a counter
            are, and not the power at that moment; the first then repeats the second.
        of_accelerator: it measures one accelerator, and not a node with all that is in it.
    """

    host: str | None
    time_ns: np.ndarray
    power_w: np.ndarray
    source: str
    averaged: bool = False
    of_accelerator: bool = False

    @property
    def window(self) -> Window:
        """From the first reading to the last."""
        return int(self.time_ns[0]), int(self.time_ns[-1])


def power_series(
    time_ns: ArrayLike,
    power_w: ArrayLike,
    host: str | None,
    source: str,
    *,
    line: ArrayLike | None = None,
) -> tuple[PowerSeries, tuple[Note, ...]]:
    """A series of readings in any order.

    Missing readings are left out, and equal times become one reading, the mean of theirs: a meter
    whose clock is coarser than its readings wrote several in one tick.

    Args:
        time_ns: (n,) since the epoch.
        power_w: (n,) NaN where a reading is missing.
        host: what is measured.
        source: the log, for messages.
        line: (n,) of each reading in the log, for messages.

    Returns:
        The series, and notes of what was done: `missing-readings`, `unsorted-readings`,
        `duplicate-readings`, `zero-readings`, `zero-energy`, `power-unit-suspect`.

    Raises:
        LogError: there is no reading, or one is negative.

    Example:
        >>> series, notes = power_series([0, 2_000_000_000, 10**9], [70, 90, 80], "a", "power.csv")
        >>> series.power_w.tolist(), [note.code for note in notes]
        ([70.0, 80.0, 90.0], ['unsorted-readings'])
    """
    time, power, line, notes = in_order(time_ns, power_w, host, source, line)
    if power.min() < 0:
        first = int(np.argmax(power < 0))
        raise LogError(
            "negative power",
            where=place(source, line, first),
            got=f"{power[first]:g} W{of_host(host)}",
            expected="0 W or more",
        )
    told = suspect_notes(power, host, source, line) + zero_notes(power, host, source, line)
    begins = np.flatnonzero(np.diff(time, prepend=time[0] - 1))
    if len(begins) < len(time):
        # Means of equal values are rounded, so a reading on its own is taken as it is.
        counts = np.diff(begins, append=len(time))
        with np.errstate(over="ignore"):
            means = np.add.reduceat(power, begins) / counts
        differing = np.maximum.reduceat(power, begins) > np.minimum.reduceat(power, begins)
        notes += (merged_note(begins, counts, int(differing.sum()), host, source, line),)
        time, power = time[begins], np.where(differing, means, power[begins])
    return PowerSeries(host, time, power, source), notes + told


def energy_j(series: PowerSeries, begin_ns: int, end_ns: int) -> float:
    """The energy of a window: the integral of power, cut exactly at the window's edges.

    Power is linear between readings, or constant between them where they are averages. Every
    reading weighs by the time around it, never by its number. Time between readings is bridged,
    however long: `gaps` tells where that is a guess.

    Args:
        series: of power.
        begin_ns, end_ns: the window, within the readings: nothing is known before the first and
            after the last, so that a window beyond them is refused. `covered` cuts it.

    Returns:
        Energy in joules.

    Raises:
        LogError: the window ends before it begins, or reaches beyond the readings; or the energy
            is more than a number holds.

    Example:
        >>> series, _ = power_series([0, 10**9, 4 * 10**9], [100, 200, 200], None, "power.csv")
        >>> energy_j(series, 0, 2 * 10**9)
        350.0
    """
    check_window((begin_ns, end_ns), series.source)
    if covered(series, (begin_ns, end_ns)) != (begin_ns, end_ns):
        first_ns, last_ns = series.window
        raise LogError(
            f"the window reaches beyond the readings{of_host(series.host)}",
            where=series.source,
            got=f"{(begin_ns - first_ns) * 1e-9:g} s to {(end_ns - first_ns) * 1e-9:g} s from the"
            " first reading",
            expected=f"within 0 s to {(last_ns - first_ns) * 1e-9:g} s",
        )
    time, power = series.time_ns, series.power_w
    inside = slice(*np.searchsorted(time, [begin_ns + 1, end_ns]))
    seconds = np.diff(time[inside], prepend=begin_ns, append=end_ns) * 1e-9
    with np.errstate(over="ignore", invalid="ignore"):
        if series.averaged:
            # The interval of a reading ends with it; the last one may end after the window.
            energy = float(power[inside.start : inside.stop + 1] @ seconds)
        else:
            edges = _power_at(series, begin_ns), _power_at(series, end_ns)
            ends_w = np.concatenate([edges[:1], power[inside], edges[1:]])
            energy = float((ends_w[1:] + ends_w[:-1]) / 2 @ seconds)
    if not math.isfinite(energy):
        raise LogError(
            f"more energy than a number holds{of_host(series.host)}",
            where=series.source,
            got=f"a reading of {power.max():g} W",
            expected="power in W, kW or mW",
        )
    return energy


def mean_power_w(series: PowerSeries, begin_ns: int, end_ns: int) -> float:
    """The time-weighted mean power of a window, in watts; see `energy_j`.

    Raises:
        LogError: the window ends before it begins, or reaches beyond the readings.

    Example:
        >>> series, _ = power_series([0, 10**9, 4 * 10**9], [100, 200, 200], None, "power.csv")
        >>> mean_power_w(series, 0, 2 * 10**9)
        175.0
    """
    return energy_j(series, begin_ns, end_ns) / ((end_ns - begin_ns) * 1e-9)


def energy_of(series: Iterable[PowerSeries], window_ns: Window | None = None) -> float:
    """The energy of several hosts, in joules; see `energy_j`.

    Args:
        series: of each host, on its own times.
        window_ns: begin and end; by default of each host all of its readings.

    Raises:
        LogError: the window ends before it begins, or reaches beyond the readings of a host.

    Example:
        >>> one, _ = power_series([0, 10**9], [100, 100], "a", "power.csv")
        >>> other, _ = power_series([5, 10**9 + 5], [300, 300], "b", "power.csv")
        >>> energy_of([one, other])
        400.0
    """
    return math.fsum(energy_j(host, *(window_ns or host.window)) for host in series)


def covered(series: PowerSeries, window_ns: Window) -> Window | None:
    """The part of a window between the first and the last reading; `None` where there is none.

    Example:
        >>> series, _ = power_series([10, 20], [100, 100], None, "power.csv")
        >>> covered(series, (15, 90)), covered(series, (20, 90))
        ((15, 20), None)
    """
    begin_ns = max(window_ns[0], int(series.time_ns[0]))
    end_ns = min(window_ns[1], int(series.time_ns[-1]))
    return (begin_ns, end_ns) if begin_ns < end_ns else None


def check_window(window_ns: Window, where: str) -> None:
    """Refuse a window that does not end after it begins.

    Args:
        window_ns: begin and end.
        where: what names it, for the message.

    Raises:
        LogError: it ends before it begins, or as it does.

    Example:
        >>> check_window((0, 1), "window.json")
    """
    begin_ns, end_ns = window_ns
    if end_ns <= begin_ns:
        raise LogError(
            "the window does not end after it begins",
            where=where,
            got=f"an end {(begin_ns - end_ns) * 1e-9:g} s before the begin",
            expected="a begin before the end",
        )


def median_interval_s(series: PowerSeries) -> float:
    """The median time between readings, in seconds; NaN of a single reading.

    Example:
        >>> series, _ = power_series([0, 10**9, 3 * 10**9], [50] * 3, None, "power.csv")
        >>> median_interval_s(series)
        1.5
    """
    return float(np.median(np.diff(series.time_ns))) * 1e-9 if len(series.time_ns) > 1 else math.nan


def gaps(series: PowerSeries, longest_s: float | None = None) -> np.ndarray:
    """Intervals without a reading that are much longer than the others.

    Args:
        series: of power.
        longest_s: an interval longer than this is a gap; by default three times the median.

    Returns:
        (g, 2) int64 begin and end of each, in nanoseconds since the epoch.

    Example:
        >>> series, _ = power_series([0, 1, 2, 3, 15], [50] * 5, None, "power.csv")
        >>> gaps(series).tolist()
        [[3, 15]]
    """
    time_ns = series.time_ns
    longest_ns = longest_interval(time_ns) if longest_s is None else longest_s * 1e9
    return np.stack([time_ns[:-1], time_ns[1:]], axis=1)[np.diff(time_ns) > longest_ns]


def longest_interval(time: np.ndarray) -> float:
    """What a longer interval between readings is a gap by: three times the median.

    Args:
        time: (n,) rising, in any unit.

    Returns:
        In that unit; infinite of a single reading.

    Example:
        >>> longest_interval(np.array([0, 1000, 2000, 9000]))
        3000.0
    """
    return _GAP_MEDIANS * float(np.median(np.diff(time))) if len(time) > 1 else math.inf


def gaps_within(gaps_ns: np.ndarray, window_ns: Window) -> np.ndarray:
    """Of gaps (g, 2), the parts inside a window: (inside, 2).

    Example:
        >>> gaps_within(np.array([[0, 5], [20, 30], [50, 60]]), (3, 25)).tolist()
        [[3, 5], [20, 25]]
    """
    cut = np.clip(gaps_ns, *window_ns)
    return cut[cut[:, 1] > cut[:, 0]]


def share_in_gaps(series: PowerSeries, window_ns: Window, longest_s: float | None = None) -> float:
    """The part of a window, from 0 to 1, that lies inside gaps; see `gaps`.

    Example:
        >>> series, _ = power_series([0, 1, 2, 3, 15], [50] * 5, None, "power.csv")
        >>> share_in_gaps(series, (0, 15))
        0.8
    """
    inside = gaps_within(gaps(series, longest_s), window_ns)
    return float(np.diff(inside).sum()) / (window_ns[1] - window_ns[0])


def _power_at(series: PowerSeries, moment_ns: int) -> float:
    time, power = series.time_ns, series.power_w
    at = int(np.clip(np.searchsorted(time, moment_ns, side="right") - 1, 0, len(time) - 2))
    share = (moment_ns - time[at]) / (time[at + 1] - time[at])
    return float((1 - share) * power[at] + share * power[at + 1])
