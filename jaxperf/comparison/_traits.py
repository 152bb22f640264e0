"""What tells one task from another across runs: its name, operator, shape and class, as numbers."""

import re
from dataclasses import dataclass, field

import numpy as np

from jaxperf.graph import ExecutionGraph, TaskClass, TaskKind
from jaxperf.trace import Run, Trace, call_tree, owning_operator

# Numbers that differ from step to step, and hashes that differ from compilation to compilation.
_VARYING = (
    (re.compile(r"#\d+"), "#"),
    (re.compile(r"(CompiledFxGraph) \w+"), r"\1"),
    (re.compile(r"(Torch-Compiled Region): \d+/\d+"), r"\1"),
)

NAME, OPERATOR, SHAPE, CLASS = range(4)
WEIGHTS = (4, 3, 1, 1)
"""What each trait counts where tasks are aligned; the class alone is least, but enough."""


@dataclass
class Numbers:
    """One number for each text, the same in both runs."""

    of_text: dict[str, int] = field(default_factory=dict)

    def of(self, texts: list[str]) -> np.ndarray:
        """(texts,) int64, numbers from 0."""
        known = self.of_text
        return np.array([known.setdefault(text, len(known)) for text in texts], np.int64)


@dataclass(frozen=True, eq=False)
class Traits:
    """The traits of each task of a run.

    Attributes:
        values: (4, tasks) int64, by `NAME`, `OPERATOR`, `SHAPE` and `CLASS`; -1 where unknown.
            Names are without what varies from step to step; a call and its return differ.
        on_device: (tasks,) bool.
        launcher: (tasks,) int64, the call that launched each piece of device work; -1 for none.
    """

    values: np.ndarray
    on_device: np.ndarray
    launcher: np.ndarray


def plain_name(name: str) -> str:
    """A name without what differs from step to step or from compilation to compilation.

    Example:
        >>> plain_name("ProfilerStep#12")
        'ProfilerStep#'
    """
    for pattern, text in _VARYING:
        name = pattern.sub(text, name)
    return name


def task_traits(run: Run, graph: ExecutionGraph, launcher: np.ndarray, numbers: Numbers) -> Traits:
    """The traits of the tasks of a run.

    Args:
        run: the traces.
        graph: their execution graph.
        launcher: (tasks,) of `launchers`.
        numbers: of the texts of both runs.

    Returns:
        The traits.
    """
    on_device = (graph.kind >= TaskKind.KERNEL) & (graph.kind < TaskKind.ARRIVAL)
    values = np.full((len(WEIGHTS), graph.tasks), -1, np.int64)
    plain = numbers.of([plain_name(name) for name in graph.names])
    # A call and its return, or an operator and a call of its name, are different things.
    kind = np.where(on_device, TaskKind.KERNEL, graph.kind)
    values[NAME] = plain[graph.name] * len(TaskKind) + kind
    known = np.where(on_device, TaskClass.OTHER, TaskClass.HOST)
    values[CLASS] = np.where(graph.task_class == known, -1, graph.task_class)
    for index, trace in enumerate(run.traces):
        mine = np.flatnonzero((graph.trace == index) & (graph.event >= 0))
        values[SHAPE, mine] = _shapes(trace, numbers)[graph.event[mine]]
        works = mine[launcher[mine] >= 0]
        calls = graph.event[launcher[works]].astype(np.int64)
        owner = owning_operator(trace, call_tree(trace), calls)
        named = numbers.of([plain_name(name) for name in trace.names])
        values[OPERATOR, works] = np.where(owner >= 0, named[trace.name[owner]], -1)
    return Traits(values, on_device, launcher)


def _shapes(trace: Trace, numbers: Numbers) -> np.ndarray:
    """(events,) a number for the shape of each event, or for the message of a collective."""
    shape = np.append(numbers.of(list(trace.shapes)), -1)[trace.shape]
    messages = [f"{c.in_elements} {c.out_elements} {c.dtype}" for c in trace.collectives]
    message = np.append(numbers.of(messages), -1)[trace.collective]
    return np.where(message >= 0, message, shape)
