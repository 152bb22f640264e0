"""The operators of a layer, of the embedding and of the output layer, with what each keeps.

Two things differ from the closed forms of arXiv 2205.05198 by default, as today's frameworks
differ: attention is fused, so that scores are never kept (arXiv 2205.14135; the term 5 a s / h
falls away), and there is no dropout.
"""

from jaxperf.config import Job
from jaxperf.workload._parameters import experts_of
from jaxperf.workload._pieces import (
    activation_bytes,
    head_size,
    key_value_heads_of_rank,
    tokens_between,
    tokens_of_rank,
)
from jaxperf.workload.memory._activations import Block, Operator, Part, SavedTensor, Weight

EXCHANGE_COPIES = 3
"""Of the tokens of experts, besides those that a multiply reads, that live at once around an
exchange: sorted by expert, received, and sorted by token. No published count: the whole number that
fits DeepSeek-V2 best, and DeepSeek-V3 too (`benchmarks/_jobs_simumax.py`)."""
_FP32, _INT64 = 4.0, 8.0


def layer_part(
    job: Job, *, experts: bool, fused_attention: bool = True, dropout: bool = False
) -> Part:
    """A transformer layer on one rank: its attention and its feed-forward part.

    Args:
        job: the job.
        experts: the feed-forward part is a mixture of experts.
        fused_attention: attention keeps no scores.
        dropout: of scores, and of what attention and feed-forward part add to the hidden states.

    Example:
        >>> from jaxperf.workload.memory._activations import saved_bytes
        >>> job = Job(layers=1, hidden_size=1024, attention_heads=16, vocabulary_size=50304,
        ...           sequence_length=2048)
        >>> part = layer_part(job, experts=False, fused_attention=False, dropout=True)
        >>> saved_bytes(part) / (2048 * 1024) == 34 + 5 * 16 * 2048 / 1024
        True
    """
    stream = _stream_bytes(job)
    attention = [_attention(job, fused_attention, dropout)]
    feed_forward = _experts(job) if experts else [_feed_forward_alone(job)]
    if dropout:
        mask = SavedTensor("mask", "dropout", stream / activation_bytes(job))
        dropped = Operator("dropout", (mask,), (), stream, stream)
        attention, feed_forward = (
            [(*c, dropped) for c in attention],
            [
                (*feed_forward[0], dropped),
                *feed_forward[1:],
            ],
        )
    return (Block(tuple(attention), stream), Block(tuple(feed_forward), stream))


def embedding_part(job: Job) -> Part:
    """The input embedding. Its backward pass makes a gradient as large as the table."""
    table = _table(job, "input embedding")
    indices = SavedTensor("token indices", "embedding", _INT64 * tokens_of_rank(job))
    gradient = table.elements * activation_bytes(job)
    lookup = Operator("embedding", (indices,), (table,), _stream_bytes(job), 0.0, gradient)
    return (Block(((lookup,),)),)


def head_part(job: Job, *, fused_loss: bool = True) -> Part:
    """The last normalisation, the output layer and the loss.

    Args:
        job: the job.
        fused_loss: the loss writes the gradient of the logits over them, so that they exist once;
            otherwise it keeps their softmax in 32 bits, and
            s b h 4 (1 + V / h) is kept in all (arXiv 2205.05198, section 4.3).
    """
    logits = tokens_of_rank(job) * job.vocabulary_size / job.tensor_parallel
    logits_bytes = logits * activation_bytes(job)
    if fused_loss:
        kept = SavedTensor("gradient of the logits", "output layer", logits_bytes)
        loss = Operator("loss", (kept,))
    else:
        kept = SavedTensor("softmax of the logits", "loss", _FP32 * logits)
        loss = Operator("loss", (kept,), (), 0.0, logits_bytes)
    first = job.tied_embeddings and job.pipeline_parallel == 1
    output = Operator(
        "output layer",
        (SavedTensor("normalised", "output layer", _stream_bytes(job)),),
        () if first else (_table(job, "output layer"),),
        logits_bytes,
        _stream_bytes(job),
        2 * _gathered_bytes(job),
    )
    return (Block(((_normalisation(job), output, loss),)),)


def _attention(job: Job, fused: bool, dropout: bool) -> tuple[Operator, ...]:
    heads, query, key_value, value = _attention_widths(job)
    inputs, result = _bytes(job, heads * query + key_value), _bytes(job, heads * value)
    tokens, each = tokens_of_rank(job), activation_bytes(job)
    saved = [
        SavedTensor("queries, keys and values", "attention", inputs),
        SavedTensor("result of attention", "attention, projection", result),
    ]
    if job.context_parallel > 1:
        # Heads are exchanged for tokens before the projection (arXiv 2309.14509).
        saved.append(SavedTensor("result of attention by heads", "attention", result))
    scores = tokens * job.sequence_length * heads
    if fused:
        saved.append(SavedTensor("log-sum-exp", "attention", _FP32 * tokens * heads))
        workspace = _FP32 * tokens * heads * query  # gradient of the queries, summed in 32 bits
    else:
        workspace = 2 * each * scores
        if job.recompute == "none":
            saved.append(SavedTensor("softmax", "attention", each * scores))
            if dropout:
                saved.append(SavedTensor("mask of the scores", "dropout", scores))
                saved.append(SavedTensor("softmax after dropout", "attention", each * scores))
    stream, gathered = _stream_bytes(job), _gathered_bytes(job)
    weight = Weight("projection", (job.hidden_size, heads * value))
    return (
        _normalisation(job),
        *(_latent_projections(job) if job.latent_attention else _projections(job)),
        Operator("attention", tuple(saved), (), result, inputs, workspace),
        Operator("projection", (), (weight,), stream, result, gathered),
    )


def _attention_widths(job: Job) -> tuple[float, float, float, float]:
    """Heads of a rank, sizes of a query, of all keys and values together, and of a value."""
    heads, size = job.attention_heads / job.tensor_parallel, head_size(job)
    if job.latent_attention is None:
        return heads, size, 2 * key_value_heads_of_rank(job) * size, size
    query = size + job.latent_attention.rope_head_size
    value = job.latent_attention.value_head_size
    return heads, query, heads * (query + value), value


def _projections(job: Job) -> tuple[Operator, ...]:
    """Queries, keys and values in one multiply."""
    heads, query, key_value, _ = _attention_widths(job)
    width = heads * query + key_value
    return (_entering(job, "queries, keys and values", (width,), width),)


def _latent_projections(job: Job) -> tuple[Operator, ...]:
    """Down to the latent widths, normalised there, and up (arXiv 2405.04434, section 2.1)."""
    latent = job.latent_attention
    assert latent is not None, "latent projections need latent attention"
    heads, query, key_value, value = _attention_widths(job)
    rank, rope = latent.key_value_rank, latent.rope_head_size
    queries, keys_values = heads * query, heads * (query - rope + value)
    if latent.query_rank is None:
        down, compressed = (queries, rank + rope), (rank,)
        up = (Weight("keys and values", (keys_values, rank)),)
    else:
        down, compressed = (latent.query_rank, rank + rope), (latent.query_rank, rank)
        up = (
            Weight("queries", (queries, latent.query_rank)),
            Weight("keys and values", (keys_values, rank)),
        )
    latents = _bytes(job, sum(compressed))
    raised = _bytes(job, queries + keys_values)
    return (
        _entering(job, "down projections", down, sum(down)),
        Operator(
            "latent normalisation",
            (SavedTensor("compressed", "latent normalisation", latents),),
            tuple(Weight("latent normalisation", (width,)) for width in compressed),
            latents,
            latents,
        ),
        Operator(
            "up projections",
            (SavedTensor("normalised compressed", "up projections", latents),),
            up,
            raised,
            latents,
        ),
        Operator("rotation", (), (), _bytes(job, queries + key_value), raised),
    )


def _feed_forward_alone(job: Job) -> tuple[Operator, ...]:
    return (_normalisation(job), *_feed_forward(job, job.ffn_size, keeps_input=True))


def _feed_forward(job: Job, whole_width: float, *, keeps_input: bool) -> tuple[Operator, ...]:
    """Two or three matrices with an activation between."""
    width = whole_width / job.tensor_parallel
    first = width * (2 if job.gated_ffn else 1)
    stream, inner = _stream_bytes(job), _bytes(job, width)
    result = SavedTensor("result of the first multiply", "activation", _bytes(job, first))
    return (
        _entering(job, "first multiply", (first,), first, keeps_input=keeps_input),
        Operator("activation", (result,), (), inner, _bytes(job, first)),
        Operator(
            "second multiply",
            (SavedTensor("activated", "second multiply", inner),),
            (Weight("second multiply", (job.hidden_size, width)),),
            stream,
            inner,
            _gathered_bytes(job),
        ),
    )


def _experts(job: Job) -> list[tuple[Operator, ...]]:
    """Router, exchange and experts, and beside them the experts that every token takes.

    Tokens are in balance. The weight of an expert for a token is applied with its activation, so
    that what experts give need not be kept. Experts are split over tensor-parallel ranks, which
    gather each other's tokens for them where sequence parallelism splits these.
    """
    experts, each = experts_of(job), activation_bytes(job)
    routed = tokens_between(job) * experts.per_token
    taken = routed * (job.tensor_parallel if _gathered_bytes(job) else 1)
    width = experts.ffn_hidden_size / job.tensor_parallel
    first = width * (2 if job.gated_ffn else 1)
    local = experts.count / job.expert_parallel
    stream, sent = _stream_bytes(job), routed * job.hidden_size * each
    tokens, before, after = (taken * size * each for size in (job.hidden_size, first, width))
    scores = _FP32 * tokens_between(job) * experts.count
    copies = EXCHANGE_COPIES if job.expert_parallel > 1 else 1
    chain = (
        _normalisation(job),
        Operator(
            "router",
            (
                SavedTensor("normalised", "router, shared experts", stream),
                SavedTensor("scores", "router", scores),
                SavedTensor("choice of experts", "router, exchange", scores),
            ),
            (Weight("router", (experts.count, job.hidden_size)),),
            scores,
            stream,
        ),
        Operator("exchange", (), (), tokens, stream, sent),
        Operator(
            "first multiply of experts",
            (SavedTensor("tokens of experts", "first multiply of experts", tokens),),
            (Weight("first multiply of experts", (first, job.hidden_size), local),),
            before,
            tokens,
        ),
        Operator(
            "activation of experts",
            (SavedTensor("result of the first multiply", "activation of experts", before),),
            (),
            after,
            before,
        ),
        Operator(
            "second multiply of experts",
            (SavedTensor("activated", "second multiply of experts", after),),
            (Weight("second multiply of experts", (job.hidden_size, width), local),),
            tokens,
            after,
            copies * sent,
        ),
        Operator("combination", (), (), stream, tokens, sent),
    )
    if not experts.shared:
        return [chain]
    shared = experts.shared * experts.ffn_hidden_size
    return [chain, _feed_forward(job, shared, keeps_input=False)]


def _entering(
    job: Job, name: str, widths: tuple[float, ...], width: float, *, keeps_input: bool = True
) -> Operator:
    """A multiply of hidden states: each rank has part of the columns, and needs all tokens."""
    inputs = SavedTensor("normalised", name, _stream_bytes(job))
    return Operator(
        name,
        (inputs,) if keeps_input else (),
        tuple(Weight(name, (each, job.hidden_size)) for each in widths),
        _bytes(job, width),
        _stream_bytes(job),
        2 * _gathered_bytes(job),  # the input gathered again, and its gradient before it is split
    )


def _normalisation(job: Job) -> Operator:
    stream = _stream_bytes(job)
    inputs = SavedTensor("input", "normalisation", stream)
    return Operator(
        "normalisation", (inputs,), (Weight("normalisation", (job.hidden_size,)),), stream, stream
    )


def _table(job: Job, name: str) -> Weight:
    """A row for each token of the vocabulary."""
    return Weight(name, (job.vocabulary_size / job.tensor_parallel, job.hidden_size))


def _bytes(job: Job, width: float) -> float:
    """Of a rank's tokens, `width` numbers each."""
    return tokens_of_rank(job) * width * activation_bytes(job)


def _stream_bytes(job: Job) -> float:
    """Hidden states as a rank holds them between layers."""
    return tokens_between(job) * job.hidden_size * activation_bytes(job)


def _gathered_bytes(job: Job) -> float:
    """Hidden states of all tokens, where a rank holds part of them between layers."""
    whole = _bytes(job, job.hidden_size)
    return whole if whole > _stream_bytes(job) else 0.0
