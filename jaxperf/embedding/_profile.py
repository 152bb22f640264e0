"""The verb `profile`: what access logs say of the tables that they read."""

import os
from collections.abc import Sequence

import numpy as np

from jaxperf.embedding._profile_popularity import (
    batches_of,
    cache_sizes_of,
    popularity_profiles,
)
from jaxperf.embedding._profile_types import BatchRows, CurvePoint, LogProfile, Profile
from jaxperf.embedding.locality import (
    POLICIES,
    AccessLog,
    ReuseTimes,
    characterise,
    mean_distinct_rows,
    policy_hits,
    read_access_logs,
    reuse_times,
    sampled_curve,
)
from jaxperf.embedding.locality._popularity_files import popularity_format
from jaxperf.embedding.locality._sampled import FEWEST_ROWS
from jaxperf.errors import ConfigError
from jaxperf.trace import Note

LogPath = str | os.PathLike[str]


def profile(
    accesses: LogPath | Sequence[LogPath],
    *,
    sizes: Sequence[int] | None = None,
    format: str = "auto",
    policy: str = "lru",
    ways: int | None = None,
    sample: float | None = None,
    batch: int | None = None,
    row_bytes: float | None = None,
    seed: int = 0,
) -> Profile:
    """Profile embedding tables from logs of their lookups, or from the popularity of their rows.

    Args:
        accesses: files of lookups, see `jaxperf.embedding.locality.read_access_logs`; or of a
            popularity: locality statistics of `dlrm_datasets`, or a `pop.json` of CacheLib.
        sizes: rows of the caches; by default evenly in their logarithm up to the distinct rows.
        format: of the logs: `auto`, `text`, `npz`, or one of `int32-be`, `int32-le`, `int64-be`,
            `int64-le`.
        policy: `lru`, `pinned`, `fifo`, `clock`, `lfu`, or `belady` for the bound of them all.
        ways: rows of a set, for `lru`; fully associative where not given.
        sample: share of rows whose distances are counted, for logs too large to count all.
        batch: lookups of a batch; by default all powers of two up to the length of the log.
        row_bytes: bytes of a row, for the demand in bytes.
        seed: which rows a sample has.

    Returns:
        One entry for each table. Hits are exact but for a sample and a popularity.

    Raises:
        LogError: a log is broken; see `read_access_logs`.
        ConfigError: an option is out of range, or two do not go together.

    Example:
        >>> import tempfile
        >>> from pathlib import Path
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     path = Path(folder, "clicks.txt")
        ...     _ = path.write_text("4\\n2\\n7\\n2\\n4\\n4\\n")
        ...     (log,) = profile(path, sizes=[1, 3]).logs
        >>> [(point.rows, point.hits) for point in log.curve]
        [(1, 1), (3, 3)]
    """
    _check(sizes, policy, ways, sample, batch, row_bytes)
    paths = [accesses] if isinstance(accesses, str | os.PathLike) else list(accesses)
    if not paths:
        raise ConfigError("no access logs", expected="at least one file")
    entries: list[LogProfile] = []
    for path in paths:
        kind = popularity_format(path) if format == "auto" else None
        if kind is not None:
            entries += popularity_profiles(
                path, kind, sizes, policy, ways, sample, batch, row_bytes
            )
            continue
        for log in read_access_logs(path, format=format):
            times = reuse_times(log.row)
            asked = cache_sizes_of(sizes, log.distinct, policy, ways)
            curve, rate, notes = _curve(log, times, asked, policy, ways, sample, seed)
            entries.append(
                LogProfile(
                    file=log.file,
                    table=log.table,
                    format=log.format,
                    accesses=log.accesses,
                    distinct=log.distinct,
                    policy=policy,
                    ways=ways,
                    sample=rate,
                    curve=curve,
                    characteristics=characterise(log, row_bytes=row_bytes, times=times),
                    row_bytes=row_bytes,
                    distinct_per_batch=_batches(log, times, batch),
                    notes=(*log.notes, *notes, *_bytes_unknown(log, row_bytes)),
                )
            )
    return Profile(tuple(entries))


def _check(
    sizes: Sequence[int] | None,
    policy: str,
    ways: int | None,
    sample: float | None,
    batch: int | None,
    row_bytes: float | None,
) -> None:
    """What can be refused before a log is read."""
    if policy not in POLICIES:
        raise ConfigError("unknown policy", got=policy, expected=", ".join(POLICIES))
    if sizes is not None and (not len(sizes) or min(sizes) < 1 or max(sizes) >= 1 << 63):
        raise ConfigError("not sizes of caches", got=str(list(sizes)), expected="rows, 1 or more")
    if sample is not None and not 0.0 < sample < 1.0:
        raise ConfigError("not a rate of sampling", got=f"{sample}", expected="above 0, below 1")
    if sample is not None and (policy != "lru" or ways is not None):
        raise ConfigError(
            "a sample is for fully associative lru alone", remedy="leave out the policy and ways"
        )
    if ways is not None and (policy != "lru" or ways < 1):
        raise ConfigError(
            "not a set", got=f"{ways} ways of {policy}", expected="at least one way, of lru"
        )
    if batch is not None and batch < 1:
        raise ConfigError("not a batch", got=f"{batch}", expected="at least one lookup")
    if row_bytes is not None and not 0.0 < row_bytes < float("inf"):
        raise ConfigError("not the size of a row", got=f"{row_bytes}", expected="bytes above 0")


def _bytes_unknown(log: AccessLog, row_bytes: float | None) -> tuple[Note, ...]:
    if row_bytes is None or log.offsets is not None:
        return ()
    text = "the log does not say which lookups are of one sample: bytes of a sample are not known"
    return (Note("bags-missing", text, log.file),)


def _curve(
    log: AccessLog,
    times: ReuseTimes,
    sizes: np.ndarray,
    policy: str,
    ways: int | None,
    sample: float | None,
    seed: int,
) -> tuple[tuple[CurvePoint, ...], float | None, list[Note]]:
    notes = []
    if sample is not None and sample * log.distinct < 2 * FEWEST_ROWS:
        text = f"{log.distinct} rows are too few to sample at {sample:g}: all were counted"
        notes.append(Note("sample-too-small", text, log.file))
        sample = None
    if sample is not None:
        found = sampled_curve(log.row, sizes, sample, seed=seed, times=times)
        columns = (found.rows, found.hit_ratio, found.low, found.high)
        points = tuple(
            CurvePoint(size, round(ratio * log.accesses), ratio, (low, high))
            for size, ratio, low, high in zip(*(c.tolist() for c in columns), strict=True)
        )
        return points, sample, notes
    if ways is not None and (sizes % ways).any():
        text = f"a cache has whole sets: a size that is no multiple of {ways} was rounded down"
        notes.append(Note("sets-rounded", text, log.file))
    hits = policy_hits(log.row, sizes, policy, ways).tolist()
    points = tuple(
        CurvePoint(size, count, count / log.accesses)
        for size, count in zip(sizes.tolist(), hits, strict=True)
    )
    return points, None, notes


def _batches(log: AccessLog, times: ReuseTimes, batch: int | None) -> tuple[BatchRows, ...]:
    windows = batches_of(log.accesses) if batch is None else [batch]
    if windows[-1] > log.accesses:
        raise ConfigError(
            "batch larger than the log",
            where=f"{log.file}: {log.table}",
            got=f"{batch} lookups",
            expected=f"at most {log.accesses}",
        )
    rows = mean_distinct_rows(times, np.array(windows)).tolist()
    return tuple(BatchRows(*pair) for pair in zip(windows, rows, strict=True))
