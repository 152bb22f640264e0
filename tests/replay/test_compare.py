"""Measured beside replayed: breakdowns of each step of each rank."""

import dataclasses
import json

import numpy as np
import pytest

from jaxperf.graph import GraphLane, Step, TaskClass, TaskKind, build_graph
from jaxperf.replay import Breakdown, StepBreakdown, Timeline, replay
from jaxperf.replay._compare import measured_timeline, rank_breakdowns, step_breakdowns
from jaxperf.simulator import SimulatedJob, simulate, write_traces
from jaxperf.trace import read_run
from tests.helpers import make_graph


def two_steps():
    """Each step: host work, a kernel, a collective that begins in it; a copy in the second."""
    rows = [
        # kind, class, lane, measured start and end, replayed start and end
        (TaskKind.HOST_WORK, TaskClass.HOST, 0, (0, 100), (0, 90)),
        (TaskKind.KERNEL, TaskClass.GEMM, 1, (10, 50), (10, 50)),
        (TaskKind.COLLECTIVE, TaskClass.COMMUNICATION, 2, (30, 90), (40, 80)),
        (TaskKind.HOST_WORK, TaskClass.HOST, 0, (100, 300), (90, 290)),
        (TaskKind.KERNEL, TaskClass.GEMM, 1, (120, 170), (110, 160)),
        (TaskKind.MEMCPY, TaskClass.MEMCPY, 1, (180, 200), (170, 190)),
        (TaskKind.COLLECTIVE, TaskClass.COMMUNICATION, 2, (190, 210), (190, 240)),
    ]
    kinds, classes, lanes, measured, replayed = zip(*rows, strict=True)
    measured, replayed = np.array(measured, np.int64), np.array(replayed, float)
    lane = tuple(GraphLane(0, f"lane {k}", k - 1, k) for k in range(3))
    graph = dataclasses.replace(
        make_graph(measured[:, 1] - measured[:, 0], [], lane=lanes, task_class=classes),
        lanes=lane,
        kind=np.array(kinds, np.int8),
        start_ns=1000 * measured[:, 0],
        end_ns=1000 * measured[:, 1],
        steps=(
            Step("ProfilerStep#1", 0, 0, 0, 0, 100_000),
            Step("ProfilerStep#2", 0, 3, 3, 100_000, 300_000),
        ),
    )
    return graph, measured_timeline(graph), Timeline(replayed[:, 0], replayed[:, 1])


FIRST = StepBreakdown(
    0, "ProfilerStep#1", Breakdown(20, 20, 40, 0, 20, 100), Breakdown(30, 10, 30, 0, 20, 90)
)
SECOND = StepBreakdown(
    0, "ProfilerStep#2", Breakdown(50, 0, 20, 10, 120, 200), Breakdown(50, 0, 50, 20, 80, 200)
)


def test_each_step_of_a_rank_has_its_own_breakdown_measured_and_replayed():
    graph, measured, replayed = two_steps()
    assert step_breakdowns(graph, graph.steps, measured, replayed) == (FIRST, SECOND)


def test_only_the_steps_asked_for_are_broken_down():
    graph, measured, replayed = two_steps()
    assert step_breakdowns(graph, graph.steps[1:], measured, replayed) == (SECOND,)


def test_a_step_without_time_is_left_out():
    graph, measured, replayed = two_steps()
    empty = dataclasses.replace(graph.steps[0], end_ns=graph.steps[0].begin_ns)
    assert step_breakdowns(graph, (empty, graph.steps[1]), measured, replayed) == (SECOND,)


def test_a_rank_without_steps_is_broken_down_as_a_whole():
    graph, measured, replayed = two_steps()
    (whole,) = step_breakdowns(graph, (), measured, replayed)
    assert (whole.rank, whole.step) == (0, None)
    assert whole.measured == Breakdown(70, 20, 60, 10, 140, 300)
    assert whole.replayed == Breakdown(80, 10, 80, 20, 100, 290)


def test_a_rank_without_device_work_has_no_breakdown():
    graph, measured, replayed = two_steps()
    host_only = dataclasses.replace(graph, kind=np.zeros(graph.tasks, np.int8))
    assert step_breakdowns(host_only, graph.steps, measured, replayed) == ()


def test_the_breakdown_of_a_rank_is_the_mean_over_its_steps():
    other = dataclasses.replace(SECOND, rank=3)
    assert rank_breakdowns((FIRST, SECOND, other)) == (
        (0, Breakdown(35, 10, 30, 5, 70, 150), Breakdown(40, 5, 40, 10, 50, 145)),
        (3, SECOND.measured, SECOND.replayed),
    )
    assert rank_breakdowns(()) == ()


def test_a_replay_has_a_breakdown_for_every_step_of_every_rank(traces):
    result = replay(traces)
    wanted = [(step.rank, step.name) for step in result.graph.steps]
    assert [(found.rank, found.step) for found in result.step_breakdowns] == wanted
    for found, step in zip(result.step_breakdowns, result.graph.steps, strict=True):
        assert found.measured.total_us == pytest.approx((step.end_ns - step.begin_ns) / 1e3)
        for part in (found.measured, found.replayed):
            *parts, total_us = dataclasses.astuple(part)
            assert min(parts) >= 0
            assert sum(parts) == pytest.approx(total_us)
    assert result.rank_breakdowns == rank_breakdowns(result.step_breakdowns)


@pytest.mark.parametrize("steps, told", [(1, True), (2, False)])
def test_one_step_alone_is_not_held_out_and_a_note_says_so(steps, told, tmp_path):
    found = replay(
        write_traces(simulate(SimulatedJob(layers=1, steps=steps)), tmp_path), hold_out=True
    )
    assert (found.hold_out is None) == told
    assert ("hold-out-needs-steps" in {note.code for note in found.notes}) == told


def test_the_critical_path_of_one_step_names_it(traces):
    assert replay(traces).critical_path_step is None
    found = replay(traces, step=1)
    assert found.critical_path_step == found.steps[0].name


def test_collectives_of_every_spelling_are_communication_in_a_breakdown(shared):
    folder = shared / "cases" / "09-collective-names"
    values = json.loads((folder / "expected.json").read_text())["values"]
    right = {v["name"]: pytest.approx(v["value"], abs=v["tol_abs"]) for v in values}
    graph = build_graph(read_run([folder / "trace.json"]))
    measured = measured_timeline(graph)
    (found,) = step_breakdowns(graph, graph.steps, measured, measured)
    assert (found.rank, found.step) == (0, None)
    assert found.measured == found.replayed
    span = found.measured
    assert span.compute_us + span.overlap_us == right["compute"]
    assert span.overlap_us + span.exposed_communication_us == right["communication"]
    assert span.overlap_us == right["communication_overlapped_with_compute"]
    assert span.exposed_communication_us == right["exposed_communication"]
    assert span.memory_us == right["memory"]
    assert span.total_us - span.idle_us == right["gpu_busy"]
    assert span.idle_us == right["gpu_idle"]
