"""What `energy score` prints of runs: whole names in JSON, in the table what tells them apart."""

import io
import math
import re
import tarfile
from dataclasses import replace

import pytest
from rich.console import Console

from jaxperf.config._toml import one_of, read_toml
from jaxperf.energy import EnergyScore, MeasuredWindow, Metric, RunScore, score as score_logs
from jaxperf.energy._score_types import HostEnergy
from jaxperf.errors import ConfigError, LogError
from jaxperf.report import print_score, score_to_json

WINDOW = MeasuredWindow(1_882_575.0, 6795.1, 277.0, math.nan, 140)


def score_of(*names: str, flags: tuple[str, ...] = ()) -> EnergyScore:
    runs = tuple(RunScore(name, True, 277.0, WINDOW, WINDOW, flags) for name in names)
    metric = Metric("energy_to_train", WINDOW.energy_j, "J")
    of_window = (WINDOW.average_power_w, WINDOW.energy_j, WINDOW.duration_s, WINDOW, WINDOW)
    return EnergyScore(
        "logs", "training", "bert", None, None, metric, None, *of_window, runs, (), ()
    )


def printed(score: EnergyScore) -> list[str]:
    file = io.StringIO()
    print_score(score, Console(file=file, width=80))
    return [line.strip() for line in file.getvalue().splitlines()]


NAME = "result_5119-240510190348838227199_{:02d}"


@pytest.mark.parametrize("count", [1, 3])
def test_a_long_name_of_a_run_does_not_wrap_its_row(count):
    names = [NAME.format(i) for i in range(count)]
    lines = printed(score_of(*names, flags=("switch_as_readings_ignored_by_summarizer",)))
    assert "Runs result_5119-240510190348838227199_*" in lines
    rows = [line for line in lines if "switch left out" in line]
    assert [row.split()[0] for row in rows] == [f"{i:02d}" for i in range(count)]


def test_json_keeps_names_and_flags_whole():
    flag = "switch_as_readings_ignored_by_summarizer"
    (run,) = score_to_json(score_of(NAME.format(7), flags=(flag,)))["runs"]
    assert (run["name"], run["flags"]) == (NAME.format(7), [flag])


def test_hosts_are_told_where_there_are_several():
    hosts = HostEnergy("a", 200.0, 100.0, 0, 0.0), HostEnergy("b", math.nan, math.nan, 1, 12.0)
    score = replace(score_of(), division="series", hosts=hosts)
    (row,) = (line.split() for line in printed(score) if line.startswith("b "))
    assert row[-2:] == ["1", "12"]
    assert score_to_json(score)["hosts"][1] == {
        "host": "b",
        "energy_j": None,
        "average_power_w": None,
        "gaps": 1,
        "longest_gap_s": 12.0,
    }
    assert "Hosts" not in printed(replace(score, hosts=hosts[:1]))


def test_names_without_a_common_word_stand_whole():
    lines = printed(score_of("alpha", "beta"))
    assert {"alpha", "beta"} <= {line.split()[0] for line in lines if line}


def test_a_score_without_runs_has_no_table_of_them():
    assert not any(line.startswith("Runs") for line in printed(replace(score_of(), runs=())))


def test_plain_readings_have_one_window_and_so_one_column():
    lines = printed(replace(score_of(), division="series"))
    assert not any("run alone" in line for line in lines)
    assert ["energy, J", "1,882,580"] in [re.split("  +", line) for line in lines]
    assert any("run alone" in line for line in printed(score_of()))


@pytest.mark.parametrize("kind", ["folder", "archive"])
def test_of_several_tiny_benchmarks_only_an_archive_has_to_be_unpacked(tmp_path, kind):
    for name in ("ic", "kws"):
        (tmp_path / "tiny" / name / "energy").mkdir(parents=True)
        (tmp_path / "tiny" / name / "energy" / "results.txt").touch()
    path = tmp_path / "tiny"
    if kind == "archive":
        path = tmp_path / "tiny.tar"
        with tarfile.open(path, "w") as archive:
            archive.add(tmp_path / "tiny", ".")
    with pytest.raises(LogError, match="name the folder of one") as caught:
        score_logs(path)
    assert ("unpacked" in str(caught.value)) == (kind == "archive")


def test_a_folder_of_archives_asks_for_one_of_them(tmp_path):
    (tmp_path / "one.tar.xz").touch()
    with pytest.raises(LogError, match="name one of the archives"):
        score_logs(tmp_path)


def test_a_window_on_another_clock_is_refused_with_both_ranges(tmp_path):
    log, window = tmp_path / "log.csv", tmp_path / "window.json"
    log.write_text("time,watts\n2026-03-01T12:00:00Z,410\n2026-03-01T12:00:02Z,640\n")
    window.write_text('{"start": 1, "stop": 2}')
    with pytest.raises(LogError) as caught:
        score_logs(log, window=window)
    text = str(caught.value)
    assert "window from 1970-01-01T00:00:01.000Z to 1970-01-01T00:00:02.000Z" in text
    assert "readings from 2026-03-01T12:00:00.000Z to 2026-03-01T12:00:02.000Z" in text


def test_times_without_a_zone_name_the_option(tmp_path):
    log = tmp_path / "log.csv"
    log.write_text("time,watts\n2026-03-01T12:00:00,410\n2026-03-01T12:00:02,640\n")
    (note,) = (note for note in score_logs(log).notes if note.code == "zone-assumed")
    assert "--zone" in note.text


def test_a_word_or_key_that_is_not_known_lists_all_where_they_are_few():
    assert one_of("blck", ["row", "block"]) == "one of block, row"
    many = [f"word{i}" for i in range(20)]
    assert one_of("word19", many).startswith("one of word19, ")
    assert one_of("word19", many).endswith(", ..")


def test_a_table_given_as_toml_is_refused_with_a_remedy(tmp_path):
    path = tmp_path / "tables.csv"
    path.write_text("name,rows\na,1\n")
    with pytest.raises(ConfigError, match=r"tables\.csv: not valid TOML; .*; name a TOML file"):
        read_toml(path)
