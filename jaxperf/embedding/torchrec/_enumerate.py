"""How TorchRec cuts tables, and what its planner says of each cut."""

import math
from collections.abc import Sequence
from dataclasses import replace

from jaxperf.config import EmbeddingTable
from jaxperf.embedding.torchrec._offload_statistics import OffloadStatistics
from jaxperf.embedding.torchrec._perf import shard_perf
from jaxperf.embedding.torchrec._storage import shard_storage
from jaxperf.embedding.torchrec._types import (
    FUSED_KERNELS,
    SHARDING_TYPES,
    Shard,
    ShardEstimate,
    ShardingOption,
    Topology,
    row_devices,
)

_LEAST_COLUMNS = 128


def enumerate_options(
    table: EmbeddingTable,
    topology: Topology,
    *,
    sharding_types: Sequence[str] = SHARDING_TYPES,
    column_shard_dimension: int | None = None,
) -> tuple[ShardingOption, ...]:
    """Every way in which TorchRec's planner would cut a table.

    Args:
        table: to cut.
        topology: the devices.
        sharding_types: to take, some of `ALL_SHARDING_TYPES`; those of `SHARDING_TYPES` by default.
        column_shard_dimension: least columns of a shard that is cut by columns; 128 by default.

    Returns:
        The options: data parallel with the dense kernel, all others with each fused kernel.

    Raises:
        ConfigError: there is no such sharding type.

    Example:
        >>> table = EmbeddingTable(name="ads", rows=10, dimension=128)
        >>> options = enumerate_options(table, Topology(8, 8), sharding_types=["row_wise"])
        >>> [(option.compute_kernel, len(option.shards)) for option in options]
        [('fused', 8), ('fused_uvm', 8), ('fused_uvm_caching', 8)]
    """
    options = []
    for sharding_type in sharding_types:
        shards = cut_table(table, topology, sharding_type, column_shard_dimension)
        kernels = ("dense",) if sharding_type == "data_parallel" else FUSED_KERNELS
        options += [ShardingOption(table, sharding_type, kernel, shards) for kernel in kernels]
    return tuple(options)


def estimate_shards(
    option: ShardingOption,
    topology: Topology,
    batch_size: int,
    *,
    cache_load_factor: float | None = None,
    statistics: OffloadStatistics | None = None,
) -> tuple[ShardEstimate, ...]:
    """What TorchRec's planner says of each shard of an option, as its version 1.9.2 does.

    Pooled, unweighted lookups of one feature.

    Args:
        option: to estimate.
        topology: the devices.
        batch_size: samples of one device.
        cache_load_factor: share of the rows in the cache of `fused_uvm_caching`; 0.2 by default.
        statistics: of the table's accesses, which TorchRec takes to tell how many rows come to the
            cache; only where `cache_load_factor` is given too.

    Returns:
        One estimate per shard.

    Raises:
        ConfigError: the option has no such sharding type or kernel.

    Example:
        >>> table = EmbeddingTable(name="t0", rows=40_000_000, dimension=128, pooling=3.0)
        >>> topology = Topology(8, 8)
        >>> option = enumerate_options(table, topology, sharding_types=["table_wise"])[0]
        >>> estimate = estimate_shards(option, topology, 8192)[0]
        >>> round(estimate.perf.total_ms, 6), estimate.storage.hbm_bytes
        (0.527126, 20515127296)
    """
    fetches = 0.0
    cached = option.compute_kernel == "fused_uvm_caching"
    if cached and statistics is not None and cache_load_factor is not None:
        fetches = statistics.miss_ratio(cache_load_factor) * statistics.expected_lookups
    return tuple(
        ShardEstimate(
            shard,
            shard_perf(option, shard, topology, batch_size, cache_load_factor, fetches),
            shard_storage(option, shard, topology, batch_size, cache_load_factor),
        )
        for shard in option.shards
    )


def cut_table(
    table: EmbeddingTable,
    topology: Topology,
    sharding_type: str,
    column_shard_dimension: int | None = None,
) -> tuple[Shard, ...]:
    """The shards of a table under one sharding type.

    Rows are dealt in blocks of `ceil(rows / devices)`, so that the last devices may have fewer or
    none. Columns are dealt in blocks of the least divisor of the dimension that is a multiple of 4
    and at least `column_shard_dimension`.

    Args:
        table: to cut.
        topology: the devices.
        sharding_type: one of `ALL_SHARDING_TYPES`.
        column_shard_dimension: 128 by default.

    Returns:
        The shards, those of one block of columns after those of the one before.

    Raises:
        ConfigError: there is no such sharding type.

    Example:
        >>> table = EmbeddingTable(name="tiny", rows=5, dimension=8)
        >>> [shard.rows for shard in cut_table(table, Topology(4, 4), "row_wise")]
        [2, 2, 1, 0]
    """
    devices = row_devices(sharding_type, topology)
    blocks = (Shard(table.rows, table.dimension),)
    if sharding_type in ("column_wise", "table_column_wise", "grid_shard"):
        blocks = _cut_columns(blocks[0], column_shard_dimension or _LEAST_COLUMNS)
    shards = tuple(shard for block in blocks for shard in _cut_rows(block, devices))
    return shards * topology.world_size if sharding_type == "data_parallel" else shards


def _cut_rows(whole: Shard, devices: int) -> tuple[Shard, ...]:
    block = math.ceil(whole.rows / devices)
    offsets = [min(index * block, whole.rows) for index in range(devices + 1)]
    return tuple(
        replace(whole, rows=end - begin, row_offset=begin)
        for begin, end in zip(offsets[:-1], offsets[1:], strict=True)
    )


def _cut_columns(whole: Shard, least: int) -> tuple[Shard, ...]:
    candidates = range(least, whole.columns)
    fits = (block for block in candidates if whole.columns % block == 0 and block % 4 == 0)
    block = next(fits, whole.columns)
    return tuple(
        replace(whole, columns=block, column_offset=offset)
        for offset in range(0, whole.columns, block)
    )
