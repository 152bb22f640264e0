"""The steady step of a training graph, and where its time goes."""

from dataclasses import dataclass

import numpy as np

from jaxperf.embedding.training._graph import TrainingGraph
from jaxperf.graph import ExecutionGraph
from jaxperf.replay import Breakdown, replay_graph, steady_breakdown
from jaxperf.workload import timed_graph


@dataclass(frozen=True, eq=False)
class TrainingStep:
    """The replay of a training graph.

    Attributes:
        step_us: of the last step, the mean over ranks: from the end of the one before to its end.
        rank_us: (ranks,) of each.
        breakdown: where a rank's step goes, without the first.
        graph: with its durations and times.
    """

    step_us: float
    rank_us: np.ndarray
    breakdown: Breakdown | None
    graph: ExecutionGraph


def replay_training(built: TrainingGraph) -> TrainingStep:
    """Replay a training graph.

    Args:
        built: of `build_training_graph`.

    Returns:
        The step.

    Example:
        >>> from jaxperf.embedding.training._graph import build_training_graph
        >>> from jaxperf.embedding.training._parts import StepParts
        >>> times = {name: np.ones(1) for name in StepParts.__dataclass_fields__}
        >>> parts = StepParts(**times | {"fetch_us": np.full((1, 1), 3.0)})
        >>> replay_training(build_training_graph(parts, overlap=False)).step_us
        11.0
    """
    timeline = replay_graph(built.graph, built.durations_us)
    graph = timed_graph(built.graph, built.durations_us, timeline.start_us)
    ends = np.array([step.end_task for step in graph.steps]).reshape(len(graph.ranks), -1)
    rank_us = np.diff(timeline.end_us[ends[:, -2:]], axis=1)[:, 0]
    return TrainingStep(float(rank_us.mean()), rank_us, steady_breakdown(graph, timeline), graph)
