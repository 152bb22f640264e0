"""Variation: what steps tell of the scatter of durations."""

from dataclasses import replace

import numpy as np
import pytest

from jaxperf.graph import Step
from jaxperf.replay import duration_variation
from tests.helpers import make_graph


def repeated(durations, names=None):
    """Steps of the same chain of tasks; `durations` is (steps, tasks)."""
    steps, tasks = np.shape(durations)
    flat = np.asarray(durations).reshape(-1)
    graph = make_graph(
        flat.round().astype(np.int64), [(i, i + 1) for i in range(len(flat) - 1)], release_ns={0: 0}
    )
    marks = tuple(
        Step(f"step {s}", 0, s * tasks, (s + 1) * tasks - 1, s * 1000, (s + 1) * 1000)
        for s in range(steps)
    )
    name = np.tile(np.arange(tasks) if names is None else names, steps)
    return replace(
        graph,
        steps=marks,
        step=np.repeat(np.arange(steps), tasks).astype(np.int32),
        names=tuple(f"task {k}" for k in range(int(name.max()) + 1)),
        name=name.astype(np.int32),
    )


def shapes_of(graph):
    return np.full(graph.tasks, -1, np.int64)


def test_the_scatter_that_was_put_in_is_found():
    rng = np.random.default_rng(0)
    true = np.array([0.02, 0.2])
    durations = np.array([2e5, 5e4]) * np.exp(true * rng.standard_normal((80, 2)))
    graph = repeated(durations)
    found = duration_variation(graph, shapes_of(graph))
    spread = found.spread.reshape(80, 2)[1:]
    assert np.allclose(spread, true, rtol=0.2)
    mean = found.mean_us.reshape(80, 2)[1:]
    assert np.allclose(mean, durations[1:].mean(0) / 1e3, rtol=1e-5)
    assert found.unknown == 0


def test_the_first_step_teaches_nothing_where_there_are_three():
    graph = repeated([[90_000], [10_000], [10_000], [10_000], [10_000], [10_000]])
    found = duration_variation(graph, shapes_of(graph))
    assert found.mean_us.tolist() == [90.0, *[10.0] * 5]
    assert found.spread.tolist() == [0.0] * 6


def test_the_same_task_is_the_same_in_all_steps_and_another_is_not():
    graph = repeated(np.full((4, 3), 1e4))
    same = duration_variation(graph, shapes_of(graph)).same.reshape(4, 3)
    assert (same == same[1]).all()
    assert len(set(same[1].tolist())) == 3


def test_short_tasks_do_not_lend_their_scatter_to_long_ones_of_their_name():
    rng = np.random.default_rng(1)
    short = 1e3 * np.exp(0.5 * rng.standard_normal((40, 1)))
    long = 1e6 * np.exp(0.01 * rng.standard_normal((40, 1)))
    graph = repeated(np.hstack([short, long]), names=[0, 0])
    spread = duration_variation(graph, shapes_of(graph)).spread.reshape(40, 2)[1:]
    assert spread[:, 1].max() < 0.02
    assert spread[:, 0].min() > 0.2


def test_a_task_that_hardly_took_place_once_has_a_bounded_scatter():
    graph = repeated([[6000], [6000], [1], [6000], [6000], [6000], [1], [6000]])
    assert duration_variation(graph, shapes_of(graph)).spread.max() < 1.5


def test_without_steps_nothing_is_known():
    graph = repeated([[1000], [1000]])
    graph = replace(graph, steps=(), step=np.full(2, -1, np.int32))
    found = duration_variation(graph, shapes_of(graph))
    assert found.unknown == 2
    assert found.spread.tolist() == [0.0, 0.0]
    assert found.mean_us.tolist() == [1.0, 1.0]


def test_a_task_without_duration_has_no_scatter():
    graph = repeated(np.tile([0, 5000], (6, 1)))
    found = duration_variation(graph, shapes_of(graph))
    assert found.unknown == 0
    assert found.spread.reshape(6, 2)[:, 0].tolist() == [0.0] * 6


@pytest.mark.parametrize("steps", [1, 2])
def test_few_steps_are_no_ground_for_a_scatter(steps):
    graph = repeated(np.full((steps, 1), 7000))
    assert duration_variation(graph, shapes_of(graph)).unknown == steps
