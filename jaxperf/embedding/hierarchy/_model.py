"""A recommendation model and a design for it, as arrays."""

from collections.abc import Sequence
from dataclasses import dataclass, fields
from functools import cache

import jax
import numpy as np
from jax.typing import ArrayLike

from jaxperf.config import EmbeddingTable, RecommendationModel
from jaxperf.embedding.hierarchy._curves import (
    LocalityCurves,
    csv_curve,
    stack_curves,
    zipf_curve,
)
from jaxperf.embedding.hierarchy._logs import log_curve, log_notes
from jaxperf.embedding.hierarchy._tiers import Machine
from jaxperf.errors import ConfigError
from jaxperf.trace import Note

POLICIES = ("lru", "clock", "lfu", "pinned")
"""How cached rows are chosen: `policy_weights` says what each of them is to the model."""

_NAMED = 5  # tables of a note


@dataclass(frozen=True, eq=False)
class ModelArrays:
    """What the hierarchy needs of a model; every field a leaf.

    Attributes:
        rows: (tables,) of each.
        pooling: (tables,) mean lookups of a sample.
        weight_bytes, state_bytes: (tables,) of a row, and of the optimizer beside it.
        dimension: (tables,) elements of a row.
        curves: reuse of each table.
        dense_flops_per_sample, dense_parameters: () of the dense part.
    """

    rows: ArrayLike
    pooling: ArrayLike
    weight_bytes: ArrayLike
    state_bytes: ArrayLike
    dimension: ArrayLike
    curves: LocalityCurves
    dense_flops_per_sample: ArrayLike
    dense_parameters: ArrayLike


@dataclass(frozen=True, eq=False)
class Design:
    """What is decided; every field a leaf, and of many designs all have a leading axis.

    Attributes:
        machine: one server.
        nodes: () servers.
        batch_size: () samples of an iteration, of all servers together.
        home_share: (tables, tiers) part of the table whose rows lie there, where no faster tier
            holds a copy; they sum to 1 over the tiers.
        cached_rows: (tables, tiers) rows of slower tiers of which a copy lies there, over all
            servers. The slower tier keeps its own.
        by_popularity: (tables,) 1 where the hottest rows are cached, 0 where the last ones used.
        admits: (tables,) 1 where each row that is missed enters the cache, 0 where it is pinned.
    """

    machine: Machine
    nodes: ArrayLike
    batch_size: ArrayLike
    home_share: ArrayLike
    cached_rows: ArrayLike
    by_popularity: ArrayLike
    admits: ArrayLike


@dataclass(frozen=True, eq=False)
class HierarchyRules:
    """How the hierarchy is run, and what is assumed of it.

    Attributes:
        ways: of the cache in the first tier, FBGEMM's 32; `None` where any row may lie anywhere.
        inclusive: whether a row that is missed enters every cache on its way up, as FBGEMM's does.
        prefetch: whether the next batch's rows are fetched while this one is computed.
        log_write_amplification: bytes that a log-structured store writes for one of a row. RocksDB
            by levels with a ratio of 10 and two or three of them: 10 is an assumption.
        drive_write_amplification: what the drive adds; 1, as its rating counts that already.
        dense_utilization: part of the peak that the dense part reaches; an assumption.
        dense_bytes_per_parameter: weights, gradients and Adam's state on each accelerator.
        pooled_element_bytes: of a pooled row as it is sent; 16 bits, an assumption.
        index_bytes: of a lookup as it is sent.
        reserved_share: part of the first two tiers for activations, inputs and the system; an
            assumption.
    """

    ways: int | None = 32
    inclusive: bool = True
    prefetch: bool = True
    log_write_amplification: ArrayLike = 10.0
    drive_write_amplification: ArrayLike = 1.0
    dense_utilization: ArrayLike = 0.3
    dense_bytes_per_parameter: ArrayLike = 16.0
    pooled_element_bytes: ArrayLike = 2.0
    index_bytes: ArrayLike = 8.0
    reserved_share: ArrayLike = 0.05


for _noun in (ModelArrays, Design):
    jax.tree_util.register_dataclass(_noun, [f.name for f in fields(_noun)], [])
_STATIC = ["ways", "inclusive", "prefetch"]
jax.tree_util.register_dataclass(
    HierarchyRules, [f.name for f in fields(HierarchyRules) if f.name not in _STATIC], _STATIC
)


def model_arrays(model: RecommendationModel, curves: LocalityCurves | None = None) -> ModelArrays:
    """The arrays that a description of a model stands for.

    Args:
        model: of `load_tables`.
        curves: reuse of each table; from its log, its curve or its exponent where not given, in
            that order, and uniform where it has none of them.

    Returns:
        Float64 arrays.

    Raises:
        ConfigError: a curve cannot be read.
        LogError: a log cannot be read.

    Example:
        >>> from jaxperf.config import load_tables
        >>> model_arrays(load_tables("demo")).pooling
        array([ 4., 50., 20.,  1.])
    """
    tables = model.tables

    def each(name: str) -> np.ndarray:
        return np.array([float(getattr(table, name)) for table in tables])

    return ModelArrays(
        rows=each("rows"),
        pooling=each("pooling"),
        weight_bytes=each("dimension") * each("element_bytes"),
        state_bytes=each("optimizer_row_bytes"),
        dimension=each("dimension"),
        curves=stack_curves([table_curve(table) for table in tables]) if curves is None else curves,
        dense_flops_per_sample=np.float64(model.dense_flops_per_sample),
        dense_parameters=np.float64(model.dense_parameters),
    )


def table_curve(table: EmbeddingTable) -> LocalityCurves:
    """The reuse of a table: from its log, its curve, or its exponent, in that order.

    Args:
        table: of `load_tables`.

    Returns:
        The curve, with one table.

    Raises:
        ConfigError: the curve cannot be read.
        LogError: the log cannot be read.
    """
    if table.accesses is not None:
        return log_curve(table.accesses, table.rows, table.name)
    if table.curve is not None:
        return csv_curve(table.curve, table.rows)
    return _zipf_curve(table.rows, table.zipf_exponent or 0.0)


def curve_notes(model: RecommendationModel) -> tuple[Note, ...]:
    """What was guessed for the curves of `table_curve`, each once; its errors.

    Args:
        model: of `load_tables`.

    Returns:
        Notes of the logs, and how hits of rows that stay were counted on them.
    """
    logged = [table for table in model.tables if table.accesses is not None]
    if not logged:
        return ()
    found = [
        note
        for table in logged
        if table.accesses is not None
        for note in log_notes(table.accesses, table.rows, table.name)
    ]
    names = ", ".join(table.name for table in logged[:_NAMED])
    more = f" and {len(logged) - _NAMED} more" if len(logged) > _NAMED else ""
    text = (
        f"{names}{more}: rows that stay (pinned) are chosen on one half of the log, and their hits"
        " counted on the other, both ways"
    )
    return (*dict.fromkeys(found), Note("pinned-held-out", text))


# Models have many tables alike.
_zipf_curve = cache(zipf_curve)


def policy_weights(policies: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
    """`Design.by_popularity` and `Design.admits` of named policies.

    LRU and CLOCK hold the last rows used (their hit ratios differ by less than 0.01 on the traces
    of the reference); LFU and pinned rows are the hottest, but LFU lets missed rows in.

    Args:
        policies: (tables,) names of `POLICIES`.

    Returns:
        (tables,) and (tables,).

    Raises:
        ConfigError: there is no such policy.

    Example:
        >>> policy_weights(["lru", "pinned"])
        (array([0., 1.]), array([1., 0.]))
    """
    unknown = next((policy for policy in policies if policy not in POLICIES), None)
    if unknown is not None:
        raise ConfigError(
            "no such policy", where="policy", got=unknown, expected=f"one of {', '.join(POLICIES)}"
        )
    by_popularity = np.array([float(policy in ("lfu", "pinned")) for policy in policies])
    admits = np.array([float(policy != "pinned") for policy in policies])
    return by_popularity, admits
