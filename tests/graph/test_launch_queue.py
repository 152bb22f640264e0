"""A run with another launch queue: what each launch then waits for, and what the step becomes."""

from dataclasses import replace

import numpy as np
import pytest

from jaxperf.graph import DependencyKind, TaskKind, bounded_by_queue, build_graph, with_launch_queue
from jaxperf.replay import replay_graph, steady_weights
from jaxperf.simulator import (
    Annotation,
    Rank,
    SimulatedJob,
    SynchronizeStream,
    Timing,
    Work,
    execute,
    simulate,
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


def launches_of_two_streams():
    """Calls of 1 ns: four kernels of 10 ns on one stream, then two on another."""
    kernels, lanes = range(6), [1, 1, 1, 1, 2, 2]
    edges = [(i, i + 1) for i in range(5)] + [(6, 7), (7, 8), (8, 9), (10, 11)]
    kinds = [DependencyKind.THREAD_ORDER] * 5
    kinds += [DependencyKind.STREAM_ORDER] * 4 + [DependencyKind.LAUNCH] * 6
    return make_graph(
        [1] * 6 + [10] * 6,
        [*edges, *((i, 6 + i) for i in kernels)],
        release_ns={0: 0},
        lane=[0] * 6 + lanes,
        dependency=kinds,
    )


@pytest.mark.parametrize("length", [1, 2, 3, 4, 5, 6, 7, 100])
def test_a_queue_between_half_and_all_launches_of_a_stream_holds_back_the_last_ones(length):
    graph, kept = with_launch_queue(launches_of_two_streams(), length)
    new = kept < 0
    waits = sorted(zip(graph.target[new].tolist(), graph.source[new].tolist(), strict=True))
    streams = [[0, 1, 2, 3], [4, 5]]
    expected = [
        (stream[k], 6 + stream[k - length])
        for stream in streams
        for k in range(length, len(stream))
    ]
    assert waits == expected


# A queue where none was seen to fill
# ---------------------------------------------------------------------------------------


def measured(graph):
    """The graph with its replayed times as measured ones."""
    timeline = replay_graph(graph)
    start_ns = np.rint(np.asarray(timeline.start_us) * 1e3).astype(np.int64)
    return replace(graph, start_ns=start_ns, end_ns=start_ns + graph.duration_ns)


def test_a_queue_that_a_run_never_filled_leaves_its_replay_alone():
    graph = measured(launches(6))
    bounded, notes = bounded_by_queue(graph, 2)
    # When the last call is made, five kernels before it have not ended: the queue held six.
    assert notes == ()
    assert bounded is graph


def test_a_queue_that_is_assumed_is_noted_and_long_enough_for_what_was_seen():
    # Calls of 6 ns: at most three of the kernels of 10 ns are launched and not ended.
    graph = launches(8)
    graph = measured(replace(graph, duration_ns=np.where(graph.lane == 0, 6, 10)))
    bounded, notes = bounded_by_queue(graph, 1)
    (note,) = notes
    assert note.code == "launch-queue-assumed"
    (length,) = (int(word) for word in note.text.split() if word.isdigit())
    assert 3 <= length <= 5
    assert (bounded.dependency == DependencyKind.QUEUE_FULL).sum() == 8 - length
    before, after = replay_graph(graph), replay_graph(bounded)
    assert np.array_equal(before.start_us, after.start_us)


def test_a_queue_that_was_seen_to_fill_stays_as_it_was():
    full, _ = with_launch_queue(launches(6), 2)
    bounded, notes = bounded_by_queue(measured(full), 4)
    assert notes == ()
    assert np.array_equal(bounded.source, full.source)
    assert np.array_equal(bounded.dependency, full.dependency)


def test_a_run_that_launches_nothing_has_no_queue():
    host = make_graph([1, 2], [(0, 1)], release_ns={0: 0})
    assert bounded_by_queue(host, 1) == (host, ())


def test_a_host_is_bounded_when_the_device_becomes_slower():
    graph = launches(40)
    graph = measured(replace(graph, duration_ns=np.where(graph.lane == 0, 10, 9)))
    bounded, notes = bounded_by_queue(graph, 4)
    assert len(notes) == 1
    slow_us = np.where(graph.lane == 0, 0.010, 0.090)
    free, held = replay_graph(graph, slow_us), replay_graph(bounded, slow_us)
    # Without a queue the host runs ahead to its end; with it, it follows the kernels.
    assert free.start_us[39] == pytest.approx(0.390)
    assert held.start_us[39] >= free.end_us[40 + 39 - 4] - 1e-9
    assert held.end_us[40:] == pytest.approx(free.end_us[40:])


def run_ahead(length, scale=None):
    """Steps without any synchronisation, whose kernels are quicker than their launches."""
    steps = [Annotation(f"ProfilerStep#{k}", [add(1.0) for _ in range(60)]) for k in range(6)]
    programs = {0: Rank({"main": [*steps, SynchronizeStream()]}, Timing(launch_queue=length))}
    return execute(programs, scale=scale)


def step_us(graph, durations_us=None):
    timeline = replay_graph(graph, durations_us)
    begin = timeline.start_us[[step.begin_task for step in graph.steps]]
    end = timeline.end_us[[step.end_task for step in graph.steps]]
    return float(steady_weights(graph) @ (end - begin))


def test_a_step_follows_a_device_that_becomes_ten_times_slower(tmp_path):
    graph = build_graph(read_run(write_traces(run_ahead(1024), tmp_path)))
    bounded, (note,) = bounded_by_queue(graph, 16)
    assert note.code == "launch-queue-assumed" and "queue 16 launches" in note.text
    assert step_us(bounded) == pytest.approx(step_us(graph), rel=1e-12)
    slow_us = np.where(graph.kind == TaskKind.KERNEL, 10.0, 1.0) * graph.duration_ns / 1e3
    true_us = run_ahead(16, {"compute": 10.0}).step_us
    # No kernel followed another at once in this run: the gap between them is a usual one.
    assert step_us(bounded, slow_us) == pytest.approx(true_us, rel=0.02)
    assert true_us > 1.3 * step_us(graph)
    assert step_us(graph, slow_us) == pytest.approx(step_us(graph), rel=1e-3)


def test_an_unchanged_job_replays_as_it_did_before(tmp_path):
    job = SimulatedJob(layers=1, data_parallel=2, steps=3)
    graph = build_graph(read_run(write_traces(simulate(job), tmp_path)))
    bounded, notes = bounded_by_queue(graph, 1)
    assert len(notes) == 1
    assert (bounded.dependency == DependencyKind.QUEUE_FULL).any()
    before, after = replay_graph(graph), replay_graph(bounded)
    assert after.start_us == pytest.approx(before.start_us, abs=1e-6)
    assert after.end_us == pytest.approx(before.end_us, abs=1e-6)
