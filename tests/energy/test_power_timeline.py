"""Power over time against plain sums over tasks, and its derivatives against finite differences."""

from dataclasses import fields, replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from jaxperf.config import load_power
from jaxperf.cost import PRECISIONS
from jaxperf.energy.power._extremes import each_rank, power_extremes, steepest_w
from jaxperf.energy.power._model import PowerModel, power_model, static_power_w, task_energy_j
from jaxperf.energy.power._sums import (
    CLASSES_AND_STATIC,
    PHASES,
    energy_by_class_j,
    energy_by_phase_j,
    energy_by_rank_j,
)
from jaxperf.energy.power._tasks import SHORTEST_US, PowerTasks
from jaxperf.energy.power._timeline_power import (
    TimelinePower,
    cumulative_energy_j,
    power_series_w,
    recorded_power,
    series_w,
    timeline_power,
)
from jaxperf.graph import GraphLane, TaskClass, TaskKind
from jaxperf.replay import Timeline, device_activity
from tests.helpers import make_graph

CLOCK_HZ = 1.98e9
MODEL = power_model(load_power("h100"))

# Compiled once for each of few shapes.
SERIES_W = jax.jit(power_series_w)
POWER = jax.jit(timeline_power)
ENERGY_J = jax.jit(cumulative_energy_j)


def at_nominal_clock(tasks: PowerTasks, model: PowerModel = MODEL) -> TimelinePower:
    return recorded_power(model, tasks, np.full(len(tasks), CLOCK_HZ))


def sums_j(power: TimelinePower):
    return energy_by_class_j(power), energy_by_rank_j(power), energy_by_phase_j(power)


def random_tasks(n: int, ranks: int = 2, seed: int = 0, span_us: float = 1000.0) -> PowerTasks:
    """Tasks anywhere in a span and a little beyond, some of no time, some of unknown work."""
    rng = np.random.default_rng(seed)
    is_known = rng.random(n) < 0.7
    flops = np.where(is_known & (rng.random(n) < 0.5), rng.uniform(1e8, 1e10, n), 0.0)

    def sizes():
        return np.where(is_known, rng.uniform(0, 1e7, n), 0.0)

    return PowerTasks(
        ranks=tuple(range(ranks)),
        ranks_alike=rng.integers(1, 5, ranks).astype(float),
        begin_us=0.0,
        end_us=span_us,
        task=np.arange(n, dtype=np.int32),
        rank=rng.integers(0, ranks, n).astype(np.int32),
        task_class=rng.choice([1, 2, 5, 9, 10], n).astype(np.int32),
        start_us=rng.uniform(-0.05 * span_us, span_us, n),
        duration_us=np.where(rng.random(n) < 0.1, 0.0, rng.uniform(0.0, 0.1 * span_us, n)),
        is_known=is_known,
        precision=np.where(flops > 0, PRECISIONS.index("bf16"), 0).astype(np.int32),
        flops=flops,
        memory_bytes=sizes(),
        node_bytes=sizes(),
        network_bytes=sizes(),
        clock_share=rng.random(n),
    )


def energy_between_j(tasks: PowerTasks, begin_us: float, end_us: float, times) -> float:
    """The plain sum: of each task the part of its energy that lies between; and static power."""
    energy_j = np.asarray(task_energy_j(MODEL, tasks, CLOCK_HZ))
    length_us = np.maximum(tasks.duration_us, SHORTEST_US)
    inside_us = np.minimum(tasks.start_us + length_us, end_us)
    inside_us = np.maximum(inside_us - np.maximum(tasks.start_us, begin_us), 0.0)
    static_w = float(static_power_w(MODEL, CLOCK_HZ))
    of_tasks = (energy_j * inside_us / length_us * times[tasks.rank]).sum()
    return float(of_tasks + static_w * times.sum() * (end_us - begin_us) * 1e-6)


def a_step() -> PowerTasks:
    """One rank: 10 us of a multiply at 200 W, 5 us of it beside a message at 100 W."""
    tasks = random_tasks(2, ranks=1)
    return replace(
        tasks,
        ranks_alike=np.ones(1),
        end_us=20.0,
        rank=np.zeros(2, np.int32),
        task_class=np.array([TaskClass.GEMM, TaskClass.COMMUNICATION], np.int32),
        start_us=np.array([2.0, 7.0]),
        duration_us=np.array([10.0, 10.0]),
        is_known=np.zeros(2, bool),
        flops=np.zeros(2),
    )


def drawing(gemm_w: float, communication_w: float, static_w: float) -> PowerModel:
    watts = np.zeros(len(TaskClass))
    watts[[TaskClass.GEMM, TaskClass.COMMUNICATION]] = gemm_w, communication_w
    zero = np.float64(0.0)
    return replace(
        MODEL, constant_w=np.float64(static_w), leakage_w=zero, clock_w=zero, unknown_w=watts
    )


# Over time
# ---------------------------------------------------------------------------------------


def test_what_runs_at_once_adds_up_to_the_static_power():
    model = drawing(200.0, 100.0, 50.0)
    series = SERIES_W(model, a_step(), CLOCK_HZ, np.array([0.0, 2.0, 7.0, 12.0, 17.0, 20.0]))
    np.testing.assert_allclose(series, [50.0, 250.0, 350.0, 150.0, 50.0], rtol=1e-12)
    # Half of a cell of 250 W and half of 350 W.
    (mean,) = SERIES_W(model, a_step(), CLOCK_HZ, np.array([4.5, 9.5]))
    assert mean == pytest.approx(300.0)


@settings(max_examples=25)
@given(seed=st.integers(0, 2**32 - 1), rank=st.sampled_from([None, 0, 1]))
def test_a_series_is_the_plain_sum_over_tasks(seed, rank):
    tasks = random_tasks(60, seed=seed)
    rng = np.random.default_rng(seed)
    grid_us = np.concatenate([[-100.0], np.sort(rng.uniform(-100.0, 1200.0, 11)), [1300.0]])
    times = tasks.ranks_alike if rank is None else np.eye(2)[rank]
    found = SERIES_W(MODEL, tasks, CLOCK_HZ, grid_us, rank) * np.diff(grid_us) * 1e-6
    cells = zip(grid_us[:-1], grid_us[1:], strict=True)
    expected = [energy_between_j(tasks, begin, end, times) for begin, end in cells]
    np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-12)


def test_a_timeline_of_a_hundred_thousand_tasks_is_exact_on_a_grid_of_a_millisecond():
    tasks = random_tasks(100_000, seed=3, span_us=10e6)
    tasks = replace(tasks, duration_us=tasks.duration_us * 1e-4)
    grid_us = np.arange(0.0, 10e6 + 1, 1e3)
    found_j = np.asarray(SERIES_W(MODEL, tasks, CLOCK_HZ, grid_us)) * 1e-3
    # Each task's energy spread over the cells that it spans, of which there are few.
    energy_j = np.asarray(task_energy_j(MODEL, tasks, CLOCK_HZ)) * tasks.ranks_alike[tasks.rank]
    length_us = np.maximum(tasks.duration_us, SHORTEST_US)
    end_us = tasks.start_us + length_us
    expected_j = np.full(10_000, 117e-3 * tasks.ranks_alike.sum())
    first = np.floor(tasks.start_us / 1e3).astype(int)
    for more in range(int(length_us.max() / 1e3) + 2):
        cell = first + more
        inside_us = np.minimum(end_us, (cell + 1) * 1e3) - np.maximum(tasks.start_us, cell * 1e3)
        some = (inside_us > 0) & (cell >= 0) & (cell < 10_000)
        np.add.at(expected_j, cell[some], (energy_j * inside_us / length_us)[some])
    np.testing.assert_allclose(found_j, expected_j, rtol=1e-9)
    assert found_j.sum() == pytest.approx(expected_j.sum(), rel=1e-10)


def test_the_energy_up_to_a_moment_counts_from_the_begin_of_the_span():
    tasks = replace(random_tasks(60), begin_us=200.0)
    moments_us = np.array([100.0, 200.0, 700.0])
    found = ENERGY_J(POWER(MODEL, tasks, CLOCK_HZ), moments_us)
    after = energy_between_j(tasks, 200.0, 700.0, tasks.ranks_alike)
    before = energy_between_j(tasks, 100.0, 200.0, tasks.ranks_alike)
    np.testing.assert_allclose(found, [-before, 0.0, after], rtol=1e-9, atol=1e-12)


def test_each_rank_has_a_clock():
    tasks = random_tasks(60)
    grid_us = np.array([0.0, 400.0, 1000.0])
    clocks = np.array([1.98e9, 0.99e9])
    for rank in (0, 1):
        alone = SERIES_W(MODEL, tasks, clocks[rank], grid_us, rank)
        np.testing.assert_allclose(SERIES_W(MODEL, tasks, clocks, grid_us, rank), alone)


def test_extremes_are_those_of_every_window():
    tasks = random_tasks(60, seed=5)
    power = at_nominal_clock(tasks)
    grid_us = np.linspace(0.0, 1000.0, 11)
    found = power_extremes(power, 120.0)
    begins = np.linspace(0.0, 880.0, 4001)
    energy_j = np.asarray(cumulative_energy_j(power, np.concatenate([begins, begins + 120.0])))
    means = (energy_j[4001:] - energy_j[:4001]) / 120e-6
    # A window that begins at a start or end is between two of these.
    assert found.highest_w >= means.max() - 1e-9
    assert found.highest_w == pytest.approx(means.max(), rel=2e-3)
    assert found.lowest_w <= means.min() + 1e-9
    assert found.lowest_w == pytest.approx(means.min(), rel=2e-3)
    change = np.diff(SERIES_W(MODEL, tasks, CLOCK_HZ, grid_us))
    assert steepest_w(np.asarray(series_w(power, grid_us))) == pytest.approx(
        (max(change.max(), 0.0), max(-change.min(), 0.0))
    )


def test_a_constant_power_has_no_ramps_and_one_height():
    nothing = replace(a_step(), duration_us=np.zeros(2))
    power = at_nominal_clock(nothing, drawing(200.0, 100.0, 50.0))
    assert power_extremes(power, 5.0) == pytest.approx((50.0, 50.0))
    assert steepest_w(np.asarray(series_w(power, np.linspace(0.0, 20.0, 5)))) == (0.0, 0.0)


def test_on_the_host_power_is_the_same():
    tasks = random_tasks(60, seed=8)
    grid_us = np.linspace(-50.0, 1100.0, 9)
    host, device = at_nominal_clock(tasks), POWER(MODEL, tasks, CLOCK_HZ)
    assert isinstance(series_w(host, grid_us), np.ndarray)
    for rank in (None, 1):
        expected = SERIES_W(MODEL, tasks, CLOCK_HZ, grid_us, rank)
        np.testing.assert_allclose(series_w(host, grid_us, rank), expected, rtol=1e-9)
    np.testing.assert_allclose(host.static_w, device.static_w, rtol=1e-12)
    alone = [series_w(each, grid_us) for each in each_rank(host)]
    np.testing.assert_allclose(alone, [series_w(host, grid_us, k) for k in (0, 1)], rtol=1e-9)


def test_a_rank_of_two_clocks_has_the_static_power_of_both_by_their_time():
    # 10 us at the nominal clock, 117 W, and 10 us at half of it: 54 + 20 x 0.7 + 43 x 0.5 x 0.49.
    clocks = np.array([CLOCK_HZ, CLOCK_HZ / 2])
    (static_w,) = recorded_power(MODEL, a_step(), clocks).static_w
    assert static_w == pytest.approx((117.0 + 78.535) / 2)


# Derivatives
# ---------------------------------------------------------------------------------------


@jax.jit
def weighted(model, tasks):
    """A number that every cell counts differently in."""
    grid_us = np.array([0.0, 130.0, 330.0, 480.0, 750.0, 1000.0])
    series = power_series_w(model, tasks, 1.7e9, grid_us)
    return jnp.sum(series * np.array([1.0, -0.3, 0.7, 0.2, -1.1]))


def difference(at, value, step):
    return (at(value + step) - at(value - step)) / (2 * step)


@pytest.mark.parametrize("leaf", [field.name for field in fields(PowerModel)])
def test_the_series_has_derivatives_by_every_number_of_the_model(leaf, gradients):
    value = np.asarray(getattr(MODEL, leaf))
    slope = np.asarray(getattr(gradients, leaf))
    rng = np.random.default_rng(1)
    along = np.asarray(rng.uniform(0.5, 1.0, value.shape)) * (value + (value == 0))
    tasks = random_tasks(60, seed=2)

    def at(part):
        return float(weighted(replace(MODEL, **{leaf: value + part * along}), tasks))

    expected = difference(at, 0.0, 1e-4)
    assert (slope * along).sum() == pytest.approx(expected, rel=1e-6, abs=1e-6)


@pytest.fixture(scope="module")
def gradients() -> PowerModel:
    return jax.jit(jax.grad(weighted))(MODEL, random_tasks(60, seed=2))


@pytest.mark.parametrize("column", ["start_us", "duration_us"])
def test_the_series_has_derivatives_by_starts_and_durations(column):
    tasks = random_tasks(60, seed=2)
    tasks = replace(tasks, duration_us=tasks.duration_us + 5.0)
    value = getattr(tasks, column)
    along = np.random.default_rng(1).uniform(-1.0, 1.0, len(value))

    def at(part):
        return weighted(MODEL, replace(tasks, **{column: value + part * along}))

    expected = difference(lambda part: float(at(part)), 0.0, 1e-4)
    assert float(jax.jit(jax.grad(at))(0.0)) == pytest.approx(expected, rel=1e-6)


# Sums
# ---------------------------------------------------------------------------------------


def test_classes_ranks_and_phases_add_up_to_the_energy_of_the_span():
    tasks = random_tasks(60, seed=4)
    power = at_nominal_clock(tasks)
    total = energy_between_j(tasks, 0.0, 1000.0, tasks.ranks_alike)
    by_class, by_rank, by_phase = sums_j(power)
    assert by_class.sum() == pytest.approx(total, rel=1e-12)
    assert by_phase.sum() == pytest.approx(total, rel=1e-12)
    expected = [energy_between_j(tasks, 0.0, 1000.0, np.eye(2)[rank]) for rank in (0, 1)]
    np.testing.assert_allclose(by_rank, expected, rtol=1e-12)
    assert by_rank @ tasks.ranks_alike == pytest.approx(total, rel=1e-12)


def test_classes_and_phases_of_a_step_by_hand():
    power = at_nominal_clock(a_step(), drawing(200.0, 100.0, 50.0))
    by_class, _, by_phase = (each.tolist() for each in sums_j(power))
    by_class = dict(zip(CLASSES_AND_STATIC, by_class, strict=True))
    assert by_class["gemm"] == pytest.approx(200.0 * 10e-6)
    assert by_class["communication"] == pytest.approx(100.0 * 10e-6)
    assert by_class["static"] == pytest.approx(50.0 * 20e-6)
    by_phase = dict(zip(PHASES, by_phase, strict=True))
    expected = {
        "compute": 250.0 * 5e-6,
        "overlap": 350.0 * 5e-6,
        "exposed_communication": 150.0 * 5e-6,
        "memory": 0.0,
        "idle": 50.0 * 5e-6,
    }
    assert by_phase == pytest.approx(expected)


def test_phases_are_those_of_a_breakdown():
    # A graph of kernels, messages and copies of one rank anywhere, and 1 W while it lasts: the
    # energy of each phase is its time.
    rng = np.random.default_rng(7)
    n = 60
    graph = make_graph(np.zeros(n), [], task_class=rng.choice([1, 5, 9, 10], n))
    kind = np.full(n, TaskKind.KERNEL, np.int8)
    graph = replace(graph, kind=kind, lanes=(GraphLane(0, "stream 7", 0, 7),))
    start_us = rng.uniform(-50.0, 1000.0, n)
    timeline = Timeline(start_us, start_us + rng.uniform(1.0, 60.0, n))
    activity = device_activity(graph, timeline, 0)
    assert activity is not None
    breakdown = activity.between(0.0, 1000.0)
    tasks = replace(
        random_tasks(n, ranks=1),
        ranks_alike=np.ones(1),
        task_class=graph.task_class.astype(np.int32),
        start_us=timeline.start_us,
        duration_us=timeline.end_us - timeline.start_us,
        is_known=np.zeros(n, bool),
    )
    power = at_nominal_clock(tasks, drawing(0.0, 0.0, 1.0))
    times = [getattr(breakdown, f"{phase}_us") for phase in PHASES]
    np.testing.assert_allclose(energy_by_phase_j(power) * 1e6, times, rtol=1e-9, atol=1e-9)
