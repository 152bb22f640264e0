"""Many scenarios at once: the same graph with the durations of groups of tasks scaled.

Each weight of the program is then linear in a few factors, so no scenario has weights of its own in
memory: a step computes them from its row of coefficients. Nor has it a row for each join: values
live in slots, which are used again. What a batch costs is arithmetic in the cache.
"""

from dataclasses import dataclass, fields

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jax.typing import ArrayLike

from jaxperf.compiled import Program
from jaxperf.errors import ProgramError
from jaxperf.replay._scan import maximum
from jaxperf.replay._times import CHUNK, in_chunks, milestones, padded, temperature_of

# Scenarios at a time. Wide rows hide what a turn of the loop costs; a few dozen slots of them
# still fit the second-level cache.
_CHUNK = 1024
# Sides of steps that may depend on more groups than the rest; a row for each must be cached too.
_MIXED = 64


@dataclass(frozen=True, eq=False)
class ScaledProgram:
    """A program whose weights are linear in the factors of groups of tasks.

    Most sides of most steps depend on one or two groups, so a side has so many terms and no more.
    The few that depend on more have one term, of a mixture of their own, computed beforehand.

    Attributes:
        program: the program.
        duration_us, lag_us: (tasks,), (lags,) float64, what is scaled, with the program's padding.
        group, lag_group: (tasks,), (lags,) int32, the factor of each; `groups` where there is none.
        constant_us: (steps, 2) float64, of each side of each step.
        coefficient_us: (steps, 2, terms) float64.
        term: (steps, 2, terms) int32, the factors that the coefficients go with: groups, then
            mixtures.
        mixture_us: (mixtures, groups) float64, coefficients of each mixture.
        begin_us, end_us: (iterations, groups + 1) float64, coefficients of what lies between the
            start of a chain and the iteration's begin or end; the last is the constant.
    """

    program: Program
    duration_us: np.ndarray
    lag_us: np.ndarray
    group: np.ndarray
    lag_group: np.ndarray
    constant_us: np.ndarray
    coefficient_us: np.ndarray
    term: np.ndarray
    mixture_us: np.ndarray
    begin_us: np.ndarray
    end_us: np.ndarray


@dataclass(frozen=True, eq=False)
class ScenarioTimes:
    """What a batch of scenarios comes to.

    Attributes:
        makespan_us: (scenarios,) when the last task ends, from time zero.
        step_us: (iterations, scenarios) how long each iteration takes.
    """

    makespan_us: Array
    step_us: Array


for _noun in (ScaledProgram, ScenarioTimes):
    jax.tree_util.register_dataclass(_noun, [f.name for f in fields(_noun)], [])


# Once, on the host
# ---------------------------------------------------------------------------------------


def scale_groups(
    program: Program,
    group: np.ndarray,
    groups: int,
    durations_us: np.ndarray | None = None,
    lags_us: np.ndarray | None = None,
    *,
    lag_group: np.ndarray | None = None,
) -> ScaledProgram:
    """Prepare a program for scenarios that scale groups of its tasks.

    Args:
        program: the compiled graph.
        group: (tasks,) int, the group of each task, from 0; -1 where nothing scales it.
        groups: the number of groups.
        durations_us: (tasks,) float, what is scaled; by default the graph's own.
        lags_us: (dependencies,) float; by default the graph's own.
        lag_group: (dependencies,) int, the group of each lag; by default nothing scales them.

    Returns:
        What `replay_scenarios` needs; `jax.device_put` it where that is called often.

    Raises:
        ProgramError: an argument has a wrong shape or type, or a group is out of range.

    Example:
        >>> scaled = scale_groups(program, np.array([0, 1, 1]), groups=2)
    """
    duration = np.asarray(padded("durations_us", durations_us, program.duration_us, program.tasks))
    lag = np.asarray(padded("lags_us", lags_us, program.lag_us, program.lags))
    group = _padded_group("group", group, groups, len(duration), int(program.tasks))
    if lag_group is None:
        lag_group = np.full(int(program.lags), -1)
    lag_group = _padded_group("lag_group", lag_group, groups, len(lag), int(program.lags))
    source_position = np.asarray(program.source_position)
    begin, end = np.asarray(program.begin_task), np.asarray(program.end_task)

    weight = np.zeros((*source_position.shape, groups + 1))
    begin_us, end_us = np.zeros((2, len(begin), groups + 1))
    for g in range(groups + 1):
        own = np.where(group == g, duration, 0.0)
        own_lag = np.where(lag_group == g, lag, 0.0)
        offset = _offsets(program, own, own_lag)
        weight[..., g] = offset[source_position]
        weight[..., g] += own[program.source_task] + own_lag[program.source_lag]
        begin_us[:, g] = offset[program.position][begin]
        end_us[:, g] = offset[program.position][end] + own[end]
    weight = weight.transpose(1, 0, 2)
    term, coefficient, mixture = _terms(weight[..., :-1])
    return ScaledProgram(
        program=program,
        duration_us=duration,
        lag_us=lag,
        group=group,
        lag_group=lag_group,
        constant_us=weight[..., -1] + np.asarray(program.constant_us).T,
        coefficient_us=coefficient,
        term=term,
        mixture_us=mixture,
        begin_us=begin_us,
        end_us=end_us,
    )


def _terms(weight: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Index and coefficient of few terms for weights (steps, 2, groups), and the mixtures."""
    used = np.count_nonzero(weight, -1)
    # The fewest terms that leave no more mixtures than are quick.
    wider = used.size - np.cumsum(np.bincount(used.reshape(-1), minlength=2))
    terms = max(int(np.flatnonzero(wider <= _MIXED)[0]), 1)
    term = np.argsort(weight == 0, -1, kind="stable")[..., :terms]
    coefficient = np.take_along_axis(weight, term, -1)
    mixed = used > terms
    term[mixed], coefficient[mixed] = 0, 0.0
    term[mixed, 0], coefficient[mixed, 0] = weight.shape[-1] + np.arange(mixed.sum()), 1.0
    return term.astype(np.int32), coefficient, weight[mixed]


def _offsets(program: Program, duration: np.ndarray, lag: np.ndarray) -> np.ndarray:
    """(tasks,) start of each position after its chain's start; see `Program`."""
    continues = np.asarray(program.continues)
    total = np.cumsum(np.append(duration[:-1], 0.0)[program.chain_task] + lag[program.chain_lag])
    head = np.maximum.accumulate(np.where(continues, 0, np.arange(len(continues))))
    return total - total[head]


def _padded_group(name: str, group, groups: int, length: int, count: int) -> np.ndarray:
    group = np.asarray(group)
    expected = f"integers of shape ({count},) from -1 to {groups - 1}"
    if group.shape != (count,) or not np.issubdtype(group.dtype, np.integer):
        raise ProgramError(
            "wrong shape or type", where=name, got=f"{group.dtype}{group.shape}", expected=expected
        )
    if count and not -1 <= group.min() <= group.max() < groups:
        raise ProgramError(
            "group out of range",
            where=name,
            got=f"{group.min()} to {group.max()}",
            expected=expected,
        )
    filled = np.full(length, groups, np.int32)
    filled[:count] = np.where(group < 0, groups, group)
    return filled


# For each batch, on the device
# ---------------------------------------------------------------------------------------


def replay_scenarios(
    scaled: ScaledProgram, scale: ArrayLike, *, temperature_us: ArrayLike | None = None
) -> ScenarioTimes:
    """The makespan and step times of many scenarios that scale groups of tasks.

    Memory does not grow with the scenarios, but for the result. Differentiable in reverse mode with
    respect to `scale` and the temperature, at the cost of scenarios with durations of their own.

    Args:
        scaled: the program, prepared by `scale_groups`.
        scale: (groups, scenarios) float32 or float64, 0 or more; its type is that of the result.
        temperature_us: see `start_times_us`.

    Returns:
        The times, scenarios on the last axis.

    Raises:
        ProgramError: `scale` has a wrong shape or type.

    Example:
        >>> scaled = scale_groups(program, np.array([0, 1, 1]), groups=2)
        >>> factors = np.array([[1.0, 1.0], [1.0, 0.5]])  # of two groups, in two scenarios
        >>> replay_scenarios(scaled, factors).step_us.tolist()
        [[17.0, 11.0]]
    """
    scale = jnp.asarray(scale)
    groups = scaled.begin_us.shape[1] - 1
    if scale.ndim != 2 or len(scale) != groups or not jnp.issubdtype(scale.dtype, jnp.floating):
        raise ProgramError(
            "wrong shape or type",
            where="scale",
            got=f"{scale.dtype}{scale.shape}",
            expected=f"floats of shape ({groups}, scenarios)",
        )
    makespan, step = _replay(scaled, scale, temperature_of(temperature_us, scale.dtype))
    return ScenarioTimes(makespan, step)


@jax.custom_vjp
def _in_slots(scaled: ScaledProgram, scale: Array, temperature: Array | None):
    """Makespans and step times, a chunk of scenarios at a time."""
    program = scaled.program
    constant, coefficient, mixture, begin, end = (
        jnp.asarray(x, scale.dtype)
        for x in (
            scaled.constant_us,
            scaled.coefficient_us,
            scaled.mixture_us,
            scaled.begin_us,
            scaled.end_us,
        )
    )
    steps = constant, coefficient, scaled.term, program.source_slot.T, program.target_slot

    def some(factors):
        mixtures = jnp.dot(mixture, factors, precision="highest")
        slots = _join_slots(steps, program.slots, jnp.append(factors, mixtures, 0), temperature)
        factors = jnp.append(factors, jnp.ones_like(factors[:1]), 0)
        step = jnp.dot(end, factors, precision="highest") + slots[program.end_slot]
        step -= jnp.dot(begin, factors, precision="highest") + slots[program.begin_slot]
        return slots[program.makespan_slot], step

    return in_chunks(some, _CHUNK, scale)


def _join_slots(steps, slots: int, factors: Array, temperature: Array | None) -> Array:
    """(slots, scenarios) the rows of `join_rows` that are still alive after the last step."""

    def row(array, index):
        return lax.dynamic_index_in_dim(array, index, keepdims=False)

    def step(k, values):
        constant, coefficient, term, source, target = (row(x, k) for x in steps)
        left, right = (
            row(values, source[side])
            + constant[side]
            + sum(coefficient[side, i] * row(factors, term[side, i]) for i in range(term.shape[1]))
            for side in range(2)
        )
        joined = maximum(left, right, temperature)
        return lax.dynamic_update_index_in_dim(values, joined, target, 0)

    values = jnp.zeros((slots, factors.shape[1]), factors.dtype)
    return lax.fori_loop(0, len(steps[0]), step, values)


def _forward(*arguments):
    return _in_slots(*arguments), arguments


def _backward(arguments, cotangent):
    scaled, scale, temperature = arguments
    _, pull_back = jax.vjp(lambda x, t: _one_by_one(scaled, x, t), scale, temperature)
    return None, *pull_back(cotangent)


def _one_by_one(scaled: ScaledProgram, scale: Array, temperature: Array | None):
    """The same with durations of its own for each scenario, as its gradient needs them."""
    duration = jnp.asarray(scaled.duration_us, scale.dtype)[:, None]
    lag = jnp.asarray(scaled.lag_us, scale.dtype)[:, None]

    def some(scale):
        factor = jnp.append(scale, jnp.ones_like(scale[:1]), 0)
        durations, lags = duration * factor[scaled.group], lag * factor[scaled.lag_group]
        return milestones(scaled.program, durations, lags, temperature)

    return in_chunks(some, CHUNK, scale)


_in_slots.defvjp(_forward, _backward)
_replay = jax.jit(_in_slots)
