"""The memory of a shard by TorchRec's formulas."""

import math

from jaxperf.embedding.torchrec._types import (
    DEFAULT_LOAD_FACTOR,
    Shard,
    ShardingOption,
    ShardStorage,
    Topology,
    row_devices,
)

_ID_BYTES = 8
_CACHE_MAP_BYTES = 4
"""Of every row of the table: the table that it is of."""
_CACHE_SLOT_BYTES = 16
"""Of every row of the cache: its id and when it was used."""


def shard_storage(
    option: ShardingOption,
    shard: Shard,
    topology: Topology,
    batch_size: int,
    cache_load_factor: float | None = None,
) -> ShardStorage:
    """The memory of a shard as TorchRec's planner has it, without a training pipeline.

    Weights, the optimizer's state in proportion to them, ids and outputs of a step, and the map of
    a cache (`EmbeddingStorageEstimator` of TorchRec 1.9.2).

    Args:
        option: that the shard is of.
        shard: one of its shards.
        topology: the devices.
        batch_size: samples of one device.
        cache_load_factor: share of the rows in the cache; 0.2 where it is `None` or 0.

    Returns:
        Bytes of the device and of the host.

    Example:
        >>> from jaxperf.config import EmbeddingTable
        >>> table = EmbeddingTable(name="ads", rows=1000, dimension=128)
        >>> option = ShardingOption(table, "table_wise", "fused_uvm", (Shard(1000, 128),))
        >>> shard_storage(option, option.shards[0], Topology(1, 1), 64).ddr_bytes
        512000
    """
    table = option.table
    cached = option.compute_kernel == "fused_uvm_caching"
    on_host = cached or option.compute_kernel == "fused_uvm"
    load_factor = cache_load_factor or DEFAULT_LOAD_FACTOR
    weight_bytes = round(table.rows * table.dimension * table.element_bytes)
    ddr_bytes = _stored_bytes(weight_bytes if on_host else 0, option, shard)
    if cached:
        hbm_bytes = _stored_bytes(round(weight_bytes * load_factor), option, shard)
        hbm_bytes += math.ceil(shard.rows * (_CACHE_MAP_BYTES + load_factor * _CACHE_SLOT_BYTES))
    else:
        hbm_bytes = _stored_bytes(0 if on_host else weight_bytes, option, shard)
    return ShardStorage(hbm_bytes + _step_bytes(option, shard, topology, batch_size), ddr_bytes)


def _stored_bytes(table_bytes: int, option: ShardingOption, shard: Shard) -> int:
    table = option.table
    if option.sharding_type != "data_parallel":
        cells = shard.rows * shard.columns
        table_bytes = math.ceil(table_bytes * cells / (table.rows * table.dimension))
    state = table.optimizer_row_bytes / (table.dimension * table.element_bytes)
    return table_bytes + math.ceil(table_bytes * state)


def _step_bytes(option: ShardingOption, shard: Shard, topology: Topology, batch_size: int) -> int:
    if shard.rows == 0:
        return 0
    element_bytes = option.table.element_bytes
    sources = 1 if option.sharding_type == "data_parallel" else topology.world_size
    lookups = option.table.pooling * batch_size / row_devices(option.sharding_type, topology)
    id_bytes = math.ceil(lookups * sources * _ID_BYTES)
    return id_bytes + math.ceil(batch_size * sources * shard.columns * element_bytes)
