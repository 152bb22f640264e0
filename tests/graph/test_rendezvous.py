"""A collective is an arrival, a wait for the last member, and a transfer."""

import tempfile
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from jaxperf.graph import DependencyKind, ExecutionGraph, TaskKind, build_graph
from jaxperf.replay import binding_dependencies
from jaxperf.simulator import Collective, Noise, SimulatedJob, simulate, write_traces
from jaxperf.trace import MISSING, read_run
from tests.graph.asked import codes, device_task, replayed
from tests.graph.several import (
    Ranks,
    collectives,
    meetings,
    note,
    parts,
    transfers_us,
    waits_us,
)

ROUNDING_US = 0.002
CLOCK_US = 1.0
"""The oracle's files round each time to 0.25 us."""

JOBS = (
    "gpt_dp2_pp2_tp2",
    "gpt_dp4_straggler",
    "gpt_fsdp4",
    "gpt_pp4_cpu_bound",
    "gpt_sync_every_micro",
)


@pytest.fixture(scope="module")
def oracle(shared):
    return cache(lambda job: build_graph(read_run([shared / "oracle" / job])))


def three_ranks(folder: Path) -> ExecutionGraph:
    """Rank 2 is last at the first collective, rank 0 at the second; all on one stream."""
    ranks = Ranks(0, 1, 2, clock_us={1: 400.0, 2: -90.0})
    for rank, busy in enumerate((100, 160, 240)):
        ranks.work(rank, f"gemm {rank}", 0, busy, stream=20)
    ranks.collective({0: 100, 1: 160, 2: 240}, 300)
    for rank, end in enumerate((450, 330, 310)):
        ranks.work(rank, f"add {rank}", 300, end, stream=20)
    ranks.collective({0: 450, 1: 330, 2: 310}, 480)
    for rank in range(3):
        ranks.work(rank, f"norm {rank}", 480, 500 + rank, stream=20)
    return ranks.graph(folder)


# -- the parts of a collective ------------------------------------------------------------------


def test_each_rank_waits_for_the_last_and_then_transfers(tmp_path):
    graph = three_ranks(tmp_path)
    assert waits_us(graph) == pytest.approx(
        {(0, 0): 140, (1, 0): 80, (2, 0): 0, (0, 1): 0, (1, 1): 120, (2, 1): 140}, abs=ROUNDING_US
    )
    first, second = 60, 30
    assert transfers_us(graph) == pytest.approx(
        {(r, i): (first, second)[i] for r in range(3) for i in range(2)}, abs=ROUNDING_US
    )


def test_an_arrival_takes_no_time_and_lies_where_its_kernel_began(tmp_path):
    graph = three_ranks(tmp_path)
    arrivals = np.flatnonzero(graph.kind == TaskKind.ARRIVAL)
    assert len(arrivals) == 6
    assert not graph.duration_ns[arrivals].any()
    assert np.array_equal(graph.start_ns[arrivals], graph.end_ns[arrivals])
    begun = {
        (part.rank, part.place): graph.start_ns[part.arrival] for part in parts(graph).values()
    }
    first = {(0, 0): 100, (1, 0): 160, (2, 0): 240, (0, 1): 450, (1, 1): 330, (2, 1): 310}
    assert {key: time / 1e3 for key, time in begun.items()} == pytest.approx(first)


def test_arrival_and_transfer_are_one_event_of_one_lane(tmp_path):
    graph = three_ranks(tmp_path)
    transfers = np.flatnonzero(graph.arrival >= 0)
    arrivals = graph.arrival[transfers]
    assert (graph.kind[transfers] == TaskKind.COLLECTIVE).all()
    assert sorted(arrivals.tolist()) == np.flatnonzero(graph.kind == TaskKind.ARRIVAL).tolist()
    for column in (graph.name, graph.lane, graph.trace, graph.event, graph.step, graph.task_class):
        assert np.array_equal(column[transfers], column[arrivals])


def test_what_bound_the_kernel_binds_its_arrival_and_what_followed_it_its_transfer(tmp_path):
    graph = three_ranks(tmp_path)
    order = graph.dependency == DependencyKind.STREAM_ORDER
    pairs = set(zip(graph.source[order].tolist(), graph.target[order].tolist(), strict=True))
    found = parts(graph)
    for rank in range(3):
        first, second = found[rank, 0], found[rank, 1]
        gemm, add = device_task(graph, f"gemm {rank}"), device_task(graph, f"add {rank}")
        assert {(gemm, first.arrival), (first.transfer, add)} <= pairs
        assert {(add, second.arrival), (second.transfer, device_task(graph, f"norm {rank}"))} <= (
            pairs
        )
    assert len(pairs) == 12


def test_only_a_dependency_starts_a_transfer(tmp_path):
    graph = three_ranks(tmp_path)
    transfers = [part.transfer for part in parts(graph).values()]
    assert (graph.release_ns[transfers] == MISSING).all()


def test_a_transfer_is_bound_by_the_rank_that_arrived_last(tmp_path):
    graph = three_ranks(tmp_path)
    assert [last_rank(graph, (rank, 0)) for rank in range(3)] == [2, 2, 2]
    assert [last_rank(graph, (rank, 1)) for rank in range(3)] == [0, 0, 0]


def last_rank(graph: ExecutionGraph, key: tuple[int, int]) -> int:
    """The rank whose arrival bound a transfer, by the dependencies that bound in a replay."""
    binding = binding_dependencies(graph, replayed(graph).start_ns / 1e3)
    task = parts(graph)[key].transfer
    while graph.kind[task] != TaskKind.ARRIVAL:
        assert graph.dependency[binding[task]] == DependencyKind.RENDEZVOUS
        task = int(graph.source[binding[task]])
    return graph.ranks[graph.trace[task]]


# -- under changes ------------------------------------------------------------------------------


def test_half_the_communication_is_half_the_transfer_and_all_of_the_wait(tmp_path):
    answer = replayed(three_ranks(tmp_path), {"communication": 0.5})
    # Arrivals 100, 160, 240; 30 of transfer; 150 of work on rank 0; 15 of transfer.
    assert [answer.start_us(f"add {rank}") for rank in range(3)] == pytest.approx([270] * 3)
    assert [answer.start_us(f"norm {rank}") for rank in range(3)] == pytest.approx([435] * 3)


def test_a_faster_last_rank_gives_way_to_the_next_to_last(tmp_path):
    answer = replayed(three_ranks(tmp_path), {"name:gemm 2": 0.5})
    # Rank 2 arrives at 120, so rank 1 is last, at 160.
    assert [answer.start_us(f"add {rank}") for rank in range(3)] == pytest.approx([220] * 3)


def test_a_slower_early_rank_takes_its_wait_first(tmp_path):
    graph = three_ranks(tmp_path)
    unmoved = replayed(graph, {"name:gemm 0": 2.0})
    assert [unmoved.start_us(f"add {rank}") for rank in range(3)] == pytest.approx([300] * 3)
    moved = replayed(graph, {"name:gemm 0": 3.0})
    assert [moved.start_us(f"add {rank}") for rank in range(3)] == pytest.approx([360] * 3)


def test_a_send_waits_for_its_receive_and_a_receive_for_its_send(tmp_path):
    ranks = Ranks(0, 1)
    ranks.work(0, "produce", 0, 100, stream=28)
    ranks.message((0, 100), (1, 20), 130)
    ranks.work(1, "consume", 130, 300, stream=32)
    ranks.work(1, "busy", 0, 500, stream=36)
    ranks.work(0, "more", 130, 200, stream=28)
    ranks.message((0, 200), (1, 500), 560, receiving_stream=36)
    graph = ranks.graph(tmp_path)
    assert waits_us(graph) == pytest.approx({(0, 0): 0, (1, 0): 80, (0, 1): 300, (1, 1): 0})
    assert transfers_us(graph) == pytest.approx({(0, 0): 30, (1, 0): 30, (0, 1): 60, (1, 1): 60})
    assert replayed(graph, {"name:produce": 0.5}).start_us("consume") == pytest.approx(80)


# -- collectives that do not wait --------------------------------------------------------------


def test_a_broadcast_whose_root_left_early_is_as_measured(tmp_path):
    ranks = Ranks(0, 1)
    ranks.collective({0: 0, 1: 10}, 60)
    ranks.part(0, 100, 130, operation="broadcast", members=(0, 1))
    ranks.part(1, 900, 950, operation="broadcast", members=(0, 1))
    ranks.collective({0: 1000, 1: 990}, 1060)
    graph = ranks.graph(tmp_path)
    assert meetings(graph) == {frozenset({(0, i), (1, i)}) for i in (0, 2)}
    broadcasts = [tasks[1] for tasks in collectives(graph).values()]
    assert graph.duration_ns[broadcasts].tolist() == [30_000, 50_000]
    assert (graph.arrival[broadcasts] == -1).all()
    assert note(graph, "collectives-not-waiting").text.startswith("1 collectives")


def test_members_that_leave_a_little_before_the_last_arrives_still_met_it(tmp_path):
    # Clocks agree to some microseconds only: rank 0 ends 6 us before rank 1 has arrived.
    ranks = Ranks(0, 1)
    for i in range(9):
        ranks.collective({0: 500 * i, 1: 500 * i + 200}, 500 * i + 250)
    ranks.part(0, 5000, 5094, members=(0, 1))
    ranks.part(1, 5100, 5112, members=(0, 1))
    graph = ranks.graph(tmp_path)
    assert "collectives-not-waiting" not in codes(graph)
    assert len(meetings(graph)) == 10
    answer = replayed(graph)
    assert answer.end_ns == pytest.approx(graph.end_ns, abs=1)
    assert (graph.duration_ns >= 0).all()


# -- what must hold of every graph --------------------------------------------------------------


def assert_parts_add_up(graph: ExecutionGraph, clock_us: float) -> None:
    """Arrival, last arrival, transfer and end follow each other; waits and transfers add up."""
    found = parts(graph)
    for meeting in meetings(graph):
        mine = [found[key] for key in meeting]
        starts = {int(graph.start_ns[part.transfer]) for part in mine}
        assert len(starts) == 1
        last = max(int(graph.start_ns[part.arrival]) for part in mine)
        assert starts.pop() == pytest.approx(last, abs=clock_us * 1e3)
        assert len({part.rank for part in mine}) == len(mine) > 1
        for part in mine:
            assert part.wait_us >= -clock_us
            assert part.transfer_us >= 0
            assert part.transfer_us == graph.duration_ns[part.transfer] / 1e3


@given(
    st.integers(2, 4).flatmap(
        lambda count: st.lists(
            st.tuples(
                st.sets(st.integers(0, count - 1), min_size=2),
                st.lists(st.integers(1, 500), min_size=count, max_size=count),
                st.integers(1, 200),
            ),
            min_size=1,
            max_size=8,
        )
    )
)
@settings(max_examples=40)
def test_any_order_of_groups_is_split_into_the_waits_and_transfers_it_was_made_of(program):
    now = dict.fromkeys(range(4), 0)
    ranks = Ranks(*now)
    places, waits, transfers = dict.fromkeys(now, 0), {}, {}
    # All four meet at first, so that every clock is known.
    for members, busy, transfer in [(set(now), [5, 5, 5, 5], 10), *program]:
        starts = {rank: now[rank] + busy[rank % len(busy)] for rank in sorted(members)}
        for rank, start in starts.items():
            ranks.work(rank, "gemm", now[rank], start, stream=20)
        end = max(starts.values()) + transfer
        ranks.collective(starts, end, group=str(sorted(members)))
        for rank, start in starts.items():
            waits[rank, places[rank]] = end - transfer - start
            transfers[rank, places[rank]] = transfer
            places[rank] += 1
            now[rank] = end
    with tempfile.TemporaryDirectory() as folder:
        graph = ranks.graph(Path(folder))
    assert waits_us(graph) == pytest.approx(waits, abs=ROUNDING_US)
    assert transfers_us(graph) == pytest.approx(transfers, abs=ROUNDING_US)
    assert_parts_add_up(graph, ROUNDING_US)
    assert replayed(graph).end_ns == pytest.approx(graph.end_ns, abs=1)


@pytest.mark.parametrize(
    "job",
    [
        SimulatedJob(layers=2, data_parallel=3),
        SimulatedJob(layers=2, tensor_parallel=2, micro_batches=2),
        SimulatedJob(layers=4, pipeline_parallel=4, micro_batches=4),
    ],
    ids=["data", "tensor", "pipeline"],
)
def test_waits_of_simulated_jobs_are_those_of_the_simulator(tmp_path, job):
    run = simulate(replace(job, noise=Noise(kernel=0.05, host=0.1), clock_spread_us=900.0))
    graph = build_graph(read_run(write_traces(run, tmp_path)))
    truth, transfer = {}, {}
    for rank, record in run.ranks.items():
        rows = [row for row in record.device if isinstance(row.work, Collective)]
        # As in the trace: by start, and by order of launch where two start together.
        for place, row in enumerate(sorted(rows, key=lambda row: row.start_ns)):
            truth[rank, place] = row.waited_ns / 1e3
            transfer[rank, place] = (row.end_ns - row.start_ns - row.waited_ns) / 1e3
    assert waits_us(graph) == pytest.approx(truth, abs=ROUNDING_US)
    assert transfers_us(graph) == pytest.approx(transfer, abs=ROUNDING_US)


@pytest.mark.parametrize("job", JOBS)
def test_waits_and_transfers_of_the_oracle_add_up(oracle, job):
    graph = oracle(job)
    assert_parts_add_up(graph, CLOCK_US)
    # Every collective has all its members in the folder, and each waits for the last of them.
    found = parts(graph)
    assert len(found) == sum(len(tasks) for tasks in collectives(graph).values())
    assert not codes(graph) & {"collectives-unmatched", "collectives-not-waiting"}
    for part in found.values():
        whole_us = (graph.end_ns[part.transfer] - graph.start_ns[part.arrival]) / 1e3
        assert part.wait_us + part.transfer_us == pytest.approx(whole_us)
    for meeting in meetings(graph):
        # The last waits for nobody, and all transfer alike.
        assert min(found[key].wait_us for key in meeting) == pytest.approx(0, abs=CLOCK_US)
        alike = [found[key].transfer_us for key in meeting]
        assert max(alike) - min(alike) < CLOCK_US


def test_the_straggler_of_the_oracle_is_waited_for(oracle):
    graph = oracle("gpt_dp4_straggler")
    waits = {rank: 0.0 for rank in graph.ranks}
    for part in parts(graph).values():
        waits[part.rank] += part.wait_us
    assert waits[2] == pytest.approx(0, abs=10)
    assert min(wait for rank, wait in waits.items() if rank != 2) > 1_000
