"""The reuse of a table from a log of its accesses."""

import numpy as np

from jaxperf.embedding.hierarchy._curves import LocalityCurves, curve_of_points
from jaxperf.embedding.locality import (
    AccessLog,
    lru_curve,
    mean_distinct_rows,
    pinned_curve,
    read_access_logs,
    reuse_times,
)
from jaxperf.errors import ConfigError

_SIZES = 1024


def log_curve(path: str, rows: int, table: str | None = None) -> LocalityCurves:
    """The curve of a table from a log of its accesses.

    Args:
        path: of the log; see `read_access_logs`.
        rows: of the table.
        table: which of them, where the log is of several.

    Returns:
        The curve, with one table.

    Raises:
        ConfigError: the log is of several tables, and none of them has the name.
        LogError: it cannot be read, or has a row that the table has not.
    """
    logs = read_access_logs(path, rows=rows)
    found = [log for log in logs if log.table == table or len(logs) == 1]
    if not found:
        names = ", ".join(log.table for log in logs[:5])
        raise ConfigError("a log of several tables", where=path, got=str(table), expected=names)
    return curve_of_log(found[0], rows)


def curve_of_log(log: AccessLog, rows: float) -> LocalityCurves:
    """The curve of a table from a log at hand: LRU and pinned hits and distinct rows are exact.

    What the log cannot show follows: windows longer than it meet new rows at the rate of its last
    accesses' misses, up to all rows; and a cache of all rows misses none.

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
    exact = lru_curve(log.row)
    sizes = _log_spaced(log.distinct)
    hits = exact.hit_ratio(sizes)
    windows = _log_spaced(log.accesses)
    distinct = mean_distinct_rows(reuse_times(log.row), windows)
    pinned = pinned_curve(log.row).hit_ratio(sizes)
    more = max(float(rows), log.distinct + 1.0)
    first_uses = log.distinct / log.accesses
    end = log.accesses + (more - log.distinct) / first_uses
    return curve_of_points(
        rows,
        np.append(sizes, more),
        np.append(hits, 1.0),
        np.append(windows, end),
        np.append(distinct, more),
        (sizes, pinned),
    )


def _log_spaced(largest: int) -> np.ndarray:
    """Integers from 1, even in the logarithm where they are not all of them."""
    return np.unique(np.round(np.geomspace(1, largest, _SIZES)).astype(np.int64))
