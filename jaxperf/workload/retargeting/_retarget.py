"""From a recorded run and its job to the execution graph of another job."""

from dataclasses import dataclass, replace

import numpy as np

from jaxperf.compiled import compile_program
from jaxperf.config import Hardware, Job
from jaxperf.cost import PRECISIONS, Work, WorkKind, task_work
from jaxperf.errors import ConfigError
from jaxperf.graph import ExecutionGraph, bounded_by_queue
from jaxperf.replay import (
    Timeline,
    binding_dependencies,
    double_precision,
    path_to,
    start_times_us,
    steady_weights,
)
from jaxperf.trace import Run
from jaxperf.workload._build import timed_graph
from jaxperf.workload.retargeting._axes import name_axes, rank_at, rank_coordinates
from jaxperf.workload.retargeting._emitted_graph import EmittedGraph, emit_graph
from jaxperf.workload.retargeting._items import read_items
from jaxperf.workload.retargeting._rank_program import Place, RankPlanner
from jaxperf.workload.retargeting._recognised_passes import recognise_passes
from jaxperf.workload.retargeting._recorded_parts import read_parts
from jaxperf.workload.retargeting._resized import Origin, Resizer
from jaxperf.workload.retargeting._stages import check_retarget

# The first iteration fills the pipeline of host and device, the others are steady.
_STEPS = 3
_TOLD = ("fp32", "fp16", "bf16")


@dataclass(frozen=True, eq=False)
class RecordedJob:
    """A recorded run, recognised as a job.

    Attributes:
        job: the job.
        hardware: the machine it ran on.
        resizer: its parts, and what they take at other sizes.
    """

    job: Job
    hardware: Hardware
    resizer: Resizer


def recognise_job(run: Run, graph: ExecutionGraph, job: Job, hardware: Hardware) -> RecordedJob:
    """Recognise a job in the traces of a run.

    Args:
        run: the traces.
        graph: the graph of them.
        job: what was recorded, as the user describes it.
        hardware: what it ran on.

    Returns:
        The recorded job.

    Raises:
        ConfigError: the traces are not those of the job; the message says how they differ.
    """
    check_retarget(job, job)
    steps = read_items(run, graph, steady_weights(graph))
    work = task_work(graph, run)
    _check_precision(job, work)
    steps = name_axes(job, steps, work)
    parts = read_parts(job, recognise_passes(job, steps))
    return RecordedJob(job, hardware, Resizer(job, parts, hardware))


def _check_precision(job: Job, work: Work) -> None:
    """Refuse a job whose multiplies are of another type than most in the trace."""
    multiplies = (work.kind == WorkKind.MATMUL) & (work.precision >= 0)
    types, counts = np.unique(work.precision[multiplies], return_counts=True)
    if not len(types):
        return
    usual = PRECISIONS[int(types[counts.argmax()])]
    same = {"tf32": "fp32"}.get(usual, usual)
    # Multiplies of eight bits and fewer are told by few operators.
    if job.precision in _TOLD and same in _TOLD and same != job.precision:
        raise ConfigError(
            "the job does not have the trace's type of multiplies",
            where=f"job: precision = {job.precision}",
            got=usual,
            remedy="describe the job that was recorded",
        )


def retarget(recorded: RecordedJob, job: Job, *, gpus_per_node: int | None = None) -> EmittedGraph:
    """The execution graph of another job.

    Ranks that behave alike are simulated once: one replica and one shard of each stage, or all that
    were recorded where some of them compute slower than others.

    Args:
        recorded: what was recorded.
        job: the other job, or the same.
        gpus_per_node: accelerators of a node, as on the recorded machine by default.

    Returns:
        The graph of its iterations, with its times as a replay gives them, and where each duration
        comes from.

    Raises:
        ConfigError: the run cannot be re-targeted to such a job.
    """
    check_retarget(recorded.job, job)
    replicas, shards, slowness = _simulated(recorded, job)
    resizer = recorded.resizer
    if gpus_per_node is not None:
        resizer = resizer.with_nodes_of(gpus_per_node)
    planner = RankPlanner(job, resizer)
    plans = {}
    for stage in range(job.pipeline_parallel):
        for replica in range(replicas):
            for shard in range(shards):
                place = Place(stage, replica, shard)
                rank = rank_at(job, stage, replica, shard)
                plans[rank] = planner.iteration(place, slowness(place))
    emitted = emit_graph(plans, steps=_STEPS, tail_us=resizer.parts.tail_us)
    graph, _ = bounded_by_queue(emitted.graph, recorded.hardware.launch_queue)
    with double_precision():
        durations_us = graph.duration_ns / 1e3
        start_us = np.asarray(start_times_us(compile_program(graph), durations_us))
    return replace(emitted, graph=timed_graph(graph, durations_us, start_us[: graph.tasks]))


def _simulated(recorded: RecordedJob, job: Job):
    """How many replicas and shards differ, and how slow each rank is."""
    found, parts = recorded.job, recorded.resizer.parts
    if parts.alike:
        return 1, 1, lambda place: 1.0
    replicas = min(job.data_parallel, found.data_parallel)
    shards = min(job.tensor_parallel, found.tensor_parallel)
    by_place = {}
    for rank, factor in parts.slowness.items():
        at = rank_coordinates(found, rank)
        by_place[at["pp"], at["dp"], at["tp"]] = factor

    def slowness(place: Place) -> float:
        stage = place.stage % found.pipeline_parallel
        return by_place.get((stage, place.replica, place.shard), 1.0)

    return replicas, shards, slowness


def steady_us(emitted: EmittedGraph) -> float:
    """The steady step of a re-targeted graph.

    Args:
        emitted: of `retarget`.

    Returns:
        Microseconds, the mean over ranks and all iterations but the first.
    """
    span_us = [(step.end_ns - step.begin_ns) / 1e3 for step in emitted.graph.steps]
    return float(steady_weights(emitted.graph) @ span_us)


def origin_shares(emitted: EmittedGraph) -> dict[str, float]:
    """How much of the critical path of the last iteration was recorded, scaled and modelled.

    Args:
        emitted: of `retarget`.

    Returns:
        Shares by name, which add up to 1; lags count as what they lead to.
    """
    graph = emitted.graph
    timeline = Timeline(graph.start_ns / 1e3, graph.end_ns / 1e3)
    last = int(np.argmax(timeline.end_us))
    binding = binding_dependencies(graph, timeline.start_us)
    path = path_to(graph, timeline, binding, last)
    ends = timeline.end_us[path.task]
    spent_us = np.diff(ends, prepend=timeline.start_us[path.task[0]])
    since_us = max(step.begin_ns for step in graph.steps) / 1e3
    spent_us = np.minimum(spent_us, np.maximum(ends - since_us, 0.0))
    origin = emitted.origin[path.task]
    total_us = float(spent_us.sum())
    return {each.name.lower(): float(spent_us[origin == each].sum()) / total_us for each in Origin}
