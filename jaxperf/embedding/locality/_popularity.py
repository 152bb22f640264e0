"""Hits and distinct rows where only the popularity of rows is known, not their order."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from jaxperf.errors import ConfigError

_SINGLE_RANKS = 1_000  # of a Zipf law, before ranks share a bin
_RANKS_OF_A_BIN = 1.005  # last to first
_MOST_STEPS = 200
_TOLERANCE = 1e-12


@dataclass(frozen=True)
class Popularity:
    """How likely a lookup reads each row, in bins of rows that are alike.

    Attributes:
        rows: (bins,) float rows of each bin.
        share: (bins,) float share of lookups of one row of the bin; `rows @ share` is 1.
    """

    rows: np.ndarray
    share: np.ndarray

    @property
    def distinct(self) -> float:
        """Number of rows that can be read at all."""
        return float(self.rows[self.share > 0].sum())


def popularity_of_bins(rows: ArrayLike, lookups: ArrayLike) -> Popularity:
    """The popularity of bins from their rows and lookups, in any unit.

    Args:
        rows: (bins,) rows of each bin, above 0.
        lookups: (bins,) lookups of all its rows, 0 or more, not all 0.

    Raises:
        ConfigError: lengths differ, or a number is out of range.

    Example:
        >>> popularity_of_bins([1, 9], [30, 10]).share.round(4).tolist()
        [0.75, 0.0278]
    """
    count, total = np.asarray(rows, np.float64), np.asarray(lookups, np.float64)
    right = count.ndim == 1 and count.shape == total.shape and len(count) > 0
    if not (
        right
        and (count > 0).all()
        and count.sum() < np.inf
        and (total >= 0).all()
        and 0 < total.sum() < np.inf
    ):
        raise ConfigError(
            "not a popularity", expected="rows above 0 and lookups, one each for every bin"
        )
    return Popularity(count, total / total.sum() / count)


def popularity_of_log(row: np.ndarray) -> Popularity:
    """The popularity of the rows of a log: those with equal uses in one bin.

    Args:
        row: (n,) rows.

    Example:
        >>> found = popularity_of_log(np.array([0, 1, 0, 2]))
        >>> found.rows.tolist(), found.share.tolist()
        ([2.0, 1.0], [0.25, 0.5])
    """
    uses = np.bincount(np.bincount(row))
    uses[0] = 0
    counts = np.flatnonzero(uses)
    return popularity_of_bins(uses[counts], uses[counts] * counts)


def zipf_popularity(rows: int, exponent: float) -> Popularity:
    """The popularity of a Zipf law: the row of rank `r` is read in proportion to `r^-exponent`.

    The first thousand ranks stand alone; the others are in bins, whose sum is that of the integral
    from half a rank before to half a rank after (wrong by less than 1e-7 of it).

    Args:
        rows: number of rows.
        exponent: 0 or more.

    Raises:
        ConfigError: no rows, or an exponent below 0.

    Example:
        >>> zipf_popularity(3, 1.0).share.round(4).tolist()
        [0.5455, 0.2727, 0.1818]
    """
    if rows < 1 or not exponent >= 0:
        raise ConfigError(
            "not a Zipf law",
            got=f"{rows} rows, exponent {exponent}",
            expected="at least one row, and an exponent of 0 or more",
        )
    single = np.arange(1, min(rows, _SINGLE_RANKS) + 1, dtype=np.float64)
    steps = 2 + int(np.log(max(rows / len(single), 1.0)) / np.log(_RANKS_OF_A_BIN))
    edges = np.unique(np.geomspace(len(single), rows, steps).round()) + 0.5
    if exponent == 1.0:
        weight = np.diff(np.log(edges))
    else:
        weight = np.diff(edges ** (1.0 - exponent)) / (1.0 - exponent)
    return popularity_of_bins(
        np.concatenate([np.ones(len(single)), np.diff(edges)]),
        np.concatenate([single**-exponent, weight]),
    )


def independent_hit_ratio(
    popularity: Popularity, rows: ArrayLike, policy: str = "lru"
) -> np.ndarray:
    """Hit ratio of caches whose lookups are independent of one another, in steady state.

    Che's approximation: a row stays for one time `T`, the same for all, so that
    `sum(1 - exp(-q T)) = C` and the hit ratio is `sum(q (1 - exp(-q T)))` (Che et al., 2002;
    Fricker, Robert and Roberts, "A versatile and accurate approximation for LRU cache
    performance", 2012). FIFO and random replacement have `q T / (1 + q T)` in its place.

    Real lookups are not independent: on logs of recommenders this is wrong by up to 0.28 where
    the reuse-time model is wrong by 0.003. Use it where there is no log.

    Args:
        popularity: of the rows.
        rows: () or (sizes,) rows of the caches, 0 or more.
        policy: `lru`, `fifo`, `random`, or `pinned` for the most popular rows.

    Returns:
        Float, shaped as `rows`.

    Raises:
        ConfigError: there is no such policy, or a size is below 0.

    Example:
        >>> zipf = zipf_popularity(100_000, 0.8)
        >>> round(float(independent_hit_ratio(zipf, 1_000)), 4)
        0.2043
    """
    sizes = np.asarray(rows, np.float64)
    if not (sizes >= 0).all():
        raise ConfigError("not a size of a cache", got=str(rows), expected="0 rows or more")
    flat = np.atleast_1d(sizes)
    if policy == "pinned":
        ratio = _top_share(popularity, flat)
    elif policy in _INSIDE:
        inside = _INSIDE[policy]
        time = _time(popularity, flat, policy)
        ratio = np.array(
            [(popularity.rows * popularity.share) @ inside(popularity.share * t)[0] for t in time]
        )
        ratio = np.where(flat >= popularity.distinct, 1.0, ratio)
    else:
        raise ConfigError(
            "no model of this policy", got=policy, expected=", ".join((*_INSIDE, "pinned"))
        )
    return ratio.reshape(sizes.shape)


def expected_distinct_rows(popularity: Popularity, lookups: ArrayLike) -> np.ndarray:
    """Expected number of distinct rows of independent lookups: `sum(1 - (1 - q)^w)`.

    Args:
        popularity: of the rows.
        lookups: () or (windows,) number of lookups.

    Example:
        >>> float(expected_distinct_rows(popularity_of_bins([2], [1]), 2))
        1.5
    """
    windows = np.asarray(lookups, np.float64)
    with np.errstate(divide="ignore"):  # one row alone has a share of 1
        unread = np.log1p(-np.minimum(popularity.share, 1.0))
    found = [popularity.rows @ -np.expm1(w * unread) if w else 0.0 for w in windows.reshape(-1)]
    return np.array(found).reshape(windows.shape)


def _recent(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    return -np.expm1(-x), np.exp(-x)


def _loaded(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    return x / (1.0 + x), 1.0 / (1.0 + x) ** 2


# Probability that a row of `x` expected lookups is in the cache, and its derivative.
_INSIDE = {"lru": _recent, "fifo": _loaded, "random": _loaded}


def _time(popularity: Popularity, sizes: np.ndarray, policy: str) -> np.ndarray:
    """Root `T` of the rows in the cache, by Newton's method.

    The rows are concave in `T` and at most `T`, so that steps from `T = C` never pass the root.
    """
    inside = _INSIDE[policy]
    room = np.minimum(sizes, popularity.distinct * (1.0 - 1e-9))
    time = room.copy()
    for i, size in enumerate(room):
        for _ in range(_MOST_STEPS):
            present, slope = inside(popularity.share * time[i])
            step = (size - popularity.rows @ present) / (
                (popularity.rows * popularity.share) @ slope
            )
            time[i] += step
            if abs(step) <= _TOLERANCE * time[i]:
                break
    return time


def _top_share(popularity: Popularity, sizes: np.ndarray) -> np.ndarray:
    order = np.argsort(-popularity.share, kind="stable")
    rows, share = popularity.rows[order], popularity.share[order]
    knots = np.concatenate([[0.0], np.cumsum(rows)])
    return np.interp(sizes, knots, np.concatenate([[0.0], np.cumsum(rows * share)]))
