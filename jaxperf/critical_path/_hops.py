"""Time on critical paths from the begin of steps to their ends, whatever ranks they run over."""

from dataclasses import dataclass

import numpy as np

from jaxperf.graph import DependencyKind, ExecutionGraph
from jaxperf.replay import Timeline

Ends = list[tuple[int, float, float]]
"""Tasks whose end is to be explained: (task, from when on, weight)."""


@dataclass(frozen=True, slots=True)
class Hop:
    """A piece of the critical path: tasks of one lane behind each other.

    Attributes:
        rank, lane: where.
        name: of the task that takes longest.
        tasks: how many.
        start_us: from the begin of the step.
        own_us: what the tasks and the gaps between them take.
        waited_for: what the first of them waited for, the kind of the dependency; `None` at the
            start of the path.
        lag_us: between that and its start.
    """

    rank: int
    lane: str
    name: str
    tasks: int
    start_us: float
    own_us: float
    waited_for: str | None
    lag_us: float


def _walk(graph: ExecutionGraph, timeline: Timeline, binding: np.ndarray):
    """A function from (task, begin) to what lies between, from last to first.

    Each entry is (task, own time, dependency or -1, lag); they add up to the span, but for what
    lies before a task that waited for its release alone.
    """
    start, end, bound = timeline.start_us.tolist(), timeline.end_us.tolist(), binding.tolist()
    source, from_start = graph.source.tolist(), graph.from_start.tolist()

    def back(task: int, begin_us: float) -> list[tuple[int, float, int, float]]:
        entries, reached = [], end[task]
        while reached > begin_us:
            own = reached - max(start[task], begin_us)
            dependency = bound[task] if start[task] > begin_us else -1
            if dependency < 0:
                entries.append((task, own, -1, 0.0))
                break
            before = source[dependency]
            reached = start[before] if from_start[dependency] else end[before]
            entries.append((task, own, dependency, start[task] - max(reached, begin_us)))
            task = before
        return entries

    return back


def critical_us(
    graph: ExecutionGraph, timeline: Timeline, binding: np.ndarray, ends: Ends
) -> tuple[np.ndarray, np.ndarray]:
    """Time on the paths to some ends, weighted.

    Args:
        graph: the execution graph.
        timeline: start and end of every task, as replayed.
        binding: (tasks,) of `binding_dependencies`, for that timeline.
        ends: what is to be explained.

    Returns:
        (tasks,) and (dependencies,) microseconds: own times of tasks, and lags.

    Example:
        >>> timeline = Timeline(np.array([0.0, 4.0, 15.0]), np.array([6.0, 14.0, 17.0]))
        >>> task_us, lag_us = critical_us(graph, timeline, np.array([-1, 0, 1]), [(2, 5.0, 1.0)])
        >>> task_us.tolist(), lag_us.tolist()
        ([0.0, 9.0, 2.0], [0.0, 1.0])
    """
    back = _walk(graph, timeline, binding)
    task_us, lag_us = np.zeros(graph.tasks), np.zeros(len(graph.source) + 1)
    for end_task, begin_us, weight in ends:
        entries = back(end_task, begin_us)
        task, own, dependency, lag = (np.array(column) for column in zip(*entries, strict=True))
        np.add.at(task_us, task, weight * own)
        np.add.at(lag_us, dependency, weight * lag)
    return task_us, lag_us[:-1]


def hops(
    graph: ExecutionGraph, timeline: Timeline, binding: np.ndarray, end_task: int, begin_us: float
) -> tuple[Hop, ...]:
    """The path to the end of a task, piece by piece.

    Args:
        graph, timeline, binding: see `critical_us`.
        end_task: the task whose end is to be explained.
        begin_us: what lies before is left out.

    Returns:
        Tasks of one lane together, from first to last; their own times and lags add up to the span,
        but for what lies before a task that waited for its release alone.

    Example:
        >>> timeline = Timeline(np.array([0.0, 4.0, 15.0]), np.array([6.0, 14.0, 17.0]))
        >>> from dataclasses import replace
        >>> one_lane = replace(graph, lane=np.zeros(3, np.int32))
        >>> found = hops(one_lane, timeline, np.array([-1, 0, 1]), end_task=2, begin_us=0.0)
        >>> [(hop.tasks, hop.own_us, hop.waited_for) for hop in found]
        [(2, 13.0, 'launch')]
    """
    entries = _walk(graph, timeline, binding)(end_task, begin_us)[::-1]
    hops: list[Hop] = []
    piece: list[tuple[int, float, int, float]] = []
    for i, entry in enumerate(entries):
        piece.append(entry)
        if i + 1 == len(entries) or graph.lane[entries[i + 1][0]] != graph.lane[entry[0]]:
            hops.append(_hop(graph, timeline, piece, begin_us))
            piece = []
    return tuple(hops)


def _hop(graph: ExecutionGraph, timeline: Timeline, piece: list, begin_us: float) -> Hop:
    first, _, dependency, lag = piece[0]
    longest = max(piece, key=lambda entry: entry[1])[0]
    lane = graph.lanes[graph.lane[first]]
    return Hop(
        lane.rank,
        lane.name,
        graph.names[graph.name[longest]],
        len(piece),
        max(float(timeline.start_us[first]) - begin_us, 0.0),
        sum(own for _, own, _, _ in piece) + sum(lag for _, _, _, lag in piece[1:]),
        DependencyKind(graph.dependency[dependency]).name.lower() if dependency >= 0 else None,
        lag,
    )
