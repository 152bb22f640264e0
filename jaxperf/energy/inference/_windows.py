"""Power and energy of one run: as the rules average it, and as an integral over time."""

import math

import numpy as np

from jaxperf.energy._score_types import MeasuredWindow
from jaxperf.energy.inference._session import Phase
from jaxperf.errors import LogError
from jaxperf.trace import Note

_LONGEST_STEP = 2.5
"""Of the usual time between samples: a longer one is a gap."""


def official_window(phase: Phase) -> MeasuredWindow:
    """Power as the rules average it: the mean of samples above 0 W strictly inside the window.

    Args:
        phase: a run.

    Returns:
        The mean by the duration.

    Raises:
        LogError: no sample of the window is above 0 W.
    """
    power_w = phase.samples.power_w[phase.inside & _usable(phase)]
    if len(power_w) == 0:
        raise LogError(
            "no power above 0 W between power_begin and power_end",
            where=f"{phase.samples.where}, line {phase.samples.line[phase.inside][0]}",
            remedy="the analyzer was off, or its channels were not summed",
        )
    average_w = float(power_w.mean())
    duration_s = phase.run.duration_s
    return MeasuredWindow(average_w * duration_s, average_w, duration_s, math.nan, len(power_w))


def average_power_factor(phase: Phase) -> float:
    """The mean of power factors above 0 strictly inside the window; NaN where there are none."""
    factor = phase.samples.power_factor[phase.inside]
    factor = factor[factor > 0]
    return float(factor.mean()) if len(factor) else math.nan


def run_window(phase: Phase) -> tuple[MeasuredWindow, tuple[Note, ...]]:
    """Energy as the integral of power over the window, linear between samples.

    Args:
        phase: a run with a sample above 0 W inside its window.

    Returns:
        The energy, and notes on samples that were set aside or are missing. Beyond the first and
        the last sample the nearest one holds.
    """
    usable = _usable(phase)
    time_us, power_w, line = (
        column[usable]
        for column in (phase.samples.time_us, phase.samples.power_w, phase.samples.line)
    )
    order = np.argsort(time_us, kind="stable")
    time_us, first = np.unique(time_us[order], return_index=True)
    power_w, line = power_w[order][first], line[order][first]
    time_s = (time_us - phase.begin_us) / 1e6
    duration_s = phase.run.duration_s
    inside = (time_s > 0) & (time_s < duration_s)
    ends_s = np.array([0.0, duration_s])
    ends_w = np.interp(ends_s, time_s, power_w)
    grid_s = np.concatenate([ends_s[:1], time_s[inside], ends_s[1:]])
    grid_w = np.concatenate([ends_w[:1], power_w[inside], ends_w[1:]])
    energy_j = float(np.trapezoid(grid_w, grid_s))
    window = MeasuredWindow(
        energy_j, energy_j / duration_s, duration_s, math.nan, int(np.count_nonzero(inside))
    )
    notes = _order_notes(phase) + _gap_notes(phase, time_s, line)
    return window, tuple(notes)


def _usable(phase: Phase) -> np.ndarray:
    power_w = phase.samples.power_w
    return (power_w > 0) & np.isfinite(power_w)


def _order_notes(phase: Phase) -> list[Note]:
    samples, notes = phase.samples, []
    unusable = np.flatnonzero(phase.inside & ~_usable(phase))
    step = np.diff(samples.time_us)
    for code, rows, text in (
        ("zero-readings", unusable, "samples are not above 0 W and were left out"),
        ("duplicate-readings", np.flatnonzero(step == 0) + 1, "samples repeat the time before"),
        ("unsorted-readings", np.flatnonzero(step < 0) + 1, "samples go back in time"),
    ):
        if len(rows):
            place = f"{samples.where}, line {samples.line[rows[0]]}"
            notes.append(Note(code, f"{len(rows)} {text}", place))
    return notes


def _gap_notes(phase: Phase, time_s: np.ndarray, line: np.ndarray) -> list[Note]:
    where, duration_s = phase.samples.where, phase.run.duration_s
    step_s = np.diff(time_s)
    longest_s = _LONGEST_STEP * (float(np.median(step_s)) if len(step_s) else 1.0)
    notes = []
    gaps = np.flatnonzero((step_s > longest_s) & (time_s[1:] > 0) & (time_s[:-1] < duration_s))
    if len(gaps):
        worst = gaps[np.argmax(step_s[gaps])]
        text = f"{len(gaps)} gaps between samples; the longest is {step_s[worst]:.1f} s"
        notes.append(Note("gap-bridged", text, f"{where}, line {line[worst + 1]}"))
    uncovered_s = max(time_s[0], 0.0) + max(duration_s - time_s[-1], 0.0)
    if uncovered_s > longest_s:
        text = f"no samples for {uncovered_s:.1f} s at the ends of the window; the nearest holds"
        notes.append(Note("window-not-covered", text, where))
    return notes
