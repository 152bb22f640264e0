"""Rules of a job: each is refused in one line, with values near by that fulfil it."""

import re
from typing import Any

import hypothesis
import hypothesis.strategies as st
import msgspec
import pytest

from jaxperf.config import JOB_PRECISIONS, Experts, Job, LatentAttention, check_job
from jaxperf.cost import PRECISIONS
from jaxperf.errors import ConfigError


def job(**values) -> Job:
    fields: dict[str, Any] = {
        "layers": 24,
        "hidden_size": 1024,
        "attention_heads": 16,
        "vocabulary_size": 51200,
        "sequence_length": 2048,
        "micro_batches": 8,
    }
    return Job(**fields | values)


MIXTURE = Experts(count=8, per_token=2, ffn_hidden_size=512)


@pytest.mark.parametrize(
    "values, message",
    [
        # Stages
        (
            {"layers": 30, "pipeline_parallel": 4},
            "job: layers: not divisible by pipeline_parallel; got 30 with pipeline_parallel = 4; "
            "expected a multiple of 4, such as 28 or 32",
        ),
        (
            {"layers": 2, "pipeline_parallel": 4},
            "job: layers: not divisible by pipeline_parallel; got 2 with pipeline_parallel = 4; "
            "expected a multiple of 4, such as 4",
        ),
        (
            {
                "layers": 20,
                "pipeline_parallel": 4,
                "virtual_stages": 2,
                "schedule": "interleaved",
            },
            "job: layers: not divisible by pipeline_parallel x virtual_stages; got 20 with "
            "pipeline_parallel x virtual_stages = 8; expected a multiple of 8, such as 16 or 24",
        ),
        (
            {"pipeline_parallel": 4, "stage_layers": (8, 8, 8)},
            "job: stage_layers: not as many as stages; got 3; "
            "expected 4 entries, one a stage, such as [6, 6, 6, 6]",
        ),
        (
            {"layers": 26, "pipeline_parallel": 4, "stage_layers": (6, 6, 6, 6)},
            "job: stage_layers: their sum is not layers; got 24; "
            "expected a sum of 26, such as [7, 7, 6, 6]",
        ),
        (
            {"pipeline_parallel": 4, "stage_layers": (0, 8, 8, 8)},
            "job: stage_layers: a stage without layers; got 0 at place 0; "
            "expected 1 or more in each, such as [6, 6, 6, 6]",
        ),
        (
            {"pipeline_parallel": 4, "stage_layers": (25, -1, 0, 0)},
            "job: stage_layers: a stage without layers; got -1 at place 1; "
            "expected 1 or more in each, such as [6, 6, 6, 6]",
        ),
        (
            {"layers": 2, "pipeline_parallel": 4, "stage_layers": (1, 1, 0, 0)},
            "job: layers: stages without layers; got 2 with pipeline_parallel = 4; "
            "expected 4 or more",
        ),
        # Tensor parallelism
        (
            {"hidden_size": 1000},
            "job: hidden_size: not divisible by attention_heads; got 1000 with "
            "attention_heads = 16; expected a multiple of 16, such as 992 or 1008",
        ),
        (
            {"attention_heads": 12, "head_size": 64, "tensor_parallel": 8},
            "job: attention_heads: not divisible by tensor_parallel; got 12 with "
            "tensor_parallel = 8; expected a multiple of 8, such as 8 or 16",
        ),
        (
            {"key_value_heads": 6},
            "job: key_value_heads: attention_heads not divisible by it; got 6 with "
            "attention_heads = 16; expected a divisor of 16, such as 4 or 8",
        ),
        (
            {"attention_heads": 24, "head_size": 64, "key_value_heads": 6, "tensor_parallel": 4},
            "job: key_value_heads: not divisible by tensor_parallel; got 6 with "
            "tensor_parallel = 4; expected a multiple of 4, such as 4 or 8",
        ),
        (
            {"hidden_size": 1020, "head_size": 64, "tensor_parallel": 8},
            "job: hidden_size: not divisible by tensor_parallel; got 1020 with "
            "tensor_parallel = 8; expected a multiple of 8, such as 1016 or 1024",
        ),
        (
            {"ffn_hidden_size": 2732, "tensor_parallel": 8},
            "job: ffn_hidden_size: not divisible by tensor_parallel; got 2732 with "
            "tensor_parallel = 8; expected a multiple of 8, such as 2728 or 2736",
        ),
        (
            {"vocabulary_size": 50257, "tensor_parallel": 2},
            "job: vocabulary_size: not divisible by tensor_parallel; got 50257 with "
            "tensor_parallel = 2; expected a multiple of 2, such as 50256 or 50258",
        ),
        # Sequences
        (
            {"sequence_length": 2052, "context_parallel": 4},
            "job: sequence_length: not divisible by 2 x context_parallel; got 2052 with "
            "2 x context_parallel = 8; expected a multiple of 8, such as 2048 or 2056",
        ),
        (
            {"sequence_length": 2052, "tensor_parallel": 8, "sequence_parallel": True},
            "job: sequence_length: not divisible by tensor_parallel; got 2052 with "
            "sequence_parallel and tensor_parallel = 8; "
            "expected a multiple of 8, such as 2048 or 2056",
        ),
        (
            {
                "sequence_length": 2056,
                "tensor_parallel": 4,
                "context_parallel": 4,
                "sequence_parallel": True,
            },
            "job: sequence_length: not divisible by tensor_parallel x context_parallel; got 2056 "
            "with sequence_parallel and tensor_parallel x context_parallel = 16; "
            "expected a multiple of 16, such as 2048 or 2064",
        ),
        # Experts
        (
            {"expert_parallel": 2, "data_parallel": 2},
            "job: expert_parallel: no experts to spread; got 2; expected 1",
        ),
        (
            {"experts": MIXTURE, "expert_parallel": 3, "data_parallel": 8},
            "job: expert_parallel: experts.count not divisible by it; got 3 with experts.count = "
            "8; expected a divisor of both experts.count and of the ranks, such as 2 or 4",
        ),
        (
            {"experts": MIXTURE, "expert_parallel": 8, "data_parallel": 4},
            "job: expert_parallel: data_parallel x context_parallel not divisible by it; got 8 "
            "with data_parallel x context_parallel = 4; expected a divisor of both experts.count "
            "and of the ranks, such as 4",
        ),
        (
            {"experts": msgspec.structs.replace(MIXTURE, per_token=9)},
            "job: experts.per_token: more than there are; got 9 with experts.count = 8; "
            "expected 1 to 8",
        ),
        (
            {"experts": msgspec.structs.replace(MIXTURE, dense_layers=24)},
            "job: experts.dense_layers: no layer with experts; got 24 with layers = 24; "
            "expected 0 to 23, or no experts",
        ),
        (
            {
                "experts": msgspec.structs.replace(MIXTURE, ffn_hidden_size=510),
                "tensor_parallel": 4,
            },
            "job: experts.ffn_hidden_size: not divisible by tensor_parallel; got 510 with "
            "tensor_parallel = 4; expected a multiple of 4, such as 508 or 512",
        ),
        # Schedules
        (
            {"schedule": "none", "pipeline_parallel": 2},
            "job: schedule: several stages need a schedule; got none with pipeline_parallel = 2; "
            "expected 1F1B, or pipeline_parallel = 1",
        ),
        (
            {"virtual_stages": 2, "pipeline_parallel": 2},
            "job: virtual_stages: one chunk of layers on a rank; got 2 with schedule = 1F1B; "
            "expected 1, or schedule = interleaved",
        ),
        (
            {"schedule": "interleaved", "pipeline_parallel": 2},
            "job: virtual_stages: nothing to interleave; got 1 with schedule = interleaved; "
            "expected 2 or more, or schedule = 1F1B",
        ),
        (
            {"schedule": "interleaved", "virtual_stages": 2},
            "job: pipeline_parallel: nothing to interleave; got 1 with schedule = interleaved; "
            "expected 2 or more, or schedule = 1F1B with virtual_stages = 1",
        ),
        (
            {
                "schedule": "interleaved",
                "virtual_stages": 2,
                "pipeline_parallel": 4,
                "micro_batches": 10,
            },
            "job: micro_batches: not divisible by pipeline_parallel; got 10 with "
            "pipeline_parallel = 4 and schedule = interleaved; "
            "expected a multiple of 4, such as 8 or 12",
        ),
        (
            {"schedule": "dualpipe", "pipeline_parallel": 3},
            "job: pipeline_parallel: not an even number of stages; got 3 with schedule = "
            "dualpipe; expected a multiple of 2, such as 2 or 4",
        ),
        (
            {"schedule": "dualpipe", "pipeline_parallel": 4, "micro_batches": 11},
            "job: micro_batches: not even, or fewer than two a stage; got 11 with schedule = "
            "dualpipe and pipeline_parallel = 4; expected an even number from 8 on, such as 10 "
            "or 12",
        ),
        (
            {"schedule": "dualpipe", "pipeline_parallel": 4, "micro_batches": 4},
            "job: micro_batches: not even, or fewer than two a stage; got 4 with schedule = "
            "dualpipe and pipeline_parallel = 4; expected an even number from 8 on, such as 8",
        ),
        # Ranks
        (
            {"rank_order": "tp-pp", "data_parallel": 2},
            "job: rank_order: dp left out; got 'tp-pp'; expected each of tp, cp, dp, pp once, "
            "those of one rank may be left out, such as tp-pp-dp",
        ),
        (
            {"rank_order": "tp-dp-dp"},
            "job: rank_order: not an order of axes; got 'tp-dp-dp'; expected each of tp, cp, dp, "
            "pp once, those of one rank may be left out, such as tp-dp",
        ),
        (
            {"rank_order": "tp-ep-dp-pp"},
            "job: rank_order: not an order of axes; got 'tp-ep-dp-pp'; expected each of tp, cp, "
            "dp, pp once, those of one rank may be left out, such as tp-dp-pp",
        ),
        # Numbers and words
        ({"layers": 0}, "job: layers: not a count; got 0; expected 1 to 1000000, such as 1"),
        (
            {"micro_batches": -4},
            "job: micro_batches: not a count; got -4; expected 1 to 1000000, such as 1",
        ),
        (
            {"hidden_size": 10**18},
            "job: hidden_size: not a count; got 1000000000000000000; expected 1 to 1000000000, "
            "such as 1000000000",
        ),
        (
            {"prefetch": -1},
            "job: prefetch: not a count; got -1; expected 0 to 1000000000, such as 0",
        ),
        (
            {"experts": msgspec.structs.replace(MIXTURE, count=0)},
            "job: experts.count: not a count; got 0; expected 1 to 1000000000, such as 1",
        ),
        (
            {
                "latent_attention": LatentAttention(
                    key_value_rank=0, rope_head_size=64, value_head_size=64
                )
            },
            "job: latent_attention.key_value_rank: not a count; got 0; expected 1 to 1000000000, "
            "such as 1",
        ),
        (
            {"gradient_bytes": float("nan")},
            "job: gradient_bytes: not the size of a number; got nan; expected a number above 0 "
            "and at most 8, such as 2 or 4",
        ),
        (
            {"precision": "bfloat16"},
            "job: precision: no such type; got 'bfloat16'; expected one of bf16, fp16",
        ),
    ],
)
def test_a_job_that_cannot_be_is_refused_with_its_rule_and_the_nearest_values(values, message):
    with pytest.raises(ConfigError) as error:
        check_job(job(**values), "job")
    assert str(error.value) == message


@pytest.mark.parametrize(
    "gpus, near", [(16, ", such as data_parallel = 3"), (4, ", such as data_parallel = 1"), (3, "")]
)
def test_more_ranks_than_gpus_are_refused_with_the_replicas_that_fit(gpus, near):
    wide = job(data_parallel=6, tensor_parallel=2, pipeline_parallel=2)
    with pytest.raises(ConfigError) as error:
        check_job(wide, "job", gpus=gpus)
    assert str(error.value) == (
        "job: ranks: more than there are GPUs; got 24 ranks (tensor_parallel 2 x data_parallel 6 "
        f"x pipeline_parallel 2) on {gpus} GPUs; expected at most {gpus}{near}"
    )
    assert check_job(wide, "job", gpus=24) is wide


@pytest.mark.parametrize(
    "values",
    [
        # Fewer heads of keys and values than ranks: each is held by several.
        {"key_value_heads": 2, "tensor_parallel": 8},
        {"sequence_length": 2050, "tensor_parallel": 4},
        # One rank holds all: nothing is divided, and no order needs naming.
        {"vocabulary_size": 50257, "rank_order": "tp"},
        {"sharding": "zero3", "sequence_parallel": True},
        {"schedule": "zero-bubble", "pipeline_parallel": 4, "micro_batches": 1},
        {"schedule": "gpipe", "pipeline_parallel": 4, "micro_batches": 3},
        {"schedule": "dualpipe", "pipeline_parallel": 4, "micro_batches": 8},
        {"pipeline_parallel": 4, "stage_layers": (5, 7, 7, 5)},
        {"experts": MIXTURE, "expert_parallel": 8, "data_parallel": 4, "context_parallel": 2},
        # Every layer has experts, so that the width of a dense one is nowhere.
        {"experts": MIXTURE, "ffn_hidden_size": 1001, "tensor_parallel": 2},
        {"prefetch": 0, "gradient_bytes": 2},
    ],
)
def test_what_only_looks_wrong_is_a_job(values):
    check_job(job(**values), "job")


def test_the_ends_of_the_model_may_be_chunks_without_layers_where_their_ranks_have_others():
    interleaved = {"pipeline_parallel": 2, "virtual_stages": 2, "schedule": "interleaved"}
    check_job(job(stage_layers=(0, 12, 12, 0), **interleaved), "job")
    for held in ((0, 12, 0, 12), (12, 0, 12, 0), (0, 24, 0, 0)):
        with pytest.raises(ConfigError, match="stage_layers: a stage without layers"):
            check_job(job(stage_layers=held, **interleaved), "job")


def test_the_precisions_of_a_job_are_types_that_the_cost_models_know():
    assert set(JOB_PRECISIONS) <= set(PRECISIONS)


SMALL = st.integers(1, 12)


@hypothesis.given(
    values=st.fixed_dictionaries(
        {
            "layers": st.integers(1, 40),
            "attention_heads": SMALL,
            "key_value_heads": SMALL,
            "head_size": st.just(64),
            "vocabulary_size": st.integers(90, 110),
            "sequence_length": st.integers(90, 110),
            "hidden_size": st.integers(90, 110),
            "tensor_parallel": SMALL,
            "context_parallel": st.integers(1, 4),
            "pipeline_parallel": st.integers(1, 6),
            "micro_batches": st.integers(1, 30),
            "schedule": st.sampled_from(["1F1B", "interleaved", "dualpipe", "zero-bubble"]),
            "sequence_parallel": st.booleans(),
        }
    )
)
def test_each_value_that_a_refusal_names_fulfils_the_rule(values):
    values["virtual_stages"] = 2 if values["schedule"] == "interleaved" else 1
    refused = _refusal(values)
    if refused is None:
        return
    key = str(refused.where).partition(": ")[2]
    for near in re.findall(r"\d+", str(refused.expected).partition("such as ")[2]):
        again = _refusal(values | {key: int(near)})
        assert again is None or (again.where, again.what) != (refused.where, refused.what)


def _refusal(values) -> ConfigError | None:
    try:
        check_job(job(**values), "job")
    except ConfigError as error:
        assert "\n" not in str(error)
        return error
    return None
