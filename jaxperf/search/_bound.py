"""Lower bounds: what no configuration of a part of a space can do better than.

A step takes at least the passes of its micro-batches, which depend on a few axes alone; the values
of these make boxes, of all points that share them. Let a micro-batch take F + B through all layers
and L through those of one of p stages with v virtual ones each, and m be the micro-batches.

- work: the ranks of a pipeline share `m (F + B)`: one of them has `m (F + B) / p` at least. With a
  fixed batch and number of accelerators m / p does not depend on p.
- pipeline: every schedule takes at least as long as with stages that take L each, for its time
  grows with that of each stage: `(m + p - 1) L` of `1F1B` and `gpipe`, `(m + (p - 1) / v) L`
  interleaved, m L and the forward passes of the other stages with `zero-bubble`.

Messages between stages and replicas, what is not hidden of gathered weights, the optimizer and
waiting for the host are left out: they are not negative. With `dualpipe` the stage that has most to
do sets the pace, whatever it hides: of its exchanges of experts all, or half of what it does.
"""

import math
from dataclasses import dataclass

import numpy as np

from jaxperf.config import Column, JobColumns, is_job_key
from jaxperf.errors import ConfigError
from jaxperf.search._evaluate import APART, step_measures, timed_pieces
from jaxperf.search._problem import Machine, Points, Problem, points
from jaxperf.search._types import costs
from jaxperf.workload import StepTable, part_sums, pass_fields, pass_table

_US = 1e-6
# Sums in another order differ by their rounding.
_ROOM = 1.0 - 1e-9
_MOST_BOXES = 1_000_000
_MOST_OF_BOX = 100_000_000
_DEGREES = ("tensor_parallel", "context_parallel", "pipeline_parallel")


@dataclass(frozen=True, eq=False)
class Boxes:
    """Parts of a space whose points share all that their passes depend on.

    Attributes:
        first: (boxes,) the first point of each.
        beyond: (points of a box,) what is to be added to that for each of them.
        axes: strides and sizes of the axes that tell boxes apart, by which a point finds its box.
        passes: (boxes,) a micro-batch through all blocks and back, microseconds.
        layer: (boxes, 2) forward and backward through the quickest kind of layer.
        energy_j: (boxes,) what all accelerators that share a micro-batch take for it, p times what
            one takes, beyond static power.
        static_w: (boxes,) of an accelerator.
    """

    first: np.ndarray
    beyond: np.ndarray
    axes: tuple[tuple[int, int], ...]
    passes: np.ndarray
    layer: np.ndarray
    energy_j: np.ndarray
    static_w: np.ndarray

    def of(self, index: np.ndarray) -> np.ndarray:
        """(rows,) the box of each point."""
        box = np.zeros(len(index), np.int64)
        for stride, size in self.axes:
            box = box * size + index // stride % size
        return box


def boxes(problem: Problem) -> Boxes:
    """The boxes of a space, and what a micro-batch takes at least in each.

    Args:
        problem: of `pose`.

    Raises:
        ConfigError: there are more than a million.
    """
    sizes = {key: len(values) for key, values in problem.space.axes.items()}
    keys = _box_axes(problem)
    count = math.prod(sizes[key] for key in keys)
    if count > _MOST_BOXES:
        raise ConfigError(
            "too many values for a proof",
            where=f"space {problem.space.name}: {', '.join(keys)}",
            got=f"{count:,} combinations of what passes depend on",
            expected=f"at most {_MOST_BOXES:,}; or the gradient method, which proves nothing",
        )
    others = [key for key in sizes if key not in keys]
    if problem.space.size // count > _MOST_OF_BOX:
        raise ConfigError(
            "too many values for a proof",
            where=f"space {problem.space.name}: {', '.join(others)}",
            got=f"{problem.space.size // count:.3g} combinations",
            expected=f"at most {_MOST_OF_BOX:,}; or the gradient method, which proves nothing",
        )
    first = _product(sizes, keys)
    beyond = _product(sizes, others)
    found = points(problem, first)
    table = pass_table(found.jobs)
    passes, layer = np.zeros(count), np.zeros((count, 2))
    energy_j, static_w = np.full((2, count), np.nan)
    blocks = _blocks(found)
    for place in np.unique(found.machine):
        rows = np.flatnonzero(found.machine == place)
        times, exchanges, energies, static = (
            each[rows] for each in _of_blocks(table, problem.machines[place])
        )
        passes[rows] = np.einsum("rb,rbw->r", blocks[rows], times)
        if _may_hide_exchanges(problem):
            share = np.max(exchanges.sum(axis=2) / np.maximum(times.sum(axis=2), _US), axis=1)
            passes[rows] *= 1.0 - np.minimum(share, 0.5)
            times = times - exchanges
        energy_j[rows] = np.einsum("rb,rbw->r", blocks[rows], energies)
        # Of layers of several kinds a stage may have the quickest alone.
        of_layer = np.where(blocks[rows, :2, None] > 0, times[:, :2], np.inf)
        layer[rows] = np.min(of_layer, axis=1)
        static_w[rows] = static
    strides = _strides(sizes)
    axes = tuple((strides[key], sizes[key]) for key in keys)
    return Boxes(first, beyond, axes, passes, layer, energy_j, static_w)


def lower_bounds(problem: Problem, found: Boxes, some: Points) -> np.ndarray:
    """What points cannot do better than.

    Args:
        problem: of `pose`.
        found: the boxes of the space.
        some: points, of which those that cannot be are not looked at.

    Returns:
        (rows, objectives) of each less is better, as `costs`.
    """
    jobs, box = some.jobs, found.of(some.index)
    batches, stages = jobs.array("micro_batches"), jobs.array("pipeline_parallel")
    ranks = math.prod(jobs.array(name) for name in _DEGREES) * jobs.array("data_parallel")
    work_us = batches / stages * found.passes[box]
    pipeline_us = _pipeline_us(problem, found, some, box)
    return _costs(problem, found, some, box, np.maximum(work_us, pipeline_us), ranks)


def box_bounds(problem: Problem, found: Boxes) -> np.ndarray:
    """(boxes, objectives) what no point of a box can do better than; by its work alone."""
    some = points(problem, found.first)
    jobs, box = some.jobs, np.arange(len(found.first))
    space, share = problem.space, None
    if space.gpus is not None and space.global_batch_size is not None:
        # Whether this very point can be or not: what it shares with all of its box.
        split = jobs.array("tensor_parallel") * jobs.array("context_parallel")
        share = space.global_batch_size * split / (space.gpus * jobs.array("micro_batch_size"))
        ranks = np.full(len(box), float(space.gpus))
    else:
        share = jobs.array("micro_batches") / jobs.array("pipeline_parallel")
        ranks = math.prod(jobs.array(name) for name in _DEGREES) * jobs.array("data_parallel")
    work_us = share * found.passes
    return _costs(problem, found, some, box, work_us, ranks, share=share)


def _costs(
    problem: Problem,
    found: Boxes,
    some: Points,
    box: np.ndarray,
    passes_us: np.ndarray,
    ranks: np.ndarray,
    share: np.ndarray | None = None,
) -> np.ndarray:
    jobs = some.jobs
    gpus_per_node, straggler, once_us = (
        np.array([float(get(machine)) for machine in problem.machines])[some.machine]
        for get in (
            lambda machine: machine.model.device.gpus_per_node,
            lambda machine: machine.parameters.straggler_share,
            lambda machine: machine.parameters.step_us,
        )
    )
    nodes = np.maximum(ranks / gpus_per_node, 1.0)
    step_us = (passes_us + once_us) * (1.0 + straggler * np.log2(nodes)) * _ROOM
    if share is None:
        share = jobs.array("micro_batches") / jobs.array("pipeline_parallel")
    step_j = ranks * (share * found.energy_j[box] + found.static_w[box] * step_us * _US) * _ROOM
    if problem.space.gpus is not None and problem.space.global_batch_size is not None:
        jobs = _with_whole_batch(some, problem.space.global_batch_size)
    measures = step_measures(problem, jobs, ranks, step_us, step_j)
    # Longer steps have less power, and nothing is known yet of memory.
    measures["power_w_per_gpu"] = found.static_w[box] * _ROOM
    measures["memory_bytes"] = np.zeros(len(box))
    return costs(problem, measures)


def _with_whole_batch(some: Points, batch: int) -> JobColumns:
    """Jobs whose tokens are those of the batch, also where its parts do not come out even."""
    one = Column((1,), np.zeros(some.jobs.rows, int))
    whole = Column((batch,), np.zeros(some.jobs.rows, int))
    columns = {**some.jobs.columns, "data_parallel": one, "micro_batches": one}
    columns["micro_batch_size"] = whole
    return JobColumns(some.jobs.base, columns, some.jobs.rows)


def _pipeline_us(problem: Problem, found: Boxes, some: Points, box: np.ndarray) -> np.ndarray:
    jobs = some.jobs
    if problem.job.stage_layers is not None or "stage_layers" in problem.space.axes:
        return np.zeros(len(box))
    batches, stages = jobs.array("micro_batches"), jobs.array("pipeline_parallel")
    chunks = jobs.array("virtual_stages")
    column = jobs.columns.get("schedule")
    schedules = [jobs.base.schedule] if column is None else list(column.values)
    codes = np.zeros(len(box), int) if column is None else column.codes
    least = found.layer[box] * (jobs.array("layers") / stages)[:, None]
    both, forward = least.sum(axis=1), least[:, 0]
    others = stages - 1
    by_schedule = {
        "none": batches * both,
        "gpipe": (batches + others) * both,
        "1F1B": (batches + others) * both,
        "interleaved": (batches + others / chunks) * both,
        "zero-bubble": batches * both + others * forward,
        # Both of its stages do half of the micro-batches each.
        "dualpipe": batches * both,
    }
    every = np.stack([by_schedule.get(name, batches * both) for name in schedules])
    return every[codes, np.arange(len(box))]


def _may_hide_exchanges(problem: Problem) -> bool:
    return "dualpipe" in problem.space.axes.get("schedule", (problem.job.schedule,))


def _of_blocks(table: StepTable, machine: Machine) -> tuple[np.ndarray, ...]:
    """(boxes, kinds, 2) time, exchanges in it and energy of a pass; (boxes,) static power."""
    time_us, energy_j, static_w = timed_pieces(table.work, machine)
    parts = part_sums(table, time_us, machine.parameters)
    which = table.part_of_row["kernels"]
    gap_us = float(np.asarray(machine.parameters.kernel_gap_us))
    times = (parts["kernels"] + parts["messages"])[which]
    times = times + gap_us * (table.rows.kernels + table.rows.collectives)
    energies = part_sums(table, energy_j, APART)
    energies = (energies["kernels"] + energies["messages"])[which]
    return times, parts["exchanges"][which], energies, np.full(len(which), static_w)


def _blocks(found: Points) -> np.ndarray:
    """(boxes, kinds) blocks of the whole model: layers of both kinds, embedding, output layer."""
    jobs = found.jobs
    layers = jobs.array("layers")
    if jobs.base.experts is None:
        dense = layers
    else:
        column = jobs.columns.get("experts")
        experts = [jobs.base.experts] if column is None else column.values
        codes = np.zeros(jobs.rows, int) if column is None else column.codes
        dense = np.array([float(each.dense_layers) for each in experts])[codes]
    ones = np.ones(jobs.rows)
    return np.stack([dense, layers - dense, ones, ones], axis=1)


# Which axes tell boxes apart
# ---------------------------------------------------------------------------------------


def _box_axes(problem: Problem) -> list[str]:
    """The axes that passes, their number and the machine depend on, in the order of the space."""
    space = problem.space
    sizes = {key: len(values) for key, values in space.axes.items()}
    if space.gpus is not None and space.global_batch_size is not None:
        shared = ["tensor_parallel", "context_parallel", "micro_batch_size"]
    else:
        shared = [*_DEGREES, "data_parallel", "micro_batch_size", "micro_batches"]
    fields = {"layers", "experts", "sequence_length", *shared}
    while True:
        wanted = {key for key in sizes if not is_job_key(key)}
        for field in fields:
            wanted |= _axes_of(problem, field)
        keys = [key for key in sizes if key in wanted]
        if math.prod(sizes[key] for key in keys) > _MOST_BOXES:
            return keys
        read = pass_fields(points(problem, _product(sizes, keys)).jobs)
        more = {key for field in read for key in _axes_of(problem, field)} - wanted
        if not more:
            return keys
        fields |= read


def _axes_of(problem: Problem, field: str) -> set[str]:
    """The axes that a field of the job follows from."""
    space = problem.space
    found = {key for key in space.axes if is_job_key(key) and key.partition(".")[0] == field}
    if field == "data_parallel" and space.gpus is not None:
        for name in _DEGREES:
            found |= _axes_of(problem, name)
    if field == "micro_batches" and space.global_batch_size is not None:
        found |= _axes_of(problem, "data_parallel") | _axes_of(problem, "micro_batch_size")
    if field == "schedule" and not found:
        found |= _axes_of(problem, "virtual_stages") | _axes_of(problem, "pipeline_parallel")
    return found


def _strides(sizes: dict[str, int]) -> dict[str, int]:
    """What one step along each axis adds to the number of a point."""
    strides, passed = {}, 1
    for key in reversed(sizes):
        strides[key] = passed
        passed *= sizes[key]
    return strides


def _product(sizes: dict[str, int], keys: list[str]) -> np.ndarray:
    """Points with every combination of some axes, and the first value of the others."""
    strides, found = _strides(sizes), np.zeros(1, np.int64)
    for key in keys:
        found = (found[:, None] + np.arange(sizes[key]) * strides[key]).reshape(-1)
    return found
