"""How much later tasks could end before it matters."""

import numpy as np

from jaxperf.compiled import Program, compile_program
from jaxperf.graph import ExecutionGraph
from jaxperf.replay._types import Timeline

# Sums of many durations round on the way back otherwise than on the way there.
_ROUNDING_US = 1e-4


def slack_us(
    graph: ExecutionGraph,
    timeline: Timeline,
    deadlines_us: np.ndarray | None = None,
    *,
    program: Program | None = None,
) -> np.ndarray:
    """How much longer each task could take, alone, without a deadline being missed.

    The latest end of a task is the earliest of its own deadline and of what the latest starts of
    those that wait for its end leave it: the reverse pass of the critical path method (Kelley and
    Walker, "Critical-path planning and scheduling", 1959). It is linear in the dependencies.

    Args:
        graph: the execution graph.
        timeline: start and end of every task, as replayed with the graph's own lags.
        deadlines_us: (tasks,) when each has to have ended, infinite where only others bound it; by
            default the end of the last task, for all.
        program: the compiled graph, where there is one already.

    Returns:
        (tasks,) 0 or more where every deadline is met; infinite where no deadline follows.

    Example:
        >>> timeline = Timeline(np.array([0.0, 4.0, 15.0]), np.array([6.0, 14.0, 17.0]))
        >>> slack_us(graph, timeline).tolist()  # the kernel follows the start of its call
        [11.0, 0.0, 0.0]
    """
    end = np.asarray(timeline.end_us, np.float64)
    duration = end - np.asarray(timeline.start_us, np.float64)
    if deadlines_us is None:
        deadlines_us = np.full(graph.tasks, end.max())
    lag = graph.lag_ns / 1e3
    latest_start = _latest_starts_us(graph, program, duration, lag, deadlines_us - duration)
    latest_end = np.array(deadlines_us, np.float64)
    ends = ~graph.from_start
    np.minimum.at(latest_end, graph.source[ends], latest_start[graph.target[ends]] - lag[ends])
    slack = latest_end - end
    return np.where(np.abs(slack) < _ROUNDING_US, 0.0, slack)


def _latest_starts_us(
    graph: ExecutionGraph,
    program: Program | None,
    duration: np.ndarray,
    lag: np.ndarray,
    latest: np.ndarray,
) -> np.ndarray:
    """(tasks,) each dependency once, in an order in which its target is known before it."""
    program = program or compile_program(graph)
    by_time = np.lexsort((program.position[: graph.tasks], program.row[: graph.tasks]))
    rank = np.empty(graph.tasks, np.int64)
    rank[by_time] = np.arange(graph.tasks)
    order = np.argsort(-rank[graph.source], kind="stable")
    weight = lag + np.where(graph.from_start, 0.0, duration[graph.source])
    start = latest.tolist()
    for source, target, between in zip(
        graph.source[order].tolist(),
        graph.target[order].tolist(),
        weight[order].tolist(),
        strict=True,
    ):
        bound = start[target] - between
        if bound < start[source]:
            start[source] = bound
    return np.array(start)
