"""Memory of jobs: published closed forms, worked examples, and what was measured."""

import importlib
import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from msgspec.structs import replace

from jaxperf.config import Experts, Job, LatentAttention, check_job
from jaxperf.workload._parameters import (
    embedding_parameters,
    head_parameters,
    layer_parameters,
    model_parameters,
)
from jaxperf.workload._schedules import passes_in_flight
from jaxperf.workload.memory._activations import (
    Block,
    Operator,
    SavedTensor,
    backward_peak_bytes,
    kept_bytes,
    saved_bytes,
    weights_of,
)
from jaxperf.workload.memory._memory import job_memory
from jaxperf.workload.memory._memory_fit import memory_fit
from jaxperf.workload.memory._saved_tensors import embedding_part, head_part, layer_part

GIB, MIB = 2**30, 2**20
GPT = Job(
    layers=8,
    hidden_size=1024,
    attention_heads=16,
    vocabulary_size=51200,
    sequence_length=2048,
    micro_batch_size=2,
)
LLAMA = replace(GPT, ffn_hidden_size=2816, gated_ffn=True, key_value_heads=8)
EXPERTS = replace(
    LLAMA, experts=Experts(count=8, per_token=2, ffn_hidden_size=512, shared=1, dense_layers=1)
)
LATENT = replace(
    EXPERTS,
    head_size=48,
    latent_attention=LatentAttention(
        query_rank=384, key_value_rank=128, rope_head_size=16, value_head_size=32
    ),
)
KINDS = {"gpt": GPT, "llama": LLAMA, "experts": EXPERTS, "latent": LATENT}


def unit_bytes(job: Job) -> float:
    """The s b h of the closed forms."""
    return job.sequence_length * job.micro_batch_size * job.hidden_size


def published(job: Job) -> float:
    """Activations of a layer with dropout and unfused attention: arXiv 2205.05198, table 2."""
    tensor, size = job.tensor_parallel, unit_bytes(job)
    scores = 5 * job.attention_heads * job.sequence_length / job.hidden_size / tensor
    if job.recompute == "full":
        return 2 * size / (tensor if job.sequence_parallel else 1)
    rest = 34 / tensor if job.sequence_parallel else 10 + 24 / tensor
    return size * (rest + (scores if job.recompute == "none" else 0.0))


@pytest.mark.parametrize("recompute", ["none", "selective", "full"])
@pytest.mark.parametrize("sequence_parallel", [False, True])
@pytest.mark.parametrize("tensor_parallel", [1, 2, 8])
def test_saved_tensors_of_a_gpt_layer_add_up_to_the_published_forms(
    tensor_parallel, sequence_parallel, recompute
):
    job = replace(
        GPT,
        tensor_parallel=tensor_parallel,
        sequence_parallel=sequence_parallel,
        recompute=recompute,
    )
    part = layer_part(job, experts=False, fused_attention=False, dropout=True)
    assert kept_bytes(part, recompute == "full") == pytest.approx(published(job), rel=1e-12)


@pytest.mark.parametrize("ffn_hidden_size", [1024, 2048, 4096])
def test_the_width_of_the_feed_forward_part_counts_as_megatron_counts_it(ffn_hidden_size):
    # s b h (18 + 4 f / h) / t with sequence parallelism and selective recompute, in
    # megatron/training/theoretical_memory_usage.py.
    job = replace(
        GPT,
        ffn_hidden_size=ffn_hidden_size,
        tensor_parallel=4,
        sequence_parallel=True,
        recompute="selective",
    )
    part = layer_part(job, experts=False, fused_attention=False, dropout=True)
    expected = unit_bytes(job) * (18 + 4 * ffn_hidden_size / job.hidden_size) / 4
    assert saved_bytes(part) == pytest.approx(expected, rel=1e-12)


def test_fused_attention_keeps_a_number_a_token_and_head_in_place_of_scores():
    tokens = GPT.sequence_length * GPT.micro_batch_size
    part = layer_part(GPT, experts=False)
    assert saved_bytes(part) == 32 * unit_bytes(GPT) + 4 * tokens * GPT.attention_heads


def test_unfused_loss_keeps_what_was_published():
    # 4 s b h (1 + v / h): two times hidden states, and the logits in 32 bits.
    expected = 4 * unit_bytes(GPT) * (1 + GPT.vocabulary_size / GPT.hidden_size)
    assert saved_bytes(head_part(GPT, fused_loss=False)) == expected


def test_fused_loss_keeps_the_logits_once_in_two_bytes():
    unfused = saved_bytes(head_part(GPT, fused_loss=False))
    logits = GPT.sequence_length * GPT.micro_batch_size * GPT.vocabulary_size
    assert unfused - saved_bytes(head_part(GPT)) == 2 * logits


def test_a_token_index_takes_eight_bytes():
    assert saved_bytes(embedding_part(GPT)) == 8 * GPT.sequence_length * GPT.micro_batch_size


def test_experts_keep_each_token_as_often_as_it_is_routed():
    # By token: attention as in a dense layer with 8 key-value heads of 64 and no scores kept.
    hidden, heads = 1024, 16
    attention = 2 * (hidden + hidden + hidden + 2 * 8 * 64 + hidden) + 4 * heads
    # Input and normalised input; scores and choice; two routed copies, their two gate-and-up
    # halves of 512 each and the product; and the same for the shared expert without a copy.
    routed = 2 * (2 * 2 * hidden / 2 + 2 * (2 * 512 + 512))
    shared = 2 * (2 * 512 + 512)
    experts = 2 * 2 * hidden + 2 * 4 * 8 + routed + shared
    tokens = EXPERTS.sequence_length * EXPERTS.micro_batch_size
    part = layer_part(EXPERTS, experts=True)
    assert saved_bytes(part) == tokens * (attention + experts)


def test_latent_attention_keeps_both_widths():
    # Hidden states before and after the norm; both compressed forms before and after theirs;
    # 16 heads of queries and keys of 64, values of 32 and their result of 32.
    attention = 2 * (2 * 1024 + 2 * (384 + 128) + 16 * (64 + 64 + 32 + 32)) + 4 * 16
    feed_forward = 2 * (2 * 1024 + 3 * 2816)
    tokens = LATENT.sequence_length * LATENT.micro_batch_size
    part = layer_part(LATENT, experts=False)
    assert saved_bytes(part) == tokens * (attention + feed_forward)


@pytest.mark.parametrize("tensor_parallel", [1, 4])
@pytest.mark.parametrize("kind", KINDS)
def test_weights_of_the_operators_are_the_parameters_of_the_job(kind, tensor_parallel):
    job = replace(KINDS[kind], tensor_parallel=tensor_parallel)
    if job.experts is not None:
        job = replace(job, expert_parallel=2, data_parallel=2)
    for experts in {False, job.experts is not None}:
        weights = weights_of(layer_part(job, experts=experts))
        expected = layer_parameters(job, experts=experts).total
        assert sum(weight.elements for weight in weights) == expected
    for part, parameters in (
        (embedding_part(job), embedding_parameters(job)),
        (head_part(job), head_parameters(job)),
    ):
        assert sum(weight.elements for weight in weights_of(part)) == parameters.total


@pytest.mark.parametrize(
    ("sharding", "per_parameter"),
    [
        ("none", 18.0),
        ("zero1", 6 + 12 / 8),
        ("zero2", 2 + (4 + 12) / 8),
        ("zero3", (2 + 4 + 12) / 8),
    ],
)
def test_a_parameter_costs_what_megatron_and_zero_say(sharding, per_parameter):
    # 18, or 6 + 12 / ranks; arXiv 1910.02054, section 3.1, with gradients in 32 bits.
    job = replace(LLAMA, data_parallel=4, context_parallel=2, sharding=sharding)
    stage = job_memory(job).stages[0]
    held = stage.weights_bytes + stage.gradients_bytes + stage.optimizer_bytes
    assert stage.parameters == model_parameters(job)
    assert held == pytest.approx(per_parameter * stage.parameters, rel=1e-12)


def test_states_of_experts_are_spread_over_fewer_ranks():
    job = replace(EXPERTS, data_parallel=8, expert_parallel=4, sharding="zero1")
    layers = [layer_parameters(job, experts=layer > 0) for layer in range(8)]
    dense = sum(each.dense for each in layers)
    dense += embedding_parameters(job).total + head_parameters(job).total
    expert = sum(each.expert for each in layers)
    stage = job_memory(job).stages[0]
    assert stage.optimizer_bytes == pytest.approx(12 * dense / 8 + 12 * expert / 2, rel=1e-12)


@pytest.mark.parametrize("schedule", ["gpipe", "1F1B", "zero-bubble"])
def test_activations_of_a_middle_stage_are_those_of_the_passes_in_flight(schedule):
    job = replace(GPT, pipeline_parallel=4, micro_batches=8, schedule=schedule)
    layer = saved_bytes(layer_part(job, experts=False))
    passes = passes_in_flight(schedule, 4, 8)
    stages = job_memory(job).stages
    for rank in (1, 2):
        assert stages[rank].activations_bytes == pytest.approx(passes[rank] * 2 * layer)


def test_interleaving_holds_more_by_what_was_published():
    # 1 + (p - 1) / (p v) times the activations of 1F1B on the first stage (arXiv 2205.05198,
    # section 4.3), up to the indices that the embedding keeps.
    one = replace(GPT, layers=32, pipeline_parallel=4, micro_batches=16)
    two = replace(one, schedule="interleaved", virtual_stages=2)
    held = [job_memory(job).stages[0].activations_bytes for job in (one, two)]
    assert held[1] / held[0] == pytest.approx(1 + 3 / (4 * 2), rel=1e-4)


def test_dualpipe_holds_the_parameters_of_two_stages():
    job = replace(GPT, pipeline_parallel=4, micro_batches=8, schedule="dualpipe")
    stages = job_memory(job).stages
    plain = job_memory(replace(job, schedule="1F1B")).stages
    for rank, stage in enumerate(stages):
        assert stage.parameters == plain[rank].parameters + plain[3 - rank].parameters
        assert stage.layers == 4


@given(
    stages=st.sampled_from([2, 4]),
    schedule=st.sampled_from(["1F1B", "zero-bubble", "interleaved", "dualpipe"]),
    factor=st.integers(5, 12),
)
@settings(max_examples=20)
def test_more_micro_batches_than_show_the_steady_state_change_nothing(stages, schedule, factor):
    virtual = 2 if schedule == "interleaved" else 1
    few, many = (
        passes_in_flight(schedule, stages, count * stages, virtual) for count in (4, factor)
    )
    assert few == many


def test_a_backward_pass_peaks_where_gradients_meet_what_is_not_yet_freed():
    def step(saved: float, output: float, made: float, workspace: float = 0.0) -> Operator:
        return Operator("x", (SavedTensor("y", "x", saved),), (), output, made, workspace)

    # Last first: 1 held + 8 made = 9; then 5 freed: 1 + 8 + 6 + 2 - 5 = 12; then 7 freed more.
    block = Block(((step(3, 6, 1), step(7, 8, 6, 2), step(5, 1, 8)),), 1.0)
    assert backward_peak_bytes([(block,)]) == 12.0


def test_recomputed_layers_keep_their_input_and_one_layer_more_at_a_time():
    job = replace(GPT, layers=6)
    full = replace(job, recompute="full")
    part = layer_part(job, experts=False)
    plain, recomputed = (job_memory(each).stages[0] for each in (job, full))
    stream = 2 * unit_bytes(job)
    saved = plain.activations_bytes - recomputed.activations_bytes
    assert saved == pytest.approx(6 * (saved_bytes(part) - stream))
    assert backward_peak_bytes([part], recompute=True) == pytest.approx(
        saved_bytes(part) - stream + backward_peak_bytes([part])
    )


@given(
    kind=st.sampled_from(sorted(KINDS)),
    tensor=st.sampled_from([2, 4]),
    context=st.sampled_from([1, 2]),
    recompute=st.sampled_from(["none", "selective", "full"]),
    schedule=st.sampled_from(["1F1B", "zero-bubble", "gpipe"]),
)
@settings(max_examples=40)
def test_finer_splits_never_need_more(kind, tensor, context, recompute, schedule):
    job = replace(
        KINDS[kind],
        tensor_parallel=tensor,
        context_parallel=context,
        pipeline_parallel=2,
        data_parallel=2,
        micro_batches=4,
        sequence_parallel=True,
        recompute=recompute,
        schedule=schedule,
    )
    total = job_memory(job).peak.total_bytes
    # Hidden states gathered for a multiply stay as they are, so that from 1 to 2 may need more.
    assert job_memory(replace(job, tensor_parallel=2 * tensor)).peak.total_bytes <= total
    assert job_memory(replace(job, micro_batch_size=1)).peak.total_bytes <= total
    assert job_memory(replace(job, sharding="zero1")).peak.total_bytes <= total
    if context > 1:
        assert job_memory(replace(job, context_parallel=4)).peak.total_bytes <= total
    if recompute == "none":
        less = job_memory(replace(job, recompute="full")).peak
        assert less.activations_bytes <= job_memory(job).peak.activations_bytes


def test_full_sharding_adds_the_layers_that_are_gathered():
    job = replace(LLAMA, data_parallel=8, sharding="zero3", prefetch=1)
    more = replace(job, prefetch=2)
    layer = layer_parameters(job, experts=False).total
    first, second = (job_memory(each).stages[0].sharding_bytes for each in (job, more))
    assert second - first == 2 * layer


def test_a_job_that_fits_has_no_remedies():
    fit = memory_fit(GPT, 80 * GIB)
    assert fit.fits
    assert fit.remedies == ()
    assert fit.over_bytes == (job_memory(GPT).peak.total_bytes - 80 * GIB,)


@pytest.mark.parametrize("kind", KINDS)
def test_every_remedy_is_a_job_that_can_be_and_needs_what_it_says(kind):
    job = replace(KINDS[kind], layers=64, data_parallel=4, micro_batches=8)
    needed = job_memory(job).peak.total_bytes
    fit = memory_fit(job, 0.6 * needed)
    assert fit.stages_over == (0,)
    assert fit.remedies
    totals = [remedy.total_bytes for remedy in fit.remedies]
    assert totals == sorted(totals, reverse=True)
    for remedy in fit.remedies:
        check_job(remedy.job, "remedy")
        assert replace(job, **dict(remedy.changes)) == remedy.job
        assert remedy.job.global_batch_size == job.global_batch_size
        assert job_memory(remedy.job).peak.total_bytes == remedy.total_bytes
        assert remedy.fits
        assert remedy.total_bytes <= 0.6 * needed


def test_where_one_change_is_too_little_several_are_tried_together():
    job = replace(LLAMA, layers=64, data_parallel=4, micro_batches=8)
    alone = memory_fit(job, 0.99 * job_memory(job).peak.total_bytes).remedies[-1]
    assert len(alone.changes) == 1
    fit = memory_fit(job, 0.7 * alone.total_bytes)
    assert not fit.fits
    assert all(len(remedy.changes) > 1 for remedy in fit.remedies)


def test_where_nothing_fits_the_nearest_is_told():
    fit = memory_fit(replace(GPT, data_parallel=2), 1.0)
    (nearest,) = fit.remedies
    assert not nearest.fits
    assert nearest.total_bytes < job_memory(replace(GPT, data_parallel=2)).peak.total_bytes


@pytest.fixture(scope="module")
def simumax():
    """The runs of `groundtruth/simumax` as jobs."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(Path(__file__).resolve().parents[3] / "benchmarks"))
        return importlib.import_module("_jobs_simumax")


def test_measured_memory_is_met_within_three_percent(shared, simumax):
    runs = simumax.jobs(shared)
    assert len(runs) == 43
    error = [job_memory(run.job).peak.allocated_bytes / run.real_alloc_bytes - 1 for run in runs]
    assert np.mean(np.abs(error)) < 0.03
    assert np.max(np.abs(error)) < 0.03


def test_measured_memory_is_met_on_every_stage(shared, simumax):
    for row, run in zip(simumax.rows(shared), simumax.jobs(shared), strict=True):
        check_job(run.job, run.label)
        measured = simumax.allocated_by_stage(row)
        stages = job_memory(run.job).stages
        assert [stage.allocated_bytes for stage in stages] == pytest.approx(measured, rel=0.03)


def test_a_llama_layer_keeps_what_another_profiler_measured(shared):
    folder = shared / "groundtruth" / "galvatron"
    profile = json.loads((folder / "memory_profiling_bf16_llama2-7b_all.json").read_text())
    (measured,) = profile["layertype_0_sp"].values()
    by_degree = measured["tp_activation_per_bsz_dict"]
    # With recompute a layer keeps its input alone, which tells how many tokens there were.
    tokens = by_degree["checkpoint"] * MIB / (2 * 4096)
    for degree, tolerance in ((1, 0.001), (2, 0.07), (4, 0.07), (8, 0.07)):
        job = Job(
            layers=2,
            hidden_size=4096,
            ffn_hidden_size=11008,
            gated_ffn=True,
            attention_heads=32,
            vocabulary_size=32000,
            sequence_length=int(tokens),
            tensor_parallel=degree,
            sequence_parallel=True,
        )
        kept = saved_bytes(layer_part(job, experts=False)) / MIB
        assert kept == pytest.approx(by_degree[str(degree)], rel=tolerance)
