"""Read files that give the popularity of rows in place of a log."""

import json
import os
import re
from dataclasses import dataclass

import numpy as np

from jaxperf.embedding.locality._log_content import unpacked
from jaxperf.embedding.locality._popularity import Popularity, popularity_of_bins
from jaxperf.errors import LogError

_STATS = b"Locality stats after processing"
_BATCHES = re.compile(r"Locality stats after processing (\d{1,15}) batches of size (\d{1,15})\b")
_BIN = re.compile(r"\((\d{1,15})(?:, (\d{1,15})\]|\+): (\d{1,15}(?:\.\d{0,15})?)$")
_MOST = 1e15  # lookups


@dataclass(frozen=True)
class LocalityStats:
    """What `dlrm_datasets` says of one file of lookups.

    Attributes:
        name: of the data file.
        batch_size: samples of a batch.
        lookups: mean lookups of a batch, over all tables.
        distinct: mean distinct rows of a batch.
        mean_uses: lookups of a distinct row, as the file says.
        above: (bins,) uses that the rows of a bin exceed.
        most: (bins,) most uses of a row of it; inf in the last.
        row_share: (bins,) share of the distinct rows, to three decimals.
        lookup_share: (bins,) share of the lookups, to three decimals.
    """

    name: str
    batch_size: int
    lookups: int
    distinct: int
    mean_uses: float
    above: np.ndarray
    most: np.ndarray
    row_share: np.ndarray
    lookup_share: np.ndarray


def popularity_format(path: str | os.PathLike[str]) -> str | None:
    """How a file gives a popularity; `None` where it has accesses.

    Raises:
        LogError: it cannot be read.
    """
    head = unpacked(path, 4096)
    if _STATS in head:
        return "locality-stats"
    return "popularity-json" if head.lstrip()[:1] == b"{" else None


def read_locality_stats(path: str | os.PathLike[str]) -> tuple[LocalityStats, ...]:
    """Read the locality statistics that Meta publishes with `dlrm_datasets`.

    Args:
        path: a `locality_stats.txt`.

    Returns:
        One for each data file in it.

    Raises:
        LogError: it cannot be read, or a part is missing.

    Example:
        >>> import tempfile, pathlib
        >>> bins = "(0, 1]: 0.500\\n(1+: 0.500\\n(0, 1]: 0.250\\n(1+: 0.750\\n"
        >>> text = (
        ...     "day.pt\\nLocality stats after processing 1 batches of size 64\\n"
        ...     "Avg # of indices: 400\\nAvg # of unique cols: 200\\nAvg col size: 2.0\\n" + bins
        ... )
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     path = pathlib.Path(folder, "locality_stats.txt")
        ...     _ = path.write_text(text)
        ...     (stats,) = read_locality_stats(path)
        >>> stats.name, stats.lookups, stats.lookup_share.tolist()
        ('day.pt', 400, [0.25, 0.75])
    """
    where = os.fspath(path)
    lines = unpacked(path).decode("utf-8", "replace").splitlines()
    starts = [i for i, line in enumerate(lines) if _BATCHES.match(line)]
    if not starts or starts[0] == 0:
        raise LogError("no locality statistics", where=where, expected=_STATS.decode())
    return tuple(
        _stats(lines[begin - 1 : end - 1], f"{where}, line {begin}")
        for begin, end in zip(starts, [*starts[1:], len(lines) + 1], strict=True)
    )


def _stats(lines: list[str], where: str) -> LocalityStats:
    facts = {
        name: text
        for name, colon, text in (line.partition(": ") for line in lines)
        if colon and name.startswith("Avg ")
    }
    bins = [
        (float(low), float(high or "inf"), float(share))
        for low, high, share in (m.groups() for m in map(_BIN.match, lines) if m)
    ]
    half = len(bins) // 2
    names = ("Avg # of indices", "Avg # of unique cols", "Avg col size")
    batch = _BATCHES.match(lines[1]) if len(lines) > 1 else None
    whole = half and [b[:2] for b in bins[:half]] == [b[:2] for b in bins[half:]]
    if batch is None or not whole or not all(name in facts for name in names):
        raise LogError(
            "incomplete locality statistics",
            where=where,
            expected="indices, unique cols, col size, and two histograms with the same bins",
        )
    above, most, row_share = np.array(bins[:half]).T
    lookups, distinct, mean_uses = (_quantity(name, facts[name], where) for name in names)
    return LocalityStats(
        name=lines[0].strip(),
        batch_size=int(batch[2]),
        lookups=int(lookups),
        distinct=int(distinct),
        mean_uses=mean_uses,
        above=above,
        most=most,
        row_share=row_share,
        lookup_share=np.array(bins[half:]).T[2],
    )


def _quantity(name: str, text: str, where: str) -> float:
    try:
        number = float(text)
    except ValueError:
        number = np.nan
    if not 0 <= number <= _MOST:
        raise LogError(
            f"no number in {name}", where=where, got=repr(text), expected=f"0 to {_MOST:g}"
        )
    return number


def popularity_of_stats(stats: LocalityStats) -> Popularity:
    """The popularity that locality statistics describe.

    A bin's rows are its lookups by their mean uses, which its bounds keep within what rounding of
    the two shares allows; a share of rows that was rounded to 0 gives way to the middle of the bin.

    Args:
        stats: of `read_locality_stats`.

    Example:
        >>> bins = [np.array(values) for values in ([0, 1], [1, 4], [0.5, 0.5], [0.25, 0.75])]
        >>> popularity_of_stats(LocalityStats("day.pt", 64, 400, 200, 2.0, *bins)).rows.tolist()
        [100.0, 100.0]
    """
    lookups = stats.lookup_share * stats.lookups
    rows = stats.row_share * stats.distinct
    most = np.where(np.isfinite(stats.most), stats.most, 4.0 * stats.above)
    middle = np.sqrt(np.maximum(stats.above, 1.0) * most)
    uses = np.where(rows > 0, lookups / np.where(rows > 0, rows, 1.0), middle)
    uses = np.clip(uses, np.maximum(stats.above, 1.0), most)
    there = lookups > 0
    return popularity_of_bins(lookups[there] / uses[there], lookups[there])


def read_popularity(path: str | os.PathLike[str]) -> Popularity:
    """Read a popularity as CacheLib's CacheBench writes it.

    Args:
        path: JSON with `popularityBuckets`, rows of each bin, and `popularityWeights`, lookups.

    Raises:
        LogError: it cannot be read, or has no such lists.

    Example:
        >>> import tempfile, pathlib
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     path = pathlib.Path(folder, "pop.json")
        ...     _ = path.write_text('{"popularityBuckets": [1, 3], "popularityWeights": [5, 5]}')
        ...     read_popularity(path).distinct
        4.0
    """
    where = os.fspath(path)
    try:
        content = json.loads(unpacked(path))
        rows, lookups = content["popularityBuckets"], content["popularityWeights"]
        count, total = np.array(rows, np.float64), np.array(lookups, np.float64)
    except (ValueError, KeyError, TypeError, OverflowError, RecursionError):
        raise LogError(
            "no popularity", where=where, expected="popularityBuckets and popularityWeights"
        ) from None
    sound = count.shape == total.shape and count.ndim == 1
    sound = sound and all(((0 <= part) & (part <= _MOST)).all() for part in (count, total))
    there = count > 1 / _MOST
    if not sound or not total[there].sum() > 0:
        raise LogError(
            "no popularity",
            where=where,
            expected=f"as many weights as buckets, none negative or above {_MOST:g}, not all 0",
        )
    return popularity_of_bins(count[there], total[there])
