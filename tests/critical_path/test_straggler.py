"""The rank that holds the others up is found and named with its cause, and nobody else is."""

import pytest

from jaxperf.critical_path._meetings import find_meetings
from jaxperf.critical_path._slow_links import message_sizes
from jaxperf.critical_path._straggler import find_straggler
from jaxperf.graph import build_graph
from jaxperf.replay import measured_timeline, step_weights
from jaxperf.simulator import (
    Annotation,
    Collective,
    Kernel,
    Launch,
    Noise,
    Rank,
    SimulatedJob,
    SynchronizeDevice,
    execute,
    simulate,
    write_traces,
)
from jaxperf.trace import read_run

NOISE = Noise(kernel=0.01, host=0.06, latency=0.05)
BUSY = {"layers": 2, "hidden_size": 1024}
# Small kernels: the devices wait for their hosts.
HOST_BOUND = {"layers": 2, "hidden_size": 256, "sequence_length": 256, "vocabulary_size": 4096}
PIPELINE = {**BUSY, "layers": 4, "pipeline_parallel": 4, "micro_batches": 4}


def accused(run, folder):
    """As the verb asks, at the times as measured."""
    run = read_run(write_traces(run, folder))
    graph = build_graph(run)
    measured = measured_timeline(graph)
    weights = step_weights(graph)
    step_us = float(weights @ [(s.end_ns - s.begin_ns) / 1e3 for s in graph.steps])
    meetings = find_meetings(graph, measured)
    return find_straggler(graph, meetings, weights, message_sizes(run, graph), step_us)[0]


@pytest.fixture
def straggler(tmp_path):
    def of(job, scale=None):
        job = SimulatedJob(noise=NOISE, clock_spread_us=500.0, **job)
        return accused(simulate(job, seed=5, scale=scale), tmp_path)

    return of


@pytest.mark.parametrize(
    ("job", "scale", "rank", "cause"),
    [
        ({**BUSY, "data_parallel": 4}, {"rank:1/compute": 1.15}, 1, "kernels"),
        ({**BUSY, "data_parallel": 2}, {"rank:0/gemm": 1.3}, 0, "kernels"),
        # The hosts run ahead of the devices, so the steps as marked do not show it.
        (
            {**BUSY, "data_parallel": 3, "synchronize": "never"},
            {"rank:2/compute": 1.3},
            2,
            "kernels",
        ),
        ({**HOST_BOUND, "data_parallel": 4}, {"rank:2/host": 1.4}, 2, "host"),
        ({**BUSY, "data_parallel": 4}, {"rank:3/memcpy": 300.0}, 3, "link"),
        (
            {**BUSY, "data_parallel": 2, "tensor_parallel": 2},
            {"rank:3/communication": 6.0},
            3,
            "link",
        ),
        # Stages differ, and yet replicas of one stage can be compared.
        (
            {**PIPELINE, "pipeline_parallel": 2, "data_parallel": 2},
            {"rank:3/compute": 1.3},
            3,
            "kernels",
        ),
    ],
)
def test_a_slow_rank_is_named_with_its_cause(straggler, job, scale, rank, cause):
    found = straggler(job, scale)
    assert (found.rank, found.ranks, found.cause) == (rank, (rank,), cause)
    assert found.own_us - found.peers_us == pytest.approx(found.excess_us)
    assert 0 < found.gain_us < 1.01 * found.excess_us
    assert rank not in found.peers


@pytest.mark.parametrize(
    ("job", "scale"),
    [
        ({**BUSY, "data_parallel": 4}, None),
        ({**HOST_BOUND, "data_parallel": 4}, None),
        (PIPELINE, None),
        # A slow host that stays ahead of its device costs nothing.
        ({**BUSY, "data_parallel": 2}, {"rank:1/host": 1.2}),
        # Every member of the only group is as slow, so none can be told from the others.
        ({**BUSY, "data_parallel": 2}, {"rank:1/communication": 5.0}),
        # All alike are slow.
        ({**BUSY, "data_parallel": 2}, {"compute": 1.5}),
    ],
)
def test_nobody_is_accused_where_no_rank_stands_out(straggler, job, scale):
    assert straggler(job, scale) is None


def test_ranks_that_meet_nobody_else_over_their_slow_link_are_named_together(tmp_path):
    def program(rank):
        pair = (0, 1) if rank < 2 else (2, 3)
        step = []
        for _ in range(20):
            exchange = Collective("allreduce", str(pair), pair, 200.0 if rank < 2 else 500.0, 4096)
            every = Collective("allreduce", "all", (0, 1, 2, 3), 20.0, 64)
            step += [Launch(Kernel("gemm", 300.0, "gemm")), Launch(exchange), Launch(every)]
        step.append(SynchronizeDevice())
        return Rank({"main": [Annotation(f"ProfilerStep#{i}", step) for i in range(3)]})

    found = accused(execute({rank: program(rank) for rank in range(4)}), tmp_path)
    assert found is not None
    assert (found.rank, found.ranks, found.cause) == (None, (2, 3), "link")
    assert found.gain_us == pytest.approx(20 * 300.0, rel=0.01)


def test_what_takes_longer_is_named(straggler):
    found = straggler({**BUSY, "data_parallel": 3}, {"rank:1/attention": 4.0})
    assert found.rank == 1
    assert "flash" in found.names[0][0]
    assert sum(excess_us for _, excess_us in found.names) < 1.1 * found.excess_us


def test_waits_add_up_to_the_lateness_of_the_last(traces):
    graph = build_graph(read_run([traces]))
    timeline = measured_timeline(graph)
    meetings = find_meetings(graph, timeline)
    assert meetings.groups == ((0, 1),)
    assert (meetings.wait_us >= 0).all()
    for number in range(meetings.meeting.max() + 1):
        parts = meetings.meeting == number
        came = timeline.start_us[graph.arrival[meetings.transfer[parts]]]
        assert meetings.wait_us[parts] == pytest.approx(came.max() - came)
        ranks = graph.trace[meetings.transfer[parts]]
        assert (meetings.last[parts] == ranks[came.argmax()]).all()
