"""Iterations of a recorded run as host and device both see them.

A host may be through with an iteration long before the device: what delays the device then shows in
the annotations of a later iteration, which a recording of few of them does not have. Here an
iteration lasts from when host and device are through with the one before until they are through
with it.
"""

import numpy as np

from jaxperf.graph import ExecutionGraph, TaskKind
from jaxperf.replay import Breakdown, Timeline, device_activity


def counted_steps(graph: ExecutionGraph) -> np.ndarray:
    """(iterations,) bool, those of each rank that count.

    The first warms up and has none before it, and the second of at least three begins when the
    first has ended. One alone counts, from its own begin.
    """
    place = np.zeros(len(graph.steps), np.int64)
    for index in range(1, len(place)):
        follows = graph.steps[index].rank == graph.steps[index - 1].rank
        place[index] = place[index - 1] + 1 if follows else 0
    most = int(place.max(initial=0))
    return place >= min(most, 2)


def step_spans_us(graph: ExecutionGraph, timeline: Timeline) -> list[tuple[int, float, float]]:
    """Rank, begin and end of each iteration that counts; of a run without any those of its ranks.

    Args:
        graph: the execution graph.
        timeline: when its tasks start and end.

    Returns:
        The spans, rank after rank.
    """
    if not graph.steps:
        spans = []
        for index, rank in enumerate(graph.ranks):
            mine = graph.trace == index
            begin, end = timeline.start_us[mine].min(), timeline.end_us[mine].max()
            spans.append((rank, float(begin), float(end)))
        return spans
    through = np.array([timeline.end_us[step.end_task] for step in graph.steps])
    launched = np.flatnonzero((graph.kind >= TaskKind.KERNEL) & (graph.step >= 0))
    np.maximum.at(through, graph.step[launched], timeline.end_us[launched])
    spans = []
    for index in np.flatnonzero(counted_steps(graph)).tolist():
        step = graph.steps[index]
        first = index == 0 or graph.steps[index - 1].rank != step.rank
        begin = timeline.start_us[step.begin_task] if first else through[index - 1]
        spans.append((step.rank, float(begin), float(through[index])))
    return spans


def device_step_us(graph: ExecutionGraph, timeline: Timeline) -> float:
    """The mean over ranks and iterations."""
    return float(np.mean([end - begin for _, begin, end in step_spans_us(graph, timeline)]))


def device_breakdown(graph: ExecutionGraph, timeline: Timeline) -> Breakdown:
    """Where the time of an iteration goes, the mean over ranks and iterations."""
    activities = {rank: device_activity(graph, timeline, rank) for rank in graph.ranks}
    found = []
    for rank, begin, end in step_spans_us(graph, timeline):
        activity = activities[rank]
        found.append(
            Breakdown(0.0, 0.0, 0.0, 0.0, end - begin, end - begin)
            if activity is None
            else activity.between(begin, end)
        )
    columns = [
        (b.compute_us, b.overlap_us, b.exposed_communication_us, b.memory_us, b.idle_us, b.total_us)
        for b in found
    ]
    return Breakdown(*np.mean(columns, axis=0).tolist())
