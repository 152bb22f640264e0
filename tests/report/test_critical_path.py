"""The JSON has its keys and no NaN, and the tables fit; the answer comes first."""

import dataclasses
import io
import json
import math

import pytest
from rich.console import Console

from jaxperf.critical_path import critical_path
from jaxperf.report._critical_path import critical_path_to_json, print_critical_path
from jaxperf.simulator import SimulatedJob, simulate, write_traces

TIMES = {"critical_us", "share_percent", "sensitivity_us"}


@pytest.fixture(scope="module")
def report(traces):
    return critical_path(traces)


@pytest.fixture(scope="module")
def accused(report):
    """The same, had a rank been slow."""
    from jaxperf.critical_path._straggler import Straggler

    names = (("[red]flash_fwd", 8.5),)
    found = Straggler(1, (1,), "kernels", 30.0, 25.0, 130.0, 100.0, (0,), names)
    return dataclasses.replace(report, straggler=found)


def printed(report, width=80):
    file = io.StringIO()
    print_critical_path(report, Console(file=file, width=width))
    return file.getvalue()


def test_the_keys_are_those_of_the_page(report, accused):
    result = critical_path_to_json(accused)
    assert list(result) == [
        "step",
        "steps",
        "step_us",
        "by_class",
        "by_rank",
        "by_task",
        "by_group",
        "waits",
        "straggler",
        "path_step",
        "path",
        "notes",
    ]
    assert set(result["by_class"][0]) == {"class"} | TIMES
    rank = {"rank", "slack_us", "waited_us", "caused_us"}
    assert set(result["by_rank"][0]) == rank | TIMES
    task = {"name", "class", "rank", "count", "slack_us"}
    assert set(result["by_task"][0]) == task | TIMES
    group = {"ranks", "count", "wait_us", "transfer_us", "sensitivity_us"}
    assert set(result["by_group"][0]) == group
    assert set(result["waits"][0]) == {"rank", "for_rank", "wait_us"}
    hop = {"rank", "lane", "name", "tasks", "start_us", "own_us", "waited_for", "lag_us"}
    assert set(result["path"][0]) == hop
    assert critical_path_to_json(report)["straggler"] is None


def test_a_straggler_comes_with_its_evidence(accused):
    result = critical_path_to_json(accused)["straggler"]
    evidence = result.pop("evidence")
    assert result == {"rank": 1, "ranks": [1], "cause": "kernels", "excess_us": 30.0}
    assert evidence.pop("caused_us") == round(accused.by_rank[1].caused_us, 3)
    assert evidence == {
        "gain_us": 25.0,
        "own_us": 130.0,
        "peers_us": 100.0,
        "peers": [0],
        "names": [{"name": "[red]flash_fwd", "excess_us": 8.5}],
    }


def test_what_is_not_known_is_null(report):
    unmet = tuple(dataclasses.replace(row, slack_us=math.nan) for row in report.by_rank)
    bare = dataclasses.replace(report, by_rank=unmet, path_step=None, path=(), steps=())
    result = json.loads(json.dumps(critical_path_to_json(bare), allow_nan=False))
    assert result["by_rank"][0]["slack_us"] is None
    assert result["step"] is None and result["path_step"] is None and result["path"] == []
    assert "nan" not in printed(bare).lower()


def test_shares_add_up_to_a_hundred_percent(report):
    shares = [row["share_percent"] for row in critical_path_to_json(report)["by_class"]]
    assert sum(shares) == pytest.approx(100.0, abs=0.01)
    assert shares == sorted(shares, reverse=True)


def test_a_long_list_of_tasks_is_cut(report):
    many = dataclasses.replace(report, by_task=report.by_task * 50)
    assert len(critical_path_to_json(many)["by_task"]) == 100


def test_the_answer_comes_first_and_fits_80_columns(report):
    lines = printed(report).splitlines()
    assert lines[0].startswith("Mean of 3 steps: ")
    assert lines[1].startswith("Critical path: ")
    assert lines[2].startswith("No rank is so slow that the step suffers")
    assert max(map(len, lines)) <= 80
    titles = ["By class", "By task", "By rank", "Who waits for whom, per step"]
    assert [line for line in lines if line in titles] == titles
    assert f"The path of {report.path_step}" in lines


def test_a_straggler_is_named_in_the_answer(accused):
    text = " ".join(printed(accused).split())
    assert "Rank 1 holds the others up by its kernels: they take 130.0 µs of a step, " in text
    assert "of a step, those of its peers 100.0 µs. Without" in text
    assert "Without that the step would be 25.00 µs shorter." in text
    link = dataclasses.replace(accused.straggler, rank=None, ranks=(2, 3), cause="link", peers=())
    text = " ".join(printed(dataclasses.replace(accused, straggler=link)).split())
    assert "One of the ranks 2, 3 holds the others up by its link: it takes 130.0 µs" in text


def test_what_looks_like_markup_is_printed_as_it_is(report):
    odd = dataclasses.replace(report.by_task[0], name="[bold]kernel[/bold]")
    assert "[bold]kernel[/bold]" in printed(dataclasses.replace(report, by_task=(odd,)))
    assert "\x1b" not in printed(report)


@pytest.mark.parametrize(
    "data_parallel, expected",
    [(1, "One rank, which communicates with nobody."), (2, "Of one rank alone nothing says")],
)
def test_one_rank_accuses_nobody(tmp_path, data_parallel, expected):
    job = SimulatedJob(layers=1, data_parallel=data_parallel, steps=2)
    first = write_traces(simulate(job), tmp_path)[0]
    assert expected in printed(critical_path(first))
