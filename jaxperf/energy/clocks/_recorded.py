"""The clocks that a run was timed at: where it kept its power limit, they were lower."""

from dataclasses import dataclass, fields, replace

import jax
import numpy as np

from jaxperf.config import PowerDescription
from jaxperf.energy.clocks._governor import (
    PowerWindows,
    power_windows,
    recorded_clock_hz,
    recorded_power_w,
    window_of_task,
)
from jaxperf.energy.power._model import PowerModel
from jaxperf.energy.power._tasks import PowerTasks
from jaxperf.replay import double_precision

# Rows and windows are filled up to powers of two from here: most runs share a compilation.
_FEWEST_ROWS, _FEWEST_CELLS = 256, 64


@dataclass(frozen=True, eq=False)
class RecordedClocks:
    """What explains the power of a run in the times that it took.

    Attributes:
        cell: (n,) int, of each task the place in `clock_hz`.
        clock_hz: (cells,) of each window of each rank; one where all have the nominal clock.
        above_limit_w: by how much the highest window would be above the limit at the nominal clock;
            0 where none is.
        not_held_w: by how much one is above it even at the lowest clock, at which it then stands
            here; 0 where clocks explain the limit everywhere.
    """

    cell: np.ndarray
    clock_hz: np.ndarray
    above_limit_w: float
    not_held_w: float


def recorded_clocks(
    tasks: PowerTasks, model: PowerModel, power: PowerDescription, step_us: float
) -> RecordedClocks:
    """The highest clock of each window at which its mean power is within the device's limit.

    Args:
        tasks: n tasks, with the times and shares that they had.
        model, power: the accelerators.
        step_us: of the run; see `power_windows`.

    Returns:
        The clocks.

    Example:
        >>> from jaxperf.config import load_power
        >>> recorded_clocks(tasks, model, load_power("h100"), 17.0).clock_hz
        array([1.98e+09])
    """
    nominal = np.zeros(len(tasks), int), np.array([power.nominal_clock_hz])
    if not len(tasks):
        return RecordedClocks(*nominal, 0.0, 0.0)
    windows = power_windows(tasks, step_us)
    filled = _filled(windows)

    def above_w(clock_hz: float) -> float:
        column = np.full((filled.cells, 1), clock_hz)
        power_w = np.asarray(_power_w(filled, model, column))[: windows.cells]
        return max(float(power_w.max()) - power.power_limit_w, 0.0)

    with double_precision():
        above_limit_w = above_w(power.nominal_clock_hz)
        if not above_limit_w:
            return RecordedClocks(*nominal, 0.0, 0.0)
        bounds = power.minimum_clock_hz, power.nominal_clock_hz
        limit_w = np.array([power.power_limit_w])
        found = np.asarray(recorded_clock_hz(filled, model, limit_w, *bounds))
        not_held_w = above_w(power.minimum_clock_hz)
    clock_hz = found[: windows.cells, 0]
    clock_hz = np.where(np.isnan(clock_hz), power.minimum_clock_hz, clock_hz)
    return RecordedClocks(window_of_task(windows, tasks), clock_hz, above_limit_w, not_held_w)


_power_w = jax.jit(recorded_power_w)


def _filled(windows: PowerWindows) -> PowerWindows:
    """The same with rows and windows of nothing behind: each window as one of a rank of its own."""
    rows, cells = (
        max(least, 1 << (count - 1).bit_length())
        for count, least in ((len(windows.cell), _FEWEST_ROWS), (windows.cells, _FEWEST_CELLS))
    )
    spare = rows - len(windows.cell)
    columns = {
        field.name: np.pad(getattr(windows.tasks, field.name), (0, spare))
        for field in fields(PowerTasks)
        if field.name not in ("ranks", "ranks_alike", "begin_us", "end_us")
    }
    tasks = replace(windows.tasks, ranks=tuple(range(cells)), ranks_alike=np.ones(cells), **columns)
    return replace(windows, tasks=tasks, cell=np.pad(windows.cell, (0, spare)), windows=1)
