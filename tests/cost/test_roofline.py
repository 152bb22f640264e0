"""The parts that kernel models share, and the model of streams."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, strategies as st

from jaxperf.config import load_hardware
from jaxperf.cost import device_of, memory_work
from jaxperf.cost._roofline import (
    MemoryParameters,
    default_memory_parameters,
    fill,
    memory_us,
    peak_flops_per_s,
    quantized_waves,
    smooth_max,
    split_pass_us,
)
from jaxperf.cost._work import WorkKind, unknown_work
from jaxperf.graph import TaskClass

H100 = device_of(load_hardware("h100"))
TIMES = st.floats(0.0, 1e9, allow_subnormal=False)


@given(TIMES, TIMES, st.floats(0.5, 50.0))
def test_the_smooth_maximum_is_between_the_maximum_and_what_its_norm_allows(a, b, sharpness):
    largest = max(a, b)
    value = float(smooth_max(a, b, sharpness))
    assert largest * (1.0 - 1e-12) <= value <= largest * 2.0 ** (1.0 / sharpness) * (1.0 + 1e-12)


def test_a_sharpness_of_one_adds_and_a_large_one_takes_the_larger():
    assert float(smooth_max(3.0, 5.0, 1.0)) == pytest.approx(8.0)
    assert float(smooth_max(3.0, 5.0, 200.0)) == pytest.approx(5.0)


@pytest.mark.parametrize("times", [(0.0, 0.0), (0.0, 2.0), (2.0, 0.0), (3.0, 3.0)])
def test_the_gradient_of_the_smooth_maximum_is_finite_where_a_time_is_zero(times):
    gradient = jax.grad(smooth_max, argnums=(0, 1, 2))(*map(jnp.asarray, times), jnp.asarray(3.0))
    assert np.isfinite(gradient).all()


@given(st.floats(0.01, 500.0), st.floats(0.01, 100.0))
def test_waves_last_at_least_their_number_and_at_most_the_next_whole_one(waves, odds):
    lasted = float(quantized_waves(jnp.asarray(waves), odds))
    assert waves * (1.0 - 1e-12) <= lasted <= max(np.ceil(waves), waves) * (1.0 + 1e-12)


def test_a_part_empty_wave_is_whole_with_the_given_odds():
    # 2.5 waves and odds of 3 to 1: three quarters of the way from 2.5 to 3.
    assert float(quantized_waves(jnp.asarray(2.5), 3.0)) == pytest.approx(2.875, rel=1e-5)


def test_whole_waves_and_less_than_one_are_left_as_they_are():
    waves = jnp.asarray([0.2, 0.99, 1.0, 7.0])
    np.testing.assert_allclose(quantized_waves(waves, 10.0), waves, rtol=1e-12)


def test_a_short_pass_is_whole_and_a_long_one_is_bounded():
    assert float(split_pass_us(1e-3, 8.0)) == pytest.approx(1e-3, rel=1e-3)
    assert float(split_pass_us(1e9, 8.0)) == pytest.approx(8.0)


def test_rows_of_another_kind_or_with_an_unknown_value_are_filled():
    column = np.array([2.0, np.nan, 3.0, -1.0])
    known, (filled,) = fill(jnp.asarray([True, True, False, True]), (column,))
    assert known.tolist() == [True, False, False, False]
    assert filled.tolist() == [2.0, 1.0, 1.0, 1.0]


def test_an_unknown_type_has_no_peak():
    peak = peak_flops_per_s(H100, np.array([4, -1], np.int8))
    assert float(peak[0]) == 989.4e12
    assert np.isnan(peak[1])


def test_a_stream_takes_its_latency_and_its_bytes_over_the_bandwidth():
    work = memory_work(TaskClass.NORMALIZATION, 3.35e9, 0.0)
    classes = len(TaskClass)
    parameters = MemoryParameters(np.full(classes, 3.0), np.full(classes, 0.25))
    # 6.7 GB at 3.35 TB/s are 2,000 us.
    assert float(memory_us(parameters, H100, work)[0]) == pytest.approx(3.0 + 1.25 * 2000.0)


def test_a_stream_takes_the_numbers_of_its_class():
    parameters = default_memory_parameters()
    latency_us = parameters.latency_us + np.arange(len(TaskClass))
    work = memory_work([TaskClass.OPTIMIZER, TaskClass.MOE], 1000.0, 0.0)
    changed = memory_us(replace(parameters, latency_us=latency_us), H100, work)
    difference = changed - memory_us(parameters, H100, work)
    np.testing.assert_allclose(difference, [TaskClass.OPTIMIZER, TaskClass.MOE])


def test_what_is_no_stream_is_not_known_and_leaves_the_gradient_alone():
    work = unknown_work(3)
    work.kind[:2] = WorkKind.MEMORY
    work.memory_bytes[0] = 1e6

    def total(parameters, device):
        time_us = memory_us(parameters, device, work)
        return jnp.where(jnp.arange(3) == 0, time_us, 0.0).sum()

    known = np.isfinite(memory_us(default_memory_parameters(), H100, work))
    gradients = jax.grad(total, argnums=(0, 1))(default_memory_parameters(), H100)
    assert known.tolist() == [True, False, False]
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(gradients))
    assert float(gradients[1].memory_bytes_per_s) < 0.0
