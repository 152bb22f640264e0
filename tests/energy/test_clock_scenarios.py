"""Step time and energy at other clocks."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxperf.compiled import compile_program
from jaxperf.energy.clocks._merge import merge_tasks
from jaxperf.energy.clocks._scenarios import (
    clock_answers,
    clock_scenarios,
    clock_step_us,
    prepare_clocks,
)
from jaxperf.energy.power._model import task_energy_j
from jaxperf.energy.power._tasks import share_between
from jaxperf.errors import ConfigError
from tests.energy.clock_cases import LOWEST_HZ, MODEL, NOMINAL_HZ, chains_graph, power_tasks
from tests.helpers import random_graph, start_times

HALF_HZ = NOMINAL_HZ / 2
SCENARIOS = 8


def two_ranks(clock_share=1.0):
    """Rank 0 is busy for 20 us, rank 1 for 10 us."""
    graph = chains_graph([[20.0], [10.0]])
    tasks = power_tasks(graph, [0, 1], [0.0, 0.0], end_us=20.0, clock_share=clock_share)
    return graph, compile_program(graph), tasks


def answers(run, *columns):
    """Answers at the clocks of rank 0 and 1, in as many scenarios as every other test has."""
    graph, program, tasks = run
    clock_hz = np.array([*columns, *[columns[-1]] * (SCENARIOS - len(columns))]).T
    return clock_scenarios(graph, program, tasks, MODEL, clock_hz, tasks.rank)


def test_a_kernel_bound_by_the_clock_takes_twice_as_long_at_half_of_it():
    found = answers(two_ranks(), (NOMINAL_HZ, NOMINAL_HZ), (HALF_HZ, HALF_HZ))
    assert found.step_us[:2] == pytest.approx([20.0, 40.0])


def test_a_kernel_bound_by_memory_takes_the_same_time_at_half_the_clock():
    run = two_ranks(clock_share=0.0)
    found = answers(run, (NOMINAL_HZ, NOMINAL_HZ), (HALF_HZ, HALF_HZ))
    assert found.step_us[:2] == pytest.approx([20.0, 20.0])


def test_a_slower_kernel_off_the_critical_path_costs_no_time_and_saves_energy():
    found = answers(two_ranks(), (NOMINAL_HZ, NOMINAL_HZ), (NOMINAL_HZ, HALF_HZ))
    assert found.step_us[:2] == pytest.approx([20.0, 20.0])
    assert found.energy_j[1] < found.energy_j[0]


def test_energy_is_that_of_the_tasks_and_static_power_while_they_run_and_wait():
    found = answers(two_ranks(), (NOMINAL_HZ, NOMINAL_HZ), (NOMINAL_HZ, HALF_HZ))
    # At the nominal clock static power is 117 W. At half of it the voltage is at its least, 0.7:
    # 62 + 25 * 0.7 + 30 * 0.5 * 0.49 = 86.85 W, and operations take 0.49 of their energy.
    first = 20e-6 * (117 + 117) + 400 * 30e-6
    second = 20e-6 * (117 + 86.85) + 400 * (20e-6 + 0.49 * 10e-6)
    assert found.energy_j[:2] == pytest.approx([first, second], rel=1e-12)
    assert found.average_power_w[:2] == pytest.approx(np.array([first, second]) / 20e-6)
    assert found.rank_power_w[1, 1] == pytest.approx(86.85 + 400 * 0.49 / 2)


def test_a_rank_counts_as_often_as_it_stands_for_others_and_one_without_tasks_is_idle():
    graph, program, tasks = two_ranks()
    more = replace(tasks, ranks=(0, 1, 2), ranks_alike=np.array([1.0, 3.0, 2.0]))
    once = answers((graph, program, tasks), (NOMINAL_HZ, HALF_HZ))
    often = answers((graph, program, more), (NOMINAL_HZ, HALF_HZ))
    assert often.rank_power_w[2, 0] == pytest.approx(117.0)
    assert often.energy_j[0] - once.energy_j[0] == pytest.approx(
        2 * (20e-6 * 86.85 + 0.49 * 400 * 10e-6) + 2 * 20e-6 * 117
    )


def test_the_clock_of_least_energy_lies_between_the_extremes():
    clock_hz = np.linspace(LOWEST_HZ, NOMINAL_HZ, SCENARIOS)
    found = answers(two_ranks(), *zip(clock_hz, clock_hz, strict=True))
    assert 0 < np.argmin(found.energy_j) < SCENARIOS - 1


def random_run(tasks_count: int = 40):
    draw = np.random.default_rng(3)
    graph = random_graph(draw, tasks_count)
    start_us = np.array(start_times(graph, graph.duration_ns.tolist())) / 1e3
    rank = draw.integers(0, 3, tasks_count)
    tasks = power_tasks(
        graph,
        rank,
        start_us,
        end_us=float(start_us.max() + 20.0),
        clock_share=draw.uniform(0, 1, tasks_count),
        busy_w=draw.uniform(50, 500, tasks_count),
    )
    return graph, compile_program(graph), tasks, draw.uniform(1.4e9, NOMINAL_HZ, (3, 13))


def test_the_step_is_that_of_the_graph_with_every_task_at_its_clock():
    graph, program, tasks, clock_hz = random_run()
    found = clock_scenarios(graph, program, tasks, MODEL, clock_hz, tasks.rank)
    for k in range(13):
        slower = NOMINAL_HZ / clock_hz[tasks.rank, k] - 1.0
        time_ns = 1e3 * tasks.duration_us * (1.0 + tasks.clock_share * slower)
        end_ns = np.array(start_times(graph, time_ns.tolist())) + time_ns
        window_ns = end_ns.max() - graph.release_ns[graph.release_ns >= 0].min()
        assert found.step_us[k] == pytest.approx(window_ns / 1e3, rel=1e-9)


@pytest.mark.slow
def test_many_groups_have_the_same_answers_as_few():
    graph, program, tasks, clock_hz = random_run()
    many = np.arange(len(tasks)) + 40
    spread = np.full((80, 13), 1e9)
    spread[many] = clock_hz[tasks.rank]
    many = np.where(tasks.rank == 2, -1, many)
    clock_hz[2] = NOMINAL_HZ  # which tasks of no group keep
    found = clock_scenarios(graph, program, tasks, MODEL, clock_hz, tasks.rank)
    again = clock_scenarios(graph, program, tasks, MODEL, spread, many)
    np.testing.assert_allclose(again.step_us, found.step_us, rtol=1e-12)
    np.testing.assert_allclose(again.energy_j, found.energy_j, rtol=1e-12)


def test_merged_tasks_take_the_same_energy_at_every_clock():
    _, _, tasks, _ = random_run()
    tasks = replace(tasks, is_known=np.arange(len(tasks)) % 2 == 0)
    share = share_between(tasks, np.asarray(4.0), np.asarray(30.0))
    merged, cell = merge_tasks(tasks, tasks.rank, share)
    assert len(merged) <= 6
    energy_j = jax.jit(task_energy_j)
    for hz in (LOWEST_HZ, 1e9, NOMINAL_HZ):
        apart = float(share @ np.asarray(energy_j(MODEL, tasks, hz)))
        together = float(np.asarray(energy_j(MODEL, merged, hz)).sum())
        assert together == pytest.approx(apart, rel=1e-12)
    np.testing.assert_array_equal(cell, merged.rank)


def test_a_task_counts_by_the_part_of_it_that_lies_in_the_span():
    _, _, tasks = two_ranks()
    assert share_between(tasks, np.asarray(5.0), np.asarray(15.0)) == pytest.approx([0.5, 0.5])


def test_gradients_by_clocks_are_those_of_finite_differences():
    graph, program, tasks, clock_hz = random_run()
    clocks = prepare_clocks(graph, program, tasks, tasks.rank, 3)
    # One scenario and, of each of its clocks, one with a little more and one with a little less.
    change = np.concatenate([np.zeros((3, 1)), np.eye(3), -np.eye(3), np.zeros((3, 6))], 1)
    batch = jnp.asarray(clock_hz[:, :1] + 1e3 * change)
    found = clock_answers(clocks, MODEL, batch)

    def first(clock_hz, parts):
        answers = clock_answers(clocks, MODEL, clock_hz)
        return parts @ jnp.stack([answers.step_us[0], answers.energy_j[0]])

    gradient = jax.jit(jax.grad(first))
    for parts, values in zip(np.eye(2), (found.step_us, found.energy_j), strict=True):
        slope = np.asarray(gradient(batch, parts))[:, 0]
        differences = np.asarray(values[1:4] - values[4:7]) / 2e3
        np.testing.assert_allclose(slope, differences, rtol=1e-5, atol=1e-15)


def test_without_steps_the_window_is_what_counts():
    graph, program, tasks = two_ranks()
    clocks = prepare_clocks(graph, program, tasks, tasks.rank, 2)
    assert not clocks.weights.any()
    assert float(clock_step_us(clocks, jnp.ones((2, 1)))[0]) == pytest.approx(20.0)


def test_groups_that_do_not_fit_are_refused():
    graph, program, tasks = two_ranks()
    with pytest.raises(ConfigError, match="groups do not fit"):
        prepare_clocks(graph, program, tasks, np.array([0, 5]), 2)
    with pytest.raises(ConfigError, match="not clocks"):
        clock_scenarios(graph, program, tasks, MODEL, np.zeros((1, 1)), np.zeros(2, int))
