"""Readings as a log has them, put in order of time, and what is said of those at fault."""

import numpy as np
from numpy.typing import ArrayLike

from jaxperf.errors import LogError
from jaxperf.trace import Note

_MOST_HOST_W = 1e6
"""A rack takes 130 kW; an analyzer beyond its range writes 9.9e30."""

_MOST_MEDIANS = 100.0
"""From idle to its peak no host and no accelerator goes so far."""


def in_order(
    time_ns: ArrayLike, value: ArrayLike, host: str | None, source: str, line: ArrayLike | None
) -> tuple[np.ndarray, np.ndarray, np.ndarray | None, tuple[Note, ...]]:
    """Readings sorted by time, without those that have no value.

    Args:
        time_ns: (n,) since the epoch.
        value: (n,) NaN where a reading is missing.
        host: what is measured.
        source: the log, for messages.
        line: (n,) of each reading in the log; `None` where it is not known.

    Returns:
        (m,) times, values and lines of the m readings that have a value, and the notes
        `missing-readings` and `unsorted-readings`.

    Raises:
        LogError: no reading has a value.

    Example:
        >>> value_w = [20.0, 10.0, float("nan")]
        >>> _, value, _, notes = in_order([2, 1, 3], value_w, "a", "a.csv", None)
        >>> value.tolist(), [note.code for note in notes]
        ([10.0, 20.0], ['missing-readings', 'unsorted-readings'])
    """
    time, values = np.asarray(time_ns, np.int64), np.asarray(value, np.float64)
    lines = None if line is None else np.asarray(line)
    notes: tuple[Note, ...] = ()
    missing = ~np.isfinite(values)
    if missing.all():
        raise LogError(f"no readings{of_host(host)}", where=source)
    if missing.any():
        text = f"{int(missing.sum())} missing readings{of_host(host)} were left out, not taken as 0"
        notes += (Note("missing-readings", text, place(source, lines, int(np.argmax(missing)))),)
        time, values = time[~missing], values[~missing]
        lines = None if lines is None else lines[~missing]
    late = time < np.maximum.accumulate(time)
    if late.any():
        text = f"{int(late.sum())} readings{of_host(host)} came after a later one; sorted by time"
        notes += (Note("unsorted-readings", text, place(source, lines, int(np.argmax(late)))),)
        order = np.argsort(time, kind="stable")
        time, values = time[order], values[order]
        lines = None if lines is None else lines[order]
    return time, values, lines, notes


def merged_note(
    begins: np.ndarray,
    counts: np.ndarray,
    differing: int,
    host: str | None,
    source: str,
    line: np.ndarray | None,
) -> Note:
    """The note `duplicate-readings`.

    Args:
        begins: (g,) index of the first reading of each time.
        counts: (g,) readings of each time, more than one of some.
        differing: times whose readings differ, and became their mean.
        host: what is measured.
        source: the log.
        line: (n,) of each reading in the log; `None` where it is not known.

    Example:
        >>> merged_note(np.array([0, 1]), np.array([1, 2]), 0, "a", "a.csv", None).text
        '1 readings of a had the time of another; merged'
    """
    first = int(begins[np.argmax(counts > 1)])
    text = f"{int((counts - 1).sum())} readings{of_host(host)} had the time of another; merged"
    if differing:
        text += f", at {differing} times where they differed into their mean"
    return Note("duplicate-readings", text, place(source, line, first))


def zero_notes(
    power_w: np.ndarray, host: str | None, source: str, line: np.ndarray | None = None
) -> tuple[Note, ...]:
    """The note `zero-energy` where all readings are 0 W, `zero-readings` where some are.

    Args:
        power_w: (n,) not negative.
        host: what is measured.
        source: the log.
        line: (n,) of each reading in the log; `None` where it is not known.

    Example:
        >>> [note.text for note in zero_notes(np.array([70.0, 0.0]), None, "a.csv")]
        ['1 of 2 readings are 0 W, and count as that']
    """
    zero = power_w == 0
    if zero.all():
        text = f"all readings{of_host(host)} are 0 W: the energy is 0 J"
        return (Note("zero-energy", text, source),)
    if not zero.any():
        return ()
    text = f"{int(zero.sum())} of {len(zero)} readings{of_host(host)} are 0 W, and count as that"
    return (Note("zero-readings", text, place(source, line, int(np.argmax(zero)))),)


def _median(power_w: np.ndarray) -> float:
    # The lower of two: their mean may be more than a number holds.
    return float(np.quantile(power_w, 0.5, method="lower"))


def is_suspect(power_w: np.ndarray) -> np.ndarray:
    """Which readings (n,) of one host are beyond what it can draw, or far beyond its others.

    Example:
        >>> is_suspect(np.array([70.0, 70.0, 9.9e30, 0.0])).tolist()
        [False, False, True, False]
    """
    usual_w = _median(power_w) if len(power_w) else 0.0
    limit_w = min(_MOST_HOST_W, _MOST_MEDIANS * usual_w) if usual_w > 0 else _MOST_HOST_W
    return power_w > limit_w


def suspect_notes(
    power_w: np.ndarray, host: str | None, source: str, line: np.ndarray | None = None
) -> tuple[Note, ...]:
    """The note `power-unit-suspect` where a reading is; see `is_suspect`.

    Args:
        power_w: (n,) of one host.
        host: what is measured.
        source: the log.
        line: (n,) of each reading in the log; `None` where it is not known.

    Example:
        >>> power_w, line = np.array([70.0, 70.0, 9.9e30]), np.array([2, 3, 4])
        >>> suspect_notes(power_w, "a", "a.csv", line)[0].where
        'a.csv, line 4'
    """
    suspect = is_suspect(power_w)
    if not suspect.any():
        return ()
    text = (
        f"{int(suspect.sum())} readings{of_host(host)} up to {power_w.max():.6g} W beside a median"
        f" of {_median(power_w):.6g} W: the meter was beyond its range, or their unit is another;"
        " counted as W"
    )
    return (Note("power-unit-suspect", text, place(source, line, int(np.argmax(suspect)))),)


def place(source: str, line: np.ndarray | None, index: int) -> str:
    """The log, and the line of a reading where it is known.

    Example:
        >>> place("a.csv", np.array([2, 3]), 1)
        'a.csv, line 3'
    """
    return source if line is None else f"{source}, line {line[index]}"


def of_host(host: str | None) -> str:
    """Words for a message: ` of HOST`.

    Example:
        >>> of_host("node1"), of_host(None)
        (' of node1', '')
    """
    return "" if host is None else f" of {host}"
