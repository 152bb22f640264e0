"""Memory of many jobs at once, as arrays: what every rank of their pipelines holds, by part.

Parameters cost 18 bytes each with Adam in mixed precision: 2 for the weight, 4 for the gradient,
12 for a copy in 32 bits and two moments; with a sharded optimizer 6 + 12 / ranks
(`NVIDIA/Megatron-LM`, `megatron/training/theoretical_memory_usage.py`). Activations are counted
tensor by tensor (`_saved_tensors.py`), experts with them. Measured: 43 runs on eight B200
(`benchmarks/_jobs_simumax.py`).

A rank holds chunks of blocks. What a block keeps depends on the sizes of a micro-batch, which
chunks are kept at once on the schedule, and what is spread over replicas on the sharding: each is
worked out once for all jobs that are alike in it.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from itertools import product

import numpy as np

from jaxperf.config import Job, JobColumns, by_parts
from jaxperf.workload._parameters import (
    ParameterCounts,
    dense_layers,
    embedding_parameters,
    head_parameters,
    layer_parameters,
)
from jaxperf.workload._pieces import activation_bytes, tokens_between
from jaxperf.workload._schedules import PassKind, schedule_passes, virtual_stage
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
ALLOCATED = (
    "weights_bytes",
    "gradients_bytes",
    "optimizer_bytes",
    "activations_bytes",
    "sharding_bytes",
    "temporary_bytes",
    "placeholder_bytes",
    "message_bytes",
    "workspace_bytes",
)
"""The parts of what is in use; `StageMemory` says what each is."""

_DENSE, _EXPERTS, _EMBEDDING, _HEAD = range(4)
_LEVELS = ("none", "zero1", "zero2", "zero3")
# States of a pipeline that are compared at once.
_MOST_ELEMENTS = 4_000_000


@dataclass(frozen=True, eq=False)
class MemoryColumns:
    """Memory of the ranks of jobs at the time that each holds most; (rows, stages) each.

    Attributes:
        held: whether the job has that stage.
        layers: of the stage.
        parameters: of the stage, before sharding.
        parts: what is in use, by the names of `ALLOCATED`.
    """

    held: np.ndarray
    layers: np.ndarray
    parameters: np.ndarray
    parts: dict[str, np.ndarray]

    @property
    def fragmentation_bytes(self) -> np.ndarray:
        """Held by the allocator, and not in use."""
        return RESERVED_SHARE * np.sum(list(self.parts.values()), axis=0)

    @property
    def peak_bytes(self) -> np.ndarray:
        """(rows,) what the rank that needs most needs in all."""
        total = (1.0 + RESERVED_SHARE) * np.sum(list(self.parts.values()), axis=0)
        return np.max(np.where(self.held, total, 0.0), axis=1)


def peak_memory_bytes(jobs: JobColumns) -> np.ndarray:
    """What the rank that needs most needs in all, for each of many jobs; see `memory_columns`.

    Args:
        jobs: that can be (`check_job`).

    Returns:
        (rows,) bytes.
    """
    sizes, found = _block_sizes(jobs), np.empty(jobs.rows)
    # As many columns as the longest pipeline has stages would be mostly empty.
    shape = np.stack([jobs.array("pipeline_parallel"), jobs.array("virtual_stages")], axis=1)
    for each in np.unique(shape, axis=0):
        rows = np.flatnonzero((shape == each).all(axis=1))
        found[rows] = _memory(jobs.take(rows), sizes.take(rows)).peak_bytes
    return found


def memory_columns(jobs: JobColumns) -> MemoryColumns:
    """Memory that many jobs need.

    Args:
        jobs: that can be (`check_job`).

    Returns:
        For each job and stage of its pipeline the memory of one of its ranks.

    Raises:
        ConfigError: a schedule is not possible.

    Example:
        >>> from jaxperf.config import job_columns
        >>> base = Job(layers=4, hidden_size=4096, attention_heads=32, vocabulary_size=32000,
        ...            sequence_length=4096, pipeline_parallel=2, micro_batches=8)
        >>> memory = memory_columns(job_columns(base, {"micro_batch_size": [1, 2]}))
        >>> (memory.parts["activations_bytes"] / 2**30).round(1).tolist()
        [[2.0, 1.3], [4.0, 2.6]]
    """
    return _memory(jobs, _block_sizes(jobs))


def _memory(jobs: JobColumns, sizes: "_BlockSizes") -> MemoryColumns:
    chunks = _padded(*by_parts(jobs, _blocks_of_chunks))
    blocks = chunks.sum(axis=2)
    kept, added = sizes.bytes_of("kept"), sizes.bytes_of("added")
    held_bytes, added_bytes = _most_held(jobs, chunks, kept, added)
    of_block = _block_parameters(jobs)
    parameters = np.einsum("rpb,rbk->rpk", blocks, of_block)
    return MemoryColumns(
        held=blocks.sum(axis=2) > 0,
        layers=blocks[:, :, : _EXPERTS + 1].sum(axis=2),
        parameters=parameters.sum(axis=2),
        parts={
            **_states(jobs, parameters),
            "sharding_bytes": _sharding_bytes(jobs, blocks, of_block, parameters.sum(axis=2)),
            "activations_bytes": held_bytes,
            "temporary_bytes": added_bytes,
            "placeholder_bytes": _placeholders(jobs, blocks, sizes),
            **_beside(jobs, chunks),
        },
    )


# What a rank holds
# ---------------------------------------------------------------------------------------


def _blocks_of_chunks(job: Job) -> np.ndarray:
    """(ranks, chunks, kinds of block) how many of each a chunk has."""
    stages = job.pipeline_parallel
    whole = stages * job.virtual_stages
    held = job.stage_layers or (job.layers // whole,) * whole
    first = np.cumsum(held) - held
    chunks = 2 if job.schedule == "dualpipe" else job.virtual_stages
    found = np.zeros((stages, chunks, 4))
    for rank, chunk in product(range(stages), range(chunks)):
        at = virtual_stage(job.schedule, stages, rank, chunk)
        dense = min(max(dense_layers(job) - first[at], 0), held[at])
        found[rank, chunk] = dense, held[at] - dense, at == 0, at == whole - 1
    return found


def _padded(parts: list[np.ndarray], part_of_row: np.ndarray) -> np.ndarray:
    """(rows, ranks, chunks, kinds) the parts of all jobs, with zeros after what a job lacks."""
    most = np.max([part.shape for part in parts], axis=0)
    every = np.zeros((len(parts), *most))
    for place, part in enumerate(parts):
        every[(place, *map(slice, part.shape))] = part
    return every[part_of_row]


@dataclass(frozen=True, slots=True)
class _BlockMemory:
    """A kind of block: bytes kept for its backward pass, and added by that; shapes of matrices."""

    kept: float = 0.0
    added: float = 0.0
    shapes: frozenset[tuple[float, ...]] = frozenset()


@dataclass(frozen=True, slots=True)
class _BlockSizes:
    """What each kind of block holds, in the order of kinds: its different parts, and which of them
    each job has."""

    kinds: list[tuple[list[_BlockMemory], np.ndarray]]

    def take(self, rows: np.ndarray) -> "_BlockSizes":
        return _BlockSizes([(parts, part_of_row[rows]) for parts, part_of_row in self.kinds])

    def bytes_of(self, name: str) -> np.ndarray:
        """(rows, kinds of block)"""
        return np.stack(
            [np.array([getattr(part, name) for part in parts])[row] for parts, row in self.kinds], 1
        )


def _block_sizes(jobs: JobColumns) -> _BlockSizes:
    part_of = (_dense_layer, _layer_of_experts, embedding_part, head_part)
    return _BlockSizes([by_parts(jobs, partial(_block_memory, part)) for part in part_of])


def _block_memory(part_of, job: Job) -> _BlockMemory:
    part, recompute = part_of(job), job.recompute == "full"
    if part is None:
        return _BlockMemory()
    shapes = frozenset(w.shape for w in weights_of(part) if len(w.shape) == 2)
    return _BlockMemory(kept_bytes(part, recompute), backward_peak_bytes([part], recompute), shapes)


def _dense_layer(job: Job) -> Part | None:
    return layer_part(job, experts=False) if dense_layers(job) else None


def _layer_of_experts(job: Job) -> Part | None:
    return None if job.experts is None else layer_part(job, experts=True)


# Activations
# ---------------------------------------------------------------------------------------


def _most_held(
    jobs: JobColumns, chunks: np.ndarray, kept: np.ndarray, added: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """(rows, ranks) activations kept when a rank holds most, and what its backward pass adds."""
    kept_bytes_of = np.einsum("rpcb,rb->rpc", chunks, kept)
    added_bytes_of = _backward_bytes(chunks, kept, added)
    parts, part_of_row = by_parts(jobs, _held_at_once)
    found = np.zeros((2, *chunks.shape[:2]))
    # Jobs with more micro-batches than fill a pipeline share the states of a full one.
    different = {id(part): part for part in parts}
    place_of_row = np.array([id(part) for part in parts])[part_of_row]
    for place, (counts, backward) in different.items():
        ranks, states, held = counts.shape
        rows = np.flatnonzero(place_of_row == place)
        step = max(1, _MOST_ELEMENTS // (ranks * states))
        for some in (rows[at : at + step] for at in range(0, len(rows), step)):
            here = kept_bytes_of[some, :ranks, :held]
            kept_then = np.einsum("psc,rpc->rps", counts, here)
            more = added_bytes_of[some, :ranks, :held]
            # A state without a backward pass under way reads the column after the last.
            more = np.concatenate([more, np.zeros((len(some), ranks, 1))], axis=2)
            added_then = np.take_along_axis(more, backward[None], axis=2)
            best = np.argmax(kept_then + added_then, axis=2)[:, :, None]
            for which, bytes_then in enumerate((kept_then, added_then)):
                found[which, some, :ranks] = np.take_along_axis(bytes_then, best, axis=2)[..., 0]
    return found[0], found[1]


def _backward_bytes(chunks: np.ndarray, kept: np.ndarray, added: np.ndarray) -> np.ndarray:
    """(rows, ranks, chunks) the most that a backward pass of a chunk adds; `backward_peak_bytes`.

    Of layers that are alike, the one that comes first adds most: it has freed what it kept when the
    next one starts.
    """
    most, freed = np.zeros(chunks.shape[:3]), np.zeros(chunks.shape[:3])
    for kind in (_HEAD, _EXPERTS, _DENSE, _EMBEDDING):
        count = chunks[..., kind]
        adds = added[:, None, None, kind] - freed
        most = np.where(count > 0, np.maximum(most, adds), most)
        freed = freed + count * kept[:, None, None, kind]
    return most


def _held_at_once(job: Job) -> tuple[np.ndarray, np.ndarray]:
    most = job.micro_batches if job.schedule == "gpipe" else 4 * job.pipeline_parallel
    batches = min(job.micro_batches, most)
    return _held_states(job.schedule, job.pipeline_parallel, batches, job.virtual_stages)


@lru_cache(maxsize=256)
def _held_states(
    schedule: str, stages: int, micro_batches: int, virtual_stages: int
) -> tuple[np.ndarray, np.ndarray]:
    """States of each rank at which it may hold most.

    Returns:
        (ranks, states, chunks) micro-batches of which each chunk keeps activations; and (ranks,
        states) the chunk whose backward pass is under way, or the number of chunks for none.
    """
    orders = schedule_passes(schedule, stages, micro_batches, virtual_stages)
    chunks = 2 if schedule == "dualpipe" else virtual_stages
    ranks = [_states_of_order(order, chunks) for order in orders]
    most = max(len(states) for states in ranks)
    # The state of a rank that holds nothing fills what it lacks.
    every = np.zeros((stages, most, chunks + 1), int)
    every[:, :, chunks] = chunks
    for rank, states in enumerate(ranks):
        every[rank, : len(states)] = states
    return every[:, :, :chunks], every[:, :, chunks]


def _states_of_order(order, chunks: int) -> np.ndarray:
    """(states, chunks + 1) counts of chunks kept, and which chunk goes backward; none that holds
    no more of anything than another does."""
    kept, seen = [0] * chunks, {}
    for each in order:
        if each.kind == PassKind.FORWARD:
            kept[each.chunk] += 1
        backward = each.kind in (PassKind.BACKWARD, PassKind.BACKWARD_INPUT)
        seen[(*kept, each.chunk if backward else chunks)] = None
        if each.kind in (PassKind.BACKWARD, PassKind.BACKWARD_WEIGHT):
            kept[each.chunk] -= 1
    states = np.array(list(seen))
    less = (states[:, None, :chunks] <= states[None, :, :chunks]).all(axis=2)
    less &= states[:, None, chunks] == states[None, :, chunks]
    np.fill_diagonal(less, False)
    return states[~less.any(axis=1)]


# Weights and their states
# ---------------------------------------------------------------------------------------


def _block_parameters(jobs: JobColumns) -> np.ndarray:
    """(rows, kinds of block, 2) parameters of each kind of block, of experts apart."""

    def counts(job: Job) -> list[tuple[float, float]]:
        experts = ParameterCounts() if job.experts is None else layer_parameters(job, experts=True)
        dense = layer_parameters(job, experts=False)
        every = (dense, experts, embedding_parameters(job), head_parameters(job))
        return [(each.dense, each.expert) for each in every]

    parts, part_of_row = by_parts(jobs, counts)
    return np.array(parts, float)[part_of_row]


def _states(jobs: JobColumns, parameters: np.ndarray) -> dict[str, np.ndarray]:
    """Weights, gradients and optimizer states that a rank keeps."""
    whole, gradient_bytes = parameters.sum(axis=2), _numbers(jobs, lambda job: job.gradient_bytes)
    each, level = _numbers(jobs, activation_bytes), _numbers(jobs, _level)
    ranks = jobs.array("data_parallel") * jobs.array("context_parallel")
    experts = parameters[:, :, 1] * jobs.array("expert_parallel")[:, None]
    spread = (parameters[:, :, 0] + experts) / ranks[:, None]

    def held(least: int) -> np.ndarray:
        return np.where((level >= least)[:, None], spread, whole)

    return {
        "weights_bytes": each[:, None] * held(3),
        "gradients_bytes": gradient_bytes[:, None] * held(2),
        "optimizer_bytes": _numbers(jobs, _optimizer_bytes)[:, None] * held(1),
    }


def _optimizer_bytes(job: Job) -> float:
    """Of a parameter: two moments for Adam and one for SGD, and a copy of weights below 32 bits."""
    moments = 8.0 if job.optimizer == "adam" else 4.0
    return moments + (4.0 if activation_bytes(job) < 4 else 0.0)


def _sharding_bytes(
    jobs: JobColumns, blocks: np.ndarray, of_block: np.ndarray, whole: np.ndarray
) -> np.ndarray:
    """Whole layers that a rank holds for a time, though it keeps a share of them.

    Fully sharded, those that compute and those gathered ahead, each with its gradient until that
    is spread, and embedding and output layer, which stay gathered; with gradients sharded alone,
    one bucket of gradients.
    """
    level, gradient_bytes = _numbers(jobs, _level), jobs.array("gradient_bytes")
    each = _numbers(jobs, activation_bytes)
    bucket = gradient_bytes[:, None] * whole / jobs.array("gradient_buckets")[:, None]
    of_block = of_block.sum(axis=2)[:, None, :]
    layers = blocks[:, :, : _EXPERTS + 1]
    largest = np.max(np.where(layers > 0, of_block[:, :, : _EXPERTS + 1], 0.0), axis=2)
    ahead = np.minimum(1 + jobs.array("prefetch")[:, None], layers.sum(axis=2))
    ends = (blocks * of_block)[:, :, _EMBEDDING:].sum(axis=2)
    gathered = each[:, None] * (largest * ahead + ends) + gradient_bytes[:, None] * largest
    level = level[:, None]
    return np.where(level == 3, gathered, np.where(level == 2, bucket, 0.0))


def _placeholders(jobs: JobColumns, blocks: np.ndarray, sizes: _BlockSizes) -> np.ndarray:
    """Bytes of one matrix of each shape that is multiplied, where gradients are summed in place."""
    kinds = [_DENSE, _EXPERTS, _HEAD]
    rows = np.stack([sizes.kinds[kind][1] for kind in kinds], axis=1)
    different, of_row = np.unique(rows, axis=0, return_inverse=True)
    # By which of the kinds a rank has.
    elements = np.array(
        [
            [_elements(sizes, kinds, row, has) for has in product((False, True), repeat=3)]
            for row in different
        ]
    )
    has = (blocks[:, :, kinds] > 0) @ np.array([4, 2, 1])
    size = _numbers(jobs, lambda job: activation_bytes(job) if _level(job) < 2 else 0.0)
    return size[:, None] * elements[of_row.reshape(-1, 1), has]


def _elements(sizes: _BlockSizes, kinds: list[int], row: np.ndarray, has: Sequence[bool]) -> float:
    shapes = {
        shape
        for kind, part, here in zip(kinds, row, has, strict=True)
        if here
        for shape in sizes.kinds[kind][0][part].shapes
    }
    return sum(rows * columns for rows, columns in shapes)


def _beside(jobs: JobColumns, chunks: np.ndarray) -> dict[str, np.ndarray]:
    """The gradient sent to the stage before, and workspaces of libraries."""

    def sent(job: Job) -> float:
        return tokens_between(job) * job.hidden_size * activation_bytes(job)

    several = jobs.array("pipeline_parallel")[:, None] > 1
    # A rank all of whose chunks start with the embedding has no stage before it.
    held = chunks.sum(axis=3) > 0
    sends = several & ~np.all(~held | (chunks[..., _EMBEDDING] > 0), axis=2)
    streams = 1 + GROUPED_STREAMS * (chunks[..., _EXPERTS].sum(axis=2) > 0)
    return {
        "message_bytes": np.where(sends, _numbers(jobs, sent)[:, None], 0.0),
        "workspace_bytes": streams * float(MULTIPLY_WORKSPACE_BYTES),
    }


def _level(job: Job) -> int:
    return _LEVELS.index(job.sharding)


def _numbers(jobs: JobColumns, number_of) -> np.ndarray:
    """(rows,) a number of each job."""
    parts, part_of_row = by_parts(jobs, number_of)
    return np.array(parts, float)[part_of_row]
