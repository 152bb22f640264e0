"""The clock that a power limit leaves."""

from dataclasses import replace

import jax
import numpy as np
import pytest
from scipy.optimize import brentq

from jaxperf.compiled import compile_program
from jaxperf.energy.clocks._governor import (
    limited_clock_hz,
    power_windows,
    recorded_clock_hz,
    window_power_w,
)
from jaxperf.energy.clocks._limits import limit_scenarios
from jaxperf.energy.power._model import as_at_nominal_clock
from tests.energy.clock_cases import LOWEST_HZ, MODEL, NOMINAL_HZ, chains_graph, power_tasks

BOUNDS = (LOWEST_HZ, NOMINAL_HZ)


def busy_run(share: float = 1.0):
    """One kernel after the other for 20 us, 400 W above static power; rank 1 for half of it."""
    graph = chains_graph([[20.0], [10.0]])
    tasks = power_tasks(graph, [0, 1], [0.0, 0.0], end_us=20.0, clock_share=share)
    return graph, compile_program(graph), tasks


def power_by_hand_w(relative: float) -> float:
    """Of rank 0: static power, and operations that take longer and less energy each."""
    v = max(0.7, 1 + 0.75 * (relative - 1))
    return 62 + 25 * v + 30 * relative * v**2 + 400 * v**2 * relative


def test_the_clock_is_the_one_at_which_power_is_the_limit():
    _, _, tasks = busy_run()
    limit_w = np.array([200.0, 300.0, 400.0, 450.0])
    found = np.asarray(limited_clock_hz(power_windows(tasks), MODEL, limit_w, *BOUNDS))[0]
    by_hand = [brentq(lambda r, w=w: power_by_hand_w(r) - w, 0.17, 1.0) for w in limit_w]
    assert found / NOMINAL_HZ == pytest.approx(by_hand, rel=1e-9)


def test_a_limit_above_the_power_leaves_the_highest_clock():
    _, _, tasks = busy_run()
    found = limited_clock_hz(
        power_windows(tasks), MODEL, np.array([518.0, 600.0, 700.0, 900.0]), *BOUNDS
    )
    assert np.all(np.asarray(found) == NOMINAL_HZ)


def test_a_limit_below_what_the_lowest_clock_draws_is_nan():
    _, _, tasks = busy_run()
    limit_w = np.array([60.0, 70.0, 80.0, 500.0])
    found = limited_clock_hz(power_windows(tasks), MODEL, limit_w, *BOUNDS)
    assert np.isnan(np.asarray(found)).tolist() == 2 * [[True, True, True, False]]


def test_gradients_of_the_clock_are_those_of_finite_differences():
    _, _, tasks = busy_run(share=0.6)
    windows = power_windows(tasks)

    def clock_hz(at):
        model = replace(MODEL, flop_j=at[1] * MODEL.flop_j, constant_w=at[2])
        return limited_clock_hz(windows, model, at[:1], *BOUNDS)[0, 0]

    at = np.array([300.0, 1.0, 62.0])
    slopes = jax.jit(jax.grad(clock_hz))(at)
    value = jax.jit(clock_hz)
    for place, slope in enumerate(np.asarray(slopes)):
        change = 1e-5 * (np.arange(3) == place)
        difference = float(value(at + change) - value(at - change)) / 2e-5
        assert slope == pytest.approx(difference, rel=1e-4)


def test_each_window_has_the_clock_of_its_own_work():
    graph = chains_graph([[60_000.0, 60_000.0], [1.0, 1.0]])
    tasks = power_tasks(graph, [0, 0, 1, 1], [0.0, 60e3, 0.0, 1.0], end_us=240e3)
    windows = power_windows(tasks, 240e3, 60e3)
    assert windows.windows == 4
    found = np.asarray(limited_clock_hz(windows, MODEL, np.array([300.0]), *BOUNDS))[:, 0]
    relative = found.reshape(2, 4) / NOMINAL_HZ
    busy = brentq(lambda r: power_by_hand_w(r) - 300.0, 0.17, 1.0)
    assert relative[0] == pytest.approx([busy, busy, 1.0, 1.0], rel=1e-9)
    assert relative[1] == pytest.approx(1.0)


def test_a_task_over_several_windows_counts_in_each_by_its_part():
    graph = chains_graph([[30.0], [10.0]])
    tasks = power_tasks(graph, [0, 1], [5.0, 0.0], end_us=40.0)
    windows = power_windows(tasks, 40.0, 10.0)
    busy_us = np.zeros(8)
    np.add.at(busy_us, windows.cell, windows.tasks.duration_us)
    assert busy_us == pytest.approx([5, 10, 10, 5, 10, 0, 0, 0])


def test_windows_of_short_steps_are_one():
    _, _, tasks = busy_run()
    assert power_windows(replace(tasks, end_us=1e6), step_us=20e3).windows == 1


def test_the_clock_of_a_recorded_run_is_found_again():
    _, _, tasks = busy_run(share=0.6)
    limit_w = np.full(4, 250.0)
    kept = np.asarray(limited_clock_hz(power_windows(tasks), MODEL, limit_w, *BOUNDS))[0, 0]
    ratio = 1.0 + tasks.clock_share * (NOMINAL_HZ / kept - 1.0)
    longer_us = tasks.duration_us * ratio
    recorded = replace(
        tasks,
        end_us=float(longer_us[0]),
        duration_us=longer_us,
        clock_share=tasks.clock_share * (NOMINAL_HZ / kept) / ratio,
    )
    found = recorded_clock_hz(power_windows(recorded), MODEL, limit_w, *BOUNDS)
    assert float(found[0, 0]) == pytest.approx(kept, rel=1e-9)
    back = jax.jit(as_at_nominal_clock)(MODEL, recorded, kept)
    np.testing.assert_allclose(back.duration_us, tasks.duration_us, rtol=1e-12)
    np.testing.assert_allclose(back.clock_share, tasks.clock_share, rtol=1e-12)


def test_waiting_for_a_rank_that_the_limit_slows_leaves_the_other_at_a_clock_of_its_own():
    graph, program, tasks = busy_run()
    limits = np.array([150.0, 250.0, 400.0, 700.0])
    found = limit_scenarios(
        graph, program, tasks, MODEL, limits, lowest_hz=LOWEST_HZ, highest_hz=NOMINAL_HZ
    )
    assert found.is_kept.all() and found.is_settled.all()
    first = np.array(
        [min(brentq(lambda r, w=w: power_by_hand_w(r) - w, 0.17, 3), 1) for w in limits]
    )
    assert found.clock_hz[0, 0] / NOMINAL_HZ == pytest.approx(first, rel=1e-6)
    # Rank 0 is the slower one at every limit, so the step is its kernel's time.
    assert found.answers.step_us == pytest.approx(20.0 / first, rel=1e-6)
    assert np.all(found.answers.rank_power_w <= limits * (1 + 1e-6))
    # Rank 1 is busy for half of the time at most: it is the less bound.
    assert np.all(found.clock_hz[1, 0] >= found.clock_hz[0, 0])
    bound = found.clock_hz[1, 0] < NOMINAL_HZ
    assert found.answers.rank_power_w[1, bound] == pytest.approx(limits[bound], rel=1e-5)


def test_a_limit_that_cannot_be_kept_is_told_and_has_no_answer():
    graph, program, tasks = busy_run()
    found = limit_scenarios(
        graph,
        program,
        tasks,
        MODEL,
        np.array([60.0, 300.0, 400.0, 500.0]),
        lowest_hz=LOWEST_HZ,
        highest_hz=NOMINAL_HZ,
    )
    assert found.is_kept.tolist() == [False, True, True, True]
    assert np.isnan(found.answers.step_us).tolist() == [True, False, False, False]
    assert np.isnan(found.answers.energy_j).tolist() == [True, False, False, False]


def test_power_rises_with_the_clock():
    _, _, tasks = busy_run(share=0.3)
    clock_hz = np.tile(np.linspace(*BOUNDS, 50), (2, 1))
    power_w = np.asarray(window_power_w(power_windows(tasks), MODEL, clock_hz))
    assert np.all(np.diff(power_w, axis=1) > 0)
