"""Clocks and power limits of a traced run, as the command asks for them."""

import json
from typing import Any

import msgspec
import numpy as np
import pytest
from rich.console import Console

from jaxperf.config import load_power
from jaxperf.energy import ClockWhatIf, EnergyPrediction, predict
from jaxperf.energy.clocks._whatif import clock_whatif
from jaxperf.errors import ConfigError
from jaxperf.report import prediction_to_json, print_prediction
from tests.energy.clock_cases import chains_graph, power_tasks

MACHINE: dict[str, Any] = {"power": "h100", "hardware": "h100"}


@pytest.fixture(scope="module")
def predicted(traces) -> EnergyPrediction:
    """A run at half the clock of its multiplies, under a limit that nothing keeps."""
    return predict(traces, clock_hz={"gemm": 990e6}, power_limit_w=40.0, **MACHINE)


@pytest.fixture(scope="module")
def result(predicted) -> ClockWhatIf:
    return predicted.clocks


def test_the_baseline_is_the_prediction(result, predicted):
    accelerators = predicted.boundaries[0]
    assert result.baseline.step_us == pytest.approx(predicted.step_us, rel=1e-6)
    assert result.baseline.energy_j == pytest.approx(accelerators.step_j, rel=1e-6)
    assert result.baseline.average_power_w == pytest.approx(accelerators.average_w, rel=1e-6)


def test_half_the_clock_of_multiplies_takes_longer_and_draws_less(result):
    answer = result.answers[0]
    assert 1.0 < answer.ratio <= 2.0
    assert answer.average_power_w < result.baseline.average_power_w
    assert answer.clock_hz == {"gemm": 990e6}


def test_a_limit_that_cannot_be_kept_is_noted_and_has_no_answer(result):
    assert np.isnan(result.answers[1].step_us)
    assert [n.code for n in result.notes if "limit" in n.code] == ["power-limit-too-low"]


def test_what_is_printed_says_the_same(predicted, capsys):
    printed = json.loads(json.dumps(prediction_to_json(predicted)))["clocks"]
    assert printed["answers"][0]["clock_hz"] == {"gemm": 990e6}
    assert printed["answers"][1]["step_us"] is None
    print_prediction(predicted, Console(width=80))
    text = capsys.readouterr().out
    assert "gemm = 990 MHz" in text
    assert "power limit 40 W: cannot be" in text


def test_what_makes_no_sense_is_refused(traces):
    for asked, message in (
        ({"clock_hz": {"gemm": 5e9}}, "not a clock of the device"),
        ({"clock_hz": {"host": 1e9}}, "selects nothing on an accelerator"),
        ({"clock_hz": {"rank:9/all": 1e9}}, "no such rank"),
        ({"clock_hz": {"gemm": 1e9, "all": 9e8}}, "later clocks decide all.*gemm"),
    ):
        with pytest.raises(ConfigError, match=message):
            predict(traces, **asked, **MACHINE)


def test_the_last_selector_decides_and_what_is_left_of_the_first_keeps_its_clock():
    graph = chains_graph([[20.0], [10.0]])
    tasks = power_tasks(graph, [0, 1], [0.0, 0.0], end_us=20.0)
    clock_hz = {"all": 990e6, "rank:0/all": 1980e6}
    found = clock_whatif(graph, tasks, load_power("h100"), step_us=20.0, clock_hz=clock_hz)
    # The kernel of 10 us takes 20 at half the clock.
    assert found.answers[0].step_us == pytest.approx(20.0)
    assert found.answers[0].average_power_w < found.baseline.average_power_w


def at_its_limit(limit_w: float, **asked: Any) -> ClockWhatIf:
    """Two ranks whose kernel of 20 us draws 717 W at the nominal clock of an H100."""
    graph = chains_graph([[20.0], [20.0]])
    tasks = power_tasks(graph, [0, 1], [0.0, 0.0], end_us=20.0, busy_w=600.0)
    power = msgspec.structs.replace(load_power("h100"), power_limit_w=limit_w)
    return clock_whatif(graph, tasks, power, step_us=20.0, **asked)


def test_clocks_are_not_asked_of_a_run_whose_own_no_clock_explains():
    with pytest.raises(ConfigError, match="no clock explains the power.*W above 60 W"):
        at_its_limit(60.0, clock_hz={"all": 990e6})


def test_the_run_at_its_limit_has_one_energy(traces):
    low = msgspec.structs.replace(load_power("h100"), power_limit_w=500.0)
    found = predict(traces, power=low, hardware="h100", clock_hz={"all": 1980e6})
    assert found.clocks is not None
    assert found.clocks.baseline.energy_j == pytest.approx(found.boundaries[0].step_j, rel=2e-4)
    assert found.clocks.baseline.step_us == pytest.approx(found.step_us, rel=1e-6)
    (note,) = (note for note in found.notes if note.code == "above-power-limit")
    assert "all = 1980 MHz" in note.text


@pytest.mark.slow
def test_the_frontier_of_a_run_at_its_limit_is_not_faster_than_it():
    found = at_its_limit(450.0, frontier=4)
    assert found.frontier[0].step_us == pytest.approx(20.0, rel=1e-3)
    assert all(point.average_power_w <= 2 * 450.0 * 1.001 for point in found.frontier)
    assert not [note for note in found.notes if note.code == "above-power-limit"]


@pytest.mark.slow
def test_a_run_at_its_power_limit_is_taken_to_be_timed_at_a_lower_clock():
    found = at_its_limit(450.0, clock_hz={"all": 1980e6})
    assert [note.code for note in found.notes] == ["above-power-limit"]
    assert found.baseline.step_us == pytest.approx(20.0)
    assert found.baseline.average_power_w == pytest.approx(2 * 450.0)
    # At the nominal clock the kernels take less time by the ratio of the clocks.
    recorded_hz = found.baseline.clock_hz["all"]
    assert found.answers[0].ratio == pytest.approx(recorded_hz / 1980e6)
    assert found.answers[0].average_power_w > 2 * 450.0


@pytest.mark.slow
def test_the_frontier_of_a_traced_run_starts_at_its_step_and_takes_no_more_energy(traces):
    found = predict(traces, frontier=4, **MACHINE).clocks
    assert found is not None
    assert found.frontier[0].ratio == pytest.approx(1.0, abs=2e-4)
    assert all(point.energy_ratio <= 1.0 for point in found.frontier)
    assert not [note for note in found.notes if note.code == "frontier-not-settled"]
