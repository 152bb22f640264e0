"""Start times of some tasks, again and again, while the durations of all others stay.

Sums along chains are most of a replay. Where only a few chains change from one time to the next,
those are summed again, and what is known of the others is kept.
"""

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from jaxperf.compiled import Program
from jaxperf.replay._scan import join_rows
from jaxperf.replay._times import linear_weights


@dataclass(frozen=True, eq=False)
class Part:
    """The chains that hold some tasks of a program.

    Attributes:
        task: (n,) int32, all tasks of these chains, and last the program's padding.
        side: (s,) int32, the sides of steps, of (2, steps) made flat, that start from these chains.
        program: what `linear_weights` needs, of these tasks and sides alone; the lags are all.
    """

    task: np.ndarray
    side: np.ndarray
    program: Program


jax.tree_util.register_dataclass(Part, ["task", "side", "program"], [])


def part_of(program: Program, tasks: np.ndarray) -> tuple[Part, np.ndarray]:
    """Find the chains of some tasks.

    Args:
        program: the compiled graph, on the host.
        tasks: (k,) int, the tasks; all others keep their durations.

    Returns:
        The part, and the (k,) places of the tasks among its own.
    """
    chain = np.cumsum(~program.continues)
    taken = np.isin(chain, chain[program.position[tasks]])
    positions = np.flatnonzero(taken)
    number, last = len(positions), len(chain) - 1
    task_at = np.full(len(chain), last)
    task_at[program.position[: int(program.tasks)]] = np.arange(int(program.tasks))
    # Of the whole program's positions and tasks, which they are here; `number` is padding.
    position_here, task_here = np.full((2, len(chain)), number)
    position_here[positions] = np.arange(number)
    task_here[task_at[positions]] = np.arange(number)
    source_position, source_task, source_lag = (
        each.reshape(-1)
        for each in (program.source_position, program.source_task, program.source_lag)
    )
    side = np.flatnonzero(taken[source_position])
    nothing = dict.fromkeys(field.name for field in dataclasses.fields(Program))
    own = nothing | {
        "continues": np.append(program.continues[positions], False),
        "chain_task": _index(np.append(task_here[program.chain_task[positions]], number)),
        "chain_lag": _index(np.append(program.chain_lag[positions], len(program.lag_us) - 1)),
        "source_position": _index(position_here[source_position[side]]),
        "source_task": _index(task_here[source_task[side]]),
        "source_lag": _index(source_lag[side]),
        "slots": 0,
    }
    task = _index(np.append(task_at[positions], last))
    return Part(task, _index(side), dataclasses.replace(program, **own)), _index(task_here[tasks])


def part_start_times(
    program: Program, part: Part, duration_us: Array, lag_us: Array
) -> Callable[[Array], Array]:
    """Prepare to replay a program whose durations change in a part of it alone.

    Args:
        program: the whole program.
        part: of `part_of`.
        duration_us: (tasks, scenarios) of all tasks; those of the part do not matter.
        lag_us: (lags, scenarios) of all dependencies.

    Returns:
        A function from the durations to the start times of the part's tasks, both
        (n, scenarios).
    """
    _, weight = linear_weights(program, duration_us, lag_us)
    constant_us = jnp.asarray(program.constant_us, weight.dtype)[..., None]
    weight += constant_us
    flat_shape = -1, weight.shape[-1]

    def start_times(duration_us: Array) -> Array:
        offset, own = linear_weights(part.program, duration_us, lag_us)
        own += constant_us.reshape(-1, 1)[part.side]
        every = weight.reshape(flat_shape).at[part.side].set(own).reshape(weight.shape)
        rows = join_rows(every, program.source_row, None)
        return rows[program.row[part.task]] + offset

    return start_times


def _index(values: np.ndarray) -> np.ndarray:
    return values.astype(np.int32)
