"""Step time and energy of a run whose groups of tasks have clocks of their own, many at a time.

A task takes `a + b f0 / f`, so all times of the graph are linear in `f0 / f` of the groups, and one
batched replay answers every scenario. Energy is a sum over tasks of one clock, which are one row.
An accelerator that waits draws its static power at the clock that its tasks have in the mean; what
a collective draws besides while it waits for other ranks stays as it was timed.
"""

from dataclasses import dataclass, fields, replace

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.typing import ArrayLike

from jaxperf.compiled import Program
from jaxperf.energy.clocks._merge import merge_tasks
from jaxperf.energy.power._model import PowerModel, static_power_by_w, task_energy_j, task_time_us
from jaxperf.energy.power._tasks import PowerTasks, share_between
from jaxperf.errors import ConfigError
from jaxperf.graph import ExecutionGraph
from jaxperf.replay import (
    CHUNK,
    ScaledProgram,
    double_precision,
    in_chunks,
    milestones,
    replay_scenarios,
    scale_groups,
    steady_weights,
)
from jaxperf.trace import MISSING

# With more groups the coefficients of a `ScaledProgram` cost more than durations of one's own.
_FEW_GROUPS = 64


@dataclass(frozen=True, eq=False)
class GroupedTasks:
    """The tasks of a steady step, by the group that their clock is of.

    Attributes:
        tasks: sums of tasks that have one clock; see `merge_tasks`.
        group: (rows,) int32, group of each sum; `groups` where the clock is always the nominal one.
        groups: number of groups.
    """

    tasks: PowerTasks
    group: np.ndarray
    groups: int


@dataclass(frozen=True, eq=False)
class ClockProgram:
    """A run ready to be asked about clocks; see `prepare_clocks`.

    Attributes:
        program: the compiled graph, on the device.
        scaled: the same, linear in `f0 / f` of the groups; `None` where they are many.
        fixed_us, follows_us: (tasks,) float64, padded: what each task takes whatever its clock is,
            and what it takes besides at the nominal clock.
        group: (tasks,) int32, padded; `groups` where the clock is always the nominal one.
        weights: (iterations,) what each counts in the steady step; all 0 where there is none.
        begin_us: () from which the window counts where there are no iterations.
        work: what a steady step has to do.
    """

    program: Program
    scaled: ScaledProgram | None
    fixed_us: np.ndarray
    follows_us: np.ndarray
    group: np.ndarray
    weights: np.ndarray
    begin_us: np.ndarray
    work: GroupedTasks

    @property
    def groups(self) -> int:
        """Number of groups."""
        return self.work.groups


@dataclass(frozen=True, eq=False)
class ClockAnswers:
    """What scenarios come to.

    Attributes:
        step_us: (scenarios,) the steady step, replayed.
        energy_j: (scenarios,) of a steady step on all accelerators.
        average_power_w: (scenarios,) of all accelerators.
        rank_power_w: (ranks, scenarios) of one accelerator of each rank, in the mean of a step.
    """

    step_us: Array
    energy_j: Array
    average_power_w: Array
    rank_power_w: Array


for _noun, _static in ((GroupedTasks, ["groups"]), (ClockProgram, []), (ClockAnswers, [])):
    _leaves = [field.name for field in fields(_noun) if field.name not in _static]
    jax.tree_util.register_dataclass(_noun, _leaves, _static)


# Once, on the host
# ---------------------------------------------------------------------------------------


def prepare_clocks(
    graph: ExecutionGraph,
    program: Program,
    tasks: PowerTasks,
    group_of_task: np.ndarray,
    groups: int,
) -> ClockProgram:
    """Prepare a run for scenarios that set the clocks of groups of its tasks.

    Args:
        graph: the execution graph.
        program: of `compile_program`.
        tasks: n tasks of the graph, with the times that they have at the nominal clock.
        group_of_task: (n,) int, the group of each; -1 where its clock stays the nominal one.
        groups: the number of groups.

    Returns:
        The run, ready to be asked.

    Raises:
        ConfigError: the groups do not fit the tasks.

    Example:
        >>> prepare_clocks(graph, program, tasks, tasks.rank, groups=1).groups
        1
    """
    group_of_task = np.asarray(group_of_task)
    if group_of_task.shape != (len(tasks),) or not np.all(
        (group_of_task >= -1) & (group_of_task < groups)
    ):
        raise ConfigError(
            "groups do not fit",
            where="group_of_task",
            got=f"{group_of_task.shape}, from {group_of_task.min(initial=0)} "
            f"to {group_of_task.max(initial=0)}",
            expected=f"({len(tasks)},) integers from -1 to {groups - 1}",
        )
    group_of_task = np.where(group_of_task < 0, groups, group_of_task)
    length = len(program.duration_us)
    fixed_us = np.array(program.duration_us, np.float64)
    follows_us, group = np.zeros(length), np.full(length, groups, np.int32)
    # What does not follow the clock may have been waiting, of which the graph has its own account.
    follows = tasks.clock_share > 0
    fixed_us[tasks.task[follows]] = (tasks.duration_us * (1.0 - tasks.clock_share))[follows]
    follows_us[tasks.task] = tasks.duration_us * tasks.clock_share
    group[tasks.task] = group_of_task
    released = graph.release_ns[graph.release_ns != MISSING]
    few = groups <= _FEW_GROUPS
    clocks = ClockProgram(
        program=program,
        scaled=_linear(program, fixed_us, follows_us, group, groups) if few else None,
        fixed_us=fixed_us,
        follows_us=follows_us,
        group=group,
        weights=steady_weights(graph),
        begin_us=np.array(released.min() / 1e3),
        work=GroupedTasks(tasks, group_of_task, groups),
    )
    with double_precision():
        clocks = jax.device_put(clocks)
        nominal_us = float(clock_step_us(clocks, jnp.ones((groups, 1)))[0])
    inside = share_between(tasks, np.asarray(tasks.begin_us), np.asarray(tasks.end_us))
    a_step = inside * nominal_us / (tasks.end_us - tasks.begin_us)
    merged, task_group = merge_tasks(tasks, group_of_task, a_step)
    with double_precision():
        return replace(clocks, work=jax.device_put(GroupedTasks(merged, task_group, groups)))


def _linear(program, fixed_us, follows_us, group, groups) -> ScaledProgram:
    count = int(program.tasks)
    of_task = np.where(group == groups, -1, group)[:count]
    scaled = scale_groups(program, of_task, groups, follows_us)
    # What nothing scales has weights of its own, which add up with those of the lags.
    bare = replace(program, constant_us=np.zeros_like(program.constant_us))
    fixed = scale_groups(bare, np.full(count, -1), 1, fixed_us, np.zeros_like(program.lag_us))
    begin_us, end_us = scaled.begin_us.copy(), scaled.end_us.copy()
    begin_us[:, -1] += fixed.begin_us[:, -1]
    end_us[:, -1] += fixed.end_us[:, -1]
    return replace(
        scaled,
        constant_us=scaled.constant_us + fixed.constant_us,
        begin_us=begin_us,
        end_us=end_us,
    )


# Many scenarios, on the device
# ---------------------------------------------------------------------------------------


@jax.custom_vjp
def clock_step_us(clocks: ClockProgram, slower: Array) -> Array:
    """The steady step of each scenario, by replay; else the window where there are no steps.

    Differentiable in reverse mode with respect to `slower`.

    Args:
        clocks: of `prepare_clocks`.
        slower: (groups, scenarios) float64, nominal clock by clock.

    Returns:
        (scenarios,) microseconds.

    Example:
        >>> clocks = prepare_clocks(graph, program, tasks, tasks.rank, groups=1)
        >>> with double_precision():
        ...     clock_step_us(clocks, jnp.array([[1.0, 2.0]])).tolist()
        [17.0, 27.0]
    """
    if clocks.scaled is None:
        return _one_by_one_us(clocks, slower)
    times = replay_scenarios(clocks.scaled, slower)
    return _steady_us(clocks, times.makespan_us, times.step_us)


def _step_forward(clocks: ClockProgram, slower: Array):
    return clock_step_us(clocks, slower), (clocks, slower)


def _step_backward(saved, cotangent):
    clocks, slower = saved
    return None, jax.vjp(lambda x: _one_by_one_us(clocks, x), slower)[1](cotangent)[0]


clock_step_us.defvjp(_step_forward, _step_backward)


def _one_by_one_us(clocks: ClockProgram, slower: Array) -> Array:
    fixed, follows = (jnp.asarray(x)[:, None] for x in (clocks.fixed_us, clocks.follows_us))
    lag = jnp.asarray(clocks.program.lag_us)

    def some(slower: Array) -> Array:
        factor = jnp.append(slower, jnp.ones_like(slower[:1]), 0)[clocks.group]
        return _steady_us(clocks, *milestones(clocks.program, fixed + follows * factor, lag, None))

    return in_chunks(some, CHUNK, slower)


def _steady_us(clocks: ClockProgram, makespan_us: Array, step_us: Array) -> Array:
    weights = jnp.asarray(clocks.weights)
    if not len(weights):
        return makespan_us - clocks.begin_us
    return jnp.where(weights.any(), weights @ step_us, makespan_us - clocks.begin_us)


def rank_energy_j(
    work: GroupedTasks, model: PowerModel, clock_hz: ArrayLike, step_us: ArrayLike
) -> Array:
    """What one accelerator of each rank takes in a step.

    Args:
        work: of `prepare_clocks`.
        model: the accelerators.
        clock_hz: (groups, scenarios) float64.
        step_us: (scenarios,) how long the step takes.

    Returns:
        (ranks, scenarios) joules.

    Example:
        >>> clocks = prepare_clocks(graph, program, tasks, tasks.rank, groups=1)
        >>> clock_hz, step_us = np.full((1, 2), 1980e6), np.array([17.0, 27.0])
        >>> with double_precision():
        ...     energy_j = rank_energy_j(clocks.work, model, clock_hz, step_us)
        >>> round(float(energy_j[0, 1] - energy_j[0, 0]), 9)  # 10 us at 117 W
        0.00117
    """
    clock_hz, step_us = jnp.asarray(clock_hz), jnp.asarray(step_us)
    nominal = jnp.full_like(clock_hz[:1], model.nominal_clock_hz)
    of_row = jnp.append(clock_hz, nominal, 0)[work.group]
    over_scenarios = jax.vmap(
        lambda f: (task_energy_j(model, work.tasks, f), task_time_us(model, work.tasks, f)),
        -1,
        -1,
    )
    dynamic_j, time_us = over_scenarios(of_row)
    ranks = len(work.tasks.ranks)
    static_w = static_power_by_w(model, work.tasks.rank, ranks, time_us, of_row)
    dynamic_j = jax.ops.segment_sum(dynamic_j, work.tasks.rank, ranks)
    return dynamic_j + static_w * (step_us * 1e-6)[None]


@jax.jit
def clock_answers(clocks: ClockProgram, model: PowerModel, clock_hz: ArrayLike) -> ClockAnswers:
    """Step time, energy and power of every scenario.

    Differentiable in reverse mode with respect to the clocks, and energy also to the model.

    Args:
        clocks: of `prepare_clocks`.
        model: the accelerators.
        clock_hz: (groups, scenarios) float64.

    Returns:
        The answers, scenarios on the last axis.

    Example:
        >>> clocks = prepare_clocks(graph, program, tasks, tasks.rank, groups=1)
        >>> with double_precision():
        ...     clock_answers(clocks, model, jnp.array([[1980e6, 990e6]])).step_us.tolist()
        [17.0, 27.0]
    """
    clock_hz = jnp.asarray(clock_hz)
    step_us = clock_step_us(clocks, model.nominal_clock_hz / clock_hz)
    rank_j = rank_energy_j(clocks.work, model, clock_hz, step_us)
    energy_j = jnp.asarray(clocks.work.tasks.ranks_alike) @ rank_j
    time_s = step_us * 1e-6
    return ClockAnswers(step_us, energy_j, energy_j / time_s, rank_j / time_s[None])


def clock_scenarios(
    graph: ExecutionGraph,
    program: Program,
    tasks: PowerTasks,
    model: PowerModel,
    clock_hz: np.ndarray,
    group_of_task: np.ndarray,
) -> ClockAnswers:
    """Answer many scenarios of clocks in one call, in double precision.

    Args:
        graph: the execution graph.
        program: of `compile_program`.
        tasks: n tasks of the graph, with the times that they have at the nominal clock.
        model: the accelerators.
        clock_hz: (groups, scenarios), above 0.
        group_of_task: (n,) int, the group of each task; -1 where its clock stays the nominal one.

    Returns:
        The answers, on the host.

    Raises:
        ConfigError: a clock is not above 0, or the groups do not fit the tasks.

    Example:
        >>> clock_hz = np.array([[1980e6, 990e6]])  # the kernel of 10 us follows the clock
        >>> clock_scenarios(graph, program, tasks, model, clock_hz, tasks.rank).step_us.tolist()
        [17.0, 27.0]
    """
    clock_hz = np.asarray(clock_hz, np.float64)
    if clock_hz.ndim != 2 or not np.all(clock_hz > 0):
        raise ConfigError(
            "not clocks",
            where="clock_hz",
            got=str(clock_hz.shape),
            expected="(groups, scenarios) above 0 Hz",
        )
    clocks = prepare_clocks(graph, program, tasks, group_of_task, len(clock_hz))
    with double_precision():
        return jax.tree.map(np.asarray, clock_answers(clocks, model, clock_hz))
