"""The linear part of a fit: what each number adds to a reading."""

from dataclasses import replace
from types import SimpleNamespace

import msgspec
import numpy as np
import pytest

from jaxperf.energy.calibration._design import (
    TimedTasks,
    design_of,
    nonnegative_shares,
    with_values,
)
from jaxperf.energy.calibration._identify import condition_of, parameters_of
from jaxperf.energy.calibration._meter import metered_w
from jaxperf.energy.power._node import node_power
from tests.energy.power_fit_cases import (
    BELIEVED,
    STATIC,
    TRUTH,
    overlap_readings_w,
    small_tasks,
    timed,
)

TIME_S = np.linspace(2.0, 60.0, 40)


def modelled_w(design, values):
    columns = metered_w(design.energy, TIME_S, 0.0, 0.7)
    return np.asarray(columns) @ np.array([values[key] for key in design.keys])


def test_columns_times_numbers_are_the_readings():
    tasks = small_tasks(0)
    design = design_of([TimedTasks(tasks, 0)], BELIEVED, None, 0)
    assert set(design.keys) == set(TRUTH)
    expected = overlap_readings_w(with_values(BELIEVED, TRUTH), tasks, TIME_S, 0.7)
    np.testing.assert_allclose(modelled_w(design, TRUTH), expected, rtol=1e-9)


def test_a_node_adds_its_host_and_the_losses_of_fans_and_power_supplies():
    tasks = small_tasks(0)
    design = design_of([TimedTasks(tasks, 0)], BELIEVED, 8, 0)
    truth = TRUTH | {"node.host_w": 1500.0}
    true = with_values(BELIEVED, truth)
    gpus_w = 8 * overlap_readings_w(true, tasks, TIME_S, 0.7)
    expected = node_power(gpus_w, 8, 8, true.node, true.idle_w).ac_w
    np.testing.assert_allclose(modelled_w(design, truth), expected, rtol=1e-9)


def test_recorded_ranks_stand_for_all_accelerators_of_a_node():
    one = small_tasks(0)
    # The second rank stands for three, and does nothing.
    both = replace(one, ranks=(0, 1), ranks_alike=np.array([1.0, 3.0]))
    designs = [design_of([TimedTasks(tasks, 0)], BELIEVED, 8, 0) for tasks in (one, both)]
    zero = dict.fromkeys(designs[0].keys, 0.0)
    of_tasks = [modelled_w(design, TRUTH | zero | {"flop_j.bf16": 1e-12}) for design in designs]
    np.testing.assert_allclose(of_tasks[0], 4 * of_tasks[1])
    static = [modelled_w(design, zero | {"static.clock_w": 1.0}) for design in designs]
    np.testing.assert_allclose(static[0], static[1])


def test_numbers_that_nothing_needs_are_listed_and_those_that_are_0_stay_out():
    design = design_of([timed(small_tasks(0))], BELIEVED, None, 0)
    assert design.without_work["flop_j.fp8"] == BELIEVED.flop_j["fp8"]
    assert "network_byte_j" in design.without_work
    assert not any(key.startswith("class_w") for key in (*design.keys, *design.without_work))
    assert "node.host_w" not in design.without_work


def test_a_type_without_energy_of_its_own_takes_that_of_the_next():
    without = {k: v for k, v in BELIEVED.flop_j.items() if k != "bf16"}
    tasks = small_tasks(0)
    design = design_of([timed(tasks)], msgspec.structs.replace(BELIEVED, flop_j=without), None, 0)
    assert "flop_j.fp16" in design.keys


def test_non_negative_least_squares_end_at_0_where_the_best_would_be_below():
    columns = np.array([[100.0, 0.0], [0.0, 100.0]])
    share = nonnegative_shares(columns, np.array([200.0, -50.0]), np.ones(2))
    np.testing.assert_allclose(share, [2.0, 0.0], atol=1e-3)


@pytest.mark.parametrize(
    ("columns", "expected"),
    [
        ([[3.0, 0.0], [0.0, 4.0], [0.0, 0.0]], 6.0),
        ([[1.0, 2.0], [2.0, 4.0], [3.0, 6.0]], np.inf),
        ([[1.0, 1.0]], np.inf),
    ],
)
def test_condition_is_the_largest_by_the_smallest_change_that_numbers_make(columns, expected):
    design = SimpleNamespace(keys=("a", "b"), prior=np.array([1.0, 0.125]))
    posterior = SimpleNamespace(columns=np.array(columns))
    assert condition_of(design, posterior) == pytest.approx(expected)  # pyright: ignore


def test_only_where_the_log_leaves_the_interval_as_wide_the_prior_tells_a_number():
    """By hand: what is believed of 100 spreads by 100, and by the value where that is above."""
    spread = {"exact": 1.0, "nine_percent": 9 / 1.645, "half": 71.0, "kept": 98.0, "far": 98.0}
    value = {"exact": 100.0, "nine_percent": 100.0, "half": 50.0, "kept": 90.0, "far": 300.0}
    design = SimpleNamespace(keys=tuple(spread), prior=np.full(5, 100.0))
    posterior = SimpleNamespace(
        value=np.array([value[key] for key in spread]),
        covariance=np.diag([spread[key] ** 2 for key in spread]),
        columns=np.eye(5),
        mean_w=np.ones(5),
    )
    found = {each.key: each for each in parameters_of(design, posterior)}  # pyright: ignore
    assert {key: each.told for key, each in found.items()} == {
        "exact": "log",
        "nine_percent": "loosely",
        "half": "loosely",
        "kept": "prior",
        "far": "loosely",
    }
    assert found["nine_percent"].interval == pytest.approx((91.0, 109.0))


def test_a_node_of_nothing_but_static_power_can_be_described():
    idle = small_tasks(0, tasks=8)
    none = replace(
        idle,
        **{name: column[:0] for name, column in vars(idle).items() if np.shape(column) == (8,)},
    )
    design = design_of([TimedTasks(none, 0)], BELIEVED, 8, 0)
    assert set(design.keys) == {*STATIC, "node.host_w"}
