"""What `energy score` prints of runs: whole names in JSON, in the table what tells them apart."""

import io
import math
from dataclasses import replace

import pytest
from rich.console import Console

from jaxperf.energy import EnergyScore, MeasuredWindow, Metric, RunScore
from jaxperf.energy._score_types import HostEnergy
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
