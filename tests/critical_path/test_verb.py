"""What bounds a step: every microsecond once, the slow rank by its name, and nobody else's."""

import json
import re
import shutil
from pathlib import Path

import numpy as np
import pytest

from jaxperf.critical_path import critical_path
from jaxperf.errors import ConfigError
from jaxperf.simulator import (
    Annotation,
    Collective,
    Kernel,
    Launch,
    Rank,
    SynchronizeDevice,
    execute,
    write_traces,
)

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "critical-path.md").read_text()


@pytest.fixture(scope="module")
def report(traces):
    """Two ranks of a small GPT, four steps."""
    return critical_path(traces)


def test_classes_ranks_and_pieces_of_the_path_add_up_to_the_step(report):
    assert sum(row.critical_us for row in report.by_class) == pytest.approx(report.step_us)
    assert sum(row.critical_us for row in report.by_rank) == pytest.approx(report.step_us)
    gaps = sum(row.critical_us for row in report.by_class if row.task_class in ("gap", "launch"))
    tasks = sum(row.critical_us for row in report.by_task if row.task_class != "launch")
    assert tasks + gaps == pytest.approx(report.step_us)
    (longest,) = {s.name for s in report.graph.steps if s.name == report.path_step}
    spans = [
        report.replayed.end_us[step.end_task] - report.replayed.start_us[step.begin_task]
        for step in report.graph.steps
        if step.name == longest
    ]
    assert sum(hop.own_us + hop.lag_us for hop in report.path) == pytest.approx(max(spans))


def test_sensitivities_add_up_to_the_step(report):
    assert sum(row.sensitivity_us for row in report.by_class) == pytest.approx(report.step_us)
    assert sum(row.sensitivity_us for row in report.by_rank) == pytest.approx(report.step_us)


def test_whoever_waits_waits_for_somebody(report):
    total = sum(wait.wait_us for wait in report.waits)
    assert total > 0
    assert sum(row.waited_us for row in report.by_rank) == pytest.approx(total)
    assert sum(row.caused_us for row in report.by_rank) == pytest.approx(total)
    assert sum(row.wait_us for row in report.by_group) == pytest.approx(total)
    assert all(wait.rank != wait.for_rank for wait in report.waits)


def test_what_is_critical_has_no_slack(report):
    on_path = [row for row in report.by_task if row.critical_us > 0.1]
    assert on_path
    assert all(row.slack_us == 0.0 for row in on_path)
    assert report.slack_us.min() >= 0.0
    assert any(row.slack_us > 0.0 for row in report.by_task)


def test_the_first_of_three_steps_and_more_is_left_out(report, traces):
    assert report.steps == ("ProfilerStep#2", "ProfilerStep#3", "ProfilerStep#4")
    one = critical_path(traces, step=1)
    assert one.steps == ("ProfilerStep#2",) and one.path_step == "ProfilerStep#2"
    spans = [
        one.replayed.end_us[step.end_task] - one.replayed.start_us[step.begin_task]
        for step in one.graph.steps
        if step.name == "ProfilerStep#2"
    ]
    assert one.step_us == pytest.approx(np.mean(spans))


def test_an_unknown_step_is_refused(traces):
    with pytest.raises(ConfigError, match="no such step"):
        critical_path(traces, step="ProfilerStep#99")


def test_of_two_ranks_one_waits_for_the_other_as_the_program_says(tmp_path):
    def program(rank):
        compute = Launch(Kernel("gemm", 300.0 if rank else 200.0, "gemm"))
        meet = Launch(Collective("allreduce", "all", (0, 1), 50.0))
        step = [*[compute, meet] * 10, SynchronizeDevice()]
        return Rank({"main": [Annotation(f"ProfilerStep#{i}", step) for i in range(4)]})

    paths = write_traces(execute({0: program(0), 1: program(1)}), tmp_path)
    report = critical_path(paths)
    (wait,) = report.waits
    assert (wait.rank, wait.for_rank) == (0, 1)
    assert wait.wait_us == pytest.approx(10 * 100.0, rel=0.01)
    by_class = {row.task_class: row for row in report.by_class}
    assert by_class["gemm"].critical_us == pytest.approx(10 * 300.0, rel=0.01)
    assert by_class["communication"].critical_us == pytest.approx(10 * 50.0, rel=0.01)
    assert by_class["gemm"].sensitivity_us == pytest.approx(by_class["gemm"].critical_us, rel=0.01)
    (group,) = report.by_group
    assert (group.ranks, group.count) == ((0, 1), 10)
    assert group.transfer_us == pytest.approx(10 * 50.0, rel=0.01)
    assert report.by_rank[0].slack_us == pytest.approx(100.0, abs=0.01)
    assert report.by_rank[1].slack_us == 0.0
    assert report.straggler and report.straggler.rank == 1
    assert report.straggler.gain_us == pytest.approx(10 * 100.0, rel=0.01)


def test_one_rank_without_steps_is_a_window(tmp_path):
    body = [*[Launch(Kernel("gemm", 100.0, "gemm"))] * 5, SynchronizeDevice()]
    report = critical_path(write_traces(execute({0: Rank({"main": body})}), tmp_path))
    assert report.steps == () and report.path_step is None and report.waits == ()
    assert report.straggler is None and report.by_group == ()
    by_class = {row.task_class: row.critical_us for row in report.by_class}
    assert by_class["gemm"] == pytest.approx(500.0)
    assert report.step_us == pytest.approx(report.replayed.end_us.max(), abs=5.0)
    assert "no-steps" in {note.code for note in report.notes}


def test_hosts_that_run_ahead_are_noted(tmp_path):
    step = [Launch(Kernel("gemm", 500.0, "gemm"))] * 5
    main = [Annotation(f"ProfilerStep#{i}", step) for i in range(4)]
    paths = write_traces(execute({0: Rank({"main": [*main, SynchronizeDevice()]})}), tmp_path)
    assert "hosts-ran-ahead" in {note.code for note in critical_path(paths).notes}


def test_the_straggler_of_the_oracle_is_found_and_what_it_costs(shared):
    folder = shared / "oracle" / "gpt_dp4_straggler"
    truth = json.loads((folder / "truth.json").read_text())
    report = critical_path(folder)
    found = report.straggler
    assert found and (found.rank, found.cause) == (2, "kernels")
    without = next(w["step_us"] for w in truth["what_if"] if "straggler" in w["change"])
    assert report.step_us - found.gain_us == pytest.approx(without, rel=0.005)
    halved = next(w["step_us"] for w in truth["what_if"] if "gemm_scale" in w["change"])
    gemm = next(row for row in report.by_class if row.task_class == "gemm")
    # The slope is the most that the change can gain.
    assert 0.9 < (truth["steady_step_us"] - halved) / (0.5 * gemm.sensitivity_us) < 1.01


@pytest.mark.parametrize(
    "name",
    [
        "gpt_pp4_cpu_bound",
        pytest.param("gpt_fsdp4", marks=pytest.mark.slow),
        pytest.param("gpt_sync_every_micro", marks=pytest.mark.slow),
        pytest.param("gpt_dp2_pp2_tp2", marks=pytest.mark.slow),
        pytest.param("gpt_dp2_pp2_tp2_old_profiler", marks=pytest.mark.slow),
    ],
)
def test_of_the_other_jobs_of_the_oracle_nobody_is_accused(shared, name):
    assert critical_path(shared / "oracle" / name).straggler is None


def test_the_rank_that_sleeps_is_found(shared):
    folder = shared / "traces" / "torchrec_sst_dlrm_v100_4rank_3step" / "run_c_sleep"
    report = critical_path(folder)
    found = report.straggler
    assert found and (found.rank, found.cause) == (2, "host")
    assert found.names[0][0] == "# running sparse arch"
    assert found.names[0][1] == pytest.approx(1e6, rel=0.01)


def test_the_example_of_the_page_runs_as_written(traces, tmp_path, monkeypatch, capsys):
    import jaxperf

    shutil.copytree(traces, tmp_path / "run")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(jaxperf, "critical_path", critical_path, raising=False)
    for example in re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL):
        exec(compile(example, "critical-path.md", "exec"), {})
    assert "us a step" in capsys.readouterr().out
