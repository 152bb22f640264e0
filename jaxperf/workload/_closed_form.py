"""The time of a step in closed form: no graph, no replay, and a gradient in every real number.

Times of all pieces are computed at once and added up by what they belong to: a pass through a kind
of block, the gradients of a stage, its optimizer. From these sums follow the passes of each stage,
the pipeline, and what is not hidden. Many jobs are rows of the same arrays.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import cache
from typing import Any, get_args

import jax
import jax.numpy as jnp
import msgspec
import numpy as np
from jax import Array
from jax.typing import ArrayLike

from jaxperf.config import Job
from jaxperf.config._job import Schedule
from jaxperf.cost import CostModel, Work, WorkKind, cost_us, distinct_work, select_work
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
from jaxperf.workload._pieces import Piece, is_one, message
from jaxperf.workload._step_parameters import StepParameters, pass_us

_SCHEDULES = get_args(Schedule)
_DENSE, _EXPERTS, _EMBEDDING, _HEAD = range(4)
_BLOCKS = 4
_REAL = (
    "hidden_size",
    "ffn_hidden_size",
    "vocabulary_size",
    "sequence_length",
    "micro_batch_size",
    "micro_batches",
    "data_parallel",
)


@dataclass(frozen=True, eq=False)
class StepTime:
    """A step and its parts, which add up to it, as the slowest stage sees it. Each (rows,) or ().

    Attributes:
        step_us: the step.
        computation_us: kernels of forward and backward passes.
        communication_us: tensor, context and expert parallel messages and gathered weights within
            passes, as far as they are not hidden.
        host_us: gaps between kernels, passes that wait for the host, and its work once a step.
        bubble_us: waiting for other stages.
        pipeline_us: messages between stages, not hidden.
        data_us: gradients and weights between replicas, not hidden.
        optimizer_us: norm of the gradients, and the update.
        straggler_us: waiting for the slowest node.
    """

    step_us: Array
    computation_us: Array
    communication_us: Array
    host_us: Array
    bubble_us: Array
    pipeline_us: Array
    data_us: Array
    optimizer_us: Array
    straggler_us: Array


@dataclass(frozen=True, eq=False)
class StepTable:
    """Many jobs on one machine as arrays, from which their steps are computed at once.

    Attributes:
        work: of each different piece.
        sums: what the pieces add up to, by name: indices of pieces, and where each is added.
        beside: messages, the kernels that hide them, and the pass of both.
        numbers: by name, of each row: sizes of the pipeline, counts and choices.
    """

    work: Work
    sums: dict[str, tuple[np.ndarray, np.ndarray]]
    beside: tuple[np.ndarray, np.ndarray, np.ndarray]
    numbers: dict[str, Any]


for _noun in (StepTime, StepTable):
    jax.tree_util.register_dataclass(_noun, [f.name for f in fields(_noun)], [])


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
      out to wait for the stages behind it: see `_one_f_one_b`. Of equal stages it is
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


def table_steps(table: StepTable, model: CostModel, parameters: StepParameters) -> StepTime:
    """Time of one step of each job of a table, and its parts; see `closed_form_step`.

    Args:
        table: of `step_table`.
        model: the machine.
        parameters: of framework and cluster.

    Returns:
        The steps, each part (rows,).
    """
    time_us = cost_us(model, table.work)
    numbers = _Rows(**table.numbers)
    sums = {
        name: jnp.zeros(shape).reshape(-1).at[to].add(time_us[which]).reshape(shape)
        for name, shape in _shapes(numbers).items()
        for which, to in [table.sums[name]]
    }
    message, kernel, to = table.beside
    hidden_us = parameters.overlap_share * jnp.minimum(time_us[message], time_us[kernel])
    beside_us = time_us[message] - hidden_us + parameters.overlap_slowdown * hidden_us
    shape = sums["messages"].shape
    sums["messages"] = sums["messages"].reshape(-1).at[to].add(beside_us).reshape(shape)
    return _steps(numbers, sums, model, parameters)


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
        pieces, laid = _layout([msgspec.structs.replace(job, **values)])
        table = _table(pack_traced_work(pieces), np.arange(len(pieces)), laid)
        return jax.tree.map(lambda part: part[0], table_steps(table, model, parameters))

    return jax.jit(step)


# The pieces of jobs, and what they belong to
# ---------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class _Rows:
    """Numbers of the jobs, (rows,) but where noted."""

    schedule: Any
    stages: Any
    virtual_stages: Any
    micro_batches: Any
    ranks: Any
    buckets: Any
    overlap_gradients: Any
    overlap_parameters: Any
    blocks: Any  # (rows, stages, kinds of block) in each stage
    kernels: Any  # (rows, kinds of block, 2) of a block's pass forward and backward
    collectives: Any  # the same


def _shapes(rows: _Rows) -> dict[str, tuple[int, ...]]:
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


def _layout(jobs: Sequence[Job]) -> tuple[list[Piece], tuple[_Layout, _Rows]]:
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

    rows = _Rows(
        schedule=np.array([_SCHEDULES.index(job.schedule) for job in jobs]),
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


def _table(work: Work, piece_of: np.ndarray, laid: tuple[_Layout, _Rows]) -> StepTable:
    layout, rows = laid
    pairs = {
        name: np.array(layout.places.get(name, []), int).reshape(-1, 2) for name in _shapes(rows)
    }
    beside = np.array(layout.beside, int).reshape(-1, 3)
    return StepTable(
        work,
        {name: (piece_of[pair[:, 0]], pair[:, 1]) for name, pair in pairs.items()},
        (piece_of[beside[:, 0]], piece_of[beside[:, 1]], beside[:, 2]),
        {field.name: getattr(rows, field.name) for field in fields(_Rows)},
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
    found[:, _DENSE] = dense.reshape(-1, stages).sum(0)
    found[:, _EXPERTS] = (layers - dense).reshape(-1, stages).sum(0)
    found[0, _EMBEDDING] = found[-1, _HEAD] = 1
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


# The step from the sums
# ---------------------------------------------------------------------------------------


def _steps(
    rows: _Rows, sums: dict[str, Array], model: CostModel, parameters: StepParameters
) -> StepTime:
    batches = jnp.asarray(rows.micro_batches)
    held = np.arange(rows.blocks.shape[1]) < rows.stages[:, None]
    each = {
        name: jnp.where(held[:, :, None], values, 0.0)
        for name, values in _stage_passes(rows, sums, parameters).items()
    }
    waiting = each["device"] - each["kernels"]
    forward, backward = (each["pass"][..., way] for way in range(2))
    weights = each["of_weights"].sum(-1)
    slowest = jnp.argmax(jnp.where(held, forward + backward, -1.0), axis=1)

    def of_slowest(values: Array) -> Array:
        return jnp.take_along_axis(values, slowest[:, None], axis=1)[:, 0]

    message_us = sums["stage"] + jnp.where(rows.stages > 1, parameters.message_us, 0.0)
    hideable_us = jnp.minimum(each["exchanges"], each["kernels"]).sum(-1)
    hidden = jnp.asarray(parameters.overlap_share * hideable_us)
    passes = _Passes(forward, backward, weights, hidden, held, of_slowest)
    steady_us, total_us = _pipeline(rows, batches, passes, jnp.zeros_like(message_us))
    bubble_us = total_us - steady_us
    _, total_us = _pipeline(rows, batches, passes, message_us)
    pipeline_us = total_us - steady_us - bubble_us

    # The gradients of a stage are ready before those of the stages before it.
    before_us = jnp.cumsum(jnp.where(held, backward + message_us[:, None], 0.0), axis=1)
    end_us = total_us[:, None] - before_us + backward + message_us[:, None]
    share = rows.overlap_gradients[:, None] * parameters.overlap_share
    sent_us = _not_hidden(sums["gradients"], rows.buckets[:, None], backward * share, parameters)
    summed_us = jnp.max(jnp.where(held, end_us + sent_us, -jnp.inf), axis=1) + sums["tied"]
    optimizer_us = sums["optimizer"].max(axis=1)
    share = rows.overlap_parameters[:, None] * parameters.overlap_share
    gathered_us = _not_hidden(sums["weights"], rows.buckets[:, None], forward * share, parameters)
    gathered_us = gathered_us.max(axis=1)

    nodes = jnp.maximum(rows.ranks / jnp.asarray(model.device.gpus_per_node), 1.0)
    alone_us = summed_us + optimizer_us + gathered_us + parameters.step_us
    straggler_us = alone_us * parameters.straggler_share * jnp.log2(nodes)
    computation_us = batches * of_slowest(each["kernels"].sum(-1))
    communication_us = batches * of_slowest(waiting.sum(-1))
    host_us = batches * of_slowest((each["pass"] - each["device"]).sum(-1)) + parameters.step_us
    # What dualpipe hides, it hides of the communication.
    communication_us += steady_us - batches * of_slowest(forward + backward)
    return StepTime(
        step_us=alone_us + straggler_us,
        computation_us=computation_us,
        communication_us=communication_us,
        host_us=host_us,
        bubble_us=bubble_us,
        pipeline_us=pipeline_us,
        data_us=summed_us - total_us + gathered_us,
        optimizer_us=optimizer_us,
        straggler_us=straggler_us,
    )


def _stage_passes(
    rows: _Rows, sums: dict[str, Array], parameters: StepParameters
) -> dict[str, Array]:
    """(rows, stages, 2) forward and backward pass of a micro-batch through each stage."""

    def of_stages(values) -> Array:
        return jnp.einsum("rsb,rbw->rsw", rows.blocks, values)

    each = {name: of_stages(sums[name]) for name in ("kernels", "of_weights", "exchanges")}
    device = each["kernels"] + of_stages(sums["messages"]) + _gathered(rows, sums, parameters)
    kernels, collectives = of_stages(rows.kernels), of_stages(rows.collectives)
    return {**each, "device": device, "pass": pass_us(parameters, device, kernels, collectives)}


# Kinds of block, forward and backward.
_GATHERED = np.array([[[1.0, 1.0], [1.0, 1.0], [0.0, 1.0], [1.0, 0.0]]])
_SCATTERED = np.array([[[0.0, 1.0]]])


def _gathered(rows: _Rows, sums: dict[str, Array], parameters: StepParameters) -> Array:
    """(rows, stages, 2) weights gathered and gradients scattered unit by unit, not hidden.

    Those of a unit go beside the layer before or after it. What a pass used last is not gathered
    again: the output layer backward, the embedding forward. As backward turns to forward only the
    embedding is beside the gradients of the first layers and the gather of the next ones.
    """
    gradients, weights = rows.overlap_gradients[:, None], rows.overlap_parameters[:, None]
    gather = sums["gathers"][:, :, None] * _GATHERED
    scatter = sums["scatters"][:, :, None] * _SCATTERED
    pass_us = sums["kernels"] + sums["messages"]
    layer_us = pass_us[:, :_EMBEDDING]
    beside_us = jnp.concatenate([layer_us, *[layer_us.max(axis=1, keepdims=True)] * 2], axis=1)
    hidden = jnp.minimum(gather * weights[..., None] + scatter * gradients[..., None], beside_us)
    exposed = jnp.einsum("rsb,rbw->rsw", rows.blocks, gather + scatter)
    hidden = jnp.einsum("rsb,rbw->rsw", rows.blocks, hidden)

    first = rows.blocks[:, :, _EMBEDDING]
    scattered, gathered = (
        sums[name][:, :_EMBEDDING].max(axis=1, keepdims=True) for name in ("scatters", "gathers")
    )
    embedded = sums["scatters"][:, _EMBEDDING, None]
    turn = gradients * (scattered + first * embedded) + weights * first * gathered
    embedding_us = pass_us[:, _EMBEDDING].sum(axis=1)[:, None]
    turn = jnp.maximum(turn - first * embedding_us, 0.0)
    hidden -= jnp.minimum(turn[:, :, None] / 2, hidden)
    kept = parameters.overlap_share * (1.0 - parameters.overlap_slowdown)
    return exposed - kept * hidden


@dataclass(frozen=True, eq=False)
class _Passes:
    """(rows, stages) times of passes; `of_slowest` picks (rows,) the stage that takes longest."""

    forward: Array
    backward: Array
    weights: Array
    hidden: Array
    held: Any
    of_slowest: Any


def _pipeline(
    rows: _Rows, batches: Array, passes: _Passes, message_us: Array
) -> tuple[Array, Array]:
    """(rows,) all passes of the slowest stage, and the pipeline, by the schedule's formula."""
    both = passes.forward + passes.backward
    slowest_us = passes.of_slowest(both)
    others_us = both.sum(axis=1) - slowest_us
    # Of the weight parts that the slowest stage puts off, the stages before it fill their waiting.
    weights_us = passes.of_slowest(passes.weights)
    inputs_us = passes.backward - passes.weights
    forward_us, back_us = (
        way.sum(axis=1) - passes.of_slowest(way) for way in (passes.forward, inputs_us)
    )
    filled_us = rows.stages * weights_us - passes.weights[:, 0]
    split_us = forward_us + jnp.maximum(back_us - filled_us, 0.0)
    pair_us = slowest_us - passes.of_slowest(passes.hidden)
    tail_us = pair_us + jnp.sum(passes.backward - 3.0 * passes.weights, axis=1) / rows.stages
    once_us, apart_us = (
        sum(reduce(way, axis=1) for way in (passes.forward, passes.backward))
        for reduce in (jnp.sum, jnp.max)
    )
    others = rows.stages - 1
    again = jnp.minimum(_again(batches, rows.stages), others)
    steady_us = batches * slowest_us
    total_us = _one_f_one_b(rows, batches, passes, message_us)
    for name, steady, total, messages in (
        ("gpipe", steady_us, once_us + (batches - 1) * apart_us, 2 * others),
        (
            "interleaved",
            steady_us,
            steady_us + others_us / rows.virtual_stages,
            2 * (rows.stages * rows.virtual_stages - 1),
        ),
        ("zero-bubble", steady_us, steady_us + split_us, 2 * (others + again)),
        (
            "dualpipe",
            batches * pair_us,
            batches * pair_us + (rows.stages / 2 - 1) * tail_us,
            others * (batches / rows.stages + 1),
        ),
    ):
        here = rows.schedule == _SCHEDULES.index(name)
        steady_us = jnp.where(here, steady, steady_us)
        total_us = jnp.where(here, total + messages * message_us, total_us)
    return steady_us, total_us


def _one_f_one_b(rows: _Rows, batches: Array, passes: _Passes, message_us: Array) -> Array:
    """(rows,) the longest path through 1F1B.

    It goes to a stage, does that stage's m forward and backward passes, and comes back. On the way
    it may follow a micro-batch to the last stage and back, instead of the n - 1 forward passes of
    the warm-up, or of the n - 1 backward passes at the end, or again and again of n - 1 of both,
    with n the stages from this one on.
    """
    held, batches, message_us = passes.held, batches[:, None], message_us[:, None]
    both = passes.forward + passes.backward
    hop_us = jnp.where(held, both + 2 * message_us, 0.0)
    to_us = jnp.cumsum(hop_us, axis=1) - hop_us
    left = jnp.where(held, rows.stages[:, None] - np.arange(held.shape[1]), 1.0)
    beyond_us = both.sum(axis=1, keepdims=True) - jnp.cumsum(both, axis=1)
    beyond_us = beyond_us + 2 * (left - 1) * message_us
    skipped = jnp.minimum(left, batches) - 1
    begin_us, end_us = (beyond_us - skipped * way for way in (passes.forward, passes.backward))
    between_us = jnp.maximum(beyond_us - (left - 1) * both, 0.0)
    # With few micro-batches warm-up and end are one.
    detour_us = jnp.where(
        batches > left,
        jnp.maximum(begin_us, 0.0) + jnp.maximum(end_us, 0.0),
        jnp.maximum(jnp.maximum(begin_us, end_us), 0.0),
    )
    times = jnp.maximum(_again(batches, left) / jnp.maximum(left - 1, 1.0) - 1, 0.0)
    path_us = to_us + batches * both + detour_us + times * between_us
    return jnp.max(jnp.where(held, path_us, -jnp.inf), axis=1)


def _again(batches: Array, stages: Array) -> Array:
    """How many of the micro-batches but the first fill stages that another has emptied."""
    return (batches - 1) - jnp.ceil((batches - 1) / stages)


def _not_hidden(bucket_us: Array, buckets, beside_us: Array, parameters: StepParameters) -> Array:
    """What of several messages, ready one after another during a pass, is left after it.

    The last of n is ready at the end of the pass, the first after an n-th of it.
    """
    all_us = bucket_us * buckets
    left_us = jnp.maximum(all_us - beside_us * (buckets - 1) / buckets, bucket_us)
    left_us = jnp.where(beside_us > 0, left_us, all_us)
    return left_us + parameters.overlap_slowdown * (all_us - left_us)
