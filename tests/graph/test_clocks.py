"""One clock for all ranks: offsets, drift and how sure they are."""

import gzip
import re
from collections.abc import Callable
from dataclasses import replace
from decimal import Decimal
from functools import cache

import numpy as np
import pytest

from jaxperf.graph import ExecutionGraph, RankClock, build_graph
from jaxperf.simulator import Noise, SimulatedJob, build_programs, execute, write_traces
from jaxperf.trace import read_run
from tests.graph.several import Ranks, offsets_us, transfers_us, waits_us

OFFSET_US = 5.0
"""What is asked of offsets between hosts."""
ROUNDING_US = 0.002
"""Where all ends agree an offset is as exact as the times in the files."""
DRIFT_PPM = 8.0
"""The oracle's files round ends to 0.25 us: with a dozen ends in 60 ms that makes 6 millionths."""

ORACLE_CLOCKS = [
    ("gpt_sync_every_micro", 1),
    ("gpt_dp4_straggler", 2),
    ("gpt_pp4_cpu_bound", 0),
    ("gpt_pp4_cpu_bound", 3),
    ("gpt_fsdp4", 1),
    ("gpt_dp2_pp2_tp2", 6),
]


@pytest.fixture(scope="module")
def unchanged(shared):
    return cache(lambda job: build_graph(read_run([shared / "oracle" / job])))


@pytest.fixture
def rewritten(shared, tmp_path):
    """The graph of an oracle's job after one rank's clock has been set to another."""

    def graph(job: str, rank: int, clock: Callable[[Decimal], Decimal]) -> ExecutionGraph:
        for source in sorted((shared / "oracle" / job).glob("rank*.json.gz")):
            text = gzip.decompress(source.read_bytes()).decode()
            if source.name.startswith(f"rank{rank}."):
                text = re.sub(r'("ts": *)([\d.]+)', lambda m: f"{m[1]}{clock(Decimal(m[2]))}", text)
            (tmp_path / source.name.removesuffix(".gz")).write_text(text)
        return build_graph(read_run([tmp_path]))

    return graph


def clock_of(graph: ExecutionGraph, rank: int) -> RankClock:
    (found,) = [clock for clock in graph.clocks if clock.rank == rank]
    return found


# -- the oracle -------------------------------------------------------------------------------


@pytest.mark.parametrize("job", sorted({job for job, _ in ORACLE_CLOCKS}))
def test_ranks_of_one_host_share_a_clock(unchanged, job):
    # Each of the oracle's jobs fits on one node of eight devices.
    graph = unchanged(job)
    assert tuple(clock.rank for clock in graph.clocks) == graph.ranks
    for clock in graph.clocks:
        assert clock.offset_us == pytest.approx(0, abs=OFFSET_US)
        assert clock.uncertainty_us < OFFSET_US
        assert clock.drift_ppm == pytest.approx(0, abs=DRIFT_PPM)


@pytest.mark.slow
@pytest.mark.parametrize("shift_us", [1_234_567, -98_765])
@pytest.mark.parametrize(("job", "rank"), ORACLE_CLOCKS)
def test_a_shifted_clock_comes_back_as_its_offset(unchanged, rewritten, job, rank, shift_us):
    before, after = unchanged(job), rewritten(job, rank, lambda ts: ts + shift_us)
    # Seen from the first rank all others are off where its own clock is set.
    shifted = {r: shift_us if r == rank else 0 for r in before.ranks}
    expected = {
        r: offset + shifted[r] - shifted[before.ranks[0]]
        for r, offset in offsets_us(before).items()
    }
    assert offsets_us(after) == pytest.approx(expected, abs=ROUNDING_US)
    assert waits_us(after) == pytest.approx(waits_us(before), abs=ROUNDING_US)


@pytest.mark.slow
@pytest.mark.parametrize("ppm", [20, -50])
@pytest.mark.parametrize(("job", "rank"), ORACLE_CLOCKS)
def test_a_drifting_clock_comes_back_as_its_drift(rewritten, job, rank, ppm):
    begin = Decimal(1_700_000_000_000_000)
    share = Decimal(ppm) / 1_000_000
    after = rewritten(job, rank, lambda ts: ts + (ts - begin) * share + 300_000)
    first = after.ranks[0]
    # The one offset is that of some moment of the capture.
    half_us = abs(ppm) * 1e-6 * after.end_ns.max() / 1e3 / 2
    middle_us = 300_000 + half_us * np.sign(ppm)
    assert tuple(clock.rank for clock in after.clocks) == after.ranks
    for clock in after.clocks:
        moved = (clock.rank == rank) - (first == rank)
        assert clock.drift_ppm == pytest.approx(moved * ppm, abs=DRIFT_PPM)
        assert clock.offset_us == pytest.approx(moved * middle_us, abs=OFFSET_US + half_us)


def test_a_drifting_first_rank_stays_the_measure(rewritten):
    # The clock that all others are held against has neither offset nor drift.
    after = rewritten("gpt_sync_every_micro", 0, lambda ts: ts + ts * 30 / 1_000_000)
    assert clock_of(after, 0).offset_us == 0
    assert clock_of(after, 0).drift_ppm == 0
    assert clock_of(after, 1).drift_ppm == pytest.approx(-30, abs=DRIFT_PPM)


# -- simulated hosts ----------------------------------------------------------------------------


JOBS = {
    "data": SimulatedJob(layers=2, data_parallel=3, micro_batches=2),
    "tensor": SimulatedJob(layers=2, tensor_parallel=2),
    "pipeline": SimulatedJob(layers=4, pipeline_parallel=4, micro_batches=4),
    "all": SimulatedJob(layers=2, data_parallel=2, tensor_parallel=2, pipeline_parallel=2),
}
HOSTS_US = {0: -700.25, 1: 12_345.678, 2: 3.5, 3: -2_000_000.0, 4: 1.0, 5: 77.0, 6: -6.5, 7: 0.0}


@pytest.mark.parametrize("job", JOBS)
def test_offsets_of_simulated_hosts_are_found(tmp_path, job):
    noise = Noise(kernel=0.02, host=0.05, latency=0.05)
    programs = {
        rank: replace(program, clock_offset_us=HOSTS_US[rank])
        for rank, program in build_programs(JOBS[job]).items()
    }
    graph = build_graph(read_run(write_traces(execute(programs, noise=noise), tmp_path)))
    expected = {rank: HOSTS_US[rank] - HOSTS_US[0] for rank in programs}
    assert offsets_us(graph) == pytest.approx(expected, abs=ROUNDING_US)
    for clock in graph.clocks:
        assert clock.uncertainty_us == pytest.approx(0, abs=ROUNDING_US)
        assert clock.drift_ppm == pytest.approx(0, abs=0.01)


@pytest.mark.parametrize("device_clock_us", [-40.0, -95.0])
def test_a_device_clock_that_is_behind_does_not_move_its_host(tmp_path, device_clock_us):
    programs = {
        rank: replace(
            program,
            clock_offset_us=HOSTS_US[rank],
            device_clock_offset_us=device_clock_us if rank == 1 else 0.0,
        )
        for rank, program in build_programs(JOBS["data"]).items()
    }
    noise = Noise(host=0.05)
    graph = build_graph(read_run(write_traces(execute(programs, noise=noise), tmp_path)))
    expected = {rank: HOSTS_US[rank] - HOSTS_US[0] for rank in programs}
    assert offsets_us(graph) == pytest.approx(expected, abs=OFFSET_US)


# -- by hand ------------------------------------------------------------------------------------


def collectives_of_two(*, clock_us: float, count: int = 20) -> Ranks:
    ranks = Ranks(0, 1, clock_us={1: clock_us})
    for i in range(count):
        ranks.collective({0: 1000 * i, 1: 1000 * i + 200}, 1000 * i + 300 + i * i % 7)
    return ranks


@pytest.mark.parametrize("clock_us", [0.0, 0.001, 5_000.0, -123_456.789])
def test_an_offset_is_exact_where_ends_agree(tmp_path, clock_us):
    graph = collectives_of_two(clock_us=clock_us).graph(tmp_path)
    assert offsets_us(graph)[1] == pytest.approx(clock_us, abs=ROUNDING_US)
    assert waits_us(graph) == pytest.approx(
        {(rank, i): 200 if rank == 0 else 0 for rank in (0, 1) for i in range(20)}, abs=ROUNDING_US
    )


@pytest.mark.parametrize("epoch_us", [0, 1_735_689_600_000_000])
def test_an_offset_is_exact_where_times_are_those_of_an_epoch(tmp_path, epoch_us):
    ranks = collectives_of_two(clock_us=5_000)
    for rows in ranks.rows.values():
        for row in rows:
            row["ts"] += epoch_us
    assert offsets_us(ranks.graph(tmp_path))[1] == pytest.approx(5_000, abs=ROUNDING_US)


def test_a_few_ends_that_are_far_off_do_no_harm(tmp_path):
    ranks = collectives_of_two(clock_us=5_000)
    for i in (0, 7, 19):
        ranks.rows[1][i]["dur"] += 40
    graph = ranks.graph(tmp_path)
    assert offsets_us(graph)[1] == pytest.approx(5_000, abs=ROUNDING_US)
    assert clock_of(graph, 1).uncertainty_us == pytest.approx(0, abs=ROUNDING_US)
    assert clock_of(graph, 1).drift_ppm == pytest.approx(0, abs=0.5)


def test_the_uncertainty_tells_how_far_ends_differ(tmp_path):
    ranks = collectives_of_two(clock_us=5_000)
    for i, row in enumerate(ranks.rows[1]):
        row["dur"] += (-8, 8)[i % 2]
    clock = clock_of(ranks.graph(tmp_path), 1)
    assert clock.offset_us == pytest.approx(5_000, abs=8)
    assert 1 <= clock.uncertainty_us <= 8


def test_the_drift_of_two_ranks_is_that_of_the_second_against_the_first(tmp_path):
    ranks = collectives_of_two(clock_us=5_000)
    for row in ranks.rows[1]:
        row["ts"] = 5_000 + (row["ts"] - 5_000) * (1 + 100e-6)
    graph = ranks.graph(tmp_path)
    assert clock_of(graph, 0).drift_ppm == pytest.approx(0, abs=0.5)
    assert clock_of(graph, 1).drift_ppm == pytest.approx(100, abs=0.5)


def test_clocks_are_found_along_a_chain_of_pairs(tmp_path):
    # Rank 3 meets rank 2 alone, which meets rank 1, which meets rank 0.
    offsets = {1: 4_000.0, 2: -9_000.0, 3: 25.0}
    ranks = Ranks(0, 1, 2, 3, clock_us=offsets)
    for i in range(10):
        for pair in ((0, 1), (1, 2), (2, 3)):
            start = 1000 * i + 200 * pair[0]
            ranks.collective({pair[0]: start, pair[1]: start + 50}, start + 100, group=str(pair))
    assert offsets_us(ranks.graph(tmp_path)) == pytest.approx({0: 0.0, **offsets}, abs=ROUNDING_US)


def test_ranks_apart_from_the_first_still_share_a_clock_of_their_own(tmp_path):
    # Rank 0 meets nobody. Ranks 1 and 2 meet each other, and rank 2's capture began 700 us later.
    ranks = Ranks(0, 1, 2, clock_us={1: 4_000.0, 2: -9_000.0})
    ranks.work(0, "gemm", 0, 100)
    ranks.work(1, "gemm", 0, 100)
    for i in range(1, 11):
        ranks.collective({1: 1000 * i - 300, 2: 1000 * i - 220}, 1000 * i - 150)
    graph = ranks.graph(tmp_path)
    assert waits_us(graph) == pytest.approx(
        {(rank, i): 80 if rank == 1 else 0 for rank in (1, 2) for i in range(10)}, abs=ROUNDING_US
    )
    assert transfers_us(graph) == pytest.approx(
        {(rank, i): 70 for rank in (1, 2) for i in range(10)}, abs=ROUNDING_US
    )
