"""Steps of `groundtruth/simumax`, told by fits that did not see them."""

import importlib
from pathlib import Path

import jax
import msgspec
import numpy as np
import pytest

from jaxperf.cost import bus_bandwidth_bytes_per_s
from jaxperf.workload._kernels import layer_backward, layer_forward

BAR_PERCENT = 6.0
PEAK_FLOPS_PER_S = 2250e12
LINK_BYTES_PER_S = 900e9
"""NVLink of a B200, one way."""


@pytest.fixture(scope="module")
def simumax():
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(Path(__file__).resolve().parents[2] / "benchmarks"))
        return importlib.import_module("_jobs_simumax")


@pytest.fixture(scope="module")
def held(simumax, shared):
    # The L-BFGS of optax mixes widths of integers.
    with jax.numpy_dtype_promotion("standard"):
        return simumax.time_held_out(shared)


def errors_percent(held, found_us):
    return 100 * (found_us / np.array([row.step_us for row in held.rows]) - 1)


def test_no_measured_kernel_beats_the_machine(simumax, shared):
    """That causal attention counts half of the pairs is a reading of the file, which holds here."""
    for _, work, time_us in simumax._kernels(shared).values():
        assert np.all(work.flops < PEAK_FLOPS_PER_S * time_us / 1e6)
    work, time_us = simumax._collectives(shared).work, simumax._collectives(shared).time_us
    bus = bus_bandwidth_bytes_per_s(work.operation, work.message_bytes, work.ranks, time_us)
    assert np.all(bus < LINK_BYTES_PER_S)


def test_tokens_that_arrived_are_sorted_by_expert_and_back(simumax, shared):
    """Each of 4096 tokens goes to 6 experts, 5120 numbers of two bytes are read and written."""
    runs = (each for each in simumax.jobs(shared) if each.label.startswith("deepseekv2_tp1_ep8"))
    job = next(runs).job
    moved = 2 * 4096 * 6 * 5120 * 2

    def sorted_bytes(pieces):
        return [piece.memory_bytes for piece in pieces if piece.name.startswith("sort by")]

    assert sorted_bytes(layer_forward(job, experts=True)) == [moved, moved]
    assert sorted_bytes(layer_backward(job, experts=True)) == [moved, moved]
    alone = msgspec.structs.replace(job, expert_parallel=1)
    assert not sorted_bytes(layer_forward(alone, experts=True))


def test_decompressed_keys_and_values_are_copied_apart(simumax, shared):
    """Of 128 heads, 128 numbers of a key and 128 of a value, in each direction."""
    job = next(each.job for each in simumax.jobs(shared) if each.label.startswith("deepseekv3"))
    for pieces in (layer_forward(job, experts=False), layer_backward(job, experts=False)):
        (copied,) = [p for p in pieces if p.name.startswith("split keys and values")]
        assert copied.memory_bytes == 2 * 4096 * 128 * (128 + 128) * 2


@pytest.mark.slow
def test_steps_of_five_random_folds_are_told_by_the_others(held):
    assert len(held.rows) == 43
    assert np.abs(errors_percent(held, held.folds_us)).mean() < BAR_PERCENT


@pytest.mark.slow
@pytest.mark.parametrize("group", ["configuration", "model"])
def test_steps_of_what_was_left_out_are_told_by_the_rest(held, group):
    assert np.abs(errors_percent(held, held.groups_us[group])).mean() < BAR_PERCENT


@pytest.mark.slow
def test_fitting_steps_helps_where_kernels_alone_are_not_enough(held):
    """All steps take longer than their kernels: the machine slows down, and kernels are missing."""
    before, after = (
        np.abs(errors_percent(held, found_us)) for found_us in (held.before_us, held.folds_us)
    )
    assert after.mean() < before.mean() / 2
