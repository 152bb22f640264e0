"""The time of a step in closed form: no graph, no replay, and a gradient in every real number.

Times of all pieces are computed at once and added up by what they belong to: a pass through a kind
of block, the gradients of a stage, its optimizer. From these sums follow the passes of each stage,
the pipeline, and what is not hidden. Many jobs are rows of the same arrays.
"""

from collections.abc import Mapping
from functools import cache
from math import prod
from typing import Any

import jax
import jax.numpy as jnp
import msgspec
import numpy as np
from jax import Array
from jax.typing import ArrayLike

from jaxperf.config import Job
from jaxperf.cost import CostModel, cost_us
from jaxperf.workload._pieces import is_one
from jaxperf.workload._pipeline_step import StepTime, step_of_sums
from jaxperf.workload._step_parameters import StepParameters
from jaxperf.workload._step_table import PART_SHAPES, StepTable, traced_step_table

_REAL = (
    "hidden_size",
    "ffn_hidden_size",
    "vocabulary_size",
    "sequence_length",
    "micro_batch_size",
    "micro_batches",
    "data_parallel",
)


def closed_form_step_us(job: Job, model: CostModel, parameters: StepParameters) -> Array:
    """Time of one step of a job.

    Args:
        job: the job. Its sizes, micro-batches and data-parallel degree may be jax scalars, traced
            ones too, that stand for real numbers.
        model: the machine.
        parameters: of framework and cluster.

    Returns:
        () microseconds, with gradients in those sizes and in every leaf of the other two.

    Example:
        >>> from jaxperf.config import load_hardware
        >>> from jaxperf.cost import default_model
        >>> from jaxperf.workload._step_parameters import default_step_parameters
        >>> job = Job(layers=32, hidden_size=4096, attention_heads=32, vocabulary_size=51200,
        ...           sequence_length=2048, data_parallel=8, tensor_parallel=8)
        >>> model = default_model(load_hardware("h100"))
        >>> step_us = closed_form_step_us(job, model, default_step_parameters())
        >>> bool(40e3 < step_us < 200e3)
        True
    """
    return closed_form_step(job, model, parameters).step_us


def closed_form_step(job: Job, model: CostModel, parameters: StepParameters) -> StepTime:
    """Time of one step of a job, and its parts; see `closed_form_step_us`.

    Of p stages, m micro-batches and v chunks, with F and B the passes of a stage, W the gradients
    of weights in B, and a message taking c:

    - `1F1B`: the longest of the paths on which a stage does all its passes, or leaves some of them
      out to wait for the stages behind it: see `_pipeline_step.py`. Of equal stages it is
      `(m + p - 1) (F + B)`, and `2 ((p - 1) + (m - 1) - ceil((m - 1) / p))` messages.
    - `gpipe`: all forward, then all backward, each as slow as its slowest stage; `2 (p - 1)`
      messages.
    - `interleaved`: m passes of the slowest stage, and one through the others by v (Narayanan et
      al., arXiv 2104.04473, section 2.2.2); `2 (p v - 1)` messages.
    - `zero-bubble`: the same, of each other stage F + B - 2 W (Qi et al., arXiv 2401.10241, section
      2.3); at most `4 (p - 1)` messages.
    - `dualpipe`: `m P + (p / 2 - 1) (P + B - 3 W)`, P a forward and a backward pass of which each
      hides the other's exchanges (DeepSeek-V3, arXiv 2412.19437, table 2); about
      `(p - 1) (m / p + 1)` messages.

    Args:
        job: see there.
        model: see there.
        parameters: see there.

    Returns:
        The step, each part ().
    """
    job, numbers = _apart(job)
    return _compiled(job)(numbers, model, parameters)


def batched_step_us(
    job: Job,
    changes: Mapping[str, ArrayLike],
    model: CostModel,
    parameters: StepParameters,
) -> Array:
    """Time of one step of many variants of a job, in one compiled call.

    Args:
        job: the job.
        changes: (variants,) by field of the job: sizes, micro-batches, data-parallel degree.
        model: the machine.
        parameters: of framework and cluster.

    Returns:
        (variants,) microseconds.

    Example:
        >>> from jaxperf.config import load_hardware
        >>> from jaxperf.cost import default_model
        >>> from jaxperf.workload._step_parameters import default_step_parameters
        >>> job = Job(layers=2, hidden_size=512, attention_heads=8, vocabulary_size=1000,
        ...           sequence_length=512)
        >>> model = default_model(load_hardware("h100"))
        >>> batched_step_us(job, {"micro_batches": np.arange(1, 5)}, model,
        ...                 default_step_parameters()).shape
        (4,)
    """
    columns = {name: jnp.asarray(value, float) for name, value in changes.items()}
    job, numbers = _apart(msgspec.structs.replace(job, **columns))
    axes = {name: 0 if name in columns else None for name in numbers}
    return jax.vmap(_compiled(job), (axes, None, None))(numbers, model, parameters).step_us


def table_steps(table: StepTable, model: CostModel, parameters: StepParameters) -> StepTime:
    """Time of one step of each job of a table, and its parts; see `closed_form_step`.

    Args:
        table: of `step_table`.
        model: the machine.
        parameters: of framework and cluster.

    Returns:
        The steps, each part (rows,).
    """
    return steps_of_pieces(table, cost_us(model, table.work), model, parameters)


def steps_of_pieces(
    table: StepTable, time_us: Array, model: CostModel, parameters: StepParameters
) -> StepTime:
    """As `table_steps`, from the time of each piece.

    Args:
        table: of `step_table`.
        time_us: (pieces,).
        model: the machine.
        parameters: of framework and cluster.

    Returns:
        The steps, each part (rows,).
    """
    parts = part_sums(table, time_us, parameters)
    sums = {name: part[table.part_of_row[name]] for name, part in parts.items()}
    return step_of_sums(table.rows, sums, model, parameters)


def part_sums(
    table: StepTable, time_us: Array | np.ndarray, parameters: StepParameters
) -> dict[str, Any]:
    """What the pieces of each part take together.

    Args:
        table: of `step_table`.
        time_us: (pieces,), on the host or on the device.
        parameters: of framework and cluster.

    Returns:
        There, (parts, ...) microseconds by name of the sum, see `PART_SHAPES`.
    """
    # What is on the host stays there: nothing is compiled anew for each table.
    on_host = isinstance(time_us, np.ndarray)
    xp = np if on_host else jnp

    def summed(values, to, name: str):
        size = table.parts[name] * prod(PART_SHAPES[name])
        if on_host:
            # Of no pieces it would be of integers.
            return np.bincount(to, weights=values, minlength=size).astype(float)
        return jnp.zeros(size).at[to].add(values)

    parts = {name: summed(time_us[which], to, name) for name, (which, to) in table.sums.items()}
    message, kernel, to = table.beside
    hidden_us = parameters.overlap_share * xp.minimum(time_us[message], time_us[kernel])
    beside_us = time_us[message] - hidden_us + parameters.overlap_slowdown * hidden_us
    parts["messages"] = parts["messages"] + summed(beside_us, to, "messages")
    return {name: parts[name].reshape(-1, *shape) for name, shape in PART_SHAPES.items()}


def _apart(job: Job) -> tuple[Job, dict[str, Array]]:
    """A job without its real numbers, and those: what is compiled does not depend on them."""
    numbers = {name: getattr(job, name) for name in _REAL}
    # One replica has no messages between replicas.
    known = {name: n for name, n in numbers.items() if n is not None}
    if is_one(job.data_parallel):
        del known["data_parallel"]
    rest = msgspec.structs.replace(job, name="", **dict.fromkeys(known, 0))
    return rest, {name: jnp.asarray(number, float) for name, number in known.items()}


@cache
def _compiled(job: Job):
    """The step of a job as a function of its real numbers, see `_apart`."""

    def step(values: dict[str, Array], model: CostModel, parameters: StepParameters) -> StepTime:
        table = traced_step_table(msgspec.structs.replace(job, **values))
        return jax.tree.map(lambda part: part[0], table_steps(table, model, parameters))

    return jax.jit(step)
