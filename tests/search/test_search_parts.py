"""Chunks of a search, in one process and in several: the same answers, whatever is lost."""

import numpy as np
import pytest

from jaxperf.config import Job, SearchSpace, load_hardware
from jaxperf.errors import ConfigError
from jaxperf.search import _processes, _tally
from jaxperf.search._parts import Shard, parts_of, settle, shard_of
from jaxperf.search._problem import pose
from jaxperf.search._processes import merge, search_parts
from jaxperf.search._saved import open_folder

JOB = Job(
    layers=4, hidden_size=1024, attention_heads=8, vocabulary_size=32000, sequence_length=1024
)
AXES = {
    "tensor_parallel": (1, 2, 4),
    "pipeline_parallel": (1, 2),
    "micro_batch_size": (1, 2, 4),
    "recompute": ("none", "full"),
}
OBJECTIVES = ("step_us", "energy_j_per_token")
LOST = """
import os, signal
from jaxperf.search import _processes, _tally
real = _processes.settle
def settle(parts, chunk, known=None):
    if chunk == 2 and {when}:
        os.kill(os.getpid(), signal.SIGKILL)
    return real(parts, chunk, known)
_processes.settle = settle
_processes.serve()
"""


@pytest.fixture(scope="module")
def problem():
    space = SearchSpace("small", AXES, 8, 64, objectives=OBJECTIVES)
    return pose(JOB, load_hardware("h100"), space)


@pytest.fixture(scope="module")
def parts(problem):
    return parts_of(problem, "exhaustive", 9)


@pytest.fixture(scope="module")
def alone(parts):
    return search_parts(parts)


def assert_same(found, expected):
    (archive, tally), (of_one, tally_of_one) = found, expected
    assert archive.index.tolist() == of_one.index.tolist()
    assert archive.cost.tobytes() == of_one.cost.tobytes()
    assert tally == tally_of_one


@pytest.fixture
def settled(monkeypatch):
    """The chunks that are settled in this process."""
    numbers = []

    def counted(parts, chunk, known=None):
        numbers.append(chunk)
        return settle(parts, chunk, known)

    monkeypatch.setattr(_processes, "settle", counted)
    return numbers


def interrupted_after(chunks):
    """A progress that is interrupted once so many chunks are settled; called at the start too."""
    calls = iter(range(chunks))

    def progress(settled, total):
        if next(calls, None) is None:
            raise KeyboardInterrupt

    return progress


@pytest.mark.parametrize("method", ["exhaustive", "bound"])
@pytest.mark.parametrize("chunk_points", [1, 7, 9, 1000])
def test_every_point_is_in_one_chunk(problem, method, chunk_points):
    parts = parts_of(problem, method, chunk_points)
    units = np.concatenate([parts.units(chunk) for chunk in range(parts.count)])
    assert units.tolist() == list(range(len(units)))
    assert sum(parts.points(chunk) for chunk in range(parts.count)) == problem.space.size


def test_the_chunks_together_find_what_one_pass_finds(problem, alone):
    outcome = settle(parts_of(problem, chunk_points=problem.space.size), 0)
    archive, tally = outcome.archive, outcome.tally
    assert alone[0].index.tolist() == archive.index.tolist()
    np.testing.assert_allclose(alone[0].cost, archive.cost, rtol=1e-13)
    assert alone[1] == tally


def test_chunks_of_boxes_find_the_same_front(problem, alone):
    archive, tally = search_parts(parts_of(problem, "bound", 4))
    assert tally.complete
    assert tally.excluded.total() > 0
    front, of_all = archive.index[archive.front], alone[0].index[alone[0].front]
    assert front.tolist() == of_all.tolist()


def test_shards_of_boxes_come_to_what_one_finds(problem, tmp_path):
    parts = parts_of(problem, "bound", 4)
    folder = open_folder(tmp_path, parts)
    for index in (1, 0):
        search_parts(parts, folder=folder, shard=Shard(index, 2))
    assert_same(merge(parts, folder), search_parts(parts))


def test_shards_settle_their_own_chunks_and_the_last_one_has_all(parts, alone, tmp_path, settled):
    folder = open_folder(tmp_path, parts)
    for index in range(3):
        found = search_parts(parts, folder=folder, shard=shard_of(f"{index}/3"))
    assert settled == [0, 3, 1, 2]
    assert_same(found, alone)
    assert_same(merge(parts, folder), alone)


@pytest.mark.parametrize("text", ["3/3", "1", "-1/3", "1/0", "a/b", "1/2/3", ""])
def test_what_is_no_shard_is_refused(text):
    with pytest.raises(ConfigError, match="not a shard; .*0 to n - 1"):
        shard_of(text)


def test_a_stopped_search_keeps_what_it_has_and_goes_on(parts, alone, tmp_path, settled):
    folder = open_folder(tmp_path, parts)
    _, tally = search_parts(parts, folder=folder, progress=interrupted_after(2))
    assert (tally.settled, tally.complete) == (18, False)
    told = []
    found = search_parts(parts, folder=folder, progress=lambda *now: told.append(now))
    assert_same(found, alone)
    assert settled == [0, 1, 2, 3]
    assert told == [(18, 36), (27, 36), (36, 36)]


def test_a_chunk_that_is_interrupted_is_not_kept(parts, tmp_path, monkeypatch):
    def interrupted(*arguments):
        raise KeyboardInterrupt

    folder = open_folder(tmp_path, parts)
    monkeypatch.setattr(_tally, "evaluate", interrupted)
    _, tally = search_parts(parts, folder=folder)
    assert tally.settled == 0
    assert folder.chunk(0) is None


@pytest.mark.parametrize("processes", [2, pytest.param(4, marks=pytest.mark.slow)])
def test_several_processes_find_the_same_to_the_bit(parts, alone, processes, settled):
    assert_same(search_parts(parts, processes=processes), alone)
    assert not settled


@pytest.mark.slow
def test_so_they_do_by_bounds(problem):
    parts = parts_of(problem, "bound", 4)
    assert_same(search_parts(parts, processes=2), search_parts(parts))


@pytest.mark.slow
def test_what_a_killed_process_did_is_done_again(parts, alone, tmp_path, monkeypatch):
    mark = tmp_path / "killed"
    first_time = f"not os.path.exists({str(mark)!r}) and not open({str(mark)!r}, 'w').close()"
    monkeypatch.setattr(_processes, "_CHILD", LOST.format(when=first_time))
    assert_same(search_parts(parts, processes=2), alone)
    assert mark.exists()


@pytest.mark.slow
def test_a_chunk_that_ends_its_process_each_time_is_named_with_the_signal(parts, monkeypatch):
    monkeypatch.setattr(_processes, "_CHILD", LOST.format(when="True"))
    with pytest.raises(ConfigError, match="chunk 2 of the search: ended .* 3 times; got signal 9"):
        search_parts(parts, processes=2)


def test_so_is_the_first_one_where_no_process_starts(parts, tmp_path, monkeypatch):
    monkeypatch.setattr(_processes, "_CHILD", "raise SystemExit(7)")
    with pytest.raises(ConfigError, match="chunk [01] of the search: ended .*; got exit code 7"):
        search_parts(parts, processes=2)


@pytest.mark.parametrize("fault", ["ConfigError('no such chunk')", "ZeroDivisionError('a bug')"])
def test_an_error_in_a_process_is_raised_here(parts, monkeypatch, fault):
    code = f"""
from jaxperf.errors import ConfigError
from jaxperf.search import _processes, _tally
def settle(*arguments):
    raise {fault}
_processes.settle = settle
_processes.serve()
"""
    monkeypatch.setattr(_processes, "_CHILD", code)
    expected = ConfigError if "Config" in fault else RuntimeError
    with pytest.raises(expected, match=r"no such chunk|(?s:while chunk . was settled.*a bug)"):
        search_parts(parts, processes=2)


def test_an_interrupt_ends_the_processes(parts, monkeypatch):
    children = []
    real = _processes._Child.__init__

    def started(child, search):
        real(child, search)
        children.append(child.process)

    monkeypatch.setattr(_processes._Child, "__init__", started)
    search_parts(parts, processes=2, progress=interrupted_after(2))
    assert children
    assert all(child.returncode is not None for child in children)
