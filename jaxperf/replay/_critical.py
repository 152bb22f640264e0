"""What bounds a replay: the dependency behind every start, and the path that they form."""

from dataclasses import dataclass

import numpy as np

from jaxperf.graph import DependencyKind, ExecutionGraph, TaskClass
from jaxperf.replay._types import Timeline

# Times that differ by less are one moment: half of what a trace can tell.
_TIE_US = 5e-4


@dataclass(frozen=True, eq=False)
class CriticalPath:
    """The chain of tasks that leads to the end of one, first to last.

    The times of the path, and the start of its first task, add up to the end of its last.

    Attributes:
        tasks: (k,) int64.
        lag_us: (k,) float64, lag of the dependency that leads to the task; 0 for the first.
        own_us: (k,) float64, time spent in the task: its duration, or 0 where the path leaves it at
            its start.
        dependencies: (k,) int64, the dependency that leads to the task; -1 for the first.
    """

    tasks: np.ndarray
    lag_us: np.ndarray
    own_us: np.ndarray
    dependencies: np.ndarray


def binding_dependencies(graph: ExecutionGraph, timeline: Timeline) -> np.ndarray:
    """The dependency that bound the start of each task.

    Args:
        graph: the execution graph.
        timeline: a replay of it.

    Returns:
        (tasks,) int32, index of the dependency, of several the first; -1 where only the release
        bound it.
    """
    source = graph.source
    ready_us = np.where(graph.from_start, timeline.start_us[source], timeline.end_us[source])
    binds = np.flatnonzero(
        ready_us + graph.lag_ns / 1e3 >= timeline.start_us[graph.target] - _TIE_US
    )
    none = np.iinfo(np.int32).max
    first = np.full(graph.tasks, none, np.int32)
    np.minimum.at(first, graph.target[binds], binds.astype(np.int32))
    return np.where(first == none, -1, first).astype(np.int32)


def critical_path(
    graph: ExecutionGraph, timeline: Timeline, binding: np.ndarray, end_task: int
) -> CriticalPath:
    """The chain of binding dependencies that leads to the end of a task.

    Args:
        graph: the execution graph.
        timeline: a replay of it.
        binding: see `binding_dependencies`.
        end_task: the task.

    Returns:
        The path.
    """
    tasks, dependencies = [end_task], []
    while binding[tasks[-1]] >= 0:
        dependencies.append(int(binding[tasks[-1]]))
        tasks.append(int(graph.source[dependencies[-1]]))
    path = np.array(tasks[::-1], np.int64)
    edges = np.array([-1, *dependencies[::-1]], np.int64)
    leaves_at_start = np.append(graph.from_start[edges[1:]], False)
    own_us = timeline.end_us[path] - timeline.start_us[path]
    return CriticalPath(
        path,
        np.append(0.0, graph.lag_ns[edges[1:]] / 1e3),
        np.where(leaves_at_start, 0.0, own_us),
        edges,
    )


def critical_path_us_by_class(
    graph: ExecutionGraph, timeline: Timeline, path: CriticalPath, since_us: float = -np.inf
) -> dict[str, float]:
    """Time on a path by class of task, the greatest first.

    The lag of a launch counts as `launch`, other lags as the class of the task they lead to.

    Args:
        graph: the execution graph.
        timeline: the replay the path is of.
        path: the path.
        since_us: leave out what lies before.

    Returns:
        Microseconds by the lower-case name of the class; classes without time are left out.
    """
    start_us = timeline.start_us[path.tasks]
    own_us = np.clip(start_us + path.own_us - since_us, 0.0, path.own_us)
    lag_us = np.where(start_us >= since_us, path.lag_us, 0.0)
    lag_us = np.minimum(lag_us, np.maximum(start_us - since_us, 0.0))
    task_class = graph.task_class[path.tasks]
    launched = graph.dependency[path.dependencies] == DependencyKind.LAUNCH
    launched &= path.dependencies >= 0
    total = np.bincount(task_class, own_us, minlength=len(TaskClass))
    lag_class = np.where(launched, TaskClass.LAUNCH, task_class)
    total += np.bincount(lag_class, lag_us, minlength=len(TaskClass))
    return {
        TaskClass(int(c)).name.lower(): float(total[c])
        for c in np.argsort(-total, kind="stable")
        if abs(total[c]) > 0
    }
