"""Power over time: energy up to any moment, means on any grid, and extremes.

Each task draws its energy evenly while it runs, and static power flows all the time; tasks that
run at once add up. So power is constant between the starts and ends of tasks, which are sorted
once, and the energy up to a moment is a prefix sum and a linear part: exact, differentiable, and
O(log n) a sample.
"""

from dataclasses import dataclass, fields
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array
from jax.typing import ArrayLike

from jaxperf.energy.power._model import PowerModel, static_power_w, task_energy_j, task_time_us
from jaxperf.energy.power._tasks import PowerTasks

# The resolution of a trace: a task that takes no time draws what it needs within a nanosecond.
_SHORTEST_US = 1e-3
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
        switching_j: (n,) the part of that which follows the voltage.
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
    switching_j: Array
    static_w: Array
    ranks_alike: Array
    begin_us: Array
    end_us: Array


jax.tree_util.register_dataclass(TimelinePower, [f.name for f in fields(TimelinePower)], [])


class PowerExtremes(NamedTuple):
    """The highest and lowest power, and its steepest changes; () each.

    Attributes:
        highest_w, lowest_w: mean over any window inside the span.
        rise_w, fall_w: largest change between neighbouring cells of a grid, both at least 0.
    """

    highest_w: Array
    lowest_w: Array
    rise_w: Array
    fall_w: Array


def timeline_power(model: PowerModel, tasks: PowerTasks, clock_hz: ArrayLike) -> TimelinePower:
    """What accelerators draw over time at a clock.

    Args:
        model: the accelerator.
        tasks: n tasks; at another than the nominal clock with starts of a replay at that.
        clock_hz: () or (ranks,).

    Returns:
        The energy of each task, and the static power.
    """
    ranks = len(tasks.ranks)
    clock = jnp.broadcast_to(jnp.asarray(clock_hz, jnp.result_type(float)), (ranks,))
    of_task = clock[jnp.asarray(tasks.rank)]
    energy_j = task_energy_j(model, tasks, of_task)
    moved_j = (
        model.memory_byte_j * jnp.asarray(tasks.memory_bytes)
        + model.node_byte_j * jnp.asarray(tasks.node_bytes)
        + model.network_byte_j * jnp.asarray(tasks.network_bytes)
    )
    start_us = jnp.asarray(tasks.start_us)
    time_us = jnp.maximum(task_time_us(model, tasks, of_task), _SHORTEST_US)
    moment_us = jnp.concatenate([start_us, start_us + time_us])
    order = jnp.argsort(moment_us)
    return TimelinePower(
        rank=jnp.asarray(tasks.rank),
        task_class=jnp.asarray(tasks.task_class),
        start_us=start_us,
        time_us=time_us,
        moment_us=moment_us[order],
        order=order,
        energy_j=energy_j,
        switching_j=energy_j - jnp.where(tasks.is_known, moved_j, 0.0),
        static_w=static_power_w(model, clock),
        ranks_alike=jnp.asarray(tasks.ranks_alike),
        begin_us=jnp.asarray(tasks.begin_us, clock.dtype),
        end_us=jnp.asarray(tasks.end_us, clock.dtype),
    )


class _Curve(NamedTuple):
    """Power of tasks: from each moment on `level_w`, and `energy_j` up to it. (2n,) each."""

    moment_us: Array
    level_w: Array
    energy_j: Array
    static_w: Array  # ()


def _curve(power: TimelinePower, rank: ArrayLike | None) -> _Curve:
    """The power of one rank; of all, each as often as it stands for others, where none is named."""
    alike = power.ranks_alike
    if rank is not None:
        here = jnp.arange(len(alike), dtype=power.rank.dtype) == jnp.asarray(rank, power.rank.dtype)
        alike = jnp.where(here, 1.0, 0.0)
    watts = alike[power.rank] * power.energy_j / (power.time_us * _S)
    level_w = jnp.cumsum(jnp.concatenate([watts, -watts])[power.order])
    spent_j = jnp.cumsum(level_w[:-1] * jnp.diff(power.moment_us) * _S)
    energy_j = jnp.concatenate([jnp.zeros(1, spent_j.dtype), spent_j])
    return _Curve(power.moment_us, level_w, energy_j, jnp.sum(alike * power.static_w))


def _energy_at_j(curve: _Curve, begin_us: ArrayLike, time_us: ArrayLike) -> Array:
    """Energy up to moments; the static part counts from `begin_us`. Shaped as `time_us`."""
    time_us = jnp.asarray(time_us)
    static_j = curve.static_w * (time_us - begin_us) * _S
    if not len(curve.moment_us):
        return static_j
    at = jnp.searchsorted(curve.moment_us, time_us, side="right") - 1
    started = at >= 0
    at = jnp.maximum(at, 0)
    since_s = (time_us - curve.moment_us[at]) * _S
    tasks_j = jnp.where(started, curve.energy_j[at] + curve.level_w[at] * since_s, 0.0)
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
    """
    curve = _curve(power, rank)
    from_j = _energy_at_j(curve, power.begin_us, power.begin_us)
    return _energy_at_j(curve, power.begin_us, time_us) - from_j


def series_w(power: TimelinePower, grid_us: ArrayLike, rank: ArrayLike | None = None) -> Array:
    """Mean power in each cell of a grid.

    Args:
        power: of `timeline_power`.
        grid_us: (cells + 1,) edges, increasing; any distances.
        rank: place of one rank; by default all, each as often as it stands for others.

    Returns:
        (cells,) watts. Times the length of the cells it is the energy between the edges.
    """
    grid_us = jnp.asarray(grid_us)
    energy_j = _energy_at_j(_curve(power, rank), power.begin_us, grid_us)
    return jnp.diff(energy_j) / (jnp.diff(grid_us) * _S)


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


def rank_series_w(power: TimelinePower, grid_us: ArrayLike) -> Array:
    """(ranks, cells) mean power of one accelerator of each rank in each cell of a grid."""
    ranks = len(power.static_w)
    return jax.lax.map(
        lambda rank: series_w(power, grid_us, rank), jnp.arange(ranks, dtype=power.rank.dtype)
    )


def power_extremes(
    power: TimelinePower,
    window_us: ArrayLike,
    grid_us: ArrayLike,
    rank: ArrayLike | None = None,
) -> PowerExtremes:
    """The highest and lowest power inside the span, and its steepest changes.

    The mean over a window that moves is linear between the moments at which the window's begin or
    end meets the start or end of a task: looking at those finds the extremes exactly.

    Args:
        power: of `timeline_power`.
        window_us: () over which the mean is taken, such as that of a meter; at most the span.
        grid_us: (cells + 1,) of the changes.
        rank: place of one rank; by default all, each as often as it stands for others.

    Returns:
        Four numbers.
    """
    curve, grid_us = _curve(power, rank), jnp.asarray(grid_us)
    begin_us, end_us = power.begin_us, power.end_us
    window_us = jnp.minimum(window_us, end_us - begin_us)
    begins = jnp.concatenate([begin_us[None], curve.moment_us, curve.moment_us - window_us])
    begins = jnp.clip(begins, begin_us, end_us - window_us)
    looked_at_us = jnp.concatenate([begins, begins + window_us, grid_us])
    energy_j = _energy_at_j(curve, begin_us, looked_at_us)
    from_j, to_j = energy_j[: len(begins)], energy_j[len(begins) : 2 * len(begins)]
    means_w = (to_j - from_j) / (window_us * _S)
    cells_w = jnp.diff(energy_j[2 * len(begins) :]) / (jnp.diff(grid_us) * _S)
    change_w = jnp.diff(cells_w)
    return PowerExtremes(
        jnp.max(means_w),
        jnp.min(means_w),
        jnp.max(change_w, initial=0.0),
        jnp.max(-change_w, initial=0.0),
    )
