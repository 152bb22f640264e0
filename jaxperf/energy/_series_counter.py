"""Counters of energy, such as those of RAPL and NVML, as power over time."""

import math

import numpy as np
from numpy.typing import ArrayLike

from jaxperf.energy._series import PowerSeries
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

_COUNTER_BITS = 32
"""No counter of energy is narrower, so none is taken to wrap below 2**32 counts."""

_LINUX_WRAPS_J = tuple((2**32 - 1) * unit_nj * 1e-9 for unit_nj in (61_035, 15_300, 15_258))
"""`max_energy_range_uj` of Intel's processors, of their memory in servers, and of AMD's: 2**32 - 1
units of 2**-14 J, 15.3 uJ and 2**-16 J, each cut to whole nanojoules."""

_WRAP_RISE = 2.0
"""A wrap that was inferred may make its interval's power this many times the highest other one."""


def series_of_counter(
    time_ns: ArrayLike,
    counter_j: ArrayLike,
    host: str | None,
    source: str,
    *,
    wrap_j: float | None = None,
    unit_j: float | None = None,
    line: ArrayLike | None = None,
) -> tuple[PowerSeries, tuple[Note, ...]]:
    """The mean power between readings of a counter of energy.

    Where the counter falls it has wrapped, once: a reading is needed for every turn. Where nothing
    says at which energy it wraps, that is the lowest power of two of its unit, 2**32 at least, that
    no reading exceeds, or the `max_energy_range_uj` that Linux tells of a processor, whichever
    makes the power across the wrap more like that beside it; provided that this power is at most
    twice the highest elsewhere. A counter that was reset instead is refused.

    Args:
        time_ns: (n,) since the epoch.
        counter_j: (n,) energy so far; NaN where a reading is missing. Of readings at one time the
            last is taken.
        host: what is measured.
        source: the log, for messages.
        wrap_j: the energy at which the counter starts again at 0: the `max_energy_range_uj` of
            RAPL.
        unit_j: the energy of one count.
        line: (n,) of each reading in the log, for messages.

    Returns:
        The series, whose energies over windows between readings are differences of the counter, and
        notes: those of `power_series`, and `counter-wrapped`.

    Raises:
        LogError: there are less than two readings, or the counter falls and no wrap explains it.

    Example:
        >>> time_ns = [0, 1_000_000_000, 2_000_000_000]
        >>> series, notes = series_of_counter(time_ns, [60.0, 90.0, 10.0], "a", "rapl", wrap_j=100)
        >>> series.power_w.tolist(), [note.code for note in notes]
        ([30.0, 30.0, 20.0], ['counter-wrapped'])
    """
    time, counter, line, notes = in_order(time_ns, counter_j, host, source, line)
    last = np.flatnonzero(np.diff(time, append=time[-1] + 1))
    if len(last) < len(time):
        begins = np.append(0, last[:-1] + 1)
        notes += (merged_note(begins, last - begins + 1, 0, host, source, line),)
        time, counter, line = time[last], counter[last], None if line is None else line[last]
    if len(time) < 2:
        raise LogError(
            f"a single reading of the energy counter{of_host(host)}",
            where=place(source, line, 0),
            expected="two or more",
        )
    power, wrapped = _power_between(time, counter, host, source, wrap_j, unit_j, line)
    ends = None if line is None else line[1:]
    notes += wrapped + suspect_notes(power, host, source, ends)
    notes += _still_notes(power, host, source, line)
    return PowerSeries(host, time, np.append(power[:1], power), source, averaged=True), notes


def _still_notes(
    power_w: np.ndarray, host: str | None, source: str, line: np.ndarray | None
) -> tuple[Note, ...]:
    """Notes of intervals (n - 1,) in which the counter did not rise."""
    still = power_w == 0
    if still.all():
        return zero_notes(power_w, host, source)
    if not still.any():
        return ()
    text = (
        f"the energy counter{of_host(host)} stood still in {int(still.sum())} of {len(still)}"
        " intervals, which count as 0 W"
    )
    return (Note("zero-readings", text, place(source, line, int(np.argmax(still)) + 1)),)


def _power_between(
    time_ns: np.ndarray,
    counter_j: np.ndarray,
    host: str | None,
    source: str,
    wrap_j: float | None,
    unit_j: float | None,
    line: np.ndarray | None,
) -> tuple[np.ndarray, tuple[Note, ...]]:
    """Mean power (n - 1,) of every interval, and a note of where the counter wrapped."""
    rise_j, seconds = np.diff(counter_j), np.diff(time_ns) * 1e-9
    fell = rise_j < 0
    if not fell.any():
        return rise_j / seconds, ()
    highest_j = counter_j.max()
    turn_j = wrap_j
    if turn_j is None:
        turn_j = _inferred_wrap_j(rise_j, seconds, highest_j, unit_j)
    power = np.where(fell, rise_j + turn_j, rise_j) / seconds
    limit_w = _WRAP_RISE * power.max(where=~fell, initial=0.0) if wrap_j is None else math.inf
    first = int(np.argmax(fell))
    where = place(source, line, first + 1)
    if not turn_j >= highest_j or power.max(where=fell, initial=0.0) > limit_w:
        wrap = "at an energy that is known" if math.isinf(turn_j) else f"at {turn_j:.9g} J"
        raise LogError(
            f"the energy counter{of_host(host)} falls, and not as it would by wrapping",
            where=where,
            got=f"{counter_j[first]:.9g} J, then {counter_j[first + 1]:.9g} J",
            expected=f"a wrap {wrap}",
            remedy="cut the log where it was reset; if it wrapped, wrap_j of read_power_series in"
            " Python takes the energy at which it does",
        )
    text = f"the energy counter{of_host(host)} wrapped {int(fell.sum())} times, at {turn_j:.9g} J"
    inferred = ", inferred from its unit and the power beside it" if wrap_j is None else ""
    return power, (Note("counter-wrapped", text + inferred, where),)


def _inferred_wrap_j(
    rise_j: np.ndarray, seconds: np.ndarray, highest_j: float, unit_j: float | None
) -> float:
    """The possible wrap that makes power most like that of the intervals beside; inf of none."""
    wraps_j = [each for each in _LINUX_WRAPS_J if each >= highest_j]
    if unit_j is not None and highest_j > 0:
        bits = max(math.ceil(math.log2(highest_j / unit_j)), _COUNTER_BITS)
        wraps_j.append(unit_j * 2.0**bits)
    fell = np.flatnonzero(rise_j < 0)
    beside = np.concatenate([fell - 1, fell + 1])
    beside = beside[(beside >= 0) & (beside < len(rise_j))]
    beside = beside[rise_j[beside] >= 0]
    beside_w = float(np.mean(rise_j[beside] / seconds[beside])) if len(beside) else 0.0
    mean_w = [float(np.mean((rise_j[fell] + each) / seconds[fell])) for each in wraps_j]
    found = zip(wraps_j, mean_w, strict=True)
    return min(found, key=lambda pair: abs(pair[1] - beside_w), default=(math.inf, 0.0))[0]
