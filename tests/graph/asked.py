"""What a graph answers, by the plain evaluation: times under changed durations, causes by name."""

import re
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from jaxperf.graph import DependencyKind, ExecutionGraph, TaskClass, TaskKind
from tests.helpers import start_times

DEVICE_KINDS = (TaskKind.KERNEL, TaskKind.MEMCPY, TaskKind.MEMSET, TaskKind.COLLECTIVE)


@dataclass(frozen=True)
class Answer:
    """The tasks of a graph in time, in nanoseconds."""

    graph: ExecutionGraph
    start_ns: np.ndarray
    end_ns: np.ndarray

    @property
    def steps_us(self) -> list[float]:
        """Each step's time."""
        return [
            float(self.end_ns[step.end_task] - self.start_ns[step.begin_task]) / 1e3
            for step in self.graph.steps
        ]

    @property
    def window_us(self) -> float:
        """First start to last end."""
        return float(self.end_ns.max() - self.start_ns.min()) / 1e3

    def end_us(self, name: str) -> float:
        """End of the one device task of a name, since the window's start."""
        return float(self.end_ns[device_task(self.graph, name)] - self.start_ns.min()) / 1e3

    def start_us(self, name: str) -> float:
        """Start of the one device task of a name, since the window's start."""
        return float(self.start_ns[device_task(self.graph, name)] - self.start_ns.min()) / 1e3


def replayed(graph: ExecutionGraph, change: Mapping[str, float] | None = None) -> Answer:
    """The graph's own times, with the durations of some tasks multiplied.

    `change` is written as for the simulator: a class, `host` for all host work, or `name:REGEX`.
    """
    duration = graph.duration_ns.astype(float)
    for selector, factor in (change or {}).items():
        duration[selected(graph, selector)] *= factor
    start = np.array(start_times(graph, duration.tolist()), float)
    return Answer(graph, start, start + duration)


def selected(graph: ExecutionGraph, selector: str) -> np.ndarray:
    """(tasks,) bool."""
    if selector.startswith("name:"):
        pattern = re.compile(selector.removeprefix("name:"))
        return np.array([bool(pattern.search(name)) for name in graph.names])[graph.name]
    if selector == "host":
        return np.isin(graph.task_class, [TaskClass.HOST, TaskClass.LAUNCH])
    return graph.task_class == TaskClass[selector.upper()]


def measured_steps_us(graph: ExecutionGraph) -> list[float]:
    return [(step.end_ns - step.begin_ns) / 1e3 for step in graph.steps]


def on_device(graph: ExecutionGraph) -> np.ndarray:
    """(tasks,) bool."""
    return np.isin(graph.kind, DEVICE_KINDS)


def task_names(graph: ExecutionGraph) -> list[str]:
    return [graph.names[index] for index in graph.name.tolist()]


def device_task(graph: ExecutionGraph, name: str) -> int:
    """The one device task of a name."""
    (task,) = np.flatnonzero(on_device(graph) & (graph.name == graph.names.index(name))).tolist()
    return task


def dependencies(graph: ExecutionGraph, kind: DependencyKind) -> set[tuple[str, str]]:
    """(name of the source, name of the target) of all dependencies of a kind."""
    names = task_names(graph)
    of_kind = graph.dependency == kind
    return {
        (names[source], names[target])
        for source, target in zip(
            graph.source[of_kind].tolist(), graph.target[of_kind].tolist(), strict=True
        )
    }


def codes(graph: ExecutionGraph) -> set[str]:
    """The codes of the graph's notes."""
    return {note.code for note in graph.notes}


def bounding_path(answer: Answer, task: int) -> list[int]:
    """The tasks that bound the start of a task, the first one first; the task itself is last.

    Where two bound it alike, the later one in the list of dependencies counts.
    """
    graph = answer.graph
    path = [task]
    while True:
        inputs = np.flatnonzero(graph.target == path[-1])
        if not len(inputs):
            return path[::-1]
        source = graph.source[inputs]
        base = np.where(graph.from_start[inputs], answer.start_ns[source], answer.end_ns[source])
        path.append(int(source[np.argmax(base + graph.lag_ns[inputs])]))
