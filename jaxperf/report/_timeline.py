"""What both pictures of a replay need: whole nanoseconds, waits, and what caused each start."""

from dataclasses import dataclass

import numpy as np

from jaxperf.graph import DependencyKind, ExecutionGraph, TaskKind
from jaxperf.replay import Replay
from jaxperf.trace import MISSING

# Dependencies on a task's own lane, or on the call that launched it: until these are met the lane
# is idle. Every other kind is a wait for somebody else.
_OWN = (
    DependencyKind.THREAD_ORDER,
    DependencyKind.HAND_OVER,
    DependencyKind.LAUNCH,
    DependencyKind.STREAM_ORDER,
)
_NEVER = np.iinfo(np.int64).min


@dataclass(frozen=True, eq=False)
class Waits:
    """Spans in which a lane was ready to go on, but waited for another task.

    Attributes:
        task: (k,) int32, the task that could not start or end.
        begin_ns, end_ns: (k,) int64.
        cause: (k,) int32, the task that was waited for; -1 where it is not known.
    """

    task: np.ndarray
    begin_ns: np.ndarray
    end_ns: np.ndarray
    cause: np.ndarray


@dataclass(frozen=True, eq=False)
class Spans:
    """Start and end of every task in whole nanoseconds from the begin of the window, and waits.

    The return of a blocking call begins no earlier than the call's own work ends.

    Attributes:
        start_ns, end_ns: (n,) int64.
        waits: in the order of the lane and time.
    """

    start_ns: np.ndarray
    end_ns: np.ndarray
    waits: Waits


def timeline_spans(replay: Replay) -> tuple[Spans, Spans]:
    """The measured and the replayed timeline on one clock that begins at 0.

    Args:
        replay: the result of a replay.

    Returns:
        Spans as measured, and spans as replayed.
    """
    graph = replay.graph
    times = [
        _whole_ns(time_us)
        for line in (replay.measured, replay.replayed)
        for time_us in (line.start_us, line.end_us)
    ]
    origin = min((int(time.min()) for time in times if time.size), default=0)
    m_start, m_end, r_start, r_end = (time - origin for time in times)
    return (
        _spans(graph, m_start, m_end, origin),
        _spans(graph, r_start, r_end, origin),
    )


def lane_order(graph: ExecutionGraph) -> np.ndarray:
    """(lanes,) the lanes as they are shown: by rank, threads before streams, then as they stand.

    Args:
        graph: the execution graph.

    Returns:
        Indices into `graph.lanes`.
    """
    lanes = graph.lanes
    keys = [(x.rank, x.is_stream, x.device, x.stream, i) for i, x in enumerate(lanes)]
    return np.array([key[-1] for key in sorted(keys)], np.int64)


def binding_source(replay: Replay) -> np.ndarray:
    """(n,) int32, the task whose end or start bound each task's start; -1 where none did.

    Args:
        replay: the result of a replay.

    Returns:
        Indices of tasks.
    """
    source = np.full(replay.graph.tasks, -1, np.int32)
    bound = replay.binding >= 0
    source[bound] = replay.graph.source[replay.binding[bound]]
    return source


def busy_until(
    lane: np.ndarray, start_ns: np.ndarray, end_ns: np.ndarray, order: np.ndarray
) -> np.ndarray:
    """(n,) int64, the latest end of all spans before each one on its lane.

    Args:
        lane: (n,) the lane of each span.
        start_ns, end_ns: (n,) int64.
        order: (n,) what decides between spans that start together.

    Returns:
        The end in ns; the lowest int64 for the first span of a lane.
    """
    if not len(lane):
        return np.empty(0, np.int64)
    by_time = np.lexsort((order, start_ns, lane))
    # One running maximum serves all lanes, when each lane lies above the one before it.
    low = int(end_ns.min())
    floor = lane[by_time].astype(np.int64) * (int(end_ns.max()) - low + 1)
    latest = np.maximum.accumulate(end_ns[by_time] - low + floor) - floor + low
    is_first = np.append(True, np.diff(lane[by_time]) != 0)
    until = np.empty_like(latest)
    until[by_time] = np.where(is_first, _NEVER, np.append(_NEVER, latest[:-1]))
    return until


def _whole_ns(time_us: np.ndarray) -> np.ndarray:
    return np.rint(np.asarray(time_us) * 1e3).astype(np.int64)


def _spans(
    graph: ExecutionGraph, start_ns: np.ndarray, end_ns: np.ndarray, origin_ns: int
) -> Spans:
    """A timeline as it is shown, with its waits.

    The graph lets the return of a blocking call run beside the call, from the end of the work that
    the call waits for. What is shown of a return is what follows the call's own work.
    """
    source, target = graph.source, graph.target
    met_ns = np.where(graph.from_start, start_ns[source], end_ns[source]) + graph.lag_ns
    own = np.isin(graph.dependency, _OWN) | (graph.lane[source] == graph.lane[target])
    returning = graph.kind[source] == TaskKind.HOST_RETURN
    ready_ns = np.where(graph.release_ns == MISSING, _NEVER, graph.release_ns - origin_ns)
    first = own & ~returning
    np.maximum.at(ready_ns, target[first], met_ns[first])

    returns = source[returning]
    ready_ns[returns] = np.maximum(ready_ns[returns], ready_ns[target[returning]])
    start_ns[returns] = np.maximum(start_ns[returns], ready_ns[returns])
    end_ns[returns] = np.maximum(end_ns[returns], start_ns[returns])
    np.maximum.at(ready_ns, target[returning], met_ns[returning])

    others = np.flatnonzero(~own)
    last = others[np.lexsort((met_ns[others], target[others]))]
    last = last[np.append(target[last][1:] != target[last][:-1], True)[: len(last)]]
    waits = _waits(graph, start_ns, end_ns, ready_ns, last, met_ns[last])
    return Spans(start_ns, end_ns, waits)


def _waits(
    graph: ExecutionGraph,
    start_ns: np.ndarray,
    end_ns: np.ndarray,
    ready_ns: np.ndarray,
    last: np.ndarray,
    met_ns: np.ndarray,
) -> Waits:
    """Waits before a task, and waits inside a measured span that its own work does not fill.

    `last` is, for each task that waits for others, the dependency that was met last, at `met_ns`;
    `ready_ns` is when the task could have started without others.
    """
    cause = np.full(graph.tasks, -1, np.int32)
    task = graph.target[last]
    cause[task] = graph.source[last]
    begin = np.maximum(ready_ns, busy_until(graph.lane, start_ns, end_ns, graph.order))[task]
    end = np.minimum(met_ns, start_ns[task])
    waited = (end > begin) & (begin > _NEVER)
    before = Waits(task[waited], begin[waited], end[waited], cause[task[waited]])

    # A collective waits first and then transfers; a blocking call works first and then waits.
    inside_ns = end_ns - start_ns - graph.duration_ns
    first = graph.kind == TaskKind.COLLECTIVE
    waiting = (inside_ns > 1) & (first | (graph.kind == TaskKind.HOST_CALL))  # 1 ns is rounding
    task = np.flatnonzero(waiting).astype(np.int32)
    begin = np.where(first[task], start_ns[task], start_ns[task] + graph.duration_ns[task])
    inside = Waits(task, begin, begin + inside_ns[task], cause[task])
    return _sorted(graph, before, inside)


def _sorted(graph: ExecutionGraph, *parts: Waits) -> Waits:
    task = np.concatenate([part.task for part in parts])
    begin = np.concatenate([part.begin_ns for part in parts])
    order = np.lexsort((begin, graph.lane[task]))
    end = np.concatenate([part.end_ns for part in parts])
    cause = np.concatenate([part.cause for part in parts])
    return Waits(task[order], begin[order], end[order], cause[order])
