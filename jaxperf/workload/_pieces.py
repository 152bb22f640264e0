"""The pieces that a pass of a job is made of: kernels and messages, with their sizes.

Everything here is plain arithmetic on a job's numbers, so that sizes may be floats, numpy arrays or
jax arrays, traced ones too. Counts (layers, heads, experts, ranks along an axis) and choices decide
which pieces there are, and are known.
"""

from dataclasses import dataclass
from math import prod
from typing import Any

from jaxperf.config import Job
from jaxperf.cost import ELEMENT_BYTES, PRECISIONS, WorkKind
from jaxperf.graph import TaskClass

Number = Any
"""A number, a numpy array, or a jax array."""

NAN = float("nan")


@dataclass(frozen=True, slots=True)
class Piece:
    """One kernel, or one message, of a pass.

    Attributes:
        name: what it is called, without its layer.
        kind: which model tells how long it takes.
        task_class: its class.
        precision: type of its operands, of `jaxperf.cost.PRECISIONS`.
        flops, memory_bytes, batch, m, n, k: as of `jaxperf.cost.Work`; NaN where not applicable.
        operation: of a message, of `jaxperf.cost.COLLECTIVE_OPERATIONS`.
        message_bytes, ranks, stride: of a message, as of `jaxperf.cost.Work`.
        axis: of a message, along which it goes: `tensor`, `context`, `expert`, `data` or
            `pipeline`.
        beside: the message runs beside the next piece that is no message; what follows waits for
            both. All other messages run alone.
        of_weights: it belongs to the gradient of the weights, which a zero-bubble schedule defers.
    """

    name: str
    kind: WorkKind
    task_class: TaskClass
    precision: str
    flops: Number = NAN
    memory_bytes: Number = NAN
    batch: Number = NAN
    m: Number = NAN
    n: Number = NAN
    k: Number = NAN
    operation: str = ""
    message_bytes: Number = NAN
    ranks: Number = NAN
    stride: Number = NAN
    axis: str = ""
    beside: bool = False
    of_weights: bool = False


def multiply(
    name: str,
    m: Number,
    n: Number,
    k: Number,
    *,
    precision: str,
    batch: Number = 1,
    output_bytes: float | None = None,
    of_weights: bool = False,
) -> Piece:
    """A matrix multiply, `batch` times (m, k) @ (k, n); as `jaxperf.cost.matmul_work`.

    Args:
        name: what to call it.
        m, n, k, batch: its sizes.
        precision: type of the operands.
        output_bytes: moved per element of the result; as that of an activation by default.
        of_weights: see `Piece`.

    Returns:
        The piece.

    Example:
        >>> multiply("qkv", 128, 256, 64, precision="bf16").flops
        4194304
    """
    size = element_bytes(precision)
    written = max(size, 2.0) if output_bytes is None else output_bytes
    return Piece(
        name,
        WorkKind.MATMUL,
        TaskClass.GEMM,
        precision,
        flops=2 * batch * m * n * k,
        memory_bytes=batch * ((m * k + k * n) * size + m * n * written),
        batch=batch,
        m=m,
        n=n,
        k=k,
        of_weights=of_weights,
    )


def stream(name: str, task_class: TaskClass, moved_bytes: Number, precision: str) -> Piece:
    """A kernel that is bound by the bytes it reads and writes.

    Example:
        >>> stream("norm", TaskClass.NORMALIZATION, 4096.0, "bf16").kind.name
        'MEMORY'
    """
    return Piece(name, WorkKind.MEMORY, task_class, precision, memory_bytes=moved_bytes)


def message(
    job: Job,
    name: str,
    operation: str,
    message_bytes: Number,
    axis: str,
    *,
    ranks: Number | None = None,
    beside: bool = False,
    precision: str | None = None,
) -> Piece:
    """A message along an axis of the job.

    Args:
        job: the job.
        name: what to call it.
        operation: of `jaxperf.cost.COLLECTIVE_OPERATIONS`.
        message_bytes: the whole buffer, see `jaxperf.cost.Work`.
        axis: see `group_shape`.
        ranks: members, all of the axis by default.
        beside: see `Piece`.
        precision: of what is sent, as activations by default.

    Returns:
        The piece.
    """
    members, stride = group_shape(job, axis)
    return Piece(
        name,
        WorkKind.COLLECTIVE,
        TaskClass.COMMUNICATION,
        precision or activation_precision(job),
        operation=operation,
        message_bytes=message_bytes,
        ranks=members if ranks is None else ranks,
        stride=stride,
        axis="data" if axis == "expert data" else axis,
        beside=beside,
    )


def axis_degrees(job: Job) -> dict[str, Number]:
    """Ranks along each axis, by its name in `rank_order`."""
    return {name: getattr(job, field) for name, field in _DEGREES.items()}


def group_shape(job: Job, axis: str) -> tuple[Number, Number]:
    """Members of a group along an axis, and the distance between the ranks of neighbours.

    Gradients are summed over data and context parallelism together. The ranks over which experts
    are spread are the nearest of those; gradients of experts are summed over the others.

    Args:
        job: the job; its `rank_order` names the axes, the fastest first.
        axis: `tensor`, `context`, `pipeline`, `data`, `expert`, or `expert data`.

    Returns:
        Members and stride.

    Example:
        >>> job = Job(layers=4, hidden_size=64, attention_heads=4, vocabulary_size=100,
        ...           sequence_length=128, tensor_parallel=2, data_parallel=4, pipeline_parallel=2)
        >>> group_shape(job, "tensor"), group_shape(job, "data"), group_shape(job, "pipeline")
        ((2, 1), (4, 2), (2, 8))
    """
    order = job.rank_order.split("-")

    def stride(name: str) -> Number:
        before = order[: order.index(name)] if name in order else ()
        return prod(getattr(job, _DEGREES[each]) for each in before)

    if axis in _AXES:
        name = _AXES[axis]
        return getattr(job, _DEGREES[name]), stride(name)
    # Context and data parallelism that are not neighbours have no one stride; the smaller stands.
    data = [name for name in order if name in ("cp", "dp")]
    more = [name for name in data if not is_one(getattr(job, _DEGREES[name]))]
    first = stride((more or data or ["tp"])[0])
    members = job.context_parallel * job.data_parallel
    if axis == "data":
        return members, first
    if axis == "expert":
        return job.expert_parallel, first
    return members / job.expert_parallel, first * job.expert_parallel


_AXES = {"tensor": "tp", "context": "cp", "pipeline": "pp"}
_DEGREES = {
    "tp": "tensor_parallel",
    "cp": "context_parallel",
    "dp": "data_parallel",
    "pp": "pipeline_parallel",
}


def is_one(number: Number) -> bool:
    """Whether a number is known, and 1: an array stands for several values.

    Example:
        >>> is_one(1), is_one(2)
        (True, False)
    """
    return isinstance(number, int | float) and number == 1


def element_bytes(precision: str) -> float:
    """Size of an element of a type.

    Example:
        >>> element_bytes("bf16")
        2.0
    """
    return float(ELEMENT_BYTES[PRECISIONS.index(precision)])


def activation_precision(job: Job) -> str:
    """Type that activations have in memory and in messages: at least two bytes.

    Example:
        >>> activation_precision(Job(layers=1, hidden_size=8, attention_heads=1,
        ...     vocabulary_size=9, sequence_length=4, precision="fp8"))
        'bf16'
    """
    return job.precision if element_bytes(job.precision) >= 2 else "bf16"


def activation_bytes(job: Job) -> float:
    """Size of an element of an activation in memory."""
    return element_bytes(activation_precision(job))


def tokens_of_rank(job: Job) -> Number:
    """Tokens of a micro-batch that a rank computes within a tensor-parallel region.

    Example:
        >>> tokens_of_rank(Job(layers=1, hidden_size=8, attention_heads=1, vocabulary_size=9,
        ...     sequence_length=4096, micro_batch_size=2, context_parallel=2))
        4096.0
    """
    return job.micro_batch_size * job.sequence_length / job.context_parallel


def tokens_between(job: Job) -> Number:
    """Tokens of a micro-batch that a rank holds between tensor-parallel regions."""
    tokens = tokens_of_rank(job)
    return tokens / job.tensor_parallel if job.sequence_parallel else tokens


def head_size(job: Job) -> Number:
    """Size of a head of queries and keys, a real number where the hidden size is one."""
    if job.head_size is not None:
        return job.head_size
    return job.hidden_size / job.attention_heads


def key_value_heads_of_rank(job: Job) -> float:
    """Heads of keys and values of a rank; each holds one where there are fewer than ranks."""
    return max(job.kv_heads / job.tensor_parallel, 1)
