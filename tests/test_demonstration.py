"""The demo leaves what it says, and nothing else changes."""

import io
import json
import shlex
from collections import OrderedDict

import pytest
from rich.console import Console

import jaxperf
from jaxperf.cli import main
from jaxperf.cli._main import _parser
from jaxperf.demonstration import demo_to_json, print_demo
from jaxperf.demonstration._demo import _prepare as free_folder
from jaxperf.embedding import profile
from jaxperf.errors import OutputError

# Replay of the very trace that gave the durations: what is left is how well waits were told apart.
REPLAY_ERROR_PERCENT = 1.0


TRACE = "traces/rank0.pt.trace.json.gz"
EARLIER = ("report.html", "replayed.json.gz", "fit.toml", "job.toml", TRACE, "traces/notes.txt")


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A demo, over what an earlier one and its reader have left."""
    folder = tmp_path_factory.mktemp("demo")
    for name in EARLIER:
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text("earlier")
    found = jaxperf.demo(folder, overwrite=True)
    # Out of the way of those who read the traces.
    (folder / "traces" / "notes.txt").rename(folder / "notes.txt")
    return found


def test_every_file_it_names_is_there(made):
    assert len(made.traces) == 4
    written = (*made.traces, made.report, made.replayed_trace, made.fit)
    written += (made.job, made.accesses, made.tables)
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


def test_the_energy_is_that_of_the_replayed_step_and_a_lower_clock_takes_longer_and_less(made):
    energy = made.energy
    assert energy.step_us == pytest.approx(made.whatif.baseline.step_us, rel=1e-6)
    accelerators = energy.boundaries[0]
    assert accelerators.step_j == pytest.approx(sum(energy.by_class_j.values()), rel=1e-6)
    step_s = energy.step_us * 1e-6
    assert accelerators.step_j == pytest.approx(accelerators.average_w * step_s, rel=1e-3)
    (slower,) = energy.clocks.answers
    # Work that is inverse to the clock takes 1.98 / 1.6 of its time, all other as long as before.
    assert 1.0 < slower.ratio < 1.98 / 1.6
    assert slower.energy_ratio < 1.0


def test_the_hits_are_those_of_a_cache_that_is_run_lookup_by_lookup(made):
    rows = [int(line) for line in made.accesses.read_text().split()]
    (log,) = made.profile.logs
    for point in log.curve:
        cache, hits = OrderedDict(), 0
        for row in rows:
            hits += row in cache
            cache[row] = None
            cache.move_to_end(row)
            if len(cache) > point.rows:
                cache.popitem(last=False)
        assert point.hits == hits
        assert point.hit_ratio < made.true_hit_ratios[point.rows]


def test_what_the_maker_of_the_log_expects_is_what_a_cache_of_the_hottest_rows_hits(made):
    sizes = list(made.true_hit_ratios)
    (log,) = profile(made.accesses, sizes=sizes, policy="pinned").logs
    small = log.curve[0]
    # The few hottest rows are told by 40,000 lookups; of the rest the log is one draw.
    assert small.hit_ratio == pytest.approx(made.true_hit_ratios[small.rows], abs=0.01)


def test_tables_lie_where_they_fit_and_the_rate_is_reached(made):
    plan = made.plan
    assert plan.samples_per_s >= 500e3
    assert plan.nodes == 1
    # 512 GB of users are more than eight accelerators of 40 GB hold; 5 MB of items are not.
    tiers = {(table.name, table.tier[:3]) for table in plan.tables}
    assert ("items", "HBM") in tiers
    assert ("users", "DDR") in tiers


def test_the_commands_it_prints_answer_as_it_does(made, capsys):
    answers = demo_to_json(made)
    # What compiles little; all others are held to be commands by their words below.
    for name in ("replay", "profile"):
        words = shlex.split(made.commands[name])
        assert words[0] == "jaxperf"
        assert main([*words[1:], "--json"]) == 0
        answer = json.loads(capsys.readouterr().out)
        # The command is given the folder, and finds what an earlier demo's reader has left there.
        answer["notes"] = [note for note in answer["notes"] if note["code"] != "set-aside"]
        assert answer == json.loads(json.dumps(answers[name]))
    for name in sorted(set(made.commands) - {"replay", "profile"}):
        _parser().parse_args(shlex.split(made.commands[name])[1:])


def test_every_step_is_printed_with_its_command(made):
    written = io.StringIO()
    print_demo(made, Console(file=written, width=80))
    printed = written.getvalue()
    assert all(f"$ {command}\n" in printed for command in made.commands.values())


def test_a_folder_with_something_in_it_is_refused(tmp_path):
    precious = tmp_path / "report.html"
    precious.write_text("precious")
    with pytest.raises(OutputError, match="not empty"):
        jaxperf.demo(tmp_path)
    assert precious.read_text() == "precious"
    assert list(tmp_path.iterdir()) == [precious]


def test_an_earlier_demo_is_written_over_when_asked(made):
    written = (made.report, made.replayed_trace, made.fit, made.job, made.traces[0])
    assert {path.relative_to(made.folder).as_posix() for path in written} == {*EARLIER[:-1]}
    assert all(path.read_bytes() != b"earlier" for path in written)
    assert (made.folder / "notes.txt").read_text() == "earlier"


def test_the_command_passes_on_where_to_write_and_prints_what_was_made(made, monkeypatch, capsys):
    asked = []

    def demo(folder, *, overwrite, progress):
        asked.append((str(folder), overwrite))
        return made

    monkeypatch.setattr(jaxperf.demonstration, "demo", demo)
    assert main(["demo", "--output", str(made.folder), "--overwrite", "--json"]) == 0
    assert asked == [(str(made.folder), True)]
    result = json.loads(capsys.readouterr().out)
    assert result["report"] == str(made.report)
    assert result["replay"]["ranks"][3]["rank"] == 3


def test_without_a_folder_the_first_free_name_is_taken(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "jaxperf-demo").mkdir()
    (tmp_path / "jaxperf-demo-2").write_text("")
    assert str(free_folder(None, False)) == "jaxperf-demo-3"
