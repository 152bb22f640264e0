"""Scores of training submissions, against values worked by hand."""

import json

import numpy as np
import pytest

from jaxperf.energy._score_types import EnergyScore
from jaxperf.energy.training import read_runs, score_training
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

READINGS = ((1.0, 100.0), (3.0, 200.0), (4.0, 300.0))
"""From 0 to 4 s: 100 J, 400 J and 300 J, a mean of 200 W. From 2 to 4 s: 200 J and 300 J."""


def outcomes(score: EnergyScore) -> dict[str, str]:
    return {check.name: check.outcome for check in score.checks}


def codes(score: EnergyScore) -> list[str]:
    return [note.code for note in score.notes]


def note(score: EnergyScore, code: str):
    return next(note for note in score.notes if note.code == code)


def test_the_official_energy_is_mean_power_of_the_measurement_times_the_time_of_the_run():
    score = score_training(one_run(node_log(READINGS, stop_s=4.0), 2.0, 4.0))
    assert score.official.energy_j == pytest.approx(200.0 * 2.0)
    assert score.average_power_w == pytest.approx(200.0)
    assert score.duration_s == 2.0
    assert (score.division, score.benchmark) == ("training", "gpt3")
    assert (score.metric.name, score.metric.unit) == ("energy_to_train", "J")
    assert score.metric.value == score.energy_j == score.official.energy_j


def test_the_run_window_counts_each_reading_from_the_one_before_and_cuts_it_to_the_run():
    score = score_training(one_run(node_log(READINGS, stop_s=4.0), 2.0, 4.0))
    assert score.run_window.energy_j == pytest.approx(200.0 * 1.0 + 300.0 * 1.0)
    assert score.run_window.readings == 2


def test_a_run_that_goes_on_after_the_last_reading_is_taken_at_the_mean_of_what_is_covered():
    score = score_training(one_run(node_log(READINGS, stop_s=4.0), 2.0, 6.0))
    assert score.run_window.energy_j == pytest.approx(4.0 * 500.0 / 2.0)
    assert outcomes(score)["readings cover the run"] == "fail"


def test_readings_are_multiplied_by_the_conversion_efficiency_and_estimates_are_not():
    log = node_log(READINGS, stop_s=4.0, efficiency=0.9)
    score = score_training(one_run(log, 2.0, 4.0, switch_log(50.0)))
    assert score.official.energy_j == pytest.approx(0.9 * 400.0 + 100.0)
    assert score.run_window.energy_j == pytest.approx(0.9 * 500.0 + 100.0)
    assert score.official.interconnect_energy_j == pytest.approx(100.0)
    assert outcomes(score)["conversion efficiency given"] == "pass"


def test_a_submission_without_switches_does_not_claim_that_they_took_nothing():
    score = score_training(one_run(node_log(READINGS, stop_s=4.0), 2.0, 4.0))
    assert np.isnan(score.official.interconnect_energy_j)


def test_without_an_efficiency_one_is_taken_and_noted():
    score = score_training(one_run(node_log(READINGS, stop_s=4.0, efficiency=None), 2.0, 4.0))
    assert score.official.energy_j == pytest.approx(400.0)
    assert outcomes(score)["conversion efficiency given"] == "warning"
    assert "conversion-efficiency-assumed" in codes(score)


@pytest.mark.parametrize("stop_s", [0.0, -3600.0])
def test_a_stop_that_is_not_after_the_start_makes_the_last_reading_the_end(stop_s):
    score = score_training(one_run(node_log(READINGS, stop_s=stop_s), 2.0, 4.0))
    assert score.official.energy_j == pytest.approx(400.0)
    assert score.runs[0].flags == ("stop<=start",)
    assert outcomes(score)["the measurement stops after it starts"] == "fail"
    assert note(score, "stop-at-start").where == "submission/power/result_0/node_0.txt, line 6"


def test_a_missing_stop_makes_the_last_reading_the_end():
    score = score_training(one_run(node_log(READINGS), 2.0, 4.0))
    assert score.official.energy_j == pytest.approx(400.0)
    assert score.runs[0].flags == ()
    assert "no-power-stop" in codes(score)


def test_readings_out_of_order_are_sorted_by_time():
    shuffled = (READINGS[1], READINGS[0], READINGS[2])
    score = score_training(one_run(node_log(shuffled, stop_s=4.0), 2.0, 4.0))
    assert score.official.energy_j == pytest.approx(400.0)
    assert score.run_window.energy_j == pytest.approx(500.0)
    assert outcomes(score)["readings in order of time"] == "warning"
    assert note(score, "unsorted-readings").where == "submission/power/result_0/node_0.txt, line 4"


def test_readings_outside_the_measurement_are_left_out():
    stray = ((-5.0, 9e3), *READINGS, (9.0, 9e3))
    score = score_training(one_run(node_log(stray, stop_s=4.0), 2.0, 4.0))
    assert score.official.energy_j == pytest.approx(400.0)
    assert "(2)" in note(score, "readings-outside-measurement").text


def test_a_reading_of_the_same_time_as_the_one_before_has_no_weight():
    double = (READINGS[0], READINGS[1], (3.0, 9e3), READINGS[2])
    score = score_training(one_run(node_log(double, stop_s=4.0), 2.0, 4.0))
    assert score.official.energy_j == pytest.approx(400.0)
    assert str(note(score, "duplicate-readings").where).endswith("node_0.txt, line 5")


def test_single_readings_of_zero_count_and_are_noted_with_their_line():
    dark = (READINGS[0], (3.0, 0.0), READINGS[2])
    score = score_training(one_run(node_log(dark, stop_s=4.0), 2.0, 4.0))
    assert score.official.energy_j == pytest.approx(2.0 * (100.0 + 0.0 + 300.0) / 4.0)
    assert outcomes(score)["readings above zero"] == "warning"
    assert str(note(score, "zero-readings").where).endswith("node_0.txt, line 4")


def test_a_switch_logged_as_readings_counts_nothing_and_is_flagged():
    switch = node_log(((1.0, 600.0), (4.0, 600.0)), stop_s=4.0)
    score = score_training(one_run(node_log(READINGS, stop_s=4.0), 2.0, 4.0, switch))
    assert score.official.energy_j == pytest.approx(400.0)
    assert score.official.interconnect_energy_j == score.run_window.interconnect_energy_j == 0.0
    assert score.runs[0].flags == ("switch_as_readings_ignored_by_summarizer",)
    assert outcomes(score)["switches logged as estimates"] == "fail"
    assert "600 W" in note(score, "switch-not-counted").text


def test_windows_that_differ_by_more_than_one_percent_are_flagged_with_both_energies():
    score = score_training(one_run(node_log(READINGS, stop_s=4.0), 2.0, 4.0))
    check = next(c for c in score.checks if c.name == "official energy is that of the run")
    assert check.outcome == "warning"
    assert "0.50 kJ, +25.0 % against the official 0.40 kJ" in check.text


def test_power_and_run_on_clocks_that_differ_leave_the_run_window_unknown():
    score = score_training(one_run(node_log(READINGS, stop_s=4.0), 3600.0, 3602.0))
    assert score.official.energy_j == pytest.approx(400.0)
    assert np.isnan(score.run_window.energy_j)
    assert outcomes(score)["official energy is that of the run"] == "fail"
    assert "no-readings-in-run" in codes(score)


def test_the_fastest_and_the_slowest_run_do_not_count_and_the_middle_of_three_does():
    score = score_training(log_files(many_runs([4.0, 2.0, 3.0], "gpt3")))
    assert [run.counted for run in score.runs] == [False, False, True]
    assert score.energy_j == pytest.approx(9.0)
    assert outcomes(score)["enough runs"] == "pass"


def test_unet3d_leaves_out_four_runs_at_each_end():
    durations_s = [float(run) for run in range(1, 13)]
    score = score_training(log_files(many_runs(durations_s, "unet3d")))
    assert score.energy_j == pytest.approx(np.mean([25.0, 36.0, 49.0, 64.0]))
    assert outcomes(score)["enough runs"] == "fail"


def test_hpc_is_scored_as_training_is():
    score = score_training(log_files(many_runs([1.0, 2.0, 3.0, 4.0, 5.0], "deepcam")))
    assert score.division == "hpc"
    assert score.energy_j == pytest.approx(np.mean([4.0, 9.0, 16.0]))
    assert outcomes(score)["enough runs"] == "pass"


def test_the_scaling_factor_of_a_review_scales_energy_and_time_but_no_power():
    files = many_runs([4.0, 2.0, 3.0], "gpt3") | {"scaling.json": '{"scaling_factor": 1.1}'}
    score = score_training(log_files(files))
    assert score.energy_j == pytest.approx(1.1 * 9.0)
    assert score.run_window.energy_j == pytest.approx(1.1 * 9.0)
    assert score.duration_s == pytest.approx(1.1 * 3.0)
    assert score.average_power_w == pytest.approx(3.0)
    assert score.runs[2].official.energy_j == pytest.approx(9.0)
    (note,) = (note for note in score.notes if note.code == "convergence-factor")
    assert "multiplied by 1.1, the factor of scaling.json" in note.text


@pytest.mark.parametrize(
    "failed", [result_log(0.0, 2.0, status="aborted"), result_log(0.0, None), result_log(None, 2.0)]
)
def test_a_run_that_did_not_converge_is_one_of_the_slowest(failed):
    files = many_runs([4.0, 2.0, 3.0], "gpt3") | {"result_1.txt": failed}
    score = score_training(log_files(files))
    assert [run.counted for run in score.runs] == [True, False, False]
    assert score.runs[1].flags == ("not_converged",)
    assert note(score, "run-not-converged").where == "submission/result_1.txt"


def test_more_failed_runs_than_the_scoring_leaves_out_have_no_score():
    failed = result_log(0.0, 2.0, status="aborted")
    files = many_runs([4.0, 2.0, 3.0], "gpt3") | {"result_0.txt": failed, "result_1.txt": failed}
    with pytest.raises(LogError, match="submission: too many runs that did not converge; got 2 of"):
        score_training(log_files(files))


def test_a_single_run_is_scored_alone_with_a_note():
    score = score_training(one_run(steady_node(), 0.0, 70.0))
    assert score.energy_j == pytest.approx(70e3)
    assert "too-few-runs" in codes(score)
    assert outcomes(score)["enough runs"] == "fail"


def test_a_sound_run_passes_every_check_but_the_number_of_runs():
    score = score_training(one_run(steady_node(), 0.0, 70.0, switch_log()))
    assert {name for name, outcome in outcomes(score).items() if outcome != "pass"} == {
        "enough runs"
    }


def test_slow_sampling_fails_and_names_the_file_and_the_interval():
    readings = [(2.0 * i, 1000.0) for i in range(1, 71)]
    score = score_training(one_run(node_log(readings, stop_s=140.0), 0.0, 140.0))
    check = next(c for c in score.checks if c.name == "a reading every second")
    assert check.outcome == "fail"
    assert "power/result_0/node_0.txt" in check.text
    assert "2.000 s" in check.text
    assert outcomes(score)["at least 60 readings"] == "pass"


@pytest.mark.parametrize(("every_s", "outcome"), [(1.0, "pass"), (2.0, "fail")])
def test_a_long_gap_is_a_warning_however_slow_the_sampling(every_s, outcome):
    for resumes, gaps in ((32, "pass"), (33, "warning"), (40, "warning")):
        readings = [(every_s * i, 1000.0) for i in range(1, 71) if not 30 <= i < resumes]
        stop_s = 70.0 * every_s
        score = score_training(one_run(node_log(readings, stop_s=stop_s), 0.0, stop_s))
        found = outcomes(score)
        assert (found["a reading every second"], found["no gaps between readings"]) == (
            outcome,
            gaps,
        )


def test_one_reading_beyond_reason_is_suspected_and_counted():
    readings = [(float(i), 9e9 if i == 40 else 1000.0) for i in range(1, 71)]
    score = score_training(one_run(node_log(readings, stop_s=70.0), 0.0, 70.0))
    (found,) = (note for note in score.notes if note.code == "power-unit-suspect")
    assert (found.where or "").endswith("node_0.txt, line 42")
    assert score.energy_j == pytest.approx(69 * 1000.0 + 9e9)


def test_power_beyond_what_a_number_holds_is_no_energy():
    readings = [(float(i), 1e308) for i in range(1, 71)]
    with pytest.raises(LogError, match="no energy"):
        score_training(one_run(node_log(readings, stop_s=70.0), 0.0, 70.0))


def test_fewer_than_sixty_readings_fail():
    score = score_training(one_run(steady_node(seconds=59), 0.0, 59.0))
    assert outcomes(score)["at least 60 readings"] == "fail"


def nodes(run: int, indices: range) -> dict[str, str]:
    return {f"power/result_{run}/node_{k}.txt": steady_node() for k in indices} | {
        f"result_{run}.txt": result_log(0.0, 70.0 + run)
    }


@pytest.mark.parametrize("first", [0, 1])
def test_nodes_count_from_zero_or_one(first):
    files = {}
    for run in range(3):
        files |= nodes(run, range(first, first + 4))
    files["system.json"] = json.dumps({"system_name": "four nodes", "number_of_nodes": "4"})
    score = score_training(log_files(files))
    assert outcomes(score)["all nodes in every run"] == "pass"
    assert score.system == "four nodes"
    assert score.average_power_w == pytest.approx(4000.0)


@pytest.mark.parametrize("known_from", ["other runs", "system.json"])
def test_half_of_the_nodes_missing_fails_and_is_noted(known_from):
    files = nodes(0, range(4)) | nodes(1, range(4)) | nodes(2, range(2))
    if known_from == "system.json":
        files = nodes(0, range(2)) | nodes(1, range(2)) | nodes(2, range(2))
        files["system.json"] = json.dumps({"number_of_nodes": "4"})
    score = score_training(log_files(files))
    assert outcomes(score)["all nodes in every run"] == "fail"
    assert "2 of 4 nodes" in note(score, "nodes-missing").text
    assert score.runs[2].flags == ("nodes_missing",)


def test_a_switch_missing_in_one_run_fails():
    files = {}
    for run in range(3):
        files |= nodes(run, range(2))
    files |= {f"power/result_{run}/sw_0.txt": switch_log() for run in range(2)}
    score = score_training(log_files(files))
    assert outcomes(score)["switches logged as estimates"] == "fail"


@pytest.mark.parametrize("power_w", [6.7, 6.7e6])
def test_power_in_kilowatts_or_milliwatts_is_suspected(power_w):
    score = score_training(one_run(steady_node(power_w), 0.0, 70.0))
    found = note(score, "power-unit-suspect")
    assert f"{power_w:.6g} W" in found.text
    assert found.where == "submission/power/result_0/node_0.txt, line 3"


def test_one_node_in_another_unit_than_the_rest_is_suspected():
    files = nodes(0, range(3)) | {"power/result_0/node_1.txt": steady_node(150e3)}
    score = score_training(log_files(files))
    assert str(note(score, "power-unit-suspect").where).endswith("node_1.txt, line 3")


def test_power_logs_without_a_result_log_are_set_aside():
    files = many_runs([4.0, 2.0, 3.0], "gpt3")
    files["power/result_9/node_0.txt"] = steady_node()
    score = score_training(log_files(files))
    assert len(score.runs) == 3
    assert note(score, "power-without-result").where == "submission/power/result_9"


def test_the_one_submission_below_a_folder_is_found():
    files = {
        f"results/gpt3/{name}": text for name, text in many_runs([4.0, 2.0, 3.0], "gpt3").items()
    }
    assert score_training(log_files(files)).energy_j == pytest.approx(9.0)


def test_a_result_log_tells_batch_and_median_throughput():
    run = read_runs(one_run(steady_node(), 0.0, 70.0))[0]
    assert run.result.global_batch == 8.0
    assert run.result.samples_per_s == 3.0


def test_of_several_starts_the_last_before_the_first_stop_counts():
    lines = [event("run_start", 1.0), event("run_start", 3.0)]
    lines += [event("run_stop", 5.0, status="success"), event("run_stop", 9.0, status="aborted")]
    files = {"result_0.txt": "\n".join(lines), "power/result_0/node_0.txt": steady_node()}
    result = read_runs(log_files(files))[0].result
    assert (result.duration_s, result.converged) == (2.0, True)
