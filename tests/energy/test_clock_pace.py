"""Hosts keep the lead over their devices that they had."""

from dataclasses import replace

import numpy as np
import pytest

from jaxperf.energy.clocks._pace import paced_by_devices
from jaxperf.graph import ExecutionGraph, Step, TaskKind
from jaxperf.replay import replay_graph
from tests.helpers import make_graph

STEPS = 3


def steps_of(host_ns: int, device_ns: int) -> ExecutionGraph:
    """A host that launches a kernel in each of three steps, and goes on without waiting for it.

    Of each step the launch of 1 us, the kernel, the rest of the host's work, and its end.
    """
    edges, steps = [], []
    for k in range(STEPS):
        launch, kernel, rest, end = range(4 * k, 4 * k + 4)
        edges += [(launch, kernel), (launch, rest), (rest, end)]
        if k:
            edges += [(launch - 1, launch), (kernel - 4, kernel)]
        steps.append((launch, end))
    durations = [1_000, device_ns, host_ns - 1_000, 0] * STEPS
    graph = make_graph(durations, edges, release_ns={0: 0}, lane=[0, 1, 0, 0] * STEPS, steps=steps)
    host, kernel = TaskKind.HOST_WORK, TaskKind.KERNEL
    kind = np.array([host, kernel, host, host] * STEPS, np.int8)
    named = tuple(
        Step(f"step {k}", 0, step.begin_task, step.end_task, 0, 0)
        for k, step in enumerate(graph.steps)
    )
    return replace(graph, kind=kind, steps=named, step=np.repeat(np.arange(STEPS), 4))


def launched_late(host_ns: int, device_ns: int) -> ExecutionGraph:
    """As `steps_of`, with the launch behind the rest of the host's work."""
    graph = steps_of(host_ns, device_ns)
    # The tasks of a step are the rest, the kernel, the launch and the end.
    duration_ns = graph.duration_ns.copy()
    duration_ns[0::4], duration_ns[2::4] = host_ns - 1_000, 1_000
    launches = (graph.source % 4 == 0) & (graph.target % 4 == 1)
    source = graph.source + np.where(launches, 2, 0).astype(graph.source.dtype)
    return replace(graph, duration_ns=duration_ns, source=source)


def step_us(graph: ExecutionGraph, device_longer_us: float) -> np.ndarray:
    """(steps - 1,) from one end of the host's step to the next, with longer kernels."""
    duration_us = graph.duration_ns / 1e3
    duration_us[graph.kind == TaskKind.KERNEL] += device_longer_us
    timeline = replay_graph(graph, duration_us)
    return np.diff(timeline.end_us[[step.end_task for step in graph.steps]])


def test_a_host_ahead_of_its_device_takes_longer_by_what_the_device_does():
    graph = steps_of(host_ns=5_000, device_ns=20_000)
    paced, behind = paced_by_devices(graph, replay_graph(graph))
    assert behind == STEPS
    before, after = step_us(paced, 0.0), step_us(paced, 7.0)
    # Unpaced nothing stops the host: its steps stay at 5 us.
    assert step_us(graph, 7.0) == pytest.approx([5.0, 5.0])
    assert after - before == pytest.approx([7.0, 7.0], abs=2e-3)


def test_a_step_that_its_host_bounds_stays_while_the_device_has_room():
    graph = steps_of(host_ns=20_000, device_ns=5_000)
    paced, _ = paced_by_devices(graph, replay_graph(graph))
    for longer_us in (0.0, 3.0, 12.0):
        assert step_us(paced, longer_us) == pytest.approx([20.0, 20.0], abs=2e-3)
    # A kernel of 30 us leaves the device no room, and each follows the one before at once.
    assert step_us(paced, 25.0) == pytest.approx([30.0, 30.0], abs=2e-3)


@pytest.mark.parametrize(("longer_us", "step"), [(0, 20), (7, 20), (14, 20), (18, 23), (40, 45)])
def test_a_host_that_launches_late_is_slowed_once_the_device_has_no_room_left(longer_us, step):
    # A kernel of 5 us, launched last: the host ends before it, and the device waits for 15 us.
    graph = launched_late(host_ns=20_000, device_ns=5_000)
    paced, behind = paced_by_devices(graph, replay_graph(graph))
    assert behind == STEPS
    assert step_us(paced, longer_us) == pytest.approx([step, step], abs=3e-3)


def test_the_room_is_what_the_device_waits_for_its_next_work_and_not_the_lead():
    # The host of one launch at once is 5 us ahead of a device that never waits.
    graph = launched_late(host_ns=5_000, device_ns=5_000)
    paced, _ = paced_by_devices(graph, replay_graph(graph))
    assert step_us(paced, 2.0) == pytest.approx([7.0, 7.0], abs=3e-3)


def test_without_a_change_the_replay_is_the_same_to_a_nanosecond():
    for host_ns, device_ns in ((5_000, 20_000), (20_000, 5_000)):
        graph = steps_of(host_ns, device_ns)
        timeline = replay_graph(graph)
        paced, _ = paced_by_devices(graph, timeline)
        again = replay_graph(paced)
        assert again.start_us == pytest.approx(timeline.start_us, abs=1.001e-3)
        assert again.end_us == pytest.approx(timeline.end_us, abs=1.001e-3)


def test_a_run_without_device_work_has_no_pace():
    graph = steps_of(5_000, 20_000)
    graph = replace(graph, kind=np.full(graph.tasks, TaskKind.HOST_WORK, np.int8))
    paced, behind = paced_by_devices(graph, replay_graph(graph))
    assert paced is graph and behind == 0
