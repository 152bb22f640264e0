"""The reuse of a table from a log of its accesses."""

import os
from functools import lru_cache

import numpy as np

from jaxperf.embedding.hierarchy._curves import LocalityCurves, curve_of_points
from jaxperf.embedding.locality import (
    AccessLog,
    lru_curve,
    mean_distinct_rows,
    read_access_logs,
    reuse_times,
)
from jaxperf.errors import ConfigError, LogError
from jaxperf.trace import Note

_SIZES = 1024
_READ = 256  # logs whose curves are kept


def log_curve(path: str, rows: int, table: str | None = None) -> LocalityCurves:
    """The curve of a table from a log of its accesses.

    Args:
        path: of the log; see `read_access_logs`.
        rows: of the table. Ids that are hashes are numbered; others are below it.
        table: which of them, where the log is of several.

    Returns:
        The curve, with one table.

    Raises:
        ConfigError: the log is of several tables, and none of them has the name.
        LogError: it cannot be read, or has a row that the table has not.
    """
    return _read(path, rows, table, _changed(path))[0]


def log_notes(path: str, rows: int, table: str | None = None) -> tuple[Note, ...]:
    """What was guessed of a log; arguments and errors as `log_curve`."""
    return _read(path, rows, table, _changed(path))[1]


@lru_cache(maxsize=_READ)
def _read(
    path: str, rows: int, table: str | None, changed: tuple[int, int] | None
) -> tuple[LocalityCurves, tuple[Note, ...]]:
    logs = read_access_logs(path)
    found = [log for log in logs if log.table == table or len(logs) == 1]
    if not found:
        names = ", ".join(log.table for log in logs[:5])
        raise ConfigError("a log of several tables", where=path, got=str(table), expected=names)
    log = found[0]
    _check_rows(log, rows)
    return curve_of_log(log, rows), log.notes


def _changed(path: str) -> tuple[int, int] | None:
    try:
        status = os.stat(path)
    except OSError:
        return None  # Reading it says why.
    return status.st_mtime_ns, status.st_size


def _check_rows(log: AccessLog, rows: int) -> None:
    where = f"{log.file}: {log.table}"
    if any(note.code == "hashed-ids" for note in log.notes):
        if log.distinct > rows:
            raise LogError(
                "more hashed ids than rows",
                where=where,
                got=f"{log.distinct:,} distinct",
                expected=f"at most {rows:,}",
                remedy="give the table as many rows",
            )
    elif log.ids.max() >= rows:
        index = int(np.flatnonzero(log.ids >= rows)[0])
        raise LogError(
            "id out of range",
            where=f"{where}, access {index}",
            got=str(log.ids[index]),
            expected=f"below {rows}",
            remedy="ids are row numbers: give the table as many rows, or number its keys",
        )


def curve_of_log(log: AccessLog, rows: float) -> LocalityCurves:
    """The curve of a table from a log at hand: LRU hits and distinct rows are exact.

    Hits of rows that stay are those of `held_out_ratio`: counted on accesses that did not choose
    them. What the log cannot show follows: windows longer than it meet new rows at the rate of its
    first uses, up to all rows; rows that it never shows are asked for alike, so that with them hits
    grow linearly with the size, and a cache of all rows misses none.

    Args:
        log: of the table.
        rows: of the table, at least the log's distinct ones.

    Returns:
        The curve, with one table.

    Example:
        >>> from jaxperf.embedding.locality import access_log
        >>> from jaxperf.embedding.hierarchy._curves import hit_ratio
        >>> curve = curve_of_log(access_log(np.array([0, 1, 0, 2, 0, 1])), 8)
        >>> f"{hit_ratio(curve, np.array([2.0]))[0]:.3f}"
        '0.333'
    """
    more = max(float(rows), log.distinct + 1.0)
    sizes = _log_spaced(log.distinct)
    hits = lru_curve(log.row).hit_ratio(sizes)
    unseen = np.geomspace(log.distinct, more, _SIZES)[1:]
    hits = np.append(hits, np.interp(unseen, [log.distinct, more], [hits[-1], 1.0]))
    windows = _log_spaced(log.accesses)
    distinct = mean_distinct_rows(reuse_times(log.row), windows)
    kept = _log_spaced(max(int(rows), log.distinct))
    pinned = held_out_ratio(log.row, rows, kept)
    first_uses = log.distinct / log.accesses
    end = log.accesses + (more - log.distinct) / first_uses
    return curve_of_points(
        rows,
        np.append(sizes, unseen),
        hits,
        np.append(windows, end),
        np.append(distinct, more),
        (kept, pinned),
    )


def held_out_ratio(row: np.ndarray, rows: float, kept: np.ndarray) -> np.ndarray:
    """Share of the accesses to rows that stay in a cache, chosen without a look at those accesses.

    The rows that one half of the log uses most are chosen, and the other half counts their hits;
    then the other way round, and the mean of both. Counted on the log that chose them, rows used
    once would hit once each. Among rows used equally often, and among all that the choosing half
    does not use, any may be chosen: the mean of all such choices is linear in their number.

    Args:
        row: (n,) ranks of the ids among the distinct ones.
        rows: of the table.
        kept: (sizes,) rows that stay.

    Returns:
        (sizes,) between 0 and 1.

    Example:
        >>> held_out_ratio(np.array([0, 0, 1, 0, 1, 2]), 8, np.array([1, 2, 8])).round(3).tolist()
        [0.333, 0.667, 1.0]
    """
    distinct = int(row.max()) + 1
    uses = [np.bincount(half, minlength=distinct) for half in np.array_split(row, 2)]
    ratios = [
        _ratio_of_chosen(chosen_by, counted, rows, kept)
        for chosen_by, counted in (uses, uses[::-1])
        if counted.any()
    ]
    return np.mean(ratios, axis=0)


def _ratio_of_chosen(
    chosen_by: np.ndarray, counted: np.ndarray, rows: float, kept: np.ndarray
) -> np.ndarray:
    order = np.argsort(-chosen_by, kind="stable")
    level = chosen_by[order]
    ends = np.append(np.flatnonzero(np.diff(level)) + 1, len(level))
    hits = np.cumsum(counted[order])[ends - 1]
    ends = ends.astype(float)
    if level[-1] == 0:  # With them, all the table's rows that the log never shows.
        ends[-1] = max(float(rows), ends[-1])
    return np.interp(kept, np.append(0.0, ends), np.append(0, hits)) / hits[-1]


def _log_spaced(largest: int) -> np.ndarray:
    """Integers from 1, even in the logarithm where they are not all of them."""
    return np.unique(np.round(np.geomspace(1, largest, _SIZES)).astype(np.int64))
