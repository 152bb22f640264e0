"""The clocks of least energy for a step of at most so long."""

import itertools
from typing import Any

import numpy as np
import pytest

from jaxperf.compiled import compile_program
from jaxperf.energy.clocks import _frontier
from jaxperf.energy.clocks._frontier import clock_frontier
from jaxperf.energy.clocks._scenarios import clock_scenarios
from jaxperf.errors import ConfigError
from tests.energy.clock_cases import LOWEST_HZ, MODEL, NOMINAL_HZ, chains_graph, power_tasks
from tests.helpers import make_graph, start_times

# The interior-point method takes a while to compile.
pytestmark = pytest.mark.slow

# All runs here have three ranks and as many points, and so share their compilations.
POINTS = 8
BOUNDS: dict[str, Any] = {"lowest_hz": LOWEST_HZ, "highest_hz": NOMINAL_HZ}


def chains(*durations_us: float):
    """A kernel on each rank, bound by the clock, and a task that waits for all."""
    graph = chains_graph([[each] for each in durations_us])
    tasks = power_tasks(graph, [0, 1, 2], np.zeros(3), end_us=max(durations_us))
    return graph, compile_program(graph), tasks


def random_run(seed: int):
    """Twelve kernels on three ranks, which wait for each other now and then."""
    draw = np.random.default_rng(seed)
    count, ranks = 12, 3
    lane = np.append(np.arange(3), draw.integers(0, ranks, count - 3))
    edges, last = [], {}
    for task in range(count):
        inputs = set(draw.integers(0, task, draw.poisson(0.7)).tolist()) if task else set()
        if lane[task] in last:
            inputs.add(last[lane[task]])
        last[lane[task]] = task
        edges += [(source, task) for source in sorted(inputs)]
    edges += [(task, count) for task in last.values()]
    started = {target for _, target in edges}
    release = {task: 0 for task in range(count) if task not in started}
    graph = make_graph(
        [*draw.integers(2_000, 9_000, count), 0],
        edges,
        release_ns=release,
        lane=np.append(lane, ranks),
    )
    start_us = np.array(start_times(graph, graph.duration_ns.tolist())) / 1e3
    tasks = power_tasks(
        graph,
        lane,
        start_us[:count],
        end_us=start_us[-1],
        clock_share=draw.uniform(0.0, 1.0, count),
        busy_w=draw.uniform(100.0, 600.0, count),
    )
    return graph, compile_program(graph), tasks


@pytest.mark.parametrize("seed", [1, 4, 7])
def test_no_clocks_of_a_grid_take_less_energy_within_the_target(seed):
    run = random_run(seed)
    found = clock_frontier(*run, MODEL, run[2].rank, 3, points=POINTS, **BOUNDS)
    levels = np.linspace(LOWEST_HZ, NOMINAL_HZ, 33)
    grid = np.array(list(itertools.product(levels, repeat=3))).T
    every = clock_scenarios(*run, MODEL, grid, run[2].rank)
    for target_us, energy_j in zip(found.target_us, found.energy_j, strict=True):
        least_j = every.energy_j[every.step_us <= target_us].min()
        assert 0.97 * least_j < energy_j <= least_j * (1 + 1e-6)


def test_every_point_is_replayed_and_within_its_target():
    graph, program, tasks = run = random_run(1)
    found = clock_frontier(*run, MODEL, tasks.rank, 3, points=POINTS, **BOUNDS)
    assert np.all(found.step_us <= found.target_us)
    assert found.is_settled
    assert np.all(np.diff(found.energy_j) < 0)
    for k in range(len(found.step_us)):
        slower = NOMINAL_HZ / found.clock_hz[tasks.rank, k] - 1.0
        time_ns = 1e3 * tasks.duration_us * (1.0 + tasks.clock_share * slower)
        last_ns = start_times(graph, [*time_ns.tolist(), 0.0])[-1]
        assert found.step_us[k] == pytest.approx(last_ns / 1e3, rel=1e-9)


def test_a_run_without_slack_saves_nothing_at_its_shortest_step():
    run = chains(20.0, 20.0, 20.0)
    found = clock_frontier(*run, MODEL, run[2].rank, 3, points=POINTS, **BOUNDS)
    nominal_j = 3 * 20e-6 * (117 + 400)
    assert found.step_us[0] == pytest.approx(20.0, rel=1e-3)
    assert 0.999 * nominal_j < found.energy_j[0] <= nominal_j


def test_slack_is_used_up_by_the_clock_that_the_shorter_work_needs():
    run = chains(20.0, 16.0, 20.0)
    found = clock_frontier(*run, MODEL, run[2].rank, 3, points=POINTS, **BOUNDS)
    assert found.clock_hz[:, 0] / NOMINAL_HZ == pytest.approx([1.0, 0.8, 1.0], rel=1e-3)
    # 0.8 of the clock is 0.85 of the voltage: static 62 + 25 * 0.85 + 24 * 0.7225 = 100.59 W.
    slowed_j = 20e-6 * 100.59 + 0.7225 * 400 * 16e-6
    assert found.energy_j[0] == pytest.approx(2 * 20e-6 * 517 + slowed_j, rel=1e-3)


def test_what_does_not_follow_the_clock_may_be_as_slow_as_can_be():
    graph = chains_graph([[20.0], [20.0], [20.0]])
    tasks = power_tasks(
        graph, [0, 1, 2], np.zeros(3), end_us=20.0, clock_share=np.array([1.0, 0.0, 1.0])
    )
    found = clock_frontier(
        graph, compile_program(graph), tasks, MODEL, tasks.rank, 3, points=POINTS, **BOUNDS
    )
    assert found.step_us[0] == pytest.approx(20.0, rel=1e-3)
    assert found.clock_hz[1, 0] == pytest.approx(LOWEST_HZ, rel=1e-2)


def test_a_longer_step_than_that_of_least_energy_is_not_taken():
    run = chains(20.0, 16.0, 20.0)
    targets_us = np.linspace(21.0, 400.0, POINTS)
    found = clock_frontier(*run, MODEL, run[2].rank, 3, target_us=targets_us, **BOUNDS)
    assert found.step_us[-1] < 100.0 and len(found.step_us) < POINTS
    assert np.all(np.diff(found.energy_j) < 0)


def test_a_search_that_is_stopped_says_that_it_did_not_settle(monkeypatch):
    monkeypatch.setattr(_frontier, "_ROUNDS", 1)
    run = random_run(1)
    found = clock_frontier(*run, MODEL, run[2].rank, 3, points=POINTS, **BOUNDS)
    assert not found.is_settled


def test_targets_begin_at_the_shortest_step_that_is_asked():
    run = chains(20.0, 16.0, 20.0)
    found = clock_frontier(*run, MODEL, run[2].rank, 3, points=POINTS, shortest_us=25.0, **BOUNDS)
    assert found.target_us[0] == 25.0


def test_a_target_that_no_clocks_reach_is_refused():
    run = chains(20.0, 16.0, 20.0)
    with pytest.raises(ConfigError, match="no clocks are as fast"):
        clock_frontier(*run, MODEL, run[2].rank, 3, target_us=np.full(POINTS, 19.0), **BOUNDS)
    with pytest.raises(ConfigError, match="clocks out of order"):
        clock_frontier(*run, MODEL, run[2].rank, 3, lowest_hz=2e9, highest_hz=1e9)
