"""The execution graph of one iteration of a job, without a trace.

One rank of each stage of the pipeline stands for all ranks that do the same, whose messages to each
other begin when all are there. A message between stages is a task of the rank that receives it: it
starts when the pass that it comes from has ended and the one before it has arrived. Messages of
data parallelism share one stream, in the order in which they are issued:

- Gradients go bucket by bucket as the last backward pass leaves them whole (`overlap_gradients`),
  or after it. With zero2 and zero3 each unit's are scattered in every micro-batch.
- Weights that only the optimizer shards (zero1, zero2) are gathered, bucket by bucket, as the
  iteration begins, beside its first forward pass (`overlap_parameters`), or else as it ends.
- Fully sharded weights are gathered for each use, `prefetch` units ahead of it, unless the rank
  used them last; without `overlap_parameters` when the unit before has ended.

The iteration ends with the norm of the gradients, which all stages wait for, and the update.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from jaxperf.config import Job
from jaxperf.cost import Work
from jaxperf.errors import ConfigError
from jaxperf.graph import DependencyKind, ExecutionGraph, GraphLane, Step, TaskKind
from jaxperf.trace import MISSING
from jaxperf.workload._data import data_messages
from jaxperf.workload._layout import Layout, layout_of
from jaxperf.workload._pack import pack_work
from jaxperf.workload._passes import Block, order_blocks, pass_blocks, stage_links
from jaxperf.workload._pieces import group_shape
from jaxperf.workload._table import PieceTable, job_pieces
from jaxperf.workload._tasks import SPACING, Tasks
from jaxperf.workload._templates import COMPUTE, LANES

_MOST_PASSES = 400_000
"""Passes of layers, of all stages: about ten million kernels."""


@dataclass(frozen=True, eq=False)
class JobGraph:
    """The execution graph of one iteration of a job, and what its tasks have to do.

    Attributes:
        job: the job.
        layout: its structure.
        graph: tasks and dependencies; all durations are 0, see `timed_graph`.
        work: of the different pieces.
        piece_of_task: (tasks,) int32, index into `work`.
        ranks_alike: for each of the graph's ranks how many do the same, itself included.
        blocks: the passes, rank after rank and in order.
        first_task: (blocks,) of each pass; its tasks follow each other.
    """

    job: Job
    layout: Layout
    graph: ExecutionGraph
    work: Work
    piece_of_task: np.ndarray
    ranks_alike: tuple[int, ...]
    blocks: tuple[Block, ...]
    first_task: np.ndarray


def build_job_graph(job: Job) -> JobGraph:
    """The execution graph of one iteration of a job.

    `cost_us(model, work)[piece_of_task]` are the durations of its tasks. To have gradients in
    sizes, price the pieces of the changed job instead: `job_pieces(changed, layout).pieces`.

    Args:
        job: the job.

    Returns:
        The graph, one rank for each stage of the pipeline.

    Raises:
        ConfigError: the job is too large to lay out; layers do not fit stages, or the schedule
            does not fit the job.

    Example:
        >>> job = Job(layers=4, hidden_size=64, attention_heads=4, vocabulary_size=100,
        ...           sequence_length=128, pipeline_parallel=2, data_parallel=4, micro_batches=2)
        >>> built = build_job_graph(job)
        >>> built.graph.ranks, built.ranks_alike
        ((0, 4), (4, 4))
    """
    passes = 2 * job.micro_batches * job.layers
    if passes > _MOST_PASSES:
        raise ConfigError(
            "too many passes of layers to lay out",
            where=f"{job.name}: micro_batches, layers",
            got=f"{passes:,}",
            expected=f"{_MOST_PASSES:,} at most",
            remedy="beyond the bubble a step grows evenly with both; closed_form_step_us takes any",
        )
    layout = layout_of(job)
    table = job_pieces(job, layout)
    tasks = Tasks()
    begins = [_begin(table, tasks, rank) for rank in range(len(layout.orders))]
    blocks = order_blocks(job, layout, pass_blocks(job, layout, table, tasks.names))
    offsets = _add_blocks(tasks, blocks, begins)
    _add_stage_messages(job, layout, table, tasks, blocks, offsets)
    ready = []
    for rank, begin in enumerate(begins):
        mine = [index for index, block in enumerate(blocks) if block.rank == rank]
        last = blocks[mine[-1]]
        done = [int(offsets[mine[-1]]) + task for task in last.template.exits]
        sums = data_messages(
            job,
            layout,
            table,
            tasks,
            rank,
            [(blocks[index], int(offsets[index])) for index in mine],
            begin,
            done,
        )
        ready.append([*done, *sums])
    ends = _add_ends(job, layout, table, tasks, ready, after=len(blocks))
    graph, piece_of_task = _graph(job, table, tasks, begins, ends)
    alike = job.world_size // job.pipeline_parallel
    return JobGraph(
        job=job,
        layout=layout,
        graph=graph,
        work=pack_work(table.pieces),
        piece_of_task=piece_of_task,
        ranks_alike=(alike,) * job.pipeline_parallel,
        blocks=tuple(blocks),
        first_task=offsets,
    )


def timed_graph(
    graph: ExecutionGraph,
    durations_us: np.ndarray,
    start_us: np.ndarray,
    lags_us: np.ndarray | None = None,
) -> ExecutionGraph:
    """A graph with its durations, and its times as if they had been measured.

    Args:
        graph: of `build_job_graph`.
        durations_us: (tasks,) of its tasks.
        start_us: (tasks,) when each starts, of a replay.
        lags_us: (dependencies,) of that replay; the graph's own by default.

    Returns:
        The graph, to the nanosecond.
    """
    if lags_us is not None:
        graph = replace(graph, lag_ns=np.rint(np.asarray(lags_us) * 1e3).astype(np.int64))
    duration_ns = np.rint(np.asarray(durations_us) * 1e3).astype(np.int64)
    start_ns = np.rint(np.asarray(start_us) * 1e3).astype(np.int64)
    end_ns = start_ns + duration_ns
    steps = tuple(
        replace(
            step,
            begin_ns=int(start_ns[step.begin_task]),
            end_ns=int(end_ns[step.end_task]),
        )
        for step in graph.steps
    )
    return replace(graph, duration_ns=duration_ns, start_ns=start_ns, end_ns=end_ns, steps=steps)


def _begin(table: PieceTable, tasks: Tasks, rank: int) -> int:
    ((index, piece),) = table.of("begin", rank)
    return tasks.add_one(rank, COMPUTE, piece.name, index, key=-2 * SPACING)


def _add_blocks(tasks: Tasks, blocks: Sequence[Block], begins: Sequence[int]) -> np.ndarray:
    """The tasks of all passes, each block after the one before it; (blocks,) their first tasks."""
    templates = [block.template for block in blocks]
    counts = np.array([len(each.piece) for each in templates])
    local = np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts)
    place = np.repeat([block.place for block in blocks], counts)
    first = tasks.add(
        np.repeat([block.rank for block in blocks], counts),
        np.concatenate([each.lane for each in templates]),
        np.concatenate([each.name for each in templates]),
        np.concatenate([each.piece for each in templates]),
        place * SPACING + 4 * (local + 1),
    )[0]
    offsets = first + np.cumsum(counts) - counts
    edges = np.repeat(offsets, [len(each.source) for each in templates])
    tasks.link(
        np.concatenate([each.source for each in templates]) + edges,
        np.concatenate([each.target for each in templates]) + edges,
    )
    after = {rank: [begin] for rank, begin in enumerate(begins)}
    links = []
    for block, offset in zip(blocks, offsets.tolist(), strict=True):
        entries = [offset + task for task in block.template.entries]
        links += [(source, target) for source in after[block.rank] for target in entries]
        after[block.rank] = [offset + task for task in block.template.exits]
    tasks.link(*np.array(links).T)
    return offsets


def _add_stage_messages(
    job: Job,
    layout: Layout,
    table: PieceTable,
    tasks: Tasks,
    blocks: Sequence[Block],
    offsets: np.ndarray,
) -> None:
    """A message for each pass that waits for one of another rank, on a stream for each way."""
    links = stage_links(job, layout, blocks)
    if not len(links.source):
        return
    ((index, _),) = table.of("stage")
    targets = [blocks[block] for block in links.target.tolist()]
    rank = np.array([block.rank for block in targets])
    place = np.array([block.place for block in targets])
    lanes = [LANES.index("receive forward"), LANES.index("receive backward")]
    names = [tasks.name("stage/forward message"), tasks.name("stage/backward message")]
    lane, name = np.array(lanes)[links.backward], np.array(names)[links.backward]
    message = tasks.add(rank, lane, name, np.full(len(rank), index), place * SPACING)
    order = np.lexsort((place, lane, rank))
    follows = (np.diff(rank[order]) == 0) & (np.diff(lane[order]) == 0)
    tasks.link(message[order[:-1][follows]], message[order[1:][follows]])
    pairs = [
        (int(offsets[block]) + task, one)
        for block, one in zip(links.source.tolist(), message.tolist(), strict=True)
        for task in blocks[block].template.exits
    ]
    pairs += [
        (one, int(offsets[block]) + task)
        for block, one in zip(links.target.tolist(), message.tolist(), strict=True)
        for task in blocks[block].template.entries
    ]
    tasks.link(*np.array(pairs).T)


def _add_ends(
    job: Job,
    layout: Layout,
    table: PieceTable,
    tasks: Tasks,
    ready: Sequence[list[int]],
    after: int,
) -> list[int]:
    """The end of the iteration on each rank, after what leaves its gradients whole."""
    key = after * SPACING
    ranks = len(ready)
    before = [list(some) for some in ready]

    def step(rank: int, name: str, piece: int, phase: int, waits: Sequence[int]) -> int:
        task = tasks.add_one(rank, COMPUTE, name, piece, key=key + phase)
        tasks.link_all(waits, [task])
        return task

    for index, piece in table.of("tied"):
        first, last = ready[0], ready[-1]
        for rank in (0, ranks - 1):
            before[rank] = [step(rank, piece.name, index, 1, [*first, *last])]
    # Norms first, then their sum over all stages, then the rest.
    pieces = [table.of("end", rank) for rank in range(ranks)]
    for phase in range(max(len(some) for some in pieces)):
        joined = [task for some in before for task in some]
        found = []
        for rank in range(ranks):
            index, piece = pieces[rank][phase]
            waits = joined if piece.axis and ranks > 1 else before[rank]
            found.append([step(rank, piece.name, index, phase + 2, waits)])
        before = found
    if job.sharding in ("zero1", "zero2") and not job.overlap_parameters:
        for rank in range(ranks):
            for bucket in range(len(layout.buckets[rank])):
                for index, piece in table.of("gather", rank, bucket):
                    name = f"bucket {bucket}/{piece.name}"
                    before[rank] = [step(rank, name, index, 9 + bucket, before[rank])]
    return [some[0] for some in before]


def _graph(
    job: Job, table: PieceTable, tasks: Tasks, begins: Sequence[int], ends: Sequence[int]
) -> tuple[ExecutionGraph, np.ndarray]:
    """The graph of the tasks, and the piece of each."""
    columns = tasks.columns()
    count = len(columns.piece)
    _, stride = group_shape(job, "pipeline")
    ranks = tuple(stage * stride for stage in range(len(begins)))
    lane, lanes = _lanes(columns.rank, columns.lane, ranks)
    kinds = [TaskKind.COLLECTIVE if piece.axis else TaskKind.KERNEL for piece in table.pieces]
    for rank in range(len(ranks)):
        for index, _ in table.of("begin", rank):
            kinds[index] = TaskKind.MEMSET
    classes = np.array([piece.task_class for piece in table.pieces], np.int8)
    release = np.full(count, MISSING)
    release[np.bincount(columns.target, minlength=count) == 0] = 0
    order = np.empty(count, np.int64)
    order[np.argsort(columns.key, kind="stable")] = np.arange(count)
    zeros = np.zeros(count, np.int64)
    edges = len(columns.source)
    same = lane[columns.source] == lane[columns.target]
    kind = np.where(same, DependencyKind.STREAM_ORDER, DependencyKind.EVENT_WAIT)
    kind[columns.rank[columns.source] != columns.rank[columns.target]] = DependencyKind.RENDEZVOUS
    graph = ExecutionGraph(
        ranks=ranks,
        names=tuple(tasks.names),
        lanes=lanes,
        name=columns.name,
        lane=lane,
        kind=np.array(kinds, np.int8)[columns.piece],
        task_class=classes[columns.piece],
        trace=columns.rank,
        event=np.full(count, -1, np.int32),
        start_ns=zeros,
        end_ns=zeros,
        duration_ns=zeros,
        release_ns=release,
        order=order,
        source=columns.source,
        target=columns.target,
        lag_ns=np.zeros(edges, np.int64),
        unexplained_ns=np.zeros(edges, np.int64),
        from_start=np.zeros(edges, bool),
        dependency=kind.astype(np.int8),
        step=columns.rank,
        arrival=np.full(count, -1, np.int32),
        sm_share=np.full(count, np.nan, np.float32),
        clocks=(),
        steps=tuple(
            Step("step 0", rank, begin, end, 0, 0)
            for rank, begin, end in zip(ranks, begins, ends, strict=True)
        ),
        notes=(),
    )
    return graph, columns.piece


def _lanes(
    rank: np.ndarray, lane: np.ndarray, ranks: Sequence[int]
) -> tuple[np.ndarray, tuple[GraphLane, ...]]:
    """The lane of each task among those in use."""
    used, index = np.unique(rank * len(LANES) + lane, return_inverse=True)
    lanes = []
    for each in used.tolist():
        mine, stream = divmod(each, len(LANES))
        lanes.append(GraphLane(ranks[mine], LANES[stream], 0, stream))
    return index.reshape(-1).astype(np.int32), tuple(lanes)
