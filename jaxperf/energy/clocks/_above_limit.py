"""The highest power that accelerators have at clocks that were asked, over any window."""

import jax
import numpy as np
from jax import Array

from jaxperf.energy.clocks._governor import cut_into_windows
from jaxperf.energy.power._model import (
    PowerModel,
    static_power_by_w,
    task_energy_j,
    task_time_us,
)
from jaxperf.energy.power._tasks import PowerTasks
from jaxperf.replay import double_precision


def highest_window_w(
    model: PowerModel, tasks: PowerTasks, clock_hz: np.ndarray, step_us: float
) -> float:
    """The highest mean power of any accelerator over a window.

    A window takes longer by what its tasks do; the time in which none runs stays.

    Args:
        model: the accelerators.
        tasks: n tasks, with the times that they have at the nominal clock.
        clock_hz: (n,) of each.
        step_us: of the run; see `power_windows`.

    Returns:
        Watts.

    Example:
        >>> fast, slow = np.full((2, len(tasks)), [[1.98e9], [1e9]])
        >>> bool(
        ...     highest_window_w(model, tasks, fast, 17.0)
        ...     > highest_window_w(model, tasks, slow, 17.0)
        ... )
        True
    """
    cut = cut_into_windows(tasks, step_us)
    cells = len(tasks.ranks) * cut.windows
    with double_precision():
        sums = _sums(model, cut.pieces, cut.inside, cut.cell, clock_hz[cut.task], np.zeros(cells))
        energy_j, longer_us, static_w = (np.asarray(each) for each in sums)
    return float((energy_j / (1e-6 * (cut.length_us + longer_us)) + static_w).max())


@jax.jit
def _sums(
    model: PowerModel, pieces: PowerTasks, inside: Array, cell: Array, clock_hz: Array, none: Array
) -> tuple[Array, Array, Array]:
    """(cells,) energy, how much longer tasks take, and static power."""
    cells = len(none)
    time_us = inside * task_time_us(model, pieces, clock_hz)
    energy_j = inside * task_energy_j(model, pieces, clock_hz)
    longer_us = time_us - inside * pieces.duration_us
    return (
        jax.ops.segment_sum(energy_j, cell, cells),
        jax.ops.segment_sum(longer_us, cell, cells),
        static_power_by_w(model, cell, cells, time_us, clock_hz),
    )
