"""Power and energy of one run: as the rules average it, and as an integral over time."""

import math
from dataclasses import replace

import numpy as np

from jaxperf.energy._score_types import MeasuredWindow
from jaxperf.energy._series import (
    PowerSeries,
    Window,
    covered,
    energy_j,
    gaps,
    longest_interval,
    power_series,
)
from jaxperf.energy._series_gaps import gap_note
from jaxperf.energy.inference._session import Phase
from jaxperf.errors import LogError
from jaxperf.trace import Note

_LATEST_US = 9_000_000_000_000_000
"""Whole nanoseconds of it fit 64 bits."""


def official_window(phase: Phase) -> MeasuredWindow:
    """Power as the rules average it: the mean of samples above 0 W strictly inside the window.

    Args:
        phase: a run.

    Returns:
        The mean by the duration.

    Raises:
        LogError: no sample of the window is above 0 W, or their sum is more than a number holds.

    Example:
        >>> from jaxperf.energy.inference._loadgen import LoadgenRun
        >>> from jaxperf.energy.inference._ptdaemon import read_samples
        >>> line = "Time,01-01-2025 00:00:0{}.0,Watts,{},Volts,230,Amps,3,PF,0.9,Mark,a".format
        >>> samples = read_samples("\\n".join([line(1, 100), line(3, 300)]).encode(), "spl.txt")
        >>> begin_us = int(samples.time_us[0]) - 1_000_000
        >>> run = LoadgenRun("", begin_us, begin_us + 5_000_000, None, None, None, None, {})
        >>> official_window(Phase("run_1", run, samples, 0, ())).average_power_w
        200.0
    """
    power_w = phase.samples.power_w[phase.inside & _usable(phase)]
    if len(power_w) == 0:
        raise LogError(
            "no power above 0 W between power_begin and power_end",
            where=f"{phase.samples.where}, line {phase.samples.line[phase.inside][0]}",
            remedy="the analyzer was off, or its channels were not summed",
        )
    with np.errstate(over="ignore"):
        average_w = float(power_w.mean())
    if not math.isfinite(average_w):
        raise LogError(
            "more power than a number holds",
            where=phase.samples.where,
            got=f"a sample of {power_w.max():g} W",
        )
    duration_s = phase.run.duration_s
    return MeasuredWindow(average_w * duration_s, average_w, duration_s, math.nan, len(power_w))


def average_power_factor(phase: Phase) -> float:
    """The mean of power factors above 0 strictly inside the window; NaN where there are none.

    Example:
        >>> from jaxperf.energy.inference._loadgen import LoadgenRun
        >>> from jaxperf.energy.inference._ptdaemon import read_samples
        >>> line = "Time,01-01-2025 00:00:0{}.0,Watts,{},Volts,230,Amps,3,PF,0.9,Mark,a".format
        >>> samples = read_samples("\\n".join([line(1, 100), line(3, 300)]).encode(), "spl.txt")
        >>> begin_us = int(samples.time_us[0]) - 1_000_000
        >>> run = LoadgenRun("", begin_us, begin_us + 5_000_000, None, None, None, None, {})
        >>> round(average_power_factor(Phase("run_1", run, samples, 0, ())), 3)
        0.9
    """
    factor = phase.samples.power_factor[phase.inside]
    factor = factor[factor > 0]
    return float(factor.mean()) if len(factor) else math.nan


def run_window(phase: Phase) -> tuple[MeasuredWindow, tuple[Note, ...]]:
    """Energy as the integral of power over the window, as of any series; see `energy_j`.

    Args:
        phase: a run with a sample above 0 W inside its window.

    Returns:
        The energy, and notes on samples that were set aside or are missing. Beyond the first and
        the last sample the nearest one holds.

    Example:
        >>> from jaxperf.energy.inference._loadgen import LoadgenRun
        >>> from jaxperf.energy.inference._ptdaemon import read_samples
        >>> line = "Time,01-01-2025 00:00:0{}.0,Watts,{},Volts,230,Amps,3,PF,0.9,Mark,a".format
        >>> samples = read_samples("\\n".join([line(1, 100), line(3, 300)]).encode(), "spl.txt")
        >>> begin_us = int(samples.time_us[0]) - 1_000_000
        >>> run = LoadgenRun("", begin_us, begin_us + 5_000_000, None, None, None, None, {})
        >>> run_window(Phase("run_1", run, samples, 0, ()))[0].energy_j
        1100.0
    """
    series, ordered = _series(phase)
    window_ns = phase.begin_us * 1000, phase.end_us * 1000
    energy = energy_j(_held(series, window_ns), *window_ns)
    duration_s = phase.run.duration_s
    inside = (series.time_ns > window_ns[0]) & (series.time_ns < window_ns[1])
    window = MeasuredWindow(
        energy, energy / duration_s, duration_s, math.nan, int(np.count_nonzero(inside))
    )
    notes = _unusable_notes(phase), ordered, _gap_notes(phase, series, window_ns)
    return window, tuple(note for part in notes for note in part)


def _usable(phase: Phase) -> np.ndarray:
    power_w = phase.samples.power_w
    return (power_w > 0) & np.isfinite(power_w)


def _series(phase: Phase) -> tuple[PowerSeries, tuple[Note, ...]]:
    samples, usable = phase.samples, _usable(phase)
    # A damaged date far from the window stays so where 64 bits of nanoseconds end.
    time_ns = np.clip(samples.time_us[usable], -_LATEST_US, _LATEST_US) * 1000
    return power_series(
        time_ns, samples.power_w[usable], None, samples.where, line=samples.line[usable]
    )


def _held(series: PowerSeries, window_ns: Window) -> PowerSeries:
    """The series with its first and last reading held to beyond the ends of a window."""
    first_ns, last_ns = series.window
    ends = [min(window_ns[0], first_ns) - 1], [max(window_ns[1], last_ns) + 1]
    return replace(
        series,
        time_ns=np.concatenate([ends[0], series.time_ns, ends[1]]),
        power_w=np.concatenate([series.power_w[:1], series.power_w, series.power_w[-1:]]),
    )


def _unusable_notes(phase: Phase) -> list[Note]:
    unusable = np.flatnonzero(phase.inside & ~_usable(phase))
    if not len(unusable):
        return []
    text = f"{len(unusable)} samples are not above 0 W and were left out"
    place = f"{phase.samples.where}, line {phase.samples.line[unusable[0]]}"
    return [Note("zero-readings", text, place)]


def _gap_notes(phase: Phase, series: PowerSeries, window_ns: Window) -> list[Note]:
    where, notes = phase.samples.where, []
    part = covered(series, window_ns)
    found = gaps(series)
    found = found[(found[:, 1] > window_ns[0]) & (found[:, 0] < window_ns[1])]
    if part is not None and len(found):
        end_ns = int(found[np.argmax(np.diff(found, axis=1)), 1])
        row = int(np.argmax(phase.samples.time_us == end_ns // 1000))
        note = gap_note(series, part, f"{where}, line {phase.samples.line[row]}")
        notes += [] if note is None else [note]
    first_ns, last_ns = series.window
    uncovered_ns = max(first_ns - window_ns[0], 0) + max(window_ns[1] - last_ns, 0)
    if uncovered_ns > longest_interval(series.time_ns) or len(series.time_ns) == 1:
        text = f"no samples for {uncovered_ns * 1e-9:.1f} s at the ends of the window; the nearest"
        notes.append(Note("window-not-covered", f"{text} holds", where))
    return notes
