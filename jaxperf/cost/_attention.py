"""How long an attention takes: blocks of queries in waves, each passing over the keys."""

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

# Queries of a thread block of FlashAttention-2 and -3.
_BLOCK = 128.0


@dataclass(frozen=True, eq=False)
class AttentionParameters:
    """What a device and its library make of an attention. Every field is () and positive.

    Attributes:
        latency_us: of the smallest one.
        compute_overhead: time over that at the peak, as a share, of a large one.
        softmax_elements: what the exponentials cost, as elements of a head.
        prologue_keys: what a block of queries costs before and after its pass, as keys.
        memory_overhead: share over the time at the bandwidth of the memory.
        sharpness: of the maximum of compute and memory time.
        wave_quantization: odds that a wave which is part empty takes as long as a full one.
        split_us: longest pass over the keys: a longer one is split, and the parts added.
        loop_sharpness: of the maximum of that pass and the rest of the computation.
    """

    latency_us: ArrayLike
    compute_overhead: ArrayLike
    softmax_elements: ArrayLike
    prologue_keys: ArrayLike
    memory_overhead: ArrayLike
    sharpness: ArrayLike
    wave_quantization: ArrayLike
    split_us: ArrayLike
    loop_sharpness: ArrayLike


jax.tree_util.register_dataclass(
    AttentionParameters, [f.name for f in fields(AttentionParameters)], []
)


def default_attention_parameters() -> AttentionParameters:
    """Parameters of FlashAttention on recent devices.

    Example:
        >>> float(default_attention_parameters().latency_us)
        5.0
    """
    return AttentionParameters(
        latency_us=np.float64(5.0),
        compute_overhead=np.float64(0.35),
        softmax_elements=np.float64(48.0),
        prologue_keys=np.float64(300.0),
        memory_overhead=np.float64(0.6),
        sharpness=np.float64(1.5),
        wave_quantization=np.float64(0.5),
        split_us=np.float64(500.0),
        loop_sharpness=np.float64(1.3),
    )


def attention_us(parameters: AttentionParameters, device: Device, work: Work) -> jax.Array:
    """Duration of attentions, forward or backward as their operations say.

    Blocks of 128 queries of a head run in waves on the multiprocessors, and each passes over the
    keys (FlashAttention-2: Dao, arXiv 2307.08691; waves: NeuSight,
    `neusight/Model/mlp_wave_mm.py`). The exponentials run beside the matrix unit and weigh more
    for a small head (FlashAttention-3: Shah et al., arXiv 2407.08608), the last block of a row is
    computed in full, and with few queries the pass is split (Flash-Decoding). The larger, softly,
    of this and of the time of the bytes is the duration, which is never below the device's speed
    of light.

    Args:
        parameters: of the device.
        device: its peaks, bandwidth and multiprocessors.
        work: n tasks of any kind.

    Returns:
        (n,) us; NaN where the task is no attention, or its shape, type or bytes are unknown.

    Example:
        >>> from jaxperf.config import load_hardware
        >>> from jaxperf.cost import attention_work, device_of
        >>> device = device_of(load_hardware("h100"))
        >>> work = attention_work(8, 32, 32, 4096, 4096, 128)
        >>> round(float(attention_us(default_attention_parameters(), device, work)[0]), -3)
        5000.0
    """
    peak = peak_flops_per_s(device, work.precision)
    columns = (work.batch, work.m, work.n, work.k, work.flops, work.memory_bytes, peak)
    known, (heads, queries, keys, size, flops, moved_bytes, peak) = fill(
        jnp.asarray(work.kind) == WorkKind.ATTENTION, columns
    )
    blocks = jnp.ceil(queries / _BLOCK)
    # Fewer queries than a block's are packed with those of other heads, or use a smaller one.
    padding = jnp.maximum(blocks * _BLOCK / queries, 1.0)
    padding = jnp.where(queries < _BLOCK, 1.0, padding)
    waves = heads * blocks / device.streaming_multiprocessors
    lasted = quantized_waves(waves, parameters.wave_quantization) / waves
    each = (1.0 + parameters.softmax_elements / size) * (1.0 + parameters.prologue_keys / keys)
    at_peak_us = flops / peak * 1e6 * each * (1.0 + parameters.compute_overhead)
    block_us = at_peak_us * padding / waves
    compute_us = smooth_max(
        at_peak_us * padding * lasted,
        split_pass_us(block_us, parameters.split_us),
        parameters.loop_sharpness,
    )
    memory_us = moved_bytes / device.memory_bytes_per_s * 1e6 * (1.0 + parameters.memory_overhead)
    larger_us = smooth_max(compute_us, memory_us, parameters.sharpness)
    return jnp.where(known, parameters.latency_us + larger_us, jnp.nan)
