"""The fit: it finds what was put in, its intervals hold what they promise, and it says what it
cannot know."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxperf.calibrate import Observed, fit_factors
from jaxperf.calibrate._optimise import PRIOR, _Problem, with_factors
from jaxperf.config import load_hardware
from jaxperf.cost import cost_us, default_model, matmul_work, model_leaves

MODEL = default_model(load_hardware("h100"))


def chosen(*paths):
    """A model with bool leaves, true for the given paths."""
    names = list(model_leaves(MODEL))
    assert set(paths) <= set(names)
    leaves, tree = jax.tree.flatten(MODEL)
    flags = [np.full(np.shape(x), name in paths) for name, x in zip(names, leaves, strict=True)]
    return jax.tree.unflatten(tree, flags)


def shapes(n, seed):
    rng = np.random.default_rng(seed)
    return matmul_work(*(2.0 ** rng.uniform(5, 13, (3, n))).round(), precision="bf16")


def measured(work, which, factor, noise, seed):
    model = with_factors(MODEL, which, jnp.asarray(factor))
    rng = np.random.default_rng(seed)
    return np.asarray(cost_us(model, work)) * np.exp(noise * rng.standard_normal(len(work.kind)))


def observe(work, time_us, weight=None):
    return Observed(MODEL, work, time_us, np.ones(len(time_us)) if weight is None else weight)


DEVICE = chosen("device.memory_bytes_per_s", "device.peak_flops_per_s")
NUMBERS = int(sum(np.sum(leaf) for leaf in jax.tree.leaves(DEVICE)))
# In the order of the leaves: the peaks, of which bf16 is the fifth, then the memory.
BF16, MEMORY = 4, NUMBERS - 1


WORK = shapes(150, 0)


@pytest.fixture(scope="module")
def problem():
    """Compiled once; what was measured is put in."""
    return _Problem([observe(WORK, np.ones(150))], DEVICE)


def test_the_numbers_that_were_put_in_are_found(problem):
    factor = np.ones(NUMBERS)
    factor[BF16], factor[MEMORY] = 0.7, 1.4
    problem.measured_us = measured(WORK, DEVICE, factor, 0.03, 1)
    found = problem.posterior()
    assert found.factor[BF16] == pytest.approx(0.7, rel=0.03)
    assert found.factor[MEMORY] == pytest.approx(1.4, rel=0.05)
    assert found.spread == pytest.approx(0.03, rel=0.2)
    assert found.loss_after < found.loss_before


def test_what_the_data_cannot_tell_stays_as_it_was_believed(problem):
    problem.measured_us = measured(WORK, DEVICE, np.ones(NUMBERS), 0.05, 2)
    found = problem.posterior()
    uncertain = np.sqrt(np.diag(found.covariance))
    assert found.factor[0] == pytest.approx(1.0, abs=1e-6)  # the peak of fp64
    assert uncertain[0] == pytest.approx(PRIOR, rel=1e-6)
    assert uncertain[BF16] < 0.1 * PRIOR


def test_intervals_cover_their_share_of_the_true_numbers(problem):
    hits = []
    for seed in range(40):
        rng = np.random.default_rng(seed)
        factor = np.ones(NUMBERS)
        factor[[BF16, MEMORY]] = np.exp(0.3 * rng.standard_normal(2))
        problem.measured_us = measured(WORK, DEVICE, factor, 0.05, seed)
        found = problem.posterior()
        off = np.abs(np.log(found.factor / factor)) / np.sqrt(np.diag(found.covariance))
        hits += (off[[BF16, MEMORY]] < 1.645).tolist()
    # 80 draws of 90 %: two standard deviations are 7 %.
    assert 0.82 <= np.mean(hits) <= 0.98


def test_outliers_move_the_fit_little(problem):
    factor = np.ones(NUMBERS)
    factor[BF16] = 0.8
    problem.measured_us = measured(WORK, DEVICE, factor, 0.02, 4)
    problem.measured_us[::10] *= 5.0
    found = problem.posterior()
    assert found.factor[BF16] == pytest.approx(0.8, rel=0.05)


@pytest.mark.slow
def test_what_has_no_weight_is_not_fitted():
    work = shapes(120, 5)
    time_us = measured(work, DEVICE, np.ones(NUMBERS), 0.02, 6)
    weight = np.ones(120)
    weight[:40] = 0.0
    spoilt = np.where(weight > 0, time_us, 1e9)
    one = fit_factors([observe(work, time_us, weight)], DEVICE)
    other = fit_factors([observe(work, spoilt, weight)], DEVICE)
    assert other.factor == pytest.approx(one.factor, rel=1e-6)


@pytest.mark.slow
def test_two_machines_share_their_parameters():
    slower = replace(
        MODEL,
        device=replace(MODEL.device, memory_bytes_per_s=MODEL.device.memory_bytes_per_s * 0.5),
    )
    factor = np.ones(NUMBERS)
    factor[MEMORY] = 0.8
    work = shapes(150, 7)
    truth = [
        np.asarray(cost_us(with_factors(m, DEVICE, jnp.asarray(factor)), work))
        for m in (MODEL, slower)
    ]
    ones = np.ones(150)
    found = fit_factors(
        [Observed(MODEL, work, truth[0], ones), Observed(slower, work, truth[1], ones)], DEVICE
    )
    assert found.factor[MEMORY] == pytest.approx(0.8, rel=0.01)


@pytest.mark.slow
def test_a_step_that_is_longer_than_its_parts_pulls_the_fit():
    work = shapes(5, 8)
    time_us = measured(work, DEVICE, np.ones(NUMBERS), 0.0, 9)
    total_us = 1.3 * time_us.sum()
    alone = fit_factors([observe(work, time_us)], DEVICE)
    pulled = fit_factors(
        [
            Observed(
                MODEL, work, time_us, np.ones(5) * 1e-3, lambda t: jnp.log(jnp.sum(t) / total_us)
            )
        ],
        DEVICE,
    )
    slower = np.asarray(cost_us(with_factors(MODEL, DEVICE, jnp.asarray(pulled.factor)), work))
    assert alone.factor == pytest.approx(np.ones(NUMBERS), abs=1e-3)
    assert slower.sum() == pytest.approx(total_us, rel=0.03)


def test_the_gradient_of_the_loss_equals_central_differences(problem):
    problem.measured_us = measured(WORK, DEVICE, np.ones(NUMBERS), 0.1, 11)
    x = jnp.asarray(np.random.default_rng(12).normal(0, 0.2, NUMBERS))
    time_us = jnp.asarray(problem.measured_us)
    _, gradient = problem.loss(x, time_us, 0.1)
    for k in (BF16, MEMORY):
        step = jnp.zeros(NUMBERS).at[k].set(1e-5)
        above, below = (problem.loss(x + sign * step, time_us, 0.1)[0] for sign in (1, -1))
        numeric = (above - below) / 2e-5
        assert float(gradient[k]) == pytest.approx(float(numeric), rel=1e-5)
