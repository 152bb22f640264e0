"""A job as arguments of Megatron-LM, as a file of torchtitan, and as a command."""

import argparse
import shlex
import tomllib
from math import prod

import msgspec
import pytest
from hypothesis import given, settings, strategies as st

from jaxperf.config import Experts, Job, LatentAttention, built_in_jobs, load_job
from jaxperf.errors import ConfigError
from jaxperf.workload.launch import launch_command, megatron_arguments, torchtitan_config

DENSE = Job(
    layers=8,
    hidden_size=512,
    attention_heads=8,
    vocabulary_size=1024,
    tied_embeddings=True,
    sequence_length=256,
    micro_batch_size=2,
    micro_batches=8,
    data_parallel=4,
)
MIXTURE = Job(
    layers=8,
    hidden_size=512,
    ffn_hidden_size=2048,
    gated_ffn=True,
    attention_heads=8,
    head_size=64,
    latent_attention=LatentAttention(
        query_rank=96, key_value_rank=48, rope_head_size=32, value_head_size=80
    ),
    experts=Experts(count=16, per_token=4, ffn_hidden_size=256, shared=2, dense_layers=1),
    vocabulary_size=1024,
    sequence_length=256,
    micro_batches=8,
    data_parallel=2,
    tensor_parallel=2,
    context_parallel=2,
    pipeline_parallel=2,
    expert_parallel=4,
    stage_layers=(5, 3),
    sharding="zero1",
    recompute="full",
    sequence_parallel=True,
    precision="fp8",
)
LLAMA = msgspec.structs.replace(load_job("llama3-8b"), sharding="zero3")
LLAMA_70B = msgspec.structs.replace(load_job("llama3-70b"), sharding="zero2")
DEEPSEEK = msgspec.structs.replace(
    load_job("deepseek-v3"), schedule="1F1B", sharding="zero2", expert_parallel=64
)

# Of `megatron/training/arguments.py`: how each is declared there.
COUNTS = """
    num-layers hidden-size ffn-hidden-size num-attention-heads kv-channels num-query-groups
    max-position-embeddings seq-length vocab-size make-vocab-size-divisible-by micro-batch-size
    global-batch-size tensor-model-parallel-size pipeline-model-parallel-size context-parallel-size
    num-virtual-stages-per-pipeline-rank recompute-num-layers ddp-num-buckets num-experts
    expert-model-parallel-size expert-tensor-parallel-size moe-ffn-hidden-size
    moe-shared-expert-intermediate-size moe-router-topk q-lora-rank kv-lora-rank qk-head-dim
    qk-pos-emb-head-dim v-head-dim
""".split()
FLAGS = """
    group-query-attention swiglu untie-embeddings-and-output-weights multi-latent-attention
    disable-bias-linear sequence-parallel tp-comm-overlap overlap-grad-reduce overlap-param-gather
    use-distributed-optimizer use-megatron-fsdp no-gradient-accumulation-fusion
    use-tp-pp-dp-mapping fp16 bf16 grad-reduce-in-bf16 accumulate-allreduce-grads-in-fp32
    moe-grouped-gemm
""".split()
CHOICES = {
    "position-embedding-type": ["learned_absolute", "rope", "mrope", "relative", "none"],
    "normalization": ["LayerNorm", "RMSNorm"],
    "recompute-granularity": ["full", "selective"],
    "recompute-method": ["uniform", "block"],
    "optimizer": ["adam", "sgd", "muon", "dist_muon"],
    "data-parallel-sharding-strategy": ["no_shard", "optim", "optim_grads", "optim_grads_params"],
    "ckpt-format": ["torch", "torch_dist", "zarr", "torch_dcp", "fsdp_dtensor"],
    "fp8-format": ["e4m3", "hybrid"],
    "fp4-format": ["e2m1"],
    "moe-token-dispatcher-type": ["allgather", "alltoall", "flex"],
    "tokenizer-type": ["NullTokenizer", "HuggingFaceTokenizer"],
}
TEXTS = ["pipeline-model-parallel-layout", "moe-layer-freq"]

# Of `torchtitan/config/job_config.py`: the fields of each table that are used.
FIELDS = {
    "model": {"name", "flavor", "converters"},
    "optimizer": {"name"},
    "training": {
        "local_batch_size",
        "global_batch_size",
        "seq_len",
        "mixed_precision_param",
        "mixed_precision_reduce",
    },
    "parallelism": {
        "data_parallel_replicate_degree",
        "data_parallel_shard_degree",
        "fsdp_reshard_after_forward",
        "tensor_parallel_degree",
        "enable_async_tensor_parallel",
        "pipeline_parallel_degree",
        "module_fqns_per_model_part",
        "pipeline_parallel_schedule",
        "pipeline_parallel_microbatch_size",
        "context_parallel_degree",
        "context_parallel_rotate_method",
        "expert_parallel_degree",
        "expert_tensor_parallel_degree",
    },
    "activation_checkpoint": {"mode"},
    "compile": {"enable"},
    "quantize": {"linear", "grouped_mm"},
}


def of(job, **changes):
    return msgspec.structs.replace(job, **changes)


def parsed(job):
    """The arguments as Megatron's own parser would read them: no abbreviations, none unknown."""
    parser = argparse.ArgumentParser(allow_abbrev=False)
    for name in COUNTS:
        parser.add_argument(f"--{name}", type=int)
    for name in FLAGS:
        parser.add_argument(f"--{name}", action="store_true")
    for name, choices in CHOICES.items():
        parser.add_argument(f"--{name}", choices=choices)
    for name in TEXTS:
        parser.add_argument(f"--{name}")
    parser.add_argument("--attention-dropout", type=float, default=0.1)
    parser.add_argument("--hidden-dropout", type=float, default=0.1)
    return parser.parse_args(megatron_arguments(job))


def titan(job):
    return tomllib.loads(torchtitan_config(job))


def test_a_dense_job_has_these_arguments():
    assert " ".join(megatron_arguments(DENSE)) == (
        "--num-layers 8 --hidden-size 512 --ffn-hidden-size 2048 --num-attention-heads 8 "
        "--seq-length 256 --max-position-embeddings 256 --tokenizer-type NullTokenizer "
        "--vocab-size 1023 --make-vocab-size-divisible-by 1 --attention-dropout 0 "
        "--hidden-dropout 0 --disable-bias-linear --kv-channels 64 "
        "--micro-batch-size 2 --global-batch-size 64 "
        "--tensor-model-parallel-size 1 --pipeline-model-parallel-size 1 "
        "--context-parallel-size 1 --optimizer adam --overlap-grad-reduce --ddp-num-buckets 4 "
        "--bf16 --accumulate-allreduce-grads-in-fp32"
    )


def test_llama_70b_as_nvidia_runs_it_has_these_arguments():
    assert " ".join(megatron_arguments(load_job("llama3-70b"))) == (
        "--num-layers 80 --hidden-size 8192 --ffn-hidden-size 28672 --num-attention-heads 64 "
        "--seq-length 8192 --max-position-embeddings 8192 --tokenizer-type NullTokenizer "
        "--vocab-size 128255 --make-vocab-size-divisible-by 1 --attention-dropout 0 "
        "--hidden-dropout 0 --disable-bias-linear --untie-embeddings-and-output-weights --swiglu "
        "--position-embedding-type rope --normalization RMSNorm --kv-channels 128 "
        "--group-query-attention --num-query-groups 8 --micro-batch-size 1 --global-batch-size 128 "
        "--tensor-model-parallel-size 4 --pipeline-model-parallel-size 4 "
        "--context-parallel-size 2 --sequence-parallel --tp-comm-overlap "
        "--num-virtual-stages-per-pipeline-rank 5 --optimizer adam --use-distributed-optimizer "
        "--overlap-grad-reduce --overlap-param-gather --ddp-num-buckets 4 --bf16 "
        "--accumulate-allreduce-grads-in-fp32"
    )


def test_a_mixture_of_experts_with_latent_attention_has_these_arguments():
    assert " ".join(megatron_arguments(MIXTURE)) == (
        "--num-layers 8 --hidden-size 512 --ffn-hidden-size 2048 --num-attention-heads 8 "
        "--seq-length 256 --max-position-embeddings 256 --tokenizer-type NullTokenizer "
        "--vocab-size 1023 --make-vocab-size-divisible-by 1 --attention-dropout 0 "
        "--hidden-dropout 0 --disable-bias-linear --untie-embeddings-and-output-weights --swiglu "
        "--position-embedding-type rope --normalization RMSNorm --multi-latent-attention "
        "--q-lora-rank 96 --kv-lora-rank 48 --qk-head-dim 64 --qk-pos-emb-head-dim 32 "
        "--v-head-dim 80 --num-experts 16 --moe-router-topk 4 --moe-ffn-hidden-size 256 "
        "--moe-shared-expert-intermediate-size 512 --moe-layer-freq [0]*1+[1]*7 "
        "--moe-token-dispatcher-type alltoall --expert-model-parallel-size 4 "
        "--expert-tensor-parallel-size 2 --moe-grouped-gemm --micro-batch-size 1 "
        "--global-batch-size 16 --tensor-model-parallel-size 2 --pipeline-model-parallel-size 2 "
        "--context-parallel-size 2 --sequence-parallel "
        "--pipeline-model-parallel-layout Ettttt|tttL "
        "--recompute-granularity full --recompute-method uniform --recompute-num-layers 1 "
        "--optimizer adam --use-distributed-optimizer --overlap-grad-reduce "
        "--overlap-param-gather --ddp-num-buckets 4 --bf16 --fp8-format hybrid "
        "--accumulate-allreduce-grads-in-fp32"
    )


@st.composite
def jobs(draw):
    """Jobs that exist and that Megatron-LM can run."""
    power = st.sampled_from((1, 2, 4))
    chunks, stages = draw(st.sampled_from((1, 2, 3))), draw(power)
    interleaved = chunks > 1 and stages > 1
    sharding = draw(st.sampled_from(("none", "zero1", *(() if stages > 1 else ("zero2", "zero3")))))
    data, overlap = draw(power), draw(st.booleans())
    job = of(
        DENSE,
        layers=24 * draw(power),
        ffn_hidden_size=draw(st.sampled_from((None, 1024, 1536))),
        gated_ffn=draw(st.booleans()),
        key_value_heads=draw(st.sampled_from((None, 4))),
        head_size=draw(st.sampled_from((None, 128))),
        tied_embeddings=draw(st.booleans()),
        micro_batch_size=draw(power),
        micro_batches=4 * draw(power),
        data_parallel=data,
        tensor_parallel=draw(power),
        context_parallel=draw(power),
        pipeline_parallel=stages,
        schedule="interleaved" if interleaved else "1F1B",
        virtual_stages=chunks if interleaved else 1,
        sharding=sharding,
        recompute=draw(st.sampled_from(("none", "selective", "full"))),
        sequence_parallel=True,
        precision=draw(st.sampled_from(("bf16", "fp8", "fp4"))),
        gradient_bytes=draw(st.sampled_from((2, 4))),
        overlap_gradients=overlap,
        overlap_parameters=overlap and draw(st.booleans()),
        overlap_tensor=draw(st.booleans()),
    )
    if draw(st.booleans()):
        experts = Experts(count=8, per_token=draw(power), ffn_hidden_size=256)
        job = of(job, experts=experts, expert_parallel=draw(st.sampled_from((1, data))))
    return job


@settings(max_examples=60, deadline=None)
@given(jobs())
def test_the_numbers_of_a_job_can_be_read_back_from_its_arguments(job):
    found = parsed(job)
    assert found.num_layers == job.layers
    assert found.hidden_size == job.hidden_size
    assert found.ffn_hidden_size == job.ffn_size
    assert found.num_attention_heads == job.attention_heads
    groups = found.num_query_groups if found.group_query_attention else found.num_attention_heads
    assert groups == job.kv_heads
    assert found.kv_channels == job.size_of_head
    assert found.swiglu == job.gated_ffn
    assert found.untie_embeddings_and_output_weights != job.tied_embeddings
    assert found.seq_length == found.max_position_embeddings == job.sequence_length
    replicas = found.micro_batch_size * job.data_parallel
    assert found.micro_batch_size == job.micro_batch_size
    assert found.global_batch_size == replicas * job.micro_batches
    degrees = (
        found.tensor_model_parallel_size,
        found.context_parallel_size,
        found.pipeline_model_parallel_size,
    )
    assert degrees == (job.tensor_parallel, job.context_parallel, job.pipeline_parallel)
    assert job.world_size == prod(degrees) * job.data_parallel
    assert (found.num_virtual_stages_per_pipeline_rank or 1) == job.virtual_stages
    assert (found.recompute_granularity or "none") == job.recompute
    assert found.use_distributed_optimizer == (job.sharding != "none")
    assert found.use_megatron_fsdp == (job.sharding in ("zero2", "zero3"))
    assert found.overlap_grad_reduce == job.overlap_gradients
    assert found.grad_reduce_in_bf16 == (job.gradient_bytes == 2)
    assert found.accumulate_allreduce_grads_in_fp32 == (job.gradient_bytes == 4)
    if job.experts is None:
        assert found.num_experts is None
    else:
        assert found.num_experts == job.experts.count
        assert found.moe_router_topk == job.experts.per_token
        assert found.moe_ffn_hidden_size == job.experts.ffn_hidden_size
        assert found.expert_model_parallel_size == job.expert_parallel
    # The rules of `validate_args` on what belongs together.
    assert found.overlap_grad_reduce or not found.overlap_param_gather
    assert found.use_distributed_optimizer or not found.overlap_param_gather
    assert found.sequence_parallel or not found.tp_comm_overlap
    assert found.recompute_method is None or found.recompute_granularity == "full"
    assert (found.ckpt_format == "fsdp_dtensor") == found.use_megatron_fsdp


@pytest.mark.parametrize("tensor_parallel", [1, 2, 8])
def test_a_vocabulary_is_neither_padded_nor_cut(tensor_parallel):
    """`NullTokenizer` adds a token; then padding goes to a multiple of the product."""
    found = parsed(of(DENSE, vocabulary_size=1000, tensor_parallel=tensor_parallel))
    unit = found.make_vocab_size_divisible_by * tensor_parallel
    assert -(-(found.vocab_size + 1) // unit) * unit == 1000


def test_stages_keep_their_layers_in_a_layout():
    held = (0, 2, 3, 3)
    job = of(
        DENSE, pipeline_parallel=2, schedule="interleaved", virtual_stages=2, stage_layers=held
    )
    found = parsed(job)
    assert found.pipeline_model_parallel_layout == "E|tt|ttt|tttL"
    assert found.num_virtual_stages_per_pipeline_rank is None


def test_one_stage_needs_no_layout():
    assert parsed(of(DENSE, stage_layers=(8,))).pipeline_model_parallel_layout is None


@pytest.mark.parametrize(
    ("order", "changed"),
    [("tp-cp-dp-pp", False), ("tp-cp-pp-dp", True), ("pp-dp", True), ("cp-dp-tp-pp", False)],
)
def test_ranks_of_a_pipeline_come_first_if_the_job_says_so(order, changed):
    job = of(DENSE, pipeline_parallel=2, rank_order=order)
    assert parsed(job).use_tp_pp_dp_mapping == changed


def test_an_axis_of_one_rank_may_be_anywhere():
    job = of(DENSE, data_parallel=1, pipeline_parallel=2, rank_order="tp-cp-pp-dp")
    assert not parsed(job).use_tp_pp_dp_mapping


@pytest.mark.parametrize(
    ("precision", "gradient_bytes", "expected"),
    [
        ("fp16", 2, {"fp16"}),
        ("fp16", 4, {"fp16", "accumulate_allreduce_grads_in_fp32"}),
        ("bf16", 2, {"bf16", "grad_reduce_in_bf16"}),
        ("fp8", 4, {"bf16", "accumulate_allreduce_grads_in_fp32", "fp8_format"}),
        ("fp4", 2, {"bf16", "grad_reduce_in_bf16", "fp4_format"}),
    ],
)
def test_types_of_multiplies_and_of_gradients(precision, gradient_bytes, expected):
    found = vars(parsed(of(DENSE, precision=precision, gradient_bytes=gradient_bytes)))
    types = {"fp16", "bf16", "fp8_format", "fp4_format"}
    types |= {"accumulate_allreduce_grads_in_fp32", "grad_reduce_in_bf16"}
    assert {name for name in types if found[name]} == expected


@pytest.mark.parametrize(
    ("sharding", "strategy"), [("zero2", "optim_grads"), ("zero3", "optim_grads_params")]
)
def test_gradients_and_weights_are_sharded_by_megatron_fsdp(sharding, strategy):
    found = parsed(of(DENSE, sharding=sharding))
    assert found.use_megatron_fsdp
    assert found.use_distributed_optimizer
    assert found.no_gradient_accumulation_fusion
    assert found.data_parallel_sharding_strategy == strategy
    assert found.ddp_num_buckets is None


def test_what_is_spread_over_one_tensor_parallel_rank_is_left_out():
    found = parsed(of(DENSE, sequence_parallel=True, overlap_tensor=True))
    assert not found.sequence_parallel
    assert not found.tp_comm_overlap


@pytest.mark.parametrize(
    ("change", "key", "expected"),
    [
        ({"schedule": "gpipe"}, "schedule", "1F1B or interleaved"),
        ({"schedule": "zero-bubble"}, "schedule", "1F1B or interleaved"),
        ({"schedule": "dualpipe", "pipeline_parallel": 4}, "schedule", "1F1B or interleaved"),
        ({"precision": "fp32"}, "precision", "fp16, bf16, fp8 or fp4"),
        ({"precision": "tf32"}, "precision", "fp16, bf16, fp8 or fp4"),
        ({"gradient_bytes": 1}, "gradient_bytes", "2 or 4"),
        ({"overlap_tensor": True, "tensor_parallel": 2}, "overlap_tensor", "sequence_parallel"),
        ({"rank_order": "dp-tp", "tensor_parallel": 2}, "rank_order", "tp-cp-dp-pp"),
        (
            {"rank_order": "tp-cp-pp-dp", "pipeline_parallel": 2, "context_parallel": 2},
            "rank_order",
            "expert_parallel = context_parallel",
        ),
        ({"sharding": "zero1", "optimizer": "sgd"}, "optimizer", "adam"),
        ({"sharding": "zero1", "overlap_gradients": False}, "overlap_parameters", "both"),
        ({"sharding": "zero2", "pipeline_parallel": 2}, "sharding", "none or zero1"),
        ({"sharding": "zero3", "pipeline_parallel": 2}, "sharding", "none or zero1"),
        ({"sharding": "zero3", "prefetch": 2}, "prefetch", "1"),
    ],
)
def test_megatron_refuses_what_it_cannot_do(change, key, expected):
    with pytest.raises(ConfigError) as caught:
        megatron_arguments(of(DENSE, **change))
    assert caught.value.where == f"Megatron-LM: {key}"
    assert caught.value.got
    assert expected in caught.value.expected


@pytest.mark.parametrize(
    ("change", "key"),
    [
        ({"precision": "fp16"}, "precision"),
        ({"sequence_parallel": False}, "sequence_parallel"),
        ({"rank_order": "tp-cp-pp-dp"}, "rank_order"),
    ],
)
def test_megatron_refuses_experts_that_it_cannot_have(change, key):
    with pytest.raises(ConfigError) as caught:
        megatron_arguments(of(MIXTURE, **change))
    assert caught.value.where == f"Megatron-LM: {key}"
    assert caught.value.got
    assert caught.value.expected


def test_a_job_that_cannot_be_is_refused_before_it_is_written():
    for write in (megatron_arguments, torchtitan_config, lambda job: launch_command(job, 8)):
        with pytest.raises(ConfigError, match="job: layers: not divisible"):
            write(of(DENSE, layers=7, pipeline_parallel=2))


@pytest.mark.parametrize(
    ("ranks", "gpus", "nodes", "each"), [(64, 8, 8, 8), (4, 8, 1, 4), (8, 8, 1, 8), (12, 4, 3, 4)]
)
def test_every_rank_has_a_gpu(ranks, gpus, nodes, each):
    words = launch_command(of(DENSE, data_parallel=ranks), gpus).split()
    assert words[words.index("--nnodes") + 1] == str(nodes)
    assert words[words.index("--nproc-per-node") + 1] == str(each)
    assert ("$MASTER_ADDR" in words) == (nodes > 1)


@pytest.mark.parametrize(
    ("gpus", "message"),
    [
        (8, r"torchrun: gpus_per_node: .*; got 8 for 12 ranks; expected a divisor of 12.* 6"),
        (0, r"torchrun: gpus_per_node: not a count; got 0; expected 1 or more"),
    ],
)
def test_nodes_that_ranks_do_not_fill_are_refused(gpus, message):
    with pytest.raises(ConfigError, match=message):
        launch_command(of(DENSE, data_parallel=12), gpus)


@pytest.mark.parametrize(
    ("change", "one"),
    [
        ({}, False),
        ({"tensor_parallel": 2}, True),
        ({"context_parallel": 2}, True),
        ({"tensor_parallel": 2, "sharding": "zero3"}, False),
    ],
)
def test_one_connection_is_set_where_megatron_demands_it_and_never_with_fsdp(change, one):
    command = launch_command(of(DENSE, **change), 8)
    assert command.startswith("CUDA_DEVICE_MAX_CONNECTIONS=1 torchrun ") == one
    assert command.startswith("torchrun ") != one


def test_a_shell_reads_the_arguments_as_they_are():
    """A layout has bars, and a mixture has stars, which a shell would not leave alone."""
    words = shlex.split(launch_command(MIXTURE, 8))
    assert tuple(words[words.index("pretrain_gpt.py") + 1 :]) == megatron_arguments(MIXTURE)
    assert "\n" not in launch_command(MIXTURE, 8)


def test_llama_8b_on_torchtitan_is_this_file():
    assert titan(LLAMA) == {
        "model": {"name": "llama3", "flavor": "8B"},
        "optimizer": {"name": "AdamW"},
        "training": {
            "local_batch_size": 1,
            "global_batch_size": 128,
            "seq_len": 8192,
            "mixed_precision_param": "bfloat16",
            "mixed_precision_reduce": "float32",
        },
        "parallelism": {
            "data_parallel_replicate_degree": 1,
            "data_parallel_shard_degree": 4,
            "fsdp_reshard_after_forward": "always",
            "tensor_parallel_degree": 1,
            "enable_async_tensor_parallel": False,
            "context_parallel_degree": 2,
            "context_parallel_rotate_method": "alltoall",
            "pipeline_parallel_degree": 1,
        },
        "activation_checkpoint": {"mode": "none"},
    }


def test_a_pipeline_of_torchtitan_takes_all_micro_batches_at_once():
    found = titan(LLAMA_70B)
    training, parallelism = found["training"], found["parallelism"]
    assert training["local_batch_size"] == 64
    assert training["global_batch_size"] == 128
    assert parallelism["pipeline_parallel_microbatch_size"] == 1
    assert parallelism["pipeline_parallel_schedule"] == "Interleaved1F1B"
    assert parallelism["fsdp_reshard_after_forward"] == "never"
    parts = parallelism["module_fqns_per_model_part"]
    assert len(parts) == 4 * 5
    assert parts[0] == ["tok_embeddings", *(f"layers.{layer}" for layer in range(4))]
    assert parts[-1] == [*(f"layers.{layer}" for layer in range(76, 80)), "norm", "output"]
    assert found["compile"] == {"enable": True}
    assert parallelism["enable_async_tensor_parallel"]


def test_stages_of_torchtitan_hold_the_layers_that_the_job_says():
    parts = titan(DEEPSEEK)["parallelism"]["module_fqns_per_model_part"]
    layers = [[name for name in part if name.startswith("layers.")] for part in parts]
    assert tuple(map(len, layers)) == DEEPSEEK.stage_layers
    assert sum(layers, []) == [f"layers.{layer}" for layer in range(61)]


def test_experts_and_fp8_on_torchtitan():
    found = titan(DEEPSEEK)
    assert found["model"] == {
        "name": "deepseek_v3",
        "flavor": "671B",
        "converters": ["quantize.linear.float8", "quantize.grouped_mm.float8"],
    }
    assert found["quantize"]["grouped_mm"] == {"float8": {"fqns": ["experts"]}}
    assert found["parallelism"]["expert_parallel_degree"] == 64
    assert found["parallelism"]["expert_tensor_parallel_degree"] == 1


@pytest.mark.parametrize(
    ("schedule", "name"), [("1F1B", "1F1B"), ("gpipe", "GPipe"), ("interleaved", "Interleaved1F1B")]
)
def test_schedules_have_the_names_of_pytorch(schedule, name):
    chunks = 2 if schedule == "interleaved" else 1
    job = of(LLAMA, pipeline_parallel=4, schedule=schedule, virtual_stages=chunks)
    assert titan(job)["parallelism"]["pipeline_parallel_schedule"] == name


@pytest.mark.parametrize("job", [LLAMA, LLAMA_70B, DEEPSEEK], ids=["8b", "70b", "deepseek"])
def test_torchtitan_has_every_field_and_every_rank(job):
    found = titan(job)
    for table, values in found.items():
        assert set(values) <= FIELDS[table]
    axes = ("data_parallel_replicate", "data_parallel_shard", "tensor_parallel")
    axes += ("context_parallel", "pipeline_parallel")
    assert prod(found["parallelism"][f"{axis}_degree"] for axis in axes) == job.world_size


def test_replicas_alone_are_not_sharded():
    parallelism = titan(of(LLAMA, context_parallel=1, sharding="none"))["parallelism"]
    assert parallelism["data_parallel_replicate_degree"] == 4
    assert parallelism["data_parallel_shard_degree"] == 1
    assert "fsdp_reshard_after_forward" not in parallelism


@pytest.mark.parametrize("name", [name for name in built_in_jobs() if name.startswith("gpt3")])
def test_torchtitan_has_no_gpt3(name):
    with pytest.raises(ConfigError, match=r"torchtitan: model: none .* llama3 8B"):
        torchtitan_config(load_job(name))


@pytest.mark.parametrize(
    ("change", "key", "expected"),
    [
        ({"layers": 31}, "model", "llama3 8B"),
        ({"tied_embeddings": True}, "model", "llama3 8B"),
        ({"schedule": "zero-bubble"}, "schedule", "none or 1F1B"),
        ({"schedule": "gpipe"}, "schedule", "none or 1F1B"),
        ({"schedule": "dualpipe", "pipeline_parallel": 4}, "schedule", "1F1B or gpipe"),
        ({"schedule": "zero-bubble", "pipeline_parallel": 4}, "schedule", "1F1B or gpipe"),
        ({"recompute": "selective"}, "recompute", "none or full"),
        ({"optimizer": "sgd"}, "optimizer", "adam"),
        ({"gradient_bytes": 2}, "gradient_bytes", "4"),
        ({"tensor_parallel": 2}, "sequence_parallel", "true"),
        (
            {"rank_order": "tp-cp-pp-dp", "pipeline_parallel": 2, "schedule": "1F1B"},
            "rank_order",
            "tp-cp-dp-pp",
        ),
        ({"sequence_length": 8193, "context_parallel": 1}, "sequence_length", "multiple of 2"),
        ({"sharding": "zero1"}, "sharding", "zero2 or zero3"),
        ({"sharding": "none"}, "sharding", "zero2 or zero3"),
        ({"sharding": "zero1", "context_parallel": 1}, "sharding", "or none"),
        ({"overlap_gradients": False}, "overlap_gradients", "true"),
        ({"overlap_parameters": False}, "overlap_parameters", "true"),
        ({"prefetch": 2}, "prefetch", "1"),
        ({"precision": "fp16"}, "precision", "fp32, bf16 or fp8"),
        ({"precision": "tf32"}, "precision", "fp32, bf16 or fp8"),
        ({"precision": "fp4"}, "precision", "fp32, bf16 or fp8"),
        (
            {
                "data_parallel": 1,
                "context_parallel": 1,
                "tensor_parallel": 8,
                "sequence_parallel": True,
            },
            "precision",
            "data_parallel = 2",
        ),
    ],
)
def test_torchtitan_refuses_what_it_cannot_do(change, key, expected):
    with pytest.raises(ConfigError) as caught:
        torchtitan_config(of(LLAMA, **change))
    assert caught.value.where == f"torchtitan: {key}"
    assert caught.value.got
    assert expected in caught.value.expected


def test_experts_of_torchtitan_take_all_of_context_parallelism():
    with pytest.raises(ConfigError, match="torchtitan: expert_parallel: .* multiple of 4"):
        torchtitan_config(of(DEEPSEEK, context_parallel=4, expert_parallel=2))
