"""The memories of a server as arrays, and how long each is busy with what passes it in a step."""

from dataclasses import dataclass, fields

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from jaxperf.config import Server, load_hardware, load_memory
from jaxperf.cost import PRECISIONS, Device, device_of

_DAY_S = 86400.0
LIMITS = ("read bandwidth", "write bandwidth", "iops", "latency", "link")
"""What bounds a tier; `TierTimes.limit_us` has them in this order. Both bandwidths add up."""


@dataclass(frozen=True, eq=False)
class Tiers:
    """The memories of one server, from the fastest to the slowest; every field a leaf.

    Attributes:
        capacity_bytes, read_bytes_per_s, write_bytes_per_s: (tiers,) of all modules together.
        link_bytes_per_s: (tiers,) each way to what is above; infinite where it does not bound.
        latency_us: (tiers,) of a read.
        queue_depth: (tiers,) blocks under way at once.
        read_iops, write_iops: (tiers,) blocks a second; infinite where they do not bound.
        block_bytes: (tiers,) least that is moved at once.
        is_block: (tiers,) 1 where rows lie in a log-structured store on a drive, else 0.
        space_amplification: (tiers,) bytes that it takes to keep one of a row.
        drive_writes_per_day: (tiers,) rated; infinite where nothing wears.
        warranty_years: (tiers,) of that rating.
        price_usd_per_byte: (tiers,) installed.
        idle_w, active_w: (tiers,) of all modules together.
    """

    capacity_bytes: ArrayLike
    read_bytes_per_s: ArrayLike
    write_bytes_per_s: ArrayLike
    link_bytes_per_s: ArrayLike
    latency_us: ArrayLike
    queue_depth: ArrayLike
    read_iops: ArrayLike
    write_iops: ArrayLike
    block_bytes: ArrayLike
    is_block: ArrayLike
    space_amplification: ArrayLike
    drive_writes_per_day: ArrayLike
    warranty_years: ArrayLike
    price_usd_per_byte: ArrayLike
    idle_w: ArrayLike
    active_w: ArrayLike


@dataclass(frozen=True, eq=False)
class Machine:
    """A server as arrays; every field a leaf.

    Attributes:
        tiers: its memories.
        device: its accelerators and links, as the cost models see them.
        gpus: () accelerators.
        dense_flops_per_s: () peak of one, of the dense part.
        price_usd: () without the memories of `tiers` but the first.
        host_w: () without accelerators and those memories.
        gpu_idle_w, gpu_active_w: () of one accelerator with its memory.
    """

    tiers: Tiers
    device: Device
    gpus: ArrayLike
    dense_flops_per_s: ArrayLike
    price_usd: ArrayLike
    host_w: ArrayLike
    gpu_idle_w: ArrayLike
    gpu_active_w: ArrayLike


@dataclass(frozen=True, eq=False)
class Traffic:
    """What passes each tier of one server in a step.

    Attributes:
        read_bytes, write_bytes: (tiers,) in whole blocks, compaction included.
        read_blocks, write_blocks: (tiers,) accesses at random.
        link_read_bytes, link_write_bytes: (tiers,) over the link above, with what is from below.
    """

    read_bytes: jax.Array
    write_bytes: jax.Array
    read_blocks: jax.Array
    write_blocks: jax.Array
    link_read_bytes: jax.Array
    link_write_bytes: jax.Array


for _noun in (Tiers, Machine, Traffic):
    jax.tree_util.register_dataclass(_noun, [f.name for f in fields(_noun)], [])


def machine_of(server: Server) -> Machine:
    """The arrays that a description of a server stands for.

    The dense part is computed in TF32, or in what the accelerator has in its place.

    Args:
        server: of `load_server`.

    Returns:
        Float64 arrays.

    Example:
        >>> from jaxperf.config import load_server
        >>> machine_of(load_server("zionex")).tiers.capacity_bytes
        array([3.200e+11, 1.536e+12])
    """
    hardware = load_hardware(server.hardware)
    device = device_of(hardware)
    return Machine(
        tiers=_tiers_of(server),
        device=device,
        gpus=np.float64(hardware.gpus_per_node),
        dense_flops_per_s=np.float64(np.asarray(device.peak_flops_per_s)[PRECISIONS.index("tf32")]),
        price_usd=np.float64(server.price_usd),
        host_w=np.float64(server.host_w),
        gpu_idle_w=np.float64(server.gpu_idle_w),
        gpu_active_w=np.float64(server.gpu_active_w),
    )


def tier_limits_us(tiers: Tiers, traffic: Traffic) -> jax.Array:
    """How long each limit of each tier alone would take.

    `max(read/BW + write/BW, reads/IOPS + writes/IOPS, blocks x latency / depth, bytes/link)`: a
    memory reads or writes, a link does both at once.

    Args:
        tiers: of a server.
        traffic: of a step.

    Returns:
        (tiers, 5) microseconds, by `LIMITS`; `tier_us` has what they come to.

    Example:
        >>> from jaxperf.config import load_server
        >>> tiers = machine_of(load_server("zionex-pmem")).tiers
        >>> one = np.array([0.0, 0.0, 1e9])
        >>> limits = tier_limits_us(tiers, Traffic(one, one, one / 256, one / 256, one, one))
        >>> [f"{us / 1e3:.1f}" for us in limits[2]]  # 16 modules of 7.5 and 2.6 GB/s
        ['8.3', '24.0', '0.0', '4.7', '0.0']
    """
    t = traffic
    read_s = t.read_bytes / jnp.asarray(tiers.read_bytes_per_s)
    write_s = t.write_bytes / jnp.asarray(tiers.write_bytes_per_s)
    iops_s = t.read_blocks / jnp.asarray(tiers.read_iops)
    iops_s = iops_s + t.write_blocks / jnp.asarray(tiers.write_iops)
    depth_us = t.read_blocks * jnp.asarray(tiers.latency_us) / jnp.asarray(tiers.queue_depth)
    link_bytes = jnp.maximum(t.link_read_bytes, t.link_write_bytes)
    link_s = link_bytes / jnp.asarray(tiers.link_bytes_per_s)
    return jnp.stack([read_s * 1e6, write_s * 1e6, iops_s * 1e6, depth_us, link_s * 1e6], axis=-1)


def tier_us(limits_us: jax.Array) -> jax.Array:
    """How long each tier is busy.

    Args:
        limits_us: (tiers, 5) of `tier_limits_us`.

    Returns:
        (tiers,) microseconds.
    """
    bandwidth_us = limits_us[:, 0] + limits_us[:, 1]
    return jnp.maximum(bandwidth_us, limits_us[:, 2:].max(axis=1))


def whole_blocks(row_bytes: ArrayLike, block_bytes: ArrayLike) -> jax.Array:
    """(tables, tiers) blocks that a row takes: of 512 bytes, one of 4,096, read eightfold.

    Args:
        row_bytes: (tables,) of each row.
        block_bytes: (tiers,) of each tier.

    Returns:
        Whole numbers, without gradient.
    """
    rows, blocks = jnp.asarray(row_bytes)[:, None], jnp.asarray(block_bytes)[None, :]
    return jax.lax.stop_gradient(jnp.ceil(rows / blocks))


def drive_writes_per_day(tiers: Tiers, written_bytes: jax.Array, step_us: jax.Array) -> jax.Array:
    """How many times a day each tier is written over.

    Args:
        tiers: of a server.
        written_bytes: (tiers,) in a step.
        step_us: () time of the step.

    Returns:
        (tiers,) of the installed capacity.
    """
    return written_bytes * (_DAY_S * 1e6) / step_us / jnp.asarray(tiers.capacity_bytes)


def _tiers_of(server: Server) -> Tiers:
    memories = [load_memory(tier.memory) for tier in server.tiers]
    count = np.array([float(tier.count) for tier in server.tiers])
    links = [tier.link_bytes_per_s for tier in server.tiers]

    def each(field: str) -> np.ndarray:
        values = [getattr(memory, field) for memory in memories]
        return np.array([np.inf if value is None else float(value) for value in values])

    return Tiers(
        capacity_bytes=count * each("capacity_bytes"),
        read_bytes_per_s=count * each("read_bytes_per_s"),
        write_bytes_per_s=count * each("write_bytes_per_s"),
        link_bytes_per_s=np.array([np.inf if link is None else link for link in links]),
        latency_us=each("latency_us"),
        queue_depth=count * each("queue_depth"),
        read_iops=count * each("read_iops"),
        write_iops=count * each("write_iops"),
        block_bytes=each("block_bytes"),
        is_block=np.array([float(memory.kind == "block") for memory in memories]),
        space_amplification=each("space_amplification"),
        drive_writes_per_day=each("drive_writes_per_day"),
        warranty_years=each("warranty_years"),
        price_usd_per_byte=each("price_usd") / each("capacity_bytes"),
        idle_w=count * each("idle_w"),
        active_w=count * each("active_w"),
    )
