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
    ):
        with pytest.raises(ConfigError, match=message):
            predict(traces, **asked, **MACHINE)


@pytest.mark.slow
def test_a_run_at_its_power_limit_is_taken_to_be_timed_at_a_lower_clock():
    graph = chains_graph([[20.0], [20.0]])
    tasks = power_tasks(graph, [0, 1], [0.0, 0.0], end_us=20.0, busy_w=600.0)
    power = msgspec.structs.replace(load_power("h100"), power_limit_w=450.0)
    found = clock_whatif(
        graph, tasks, power, step_us=20.0, clock_hz={"all": power.nominal_clock_hz}
    )
    assert [note.code for note in found.notes] == ["power-limit-kept"]
    assert found.baseline.step_us == pytest.approx(20.0)
    assert found.baseline.average_power_w == pytest.approx(2 * 450.0)
    # At the nominal clock the kernels take less time by the ratio of the clocks.
    recorded_hz = found.baseline.clock_hz["all"]
    assert found.answers[0].ratio == pytest.approx(recorded_hz / power.nominal_clock_hz)
    assert found.answers[0].average_power_w > 2 * 450.0


@pytest.mark.slow
def test_the_frontier_of_a_traced_run_starts_at_its_step_and_takes_no_more_energy(traces):
    found = predict(traces, frontier=4, **MACHINE).clocks
    assert found is not None
    assert found.frontier[0].ratio == pytest.approx(1.0, abs=2e-4)
    assert all(point.energy_ratio <= 1.0 for point in found.frontier)
    assert not [note for note in found.notes if note.code == "frontier-not-settled"]
