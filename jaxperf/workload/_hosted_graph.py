"""The graph of an iteration with what the host does: it launches the passes, and ends the step.

Beside each pass stands a task of the host that begins with it, and what follows the pass waits for
both: so a pass is never shorter than its launches. Another follows all else of a rank.
"""

from dataclasses import dataclass, replace

import numpy as np

from jaxperf.graph import DependencyKind, ExecutionGraph, GraphLane, TaskClass, TaskKind
from jaxperf.trace import MISSING
from jaxperf.workload._build import JobGraph
from jaxperf.workload._schedules import PassKind
from jaxperf.workload._table import job_pieces
from jaxperf.workload._templates import COMPUTE, LANES

_BESIDE = ("tensor", "context", "expert", "data")
"""Streams of messages that computation may run beside."""

_WORDS = {
    PassKind.FORWARD: "forward",
    PassKind.BACKWARD: "backward",
    PassKind.BACKWARD_INPUT: "backward of inputs",
    PassKind.BACKWARD_WEIGHT: "backward of weights",
}


@dataclass(frozen=True, eq=False)
class HostedGraph:
    """A graph with the tasks of the host, and what its durations are made of.

    Attributes:
        built: the graph without them; its tasks come first.
        graph: with them.
        block_of_task: (tasks,) int32, the pass of each task, that of the host with it; -1 for none.
        row_of_task: (tasks,) int32, into rows of durations: one for each piece, one for each
            different pass of the host, one for the end of a step.
        is_stage_message: (pieces,) bool.
        kernels, collectives: (passes of the host,) of each different pass.
        micro_batches: (passes of the host,) halves of one's host work, as passes forward or
            backward through all layers of a stage count.
        has_gap: (dependencies,) bool, a stream is idle between the two.
        messages_beside: (n,) messages that kernels may run beside, in order and stream after
            stream, and (n,) the place of their stream.
        kernels_beside: (k,) tasks on the streams of kernels, in order, and (k,) places: once for
            each stream of messages of the rank.
    """

    built: JobGraph
    graph: ExecutionGraph
    block_of_task: np.ndarray
    row_of_task: np.ndarray
    is_stage_message: np.ndarray
    kernels: np.ndarray
    collectives: np.ndarray
    micro_batches: np.ndarray
    has_gap: np.ndarray
    messages_beside: tuple[np.ndarray, np.ndarray]
    kernels_beside: tuple[np.ndarray, np.ndarray]


def add_host(built: JobGraph) -> HostedGraph:
    """Add what the host does to the graph of an iteration.

    Args:
        built: of `build_job_graph`.

    Returns:
        The graph with a task of the host for each pass, and one for the end of each rank's step.

    Example:
        >>> from jaxperf.config import Job
        >>> from jaxperf.workload._build import build_job_graph
        >>> built = build_job_graph(Job(layers=1, hidden_size=64, attention_heads=4,
        ...     vocabulary_size=100, sequence_length=128))
        >>> hosted = add_host(built)
        >>> hosted.graph.tasks - built.graph.tasks
        3
    """
    tasks, blocks = built.graph.tasks, len(built.blocks)
    counts = np.array([len(block.template.piece) for block in built.blocks])
    block_of_task = np.full(tasks, -1, np.int32)
    inside = np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts)
    block_of_task[np.repeat(built.first_task, counts) + inside] = np.repeat(
        np.arange(blocks), counts
    )
    kind_of_block, numbers, names = _kinds_of_passes(built)
    pieces = len(built.work)
    graph = _graph(built, block_of_task, [names[kind] for kind in kind_of_block])
    row_of_task = np.concatenate(
        [
            built.piece_of_task,
            pieces + kind_of_block,
            np.full(len(built.graph.ranks), pieces + len(numbers)),
        ]
    )
    table = job_pieces(built.job, built.layout)
    is_stage_message = np.zeros(pieces, bool)
    is_stage_message[[index for index, _ in table.of("stage")]] = True
    source = graph.source
    has_gap = (source < tasks) & (block_of_task[np.minimum(source, tasks - 1)] >= 0)
    ends = np.full(len(built.graph.ranks), -1)
    messages, kernels = _beside(built, block_of_task)
    return HostedGraph(
        built=built,
        graph=graph,
        block_of_task=np.concatenate([block_of_task, np.arange(blocks), ends]).astype(np.int32),
        row_of_task=row_of_task.astype(np.int32),
        is_stage_message=is_stage_message,
        kernels=numbers[:, 0],
        collectives=numbers[:, 1],
        micro_batches=numbers[:, 2],
        has_gap=has_gap,
        messages_beside=messages,
        kernels_beside=kernels,
    )


def pipeline_bubble_us(
    hosted: HostedGraph, start_us: np.ndarray, end_us: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """How long each rank waits for other stages, and how long its passes take.

    From the first pass of any rank to the end of the last of all; a pass lasts from when it may
    begin to when it has ended on device and host. Of equal stages and messages that take no time
    the first is the published bubble (`bubble_us`), and the quotient `bubble_fraction`.

    Args:
        hosted: the graph.
        start_us: (tasks,) when each starts.
        end_us: (tasks,) and ends.

    Returns:
        (ranks,) the bubble, and (ranks,) the passes.
    """
    inside = hosted.block_of_task >= 0
    block, blocks = hosted.block_of_task[inside], hosted.built.blocks
    begin, end = np.full(len(blocks), np.inf), np.full(len(blocks), -np.inf)
    np.minimum.at(begin, block, start_us[inside])
    np.maximum.at(end, block, end_us[inside])
    passes_us = np.bincount([each.rank for each in blocks], end - begin)
    return end.max() - begin.min() - passes_us, passes_us


def _kinds_of_passes(built: JobGraph) -> tuple[np.ndarray, np.ndarray, list[str]]:
    """Which different pass each is; (kinds, 3) what the host does for each; and their names."""
    is_message = np.array(built.graph.kind == TaskKind.COLLECTIVE)
    known: dict[int, int] = {}
    kind_of_block, numbers, names = [], [], []
    for block, first in zip(built.blocks, built.first_task.tolist(), strict=True):
        key = id(block.template)
        if key not in known:
            known[key] = len(numbers)
            kinds = [built.layout.orders[block.rank][place].kind for place in block.positions]
            whole = sum(kind is not PassKind.BACKWARD_WEIGHT for kind in kinds)
            messages = int(is_message[first : first + len(block.template.piece)].sum())
            kernels = len(block.template.piece) - messages
            numbers.append((kernels, messages, whole / built.job.virtual_stages))
            names.append("launch " + " and ".join(_WORDS[kind] for kind in kinds))
        kind_of_block.append(known[key])
    return np.array(kind_of_block), np.array(numbers, float), names


def _graph(built: JobGraph, block_of_task: np.ndarray, names_of_blocks: list[str]):
    """The graph with the host's tasks behind all others."""
    graph, blocks, ranks = built.graph, len(built.blocks), len(built.graph.ranks)
    tasks, more = graph.tasks, blocks + ranks
    rank_of_block = np.array([block.rank for block in built.blocks])
    rank = np.concatenate([rank_of_block, np.arange(ranks)])
    source, target, kind = _links(built, block_of_task, rank_of_block)

    names = dict.fromkeys((*graph.names, *names_of_blocks, "end of step"))
    names = {name: index for index, name in enumerate(names)}
    name = [names[each] for each in (*names_of_blocks, *["end of step"] * ranks)]
    lanes = tuple(GraphLane(each, "host", -1, -1) for each in graph.ranks)
    # A pass is launched after what it waits for and before its first task.
    place = np.concatenate([2 * graph.order, 2 * graph.order[built.first_task] - 1])
    place = np.concatenate([place, 2 * tasks + np.arange(ranks)])
    order = np.empty(tasks + more, np.int64)
    order[np.argsort(place, kind="stable")] = np.arange(tasks + more)

    def longer(column: np.ndarray, value) -> np.ndarray:
        return np.concatenate([column, np.full(more, value, column.dtype)])

    edges = len(source)
    zeros = np.zeros(tasks + more, np.int64)
    task_class = longer(graph.task_class, TaskClass.LAUNCH)
    task_class[tasks + blocks :] = TaskClass.HOST
    steps = tuple(
        replace(step, end_task=tasks + blocks + index) for index, step in enumerate(graph.steps)
    )
    return replace(
        graph,
        names=tuple(names),
        lanes=(*graph.lanes, *lanes),
        name=np.concatenate([graph.name, np.array(name, np.int32)]),
        lane=np.concatenate([graph.lane, len(graph.lanes) + rank]).astype(np.int32),
        kind=longer(graph.kind, TaskKind.HOST_WORK),
        task_class=task_class,
        trace=np.concatenate([graph.trace, rank]).astype(graph.trace.dtype),
        event=longer(graph.event, -1),
        start_ns=zeros,
        end_ns=zeros,
        duration_ns=zeros,
        release_ns=longer(graph.release_ns, MISSING),
        order=order,
        source=source,
        target=target,
        lag_ns=np.zeros(edges, np.int64),
        unexplained_ns=np.zeros(edges, np.int64),
        from_start=np.zeros(edges, bool),
        dependency=kind,
        step=np.concatenate([graph.step, rank]).astype(np.int32),
        arrival=longer(graph.arrival, -1),
        sm_share=longer(graph.sm_share, np.nan),
        steps=steps,
    )


def _links(
    built: JobGraph, block_of_task: np.ndarray, rank_of_block: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Source, target and kind of all dependencies, those of the graph first."""
    graph, tasks = built.graph, built.graph.tasks
    is_data = np.array([lane.name == "data" for lane in graph.lanes])[graph.lane]
    source, target = graph.source.astype(np.int64), graph.target.astype(np.int64)
    before, after = block_of_task[source], block_of_task[target]
    crosses = before != after
    # The host waits for other stages, and not for weights: these the device waits for.
    into = crosses & (after >= 0) & ~is_data[source]
    out = crosses & (before >= 0) & ~is_data[target]
    chain = np.flatnonzero(np.diff(rank_of_block) == 0)
    ends = np.arange(len(graph.steps)) + tasks + len(built.blocks)
    pairs = [
        (source[into], tasks + after[into], DependencyKind.HOST_SYNC),
        (tasks + before[out], target[out], DependencyKind.LAUNCH),
        (tasks + chain, tasks + chain + 1, DependencyKind.THREAD_ORDER),
        (np.array([step.end_task for step in graph.steps]), ends, DependencyKind.HOST_SYNC),
    ]
    sources, targets = [graph.source], [graph.target]
    kinds = [graph.dependency]
    for some_source, some_target, kind in pairs:
        once = np.unique(np.stack([some_source, some_target]), axis=1)
        sources.append(once[0].astype(np.int32))
        targets.append(once[1].astype(np.int32))
        kinds.append(np.full(once.shape[1], kind, graph.dependency.dtype))
    return np.concatenate(sources), np.concatenate(targets), np.concatenate(kinds)


def _beside(
    built: JobGraph, block_of_task: np.ndarray
) -> tuple[tuple[np.ndarray, np.ndarray], tuple[np.ndarray, np.ndarray]]:
    """Messages, and the kernels that may run beside them; see `HostedGraph`."""
    graph, ranks = built.graph, len(built.graph.ranks)
    stream = np.array([LANES.index(lane.name) for lane in graph.lanes])[graph.lane]

    def in_order(chosen: np.ndarray) -> np.ndarray:
        tasks = np.flatnonzero(chosen)
        return tasks[np.lexsort((graph.order[tasks], graph.trace[tasks]))].astype(np.int32)

    messages = [in_order(stream == LANES.index(name)) for name in _BESIDE]
    messages = [tasks for tasks in messages if len(tasks)]
    kernels = [in_order((stream == COMPUTE) & (block_of_task >= 0))] * len(messages)

    def placed(found: list[np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
        none = [np.empty(0, np.int32)]
        places = [graph.trace[tasks] + ranks * place for place, tasks in enumerate(found)]
        return np.concatenate(none + found), np.concatenate(none + places)

    return placed(messages), placed(kernels)
