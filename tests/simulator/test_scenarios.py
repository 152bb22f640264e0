"""The scenarios show what they say, and the page's examples run."""

import gzip
import json
import re
from pathlib import Path

import pytest

from tests.scenarios import SCENARIOS

PAGE = Path(__file__).resolve().parents[2] / "docs" / "simulator.md"


def events(scenario, folder, **options):
    (path,) = scenario.write(folder, **options)
    return json.loads(gzip.decompress(path.read_bytes()))["traceEvents"]


def named(rows, name):
    return [row for row in rows if row["name"] == name and row["ph"] == "X"]


@pytest.mark.parametrize("name", SCENARIOS)
def test_a_scenario_is_one_rank_of_three_steps_and_the_same_each_time(name):
    scenario = SCENARIOS[name]
    run = scenario.run()
    assert list(run.ranks) == [0]
    assert run.ranks[0].step_names == tuple(f"ProfilerStep#{i}" for i in (1, 2, 3))
    assert run.steps_us == scenario.run({}).steps_us


@pytest.mark.parametrize("name", SCENARIOS)
def test_some_change_of_a_scenario_moves_its_step(name):
    scenario = SCENARIOS[name]
    step_us = scenario.run().step_us
    assert any(abs(scenario.run(c).step_us / step_us - 1) > 0.1 for c in scenario.changes)


def test_polling_asks_by_the_thousand(tmp_path):
    assert len(named(events(SCENARIOS["polling"], tmp_path), "cudaEventQuery")) > 5000


def test_launches_block_on_a_full_queue():
    rows = SCENARIOS["full_queue"].run().ranks[0].host
    blocked = [row for row in rows if row.name == "cudaLaunchKernel" and row.waited_ns > 0]
    assert len(blocked) > 60


def test_one_graph_launch_owns_many_kernels(tmp_path):
    rows = events(SCENARIOS["graph_launch"], tmp_path)
    launch = named(rows, "cudaGraphLaunch")[0]["args"]["correlation"]
    kernels = [r for r in rows if r.get("cat") == "kernel" and r["args"]["correlation"] == launch]
    assert len(kernels) == 120


def test_a_third_of_the_kernels_were_queued_before_the_capture(tmp_path):
    rows = events(SCENARIOS["queued_before_capture"], tmp_path)
    calls = {
        r["args"]["correlation"] for r in rows if r.get("cat") in ("cuda_runtime", "cuda_driver")
    }
    kernels = [r for r in rows if r.get("cat") == "kernel"]
    orphans = [r for r in kernels if r["args"]["correlation"] not in calls]
    assert 0.3 < len(orphans) / len(kernels) < 0.6


def test_kernels_are_stamped_before_their_launch(tmp_path):
    rows = events(SCENARIOS["early_device_clock"], tmp_path)
    launches = {r["args"]["correlation"]: r["ts"] for r in named(rows, "cudaLaunchKernel")}
    kernels = [r for r in rows if r.get("cat") == "kernel"]
    assert any(r["ts"] < launches[r["args"]["correlation"]] for r in kernels)


def test_two_devices_share_a_stream_number(tmp_path):
    rows = events(SCENARIOS["two_devices"], tmp_path)
    places = {(r["args"]["device"], r["args"]["stream"]) for r in rows if r.get("cat") == "kernel"}
    assert places == {(0, 7), (1, 7)}


def test_the_loader_works_through_the_steps_without_waiting():
    record = SCENARIOS["data_loader"].run().ranks[0]
    loader = sorted((r.start_ns, r.end_ns) for r in record.host if r.name == "aten::stack")
    assert len(loader) == 20
    gaps_us = [(b[0] - a[1]) / 1e3 for a, b in zip(loader, loader[1:], strict=False)]
    assert max(abs(gap_us - 45.0) for gap_us in gaps_us) < 45.0 * 0.05 * 4


def test_the_host_waits_once_where_the_device_is_the_bound():
    rows = SCENARIOS["device_bound"].run().ranks[0].host
    assert sum(row.waited_ns > 0 for row in rows) == 1


def test_the_page_runs_as_written(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    names: dict = {}
    examples = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    for example in examples:
        exec(compile(example, PAGE.name, "exec"), names)
    assert len(examples) == 2
    assert len(list((tmp_path / "traces").iterdir())) == 4
    # Launch latency 6, 100, wait lag 2, 10, return 3.
    assert names["execute"]({0: names["Rank"]({"main": [names["step"]]})}).step_us == 121.0
