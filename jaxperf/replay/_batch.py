"""Many scenarios at once: the same graph with the durations of groups of tasks scaled.

Each weight of the program is then linear in a few factors, so no scenario has weights of its own in
memory: a step computes them from its row of coefficients. Nor has it a row for each join: values
live in slots, which are used again. What a batch costs is arithmetic in the cache.
"""

from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jax.typing import ArrayLike

from jaxperf.compiled import Program
from jaxperf.errors import ProgramError
from jaxperf.replay._scan import maximum
from jaxperf.replay._times import (
    CHUNK,
    in_chunks,
    linear_weights,
    milestones,
    padded,
    temperature_of,
)

# Scenarios at a time. Wide rows hide what a turn of the loop costs; a few dozen slots of them
# still fit the second-level cache.
_CHUNK = 1024


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class ScenarioTimes:
    """What a batch of scenarios comes to.

    Attributes:
        makespan_us: (scenarios,) when the last task ends, from time zero.
        step_us: (iterations, scenarios) how long each iteration takes.
    """

    makespan_us: Array
    step_us: Array


def replay_scenarios(
    program: Program,
    group: np.ndarray,
    scale: ArrayLike,
    durations_us: ArrayLike | None = None,
    lags_us: ArrayLike | None = None,
    *,
    lag_group: np.ndarray | None = None,
    temperature_us: ArrayLike | None = None,
) -> ScenarioTimes:
    """The makespan and step times of many scenarios that scale groups of tasks.

    Memory does not grow with the scenarios, but for the result. Differentiable in reverse mode, at
    the cost of the scenarios one by one; see `start_times_us` for ties.

    Args:
        program: the compiled graph.
        group: (tasks,) int, which factor scales the duration of each task; -1 for none.
        scale: (groups, scenarios) float32 or float64, the factors, and the type of the result.
        durations_us: (tasks,) what is scaled; by default the graph's own.
        lags_us: (dependencies,); by default the graph's own.
        lag_group: (dependencies,) int, which factor scales each lag; by default none does.
        temperature_us: see `start_times_us`.

    Returns:
        The times, scenarios on the last axis.

    Raises:
        ProgramError: an argument has a wrong shape or type, or a group is out of range.

    Example:
        >>> halved = jnp.array([[1.0, 0.5]])  # one group, two scenarios
        >>> replay_scenarios(program, group, halved).step_us  # doctest: +SKIP
    """
    scale = jnp.asarray(scale)
    if scale.ndim != 2 or not jnp.issubdtype(scale.dtype, jnp.floating):
        raise ProgramError(
            "wrong shape or type",
            where="scale",
            got=f"{scale.dtype}{scale.shape}",
            expected="floats of shape (groups, scenarios)",
        )
    if lag_group is None:
        lag_group = np.full(len(program.lag_us), -1, np.int32)
    duration, _ = padded(
        "durations_us", durations_us, program.duration_us, program.tasks, scale.dtype
    )
    lag, _ = padded("lags_us", lags_us, program.lag_us, program.lags, scale.dtype)
    makespan, step = _compiled_replay(
        program,
        _padded_group("group", group, len(duration), program.tasks, len(scale)),
        _padded_group("lag_group", lag_group, len(lag), program.lags, len(scale)),
        scale,
        duration,
        lag,
        temperature_of(temperature_us, scale.dtype),
    )
    return ScenarioTimes(makespan, step)


def _padded_group(name: str, group, length: int, count, groups: int) -> Array:
    if isinstance(group, jax.core.Tracer):
        return jnp.pad(group, (0, length - len(group)), constant_values=-1)
    group = np.asarray(group)
    expected = f"integers of shape ({count},) from -1 to {groups - 1}"
    if len(group) not in (length, count) or not np.issubdtype(group.dtype, np.integer):
        raise ProgramError(
            "wrong shape or type", where=name, got=f"{group.dtype}{group.shape}", expected=expected
        )
    if len(group) and not -1 <= group.min() <= group.max() < groups:
        raise ProgramError(
            "group out of range",
            where=name,
            got=f"{group.min()} to {group.max()}",
            expected=expected,
        )
    return jnp.asarray(np.pad(group, (0, length - len(group)), constant_values=-1), jnp.int32)


@jax.custom_vjp
def _replay(program, group, lag_group, scale, duration, lag, temperature):
    """Makespans and step times, a chunk of scenarios at a time."""
    fixed = _milestone_weights(program, *_of_group(-1, group, lag_group, duration, lag))
    each = jnp.arange(len(scale), dtype=group.dtype)
    scaled = jax.vmap(
        lambda g: _milestone_weights(program, *_of_group(g, group, lag_group, duration, lag)),
        out_axes=-1,
    )(each)
    constant = fixed[0] + jnp.asarray(program.constant_us, scale.dtype)
    steps = constant.T, jnp.moveaxis(scaled[0], 0, 1), program.source_slot.T, program.target_slot

    def some(factors):
        slots = _join_slots(steps, program.slots, factors, temperature)
        begin, end = (
            slots[slot] + own[:, None] + jnp.dot(scaled_own, factors, precision="highest")
            for slot, own, scaled_own in zip(
                (program.begin_slot, program.end_slot), fixed[1:], scaled[1:], strict=True
            )
        )
        return slots[program.makespan_slot], end - begin

    return in_chunks(some, _CHUNK, scale)


def _join_slots(steps, slots: int, factors: Array, temperature: Array | None) -> Array:
    """(slots, scenarios) the rows of `join_rows` that are still alive after the last step."""
    constants, coefficients, source_slots, target_slots = steps

    def step(k, values):
        constant, coefficient, source = (
            lax.dynamic_index_in_dim(x, k, keepdims=False)
            for x in (constants, coefficients, source_slots)
        )
        sides = (
            lax.dynamic_index_in_dim(values, source[side], keepdims=False)
            + constant[side]
            + sum(coefficient[side, g] * factors[g] for g in range(len(factors)))
            for side in range(2)
        )
        return lax.dynamic_update_index_in_dim(
            values, maximum(*sides, temperature), target_slots[k], 0
        )

    values = jnp.zeros((slots, factors.shape[1]), factors.dtype)
    return lax.fori_loop(0, len(constants), step, values)


def _milestone_weights(program: Program, duration: Array, lag: Array):
    """Weights of the steps, and of what begins and ends an iteration after its chain's start."""
    offset, weight = linear_weights(program, duration, lag)
    end = offset[program.position[program.end_task]] + duration[program.end_task]
    return weight, offset[program.position[program.begin_task]], end


def _of_group(wanted, group, lag_group, duration, lag):
    """Durations and lags of one group, the others zero."""
    return (
        jnp.where(group == wanted, duration, jnp.zeros_like(duration)),
        jnp.where(lag_group == wanted, lag, jnp.zeros_like(lag)),
    )


def _replay_forward(*arguments):
    return _replay(*arguments), arguments


def _replay_backward(arguments, cotangent):
    return jax.vjp(_replay_one_by_one, *arguments)[1](cotangent)


def _replay_one_by_one(program, group, lag_group, scale, duration, lag, temperature):
    """The same with durations of its own for each scenario, as its gradient needs them."""

    def some(scale):
        # Group -1, of tasks that no factor scales, finds the 1 at the end.
        factor = jnp.append(scale, jnp.ones_like(scale[:1]), 0)
        return milestones(
            program,
            duration[:, None] * factor[group],
            lag[:, None] * factor[lag_group],
            temperature,
        )

    return in_chunks(some, CHUNK, scale)


_replay.defvjp(_replay_forward, _replay_backward)
_compiled_replay = jax.jit(_replay)
