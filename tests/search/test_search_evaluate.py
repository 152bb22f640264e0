"""Measures of points: those that the functions of a single job have."""

import msgspec
import numpy as np
import pytest

from jaxperf.config import MEASURES, SearchSpace, load_hardware, load_job
from jaxperf.estimate import estimate
from jaxperf.replay import double_precision
from jaxperf.search._evaluate import evaluate
from jaxperf.search._problem import pose, values_of
from jaxperf.search._types import costs, point
from jaxperf.workload import closed_form_step, job_memory
from tests.search.varied_spaces import varied_problems

GPUS, BATCH, PRICE = 16, 64, 3.0


@pytest.fixture(scope="module")
def problem():
    job = msgspec.structs.replace(load_job("llama3-8b"), layers=8, schedule="1F1B")
    axes = {
        "tensor_parallel": (1, 2, 3, 8),
        "pipeline_parallel": (1, 2),
        "micro_batch_size": (1, 4),
        "recompute": ("none", "full"),
        "sharding": ("none", "zero3"),
        "clock_hz": (1980e6, 1200e6),
    }
    space = SearchSpace("some", axes, GPUS, BATCH, PRICE, {"power_w_per_gpu": 600.0})
    return pose(job, load_hardware("h100"), space)


@pytest.fixture(scope="module")
def measured(problem):
    return evaluate(problem, np.arange(problem.space.size))


@pytest.fixture(scope="module")
def nominal(problem, measured):
    """Rows that can be, at the clock at which times are known."""
    clock = np.array([problem.machines[place].clock_hz for place in measured.points.machine])
    return np.flatnonzero(measured.points.valid & (clock == 1980e6))


def is_rich(job) -> bool:
    """Whether a job has most of what a step can have."""
    return job.tensor_parallel == job.pipeline_parallel == 2 and job.sharding == "zero3"


@pytest.mark.slow
def test_the_step_is_the_closed_form_of_its_job(problem, measured, nominal):
    row = next(row for row in nominal if is_rich(measured.points.jobs.job(row)))
    job, machine = measured.points.jobs.job(row), problem.machines[measured.points.machine[row]]
    with double_precision():
        step = closed_form_step(job, machine.model, machine.parameters)
    assert measured.measures["step_us"][row] == pytest.approx(float(step.step_us), rel=1e-9)


def test_memory_is_that_of_the_fullest_stage(measured, nominal):
    for row in nominal[::3]:
        peak = job_memory(measured.points.jobs.job(row)).peak.total_bytes
        assert measured.measures["memory_bytes"][row] == pytest.approx(peak, rel=1e-12)


def test_energy_is_about_that_of_the_estimate(problem, measured, nominal):
    row = next(row for row in nominal if is_rich(measured.points.jobs.job(row)))
    job, found = measured.points.jobs.job(row), measured.measures
    one = estimate(job, hardware=problem.machines[0].hardware)
    assert one.energy is not None
    each = sum(one.energy.by_class_j.values()) / (BATCH * job.sequence_length)
    assert found["energy_j_per_token"][row] == pytest.approx(each, rel=0.05)
    assert found["power_w_per_gpu"][row] == pytest.approx(one.energy.accelerator_w, rel=0.05)
    assert found["step_us"][row] == pytest.approx(one.step_us, rel=0.05)


def test_the_other_measures_follow_from_step_and_energy(problem, measured):
    valid, found = measured.points.valid, measured.measures
    step_s, tokens = found["step_us"][valid] * 1e-6, BATCH * problem.job.sequence_length
    rate = tokens / step_s / GPUS
    np.testing.assert_allclose(found["tokens_per_s_per_gpu"][valid], rate, rtol=1e-12)
    power = found["energy_j_per_token"][valid] * rate
    np.testing.assert_allclose(found["power_w_per_gpu"][valid], power, rtol=1e-12)
    usd = PRICE * GPUS * step_s / 3600 / tokens * 1e6
    np.testing.assert_allclose(found["usd_per_million_tokens"][valid], usd, rtol=1e-12)


def test_a_slower_clock_makes_no_step_shorter_and_draws_less(problem, measured):
    valid = measured.points.valid.reshape(-1, 2)[:, 0]
    step_us, power = (
        measured.measures[name].reshape(-1, 2)[valid] for name in ("step_us", "power_w_per_gpu")
    )
    assert (step_us[:, 1] > step_us[:, 0]).all() and (power[:, 1] < power[:, 0]).all()


def test_of_points_that_cannot_be_nothing_is_known(problem, measured):
    thirds = [values_of(problem, row)["tensor_parallel"] == 3 for row in measured.points.index]
    assert not measured.points.valid[thirds].any()
    for name in MEASURES:
        np.testing.assert_array_equal(np.isnan(measured.measures[name]), ~measured.points.valid)
    assert not any(over[thirds].any() for over in measured.over.values())
    assert not measured.feasible[thirds].any()
    alone = evaluate(problem, measured.points.index[thirds])
    assert alone.measures.keys() == MEASURES.keys() == alone.measures.keys()
    assert np.isnan(costs(problem, alone.measures)).all()


def test_a_point_is_feasible_where_it_keeps_the_limits_and_fits_the_machine(problem, measured):
    found, valid = measured.measures, measured.points.valid
    fits = found["memory_bytes"] <= problem.machines[0].hardware.memory_bytes
    draws = found["power_w_per_gpu"] <= 600.0
    assert measured.over.keys() == {"memory_bytes", "power_w_per_gpu"}
    np.testing.assert_array_equal(measured.feasible, valid & fits & draws)
    assert 0 < measured.feasible.sum() < valid.sum()


def test_a_limit_on_throughput_is_the_least_that_is_allowed(problem, measured):
    rate = measured.measures["tokens_per_s_per_gpu"]
    limit = float(np.nanmedian(rate))
    space = SearchSpace(
        "quick", problem.space.axes, GPUS, BATCH, PRICE, {"tokens_per_s_per_gpu": limit}
    )
    quick = evaluate(pose(problem.job, load_hardware("h100"), space), measured.points.index)
    over = measured.points.valid & ~(rate >= limit)
    np.testing.assert_array_equal(quick.over["tokens_per_s_per_gpu"], over)


def test_what_a_point_takes_does_not_depend_on_those_it_is_asked_for_with(problem, measured):
    rows = np.random.default_rng(0).permutation(problem.space.size)
    for some in (rows[:1], rows[1:6], rows[6:40]):
        again = evaluate(problem, some)
        for name in ("step_us", "memory_bytes", "tokens_per_s_per_gpu"):
            np.testing.assert_array_equal(again.measures[name], measured.measures[name][some])
        np.testing.assert_allclose(
            again.measures["energy_j_per_token"],
            measured.measures["energy_j_per_token"][some],
            rtol=1e-12,
        )


def test_a_point_by_itself_has_the_numbers_of_its_row(problem, measured, nominal):
    row = int(nominal[2])
    found = point(problem, measured, row)
    assert found.index == row and found.values == values_of(problem, row)
    assert found.job == measured.points.jobs.job(row) and found.clock_hz == 1980e6
    assert found.measures == {name: each[row] for name, each in measured.measures.items()}


def test_nothing_asked_is_nothing_found(problem):
    none = evaluate(problem, np.zeros(0, np.int64))
    assert len(none.feasible) == 0 and none.measures.keys() == MEASURES.keys()


@pytest.mark.slow
def test_drawn_points_have_the_step_and_memory_of_their_jobs():
    random = np.random.default_rng(0)
    for problem in varied_problems(11, 6, most=500):
        measured = evaluate(problem, np.arange(problem.space.size))
        valid = np.flatnonzero(measured.points.valid)
        for row in random.permutation(valid)[:2]:
            job = measured.points.jobs.job(row)
            machine = problem.machines[measured.points.machine[row]]
            peak = job_memory(job).peak.total_bytes
            assert measured.measures["memory_bytes"][row] == pytest.approx(peak, rel=1e-12)
            if "clock_hz" not in problem.space.axes:
                with double_precision():
                    step = closed_form_step(job, machine.model, machine.parameters)
                found = measured.measures["step_us"][row]
                assert found == pytest.approx(float(step.step_us), rel=1e-9)
