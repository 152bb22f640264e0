"""What one table takes of device and host memory by its placement, and rates of hits by counts."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from jaxperf.config import EmbeddingTable
from jaxperf.errors import ConfigError

PlacementKind = Literal["device", "managed", "managed_caching", "split"]
_KINDS = ("device", "managed", "managed_caching", "split")
_WAYS = 32


@dataclass(frozen=True)
class PlacedBytes:
    """Weights of a table, or of the part of it that a rank has.

    Attributes:
        device_bytes: in the accelerator's memory, a cache included.
        host_bytes: in the host's memory.
    """

    device_bytes: float
    host_bytes: float


@dataclass(frozen=True)
class TierHits:
    """Hits of two caches in turn; `None` where nothing was asked for.

    Attributes:
        first_hit_rate: of the first cache.
        second_hit_rate: of the second, of what comes as far.
        overall_hit_rate: of both, of everything.
        missed: requests that neither has.
    """

    first_hit_rate: float | None
    second_hit_rate: float | None
    overall_hit_rate: float | None
    missed: int


def weight_bytes(
    table: EmbeddingTable,
    placement: PlacementKind,
    *,
    cache_load_factor: float = 0.0,
    max_cache_bytes: float = math.inf,
    device_fraction: float = 0.0,
    ranks: int = 1,
) -> PlacedBytes:
    """Weight bytes in device and host memory, without optimizer state and bookkeeping.

    A cache holds copies: the host keeps the whole table. A split has each row in one place. A cache
    is a number of whole sets of 32 rows, rounded up, and down where it would exceed its limit; a
    split is rounded to whole rows, up on the device; a rank's part of the rows is rounded up.

    Args:
        table: rows, dimension and size of an element.
        placement: `device` and `managed` are all in one memory, `managed_caching` on the host with
            a cache on the device, `split` in both.
        cache_load_factor: part of the rows that the cache holds.
        max_cache_bytes: of the cache.
        device_fraction: part of the rows on the device, of a split.
        ranks: that the rows are dealt out to; the answer is of one of them.

    Returns:
        The bytes.

    Raises:
        ConfigError: there is no such placement, a part is not within 0 and 1, or no rank.

    Example:
        >>> table = EmbeddingTable(name="t", rows=1_000_000, dimension=128)
        >>> weight_bytes(table, "managed_caching", cache_load_factor=0.2)
        PlacedBytes(device_bytes=102400000.0, host_bytes=512000000.0)
        >>> weight_bytes(table, "split", device_fraction=0.2)
        PlacedBytes(device_bytes=102400000.0, host_bytes=409600000.0)
    """
    if placement not in _KINDS:
        raise ConfigError(
            "no such placement", where="placement", got=placement, expected=", ".join(_KINDS)
        )
    for name, part in {
        "cache_load_factor": cache_load_factor,
        "device_fraction": device_fraction,
    }.items():
        if not 0 <= part <= 1:
            raise ConfigError("not a part", where=name, got=str(part), expected="0 to 1")
    if ranks < 1:
        raise ConfigError("no rank", where="ranks", got=str(ranks), expected="1 or more")
    rows = math.ceil(table.rows / ranks)
    row_bytes = table.dimension * table.element_bytes
    if placement == "device":
        return PlacedBytes(rows * row_bytes, 0.0)
    if placement == "managed":
        return PlacedBytes(0.0, rows * row_bytes)
    if placement == "split":
        here = math.ceil(rows * device_fraction)
        return PlacedBytes(here * row_bytes, (rows - here) * row_bytes)
    sets = math.ceil(rows * cache_load_factor / _WAYS)
    if math.isfinite(max_cache_bytes):
        sets = min(sets, int(max_cache_bytes // (_WAYS * row_bytes)))
    return PlacedBytes(sets * _WAYS * row_bytes, rows * row_bytes)


def miss_rate(requests: Sequence[float], misses: Sequence[float]) -> float | None:
    """Misses of several tables by their requests together, not the mean of the tables' own rates.

    Args:
        requests: of each table.
        misses: of each table.

    Returns:
        The rate; `None` where nothing was asked for.

    Raises:
        ConfigError: a table has no count, a negative one, or more misses than requests.

    Example:
        >>> miss_rate([10, 990, 0], [5, 15, 0])
        0.02
        >>> miss_rate([0], [0])
    """
    if len(requests) != len(misses):
        raise ConfigError(
            "not as many counts", where="misses", got=str(len(misses)), expected=str(len(requests))
        )
    for index, (asked, missed) in enumerate(zip(requests, misses, strict=True)):
        if not 0 <= missed <= asked:
            raise ConfigError(
                "not counts of one table",
                where=f"table {index}",
                got=f"{missed} of {asked}",
                expected="0 to all requests",
            )
    return _rate(sum(misses), sum(requests))


def tier_hits(requests: int, first_hits: int, second_hits: int) -> TierHits:
    """Rates of two caches in turn, of what comes to each of them and of everything.

    Args:
        requests: rows asked for, each once.
        first_hits: that the first cache has.
        second_hits: that the second has, of the others.

    Returns:
        The rates.

    Raises:
        ConfigError: a count is negative, or there are more hits than requests.

    Example:
        >>> tier_hits(1000, 900, 60)
        TierHits(first_hit_rate=0.9, second_hit_rate=0.6, overall_hit_rate=0.96, missed=40)
    """
    missed = requests - first_hits - second_hits
    if min(missed, first_hits, second_hits) < 0:
        raise ConfigError(
            "not counts of one cache",
            where="hits",
            got=f"{first_hits} and {second_hits} of {requests}",
            expected="0 to all requests",
        )
    return TierHits(
        first_hit_rate=_rate(first_hits, requests),
        second_hit_rate=_rate(second_hits, requests - first_hits),
        overall_hit_rate=_rate(first_hits + second_hits, requests),
        missed=missed,
    )


def _rate(part: float, whole: float) -> float | None:
    return part / whole if whole else None
