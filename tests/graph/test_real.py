"""Graphs of every real trace: what must hold of each, and how well each replays."""

import json
from dataclasses import dataclass
from functools import cache, lru_cache
from pathlib import Path

import numpy as np
import pytest

from jaxperf.graph import DependencyKind, ExecutionGraph, TaskKind, build_graph
from jaxperf.trace import MISSING, Category, Run, read_run
from tests.graph.asked import measured_steps_us, on_device, replayed

FOLDER = Path(__file__).resolve().parents[3] / "shared" / "traces"
SETS: dict[str, list[str]] = (
    json.loads((FOLDER / "sets.json").read_text()) if FOLDER.is_dir() else {}
)

EACH_PERCENT = 3.0
"""Mean absolute error of the steps of a rank, or of its whole capture where there are none."""
MEAN_PERCENT = 1.0
"""Mean over all sets."""

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("shared")]


@dataclass(frozen=True, eq=False)
class Real:
    """A set of traces: the graph of each rank alone, and that of all of them."""

    name: str
    run: Run
    ranks: tuple[ExecutionGraph, ...]
    joined: ExecutionGraph

    @property
    def graphs(self) -> tuple[ExecutionGraph, ...]:
        """All of them."""
        return self.ranks if len(self.ranks) == 1 else (*self.ranks, self.joined)


# Tests of one set run one after the other, so one set at a time is in memory.
@lru_cache(maxsize=1)
def real_set(name: str) -> Real:
    run = read_run([FOLDER / path for path in SETS[name]])
    joined = build_graph(run)
    if len(run.traces) == 1:
        return Real(name, run, (joined,), joined)
    ranks = tuple(build_graph(Run((trace,), (), ())) for trace in run.traces)
    return Real(name, run, ranks, joined)


@pytest.fixture(scope="module", params=SETS)
def real(request) -> Real:
    return real_set(request.param)


def errors_percent(graph: ExecutionGraph) -> list[float]:
    """Mean absolute error of each rank's steps."""
    answer = replayed(graph)
    steps = list(zip(graph.steps, answer.steps_us, measured_steps_us(graph), strict=True))
    found = []
    for index, rank in enumerate(graph.ranks):
        times = [(own, right) for step, own, right in steps if step.rank == rank and right > 0]
        if not times:
            mine = graph.trace == index
            own = answer.end_ns[mine].max() - answer.start_ns[mine].min()
            times = [(own, graph.end_ns[mine].max() - graph.start_ns[mine].min())]
        found.append(float(np.mean([abs(100 * (own / right - 1)) for own, right in times])))
    return found


@cache
def errors_alone_percent(name: str) -> list[float]:
    return [error for graph in real_set(name).ranks for error in errors_percent(graph)]


def test_every_piece_of_device_work_is_a_task_of_its_duration(real):
    work = (Category.KERNEL, Category.MEMCPY, Category.MEMSET)
    for trace, graph in zip(real.run.traces, real.ranks, strict=True):
        tasks = np.flatnonzero(on_device(graph))
        tasks = tasks[np.argsort(graph.event[tasks])]
        rows = np.flatnonzero(np.isin(trace.category, work))
        assert np.array_equal(graph.event[tasks], rows)
        assert np.array_equal(graph.duration_ns[tasks], trace.duration_ns[rows])


def test_durations_and_times_agree(real):
    for graph in real.graphs:
        assert (graph.duration_ns >= 0).all()
        assert np.array_equal(graph.end_ns - graph.start_ns, graph.duration_ns)


def test_every_task_has_a_cause(real):
    for graph in real.graphs:
        caused = np.zeros(graph.tasks, bool)
        caused[graph.target] = True
        assert np.array_equal(caused, graph.release_ns == MISSING)


def test_dependencies_of_a_rank_lead_forward_in_the_order_of_launch(real):
    for graph in real.ranks:
        assert (graph.order[graph.source] < graph.order[graph.target]).all()


def test_nothing_depends_on_itself(real):
    for graph in real.graphs:
        assert (graph.source != graph.target).all()


def test_only_collectives_join_ranks(real):
    apart = real.joined.trace[real.joined.source] != real.joined.trace[real.joined.target]
    assert (real.joined.dependency[apart] == DependencyKind.RENDEZVOUS).all()


def test_dependencies_join_the_kinds_of_tasks_that_they_say(real):
    for graph in real.graphs:
        device = graph.kind >= TaskKind.KERNEL
        lane = graph.lane
        for kind, from_device, to_device in [
            (DependencyKind.THREAD_ORDER, False, False),
            (DependencyKind.HAND_OVER, False, False),
            (DependencyKind.LAUNCH, False, True),
            (DependencyKind.STREAM_ORDER, True, True),
            (DependencyKind.EVENT_WAIT, True, True),
            (DependencyKind.HOST_SYNC, True, False),
            (DependencyKind.QUEUE_FULL, True, False),
        ]:
            of_kind = graph.dependency == kind
            source, target = graph.source[of_kind], graph.target[of_kind]
            assert (device[source] == from_device).all()
            assert (device[target] == to_device).all()
            if kind in (DependencyKind.THREAD_ORDER, DependencyKind.STREAM_ORDER):
                assert (lane[source] == lane[target]).all()
            if kind in (DependencyKind.HAND_OVER, DependencyKind.EVENT_WAIT):
                assert (lane[source] != lane[target]).all()


def test_a_thread_does_one_thing_at_a_time(real):
    for graph in real.graphs:
        tasks = np.flatnonzero(graph.kind < TaskKind.HOST_RETURN)
        tasks = tasks[np.lexsort((graph.order[tasks], graph.lane[tasks]))]
        same = graph.lane[tasks[1:]] == graph.lane[tasks[:-1]]
        assert (graph.start_ns[tasks[1:]] >= graph.end_ns[tasks[:-1]])[same].all()


def test_work_of_a_stream_starts_in_its_order(real):
    for graph in real.graphs:
        order = graph.dependency == DependencyKind.STREAM_ORDER
        source, target = graph.source[order], graph.target[order]
        assert (graph.start_ns[source] <= graph.start_ns[target]).all()


def test_a_graph_is_the_same_each_time(real):
    once, again = real.joined, build_graph(real.run)
    for field, value in once.__dict__.items():
        other = getattr(again, field)
        # What is not known is NaN, which equals nothing.
        if isinstance(value, np.ndarray):
            np.testing.assert_array_equal(value, other, strict=True)
        else:
            assert repr(value) == repr(other)


def test_every_rank_replays_alone(real):
    assert max(errors_alone_percent(real.name)) <= EACH_PERCENT


def test_every_rank_replays_among_the_others(real):
    assert max(errors_percent(real.joined)) <= EACH_PERCENT


def test_all_sets_replay_on_average():
    assert len(SETS) > 90
    found = [np.mean(errors_alone_percent(name)) for name in SETS]
    assert np.mean(found) <= MEAN_PERCENT
