"""The kernels and messages of one layer, of the embedding, of the output, and of the optimizer.

Tensor parallelism is Megatron's (Shoeybi et al., arXiv 1909.08053; with sequence parallelism
Korthikanti et al., arXiv 2205.05198): the first multiply of a region is split by columns, the
second by rows. Context parallelism is a ring in which blocks of keys and values go round beside
the attention (Liu et al., arXiv 2310.01889; Megatron's default), balanced, so that each block
costs the same under the causal mask. All attention is fused and causal.

With fp8 and fp4 the multiplies of the layers are in that type, but for a router; attention and the
output layer are not (NVIDIA Transformer Engine, whose layers Megatron-LM takes for these alone:
megatron/core/models/gpt/gpt_model.py). Operands are cast as they are needed: see `_cast`.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import msgspec

from jaxperf.config import Job
from jaxperf.cost import WorkKind
from jaxperf.graph import TaskClass
from jaxperf.workload._parameters import ParameterCounts, experts_of, sharded_parameters
from jaxperf.workload._pieces import (
    Number,
    Piece,
    activation_bytes,
    activation_precision,
    element_bytes,
    head_size,
    is_one,
    key_value_heads_of_rank,
    message,
    multiply,
    stream,
    tokens_between,
    tokens_of_rank,
)

_BACKWARD_ATTENTION_FLOPS = 2.5
_FP32 = 4.0


def layer_forward(job: Job, *, experts: bool) -> tuple[Piece, ...]:
    """The forward pass of one layer for one micro-batch on one rank, in order.

    Args:
        job: the job.
        experts: the layer has a mixture of experts.

    Returns:
        Its kernels and messages.

    Example:
        >>> job = Job(layers=1, hidden_size=64, attention_heads=4, vocabulary_size=100,
        ...           sequence_length=128, tensor_parallel=2)
        >>> [piece.name for piece in layer_forward(job, experts=False)][:5]
        ['attention norm', 'qkv', 'attention', 'projection', 'projection all_reduce']
    """
    return _forward(_layer(job, experts))


def layer_backward(job: Job, *, experts: bool) -> tuple[Piece, ...]:
    """The backward pass of one layer, without what is recomputed; see `layer_forward`.

    Args:
        job: the job.
        experts: the layer has a mixture of experts.

    Returns:
        Its kernels and messages. Of each multiply the gradient of the input comes first, then the
        message that waits for it, then the gradient of the weights.

    Example:
        >>> job = Job(layers=1, hidden_size=64, attention_heads=4, vocabulary_size=100,
        ...           sequence_length=128)
        >>> [piece.name for piece in layer_backward(job, experts=False)][1:3]
        ['down input gradient', 'down weight gradient']
    """
    return _backward(_layer(job, experts))


def layer_recompute(job: Job, *, experts: bool) -> tuple[Piece, ...]:
    """What the backward pass of one layer computes anew before it starts.

    Args:
        job: the job; `recompute` says what: nothing, the core of the attention, or the layer.
        experts: the layer has a mixture of experts.

    Returns:
        Kernels and messages, messages included.

    Example:
        >>> job = Job(layers=1, hidden_size=64, attention_heads=4, vocabulary_size=100,
        ...           sequence_length=128, recompute="selective")
        >>> [piece.name for piece in layer_recompute(job, experts=False)]
        ['recompute attention']
    """
    if job.recompute == "none":
        return ()
    steps = _attention_core(job) if job.recompute == "selective" else _layer(job, experts)
    return tuple(replace(piece, name=f"recompute {piece.name}") for piece in _forward(steps))


def embedding_forward(job: Job) -> tuple[Piece, ...]:
    """Look up the tokens of a micro-batch; each tensor-parallel rank holds a part of the table."""
    return _forward(_embedding(job))


def embedding_backward(job: Job) -> tuple[Piece, ...]:
    """The gradient of the embedding, which PyTorch makes dense and then adds."""
    return _backward(_embedding(job))


def head_forward(job: Job) -> tuple[Piece, ...]:
    """Final norm, logits, and the loss over a part of the vocabulary."""
    return _forward(_head(job))


def head_backward(job: Job) -> tuple[Piece, ...]:
    """The gradients of loss, logits and final norm."""
    return _backward(_head(job))


def zero_gradients(job: Job, parameters: ParameterCounts) -> Piece:
    """The start of an iteration: the sums of gradients are set to zero.

    Args:
        job: the job.
        parameters: of the rank; of zero2 and zero3 it keeps the sums of its share.

    Returns:
        The kernel.
    """
    shared = job.sharding in ("zero2", "zero3")
    held = sharded_parameters(job, parameters) if shared else parameters.total
    return stream("zero gradients", TaskClass.OPTIMIZER, held * job.gradient_bytes, "fp32")


def optimizer_pieces(job: Job, parameters: ParameterCounts) -> tuple[Piece, ...]:
    """The end of an iteration: norm of the gradients, and the update.

    Adam reads the gradient and three fp32 states of each weight, and writes the states and the
    weight; stochastic descent has one state less (Rajbhandari et al., arXiv 1910.02054, section 3).

    Args:
        job: the job.
        parameters: of the rank; what sharding leaves to other ranks is taken off here.

    Returns:
        Kernels, and the sum of the norm over all ranks that hold different parameters.

    Example:
        >>> job = Job(layers=1, hidden_size=64, attention_heads=4, vocabulary_size=100,
        ...           sequence_length=128)
        >>> [float(p.memory_bytes) for p in optimizer_pieces(job, ParameterCounts(1e6, 0.0))]
        [4000000.0, 30000000.0]
    """
    mine = sharded_parameters(job, parameters)
    states = 3 if job.optimizer == "adam" else 2
    weight_bytes = activation_bytes(job)
    norm = stream("gradient norm", TaskClass.OPTIMIZER, mine * job.gradient_bytes, "fp32")
    update_bytes = mine * (job.gradient_bytes + 2 * states * _FP32 + weight_bytes)
    update = stream("update", TaskClass.OPTIMIZER, update_bytes, "fp32")
    others = job.tensor_parallel * job.pipeline_parallel
    if job.sharding != "none":
        others = others * job.data_parallel * job.context_parallel
    if is_one(others):
        return norm, update
    summed = message(job, "norm all_reduce", "all_reduce", _FP32, "tensor", ranks=others)
    return norm, summed, update


# Steps of a pass: what each does forward, and backward
# ---------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Step:
    forward: tuple[Piece, ...]
    backward: tuple[Piece, ...]


def _forward(steps: Iterable[_Step]) -> tuple[Piece, ...]:
    return tuple(piece for step in steps for piece in step.forward)


def _backward(steps: Sequence[_Step]) -> tuple[Piece, ...]:
    return tuple(piece for step in reversed(steps) for piece in step.backward)


def _layer(job: Job, experts: bool) -> list[_Step]:
    second = _experts(job) if experts else _feed_forward(job, job.ffn_size)
    steps = [
        _norm(job, "attention norm", job.hidden_size),
        *(_latent_attention(job) if job.latent_attention else _attention(job)),
        _residual(job, "attention residual"),
        _norm(job, "ffn norm", job.hidden_size),
        *second,
        _residual(job, "ffn residual"),
    ]
    return [_cast(job, step) for step in steps]


def _cast(job: Job, step: _Step) -> _Step:
    """A step, before it the casts of what a multiply in less than two bytes needs.

    Of each element two bytes are read and two results written: as the multiply takes it, and
    transposed, as the gradients do (`cast_transpose` of Transformer Engine, which the matrix units
    of Hopper need for eight bits). Forward this is the input, backward the gradient of the output.
    Weights are cast once a step, of which each micro-batch has its part here; where they are
    gathered for each use (zero3), each time.
    """
    found = [p for p in step.forward if p.kind is WorkKind.MATMUL]
    if not found or element_bytes(found[0].precision) >= 2:
        return step
    (piece,) = found
    moved = activation_bytes(job) + 2 * element_bytes(piece.precision)
    times = 1 if job.sharding == "zero3" else job.micro_batches
    of_input = piece.batch * piece.k * (piece.m + piece.n / times)

    def cast(name: str, elements: Number) -> Piece:
        return stream(name, TaskClass.ELEMENTWISE, moved * elements, activation_precision(job))

    return _Step(
        (cast(f"{piece.name} cast", of_input), *step.forward),
        (cast(f"{piece.name} gradient cast", piece.batch * piece.m * piece.n), *step.backward),
    )


def _attention(job: Job) -> list[_Step]:
    size, heads = head_size(job), job.attention_heads / job.tensor_parallel
    kv = key_value_heads_of_rank(job)
    return [
        _column(job, "qkv", (heads + 2 * kv) * size, job.hidden_size),
        *_rotary(job, (heads + kv) * size),
        *_attention_core(job),
        _row(job, "projection", heads * size),
    ]


def _latent_attention(job: Job) -> list[_Step]:
    """Compressed queries, keys and values: DeepSeek-V2, arXiv 2405.04434, section 2.1.

    The compressions are not split over tensor-parallel ranks, but over tokens with
    `sequence_parallel`, as Megatron has them.
    """
    latent = job.latent_attention
    assert latent is not None
    heads = job.attention_heads / job.tensor_parallel
    query = heads * (head_size(job) + latent.rope_head_size)
    tokens, rank = tokens_between(job), latent.key_value_rank
    steps = []
    if latent.query_rank is None:
        steps.append(_column(job, "query", query, job.hidden_size))
    else:
        steps += [
            _multiply(job, "query down", tokens, latent.query_rank, job.hidden_size),
            _norm(job, "query norm", latent.query_rank),
            _column(job, "query up", query, latent.query_rank),
        ]
    decompressed = heads * (head_size(job) + latent.value_head_size)
    return [
        *steps,
        _multiply(job, "key-value down", tokens, rank + latent.rope_head_size, job.hidden_size),
        _norm(job, "key-value norm", rank),
        _column(job, "key-value up", decompressed, rank),
        *_rotary(job, 2 * heads * latent.rope_head_size),
        _split_heads(job, heads),
        *_attention_core(job),
        _row(job, "projection", heads * latent.value_head_size),
    ]


def _split_heads(job: Job, heads: Number) -> _Step:
    """Keys, of which a part is decompressed and a part shared by all heads, and values are copied
    out of what was decompressed together; also where a fused kernel rotates on the way
    (Megatron-LM, megatron/core/fusions/fused_mla_yarn_rope_apply.py).
    """
    latent = job.latent_attention
    assert latent is not None
    elements = 2 * tokens_of_rank(job) * heads * (head_size(job) + latent.value_head_size)
    return _streamed(job, "split keys and values", TaskClass.MEMCPY, elements, elements)


def _attention_core(job: Job) -> list[_Step]:
    """The fused attention; over a ring of ranks one block for each, with a message beside it."""
    latent, context = job.latent_attention, job.context_parallel
    heads, kv = job.attention_heads / job.tensor_parallel, key_value_heads_of_rank(job)
    key = value = head_size(job)
    if latent is not None:
        key, value, kv = key + latent.rope_head_size, latent.value_head_size, heads
    batch, block = job.micro_batch_size, job.sequence_length / context
    each = activation_bytes(job)
    forward = Piece(
        "attention",
        WorkKind.ATTENTION,
        TaskClass.ATTENTION,
        activation_precision(job),
        # Of two multiplies, under the causal mask: half of the pairs.
        flops=batch * heads * block * block * (key + value),
        memory_bytes=batch * block * (heads + kv) * (key + value) * each,
        batch=batch * heads,
        m=block,
        n=block,
        k=(key + value) / 2,
    )
    backward = replace(
        forward,
        name="attention gradient",
        flops=forward.flops * _BACKWARD_ATTENTION_FLOPS,
        memory_bytes=forward.memory_bytes * 2,
    )
    if context == 1:
        return [_Step((forward,), (backward,))]
    sent = batch * block * kv * (key + value) * each

    def ring(size: Number) -> Piece:
        return message(job, "key-value ring", "send_receive", size, "context", ranks=2, beside=True)

    # Backward the gradients of keys and values go round as well.
    moving = _Step((ring(sent), forward), (ring(2 * sent), backward))
    return [*[moving] * (context - 1), _Step((forward,), (backward,))]


def _feed_forward(job: Job, width: Number, name: str = "") -> list[_Step]:
    width = width / job.tensor_parallel
    return [
        _column(job, f"{name}up", width * (2 if job.gated_ffn else 1), job.hidden_size),
        _activation(job, f"{name}activation", tokens_of_rank(job) * width),
        _row(job, f"{name}down", width),
    ]


def _experts(job: Job) -> list[_Step]:
    """Router, exchange, grouped multiplies, and the exchange back; tokens are spread evenly.

    With tensor parallelism each rank of it holds a part of every local expert.
    """
    experts = experts_of(job)
    hidden, each, top = job.hidden_size, activation_bytes(job), experts.per_token
    width = experts.ffn_hidden_size / job.tensor_parallel
    local = experts.count / job.expert_parallel
    held = tokens_between(job)
    taken = tokens_of_rank(job) * top
    copied = 2 * held * top * hidden * each
    shared = _feed_forward(job, experts.shared * experts.ffn_hidden_size, "shared ")
    # Tokens arrive in the order of the ranks that sent them, and each expert wants its own.
    senders = job.expert_parallel * (job.tensor_parallel if job.sequence_parallel else 1)
    sort, sort_back = (
        [_moe(job, name, 2 * taken * hidden * each)] if senders > 1 and local > 1 else []
        for name in ("sort by expert", "sort by rank")
    )

    def grouped(name: str, n: Number, k: Number) -> _Step:
        return _multiply(job, name, taken / local, n, k, batch=local)

    wide = msgspec.structs.replace(job, precision=activation_precision(job))
    return [
        _multiply(wide, "router", held, experts.count, hidden),
        _moe(job, "routing", 2 * held * experts.count * _FP32),
        *(shared if experts.shared else []),
        _moe(job, "permute", copied),
        *_exchange(job, "dispatch", held * top * hidden * each),
        *_gather_for_experts(job, taken * hidden * each),
        *sort,
        grouped("experts up", width * (2 if job.gated_ffn else 1), hidden),
        _activation(job, "experts activation", taken * width),
        grouped("experts down", hidden, width),
        *sort_back,
        *_scatter_of_experts(job, taken * hidden * each),
        *_exchange(job, "combine", held * top * hidden * each),
        _moe(job, "unpermute", copied),
        *_sum_of_experts(job),
    ]


def _gather_for_experts(job: Job, size: Number) -> list[_Step]:
    """Before the experts, over tensor-parallel ranks: of sequence parallelism the tokens."""
    if job.tensor_parallel == 1 or not job.sequence_parallel:
        return []
    gather, scatter = (
        message(job, f"experts {operation}", operation, size, "tensor")
        for operation in ("all_gather", "reduce_scatter")
    )
    return [_Step((gather,), (scatter,))]


def _scatter_of_experts(job: Job, size: Number) -> list[_Step]:
    return [_Step(step.backward, step.forward) for step in _gather_for_experts(job, size)]


def _sum_of_experts(job: Job) -> list[_Step]:
    """Without sequence parallelism the parts of the experts are summed as tokens are back."""
    if job.tensor_parallel == 1 or job.sequence_parallel:
        return []
    size = tokens_of_rank(job) * job.hidden_size * activation_bytes(job)
    summed = message(job, "experts all_reduce", "all_reduce", size, "tensor")
    return [_Step((summed,), (summed,))]


def _embedding(job: Job) -> list[_Step]:
    hidden, each = job.hidden_size, activation_bytes(job)
    moved = 2 * tokens_of_rank(job) * hidden * each
    table = job.vocabulary_size / job.tensor_parallel * hidden
    added = table * (2 * each + 2 * job.gradient_bytes)
    precision = activation_precision(job)
    step = _Step(
        (stream("embedding", TaskClass.EMBEDDING, moved, precision),),
        (stream("embedding gradient", TaskClass.EMBEDDING, moved + added, precision),),
    )
    size = tokens_of_rank(job) * hidden * each
    return [step, *_leave_region(job, "embedding", size, beside=False)]


def _head(job: Job) -> list[_Step]:
    scores = tokens_of_rank(job) * job.vocabulary_size / job.tensor_parallel * _FP32
    # Read for the largest and for the sum, and written as what the gradient starts from.
    forward = [stream("loss", TaskClass.ELEMENTWISE, 3 * scores, "fp32")]
    if job.tensor_parallel > 1:
        size = 3 * tokens_of_rank(job) * _FP32
        forward.append(message(job, "loss all_reduce", "all_reduce", size, "tensor"))
    backward = stream("loss gradient", TaskClass.ELEMENTWISE, 2 * scores, "fp32")
    wide = msgspec.structs.replace(job, precision=activation_precision(job))
    return [
        _norm(job, "final norm", job.hidden_size),
        _column(wide, "logits", job.vocabulary_size / job.tensor_parallel, job.hidden_size),
        _Step(tuple(forward), (backward,)),
    ]


# Single steps
# ---------------------------------------------------------------------------------------


def _multiply(job: Job, name: str, m: Number, n: Number, k: Number, batch: Number = 1) -> _Step:
    precision = job.precision
    output = multiply(name, m, n, k, batch=batch, precision=precision)
    of_input = multiply(f"{name} input gradient", m, k, n, batch=batch, precision=precision)
    of_weights = multiply(
        f"{name} weight gradient",
        n,
        k,
        m,
        batch=batch,
        precision=precision,
        # The gradients of earlier micro-batches are read, and the sum is written.
        output_bytes=2 * job.gradient_bytes,
        of_weights=True,
    )
    return _Step((output,), (of_input, of_weights))


def _column(job: Job, name: str, n: Number, k: Number) -> _Step:
    """A multiply that is split by columns: all tokens go in, and their gradients are summed."""
    step = _multiply(job, name, tokens_of_rank(job), n, k)
    if job.tensor_parallel == 1:
        return step
    size = tokens_of_rank(job) * k * activation_bytes(job)

    def sent(operation: str, what: str = "") -> Piece:
        label = f"{name} {what}{operation}"
        return message(job, label, operation, size, "tensor", beside=job.overlap_tensor)

    of_input, of_weights = step.backward
    if not job.sequence_parallel:
        return _Step(step.forward, (of_input, sent("all_reduce", "gradient "), of_weights))
    # What was gathered is not kept: the gradient of the weights needs it once more.
    backward = (
        sent("all_gather", "again "),
        of_input,
        sent("reduce_scatter", "gradient "),
        of_weights,
    )
    return _Step((sent("all_gather"), *step.forward), backward)


def _row(job: Job, name: str, k: Number) -> _Step:
    """A multiply that is split by rows: its results are summed over the ranks."""
    step = _multiply(job, name, tokens_of_rank(job), job.hidden_size, k)
    size = tokens_of_rank(job) * job.hidden_size * activation_bytes(job)
    beside = job.overlap_tensor
    leave = _leave_region(job, name, size, beside=beside)
    if not leave:
        return step
    (sent,) = leave
    forward = (*sent.forward, *step.forward) if beside else (*step.forward, *sent.forward)
    return _Step(forward, (*sent.backward, *step.backward))


def _leave_region(job: Job, name: str, size: Number, *, beside: bool) -> list[_Step]:
    if job.tensor_parallel == 1:
        return []
    operations = ("reduce_scatter", "all_gather") if job.sequence_parallel else ("all_reduce", "")
    forward, backward = (
        (message(job, f"{name} {operation}", operation, size, "tensor", beside=beside),)
        if operation
        else ()
        for operation in operations
    )
    return [_Step(forward, backward)]


def _exchange(job: Job, name: str, size: Number) -> list[_Step]:
    if job.expert_parallel == 1:
        return []
    sent, back = (
        message(job, each, "all_to_all", size, "expert") for each in (name, f"{name} gradient")
    )
    return [_Step((sent,), (back,))]


def _norm(job: Job, name: str, width: Number) -> _Step:
    """Reads and writes its tokens; backward it reads input and gradient."""
    elements = tokens_between(job) * width
    return _streamed(job, name, TaskClass.NORMALIZATION, 2 * elements, 3 * elements)


def _residual(job: Job, name: str) -> _Step:
    """Two operands and their sum; backward the sum of the gradients of both ways."""
    elements = tokens_between(job) * job.hidden_size
    return _streamed(job, name, TaskClass.ELEMENTWISE, 3 * elements, 3 * elements)


def _activation(job: Job, name: str, elements: Number) -> _Step:
    """Of `elements` results; a gate has an operand and a gradient of its own."""
    forward, backward = (3, 5) if job.gated_ffn else (2, 3)
    streamed = TaskClass.ELEMENTWISE
    return _streamed(job, name, streamed, forward * elements, backward * elements)


def _rotary(job: Job, width: Number) -> list[_Step]:
    """Rotary positions, which models with a gate have; older ones add positions to the tokens."""
    if not job.gated_ffn:
        return []
    elements = 2 * tokens_of_rank(job) * width
    return [_streamed(job, "rotary", TaskClass.ELEMENTWISE, elements, elements)]


def _moe(job: Job, name: str, moved_bytes: Number) -> _Step:
    elements = moved_bytes / activation_bytes(job)
    return _streamed(job, name, TaskClass.MOE, elements, elements)


def _streamed(
    job: Job, name: str, task_class: TaskClass, forward: Number, backward: Number
) -> _Step:
    precision = activation_precision(job)
    size = element_bytes(precision)
    return _Step(
        (stream(name, task_class, forward * size, precision),),
        (stream(f"{name} gradient", task_class, backward * size, precision),),
    )
