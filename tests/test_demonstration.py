"""The demo leaves what it says, and nothing else changes."""

import json

import pytest

import jaxperf
from jaxperf.cli import main
from jaxperf.errors import OutputError

# Replay of the very trace that gave the durations: what is left is how well waits were told apart.
REPLAY_ERROR_PERCENT = 1.0


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    return jaxperf.demo(tmp_path_factory.mktemp("demo") / "new")


def test_every_file_it_names_is_there(made):
    assert len(made.traces) == 4
    written = (*made.traces, made.report, made.replayed_trace, made.fit)
    assert all(path.is_file() for path in written)


def test_the_replay_matches_what_the_simulator_knows(made):
    steps = made.replay.steps
    assert len(steps) == 4
    replayed_us = sum(step.replayed_us for step in steps) / len(steps)
    error_percent = 100 * abs(replayed_us / made.true_step_us - 1)
    assert error_percent < REPLAY_ERROR_PERCENT


def test_the_job_on_more_ranks_is_what_the_simulator_measures(made):
    (answer,) = made.retargeted.scenarios
    assert answer.step_us == pytest.approx(made.true_retargeted_us, rel=0.04)
    assert answer.origins is not None
    assert sum(answer.origins.values()) == pytest.approx(1.0)


def test_the_what_if_is_what_the_simulator_measures(made):
    (answer,) = made.whatif.scenarios
    assert answer.step_us == pytest.approx(made.true_whatif_us, rel=0.02)
    low, high = answer.interval_us
    assert low < answer.step_us < high


def test_the_calibration_comes_closer_to_the_simulated_kernels(made):
    for each in made.calibration.classes:
        if each.task_class in ("gemm", "attention", "communication"):
            assert each.after_percent < 0.5 * each.before_percent
    (before,), (after,) = made.calibration.steps_before, made.calibration.steps
    assert abs(after.error_percent) < 3.0 < abs(before.error_percent)


def test_a_folder_with_something_in_it_is_refused(tmp_path):
    precious = tmp_path / "report.html"
    precious.write_text("precious")
    with pytest.raises(OutputError, match="not empty"):
        jaxperf.demo(tmp_path)
    assert precious.read_text() == "precious"
    assert list(tmp_path.iterdir()) == [precious]


def test_an_earlier_demo_is_written_over_when_asked(made, capsys):
    other = made.folder / "traces" / "notes.txt"
    other.write_text("mine")
    before = made.traces[0].read_bytes()
    assert main(["demo", "--output", str(made.folder), "--overwrite", "--json"]) == 0
    result = json.loads(capsys.readouterr().out)
    assert result["report"] == str(made.report)
    assert result["replay"]["ranks"][3]["rank"] == 3
    assert made.traces[0].read_bytes() == before
    assert other.read_text() == "mine"


def test_without_a_folder_the_first_free_name_is_taken(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "jaxperf-demo").mkdir()
    (tmp_path / "jaxperf-demo-2").write_text("")
    assert str(jaxperf.demo().folder) == "jaxperf-demo-3"
