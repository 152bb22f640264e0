"""A job as arguments of Megatron-LM, and the command that starts it.

Arguments are those of `megatron/training/arguments.py` of NVIDIA/Megatron-LM (commit 000c4ac), with
the checks of `megatron/core/parallel_state.py`, `megatron/training/training.py` and the user guide
of Megatron-FSDP.

What Megatron-LM cannot do is refused. What a job does not say (data, learning rate, iterations,
checkpoints) is not written; it is to be added.
"""

import shlex
from collections.abc import Mapping

from jaxperf.config import Job, check_job
from jaxperf.workload.launch._rules import (
    check_order,
    check_prefetch,
    fully_sharded,
    overlaps_tensor,
    refuse,
)

_NAME = "Megatron-LM"


def megatron_arguments(job: Job) -> tuple[str, ...]:
    """Arguments of Megatron-LM's `pretrain_gpt.py` for a job.

    Models with a gate get rotary positions and RMSNorm, as they are computed here; others keep
    Megatron's learned positions and LayerNorm. There are neither biases nor dropout. Vocabularies
    are exact: the tokenizer adds one token, and pads to nothing but tensor parallelism. Fp8 is the
    hybrid format. Gradients that do not overlap go in one message, whatever `gradient_buckets` is;
    so do those of later stages and chunks, and those of Megatron-FSDP go by layers.

    Args:
        job: the job.

    Returns:
        Words, as a command line has them, none of them quoted.

    Raises:
        ConfigError: the job cannot be, or Megatron-LM cannot do what it says.

    Example:
        >>> from jaxperf.config import load_job
        >>> words = megatron_arguments(load_job("llama3-70b"))
        >>> words[:2], words[words.index("--num-query-groups") + 1]
        (('--num-layers', '80'), '8')
    """
    check_job(job, "job")
    _check_megatron(job)
    return (
        *_megatron_model(job),
        *_megatron_experts(job),
        *_megatron_batch(job),
        *_megatron_parallelism(job),
        *_megatron_sharding(job),
        *_megatron_precision(job),
    )


def launch_command(job: Job, gpus_per_node: int) -> str:
    """One line that starts a job under Megatron-LM, on every node the same.

    Several nodes need `NODE_RANK`, `MASTER_ADDR` and `MASTER_PORT` in their environment. A job of
    fewer ranks than a node has GPUs runs on as many as it has ranks.

    Args:
        job: the job.
        gpus_per_node: GPUs of a node, each of which gets a rank.

    Raises:
        ConfigError: the ranks do not fill whole nodes, or as `megatron_arguments`.

    Example:
        >>> from jaxperf.config import load_job
        >>> launch_command(load_job("gpt3-175b"), 8).partition(" pretrain_gpt.py ")[0]
        'CUDA_DEVICE_MAX_CONNECTIONS=1 torchrun --nnodes 64 --nproc-per-node 8 \
--node-rank $NODE_RANK --master-addr $MASTER_ADDR --master-port $MASTER_PORT'
    """
    ranks = job.world_size
    if gpus_per_node < 1:
        refuse("torchrun", "gpus_per_node", "not a count", gpus_per_node, "1 or more, such as 8")
    if ranks > gpus_per_node and ranks % gpus_per_node:
        near = max(n for n in range(1, gpus_per_node) if ranks % n == 0)
        got, expected = (
            f"{gpus_per_node} for {ranks} ranks",
            f"a divisor of {ranks}, such as {near}",
        )
        refuse("torchrun", "gpus_per_node", "nodes that are not full", got, expected)
    arguments = megatron_arguments(job)
    nodes = max(1, ranks // gpus_per_node)
    words = ["torchrun", "--nnodes", f"{nodes}", "--nproc-per-node", f"{ranks // nodes}"]
    if nodes > 1:
        words += ["--node-rank", "$NODE_RANK"]
        words += ["--master-addr", "$MASTER_ADDR", "--master-port", "$MASTER_PORT"]
    # Before Blackwell, Megatron demands one connection here, and demands others of FSDP.
    if not fully_sharded(job) and (job.tensor_parallel > 1 or job.context_parallel > 1):
        words.insert(0, "CUDA_DEVICE_MAX_CONNECTIONS=1")
    return f"{' '.join(words)} pretrain_gpt.py {shlex.join(arguments)}"


def _megatron_model(job: Job) -> list[str]:
    latent, rotary = job.latent_attention, job.gated_ffn or job.latent_attention is not None
    words = _options(
        {
            "--num-layers": job.layers,
            "--hidden-size": job.hidden_size,
            "--ffn-hidden-size": job.ffn_size,
            "--num-attention-heads": job.attention_heads,
            "--seq-length": job.sequence_length,
            "--max-position-embeddings": job.sequence_length,
            "--tokenizer-type": "NullTokenizer",
            "--vocab-size": job.vocabulary_size - 1,
            "--make-vocab-size-divisible-by": 1,
            "--attention-dropout": 0,
            "--hidden-dropout": 0,
        }
    )
    words += ["--disable-bias-linear"]
    words += _flags({"--untie-embeddings-and-output-weights": not job.tied_embeddings})
    words += _flags({"--swiglu": job.gated_ffn})
    if rotary:
        words += _options({"--position-embedding-type": "rope", "--normalization": "RMSNorm"})
    if latent is None:
        words += _options({"--kv-channels": job.size_of_head})
        if job.kv_heads != job.attention_heads:
            words += ["--group-query-attention", "--num-query-groups", f"{job.kv_heads}"]
        return words
    words += ["--multi-latent-attention"]
    if latent.query_rank is not None:
        words += _options({"--q-lora-rank": latent.query_rank})
    return words + _options(
        {
            "--kv-lora-rank": latent.key_value_rank,
            "--qk-head-dim": job.size_of_head,
            "--qk-pos-emb-head-dim": latent.rope_head_size,
            "--v-head-dim": latent.value_head_size,
        }
    )


def _megatron_experts(job: Job) -> list[str]:
    experts = job.experts
    if experts is None:
        return []
    options: dict[str, object] = {
        "--num-experts": experts.count,
        "--moe-router-topk": experts.per_token,
        "--moe-ffn-hidden-size": experts.ffn_hidden_size,
    }
    if experts.shared:
        options["--moe-shared-expert-intermediate-size"] = experts.shared * experts.ffn_hidden_size
    if experts.dense_layers:
        mixed = job.layers - experts.dense_layers
        options["--moe-layer-freq"] = f"[0]*{experts.dense_layers}+[1]*{mixed}"
    options["--moe-token-dispatcher-type"] = "alltoall"
    options["--expert-model-parallel-size"] = job.expert_parallel
    options["--expert-tensor-parallel-size"] = job.tensor_parallel
    return [*_options(options), "--moe-grouped-gemm"]


def _megatron_batch(job: Job) -> list[str]:
    return _options(
        {
            "--micro-batch-size": job.micro_batch_size,
            "--global-batch-size": job.global_batch_size,
        }
    )


def _megatron_parallelism(job: Job) -> list[str]:
    tensor = job.tensor_parallel > 1
    words = _options(
        {
            "--tensor-model-parallel-size": job.tensor_parallel,
            "--pipeline-model-parallel-size": job.pipeline_parallel,
            "--context-parallel-size": job.context_parallel,
        }
    )
    words += _flags({"--sequence-parallel": job.sequence_parallel and tensor})
    words += _flags({"--tp-comm-overlap": overlaps_tensor(job)})
    words += _flags({"--use-tp-pp-dp-mapping": _pipelines_first(job)})
    if job.stage_layers is not None and len(job.stage_layers) > 1:
        layout = "|".join("t" * layers for layers in job.stage_layers)
        words += _options({"--pipeline-model-parallel-layout": f"E{layout}L"})
    elif job.virtual_stages > 1:
        words += _options({"--num-virtual-stages-per-pipeline-rank": job.virtual_stages})
    if job.recompute != "none":
        words += _options({"--recompute-granularity": job.recompute})
    if job.recompute == "full":
        words += _options({"--recompute-method": "uniform", "--recompute-num-layers": 1})
    return words


def _megatron_sharding(job: Job) -> list[str]:
    sharded = job.sharding != "none"
    words = _options({"--optimizer": job.optimizer})
    words += _flags(
        {
            "--use-distributed-optimizer": sharded,
            "--overlap-grad-reduce": job.overlap_gradients,
            "--overlap-param-gather": sharded and job.overlap_parameters,
        }
    )
    if fully_sharded(job):
        strategy = {"zero2": "optim_grads", "zero3": "optim_grads_params"}[job.sharding]
        words += ["--use-megatron-fsdp", "--data-parallel-sharding-strategy", strategy]
        words += ["--no-gradient-accumulation-fusion", "--ckpt-format", "fsdp_dtensor"]
    elif job.overlap_gradients:
        words += _options({"--ddp-num-buckets": job.gradient_buckets})
    return words


def _megatron_precision(job: Job) -> list[str]:
    words = {
        "fp16": ["--fp16"],
        "bf16": ["--bf16"],
        "fp8": ["--bf16", "--fp8-format", "hybrid"],
        "fp4": ["--bf16", "--fp4-format", "e2m1"],
    }[job.precision]
    if job.gradient_bytes == 4:
        return [*words, "--accumulate-allreduce-grads-in-fp32"]
    # In fp16 gradients are summed in fp16 unless told otherwise; in bf16 it is the other way.
    return words if job.precision == "fp16" else [*words, "--grad-reduce-in-bf16"]


def _check_megatron(job: Job) -> None:
    if job.schedule not in ("none", "1F1B", "interleaved"):
        refuse(_NAME, "schedule", "not a schedule it has", job.schedule, "1F1B or interleaved")
    if job.precision not in ("fp16", "bf16", "fp8", "fp4"):
        what, expected = "no argument chooses it", "fp16, bf16, fp8 or fp4"
        refuse(_NAME, "precision", what, job.precision, expected)
    if job.gradient_bytes not in (2, 4):
        refuse(_NAME, "gradient_bytes", "no such type", f"{job.gradient_bytes:g}", "2 or 4")
    _check_megatron_ranks(job)
    _check_megatron_sharding(job)
    if job.experts is not None:
        if job.precision == "fp16":
            what, expected = "grouped multiplies of experts are not in fp16", "bf16, fp8 or fp4"
            refuse(_NAME, "precision", what, "fp16 with experts", expected)
        if job.tensor_parallel > 1 and not job.sequence_parallel:
            got = f"false with experts and tensor_parallel = {job.tensor_parallel}"
            what = "experts with tensor parallelism need it"
            refuse(_NAME, "sequence_parallel", what, got, "true")
    if overlaps_tensor(job) and not job.sequence_parallel:
        got = "true with sequence_parallel = false"
        what, expected = "needs sequence parallelism", "false, or sequence_parallel = true"
        refuse(_NAME, "overlap_tensor", what, got, expected)


def _check_megatron_ranks(job: Job) -> None:
    check_order(job, _NAME, ("tp-cp-dp-pp", "tp-cp-pp-dp"))
    if _pipelines_first(job) and job.expert_parallel != job.context_parallel:
        got = f"{job.rank_order} with expert_parallel = {job.expert_parallel}"
        got += f" and context_parallel = {job.context_parallel}"
        what = "dense and expert layers need as many data-parallel ranks if pp is before dp"
        expected = "tp-cp-dp-pp, or expert_parallel = context_parallel"
        refuse(_NAME, "rank_order", what, got, expected)


def _check_megatron_sharding(job: Job) -> None:
    if job.sharding == "none":
        return
    if job.optimizer != "adam":
        got = f"{job.optimizer} with sharding = {job.sharding}"
        expected = "adam, or sharding = none"
        refuse(_NAME, "optimizer", "its sharded optimizer is Adam", got, expected)
    if job.overlap_parameters and not job.overlap_gradients:
        what, got = "needs overlap_gradients", "true with overlap_gradients = false"
        refuse(_NAME, "overlap_parameters", what, got, "both, or false")
    if fully_sharded(job) and job.pipeline_parallel > 1:
        got = f"{job.sharding} with pipeline_parallel = {job.pipeline_parallel}"
        what, expected = "Megatron-FSDP has no pipelines", "none or zero1, or pipeline_parallel = 1"
        refuse(_NAME, "sharding", what, got, expected)
    check_prefetch(job, _NAME)


def _pipelines_first(job: Job) -> bool:
    """Ranks of a pipeline are nearer to each other than those of data parallelism."""
    order = job.rank_order.split("-")
    both = job.pipeline_parallel > 1 and job.data_parallel > 1
    return both and order.index("pp") < order.index("dp")


def _options(values: Mapping[str, object]) -> list[str]:
    return [word for name, value in values.items() for word in (name, f"{value}")]


def _flags(values: Mapping[str, bool]) -> list[str]:
    return [name for name, value in values.items() if value]
