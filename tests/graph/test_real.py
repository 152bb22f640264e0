"""Graphs of every real trace: what must hold of each, and how well each replays."""

import json
from dataclasses import dataclass
from functools import cache, lru_cache
from pathlib import Path

import numpy as np
import pytest

from jaxperf.graph import DependencyKind, ExecutionGraph, TaskKind, build_graph
from jaxperf.trace import MISSING, Category, Run, read_run
from tests.graph.asked import Answer, on_device, replayed

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
    """A set of traces, its graph, and the graph's own times."""

    name: str
    run: Run
    graph: ExecutionGraph
    answer: Answer


# Tests of one set run one after the other, so one set at a time is in memory.
@lru_cache(maxsize=1)
def real_set(name: str) -> Real:
    run = read_run([FOLDER / path for path in SETS[name]])
    graph = build_graph(run)
    return Real(name, run, graph, replayed(graph))


@pytest.fixture(scope="module", params=SETS)
def real(request) -> Real:
    return real_set(request.param)


@cache
def errors_percent(name: str) -> list[float]:
    """Of each rank."""
    graph, answer = real_set(name).graph, real_set(name).answer
    found = []
    for index, rank in enumerate(graph.ranks):
        steps = [
            (answer.steps_us[k], (step.end_ns - step.begin_ns) / 1e3)
            for k, step in enumerate(graph.steps)
            if step.rank == rank and step.end_ns > step.begin_ns
        ]
        if not steps:
            mine = graph.trace == index
            ends = answer.end_ns[mine].max() - answer.start_ns[mine].min()
            steps = [(ends, graph.end_ns[mine].max() - graph.start_ns[mine].min())]
        found.append(float(np.mean([abs(100 * (a / b - 1)) for a, b in steps])))
    return found


def test_every_piece_of_device_work_is_a_task(real):
    run, graph = real.run, real.graph
    work = (Category.KERNEL, Category.MEMCPY, Category.MEMSET)
    for index, trace in enumerate(run.traces):
        mine = on_device(graph) & (graph.trace == index)
        rows = np.flatnonzero(np.isin(trace.category, work))
        assert np.array_equal(np.sort(graph.event[mine]), rows)
        assert np.array_equal(
            graph.duration_ns[mine][np.argsort(graph.event[mine])], trace.duration_ns[rows]
        )


def test_durations_and_times_agree(real):
    graph = real.graph
    assert (graph.duration_ns >= 0).all()
    assert np.array_equal(graph.end_ns - graph.start_ns, graph.duration_ns)


def test_every_task_has_a_cause(real):
    graph = real.graph
    caused = np.zeros(graph.tasks, bool)
    caused[graph.target] = True
    assert np.array_equal(caused, graph.release_ns == MISSING)


def test_dependencies_lead_forward_in_the_order_of_launch(real):
    graph = real.graph
    assert (graph.source != graph.target).all()
    assert (graph.order[graph.source] < graph.order[graph.target]).all()
    assert (graph.trace[graph.source] == graph.trace[graph.target]).all()


def test_dependencies_join_the_kinds_of_tasks_that_they_say(real):
    graph = real.graph
    device = on_device(graph)
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
    graph = real.graph
    host = ~on_device(graph) & (graph.kind != TaskKind.HOST_RETURN)
    tasks = np.flatnonzero(host)
    tasks = tasks[np.lexsort((graph.order[tasks], graph.lane[tasks]))]
    same = graph.lane[tasks[1:]] == graph.lane[tasks[:-1]]
    assert (graph.start_ns[tasks[1:]] >= graph.end_ns[tasks[:-1]])[same].all()


def test_work_of_a_stream_starts_in_its_order(real):
    graph = real.graph
    order = graph.dependency == DependencyKind.STREAM_ORDER
    source, target = graph.source[order], graph.target[order]
    assert (graph.start_ns[source] <= graph.start_ns[target]).all()


def test_a_graph_is_the_same_each_time(real):
    once, again = real.graph, build_graph(real.run)
    for field, value in once.__dict__.items():
        other = getattr(again, field)
        if isinstance(value, np.ndarray):
            assert value.dtype == other.dtype
            assert np.array_equal(value, other)
        else:
            assert value == other


def test_every_rank_replays(real):
    assert max(errors_percent(real.name)) <= EACH_PERCENT


def test_all_sets_replay_on_average():
    assert len(SETS) > 90
    found = [np.mean(errors_percent(name)) for name in SETS]
    assert np.mean(found) <= MEAN_PERCENT
