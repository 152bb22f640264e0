"""Memory of a job: what each rank of the pipeline holds, by part, at the time that it holds most.

Parameters cost 18 bytes each with Adam in mixed precision: 2 for the weight, 4 for the gradient,
12 for a copy in 32 bits and two moments; with a sharded optimizer 6 + 12 / ranks
(`NVIDIA/Megatron-LM`, `megatron/training/theoretical_memory_usage.py`). Activations are counted
tensor by tensor (`_saved_tensors.py`), experts with them. Measured: 43 runs on eight B200
(`benchmarks/_jobs_simumax.py`).
"""

from dataclasses import dataclass
from functools import lru_cache

from jaxperf.config import Job
from jaxperf.workload._parameters import (
    ParameterCounts,
    embedding_parameters,
    head_parameters,
    layer_parameters,
)
from jaxperf.workload._pieces import activation_bytes, tokens_between
from jaxperf.workload._schedules import Order, PassKind, schedule_passes, virtual_stage
from jaxperf.workload.memory._activations import (
    Part,
    backward_peak_bytes,
    kept_bytes,
    weights_of,
)
from jaxperf.workload.memory._saved_tensors import embedding_part, head_part, layer_part

RESERVED_SHARE = 0.05
"""What the allocator holds beyond what is in use, as a share of it: the mean of 43 measured runs,
which range from 0.03 to 0.09."""
MULTIPLY_WORKSPACE_BYTES = 32 * 2**20
"""Of a matrix library on one stream (`NVIDIA/TransformerEngine`, `module/base.py`)."""
GROUPED_STREAMS = 4
"""Streams, each with a workspace, on which the multiplies of experts run (there)."""


@dataclass(frozen=True, slots=True)
class StageMemory:
    """Memory of each rank of one pipeline stage, at the time that it holds most.

    Attributes:
        stage: rank along the pipeline.
        layers: that it holds.
        parameters: that it holds, before sharding over data-parallel ranks.
        weights_bytes: its share of the weights.
        gradients_bytes: its share of the gradients, as they are summed.
        optimizer_bytes: its share of the 32-bit weights and the moments.
        activations_bytes: kept for backward passes to come, of all micro-batches in flight.
        sharding_bytes: layers gathered, and gradients not yet spread, fully or partly sharded.
        temporary_bytes: what the backward pass under way holds besides, less what it has freed.
        placeholder_bytes: a gradient that stands for the one that a multiply has added to the sum,
            for each shape of weights; where gradients are summed in place.
        message_bytes: gradient last sent to the stage before.
        workspace_bytes: of libraries.
        fragmentation_bytes: held by the allocator, and not in use.
    """

    stage: int
    layers: int
    parameters: float
    weights_bytes: float
    gradients_bytes: float
    optimizer_bytes: float
    activations_bytes: float
    sharding_bytes: float
    temporary_bytes: float
    placeholder_bytes: float
    message_bytes: float
    workspace_bytes: float
    fragmentation_bytes: float

    @property
    def allocated_bytes(self) -> float:
        """What is in use at the peak, as `torch.cuda.max_memory_allocated` counts it."""
        return (
            self.weights_bytes
            + self.gradients_bytes
            + self.optimizer_bytes
            + self.activations_bytes
            + self.sharding_bytes
            + self.temporary_bytes
            + self.placeholder_bytes
            + self.message_bytes
            + self.workspace_bytes
        )

    @property
    def total_bytes(self) -> float:
        """With what the allocator holds besides; the driver's own memory comes on top."""
        return self.allocated_bytes + self.fragmentation_bytes


@dataclass(frozen=True, slots=True)
class JobMemory:
    """Memory of the ranks of a job, by pipeline stage; the ranks of a stage are alike.

    Attributes:
        stages: in order.
    """

    stages: tuple[StageMemory, ...]

    @property
    def peak(self) -> StageMemory:
        """The stage that needs most."""
        return max(self.stages, key=lambda stage: stage.total_bytes)


def job_memory(job: Job) -> JobMemory:
    """Memory that a job needs, by stage and by part.

    Args:
        job: a job that can be (`check_job`).

    Returns:
        For each stage of the pipeline the memory of one of its ranks.

    Raises:
        ConfigError: its schedule is not possible.

    Example:
        >>> job = Job(layers=4, hidden_size=4096, attention_heads=32, vocabulary_size=32000,
        ...           sequence_length=4096, pipeline_parallel=2, micro_batches=8)
        >>> memory = job_memory(job)
        >>> [round(stage.activations_bytes / 2**30, 2) for stage in memory.stages]
        [2.0, 1.31]
    """
    return JobMemory(tuple(_stage(job, rank) for rank in range(job.pipeline_parallel)))


def _stage(job: Job, rank: int) -> StageMemory:
    chunks = _chunks(job, rank)
    layers = [layer for chunk in chunks for layer in chunk.layers]
    each, counts = activation_bytes(job), ParameterCounts()
    for chunk in chunks:
        counts += chunk.parameters
    kept, extra = _peak(job, rank, chunks)
    weights, gradients, optimizer = _shares(job, counts)
    sends = job.pipeline_parallel > 1 and not all(chunk.embeds for chunk in chunks)
    in_place = job.sharding in ("none", "zero1")
    streams = 1 + GROUPED_STREAMS * any(_has_experts(job, layer) for layer in layers)
    parts = {
        "weights_bytes": each * weights,
        "gradients_bytes": job.gradient_bytes * gradients,
        "optimizer_bytes": _optimizer_bytes(job) * optimizer,
        "activations_bytes": kept,
        "sharding_bytes": _sharding_bytes(job, chunks, counts),
        "temporary_bytes": extra,
        "placeholder_bytes": each * _shapes(chunks) if in_place else 0.0,
        "message_bytes": tokens_between(job) * job.hidden_size * each if sends else 0.0,
        "workspace_bytes": float(streams * MULTIPLY_WORKSPACE_BYTES),
    }
    return StageMemory(
        stage=rank,
        layers=len(layers),
        parameters=counts.total,
        fragmentation_bytes=RESERVED_SHARE * sum(parts.values()),
        **parts,
    )


@dataclass(frozen=True, slots=True)
class _Chunk:
    """Consecutive layers that a rank holds, with the ends of the model where it has them."""

    layers: range
    parts: tuple[Part, ...]
    parameters: ParameterCounts
    kept_bytes: float
    backward_bytes: float
    embeds: bool
    ends: bool


def _chunks(job: Job, rank: int) -> list[_Chunk]:
    """What a rank of the pipeline holds."""
    stages = job.pipeline_parallel
    both = job.schedule == "dualpipe"
    whole = stages * job.virtual_stages
    held = job.stage_layers or (job.layers // whole,) * whole
    places = [
        virtual_stage(job.schedule, stages, rank, chunk)
        for chunk in range(2 if both else job.virtual_stages)
    ]
    return [_chunk(job, sum(held[:at]), held[at], at == 0, at == whole - 1) for at in places]


def _chunk(job: Job, first: int, layers: int, embeds: bool, ends: bool) -> _Chunk:
    of = range(first, first + layers)
    kinds = [_has_experts(job, layer) for layer in of]
    layer = {experts: layer_part(job, experts=experts) for experts in set(kinds)}
    parts = [layer[experts] for experts in kinds]
    counts = ParameterCounts()
    for experts in kinds:
        counts += layer_parameters(job, experts=experts)
    if embeds:
        parts.insert(0, embedding_part(job))
        counts += embedding_parameters(job)
    if ends:
        parts.append(head_part(job))
        counts += head_parameters(job)
    recompute = job.recompute == "full"
    return _Chunk(
        of,
        tuple(parts),
        counts,
        sum(kept_bytes(part, recompute) for part in parts),
        backward_peak_bytes(parts, recompute),
        embeds,
        ends,
    )


def _has_experts(job: Job, layer: int) -> bool:
    return job.experts is not None and layer >= job.experts.dense_layers


def _peak(job: Job, rank: int, chunks: list[_Chunk]) -> tuple[float, float]:
    """Activations in flight when a rank holds most, and what its backward pass adds then."""
    kept, most = 0.0, (0.0, 0.0)
    for each in _orders(job)[rank]:
        chunk = chunks[each.chunk]
        if each.kind == PassKind.FORWARD:
            kept += chunk.kept_bytes
        most = max(most, (kept, _added(each.kind, chunk)), key=sum)
        if each.kind in (PassKind.BACKWARD, PassKind.BACKWARD_WEIGHT):
            kept -= chunk.kept_bytes
    return most


def _added(kind: PassKind, chunk: _Chunk) -> float:
    return chunk.backward_bytes if kind in (PassKind.BACKWARD, PassKind.BACKWARD_INPUT) else 0.0


def _orders(job: Job) -> tuple[Order, ...]:
    """The passes of every rank; no more micro-batches than show the steady state."""
    most = job.micro_batches if job.schedule == "gpipe" else 4 * job.pipeline_parallel
    batches = min(job.micro_batches, most)
    return _cached_orders(job.schedule, job.pipeline_parallel, batches, job.virtual_stages)


_cached_orders = lru_cache(maxsize=64)(schedule_passes)


def _shares(job: Job, counts: ParameterCounts) -> tuple[float, float, float]:
    """Weights, gradients and optimizer states of a rank, in parameters."""
    ranks = job.data_parallel * job.context_parallel
    spread = (counts.dense + counts.expert * job.expert_parallel) / ranks
    level = ("none", "zero1", "zero2", "zero3").index(job.sharding)
    weights, gradients, optimizer = (
        spread if level >= least else counts.total for least in (3, 2, 1)
    )
    return weights, gradients, optimizer


def _optimizer_bytes(job: Job) -> float:
    """Of a parameter: two moments for Adam and one for SGD, and a copy of weights below 32 bits."""
    moments = 8.0 if job.optimizer == "adam" else 4.0
    return moments + (4.0 if activation_bytes(job) < 4 else 0.0)


def _shapes(chunks: list[_Chunk]) -> float:
    """Elements of one matrix of each shape that is multiplied."""
    shapes = {
        weight.shape
        for chunk in chunks
        for part in chunk.parts[1 if chunk.embeds else 0 :]
        for weight in weights_of(part)
        if len(weight.shape) == 2
    }
    return sum(rows * columns for rows, columns in shapes)


def _sharding_bytes(job: Job, chunks: list[_Chunk], counts: ParameterCounts) -> float:
    """Whole layers that a rank holds for a time, though it keeps a share of them.

    Fully sharded, those that compute and those gathered ahead, each with its gradient until that
    is spread, and embedding and output layer, which stay gathered; with gradients sharded alone,
    one bucket of gradients.
    """
    if job.sharding in ("none", "zero1"):
        return 0.0
    if job.sharding == "zero2":
        return job.gradient_bytes * counts.total / job.gradient_buckets
    layers = [layer for chunk in chunks for layer in chunk.layers]
    kinds = {_has_experts(job, layer) for layer in layers}
    largest = max((layer_parameters(job, experts=experts).total for experts in kinds), default=0.0)
    gathered = largest * min(1 + job.prefetch, len(layers))
    gathered += sum(embedding_parameters(job).total for chunk in chunks if chunk.embeds)
    gathered += sum(head_parameters(job).total for chunk in chunks if chunk.ends)
    return activation_bytes(job) * gathered + job.gradient_bytes * largest
