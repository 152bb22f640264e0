"""How much the same task varies from step to step: what an interval around a replay is made of."""

from dataclasses import dataclass

import numpy as np

from jaxperf.graph import ExecutionGraph, TaskKind, calls_by_correlation
from jaxperf.replay._compare import step_names
from jaxperf.replay._hold_out import same_task_keys
from jaxperf.trace import Run, call_tree, owning_operator

# Fewer degrees of freedom than this tell no spread.
_FEW = 4


@dataclass(frozen=True, eq=False)
class Variation:
    """The distribution of each task's duration in another run of the same job.

    A task of the run is `mean_us * exp(spread * z - spread**2 / 2)`, z standard normal: log-normal,
    as durations have a floor and a tail.

    Attributes:
        mean_us: (tasks,) float64, mean over the steps in which the same task was seen.
        spread: (tasks,) float64, standard deviation of the logarithm.
        same: (tasks,) int64, equal for the same task in different steps.
        seen: (tasks,) int64, in how many steps.
        unknown: number of tasks of whose variation the trace tells nothing; their spread is 0.
    """

    mean_us: np.ndarray
    spread: np.ndarray
    same: np.ndarray
    seen: np.ndarray
    unknown: int


def task_shapes(run: Run, graph: ExecutionGraph) -> np.ndarray:
    """What tells tasks of one name apart: the grid of a kernel, and its operator's input shapes.

    Args:
        run, graph: the run.

    Returns:
        (tasks,) int64, equal for tasks of one rank with the same shapes; -1 where it has none.
    """
    shapes = np.full(graph.tasks, -1, np.int64)
    for index, trace in enumerate(run.traces):
        tasks = np.flatnonzero((graph.trace == index) & (graph.event >= 0))
        row = graph.event[tasks]
        on_device = np.flatnonzero(graph.kind[tasks] >= TaskKind.KERNEL)
        owner = np.full(len(tasks), -1, np.int64)
        calls = calls_by_correlation(trace, trace.correlation[row[on_device]])
        owner[on_device] = owning_operator(trace, call_tree(trace), calls)
        own, of_operator = trace.shape[row], np.where(owner >= 0, trace.shape[owner], -1)
        both = own.astype(np.int64) * (len(trace.shapes) + 1) + of_operator + 1
        shapes[tasks] = np.where((own >= 0) | (of_operator >= 0), both, -1)
    return shapes


def duration_variation(graph: ExecutionGraph, shapes: np.ndarray) -> Variation:
    """What the steps of a run tell of the variation of its durations.

    Each task is compared with itself in the other steps, without the first where there are at least
    three: it warms up. Spreads are pooled over the tasks of one name and about the same length, as
    short ones vary more; where these are too few, over those of one class and length.

    Args:
        graph: the execution graph.
        shapes: (tasks,) int64, of `task_shapes`.

    Returns:
        The distribution.
    """
    same = _same_tasks(graph, shapes)
    duration_us = graph.duration_ns / 1e3
    steady = _is_steady(graph)
    positive = duration_us > 0
    counted = steady & positive
    groups = int(same.max(initial=0)) + 1
    seen = np.bincount(same[counted], minlength=groups)
    total = np.bincount(same[counted], duration_us[counted], groups)
    mean = np.where(seen > 0, total / np.maximum(seen, 1), np.nan)[same]
    taken = steady & positive & (seen[same] > 1)

    # Logarithms would make much of a task that hardly took place once.
    residual = np.where(taken, duration_us / mean - 1.0, 0.0)
    spread = np.full(graph.tasks, np.nan)
    octave = np.log2(np.maximum(np.nan_to_num(mean, nan=1.0), 1e-3)).round().astype(np.int64) + 16
    for kind in (graph.name, graph.task_class):
        pooled = _pooled(residual, kind.astype(np.int64) * 64 + octave, same, taken)
        spread = np.where(np.isnan(spread), np.sqrt(np.log1p(pooled**2)), spread)
    unknown = positive & np.isnan(spread)
    return Variation(
        mean_us=np.where(steady & (seen[same] > 1), mean, duration_us),
        spread=np.where(np.isnan(spread) | ~positive, 0.0, spread),
        same=same,
        seen=np.where(steady, np.maximum(seen[same], 1), 1),
        unknown=int(unknown.sum()),
    )


def _is_steady(graph: ExecutionGraph) -> np.ndarray:
    """(tasks,) bool, whether a task is in a step that others may be compared with."""
    names = step_names(graph)
    if not names:
        return np.zeros(graph.tasks, bool)
    of_step = np.array([names.index(step.name) for step in graph.steps])
    step = np.where(graph.step >= 0, of_step[graph.step], -1)
    return (step > 0) if len(names) > 2 else step >= 0


def _same_tasks(graph: ExecutionGraph, shapes: np.ndarray) -> np.ndarray:
    """(tasks,) a number for each task, the same for the same task in other steps."""
    place, occurrence = same_task_keys(graph, shapes)
    key = np.where(place >= 0, place, int(place.max(initial=-1)) + 1 + occurrence)
    alone = graph.step < 0
    key[alone] = int(key.max(initial=-1)) + 1 + np.arange(int(alone.sum()))
    return np.unique(key, return_inverse=True)[1].astype(np.int64)


def _pooled(
    residual: np.ndarray, key: np.ndarray, same: np.ndarray, taken: np.ndarray
) -> np.ndarray:
    """(tasks,) relative standard deviation of all tasks with one key; NaN where too few."""
    key = np.unique(key, return_inverse=True)[1].reshape(-1)
    keys = int(key.max(initial=0)) + 1
    squares = np.bincount(key[taken], residual[taken] ** 2, keys)
    # Each group of the same task has given one degree of freedom for its mean.
    pairs = np.unique(np.stack([key[taken], same[taken]]), axis=1)
    freedom = np.bincount(key[taken], minlength=keys) - np.bincount(pairs[0], minlength=keys)
    known = freedom >= _FEW
    return np.where(known, np.sqrt(squares / np.maximum(freedom, 1)), np.nan)[key]
