"""Power, energy and efficiency of sessions whose figures are worked by hand."""

import math
import tarfile
from typing import Any

import pytest

from jaxperf.energy._log_files import LogFiles, open_logs
from jaxperf.energy.inference import score_inference
from jaxperf.errors import LogError
from tests.energy.inference_sessions import FIRST_LOAD_S, made_session, samples

FIRST_S = FIRST_LOAD_S["run_1"]
SPL = "run_1/spl.txt"


def ramp(at: float) -> float:
    """Watts that grow by 2 each second: 1000 where the load begins."""
    return 1000.0 + 2.0 * at


def codes(score) -> set[str]:
    return {note.code for note in score.notes}


def score_with_samples(change, power_w=ramp):
    """The score of a session after a change of the lines of its `spl.txt`."""
    made = made_session(power_w=power_w)
    lines = made.files[SPL].decode().splitlines()
    made.files[SPL] = "\n".join(change(lines)).encode()
    return score_inference(made.logs())


def test_steady_power_makes_energy_by_duration():
    score = score_inference(made_session(power_w=lambda at: 500.0).logs())
    assert score.metric.value == pytest.approx(500.0)
    assert (score.metric.name, score.metric.unit) == ("average power", "W")
    for window in (score.official, score.run_window):
        assert window.energy_j == pytest.approx(500.0 * 60.0)
        assert window.average_power_w == pytest.approx(500.0)
        assert window.duration_s == 60.0
        assert window.readings == 60
        assert math.isnan(window.interconnect_energy_j)
    assert score.notes == ()


def test_the_official_average_takes_samples_alone_the_run_window_the_integral():
    score = score_inference(made_session(power_w=ramp).logs())
    # Samples lie at 0.25, 1.25, .., 59.25 s; the integral of 1000 + 2 t to 60 s is 63,600 J.
    assert score.official.average_power_w == pytest.approx(1000 + 2 * 29.75, rel=1e-12)
    assert score.run_window.energy_j == pytest.approx(63_600.0, rel=1e-9)


@pytest.mark.parametrize("scenario", ["Offline", "Server"])
def test_the_efficiency_of_a_throughput_is_samples_by_joules(scenario):
    made = made_session(scenario=scenario, result_scheduled_samples_per_sec=1000.0)
    score = score_inference(made.logs())
    assert score.scenario == scenario
    assert score.efficiency is not None
    assert (score.efficiency.name, score.efficiency.unit) == ("samples per joule", "1/J")
    assert score.efficiency.value == pytest.approx(1000.0 / 500.0)


def test_a_server_counts_what_it_completed_where_loadgen_reports_that():
    rates: dict[str, Any] = {
        "result_scheduled_samples_per_sec": 10.0,
        "result_completed_samples_per_sec": 9.0,
    }
    made = made_session(scenario="Server", **rates)
    made.files["run_1/mlperf_log_summary.txt"] = b"Completed samples per second    : 9.00\n"
    score = score_inference(made.logs())
    assert score.efficiency is not None
    assert score.efficiency.value == pytest.approx(9.0 / 500.0)


def test_tokens_are_counted_where_loadgen_counts_them():
    score = score_inference(made_session(result_tokens_per_second=50_000.0).logs())
    assert score.efficiency is not None
    assert score.efficiency.name == "tokens per joule"
    assert score.efficiency.value == pytest.approx(100.0)


@pytest.mark.parametrize(("scenario", "samples_each"), [("SingleStream", 1), ("MultiStream", 8)])
def test_a_stream_reports_energy_per_query(scenario, samples_each):
    score = score_inference(made_session(scenario=scenario, result_query_count=6000).logs())
    assert (score.metric.name, score.metric.unit) == ("energy per query", "mJ")
    assert score.metric.value == pytest.approx(500.0 * 60.0 * 1000 / 6000)
    assert score.efficiency is not None
    assert score.efficiency.value == pytest.approx(samples_each / 5.0)


def test_a_stream_of_loadgen_before_2_is_counted_by_its_rate():
    made = made_session(scenario="SingleStream", result_qps_with_loadgen_overhead=100.0)
    score = score_inference(made.logs())
    assert score.metric.value == pytest.approx(500.0 / 100.0 * 1000)
    assert codes(score) == {"query-rate-taken"}


def test_a_stream_whose_queries_nobody_counted_has_no_metric_but_a_note():
    score = score_inference(made_session(scenario="SingleStream").logs())
    assert math.isnan(score.metric.value)
    assert score.efficiency is None
    assert score.energy_j == pytest.approx(30_000.0)
    assert codes(score) == {"query-count-missing"}


def test_a_multi_stream_inferred_from_a_single_stream_takes_eight_queries(tmp_path):
    folder = tmp_path / "results/system_a/resnet50/MultiStream/performance"
    made_session(scenario="SingleStream", result_query_count=6000).write(folder)
    score = score_inference(open_logs(folder))
    assert (score.system, score.benchmark, score.scenario) == (
        "system_a",
        "resnet50",
        "MultiStream",
    )
    assert score.metric.value == pytest.approx(8 * 5000.0)
    assert score.efficiency is not None
    assert score.efficiency.value == pytest.approx(8 / 40.0)
    assert codes(score) == {"multistream-inferred"}


def test_interactive_is_told_by_its_folder_alone(tmp_path):
    folder = tmp_path / "results/system_a/llama2-70b-99/Interactive/performance"
    made_session(scenario="Server").write(folder)
    score = score_inference(open_logs(folder))
    assert score.scenario == "Interactive"
    assert score.metric.unit == "W"
    assert score.notes == ()


def test_a_folder_of_another_scenario_than_the_log_is_not_followed(tmp_path):
    folder = tmp_path / "results/system_a/resnet50/SingleStream/performance"
    made_session(scenario="Offline").write(folder)
    score = score_inference(open_logs(folder))
    assert score.scenario == "Offline"
    assert codes(score) == {"scenario-differs"}


def test_a_session_is_found_below_the_named_folder(tmp_path):
    folder = tmp_path / "results/system_a/resnet50/Offline/performance"
    made_session().write(folder)
    score = score_inference(open_logs(tmp_path))
    assert (score.system, score.benchmark) == ("system_a", "resnet50")
    assert score.source == str(folder)


def test_several_sessions_are_not_chosen_from(tmp_path):
    for system in "abcd":
        made_session().write(tmp_path / system)
    with pytest.raises(LogError, match=r"4 sessions; got a, b, c, \.\.; .*name one"):
        score_inference(open_logs(tmp_path))


def test_an_archive_is_read_as_the_folder_in_it(tmp_path):
    made_session().write(tmp_path / "session")
    archive = tmp_path / "v5-1-a-llama3-1-8b-edge-offline.tar.xz"
    with tarfile.open(archive, "w:xz") as file:
        for name in ("power", "ranging", "run_1"):
            file.add(tmp_path / "session" / name, name)
    score = score_inference(open_logs(archive))
    assert score.energy_j == pytest.approx(30_000.0)
    assert score.benchmark == "llama3.1-8b-edge"
    assert codes(score) == {"benchmark-from-name"}


def test_channels_after_the_totals_are_passed_over():
    channel = ",Ch1,Watts,1.0,Volts,240.0,Amps,3.4,PF,0.9"
    score = score_with_samples(lambda lines: [line + channel for line in lines])
    assert score == score_with_samples(lambda lines: lines)


def test_the_system_is_named_by_its_description():
    made = made_session()
    made.files["system.json"] = b'{"system_name": "Server A"}'
    assert score_inference(made.logs()).system == "Server A"


def test_the_order_of_samples_does_not_matter_to_energy_and_is_noted():
    score = score_with_samples(lambda lines: [*lines[:42], lines[40], *lines[42:], lines[-1]])
    assert score.run_window.energy_j == pytest.approx(63_600.0, rel=1e-9)
    assert codes(score) == {"unsorted-readings", "duplicate-readings"}
    places = {note.code: note.where for note in score.notes}
    assert places["unsorted-readings"] == "made/run_1/spl.txt, line 43"


def test_a_gap_is_bridged_by_the_integral_and_noted():
    score = score_with_samples(lambda lines: lines[:50] + lines[60:])
    assert score.run_window.energy_j == pytest.approx(63_600.0, rel=1e-9)
    assert score.official.average_power_w != pytest.approx(1059.5, rel=1e-3)
    (note,) = score.notes
    assert (note.code, note.where) == ("gap-bridged", "made/run_1/spl.txt, line 51")
    assert "the longest 11 s" in note.text


def test_an_interval_of_three_usual_ones_is_no_gap_and_a_longer_one_is():
    assert codes(score_with_samples(lambda lines: lines[:50] + lines[51:])) == set()
    assert codes(score_with_samples(lambda lines: lines[:50] + lines[52:])) == set()
    assert codes(score_with_samples(lambda lines: lines[:50] + lines[53:])) == {"gap-bridged"}


@pytest.mark.parametrize("said_by", ["detail", "summary"])
def test_an_invalid_result_is_scored_with_a_note(said_by):
    logged: dict[str, Any] = {"result_validity": "INVALID"} if said_by == "detail" else {}
    made = made_session(**logged)
    if said_by == "summary":
        made.files["run_1/mlperf_log_summary.txt"] = b"Result is : INVALID\n"
    score = score_inference(made.logs())
    assert score.energy_j == pytest.approx(30_000.0)
    (note,) = score.notes
    assert (note.code, note.where) == ("result-invalid", "made/run_1/mlperf_log_detail.txt")


def test_a_valid_result_has_no_note():
    assert score_inference(made_session(result_validity="VALID").logs()).notes == ()


def test_a_single_sample_holds_for_the_whole_window():
    score = score_with_samples(lambda lines: lines[60:61])
    assert score.run_window.energy_j == pytest.approx(60.0 * score.average_power_w)
    assert "window-not-covered" in codes(score)


def test_a_sample_with_a_damaged_date_stays_far_from_the_window():
    year = lambda lines: [*lines, lines[-1].replace("-2025 ", "-9999 ")]
    score = score_with_samples(year)
    assert score.run_window.energy_j == pytest.approx(63_600.0, rel=1e-9)


def test_samples_that_end_early_are_noted():
    score = score_with_samples(lambda lines: lines[:60], power_w=lambda at: 500.0)
    assert score.run_window.energy_j == pytest.approx(30_000.0)
    (note,) = score.notes
    assert (note.code, note.text[:24]) == ("window-not-covered", "no samples for 30.8 s at")


def test_readings_of_a_failed_analyzer_are_left_out_and_noted():
    score = score_with_samples(
        lambda lines: [line.replace("Watts,1030.5", "Watts,-1.0") for line in lines]
    )
    assert score.official.readings == 59
    assert score.official.average_power_w == pytest.approx((60 * 1059.5 - 1030.5) / 59)
    assert score.run_window.energy_j == pytest.approx(63_600.0, rel=1e-9)
    assert {note.code: note.where for note in score.notes} == {
        "zero-readings": "made/run_1/spl.txt, line 46"
    }


def test_an_analyzer_in_another_time_zone_is_moved_to_loadgens_clock():
    made = made_session()
    for phase, first_s in FIRST_LOAD_S.items():
        made.files[f"{phase}/spl.txt"] = samples(first_s - 7 * 3600, 60.0, ramp, phase)
    score = score_inference(made.logs())
    assert score.run_window.energy_j == pytest.approx(63_600.0, rel=1e-9)
    assert codes(score) == {"clock-zones-differ"}
    assert all("-7 h" in note.text for note in score.notes)


def test_loadgen_and_analyzer_in_local_time_are_noted():
    made = made_session()
    for record in (made.client, made.server):
        for phase in record["phases"].values():
            for checkpoint in phase:
                checkpoint[0] += 5 * 3600
    score = score_inference(made.logs())
    assert score.energy_j == pytest.approx(30_000.0)
    assert {check.name for check in score.checks if check.outcome == "fail"} == {
        "Check time difference"
    }
    (note,) = score.notes
    assert (note.code, "-5 h" in note.text) == ("clock-not-utc", True)


def test_reading_a_session_twice_gives_the_same_score():
    logs: LogFiles = made_session().logs()
    assert repr(score_inference(logs)) == repr(score_inference(logs))
