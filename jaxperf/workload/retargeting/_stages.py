"""What the stages of a re-targeted pipeline hold."""

from jaxperf.config import Job
from jaxperf.errors import ConfigError
from jaxperf.workload._parameters import (
    ParameterCounts,
    embedding_parameters,
    head_parameters,
    layer_parameters,
)


def layers_of_stage(job: Job, virtual_stage: int) -> int:
    """Layers of a chunk, by its place in the model.

    Example:
        >>> job = Job(layers=6, hidden_size=64, attention_heads=4, vocabulary_size=100,
        ...           sequence_length=128, pipeline_parallel=2, stage_layers=(4, 2))
        >>> layers_of_stage(job, 1)
        2
    """
    if job.stage_layers is not None:
        return job.stage_layers[virtual_stage]
    return job.layers // (job.pipeline_parallel * job.virtual_stages)


def stage_role(stage: int, stages: int) -> str:
    """Where a stage stands: it is the first, the last, both, or neither.

    Example:
        >>> [stage_role(k, 3) for k in range(3)]
        ['first', 'middle', 'last']
    """
    if stages == 1:
        return "only"
    return "first" if stage == 0 else "last" if stage == stages - 1 else "middle"


def stage_parameters(job: Job, stage: int) -> ParameterCounts:
    """Parameters that a rank of a stage holds.

    Example:
        >>> job = Job(layers=4, hidden_size=64, attention_heads=4, vocabulary_size=100,
        ...           sequence_length=128, pipeline_parallel=2)
        >>> stage_parameters(job, 0).total
        104960.0
    """
    chunks = range(stage, job.pipeline_parallel * job.virtual_stages, job.pipeline_parallel)
    layers = sum(layers_of_stage(job, chunk) for chunk in chunks)
    counts = layer_parameters(job, experts=False) * layers
    if stage == 0:
        counts = counts + embedding_parameters(job)
    if stage == job.pipeline_parallel - 1:
        counts = counts + head_parameters(job)
    return counts


_AS_RECORDED = (
    "optimizer",
    "precision",
    "gradient_bytes",
    "tied_embeddings",
    "latent_attention",
    "overlap_gradients",
    "overlap_parameters",
    "overlap_tensor",
)
"""Fields by which a recorded run is not changed."""

_MOST_PASSES = 40_000
"""Of the passes of all stages, times layers in each: as many are laid out in a minute or so."""


def check_retarget(recorded: Job, job: Job) -> None:
    """Refuse what a recorded run cannot be re-targeted to.

    Args:
        recorded: the recorded job.
        job: the other job.

    Raises:
        ConfigError: it has, or had, what re-targeting does not know.
    """
    for name in _AS_RECORDED:
        if getattr(job, name) != getattr(recorded, name):
            raise ConfigError(
                "a recorded run keeps this field of its job",
                where=f"set {name}",
                got=str(getattr(job, name)),
                expected=str(getattr(recorded, name)),
                remedy="jaxperf estimate tells what such a job takes",
            )
    passes = 2 * job.micro_batches * job.layers
    if passes > _MOST_PASSES:
        raise ConfigError(
            "too many passes of layers to lay out",
            where="the other job: micro_batches, layers",
            got=f"{passes:,}",
            expected=f"{_MOST_PASSES:,} at most",
            remedy="ask for fewer of them: beyond the bubble a step grows evenly with both",
        )
    for each, where in ((recorded, "job"), (job, "the other job")):
        if each.experts is not None:
            raise ConfigError(
                "a mixture of experts cannot be re-targeted",
                where=f"{where}: experts",
                expected="a dense model",
                remedy="jaxperf estimate tells what such a job takes",
            )
        if each.schedule == "dualpipe":
            raise ConfigError(
                "this schedule cannot be re-targeted: its passes run kernel by kernel in turn",
                where=f"{where}: schedule",
                got=each.schedule,
                expected="none, gpipe, 1F1B, interleaved or zero-bubble",
                remedy="jaxperf estimate tells what such a job takes",
            )
    if recorded.schedule == "zero-bubble":
        raise ConfigError(
            "a recorded backward pass in two parts is not recognised",
            where="job: schedule",
            got=recorded.schedule,
            expected="a run with none, gpipe, 1F1B or interleaved",
        )
    if recorded.virtual_stages > 1 and recorded.stage_layers is not None:
        raise ConfigError(
            "chunks of different size are not recognised",
            where="job: stage_layers",
            expected="as many layers in each chunk of a recorded job",
        )
