"""A run with another launch queue: how far the host may run ahead of each stream."""

from dataclasses import replace

import numpy as np

from jaxperf.graph._types import DependencyKind, ExecutionGraph
from jaxperf.trace import Note


def with_launch_queue(graph: ExecutionGraph, length: int) -> tuple[ExecutionGraph, np.ndarray]:
    """The graph as if each stream took so many pieces of work in advance, and no more.

    A launch waits until all but `length - 1` of what was launched to its stream before have ended.

    Args:
        graph: the execution graph.
        length: pieces of work, 1 or more.

    Returns:
        The graph; and (dependencies,) int64, which dependency each of its was, -1 for a new one.

    Example:
        >>> changed, kept = with_launch_queue(graph, 16)
        >>> kept
        array([0, 1])
    """
    call, room = _waits(graph, length)
    kept = np.flatnonzero(graph.dependency != DependencyKind.QUEUE_FULL)
    new = {
        "source": room,
        "target": call,
        "lag_ns": np.zeros(len(call), np.int64),
        "unexplained_ns": np.zeros(len(call), np.int64),
        "from_start": np.zeros(len(call), bool),
        "dependency": np.full(len(call), DependencyKind.QUEUE_FULL),
    }
    columns = {
        name: np.concatenate([getattr(graph, name)[kept], added]).astype(getattr(graph, name).dtype)
        for name, added in new.items()
    }
    return replace(graph, **columns), np.concatenate([kept, np.full(len(call), -1)])


def bounded_by_queue(graph: ExecutionGraph, length: int) -> tuple[ExecutionGraph, tuple[Note, ...]]:
    """The graph with a launch queue where none was seen to fill.

    In a run whose queue never filled nothing stops the host from running ahead. Under changes that
    slow the device the queue would.

    Args:
        graph: the execution graph.
        length: of the queue; longer where the run was further ahead without blocking.

    Returns:
        The graph, which replays as it did before; and a note where it was changed.
    """
    if (graph.dependency == DependencyKind.QUEUE_FULL).any():
        return graph, ()
    length = max(length, _most_pending(graph) + 1)
    bounded, kept = with_launch_queue(graph, length)
    if (kept >= 0).all():
        return graph, ()
    text = f"no launch was seen to block: a stream is taken to queue {length} launches"
    return bounded, (Note("launch-queue-assumed", text),)


def _most_pending(graph: ExecutionGraph) -> int:
    """The most work of one stream that was launched and had not ended when a launch was made."""
    call, work = _launches(graph)
    lane, most = graph.lane[work], 0
    for stream in np.unique(lane).tolist():
        mine = np.flatnonzero(lane == stream)
        ended = np.searchsorted(np.sort(graph.end_ns[work[mine]]), graph.start_ns[call[mine]])
        most = max(most, int((np.arange(len(mine)) - ended).max()))
    return most


def _waits(graph: ExecutionGraph, length: int) -> tuple[np.ndarray, np.ndarray]:
    """Launch calls, and the work whose end makes room for each."""
    call, work = _launches(graph)
    lane = graph.lane[work]
    calls, rooms = [], []
    for stream in np.unique(lane).tolist():
        mine = np.flatnonzero(lane == stream)
        calls.append(call[mine[length:]])
        rooms.append(work[mine[: max(len(mine) - length, 0)]])
    none = np.empty(0, np.int64)
    return np.concatenate([none, *calls]), np.concatenate([none, *rooms])


def _launches(graph: ExecutionGraph) -> tuple[np.ndarray, np.ndarray]:
    """Launch calls and their work, in order of launch."""
    launches = np.flatnonzero(graph.dependency == DependencyKind.LAUNCH)
    launches = launches[np.argsort(graph.order[graph.target[launches]], kind="stable")]
    call, work = graph.source[launches], graph.target[launches]
    # Of joined ranks the launch leads to the arrival; the place is taken until the transfer ends.
    transfer = np.arange(graph.tasks)
    waits = np.flatnonzero(graph.arrival >= 0)
    transfer[graph.arrival[waits]] = waits
    return call, transfer[work]
