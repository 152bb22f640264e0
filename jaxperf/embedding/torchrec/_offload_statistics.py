"""What TorchRec is told of a table's accesses: how often a cache of each size misses."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from jaxperf.errors import ConfigError


@dataclass(frozen=True)
class OffloadStatistics:
    """The arguments of TorchRec's `EmbeddingOffloadStats`, under their names there.

    Attributes:
        cacheability: area under the miss-ratio curve, over the share of the rows in the cache.
        expected_lookups: distinct rows of a global batch.
        mrc_hist_counts: (bins,) in bin i of n, accesses that hit in a cache of more than i / n of
            the rows and not in a smaller one; the last has all that hit in none smaller.
        height: rows of the table.
    """

    cacheability: float
    expected_lookups: int
    mrc_hist_counts: np.ndarray
    height: int

    def miss_ratio(self, load_factor: float) -> float:
        """The share of accesses that TorchRec expects to miss in a cache.

        A step function: the histogram as it is summed up to the bin that holds the last row of
        the cache; 1 without a cache, and 0 of a table that is never accessed.

        Args:
            load_factor: share of the rows in the cache.

        Returns:
            The ratio, from 0 to 1.

        Example:
            >>> statistics = OffloadStatistics(0.5, 100, np.array([60.0, 40.0]), height=1000)
            >>> statistics.miss_ratio(0.4), statistics.miss_ratio(0.9)
            (0.4, 0.0)
        """
        hits = np.cumsum(self.mrc_hist_counts)
        if hits[-1] == 0:
            return 0.0
        # Edges are of single precision there, and so is what lies on one of them.
        edges = np.linspace(0, self.height, len(hits) + 1, dtype=np.float32)
        cache_rows = np.float32(np.float32(load_factor * self.height) - 1)
        bin_index = int(np.searchsorted(edges, cache_rows, side="right")) - 1
        if bin_index < 0:
            return 1.0
        return 0.0 if bin_index >= len(hits) else float(1 - hits[bin_index] / hits[-1])


def offload_statistics(
    cache_rows: ArrayLike,
    hit_ratio: ArrayLike,
    *,
    table_rows: int,
    expected_lookups: int,
    bins: int = 1000,
) -> OffloadStatistics:
    """What to tell TorchRec's planner of a table whose hit ratios are known.

    TorchRec divides the histogram by its sum, so that a cache of all rows always hits there. First
    touches, which hit in no cache, go to the last bin: below the whole table the curve is ours.

    Args:
        cache_rows: (sizes,) of caches, in rows and rising.
        hit_ratio: (sizes,) of each, from 0 to 1 and not falling.
        table_rows: of the table.
        expected_lookups: distinct rows of a global batch.
        bins: of the histogram; not more are made than the table has rows.

    Returns:
        The statistics; between the sizes given, hit ratios are interpolated.

    Raises:
        ConfigError: the curve is none.

    Example:
        >>> statistics = offload_statistics(
        ...     [250, 500], [0.5, 0.7], table_rows=1000, expected_lookups=80, bins=4
        ... )
        >>> statistics.mrc_hist_counts.round(3).tolist(), statistics.miss_ratio(0.1)
        ([0.5, 0.2, 0.0, 0.3], 0.5)
    """
    rows, ratio = np.asarray(cache_rows, float), np.asarray(hit_ratio, float)
    _check_curve(rows, ratio, table_rows)
    bins = min(bins, table_rows)
    edges = np.linspace(0, table_rows, bins + 1)
    hits = np.interp(edges, np.append(0.0, rows), np.append(0.0, ratio))
    middle = (hits[1:] + hits[:-1]) / 2
    counts = np.diff(hits)
    counts[-1] += 1 - hits[-1]
    return OffloadStatistics(float(1 - middle.mean()), expected_lookups, counts, table_rows)


def _check_curve(rows: np.ndarray, ratio: np.ndarray, table_rows: int) -> None:
    fault = None
    if rows.ndim != 1 or rows.shape != ratio.shape or not len(rows):
        fault = "a size for each hit ratio"
    elif not (np.all(np.diff(rows) > 0) and rows[0] > 0 and rows[-1] <= table_rows):
        fault = f"sizes that rise, from 1 to {table_rows} rows"
    elif not (np.all(np.diff(ratio) >= 0) and ratio[0] >= 0 and ratio[-1] <= 1):
        fault = "hit ratios from 0 to 1 that do not fall"
    if fault:
        raise ConfigError("not a miss-ratio curve", expected=fault)
