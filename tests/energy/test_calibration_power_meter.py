"""What a meter reads: exact integrals, and their slopes in delay and window."""

import jax
import numpy as np

from jaxperf.energy.calibration._design import TimedTasks, design_of, is_covered, with_values
from jaxperf.energy.calibration._meter import cumulative_energy, metered_w
from jaxperf.energy.power._model import power_model
from jaxperf.energy.power._timeline_power import power_series_w
from tests.energy.power_fit_cases import BELIEVED, small_tasks


def random_powers(seed, tasks=40):
    rng = np.random.default_rng(seed)
    start_s = rng.uniform(0, 10, tasks)
    return start_s, start_s + rng.uniform(0.01, 2, tasks), rng.uniform(0, 500, (tasks, 3))


def test_a_meter_whose_window_is_half_in_a_task_reads_half_its_power():
    energy = cumulative_energy(np.array([1.0]), np.array([3.0]), np.array([[100.0, 40.0]]))
    # From 0.5 to 1.5 s; from 1.5 to 2.5 s; from 2.75 to 3.75 s.
    read_w = metered_w(energy, np.array([1.7, 2.7, 3.95]), 0.2, 1.0)
    np.testing.assert_allclose(read_w, [[50, 20], [100, 40], [25, 10]])


def test_readings_are_the_sum_over_tasks_of_their_overlap_with_the_window():
    start_s, end_s, power_w = random_powers(0)
    time_s = np.linspace(-1, 14, 60)
    shared_s = np.minimum(end_s, time_s[:, None] - 0.3) - np.maximum(start_s, time_s[:, None] - 1)
    expected = np.maximum(shared_s, 0) @ power_w / 0.7
    found = metered_w(cumulative_energy(start_s, end_s, power_w), time_s, 0.3, 0.7)
    np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-9)


def test_readings_agree_with_the_series_of_the_timeline():
    tasks = small_tasks(0)
    design = design_of([TimedTasks(tasks, 0)], BELIEVED, None, 0)
    # Cells of a second, each read at its end.
    time_s = np.arange(1.0, 61.0)
    read_w = metered_w(design.energy, time_s, 0.0, 1.0) @ design.prior
    grid_us = np.append(0.0, time_s) * 1e6
    clock_hz = BELIEVED.nominal_clock_hz
    expected_w = jax.jit(power_series_w)(power_model(BELIEVED), tasks, clock_hz, grid_us)
    np.testing.assert_allclose(read_w, expected_w, rtol=1e-9)


def test_slopes_of_readings_are_those_of_finite_differences():
    energy = cumulative_energy(*random_powers(1))
    # Every time with a short window, and with a long one.
    time_s = np.repeat(np.linspace(0.5, 11, 25), 2)
    window_s = np.tile([0.05, 0.9], 25)

    def read(change):
        return metered_w(energy, time_s, 0.123 + change[0], window_s + change[1])

    slope, step = np.asarray(jax.jit(jax.jacfwd(read))(np.zeros(2))), 1e-6
    for k, change in enumerate(step * np.eye(2)):
        ahead, behind = np.asarray(read(change)), np.asarray(read(-change))
        differences = (ahead - behind) / (2 * step)
        # Where a task begins or ends within the step itself, no slope is right.
        close = np.isclose(slope[..., k], differences, rtol=1e-6, atol=1e-4)
        assert close.mean() > 0.98


def test_windows_that_leave_a_run_are_not_covered():
    tasks = small_tasks(0, tasks=8)
    later_ns = round(tasks.end_us * 1e3) + 5_000_000_000
    runs = [TimedTasks(tasks, 0), TimedTasks(tasks, later_ns)]
    design = design_of(runs, BELIEVED, None, 0)
    first_s, second_s = tasks.end_us * 1e-6, later_ns * 1e-9
    end_s = np.array([0.5, 1.5, first_s + 0.1, second_s + 0.5, second_s + 2])
    assert is_covered(design, end_s - 1, end_s).tolist() == [False, True, False, False, True]


def test_a_number_is_replaced_and_the_others_stay():
    changed = with_values(BELIEVED, {"flop_j.bf16": 1e-12, "node.host_w": 900.0})
    assert changed.flop_j["bf16"] == 1e-12
    assert changed.node.host_w == 900.0
    assert changed.flop_j["fp8"] == BELIEVED.flop_j["fp8"]
