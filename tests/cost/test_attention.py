"""The model of attention: bounds, gradients, a second implementation in NumPy."""

import math
from dataclasses import fields, replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, strategies as st

from jaxperf.config import load_hardware
from jaxperf.cost import attention_work, device_of
from jaxperf.cost._attention import (
    AttentionParameters,
    attention_us,
    default_attention_parameters,
)
from jaxperf.cost._work import WorkKind, unknown_work

H100 = device_of(load_hardware("h100"))
DEFAULT = default_attention_parameters()
LENGTHS = st.integers(1, 32768)
SHAPES = attention_work(
    [1, 8, 4, 1, 2, 64],
    [32, 32, 16, 96, 8, 32],
    [8, 32, 16, 8, 8, 8],
    [16384, 2048, 4096, 130, 257, 1],
    [16384, 2048, 4096, 130, 257, 8192],
    [128, 64, 128, 256, 64, 128],
    causal=[True, True, False, True, False, False],
)


def _plain_us(p, heads, queries, keys, size, flops, moved_bytes) -> float:
    """One attention with whole numbers for waves."""
    blocks = math.ceil(queries / 128)
    padding = 1.0 if queries < 128 else blocks * 128 / queries
    waves = heads * blocks / 132
    share = p.wave_quantization / (1.0 + p.wave_quantization)
    lasted = waves if waves < 1.0 else waves + share * (math.ceil(waves) - waves)
    at_peak = flops / 989.4e12 * 1e6 * padding * (1.0 + p.compute_overhead)
    at_peak *= (1.0 + p.softmax_elements / size) * (1.0 + p.prologue_keys / keys)
    one = at_peak / waves
    one = one * p.split_us / (one + p.split_us)
    whole = at_peak * lasted / waves
    compute = (whole**p.loop_sharpness + one**p.loop_sharpness) ** (1.0 / p.loop_sharpness)
    memory = moved_bytes / 3.35e12 * 1e6 * (1.0 + p.memory_overhead)
    larger = (compute**p.sharpness + memory**p.sharpness) ** (1.0 / p.sharpness)
    return (p.latency_us + larger).item()


def test_the_time_is_that_of_a_plain_formula():
    columns = ("batch", "m", "n", "k", "flops", "memory_bytes")
    expected = [
        _plain_us(DEFAULT, *(float(getattr(SHAPES, c)[i]) for c in columns))
        for i in range(len(SHAPES))
    ]
    np.testing.assert_allclose(attention_us(DEFAULT, H100, SHAPES), expected, rtol=0.01)


@given(st.integers(1, 64), st.integers(1, 64), LENGTHS, LENGTHS, st.sampled_from([64, 128, 256]))
def test_no_attention_is_quicker_than_the_speed_of_light(batch, heads, queries, keys, size):
    work = attention_work(batch, heads, 1, queries, keys, size)
    light_us = 1e6 * max(float(work.flops[0]) / 989.4e12, float(work.memory_bytes[0]) / 3.35e12)
    tiny = jax.tree.map(lambda leaf: leaf * 1e-3, DEFAULT)
    tiny = replace(tiny, sharpness=np.float64(20.0), loop_sharpness=np.float64(20.0))
    assert float(attention_us(tiny, H100, work)[0]) >= light_us * (1.0 - 1e-12)


@given(st.integers(1, 64), st.integers(1, 64), LENGTHS, st.sampled_from([64, 128, 256]))
def test_a_quicker_memory_or_a_higher_peak_never_makes_it_slower(batch, heads, length, size):
    work = attention_work(batch, heads, heads, length, length, size, causal=True)
    bandwidth = replace(H100, memory_bytes_per_s=H100.memory_bytes_per_s * 1.5)
    peak = replace(H100, peak_flops_per_s=np.asarray(H100.peak_flops_per_s) * 1.5)
    time_us = float(attention_us(DEFAULT, H100, work)[0])
    assert float(attention_us(DEFAULT, bandwidth, work)[0]) <= time_us
    assert float(attention_us(DEFAULT, peak, work)[0]) <= time_us


def test_backward_and_causal_follow_from_the_operations():
    long = (4, 32, 32, 8192, 8192, 128)
    plain = attention_us(DEFAULT, H100, attention_work(*long))
    causal = attention_us(DEFAULT, H100, attention_work(*long, causal=True))
    backward = attention_us(DEFAULT, H100, attention_work(*long, backward=True))
    np.testing.assert_allclose(causal / plain, 0.5, atol=0.02)
    np.testing.assert_allclose(backward / plain, 2.5, atol=0.02)


def test_a_small_head_reaches_less_of_the_peak():
    work = attention_work(4, [32, 16], [32, 16], 8192, 8192, [64, 128])
    assert work.flops[0] == work.flops[1]
    time_us = attention_us(DEFAULT, H100, work)
    assert time_us[0] > 1.15 * time_us[1]


def test_one_query_against_many_keys_is_bound_by_memory():
    work = attention_work(64, 32, 8, 1, 8192, 128)
    doubled = replace(H100, memory_bytes_per_s=2.0 * H100.memory_bytes_per_s)
    ratio = attention_us(DEFAULT, doubled, work) / attention_us(DEFAULT, H100, work)
    assert float(ratio[0]) < 0.55


@pytest.mark.parametrize("field", [f.name for f in fields(AttentionParameters)])
def test_the_gradient_to_a_parameter_is_that_of_finite_differences(field):
    def total(log_factor):
        value = jnp.asarray(getattr(DEFAULT, field)) * jnp.exp(log_factor)
        return jnp.log(attention_us(replace(DEFAULT, **{field: value}), H100, SHAPES)).sum()

    step = 1e-5
    expected = (total(step) - total(-step)) / (2.0 * step)
    np.testing.assert_allclose(jax.grad(total)(0.0), expected, rtol=1e-5, atol=1e-8)


def test_rows_that_are_no_attention_are_unknown_and_leave_the_gradient_alone():
    work = unknown_work(3)
    known = attention_work(1, 16, 16, 2048, 2048, 128)
    for field in fields(work):
        getattr(work, field.name)[0] = getattr(known, field.name)[0]
    work.kind[1] = WorkKind.ATTENTION
    compiled = jax.jit(attention_us)

    def first(parameters, device):
        return compiled(parameters, device, jax.tree.map(jnp.asarray, work))[0]

    gradients = jax.grad(first, argnums=(0, 1))(DEFAULT, H100)
    assert np.isfinite(attention_us(DEFAULT, H100, work)).tolist() == [True, False, False]
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(gradients))
