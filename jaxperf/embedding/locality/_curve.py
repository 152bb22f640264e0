"""Hits of a cache by its size: all sizes at once where a stack says them."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from jaxperf.embedding.locality._stack_distance import stack_distances
from jaxperf.errors import ConfigError


@dataclass(frozen=True)
class MissRatioCurve:
    """Hits of one log by the size of the cache.

    Attributes:
        accesses: number of lookups.
        hits_within: (largest + 1,) int64 hits of a cache of 0, 1, ... rows; larger caches have
            the last.

    Example:
        >>> MissRatioCurve(6, np.array([0, 1, 3])).hit_ratio([0, 1, 2, 9]).round(3).tolist()
        [0.0, 0.167, 0.5, 0.5]
    """

    accesses: int
    hits_within: np.ndarray

    def hits(self, rows: ArrayLike) -> np.ndarray:
        """Hits of caches of these sizes.

        Args:
            rows: () or (sizes,) integers, 0 or more.

        Returns:
            int64, shaped as `rows`.

        Raises:
            ConfigError: a size is below 0.
        """
        rows = cache_sizes(rows)
        return self.hits_within[np.minimum(rows, len(self.hits_within) - 1)]

    def hit_ratio(self, rows: ArrayLike) -> np.ndarray:
        """Share of accesses that hit in caches of these sizes; arguments and errors as `hits`."""
        return self.hits(rows) / self.accesses


def cache_sizes(rows: ArrayLike) -> np.ndarray:
    """Sizes of caches as integers.

    Raises:
        ConfigError: a size is below 0 or no integer.
    """
    sizes = np.asarray(rows)
    if sizes.dtype.kind not in "iu" or (sizes < 0).any():
        raise ConfigError(
            "not a size of a cache", got=str(rows), expected="a number of rows, 0 or more"
        )
    return sizes.astype(np.int64)


def lru_curve(row: np.ndarray, distance: np.ndarray | None = None) -> MissRatioCurve:
    """Hits of fully associative least-recently-used caches of every size, exactly.

    Args:
        row: (n,) rows.
        distance: (n,) `stack_distances(row)`, where they are at hand.

    Example:
        >>> lru_curve(np.array([4, 2, 7, 2, 4, 4])).hits([0, 1, 2, 3, 9]).tolist()
        [0, 1, 2, 3, 3]
    """
    distance = stack_distances(row) if distance is None else distance
    counts = np.bincount(distance + 1)
    counts[0] = 0  # first uses
    return MissRatioCurve(len(row), np.cumsum(counts))


def pinned_curve(row: np.ndarray) -> MissRatioCurve:
    """Hits where the most used rows stay in the cache, and no other ever enters it.

    They are there from the start, so that their first use hits: the share of the top rows, as
    RecShard places them (Sethi et al., ASPLOS 2022).

    Args:
        row: (n,) rows.

    Example:
        >>> pinned_curve(np.array([4, 2, 7, 2, 4, 4])).hits([0, 1, 2, 3]).tolist()
        [0, 3, 5, 6]
    """
    uses = np.bincount(row)
    uses = np.sort(uses[uses > 0])[::-1]
    return MissRatioCurve(len(row), np.concatenate([[0], np.cumsum(uses)]))


def set_associative_hits(row: np.ndarray, rows: int, ways: int) -> int:
    """Hits of a set-associative least-recently-used cache, exactly.

    The set of a row is `splitmix64(row) mod sets`, with `rows // ways` sets. Each set is a stack of
    its own, and all are counted at once: sorted by set, no other set's access lies between two
    uses of a row.

    Args:
        row: (n,) ranks of the ids among the distinct ones.
        rows: size of the cache.
        ways: rows of a set.

    Returns:
        The number of hits.

    Raises:
        ConfigError: there is not one whole set.

    Example:
        >>> set_associative_hits(np.array([0, 1, 2, 0, 1, 2, 0]), rows=3, ways=3)
        4
    """
    sets = number_of_sets(rows, ways)
    group = (splitmix64(row) % np.uint64(sets)).astype(np.int64)
    distance = stack_distances(row[np.argsort(group, kind="stable")])
    return int(np.count_nonzero((distance >= 0) & (distance < ways)))


def set_associative_estimate(curve: MissRatioCurve, rows: int, ways: int) -> float:
    """Hits of a set-associative cache from the curve of a fully associative one.

    Each of the `d` rows used in between falls into the same set by chance, so that the access hits
    with `P(Binomial(d, 1 / sets) < ways)` (Smith, "A comparative study of set associative memory
    mapping algorithms", 1978).

    Args:
        curve: of `lru_curve`.
        rows: size of the cache.
        ways: rows of a set.

    Returns:
        The expected number of hits.

    Raises:
        ConfigError: there is not one whole set.

    Example:
        >>> curve = lru_curve(np.array([0, 1, 2, 0, 1, 2]))
        >>> set_associative_estimate(curve, rows=2, ways=1)
        0.75
    """
    from scipy.special import bdtr

    sets = number_of_sets(rows, ways)
    hits = np.diff(curve.hits_within)
    near = int(hits[:ways].sum())  # fewer rows than ways cannot push one out
    distance = ways + np.flatnonzero(hits[ways:])
    return near + float(hits[distance] @ bdtr(ways - 1, distance, 1.0 / sets))


def number_of_sets(rows: int, ways: int) -> int:
    """Whole sets of a cache.

    Raises:
        ConfigError: `ways` is below 1, or `rows` below `ways`.
    """
    if ways < 1 or rows < ways:
        raise ConfigError(
            "not one whole set",
            got=f"{rows} rows in sets of {ways}",
            expected="at least one row a set, and one set",
        )
    return rows // ways


def splitmix64(value: np.ndarray) -> np.ndarray:
    """A well mixed hash of integers: the finaliser of splitmix64 (Steele et al., 2014).

    Args:
        value: (n,) integers.

    Returns:
        (n,) uint64.

    Example:
        >>> hex(splitmix64(np.array([0]))[0])
        '0xe220a8397b1dcdaf'
    """
    with np.errstate(over="ignore"):
        mixed = value.astype(np.uint64) + np.uint64(0x9E3779B97F4A7C15)
        mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return mixed ^ (mixed >> np.uint64(31))
