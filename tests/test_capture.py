"""Captures of small training loops, by the PyTorch that is installed; a few tests need none."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from jaxperf import replay
from jaxperf.capture import capture
from jaxperf.errors import ConfigError, JaxperfError, OutputError, TraceError
from jaxperf.inspection import inspect
from jaxperf.trace import Category, read_run

PAGE = Path(__file__).resolve().parents[1] / "docs" / "capture.md"


@pytest.fixture
def train_step():
    """One step of a perceptron of two layers: 64 to 256 to 10, a batch of 512."""
    torch = pytest.importorskip("torch")
    model = torch.nn.Sequential(torch.nn.Linear(64, 256), torch.nn.ReLU(), torch.nn.Linear(256, 10))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def step(batch):
        inputs, labels = batch
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(model(inputs), labels).backward()
        optimizer.step()

    return step


@pytest.fixture
def batch():
    torch = pytest.importorskip("torch")
    return torch.randn(512, 64), torch.randint(0, 10, (512,))


@pytest.fixture(autouse=True)
def no_launcher(monkeypatch):
    for name in ("RANK", "WORLD_SIZE"):
        monkeypatch.delenv(name, raising=False)


def steps_of(folder):
    (rank,) = inspect(folder).ranks
    return [step.name for step in rank.steps or ()]


def test_the_active_steps_are_recorded_and_no_others(train_step, batch, tmp_path):
    with capture(tmp_path / "run") as profile:
        for _ in range(12):
            train_step(batch)
            profile.step()
    assert [path.name for path in (tmp_path / "run").iterdir()] == ["rank0.json.gz"]
    assert steps_of(tmp_path / "run") == ["ProfilerStep#7", "ProfilerStep#8", "ProfilerStep#9"]


def test_a_capture_is_replayed_within_a_percent_and_without_a_note_on_its_rank(
    train_step, batch, tmp_path
):
    with capture(tmp_path, wait=2, warmup=1, active=2) as profile:
        for _ in range(5):
            train_step(batch)
            profile.step()
    result = replay(tmp_path)
    assert len(result.steps) == 2
    assert result.mean_abs_error_percent < 1.0
    assert not [note for note in inspect(tmp_path).notes if note.code.startswith("rank")]


def test_operators_have_the_shapes_of_their_inputs(train_step, batch, tmp_path):
    with capture(tmp_path, wait=0, warmup=1, active=1) as profile:
        for _ in range(2):
            train_step(batch)
            profile.step()
    (trace,) = read_run(tmp_path).traces
    products = [row for row in range(trace.events) if trace.names[trace.name[row]] == "aten::addmm"]
    shapes = {trace.shapes[trace.shape[row]] for row in products}
    assert len(products) == 2
    assert any("[512,64],[64,256]" in shape.replace(" ", "") for shape in shapes)
    assert any("[512,256],[256,10]" in shape.replace(" ", "") for shape in shapes)


def test_the_file_is_there_as_soon_as_the_last_step_is_recorded(train_step, batch, tmp_path):
    with capture(tmp_path, wait=0, warmup=1, active=1) as profile:
        for _ in range(2):
            train_step(batch)
            profile.step()
        assert steps_of(tmp_path) == ["ProfilerStep#1"]


def test_a_loop_that_ends_early_leaves_the_steps_that_it_completed(train_step, batch, tmp_path):
    with capture(tmp_path, wait=0, warmup=1, active=5) as profile:
        for _ in range(3):
            train_step(batch)
            profile.step()
    assert steps_of(tmp_path) == ["ProfilerStep#1", "ProfilerStep#2"]


def test_a_loop_that_ends_before_a_step_is_recorded_is_told_how_many_it_needs(
    train_step, batch, tmp_path
):
    with pytest.raises(TraceError, match=r"got 7 calls.*expected 10 to record 3 .* or 8 to record"):
        with capture(tmp_path) as profile:
            for _ in range(7):
                train_step(batch)
                profile.step()
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("failed", [1, 3])
def test_what_ends_the_training_passes_through(train_step, batch, tmp_path, failed):
    with pytest.raises(ZeroDivisionError):
        with capture(tmp_path, wait=0, warmup=1, active=5) as profile:
            for step in range(10):
                train_step(batch)
                if step == failed:
                    raise ZeroDivisionError
                profile.step()
    complete = [f"ProfilerStep#{step}" for step in range(1, failed)]
    assert not complete or steps_of(tmp_path) == complete
    if complete:
        (trace,) = read_run(tmp_path).traces
        assert "unfinished ProfilerStep#3" in trace.names
    else:
        assert not list(tmp_path.iterdir())


def test_what_ends_the_training_is_told_even_where_nothing_can_be_written(
    train_step, batch, tmp_path
):
    with pytest.raises(ZeroDivisionError):
        with capture(tmp_path, wait=0, warmup=1) as profile:
            for _ in range(3):
                train_step(batch)
                profile.step()
            (tmp_path / "rank0.json.gz").touch()
            raise ZeroDivisionError


def test_a_trace_that_is_there_is_refused_before_the_first_step(tmp_path):
    pytest.importorskip("torch")
    (tmp_path / "rank0.json.gz").write_text("kept")
    with pytest.raises(OutputError, match=r"rank0\.json\.gz: exists already; .* another folder"):
        with capture(tmp_path):
            pytest.fail("trained")
    assert (tmp_path / "rank0.json.gz").read_text() == "kept"


def test_a_folder_that_cannot_be_made_is_told(tmp_path):
    pytest.importorskip("torch")
    (tmp_path / "run").touch()
    with pytest.raises(OutputError, match="run: cannot be made"):
        with capture(tmp_path / "run"):
            pytest.fail("trained")


def test_the_launcher_tells_the_rank(train_step, batch, tmp_path, monkeypatch):
    monkeypatch.setenv("RANK", "3")
    monkeypatch.setenv("WORLD_SIZE", "8")
    with capture(tmp_path, wait=0, warmup=1, active=1) as profile:
        for _ in range(2):
            train_step(batch)
            profile.step()
    (trace,) = read_run(tmp_path / "rank3.json.gz").traces
    assert (trace.rank, trace.world_size) == (3, 8)
    assert not trace.notes


def test_a_rank_that_is_no_number_is_told(tmp_path, monkeypatch):
    pytest.importorskip("torch")
    monkeypatch.setenv("RANK", "first")
    with pytest.raises(ConfigError, match="RANK: not a rank; got 'first'"):
        with capture(tmp_path):
            pytest.fail("trained")


def test_a_pytorch_without_rows_of_waits_captures_the_rest(
    train_step, batch, tmp_path, monkeypatch
):
    def older(*, profiler_metrics=()):
        pytest.fail(f"made of {profiler_metrics}")

    monkeypatch.setattr("torch._C._profiler._ExperimentalConfig", older)
    with capture(tmp_path, wait=0, warmup=1, active=1) as profile:
        for _ in range(2):
            train_step(batch)
            profile.step()
    assert steps_of(tmp_path) == ["ProfilerStep#1"]


TWO_RANKS = """
import sys
import torch
from torch.nn.parallel import DistributedDataParallel
from jaxperf.capture import capture

rank, folder = int(sys.argv[1]), sys.argv[2]
torch.set_num_threads(1)
torch.distributed.init_process_group(
    "gloo", init_method=f"file://{folder}/meet", rank=rank, world_size=2
)
model = DistributedDataParallel(torch.nn.Linear(64, 64))
with capture(f"{folder}/run", wait=1, warmup=1, active=2) as profile:
    for _ in range(4):
        model(torch.randn(32, 64)).sum().backward()
        profile.step()
torch.distributed.destroy_process_group()
"""


@pytest.mark.slow
def test_two_ranks_make_one_run(tmp_path):
    pytest.importorskip("torch")
    environment = {name: value for name, value in os.environ.items() if "COV" not in name}
    ranks = [
        subprocess.Popen(
            [sys.executable, "-c", TWO_RANKS, str(rank), str(tmp_path)],
            env=environment,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(2)
    ]
    for process in ranks:
        _, errors = process.communicate(timeout=120)
        assert process.returncode == 0, errors
    assert sorted(path.name for path in (tmp_path / "run").iterdir()) == [
        "rank0.json.gz",
        "rank1.json.gz",
    ]
    run = read_run(tmp_path / "run")
    assert [(trace.rank, trace.world_size) for trace in run.traces] == [(0, 2), (1, 2)]
    assert all("gloo" in str(trace.metadata["distributedInfo"]) for trace in run.traces)
    assert all((trace.category == Category.CPU_OP).any() for trace in run.traces)
    result = replay(tmp_path / "run")
    assert [step.name for step in result.steps] == ["ProfilerStep#2", "ProfilerStep#3"]
    assert result.mean_abs_error_percent < 1.0


def test_the_page_shows_what_runs(train_step, batch, tmp_path, monkeypatch):
    example, plain = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    monkeypatch.chdir(tmp_path)
    names = {"loader": [batch] * 12, "train_step": train_step}
    exec(compile(example, str(PAGE), "exec"), dict(names))
    assert steps_of("run") == ["ProfilerStep#7", "ProfilerStep#8", "ProfilerStep#9"]
    exec(compile(plain.replace('"run', '"plain'), str(PAGE), "exec"), dict(names))
    helped, by_hand = (read_run(folder).traces[0] for folder in ("run", "plain"))
    assert sorted(helped.names) == sorted(by_hand.names)
    assert set(helped.shapes) == set(by_hand.shapes)


def test_without_pytorch_a_capture_says_how_to_have_it(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(JaxperfError, match="PyTorch is not installed.*; pip install torch$"):
        with capture(tmp_path / "run"):
            pytest.fail("trained")
    assert not list(tmp_path.iterdir())


def test_a_broken_pytorch_is_not_called_absent(tmp_path, monkeypatch):
    (tmp_path / "torch.py").write_text("import libraries_of_a_device")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "torch", raising=False)
    with pytest.raises(ModuleNotFoundError, match="libraries_of_a_device"):
        with capture(tmp_path / "run"):
            pytest.fail("trained")


@pytest.mark.parametrize(
    ("steps", "message"),
    [
        ({"wait": -1}, "wait: too few steps; got -1; expected at least 0"),
        ({"warmup": 0}, "warmup: too few steps; got 0; expected at least 1"),
        ({"active": 0}, "active: too few steps; got 0; expected at least 1"),
    ],
)
def test_a_number_of_steps_that_makes_no_capture_is_told(tmp_path, steps, message):
    with pytest.raises(ConfigError, match=message):
        with capture(tmp_path / "run", **steps):
            pytest.fail("trained")
