"""How long a matrix multiply takes: tiles in waves on the multiprocessors, or bytes from memory."""

from dataclasses import dataclass, fields

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from jaxperf.cost._device import Device
from jaxperf.cost._roofline import (
    fill,
    peak_flops_per_s,
    quantized_waves,
    smooth_max,
    split_pass_us,
)
from jaxperf.cost._work import Work, WorkKind

# Rows and columns of a result that one thread block computes, as cuBLAS and CUTLASS have them.
_TILES = np.array(
    [(256, 128), (128, 256), (128, 128), (128, 64), (64, 128), (64, 64), (64, 32), (32, 64)], float
)
# A library picks nearly the quickest tile: how much a slower one counts falls with this power.
_CHOICE = 40.0


@dataclass(frozen=True, eq=False)
class MatmulParameters:
    """What a device and its library make of a matrix multiply. Every field is () and positive.

    Attributes:
        latency_us: of the smallest one.
        compute_overhead: time over that at the peak, as a share, of a large one.
        memory_overhead: the same over the time at the bandwidth of the memory.
        memory_latency_us: before the memory delivers.
        sharpness: of the maximum of compute and memory time.
        edge_elements: what a tile's operands cost, as elements of its edge.
        prologue_elements: filling and draining a tile's pipeline, as elements of `k`.
        wave_quantization: odds that a wave which is part empty takes as long as a full one.
        loop_tile_elements: size of the tile that a multiprocessor computes in the time which no
            split of the rows and columns makes a pass over `k` any shorter than.
        split_us: longest such pass: a longer one is split, and the parts added.
        loop_sharpness: of the maximum of that pass and the rest of the computation.
        throttle: how much slower a long one is, as a share; lowered clocks are the likely cause.
        throttle_us: length at which half of that is reached.
    """

    latency_us: ArrayLike
    compute_overhead: ArrayLike
    memory_overhead: ArrayLike
    memory_latency_us: ArrayLike
    sharpness: ArrayLike
    edge_elements: ArrayLike
    prologue_elements: ArrayLike
    wave_quantization: ArrayLike
    loop_tile_elements: ArrayLike
    split_us: ArrayLike
    loop_sharpness: ArrayLike
    throttle: ArrayLike
    throttle_us: ArrayLike


jax.tree_util.register_dataclass(MatmulParameters, [f.name for f in fields(MatmulParameters)], [])


def default_matmul_parameters() -> MatmulParameters:
    """Parameters between those fitted to bf16 on A100, H100, H200 and B200, for matrix units.

    Example:
        >>> float(default_matmul_parameters().prologue_elements)
        140.0
    """
    return MatmulParameters(
        latency_us=np.float64(0.7),
        compute_overhead=np.float64(0.12),
        memory_overhead=np.float64(0.22),
        memory_latency_us=np.float64(1.9),
        sharpness=np.float64(2.5),
        edge_elements=np.float64(1.5),
        prologue_elements=np.float64(140.0),
        wave_quantization=np.float64(0.4),
        loop_tile_elements=np.float64(19e3),
        split_us=np.float64(7.5),
        loop_sharpness=np.float64(1.0),
        throttle=np.float64(0.17),
        throttle_us=np.float64(1300.0),
    )


def matmul_us(parameters: MatmulParameters, device: Device, work: Work) -> jax.Array:
    """Duration of matrix multiplies.

    With `R` the peak of one multiprocessor and `w = batch ceil(m / tm) ceil(n / tn) / SMs` waves of
    tiles of tm by tn, a tile computes in `2 tm tn (k + prologue) (1 + edge / tm + edge / tn) / R`
    (tiles and waves: NeuSight, `neusight/Model/mlp_wave_mm.py`), and `w` waves take as long as
    `w + q (ceil(w) - w)`, `q = quantization / (1 + quantization)`: `q` is 1 without stream-K and 0
    with it (Osama et al., arXiv 2301.03598). The tile is the quickest, softly. No multiply is
    shorter than a pass over `k`, which splitting `k` bounds. The larger, softly, of this and of the
    time of the bytes is the duration (roofline: Williams et al., 2009). It is never below the
    device's speed of light.

    Args:
        parameters: of the device.
        device: its peaks, bandwidth and multiprocessors.
        work: n tasks of any kind.

    Returns:
        (n,) us; NaN where the task is no matrix multiply, or its shape, type or bytes are unknown.

    Example:
        >>> from jaxperf.config import load_hardware
        >>> from jaxperf.cost import device_of, matmul_work
        >>> device, work = device_of(load_hardware("h100")), matmul_work(8192, 8192, 8192)
        >>> round(float(matmul_us(default_matmul_parameters(), device, work)[0]), -2)
        1400.0
    """
    peak = peak_flops_per_s(device, work.precision)
    columns = (work.batch, work.m, work.n, work.k, work.flops, work.memory_bytes, peak)
    known, (batch, m, n, k, flops, moved_bytes, peak) = fill(
        jnp.asarray(work.kind) == WorkKind.MATMUL, columns
    )
    flops_per_us = peak / 1e6 / device.streaming_multiprocessors
    # A triangle, say, is less than its rectangle.
    share = flops / (2.0 * batch * m * n * k)
    tiled_us = share * _tiled_us(parameters, device, flops_per_us, (batch, m, n, k))
    tiled_us *= 1.0 + parameters.throttle * tiled_us / (tiled_us + parameters.throttle_us)
    loop_us = split_pass_us(
        2.0 * parameters.loop_tile_elements * k / flops_per_us, parameters.split_us
    )
    compute_us = smooth_max(tiled_us, loop_us, parameters.loop_sharpness)
    memory_us = moved_bytes / device.memory_bytes_per_s * 1e6 * (1.0 + parameters.memory_overhead)
    larger_us = smooth_max(
        compute_us, memory_us + parameters.memory_latency_us, parameters.sharpness
    )
    return jnp.where(known, parameters.latency_us + larger_us, jnp.nan)


def _tiled_us(
    parameters: MatmulParameters,
    device: Device,
    flops_per_us: jax.Array,
    shape: tuple[jax.Array, ...],
) -> jax.Array:
    """(n,) time of all tiles at the peak of the multiprocessors, for the tile that is chosen."""
    batch, m, n, k = (column[None, :] for column in shape)
    tile_m, tile_n = (jnp.asarray(_TILES[:, axis, None], m.dtype) for axis in (0, 1))
    tiles = batch * jnp.ceil(m / tile_m) * jnp.ceil(n / tile_n)
    waves = quantized_waves(tiles / device.streaming_multiprocessors, parameters.wave_quantization)
    edges = 1.0 + parameters.edge_elements * (1.0 / tile_m + 1.0 / tile_n)
    tile_flops = 2.0 * tile_m * tile_n * (k + parameters.prologue_elements)
    each_us = waves * tile_flops * edges / flops_per_us[None, :]
    log_us = jnp.log(each_us)
    # A mean of any weights is at least the smallest, so the peak stays a bound.
    weight = jax.nn.softmax(-_CHOICE * log_us, axis=0)
    return jnp.exp((weight * log_us).sum(0)) * (1.0 + parameters.compute_overhead)
