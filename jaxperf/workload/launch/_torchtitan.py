"""A job as a configuration file of torchtitan.

Its fields are those of `torchtitan/config/job_config.py` of pytorch/torchtitan in its last form,
before configurations became Python; what they do is read from
`torchtitan/distributed/pipeline_parallel.py`, `parallel_dims.py` and
`torchtitan/models/llama3/infra/parallelize.py`.

What torchtitan cannot do is refused. What a job does not say (data, learning rate, iterations,
checkpoints) is not written; it is to be added.
"""

import tomli_w

from jaxperf.config import Experts, Job, LatentAttention, check_job
from jaxperf.workload.launch._rules import (
    check_order,
    check_prefetch,
    fully_sharded,
    overlaps_tensor,
    refuse,
)

_NAME = "torchtitan"


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
    if job.precision == "fp8" or overlaps_tensor(job):
        tables["compile"] = {"enable": True}
    return tomli_w.dumps(tables)


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
        "enable_async_tensor_parallel": overlaps_tensor(job),
        "context_parallel_degree": job.context_parallel,
        "pipeline_parallel_degree": job.pipeline_parallel,
    }
    if fully_sharded(job):
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
        refuse(_NAME, "schedule", "not a schedule it has", got, " or ".join(schedules))
    if job.recompute == "selective":
        what = "its selective checkpoints keep attention, and do not recompute it"
        refuse(_NAME, "recompute", what, job.recompute, "none or full")
    if job.optimizer != "adam":
        refuse(_NAME, "optimizer", "not an optimizer it has", job.optimizer, "adam")
    if job.gradient_bytes != 4:
        got = f"{job.gradient_bytes:g}"
        refuse(_NAME, "gradient_bytes", "gradients are summed in float32", got, "4")
    if job.tensor_parallel > 1 and not job.sequence_parallel:
        got = f"false with tensor_parallel = {job.tensor_parallel}"
        what = "tensor parallelism is always with it"
        refuse(_NAME, "sequence_parallel", what, got, "true")
    check_order(job, _NAME, ("tp-cp-dp-pp",))
    _check_torchtitan_sequence(job)
    _check_torchtitan_experts(job)
    _check_torchtitan_sharding(job)
    _check_torchtitan_precision(job)


def _check_torchtitan_sequence(job: Job) -> None:
    pieces = 2 * job.tensor_parallel * job.context_parallel
    if job.sequence_length % pieces:
        what = "not divisible by 2 x tensor_parallel x context_parallel"
        got, expected = f"{job.sequence_length} with {pieces} pieces", f"a multiple of {pieces}"
        refuse(_NAME, "sequence_length", what, got, expected)


def _check_torchtitan_experts(job: Job) -> None:
    expert, context = job.expert_parallel, job.context_parallel
    if expert > 1 and expert % context:
        got = f"{expert} with context_parallel = {context}"
        what, expected = "takes all ranks of context parallelism", f"1, or a multiple of {context}"
        refuse(_NAME, "expert_parallel", what, got, expected)


def _check_torchtitan_sharding(job: Job) -> None:
    ranks = job.data_parallel * job.context_parallel
    if ranks == 1:
        return
    others = job.world_size // job.data_parallel
    if job.sharding == "zero1" or (job.sharding == "none" and others > 1):
        got = f"{job.sharding} with {job.data_parallel} data-parallel ranks of {job.world_size}"
        what = "weights are sharded, or replicated where nothing else is parallel"
        expected = "zero2 or zero3" + (", or none" if others == 1 else "")
        refuse(_NAME, "sharding", what, got, expected)
    keys = ("overlap_gradients", "overlap_parameters")
    for key in keys if fully_sharded(job) else keys[:1]:
        if not getattr(job, key):
            refuse(_NAME, key, "always overlapped", "false", "true")
    check_prefetch(job, _NAME)


def _check_torchtitan_precision(job: Job) -> None:
    if job.precision not in ("fp32", "bf16", "fp8"):
        what, expected = "not a type it trains in", "fp32, bf16 or fp8"
        refuse(_NAME, "precision", what, job.precision, expected)
    ranks = job.data_parallel * job.context_parallel
    if job.precision != "fp32" and ranks == 1 and job.world_size > 1:
        got = f"{job.precision} with data_parallel = context_parallel = 1"
        what = "sharded over nothing, weights stay in float32"
        refuse(_NAME, "precision", what, got, "fp32, or data_parallel = 2 or more")


def _torchtitan_model(job: Job) -> tuple[str, str]:
    shape = _shape(job)
    for name, sizes in _TORCHTITAN_MODELS.items():
        if shape == sizes:
            return name
    names = ", ".join(" ".join(name) for name in _TORCHTITAN_MODELS)
    got = f"{job.layers} layers of {job.hidden_size} with {job.vocabulary_size} tokens"
    refuse(_NAME, "model", "none that it has is of these sizes", got, f"those of {names}")


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
