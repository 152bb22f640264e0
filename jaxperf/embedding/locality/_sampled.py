"""Miss-ratio curves of logs whose distances are too many to count: from a share of the rows."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from jaxperf.embedding.locality._curve import cache_sizes, lru_curve, splitmix64
from jaxperf.embedding.locality._footprint import (
    ReuseTimes,
    eviction_time_hit_ratio,
    reuse_times,
)
from jaxperf.errors import ConfigError

FEWEST_ROWS = 16
"""Rows below which a sample says nothing about its own error."""

_GROUPS = 8
_GRID = 64
_TWO_SIDED_95 = 1.96


@dataclass(frozen=True)
class SampledCurve:
    """Hit ratios estimated from a sample, with their intervals.

    Attributes:
        rows: (sizes,) rows of the caches.
        hit_ratio: (sizes,) estimates.
        low: (sizes,) lower end of the 95 % interval.
        high: (sizes,) upper end.
        sampled_rows: distinct rows in the sample.
        sampled_accesses: lookups of those rows.
    """

    rows: np.ndarray
    hit_ratio: np.ndarray
    low: np.ndarray
    high: np.ndarray
    sampled_rows: int
    sampled_accesses: int


def sampled_curve(
    row: np.ndarray,
    rows: ArrayLike,
    rate: float = 0.01,
    *,
    seed: int = 0,
    times: ReuseTimes | None = None,
) -> SampledCurve:
    """Hit ratios of fully associative least-recently-used caches, from a sample of the rows.

    Reuse times, which cost one pass, are taken from the whole log, and with them the hit ratio of
    the reuse-time model. What that model misses, that reuses come in groups, is measured on all
    accesses to rows with `hash < rate`: they are a log of their own, for which a cache of
    `rate * c` rows is what one of `c` rows is for the whole (Waldspurger et al., "Efficient MRC
    construction with SHARDS", FAST 2015), and the difference of its exact curve and its own model
    is added. A sample of rows alone errs far more, since few rows take a large share of accesses:
    that share is here known, not sampled.

    With `s` the standard deviation of that difference by a jackknife of eight groups of the sampled
    rows, and `m` its root mean square over the sizes above `1 / rate` rows, which alone a sample
    can see, the part `m^2 / (m^2 + s^2)` of it is added, and the half interval is
    `1.96 sqrt(m^2 + s^2)`.

    Args:
        row: (n,) ranks of the ids among the distinct ones.
        rows: (sizes,) rows of the caches.
        rate: share of rows to keep.
        seed: of the hash: which rows.
        times: `reuse_times(row)`, where they are at hand.

    Raises:
        ConfigError: `rate` is not above 0 and below 1, a size is below 0, or the sample has fewer
            than `FEWEST_ROWS` rows.

    Example:
        >>> row = np.random.default_rng(0).zipf(1.3, 50_000) % 5_000
        >>> row = np.unique(row, return_inverse=True)[1]
        >>> curve, exact = sampled_curve(row, [100, 1_000], 0.05), lru_curve(row)
        >>> bool((abs(curve.hit_ratio - exact.hit_ratio([100, 1_000])) < 0.01).all())
        True
    """
    sizes = np.atleast_1d(cache_sizes(rows))
    if not 0.0 < rate < 1.0:
        raise ConfigError("not a rate of sampling", got=f"{rate}", expected="above 0 and below 1")
    times = reuse_times(row) if times is None else times
    grid = np.geomspace(min(1.0 / rate, times.distinct / 2), times.distinct, _GRID)
    asked = np.concatenate([sizes, grid])
    mixed = splitmix64(splitmix64(np.arange(times.distinct)) ^ splitmix64(np.array([seed])))
    kept = mixed < np.uint64(rate * 2.0**64)
    if np.count_nonzero(kept) < FEWEST_ROWS:
        raise ConfigError(
            "too few rows in the sample",
            got=f"{np.count_nonzero(kept)} of {times.distinct}",
            expected=f"at least {FEWEST_ROWS}",
            remedy="raise the rate, or count exactly",
        )
    sample = row[kept[row]]
    difference = _model_error(sample, kept, asked)
    group = mixed & np.uint64(_GROUPS - 1)
    without = np.array([_model_error(sample, kept & (group != g), asked) for g in range(_GROUPS)])
    variance = (_GROUPS - 1) / _GROUPS * ((without - without.mean(axis=0)) ** 2).sum(axis=0)
    square = np.mean(difference[len(sizes) :] ** 2)
    both = (square + variance)[: len(sizes)]
    part = square / np.where(both > 0, both, 1.0)
    half = _TWO_SIDED_95 * np.sqrt(both)
    estimate = eviction_time_hit_ratio(times, sizes) + part * difference[: len(sizes)]
    most = np.where(sizes > 0, 1.0 - times.distinct / times.accesses, 0.0)  # a first use misses
    known = sizes >= times.distinct  # a cache of all rows misses first uses alone
    estimate = np.where(known, most, np.clip(estimate, 0.0, most))
    half = np.where(known, 0.0, half)
    return SampledCurve(
        rows=sizes,
        hit_ratio=estimate,
        low=np.clip(estimate - half, 0.0, most),
        high=np.clip(estimate + half, 0.0, most),
        sampled_rows=int(np.count_nonzero(kept)),
        sampled_accesses=len(sample),
    )


def _model_error(sample: np.ndarray, kept: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """Exact hit ratio minus that of the reuse-time model, of the accesses to the rows kept."""
    sample = sample[kept[sample]]
    if not len(sample):
        return np.zeros(len(rows))
    sample = np.unique(sample, return_inverse=True)[1]
    scaled = rows * kept.mean()
    within = lru_curve(sample).hits_within / len(sample)
    exact = np.interp(scaled, np.arange(len(within)), within)
    return exact - eviction_time_hit_ratio(reuse_times(sample), scaled)
