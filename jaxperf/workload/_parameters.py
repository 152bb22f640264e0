"""How many parameters a rank holds, and the model has; and the flops that its use is counted by."""

from dataclasses import dataclass

import msgspec

from jaxperf.config import Experts, Job
from jaxperf.workload._pieces import Number, head_size, key_value_heads_of_rank


@dataclass(frozen=True, slots=True)
class ParameterCounts:
    """Parameters, those of routed experts apart: their gradients are summed over fewer ranks.

    Attributes:
        dense: all others.
        expert: those of routed experts.
    """

    dense: Number = 0.0
    expert: Number = 0.0

    @property
    def total(self) -> Number:
        """Both together."""
        return self.dense + self.expert

    def __add__(self, other: "ParameterCounts") -> "ParameterCounts":
        return ParameterCounts(self.dense + other.dense, self.expert + other.expert)

    def __mul__(self, factor: Number) -> "ParameterCounts":
        return ParameterCounts(self.dense * factor, self.expert * factor)


def layer_parameters(job: Job, *, experts: bool) -> ParameterCounts:
    """Parameters of one layer on one rank: its matrices and the gains of its norms.

    Args:
        job: the job.
        experts: the layer has a mixture of experts.

    Returns:
        What one tensor-parallel and expert-parallel rank holds.

    Example:
        >>> job = Job(layers=1, hidden_size=64, attention_heads=4, vocabulary_size=100,
        ...           sequence_length=128, tensor_parallel=2)
        >>> layer_parameters(job, experts=False).total
        24704.0
    """
    hidden, tensor = job.hidden_size, job.tensor_parallel
    matrices = 3 if job.gated_ffn else 2
    dense = _attention_parameters(job) + 2 * hidden
    if not experts:
        return ParameterCounts(dense + matrices * hidden * job.ffn_size / tensor)
    of = experts_of(job)
    each = matrices * hidden * of.ffn_hidden_size / tensor
    dense = dense + hidden * of.count + each * of.shared
    return ParameterCounts(dense, each * of.count / job.expert_parallel)


def embedding_parameters(job: Job) -> ParameterCounts:
    """Parameters of the input embedding on one rank of the first stage.

    Example:
        >>> job = Job(layers=1, hidden_size=64, attention_heads=4, vocabulary_size=100,
        ...           sequence_length=128)
        >>> embedding_parameters(job).total
        6400.0
    """
    return ParameterCounts(job.vocabulary_size * job.hidden_size / job.tensor_parallel)


def head_parameters(job: Job) -> ParameterCounts:
    """Parameters of final norm and output layer on one rank of the last stage.

    Tied weights are counted where the last stage is not the first, which holds them already.
    """
    if job.tied_embeddings and job.pipeline_parallel == 1:
        return ParameterCounts(job.hidden_size)
    return embedding_parameters(job) + ParameterCounts(job.hidden_size)


def model_parameters(job: Job) -> Number:
    """Parameters of the whole model: matrices and the gains of norms, without biases.

    Example:
        >>> llama = Job(layers=32, hidden_size=4096, ffn_hidden_size=14336, gated_ffn=True,
        ...             attention_heads=32, key_value_heads=8, vocabulary_size=128256,
        ...             sequence_length=8192)
        >>> round(model_parameters(llama) / 1e9, 2)
        8.03
    """
    whole = _whole(job)
    dense = dense_layers(job)
    layers = layer_parameters(whole, experts=False).total * dense
    if job.experts is not None:
        layers = layers + layer_parameters(whole, experts=True).total * (job.layers - dense)
    return layers + embedding_parameters(whole).total + head_parameters(whole).total


def model_flops_per_token(job: Job) -> Number:
    """Flops of the model for one token, forward and backward, by which its use is counted.

    `6 N + 12 layers heads head_size sequence` (Chowdhery et al., PaLM, arXiv 2204.02311,
    appendix B), `N` being the parameters of matrices that multiply the token, the output layer
    with them and the input embedding not, and of experts those it takes. By that convention all
    pairs of an attention count although a causal one computes half of them, and what is recomputed
    counts once.

    Args:
        job: the job.

    Returns:
        Flops.

    Example:
        >>> gpt3 = Job(layers=96, hidden_size=12288, attention_heads=96, vocabulary_size=51200,
        ...            sequence_length=2048)
        >>> round(model_flops_per_token(gpt3) / 1e12, 3)
        1.076
    """
    whole = _whole(job)
    dense = dense_layers(job)
    used = (layer_parameters(whole, experts=False).total - 2 * job.hidden_size) * dense
    if job.experts is not None:
        counts = layer_parameters(whole, experts=True)
        share = job.experts.per_token / job.experts.count
        taken = counts.dense - 2 * job.hidden_size + counts.expert * share
        used = used + taken * (job.layers - dense)
    used = used + job.vocabulary_size * job.hidden_size
    key = value = head_size(job)
    if job.latent_attention is not None:
        key = key + job.latent_attention.rope_head_size
        value = job.latent_attention.value_head_size
    scores = 6 * job.layers * job.attention_heads * (key + value) * job.sequence_length
    return 6 * used + scores


def model_flops(job: Job) -> Number:
    """Flops of the model in one iteration of the whole job; see `model_flops_per_token`.

    Example:
        >>> job = Job(layers=1, hidden_size=64, attention_heads=4, vocabulary_size=100,
        ...           sequence_length=128, data_parallel=2)
        >>> float(model_flops(job) / model_flops_per_token(job))
        256.0
    """
    return model_flops_per_token(job) * job.global_batch_size * job.sequence_length


def sharded_parameters(job: Job, parameters: ParameterCounts) -> Number:
    """Parameters that a rank updates: all of its own, or a share where the optimizer is sharded.

    Example:
        >>> job = Job(layers=1, hidden_size=64, attention_heads=4, vocabulary_size=100,
        ...           sequence_length=128, data_parallel=4, sharding="zero1")
        >>> sharded_parameters(job, ParameterCounts(8.0, 0.0))
        2.0
    """
    if job.sharding == "none":
        return parameters.total
    ranks = job.data_parallel * job.context_parallel
    return (parameters.dense + parameters.expert * job.expert_parallel) / ranks


def dense_layers(job: Job) -> Number:
    """Layers with an ordinary feed-forward part.

    Example:
        >>> dense_layers(Job(layers=2, hidden_size=64, attention_heads=4, vocabulary_size=100,
        ...                  sequence_length=128))
        2
    """
    return job.layers if job.experts is None else job.experts.dense_layers


def experts_of(job: Job) -> Experts:
    """The mixture of experts of a job that has one."""
    assert job.experts is not None, "a layer of experts needs the job's experts"
    return job.experts


def _attention_parameters(job: Job) -> Number:
    hidden, tensor = job.hidden_size, job.tensor_parallel
    heads, size, latent = job.attention_heads / tensor, head_size(job), job.latent_attention
    if latent is None:
        return hidden * size * (2 * heads + 2 * key_value_heads_of_rank(job))
    query = heads * (size + latent.rope_head_size)
    if latent.query_rank is None:
        queries = hidden * query
    else:
        queries = latent.query_rank * (hidden + 1 + query)
    rank = latent.key_value_rank
    compressed = hidden * (rank + latent.rope_head_size) + rank
    decompressed = rank * heads * (size + latent.value_head_size)
    return queries + compressed + decompressed + heads * latent.value_head_size * hidden


def _whole(job: Job) -> Job:
    return msgspec.structs.replace(job, tensor_parallel=1, expert_parallel=1, pipeline_parallel=1)
