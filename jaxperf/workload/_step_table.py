"""Jobs as arrays from which their steps are computed: their pieces, and what these belong to.

A piece is added to a pass through a kind of block, to the gradients or the weights of a stage, or
to its optimizer. A stage is so many blocks of each kind.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, get_args

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from jaxperf.config import Job
from jaxperf.config._job import Schedule
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

SCHEDULES = get_args(Schedule)
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

    Attributes:
        work: of each different piece.
        sums: what the pieces add up to, by name: indices of pieces, and where each is added.
        beside: messages, the kernels that hide them, and the pass of both.
        rows: numbers of each job.
    """

    work: Work
    sums: dict[str, tuple[np.ndarray, np.ndarray]]
    beside: tuple[np.ndarray, np.ndarray, np.ndarray]
    rows: StepRows


for _noun in (StepRows, StepTable):
    jax.tree_util.register_dataclass(_noun, [f.name for f in fields(_noun)], [])


def step_table(jobs: Sequence[Job]) -> StepTable:
    """Many jobs, of any kinds, for one machine.

    Args:
        jobs: (rows) of them.

    Returns:
        Their table.
    """
    pieces, rows = _layout(jobs)
    work = pack_work(pieces)
    first, piece_of = distinct_work(work, np.arange(len(pieces)))
    return _table(select_work(work, first), piece_of, rows)


def traced_step_table(job: Job) -> StepTable:
    """One job, whose sizes may be jax scalars, traced ones too; as `step_table`."""
    pieces, laid = _layout([job])
    return _table(pack_traced_work(pieces), np.arange(len(pieces)), laid)


def sum_shapes(rows: StepRows) -> dict[str, tuple[int, ...]]:
    """What pieces add up to, by name, and the shape of each.

    Args:
        rows: of a table.

    Returns:
        Of a pass: `kernels`, those `of_weights`, `messages`, and those that are `exchanges` of
        experts, each (rows, kinds of block, 2); `gathers` and `scatters` of its unit, (rows, kinds
        of block). Of a stage: `gradients`, `weights` and `optimizer`, (rows, stages). Of a job: a
        message between stages, and the sum of `tied` embeddings, (rows,).
    """
    count, stages = rows.blocks.shape[:2]
    passes = (count, _BLOCKS, 2)
    return {
        "kernels": passes,
        "of_weights": passes,
        "messages": passes,
        "exchanges": passes,
        "gathers": (count, _BLOCKS),
        "scatters": (count, _BLOCKS),
        "gradients": (count, stages),
        "weights": (count, stages),
        "optimizer": (count, stages),
        "stage": (count,),
        "tied": (count,),
    }


class _Layout:
    """Collects pieces, and the place in each sum where they are added."""

    def __init__(self, stages: int):
        self.stages = stages
        self.pieces: list[Piece] = []
        self.places: dict[str, list[tuple[int, int]]] = {}
        self.beside: list[tuple[int, int, int]] = []

    def add(self, name: str, place: int, pieces: Iterable[Piece]) -> None:
        for piece in pieces:
            self.places.setdefault(name, []).append((len(self.pieces), place))
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
                self.places.setdefault(name, []).append((index, place))
        assert not waiting, "a message beside a kernel has none"
        return len(pieces) - collectives, collectives


def _layout(jobs: Sequence[Job]) -> tuple[list[Piece], tuple[_Layout, StepRows]]:
    layout = _Layout(max(job.pipeline_parallel for job in jobs))
    blocks = np.zeros((len(jobs), layout.stages, _BLOCKS))
    kernels, collectives = np.zeros((2, len(jobs), _BLOCKS, 2))
    for row, job in enumerate(jobs):
        held = _blocks_of_stages(job)
        passed = held / 2 if job.schedule == "dualpipe" else held
        blocks[row, : job.pipeline_parallel] = passed
        for block, both in enumerate(_passes(job)):
            for way, pieces in enumerate(both):
                place = (row * _BLOCKS + block) * 2 + way
                kernels[row, block, way], collectives[row, block, way] = layout.add_pass(
                    place, pieces
                )
        _add_data(layout, row, job, held)
        if job.pipeline_parallel > 1:
            layout.add("stage", row, _stage_messages(job))
        layout.add("tied", row, tied_embedding_message(job))

    def column(get) -> Any:
        values = [get(job) for job in jobs]
        traced = any(isinstance(value, Array) for value in values)
        return jnp.stack(values) if traced else np.array(values, float)

    rows = StepRows(
        schedule=np.array([SCHEDULES.index(job.schedule) for job in jobs]),
        stages=column(lambda job: job.pipeline_parallel),
        virtual_stages=column(lambda job: job.virtual_stages),
        micro_batches=column(lambda job: job.micro_batches),
        ranks=column(lambda job: job.world_size),
        buckets=column(lambda job: job.gradient_buckets),
        overlap_gradients=column(lambda job: job.overlap_gradients),
        overlap_parameters=column(lambda job: job.overlap_parameters),
        blocks=blocks,
        kernels=kernels,
        collectives=collectives,
    )
    return layout.pieces, (layout, rows)


def _table(work: Work, piece_of: np.ndarray, laid: tuple[_Layout, StepRows]) -> StepTable:
    layout, rows = laid
    pairs = {
        name: np.array(layout.places.get(name, []), int).reshape(-1, 2) for name in sum_shapes(rows)
    }
    beside = np.array(layout.beside, int).reshape(-1, 3)
    return StepTable(
        work,
        {name: (piece_of[pair[:, 0]], pair[:, 1]) for name, pair in pairs.items()},
        (piece_of[beside[:, 0]], piece_of[beside[:, 1]], beside[:, 2]),
        rows,
    )


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
    # With dualpipe a rank holds two stages, and half of the micro-batches pass through each.
    return found + found[::-1] if job.schedule == "dualpipe" else found


def _add_data(layout: _Layout, row: int, job: Job, held: np.ndarray) -> None:
    """Messages between replicas, and the optimizer."""
    counts = [
        layer_parameters(job, experts=False),
        ParameterCounts() if job.experts is None else layer_parameters(job, experts=True),
        embedding_parameters(job),
        head_parameters(job),
    ]
    for block, parameters in enumerate(counts):
        place = row * _BLOCKS + block
        if job.sharding == "zero3":
            layout.add("gathers", place, parameter_messages(job, parameters))
        if job.sharding in ("zero2", "zero3"):
            layout.add("scatters", place, gradient_messages(job, parameters))
    for stage in range(job.pipeline_parallel):
        place = row * layout.stages + stage
        parts = [each * float(n) for each, n in zip(counts, held[stage], strict=True) if n]
        parameters = sum(parts, ParameterCounts())
        layout.add("optimizer", place, [zero_gradients(job, parameters)])
        layout.add("optimizer", place, optimizer_pieces(job, parameters))
        bucket = parameters * (1 / job.gradient_buckets)
        if job.sharding in ("none", "zero1"):
            layout.add("gradients", place, gradient_messages(job, bucket))
        if job.sharding in ("zero1", "zero2"):
            layout.add("weights", place, parameter_messages(job, bucket))
