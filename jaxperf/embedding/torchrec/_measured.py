"""Measured lookups: the benchmark of NVIDIA/recsys-examples, and the ids that it draws."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import msgspec
import numpy as np

from jaxperf._json import NOT_READABLE
from jaxperf.embedding.torchrec._corrected import LookupWork
from jaxperf.errors import ConfigError, LogError

# Of one table, log-spaced beyond these first rows: within 1e-5 of all rows on their own.
_ROWS_ALONE, _BINS = 10_000, 2_000
_STATE_ROWS = {"sgd": 0, "adam": 2}
_Count = Annotated[int, msgspec.Meta(ge=1, le=1 << 40)]
_Quantity = Annotated[float, msgspec.Meta(ge=0, le=1e15)]
_WAYS = 32
"""Of FBGEMM's cache: the lanes of a warp."""


@dataclass(frozen=True)
class MeasuredLookups:
    """One configuration of the benchmark: what it asks for and what it took.

    Attributes:
        label: of the configuration.
        compute_kernel: TorchRec's name of where the rows are.
        work: of a step.
        forward_ms, backward_ms, training_ms, evaluation_ms: measured, of FBGEMM.
        cached_share: of the rows of all tables in the cache; NaN where there is none.
    """

    label: str
    compute_kernel: str
    work: LookupWork
    forward_ms: float
    backward_ms: float
    training_ms: float
    evaluation_ms: float
    cached_share: float


def read_measured_lookups(
    path: str | Path, *, element_bytes: int = 4, batches: int = 100
) -> tuple[MeasuredLookups, ...]:
    """Read results of `benchmark_batched_dynamicemb_tables.py` of NVIDIA/recsys-examples.

    The file does not tell how often the cache missed; `missing_rows` follows from the ids that the
    benchmark draws and replays (`replayed_misses`).

    Args:
        path: the JSON file.
        element_bytes: of an element; the benchmark's default is float32.
        batches: that the benchmark draws; 100 by default.

    Returns:
        Unpooled configurations of FBGEMM's kernels, as the file orders them.

    Raises:
        ConfigError: no batches.
        LogError: the file cannot be read, or is none of that benchmark.

    Example:
        >>> import tempfile
        >>> import json
        >>> entry = {"label": "sgd_gpu_t1", "caching": False, "cache_footprint_ratio": 1.0}
        >>> entry |= {"num_tables": 1, "num_embeddings_per_feature": [100], "embedding_dim": 8}
        >>> entry |= {"pooling_mode": "none", "optimizer_type": "sgd"}
        >>> entry |= {"avg_n_total": 50.0, "avg_n_unique": 30.0}
        >>> entry |= {f"trc_{name}_ms": 1.0 for name in ("forward", "backward", "train", "eval")}
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     path = Path(folder, "results.json")
        ...     _ = path.write_text(json.dumps([entry]))
        ...     (found,) = read_measured_lookups(path)
        >>> found.compute_kernel, found.work.row_bytes
        ('fused', 32)
    """
    if batches < 1:
        raise ConfigError("no batches", got=f"{batches}", expected="at least 1")
    try:
        entries = msgspec.json.decode(Path(path).read_bytes(), type=list[_Entry])
        return tuple(_measured(entry, element_bytes, batches) for entry in entries)
    except OSError as error:
        raise LogError("cannot be read", where=str(path), got=error.strerror) from error
    except (*NOT_READABLE, ValueError) as error:
        expected = "unpooled results of the dynamicemb benchmark of NVIDIA/recsys-examples"
        raise LogError(
            "not such results", where=str(path), got=str(error), expected=expected
        ) from error


def power_law_shares(rows: int, exponent: float) -> tuple[np.ndarray, np.ndarray]:
    """The popularity of a table's rows as the benchmark draws them, in groups of rows alike.

    A number y between 1 and `rows` with density in proportion to `y^-exponent` is rounded down.

    Args:
        rows: of the table.
        exponent: of the law, not 1.

    Returns:
        share: (groups,) of the lookups, of one row of each group.
        count: (groups,) rows of each.

    Example:
        >>> share, count = power_law_shares(1_677_721, 1.05)
        >>> round(10 * float(count @ -np.expm1(104_857 * np.log1p(-share))), -1)
        350280.0
    """
    alone = np.arange(1, min(_ROWS_ALONE, rows) + 1)
    edges = np.unique(np.concatenate([alone, np.geomspace(alone[-1], rows, _BINS).round()]))
    count = np.diff(edges)
    whole = float(rows) ** (1 - exponent) - 1
    return np.diff(edges ** (1 - exponent)) / whole / count, count


def replayed_misses(
    share: np.ndarray,
    count: np.ndarray,
    lookups: int,
    batches: int,
    cached_share_of_footprint: float,
) -> tuple[float, float]:
    """Distinct rows of a batch that miss in a cache through which batches go round and round.

    A row that was last asked for t batches ago is still there if fewer than 32 of the distinct
    rows since then are of its set; their number is Poisson. Every batch comes back after all the
    others, with the same ids.

    Args:
        share: (groups,) of the lookups, of one row of each group.
        count: (groups,) rows of each.
        lookups: of a batch.
        batches: that are drawn, and replayed in their order.
        cached_share_of_footprint: rows of the cache, to the distinct rows of all batches.

    Returns:
        missing_rows: of a batch.
        footprint_rows: distinct rows of all batches.

    Example:
        >>> missing, footprint = replayed_misses(np.full(1, 1e-3), np.full(1, 1e3), 500, 10, 2.0)
        >>> bool(missing < 0.02 * footprint)
        True
    """
    from scipy.special import gammainc

    age = np.arange(1, batches + 1)
    never = np.log1p(-share)[:, None] * lookups
    distinct = count @ -np.expm1(never * age)
    footprint = float(distinct[-1])
    sets = cached_share_of_footprint * footprint / _WAYS
    crowded = gammainc(_WAYS, distinct / sets)
    absent = np.exp(never)
    present = 1 - absent
    last_seen = present * absent ** (age - 1)
    last_seen[:, -1] = (absent ** (batches - 1))[:, 0]
    return float((count * present[:, 0]) @ (last_seen @ crowded)), footprint


class _Entry(msgspec.Struct):
    label: str
    num_tables: _Count
    num_embeddings_per_feature: Annotated[list[_Count], msgspec.Meta(min_length=1)]
    embedding_dim: _Count
    pooling_mode: str
    optimizer_type: Literal["sgd", "adam"]
    caching: bool
    avg_n_total: _Quantity
    avg_n_unique: _Quantity
    trc_forward_ms: _Quantity
    trc_backward_ms: _Quantity
    trc_train_ms: _Quantity
    trc_eval_ms: _Quantity
    cache_footprint_ratio: Annotated[float, msgspec.Meta(gt=0, le=1e6)] | None = None
    batch_size: _Count | None = None
    alpha: Annotated[float, msgspec.Meta(gt=0, le=10)] | None = None


def _measured(entry: _Entry, element_bytes: int, batches: int) -> MeasuredLookups:
    rows = entry.num_embeddings_per_feature
    if entry.pooling_mode != "none" or len(set(rows)) != 1:
        raise ValueError(f"{entry.label} is pooled, or its tables differ")
    row_bytes = entry.embedding_dim * element_bytes
    missing, cached_share = 0.0, np.nan
    if entry.caching:
        missing, cached_share = _replayed(entry, batches)
    kernel = "fused" if "_gpu_" in entry.label else "fused_uvm"
    return MeasuredLookups(
        label=entry.label,
        compute_kernel="fused_uvm_caching" if entry.caching else kernel,
        work=LookupWork(
            lookups=entry.avg_n_total,
            distinct_rows=entry.avg_n_unique,
            outputs=entry.avg_n_total,
            row_bytes=row_bytes,
            state_row_bytes=_STATE_ROWS[entry.optimizer_type] * row_bytes,
            table_rows=sum(rows),
            missing_rows=missing,
        ),
        forward_ms=entry.trc_forward_ms,
        backward_ms=entry.trc_backward_ms,
        training_ms=entry.trc_train_ms,
        evaluation_ms=entry.trc_eval_ms,
        cached_share=cached_share,
    )


def _replayed(entry: _Entry, batches: int) -> tuple[float, float]:
    """Rows of a batch that miss, and the share of the rows in the cache."""
    rows, ratio = entry.num_embeddings_per_feature[0], entry.cache_footprint_ratio
    if ratio is None or entry.batch_size is None or entry.alpha in (None, 1.0) or rows < 2:
        raise ValueError(f"{entry.label} does not tell its cache, batch or distribution of ids")
    share, count = power_law_shares(rows, entry.alpha)
    missing, footprint = replayed_misses(share, count, entry.batch_size, batches, ratio)
    return missing * entry.num_tables, ratio * footprint / rows
