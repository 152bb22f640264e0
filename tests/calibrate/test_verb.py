"""Calibration of traces: held out parts, fit files, and what is refused."""

from dataclasses import replace

import numpy as np
import pytest

from jaxperf import (
    build_graph,
    calibrate,
    load_fit,
    load_hardware,
    read_run,
    replay_graph,
    whatif,
    write_fit,
)
from jaxperf.calibrate._fitting import _HELD_OUT_SHAPES, _hash, fit_runs
from jaxperf.calibrate._runs import _in_last_step, run_work
from jaxperf.errors import ConfigError, OutputError
from jaxperf.simulator import SimulatedJob, simulate, write_traces


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    folders = []
    for hidden in (512, 1024):
        folder = tmp_path_factory.mktemp("run")
        job = SimulatedJob(layers=2, data_parallel=2, steps=4, hidden_size=hidden)
        write_traces(simulate(job), folder)
        folders.append(folder)
    return folders


@pytest.fixture(scope="module")
def told():
    """What the calibration of `result` told of its progress."""
    return []


@pytest.fixture(scope="module")
def result(runs, told):
    return calibrate(
        runs,
        hardware="h100",
        leaves=["matmul.*", "memory.*"],
        progress=lambda done, total: told.append((done, total)),
    )


def by_class(result):
    return {each.task_class: each for each in result.classes}


def test_a_fit_comes_closer_also_on_shapes_that_were_held_out(result):
    gemm = by_class(result)["gemm"]
    assert gemm.works > 5 and gemm.held_out > 0
    assert gemm.after_percent < gemm.before_percent
    assert gemm.held_out_after_percent < gemm.held_out_before_percent
    assert result.loss_after < result.loss_before
    for before, after in zip(result.steps_before, result.steps, strict=True):
        assert abs(after.error_percent) < abs(before.error_percent)
        assert after.measured_us == before.measured_us


@pytest.mark.slow
def test_a_trace_can_be_held_out(runs):
    result = calibrate(runs, hardware="h100", hold_out="trace", leaves=["matmul.*"])
    gemm = by_class(result)["gemm"]
    assert gemm.held_out > 0
    assert np.isfinite(gemm.held_out_after_percent)


@pytest.mark.slow
@pytest.mark.parametrize("part, slower", [("step", "last step"), ("shape", "held-out shapes")])
def test_what_is_held_out_moves_nothing(runs, part, slower):
    run = read_run(runs[0])
    graph = build_graph(run)
    machine = load_hardware("h100")
    work = run_work(run, graph, machine, hold_out_step=part == "step")
    held = _in_last_step(graph) if part == "step" else np.zeros(graph.tasks, bool)
    if part == "shape":
        held[work.task] = (_hash(work.work) < _HELD_OUT_SHAPES)[work.of_task]
    assert held.any() and not held.all()
    spoilt = replace(graph, duration_ns=np.where(held, 5 * graph.duration_ns, graph.duration_ns))
    if part == "shape":
        # A step is as long as its tasks make it.
        spoilt = _with_replayed_steps(spoilt)
    found = [
        fit_runs([run], [each], [machine], ["matmul.*"], part, None)
        for each in (_with_replayed_steps(graph) if part == "shape" else graph, spoilt)
    ]
    gemm = by_class(found[0])["gemm"]
    assert gemm.held_out > 0
    assert np.isfinite(gemm.held_out_after_percent)
    one, other = ([number.value for number in each.numbers] for each in found)
    # Of shapes the step that is fitted depends a little less on what is not held out.
    assert other == pytest.approx(one, rel=0.02 if part == "step" else 0.25), slower


def _with_replayed_steps(graph):
    """The graph, its measured steps as long as the replay says."""
    timeline = replay_graph(graph)
    steps = tuple(
        replace(
            step,
            begin_ns=int(1e3 * timeline.start_us[step.begin_task]),
            end_ns=int(1e3 * timeline.end_us[step.end_task]),
        )
        for step in graph.steps
    )
    return replace(graph, steps=steps)


def test_a_run_with_nothing_to_hold_out_is_refused(tmp_path):
    write_traces(simulate(SimulatedJob(layers=1, steps=1)), tmp_path)
    with pytest.raises(ConfigError, match="nothing to hold out"):
        calibrate(tmp_path, hardware="h100", hold_out="step")


def test_numbers_that_no_work_needs_are_not_told(result):
    told = {number.leaf: number.told for number in result.numbers}
    assert any(told.values()) and not all(told.values())
    for number in result.numbers:
        low, high = number.interval
        assert 0 < low < number.value < high


def test_a_fit_is_written_and_read_and_used(result, runs, tmp_path):
    path = tmp_path / "fit.toml"
    write_fit(result.fit, path)
    assert load_fit(path) == result.fit
    with pytest.raises(OutputError, match="exists already"):
        write_fit(result.fit, path)
    change = {"memory_bytes_per_s": 1e12}
    fitted = whatif(runs[0], change=change, hardware="h100", fit=path, samples=20)
    default = whatif(runs[0], change=change, hardware="h100")
    answer = fitted.scenarios[0]
    assert answer.step_us != default.scenarios[0].step_us
    (told,) = answer.out_of_range
    assert told == "memory_bytes_per_s = 1e+12: fitted from 3.35e+12 to 3.35e+12"
    assert answer.interval_us and answer.interval_us[0] < answer.interval_us[1]
    assert "model-not-fitted" not in {note.code for note in fitted.notes}


def test_a_value_that_was_seen_is_in_range(result, runs):
    answer = whatif(
        runs[0], change={"memory_bytes_per_s": 3.35e12}, hardware="h100", fit=result.fit
    ).scenarios[0]
    assert answer.out_of_range == ()
    assert answer.ratio == 1.0


def test_progress_is_told(result, told):
    assert told and all(0 < done <= total for done, total in told)


@pytest.mark.parametrize(
    "arguments, message",
    [
        ({}, "recorded machine is not known"),
        ({"hardware": "h100", "leaves": ["matmul.eficiency*"]}, "matches no number.*matmul"),
        ({"hardware": "h100", "hold_out": "rank"}, "no such part.*step or shape or trace"),
        ({"hardware": "h100", "hold_out": "trace"}, "one run cannot be held out"),
    ],
)
def test_what_cannot_be_fitted_is_refused(runs, arguments, message):
    with pytest.raises(ConfigError, match=message):
        calibrate(runs[0], **arguments)


@pytest.mark.parametrize(
    "text, message",
    [
        ("", "missing required field hardware"),
        ('hardware = ["x"]\nnumber = 1\n[numbers]', "number: unknown key; .*numbers"),
        ('hardware = ["x"]\nleaves = ["a"]\n[numbers]', "covariance: wrong shape"),
        ('hardware = ["x"]\n[numbers]\n"memory.latency" = [1.0]', "no such number"),
        ('hardware = ["x"]\n[numbers]\n"device.memory_bytes_per_s" = [1.0, 2.0]', "wrong length"),
    ],
)
def test_a_bad_fit_file_is_refused(runs, tmp_path, text, message):
    path = tmp_path / "fit.toml"
    path.write_text(text)
    with pytest.raises(ConfigError, match=message):
        whatif(runs[0], change={"memory_bytes_per_s": 1e12}, hardware="h100", fit=path)
