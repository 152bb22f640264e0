"""What the lookups of TorchRec's kernels take on real devices, and what they would take on others.

TorchRec's formulas count every lookup at full bandwidth, take the share of rows in a cache for the
share of hits, slow the host's memory down tenfold, and leave the optimizer's state out. Here each
part is counted where its bytes go:

- a row is read again only in part where it was read before, as the device's own cache holds some;
- the gradients are sorted by row, one pass for each byte of the row's number;
- weights and state of each distinct row are read and written once, at the rate of the memory that
  they are in. The optimizer's state stays in the host's memory though the weights are cached;
- a cached kernel looks every id up in the cache, and only distinct rows that miss cross the link.
"""

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import ArrayLike, NDArray

from jaxperf.embedding.torchrec._types import (
    FUSED_KERNELS,
    Shard,
    ShardingOption,
    ShardPerf,
    Topology,
    row_devices,
)
from jaxperf.errors import ConfigError

_ID_BYTES = 8
_BITS_OF_PASS = 8
_ROUNDED = 1 + 1e-6  # counts are estimates: their sums are rounded


@dataclass(frozen=True)
class LookupWork:
    """What one step asks of the tables that one kernel serves; each () or (works,).

    Attributes:
        lookups: of all tables.
        distinct_rows: of them, the rows that differ.
        outputs: rows of the result: samples times tables where rows are pooled, else `lookups`.
        row_bytes: weights of a row.
        state_row_bytes: of the optimizer, beside each row.
        table_rows: of all tables.
        missing_rows: of the distinct ones, those that a cache of `fused_uvm_caching` has not.
    """

    lookups: ArrayLike
    distinct_rows: ArrayLike
    outputs: ArrayLike
    row_bytes: ArrayLike
    state_row_bytes: ArrayLike
    table_rows: ArrayLike
    missing_rows: ArrayLike = 0.0


@dataclass(frozen=True)
class LookupRates:
    """How fast a device looks rows up and updates them.

    Attributes:
        device_bytes_per_s: of its memory, of rows read at random and results written in order.
        device_update_bytes_per_s: of its memory, of rows read and written at random, together.
        host_read_bytes_per_s: of rows read over the link to the host's memory.
        host_update_bytes_per_s: of rows read and written over it, each way.
        repeat_share: of the lookups of rows that a step has read before, those that the device's
            own cache does not serve.
        sort_keys_per_s: of one pass over 8 bits.
        cache_lookups_per_s: of ids looked up in the cache, distinct ones found and entered.
        launch_ms: until the first kernel runs, where nothing hides it.
    """

    device_bytes_per_s: float
    device_update_bytes_per_s: float
    host_read_bytes_per_s: float
    host_update_bytes_per_s: float
    repeat_share: float
    sort_keys_per_s: float
    cache_lookups_per_s: float
    launch_ms: float


H100_RATES = LookupRates(
    device_bytes_per_s=2.85e12,
    device_update_bytes_per_s=1.97e12,
    host_read_bytes_per_s=56.5e9,
    host_update_bytes_per_s=42e9,
    repeat_share=0.72,
    sort_keys_per_s=11.9e9,
    cache_lookups_per_s=0.468e9,
    launch_ms=0.09,
)
"""Of an H100 SXM on PCIe 5, fitted to FBGEMM's times in NVIDIA/recsys-examples (BSD-3-Clause).

Of the peaks, 3.35e12 and 64e9 bytes/s, these are 0.85 and 0.59 in the device's memory, 0.88 and
0.66 over the link.
"""


@dataclass(frozen=True)
class LookupTimes:
    """What lookups take; each () or (works,).

    Attributes:
        forward_ms: of training.
        backward_ms: with the optimizer.
        evaluation_ms: forward alone, as one waits for it.
    """

    forward_ms: NDArray[np.float64]
    backward_ms: NDArray[np.float64]
    evaluation_ms: NDArray[np.float64]

    @property
    def training_ms(self) -> NDArray[np.float64]:
        """Forward and backward."""
        return self.forward_ms + self.backward_ms


def lookup_times(
    work: LookupWork,
    compute_kernel: str,
    rates: LookupRates = H100_RATES,
    *,
    state_on_device: bool = False,
) -> LookupTimes:
    """What the lookups of a step take on one device.

    Args:
        work: of the step.
        compute_kernel: `fused`, `fused_uvm` or `fused_uvm_caching`.
        rates: of the device.
        state_on_device: `fused_uvm_caching` keeps the optimizer's state in the device's memory
            (`enforce_hbm` of FBGEMM), not in the host's.

    Returns:
        The times.

    Raises:
        ConfigError: the kernel has no such lookups, or more rows differ than are looked up, or
            more miss than differ.

    Example:
        >>> rows = LookupWork(1e6, 4e5, 1e6, row_bytes=512, state_row_bytes=0, table_rows=2**28)
        >>> slow, fast = (lookup_times(rows, kernel) for kernel in ("fused_uvm", "fused"))
        >>> round(float(slow.forward_ms / fast.forward_ms))
        23
    """
    if compute_kernel not in FUSED_KERNELS:
        expected = "one of " + ", ".join(FUSED_KERNELS)
        raise ConfigError("no lookup times of that kernel", got=compute_kernel, expected=expected)
    _check_rows(work)
    weights_on_host = compute_kernel == "fused_uvm"
    state_on_host = weights_on_host or (
        compute_kernel == "fused_uvm_caching" and not state_on_device
    )
    forward_ms = _forward_s(work, compute_kernel, rates) * 1e3
    backward_ms = _backward_s(work, weights_on_host, state_on_host, rates) * 1e3
    return LookupTimes(forward_ms, backward_ms, forward_ms + rates.launch_ms)


def shard_work(
    option: ShardingOption,
    shard: Shard,
    topology: Topology,
    batch_size: int,
    *,
    distinct_rows: float,
    missing_rows: float = 0.0,
) -> LookupWork:
    """The work of a shard in a step, its rows being asked for as often as those of the others.

    Args:
        option: that the shard is of; not a data-parallel one.
        shard: one of its shards.
        topology: the devices.
        batch_size: samples of one device.
        distinct_rows: of the whole table, in a step of all devices.
        missing_rows: of those, what the caches have not.

    Returns:
        The work.

    Raises:
        ConfigError: the option is data parallel, and so its gradients are dense.

    Example:
        >>> from jaxperf.config import EmbeddingTable
        >>> from jaxperf.embedding.torchrec import enumerate_options
        >>> table = EmbeddingTable(name="ads", rows=800, dimension=128, pooling=2.0)
        >>> topology = Topology(8, 8)
        >>> option = enumerate_options(table, topology, sharding_types=["row_wise"])[0]
        >>> work = shard_work(option, option.shards[0], topology, 64, distinct_rows=400)
        >>> work.lookups, work.distinct_rows, work.row_bytes
        (128.0, 50.0, 512.0)
    """
    if option.sharding_type == "data_parallel":
        raise ConfigError("no lookup times of data-parallel tables", where=option.table.name)
    table, devices = option.table, row_devices(option.sharding_type, topology)
    samples = batch_size * topology.world_size
    part = shard.columns / table.dimension
    return LookupWork(
        lookups=samples * table.pooling / devices,
        distinct_rows=distinct_rows / devices,
        outputs=samples,
        row_bytes=shard.columns * table.element_bytes,
        state_row_bytes=table.optimizer_row_bytes * part,
        table_rows=shard.rows,
        missing_rows=missing_rows / devices,
    )


def correct_perf(perf: ShardPerf, times: LookupTimes) -> ShardPerf:
    """TorchRec's times of a shard, with lookups as they really are.

    Args:
        perf: of `estimate_shards`.
        times: of `lookup_times` for one work; rows that miss are part of them, not a prefetch.

    Returns:
        The same communication with the other lookups.

    Example:
        >>> times = LookupTimes(np.float64(1.0), np.float64(2.0), np.float64(1.1))
        >>> correct_perf(ShardPerf(40.0, 3.0, 80.0, 4.0), times).total_ms
        10.0
    """
    return replace(
        perf,
        fwd_compute_ms=float(times.forward_ms),
        bwd_compute_ms=float(times.backward_ms),
        prefetch_compute_ms=0.0,
    )


def _check_rows(work: LookupWork) -> None:
    lookups, distinct, missing = (
        np.asarray(rows, float) for rows in (work.lookups, work.distinct_rows, work.missing_rows)
    )
    right = (missing >= 0) & (missing <= _ROUNDED * distinct) & (distinct <= _ROUNDED * lookups)
    if not right.all():
        raise ConfigError(
            "not the rows of a step",
            got=f"{lookups} lookups, {distinct} distinct, {missing} missing",
            expected="each at most the one before, none negative",
        )


def _forward_s(work: LookupWork, kernel: str, rates: LookupRates) -> np.ndarray:
    lookups, distinct = np.asarray(work.lookups, float), np.asarray(work.distinct_rows, float)
    read_bytes = _rows_read(lookups, distinct, rates) * work.row_bytes
    stream_bytes = lookups * _ID_BYTES + np.asarray(work.outputs, float) * work.row_bytes
    if kernel == "fused_uvm":
        # One kernel reads over the link and writes to its memory meanwhile.
        link_s = read_bytes / rates.host_read_bytes_per_s
        return np.maximum(link_s, stream_bytes / rates.device_bytes_per_s)
    gather_s = (read_bytes + stream_bytes) / rates.device_bytes_per_s
    if kernel == "fused":
        return gather_s
    missing_bytes = np.asarray(work.missing_rows, float) * work.row_bytes
    found_s = lookups / rates.cache_lookups_per_s
    return found_s + missing_bytes / rates.host_read_bytes_per_s + gather_s


def _backward_s(
    work: LookupWork, weights_on_host: bool, state_on_host: bool, rates: LookupRates
) -> np.ndarray:
    lookups, distinct = np.asarray(work.lookups, float), np.asarray(work.distinct_rows, float)
    outputs = np.minimum(np.asarray(work.outputs, float), lookups)
    passes = np.ceil(np.log2(np.maximum(work.table_rows, 2)) / _BITS_OF_PASS)
    sort_s = lookups * passes / rates.sort_keys_per_s
    gradient_bytes = lookups * _ID_BYTES + _rows_read(lookups, outputs, rates) * work.row_bytes
    weight_bytes, state_bytes = distinct * work.row_bytes, distinct * work.state_row_bytes
    host_bytes = weights_on_host * weight_bytes + state_on_host * state_bytes
    device_bytes = weight_bytes + state_bytes - host_bytes
    device_s = gradient_bytes / rates.device_bytes_per_s
    device_s += 2 * device_bytes / rates.device_update_bytes_per_s
    # One kernel reduces and updates, so that both memories are at work together.
    return sort_s + np.maximum(device_s, host_bytes / rates.host_update_bytes_per_s)


def _rows_read(lookups: np.ndarray, distinct: np.ndarray, rates: LookupRates) -> np.ndarray:
    return distinct + rates.repeat_share * (lookups - distinct)
