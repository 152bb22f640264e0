"""The execution graph of one rank, from its trace."""

import re
from dataclasses import dataclass
from math import nan

import numpy as np

from jaxperf.graph._classes import (
    KERNEL_CLASSES,
    KernelClasses,
    TaskClass,
    classify_names,
    unclassified,
)
from jaxperf.graph._device import DeviceWork, device_work, names_match
from jaxperf.graph._host import find_hand_overs, tile_threads, working_in_turn
from jaxperf.graph._host_tasks import HostTasks, host_tasks
from jaxperf.graph._lags import DeviceDependencies, fit_lags
from jaxperf.graph._queue import QueueWaits, queue_waits
from jaxperf.graph._syncs import BlockingCalls, blocking_calls
from jaxperf.graph._types import (
    DependencyKind,
    ExecutionGraph,
    GraphLane,
    RankClock,
    Step,
    TaskKind,
)
from jaxperf.graph._waits import StreamTails, StreamWaits, stream_waits, wait_dependencies
from jaxperf.trace import MISSING, Category, Note, Trace

STEP_NAME = re.compile(r"^ProfilerStep")
HOST_NAME = "host"
"""Name of host work outside of every operator and annotation."""


@dataclass(frozen=True, eq=False)
class RankGraph:
    """One rank alone.

    Attributes:
        graph: its execution graph, on a clock that starts at the trace's origin. Host tasks come
            first, then device work in the order of `work`.
        work: its device work.
    """

    graph: ExecutionGraph
    work: DeviceWork

    @property
    def first_work(self) -> int:
        """The task of the first device work."""
        return self.graph.tasks - self.work.tasks


@dataclass(frozen=True, eq=False)
class _Parts:
    """What was found in the trace of one rank."""

    trace: Trace
    work: DeviceWork
    host: HostTasks
    lags: DeviceDependencies
    waits: StreamWaits
    contradicted: int
    blocking: BlockingCalls
    queue: QueueWaits

    @property
    def tasks(self) -> int:
        return self.host.tasks + self.work.tasks


def rank_graph(
    trace: Trace, *, between_streams: bool = True, classes: KernelClasses = KERNEL_CLASSES
) -> RankGraph:
    """The execution graph of one rank.

    Args:
        trace: its trace.
        between_streams, classes: see `build_graph`.

    Returns:
        The graph, which is empty where the trace holds neither CPU nor device activity.
    """
    parts = _parts(trace, between_streams, classes)
    host, work = parts.host, parts.work
    edges, steps = _edges(parts), _steps(parts)
    kind, task_class = _kinds(parts, classes)
    event = np.concatenate([host.event, work.row])
    start = np.concatenate([host.start_ns, work.start_ns])
    end = np.concatenate([host.end_ns, work.end_ns])
    lanes = np.concatenate([host.lane, work.lanes[work.stream]])
    used, lane = np.unique(lanes, return_inverse=True)
    bound = np.zeros(parts.tasks, bool)
    bound[edges.target] = True
    known = [trace.lanes[k] for k in used.tolist()]
    graph = ExecutionGraph(
        ranks=(trace.rank,),
        names=(HOST_NAME, *trace.names),
        lanes=tuple(GraphLane(trace.rank, x.name, x.device, x.stream) for x in known),
        name=np.where(event >= 0, trace.name[event] + 1, 0).astype(np.int32),
        lane=lane.astype(np.int32),
        kind=kind,
        task_class=task_class,
        trace=np.zeros(parts.tasks, np.int32),
        event=event.astype(np.int32),
        start_ns=start,
        end_ns=end,
        duration_ns=end - start,
        release_ns=np.where(bound, MISSING, start),
        order=_launch_order(parts, edges),
        source=edges.source,
        target=edges.target,
        lag_ns=edges.lag_ns,
        unexplained_ns=edges.unexplained_ns,
        from_start=edges.from_start,
        dependency=edges.kind,
        step=_step_of_task(parts, steps),
        arrival=np.full(parts.tasks, -1, np.int32),
        sm_share=np.append(np.full(host.tasks, np.nan), _sm_share(trace, work.row)).astype(
            np.float32
        ),
        clocks=(RankClock(trace.rank, 0.0, nan, nan),),
        steps=tuple(steps),
        notes=(
            *trace.notes,
            *_notes(parts),
            *unclassified(trace, work.row, task_class[host.tasks :]),
        ),
    )
    return RankGraph(graph, work)


def _parts(trace: Trace, between_streams: bool, classes: KernelClasses) -> _Parts:
    work = device_work(trace)
    tiles = tile_threads(trace)
    hand_overs = find_hand_overs(trace, tiles)
    waits = stream_waits(trace, work, working_in_turn(trace, tiles, hand_overs), classes)
    tails = StreamTails(work, waits)
    blocking = blocking_calls(trace, work, tails)
    awaited, waiting, contradicted = wait_dependencies(work, waits, tails)
    if not between_streams:
        awaited = waiting = np.empty(0, np.int64)
    returns_when_done = np.zeros(work.tasks, bool)
    own = blocking.first_row[blocking.call] == work.call[blocking.awaited]
    returns_when_done[blocking.awaited[own]] = True
    lags = fit_lags(trace, work, awaited, waiting, returns_when_done, by_time=between_streams)
    queue = queue_waits(trace, work)
    host = host_tasks(trace, tiles, hand_overs, blocking, queue, work)
    return _Parts(trace, work, host, lags, waits, contradicted, blocking, queue)


@dataclass(frozen=True, eq=False)
class _Edges:
    source: np.ndarray
    target: np.ndarray
    lag_ns: np.ndarray
    unexplained_ns: np.ndarray
    from_start: np.ndarray
    kind: np.ndarray


def _edges(parts: _Parts) -> _Edges:
    """All dependencies of a rank; device work is numbered after its host tasks."""
    host, work, lags = parts.host, parts.work, parts.lags
    shift = host.tasks
    calls = work.call[lags.launch]
    lanes = parts.trace.lane[calls]
    from_start = lags.launch_from_start
    caller = np.where(
        from_start,
        host.starting_at(lanes, parts.trace.start_ns[calls]),
        host.last_of(calls, lanes, parts.trace.end_ns[calls]),
    )
    # Work that follows the end of its call closely may start before it, but not before the call
    # itself, however quick the host; jitter of the clocks apart.
    hasty = np.flatnonzero(~from_start & (lags.launch_lag_ns < 0))
    begin_ns = parts.trace.start_ns[calls[hasty]]
    hasty_ns = np.minimum(0, work.start_ns[lags.launch[hasty]] - begin_ns)
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
            host.starting_at(lanes[hasty], begin_ns),
            shift + lags.launch[hasty],
            hasty_ns,
            none,
            True,
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
        pieces = [np.broadcast_to(g[k], n) for g, n in zip(groups, sizes, strict=True)]
        return np.concatenate(pieces).astype(dtype)

    return _Edges(
        column(0, np.int32),
        column(1, np.int32),
        column(2, np.int64),
        column(3, np.int64),
        column(4, bool),
        column(5, np.int8),
    )


def _kinds(parts: _Parts, classes: KernelClasses) -> tuple[np.ndarray, np.ndarray]:
    """(tasks,) kind and class of each task."""
    trace, host, row = parts.trace, parts.host, parts.work.row
    host_class = np.full(host.tasks, TaskClass.HOST)
    launches = np.isin(host.event, parts.work.call) & (host.event >= 0)
    host_class[launches & (host.kind == TaskKind.HOST_CALL)] = TaskClass.LAUNCH

    category = trace.category[row]
    task_class = classify_names(trace.names, classes)[trace.name[row]].astype(np.int64)
    task_class[trace.collective[row] >= 0] = TaskClass.COMMUNICATION
    task_class[category != Category.KERNEL] = TaskClass.MEMCPY
    kind = np.where(task_class == TaskClass.COMMUNICATION, TaskKind.COLLECTIVE, TaskKind.KERNEL)
    kind[category == Category.MEMCPY] = TaskKind.MEMCPY
    kind[category == Category.MEMSET] = TaskKind.MEMSET
    return (
        np.concatenate([host.kind, kind]).astype(np.int8),
        np.concatenate([host_class, task_class]).astype(np.int8),
    )


def _launch_order(parts: _Parts, edges: _Edges) -> np.ndarray:
    """(tasks,) a key by which sources precede targets: host work by time, the rest by launch."""
    host, work = parts.host, parts.work
    launched = np.full(parts.tasks, -1, np.int64)
    launched[: host.tasks] = host.start_ns
    launches = edges.kind == DependencyKind.LAUNCH
    np.maximum.at(launched, edges.target[launches], launched[edges.source[launches]])
    for s in range(work.streams):
        mine = slice(host.tasks + int(work.first[s]), host.tasks + int(work.first[s + 1]))
        launched[mine] = np.maximum.accumulate(launched[mine])
    end = np.concatenate([host.end_ns, work.end_ns])
    start = np.concatenate([host.start_ns, work.start_ns])
    on_device = np.arange(parts.tasks) >= host.tasks
    order = np.empty(parts.tasks, np.int64)
    order[np.lexsort((end, start, on_device, launched))] = np.arange(parts.tasks)
    return order


def _steps(parts: _Parts) -> list[Step]:
    """The iterations of a rank, from the annotations of the thread that has most of them."""
    trace, host = parts.trace, parts.host
    match = names_match(trace.names, STEP_NAME)
    kinds = [Category.ANNOTATION, Category.CPU_OP, Category.OTHER]
    rows = np.flatnonzero(match[trace.name] & np.isin(trace.category, kinds))
    rows = np.array([row for row in rows if not trace.lanes[trace.lane[row]].is_stream], np.int64)
    if not len(rows):
        return []
    lane = np.bincount(trace.lane[rows]).argmax()
    if not (host.lane == lane).any():
        return []  # nothing happens on their thread
    rows = rows[trace.lane[rows] == lane]
    begin = trace.start_ns[rows]
    end = np.append(begin[1:], trace.end_ns[rows[-1]])
    lanes = np.full(len(rows), lane)
    first, last = host.starting_at(lanes, begin), host.ending_at(lanes, end)
    return [
        Step(trace.names[trace.name[row]], trace.rank, int(f), max(int(f), int(e)), int(b), int(x))
        for row, f, e, b, x in zip(rows, first, last, begin, end, strict=True)
    ]


def _step_of_task(parts: _Parts, steps: list[Step]) -> np.ndarray:
    """(tasks,) the step each task belongs to, -1 for none."""
    launch = np.where(parts.work.call >= 0, parts.work.launch_ns, -1)
    moment = np.concatenate([parts.host.start_ns, launch])
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


def _notes(parts: _Parts) -> tuple[Note, ...]:
    """What the graph of a rank had to guess."""
    trace, work, lags, waits = parts.trace, parts.work, parts.lags, parts.waits
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
            parts.contradicted,
            "waits-contradicted",
            f"{parts.contradicted} event waits contradict the times and were left out",
        ),
        (
            orphans,
            "launch-missing",
            f"{orphans} of {work.tasks} device tasks have no launch in the trace and follow the "
            "order of their stream alone",
        ),
        (
            parts.blocking.inferred,
            "blocking-inferred",
            f"{parts.blocking.inferred} calls were seen to wait for the device without saying so",
        ),
        (
            parts.queue.length,
            "launch-queue-full",
            f"launches were seen to block with {parts.queue.length} pieces of work pending on a "
            "stream: no launch of such a stream runs further ahead",
        ),
        (
            work.clock_shift_ns,
            "device-clock-shifted",
            f"the device's clock was {abs(work.clock_shift_ns) / 1e3:.1f} us "
            + (
                "behind the host's and was set forward: work seemed to start before its launch"
                if work.clock_shift_ns > 0
                else "ahead of the host's and was set back: calls seemed to return before the end "
                "of what they waited for"
            ),
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
