"""From traces and a log to a fit, and what is written of it."""

import io
import json
import os
from dataclasses import replace

import numpy as np
import pytest
from msgspec import structs
from rich.console import Console

from jaxperf.config import load_hardware, load_power
from jaxperf.energy._predict import predict
from jaxperf.energy._recorded_power import recorded_power
from jaxperf.energy._series import energy_j, power_series
from jaxperf.energy._series_counter import series_of_counter
from jaxperf.energy.calibration._design import with_values
from jaxperf.energy.calibration._readings import mean_series, readings_of
from jaxperf.energy.calibration._solve import _check_told, _worse_note, _zero_number_notes
from jaxperf.energy.calibration._types import FittedPower
from jaxperf.energy.calibration._verb import calibrate, clock_zero_ns, timed_tasks
from jaxperf.errors import ConfigError, LogError
from jaxperf.graph import TaskKind, build_graph
from jaxperf.report._energy_prediction import write_power_series
from jaxperf.report._power_fit import power_fit_to_json, print_power_fit, write_power
from jaxperf.simulator import Noise, SimulatedJob, simulate, write_traces
from jaxperf.trace import read_run
from tests.energy.power_fit_cases import overlap_readings_w

# Long steps of a small graph, so that a second of it is quickly read.
JOB = SimulatedJob(
    layers=1,
    hidden_size=4096,
    attention_heads=32,
    sequence_length=4096,
    micro_batch_size=8,
    steps=12,
    noise=Noise(kernel=0.05),
)
TRUTH = {"flop_j.bf16": 0.6e-12, "memory_byte_j": 70e-12, "unknown_w.other": 310.0}
SKEW_S = 0.8


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("traces")
    write_traces(simulate(JOB), folder)
    return folder


@pytest.fixture(scope="module")
def believed():
    power = load_power("h100")
    return with_values(power, {f"class_w.{name}": 0.0 for name in power.class_w})


@pytest.fixture(scope="module")
def log(folder, believed):
    """The accelerator's own meter, every 20 ms."""
    run = read_run(folder)
    recorded = timed_tasks(run, build_graph(run), load_hardware("h100"))
    tasks = recorded.tasks
    time_s = np.arange(tasks.begin_us * 1e-6 + 0.03, tasks.end_us * 1e-6, 0.02)
    power_w = overlap_readings_w(with_values(believed, TRUTH), tasks, time_s, 0.025)
    path = folder.parent / "power.csv"
    rows = [
        f"{round(recorded.zero_ns + (time + SKEW_S) * 1e9)},{watts:.3f}"
        for time, watts in zip(time_s, power_w, strict=True)
    ]
    path.write_text("\n".join(["timestamp_ns,power_w", *rows]))
    return path


@pytest.fixture(scope="module")
def fit(folder, log, believed):
    return calibrate(folder, log, power=believed, hardware="h100")


def test_the_numbers_and_the_skew_of_a_recorded_run_are_found(fit):
    found = {each.key: each for each in fit.parameters}
    assert found["flop_j.bf16"].value == pytest.approx(TRUTH["flop_j.bf16"], rel=0.02)
    assert found["memory_byte_j"].value == pytest.approx(TRUTH["memory_byte_j"], rel=0.03)
    assert fit.skew_s == pytest.approx(SKEW_S, abs=0.002)
    assert fit.errors.after_percent < 0.1 < fit.errors.before_percent


def test_a_fit_is_read_again_as_a_power_description(fit, tmp_path):
    write_power(fit, tmp_path / "fit.toml")
    assert load_power(tmp_path / "fit.toml") == fit.description
    text = (tmp_path / "fit.toml").read_text()
    assert "# static.clock_w: only in sum with others" in text
    low, high = next(each.interval for each in fit.parameters if each.key == "flop_j.bf16")
    assert f"# flop_j.bf16: {low:.4g} to {high:.4g} with 90 % probability" in text


def test_a_fit_is_json_and_fits_a_terminal(fit):
    plain = json.loads(json.dumps(power_fit_to_json(fit), allow_nan=False))
    told = {each["key"]: each["told"] for each in plain["parameters"]}
    assert told["flop_j.bf16"] == "log"
    assert told["network_byte_j"] == "no-work"
    assert plain["condition"] is None
    assert plain["skew_s"] == pytest.approx(SKEW_S, abs=0.002)
    text = io.StringIO()
    print_power_fit(fit, Console(width=80, file=text))
    lines = text.getvalue().splitlines()
    assert max(map(len, lines)) <= 80
    assert any("flop_j.bf16" in line for line in lines)


def test_a_number_that_is_told_loosely_is_written_with_its_interval(fit, tmp_path):
    number = FittedPower("flop_j.bf16", 1e-12, 0.98e-12, (0.89e-12, 1.07e-12), "loosely")
    loose = replace(fit, parameters=(number,))
    write_power(loose, tmp_path / "fit.toml")
    text = (tmp_path / "fit.toml").read_text()
    assert "# flop_j.bf16: told loosely, 8.9e-13 to 1.07e-12 with 90 % probability" in text
    (plain,) = power_fit_to_json(loose)["parameters"]
    assert plain["told"] == "loosely" and not plain["is_identified"]
    printed = io.StringIO()
    print_power_fit(loose, Console(width=80, file=printed))
    _, section = printed.getvalue().split("Numbers that it tells loosely")
    (row,) = (line.split() for line in section.splitlines() if "flop_j" in line)
    assert row == ["flop_j.bf16", "1e-12", "9.8e-13", "8.9e-13", "1.07e-12"]
    assert "cannot tell" not in section


@pytest.fixture(scope="module")
def predicted(folder, tmp_path_factory):
    """A prediction with other numbers than those that are believed, and its series as a file."""
    truth = with_values(load_power("h100"), TRUTH)
    prediction = predict(folder, power=truth, hardware="h100", grid_us=5_000)
    path = tmp_path_factory.mktemp("predicted") / "power.csv"
    write_power_series(prediction, path)
    return prediction, path


def step_j(result, per):
    (found,) = (b for b in result.boundaries if b.boundary == per)
    return found.step_j


@pytest.mark.parametrize(("per", "boundary"), [("node", "nodes_ac"), ("gpu", "accelerators")])
def test_a_fit_to_what_was_predicted_predicts_it_again(folder, predicted, per, boundary):
    prediction, path = predicted
    fit = calibrate(folder, path, power="h100", hardware="h100", per=per)
    # The series has the times of the traces: steps that are alike are not taken for one another.
    assert fit.skew_s == pytest.approx(0.0, abs=1e-4)
    again = predict(folder, power=fit.description, hardware="h100")
    assert step_j(again, boundary) == pytest.approx(step_j(prediction, boundary), rel=0.01)
    told = [each for each in fit.parameters if each.told == "log"]
    assert {"flop_j.bf16", "memory_byte_j"} <= {each.key for each in told}
    truth = with_values(load_power("h100"), TRUTH)
    for each in told:
        table, _, name = each.key.rpartition(".")
        true = getattr(truth, table)[name] if table else getattr(truth, name)
        # The fit knows the recorded times, and not those replayed: which is no noise.
        assert each.value == pytest.approx(true, rel=0.03)
    for each in fit.parameters:
        if each.told in ("prior", "no-work"):
            assert each.value == each.prior


def test_a_prediction_on_a_clock_of_its_own_is_laid_on_the_traces(folder, predicted, tmp_path):
    prediction, path = predicted
    header, *rows = (line.split(",") for line in path.read_text().splitlines())
    first_ns = int(rows[0][0])
    moved = [[*(str(int(cell) - first_ns) for cell in row[:2]), *row[2:]] for row in rows]
    own = tmp_path / "own.csv"
    own.write_text("\n".join(",".join(row) for row in [header, *moved]))
    fit = calibrate(folder, own, power="h100", hardware="h100", per="node")
    assert "log-aligned-by-fit" in {note.code for note in fit.notes}
    assert fit.skew_s == pytest.approx(-first_ns * 1e-9, abs=1e-3)
    again = predict(folder, power=fit.description, hardware="h100")
    assert step_j(again, "nodes_ac") == pytest.approx(step_j(prediction, "nodes_ac"), rel=0.01)


def test_accelerators_of_a_node_that_do_not_run_the_job_are_idle(folder, predicted):
    fit = calibrate(folder, predicted[1], power="h100", hardware="h100", per="node")
    (note,) = (note for note in fit.notes if note.code == "accelerators-idle")
    assert note.text.startswith("1 of 8 accelerators")


def test_a_fit_that_tells_nothing_is_refused_and_says_what_to_do(fit):
    number = FittedPower("flop_j.bf16", 1e-12, 1e-165, (0.0, 2e-13), "loosely")
    with pytest.raises(LogError, match=r"power\.csv: tells no number of .*--per says") as caught:
        _check_told(replace(fit, parameters=(number,), sums=()), "power.csv")
    assert "\n" not in str(caught.value)
    # Of a noisy log numbers are told loosely: these are no nonsense.
    some = replace(number, value=0.9e-12, interval=(0.8e-12, 1e-12))
    _check_told(replace(fit, parameters=(some,), sums=()), "power.csv")


def test_a_number_that_is_fitted_as_0_is_said(fit):
    number = FittedPower("flop_j.bf16", 1e-12, 1e-165, (0.0, 2e-13), "loosely")
    (note,) = _zero_number_notes(replace(fit, parameters=(number,)), "power.csv")
    assert (note.code, note.where) == ("number-at-zero", "power.csv")
    assert "flop_j.bf16 (below 2e-13)" in note.text
    assert not _zero_number_notes(fit, "power.csv")


def test_a_fit_that_models_no_better_is_said(fit):
    worse = replace(fit, errors=replace(fit.errors, before_percent=1.0, after_percent=1.5))
    (note,) = _worse_note(worse, "power.csv")
    assert note.code == "fit-no-better" and "to 1.5 %" in note.text and "to 1 %" in note.text
    assert not _worse_note(fit, "power.csv")


def test_time_zero_of_a_graph_is_that_of_its_first_event(folder):
    run = read_run(folder)
    graph = build_graph(run)
    assert clock_zero_ns(run, graph) == run.traces[0].origin_ns
    assert clock_zero_ns(run, graph) > 1_735_689_600_000_000_000


def test_time_zero_of_joined_ranks_is_on_the_first_ranks_clock(tmp_path):
    job = SimulatedJob(layers=1, data_parallel=2, clock_spread_us=300.0)
    run = read_run(write_traces(simulate(job), tmp_path))
    graph = build_graph(run)
    zero_ns = clock_zero_ns(run, graph)
    # The last device work of the first rank, by its own trace and by the graph.
    trace = run.traces[0]
    task = np.flatnonzero((graph.trace == 0) & (graph.kind == TaskKind.KERNEL))[-1]
    by_trace_ns = trace.origin_ns + int(trace.start_ns[graph.event[task]])
    by_graph_ns = zero_ns + int(graph.end_ns[task]) - int(trace.duration_ns[graph.event[task]])
    assert by_graph_ns == pytest.approx(by_trace_ns, abs=1)


def test_a_device_without_a_description_is_named(folder, log):
    with pytest.raises(ConfigError, match="power: what the recorded device draws is not known"):
        calibrate(folder, log, hardware=structs.replace(load_hardware("h100"), name="Own"))


def test_words_that_there_are_not_are_refused(folder, log):
    with pytest.raises(ConfigError, match="per: no such part; got rack; expected gpu or node"):
        calibrate(folder, log, per="rack")  # pyright: ignore[reportArgumentType]
    with pytest.raises(LogError, match=r"none\.csv: cannot be read"):
        calibrate(folder, "none.csv", hardware="h100")


MLLOG = ':::MLLOG {{"key": "{}", "time_ms": {}, "value": {}}}'.format


def node_log(power_w, efficiency):
    events = [MLLOG("power_measurement_start", 1_700_000_000_000, "null")]
    events.append(MLLOG("conversion_eff", 1_700_000_000_000, efficiency))
    events += [
        MLLOG("power_reading", 1_700_000_000_000 + 1000 * (i + 1), watts)
        for i, watts in enumerate(power_w)
    ]
    return "\n".join([*events, MLLOG("power_measurement_stop", 1_700_000_060_000, "null")])


def test_node_logs_of_training_become_what_the_described_supplies_draw(tmp_path):
    (tmp_path / "node_0.txt").write_text(node_log([1000, 3000], 1.0))
    (tmp_path / "node_1.txt").write_text(node_log([2000, 4000], 1.0))
    series, notes = readings_of(tmp_path / "node_0.txt", None, 0.8)
    np.testing.assert_allclose(series.power_w, [1250, 3750])
    assert series.time_ns[0] == 1_700_000_001_000_000_000
    series, notes = readings_of(tmp_path, None, 0.8)
    np.testing.assert_allclose(series.power_w, np.array([1500, 3500]) / 0.8)
    assert {note.code for note in notes} == {"conversion-efficiency-logged", "series-averaged"}


def test_a_folder_of_several_runs_is_refused(tmp_path):
    for name in ("result_0", "result_1"):
        os.mkdir(tmp_path / name)
        (tmp_path / name / "node_0.txt").write_text(node_log([1000], 1.0))
    with pytest.raises(LogError, match="not the power logs of one run; got node_.*in 2 folders"):
        readings_of(tmp_path, None, 1.0)


def test_the_mean_of_series_is_taken_where_all_have_readings():
    first, _ = power_series([0, 10, 20, 30], [100, 200, 300, 400], "a", "power.csv")
    second, _ = power_series([5, 15, 25], [100, 100, 200], "b", "power.csv")
    mean, notes = mean_series([first, second])
    assert mean.time_ns.tolist() == [10, 20]
    assert mean.power_w.tolist() == [(200 + 100) / 2, (300 + 150) / 2]
    assert [note.code for note in notes] == ["series-averaged", "readings-outside-overlap"]
    # Of the first those at 0 and 30, of the second at none but 5 and 25, which both cover.
    assert notes[1].text.startswith("2 readings")
    with pytest.raises(LogError, match="no time in common"):
        mean_series([first, replace(second, time_ns=second.time_ns + 1000)])


SECOND_NS = 10**9


def test_the_mean_of_counters_has_the_mean_of_their_energies():
    """By hand: 400 J of one and 1200 J of the other in 4 s are 800 J."""
    first, _ = series_of_counter(np.arange(5) * SECOND_NS, np.arange(5) * 100.0, "a", "power.csv")
    second, _ = series_of_counter(np.arange(0, 6, 2) * SECOND_NS, [0, 200, 1200], "b", "power.csv")
    mean, notes = mean_series([first, second])
    assert mean.averaged
    assert mean.power_w.tolist() == [100, 100, 100, 300, 300]
    assert energy_j(mean, *mean.window) == pytest.approx(800)
    assert [note.code for note in notes] == ["series-averaged"]


def test_the_mean_of_counters_has_their_energies_in_every_interval():
    rng = np.random.default_rng(0)
    counters = []
    for host, count in (("a", 40), ("b", 23), ("c", 61)):
        time_ns = 1_735_689_600 * SECOND_NS + np.sort(rng.integers(0, 60 * SECOND_NS, count))
        joules = np.cumsum(rng.uniform(0, 300, count))
        counters.append(series_of_counter(time_ns, joules, host, "power.csv")[0])
    mean, notes = mean_series(counters)
    assert notes[1].code == "readings-outside-overlap"
    for window_ns in zip(mean.time_ns[:-1].tolist(), mean.time_ns[1:].tolist(), strict=True):
        expected_j = np.mean([energy_j(each, *window_ns) for each in counters])
        assert energy_j(mean, *window_ns) == pytest.approx(expected_j, abs=1e-6)


def test_the_mean_of_counters_and_momentary_powers_is_refused():
    time_ns = np.arange(5) * SECOND_NS
    counter, _ = series_of_counter(time_ns, np.arange(5.0), "a", "power.csv")
    power, _ = power_series(time_ns, np.arange(5.0), "b", "power.csv")
    with pytest.raises(LogError, match="some series are powers of a moment, and some averages"):
        mean_series([counter, power])


def test_the_power_of_a_recorded_device_is_assumed_and_said_and_that_of_a_user_is_not():
    power, notes = recorded_power(["NVIDIA H100 80GB HBM3"] * 8)
    assert power == load_power("h100")
    assert [note.code for note in notes] == ["power-assumed"]
    assert recorded_power(["Own"], "h100") == (power, ())
    assert recorded_power(["Own"], power) == (power, ())


@pytest.mark.parametrize(
    ("names", "message"),
    [
        (["NVIDIA H100 80GB HBM3", "NVIDIA A100-SXM4-80GB"], "recorded devices do not draw the s"),
        (["NVIDIA H100 80GB HBM3", "Own"], "not known; got NVIDIA H100 80GB HBM3, Own"),
        (["NVIDIA H100 80GB HBM3", None], "not known; got NVIDIA H100 80GB HBM3, no name"),
        ([], "not known"),
    ],
)
def test_devices_of_several_kinds_or_unknown_ones_need_a_description(names, message):
    with pytest.raises(ConfigError, match=message):
        recorded_power(names)


def test_runs_on_different_clocks_are_refused(folder, log, tmp_path, monkeypatch):
    def without_base(path):
        run = read_run(path)
        if path != tmp_path:
            return run
        return replace(run, traces=tuple(replace(each, origin_ns=0) for each in run.traces))

    write_traces(simulate(SimulatedJob(layers=1)), tmp_path)
    monkeypatch.setattr("jaxperf.energy.calibration._verb.read_run", without_base)
    with pytest.raises(ConfigError, match="the runs are not on one clock"):
        calibrate([folder, tmp_path], log, hardware="h100")
