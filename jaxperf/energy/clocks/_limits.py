"""A run under power limits: the clocks that accelerators come to, and what the step then takes."""

from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from jaxperf.compiled import Program
from jaxperf.energy.clocks._governor import (
    WINDOW_US,
    PowerWindows,
    limited_clock_hz,
    power_windows,
    tasks_us,
    window_of_task,
)
from jaxperf.energy.clocks._scenarios import (
    ClockAnswers,
    ClockProgram,
    clock_answers,
    clock_step_us,
    prepare_clocks,
)
from jaxperf.energy.power._model import PowerModel
from jaxperf.energy.power._tasks import PowerTasks
from jaxperf.graph import ExecutionGraph
from jaxperf.replay import double_precision

# How long accelerators wait for each other depends on the clocks, and those on that.
_ROUNDS = 40
_SETTLED = 1e-7


@dataclass(frozen=True, eq=False)
class LimitAnswers:
    """What a run comes to under each limit.

    Attributes:
        clock_hz: (ranks, windows, scenarios); NaN where even the lowest clock breaks the limit.
        is_kept: (scenarios,) whether every accelerator can keep the limit.
        is_settled: (scenarios,) whether clocks and the waiting that follows from them came to rest.
        answers: NaN in the scenarios where one cannot.
    """

    clock_hz: np.ndarray
    is_kept: np.ndarray
    is_settled: np.ndarray
    answers: ClockAnswers


def limit_scenarios(
    graph: ExecutionGraph,
    program: Program,
    tasks: PowerTasks,
    model: PowerModel,
    limit_w: np.ndarray,
    *,
    lowest_hz: float,
    highest_hz: float,
    window_us: float = WINDOW_US,
) -> LimitAnswers:
    """Answer many power limits in one call, in double precision.

    Each accelerator has a clock for each window. Where the step is shorter than a window there is
    one, and waiting follows from the replay: an accelerator that waits longer for slower ones has
    the more power for its work. In longer steps waiting is taken as it was.

    Args:
        graph: the execution graph.
        program: of `compile_program`.
        tasks: tasks of the graph, with the times that they have at the nominal clock.
        model: the accelerators.
        limit_w: (scenarios,) of one accelerator.
        lowest_hz, highest_hz: what can be set.
        window_us: over which mean power keeps the limit.

    Returns:
        The answers, on the host.

    Example:
        >>> answers = limit_scenarios(
        ...     graph, program, tasks, model, np.array([700.0, 20.0]), lowest_hz=4e8, highest_hz=2e9
        ... )
        >>> answers.is_kept.tolist()
        [True, False]
    """
    whole = prepare_clocks(graph, program, tasks, np.full(len(tasks), -1), 1)
    with double_precision():
        step_us = float(clock_step_us(whole, jnp.ones((1, 1)))[0])
    windows = power_windows(tasks, step_us, window_us)
    cell = window_of_task(windows, tasks)
    clocks = prepare_clocks(graph, program, tasks, cell, windows.cells)
    steps = (tasks.end_us - tasks.begin_us) / step_us
    with double_precision():
        clock_hz, is_settled = _settled_clock_hz(
            clocks, windows, model, np.asarray(limit_w, np.float64), lowest_hz, highest_hz, steps
        )
        answers = jax.tree.map(np.asarray, clock_answers(clocks, model, clock_hz))
    clock_hz = np.asarray(clock_hz)
    return LimitAnswers(
        clock_hz=clock_hz.reshape(len(tasks.ranks), windows.windows, -1),
        is_kept=np.all(np.isfinite(clock_hz), axis=0),
        is_settled=np.asarray(is_settled),
        answers=answers,
    )


@jax.jit
def _settled_clock_hz(
    clocks: ClockProgram,
    windows: PowerWindows,
    model: PowerModel,
    limit_w: Array,
    lowest_hz: float,
    highest_hz: float,
    steps: float,
) -> tuple[Array, Array]:
    """(cells, scenarios) clocks that agree with the waiting they cause; (scenarios,) whether."""
    limit_w = jnp.asarray(limit_w)
    if windows.windows > 1:
        clock_hz = limited_clock_hz(windows, model, limit_w, lowest_hz, highest_hz)
        return clock_hz, jnp.full(limit_w.shape, True)

    def again(state: tuple[Array, Array, Array]) -> tuple[Array, Array, Array]:
        rounds, clock_hz, _ = state
        tried_hz = jnp.where(jnp.isnan(clock_hz), lowest_hz, clock_hz)
        step_us = clock_step_us(clocks, model.nominal_clock_hz / tried_hz)
        other_us = (steps * step_us)[None] - tasks_us(windows, model, tried_hz)
        new_hz = limited_clock_hz(windows, model, limit_w, lowest_hz, highest_hz, other_us)
        change = jnp.where(jnp.isnan(new_hz), lowest_hz, new_hz) / tried_hz - 1.0
        return rounds + 1, new_hz, jnp.abs(change).max(0)

    def is_moving(state: tuple[Array, Array, Array]) -> Array:
        return (state[0] < _ROUNDS) & jnp.any(state[2] > _SETTLED)

    first_hz = limited_clock_hz(windows, model, limit_w, lowest_hz, highest_hz)
    start = jnp.zeros((), int), first_hz, jnp.full_like(limit_w, jnp.inf)
    _, clock_hz, change = lax.while_loop(is_moving, again, start)
    return clock_hz, change <= _SETTLED
