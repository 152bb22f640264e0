"""A job as what starts it: arguments for Megatron-LM, a file for torchtitan, and a command.

Arguments are those of `megatron/training/arguments.py` of NVIDIA/Megatron-LM (commit 000c4ac), with
the checks of `megatron/core/parallel_state.py`, `megatron/training/training.py` and the user guide
of Megatron-FSDP. Fields of the file are those of `torchtitan/config/job_config.py` of
pytorch/torchtitan in its last form, before configurations became Python; what they do is read from
`torchtitan/distributed/pipeline_parallel.py`, `parallel_dims.py` and
`torchtitan/models/llama3/infra/parallelize.py`.

What a framework cannot do is refused. What a job does not say (data, learning rate, iterations,
checkpoints) is not written; it is to be added.
"""

import shlex
from collections.abc import Iterable, Mapping
from typing import NoReturn

import tomli_w

from jaxperf.config import Experts, Job, LatentAttention, check_job
from jaxperf.errors import ConfigError

_MEGATRON, _TORCHTITAN = "Megatron-LM", "torchtitan"
_DEGREES = {
    "tp": "tensor_parallel",
    "cp": "context_parallel",
    "dp": "data_parallel",
    "pp": "pipeline_parallel",
}


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
        _refuse("torchrun", "gpus_per_node", "not a count", gpus_per_node, "1 or more, such as 8")
    if ranks > gpus_per_node and ranks % gpus_per_node:
        near = max(n for n in range(1, gpus_per_node) if ranks % n == 0)
        got, expected = (
            f"{gpus_per_node} for {ranks} ranks",
            f"a divisor of {ranks}, such as {near}",
        )
        _refuse("torchrun", "gpus_per_node", "nodes that are not full", got, expected)
    arguments = megatron_arguments(job)
    nodes = max(1, ranks // gpus_per_node)
    words = ["torchrun", "--nnodes", f"{nodes}", "--nproc-per-node", f"{ranks // nodes}"]
    if nodes > 1:
        words += ["--node-rank", "$NODE_RANK"]
        words += ["--master-addr", "$MASTER_ADDR", "--master-port", "$MASTER_PORT"]
    # Before Blackwell, Megatron demands one connection here, and demands others of FSDP.
    if not _fully_sharded(job) and (job.tensor_parallel > 1 or job.context_parallel > 1):
        words.insert(0, "CUDA_DEVICE_MAX_CONNECTIONS=1")
    return f"{' '.join(words)} pretrain_gpt.py {shlex.join(arguments)}"


def torchtitan_config(job: Job) -> str:
    """A configuration of torchtitan for a job, as TOML.

    Its sizes must be those of a model that torchtitan has: it names models, and takes no sizes.
    Fully sharded layers are gathered and their gradients spread layer by layer, whatever
    `gradient_buckets` is; `zero2` keeps gathered weights until the backward pass. Keys and values
    go round a ring, as in this package's model, if context is parallel. Fp8 is dynamic, by tensor.

    Args:
        job: the job.

    Raises:
        ConfigError: the job cannot be, or torchtitan cannot do what it says.

    Example:
        >>> from jaxperf.config import load_job, set_job
        >>> job = set_job(load_job("llama3-8b"), {"sharding": "zero3"})
        >>> torchtitan_config(job).splitlines()[:3]
        ['[model]', 'name = "llama3"', 'flavor = "8B"']
    """
    check_job(job, "job")
    name, flavor = _torchtitan_model(job)
    _check_torchtitan(job)
    tables: dict[str, dict[str, object]] = {
        "model": {"name": name, "flavor": flavor},
        "optimizer": {"name": "AdamW"},
        "training": _torchtitan_training(job),
        "parallelism": _torchtitan_parallelism(job),
        "activation_checkpoint": {"mode": job.recompute},
    }
    if job.precision == "fp8":
        quantized = _torchtitan_fp8(job)
        tables["model"]["converters"] = [f"quantize.{part}.float8" for part in quantized]
        tables["quantize"] = {part: {"float8": values} for part, values in quantized.items()}
    if job.precision == "fp8" or _overlaps_tensor(job):
        tables["compile"] = {"enable": True}
    return tomli_w.dumps(tables)


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
    words += _flags({"--tp-comm-overlap": _overlaps_tensor(job)})
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
    if _fully_sharded(job):
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
        _refuse(_MEGATRON, "schedule", "not a schedule it has", job.schedule, "1F1B or interleaved")
    if job.precision not in ("fp16", "bf16", "fp8", "fp4"):
        what, expected = "no argument chooses it", "fp16, bf16, fp8 or fp4"
        _refuse(_MEGATRON, "precision", what, job.precision, expected)
    if job.gradient_bytes not in (2, 4):
        _refuse(_MEGATRON, "gradient_bytes", "no such type", f"{job.gradient_bytes:g}", "2 or 4")
    _check_megatron_ranks(job)
    _check_megatron_sharding(job)
    if job.experts is not None:
        if job.precision == "fp16":
            what, expected = "grouped multiplies of experts are not in fp16", "bf16, fp8 or fp4"
            _refuse(_MEGATRON, "precision", what, "fp16 with experts", expected)
        if job.tensor_parallel > 1 and not job.sequence_parallel:
            got = f"false with experts and tensor_parallel = {job.tensor_parallel}"
            what = "experts with tensor parallelism need it"
            _refuse(_MEGATRON, "sequence_parallel", what, got, "true")
    if _overlaps_tensor(job) and not job.sequence_parallel:
        got = "true with sequence_parallel = false"
        what, expected = "needs sequence parallelism", "false, or sequence_parallel = true"
        _refuse(_MEGATRON, "overlap_tensor", what, got, expected)


def _check_megatron_ranks(job: Job) -> None:
    _check_order(job, _MEGATRON, ("tp-cp-dp-pp", "tp-cp-pp-dp"))
    if _pipelines_first(job) and job.expert_parallel != job.context_parallel:
        got = f"{job.rank_order} with expert_parallel = {job.expert_parallel}"
        got += f" and context_parallel = {job.context_parallel}"
        what = "dense and expert layers need as many data-parallel ranks if pp is before dp"
        expected = "tp-cp-dp-pp, or expert_parallel = context_parallel"
        _refuse(_MEGATRON, "rank_order", what, got, expected)


def _check_megatron_sharding(job: Job) -> None:
    if job.sharding == "none":
        return
    if job.optimizer != "adam":
        got = f"{job.optimizer} with sharding = {job.sharding}"
        expected = "adam, or sharding = none"
        _refuse(_MEGATRON, "optimizer", "its sharded optimizer is Adam", got, expected)
    if job.overlap_parameters and not job.overlap_gradients:
        what, got = "needs overlap_gradients", "true with overlap_gradients = false"
        _refuse(_MEGATRON, "overlap_parameters", what, got, "both, or false")
    if _fully_sharded(job) and job.pipeline_parallel > 1:
        got = f"{job.sharding} with pipeline_parallel = {job.pipeline_parallel}"
        what, expected = "Megatron-FSDP has no pipelines", "none or zero1, or pipeline_parallel = 1"
        _refuse(_MEGATRON, "sharding", what, got, expected)
    _check_prefetch(job, _MEGATRON)


def _torchtitan_training(job: Job) -> dict[str, object]:
    # With a pipeline, a batch of torchtitan holds all micro-batches; without, it is one of them.
    passes = job.micro_batches if job.pipeline_parallel > 1 else 1
    return {
        "local_batch_size": job.micro_batch_size * passes,
        "global_batch_size": job.global_batch_size,
        "seq_len": job.sequence_length,
        "mixed_precision_param": "float32" if job.precision == "fp32" else "bfloat16",
        "mixed_precision_reduce": "float32",
    }


def _torchtitan_parallelism(job: Job) -> dict[str, object]:
    replicated = job.sharding == "none"
    values: dict[str, object] = {
        "data_parallel_replicate_degree": job.data_parallel if replicated else 1,
        "data_parallel_shard_degree": 1 if replicated else job.data_parallel,
        "tensor_parallel_degree": job.tensor_parallel,
        "enable_async_tensor_parallel": _overlaps_tensor(job),
        "context_parallel_degree": job.context_parallel,
        "pipeline_parallel_degree": job.pipeline_parallel,
    }
    if _fully_sharded(job):
        values["fsdp_reshard_after_forward"] = "always" if job.sharding == "zero3" else "never"
    if job.context_parallel > 1:
        values["context_parallel_rotate_method"] = "alltoall"
    if job.pipeline_parallel > 1:
        names = {"1F1B": "1F1B", "gpipe": "GPipe", "interleaved": "Interleaved1F1B"}
        values["pipeline_parallel_schedule"] = names[job.schedule]
        values["pipeline_parallel_microbatch_size"] = job.micro_batch_size
        values["module_fqns_per_model_part"] = _torchtitan_stages(job)
    if job.experts is not None:
        values["expert_parallel_degree"] = job.expert_parallel
        values["expert_tensor_parallel_degree"] = job.tensor_parallel
    return values


def _torchtitan_fp8(job: Job) -> dict[str, dict[str, list[str]]]:
    """What is not in fp8 of the ordinary layers, and what is of the experts."""
    if job.experts is None:
        return {"linear": {"filter_fqns": ["output"]}}
    kept = {"filter_fqns": ["output", "router.gate"]}
    return {"linear": kept, "grouped_mm": {"fqns": ["experts"]}}


def _torchtitan_stages(job: Job) -> list[list[str]]:
    """Modules of every stage, spelled out: by itself torchtitan gives fewer layers to the ends."""
    chunks = job.pipeline_parallel * job.virtual_stages
    held = job.stage_layers or (job.layers // chunks,) * chunks
    stages, first = [], 0
    for layers in held:
        stages.append([f"layers.{layer}" for layer in range(first, first + layers)])
        first += layers
    stages[0].insert(0, "tok_embeddings")
    stages[-1] += ["norm", "output"]
    return stages


def _check_torchtitan(job: Job) -> None:
    pipelined = job.pipeline_parallel > 1
    schedules = ("1F1B", "gpipe", "interleaved") if pipelined else ("none", "1F1B")
    if job.schedule not in schedules:
        got = f"{job.schedule} with pipeline_parallel = {job.pipeline_parallel}"
        _refuse(_TORCHTITAN, "schedule", "not a schedule it has", got, " or ".join(schedules))
    if job.recompute == "selective":
        what = "its selective checkpoints keep attention, and do not recompute it"
        _refuse(_TORCHTITAN, "recompute", what, job.recompute, "none or full")
    if job.optimizer != "adam":
        _refuse(_TORCHTITAN, "optimizer", "not an optimizer it has", job.optimizer, "adam")
    if job.gradient_bytes != 4:
        got = f"{job.gradient_bytes:g}"
        _refuse(_TORCHTITAN, "gradient_bytes", "gradients are summed in float32", got, "4")
    if job.tensor_parallel > 1 and not job.sequence_parallel:
        got = f"false with tensor_parallel = {job.tensor_parallel}"
        what = "tensor parallelism is always with it"
        _refuse(_TORCHTITAN, "sequence_parallel", what, got, "true")
    _check_order(job, _TORCHTITAN, ("tp-cp-dp-pp",))
    _check_torchtitan_sequence(job)
    _check_torchtitan_experts(job)
    _check_torchtitan_sharding(job)
    _check_torchtitan_precision(job)


def _check_torchtitan_sequence(job: Job) -> None:
    pieces = 2 * job.tensor_parallel * job.context_parallel
    if job.sequence_length % pieces:
        what = "not divisible by 2 x tensor_parallel x context_parallel"
        got, expected = f"{job.sequence_length} with {pieces} pieces", f"a multiple of {pieces}"
        _refuse(_TORCHTITAN, "sequence_length", what, got, expected)


def _check_torchtitan_experts(job: Job) -> None:
    expert, context = job.expert_parallel, job.context_parallel
    if expert > 1 and expert % context:
        got = f"{expert} with context_parallel = {context}"
        what, expected = "takes all ranks of context parallelism", f"1, or a multiple of {context}"
        _refuse(_TORCHTITAN, "expert_parallel", what, got, expected)


def _check_torchtitan_sharding(job: Job) -> None:
    ranks = job.data_parallel * job.context_parallel
    if ranks == 1:
        return
    others = job.world_size // job.data_parallel
    if job.sharding == "zero1" or (job.sharding == "none" and others > 1):
        got = f"{job.sharding} with {job.data_parallel} data-parallel ranks of {job.world_size}"
        what = "weights are sharded, or replicated where nothing else is parallel"
        expected = "zero2 or zero3" + (", or none" if others == 1 else "")
        _refuse(_TORCHTITAN, "sharding", what, got, expected)
    keys = ("overlap_gradients", "overlap_parameters")
    for key in keys if _fully_sharded(job) else keys[:1]:
        if not getattr(job, key):
            _refuse(_TORCHTITAN, key, "always overlapped", "false", "true")
    _check_prefetch(job, _TORCHTITAN)


def _check_torchtitan_precision(job: Job) -> None:
    if job.precision not in ("fp32", "bf16", "fp8"):
        what, expected = "not a type it trains in", "fp32, bf16 or fp8"
        _refuse(_TORCHTITAN, "precision", what, job.precision, expected)
    ranks = job.data_parallel * job.context_parallel
    if job.precision != "fp32" and ranks == 1 and job.world_size > 1:
        got = f"{job.precision} with data_parallel = context_parallel = 1"
        what = "sharded over nothing, weights stay in float32"
        _refuse(_TORCHTITAN, "precision", what, got, "fp32, or data_parallel = 2 or more")


def _torchtitan_model(job: Job) -> tuple[str, str]:
    shape = _shape(job)
    for name, sizes in _TORCHTITAN_MODELS.items():
        if shape == sizes:
            return name
    names = ", ".join(" ".join(name) for name in _TORCHTITAN_MODELS)
    got = f"{job.layers} layers of {job.hidden_size} with {job.vocabulary_size} tokens"
    _refuse(_TORCHTITAN, "model", "none that it has is of these sizes", got, f"those of {names}")


def _shape(job: Job) -> tuple[object, ...]:
    """What makes a model, however it is trained."""
    sizes = (job.layers, job.hidden_size, job.ffn_size, job.vocabulary_size)
    heads = (job.attention_heads, job.kv_heads, job.size_of_head)
    kinds = (job.gated_ffn, job.tied_embeddings, job.latent_attention, job.experts)
    return *sizes, *heads, *kinds


def _llama(layers: int, width: int, ffn_width: int, heads: int) -> tuple[object, ...]:
    """A model of `torchtitan/models/llama3/__init__.py`."""
    return layers, width, ffn_width, 128256, heads, 8, 128, True, False, None, None


def _deepseek(
    layers: int, width: int, ffn_width: int, tokens: int, heads: int, *, query_rank: int | None
) -> tuple[object, ...]:
    """A model of `torchtitan/models/deepseek_v3/__init__.py`, but for its experts."""
    latent = LatentAttention(
        query_rank=query_rank, key_value_rank=512, rope_head_size=64, value_head_size=128
    )
    return layers, width, ffn_width, tokens, heads, heads, 128, True, False, latent


def _experts(count: int, per_token: int, width: int, shared: int, dense_layers: int) -> Experts:
    return Experts(
        count=count,
        per_token=per_token,
        ffn_hidden_size=width,
        shared=shared,
        dense_layers=dense_layers,
    )


_TORCHTITAN_MODELS = {
    ("llama3", "8B"): _llama(32, 4096, 14336, 32),
    ("llama3", "70B"): _llama(80, 8192, 28672, 64),
    ("llama3", "405B"): _llama(126, 16384, 53248, 128),
    ("deepseek_v3", "16B"): (
        *_deepseek(27, 2048, 10944, 102400, 16, query_rank=None),
        _experts(64, 6, 1408, shared=2, dense_layers=1),
    ),
    ("deepseek_v3", "236B"): (
        *_deepseek(60, 5120, 12288, 102400, 128, query_rank=1536),
        _experts(160, 6, 1536, shared=2, dense_layers=1),
    ),
    ("deepseek_v3", "671B"): (
        *_deepseek(61, 7168, 18432, 129280, 128, query_rank=1536),
        _experts(256, 8, 2048, shared=1, dense_layers=3),
    ),
}


def _check_order(job: Job, where: str, orders: Iterable[str]) -> None:
    parallel = {axis for axis, field in _DEGREES.items() if getattr(job, field) > 1}

    def of_several(order: str) -> list[str]:
        return [axis for axis in order.split("-") if axis in parallel]

    if all(of_several(job.rank_order) != of_several(order) for order in orders):
        _refuse(where, "rank_order", "not an order it has", job.rank_order, " or ".join(orders))


def _check_prefetch(job: Job, where: str) -> None:
    if job.sharding == "zero3" and job.overlap_parameters and job.prefetch != 1:
        what = "no setting says how many layers"
        _refuse(where, "prefetch", what, job.prefetch, "1")


def _pipelines_first(job: Job) -> bool:
    """Ranks of a pipeline are nearer to each other than those of data parallelism."""
    order = job.rank_order.split("-")
    both = job.pipeline_parallel > 1 and job.data_parallel > 1
    return both and order.index("pp") < order.index("dp")


def _fully_sharded(job: Job) -> bool:
    return job.sharding in ("zero2", "zero3")


def _overlaps_tensor(job: Job) -> bool:
    return job.overlap_tensor and job.tensor_parallel > 1


def _options(values: Mapping[str, object]) -> list[str]:
    return [word for name, value in values.items() for word in (name, f"{value}")]


def _flags(values: Mapping[str, bool]) -> list[str]:
    return [name for name, value in values.items() if value]


def _refuse(where: str, key: str, what: str, got: object, expected: str) -> NoReturn:
    raise ConfigError(what, where=f"{where}: {key}", got=f"{got}", expected=expected)
