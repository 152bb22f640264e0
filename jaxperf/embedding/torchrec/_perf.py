"""The time of a shard by TorchRec's formulas, right or wrong.

The rules are those of `EmbeddingPerfEstimator` of TorchRec 1.9.2 with its default constants:
sizes over bandwidths, with a share of rows in the cache where hits would be right.
"""

import math
from dataclasses import replace
from typing import NamedTuple

from jaxperf.embedding.torchrec._types import (
    COMPUTE_KERNELS,
    DEFAULT_LOAD_FACTOR,
    Shard,
    ShardingOption,
    ShardPerf,
    Topology,
    row_devices,
)
from jaxperf.errors import ConfigError

_ID_BYTES = 8
# TorchRec calls these empirical.
_BACKWARD_FACTOR = 2.0
_BATCHED_COPY_FACTOR = 2.455
_DENSE_OPTIMIZER_FACTOR = 9.22
_UVM_SLOWDOWN = 10.0


class _Sizes(NamedTuple):
    """Bytes of a step's lookups of a shard, and the bandwidth (bytes/ms) that serves them."""

    ids: float
    rows: float
    outputs: float
    device_bytes_per_ms: float

    @property
    def forward_ms(self) -> float:
        return (self.ids + self.rows + self.outputs) / self.device_bytes_per_ms


def shard_perf(
    option: ShardingOption,
    shard: Shard,
    topology: Topology,
    batch_size: int,
    cache_load_factor: float | None = None,
    cache_fetches: float = 0.0,
) -> ShardPerf:
    """The times of a shard as TorchRec's planner has them.

    Args:
        option: that the shard is of.
        shard: one of its shards.
        topology: the devices.
        batch_size: samples of one device.
        cache_load_factor: share of the rows in the cache; 0.2 by default.
        cache_fetches: rows that come to the cache in a step, of the whole table.

    Returns:
        The parts, in milliseconds.

    Raises:
        ConfigError: there is no such sharding type or kernel.

    Example:
        >>> from jaxperf.config import EmbeddingTable
        >>> table = EmbeddingTable(name="ads", rows=1000, dimension=128, pooling=1.0)
        >>> option = ShardingOption(table, "table_wise", "fused", (Shard(1000, 128),))
        >>> topology = Topology(1, 1, device_bytes_per_s=1.032e12)
        >>> round(shard_perf(option, option.shards[0], topology, 1000).fwd_compute_ms, 6)
        0.001
    """
    element_bytes = option.table.element_bytes
    devices = row_devices(option.sharding_type, topology)
    sources = 1 if option.sharding_type == "data_parallel" else topology.world_size
    lookups = option.table.pooling * batch_size / devices * sources
    device_bytes_per_s = _kernel_bytes_per_s(option.compute_kernel, topology, cache_load_factor)
    sizes = _Sizes(
        ids=math.ceil(lookups * _ID_BYTES),
        rows=lookups * shard.columns * element_bytes,
        outputs=batch_size * sources * shard.columns * element_bytes,
        device_bytes_per_ms=device_bytes_per_s / 1000,
    )
    world, local = topology.world_size, topology.local_world_size
    all_to_all_bytes_per_ms = _collective_bytes_per_ms(topology, world, local)
    match option.sharding_type:
        case "data_parallel":
            return _data_parallel(sizes, shard.rows * shard.columns * element_bytes, topology)
        case "row_wise":
            perf = _by_rows(sizes, sizes.outputs / all_to_all_bytes_per_ms)
        case "table_row_wise" | "grid_shard":
            perf = _by_rows(sizes, _two_level_ms(sizes, topology))
        case _:
            # A warp reads 32 columns at least, and is full from 128 on.
            wide = sizes._replace(rows=lookups * max(shard.columns, 32) * element_bytes)
            penalty = 1.0 if shard.columns >= 128 else 1.15 if shard.columns >= 64 else 1.75
            perf = _whole_rows(wide.forward_ms * penalty, sizes.outputs / all_to_all_bytes_per_ms)
    id_bytes = math.ceil(option.table.pooling * batch_size * world * _ID_BYTES)
    prefetch_bytes = cache_fetches / devices * shard.columns * element_bytes
    return replace(
        perf,
        input_dist_comms_ms=id_bytes / all_to_all_bytes_per_ms,
        prefetch_compute_ms=prefetch_bytes / (topology.host_link_bytes_per_s / 1000),
    )


def _kernel_bytes_per_s(kernel: str, topology: Topology, load_factor: float | None) -> float:
    device, link = topology.device_bytes_per_s, topology.host_link_bytes_per_s
    cached = DEFAULT_LOAD_FACTOR if load_factor is None else load_factor
    rates = {
        "dense": device / 2,
        "fused": device,
        "fused_uvm": link / _UVM_SLOWDOWN,
        "fused_uvm_caching": (cached * device + (1 - cached) * link) / _UVM_SLOWDOWN,
    }
    if kernel not in rates:
        raise ConfigError(
            "no such compute kernel", got=kernel, expected="one of " + ", ".join(COMPUTE_KERNELS)
        )
    return rates[kernel]


def _collective_bytes_per_ms(topology: Topology, devices: int, local_devices: int) -> float:
    inside = devices <= local_devices
    rate = topology.intra_host_bytes_per_s if inside else topology.inter_host_bytes_per_s
    return rate / 1000


def _whole_rows(forward_ms: float, comms_ms: float) -> ShardPerf:
    return ShardPerf(forward_ms, comms_ms, forward_ms * _BACKWARD_FACTOR, comms_ms)


def _by_rows(sizes: _Sizes, comms_ms: float) -> ShardPerf:
    copy_ms = sizes.outputs * _BATCHED_COPY_FACTOR / sizes.device_bytes_per_ms
    perf = _whole_rows(sizes.forward_ms, comms_ms)
    return replace(perf, bwd_comms_ms=comms_ms + copy_ms)


def _two_level_ms(sizes: _Sizes, topology: Topology) -> float:
    local, hosts = topology.local_world_size, topology.hosts
    inside_ms = sizes.outputs / _collective_bytes_per_ms(topology, local, local)
    if hosts <= 1:
        return inside_ms
    # TorchRec counts hosts in whole numbers here, so that one and a half are inside one.
    between = _collective_bytes_per_ms(topology, int(hosts), 1)
    return inside_ms + sizes.outputs / topology.world_size * hosts / between


def _data_parallel(sizes: _Sizes, table_bytes: float, topology: Topology) -> ShardPerf:
    # A ring over two hosts at most, with a network adapter for each device.
    hosts = min(topology.hosts, 2)
    rate = topology.inter_host_bytes_per_s / 1000 * topology.local_world_size
    all_reduce_ms = table_bytes * (2 * hosts - 1) / hosts / rate
    if topology.hosts > 2:
        all_reduce_ms *= 2
    optimizer_ms = table_bytes * _DENSE_OPTIMIZER_FACTOR / sizes.device_bytes_per_ms
    perf = _whole_rows(sizes.forward_ms, 0.0)
    return replace(perf, bwd_comms_ms=all_reduce_ms + optimizer_ms)
