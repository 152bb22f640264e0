"""What a meter reads: exact integrals, and their slopes in delay and window."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxperf.energy.calibration._design import TimedTasks, design_of, is_covered, with_values
from jaxperf.energy.calibration._meter import cumulative_energy, energy_until_j, metered_w
from jaxperf.energy.power._model import power_model
from jaxperf.energy.power._timeline_power import cumulative_energy_j, timeline_power
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


def test_gain_and_offset_of_a_meter():
    energy = cumulative_energy(np.array([0.0]), np.array([9.0]), np.array([[100.0]]))
    read_w = metered_w(energy, np.array([5.0]), 0.0, 0.5, gain=1.1, offset_w=7.0)
    np.testing.assert_allclose(read_w, [[117.0]])


def test_readings_are_the_sum_over_tasks_of_their_overlap_with_the_window():
    start_s, end_s, power_w = random_powers(0)
    time_s = np.linspace(-1, 14, 60)
    shared_s = np.minimum(end_s, time_s[:, None] - 0.3) - np.maximum(start_s, time_s[:, None] - 1)
    expected = np.maximum(shared_s, 0) @ power_w / 0.7
    found = metered_w(cumulative_energy(start_s, end_s, power_w), time_s, 0.3, 0.7)
    np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-9)


def test_energy_agrees_with_that_of_the_timeline():
    tasks = small_tasks(0)
    run = TimedTasks(tasks, 0)
    design = design_of([run], BELIEVED, None, 0)
    time_s = np.linspace(0, tasks.end_us * 1e-6, 50)

    @jax.jit
    def until_j(model, tasks, time_us):
        power = timeline_power(model, tasks, BELIEVED.nominal_clock_hz)
        return cumulative_energy_j(power, time_us)

    expected = until_j(power_model(BELIEVED), tasks, time_s * 1e6)
    np.testing.assert_allclose(
        energy_until_j(design.energy, time_s) @ design.prior, expected, rtol=1e-9, atol=1e-9
    )


@pytest.mark.parametrize("window_s", [0.05, 0.9])
def test_slopes_of_readings_are_those_of_finite_differences(window_s):
    energy = cumulative_energy(*random_powers(1))
    time_s = np.linspace(0.5, 11, 25)

    def read(meter):
        return metered_w(energy, time_s, meter[0], meter[1])

    at, step = jnp.array([0.123, window_s]), 1e-6
    slope = jax.jacfwd(read)(at)
    for k in range(2):
        change = jnp.zeros(2).at[k].set(step)
        differences = (read(at + change) - read(at - change)) / (2 * step)
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
