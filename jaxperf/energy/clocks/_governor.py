"""The clock that a power limit leaves: the highest at which mean power in every window keeps it.

An accelerator lowers its clock until its mean power over some tens of milliseconds is the limit.
Power rises with the clock, so the clock is found by bisection; its derivative is that of the
implicit function.
"""

from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jax.typing import ArrayLike

from jaxperf.energy.clocks._merge import merge_tasks
from jaxperf.energy.power._model import (
    PowerModel,
    as_at_nominal_clock,
    static_power_w,
    task_energy_j,
    task_time_us,
)
from jaxperf.energy.power._tasks import PowerTasks, share_between

WINDOW_US = 50_000.0
"""Over which an accelerator takes its mean power; 50 to 100 ms have been measured."""

_HALVINGS = 60


@dataclass(frozen=True, eq=False)
class PowerWindows:
    """What accelerators have to do in each window.

    Attributes:
        tasks: sums of tasks, or of parts of them, that lie in one window.
        cell: (rows,) int32, window of each sum: rank by rank, in order of time.
        length_us: () of a window at the nominal clock.
        windows: number of windows of a rank.
    """

    tasks: PowerTasks
    cell: np.ndarray
    length_us: np.ndarray
    windows: int

    @property
    def cells(self) -> int:
        """Number of windows of all ranks."""
        return len(self.tasks.ranks) * self.windows


jax.tree_util.register_dataclass(
    PowerWindows, [f.name for f in fields(PowerWindows) if f.name != "windows"], ["windows"]
)


def power_windows(
    tasks: PowerTasks, step_us: float = np.inf, window_us: float = WINDOW_US
) -> PowerWindows:
    """Cut the tasks of a run into windows of equal length.

    Args:
        tasks: n tasks.
        step_us: of the run; where it is shorter than a window all windows are alike, and one
            stands for them.
        window_us: the least length of a window.

    Returns:
        The windows; a task that runs in several counts in each by its part.

    Example:
        >>> power_windows(tasks).windows  # all is over in one
        1
    """
    cut = cut_into_windows(tasks, step_us, window_us)
    merged, cell = merge_tasks(cut.pieces, cut.cell, cut.inside)
    return PowerWindows(merged, cell, np.array(cut.length_us), cut.windows)


class CutTasks(NamedTuple):
    """Tasks by the windows that they lie in.

    Attributes:
        pieces: a row for each window that a task lies in.
        task: (pieces,) which task.
        cell: (pieces,) window: rank by rank, in order of time.
        inside: (pieces,) the part of the task that lies there.
        length_us: of a window.
        windows: number of windows of a rank.
    """

    pieces: PowerTasks
    task: np.ndarray
    cell: np.ndarray
    inside: np.ndarray
    length_us: float
    windows: int


def cut_into_windows(
    tasks: PowerTasks, step_us: float = np.inf, window_us: float = WINDOW_US
) -> CutTasks:
    """The parts of tasks in each window; see `power_windows`.

    Example:
        >>> cut_into_windows(tasks).inside.tolist()
        [1.0, 1.0]
    """
    span_us = tasks.end_us - tasks.begin_us
    windows = 1 if step_us < window_us else max(int(span_us // window_us), 1)
    length_us = span_us / windows
    place = (tasks.start_us - tasks.begin_us) / length_us
    last = (tasks.start_us + tasks.duration_us - tasks.begin_us) / length_us
    low, high = (np.clip(np.floor(x), 0, windows - 1).astype(int) for x in (place, last))
    piece = np.repeat(np.arange(len(tasks)), high - low + 1)
    window = low[piece] + np.arange(len(piece)) - np.searchsorted(piece, piece)
    pieces = replace(
        tasks,
        **{
            field.name: getattr(tasks, field.name)[piece]
            for field in fields(PowerTasks)
            if field.name not in ("ranks", "ranks_alike", "begin_us", "end_us")
        },
    )
    begin_us = tasks.begin_us + window * length_us
    inside = share_between(pieces, begin_us, begin_us + length_us)
    return CutTasks(pieces, piece, pieces.rank * windows + window, inside, length_us, windows)


def window_of_task(windows: PowerWindows, tasks: PowerTasks) -> np.ndarray:
    """(n,) int, the window of all ranks that the middle of each task lies in.

    Example:
        >>> window_of_task(power_windows(tasks), tasks).tolist()
        [0, 0]
    """
    middle_us = tasks.start_us + tasks.duration_us / 2 - tasks.begin_us
    window = np.clip(middle_us // windows.length_us, 0, windows.windows - 1)
    return tasks.rank * windows.windows + window.astype(int)


@jax.jit
def window_power_w(
    windows: PowerWindows,
    model: PowerModel,
    clock_hz: ArrayLike,
    other_us: ArrayLike | None = None,
) -> Array:
    """Mean power of an accelerator in each window, at clocks of their own.

    At a lower clock a window takes longer, by what its tasks do: the time in which none of them
    runs stays, unless it is given. Kernels that overlap are taken as if they did not.

    Args:
        windows: of `power_windows`.
        model: the accelerators.
        clock_hz: (cells, scenarios).
        other_us: (cells, scenarios) or (cells, 1), what a window takes besides its tasks.

    Returns:
        (cells, scenarios) watts.

    Example:
        >>> at_clocks = jnp.array([[1.0e9, 1.9e9]])
        >>> low, high = window_power_w(power_windows(tasks), model, at_clocks)[0].tolist()
        >>> low < high
        True
    """
    clock_hz = jnp.asarray(clock_hz)
    energy_j = jax.vmap(lambda f: task_energy_j(model, windows.tasks, f), -1, -1)(
        clock_hz[windows.cell]
    )
    if other_us is None:
        other_us = windows.length_us - _by_cell(windows, windows.tasks.duration_us)[:, None]
    elapsed_us = tasks_us(windows, model, clock_hz) + jnp.broadcast_to(other_us, clock_hz.shape)
    dynamic_w = _by_cell(windows, energy_j) / (elapsed_us * 1e-6)
    return static_power_w(model, clock_hz) + dynamic_w


def recorded_power_w(windows: PowerWindows, model: PowerModel, clock_hz: ArrayLike) -> Array:
    """Mean power in each window, if it was recorded at that clock: its times are as they are.

    Args:
        windows: of `power_windows`, of tasks with the times and shares that they had.
        model, clock_hz: see `window_power_w`.

    Returns:
        (cells, scenarios) watts.

    Example:
        >>> at_clocks = jnp.array([[1.0e9, 1.9e9]])
        >>> low, high = recorded_power_w(power_windows(tasks), model, at_clocks)[0].tolist()
        >>> low < high
        True
    """
    clock_hz = jnp.asarray(clock_hz)
    energy_j = jax.vmap(
        lambda f: task_energy_j(model, as_at_nominal_clock(model, windows.tasks, f), f), -1, -1
    )(clock_hz[windows.cell])
    dynamic_w = _by_cell(windows, energy_j) / (windows.length_us * 1e-6)
    return static_power_w(model, clock_hz) + dynamic_w


def tasks_us(windows: PowerWindows, model: PowerModel, clock_hz: ArrayLike) -> Array:
    """Time of the tasks of each window, shaped as `clock_hz`, (cells, scenarios)."""
    of_row = jnp.asarray(clock_hz)[windows.cell]
    return _by_cell(
        windows, jax.vmap(lambda f: task_time_us(model, windows.tasks, f), -1, -1)(of_row)
    )


def _by_cell(windows: PowerWindows, values: ArrayLike) -> Array:
    return jax.ops.segment_sum(jnp.asarray(values), windows.cell, windows.cells)


# The clock at a limit
# ---------------------------------------------------------------------------------------


@jax.jit
def limited_clock_hz(
    windows: PowerWindows,
    model: PowerModel,
    limit_w: ArrayLike,
    lowest_hz: ArrayLike,
    highest_hz: ArrayLike,
    other_us: ArrayLike | None = None,
) -> Array:
    """The highest clock at which each window keeps each limit.

    Differentiable with respect to the limits, the model and times.

    Args:
        windows: of `power_windows`.
        model: the accelerators.
        limit_w: (scenarios,) float64, of one accelerator.
        lowest_hz, highest_hz: () what can be set.
        other_us: see `window_power_w`.

    Returns:
        (cells, scenarios); NaN where even the lowest clock draws more than the limit.

    Example:
        >>> free, bound = limited_clock_hz(
        ...     power_windows(tasks), model, jnp.array([900.0, 50.0]), 345e6, 1980e6
        ... )[0].tolist()
        >>> free, bound  # static power alone is more than 50 W
        (1980000000.0, nan)
    """
    return _highest_within(
        lambda clock_hz: window_power_w(windows, model, clock_hz, other_us),
        windows.cells,
        jnp.asarray(limit_w),
        lowest_hz,
        highest_hz,
    )


@jax.jit
def recorded_clock_hz(
    windows: PowerWindows,
    model: PowerModel,
    limit_w: ArrayLike,
    lowest_hz: ArrayLike,
    highest_hz: ArrayLike,
) -> Array:
    """The clock that explains a recorded run at its power limit: its times are as they are.

    `as_at_nominal_clock` then gives its tasks without the limit.

    Args:
        windows, model, limit_w, lowest_hz, highest_hz: see `limited_clock_hz`.

    Returns:
        (cells, scenarios); the highest where the limit is not reached, NaN where no clock explains
        so little power.

    Example:
        >>> limit_w, windows = jnp.array([900.0]), power_windows(tasks)
        >>> recorded_clock_hz(windows, model, limit_w, 345e6, 1980e6).tolist()
        [[1980000000.0]]
    """
    return _highest_within(
        lambda clock_hz: recorded_power_w(windows, model, clock_hz),
        windows.cells,
        jnp.asarray(limit_w),
        lowest_hz,
        highest_hz,
    )


def _highest_within(
    power_w: Callable[[Array], Array],
    cells: int,
    limit_w: Array,
    lowest_hz: ArrayLike,
    highest_hz: ArrayLike,
) -> Array:
    """(cells, scenarios) the highest clock at which power, which rises with it, is in the limit."""
    shape = (cells, len(limit_w))
    limit_w = jnp.broadcast_to(limit_w[None], shape)
    lowest, highest = (jnp.full(shape, x, limit_w.dtype) for x in (lowest_hz, highest_hz))

    def halve(_, bounds: tuple[Array, Array]) -> tuple[Array, Array]:
        low, high = bounds
        middle = 0.5 * (low + high)
        is_within = power_w(middle) <= limit_w
        return jnp.where(is_within, middle, low), jnp.where(is_within, high, middle)

    def bisect(_: Callable[[Array], Array], __: Array) -> Array:
        return lax.fori_loop(0, _HALVINGS, halve, (lowest, highest))[0]

    def divide(above_w: Callable[[Array], Array], y: Array) -> Array:
        slope = above_w(jnp.ones_like(y))
        return y / jnp.where(slope > 0, slope, jnp.inf)

    found = lax.custom_root(lambda clock_hz: power_w(clock_hz) - limit_w, lowest, bisect, divide)
    kept = jnp.where(power_w(lowest) <= limit_w, found, jnp.nan)
    return jnp.where(power_w(highest) <= limit_w, highest, kept)
