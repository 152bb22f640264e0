"""Broken training logs end in one line that names file and line."""

import pytest

from jaxperf.energy._log_files import LogFiles
from jaxperf.energy.training import is_training_submission, score_training
from jaxperf.errors import LogError
from tests.energy.training_submissions import (
    event,
    log_files,
    many_runs,
    node_log,
    one_run,
    result_log,
    steady_node,
    switch_log,
)

GOOD = steady_node()


def message(logs: LogFiles) -> str:
    with pytest.raises(LogError) as caught:
        score_training(logs)
    text = str(caught.value)
    assert "\n" not in text
    return text


def broken_node(text: str) -> str:
    return message(one_run(text, 0.0, 70.0))


def test_a_line_cut_short():
    cut = GOOD[: GOOD.index("power_reading") + 30]
    assert "power/result_0/node_0.txt, line 3: not a whole MLLOG event" in broken_node(cut)


def test_a_line_cut_before_its_key():
    lines = GOOD.splitlines(keepends=True)
    lines[9] = lines[9][: lines[9].index('"key"')] + "\n"
    assert "node_0.txt, line 10: not a whole MLLOG event" in broken_node("".join(lines))


def test_a_line_that_is_no_event_is_noted_with_its_place():
    lines = GOOD.splitlines(keepends=True)
    lines[9] = "@@@@\n"
    score = score_training(one_run("".join(lines), 0.0, 70.0))
    (note,) = (note for note in score.notes if note.code == "unreadable-lines")
    assert (note.where or "").endswith("power/result_0/node_0.txt, line 10")


def test_a_reading_that_is_no_number():
    text = broken_node(node_log([(1.0, 100.0), (2.0, "100 W")], stop_s=2.0))
    assert "node_0.txt, line 4: power_reading is no power; got '100 W'" in text


def test_readings_that_are_all_zero():
    text = broken_node(steady_node(0.0))
    assert "node_0.txt, line 3: all 70 power readings are 0 W or less" in text


def test_readings_that_make_no_energy_in_all():
    dark = node_log([(0.0, 100.0), *((float(i), 0.0) for i in range(1, 71))], stop_s=70.0)
    assert "submission: no energy; got 0 J" in broken_node(dark)


def test_no_readings():
    assert "node_0.txt: no power readings" in broken_node(node_log([], stop_s=5.0))


def test_an_empty_log():
    assert "node_0.txt: no power readings" in broken_node("")


def test_an_estimate_in_place_of_readings():
    assert "node_0.txt: no power readings" in broken_node(switch_log())


def test_no_start():
    text = broken_node(node_log([(1.0, 100.0)], start_s=None, stop_s=1.0))
    assert "node_0.txt: no power_measurement_start" in text


def test_an_end_before_the_start():
    text = broken_node(node_log([(1.0, 100.0)], start_s=5.0, stop_s=2.0))
    assert "node_0.txt, line 4: the measurement ends before it starts" in text


def test_two_measurements_in_one_file():
    assert "node_0.txt, line 74: two power_measurement_start" in broken_node(GOOD + GOOD)


def test_no_reading_within_the_measurement():
    text = broken_node(node_log([(8.0, 100.0)], start_s=0.0, stop_s=4.0))
    assert "node_0.txt: no power reading within the measurement" in text


@pytest.mark.parametrize("efficiency", [94, 0, -0.5, "0.94"])
def test_an_efficiency_that_is_none(efficiency):
    text = broken_node(steady_node(efficiency=efficiency))
    assert "node_0.txt, line 2: conversion_eff is no efficiency" in text


def test_an_estimate_that_is_no_number():
    text = message(one_run(GOOD, 0.0, 70.0, switch_log("16 kW")))
    assert "sw_0.txt, line 1: interconnect_power_est is no power; got '16 kW'" in text


def test_an_estimate_below_zero():
    text = message(one_run(GOOD, 0.0, 70.0, switch_log(-5.0)))
    assert "sw_0.txt, line 1: an estimate below 0 W; got -5 W" in text


def test_blank_and_prefixed_lines_do_not_shift_the_line_that_is_named():
    prefixed = "".join(f"0: {line}\n\n" for line in GOOD.splitlines())
    bad = prefixed + "0: " + event("power_reading", 71.0, "x")
    assert "node_0.txt, line 147: power_reading is no power" in broken_node(bad)


def test_a_run_without_power_logs():
    files = many_runs([4.0, 2.0, 3.0], "gpt3")
    del files["power/result_1/node_0.txt"]
    assert "submission/result_1.txt: a run without power logs" in message(log_files(files))


def test_a_run_that_stops_before_it_starts():
    text = message(one_run(GOOD, 9.0, 2.0))
    assert "submission/result_0.txt, line 7: the run stops before it starts" in text


def test_runs_of_several_benchmarks():
    files = many_runs([4.0, 2.0, 3.0], "gpt3") | {"result_0.txt": result_log(0.0, 4.0, "bert")}
    assert "runs of several benchmarks; got bert, gpt3" in message(log_files(files))


def test_several_submissions():
    files = many_runs([4.0], "gpt3")
    both = {f"{folder}/{name}": text for folder in ("a", "b") for name, text in files.items()}
    assert "submission: several submissions; got a, b" in message(log_files(both))


def test_no_submission():
    assert "submission: no result logs" in message(log_files({"readme.txt": ""}))
    assert not is_training_submission(log_files({"readme.txt": "", "energy/results.txt": ""}))


@pytest.mark.parametrize("text", ["", "{}", '{"scaling_factor": "1.1"}', '{"scaling_factor": 0}'])
def test_a_scaling_file_without_a_factor(text):
    files = many_runs([4.0, 2.0, 3.0], "gpt3") | {"scaling.json": text}
    assert "submission/scaling.json: no scaling factor" in message(log_files(files))


def test_a_system_file_that_is_none():
    files = many_runs([4.0, 2.0, 3.0], "gpt3") | {"system.json": "[1"}
    assert "submission/system.json: not a system description" in message(log_files(files))
