"""The model of matrix multiplies: bounds, gradients, and a second implementation in NumPy."""

import csv
import gzip
import math
from dataclasses import fields, replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, strategies as st

from jaxperf.config import load_hardware
from jaxperf.cost import device_of, matmul_work, select_work
from jaxperf.cost._matmul import MatmulParameters, default_matmul_parameters, matmul_us
from jaxperf.cost._work import WorkKind, unknown_work

DEVICES = {name: device_of(load_hardware(name)) for name in ("a100", "h100", "h200", "b200")}
H100 = DEVICES["h100"]
DEFAULT = default_matmul_parameters()
SIZES = st.integers(1, 65536)
TILES = ((256, 128), (128, 256), (128, 128), (128, 64), (64, 128), (64, 64), (64, 32), (32, 64))
SHAPES = matmul_work(
    [1, 17, 512, 1024, 4096, 4097, 8192, 300],
    [4096, 64, 512, 3072, 4096, 4096, 28672, 300],
    [4096, 65536, 64, 1024, 4096, 4096, 8192, 300],
    batch=[1, 1, 12, 1, 1, 1, 1, 40],
)


def _plain_us(p, device, batch, m, n, k, flops, moved_bytes) -> float:
    """One multiply with whole numbers for waves and the best tile for the soft choice."""
    multiprocessors = float(device.streaming_multiprocessors)
    flops_per_us = float(device.peak_flops_per_s[4]) / 1e6 / multiprocessors
    times = []
    for tile_m, tile_n in TILES:
        waves = batch * math.ceil(m / tile_m) * math.ceil(n / tile_n) / multiprocessors
        if waves >= 1.0:
            share = p.wave_quantization / (1.0 + p.wave_quantization)
            waves += share * (math.ceil(waves) - waves)
        tile = 2.0 * tile_m * tile_n * (k + p.prologue_elements) / flops_per_us
        times.append(waves * tile * (1.0 + p.edge_elements * (1.0 / tile_m + 1.0 / tile_n)))
    tiled = min(times) * (1.0 + p.compute_overhead)
    tiled *= 1.0 + p.throttle * tiled / (tiled + p.throttle_us)
    loop = 2.0 * p.loop_tile_elements * k / flops_per_us
    loop = loop * p.split_us / (loop + p.split_us)
    compute = (tiled**p.loop_sharpness + loop**p.loop_sharpness) ** (1.0 / p.loop_sharpness)
    memory = moved_bytes / float(device.memory_bytes_per_s) * 1e6 * (1.0 + p.memory_overhead)
    memory += p.memory_latency_us
    larger = (compute**p.sharpness + memory**p.sharpness) ** (1.0 / p.sharpness)
    return (p.latency_us + larger).item()


@pytest.mark.parametrize("name", DEVICES)
def test_the_time_is_that_of_a_plain_enumeration_of_tiles(name):
    columns = ("batch", "m", "n", "k", "flops", "memory_bytes")
    expected = [
        _plain_us(DEFAULT, DEVICES[name], *(float(getattr(SHAPES, c)[i]) for c in columns))
        for i in range(len(SHAPES))
    ]
    # The soft choice is a mean of nearly equal tiles, and a step of the waves is not quite one.
    np.testing.assert_allclose(matmul_us(DEFAULT, DEVICES[name], SHAPES), expected, rtol=0.02)


@given(SIZES, SIZES, SIZES, st.sampled_from(list(DEVICES)))
def test_no_multiply_is_quicker_than_the_speed_of_light(m, n, k, name):
    device, work = DEVICES[name], matmul_work(m, n, k)
    light_us = 1e6 * max(
        float(work.flops[0]) / float(np.asarray(device.peak_flops_per_s)[4]),
        float(work.memory_bytes[0]) / float(np.asarray(device.memory_bytes_per_s)),
    )
    # Whatever the parameters are, so long as they are positive.
    tiny = jax.tree.map(lambda leaf: leaf * 1e-3, DEFAULT)
    tiny = replace(tiny, sharpness=np.float64(20.0), loop_sharpness=np.float64(20.0))
    assert float(matmul_us(tiny, device, work)[0]) >= light_us * (1.0 - 1e-12)


@given(SIZES, SIZES, SIZES, st.sampled_from(list(DEVICES)))
def test_a_quicker_memory_or_a_higher_peak_never_makes_it_slower(m, n, k, name):
    device, work = DEVICES[name], matmul_work(m, n, k)
    bandwidth = replace(device, memory_bytes_per_s=device.memory_bytes_per_s * 1.5)
    peak = replace(device, peak_flops_per_s=np.asarray(device.peak_flops_per_s) * 1.5)
    time_us = float(matmul_us(DEFAULT, device, work)[0])
    assert float(matmul_us(DEFAULT, bandwidth, work)[0]) <= time_us
    assert float(matmul_us(DEFAULT, peak, work)[0]) <= time_us


@given(SIZES, SIZES, st.integers(1, 32768))
def test_twice_the_inner_size_is_never_quicker(m, n, k):
    time_us = matmul_us(DEFAULT, H100, matmul_work(m, n, [k, 2 * k]))
    assert time_us[1] > time_us[0]


def test_a_large_square_multiply_comes_near_the_share_of_the_peak_that_is_measured():
    work = matmul_work(8192, 8192, 8192)
    share = float(work.flops[0]) / 989.4e12 * 1e6 / matmul_us(DEFAULT, H100, work)
    # 0.66 on H100 in the table of aiconfigurator.
    np.testing.assert_allclose(share, 0.75, atol=0.1)


def test_one_more_tile_than_fits_costs_a_part_of_a_wave():
    hard = replace(DEFAULT, wave_quantization=np.float64(1e3))
    # 132 tiles of 256 by 128, and 144 of them.
    time_us = matmul_us(hard, H100, matmul_work([11 * 256, 12 * 256], 12 * 128, 8192))
    even = matmul_us(
        replace(DEFAULT, wave_quantization=np.float64(1e-3)),
        H100,
        matmul_work([11 * 256, 12 * 256], 12 * 128, 8192),
    )
    assert time_us[1] / time_us[0] > 1.05 * even[1] / even[0]


def test_a_triangle_takes_less_than_its_rectangle():
    work = matmul_work(8192, 8192, 8192)
    half = replace(work, flops=work.flops / 2.0)
    ratio = matmul_us(DEFAULT, H100, half) / matmul_us(DEFAULT, H100, work)
    np.testing.assert_allclose(ratio, 0.5, atol=0.03)


def test_a_type_with_twice_the_peak_takes_about_half_as_long():
    bf16, fp8 = (
        matmul_us(DEFAULT, H100, matmul_work(8192, 8192, 8192, precision=p))[0]
        for p in ("bf16", "fp8")
    )
    assert 0.45 < fp8 / bf16 < 0.6


@pytest.mark.parametrize("field", [f.name for f in fields(MatmulParameters)])
def test_the_gradient_to_a_parameter_is_that_of_finite_differences(field):
    def total(log_factor):
        value = jnp.asarray(getattr(DEFAULT, field)) * jnp.exp(log_factor)
        return jnp.log(matmul_us(replace(DEFAULT, **{field: value}), H100, SHAPES)).sum()

    step = 1e-5
    expected = (total(step) - total(-step)) / (2.0 * step)
    np.testing.assert_allclose(jax.grad(total)(0.0), expected, rtol=1e-5, atol=1e-8)


@pytest.mark.parametrize(
    "field", ["peak_flops_per_s", "memory_bytes_per_s", "streaming_multiprocessors"]
)
def test_the_gradient_to_the_device_is_that_of_finite_differences(field):
    # Where the waves are whole, one more multiprocessor is worth more than one fewer.
    device = replace(H100, streaming_multiprocessors=np.float64(131.3))

    def total(log_factor):
        value = jnp.asarray(getattr(device, field)) * jnp.exp(log_factor)
        return jnp.log(matmul_us(DEFAULT, replace(device, **{field: value}), SHAPES)).sum()

    step = 1e-7
    expected = (total(step) - total(-step)) / (2.0 * step)
    np.testing.assert_allclose(jax.grad(total)(0.0), expected, rtol=1e-4, atol=1e-6)


def test_rows_that_are_no_multiply_are_unknown_and_leave_the_gradient_alone():
    work = unknown_work(4)
    known = matmul_work(1024, 1024, 1024)
    for field in fields(work):
        getattr(work, field.name)[0] = getattr(known, field.name)[0]
    work.kind[1] = WorkKind.MATMUL
    work.kind[2] = WorkKind.MEMORY
    work.m[2] = 0.0

    def first(parameters, device):
        return jax.jit(matmul_us)(parameters, device, _tree(work))[0]

    time_us = matmul_us(DEFAULT, H100, work)
    gradients = jax.grad(first, argnums=(0, 1))(DEFAULT, H100)
    assert np.isfinite(time_us).tolist() == [True, False, False, False]
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(gradients))
    np.testing.assert_allclose(time_us[0], matmul_us(DEFAULT, H100, known)[0])


def _tree(work):
    """The work as arrays of jax, which a compiled function takes."""
    return jax.tree.map(jnp.asarray, work)


@pytest.mark.parametrize(
    ("name", "at_most"), [("a100", 14.0), ("h100", 9.0), ("h200", 10.0), ("b200", 14.0)]
)
def test_unfitted_it_is_near_the_measured_tables(shared, name, at_most):
    folder = shared / f"groundtruth/aiconfigurator/{name}_sxm/gemm"
    with gzip.open(next(folder.rglob("gemm_perf.csv.gz")), "rt", encoding="utf-8") as file:
        rows = [row for row in csv.DictReader(file) if row["gemm_dtype"] == "bfloat16"]
    m, n, k, time_ms = (
        np.array([float(row[c]) for row in rows]) for c in ("m", "n", "k", "latency")
    )
    work = select_work(matmul_work(m, n, k), np.arange(0, len(m), 10))
    error = np.abs(np.asarray(matmul_us(DEFAULT, DEVICES[name], work)) / time_ms[::10] / 1e3 - 1.0)
    assert 100.0 * error.mean() < at_most
