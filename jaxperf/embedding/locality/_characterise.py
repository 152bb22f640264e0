"""What the log of a table says of its demand and its locality, in a handful of numbers."""

from dataclasses import dataclass

import numpy as np

from jaxperf.embedding.locality._access_log import AccessLog
from jaxperf.embedding.locality._footprint import ReuseTimes, reuse_times


@dataclass(frozen=True)
class Histogram:
    """Counts by bins that double: of 1, 2, 3 to 4, 5 to 8, ...

    Attributes:
        most: (bins,) int64 largest value of each bin.
        count: (bins,) int64 what falls there.
    """

    most: np.ndarray
    count: np.ndarray


@dataclass(frozen=True)
class Characteristics:
    """What a table needs, and how its lookups repeat.

    Attributes:
        accesses: number of lookups.
        distinct: number of distinct rows.
        rows: rows of the table; `None` where unknown.
        samples: number of bags; `None` where the log has none.
        pooling: mean lookups of a sample; NaN where unknown.
        most_pooling: most lookups of a sample; `None` where unknown.
        read_bytes_per_sample: bytes of the rows that a sample looks up; NaN where the pooling or
            the bytes of a row are unknown.
        mean_uses: lookups of a distinct row.
        used_once: rows used once.
        most_used: lookups of the most used row.
        top_1_percent_share: share of lookups of the 1 % of distinct rows that are used most.
        top_10_percent_share: of the 10 %.
        uses: rows by their uses.
        reuse: accesses by the time since their row was used before; first uses are not there.
    """

    accesses: int
    distinct: int
    rows: int | None
    samples: int | None
    pooling: float
    most_pooling: int | None
    read_bytes_per_sample: float
    mean_uses: float
    used_once: int
    most_used: int
    top_1_percent_share: float
    top_10_percent_share: float
    uses: Histogram
    reuse: Histogram


def characterise(
    log: AccessLog, *, row_bytes: float | None = None, times: ReuseTimes | None = None
) -> Characteristics:
    """Measure what a log says of its table.

    Args:
        log: of `read_access_logs` or `access_log`.
        row_bytes: bytes of a row, its width times the bytes of an element.
        times: `reuse_times(log.row)`, where they are at hand.

    Example:
        >>> from jaxperf.embedding.locality import access_log
        >>> found = characterise(access_log(np.array([7, 8, 7, 7])))
        >>> found.mean_uses, found.used_once, found.reuse.count.tolist()
        (2.0, 1, [1, 1])
    """
    times = reuse_times(log.row) if times is None else times
    uses = np.bincount(log.row)
    most_first = np.cumsum(np.sort(uses)[::-1])
    top = lambda share: float(most_first[max(1, int(share * len(uses))) - 1] / log.accesses)
    lengths = None if log.offsets is None else np.diff(log.offsets)
    pooling = np.nan if lengths is None else float(lengths.mean())
    return Characteristics(
        accesses=log.accesses,
        distinct=log.distinct,
        rows=log.rows,
        samples=log.bags,
        pooling=pooling,
        most_pooling=None if lengths is None else int(lengths.max()),
        read_bytes_per_sample=np.nan if row_bytes is None else pooling * row_bytes,
        mean_uses=log.accesses / log.distinct,
        used_once=int(np.count_nonzero(uses == 1)),
        most_used=int(uses.max()),
        top_1_percent_share=top(0.01),
        top_10_percent_share=top(0.1),
        uses=_histogram(uses, np.ones(len(uses), np.int64)),
        reuse=_histogram(times.time, times.count),
    )


def _histogram(value: np.ndarray, count: np.ndarray) -> Histogram:
    if not len(value):
        return Histogram(np.zeros(0, np.int64), np.zeros(0, np.int64))
    bins = np.ceil(np.log2(value)).astype(np.int64)
    total = np.zeros(bins.max() + 1, np.int64)
    np.add.at(total, bins, count)
    return Histogram(np.int64(1) << np.arange(len(total)), total)
