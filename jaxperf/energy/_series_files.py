"""Plain logs of power, as nvidia-smi, ipmitool and one's own scripts write them, as series."""

import os
from dataclasses import replace

import msgspec
import numpy as np

from jaxperf._json import NOT_READABLE
from jaxperf.energy._content import decompressed, read_content
from jaxperf.energy._series import PowerSeries, Window, check_window, power_series
from jaxperf.energy._series_averages import series_of_averages
from jaxperf.energy._series_cells import EARLIEST_NS, Times, quantities, times_of, zone_of
from jaxperf.energy._series_columns import wrong_unit
from jaxperf.energy._series_counter import series_of_counter
from jaxperf.energy._series_order import place
from jaxperf.energy._series_rows import Rows, rows_of
from jaxperf.errors import LogError
from jaxperf.trace import Note

_UTF16 = (b"\xff\xfe", b"\xfe\xff")

_MOST_UNREADABLE = 0.05
"""With a larger part of unreadable lines a file is something else than it seems."""


def read_power_series(
    path: str | os.PathLike[str],
    *,
    zone: str | None = None,
    wrap_j: float | None = None,
    wanted: str | None = None,
) -> tuple[tuple[PowerSeries, ...], tuple[Note, ...]]:
    """The series of power in a file; see `parse_power_series`.

    Args:
        path: the file.
        zone: of times that name none.
        wrap_j: the energy at which counters wrap.
        wanted: name of the column of power that is taken where there is one.

    Raises:
        LogError: it cannot be read, or used.
        ConfigError: there is no such zone.

    Example:
        >>> import tempfile
        >>> with tempfile.NamedTemporaryFile("w", suffix=".csv") as file:
        ...     _ = file.write("timestamp,hostname,power_kw\\n0,a,1\\n0,b,2\\n1,a,1\\n1,b,2\\n")
        ...     file.flush()
        ...     series, notes = read_power_series(file.name)
        >>> [(host.host, host.power_w.tolist()) for host in series]
        [('a', [1000.0, 1000.0]), ('b', [2000.0, 2000.0])]
    """
    return parse_power_series(
        read_content(path), str(path), zone=zone, wrap_j=wrap_j, wanted=wanted
    )


def parse_power_series(
    content: bytes,
    where: str,
    *,
    zone: str | None = None,
    wrap_j: float | None = None,
    wanted: str | None = None,
) -> tuple[tuple[PowerSeries, ...], tuple[Note, ...]]:
    """The series of power in a log, one of each host or GPU.

    A log is a table with commas, semicolons or tabs, or the repeated output of `ipmitool dcmi power
    reading`; plain or compressed by gzip or xz. A table has a column of time, one of power or of a
    counter of energy, and may have columns of hosts and GPUs; with columns of begin and end instead
    of time, powers are means from the one to the other. Without a header its columns are time,
    power and host. Units are in the header or after each value. Numbers for times are since the
    epoch, in seconds to nanoseconds as their magnitude tells.

    Args:
        content: of the file.
        where: the file, for messages.
        zone: of times that name none: `Europe/Berlin`, `+02:00`. UTC is assumed without it, with a
            note.
        wrap_j: the energy at which counters wrap; see `series_of_counter`.
        wanted: name, without its unit, of the column of power that is taken where there is one.

    Returns:
        The series in order of their first line, and notes: those of `power_series` and
        `series_of_counter`, and `truncated`, `unreadable-lines`, `zone-assumed`, `unit-assumed`,
        `relative-time`, `hour-repeated`, `columns-left-out`.

    Raises:
        LogError: the columns are not told by the header, a unit is unknown, too many lines are
            unreadable, or no reading is left.
        ConfigError: there is no such zone.

    Example:
        >>> log = b"timestamp,power.draw [W]\\n2024-06-01T12:00:00Z,70.5\\n2024-06-01T12:00:01Z,71"
        >>> (series,), _ = parse_power_series(log, "power.csv")
        >>> series.power_w.tolist()
        [70.5, 71.0]
    """
    data, whole = decompressed(content, where)
    text = data.decode("utf-16" if data[:2] in _UTF16 else "utf-8-sig", "replace")
    rows = rows_of(text, where, wanted)
    time_ns, no_time, assumed = _times(rows, where, zone)
    value, no_value, unit = _values(rows, where)
    unreadable, truncated = _unreadable(rows, no_time | no_value, value, where, whole)
    kept = np.flatnonzero(~unreadable)
    series, notes = _by_owner(rows, kept, time_ns, value, where, zone, wrap_j)
    return series, _left_out(rows, where) + assumed + unit + truncated + notes


def read_window(
    path: str | os.PathLike[str], *, zone: str | None = None
) -> tuple[Window, tuple[Note, ...]]:
    """The window of a run, from a file `{"start": .., "stop": ..}` of dates or epoch times.

    Args:
        path: the file.
        zone: of dates that name none; UTC is assumed without it, with the note `zone-assumed`.

    Returns:
        Begin and end in nanoseconds since the epoch, and notes.

    Raises:
        LogError: it is no such file, or the stop is not after the start.
        ConfigError: there is no such zone.

    Example:
        >>> import tempfile
        >>> with tempfile.NamedTemporaryFile("w") as file:
        ...     _ = file.write('{"start": "2024-06-01T12:00Z", "stop": "2024-06-01T12:00:05Z"}')
        ...     file.flush()
        ...     (begin_ns, end_ns), _ = read_window(file.name)
        >>> (end_ns - begin_ns) // 10**9
        5
    """
    return parse_window(read_content(path), str(path), zone=zone)


def parse_window(
    content: bytes, where: str, *, zone: str | None = None
) -> tuple[Window, tuple[Note, ...]]:
    """The window that the content of a file tells; see `read_window`.

    Example:
        >>> parse_window(b'{"start": 1717243200, "stop": 1717243205}', "window.json")
        ((1717243200000000000, 1717243205000000000), ())
    """
    try:
        found = msgspec.json.decode(content, type=dict[str, str | int | float])
        ends = [str(found["start"]).strip(), str(found["stop"]).strip()]
    except (*NOT_READABLE, KeyError) as error:
        raise LogError(
            "not a window",
            where=where,
            got=f"no {error}" if isinstance(error, KeyError) else str(error),
            expected='{"start": "2024-06-01T12:00:00Z", "stop": ..}',
        ) from None
    times = times_of(ends, None, zone_of(zone), ["", ""])
    if times.bad.any():
        raise LogError(
            "not a time",
            where=where,
            got=repr(ends[int(np.argmax(times.bad))]),
            expected="a date such as 2024-06-01T12:00:00Z, or a number since the epoch",
        )
    window = int(times.time_ns[0]), int(times.time_ns[1])
    check_window(window, where)
    return window, _zone_notes(times, zone, where, None)


def _left_out(rows: Rows, where: str) -> tuple[Note, ...]:
    names = rows.columns.left_out
    if not names:
        return ()
    value = rows.columns.name
    text = f"{value} is counted; other columns of power or energy are not: {', '.join(names)}"
    return (Note("columns-left-out", text, where),)


def _times(
    rows: Rows, where: str, zone: str | None
) -> tuple[np.ndarray, np.ndarray, tuple[Note, ...]]:
    """Times, which rows have none, and notes of what was assumed."""
    times = times_of(rows.time, rows.columns.time_unit_ns, zone_of(zone), rows.owner)
    time_ns, bad = times.time_ns, times.bad
    notes = _zone_notes(times, zone, where, rows.line)
    usual_ns = np.median(np.abs(time_ns[~bad])) if not bad.all() else np.inf
    if rows.columns.time_unit_ns is None and usual_ns < EARLIEST_NS:
        text = "times are small numbers: taken as seconds since a moment that the log does not name"
        notes += (Note("relative-time", text, where),)
    return time_ns, bad, notes


def _values(rows: Rows, where: str) -> tuple[np.ndarray, np.ndarray, tuple[Note, ...]]:
    """Values in watts or joules, which rows have none, and a note of an assumed unit."""
    columns = rows.columns
    unnamed = columns.value_unit is None
    # A log in watts need not say so; joules of a counter may as well be millijoules.
    assumed = np.nan if columns.counter else 1.0
    value, bad, unknown = quantities(
        rows.value, assumed if columns.value_unit is None else columns.value_unit, columns.units
    )
    for index, unit in unknown:
        if not (rows.cut and index == len(value) - 1):
            raise wrong_unit(unit, columns.units, f"{where}, line {rows.line[index]}")
    if unnamed and not columns.counter and any(text[-1:].isdigit() for text in rows.value):
        return value, bad, (Note("unit-assumed", "power without a unit was taken as watts", where),)
    return value, bad, ()


def _unreadable(
    rows: Rows, bad: np.ndarray, value: np.ndarray, where: str, whole: bool
) -> tuple[np.ndarray, tuple[Note, ...]]:
    """Which rows to leave out, and notes of them."""
    notes: tuple[Note, ...] = ()
    bad = bad.copy()
    last_is_cut = rows.cut and bool(not whole or rows.odd or bad[-1] or rows.value[-1] == "")
    if last_is_cut or not whole:
        text = "the log ends within a line" if last_is_cut else "the compressed log ends early"
        text += "; its last line was left out" if last_is_cut else ""
        notes += (Note("truncated", text, f"{where}, line {rows.line[-1]}"),)
    bad[-1] &= not last_is_cut
    count = int(bad.sum())
    if count:
        first = int(np.argmax(bad))
        at = place(where, rows.line, first)
        if count > max(1, _MOST_UNREADABLE * len(bad)):
            raise LogError(
                f"{count} of {len(bad)} lines are not readings",
                where=at,
                got=f"time {rows.time[first]!r} and value {rows.value[first]!r}",
                expected="a time such as 2024-06-01T12:00:00Z and a value such as 123.4 W",
            )
        text = f"{count} lines were no readings, and were left out"
        notes += (Note("unreadable-lines", text, at),)
    bad[-1] |= last_is_cut
    return bad, notes


def _by_owner(
    rows: Rows,
    kept: np.ndarray,
    time_ns: np.ndarray,
    value: np.ndarray,
    where: str,
    zone: str | None,
    wrap_j: float | None,
) -> tuple[tuple[PowerSeries, ...], tuple[Note, ...]]:
    """A series of each host or GPU, in order of first appearance."""
    owners, first, index = np.unique(
        np.array(rows.owner)[kept], return_index=True, return_inverse=True
    )
    groups = np.split(kept[np.argsort(index, kind="stable")], np.cumsum(np.bincount(index))[:-1])
    found: list[PowerSeries] = []
    notes: tuple[Note, ...] = ()
    for group in np.argsort(first):
        at, host = groups[group], _label(str(owners[group]))
        if np.isnan(value[at]).all():
            text = (
                f"none of the {len(at)} readings{'' if host is None else f' of {host}'} has a value"
            )
            notes += (Note("missing-readings", text, f"{where}, line {rows.line[at[0]]}"),)
            continue
        if rows.columns.counter:
            series, more = series_of_counter(
                time_ns[at],
                value[at],
                host,
                where,
                wrap_j=wrap_j,
                unit_j=rows.columns.value_unit,
                line=rows.line[at],
            )
        elif rows.columns.begin is not None:
            begins: list[str] = np.array(rows.begin)[at].tolist()
            begin_ns = times_of(begins, rows.columns.time_unit_ns, zone_of(zone), begins).time_ns
            series, more = series_of_averages(
                begin_ns, time_ns[at], value[at], host, where, line=rows.line[at]
            )
        else:
            series, more = power_series(time_ns[at], value[at], host, where, line=rows.line[at])
        found.append(replace(series, of_accelerator=_is_accelerator(rows, str(owners[group]))))
        notes += more
    if not found:
        raise LogError("no reading has a value", where=where, expected="a value such as 123.4 W")
    return tuple(found), notes


def _is_accelerator(rows: Rows, owner: str) -> bool:
    """By the row's GPU where there is such a column, else by the name of the power."""
    columns = rows.columns
    return columns.of_accelerator if columns.gpu is None else bool(owner.partition("\t")[2])


def _label(owner: str) -> str | None:
    """`node1`, `GPU 0` or `node1 GPU 0`, from host and GPU with a tab between."""
    host, _, gpu = owner.partition("\t")
    return " ".join(part for part in (host, f"GPU {gpu}" if gpu.isdigit() else gpu) if part) or None


def _zone_notes(
    times: Times, zone: str | None, where: str, line: np.ndarray | None
) -> tuple[Note, ...]:
    if times.naive and zone is None:
        text = (
            f"{times.naive} times name no time zone and were taken as UTC; if they are of another,"
            " name it with --zone"
        )
        return (Note("zone-assumed", text, where),)
    if not times.again.any():
        return ()
    text = (
        f"{int(times.again.sum())} times were taken as of the second time of an hour that comes"
        " twice, since the times before them are later"
    )
    return (Note("hour-repeated", text, place(where, line, int(np.argmax(times.again)))),)
