"""Memory of a job: what each rank of its pipeline holds when it holds most, by part."""

from dataclasses import dataclass

from jaxperf.config import Job, columns_of_jobs
from jaxperf.workload.memory._memory_columns import memory_columns


@dataclass(frozen=True, slots=True)
class StageMemory:
    """Memory of each rank of one pipeline stage, at the time that it holds most.

    Attributes:
        stage: rank along the pipeline.
        layers: that it holds.
        parameters: that it holds, before sharding over data-parallel ranks.
        weights_bytes: its share of the weights.
        gradients_bytes: its share of the gradients, as they are summed.
        optimizer_bytes: its share of the 32-bit weights and the moments.
        activations_bytes: kept for backward passes to come, of all micro-batches in flight.
        sharding_bytes: layers gathered, and gradients not yet spread, fully or partly sharded.
        temporary_bytes: what the backward pass under way holds besides, less what it has freed.
        placeholder_bytes: a gradient that stands for the one that a multiply has added to the sum,
            for each shape of weights; where gradients are summed in place.
        message_bytes: gradient last sent to the stage before.
        workspace_bytes: of libraries.
        fragmentation_bytes: held by the allocator, and not in use.
    """

    stage: int
    layers: int
    parameters: float
    weights_bytes: float
    gradients_bytes: float
    optimizer_bytes: float
    activations_bytes: float
    sharding_bytes: float
    temporary_bytes: float
    placeholder_bytes: float
    message_bytes: float
    workspace_bytes: float
    fragmentation_bytes: float

    @property
    def allocated_bytes(self) -> float:
        """What is in use at the peak, as `torch.cuda.max_memory_allocated` counts it."""
        return (
            self.weights_bytes
            + self.gradients_bytes
            + self.optimizer_bytes
            + self.activations_bytes
            + self.sharding_bytes
            + self.temporary_bytes
            + self.placeholder_bytes
            + self.message_bytes
            + self.workspace_bytes
        )

    @property
    def total_bytes(self) -> float:
        """With what the allocator holds besides; the driver's own memory comes on top."""
        return self.allocated_bytes + self.fragmentation_bytes


@dataclass(frozen=True, slots=True)
class JobMemory:
    """Memory of the ranks of a job, by pipeline stage; the ranks of a stage are alike.

    Attributes:
        stages: in order.
    """

    stages: tuple[StageMemory, ...]

    @property
    def peak(self) -> StageMemory:
        """The stage that needs most."""
        return max(self.stages, key=lambda stage: stage.total_bytes)


def job_memory(job: Job) -> JobMemory:
    """Memory that a job needs, by stage and by part.

    Args:
        job: a job that can be (`check_job`).

    Returns:
        For each stage of the pipeline the memory of one of its ranks.

    Raises:
        ConfigError: its schedule is not possible.

    Example:
        >>> job = Job(layers=4, hidden_size=4096, attention_heads=32, vocabulary_size=32000,
        ...           sequence_length=4096, pipeline_parallel=2, micro_batches=8)
        >>> memory = job_memory(job)
        >>> [round(stage.activations_bytes / 2**30, 2) for stage in memory.stages]
        [2.0, 1.31]
    """
    columns = memory_columns(columns_of_jobs([job]))
    return JobMemory(
        tuple(
            StageMemory(
                stage=stage,
                layers=int(columns.layers[0, stage]),
                parameters=float(columns.parameters[0, stage]),
                fragmentation_bytes=float(columns.fragmentation_bytes[0, stage]),
                **{name: float(part[0, stage]) for name, part in columns.parts.items()},
            )
            for stage in range(job.pipeline_parallel)
        )
    )
