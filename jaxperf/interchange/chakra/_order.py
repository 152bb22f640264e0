"""An order in which every node comes after what it waits for."""

import heapq
from collections.abc import Callable

import numpy as np

from jaxperf.errors import TraceError


def order_nodes(
    nodes: int,
    source: np.ndarray,
    target: np.ndarray,
    priority: np.ndarray,
    where: str,
    name: Callable[[int], str],
) -> np.ndarray:
    """Nodes in an order that dependencies allow, the lowest priority first among those ready.

    Args:
        nodes: how many there are.
        source, target: (m,) dependencies.
        priority: (nodes,) numbers.
        where: what to name in an error.
        name: says which node it is, in an error.

    Returns:
        (nodes,) their indices in order.

    Raises:
        TraceError: dependencies form a cycle.

    Example:
        >>> source, target = np.array([2]), np.array([0])
        >>> order_nodes(3, source, target, np.arange(3), "a.et", str).tolist()
        [1, 2, 0]
    """
    place = np.empty(nodes, np.int64)
    place[np.argsort(priority, kind="stable")] = np.arange(nodes)
    by_place = np.argsort(place).tolist()
    by_source = np.argsort(source, kind="stable")
    first = np.searchsorted(source[by_source], np.arange(nodes + 1)).tolist()
    follower = target[by_source].tolist()
    waiting = np.bincount(target, minlength=nodes).tolist()
    rank = place.tolist()
    ready = [rank[node] for node in range(nodes) if not waiting[node]]
    heapq.heapify(ready)
    order = []
    while ready:
        node = by_place[heapq.heappop(ready)]
        order.append(node)
        for other in follower[first[node] : first[node + 1]]:
            waiting[other] -= 1
            if not waiting[other]:
                heapq.heappush(ready, rank[other])
    if len(order) < nodes:
        raise _cycle(source, target, np.array(waiting) > 0, where, name)
    return np.array(order, np.int64)


def _cycle(
    source: np.ndarray, target: np.ndarray, stuck: np.ndarray, where: str, name: Callable
) -> TraceError:
    """The error that names one cycle: of what never became ready, each waits for another such."""
    inside = stuck[source] & stuck[target]
    waits_for = dict(zip(target[inside].tolist(), source[inside].tolist(), strict=True))
    node = next(iter(waits_for))
    seen: dict[int, int] = {}
    path = []
    while node not in seen:
        seen[node] = len(path)
        path.append(node)
        node = waits_for[node]
    ring = path[seen[node] :]
    shown = [name(each) for each in ring[:4]] + (["..."] if ring[4:] else [name(ring[0])])
    return TraceError(
        "dependencies form a cycle",
        where=where,
        got=" waits for ".join(shown),
        expected="nodes that can be put in order",
        remedy="the tool that wrote the file has to be mended",
    )
