"""Power over time: energy up to any moment, means on any grid, and extremes.

Each task draws its energy evenly while it runs, and static power flows all the time; tasks that
run at once add up. So power is constant between the starts and ends of tasks, which are sorted
once, and the energy up to a moment is a prefix sum and a linear part: exact, differentiable, and
O(log n) a sample. The same lines work on arrays of JAX and of NumPy: a prediction needs no
gradient, and compiling sorts and sums for every new number of tasks would take it seconds.
"""

from dataclasses import dataclass, fields
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.typing import ArrayLike

from jaxperf.energy.power._model import (
    PowerModel,
    as_at_nominal_clock,
    static_power_by_w,
    static_power_w,
    task_energy_j,
    task_time_us,
)
from jaxperf.energy.power._tasks import SHORTEST_US, PowerTasks, share_between
from jaxperf.replay import double_precision

_S = 1e-6


@dataclass(frozen=True, eq=False)
class TimelinePower:
    """What accelerators draw over time. Every field is a leaf.

    Attributes:
        rank: (n,) int32, of each task.
        task_class: (n,) int32.
        start_us, time_us: (n,) when it runs.
        moment_us: (2n,) starts and ends in order of time.
        order: (2n,) int32, which each is: of a task i its start, n + i its end.
        energy_j: (n,) what it takes on top of static power.
        static_w: (ranks,) of one accelerator.
        ranks_alike: (ranks,) how many each stands for.
        begin_us, end_us: () of the span that is looked at.
    """

    rank: Array
    task_class: Array
    start_us: Array
    time_us: Array
    moment_us: Array
    order: Array
    energy_j: Array
    static_w: Array
    ranks_alike: Array
    begin_us: Array
    end_us: Array


jax.tree_util.register_dataclass(TimelinePower, [f.name for f in fields(TimelinePower)], [])


def timeline_power(model: PowerModel, tasks: PowerTasks, clock_hz: ArrayLike) -> TimelinePower:
    """What accelerators draw over time at a clock.

    Args:
        model: the accelerator.
        tasks: n tasks; at another than the nominal clock with starts of a replay at that.
        clock_hz: () or (ranks,).

    Returns:
        The energy of each task, and the static power.

    Example:
        >>> timeline_power(model, tasks, 1.98e9).static_w.tolist()
        [117.0]
    """
    ranks = len(tasks.ranks)
    clock = jnp.broadcast_to(jnp.asarray(clock_hz, jnp.result_type(float)), (ranks,))
    of_task = clock[jnp.asarray(tasks.rank)]
    return _in_order(
        tasks,
        jnp.maximum(task_time_us(model, tasks, of_task), SHORTEST_US),
        task_energy_j(model, tasks, of_task),
        static_power_w(model, clock),
    )


def recorded_power(model: PowerModel, tasks: PowerTasks, clock_hz: np.ndarray) -> TimelinePower:
    """What accelerators drew over time, in the times that tasks had at the clocks they had.

    Where the clocks of a rank's tasks differ its static power is the mean over their time in the
    span, also while none runs.

    Args:
        model: the accelerator.
        tasks: n tasks, with the times and shares that they had.
        clock_hz: (n,) of each.

    Returns:
        The power, on the host, in NumPy arrays.

    Example:
        >>> power = recorded_power(model, tasks, np.full(len(tasks), 1.98e9))
        >>> float(power.static_w[0])
        117.0
    """
    inside_us = tasks.duration_us * share_between(tasks, tasks.begin_us, tasks.end_us)
    with double_precision():
        energy_j, static_w = _recorded(model, tasks, inside_us, clock_hz)
    time_us = np.maximum(tasks.duration_us, SHORTEST_US)
    return _in_order(tasks, time_us, np.asarray(energy_j), np.asarray(static_w))


@jax.jit
def _recorded(
    model: PowerModel, tasks: PowerTasks, inside_us: Array, clock_hz: Array
) -> tuple[Array, Array]:
    energy_j = task_energy_j(model, as_at_nominal_clock(model, tasks, clock_hz), clock_hz)
    ranks = len(tasks.ranks)
    return energy_j, static_power_by_w(model, tasks.rank, ranks, inside_us, clock_hz)


def _in_order(tasks: PowerTasks, time_us, energy_j, static_w) -> TimelinePower:
    xp = time_us.__array_namespace__()
    start_us = xp.asarray(tasks.start_us)
    moment_us = xp.concatenate([start_us, start_us + time_us])
    order = xp.argsort(moment_us)
    return TimelinePower(
        rank=xp.asarray(tasks.rank),
        task_class=xp.asarray(tasks.task_class),
        start_us=start_us,
        time_us=time_us,
        moment_us=moment_us[order],
        order=order,
        energy_j=energy_j,
        static_w=static_w,
        ranks_alike=xp.asarray(tasks.ranks_alike),
        begin_us=xp.asarray(tasks.begin_us, dtype=static_w.dtype),
        end_us=xp.asarray(tasks.end_us, dtype=static_w.dtype),
    )


class _Curve(NamedTuple):
    """Power of tasks: from each moment on `level_w`, and `energy_j` up to it. (2n,) each."""

    moment_us: Array
    level_w: Array
    energy_j: Array
    static_w: Array  # ()


def _curve(power: TimelinePower, rank: ArrayLike | None) -> _Curve:
    """The power of one rank; of all, each as often as it stands for others, where none is named."""
    xp = power.start_us.__array_namespace__()
    alike = power.ranks_alike
    if rank is not None:
        here = xp.arange(len(alike), dtype=power.rank.dtype) == xp.asarray(rank, power.rank.dtype)
        alike = xp.where(here, 1.0, 0.0)
    watts = alike[power.rank] * power.energy_j / (power.time_us * _S)
    level_w = xp.cumsum(xp.concatenate([watts, -watts])[power.order])
    spent_j = xp.cumsum(level_w[:-1] * xp.diff(power.moment_us) * _S)
    energy_j = xp.concatenate([xp.zeros(1, spent_j.dtype), spent_j])
    return _Curve(power.moment_us, level_w, energy_j, xp.sum(alike * power.static_w))


def _energy_at_j(curve: _Curve, begin_us: ArrayLike, time_us: Array) -> Array:
    """Energy up to moments; the static part counts from `begin_us`. Shaped as `time_us`."""
    xp = curve.moment_us.__array_namespace__()
    static_j = curve.static_w * (time_us - begin_us) * _S
    if not len(curve.moment_us):
        return static_j
    at = xp.searchsorted(curve.moment_us, time_us, side="right") - 1
    started = at >= 0
    at = xp.maximum(at, 0)
    since_s = (time_us - curve.moment_us[at]) * _S
    tasks_j = xp.where(started, curve.energy_j[at] + curve.level_w[at] * since_s, 0.0)
    return tasks_j + static_j


def cumulative_energy_j(
    power: TimelinePower, time_us: ArrayLike, rank: ArrayLike | None = None
) -> Array:
    """Energy from the begin of the span to any moment; negative before it.

    Args:
        power: of `timeline_power`.
        time_us: (k,) moments.
        rank: place of one rank; by default all, each as often as it stands for others.

    Returns:
        (k,) joules.

    Example:
        >>> power = recorded_power(model, tasks, np.full(len(tasks), 1.98e9))
        >>> cumulative_energy_j(power, np.array([0.0, 4.0])).round(6).tolist()  # at 117 W
        [0.0, 0.000468]
    """
    curve, xp = _curve(power, rank), power.start_us.__array_namespace__()
    from_j = _energy_at_j(curve, power.begin_us, power.begin_us)
    return _energy_at_j(curve, power.begin_us, xp.asarray(time_us)) - from_j


def series_w(power: TimelinePower, grid_us: ArrayLike, rank: ArrayLike | None = None) -> Array:
    """Mean power in each cell of a grid.

    Args:
        power: of `timeline_power`.
        grid_us: (cells + 1,) edges, increasing; any distances.
        rank: place of one rank; by default all, each as often as it stands for others.

    Returns:
        (cells,) watts. Times the length of the cells it is the energy between the edges.

    Example:
        >>> power = recorded_power(model, tasks, np.full(len(tasks), 1.98e9))
        >>> series_w(power, np.array([0.0, 1.0, 4.0])).round(6).tolist()  # nothing runs yet
        [117.0, 117.0]
    """
    xp = power.start_us.__array_namespace__()
    grid: Array = xp.asarray(grid_us)
    energy_j = _energy_at_j(_curve(power, rank), power.begin_us, grid)
    return xp.diff(energy_j) / (xp.diff(grid) * _S)


def power_series_w(
    model: PowerModel,
    tasks: PowerTasks,
    clock_hz: ArrayLike,
    grid_us: ArrayLike,
    rank: ArrayLike | None = None,
) -> Array:
    """Mean power of a timeline in each cell of a grid.

    Differentiable in the leaves of the model, in starts and durations, and in the clock.

    Args:
        model: the accelerator.
        tasks: what ran on it, and when.
        clock_hz: () or (ranks,).
        grid_us: (cells + 1,) edges, increasing; any distances.
        rank: place of one rank; by default all, each as often as it stands for others.

    Returns:
        (cells,) watts.

    Example:
        >>> from jaxperf.config import load_hardware, load_power
        >>> from jaxperf.cost import unknown_work
        >>> from jaxperf.energy.power._builder import power_tasks
        >>> from jaxperf.energy.power._model import power_model
        >>> from jaxperf.replay import Timeline
        >>> hardware, model = load_hardware("h100"), power_model(load_power("h100"))
        >>> idle = power_tasks(graph, Timeline(*np.zeros((2, 3))), unknown_work(3), hardware, 0, 1)
        >>> power_series_w(model, idle, 1.98e9, np.array([0.0, 10.0, 30.0])).round(1).tolist()
        [117.0, 117.0]
    """
    return series_w(timeline_power(model, tasks, clock_hz), grid_us, rank)
