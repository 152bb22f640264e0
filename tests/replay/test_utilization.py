"""Utilization of a device over time, by hand, by brute force, and on simulated traces."""

import dataclasses
from typing import NamedTuple

import numpy as np
import pytest
from hypothesis import given, strategies as st

from jaxperf.errors import ConfigError
from jaxperf.graph import ExecutionGraph, GraphLane, TaskKind, build_graph
from jaxperf.replay import Timeline, sm_utilization
from jaxperf.replay._breakdown import device_activity
from jaxperf.replay._compare import measured_timeline
from jaxperf.trace import Run, read_run
from tests.helpers import make_graph
from tests.trace.written import document, kernel, read, row

KERNEL, MEMCPY, COLLECTIVE, ARRIVAL = (
    TaskKind.KERNEL,
    TaskKind.MEMCPY,
    TaskKind.COLLECTIVE,
    TaskKind.ARRIVAL,
)
NAN = float("nan")

CONSISTENT = 1e-12
"""Integrals of one curve: only the rounding of times up to a millisecond is between them."""


class Work(NamedTuple):
    """A piece of device work; the arrival is another piece's place, -1 for none."""

    start_us: float
    end_us: float
    share: float = NAN
    kind: TaskKind = KERNEL
    device: int = 0
    arrival: int = -1


def made_of(*works: Work) -> tuple[ExecutionGraph, Timeline]:
    """A graph of these tasks alone, and when they run."""
    devices = sorted({work.device for work in works})
    graph = dataclasses.replace(
        make_graph(np.zeros(len(works), np.int64), []),
        lanes=tuple(GraphLane(0, f"GPU {device} stream 7", device, 7) for device in devices),
        lane=np.array([devices.index(work.device) for work in works], np.int32),
        kind=np.array([work.kind for work in works], np.int8),
        arrival=np.array([work.arrival for work in works], np.int32),
        sm_share=np.array([work.share for work in works], np.float32),
    )
    start_us, end_us = np.array([work[:2] for work in works], float).reshape(-1, 2).T
    return graph, Timeline(start_us, end_us)


def test_a_kernel_occupies_its_share_while_it_runs():
    found = sm_utilization(*made_of(Work(10, 20, 0.25)), 0, grid_us=[0, 10, 14, 18, 22, 30])
    assert found.kernels.busy.tolist() == [0.0, 1.0, 1.0, 0.5, 0.0]
    assert found.kernels.sm_share.tolist() == [0.0, 0.25, 0.25, 0.125, 0.0]
    assert found.kernels.unknown.tolist() == [0.0] * 5
    assert found.grid_us.tolist() == [0, 10, 14, 18, 22, 30]


def test_kernels_at_once_add_up_to_one_at_most():
    works = Work(0, 10, 0.5), Work(0, 10, 0.25), Work(5, 10, 0.75)
    found = sm_utilization(*made_of(*works), 0, grid_us=[0, 5, 10]).kernels
    assert found.sm_share.tolist() == [0.75, 1.0]
    assert found.busy.tolist() == [1.0, 1.0]


def test_a_kernel_of_unknown_share_is_counted_as_busy_and_its_share_is_not_invented():
    works = Work(0, 10), Work(10, 20), Work(10, 15, 0.5)
    found = sm_utilization(*made_of(*works), 0, grid_us=[0, 10, 20, 30]).kernels
    assert found.busy.tolist() == [1.0, 1.0, 0.0]
    np.testing.assert_array_equal(found.sm_share, [NAN, 0.25, 0.0])
    assert found.unknown.tolist() == [1.0, 1.0, 0.0]


def test_a_collective_holds_its_share_from_its_arrival_on():
    works = (
        Work(10, 10, 0.125, ARRIVAL),
        Work(30, 40, 0.125, COLLECTIVE, arrival=0),
        Work(20, 40, 0.5),
    )
    found = sm_utilization(*made_of(*works), 0, grid_us=[0, 10, 20, 30, 40])
    assert found.communicating.busy.tolist() == [0.0, 1.0, 1.0, 1.0]
    assert found.communicating.sm_share.tolist() == [0.0, 0.125, 0.125, 0.125]
    assert found.computing.sm_share.tolist() == [0.0, 0.0, 0.5, 0.5]
    assert found.kernels.sm_share.tolist() == [0.0, 0.125, 0.625, 0.625]


def test_copies_occupy_no_sms():
    works = Work(0, 10, NAN, MEMCPY), Work(5, 10, 1.0)
    found = sm_utilization(*made_of(*works), 0, grid_us=[0, 5, 10]).kernels
    assert found.busy.tolist() == found.sm_share.tolist() == [0.0, 1.0]


def test_several_devices_of_a_rank_are_averaged():
    works = Work(0, 10, 1.0), Work(0, 10, 1.0), Work(5, 10, 0.5, device=1)
    found = sm_utilization(*made_of(*works), 0, grid_us=[0, 5, 10]).kernels
    assert found.busy.tolist() == [0.5, 1.0]
    assert found.sm_share.tolist() == [0.5, 0.75]


@pytest.mark.parametrize("works", [[], [Work(0, 10, NAN, MEMCPY)]])
def test_nothing_is_known_of_a_rank_without_kernels(works):
    found = sm_utilization(*made_of(*works), 0, grid_us=[0, 5, 10])
    for part in (found.kernels, found.computing, found.communicating):
        for values in (part.busy, part.sm_share, part.unknown):
            np.testing.assert_array_equal(values, [NAN, NAN])


def test_a_rank_that_is_not_in_the_graph_is_refused():
    with pytest.raises(ConfigError, match="rank: no such rank; got 3; expected one of 0"):
        sm_utilization(*made_of(Work(0, 1)), 3, grid_us=[0, 1])


@pytest.mark.parametrize("grid", [[], [1.0], [0.0, 0.0], [1.0, 0.0], [0.0, NAN], [[0.0, 1.0]]])
def test_a_grid_that_does_not_increase_is_refused(grid):
    with pytest.raises(ConfigError, match="grid_us: no grid of times"):
        sm_utilization(*made_of(Work(0, 1)), 0, grid_us=grid)


@st.composite
def some_work(draw):
    """Kernels and collectives that start and end at whole microseconds within [0, 40]."""
    works = []
    for _ in range(draw(st.integers(1, 12))):
        start = draw(st.integers(0, 40))
        end = draw(st.integers(start, 40))
        share = draw(st.one_of(st.just(NAN), st.sampled_from([1 / 132, 0.1, 0.5, 1.0])))
        works.append(Work(start, end, share, draw(st.sampled_from([KERNEL, COLLECTIVE]))))
    return works


@given(some_work())
def test_utilization_is_what_counting_every_microsecond_gives(works):
    found = sm_utilization(*made_of(*works), 0, grid_us=np.arange(41)).kernels
    for moment in range(40):
        running = [work.share for work in works if work.start_us <= moment < work.end_us]
        known = [np.float32(share) for share in running if not np.isnan(share)]
        assert found.busy[moment] == bool(running)
        assert found.unknown[moment] == (len(known) < len(running))
        if running and not known:
            assert np.isnan(found.sm_share[moment])
        else:
            assert found.sm_share[moment] == pytest.approx(min(1.0, sum(known)), abs=1e-6)


@given(some_work(), st.lists(st.floats(-10, 50), min_size=3, max_size=30, unique=True))
def test_bins_of_any_width_average_to_the_bin_that_they_make_up(works, edges):
    graph, timeline = made_of(*works)
    # A bin of a few femtoseconds is narrower than a time is precise.
    edges = np.unique(np.round(edges, 3))
    if len(edges) < 2:
        return
    graph = dataclasses.replace(graph, sm_share=np.nan_to_num(graph.sm_share, nan=0.25))
    fine = sm_utilization(graph, timeline, 0, grid_us=edges)
    coarse = sm_utilization(graph, timeline, 0, grid_us=edges[[0, -1]])
    weight = np.diff(edges) / (edges[-1] - edges[0])
    for part in ("kernels", "computing", "communicating"):
        for field in ("busy", "sm_share", "unknown"):
            many, one = (getattr(getattr(found, part), field) for found in (fine, coarse))
            assert (weight * many).sum() == pytest.approx(one[0], abs=CONSISTENT)


def test_a_thousand_bins_average_to_the_whole_of_a_simulated_run(traces):
    graph = build_graph(read_run(traces))
    timeline = measured_timeline(graph)
    grid = np.linspace(timeline.start_us.min(), timeline.end_us.max(), 1_001)
    for rank in graph.ranks:
        fine = sm_utilization(graph, timeline, rank, grid_us=grid).kernels
        coarse = sm_utilization(graph, timeline, rank, grid_us=grid[[0, -1]]).kernels
        assert fine.sm_share.mean() == pytest.approx(coarse.sm_share[0], abs=CONSISTENT)
        assert fine.busy.mean() == pytest.approx(coarse.busy[0], abs=CONSISTENT)
        assert 0.1 < coarse.sm_share[0] <= coarse.busy[0] < 1


def test_busy_time_is_that_of_the_breakdown(traces):
    graph = build_graph(read_run(traces))
    timeline = measured_timeline(graph)
    for step in graph.steps:
        span = step.begin_ns / 1e3, step.end_ns / 1e3
        found = sm_utilization(graph, timeline, step.rank, grid_us=span)
        activity = device_activity(graph, timeline, step.rank)
        assert activity is not None
        expected = activity.between(*span)
        compute_us = expected.compute_us + expected.overlap_us
        communication_us = expected.exposed_communication_us + expected.overlap_us
        assert found.computing.busy[0] * expected.total_us == pytest.approx(compute_us)
        assert found.communicating.busy[0] * expected.total_us == pytest.approx(communication_us)


# ---------------------------------------------------------------------------------------
# Where the share comes from


def test_a_share_comes_from_the_blocks_per_sm_of_the_trace(tmp_path):
    rows = [row("cudaLaunchKernel", "cuda_runtime", 0, 1, correlation=1)]
    rows += [
        kernel("few", 10, 5, blocks_per_SM=0.25),
        kernel("many", 20, 5, blocks_per_SM=12.5),
        kernel("none", 30, 5, blocks_per_SM=0),
        kernel("silent", 40, 5),
    ]
    rows.append(kernel("copy", 50, 5, blocks_per_SM=3) | {"cat": "gpu_memcpy"})
    graph = build_graph(Run((read(tmp_path, document(rows)),), (), ()))
    share = {graph.names[n]: x for n, x in zip(graph.name, graph.sm_share.tolist(), strict=True)}
    assert share.pop("few") == 0.25
    assert share.pop("many") == 1.0
    assert {"none", "silent", "copy", "cudaLaunchKernel"} <= share.keys()
    assert all(np.isnan(value) for value in share.values())
    assert graph.sm_share.dtype == np.float32


def test_an_arrival_has_the_share_of_its_collective(traces):
    graph = build_graph(read_run(traces))
    waiting = np.flatnonzero(graph.arrival >= 0)
    assert len(waiting)
    assert not np.isnan(graph.sm_share[waiting]).any()
    np.testing.assert_array_equal(graph.sm_share[graph.arrival[waiting]], graph.sm_share[waiting])


def test_a_device_whose_profiler_writes_no_blocks_has_only_busy_time(shared):
    folder = shared / "traces" / "resnet_ddp_mi300_4rank_3step_fused"
    graph = build_graph(read_run([folder / "unfused_rank0.json.gz"]))
    timeline = measured_timeline(graph)
    span = [timeline.start_us.min(), timeline.end_us.max()]
    found = sm_utilization(graph, timeline, 0, grid_us=span).kernels
    assert 0 < found.busy[0] <= 1
    assert found.unknown[0] == found.busy[0]
    assert np.isnan(found.sm_share[0])
