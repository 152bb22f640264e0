"""Jobs as arrays from which their steps are computed: their pieces, and what these belong to.

A piece is added to a pass through a kind of block, to the gradients or the weights of a stage, or
to its optimizer. A stage is so many blocks of each kind.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields, replace
from math import prod
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from jaxperf.config import SCHEDULES, Job, JobColumns, by_parts, columns_of_jobs, fields_read
from jaxperf.cost import Work, WorkKind, distinct_work, select_work
from jaxperf.workload._kernels import (
    embedding_backward,
    embedding_forward,
    head_backward,
    head_forward,
    layer_backward,
    layer_forward,
    layer_recompute,
    optimizer_pieces,
    zero_gradients,
)
from jaxperf.workload._messages import (
    gradient_messages,
    parameter_messages,
    pipeline_message,
    tied_embedding_message,
)
from jaxperf.workload._pack import pack_traced_work, pack_work
from jaxperf.workload._parameters import (
    ParameterCounts,
    dense_layers,
    embedding_parameters,
    head_parameters,
    layer_parameters,
)
from jaxperf.workload._pieces import Piece, message

DENSE, EXPERTS, EMBEDDING, HEAD = range(4)
"""Kinds of block."""

_BLOCKS = 4


@dataclass(frozen=True, eq=False)
class StepRows:
    """Numbers of some jobs, (rows,) but where noted.

    Attributes:
        schedule: index into `SCHEDULES`.
        stages, virtual_stages, micro_batches: of the pipeline.
        ranks: of the job.
        buckets: messages of gradients, and of weights.
        overlap_gradients, overlap_parameters: whether they run beside passes.
        blocks: (rows, stages, kinds of block) how many of each a micro-batch passes in a stage.
        kernels, collectives: (rows, kinds of block, 2) of a block's pass forward and backward.
    """

    schedule: Any
    stages: Any
    virtual_stages: Any
    micro_batches: Any
    ranks: Any
    buckets: Any
    overlap_gradients: Any
    overlap_parameters: Any
    blocks: Any
    kernels: Any
    collectives: Any


@dataclass(frozen=True, eq=False)
class StepTable:
    """Many jobs on one machine as arrays, from which their steps are computed at once.

    Jobs that are alike in what a part of the step depends on share it: their layers, say, or the
    gradients of a stage.

    Attributes:
        work: of each different piece.
        sums: what the pieces add up to, by name: indices of pieces, and the place in the parts, all
            of them laid flat, where each is added.
        beside: messages, the kernels that hide them, and the place of both among the passes.
        parts: how many different parts there are, by name of the sum.
        part_of_row: (rows,) or (rows, stages) the part that each job has, by name of the sum.
        rows: numbers of each job.
    """

    work: Work
    sums: dict[str, tuple[np.ndarray, np.ndarray]]
    beside: tuple[np.ndarray, np.ndarray, np.ndarray]
    parts: dict[str, int]
    part_of_row: dict[str, np.ndarray]
    rows: StepRows


jax.tree_util.register_dataclass(StepRows, [f.name for f in fields(StepRows)], [])

PART_SHAPES = {
    "kernels": (_BLOCKS, 2),
    "of_weights": (_BLOCKS, 2),
    "messages": (_BLOCKS, 2),
    "exchanges": (_BLOCKS, 2),
    "gathers": (_BLOCKS,),
    "scatters": (_BLOCKS,),
    "gradients": (),
    "weights": (),
    "optimizer": (),
    "stage": (),
    "tied": (),
}
"""What pieces add up to, by name, and the shape of one such part.

Of a pass: `kernels`, those `of_weights`, `messages`, and those that are `exchanges` of experts, by
kind of block and way; `gathers` and `scatters` of its unit, by kind of block. Of a stage:
`gradients`, `weights` and `optimizer`. Of a job: a message between stages, and the sum of `tied`
embeddings."""


def step_table(jobs: Sequence[Job] | JobColumns) -> StepTable:
    """Many jobs, of any kinds, for one machine.

    Args:
        jobs: (rows) of them.

    Returns:
        Their table.
    """
    columns = jobs if isinstance(jobs, JobColumns) else columns_of_jobs(jobs)
    layout, rows = _laid_out(columns)
    work = pack_work(layout.pieces)
    first, piece_of = distinct_work(work, np.arange(len(layout.pieces)))
    return layout.table(select_work(work, first), piece_of, rows)


def pass_table(jobs: JobColumns) -> StepTable:
    """The passes of many jobs alone, whatever else of a job cannot be; as `step_table`.

    Its rows say how many kernels and collectives a pass has; what they say of stages is not known.
    """
    layout = _Layout()
    kernels, collectives = _add_passes(layout, jobs)
    layout.share(PART_SHAPES.keys() - layout.parts.keys(), 0, np.zeros(jobs.rows, int))
    unknown = np.full(jobs.rows, np.nan)
    rows = StepRows(**dict.fromkeys((field.name for field in fields(StepRows)), unknown))
    rows = replace(rows, kernels=kernels, collectives=collectives)
    work = pack_work(layout.pieces)
    first, piece_of = distinct_work(work, np.arange(len(layout.pieces)))
    return layout.table(select_work(work, first), piece_of, rows)


def pass_fields(jobs: JobColumns) -> frozenset[str]:
    """The columns of some jobs that their passes depend on."""
    return fields_read(jobs, _passes)


def traced_step_table(job: Job) -> StepTable:
    """One job, whose sizes may be jax scalars, traced ones too; as `step_table`."""
    layout, rows = _laid_out(columns_of_jobs([job]))
    return layout.table(pack_traced_work(layout.pieces), np.arange(len(layout.pieces)), rows)


class _Layout:
    """Collects pieces, and the place in each sum where they are added."""

    def __init__(self):
        self.pieces: list[Piece] = []
        self.places: dict[str, list[tuple[int, int]]] = {name: [] for name in PART_SHAPES}
        self.beside: list[tuple[int, int, int]] = []
        self.parts: dict[str, int] = {}
        self.part_of_row: dict[str, np.ndarray] = {}

    def share(self, names: Iterable[str], parts: int, part_of_row: np.ndarray) -> None:
        """How many parts some sums have, and which of them each job has."""
        for name in names:
            self.parts[name], self.part_of_row[name] = parts, part_of_row

    def add(self, name: str, place: int, pieces: Iterable[Piece]) -> None:
        for piece in pieces:
            self.places[name].append((len(self.pieces), place))
            self.pieces.append(piece)

    def add_pass(self, place: int, pieces: Sequence[Piece]) -> tuple[int, int]:
        """A pass through one block; how many kernels and collectives it has."""
        waiting: list[int] = []
        collectives = 0
        for piece in pieces:
            index = len(self.pieces)
            self.pieces.append(piece)
            if piece.kind is not WorkKind.COLLECTIVE:
                self.beside += [(message, index, place) for message in waiting]
                waiting = []
                names = ["kernels", "of_weights"] if piece.of_weights else ["kernels"]
            else:
                collectives += 1
                if piece.beside:
                    waiting.append(index)
                    continue
                names = ["messages", "exchanges"] if piece.axis == "expert" else ["messages"]
            for name in names:
                self.places[name].append((index, place))
        assert not waiting, "a message beside a kernel has none"
        return len(pieces) - collectives, collectives

    def table(self, work: Work, piece_of: np.ndarray, rows: StepRows) -> StepTable:
        pairs = {name: np.array(found, int).reshape(-1, 2) for name, found in self.places.items()}
        beside = np.array(self.beside, int).reshape(-1, 3)
        return StepTable(
            work,
            {name: (piece_of[pair[:, 0]], pair[:, 1]) for name, pair in pairs.items()},
            (piece_of[beside[:, 0]], piece_of[beside[:, 1]], beside[:, 2]),
            self.parts,
            self.part_of_row,
            rows,
        )


def _laid_out(jobs: JobColumns) -> tuple[_Layout, StepRows]:
    layout = _Layout()
    kernels, collectives = _add_passes(layout, jobs)
    _add_units(layout, jobs)
    _add_stages(layout, jobs)
    for name, messages_of in (("stage", _stage_messages), ("tied", tied_embedding_message)):
        parts, part_of_row = by_parts(jobs, messages_of)
        layout.share([name], len(parts), part_of_row)
        for part, pieces in enumerate(parts):
            layout.add(name, part, pieces)

    def column(name: str) -> Any:
        value = getattr(jobs.base, name)
        return jnp.stack([value]) if isinstance(value, Array) else jobs.array(name)

    degrees = (column(f"{axis}_parallel") for axis in ("data", "tensor", "context", "pipeline"))
    schedules, schedule_of_row = by_parts(jobs, lambda job: SCHEDULES.index(job.schedule))
    rows = StepRows(
        schedule=np.array(schedules)[schedule_of_row],
        stages=column("pipeline_parallel"),
        virtual_stages=column("virtual_stages"),
        micro_batches=column("micro_batches"),
        ranks=prod(degrees),
        buckets=column("gradient_buckets"),
        overlap_gradients=column("overlap_gradients"),
        overlap_parameters=column("overlap_parameters"),
        blocks=_blocks(jobs),
        kernels=kernels,
        collectives=collectives,
    )
    return layout, rows


def _add_passes(layout: _Layout, jobs: JobColumns) -> np.ndarray:
    """Passes of every kind of block; (2, rows, kinds of block, 2) their kernels and collectives."""
    parts, part_of_row = by_parts(jobs, _passes)
    layout.share(["kernels", "of_weights", "messages", "exchanges"], len(parts), part_of_row)
    counts = np.zeros((2, len(parts), _BLOCKS, 2))
    for part, passes in enumerate(parts):
        for block, both in enumerate(passes):
            for way, pieces in enumerate(both):
                place = (part * _BLOCKS + block) * 2 + way
                counts[:, part, block, way] = layout.add_pass(place, pieces)
    return counts[:, part_of_row]


def _add_units(layout: _Layout, jobs: JobColumns) -> None:
    """Weights gathered and gradients scattered for each pass through a block."""
    parts, part_of_row = by_parts(jobs, _unit_messages)
    layout.share(["gathers", "scatters"], len(parts), part_of_row)
    for part, blocks in enumerate(parts):
        for block, (gathered, scattered) in enumerate(blocks):
            layout.add("gathers", part * _BLOCKS + block, gathered)
            layout.add("scatters", part * _BLOCKS + block, scattered)


def _add_stages(layout: _Layout, jobs: JobColumns) -> None:
    """Messages between the replicas of each stage, and its optimizer."""
    parts, part_of_row = by_parts(jobs, _stage_pieces)
    # After the stages of a job nothing is summed: the first part is empty.
    most = max(len(stages) for _, stages in parts)
    stages_of = np.zeros((len(parts), most), int)
    count = 1
    for part, (kinds, stages) in enumerate(parts):
        for place, pieces in enumerate(kinds):
            for name in ("optimizer", "gradients", "weights"):
                layout.add(name, count + place, pieces[name])
        stages_of[part, : len(stages)] = count + np.array(stages)
        count += len(kinds)
    layout.share(["optimizer", "gradients", "weights"], count, stages_of[part_of_row])


def _blocks(jobs: JobColumns) -> np.ndarray:
    """(rows, stages, kinds of block) how many of each a micro-batch passes in a stage."""

    def passed(job: Job) -> np.ndarray:
        held = _blocks_of_stages(job)
        # With dualpipe a rank holds two stages, and half of the micro-batches pass through each.
        return held / 2 if job.schedule == "dualpipe" else held

    parts, part_of_row = by_parts(jobs, passed)
    blocks = np.zeros((len(parts), max(map(len, parts)), _BLOCKS))
    for part, each in enumerate(parts):
        blocks[part, : len(each)] = each
    return blocks[part_of_row]


def _stage_messages(job: Job) -> list[Piece]:
    """From stage to stage each tensor-parallel rank sends a part, and the parts are gathered.

    Narayanan et al., arXiv 2104.04473, section 4.1; what sequence parallelism splits stays so.
    """
    whole = pipeline_message(job)
    if job.sequence_parallel or job.tensor_parallel == 1:
        return [whole]
    part = replace(whole, message_bytes=whole.message_bytes / job.tensor_parallel)
    gather = message(job, "stage all_gather", "all_gather", whole.message_bytes, "tensor")
    return [part, gather]


def _passes(job: Job) -> list[tuple[Sequence[Piece], Sequence[Piece]]]:
    """Forward and backward pass of each kind of block; none of a kind that the job lacks."""

    def layer(experts: bool):
        if (job.experts is None) if experts else (dense_layers(job) == 0):
            return (), ()
        backward = layer_recompute(job, experts=experts) + layer_backward(job, experts=experts)
        return layer_forward(job, experts=experts), backward

    return [
        layer(False),
        layer(True),
        (embedding_forward(job), embedding_backward(job)),
        (head_forward(job), head_backward(job)),
    ]


def _blocks_of_stages(job: Job) -> np.ndarray:
    """(stages, kinds of block) how many of each a rank of the stage holds."""
    stages = job.pipeline_parallel
    chunks = stages * job.virtual_stages
    layers = job.stage_layers or (job.layers / chunks,) * chunks
    end = np.cumsum(layers)
    # The first layers of the model are the dense ones.
    dense = np.clip(dense_layers(job) - (end - layers), 0, layers)
    found = np.zeros((stages, _BLOCKS))
    found[:, DENSE] = dense.reshape(-1, stages).sum(0)
    found[:, EXPERTS] = (layers - dense).reshape(-1, stages).sum(0)
    found[0, EMBEDDING] = found[-1, HEAD] = 1
    return found + found[::-1] if job.schedule == "dualpipe" else found


def _block_parameters(job: Job) -> list[ParameterCounts]:
    """Parameters of a rank in each kind of block."""
    return [
        layer_parameters(job, experts=False),
        ParameterCounts() if job.experts is None else layer_parameters(job, experts=True),
        embedding_parameters(job),
        head_parameters(job),
    ]


def _unit_messages(job: Job) -> list[tuple[Sequence[Piece], Sequence[Piece]]]:
    """Of each kind of block the weights gathered for its passes, and its gradients scattered."""
    if job.sharding not in ("zero2", "zero3"):
        return []
    return [
        (
            parameter_messages(job, parameters) if job.sharding == "zero3" else (),
            gradient_messages(job, parameters),
        )
        for parameters in _block_parameters(job)
    ]


def _stage_pieces(job: Job) -> tuple[list[dict[str, Sequence[Piece]]], list[int]]:
    """What the different stages do once a step, by sum; and which of them each stage is."""
    counts, found, place = _block_parameters(job), [], {}
    stages = [tuple(held) for held in _blocks_of_stages(job)]
    for held in stages:
        if held not in place:
            place[held] = len(found)
            parts = [each * float(n) for each, n in zip(counts, held, strict=True) if n]
            found.append(_pieces_once(job, sum(parts, ParameterCounts())))
    return found, [place[held] for held in stages]


def _pieces_once(job: Job, parameters: ParameterCounts) -> dict[str, Sequence[Piece]]:
    """Optimizer of a rank, and a bucket of its gradients and of its weights."""
    bucket = parameters * (1 / job.gradient_buckets)
    at_end, gathered = job.sharding in ("none", "zero1"), job.sharding in ("zero1", "zero2")
    return {
        "optimizer": (zero_gradients(job, parameters), *optimizer_pieces(job, parameters)),
        "gradients": gradient_messages(job, bucket) if at_end else (),
        "weights": parameter_messages(job, bucket) if gathered else (),
    }
