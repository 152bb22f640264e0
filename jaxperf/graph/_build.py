"""From traces to the execution graph of a run."""

import re
from dataclasses import dataclass, replace
from math import nan

import numpy as np

from jaxperf.errors import GraphError
from jaxperf.graph._classes import TaskClass, classify_names
from jaxperf.graph._device import device_work
from jaxperf.graph._host import find_hand_overs, tile_threads, working_in_turn
from jaxperf.graph._host_tasks import host_tasks
from jaxperf.graph._lags import fit_lags
from jaxperf.graph._queue import queue_waits
from jaxperf.graph._ranks import join_ranks
from jaxperf.graph._syncs import blocking_calls
from jaxperf.graph._types import (
    DependencyKind,
    ExecutionGraph,
    GraphLane,
    RankClock,
    Step,
    TaskKind,
)
from jaxperf.graph._waits import StreamTails, StreamWaits, stream_waits, wait_dependencies
from jaxperf.trace import MISSING, Category, Note, Run, Trace

STEP_NAME = re.compile(r"^ProfilerStep")
HOST_NAME = "host"
"""Name of host work outside of every operator and annotation."""


def build_graph(run: Run, *, between_streams: bool = True) -> ExecutionGraph:
    """The execution graph of a run: all its ranks on one clock, joined at their collectives.

    Of one rank alone a collective's duration is taken as measured, its wait for other ranks
    included.

    Args:
        run: the traces.
        between_streams: draw the dependencies between streams, and keep delays that nothing
            explains; without them the graph is that of earlier replayers (dPRO), which is of use
            for comparison only.

    Returns:
        The graph of all ranks.

    Raises:
        GraphError: no trace holds anything that can be replayed.
    """
    parts = [_RankGraph(trace, index, between_streams) for index, trace in enumerate(run.traces)]
    if not any(part.tasks for part in parts):
        raise GraphError(
            "nothing to replay",
            where=", ".join(file for trace in run.traces for file in trace.files),
            got="no operator, call or kernel",
            expected="a profiler trace with CPU or device activity",
        )
    graph = _side_by_side(run, parts)
    if len(parts) == 1:
        return graph
    before = np.cumsum([0, *(part.tasks for part in parts)])[:-1]
    first_work = [int(b) + part.host.tasks for b, part in zip(before, parts, strict=True)]
    return join_ranks(graph, run.traces, [part.work for part in parts], first_work)


class _RankGraph:
    """Tasks and dependencies of one rank, as growing columns."""

    def __init__(self, trace: Trace, index: int, between_streams: bool):
        self.trace = trace
        self.index = index
        self.work = device_work(trace)
        self.tiles = tile_threads(trace)
        self.hand_overs = find_hand_overs(trace, self.tiles)
        threads = working_in_turn(trace, self.tiles, self.hand_overs)
        waits = stream_waits(trace, self.work, threads)
        tails = StreamTails(self.work, waits)
        self.blocking = blocking_calls(trace, self.work, tails)
        awaited, waiting, contradicted = wait_dependencies(self.work, waits)
        if not between_streams:
            awaited = waiting = np.empty(0, np.int64)
        self.lags = fit_lags(
            trace,
            self.work,
            awaited,
            waiting,
            self._blocking_work(),
            by_time=between_streams,
        )
        self.queue = queue_waits(trace, self.work)
        self.host = host_tasks(
            trace, self.tiles, self.hand_overs, self.blocking, self.queue, self.work
        )
        self.tasks = self.host.tasks + self.work.tasks
        self.notes = _notes(self, waits, contradicted)

    def _blocking_work(self) -> np.ndarray:
        """Copies that their own call waits for."""
        waited = (
            self.blocking.first_row[self.blocking.call] == self.work.call[self.blocking.awaited]
        )
        result = np.zeros(self.work.tasks, bool)
        result[self.blocking.awaited[waited]] = True
        return result


def _notes(rank: _RankGraph, waits: StreamWaits, contradicted: int) -> tuple[Note, ...]:
    """What the graph of a rank had to guess."""
    trace, work, lags = rank.trace, rank.work, rank.lags
    where = trace.files[0] if trace.files else None
    orphans = int((work.call < 0).sum())
    said = [
        (
            waits.inferred,
            "waits-inferred",
            f"this profiler wrote no event waits: {waits.inferred} inferred",
        ),
        (
            lags.guessed,
            "waits-inferred-from-times",
            f"{lags.guessed} waits between streams follow from the times alone: work started late, "
            "and just after work on another stream ended",
        ),
        (
            waits.unresolved,
            "waits-unresolved",
            f"{waits.unresolved} event waits could not be understood and were left out",
        ),
        (
            contradicted,
            "waits-contradicted",
            f"{contradicted} event waits contradict the times and were left out",
        ),
        (
            orphans,
            "launch-missing",
            f"{orphans} of {work.tasks} device tasks have no launch in the trace and follow the "
            "order of their stream alone",
        ),
        (
            rank.blocking.inferred,
            "blocking-inferred",
            f"{rank.blocking.inferred} calls were seen to wait for the device without saying so",
        ),
        (
            rank.queue.length,
            "launch-queue-full",
            f"launches were seen to block with {rank.queue.length} pieces of work pending on a "
            "stream: no launch of such a stream runs further ahead",
        ),
        (
            work.clock_shift_ns,
            "device-clock-shifted",
            f"the device's clock was {work.clock_shift_ns / 1e3:.1f} us behind the host's and was "
            "set forward: work seemed to start before its launch",
        ),
        (
            lags.unexplained,
            "starts-unexplained",
            f"{lags.unexplained} device tasks started {lags.unexplained_ns / 1e3:.0f} us in all "
            "later than anything in the trace explains; these delays are kept as measured",
        ),
        (
            lags.overlapping,
            "stream-overlaps",
            f"{lags.overlapping} device tasks started before the one ahead on their stream ended",
        ),
    ]
    return tuple(Note(code, text, where) for count, code, text in said if count)


def _steps(rank: _RankGraph) -> list[Step]:
    """The iterations of a rank, from the annotations of the thread that has most of them."""
    trace, host = rank.trace, rank.host
    match = np.array([bool(STEP_NAME.search(name)) for name in trace.names], bool)
    kinds = [Category.ANNOTATION, Category.CPU_OP, Category.OTHER]
    rows = np.flatnonzero(match[trace.name] & np.isin(trace.category, kinds)) if len(match) else []
    rows = np.array([row for row in rows if not trace.lanes[trace.lane[row]].is_stream], np.int64)
    if not len(rows):
        return []
    lane = np.bincount(trace.lane[rows]).argmax()
    rows = rows[trace.lane[rows] == lane]
    begin = trace.start_ns[rows]
    end = np.append(begin[1:], trace.end_ns[rows[-1]])
    lanes = np.full(len(rows), lane)
    first, last = host.starting_at(lanes, begin), host.ending_at(lanes, end)
    return [
        Step(trace.names[trace.name[row]], trace.rank, int(f), max(int(f), int(e)), int(b), int(x))
        for row, f, e, b, x in zip(rows, first, last, begin, end, strict=True)
    ]


@dataclass(frozen=True, eq=False)
class _Edges:
    source: np.ndarray
    target: np.ndarray
    lag_ns: np.ndarray
    unexplained_ns: np.ndarray
    from_start: np.ndarray
    kind: np.ndarray


def _edges(rank: _RankGraph) -> _Edges:
    """All dependencies of a rank; device work is numbered after its host tasks."""
    host, work, lags = rank.host, rank.work, rank.lags
    shift = host.tasks
    calls = work.call[lags.launch]
    lanes = rank.trace.lane[calls]
    from_start = lags.launch_from_start
    caller = np.where(
        from_start,
        host.starting_at(lanes, rank.trace.start_ns[calls]),
        host.last_of(calls, lanes, rank.trace.end_ns[calls]),
    )
    # Where the clocks disagree a call may return before the end of what it waited for.
    early_ns = np.minimum(0, host.start_ns[host.returning] - work.end_ns[host.awaited])
    full_ns = np.minimum(0, host.start_ns[host.launching] - work.end_ns[host.room])
    none = 0
    groups = [
        (host.source, host.target, none, none, False, host.dependency),
        (
            caller,
            shift + lags.launch,
            lags.launch_lag_ns,
            lags.launch_own_ns,
            from_start,
            DependencyKind.LAUNCH,
        ),
        (
            shift + lags.before,
            shift + lags.after,
            lags.stream_lag_ns,
            lags.stream_own_ns,
            False,
            DependencyKind.STREAM_ORDER,
        ),
        (
            shift + lags.awaited,
            shift + lags.waiting,
            lags.wait_lag_ns,
            lags.wait_own_ns,
            False,
            DependencyKind.EVENT_WAIT,
        ),
        (
            shift + host.awaited,
            host.returning,
            early_ns,
            none,
            False,
            DependencyKind.HOST_SYNC,
        ),
        (
            shift + host.room,
            host.launching,
            full_ns,
            none,
            False,
            DependencyKind.QUEUE_FULL,
        ),
    ]
    sizes = [len(group[0]) for group in groups]

    def column(k: int, dtype: type) -> np.ndarray:
        parts = [np.broadcast_to(g[k], n) for g, n in zip(groups, sizes, strict=True)]
        return np.concatenate(parts).astype(dtype)

    return _Edges(
        column(0, np.int32),
        column(1, np.int32),
        column(2, np.int64),
        column(3, np.int64),
        column(4, bool),
        column(5, np.int8),
    )


def _device_kinds(rank: _RankGraph, classes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Kind and class of the device work, `classes` being those of the trace's names."""
    trace, row = rank.trace, rank.work.row
    category = trace.category[row]
    task_class = np.where(
        trace.collective[row] >= 0, int(TaskClass.COMMUNICATION), classes[trace.name[row]]
    )
    copies = category != Category.KERNEL
    task_class = np.where(copies, int(TaskClass.MEMCPY), task_class)
    kind = np.where(
        task_class == TaskClass.COMMUNICATION, int(TaskKind.COLLECTIVE), int(TaskKind.KERNEL)
    )
    kind = np.where(category == Category.MEMCPY, int(TaskKind.MEMCPY), kind)
    kind = np.where(category == Category.MEMSET, int(TaskKind.MEMSET), kind)
    return kind.astype(np.int8), task_class.astype(np.int8)


def _launch_order(rank: _RankGraph, edges: _Edges) -> np.ndarray:
    """(tasks,) a key by which sources precede targets: host work by time, the rest by launch."""
    host, work = rank.host, rank.work
    launched = np.full(rank.tasks, -1, np.int64)
    launched[: host.tasks] = host.start_ns
    launches = edges.kind == DependencyKind.LAUNCH
    launched[edges.target[launches]] = launched[edges.source[launches]]
    for s in range(work.streams):
        part = slice(host.tasks + int(work.first[s]), host.tasks + int(work.first[s + 1]))
        launched[part] = np.maximum.accumulate(launched[part])
    end = np.concatenate([host.end_ns, work.end_ns])
    start = np.concatenate([host.start_ns, work.start_ns])
    on_device = np.arange(rank.tasks) >= host.tasks
    order = np.empty(rank.tasks, np.int64)
    order[np.lexsort((end, start, on_device, launched))] = np.arange(rank.tasks)
    return order


def _step_of_task(rank: _RankGraph, steps: list[Step]) -> np.ndarray:
    """(tasks,) the step each task belongs to, -1 for none."""
    launch = np.where(rank.work.call >= 0, rank.work.launch_ns, -1)
    moment = np.concatenate([rank.host.start_ns, launch])
    if not steps:
        return np.full(len(moment), -1, np.int32)
    begins = np.array([step.begin_ns for step in steps])
    ends = np.array([step.end_ns for step in steps])
    found = np.searchsorted(begins, moment, side="right") - 1
    return np.where((found >= 0) & (moment < ends[found]), found, -1).astype(np.int32)


def _sm_share(trace: Trace, row: np.ndarray) -> np.ndarray:
    """Share of the SMs that each kernel occupies: blocks go to idle SMs first, one to each."""
    blocks = trace.blocks_per_sm[row]
    known = (trace.category[row] == Category.KERNEL) & (blocks > 0)
    return np.where(known, np.minimum(blocks, 1), np.nan)


def _side_by_side(run: Run, ranks: list[_RankGraph]) -> ExecutionGraph:
    """Put the ranks side by side in one graph."""
    names: dict[str, int] = {HOST_NAME: 0}
    lanes: list[GraphLane] = []
    steps: list[Step] = []
    notes: list[Note] = list(run.notes)
    columns: dict[str, list[np.ndarray]] = {name: [] for name in _COLUMNS}
    tasks = 0
    for rank in ranks:
        trace, host, work = rank.trace, rank.host, rank.work
        table = np.array([names.setdefault(name, len(names)) for name in trace.names], np.int32)
        classes = classify_names(trace.names)
        kind, task_class = _device_kinds(rank, classes)
        edges = _edges(rank)
        host_class = np.full(host.tasks, TaskClass.HOST, np.int8)
        launching = np.isin(host.event, work.call[work.call >= 0]) & (host.event >= 0)
        host_class[launching & (host.kind == TaskKind.HOST_CALL)] = TaskClass.LAUNCH
        event = np.concatenate([host.event, work.row])
        start = np.concatenate([host.start_ns, work.start_ns])
        end = np.concatenate([host.end_ns, work.end_ns])
        used, lane = np.unique(
            np.concatenate([host.lane, work.lanes[work.stream]]), return_inverse=True
        )
        release = np.full(rank.tasks, MISSING, np.int64)
        free = np.ones(rank.tasks, bool)
        free[edges.target] = False
        release[free] = start[free]
        mine = _steps(rank)
        step = _step_of_task(rank, mine)
        for name, values in {
            "name": np.where(event >= 0, table[trace.name[event]], 0),
            "lane": lane + len(lanes),
            "kind": np.concatenate([host.kind, kind]),
            "task_class": np.concatenate([host_class, task_class]),
            "trace": np.full(rank.tasks, rank.index),
            "event": event,
            "start_ns": start,
            "end_ns": end,
            "duration_ns": end - start,
            "release_ns": release,
            "order": tasks + _launch_order(rank, edges),
            "source": tasks + edges.source,
            "target": tasks + edges.target,
            "lag_ns": edges.lag_ns,
            "unexplained_ns": edges.unexplained_ns,
            "from_start": edges.from_start,
            "dependency": edges.kind,
            "step": np.where(step >= 0, step + len(steps), -1),
            "arrival": np.full(rank.tasks, -1),
            "sm_share": np.append(np.full(host.tasks, np.nan), _sm_share(trace, work.row)),
        }.items():
            columns[name].append(values)
        for k in used.tolist():
            known = trace.lanes[k]
            lanes.append(GraphLane(trace.rank, known.name, known.device, known.stream))
        steps += [
            replace(step, begin_task=tasks + step.begin_task, end_task=tasks + step.end_task)
            for step in mine
        ]
        notes += [*trace.notes, *rank.notes]
        tasks += rank.tasks
    return ExecutionGraph(
        ranks=tuple(trace.rank for trace in run.traces),
        names=tuple(names),
        lanes=tuple(lanes),
        steps=tuple(steps),
        clocks=tuple(
            RankClock(trace.rank, 0.0 if len(ranks) == 1 else nan, nan, nan) for trace in run.traces
        ),
        notes=tuple(notes),
        **{name: np.concatenate(columns[name]).astype(dtype) for name, dtype in _COLUMNS.items()},
    )


_COLUMNS: dict[str, type] = {
    "name": np.int32,
    "lane": np.int32,
    "kind": np.int8,
    "task_class": np.int8,
    "trace": np.int32,
    "event": np.int32,
    "start_ns": np.int64,
    "end_ns": np.int64,
    "duration_ns": np.int64,
    "release_ns": np.int64,
    "order": np.int64,
    "source": np.int32,
    "target": np.int32,
    "lag_ns": np.int64,
    "unexplained_ns": np.int64,
    "from_start": np.bool_,
    "dependency": np.int8,
    "step": np.int32,
    "arrival": np.int32,
    "sm_share": np.float32,
}
