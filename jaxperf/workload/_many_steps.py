"""Steps of very many jobs: compiled once for shapes that are padded, and not for each set of jobs.

Times of pieces are computed on the device; what they add up to is gathered for blocks of rows of
jobs with about as many stages, whose steps are then computed together.
"""

from dataclasses import fields, replace
from functools import cache

import jax
import numpy as np

from jaxperf.config import JobColumns
from jaxperf.cost import CostModel, Work, WorkKind, cost_us, select_work
from jaxperf.replay import double_precision
from jaxperf.workload._closed_form import part_sums
from jaxperf.workload._pipeline_step import GATHERED, SCATTERED, StepTime, step_of_sums
from jaxperf.workload._step_parameters import StepParameters
from jaxperf.workload._step_table import StepTable, step_table

_ROWS = 2048
_LEAST = 64


def many_steps(
    jobs: JobColumns | StepTable, model: CostModel, parameters: StepParameters
) -> StepTime:
    """Time of one step of each of many jobs, and its parts; as `closed_form_step`.

    Args:
        jobs: the jobs, or their `step_table`.
        model: the machine.
        parameters: of framework and cluster.

    Returns:
        The steps, each part (rows,) on the host.

    Example:
        >>> from jaxperf.config import Job, job_columns, load_hardware
        >>> from jaxperf.cost import default_model
        >>> from jaxperf.workload._step_parameters import default_step_parameters
        >>> job = Job(layers=4, hidden_size=512, attention_heads=8, vocabulary_size=1000,
        ...           sequence_length=512)
        >>> jobs = job_columns(job, {"pipeline_parallel": [1, 2, 4], "micro_batches": [8, 4, 2]})
        >>> model = default_model(load_hardware("h100"))
        >>> many_steps(jobs, model, default_step_parameters()).step_us.shape
        (3,)
    """
    table = jobs if isinstance(jobs, StepTable) else step_table(jobs)
    with double_precision():
        parts = part_sums(table, piece_times_us(model, table.work), parameters)
        return steps_of_parts(table, parts, model, parameters)


def steps_of_parts(
    table: StepTable, parts: dict[str, np.ndarray], model: CostModel, parameters: StepParameters
) -> StepTime:
    """The steps of a table from the times of its parts; see `part_sums`. In double precision."""
    stages = np.asarray(table.rows.stages, int)
    found = {field.name: np.empty(len(stages)) for field in fields(StepTime)}
    padded = 8 ** np.ceil(np.log(np.maximum(stages, 2)) / np.log(8) - 1e-9).astype(int)
    for most in np.unique(padded):
        of_size = np.flatnonzero(padded == most)
        for at in range(0, len(of_size), _ROWS):
            rows = of_size[at : at + _ROWS]
            steps = _steps(*_gathered(table, parts, rows, int(most)), model, parameters)
            for name, values in found.items():
                values[rows] = np.asarray(getattr(steps, name))[: len(rows)]
    return StepTime(**found)  # type: ignore[arg-type]


def select_rows(table: StepTable, rows: np.ndarray) -> StepTable:
    """A table of some of its jobs, by index."""
    return replace(
        table,
        part_of_row={name: each[rows] for name, each in table.part_of_row.items()},
        rows=jax.tree.map(lambda column: column[rows], table.rows),
    )


def rank_totals(table: StepTable, parts: dict[str, np.ndarray]) -> np.ndarray:
    """What the pieces of a step come to on all ranks of a job together, such as their energy.

    Args:
        table: of `step_table`.
        parts: of `part_sums`, in any unit.

    Returns:
        (rows,) in that unit.
    """
    rows = table.rows
    sums = {name: part[table.part_of_row[name]] for name, part in parts.items()}
    both = sums["kernels"] + sums["messages"]
    both += sums["gathers"][:, :, None] * GATHERED + sums["scatters"][:, :, None] * SCATTERED
    each = np.einsum("rsb,rbw->rs", rows.blocks, both) * rows.micro_batches[:, None]
    once = (sums["gradients"] + sums["weights"]) * rows.buckets[:, None] + sums["optimizer"]
    # From a stage to the next one, and back; with virtual stages all around.
    hops = rows.stages * rows.virtual_stages - 1
    between = 2 * hops * rows.micro_batches * sums["stage"] + 2 * sums["tied"]
    return ((each + once).sum(axis=1) + between) * rows.ranks / rows.stages


def piece_times_us(model: CostModel, work: Work) -> np.ndarray:
    """(pieces,) microseconds; as `cost_us`, compiled for numbers of pieces that are padded.

    Args:
        model: the machine.
        work: of each piece.
    """
    found = np.full(len(work.kind), np.nan)
    for kind in WorkKind:
        rows = np.flatnonzero(work.kind == kind)
        if len(rows) and kind in _PRICED:
            size = _padded_size(len(rows))
            some = select_work(work, np.resize(rows, size))
            found[rows] = np.asarray(_price(kind, size)(model, some))[: len(rows)]
    return found


_PRICED = (WorkKind.MATMUL, WorkKind.ATTENTION, WorkKind.MEMORY, WorkKind.COLLECTIVE)


@cache
def _price(kind: WorkKind, size: int):
    @jax.jit
    def price(model: CostModel, work: Work) -> jax.Array:
        return cost_us(model, replace(work, kind=np.full(size, kind, np.int8)))

    return price


@jax.jit
def _steps(rows, sums, model: CostModel, parameters: StepParameters) -> StepTime:
    return step_of_sums(rows, sums, model, parameters)


def _gathered(table: StepTable, parts: dict[str, np.ndarray], rows: np.ndarray, stages: int):
    """Rows and sums of some jobs, repeated to a full block."""
    rows = np.resize(rows, _ROWS)
    some = jax.tree.map(lambda column: np.asarray(column)[rows], table.rows)
    some = replace(some, blocks=_with_stages(some.blocks, stages))
    sums = {}
    for name, part in parts.items():
        of_row = table.part_of_row[name][rows]
        sums[name] = part[_with_stages(of_row, stages) if of_row.ndim == 2 else of_row]
    return some, sums


def _with_stages(values: np.ndarray, stages: int) -> np.ndarray:
    """(rows, stages, ...) with zeros after the stages that there are."""
    more = max(stages - values.shape[1], 0)
    padding = [(0, 0), (0, more), *[(0, 0)] * (values.ndim - 2)]
    return np.pad(values[:, :stages], padding)


def _padded_size(count: int) -> int:
    """The next power of two."""
    return max(1 << (count - 1).bit_length(), _LEAST)
