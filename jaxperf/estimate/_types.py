"""The noun of an estimate."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from jaxperf.config import Hardware, Job
from jaxperf.energy import EnergyPrediction
from jaxperf.graph import ExecutionGraph
from jaxperf.replay import Breakdown, Timeline
from jaxperf.trace import Note

if TYPE_CHECKING:
    from jaxperf.workload import JobMemory, MemoryFit


@dataclass(frozen=True, eq=False)
class Estimate:
    """What one iteration of a job takes and needs.

    Attributes:
        job: the job, with all changes.
        hardware: the machine, with all changes.
        gpus: how many the job uses.
        step_us: the iteration, to the end of the last rank.
        tokens_per_s_per_gpu: tokens of the global batch, by time and accelerators.
        samples_per_s: sequences of the global batch, by time.
        model_flops_per_s_per_gpu: flops of the model (`model_flops`), by time and accelerators.
        model_flops_utilization: that as a share of the peak for the job's precision.
        breakdown: where the time of a rank goes, the mean over all ranks.
        bubble_us: time in which a rank waits for other stages, from the first pass of an iteration
            to the last of all stages; the mean over ranks.
        bubble_fraction: that by the time of a rank's passes: (p - 1) / m of `1F1B` with equal
            stages and messages that take no time.
        critical_path_us: time on the path that bounds the step, by class name.
        memory: what the ranks of each stage need, by part.
        memory_fit: whether that fits, and what would make it.
        energy: what the job draws and takes; `None` where nothing tells what the machine draws.
        out_of_range: what the estimate has no basis for.
        notes: what was taken for granted.
        graph: tasks and dependencies of one rank of each stage, with their durations.
        timeline: when each starts and ends.
        binding: (tasks,) int32, the dependency that bound each start; -1 where none did.
        rank_breakdowns: the breakdown of each of the graph's ranks.
        ranks_alike: how many ranks each of the graph's stands for, itself included.
    """

    job: Job
    hardware: Hardware
    gpus: int
    step_us: float
    tokens_per_s_per_gpu: float
    samples_per_s: float
    model_flops_per_s_per_gpu: float
    model_flops_utilization: float
    breakdown: Breakdown
    bubble_us: float
    bubble_fraction: float
    critical_path_us: dict[str, float]
    memory: "JobMemory"
    memory_fit: "MemoryFit"
    energy: EnergyPrediction | None
    out_of_range: tuple[str, ...]
    notes: tuple[Note, ...]
    graph: ExecutionGraph
    timeline: Timeline
    binding: np.ndarray
    rank_breakdowns: tuple[tuple[int, Breakdown], ...]
    ranks_alike: tuple[int, ...]
