"""Training jobs: the shape of a model, its batch, and how both are spread over accelerators."""

from typing import Literal, get_args

import msgspec

Schedule = Literal["none", "gpipe", "1F1B", "interleaved", "zero-bubble", "dualpipe"]
Sharding = Literal["none", "zero1", "zero2", "zero3"]
Recompute = Literal["none", "selective", "full"]
Optimizer = Literal["adam", "sgd"]

SCHEDULES: tuple[str, ...] = get_args(Schedule)
"""All that a job may name."""


class Experts(msgspec.Struct, frozen=True, kw_only=True):
    """A mixture of experts in place of the feed-forward part of a layer.

    Attributes:
        count: routed experts of a layer.
        per_token: of which each token takes so many.
        ffn_hidden_size: width of one expert.
        shared: experts that every token takes besides.
        dense_layers: the first so many layers have an ordinary feed-forward part.
    """

    count: int
    per_token: int
    ffn_hidden_size: int
    shared: int = 0
    dense_layers: int = 0


class LatentAttention(msgspec.Struct, frozen=True, kw_only=True):
    """Attention with compressed keys and values (DeepSeek-V2, arXiv 2405.04434, section 2.1).

    Attributes:
        query_rank: width of the compressed queries, `None` where they are not compressed.
        key_value_rank: width of the compressed keys and values.
        rope_head_size: part of a head that carries the position, shared by all heads of the keys.
        value_head_size: size of a head of the values; `Job.head_size` is that of queries and keys
            without the part above.
    """

    query_rank: int | None = None
    key_value_rank: int
    rope_head_size: int
    value_head_size: int


class Job(msgspec.Struct, frozen=True, kw_only=True):
    """A training job, as a file in `configs/jobs` describes it.

    What is `None` follows from the other fields: see the properties.

    Attributes:
        name: what to call it.
        layers: transformer layers.
        hidden_size: width of the residual stream.
        ffn_hidden_size: width of the feed-forward part; four times the hidden size by default.
        gated_ffn: it has a gate, and so three matrices (SwiGLU), not two.
        attention_heads: heads of the queries.
        key_value_heads: heads of keys and values; as many as of the queries by default.
        head_size: size of a head; hidden size by heads by default.
        latent_attention: compressed keys and values, where the model has them.
        experts: a mixture of experts, where the model has one.
        vocabulary_size: tokens that are known, padding included.
        tied_embeddings: the output layer uses the weights of the input embedding.
        sequence_length: tokens of a sequence.
        micro_batch_size: sequences of a micro-batch.
        micro_batches: per iteration and data-parallel replica.
        data_parallel, tensor_parallel, context_parallel, pipeline_parallel: ranks along each axis.
        expert_parallel: ranks over which the experts of a layer are spread, taken from those of
            data and context parallelism.
        rank_order: axes of the ranks, the fastest first: `tp`, `cp`, `dp`, `pp`. An axis that is
            left out has one rank.
        schedule: order of the passes of a pipeline.
        virtual_stages: chunks of layers that each rank of the pipeline holds.
        stage_layers: layers of each stage (of each chunk, in the order of the model); as many in
            each by default. Of several chunks on a rank, the first and the last of the model may
            have none: the embedding, or the output layer, is all they do then.
        sharding: what is spread over the data-parallel ranks: optimizer (zero1), gradients too
            (zero2), weights too (zero3, fully sharded).
        prefetch: layers whose weights are gathered ahead, fully sharded.
        recompute: what the backward pass computes anew: nothing, attention, or whole layers.
        sequence_parallel: activations between tensor-parallel regions are split too.
        optimizer: what updates the weights.
        precision: type of weights and activations in multiplies.
        gradient_bytes: size of an element of a gradient as it is summed.
        gradient_buckets: messages into which the gradients of a rank are gathered.
        overlap_gradients: gradients are summed while the backward pass goes on.
        overlap_parameters: sharded weights are gathered while the forward pass goes on.
        overlap_tensor: tensor-parallel messages are split and sent beside the multiplies.
    """

    name: str = "job"
    layers: int
    hidden_size: int
    ffn_hidden_size: int | None = None
    gated_ffn: bool = False
    attention_heads: int
    key_value_heads: int | None = None
    head_size: int | None = None
    latent_attention: LatentAttention | None = None
    experts: Experts | None = None
    vocabulary_size: int
    tied_embeddings: bool = False
    sequence_length: int
    micro_batch_size: int = 1
    micro_batches: int = 1
    data_parallel: int = 1
    tensor_parallel: int = 1
    context_parallel: int = 1
    pipeline_parallel: int = 1
    expert_parallel: int = 1
    rank_order: str = "tp-cp-dp-pp"
    schedule: Schedule = "1F1B"
    virtual_stages: int = 1
    stage_layers: tuple[int, ...] | None = None
    sharding: Sharding = "none"
    prefetch: int = 1
    recompute: Recompute = "none"
    sequence_parallel: bool = False
    optimizer: Optimizer = "adam"
    precision: str = "bf16"
    gradient_bytes: float = 4.0
    gradient_buckets: int = 4
    overlap_gradients: bool = True
    overlap_parameters: bool = True
    overlap_tensor: bool = False

    @property
    def ffn_size(self) -> int:
        """Width of the feed-forward part."""
        return 4 * self.hidden_size if self.ffn_hidden_size is None else self.ffn_hidden_size

    @property
    def kv_heads(self) -> int:
        """Heads of keys and values."""
        return self.attention_heads if self.key_value_heads is None else self.key_value_heads

    @property
    def size_of_head(self) -> int:
        """Size of a head of queries and keys."""
        if self.head_size is not None:
            return self.head_size
        return self.hidden_size // self.attention_heads

    @property
    def world_size(self) -> int:
        """Number of ranks."""
        return (
            self.data_parallel
            * self.tensor_parallel
            * self.context_parallel
            * self.pipeline_parallel
        )

    @property
    def global_batch_size(self) -> int:
        """Sequences of an iteration."""
        return self.micro_batch_size * self.micro_batches * self.data_parallel
