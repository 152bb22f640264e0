"""What a node draws by what it does, and larger runs foretold from runs on one node."""

import importlib
from pathlib import Path

import numpy as np
import pytest

from jaxperf.energy.calibration._node_power import (
    NodeIntervals,
    NodePower,
    fit_node_power,
    predict_node_power,
)
from jaxperf.errors import ConfigError

TRUTH = NodePower(training_w=7000.0, evaluation_w=6500.0, stalled_w=3000.0)
POWER_BAR_PERCENT, ENERGY_BAR_PERCENT = 5.0, 6.0
METERS = ("dc", "ac")
LARGE = (("llama2_70b_lora", 8), ("llama2_70b_lora", 64), ("resnet", 8), ("unet3d", 9))


def intervals(noise: float = 0.0, count: int = 60) -> NodeIntervals:
    random = np.random.default_rng(0)
    times_s = random.uniform(1.0, 50.0, (count, 3)) * (random.random((count, 3)) < 0.6)
    times_s[:, 0] += 1.0
    energy_j = times_s @ [TRUTH.training_w, TRUTH.evaluation_w, TRUTH.stalled_w]
    energy_j *= 1.0 + noise * random.standard_normal(count)
    return NodeIntervals(energy_j, *times_s.T)


def test_powers_are_found_again():
    found = fit_node_power(intervals())
    assert found.training_w == pytest.approx(TRUTH.training_w)
    assert found.evaluation_w == pytest.approx(TRUTH.evaluation_w)
    assert found.stalled_w == pytest.approx(TRUTH.stalled_w)


def test_powers_are_found_through_noise():
    found = fit_node_power(intervals(noise=0.02))
    assert found.training_w == pytest.approx(TRUTH.training_w, rel=0.02)
    assert found.stalled_w == pytest.approx(TRUTH.stalled_w, rel=0.05)


def test_what_no_interval_has_is_unknown():
    alone = NodeIntervals(np.array([70e3]), np.array([10.0]), np.zeros(1), np.zeros(1))
    found = fit_node_power(alone)
    assert found.training_w == pytest.approx(7000.0)
    assert np.isnan(found.evaluation_w) and np.isnan(found.stalled_w)
    known = predict_node_power(found, training_s=5.0, evaluation_s=0.0, duration_s=5.0)
    assert known == pytest.approx(7000.0)
    assert np.isnan(predict_node_power(found, training_s=5.0, evaluation_s=0.0, duration_s=6.0))


def test_a_known_stalled_power_is_kept():
    found = fit_node_power(intervals(), stalled_w=TRUTH.stalled_w)
    assert found.stalled_w == TRUTH.stalled_w
    assert found.training_w == pytest.approx(TRUTH.training_w)


def test_the_mean_power_of_a_run_weighs_what_it_did_by_time():
    """(7000 * 60 + 6500 * 10 + 3000 * 30) / 100, by hand; computing all the time, 7000."""
    found = predict_node_power(
        TRUTH, training_s=[60.0, 40.0], evaluation_s=[10.0, 0.0], duration_s=[100.0, 40.0]
    )
    assert found == pytest.approx([5750.0, 7000.0])


def test_more_work_than_time_draws_what_the_work_draws():
    found = predict_node_power(TRUTH, training_s=50.0, evaluation_s=0.0, duration_s=40.0)
    assert found == pytest.approx(7000.0)


def test_an_interval_without_length_is_refused():
    with pytest.raises(ConfigError, match="an interval without length"):
        fit_node_power(NodeIntervals(np.ones(2), np.array([1.0, 0.0]), np.zeros(2), np.zeros(2)))
    with pytest.raises(ConfigError, match="columns differ in length"):
        fit_node_power(NodeIntervals(np.ones(2), np.ones(2), np.zeros(1), np.zeros(2)))


@pytest.fixture(scope="module")
def nodes():
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(Path(__file__).resolve().parents[2] / "benchmarks"))
        return importlib.import_module("_energy_nodes")


@pytest.fixture(scope="module", params=METERS)
def one_nodes(request, nodes, shared):
    runs = {name: nodes.read(shared, request.param, 1, name) for name in nodes.LARGE}
    return request.param, {name: nodes.one_node(each) for name, each in runs.items()}


@pytest.mark.parametrize(("benchmark", "scale"), LARGE)
def test_larger_runs_are_foretold_from_one_node(benchmark, scale, one_nodes, nodes, shared):
    meter, ones = one_nodes
    runs = nodes.read(shared, meter, scale, benchmark)
    mean, worst, energy = nodes.errors_percent(nodes.work, ones, benchmark, scale, runs)
    assert abs(mean) < POWER_BAR_PERCENT
    assert worst < POWER_BAR_PERCENT
    assert abs(energy) < ENERGY_BAR_PERCENT
    # Foretold by the other benchmarks' stalled time, the mean still keeps to the bar.
    held_out, _, _ = nodes.errors_percent(nodes.work, ones, benchmark, scale, runs, held_out=True)
    assert abs(held_out) < POWER_BAR_PERCENT


def test_one_node_s_log_tells_that_a_stalled_node_draws_more_than_a_waiting_one(one_nodes):
    _, ones = one_nodes
    llama = ones["llama2_70b_lora"]
    assert llama.idle_w < llama.power.stalled_w < 0.6 * llama.power.training_w
    assert np.isnan(ones["resnet"].power.stalled_w)
