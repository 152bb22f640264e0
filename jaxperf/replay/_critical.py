"""What bounds a replay: the dependency that each task waited for, and the path back from an end."""

from dataclasses import dataclass

import numpy as np

from jaxperf.graph import DependencyKind, ExecutionGraph, TaskClass
from jaxperf.replay._types import Timeline
from jaxperf.trace import MISSING

TIE_US = 1e-3
"""Inputs closer than the resolution of a trace's times, a nanosecond, count as equal."""


@dataclass(frozen=True, eq=False)
class CriticalPath:
    """The tasks whose time adds up to the end of the last of them, from first to last.

    Attributes:
        begin_us: start of the first task, which waited for its release alone.
        task: (length,) int64.
        dependency: (length,) int64, the dependency that bound each task; -1 for the first.
        lag_us: (length,) float64, time between what that dependency waited for and the task's
            start; may be negative; 0 for the first.
        start_us: (length,) float64, start of each task.
        own_us: (length,) float64, what the task itself adds: its duration, or 0 where the next on
            the path waited for its start. `begin_us` and all lags and own times add up to the end
            of the last task.
    """

    begin_us: float
    task: np.ndarray
    dependency: np.ndarray
    lag_us: np.ndarray
    start_us: np.ndarray
    own_us: np.ndarray


def binding_dependencies(
    graph: ExecutionGraph,
    starts_us: np.ndarray,
    durations_us: np.ndarray | None = None,
    lags_us: np.ndarray | None = None,
) -> np.ndarray:
    """Which dependency bound the start of each task.

    On a tie, within a nanosecond, it is the one that comes first in the graph, and a dependency
    before the release, as in the gradient of a replay.

    Args:
        graph: the execution graph.
        starts_us: (tasks,) start times, as replayed.
        durations_us: (tasks,) durations of that replay; by default the graph's own.
        lags_us: (dependencies,) lags of that replay; by default the graph's own.

    Returns:
        (tasks,) int32, index of the dependency; -1 where the release did.

    Example:
        >>> binding_dependencies(graph, np.array([0.0, 4.0, 15.0])).tolist()
        [-1, 0, 1]
    """
    duration = graph.duration_ns / 1e3 if durations_us is None else np.asarray(durations_us)
    lag = graph.lag_ns / 1e3 if lags_us is None else np.asarray(lags_us)
    starts_us = np.asarray(starts_us, np.float64)
    ready = starts_us[graph.source] + np.where(graph.from_start, 0.0, duration[graph.source]) + lag
    latest = np.full(graph.tasks, -np.inf)
    np.maximum.at(latest, graph.target, ready)
    bound = np.flatnonzero(ready >= latest[graph.target] - TIE_US)[::-1]
    binding = np.full(graph.tasks, -1, np.int32)
    # The last to be written is the first in the graph.
    binding[graph.target[bound]] = bound
    release = np.where(graph.release_ns == MISSING, -np.inf, graph.release_ns / 1e3)
    binding[release > latest + TIE_US] = -1
    return binding


def path_to(
    graph: ExecutionGraph, timeline: Timeline, binding: np.ndarray, end_task: int
) -> CriticalPath:
    """Walk back from a task to the release that everything on the way waited for.

    Args:
        graph: the execution graph.
        timeline: start and end of every task, as replayed.
        binding: (tasks,) of `binding_dependencies`, for that timeline.
        end_task: the task whose end is to be explained.

    Returns:
        The path.

    Example:
        >>> timeline = Timeline(np.array([0.0, 4.0, 15.0]), np.array([6.0, 14.0, 17.0]))
        >>> binding = binding_dependencies(graph, timeline.start_us)
        >>> path_to(graph, timeline, binding, end_task=2).task.tolist()
        [0, 1, 2]
    """
    bound, source = binding.tolist(), graph.source.tolist()
    tasks = [int(end_task)]
    while (dependency := bound[tasks[-1]]) >= 0:
        tasks.append(source[dependency])
    task = np.array(tasks[::-1])
    dependency = binding[task].astype(np.int64)
    start, end = timeline.start_us[task], timeline.end_us[task]
    from_start = np.append(graph.from_start[dependency[1:]], False)
    reached = np.where(from_start, start, end)
    lag = np.append(0.0, start[1:] - reached[:-1])
    return CriticalPath(float(start[0]), task, dependency, lag, start, reached - start)


def critical_path_us_by_class(
    graph: ExecutionGraph, path: CriticalPath, *, since_us: float = -np.inf
) -> dict[str, float]:
    """Time on a critical path by class of task.

    Lags of launches count as `launch`, other lags as the class of the task that waited.

    Args:
        graph: the execution graph.
        path: of `path_to`.
        since_us: what lies before is left out.

    Returns:
        Microseconds by the name of the class in lower case, of the classes that are on the path.
        They add up to the end of the path, less its begin or `since_us`, whichever is later.

    Example:
        >>> timeline = Timeline(np.array([0.0, 4.0, 15.0]), np.array([6.0, 14.0, 17.0]))
        >>> binding = binding_dependencies(graph, timeline.start_us)
        >>> critical_path_us_by_class(graph, path_to(graph, timeline, binding, 2))
        {'gemm': 10.0, 'memcpy': 3.0, 'launch': 4.0}
    """
    kind = graph.task_class[path.task]
    lag_kind = kind.copy()
    is_launch = graph.dependency[path.dependency[1:]] == DependencyKind.LAUNCH
    lag_kind[1:][is_launch] = TaskClass.LAUNCH

    def after(time_us):
        return np.maximum(time_us, since_us)

    own = after(path.start_us + path.own_us) - after(path.start_us)
    lag = after(path.start_us) - after(path.start_us - path.lag_us)
    total = np.bincount(kind, own, len(TaskClass)) + np.bincount(lag_kind, lag, len(TaskClass))
    present = np.unique(np.concatenate([kind[own != 0], lag_kind[lag != 0]]))
    return {TaskClass(c).name.lower(): float(total[c]) for c in present}
