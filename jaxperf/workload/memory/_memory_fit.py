"""Whether a job fits into memory, and what would make it fit: changes, tried one by one."""

from collections.abc import Iterable
from dataclasses import dataclass

import msgspec

from jaxperf.config import Job, check_job
from jaxperf.errors import ConfigError
from jaxperf.workload.memory._memory import JobMemory, job_memory

Change = tuple[str, int | str | bool | None]
"""A field of a job, and its new value."""
_MOST_CHANGES = 3
_RECOMPUTE, _SHARDING = ("none", "selective", "full"), ("none", "zero1", "zero2", "zero3")


@dataclass(frozen=True, slots=True)
class MemoryRemedy:
    """A change of a job that needs less memory.

    Attributes:
        changes: fields of the job with their new values; the global batch stays as it is.
        job: the job with them.
        total_bytes: what its largest stage then needs.
        fits: whether that fits.
    """

    changes: tuple[Change, ...]
    job: Job
    total_bytes: float
    fits: bool


@dataclass(frozen=True, slots=True)
class MemoryFit:
    """Whether a job fits.

    Attributes:
        memory_bytes: of an accelerator.
        over_bytes: for each stage what it needs beyond that; negative where some is left.
        remedies: what would make it fit, that which gives up least first; where nothing does,
            what comes nearest. Empty where the job fits.
    """

    memory_bytes: float
    over_bytes: tuple[float, ...]
    remedies: tuple[MemoryRemedy, ...]

    @property
    def fits(self) -> bool:
        """Every stage fits."""
        return not self.stages_over

    @property
    def stages_over(self) -> tuple[int, ...]:
        """Stages that do not fit."""
        return tuple(stage for stage, over in enumerate(self.over_bytes) if over > 0)


def memory_fit(job: Job, memory_bytes: float, memory: JobMemory | None = None) -> MemoryFit:
    """Whether a job fits into the memory of its accelerators, and if not what would make it.

    Tries more recompute, more sharding, half the micro-batch, and twice the tensor, expert or
    pipeline degree: first one of them alone, then two, then three together.

    Args:
        job: a job that can be (`check_job`).
        memory_bytes: of an accelerator (`Hardware.memory_bytes`). What the driver and
            communication libraries take, about a gigabyte, is not part of the estimate.
        memory: what the job needs, where that is known already.

    Returns:
        Per stage what is missing, and remedies with what each then needs: those that fit, the
        fewest changes first and then the largest total, which is the nearest to the job as it is.
        If none fits, the best there is.

    Example:
        >>> job = Job(layers=32, hidden_size=4096, attention_heads=32, vocabulary_size=32000,
        ...           sequence_length=4096, data_parallel=8, micro_batches=8)
        >>> fit = memory_fit(job, 80 * 2**30)
        >>> fit.fits, (("sharding", "zero1"),) in [remedy.changes for remedy in fit.remedies]
        (False, True)
    """
    needed = memory or job_memory(job)
    over = tuple(stage.total_bytes - memory_bytes for stage in needed.stages)
    if max(over) <= 0:
        return MemoryFit(memory_bytes, over, ())
    start = MemoryRemedy((), job, needed.peak.total_bytes, False)
    tried: dict[Job, MemoryRemedy] = {job: start}
    last = [start]
    for _ in range(_MOST_CHANGES):
        last = [found for each in last for found in _one_more(each, memory_bytes, tried)]
        fitting = sorted((each for each in last if each.fits), key=lambda each: -each.total_bytes)
        if fitting:
            return MemoryFit(memory_bytes, over, tuple(fitting))
    nearest = min(tried.values(), key=lambda each: each.total_bytes)
    return MemoryFit(memory_bytes, over, (nearest,) if nearest.changes else ())


def _one_more(
    remedy: MemoryRemedy, memory_bytes: float, tried: dict[Job, MemoryRemedy]
) -> Iterable[MemoryRemedy]:
    """Remedies with one change more that helps; none twice."""
    for changes in _changes(remedy.job):
        job = msgspec.structs.replace(remedy.job, **dict(changes))
        if job in tried:
            continue
        try:
            total_bytes = job_memory(check_job(job, "remedy")).peak.total_bytes
        except ConfigError:
            continue
        if total_bytes >= remedy.total_bytes:
            continue
        # The last value of a field counts, so that a field changed twice is told once.
        merged = tuple((dict(remedy.changes) | dict(changes)).items())
        tried[job] = MemoryRemedy(merged, job, total_bytes, total_bytes <= memory_bytes)
        yield tried[job]


def _changes(job: Job) -> Iterable[tuple[Change, ...]]:
    """Changes to try, each of fields that go together."""
    for value in _RECOMPUTE[_RECOMPUTE.index(job.recompute) + 1 :]:
        yield (("recompute", value),)
    if job.data_parallel * job.context_parallel > 1:
        for value in _SHARDING[_SHARDING.index(job.sharding) + 1 :]:
            yield (("sharding", value),)
    if job.tensor_parallel > 1 and not job.sequence_parallel:
        yield (("sequence_parallel", True),)
    if job.micro_batch_size % 2 == 0:
        yield (
            ("micro_batch_size", job.micro_batch_size // 2),
            ("micro_batches", job.micro_batches * 2),
        )
    if job.experts is not None:
        yield (("expert_parallel", 2 * job.expert_parallel),)
    yield (("tensor_parallel", 2 * job.tensor_parallel), *_fewer_replicas(job))
    schedule = (("schedule", "1F1B"),) if job.schedule == "none" else ()
    layers = (("stage_layers", None),) if job.stage_layers else ()
    stages = ("pipeline_parallel", 2 * job.pipeline_parallel)
    yield (stages, *schedule, *layers, *_fewer_replicas(job))


def _fewer_replicas(job: Job) -> tuple[tuple[str, int], ...]:
    """Half the data-parallel ranks, so that as many accelerators do; where it is even."""
    if job.data_parallel % 2:
        return ()
    return (
        ("data_parallel", job.data_parallel // 2),
        ("micro_batches", job.micro_batches * 2),
    )
