"""What the kernel models share, and the model of kernels that only stream their operands."""

from dataclasses import dataclass, fields

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from jaxperf.cost._device import Device
from jaxperf.cost._work import Work, WorkKind
from jaxperf.graph import TaskClass

# Power that makes a step of `ceil` steep and yet a function with a derivative.
_STEP = 20.0


def smooth_max(a: ArrayLike, b: ArrayLike, sharpness: ArrayLike) -> jax.Array:
    """The larger of two times that overlap in part: `(a^p + b^p)^(1/p)`.

    Args:
        a, b: (n,) or (), not negative.
        sharpness: p > 0: 1 adds them, and a large one is their maximum.

    Returns:
        As `a` and `b`: at least their maximum. Its gradient is finite also where one is 0.

    Example:
        >>> float(smooth_max(3.0, 4.0, 2.0))
        5.0
    """
    a, b = jnp.asarray(a), jnp.asarray(b)
    larger, smaller = jnp.maximum(a, b), jnp.minimum(a, b)
    # The power of 0, and 0 / 0, have no derivative: 1 stands in, and its result is not used.
    positive = smaller > 0.0
    ratio = jnp.where(positive, smaller, 1.0) / jnp.where(positive, larger, 1.0)
    both = larger * (1.0 + ratio**sharpness) ** (1.0 / sharpness)
    return jnp.where(positive, both, larger)


def peak_flops_per_s(device: Device, precision: ArrayLike) -> jax.Array:
    """(n,) peak of each task's type; NaN where the type is unknown."""
    precision = jnp.asarray(precision, jnp.int32)
    peak = jnp.asarray(device.peak_flops_per_s)[jnp.maximum(precision, 0)]
    return jnp.where(precision < 0, jnp.nan, peak)


def quantized_waves(waves: jax.Array, odds: ArrayLike) -> jax.Array:
    """How many full waves some waves of thread blocks take as long as.

    Args:
        waves: thread blocks over those that run at once.
        odds: that a wave which is part empty takes as long as a full one, to 1.

    Returns:
        Between `waves` and the next whole number; less than one wave is left as it is.
    """
    full = jnp.floor(waves)
    whole = full + 1.0 - (1.0 - (waves - full)) ** _STEP
    share = odds / (1.0 + odds)
    return jnp.where(waves < 1.0, waves, waves + share * (whole - waves))


def split_pass_us(pass_us: ArrayLike, split_us: ArrayLike) -> jax.Array:
    """Time of one thread block's pass over its operands, where a long one is split among more."""
    return 1.0 / (1.0 / jnp.asarray(pass_us) + 1.0 / jnp.asarray(split_us))


def fill(of_kind: jax.Array, columns: tuple) -> tuple[jax.Array, tuple[jax.Array, ...]]:
    """Columns with 1 where a row is not of the kind or has an unknown value.

    What is computed of such a row is thrown away; without this its NaN would come back in the
    gradient, as 0 times NaN.

    Args:
        of_kind: (n,) which rows are asked for.
        columns: (n,) each.

    Returns:
        (n,) which rows are whole, and the columns.
    """
    arrays = tuple(jnp.asarray(column) for column in columns)
    known = of_kind
    for array in arrays:
        known = known & (array > 0.0)
    return known, tuple(jnp.where(known, array, 1.0) for array in arrays)


@dataclass(frozen=True, eq=False)
class MemoryParameters:
    """What a device makes of kernels that stream their operands. Every field is positive.

    Attributes:
        latency_us: (classes,) of the smallest kernel of each `TaskClass`.
        overhead: (classes,) time over that at the bandwidth of the memory, as a share.
    """

    latency_us: ArrayLike
    overhead: ArrayLike


jax.tree_util.register_dataclass(MemoryParameters, [f.name for f in fields(MemoryParameters)], [])

_OVERHEADS = {
    TaskClass.NORMALIZATION: 0.5,
    TaskClass.ELEMENTWISE: 0.2,
    TaskClass.OPTIMIZER: 0.25,
    TaskClass.EMBEDDING: 0.6,
    TaskClass.MOE: 0.6,
    TaskClass.MEMCPY: 0.15,
}


def default_memory_parameters() -> MemoryParameters:
    """Parameters of PyTorch's kernels on recent devices.

    Example:
        >>> float(default_memory_parameters().overhead[TaskClass.ELEMENTWISE])
        0.2
    """
    return MemoryParameters(
        latency_us=np.full(len(TaskClass), 2.0),
        overhead=np.array([_OVERHEADS.get(each, 0.3) for each in TaskClass]),
    )


def memory_us(parameters: MemoryParameters, device: Device, work: Work) -> jax.Array:
    """Duration of kernels that are bound by memory: a latency, and bytes over bandwidth.

    Args:
        parameters: of the device.
        device: its bandwidth.
        work: n tasks of any kind.

    Returns:
        (n,) us; NaN where the task is not of this kind, or its bytes are unknown.

    Example:
        >>> from jaxperf.config import load_hardware
        >>> from jaxperf.cost import device_of, memory_work
        >>> device = device_of(load_hardware("h100"))
        >>> work = memory_work(TaskClass.ELEMENTWISE, 3.35e6, 0)
        >>> round(float(memory_us(default_memory_parameters(), device, work)[0]), 3)
        4.4
    """
    known, (moved_bytes,) = fill(jnp.asarray(work.kind) == WorkKind.MEMORY, (work.memory_bytes,))
    task_class = jnp.maximum(jnp.asarray(work.task_class, jnp.int32), 0)
    share = 1.0 + jnp.asarray(parameters.overhead)[task_class]
    latency_us = jnp.asarray(parameters.latency_us)[task_class]
    streamed_us = moved_bytes / device.memory_bytes_per_s * 1e6 * share
    return jnp.where(known, latency_us + streamed_us, jnp.nan)
