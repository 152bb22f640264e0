"""From a recorded run and its job to the execution graph of another job."""

from dataclasses import dataclass

import numpy as np

from jaxperf.config import Hardware, Job
from jaxperf.cost import task_work
from jaxperf.graph import ExecutionGraph, bounded_by_queue
from jaxperf.replay import steady_weights
from jaxperf.trace import Run
from jaxperf.workload._axes import name_axes, rank_coordinates
from jaxperf.workload._emitted_graph import EmittedGraph, emit_graph
from jaxperf.workload._items import read_items
from jaxperf.workload._rank_program import Place, RankPlanner, rank_at
from jaxperf.workload._recognised_passes import recognise_passes
from jaxperf.workload._recorded_parts import read_parts
from jaxperf.workload._resized import Resizer

# The first iteration fills the pipeline of host and device, the others are steady.
_STEPS = 3


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
    steps = read_items(run, graph, steady_weights(graph))
    steps = name_axes(job, steps, task_work(graph, run))
    parts = read_parts(job, recognise_passes(job, steps))
    return RecordedJob(job, hardware, Resizer(job, parts, hardware))


def retarget(recorded: RecordedJob, job: Job) -> EmittedGraph:
    """The execution graph of another job.

    Ranks that behave alike are simulated once: one replica and one shard of each stage, or all that
    were recorded where some of them compute slower than others.

    Args:
        recorded: what was recorded.
        job: the other job, or the same.

    Returns:
        The graph of its iterations, and where each duration comes from.
    """
    replicas, shards, slowness = _simulated(recorded, job)
    planner = RankPlanner(job, recorded.resizer, replicas, shards)
    plans = {}
    for stage in range(job.pipeline_parallel):
        for replica in range(replicas):
            for shard in range(shards):
                place = Place(stage, replica, shard)
                rank = rank_at(job, stage, replica, shard)
                plans[rank] = planner.iteration(place, slowness(place))
    tail_us = recorded.resizer.parts.tail_us
    emitted = emit_graph(plans, steps=_STEPS, tail_us=tail_us, members={})
    graph, _ = bounded_by_queue(emitted.graph, recorded.hardware.launch_queue)
    return EmittedGraph(graph, emitted.origin)


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


def origin_shares(emitted: EmittedGraph, on_path: np.ndarray) -> dict[str, float]:
    """How much of the critical path was recorded, scaled and modelled.

    Args:
        emitted: the graph.
        on_path: (tasks,) us that each task is on the critical path.

    Returns:
        Shares by name, which add up to 1.
    """
    from jaxperf.workload._resized import Origin

    total = float(on_path.sum())
    if total <= 0:
        return {origin.name.lower(): float("nan") for origin in Origin}
    return {
        origin.name.lower(): float(on_path[emitted.origin == origin].sum()) / total
        for origin in Origin
    }
