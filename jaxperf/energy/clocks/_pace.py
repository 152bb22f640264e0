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
    was, and the step is that of whoever is slower. Without a change the graph replays as before.

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
    last = _last_of_steps(graph, timeline)
    edges = [
        (source, step.end_task)
        for source, step in zip(last.tolist(), graph.steps, strict=True)
        if source >= 0 and graph.kind[step.end_task] < TaskKind.KERNEL
    ]
    if not edges:
        return graph, 0
    source, target = np.array(edges).T
    lead_us = timeline.start_us[target] - timeline.end_us[source]
    new = {
        "source": source,
        "target": target,
        # A host that ends behind its device has room: it may, at most, be caught up with.
        "lag_ns": np.floor(np.minimum(lead_us, 0.0) * _NS) - 1,
        "unexplained_ns": np.zeros(len(source)),
        "from_start": np.zeros(len(source)),
        "dependency": np.full(len(source), DependencyKind.QUEUE_FULL),
    }
    columns = {
        name: np.concatenate([getattr(graph, name), added.astype(getattr(graph, name).dtype)])
        for name, added in new.items()
    }
    return replace(graph, **columns), int((lead_us < 0).sum())


def _last_of_steps(graph: ExecutionGraph, timeline: Timeline) -> np.ndarray:
    """(steps,) the task on a device that ends last of each iteration; -1 where it has none."""
    last = np.full(len(graph.steps), -1)
    on_device = np.flatnonzero((graph.kind >= TaskKind.KERNEL) & (graph.step >= 0))
    by_end = on_device[np.argsort(timeline.end_us[on_device], kind="stable")]
    last[graph.step[by_end]] = by_end
    return last
