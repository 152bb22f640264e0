"""Hits of caches whose policies no stack describes: simulated access by access, exactly."""

import heapq
from collections import OrderedDict, deque

import numpy as np
from numpy.typing import ArrayLike

from jaxperf.embedding.locality._curve import (
    cache_sizes,
    lru_curve,
    pinned_curve,
    set_associative_hits,
)
from jaxperf.errors import ConfigError

_ABSENT = -1


def policy_hits(
    row: np.ndarray, rows: ArrayLike, policy: str = "lru", ways: int | None = None
) -> np.ndarray:
    """Hits of caches of some sizes under a policy, to the hit.

    `lru` and `pinned` answer all sizes with one count; each other policy is simulated for each
    size: 0.3 to 4 seconds for a million accesses.

    Args:
        row: (n,) ranks of the ids among the distinct ones.
        rows: (sizes,) rows of the caches.
        policy: of `POLICIES`.
        ways: rows of a set, for `lru`; fully associative where not given.

    Returns:
        (sizes,) int64.

    Raises:
        ConfigError: there is no such policy, sets are asked of another than `lru`, or a size is
            below 0 or between 0 and one set.

    Example:
        >>> row = np.array([0, 1, 2, 0, 3, 0, 1])
        >>> policy_hits(row, [2, 3], "lru").tolist(), policy_hits(row, [2, 3], "fifo").tolist()
        ([1, 2], [1, 1])
    """
    sizes = np.atleast_1d(cache_sizes(rows))
    if policy not in POLICIES:
        raise ConfigError("unknown policy", got=policy, expected=", ".join(POLICIES))
    if ways is not None:
        if policy != "lru":
            raise ConfigError("sets are for lru alone", got=policy, remedy="leave out the ways")
        hits = [set_associative_hits(row, int(size), ways) if size else 0 for size in sizes]
        return np.array(hits, np.int64)
    if policy in _CURVES:
        return _CURVES[policy](row).hits(sizes)
    simulate = _SIMULATORS[policy]
    accesses = row.tolist()
    distinct = int(row.max()) + 1
    # More rows than there are change nothing, and the simulators hold as many as they are told.
    whole = [min(int(size), distinct) for size in sizes]
    return np.array([simulate(accesses, size, distinct) if size else 0 for size in whole], np.int64)


def _fifo(accesses: list[int], size: int, distinct: int) -> int:
    inside = bytearray(distinct)
    ring = [_ABSENT] * size
    hits = place = 0
    for row in accesses:
        if inside[row]:
            hits += 1
            continue
        if ring[place] != _ABSENT:
            inside[ring[place]] = 0
        ring[place] = row
        inside[row] = 1
        place = place + 1 if place + 1 < size else 0
    return hits


def _clock(accesses: list[int], size: int, distinct: int) -> int:
    used = [_ABSENT] * distinct  # 1 after a hit, 0 when new or spared once
    queue: deque[int] = deque()
    hits = 0
    for row in accesses:
        if used[row] != _ABSENT:
            hits += 1
            used[row] = 1
            continue
        if len(queue) == size:
            victim = queue.popleft()
            while used[victim]:
                used[victim] = 0
                queue.append(victim)
                victim = queue.popleft()
            used[victim] = _ABSENT
        queue.append(row)
        used[row] = 0
    return hits


def _lfu(accesses: list[int], size: int, distinct: int) -> int:
    """Evicts the least used since it entered; of several, the one longest at its count."""
    uses = [0] * distinct
    by_uses: dict[int, OrderedDict[int, None]] = {1: OrderedDict()}
    least, inside, hits = 1, 0, 0
    for row in accesses:
        count = uses[row]
        if count:
            hits += 1
            group = by_uses[count]
            del group[row]
            if not group and count == least:
                least = count + 1
        else:
            if inside == size:
                uses[by_uses[least].popitem(last=False)[0]] = 0
            else:
                inside += 1
            least = 1
        uses[row] = count + 1
        by_uses.setdefault(count + 1, OrderedDict())[row] = None
    return hits


def _belady(accesses: list[int], size: int, distinct: int) -> int:
    """Evicts the row whose next use is furthest: no cache that loads every miss hits more."""
    never = len(accesses)
    following = [never] * len(accesses)
    next_use = [never] * distinct
    for index in range(len(accesses) - 1, -1, -1):
        following[index] = next_use[accesses[index]]
        next_use[accesses[index]] = index
    due = [_ABSENT] * distinct
    furthest: list[tuple[int, int]] = []
    inside = hits = 0
    for row, use in zip(accesses, following, strict=True):
        if due[row] != _ABSENT:
            hits += 1
        elif inside == size:
            victim_use, victim = heapq.heappop(furthest)
            while due[victim] != -victim_use:  # it was used since, and stands there again
                victim_use, victim = heapq.heappop(furthest)
            due[victim] = _ABSENT
        else:
            inside += 1
        due[row] = use
        heapq.heappush(furthest, (-use, row))
    return hits


_CURVES = {"lru": lru_curve, "pinned": pinned_curve}
_SIMULATORS = {"fifo": _fifo, "clock": _clock, "lfu": _lfu, "belady": _belady}

POLICIES = (*_CURVES, *_SIMULATORS)
"""What decides which row leaves a full cache. `belady` knows the future: a bound, not a policy."""
