"""An estimate as what the pictures draw: a replay of which nothing was measured."""

import math

import numpy as np

from jaxperf.estimate import Estimate
from jaxperf.graph import RankClock, TaskKind
from jaxperf.replay import RankSummary, Replay, StepBreakdown, TimeComparison

_NAN = math.nan


def estimated_replay(estimate: Estimate) -> Replay:
    """An estimate as a replay; its one timeline stands for the measured one too.

    Args:
        estimate: of `estimate`.

    Returns:
        What the pictures draw of it.
    """
    graph, line = estimate.graph, estimate.timeline
    on_device = (graph.kind >= TaskKind.KERNEL) & (graph.kind <= TaskKind.COLLECTIVE)
    ranks = tuple(
        RankSummary(
            rank=rank,
            files=(),
            device=estimate.hardware.name,
            events=0,
            device_tasks=int(np.sum(on_device & (graph.trace == index))),
            clock=RankClock(rank, _NAN, _NAN, _NAN),
        )
        for index, rank in enumerate(graph.ranks)
    )
    return Replay(
        graph=graph,
        measured=line,
        replayed=line,
        binding=estimate.binding,
        ranks=ranks,
        window=TimeComparison("window", _NAN, float(line.end_us.max())),
        steps=(TimeComparison("step", _NAN, estimate.step_us),),
        mean_abs_error_percent=_NAN,
        task_start_error_median_us=_NAN,
        task_start_error_p95_us=_NAN,
        breakdown_measured=None,
        breakdown_replayed=estimate.breakdown,
        step_breakdowns=tuple(
            StepBreakdown(rank, step.name, each, each)
            for step, (rank, each) in zip(graph.steps, estimate.rank_breakdowns, strict=True)
        ),
        rank_breakdowns=tuple((rank, each, each) for rank, each in estimate.rank_breakdowns),
        critical_path_us=estimate.critical_path_us,
        hold_out=None,
        notes=estimate.notes,
        critical_path_step="the step",
    )
