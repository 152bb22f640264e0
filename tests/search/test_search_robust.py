"""The objective under uncertainty: closed formulae of log-normal numbers, and single draws."""

from dataclasses import replace
from statistics import NormalDist

import numpy as np
import pytest

from jaxperf.config import Job, SearchSpace, load_hardware
from jaxperf.cost import Fit
from jaxperf.errors import ConfigError
from jaxperf.replay import double_precision
from jaxperf.search._evaluate import evaluate
from jaxperf.search._problem import pose
from jaxperf.search._robust import (
    _drawn_logs,
    _drawn_measures,
    _drawn_models,
    _sureness,
    robust_choice,
)
from jaxperf.search._types import point
from jaxperf.workload import StepFit
from jaxperf.workload._fit_steps import changed_numbers

JOB = Job(
    layers=4,
    hidden_size=1024,
    attention_heads=8,
    vocabulary_size=32000,
    sequence_length=1024,
    tensor_parallel=2,
    data_parallel=2,
)
AXES = {"hardware": ("h100", "a100"), "recompute": ("selective", "full")}
ALL = NormalDist()


@pytest.fixture(scope="module")
def problem():
    return pose(JOB, load_hardware("h100"), SearchSpace("four", AXES))


@pytest.fixture(scope="module")
def measured(problem):
    return evaluate(problem, np.arange(4))


@pytest.fixture(scope="module")
def points(problem, measured):
    return [point(problem, measured, row) for row in range(4)]


def test_without_spread_each_draw_is_what_the_search_found(problem, points):
    found = robust_choice(problem, points[:2], spread={"residual": 0.0}, samples=3)
    for each in found.points:
        step_us = each.point.measures["step_us"]
        assert each.mean == pytest.approx(step_us, rel=1e-12)
        assert each.at_quantile == pytest.approx(step_us, rel=1e-12)
    assert (found.first_beats_second, found.standard_error) == (1.0, 0.0)
    assert found.choice.point is points[0]


def test_a_draw_is_the_search_with_those_numbers(problem, points):
    spread = {"matmul": 0.1, "collective": 0.2, "step": 0.3, "device": 0.1, "residual": 0.0}
    drawn = _drawn_measures(problem, points, None, spread, 4, seed=3)
    logs = _drawn_logs(problem, None, spread, 4, seed=3)
    some = {path: values[2] for path, values in logs.items()}
    machines = []
    with double_precision():
        for machine in problem.machines:
            model, parameters = changed_numbers(machine.model, machine.parameters, some)
            machines.append(replace(machine, model=model, parameters=parameters))
    moved = evaluate(replace(problem, machines=tuple(machines)), np.arange(4)).measures
    for name in ("step_us", "energy_j_per_token", "power_w_per_gpu", "tokens_per_s_per_gpu"):
        np.testing.assert_allclose(drawn[name][2], moved[name], rtol=1e-9)
    assert np.ptp(drawn["step_us"], axis=0).min() > 0


def test_one_log_normal_number_gives_the_quantile_and_mean_of_its_formula(problem, points):
    samples, sigma = 4000, 0.5
    spread = {"step.step_us": sigma, "residual": 0.0}
    found = robust_choice(problem, points[:2], spread=spread, samples=samples)
    machine = problem.machines[0]
    host_us = float(machine.parameters.step_us)
    doubled = replace(machine.parameters, step_us=np.float64(2 * host_us))
    machines = (replace(machine, parameters=doubled), *problem.machines[1:])
    slower = evaluate(replace(problem, machines=machines), np.arange(2)).measures["step_us"]
    for each, with_twice_us in zip(found.points, slower, strict=True):
        step_us = each.point.measures["step_us"]
        part_us = with_twice_us - step_us
        at_95_us = step_us + part_us * (np.exp(sigma * ALL.inv_cdf(0.95)) - 1)
        mean_us = step_us + part_us * (np.exp(sigma**2 / 2) - 1)
        # Four standard errors of each: of the quantile that of its normal, times the slope.
        of_quantile = 4 * np.sqrt(0.95 * 0.05 / samples) / ALL.pdf(ALL.inv_cdf(0.95))
        slope_us = sigma * part_us * np.exp(sigma * ALL.inv_cdf(0.95))
        assert each.at_quantile == pytest.approx(at_95_us, abs=of_quantile * slope_us)
        deviation_us = part_us * np.sqrt(np.expm1(sigma**2) * np.exp(sigma**2))
        assert each.mean == pytest.approx(mean_us, abs=4 * deviation_us / np.sqrt(samples))
    # The same draws for both: what slows both down alike does not make the order less sure.
    assert found.first_beats_second == 1.0


def test_the_share_of_two_steps_with_errors_of_their_own_is_that_of_two_normals():
    random = np.random.default_rng(1)
    cost = np.array([100.0, 103.0]) * np.exp(0.05 * random.standard_normal((20_000, 2)))
    share, error = _sureness(cost)
    expected = ALL.cdf(np.log(1.03) / (0.05 * np.sqrt(2)))
    assert error is not None
    assert share == pytest.approx(expected, abs=4 * error)
    assert error == pytest.approx(np.sqrt(expected * (1 - expected) / 20_000), rel=0.05)


def test_draws_that_are_equal_count_by_half():
    assert _sureness(np.array([[1.0, 1.0], [1.0, 2.0]]))[0] == 0.75
    assert _sureness(np.ones((5, 1))) == (None, None)


def test_points_that_are_alike_beat_each_other_half_the_time_also_where_more_is_better(
    problem, points
):
    space = replace(problem.space, objectives=("tokens_per_s_per_gpu",))
    found = robust_choice(
        replace(problem, space=space), points[:1] * 2, spread={"residual": 0.1}, samples=1000
    )
    share, error = found.first_beats_second, found.standard_error
    assert error is not None
    assert error == pytest.approx(np.sqrt(0.25 / 1000), rel=0.01)
    assert share == pytest.approx(0.5, abs=4 * error)
    rate = points[0].measures["tokens_per_s_per_gpu"]
    for each in found.points:
        assert each.at_quantile == pytest.approx(rate * np.exp(-0.1645), rel=0.03)
    assert found.choice.at_quantile == max(each.at_quantile for each in found.points)


def test_numbers_of_a_fit_are_drawn_from_its_covariance(problem):
    covariance = np.array([[0.04, 0.03], [0.03, 0.09]])
    factors = {"matmul.throttle": 1.0, "step.step_us": 1.0}
    fit = StepFit(factors, problem.machines[0].parameters, covariance, 0.05)
    logs = _drawn_logs(problem, fit, {"step": 0.5}, 20_000, seed=0)
    drawn = np.cov([logs[path] for path in factors])
    np.testing.assert_allclose(drawn, covariance, rtol=0.05)
    assert np.std(logs["step.launch_us"]) == pytest.approx(0.5, rel=0.03)
    assert logs.keys() - factors.keys() == {
        path for path in logs if path.startswith("step.") and path != "step.step_us"
    }


def test_numbers_that_a_fit_of_kernels_knows_are_drawn_from_it(problem):
    with_latency = {"device.memory_bytes_per_s": (1.0,)}
    leaves, covariance = ("device.memory_bytes_per_s",), ((0.01,),)
    fit = Fit(hardware=("x",), numbers=with_latency, leaves=leaves, covariance=covariance)
    logs = _drawn_logs(problem, fit, {"device": 0.2}, 10, seed=0)
    assert "device.memory_bytes_per_s" not in logs
    assert "device.l2_bytes" in logs
    assert "device.gpus_per_node" not in logs
    models = _drawn_models(problem.machines[0], fit, 20_000, seed=0)
    drawn = np.log(models.device.memory_bytes_per_s)
    assert np.std(drawn) == pytest.approx(0.1, rel=0.03)
    assert np.ptp(models.device.l2_bytes) == 0


def test_draws_of_a_number_do_not_depend_on_what_else_is_uncertain(problem):
    one = _drawn_logs(problem, None, {"matmul.throttle": 0.1}, 5, seed=7)
    two = _drawn_logs(problem, None, {"matmul.throttle": 0.1, "step": 0.2}, 5, seed=7)
    np.testing.assert_array_equal(one["matmul.throttle"], two["matmul.throttle"])


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({"spread": {"matmull": 0.1}}, "spread matmull: no such number"),
        ({"spread": {"matmul": -0.1}}, "spread matmul: no spread; got -0.1"),
        ({"samples": 1}, "samples: too few; got 1"),
        ({"quantile": 1.0}, "quantile: no quantile; got 1"),
        ({"points": []}, "robust choice: no points"),
        (
            {"fit": Fit(hardware=("x",), numbers={})},
            "nothing is known of how sure the numbers of the model are",
        ),
    ],
)
def test_what_cannot_be_drawn_is_refused(problem, points, arguments, text):
    with pytest.raises(ConfigError, match=text):
        robust_choice(problem, **{"points": points, **arguments})
