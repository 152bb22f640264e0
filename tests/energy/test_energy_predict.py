"""Predictions of a simulated run against sums by hand, and what is said beside them."""

import csv
import gzip
import io
import json
import shutil
from dataclasses import replace
from typing import Any

import msgspec
import numpy as np
import pytest
from rich.console import Console

from jaxperf.config import Job, load_hardware, load_power
from jaxperf.cost import select_work, task_work, unknown_work
from jaxperf.energy._predict import predict
from jaxperf.energy._prediction_types import EnergyPrediction
from jaxperf.energy.power._builder import power_tasks
from jaxperf.energy.power._model import power_model, static_power_w, task_energy_j
from jaxperf.energy.power._prediction import predict_timeline, series_grid_us
from jaxperf.errors import ConfigError, OutputError
from jaxperf.estimate import estimate
from jaxperf.graph import build_graph
from jaxperf.replay import Timeline, replay_graph
from jaxperf.report._energy_prediction import (
    joules_text,
    prediction_to_json,
    print_prediction,
    watts_text,
    write_power_series,
)
from jaxperf.trace import read_run
from jaxperf.workload import prepare_job
from tests.helpers import make_graph

H100 = load_power("h100")
MACHINE: dict[str, Any] = {"power": "h100", "hardware": "h100"}


@pytest.fixture(scope="module")
def result(traces) -> EnergyPrediction:
    return predict(
        traces,
        power="h100",
        hardware="h100",
        steps=1000,
        samples_per_step=16,
        pue=1.25,
        carbon_g_per_kwh=360.0,
    )


def test_the_average_is_the_plain_sum_over_the_steady_steps(result, traces):
    run = read_run(traces)
    graph = build_graph(run)
    timeline = replay_graph(graph)
    begin_us, end_us = result.span_us
    tasks = power_tasks(
        graph, timeline, task_work(graph, run), load_hardware("h100"), begin_us, end_us
    )
    model = power_model(H100)
    energy_j = np.asarray(task_energy_j(model, tasks, H100.nominal_clock_hz))
    inside_us = np.minimum(tasks.start_us + tasks.duration_us, end_us)
    inside_us = np.maximum(inside_us - np.maximum(tasks.start_us, begin_us), 0.0)
    some = tasks.duration_us > 0
    total_j = (energy_j[some] * inside_us[some] / tasks.duration_us[some]).sum()
    total_j += 2 * float(static_power_w(model, 1.98e9)) * (end_us - begin_us) * 1e-6
    watts = total_j / (end_us - begin_us) * 1e6
    assert result.above_limit_w == 0.0
    assert result.accelerator_w * 2 == pytest.approx(watts, rel=1e-9)
    # The first of four steps warms up.
    ends = [timeline.end_us[step.end_task] for step in graph.steps if step.name.endswith("#4")]
    assert len(graph.steps) == 8 and end_us == pytest.approx(np.mean(ends), rel=1e-9)
    assert end_us - begin_us == pytest.approx(3 * result.step_us, rel=1e-3)


def test_steps_samples_and_the_training_follow_from_the_average(result):
    for each in result.boundaries:
        assert each.step_j == pytest.approx(each.average_w * result.step_us * 1e-6)
        assert each.sample_j == pytest.approx(each.step_j / 16)
        assert np.isnan(each.token_j)
        assert each.train_j == pytest.approx(1000 * each.step_j)


def test_each_boundary_adds_its_own(result):
    accelerators, dc, ac, facility = (each.average_w for each in result.boundaries)
    # Two of eight places are used: six idle.
    assert dc == pytest.approx(accelerators + 6 * H100.idle_w + H100.node.host_w)
    assert ac == pytest.approx(dc / 0.96)
    assert facility == pytest.approx(1.25 * ac)
    assert (result.nodes, result.node_dc_w, result.node_ac_w) == (1, dc, ac)
    assert result.facility_energy_j == result.boundaries[3].train_j
    assert result.carbon_g == pytest.approx(result.facility_energy_j / 3.6e6 * 360.0)


def test_classes_phases_ranks_and_series_add_up(result):
    step_j = result.boundaries[0].step_j
    assert sum(result.by_class_j.values()) == pytest.approx(step_j)
    assert sum(result.by_phase_j.values()) == pytest.approx(step_j)
    assert all(energy >= -1e-12 for energy in result.by_phase_j.values())
    assert sum(each.average_w for each in result.by_rank) == pytest.approx(2 * result.accelerator_w)
    lengths = np.diff(result.series.grid_us)
    mean = np.average(result.series.accelerator_w, weights=lengths)
    assert mean == pytest.approx(result.accelerator_w)
    assert np.average(result.series.nodes_ac_w, weights=lengths) == pytest.approx(result.node_ac_w)
    assert result.lowest_node_ac_w - 1e-9 <= result.node_ac_w <= result.peak_node_ac_w + 1e-9
    assert 0.9 < result.known_work_share < 1.0
    assert [note.code for note in result.notes] == ["work-unknown"]


def test_without_a_factor_there_is_no_figure_of_it(traces):
    bare = predict(traces, power=H100, hardware="h100", step=-1)
    assert np.isnan(bare.facility_energy_j) and np.isnan(bare.carbon_g)
    assert np.isnan(bare.boundaries[3].average_w) and np.isnan(bare.boundaries[0].train_j)
    assert bare.span_us[1] - bare.span_us[0] == pytest.approx(bare.step_us, rel=0.01)
    # Carbon needs no PUE: without one it is that of the nodes.
    job = Job(
        layers=1,
        hidden_size=64,
        attention_heads=4,
        vocabulary_size=100,
        micro_batch_size=3,
        micro_batches=4,
        sequence_length=128,
    )
    with_job = predict(traces, power=H100, hardware="h100", carbon_g_per_kwh=100.0, job=job)
    ac = with_job.boundaries[2]
    assert with_job.carbon_g == pytest.approx(ac.step_j / 3.6e6 * 100.0)
    assert ac.sample_j == pytest.approx(ac.step_j / 12)
    assert ac.token_j == pytest.approx(ac.step_j / 12 / 128)


def test_a_run_above_the_limit_is_held_at_it_and_says_so(result, traces):
    low = msgspec.structs.replace(H100, power_limit_w=500.0)
    held = predict(traces, power=low, hardware="h100")
    # The steps take less than a window: each rank has one.
    assert [each.average_w for each in held.by_rank] == pytest.approx([500.0, 500.0], rel=1e-3)
    assert held.above_limit_w == pytest.approx(result.peak_accelerator_w - 500.0, rel=1e-3)
    (note,) = (note for note in held.notes if "limit" in note.code)
    assert note.code == "power-limit-kept" and "limit of 500 W" in note.text


def test_a_limit_that_no_clock_explains_is_said_not_to_be_held(traces):
    low = msgspec.structs.replace(H100, power_limit_w=240.0)
    held = predict(traces, power=low, hardware="h100")
    (note,) = (note for note in held.notes if "limit" in note.code)
    assert note.code == "power-above-limit"
    above_w = max(each.average_w for each in held.by_rank) - 240.0
    assert above_w > 0 and f"{above_w:.0f} W above it" in note.text


def test_a_run_without_kernels_says_that_only_static_power_is_counted():
    graph = make_graph([6_000, 2_000], [(0, 1)])
    timeline = Timeline(np.array([0.0, 6.0]), np.array([6.0, 8.0]))
    found = predict_timeline(
        graph,
        timeline,
        unknown_work(2),
        H100,
        load_hardware("h100"),
        span_us=(0.0, 8.0),
        step_us=8.0,
    )
    assert found.accelerator_w == pytest.approx(117.0)
    assert [note.code for note in found.notes] == ["no-device-tasks"]


@pytest.mark.slow
def test_ranks_that_were_not_recorded_are_like_those_that_were(traces, tmp_path):
    (first, *_) = sorted(traces.iterdir())
    shutil.copy(first, tmp_path / first.name)
    alone = predict(tmp_path, power="h100", hardware="h100")
    assert (alone.gpus, len(alone.by_rank)) == (2, 1)
    assert alone.by_rank[0].ranks_alike == 2.0
    assert alone.by_rank[0].average_w == pytest.approx(alone.accelerator_w)
    assert "ranks-taken-alike" in {note.code for note in alone.notes}


@pytest.mark.parametrize(
    "arguments, message",
    [
        ({}, "power: .*not known.*Simulated GPU.*h100"),
        ({"power": "h100"}, "hardware: .*Simulated GPU"),
        ({"power": "h101", "hardware": "h100"}, "no such power"),
        ({**MACHINE, "step": "nine"}, "no such step"),
        ({**MACHINE, "grid_us": 0.0}, "grid_us"),
        ({**MACHINE, "pue": 0.9}, "pue: .*1 or more"),
        ({**MACHINE, "steps": float("nan")}, "steps: .*above 0"),
        ({**MACHINE, "steps": 0}, "steps: .*above 0"),
        ({**MACHINE, "samples_per_step": 0}, "samples_per_step: .*above 0"),
        ({**MACHINE, "tokens_per_step": -1.0}, "tokens_per_step: .*above 0"),
        ({**MACHINE, "switches_w": -1.0}, "switches_w: .*0 or more"),
        ({**MACHINE, "grid_us": float("inf")}, "grid_us"),
        ({**MACHINE, "grid_us": 1e-6}, "grid_us: .*at most 10,000,000"),
        ({**MACHINE, "frontier": -1}, "frontier: .*0 or more"),
        ({**MACHINE, "power_limit_w": float("nan")}, "power_limit_w: .*above 0"),
        ({**MACHINE, "power_limit_w": -5.0}, "power_limit_w: .*above 0"),
    ],
)
def test_what_cannot_be_predicted_is_refused(traces, arguments, message):
    with pytest.raises(ConfigError, match=message):
        predict(traces, **arguments)


def test_the_description_of_the_recorded_device_is_taken_and_noted(traces, tmp_path):
    for path in traces.iterdir():
        text = gzip.decompress(path.read_bytes())
        assert b"Simulated GPU" in text
        named = text.replace(b"Simulated GPU", b"NVIDIA H100 80GB HBM3")
        (tmp_path / path.name).write_bytes(gzip.compress(named))
    found = predict(tmp_path)
    assert found.device == "NVIDIA H100 80GB HBM3"
    assert "power-assumed" in {note.code for note in found.notes}


def test_cells_are_of_one_length_and_end_with_the_span():
    assert series_grid_us((5.0, 15.0), 4.0).tolist() == [5.0, 9.0, 13.0, 15.0]
    assert series_grid_us((0.0, 0.3), 0.1) == pytest.approx([0.0, 0.1, 0.2, 0.3])
    assert len(series_grid_us((0.0, 500e3))) == 501
    assert len(series_grid_us((0.0, 60e6))) == 1001


# Estimated runs
# ---------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("name", ["h100", "b200"])
def test_an_estimated_run_draws_what_nodes_have_been_measured_to(name):
    result = estimate("llama3-8b", hardware=name, change={"layers": 8, "micro_batches": 2})
    hosted = prepare_job(result.job).hosted
    found = predict_timeline(
        result.graph,
        result.timeline,
        select_work(hosted.built.work, hosted.built.piece_of_task),
        load_power(name),
        result.hardware,
        span_us=(0.0, result.step_us),
        step_us=result.step_us,
        ranks_alike=tuple(map(float, result.ranks_alike)),
    )
    assert found.gpus == result.gpus
    assert found.known_work_share == 1.0
    low, high = {
        # H100 in Llama 2 LoRA: 597 to 658 W (NLR) where they wait for 16 and for 2 nodes.
        "h100": (560.0, 690.0),
        # Eight B200 of MLPerf training v5.0: 9.0 to 9.4 kW DC of a node.
        "b200": (700.0, 950.0),
    }[name]
    assert low < found.accelerator_w < high
    assert found.node_ac_w < {"h100": 8.4e3, "b200": 14.3e3}[name]


# What a person and a program see
# ---------------------------------------------------------------------------------------


def test_the_json_has_null_for_what_is_not_known(result):
    printed = json.loads(json.dumps(prediction_to_json(result), allow_nan=False))
    assert printed["boundaries"][0]["energy_per_token_j"] is None
    assert printed["accounting"]["switches_w"] is None
    assert printed["boundaries"][0]["energy_to_train_j"] == pytest.approx(
        result.boundaries[0].train_j
    )
    assert list(printed["by_class_j"])[0] == max(
        result.by_class_j, key=lambda name: result.by_class_j[name]
    )
    assert len(printed["series"]["accelerator_w"]) == len(result.series.accelerator_w)


def test_a_person_is_told_the_power_first(result):
    text = io.StringIO()
    print_prediction(result, Console(width=80, file=text))
    first, *rest = text.getvalue().splitlines()
    assert first.startswith("2 NVIDIA H100 80GB HBM3: ") and " each, " in first
    assert all(len(line) <= 80 for line in rest)
    assert "facility" in text.getvalue() and "work-unknown" in text.getvalue()
    bare = replace(result, boundaries=(*result.boundaries[:3], _unknown(result)))
    text = io.StringIO()
    print_prediction(bare, Console(width=80, file=text))
    assert "facility" not in text.getvalue()


def _unknown(result):
    return replace(result.boundaries[3], average_w=float("nan"))


def test_the_series_is_written_and_nothing_over_it(result, tmp_path):
    path = tmp_path / "power.csv"
    write_power_series(result, path)
    with path.open() as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == len(result.series.accelerator_w)
    span_ns = int(rows[0]["begin_ns"]), int(rows[-1]["end_ns"])
    assert [ns - result.series.zero_ns for ns in span_ns] == [
        round(1e3 * edge_us) for edge_us in result.span_us
    ]
    assert [float(row["nodes_ac_w"]) for row in rows] == pytest.approx(
        result.series.nodes_ac_w.tolist()
    )
    with pytest.raises(OutputError, match="exists already"):
        write_power_series(result, path)


def test_units_suit_the_size():
    assert joules_text(1_676_757.08e3) == "1.677 GJ"
    assert joules_text(0.0) == "0.000 J"
    assert joules_text(999.96) == "1.000 kJ"
    assert watts_text(700.0) == "700.0 W"
    assert watts_text(float("nan")) == "–"
