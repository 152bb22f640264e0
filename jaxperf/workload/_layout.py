"""Which part of a model each rank of a pipeline holds, and when the gradients of a part are whole.

A unit is what weights are gathered and gradients are summed by: a layer, the embedding, or the
output. Ranks along tensor, context and data parallelism do alike, so that one of each stage stands
for them all.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

from jaxperf.config import Job
from jaxperf.errors import ConfigError
from jaxperf.workload._parameters import (
    ParameterCounts,
    dense_layers,
    embedding_parameters,
    head_parameters,
    layer_parameters,
)
from jaxperf.workload._schedules import Order, PassKind, schedule_passes, virtual_stage

UnitKind = Literal["embedding", "dense", "experts", "head"]


class Unit(NamedTuple):
    """A layer, the embedding, or the output layer with the loss.

    Attributes:
        kind: which of these; layers with an ordinary feed-forward part and with experts apart.
        layer: number of the layer in the model, -1 for the others.
    """

    kind: UnitKind
    layer: int = -1

    def name_of(self, piece: str) -> str:
        """What a piece of the unit is called."""
        if self.layer >= 0:
            return f"layer {self.layer}/{piece}"
        return f"{self.kind}/{piece}" if self.kind != piece else piece


Units = tuple[Unit, ...]


@dataclass(frozen=True, slots=True)
class Layout:
    """The structure of a job, which does not depend on its sizes.

    Attributes:
        units: by rank of the pipeline and chunk, in the order of the forward pass.
        orders: passes of each rank, in order.
        buckets: by rank, units whose gradients go in one message, in the order in which they are
            whole.
    """

    units: tuple[tuple[Units, ...], ...]
    orders: tuple[Order, ...]
    buckets: tuple[tuple[Units, ...], ...]


def layout_of(job: Job) -> Layout:
    """The structure of a job.

    Args:
        job: the job.

    Returns:
        What each rank of its pipeline holds and does.

    Raises:
        ConfigError: layers do not fit stages, or the schedule does not fit the job.

    Example:
        >>> job = Job(layers=4, hidden_size=64, attention_heads=4, vocabulary_size=100,
        ...           sequence_length=128, pipeline_parallel=2)
        >>> [[unit.kind for unit in units] for (units,) in layout_of(job).units]
        [['embedding', 'dense', 'dense'], ['dense', 'dense', 'head']]
    """
    ranks = job.pipeline_parallel
    stages = _stages(job)
    chunks = 2 if job.schedule == "dualpipe" else job.virtual_stages
    units = tuple(
        tuple(stages[virtual_stage(job.schedule, ranks, rank, chunk)] for chunk in range(chunks))
        for rank in range(ranks)
    )
    orders = schedule_passes(job.schedule, ranks, job.micro_batches, job.virtual_stages)
    counts = unit_parameters(job)
    buckets = tuple(
        _buckets(job, counts, _completed(mine, order))
        for mine, order in zip(units, orders, strict=True)
    )
    return Layout(units, orders, buckets)


def unit_parameters(job: Job) -> dict[UnitKind, ParameterCounts]:
    """Parameters of each kind of unit on one rank.

    Example:
        >>> job = Job(layers=4, hidden_size=64, attention_heads=4, vocabulary_size=100,
        ...           sequence_length=128, pipeline_parallel=2)
        >>> sorted(unit_parameters(job))
        ['dense', 'embedding', 'head']
    """
    counts: dict[UnitKind, ParameterCounts] = {
        "embedding": embedding_parameters(job),
        "dense": layer_parameters(job, experts=False),
        "head": head_parameters(job),
    }
    if job.experts is not None:
        counts["experts"] = layer_parameters(job, experts=True)
    return counts


def rank_parameters(job: Job, layout: Layout, rank: int) -> ParameterCounts:
    """Parameters that a rank of the pipeline holds."""
    counts = unit_parameters(job)
    held = (counts[unit.kind] for units in layout.units[rank] for unit in units)
    return sum(held, ParameterCounts())


def needs_weights(kind: PassKind) -> bool:
    """Whether a pass multiplies by the weights; their gradient alone does not."""
    return kind is not PassKind.BACKWARD_WEIGHT


def gives_gradients(kind: PassKind, unit: Unit) -> bool:
    """Whether the gradients of a unit's weights are whole after a pass.

    The embedding has no gradient of its input, and that of its weights is not put off.
    """
    if unit.kind == "embedding":
        return kind in (PassKind.BACKWARD, PassKind.BACKWARD_INPUT)
    return kind in (PassKind.BACKWARD, PassKind.BACKWARD_WEIGHT)


def _stages(job: Job) -> list[Units]:
    """The units of each stage of the model."""
    stages = job.pipeline_parallel * job.virtual_stages
    sizes = job.stage_layers
    if sizes is None:
        if job.layers % stages:
            below = job.layers // stages * stages
            near = f"{below} or {below + stages}" if below else str(stages)
            raise ConfigError(
                f"layers do not divide into {stages} stages",
                where="layers",
                got=str(job.layers),
                expected=f"{near}, or stage_layers",
            )
        sizes = (job.layers // stages,) * stages
    if len(sizes) != stages or sum(sizes) != job.layers:
        raise ConfigError(
            "stages do not hold the layers",
            where="stage_layers",
            got=f"{len(sizes)} stages of {sum(sizes)} layers",
            expected=f"{stages} stages of {job.layers} layers",
        )
    dense = dense_layers(job)
    layers = [Unit("dense" if layer < dense else "experts", layer) for layer in range(job.layers)]
    found, first = [], 0
    for size in sizes:
        found.append(tuple(layers[first : first + size]))
        first += size
    found[0] = (Unit("embedding"), *found[0])
    found[-1] = (*found[-1], Unit("head"))
    return found


def _completed(chunks: Sequence[Units], order: Order) -> Units:
    """The units of a rank in the order in which their gradients are whole."""
    done: dict[Unit, int] = {}
    for position, each in enumerate(order):
        for unit in reversed(chunks[each.chunk]):
            if gives_gradients(each.kind, unit):
                done.pop(unit, None)
                done[unit] = position
    return tuple(done)


def _buckets(job: Job, counts: dict[UnitKind, ParameterCounts], units: Units) -> tuple[Units, ...]:
    """Runs of units with about as many parameters each, as many as the job has buckets at most."""
    total = sum(counts[unit.kind].total for unit in units)
    buckets: dict[int, list[Unit]] = {}
    before = 0.0
    for unit in units:
        size = counts[unit.kind].total
        bucket = int((before + size / 2) / total * job.gradient_buckets)
        buckets.setdefault(bucket, []).append(unit)
        before += size
    return tuple(tuple(each) for each in buckets.values())
