"""A run with another launch queue: what each launch then waits for, and what the step becomes."""

import numpy as np
import pytest

from jaxperf.graph import DependencyKind, build_graph, with_launch_queue
from jaxperf.replay import replay_graph, steady_weights
from jaxperf.simulator import (
    Annotation,
    Rank,
    SynchronizeStream,
    Timing,
    Work,
    execute,
    write_traces,
)
from jaxperf.trace import read_run
from tests.helpers import make_graph
from tests.scenarios import add


def launches(kernels):
    """Calls of 1 ns, each of a kernel of 10 ns on one stream."""
    calls, work = range(kernels), range(kernels, 2 * kernels)
    edges = [(i, i + 1) for i in calls[:-1]] + [(i, i + 1) for i in work[:-1]]
    kinds = [DependencyKind.THREAD_ORDER] * (kernels - 1)
    kinds += [DependencyKind.STREAM_ORDER] * (kernels - 1) + [DependencyKind.LAUNCH] * kernels
    return make_graph(
        [1] * kernels + [10] * kernels,
        [*edges, *zip(calls, work, strict=True)],
        release_ns={0: 0},
        lane=[0] * kernels + [1] * kernels,
        dependency=kinds,
    )


@pytest.mark.parametrize("length", [1, 2, 5])
def test_a_launch_waits_until_all_but_so_many_before_it_have_ended(length):
    graph, kept = with_launch_queue(launches(6), length)
    new = kept < 0
    assert set(graph.dependency[new]) == {DependencyKind.QUEUE_FULL}
    waits = sorted(zip(graph.target[new].tolist(), graph.source[new].tolist(), strict=True))
    assert waits == [(call, 6 + call - length) for call in range(length, 6)]
    start_us = replay_graph(graph).start_us
    # The k-th kernel ends at 1 + 10 (k + 1) ns, and the call that waits for it starts then.
    assert start_us[length] == pytest.approx(0.011)


def test_a_queue_that_nothing_fills_changes_nothing():
    graph, kept = with_launch_queue(launches(4), 4)
    assert kept.tolist() == list(range(len(launches(4).source)))
    assert np.array_equal(graph.source, launches(4).source)


def test_earlier_waits_for_room_are_replaced():
    once, _ = with_launch_queue(launches(6), 2)
    twice, kept = with_launch_queue(once, 5)
    assert (twice.dependency == DependencyKind.QUEUE_FULL).sum() == 1
    assert kept.max() < len(launches(6).source)


def run_with_queue(length):
    """Steps whose kernels are slower than their launches, with host work at their end."""
    step = [Work(5.0), *(add(20.0) for _ in range(60)), Work(1000.0), SynchronizeStream()]
    steps = [Annotation(f"ProfilerStep#{k}", step) for k in range(4)]
    return execute({0: Rank({"main": steps}, Timing(launch_queue=length))}, seed=1)


@pytest.mark.parametrize("length", [4, 16, 30])
def test_a_shorter_queue_gives_the_step_that_the_simulator_measures(tmp_path, length):
    recorded = run_with_queue(1024)
    graph = build_graph(read_run(write_traces(recorded, tmp_path)))
    changed, _ = with_launch_queue(graph, length)
    timeline = replay_graph(changed)
    begin = timeline.start_us[[step.begin_task for step in graph.steps]]
    end = timeline.end_us[[step.end_task for step in graph.steps]]
    step_us = float(steady_weights(graph) @ (end - begin))
    true_us = run_with_queue(length).step_us
    assert true_us > 1.02 * recorded.step_us
    assert step_us == pytest.approx(true_us, rel=0.01)
