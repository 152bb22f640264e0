"""Replay a program: the times of its tasks, of its steps, and of the whole, for given durations."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jax.core import Tracer
from jax.typing import ArrayLike

from jaxperf.compiled import Program
from jaxperf.errors import ProgramError
from jaxperf.replay._scan import add_chain_sums, chain_sums, join_rows

jax.tree_util.register_dataclass(
    Program,
    data_fields=[f.name for f in dataclasses.fields(Program) if f.name != "slots"],
    meta_fields=["slots"],
)

_OF_ITERATIONS = ("begin_task", "end_task", "begin_slot", "end_slot")

# Scenarios at a time, where each has all its durations: rows of this width are quick, and the
# arrays of one chunk of a million joins still fit a small machine.
CHUNK = 64


def start_times_us(
    program: Program,
    durations_us: ArrayLike | None = None,
    lags_us: ArrayLike | None = None,
    *,
    temperature_us: ArrayLike | None = None,
) -> Array:
    """When each task starts.

    Differentiable, in reverse mode, in durations, lags and temperature. Where two dependencies of
    a task tie, the gradient goes to the one that comes first in the graph, and to a release last.

    Args:
        program: the compiled graph; `jax.device_put` it once where it is replayed often.
        durations_us: (tasks,) or (tasks, scenarios) float32 or float64, which is also the type of
            the result; by default the graph's own. May include the program's padding.
        lags_us: (dependencies,) or (dependencies, scenarios); by default the graph's own.
        temperature_us: above 0, joins are smoothed: `T log(sum(exp(time / T)))`. By default, and
            where it is the number 0, they are maxima.

    Returns:
        (tasks,) or (tasks, scenarios), as long as the durations.

    Raises:
        ProgramError: durations or lags have a wrong shape or type.

    Example:
        >>> start_times_us(program, np.array([6.0, 20.0, 2.0])).tolist()
        [0.0, 4.0, 25.0]
    """
    duration, lag, temperature, length = _arguments(program, durations_us, lags_us, temperature_us)
    # What belongs to iterations is not needed; left out, programs that differ in it share this.
    program = dataclasses.replace(program, **dict.fromkeys(_OF_ITERATIONS))
    return _first(_start_times(program, duration, lag, temperature), length)


def makespan_us(
    program: Program,
    durations_us: ArrayLike | None = None,
    lags_us: ArrayLike | None = None,
    *,
    temperature_us: ArrayLike | None = None,
) -> Array:
    """When the last task ends, from time zero.

    Lags that are not negative in the graph must not become negative here: tasks that they put
    behind another are not looked at.

    Args:
        program, durations_us, lags_us, temperature_us: see `start_times_us`.

    Returns:
        () or (scenarios,).

    Raises:
        ProgramError: durations or lags have a wrong shape or type.

    Example:
        >>> jax.grad(makespan_us, 1)(program, np.array([6.0, 20.0, 2.0])).tolist()
        [0.0, 1.0, 1.0]
    """
    duration, lag, temperature, _ = _arguments(program, durations_us, lags_us, temperature_us)
    return milestones(program, duration, lag, temperature)[0]


def step_times_us(
    program: Program,
    durations_us: ArrayLike | None = None,
    lags_us: ArrayLike | None = None,
    *,
    temperature_us: ArrayLike | None = None,
) -> Array:
    """How long each iteration takes: from the start of its first task to the end of its last.

    Args:
        program, durations_us, lags_us, temperature_us: see `start_times_us`.

    Returns:
        (iterations,) or (iterations, scenarios), in the order of the graph's `steps`.

    Raises:
        ProgramError: durations or lags have a wrong shape or type.

    Example:
        >>> step_times_us(program, np.array([6.0, 20.0, 2.0])).tolist()
        [27.0]
    """
    duration, lag, temperature, _ = _arguments(program, durations_us, lags_us, temperature_us)
    return milestones(program, duration, lag, temperature)[1]


# The computation, over padded arrays
# ---------------------------------------------------------------------------------------


@jax.custom_vjp
def linear_weights(program: Program, duration: Array, lag: Array) -> tuple[Array, Array]:
    """What is linear in durations and lags: the offset of each position, and of each step's sides.

    Args:
        program: the program.
        duration: (tasks, ...) padded.
        lag: (lags,) padded, or with the further axes of the durations.

    Returns:
        (tasks, ...) start of each position after its chain's start, and (2, steps, ...) weights
        without their constants.
    """

    def between(task, lag_index):
        taken = _take(duration, task)
        return taken + _align(_take(lag, lag_index), taken.ndim)

    offset = chain_sums(
        between(program.chain_task, program.chain_lag), jnp.asarray(program.continues)
    )
    weight = offset[program.source_position] + between(program.source_task, program.source_lag)
    return offset, weight


def _linear_weights_forward(program, duration, lag):
    return linear_weights(program, duration, lag), (program, duration, lag)


def _linear_weights_backward(saved, cotangents):
    # Written out, to add to few arrays in place: where there are a million tasks, the pages of
    # fresh arrays cost more time than the arithmetic.
    program, duration, lag = saved
    offset_bar, weight_bar = cotangents
    offset_bar = offset_bar.at[program.source_position].add(weight_bar)

    def spread(like, chain_index, source_index):
        offset, weight = offset_bar, weight_bar
        if like.ndim < offset.ndim:
            offset, weight = offset.sum(-1), weight.sum(-1)
        spread = jnp.zeros_like(like).at[source_index].add(weight)
        return add_chain_sums(spread, chain_index, offset, program.continues).at[-1].set(0)

    duration_bar = spread(duration, program.chain_task, program.source_task)
    return None, duration_bar, spread(lag, program.chain_lag, program.source_lag)


linear_weights.defvjp(_linear_weights_forward, _linear_weights_backward)


def _rows(program, duration, lag, temperature) -> tuple[Array, Array]:
    offset, weight = linear_weights(program, duration, lag)
    weight += _align(jnp.asarray(program.constant_us, weight.dtype), weight.ndim)
    return offset, join_rows(weight, program.source_row, temperature)


@jax.jit
def _start_times(program, duration, lag, temperature) -> Array:
    offset, rows = _rows(program, duration, lag, temperature)
    return rows[program.row] + offset[program.position]


@jax.jit
def milestones(program, duration, lag, temperature) -> tuple[Array, Array]:
    """The makespan, and the duration of each iteration; scenarios in chunks."""

    def one(duration, lag=lag):
        offset, rows = _rows(program, duration, lag, temperature)

        def start(task):
            return rows[program.row[task]] + offset[program.position[task]]

        end = start(program.end_task) + duration[program.end_task]
        return rows[program.makespan_row], end - start(program.begin_task)

    if duration.ndim == 1:
        return one(duration)
    return in_chunks(one, CHUNK, *((duration,) if lag.ndim == 1 else (duration, lag)))


def in_chunks(function, width: int, *arrays: Array):
    """`function` of a few scenarios at a time, on the last axis; its gradient as well."""
    scenarios = arrays[0].shape[-1]
    chunks = -(-scenarios // width)
    if chunks <= 1:
        return function(*arrays)

    def split(array):
        spare = [(0, 0)] * (array.ndim - 1) + [(0, chunks * width - scenarios)]
        padded = jnp.pad(array, spare).reshape(*array.shape[:-1], chunks, width)
        return jnp.moveaxis(padded, -2, 0)

    def merge(array):
        array = jnp.moveaxis(array, 0, -2)
        return array.reshape(*array.shape[:-2], chunks * width)[..., :scenarios]

    # Without the checkpoint the gradient would keep the rows of all scenarios.
    results = lax.map(lambda x: jax.checkpoint(function)(*x), tuple(split(x) for x in arrays))
    return jax.tree.map(merge, results)


def _take(values: Array, index: Array) -> Array:
    """Values at an index; nothing at the last, which is padding whatever it holds."""
    taken = values[index]
    is_padding = _align(index == len(values) - 1, taken.ndim)
    return jnp.where(is_padding, jnp.zeros_like(taken), taken)


def _first(values: Array, length: int | None) -> Array:
    """The first so many rows; a slice on the device would be compiled for each length."""
    if isinstance(values, Tracer):
        return values[:length]
    return jnp.asarray(np.asarray(values)[:length])


def _align(array: Array, ndim: int) -> Array:
    """Trailing axes of length 1, over which `array` broadcasts as the same for each scenario."""
    return array.reshape(*array.shape, *(1,) * (ndim - array.ndim))


# Arguments
# ---------------------------------------------------------------------------------------


def _arguments(program: Program, durations_us, lags_us, temperature_us):
    """Padded durations and lags of one type, the temperature, and the length of the result."""
    duration = jnp.asarray(padded("durations_us", durations_us, program.duration_us, program.tasks))
    lag = jnp.asarray(padded("lags_us", lags_us, program.lag_us, program.lags), duration.dtype)
    if lag.ndim > duration.ndim:
        duration = jnp.broadcast_to(_align(duration, 2), (len(duration), lag.shape[1]))
    if lag.ndim == 2 and lag.shape[1] != duration.shape[1]:
        raise ProgramError(
            "durations and lags disagree on the number of scenarios",
            where="lags_us",
            got=str(lag.shape[1]),
            expected=str(duration.shape[1]),
        )
    # One start time for each duration that came in; padding only where padding did.
    length = _concrete(program.tasks) if durations_us is None else np.shape(durations_us)[0]
    return duration, lag, temperature_of(temperature_us, duration.dtype), length


def temperature_of(temperature_us, dtype) -> Array | None:
    """A temperature as an array; `None` where there is none, or it is the number 0."""
    if temperature_us is None or (isinstance(temperature_us, int | float) and temperature_us == 0):
        return None
    return jnp.asarray(temperature_us, dtype)


def padded(name: str, values, default, count):
    """Values with the program's padding; the default where there are none."""
    if values is None:
        return default
    if not isinstance(values, jax.Array):
        values = np.asarray(values)
    known = _concrete(count)
    length = len(values) if values.ndim in (1, 2) else -1
    fits = length == len(default) or (length < len(default) if known is None else length == known)
    if length < 0 or not fits or not jnp.issubdtype(values.dtype, jnp.floating):
        raise ProgramError(
            "wrong shape or type",
            where=name,
            got=f"{values.dtype}{values.shape}",
            expected=f"floats of shape ({known or 'n'},) or ({known or 'n'}, scenarios)",
        )
    pad = jnp.pad if isinstance(values, jax.Array) else np.pad
    spare = [(0, len(default) - length)] + [(0, 0)] * (values.ndim - 1)
    return pad(values, spare) if length < len(default) else values


def _concrete(count) -> int | None:
    """A number that the program holds, where it is known while tracing."""
    return None if isinstance(count, Tracer) else int(count)
