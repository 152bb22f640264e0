import numpy as np

from jaxperf.graph import TaskKind
from jaxperf.report._timeline import binding_source, busy_until, lane_order, timeline_spans
from tests.report.fabricated import Builder, assemble, finish_step, host_work, make_replay


def test_both_timelines_begin_at_zero_in_whole_nanoseconds(replay):
    measured, replayed = timeline_spans(replay)
    assert min(measured.start_ns.min(), replayed.start_ns.min()) == 0
    duration = replayed.end_ns - replayed.start_ns
    assert duration.dtype == np.int64
    assert np.array_equal(duration, replay.graph.duration_ns)


def test_a_collective_waits_for_the_rank_that_comes_last(replay):
    graph = replay.graph
    waits = timeline_spans(replay)[1].waits
    collective = graph.kind[waits.task] == TaskKind.COLLECTIVE
    assert collective.sum() >= 6
    own = graph.trace[waits.task[collective]]
    cause = graph.trace[waits.cause[collective]]
    assert np.all(own == 0) and np.all(cause == 1)  # rank 1 is the slow one


def test_a_blocking_call_waits_from_its_own_work_to_its_return(replay):
    graph = replay.graph
    spans = timeline_spans(replay)[1]
    waits = spans.waits
    returns = np.flatnonzero(graph.kind[waits.task] == TaskKind.HOST_RETURN)
    assert len(returns) == 4  # two ranks, two steps
    for i in returns:
        task = waits.task[i]
        assert graph.kind[task - 1] == TaskKind.HOST_CALL
        assert waits.begin_ns[i] == spans.end_ns[task - 1]
        assert waits.end_ns[i] == spans.start_ns[task]


def blocking_call(busy_us):
    """A kernel, host work of some length beside it, and a call that waits for the kernel."""
    build = Builder()
    host_work(build, 0, 1.0)
    build.last[2] = build.last[0]  # there is no reduction to wait for
    end = finish_step(build, 0, busy_us)
    replay = assemble(build, 1, [[(0, 0, end)]])
    return replay, timeline_spans(replay)[1], (end - 2, end - 1, end)


def test_a_call_with_nothing_to_wait_for_shows_no_wait_and_no_early_return():
    _, spans, _ = blocking_call(busy_us=0.0)
    assert len(spans.waits.task) == 1
    replay, spans, (call, returning, over) = blocking_call(busy_us=500.0)
    assert len(spans.waits.task) == 0
    assert replay.replayed.end_us[returning] < replay.replayed.start_us[call]
    assert spans.start_ns[returning] == spans.end_ns[returning] == spans.end_ns[call]
    assert spans.end_ns[over] == spans.end_ns[call]


def test_waits_never_overlap_what_their_lane_does(replay):
    graph = replay.graph
    for spans in timeline_spans(replay):
        waits = spans.waits
        assert np.all(waits.end_ns > waits.begin_ns)
        for task, begin, end in zip(waits.task, waits.begin_ns, waits.end_ns, strict=True):
            others = graph.lane == graph.lane[task]
            assert not np.any(others & (spans.start_ns < end) & (spans.end_ns > begin))


def test_time_inside_a_measured_collective_beyond_its_transfer_is_a_wait():
    replay = make_replay(ranks=1, steps=1, layers=1)
    graph = replay.graph
    task = int(np.flatnonzero(graph.kind == TaskKind.COLLECTIVE)[0])
    replay.measured.start_us[task] -= 5.0
    waits = timeline_spans(replay)[0].waits
    at = int(np.flatnonzero(waits.task == task)[0])
    assert waits.end_ns[at] - waits.begin_ns[at] == 5000


def test_busy_until_looks_back_along_each_lane():
    lane = np.array([1, 0, 1, 1, 0])
    start = np.array([0, 5, 10, 20, 50])
    end = np.array([100, 9, 15, 30, 60])
    never = np.iinfo(np.int64).min
    until = busy_until(lane, start, end, np.arange(5))
    assert until.tolist() == [never, never, 100, 100, 9]


def test_lanes_stand_by_rank_and_threads_before_streams(replay):
    lanes = [replay.graph.lanes[i] for i in lane_order(replay.graph)]
    assert [lane.rank for lane in lanes] == [0, 0, 0, 1, 1, 1]
    assert [lane.is_stream for lane in lanes] == [False, True, True] * 2


def test_the_cause_of_a_start_is_where_its_dependency_comes_from(replay):
    source = binding_source(replay)
    assert np.array_equal(source < 0, replay.binding < 0)
    bound = np.flatnonzero(source >= 0)
    ready = replay.replayed.end_us[source[bound]] + (
        replay.graph.lag_ns[replay.binding[bound]] / 1e3
    )
    assert np.allclose(ready, replay.replayed.start_us[bound], atol=1e-6)
