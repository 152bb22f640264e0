"""The gradient of the step time: against finite differences, and against the critical path."""

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from jaxperf.errors import ConfigError
from jaxperf.graph import DependencyKind, TaskClass, build_graph
from jaxperf.replay import binding_dependencies, path_to, replay_graph
from jaxperf.replay._sensitivity import (
    sensitivities,
    step_weights,
    sum_by_class,
    sum_by_name,
    sum_by_rank,
)
from jaxperf.trace import read_run
from tests.helpers import make_graph, random_graphs, start_times


@pytest.fixture(scope="module")
def graph(traces):
    """Two ranks of a small GPT, four steps."""
    return build_graph(read_run([traces]))


def steady_us(graph, weights, duration_ns, lag_ns):
    """By the definition, in plain Python."""
    start = start_times(graph, duration_ns.tolist(), lag_ns.tolist())
    spans = [start[s.end_task] + duration_ns[s.end_task] - start[s.begin_task] for s in graph.steps]
    return float(weights @ spans) / 1e3


@pytest.mark.parametrize("step", [None, 0, "ProfilerStep#3"])
def test_one_more_permille_of_a_class_costs_what_the_gradient_says(graph, step):
    weights = step_weights(graph, step)
    found = sensitivities(graph, step=step)
    duration, lag = graph.duration_ns, graph.lag_ns
    by_class = sum_by_class(graph, found.task_us, found.dependency_us)
    before = steady_us(graph, weights, duration, lag)
    assert found.step_us == pytest.approx(before, abs=1e-6)
    for name in ("gemm", "communication", "host", "optimizer"):
        chosen = graph.task_class == TaskClass[name.upper()]
        after = steady_us(graph, weights, np.where(chosen, 1.001 * duration, duration), lag)
        assert after - before == pytest.approx(1e-3 * by_class.get(name, 0.0), abs=2e-3)
    launches = graph.dependency == DependencyKind.LAUNCH
    after = steady_us(graph, weights, duration, np.where(launches, 1.001 * lag, lag))
    gained = float(found.dependency_us[launches].sum())
    assert after - before == pytest.approx(1e-3 * gained, abs=2e-3)


def test_the_weights_are_those_of_the_steady_step(graph):
    weights = step_weights(graph)
    names = [step.name for step in graph.steps]
    assert weights.sum() == pytest.approx(1.0)
    assert {n for n, w in zip(names, weights, strict=True) if w == 0} == {"ProfilerStep#1"}
    assert set(weights[weights > 0]) == {1 / 6}
    assert step_weights(graph, -1).tolist() == [0.5 if n == "ProfilerStep#4" else 0 for n in names]


def test_a_step_without_time_cannot_be_asked_for():
    graph = make_graph([6_000], [], release_ns={0: 0}, steps=[(0, 0)])
    with pytest.raises(ConfigError, match="takes no time"):
        step_weights(graph, 0)


@settings(max_examples=40)
@given(random_graphs(), st.integers(0, 2**32 - 1))
def test_of_a_window_the_gradient_is_the_critical_path_and_promises_the_most(graph, seed):
    found = sensitivities(graph)
    timeline = replay_graph(graph)
    last = int(np.argmax(timeline.end_us))
    path = path_to(graph, timeline, binding_dependencies(graph, timeline.start_us), last)
    # Where ends tie, path and gradient may take different ways of the same length.
    if set(path.task[path.own_us > 0]) == set(np.flatnonzero(found.task_us)):
        own = np.bincount(graph.task_class[path.task], path.own_us, len(TaskClass))
        slope = np.bincount(graph.task_class, found.task_us, len(TaskClass))
        np.testing.assert_allclose(slope, own, atol=1e-6)
    # The window is a maximum of sums, so it is convex: no change is better than its slope.
    duration = graph.duration_ns / 1e3
    changed = duration * np.random.default_rng(seed).uniform(0.0, 2.0, graph.tasks)
    after = replay_graph(graph, changed).end_us.max()
    assert after >= timeline.end_us.max() + found.task @ (changed - duration) - 1e-6


def test_sums_hold_every_microsecond_once(graph):
    found = sensitivities(graph)
    total = found.task_us.sum() + found.dependency_us.sum()
    assert found.step_us == pytest.approx(total, rel=1e-6)
    by_class = sum_by_class(graph, found.task_us, found.dependency_us)
    by_rank = sum_by_rank(graph, found.task_us, found.dependency_us)
    assert sum(by_class.values()) == pytest.approx(total)
    assert sum(by_rank.values()) == pytest.approx(total)
    assert list(by_rank) == [0, 1]
    assert sum(sum_by_name(graph, found.task_us).values()) == pytest.approx(found.task_us.sum())


def test_other_durations_have_another_gradient():
    graph = make_graph([3_000, 2_000, 1_000], [(0, 2), (1, 2)], release_ns={0: 0, 1: 0})
    assert sensitivities(graph).task.tolist() == [1.0, 0.0, 1.0]
    other = sensitivities(graph, np.array([3.0, 8.0, 1.0]))
    assert other.task.tolist() == [0.0, 1.0, 1.0]
    assert other.task_us.tolist() == [0.0, 8.0, 1.0]
    assert sensitivities(graph, None, np.array([0.0, 5.0])).dependency_us.tolist() == [0.0, 5.0]
