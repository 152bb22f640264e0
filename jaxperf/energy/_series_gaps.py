"""What is said of time without readings: how long it is, and how much energy is a guess there."""

import numpy as np

from jaxperf.energy._series import PowerSeries, Window, energy_j, gaps, gaps_within, share_in_gaps
from jaxperf.energy._series_order import of_host
from jaxperf.trace import Note


def gap_note(series: PowerSeries, window_ns: Window, where: str) -> Note | None:
    """The note `gap-bridged` of a window; `None` where no reading is missing.

    Args:
        series: of power.
        window_ns: within its readings.
        where: the log, for the note.

    Example:
        >>> from jaxperf.energy._series import power_series
        >>> series, _ = power_series([0, 10**9, 2 * 10**9, 8 * 10**9], [50] * 4, None, "a.csv")
        >>> gap_note(series, series.window, "a.csv").text.partition(";")[0]
        '1 gaps, the longest 6 s, take 75.00% of the window'
    """
    inside = gaps_within(gaps(series), window_ns)
    if not len(inside):
        return None
    bridged_j = sum(energy_j(series, int(begin), int(end)) for begin, end in inside)
    how = "are the counter's over them" if series.averaged else "bridge them in a straight line"
    text = (
        f"{len(inside)} gaps{of_host(series.host)}, the longest"
        f" {np.diff(inside).max() * 1e-9:.6g} s, take {share_in_gaps(series, window_ns):.2%} of the"
        f" window; {bridged_j:.6g} J of {energy_j(series, *window_ns):.6g} J {how}"
    )
    return Note("gap-bridged", text, where)
