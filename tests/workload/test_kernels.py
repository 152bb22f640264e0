import jax
import jax.numpy as jnp
import msgspec
import numpy as np
import pytest

from jaxperf.config import Experts, Job, LatentAttention, load_hardware
from jaxperf.cost import WorkKind, cost_us, default_model
from jaxperf.graph import TaskClass
from jaxperf.replay import double_precision
from jaxperf.workload._kernels import (
    embedding_backward,
    embedding_forward,
    head_backward,
    head_forward,
    layer_backward,
    layer_forward,
    layer_recompute,
    optimizer_pieces,
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
    head_parameters,
    layer_parameters,
    model_flops,
    model_flops_per_token,
    model_parameters,
)
from jaxperf.workload._pieces import group_shape

changed = msgspec.structs.replace

GPT = Job(
    layers=4,
    hidden_size=1024,
    attention_heads=16,
    vocabulary_size=32000,
    sequence_length=2048,
    micro_batch_size=2,
)
LLAMA = changed(GPT, ffn_hidden_size=2816, gated_ffn=True, key_value_heads=8)
MIXTURE = changed(LLAMA, experts=Experts(count=8, per_token=2, ffn_hidden_size=704, shared=1))
LATENT = changed(
    MIXTURE,
    head_size=64,
    latent_attention=LatentAttention(
        query_rank=384, key_value_rank=128, rope_head_size=32, value_head_size=48
    ),
)

# Published totals: Brown et al., arXiv 2005.14165, table 2.1; Dubey et al., arXiv 2407.21783,
# table 3, and the model cards; Jiang et al., arXiv 2401.04088; DeepSeek-AI, arXiv 2412.19437.
PUBLISHED = {
    "GPT-3 175B": (
        174.6e9,
        Job(
            layers=96,
            hidden_size=12288,
            attention_heads=96,
            vocabulary_size=50257,
            tied_embeddings=True,
            sequence_length=2048,
        ),
    ),
    "Llama 3 8B": (
        8.03e9,
        Job(
            layers=32,
            hidden_size=4096,
            ffn_hidden_size=14336,
            gated_ffn=True,
            attention_heads=32,
            key_value_heads=8,
            vocabulary_size=128256,
            sequence_length=8192,
        ),
    ),
    "Llama 3 70B": (
        70.6e9,
        Job(
            layers=80,
            hidden_size=8192,
            ffn_hidden_size=28672,
            gated_ffn=True,
            attention_heads=64,
            key_value_heads=8,
            vocabulary_size=128256,
            sequence_length=8192,
        ),
    ),
    "Llama 3 405B": (
        405.8e9,
        Job(
            layers=126,
            hidden_size=16384,
            ffn_hidden_size=53248,
            gated_ffn=True,
            attention_heads=128,
            key_value_heads=8,
            vocabulary_size=128256,
            sequence_length=8192,
        ),
    ),
    "Mixtral 8x7B": (
        46.7e9,
        Job(
            layers=32,
            hidden_size=4096,
            gated_ffn=True,
            attention_heads=32,
            key_value_heads=8,
            experts=Experts(count=8, per_token=2, ffn_hidden_size=14336),
            vocabulary_size=32000,
            sequence_length=4096,
        ),
    ),
    "DeepSeek-V3": (
        671e9,
        Job(
            layers=61,
            hidden_size=7168,
            ffn_hidden_size=18432,
            gated_ffn=True,
            attention_heads=128,
            head_size=128,
            latent_attention=LatentAttention(
                query_rank=1536, key_value_rank=512, rope_head_size=64, value_head_size=128
            ),
            experts=Experts(count=256, per_token=8, ffn_hidden_size=2048, shared=1, dense_layers=3),
            vocabulary_size=129280,
            sequence_length=4096,
        ),
    ),
}


@pytest.mark.parametrize("name", PUBLISHED)
def test_the_parameters_of_published_models_are_as_published(name):
    published, job = PUBLISHED[name]
    assert model_parameters(job) == pytest.approx(published, rel=0.005)


def test_deepseek_uses_37_billion_parameters_per_token():
    _, job = PUBLISHED["DeepSeek-V3"]
    scores = 6 * 61 * 128 * (192 + 128) * 4096
    used = (model_flops_per_token(job) - scores) / 6
    # The published 37 billion counts the input embedding (0.9 billion) as used.
    assert used + 129280 * 7168 == pytest.approx(37e9, rel=0.02)


def _flops(pieces, *kinds):
    return sum(p.flops for p in pieces if p.kind in (kinds or (WorkKind.MATMUL, 2)))


def test_a_layer_of_gpt_multiplies_24_b_s_h_squared_and_attends_2_b_s_squared_h():
    forward = layer_forward(GPT, experts=False)
    assert _flops(forward, WorkKind.MATMUL) == 24 * 2 * 2048 * 1024**2
    assert _flops(forward, WorkKind.ATTENTION) == 2 * 2 * 2048**2 * 1024


@pytest.mark.parametrize("job", [GPT, LLAMA, MIXTURE, LATENT])
@pytest.mark.parametrize("tensor", [1, 2])
def test_the_backward_pass_has_two_multiplies_for_each_and_attends_two_and_a_half_times(
    job, tensor
):
    job = changed(job, tensor_parallel=tensor)
    forward, backward = (f(job, experts=job.experts is not None) for f in _PASSES)
    assert _flops(backward, WorkKind.MATMUL) == 2 * _flops(forward, WorkKind.MATMUL)
    assert _flops(backward, WorkKind.ATTENTION) == 2.5 * _flops(forward, WorkKind.ATTENTION)
    of_weights = [p for p in backward if p.of_weights]
    assert 2 * _flops(of_weights) == _flops(backward, WorkKind.MATMUL)


_PASSES = (layer_forward, layer_backward)


@pytest.mark.parametrize("job", [GPT, LLAMA, MIXTURE, LATENT])
@pytest.mark.parametrize("split", ["tensor_parallel", "context_parallel"])
def test_ranks_that_split_a_layer_do_its_work_together(job, split):
    experts = job.experts is not None
    # The router and the compressions are computed by all tensor-parallel ranks unless split by
    # tokens.
    whole, part = (
        [p for f in _PASSES for p in f(changed(each, sequence_parallel=True), experts=experts)]
        for each in (job, changed(job, **{split: 4}))
    )
    assert 4 * _flops(part, WorkKind.MATMUL) == pytest.approx(_flops(whole, WorkKind.MATMUL))
    assert 4 * _flops(part, WorkKind.ATTENTION) == pytest.approx(_flops(whole, WorkKind.ATTENTION))


@pytest.mark.parametrize("job", [GPT, LLAMA, MIXTURE, LATENT])
@pytest.mark.parametrize("tensor", [1, 2])
@pytest.mark.parametrize("expert", [1, 4])
def test_the_matrices_of_the_multiplies_are_the_parameters(job, tensor, expert):
    has = job.experts is not None
    job = changed(job, tensor_parallel=tensor, expert_parallel=expert if has else 1)
    matrices = sum(
        p.batch * p.n * p.k for p in layer_forward(job, experts=has) if p.kind == WorkKind.MATMUL
    )
    gains = 2 * 1024 + (384 + 128 if job.latent_attention else 0)
    assert layer_parameters(job, experts=has).total == matrices + gains


def test_forward_and_backward_multiply_six_times_the_parameters_for_each_token():
    layers = [p for f in _PASSES for p in f(GPT, experts=False)]
    head = [*head_forward(GPT), *head_backward(GPT)]
    matrices = 4 * 12 * 1024**2 + 32000 * 1024
    tokens = 2 * 2048
    assert 4 * _flops(layers, WorkKind.MATMUL) + _flops(head) == 6 * matrices * tokens
    # By convention all pairs count, and backward twice: 12 l h s. A causal attention computes half
    # of them, backward 2.5 times.
    attention = 4 * _flops(layers, WorkKind.ATTENTION)
    counted = attention / 3.5 * 3 * 2
    assert model_flops(GPT) == 6 * matrices * tokens + counted


def test_experts_multiply_the_tokens_they_take_wherever_they_are():
    for expert, tensor in ((1, 1), (4, 1), (4, 2)):
        job = changed(MIXTURE, expert_parallel=expert, tensor_parallel=tensor)
        (up,) = (p for p in layer_forward(job, experts=True) if p.name == "experts up")
        assert up.batch == 8 / expert
        assert up.batch * up.m == 2 * 2048 * 2
        assert (up.n, up.k) == (2 * 704 / tensor, 1024)


def test_tokens_go_to_experts_and_come_back():
    job = changed(MIXTURE, expert_parallel=4, data_parallel=4)
    for pieces in (layer_forward(job, experts=True), layer_backward(job, experts=True)):
        sent = [p for p in pieces if p.axis == "expert"]
        assert [p.operation for p in sent] == ["all_to_all"] * 2
        assert {p.message_bytes for p in sent} == {2 * 2048 * 2 * 1024 * 2.0}
        assert {(p.ranks, p.stride) for p in sent} == {(4, 1)}


def _tensor_messages(pieces):
    return [p.operation for p in pieces if p.axis == "tensor"]


def test_tensor_parallel_layers_sum_twice_forward_and_twice_backward():
    job = changed(GPT, tensor_parallel=4)
    for pieces in (f(job, experts=False) for f in _PASSES):
        assert _tensor_messages(pieces) == ["all_reduce"] * 2
        sizes = {p.message_bytes for p in pieces if p.axis == "tensor"}
        assert sizes == {2 * 2048 * 1024 * 2.0}


def test_sequence_parallelism_gathers_and_scatters_instead_and_once_more_for_the_weights():
    job = changed(GPT, tensor_parallel=4, sequence_parallel=True)
    gather, scatter = "all_gather", "reduce_scatter"
    assert _tensor_messages(layer_forward(job, experts=False)) == [gather, scatter] * 2
    backward = _tensor_messages(layer_backward(job, experts=False))
    assert backward == [gather, gather, scatter] * 2


def test_the_streams_of_a_layer_shrink_with_sequence_parallelism():
    job = changed(GPT, tensor_parallel=4)

    def norm_bytes(job):
        forward = layer_forward(job, experts=False)
        return [p.memory_bytes for p in forward if p.task_class == TaskClass.NORMALIZATION]

    assert norm_bytes(job) == [2 * 2048 * 2 * 1024 * 2.0] * 2
    split = norm_bytes(changed(job, sequence_parallel=True))
    assert split == [each / 4 for each in norm_bytes(job)]


def test_a_ring_of_context_ranks_has_a_block_for_each_and_a_message_beside_all_but_the_last():
    job = changed(LLAMA, context_parallel=4)
    core = [p for p in layer_forward(job, experts=False) if p.kind in (2, 4)]
    assert [p.name for p in core] == ["key-value ring", "attention"] * 3 + ["attention"]
    ring = core[0]
    assert ring.beside and ring.ranks == 2
    assert ring.message_bytes == 2 * (2 * 512 * 8 * 64) * 2.0
    (back,) = {p.message_bytes for p in layer_backward(job, experts=False) if p.axis == "context"}
    assert back == 2 * ring.message_bytes


def test_what_is_recomputed_is_nothing_the_attention_or_the_layer():
    job = changed(GPT, tensor_parallel=2)
    assert layer_recompute(job, experts=False) == ()
    selective = layer_recompute(changed(job, recompute="selective"), experts=False)
    assert _flops(selective) == _flops(layer_forward(job, experts=False), WorkKind.ATTENTION)
    full = layer_recompute(changed(job, recompute="full"), experts=False)
    forward = layer_forward(job, experts=False)
    assert [p.name for p in full] == [f"recompute {p.name}" for p in forward]


def test_an_overlapped_message_comes_before_the_multiply_that_it_runs_beside():
    job = changed(GPT, tensor_parallel=2, overlap_tensor=True)
    for pieces in (f(job, experts=False) for f in _PASSES):
        for index, piece in enumerate(pieces):
            if piece.axis == "tensor":
                assert piece.beside
                assert pieces[index + 1].kind == WorkKind.MATMUL


@pytest.mark.parametrize(("precision", "moved"), [("fp8", 2 + 1 + 1), ("fp4", 2 + 0.5 + 0.5)])
def test_operands_of_narrow_multiplies_are_read_and_written_twice_before_them(precision, moved):
    job = changed(GPT, precision=precision, micro_batches=8)
    forward, backward = (f(job, experts=False) for f in _PASSES)
    tokens, hidden = 2 * 2048, 1024
    # Of qkv, projection, up and down: width of input and of output.
    widths = [(1, 3), (1, 1), (1, 4), (4, 1)]
    # Weights once a step, spread over its micro-batches.
    inputs = [tokens * k * hidden + n * k * hidden**2 / 8 for k, n in widths]
    gradients = [tokens * n * hidden for _, n in reversed(widths)]
    for pieces, elements in ((forward, inputs), (backward, gradients)):
        casts = [i for i, piece in enumerate(pieces) if piece.name.endswith("cast")]
        assert [pieces[i].memory_bytes for i in casts] == [moved * each for each in elements]
        assert all(pieces[i + 1].kind == WorkKind.MATMUL for i in casts)
    (gathered, *_) = layer_forward(changed(job, sharding="zero3"), experts=False)[1:]
    assert gathered.memory_bytes == moved * (tokens * hidden + 3 * hidden**2)


def test_nothing_is_cast_for_multiplies_of_two_bytes():
    assert not any(p.name.endswith("cast") for f in _PASSES for p in f(GPT, experts=False))


def test_casts_come_before_the_messages_that_run_beside_a_narrow_multiply():
    job = changed(
        GPT, tensor_parallel=2, sequence_parallel=True, overlap_tensor=True, precision="fp8"
    )
    for pieces in (f(job, experts=False) for f in _PASSES):
        for index, piece in enumerate(pieces):
            if piece.beside:
                assert pieces[index + 1].kind == WorkKind.MATMUL


def test_output_layer_router_and_attention_are_not_narrow():
    job = changed(MIXTURE, precision="fp8")
    ends = [*head_forward(job), *head_backward(job)]
    assert {p.precision for p in ends if p.kind == WorkKind.MATMUL} == {"bf16"}
    precision = {p.name: p.precision for p in layer_forward(job, experts=True)}
    assert precision["router"] == precision["attention"] == "bf16"
    assert precision["qkv"] == precision["experts up"] == "fp8"


def test_the_loss_reads_scores_of_a_part_of_the_vocabulary_in_fp32():
    job = changed(GPT, tensor_parallel=4)
    loss = next(p for p in head_forward(job) if p.name == "loss")
    assert loss.precision == "fp32"
    assert loss.memory_bytes == 3 * (2 * 2048) * (32000 / 4) * 4


def test_the_embedding_moves_its_tokens_and_backward_its_table():
    (forward,) = embedding_forward(GPT)
    (backward,) = embedding_backward(GPT)
    tokens, table = 2 * 2048 * 1024, 32000 * 1024
    assert forward.memory_bytes == 2 * tokens * 2
    # A dense gradient is written and read in bf16, the sum of gradients read and written in fp32.
    assert backward.memory_bytes == 2 * tokens * 2 + table * (2 + 2 + 4 + 4)


def test_the_optimizer_streams_its_states_and_shares_them_where_it_is_sharded():
    counts = ParameterCounts(6e6, 2e6)
    job = changed(GPT, data_parallel=4)
    norm, update = optimizer_pieces(job, counts)
    assert norm.memory_bytes == 8e6 * 4
    assert update.memory_bytes == 8e6 * (4 + 3 * 8 + 2)
    sharded = optimizer_pieces(changed(job, sharding="zero1"), counts)
    assert [p.kind.name for p in sharded] == ["MEMORY", "COLLECTIVE", "MEMORY"]
    assert sharded[-1].memory_bytes == update.memory_bytes / 4
    # Of experts that two ranks spread, only the two others share the states.
    spread = changed(job, sharding="zero1", expert_parallel=2)
    assert optimizer_pieces(spread, counts)[0].memory_bytes == (6e6 / 4 + 2e6 / 2) * 4


def test_gradients_are_summed_over_data_and_context_and_those_of_experts_over_fewer():
    job = changed(GPT, data_parallel=4, context_parallel=2, tensor_parallel=2, expert_parallel=4)
    dense, expert = gradient_messages(job, ParameterCounts(1e6, 3e6))
    assert (dense.operation, dense.message_bytes, dense.ranks, dense.stride) == (
        "all_reduce",
        4e6,
        8,
        2,
    )
    assert (expert.message_bytes, expert.ranks, expert.stride) == (12e6, 2, 8)
    assert gradient_messages(GPT, ParameterCounts(1e6)) == ()


def test_sharded_gradients_are_scattered_and_weights_gathered():
    job = changed(GPT, data_parallel=4, sharding="zero3")
    counts = ParameterCounts(1e6)
    (gradients,), (weights,) = gradient_messages(job, counts), parameter_messages(job, counts)
    assert (gradients.operation, gradients.message_bytes) == ("reduce_scatter", 4e6)
    assert (weights.operation, weights.message_bytes) == ("all_gather", 2e6)
    assert parameter_messages(changed(job, sharding="none"), counts) == ()


def test_a_stage_sends_the_residual_stream():
    job = changed(GPT, pipeline_parallel=2, tensor_parallel=4)
    assert pipeline_message(job).message_bytes == 2 * 2048 * 1024 * 2.0
    split = pipeline_message(changed(job, sequence_parallel=True))
    assert split.message_bytes == 2 * 2048 * 1024 * 2.0 / 4
    assert (split.ranks, split.stride) == (2, 4)


def test_tied_embeddings_are_held_twice_in_a_pipeline_and_their_gradients_summed():
    job = changed(GPT, tied_embeddings=True)
    assert head_parameters(job).total == 1024
    assert tied_embedding_message(job) == ()
    two = changed(job, pipeline_parallel=2)
    assert head_parameters(two).total == 1024 + 32000 * 1024
    assert tied_embedding_message(two)[0].message_bytes == 32000 * 1024 * 4


def test_the_order_of_ranks_sets_the_distance_of_neighbours():
    job = changed(GPT, data_parallel=4, tensor_parallel=2, pipeline_parallel=8)
    near = changed(job, rank_order="tp-dp-pp")
    assert group_shape(near, "data") == (4, 2)
    assert group_shape(near, "pipeline") == (8, 8)
    far = changed(job, rank_order="tp-pp-dp")
    assert group_shape(far, "pipeline") == (8, 2)
    assert group_shape(far, "data") == (4, 16)


ALL = changed(
    LATENT,
    tensor_parallel=2,
    sequence_parallel=True,
    context_parallel=2,
    data_parallel=4,
    expert_parallel=4,
    pipeline_parallel=2,
    sharding="zero1",
)


def _all_pieces(job):
    pieces = []
    for experts in (False, True):
        pieces += [*layer_forward(job, experts=experts), *layer_backward(job, experts=experts)]
    counts = layer_parameters(job, experts=True)
    pieces += [*embedding_forward(job), *embedding_backward(job)]
    pieces += [*head_forward(job), *head_backward(job), *optimizer_pieces(job, counts)]
    pieces += [*gradient_messages(job, counts), *parameter_messages(job, counts)]
    return [*pieces, pipeline_message(job)]


def test_every_piece_has_a_time():
    model, work = default_model(load_hardware("h100")), pack_work(_all_pieces(ALL))
    time_us = jax.jit(lambda model: cost_us(model, work))(model)
    assert np.all(np.asarray(time_us) > 0)


def test_sizes_that_are_traced_give_the_same_work():
    with double_precision():
        host, device = pack_work(_all_pieces(ALL)), pack_traced_work(_all_pieces(ALL))
        for name in ("flops", "memory_bytes", "message_bytes", "m", "ranks"):
            np.testing.assert_array_equal(getattr(host, name), np.asarray(getattr(device, name)))


# Away from multiples of a tile, at which the number of tiles jumps.
SIZES = {
    "hidden_size": 4130.0,
    "ffn_hidden_size": 11030.0,
    "sequence_length": 4110.0,
    "micro_batch_size": 1.3,
    "vocabulary_size": 64120.0,
    "data_parallel": 8.0,
}


@pytest.mark.slow
def test_the_time_of_all_pieces_has_the_gradient_of_finite_differences():
    job = changed(ALL, latent_attention=None, head_size=None, layers=1)
    model = default_model(load_hardware("h100"))

    def total_us(*values):
        pieces = _all_pieces(changed(job, **dict(zip(SIZES, values, strict=True))))
        return cost_us(model, pack_traced_work(pieces)).sum()

    with double_precision():
        at = np.array([*SIZES.values()])
        total_us = jax.jit(jax.value_and_grad(total_us, tuple(range(len(at)))))
        _, gradient = total_us(*at)
        for index, step in enumerate(at * 1e-6):
            moved = [at + move * np.eye(len(at))[index] for move in (step, -step)]
            ends_us = [float(total_us(*sizes)[0]) for sizes in moved]
            slope = (ends_us[0] - ends_us[1]) / (2 * step)
            assert float(gradient[index]) == pytest.approx(slope, rel=1e-5)
            assert slope != 0


def test_many_sizes_are_one_batched_call():
    def flops(micro_batch_size, sequence_length):
        sizes = {"micro_batch_size": micro_batch_size, "sequence_length": sequence_length}
        return pack_traced_work(_all_pieces(changed(ALL, **sizes))).flops

    with double_precision():
        batched = jax.vmap(flops)(jnp.array([1.0, 2.0]), jnp.array([2048.0, 4096.0]))
        for row, (batch, length) in zip(batched, ((1, 2048), (2, 4096)), strict=True):
            np.testing.assert_array_equal(row, flops(batch, length))
