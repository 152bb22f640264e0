"""Which part of a timeline power and energy are told of."""

import numpy as np

from jaxperf.errors import ConfigError
from jaxperf.graph import ExecutionGraph
from jaxperf.replay import Timeline, choose_steps, replayed_span_us, steady_weights


def steady_span_us(
    graph: ExecutionGraph, timeline: Timeline, step: str | int | None
) -> tuple[tuple[float, float], float]:
    """Begin and end of the steady steps, the mean over ranks, and the mean step.

    Args:
        graph: the execution graph.
        timeline: of its tasks.
        step: of one iteration only: its name, or its place.

    Returns:
        The span and the step; without iterations the whole window, as one.

    Raises:
        ConfigError: there is no such step, or it takes no time.

    Example:
        >>> from jaxperf.replay import replay_graph
        >>> steady_span_us(graph, replay_graph(graph), 0)
        ((0.0, 17.0), 17.0)
    """
    if step is None:
        weights = steady_weights(graph)
        counted = [each for each, weight in zip(graph.steps, weights, strict=True) if weight > 0]
    else:
        counted = list(choose_steps(graph, step))
    if not counted:
        window = float(timeline.start_us.min()), float(timeline.end_us.max())
        return window, window[1] - window[0]
    spans = np.array([replayed_span_us(timeline, each) for each in counted])
    rank = np.array([graph.ranks.index(each.rank) for each in counted])
    begins = [spans[rank == each, 0].min() for each in np.unique(rank)]
    ends = [spans[rank == each, 1].max() for each in np.unique(rank)]
    step_us = float(np.diff(spans, axis=1).mean())
    if not np.mean(ends) > np.mean(begins):
        raise ConfigError("takes no time", where="step", got=str(step), expected="a step that does")
    return (float(np.mean(begins)), float(np.mean(ends))), step_us
