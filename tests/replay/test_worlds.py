"""Many worlds of one run: each is the replay of its own durations, however they are computed."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from jaxperf.graph import Step, TaskClass, TaskKind
from jaxperf.replay import (
    Contention,
    Variation,
    _worlds,
    prepare_worlds,
    replay_graph,
    steady_step_us,
    steady_weights,
    world_steps_us,
    world_timelines,
)
from tests.helpers import make_graph, random_graph, random_graphs, start_times


def with_steps(graph):
    """Steps that take time, so that they count."""
    return replace(
        graph,
        steps=tuple(replace(s, begin_ns=0, end_ns=1, name=s.name) for s in graph.steps),
    )


def draw(graph, groups, worlds, seed):
    rng = np.random.default_rng(seed)
    group = rng.integers(0, groups + 1, graph.tasks)
    lag_group = rng.integers(0, groups + 1, len(graph.source))
    return group, lag_group, rng.uniform(0.0, 3.0, (groups, worlds))


def expected_step_us(graph, group, lag_group, factor):
    """By the definition, one task at a time."""
    factor = np.append(factor, 1.0)
    duration = graph.duration_ns / 1e3 * factor[group]
    lag = graph.lag_ns / 1e3 * factor[lag_group]
    in_us = replace(graph, release_ns=graph.release_ns)
    release = {t: r / 1e3 for t, r in enumerate(graph.release_ns.tolist()) if r > -(2**62)}
    start = start_times(_released(in_us, release), duration.tolist(), lag.tolist())
    weights = steady_weights(graph)
    if not weights.any():
        first = min(start_times(graph, graph.duration_ns.tolist())) / 1e3
        return max(s + d for s, d in zip(start, duration, strict=True)) - first
    return sum(
        w * (start[s.end_task] + duration[s.end_task] - start[s.begin_task])
        for w, s in zip(weights, graph.steps, strict=True)
    )


def _released(graph, release_us):
    """The oracle adds releases as they are: here in microseconds."""
    release = np.full(graph.tasks, np.iinfo(np.int64).min, object)
    for task, time in release_us.items():
        release[task] = time
    return replace(graph, release_ns=release)


@settings(max_examples=25)
@given(random_graphs(), st.integers(1, 4), st.integers(0, 2**32 - 1), st.booleans())
def test_each_way_gives_the_replay_by_definition(graph, groups, seed, steps):
    graph = with_steps(graph) if steps else replace(graph, steps=())
    group, lag_group, factors = draw(graph, groups, 3, seed)
    worlds = prepare_worlds(graph, group, lag_group, groups)
    expected = [expected_step_us(graph, group, lag_group, factors[:, k]) for k in range(3)]
    batch = world_steps_us(worlds, 3, lambda s: factors[:, s])
    assert batch == pytest.approx(expected, abs=1e-6)
    timelines = list(world_timelines(worlds, factors))
    assert [steady_step_us(worlds, t) for t in timelines] == pytest.approx(expected, abs=1e-6)


def test_own_durations_equal_the_batch(monkeypatch):
    graph = with_steps(random_graph(np.random.default_rng(3), 200))
    group, lag_group, factors = draw(graph, 5, 150, 0)
    worlds = prepare_worlds(graph, group, lag_group, 5)
    batch = world_steps_us(worlds, 150, lambda s: factors[:, s])
    monkeypatch.setattr(_worlds, "_FEW_GROUPS", 0)
    done = []
    own = world_steps_us(
        worlds, 150, lambda s: factors[:, s], progress=lambda n, of: done.append((n, of))
    )
    assert own == pytest.approx(batch, rel=1e-12)
    assert done == [(64, 150), (128, 150), (150, 150)]


def test_memory_is_that_of_a_chunk_whatever_the_number_of_worlds(monkeypatch):
    graph = with_steps(random_graph(np.random.default_rng(4), 50))
    group, lag_group, factors = draw(graph, 2, 1, 0)
    worlds = prepare_worlds(graph, group, lag_group, 2)
    monkeypatch.setattr(_worlds, "_BATCH", 10)
    asked = []

    def some(which):
        asked.append(which.stop - which.start)
        return np.tile(factors, which.stop - which.start)

    answers = world_steps_us(worlds, 95, some)
    assert max(asked) == 10 and sum(asked) == 95
    assert np.ptp(answers) == 0.0


def test_no_worlds_have_no_answers():
    graph = random_graph(np.random.default_rng(0), 5)
    worlds = prepare_worlds(graph, np.full(5, 1), np.full(len(graph.source), 1), 1)
    assert world_steps_us(worlds, 0, lambda s: np.ones((1, 0))).shape == (0,)


# ---------------------------------------------------------------------------------------
# Contention


def overlapping():
    """A kernel of 100 us beside a collective of 60 us; the step ends with the kernel."""
    graph = make_graph(
        [0, 100_000, 60_000],
        [(0, 1), (0, 2)],
        release_ns={0: 0},
        lane=[0, 1, 2],
        task_class=[TaskClass.HOST, TaskClass.GEMM, TaskClass.COMMUNICATION],
    )
    kind = np.array([TaskKind.HOST_WORK, TaskKind.KERNEL, TaskKind.COLLECTIVE], np.int8)
    contention = Contention(
        classes=(),
        kernel=np.array([1], np.int32),
        slowdown=np.array([0.5]),
        begin=np.array([2], np.int32),
        end=np.array([2], np.int32),
        kernel_bounds=(0, 1),
        communication_bounds=(0, 1),
    )
    step = Step("step 0", 0, 0, 1, 0, 100_000)
    return replace(graph, kind=kind, steps=(step,)), contention


@pytest.mark.parametrize("communication, expected_us", [(1.0, 100.0), (0.0, 70.0), (0.5, 85.0)])
def test_communication_that_is_gone_slows_no_kernel(communication, expected_us):
    graph, contention = overlapping()
    # Of 100 us beside 60 us of communication, 30 us were lost to it.
    worlds = prepare_worlds(graph, np.array([1, 1, 0]), np.full(2, 1), 1, contention)
    assert worlds.alone_us[:3].tolist() == [0.0, 70.0, 60.0]
    (timeline,) = world_timelines(worlds, np.array([[communication]]))
    assert steady_step_us(worlds, timeline) == pytest.approx(expected_us, rel=1e-9)
    (step_us,) = world_steps_us(worlds, 1, lambda s: np.array([[communication]]))
    assert step_us == pytest.approx(expected_us, rel=1e-9)


def test_with_contention_the_unchanged_world_is_the_replay():
    graph, contention = overlapping()
    worlds = prepare_worlds(graph, np.full(3, 0), np.full(2, 0), 0, contention)
    (timeline,) = world_timelines(worlds, np.ones((0, 1)))
    assert timeline.end_us.tolist() == replay_graph(graph).end_us.tolist()


# ---------------------------------------------------------------------------------------
# Draws


def chain(tasks, spread, seen=1):
    graph = make_graph([10_000] * tasks, [(i, i + 1) for i in range(tasks - 1)], release_ns={0: 0})
    graph = replace(graph, steps=(Step("step 0", 0, 0, tasks - 1, 0, 1),))
    variation = Variation(
        mean_us=np.full(tasks, 10.0),
        spread=np.full(tasks, spread),
        same=np.arange(tasks),
        seen=np.full(tasks, seen),
        unknown=0,
    )
    return graph, variation


def drawn(graph, variation, seed=0, n=4000):
    worlds = prepare_worlds(graph, np.zeros(graph.tasks, int), np.zeros(len(graph.source), int), 0)
    return world_steps_us(
        worlds, n, lambda s: np.ones((0, s.stop - s.start)), variation=variation, seed=seed
    )


def test_draws_scatter_as_the_sum_of_their_tasks_does():
    found = drawn(*chain(20, 0.1))
    assert found.mean() == pytest.approx(200.0, rel=0.005)
    # Each of a single observation: its own scatter and that of the mean it is drawn around.
    assert found.std() == pytest.approx(10.0 * np.sqrt(20) * 0.1 * np.sqrt(2), rel=0.05)


def test_what_was_seen_often_is_known_better():
    found = drawn(*chain(20, 0.1, seen=100))
    assert found.std() == pytest.approx(10.0 * np.sqrt(20) * 0.1 * np.sqrt(1.01), rel=0.05)


def test_nothing_is_drawn_where_nothing_varies():
    assert np.ptp(drawn(*chain(5, 0.0), n=100)) == 0.0


def test_draws_follow_their_seed():
    one, again, other = (drawn(*chain(5, 0.2), seed=seed, n=200) for seed in (1, 1, 2))
    assert one.tolist() == again.tolist()
    assert one.tolist() != other.tolist()
