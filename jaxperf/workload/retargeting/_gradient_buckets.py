"""The messages in which a re-targeted job sums its gradients: where in a pass, and how large."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from jaxperf.config import Job
from jaxperf.workload._messages import gradient_messages
from jaxperf.workload._parameters import (
    ParameterCounts,
    embedding_parameters,
    head_parameters,
    layer_parameters,
)
from jaxperf.workload._pieces import Piece
from jaxperf.workload.retargeting._stages import layers_of_stage, stage_role

# What differs by less, of a layer's kernels or of a size, is the same.
_ALIKE = 0.01


@dataclass(frozen=True, slots=True)
class Sum:
    """A message of gradients, as it was recorded.

    Attributes:
        after: layers of the last backward pass that had been launched before it, with the share of
            kernels of the one that it is in; one more than there are where what follows the layers
            had begun too.
        message_bytes: its size, NaN where not known.
    """

    after: float
    message_bytes: float


@dataclass(frozen=True, slots=True)
class Bucket:
    """A message of gradients of a re-targeted job.

    Attributes:
        after: as of `Sum`.
        piece: what is sent.
    """

    after: float
    piece: Piece


def gradient_buckets(
    recorded: Job, seen: Mapping[str, Sequence[Sum]], job: Job, stage: int
) -> list[Bucket]:
    """The messages of gradients of a rank in the last backward pass of an iteration.

    As many messages as were recorded, where the recorded job says so, of layers alone or of all
    parameters as their sizes tell; else the messages of every
    layer, where those of all layers are alike; else each as large as they were recorded, as
    data-parallel wrappers fill their buckets.

    Args:
        recorded: the recorded job.
        seen: by the role of a stage, what was recorded.
        job: the other job.
        stage: of the rank.

    Returns:
        The messages; none where a rank sums its gradients with nobody, or layer by layer.
    """
    if job.sharding == "zero3" or not gradient_messages(job, ParameterCounts(1.0)):
        return []
    role = stage_role(stage, job.pipeline_parallel)
    layers = layers_of_stage(job, stage)
    had = seen.get(role) or next(iter(seen.values()), ())
    if not had or recorded.sharding == "zero3":
        parts = _parts_bytes(job, layers, role)
        return _filled(job, parts, sum(parts) / job.gradient_buckets)
    had_layers = layers_of_stage(recorded, 0 if role == "first" else -1)
    same_number = job.gradient_buckets == recorded.gradient_buckets
    growth = _layer_bytes(job) / _layer_bytes(recorded)
    at_ends = embedding_parameters(job).total / embedding_parameters(recorded).total
    total = sum(each.message_bytes for each in had)
    of_role = role if role in seen else next(iter(seen))
    had_parts = _parts_bytes(recorded, had_layers, of_role)
    whole, layers_alone = total / sum(had_parts), total / sum(had_parts[1:-1])
    if layers == had_layers and role in seen and same_number:
        return [
            _bucket(job, e.after, e.message_bytes * (growth if _inside(e, layers) else at_ends))
            for e in had
        ]
    if len(had) == recorded.gradient_buckets and _is_element(layers_alone, recorded):
        return _numbered(job, layers, job.gradient_buckets, layers_alone * _layer_bytes(job))
    layer = _of_each_layer(had, had_layers)
    if layer:
        inside = [
            _bucket(job, k + each.after, each.message_bytes * growth)
            for k in range(layers)
            for each in layer
        ]
        first = [each for each in seen.get(role, ()) if each.after == 0]
        last = [each for each in seen.get(role, ()) if each.after > had_layers]
        return [
            *(_bucket(job, 0.0, each.message_bytes * at_ends) for each in first),
            *inside,
            *(_bucket(job, layers + 1.0, each.message_bytes * at_ends) for each in last),
        ]
    parts = [whole * part for part in _parts_bytes(job, layers, role)]
    sizes = sorted(each.message_bytes for each in had)
    if len(had) == recorded.gradient_buckets:
        return _filled(job, parts, sum(parts) / job.gradient_buckets)
    return _filled(job, parts, sizes[len(sizes) // 2])


def _inside(each: Sum, layers: int) -> bool:
    """Whether a message is of layers, not of the output or the embedding."""
    return 0 < each.after <= layers


def _is_element(share: float, job: Job) -> bool:
    """Whether bytes are so many times the parameters as an element of a gradient may have."""
    return any(abs(share * job.gradient_bytes / size - 1) < _ALIKE for size in (2.0, 4.0))


def _of_each_layer(had: Sequence[Sum], layers: int) -> list[Sum]:
    """The messages of one layer, placed within it, where all layers have the same."""
    by_layer: list[list[Sum]] = [[] for _ in range(layers)]
    for each in had:
        place = math.ceil(each.after) - 1
        if 0 <= place < layers:
            by_layer[place].append(Sum(each.after - place, each.message_bytes))
    first = by_layer[0]
    for other in by_layer[1:]:
        pairs = list(zip(first, other, strict=False))
        places = all(math.isclose(a.after, b.after, abs_tol=_ALIKE) for a, b in pairs)
        sizes = all(
            math.isclose(a.message_bytes, b.message_bytes, rel_tol=_ALIKE) for a, b in pairs
        )
        if not places or not sizes or len(other) not in (len(first), len(first) + 1):
            return []
    return first


def _numbered(job: Job, layers: int, count: int, layer_bytes: float) -> list[Bucket]:
    """So many messages, spread over the layers; no more than there are layers."""
    ends = dict.fromkeys(math.ceil(layers * (k + 1) / count) for k in range(count))
    found, before = [], 0
    for end in ends:
        found.append(_bucket(job, end, (end - before) * layer_bytes))
        before = end
    return found


def _filled(job: Job, parts: Sequence[float], size: float) -> list[Bucket]:
    """Messages of a size: one is sent when so much has gathered, and what is left at the end."""
    found, gathered = [], 0.0
    for place, part in enumerate(parts):
        gathered += part
        is_last = place == len(parts) - 1
        if gathered >= size * (1 - 1e-6) or (is_last and gathered > 0):
            found.append(_bucket(job, place, gathered))
            gathered = 0.0
    return found


def _parts_bytes(job: Job, layers: int, role: str) -> list[float]:
    """Gradients in the order of the backward pass: of the output, each layer, the embedding."""
    head = head_parameters(job).total if role in ("last", "only") else 0.0
    embedding = embedding_parameters(job).total if role in ("first", "only") else 0.0
    size = job.gradient_bytes
    return [head * size, *[_layer_bytes(job)] * layers, embedding * size]


def _layer_bytes(job: Job) -> float:
    return float(layer_parameters(job, experts=False).total * job.gradient_bytes)


def _bucket(job: Job, after: float, message_bytes: float) -> Bucket:
    piece = gradient_messages(job, ParameterCounts(message_bytes / job.gradient_bytes))[0]
    return Bucket(after, replace(piece, message_bytes=message_bytes))
