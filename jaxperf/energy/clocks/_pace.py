"""A run whose hosts keep the lead over their devices that they had, whatever the devices' clock."""

from dataclasses import replace

import numpy as np

from jaxperf.graph import DependencyKind, ExecutionGraph, TaskKind
from jaxperf.replay import Timeline

_NS = 1e3


def paced_by_devices(graph: ExecutionGraph, timeline: Timeline) -> tuple[ExecutionGraph, int]:
    """The graph with the end of each iteration of a host bound to the end of its device work.

    A few traced iterations do not fill the launch queue, so nothing in them stops a host from
    running further ahead of a slower device; a run of thousands does. There the lead stays as it
    was, and the step is that of whoever is slower. Where a device waits between two iterations for
    the next work, its own may end so much later and nothing follows: the lead is the one over that
    next work. Behind the last iteration the shortest such wait of its rank is taken. Without a
    change the graph replays as before.

    Args:
        graph: the execution graph.
        timeline: its replay.

    Returns:
        The graph, and how many iterations of hosts end before their work on the device.

    Example:
        >>> timeline = Timeline(np.array([0.0, 4.0, 15.0]), np.array([6.0, 14.0, 17.0]))
        >>> paced_by_devices(graph, timeline)[1]  # the iteration of the example ends on the device
        0
    """
    last, begin_us = _work_of_steps(graph, timeline)
    idle_us = _idle_behind_us(graph, timeline.end_us[last], begin_us)
    end = np.array([step.end_task for step in graph.steps], int)
    bound = (last >= 0) & (graph.kind[end] < TaskKind.KERNEL)
    if not bound.any():
        return graph, 0
    source, target = last[bound], end[bound]
    lead_us = timeline.start_us[target] - timeline.end_us[source]
    new = {
        "source": source,
        "target": target,
        # A host that ends behind the device's next work may, at most, be caught up with.
        "lag_ns": np.floor(np.minimum(lead_us - idle_us[bound], 0.0) * _NS) - 1,
        "unexplained_ns": np.zeros(len(source)),
        "from_start": np.zeros(len(source)),
        "dependency": np.full(len(source), DependencyKind.QUEUE_FULL),
    }
    columns = {
        name: np.concatenate([getattr(graph, name), added.astype(getattr(graph, name).dtype)])
        for name, added in new.items()
    }
    return replace(graph, **columns), int((lead_us < 0).sum())


def _work_of_steps(graph: ExecutionGraph, timeline: Timeline) -> tuple[np.ndarray, np.ndarray]:
    """(steps,) each one's last task on a device, -1 of none; and when its first begins."""
    last, begin_us = np.full(len(graph.steps), -1), np.full(len(graph.steps), np.inf)
    on_device = np.flatnonzero((graph.kind >= TaskKind.KERNEL) & (graph.step >= 0))
    by_end = on_device[np.argsort(timeline.end_us[on_device], kind="stable")]
    last[graph.step[by_end]] = by_end
    np.minimum.at(begin_us, graph.step[on_device], timeline.start_us[on_device])
    return last, begin_us


def _idle_behind_us(graph: ExecutionGraph, end_us: np.ndarray, begin_us: np.ndarray) -> np.ndarray:
    """(steps,) how long the device waits between each and the next of its rank; 0 of no next."""
    idle_us = np.zeros(len(graph.steps))
    rank = np.array([step.rank for step in graph.steps])
    for each in np.unique(rank):
        steps = np.flatnonzero((rank == each) & np.isfinite(begin_us))
        steps = steps[np.argsort(begin_us[steps], kind="stable")]
        between_us = np.maximum(begin_us[steps[1:]] - end_us[steps[:-1]], 0.0)
        if len(between_us):
            idle_us[steps] = np.append(between_us, between_us.min())
    return idle_us
