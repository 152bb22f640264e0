"""Any number of ranks is one graph on one clock."""

import json
from collections.abc import Iterable
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from jaxperf.graph import DependencyKind, ExecutionGraph, TaskKind, build_graph
from jaxperf.replay import replay
from jaxperf.report import replay_to_json
from jaxperf.simulator import Noise, SimulatedJob, simulate, write_traces
from jaxperf.trace import MISSING, Collective, Run, Trace, read_run
from tests.graph.asked import codes, measured_steps_us, on_device, replayed
from tests.graph.several import (
    Ranks,
    collectives,
    meetings,
    note,
    offsets_us,
    parts,
    transfers_us,
    waits_us,
)

MISSING_RANK_PERCENT = 1.0
"""Of each step, where one rank's file is missing."""
ROUNDING_US = 0.002


# -- case 16 ----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def case(shared) -> Path:
    return shared / "cases" / "16-clock-skew"


@pytest.fixture(scope="module")
def case_graph(case) -> ExecutionGraph:
    return build_graph(read_run([case / "rank0.json", case / "rank1.json"]))


def test_case_16_has_the_values_that_are_expected_of_it(case, case_graph):
    found: dict[str, float] = {
        "offset_rank1_minus_rank0": offsets_us(case_graph)[1] - offsets_us(case_graph)[0]
    }
    for sequence in (0, 1):
        both = [part for key, part in parts(case_graph).items() if key[1] == sequence]
        found[f"last_arrival.seq{sequence}"] = min(both, key=lambda part: part.wait_us).rank
        found[f"wait.rank0.seq{sequence}"] = waits_us(case_graph)[0, sequence]
        for rank in (0, 1):
            found[f"transfer.seq{sequence}"] = transfers_us(case_graph)[rank, sequence]
            assert found[f"transfer.seq{sequence}"] == (50, 130)[sequence]
    expected = json.loads((case / "expected.json").read_text())["values"]
    assert found.keys() == {value["name"] for value in expected}
    for value in expected:
        tolerance = value.get("tol_abs", 0)
        assert found[value["name"]] == pytest.approx(value["value"], abs=tolerance), value["name"]


def test_case_16_offset_waits_and_transfers_in_plain_numbers(case_graph):
    assert offsets_us(case_graph) == pytest.approx({0: 0, 1: 5000}, abs=1)
    assert waits_us(case_graph) == pytest.approx(
        {(0, 0): 150, (1, 0): 0, (0, 1): 20, (1, 1): 0}, abs=1
    )
    assert transfers_us(case_graph) == pytest.approx(
        {(0, 0): 50, (1, 0): 50, (0, 1): 130, (1, 1): 130}, abs=1
    )


def test_case_16_must_not_merge_on_raw_time_stamps(case_graph):
    # Both ranks on one clock: the collectives overlap, and end together.
    assert meetings(case_graph) == {frozenset({(0, i), (1, i)}) for i in (0, 1)}
    for place, end_us in ((0, 300), (1, 650)):
        ends = [case_graph.end_ns[parts(case_graph)[rank, place].transfer] for rank in (0, 1)]
        assert [end / 1e3 for end in ends] == pytest.approx([end_us] * 2, abs=1)
    span = case_graph.end_ns.max() - case_graph.start_ns.min()
    assert span / 1e3 == pytest.approx(650, abs=1)


def test_case_16_must_not_take_the_early_kernel_for_the_transfer(case_graph):
    # Rank 0's kernels last 200 and 150 us.
    for place, kernel_us in ((0, 200), (1, 150)):
        part = parts(case_graph)[0, place]
        assert case_graph.duration_ns[part.transfer] / 1e3 < kernel_us - 15
        whole = case_graph.end_ns[part.transfer] - case_graph.start_ns[part.arrival]
        assert whole / 1e3 == pytest.approx(kernel_us, abs=1)


def test_case_16_the_offset_and_its_spread_are_in_the_output(case, case_graph):
    given = replay_to_json(replay([case / "rank0.json", case / "rank1.json"]))
    offsets = [rank["clock_offset_us"] for rank in given["ranks"]]
    assert offsets == pytest.approx([0, 5000], abs=1)
    (first, second) = case_graph.clocks
    assert (first.rank, second.rank) == (0, 1)
    assert second.uncertainty_us == pytest.approx(0, abs=1)


# -- together ---------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def simulated(tmp_path_factory) -> Run:
    """A run of four ranks, data and tensor parallel, on hosts of their own clocks."""
    job = SimulatedJob(
        layers=2,
        data_parallel=2,
        tensor_parallel=2,
        noise=Noise(kernel=0.03, host=0.08),
        clock_spread_us=4_000.0,
    )
    return read_run(write_traces(simulate(job, seed=5), tmp_path_factory.mktemp("ranks")))


@pytest.fixture(scope="module")
def joined(simulated) -> ExecutionGraph:
    return build_graph(simulated)


def test_joining_leaves_the_tasks_of_each_rank_as_they_were(simulated, joined):
    assert joined.ranks == (0, 1, 2, 3)
    for index, trace in enumerate(simulated.traces):
        alone = build_graph(Run((trace,), (), ()))
        mine = (joined.trace == index) & (joined.kind != TaskKind.ARRIVAL)
        for column in ("kind", "task_class", "event"):
            assert np.array_equal(getattr(joined, column)[mine], getattr(alone, column))
        kept = mine & (joined.kind != TaskKind.COLLECTIVE)
        same = alone.kind != TaskKind.COLLECTIVE
        assert np.array_equal(joined.duration_ns[kept], alone.duration_ns[same])
        # Times move by one shift for the whole rank.
        assert len(set((joined.start_ns[kept] - alone.start_ns[same]).tolist())) == 1
        assert len(set((joined.end_ns[mine] - alone.end_ns).tolist())) == 1


def test_joining_adds_arrivals_and_rendezvous_alone(simulated, joined):
    alone = [build_graph(Run((trace,), (), ())) for trace in simulated.traces]
    met = len(parts(joined))
    hubs = len(meetings(joined))
    assert joined.tasks == sum(graph.tasks for graph in alone) + met
    for kind in DependencyKind:
        before = sum(int((graph.dependency == kind).sum()) for graph in alone)
        after = int((joined.dependency == kind).sum())
        # One for each arrival, and one for each transfer but that which stands for all.
        assert after == before + (2 * met - hubs if kind == DependencyKind.RENDEZVOUS else 0)


def test_only_rendezvous_lead_from_rank_to_rank(joined):
    apart = joined.trace[joined.source] != joined.trace[joined.target]
    assert apart.any()
    assert (joined.dependency[apart] == DependencyKind.RENDEZVOUS).all()


def test_every_task_has_a_cause(joined):
    caused = np.zeros(joined.tasks, bool)
    caused[joined.target] = True
    assert np.array_equal(caused, joined.release_ns == MISSING)


def test_in_the_order_of_launch_every_arrival_comes_before_every_transfer(joined):
    assert np.array_equal(np.sort(joined.order), np.arange(joined.tasks))
    joins = joined.dependency == DependencyKind.RENDEZVOUS
    assert (joined.order[joined.source[joins]] < joined.order[joined.target[joins]]).all()


def test_steps_are_those_of_every_rank_on_one_clock(simulated, joined):
    assert [step.rank for step in joined.steps] == [rank for rank in range(4) for _ in range(3)]
    names = [step.name for step in joined.steps]
    assert names == [f"ProfilerStep#{i + 1}" for _ in range(4) for i in range(3)]
    for step in joined.steps:
        assert joined.ranks[joined.trace[step.begin_task]] == step.rank
        assert joined.start_ns[step.begin_task] == step.begin_ns
        assert joined.ranks[joined.trace[step.end_task]] == step.rank


def test_the_first_task_of_all_begins_at_zero(joined):
    assert joined.start_ns.min() >= 0
    assert joined.start_ns.min() < 1_000_000


def test_a_rank_alone_takes_collectives_as_measured(simulated):
    graph = build_graph(Run(simulated.traces[:1], (), ()))
    assert TaskKind.ARRIVAL not in graph.kind
    assert (graph.arrival == -1).all()
    tasks = collectives(graph)[0]
    rows = graph.event[tasks]
    assert np.array_equal(graph.duration_ns[tasks], simulated.traces[0].duration_ns[rows])


def test_ranks_of_a_host_without_device_work_join_the_others(tmp_path):
    # A rank that holds host work alone, such as a data server, has no collective and no clock.
    ranks = Ranks(0, 1, 2)
    for i in range(3):
        ranks.collective({0: 100 * i, 1: 100 * i + 20}, 100 * i + 50)
    ranks.work(2, "aten::stack", 0, 70)
    ranks.rows[2][0] |= {"cat": "cpu_op", "args": {}}
    graph = ranks.graph(tmp_path)
    assert len(meetings(graph)) == 3
    assert "ranks 2 " in note(graph, "clock-unknown").text
    assert (graph.trace == 2).sum() >= 1


# -- a rank's file is missing -----------------------------------------------------------------


ORACLE_RANKS = {
    "gpt_dp2_pp2_tp2": 8,
    "gpt_dp2_pp2_tp2_old_profiler": 8,
    "gpt_dp4_straggler": 4,
    "gpt_fsdp4": 4,
    "gpt_pp4_cpu_bound": 4,
    "gpt_sync_every_micro": 2,
}
REMOVED = [
    pytest.param(job, rank, marks=() if job in ("gpt_dp4_straggler",) else pytest.mark.slow)
    for job, count in ORACLE_RANKS.items()
    for rank in sorted({0, count // 2, count - 1})
]


@pytest.fixture(scope="module")
def oracle_runs(shared):
    return cache(lambda job: read_run([shared / "oracle" / job]))


@pytest.mark.parametrize(("job", "rank"), REMOVED)
def test_without_a_ranks_file_the_others_still_answer(shared, job, rank):
    files = sorted((shared / "oracle" / job).glob("rank*.json.gz"))
    kept = [file for file in files if not file.name.startswith(f"rank{rank}.")]
    graph = build_graph(read_run(kept))
    assert graph.ranks == tuple(r for r in range(ORACLE_RANKS[job]) if r != rank)
    if len(kept) > 1:
        assert f"ranks {rank} " in note(graph, "ranks-not-recorded").text
    right = measured_steps_us(graph)
    assert len(right) == 3 * len(kept)
    assert replayed(graph).steps_us == pytest.approx(right, rel=MISSING_RANK_PERCENT / 100)


def test_collectives_with_a_missing_member_join_those_that_are_there(oracle_runs):
    run = oracle_runs("gpt_dp4_straggler")
    whole = build_graph(run)
    # Without the straggler its wait stays in the transfer of the others.
    rest = build_graph(Run(tuple(t for t in run.traces if t.rank != 2), (), ()))
    assert len(meetings(rest)) == len(meetings(whole))
    assert {len(meeting) for meeting in meetings(rest)} == {3}
    lost = {key: wait for key, wait in waits_us(whole).items() if key[0] == 0}
    assert lost
    waits, transfers, right = waits_us(rest), transfers_us(rest), transfers_us(whole)
    for key, wait in lost.items():
        assert transfers[key] + waits[key] == pytest.approx(right[key] + wait, abs=1)


# -- how a graph grows ------------------------------------------------------------------------


def repeated(traces: Iterable[Trace], copies: int, *, one_group: bool) -> Run:
    """The traces again and again under other ranks, each copy on clocks of its own.

    Each copy keeps to groups of its own, or all collectives but sends hold the like ranks of every
    copy.
    """
    traces = tuple(traces)
    count = len(traces)

    def moved(collective: Collective, copy: int) -> tuple[int, ...]:
        together = one_group and collective.name not in ("send", "recv")
        chosen = range(copies) if together else [copy]
        return tuple(sorted(rank + count * k for k in chosen for rank in collective.ranks))

    def shifted(rank: int | None, copy: int) -> int | None:
        return None if rank is None else rank + count * copy

    made = []
    for copy in range(copies):
        for trace in traces:
            groups = tuple(
                replace(
                    c,
                    ranks=moved(c, copy),
                    group=f"{copy if not one_group else 0}/{c.group}",
                    source=shifted(c.source, copy),
                    destination=shifted(c.destination, copy),
                )
                for c in trace.collectives
            )
            made.append(
                replace(
                    trace,
                    rank=trace.rank + count * copy,
                    collectives=groups,
                    origin_ns=trace.origin_ns + 1_000_000 * copy,
                )
            )
    return Run(tuple(made), (), ())


def joins(graph: ExecutionGraph) -> int:
    return int((graph.dependency == DependencyKind.RENDEZVOUS).sum())


def test_dependencies_grow_linearly_with_the_members_of_a_collective(tmp_path):
    job = SimulatedJob(layers=1, data_parallel=2, steps=1)
    traces = read_run(write_traces(simulate(job), tmp_path)).traces
    graphs = {n: build_graph(repeated(traces, n, one_group=True)) for n in (1, 8, 16)}
    hubs = len(meetings(graphs[1]))
    assert hubs > 0
    for copies, graph in graphs.items():
        members = 2 * copies
        assert {len(meeting) for meeting in meetings(graph)} == {members}
        assert len(meetings(graph)) == hubs
        assert joins(graph) == hubs * (2 * members - 1)
        assert graph.tasks == copies * graphs[1].tasks
        own = len(graphs[1].source) - joins(graphs[1])
        assert len(graph.source) == copies * own + joins(graph)
        right = {rank: 1_000.0 * (rank // 2) for rank in graph.ranks}
        assert offsets_us(graph) == pytest.approx(right, abs=ROUNDING_US)


@pytest.mark.slow
@pytest.mark.parametrize("one_group", [False, True])
def test_64_ranks_of_the_oracle_are_eight_times_8(oracle_runs, one_group):
    traces = oracle_runs("gpt_dp2_pp2_tp2").traces
    once = build_graph(repeated(traces, 1, one_group=one_group))
    many = build_graph(repeated(traces, 8, one_group=one_group))
    assert many.ranks == tuple(range(64))
    assert many.tasks == 8 * once.tasks
    assert len(many.steps) == 8 * len(once.steps)
    assert len(parts(many)) == 8 * len(parts(once))
    if not one_group:
        assert len(many.source) == 8 * len(once.source)
        assert len(meetings(many)) == 8 * len(meetings(once))
        assert "clock-unknown" in codes(many)
    else:
        # Sends keep to their pair; groups grow.
        hubs = len(meetings(many))
        assert joins(many) == 2 * len(parts(many)) - hubs
        assert len(many.source) - joins(many) == 8 * (len(once.source) - joins(once))
        right = {rank: 1_000.0 * (rank // 8) for rank in many.ranks}
        assert offsets_us(many) == pytest.approx(right, abs=5)


@pytest.mark.slow
def test_copies_that_share_no_collective_are_each_on_a_clock_of_their_own(oracle_runs):
    traces = oracle_runs("gpt_sync_every_micro").traces
    once = build_graph(repeated(traces, 1, one_group=False))
    many = build_graph(repeated(traces, 3, one_group=False))
    before, after = waits_us(once), waits_us(many)
    assert before
    for key, wait in before.items():
        for copy in range(3):
            assert after[key[0] + 2 * copy, key[1]] == pytest.approx(wait, abs=1)


def test_tasks_of_devices_lie_on_streams_of_their_rank(joined):
    tasks = np.flatnonzero(on_device(joined))
    for task in tasks[:: max(1, len(tasks) // 500)].tolist():
        lane = joined.lanes[joined.lane[task]]
        assert lane.is_stream
        assert lane.rank == joined.ranks[joined.trace[task]]
