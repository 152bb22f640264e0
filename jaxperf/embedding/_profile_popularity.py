"""Profiles where only the popularity of rows is known, and what they share with those of logs."""

import os
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from jaxperf.embedding._profile_types import BatchRows, CurvePoint, LogProfile
from jaxperf.embedding.locality import (
    Popularity,
    expected_distinct_rows,
    independent_hit_ratio,
    popularity_of_stats,
    read_locality_stats,
    read_popularity,
)
from jaxperf.errors import ConfigError
from jaxperf.trace import Note

_SIZES = {"lru": 32, "pinned": 32}
_SIZES_COUNTED = 8  # where each costs a pass over the log
_OF_POPULARITY = ("lru", "fifo", "pinned")
_DOUBT = (
    "only the popularity of rows is known: hits are those of independent lookups, which were off "
    "by 0.07 to 0.28 on logs of recommenders"
)


def cache_sizes_of(
    sizes: Sequence[int] | None, distinct: int, policy: str, ways: int | None
) -> np.ndarray:
    """The sizes asked for, or sizes evenly in their logarithm up to the distinct rows."""
    if sizes is not None:
        return np.array(sizes, np.int64)
    least, points = ways or 1, _SIZES_COUNTED if ways else _SIZES.get(policy, _SIZES_COUNTED)
    spread = np.geomspace(least, max(distinct, least), points).round().astype(np.int64)
    return np.unique(spread // least * least)


def batches_of(accesses: int) -> list[int]:
    """All powers of two up to a number of lookups."""
    return [1 << power for power in range(accesses.bit_length())]


def popularity_profiles(
    path: str | os.PathLike[str],
    kind: str,
    sizes: Sequence[int] | None,
    policy: str,
    ways: int | None,
    sample: float | None,
    batch: int | None,
    row_bytes: float | None,
) -> list[LogProfile]:
    """Profiles by Che's model, where a file says how often rows are read but not in which order.

    Raises:
        LogError: the file is broken.
        ConfigError: what is asked has no such model.
    """
    where = os.fspath(path)
    if ways is not None or sample is not None or policy not in _OF_POPULARITY:
        raise ConfigError(
            "a popularity alone answers for fully associative caches",
            where=where,
            expected=f"a policy of {', '.join(_OF_POPULARITY)}, without ways or sample",
        )
    if kind == "locality-stats":
        tables = [
            (stats.name, stats.lookups, stats.distinct, popularity_of_stats(stats))
            for stats in read_locality_stats(path)
        ]
    else:
        popularity = read_popularity(path)
        tables = [(Path(where).stem, None, round(popularity.distinct), popularity)]
    return [_profile(where, kind, *table, sizes, policy, batch, row_bytes) for table in tables]


def _profile(
    where: str,
    kind: str,
    table: str,
    lookups: int | None,
    distinct: int,
    popularity: Popularity,
    sizes: Sequence[int] | None,
    policy: str,
    batch: int | None,
    row_bytes: float | None,
) -> LogProfile:
    asked = cache_sizes_of(sizes, distinct, policy, None)
    ratios = independent_hit_ratio(popularity, asked, policy).tolist()
    windows = batches_of(lookups or distinct) if batch is None else [batch]
    rows = expected_distinct_rows(popularity, windows).tolist()
    return LogProfile(
        file=where,
        table=table,
        format=kind,
        accesses=lookups,
        distinct=distinct,
        policy=policy,
        ways=None,
        sample=None,
        curve=tuple(
            CurvePoint(size, None if lookups is None else round(ratio * lookups), ratio)
            for size, ratio in zip(asked.tolist(), ratios, strict=True)
        ),
        characteristics=None,
        row_bytes=row_bytes,
        distinct_per_batch=tuple(BatchRows(*pair) for pair in zip(windows, rows, strict=True)),
        notes=(Note("popularity-only", _DOUBT, where),),
    )
