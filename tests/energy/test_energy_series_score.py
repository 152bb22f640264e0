"""The score of plain series: energies of hosts, and what is said of readings that lack."""

import math
import tarfile

import numpy as np
import pytest

from jaxperf.energy import score as energy_score
from jaxperf.energy._series import power_series
from jaxperf.energy._series_counter import series_of_counter
from jaxperf.energy._series_files import read_power_series, read_window
from jaxperf.energy._series_score import score_series
from jaxperf.errors import LogError

SECOND = 1_000_000_000


def series_at(seconds, power_w, host=None):
    time_ns = np.rint(np.asarray(seconds, float) * SECOND).astype(np.int64)
    return power_series(time_ns, power_w, host, "power.csv")[0]


def steady(host, power_w, begin=0, end=60):
    return series_at(np.arange(begin, end + 1), np.full(end - begin + 1, float(power_w)), host)


def seconds(begin, end):
    return begin * SECOND, end * SECOND


def outcomes(score):
    return {check.name: check.outcome for check in score.checks}


def codes(score):
    return [note.code for note in score.notes]


def test_the_case_of_another_time_zone_is_scored(shared):
    folder = shared / "cases" / "18-power-log"
    window, _ = read_window(folder / "window.json")
    series, notes = read_power_series(folder / "power_utc.csv")
    score = score_series(series, window, notes, "power_utc.csv")
    assert score.division == "series"
    assert (score.metric.name, score.metric.unit) == ("energy", "J")
    assert score.metric.value == score.energy_j == pytest.approx(1650, abs=1e-6)
    assert score.average_power_w == pytest.approx(253.846154, abs=1e-6)
    assert score.duration_s == 6.5
    assert score.official == score.run_window
    assert score.official.readings == 4
    assert math.isnan(score.official.interconnect_energy_j)
    assert codes(score) == ["missing-readings"]
    assert outcomes(score) == {
        "coverage": "pass",
        "gaps": "pass",
        "sampling-interval": "warning",
    }


def test_a_gap_is_a_warning_and_its_energy_a_note(shared):
    series, notes = read_power_series(shared / "cases" / "18-power-log" / "gap.csv")
    score = score_series(series, None, notes, "gap.csv")
    assert score.energy_j == pytest.approx(3000)
    (check,) = (check for check in score.checks if check.name == "gaps")
    assert check.outcome == "warning"
    assert "longest of GPU 0 12 s" in check.text
    assert "80.00% of the window" in check.text
    (note,) = score.notes
    assert note.code == "gap-bridged"
    assert "2400 J of 3000 J" in note.text


def test_hosts_of_their_own_times_add_up(shared):
    series, notes = read_power_series(shared / "cases" / "18-power-log" / "two_hosts.csv")
    score = score_series(series, None, notes, "two_hosts.csv")
    assert score.energy_j == pytest.approx(800)
    assert score.duration_s == pytest.approx(2)
    assert score.average_power_w == pytest.approx(400)
    assert outcomes(score)["coverage"] == "pass"


def test_a_window_counts_nothing_outside_it():
    hosts = [steady("a", 100), steady("b", 300)]
    score = score_series(hosts, seconds(10, 20), (), "power.csv")
    assert score.energy_j == pytest.approx(4000)
    assert score.official.readings == 22
    assert set(outcomes(score).values()) == {"pass"}
    assert not score.notes


def test_half_the_hosts_missing_in_the_window_fails_and_is_noted():
    hosts = [steady("a", 100), steady("b", 100, end=20), steady("c", 100), steady("d", 100, end=9)]
    score = score_series(hosts, seconds(30, 40), (), "power.csv")
    assert score.energy_j == pytest.approx(2000)
    assert outcomes(score)["coverage"] == "fail"
    (note,) = score.notes
    assert (note.code, note.where) == ("host-not-measured", "power.csv")
    assert note.text.startswith("2 of 4")
    assert note.text.endswith("b, d")


def test_a_window_that_the_readings_do_not_reach_is_noted_with_what_lacks():
    score = score_series([steady("a", 100)], seconds(50, 70), (), "power.csv")
    assert score.energy_j == pytest.approx(1000)
    assert outcomes(score)["coverage"] == "fail"
    (note,) = score.notes
    assert note.code == "window-not-covered"
    assert "0 s at the start and 10 s at the end" in note.text
    assert "50.00%" in note.text


def test_less_than_an_interval_at_an_edge_is_a_warning():
    window = 0, 60 * SECOND + SECOND // 2
    score = score_series([steady("a", 100)], window, (), "power.csv")
    assert outcomes(score)["coverage"] == "warning"
    assert codes(score) == ["window-not-covered"]


def test_a_window_without_any_reading_is_refused():
    with pytest.raises(LogError, match="power.csv: no host has readings"):
        score_series([steady("a", 100)], seconds(100, 200), (), "power.csv")


def test_a_window_that_ends_before_it_begins_is_refused():
    with pytest.raises(LogError, match="does not end after it begins"):
        score_series([steady("a", 100)], seconds(20, 10), (), "power.csv")


def test_zero_energy_is_never_silent():
    series, notes = power_series(np.arange(60) * SECOND, np.zeros(60), "a", "power.csv")
    assert codes(score_series([series], None, notes, "power.csv")) == ["zero-energy"]
    later = series_at([0, 10, 20, 30], [0, 0, 0, 50])
    assert codes(score_series([later], seconds(0, 20), (), "power.csv")) == ["zero-energy"]


def test_zeros_among_other_readings_are_counted_in_a_note():
    series, notes = power_series(
        np.arange(4) * SECOND, [100, 0, 0, 100], "a", "power.csv", line=[2, 3, 4, 5]
    )
    (note,) = score_series([series], None, notes, "power.csv").notes
    assert (note.code, note.where) == ("zero-readings", "power.csv, line 3")
    assert note.text.startswith("2 of 4 readings of a are 0 W")


def test_hosts_measured_one_after_the_other_draw_their_power_over_all_of_the_time():
    hosts = [steady("a", 1000, 0, 10), steady("b", 1000, 100, 110)]
    score = score_series(hosts, None, (), "power.csv")
    assert (score.energy_j, score.duration_s) == (20_000.0, 110.0)
    assert score.average_power_w == pytest.approx(20_000 / 110)
    assert outcomes(score)["coverage"] == "fail"
    assert codes(score) == ["window-not-covered"] * 2
    assert "of a leave out 0 s at the start and 100 s at the end" in score.notes[0].text


def test_a_host_that_joins_late_is_told_with_what_it_lacks():
    score = score_series([steady("a", 100), steady("b", 100, 30, 60)], None, (), "power.csv")
    assert score.duration_s == pytest.approx(60.0)
    assert score.average_power_w == pytest.approx((6_000 + 3_000) / 60)
    (note,) = score.notes
    assert note.code == "window-not-covered"
    assert "of b leave out 30 s at the start" in note.text
    assert outcomes(score)["coverage"] == "fail"


def test_hosts_that_begin_within_an_interval_are_measured_together():
    hosts = [steady("a", 100), series_at(np.arange(61) + 0.4, np.full(61, 300.0), "b")]
    score = score_series(hosts, None, (), "power.csv")
    assert score.duration_s == pytest.approx(60.0)
    assert score.average_power_w == pytest.approx(400.0)
    assert outcomes(score)["coverage"] == "pass"


def gpus(power_w=500):
    rows = [f"{t},{gpu},{power_w}" for t in range(3) for gpu in range(8)]
    return "\n".join(["time_s,index,power.draw [W]", *rows]) + "\n"


@pytest.mark.parametrize(
    "meter",
    ["time_s,watts\n0,6800\n2,6800\n", "time_s,wall_power [kW]\n0,6.8\n2,6.8\n"],
)
def test_accelerators_and_the_meter_of_their_node_are_not_added(tmp_path, meter):
    (tmp_path / "gpus.csv").write_text(gpus())
    assert energy_score(tmp_path).average_power_w == pytest.approx(8 * 500)
    (tmp_path / "node.csv").write_text(meter)
    with pytest.raises(LogError, match="counts energy twice; got gpus/GPU 0 and node") as caught:
        energy_score(tmp_path)
    assert "\n" not in str(caught.value)


def test_a_row_without_a_gpu_among_rows_of_gpus_is_not_added(tmp_path):
    (tmp_path / "node.csv").write_text(gpus() + "0,,6800\n2,,6800\n")
    with pytest.raises(LogError, match="counts energy twice"):
        energy_score(tmp_path / "node.csv")


def test_columns_of_power_that_are_left_out_are_named(tmp_path):
    header = "time_s,power.draw [W],power.limit [W],wall_power,dram_mw"
    (tmp_path / "node.csv").write_text(f"{header}\n0,500,700,6800,1\n1,500,700,6800,1\n")
    score = energy_score(tmp_path / "node.csv")
    assert score.average_power_w == 500
    (note,) = (note for note in score.notes if note.code == "columns-left-out")
    assert note.text.startswith("power.draw [W] is counted")
    assert note.text.endswith("are not: wall_power, dram_mw")


def test_a_counter_that_stands_still_is_noted():
    time_ns = np.arange(4) * SECOND
    _, (note,) = series_of_counter(
        time_ns, [0.0, 100.0, 100.0, 200.0], "a", "rapl", line=[2, 3, 4, 5]
    )
    assert (note.code, note.where) == ("zero-readings", "rapl, line 4")
    assert "1 of 3 intervals" in note.text


def test_energies_of_hosts_are_told_and_add_up():
    pair = [steady("a", 100), series_at([0, 1, 2, 3, 60], [200] * 5, "b")]
    score = score_series(pair, None, (), "power.csv")
    one, other = score.hosts
    assert (one.host, one.energy_j) == ("a", 6000)
    assert one.average_power_w == pytest.approx(100)
    assert (one.gaps, one.longest_gap_s) == (0, 0)
    assert (other.host, other.gaps, other.longest_gap_s) == ("b", 1, 57)
    assert one.energy_j + other.energy_j == score.energy_j


def test_a_host_without_readings_in_the_window_has_no_energy():
    pair = [steady("a", 100), steady("b", 100, 100, 160)]
    _, absent = score_series(pair, seconds(0, 60), (), "power.csv").hosts
    assert math.isnan(absent.energy_j) and math.isnan(absent.average_power_w)


def test_hosts_a_thousand_times_apart_are_suspected_and_counted():
    score = score_series([steady("a", 6000), steady("b", 6.1)], None, (), "power.csv")
    assert codes(score) == ["power-unit-suspect"]
    assert score.energy_j == pytest.approx(60 * 6006.1)
    assert not score_series([steady("a", 6000), steady("b", 21)], None, (), "power.csv").notes


def test_hosts_whose_sum_is_more_than_a_number_holds_are_refused():
    pair = [steady(host, 2e306, 0, 60) for host in "ab"]
    with pytest.raises(LogError, match=r"power.csv: more energy than a number holds"):
        score_series(pair, None, (), "power.csv")


def folder_of_two(root):
    for node in "ab":
        (root / node).mkdir(parents=True)
        text = "".join(f"2026-03-01T12:00:{s:02d}Z,100\n" for s in range(10))
        (root / node / "power.csv").write_text("time,watts\n" + text)
    (root / "window.json").write_text(
        '{"start": "2026-03-01T12:00:02Z", "stop": "2026-03-01T12:00:05Z"}'
    )


def test_an_archive_is_scored_as_its_folder_is(tmp_path):
    folder_of_two(tmp_path / "run")
    with tarfile.open(tmp_path / "run.tar.gz", "w:gz") as archive:
        archive.add(tmp_path / "run", "run")
    scores = energy_score(tmp_path / "run"), energy_score(tmp_path / "run.tar.gz")
    for score in scores:
        assert score.energy_j == pytest.approx(600)
        assert score.duration_s == 3
    assert [host.host for host in scores[0].hosts] == ["a/power", "b/power"]


def test_a_window_beside_a_single_file_is_not_taken(tmp_path):
    folder_of_two(tmp_path)
    (tmp_path / "a" / "window.json").write_text((tmp_path / "window.json").read_text())
    assert energy_score(tmp_path / "a" / "power.csv").duration_s == 9
    assert energy_score(tmp_path / "a").duration_s == 3


def test_hidden_readings_are_set_aside_with_a_note(tmp_path):
    folder_of_two(tmp_path)
    (tmp_path / "a" / "._power.csv").write_bytes(b"\0\5\x16\7")
    (tmp_path / ".copies").mkdir()
    (tmp_path / ".copies" / "power.csv").write_text((tmp_path / "a" / "power.csv").read_text())
    score = energy_score(tmp_path)
    assert score.energy_j == pytest.approx(600)
    (note,) = (note for note in score.notes if note.code == "hidden-files")
    assert note.text.startswith("2 files")
