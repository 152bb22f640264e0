"""Distinct rows of a window, and the hits that follow from how soon rows are used again."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from jaxperf.embedding.locality._stack_distance import previous_use
from jaxperf.errors import ConfigError


@dataclass(frozen=True)
class ReuseTimes:
    """How many accesses lie between the uses of rows: what footprints follow from.

    Attributes:
        accesses: number of lookups, n.
        distinct: number of distinct rows.
        time: (times,) int64 distances of two uses of a row in accesses, ascending, each once.
        count: (times,) int64 accesses with that reuse time. First uses are not among them.
        absence: (gaps,) int64 lengths of stretches in which some row is not used, ascending:
            before its first use, between uses, after its last.
        absences: (gaps,) int64 stretches of that length, over all rows.
    """

    accesses: int
    distinct: int
    time: np.ndarray
    count: np.ndarray
    absence: np.ndarray
    absences: np.ndarray


def reuse_times(row: np.ndarray, previous: np.ndarray | None = None) -> ReuseTimes:
    """Count the reuse times of a log.

    Args:
        row: (n,) ranks of the ids among the distinct ones.
        previous: (n,) `previous_use(row)`, where it is at hand.

    Example:
        >>> times = reuse_times(np.array([0, 1, 0, 0]))
        >>> times.time.tolist(), times.count.tolist()
        ([1, 2], [1, 1])
    """
    if previous is None:
        previous = previous_use(row)
    accesses = len(row)
    first = np.flatnonzero(previous < 0)
    last = np.zeros(len(first), np.int64)
    last[row] = np.arange(accesses)
    reuse = np.flatnonzero(previous >= 0)
    time, count = _counted(reuse - previous[reuse])
    ends, ends_count = _counted(np.concatenate([first, accesses - 1 - last]))
    absence, where = np.unique(np.concatenate([time - 1, ends]), return_inverse=True)
    absences = np.zeros(len(absence), np.int64)
    np.add.at(absences, where, np.concatenate([count, ends_count]))
    keep = absence > 0
    return ReuseTimes(accesses, len(first), time, count, absence[keep], absences[keep])


def _counted(values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    counts = np.bincount(values)
    present = np.flatnonzero(counts)
    return present, counts[present]


def mean_distinct_rows(times: ReuseTimes, window: ArrayLike) -> np.ndarray:
    """Mean number of distinct rows over all windows of consecutive lookups, exactly.

    A stretch of `g` accesses without a row holds `g - w + 1` windows of `w` that miss it (Xiang et
    al., "Linear-time modeling of program working set in shared cache", PACT 2011). It is the
    expected number of rows that a batch of `w` lookups reads.

    Args:
        times: of `reuse_times`.
        window: () or (windows,) integers from 1 to the number of accesses.

    Returns:
        Float, shaped as `window`.

    Raises:
        ConfigError: a window is empty or longer than the log.

    Example:
        >>> mean_distinct_rows(reuse_times(np.array([0, 1, 0, 0])), [1, 2, 4]).round(4).tolist()
        [1.0, 1.6667, 2.0]
    """
    window = np.asarray(window)
    if window.dtype.kind not in "iu" or ((window < 1) | (window > times.accesses)).any():
        raise ConfigError(
            "not a window of the log", got=str(window), expected=f"1 to {times.accesses} lookups"
        )
    # Suffix sums of the stretches at least as long as the window.
    count = np.concatenate([np.cumsum(times.absences[::-1])[::-1], [0]])
    total = np.concatenate([np.cumsum((times.absences * times.absence)[::-1])[::-1], [0]])
    from_here = np.searchsorted(times.absence, window)
    missed = total[from_here] - (window - 1) * count[from_here]
    return times.distinct - missed / (times.accesses - window + 1)


def miss_ratio_after(times: ReuseTimes, time: ArrayLike) -> np.ndarray:
    """Share of accesses whose row was not used within a time; first uses are among them.

    Args:
        times: of `reuse_times`.
        time: () or (k,) accesses, 0 or more; between integers the share is interpolated.

    Example:
        >>> miss_ratio_after(reuse_times(np.array([0, 1, 0, 0])), [0, 1, 2]).tolist()
        [1.0, 0.75, 0.5]
    """
    time = np.asarray(time, np.float64)
    below = np.floor(time)
    within = np.concatenate([[0], np.cumsum(times.count)])
    at = lambda whole: 1.0 - within[np.searchsorted(times.time, whole, "right")] / times.accesses
    return at(below) + (time - below) * (at(below + 1) - at(below))


def model_footprint(times: ReuseTimes, time: ArrayLike) -> np.ndarray:
    """Distinct rows in a time, from reuse times alone: `fp(T) = sum over s < T of P(s)`.

    `P` is `miss_ratio_after`. A row enters a cache at each miss, so that this many have entered
    when the first of them leaves (Hu et al., "Kinetic modeling of data eviction in cache", USENIX
    ATC 2016).

    Args:
        times: of `reuse_times`.
        time: () or (k,) accesses, 0 or more.

    Example:
        >>> model_footprint(reuse_times(np.array([0, 1, 0, 0])), [1, 2, 3]).tolist()
        [1.0, 1.75, 2.25]
    """
    time = np.asarray(time, np.float64)
    count = np.concatenate([[0], np.cumsum(times.count)])
    total = np.concatenate([[0], np.cumsum(times.count * times.time)])
    below = np.searchsorted(times.time, time)
    return time - (time * count[below] - total[below]) / times.accesses


def eviction_time(times: ReuseTimes, rows: ArrayLike) -> np.ndarray:
    """The time `T` after which a cache of some rows evicts one: the root of `fp(T) = rows`.

    Args:
        times: of `reuse_times`.
        rows: () or (sizes,) rows, 0 or more.

    Returns:
        Float accesses; the length of the log where the cache never fills.

    Example:
        >>> eviction_time(reuse_times(np.array([0, 1, 0, 0])), [1, 2, 9]).tolist()
        [1.0, 2.5, 4.0]
    """
    # The footprint is linear between reuse times, so its inverse is so between theirs.
    knots = np.concatenate([[0.0], times.time, [times.accesses]])
    return np.interp(np.asarray(rows, np.float64), model_footprint(times, knots), knots)


def eviction_time_hit_ratio(times: ReuseTimes, rows: ArrayLike) -> np.ndarray:
    """Hit ratio of least-recently-used caches by the reuse-time model (Denning, HOTL, AET).

    Args:
        times: of `reuse_times`.
        rows: () or (sizes,) rows, 0 or more.

    Returns:
        Float, shaped as `rows`.

    Example:
        >>> times = reuse_times(np.array([0, 1, 2] * 100))
        >>> eviction_time_hit_ratio(times, [1, 3]).round(2).tolist()
        [0.0, 0.99]
    """
    return 1.0 - miss_ratio_after(times, eviction_time(times, rows))
