"""What binds a task is what it started by, and the path adds up to the end."""

import numpy as np
import pytest
from hypothesis import given

from jaxperf.graph import DependencyKind, TaskClass
from jaxperf.replay import (
    Timeline,
    binding_dependencies,
    critical_path_us_by_class,
    path_to,
)
from jaxperf.trace import MISSING
from tests.helpers import make_graph, random_graphs, start_times

ROUNDING_US = 1e-6


def timeline_of(graph) -> Timeline:
    start = np.array(start_times(graph, graph.duration_ns.tolist())) / 1e3
    return Timeline(start, start + graph.duration_ns / 1e3)


@given(random_graphs())
def test_what_binds_a_task_is_what_it_started_by(graph):
    timeline = timeline_of(graph)
    binding = binding_dependencies(graph, timeline.start_us)
    assert binding.dtype == np.int32
    for task, edge in enumerate(binding.tolist()):
        if edge < 0:
            assert timeline.start_us[task] == graph.release_ns[task] / 1e3
            continue
        assert graph.target[edge] == task
        source = int(graph.source[edge])
        since = timeline.start_us if graph.from_start[edge] else timeline.end_us
        ready = since[source] + graph.lag_ns[edge] / 1e3
        assert ready == pytest.approx(timeline.start_us[task], abs=ROUNDING_US)


@given(random_graphs())
def test_a_path_adds_up_to_its_end(graph):
    timeline = timeline_of(graph)
    binding = binding_dependencies(graph, timeline.start_us)
    for task in range(graph.tasks):
        path = path_to(graph, timeline, binding, task)
        assert path.task[-1] == task
        assert graph.release_ns[path.task[0]] != MISSING
        total = path.begin_us + path.lag_us.sum() + path.own_us.sum()
        assert total == pytest.approx(timeline.end_us[task], abs=ROUNDING_US)
        by_class = critical_path_us_by_class(graph, path)
        assert sum(by_class.values()) == pytest.approx(total - path.begin_us, abs=ROUNDING_US)
        since = critical_path_us_by_class(graph, path, since_us=5.0)
        expected = max(timeline.end_us[task], 5.0) - max(path.begin_us, 5.0)
        assert sum(since.values()) == pytest.approx(expected, abs=ROUNDING_US)


def test_time_goes_to_classes_and_launch_lags_to_launch():
    # A call starts a kernel 4 us after its own start; a copy follows the kernel after 1 us.
    graph = make_graph(
        [6_000, 10_000, 2_000],
        [(0, 1, 4_000, True), (1, 2, 1_000)],
        release_ns={0: 500},
        lane=[0, 1, 1],
        task_class=[TaskClass.LAUNCH, TaskClass.GEMM, TaskClass.MEMCPY],
        dependency=[DependencyKind.LAUNCH, DependencyKind.STREAM_ORDER],
    )
    timeline = timeline_of(graph)
    path = path_to(graph, timeline, binding_dependencies(graph, timeline.start_us), 2)
    assert path.task.tolist() == [0, 1, 2]
    assert path.begin_us == 0.5
    np.testing.assert_allclose(path.lag_us, [0.0, 4.0, 1.0])
    np.testing.assert_allclose(path.own_us, [0.0, 10.0, 2.0])
    by_class = critical_path_us_by_class(graph, path)
    assert by_class == pytest.approx({"launch": 4.0, "gemm": 10.0, "memcpy": 3.0})


def test_on_a_tie_the_first_dependency_binds_and_a_dependency_before_the_release():
    edges = [(1, 2), (0, 2)]
    graph = make_graph([3_000, 3_000, 1_000], edges, release_ns={0: 0, 1: 0, 2: 3_000})
    assert binding_dependencies(graph, timeline_of(graph).start_us).tolist() == [-1, -1, 0]


def test_other_durations_and_lags_bind_otherwise():
    graph = make_graph([3_000, 2_000, 1_000], [(0, 2), (1, 2)], release_ns={0: 0, 1: 0})
    starts = np.array([0.0, 0.0, 9.0])
    duration, lag = np.array([3.0, 8.0, 1.0]), np.array([0.0, 1.0])
    assert binding_dependencies(graph, starts, duration, lag).tolist() == [-1, -1, 1]
