"""A run with another launch queue: how far the host may run ahead of each stream."""

from dataclasses import replace

import numpy as np

from jaxperf.graph._types import DependencyKind, ExecutionGraph


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


def _waits(graph: ExecutionGraph, length: int) -> tuple[np.ndarray, np.ndarray]:
    """Launch calls, and the work whose end makes room for each."""
    launches = np.flatnonzero(graph.dependency == DependencyKind.LAUNCH)
    launches = launches[np.argsort(graph.order[graph.target[launches]], kind="stable")]
    call, work = graph.source[launches], graph.target[launches]
    # Of joined ranks the launch leads to the arrival; the place is taken until the transfer ends.
    transfer = np.arange(graph.tasks)
    waits = np.flatnonzero(graph.arrival >= 0)
    transfer[graph.arrival[waits]] = waits
    work = transfer[work]
    lane = graph.lane[work]
    calls, rooms = [], []
    for stream in np.unique(lane).tolist():
        mine = np.flatnonzero(lane == stream)
        calls.append(call[mine[length:]])
        rooms.append(work[mine[: len(mine) - length]])
    none = np.empty(0, np.int64)
    return np.concatenate([none, *calls]), np.concatenate([none, *rooms])
