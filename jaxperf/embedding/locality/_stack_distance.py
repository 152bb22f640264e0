"""Exact stack distances of least-recently-used caches, for a whole log at once."""

import numpy as np


def previous_use(row: np.ndarray) -> np.ndarray:
    """Where the row of each access was used before.

    Args:
        row: (n,) integers from 0, below 2^31; n below 2^31.

    Returns:
        (n,) int64 indices of accesses; -1 for the first use of a row.

    Example:
        >>> previous_use(np.array([4, 2, 4, 4])).tolist()
        [-1, -1, 0, 2]
    """
    key = row.astype(np.int64) << 32 | np.arange(len(row))
    key.sort()  # twice as fast as a stable sort of indices
    of_row, order = key >> 32, key & 0xFFFFFFFF
    same = np.flatnonzero(of_row[1:] == of_row[:-1])
    previous = np.full(len(row), -1, np.int64)
    previous[order[same + 1]] = order[same]
    return previous


def stack_distances(row: np.ndarray, previous: np.ndarray | None = None) -> np.ndarray:
    """Distinct other rows that were used since the row of each access was used before.

    A fully associative least-recently-used cache of `c` rows hits where the distance is below `c`
    (Mattson et al., "Evaluation techniques for storage hierarchies", 1970). Between an access `t`
    and its previous use `p(t)` lie `t - p(t) - 1` accesses; those whose own previous use lies there
    too repeat a row, and the others are distinct. So the distance is

        t - p(t) - 1 - #{j < t: p(j) > p(t)}

    and the last term counts, for a permutation, the larger ones before each. That is done for all
    at once, a bit of the numbers at a time: n log2(n) steps of numpy, 64 bytes an access.

    Args:
        row: (n,) integers from 0, below 2^31; n below 2^31.
        previous: (n,) `previous_use(row)`, where it is at hand.

    Returns:
        (n,) int64 distances; -1 for the first use of a row.

    Example:
        >>> stack_distances(np.array([4, 2, 7, 2, 4, 4])).tolist()
        [-1, -1, -1, 1, 2, 0]
    """
    if previous is None:
        previous = previous_use(row)
    reuse = np.flatnonzero(previous >= 0)
    start = previous[reuse]
    distance = np.full(len(row), -1, np.int64)
    if len(reuse):
        used = np.zeros(len(row), np.int32)
        used[start] = 1
        rank = np.cumsum(used, dtype=np.int32)[start] - 1
        distance[reuse] = reuse - start - 1 - _larger_before(rank)[rank]
    return distance


def _larger_before(order: np.ndarray) -> np.ndarray:
    """By value, how many larger ones stand before each value of a permutation of 0..n-1.

    Before each step, numbers with the same bits above `bit` stand together, in their order; a
    number without the bit has before it all of its group that have it. The step then puts those
    with the bit behind those without: in a permutation each group fills a known range.
    """
    size = len(order)
    value = order.astype(np.int32)
    count = np.zeros(size, np.int32)
    for bit in reversed(range(int(size - 1).bit_length())):
        half = np.int32(1 << bit)
        has = (value & half) != 0
        before = np.cumsum(has, dtype=np.int32)
        before -= (value >> np.int32(bit + 1)) << np.int32(bit)  # those of earlier groups
        without = ~has
        lower = count[without] + before[without]
        value = _interleaved(value[without], value[has], int(half))
        count = _interleaved(lower, count[has], int(half))
    return count


def _interleaved(lower: np.ndarray, upper: np.ndarray, half: int) -> np.ndarray:
    """Blocks of `half` from both by turns; the last group of each may be shorter."""
    groups = len(upper) // half
    whole = groups * half
    joined = np.empty(len(lower) + len(upper), lower.dtype)
    pairs = joined[: 2 * whole].reshape(groups, 2, half)
    pairs[:, 0] = lower[:whole].reshape(groups, half)
    pairs[:, 1] = upper[:whole].reshape(groups, half)
    middle = whole + len(lower)
    joined[2 * whole : middle] = lower[whole:]
    joined[middle:] = upper[whole:]
    return joined
