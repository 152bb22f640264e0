"""The verb: what bounds the step of a run, over all its ranks."""

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from jaxperf.critical_path._hops import Ends, Hop, critical_us, hops
from jaxperf.critical_path._meetings import find_meetings
from jaxperf.critical_path._shares import (
    ClassShare,
    GroupShare,
    Looked,
    RankShare,
    TaskShare,
    Wait,
    shares_by_class,
    shares_by_group,
    shares_by_rank,
    shares_by_task,
    waits_by_pair,
)
from jaxperf.critical_path._slow_links import message_sizes
from jaxperf.critical_path._straggler import Straggler, find_straggler
from jaxperf.graph import KERNEL_CLASSES, ExecutionGraph, KernelClasses, Step, build_graph
from jaxperf.replay import (
    Sensitivities,
    Timeline,
    binding_dependencies,
    replay_graph,
    replay_notes,
    replayed_span_us,
    sensitivities,
    slack_us,
    step_weights,
)
from jaxperf.trace import Note, Run, read_run

_BEHIND = 0.5
"""A note says so where devices end this part of a step after the last of them."""


@dataclass(frozen=True, eq=False)
class CriticalPathReport:
    """What bounds the step of a run.

    Attributes:
        graph: the execution graph.
        replayed: its timeline.
        sensitivities: the gradient of the step by every duration and lag.
        slack_us: (tasks,) by how much each task could be longer, alone, before the end of a step
            that is looked at, or of the window, is later.
        steps: names of the iterations that are looked at; none where none is marked.
        step_us: their mean over ranks and iterations; the window where none is marked.
        by_class: in order of their time on the critical path, as are the next two.
        by_rank: one for each rank, in order of rank.
        by_task: one for each name and class that is in the step.
        by_group: of ranks that meet, the longest wait first.
        waits: the longest first.
        straggler: the rank that holds the others up; `None` where none stands out.
        path_step: name of the iteration that `path` explains; `None` for the window.
        path: from the begin of that iteration to its end, on the rank where it took longest.
        notes: everything that was repaired, guessed or set aside.
    """

    graph: ExecutionGraph
    replayed: Timeline
    sensitivities: Sensitivities
    slack_us: np.ndarray
    steps: tuple[str, ...]
    step_us: float
    by_class: tuple[ClassShare, ...]
    by_rank: tuple[RankShare, ...]
    by_task: tuple[TaskShare, ...]
    by_group: tuple[GroupShare, ...]
    waits: tuple[Wait, ...]
    straggler: Straggler | None
    path_step: str | None
    path: tuple[Hop, ...]
    notes: tuple[Note, ...]


def critical_path(
    paths: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
    *,
    step: str | int | None = None,
    classes: KernelClasses | str | os.PathLike[str] = KERNEL_CLASSES,
    progress: Callable[[int, int], None] | None = None,
) -> CriticalPathReport:
    """What bounds the steady step: by class, by task and by rank, and who waits for whom.

    Args:
        paths: a trace file, a folder of one run's traces, or several of either.
        step: look at one iteration only: its name, or its place (0 the first, -1 the last).
        classes: which class a kernel belongs to; see `build_graph`.
        progress: called with the number of files read so far, and of all files.

    Returns:
        The report.

    Raises:
        TraceError: the paths hold no trace that can be read.
        GraphError: the traces hold nothing that can be replayed.
        ConfigError: there is no such step, or it takes no time.

    Example:
        >>> import tempfile
        >>> from jaxperf.simulator import SimulatedJob, simulate, write_traces
        >>> slow = {"rank:1/compute": 1.5}
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     run = simulate(SimulatedJob(layers=1, data_parallel=2), scale=slow)
        ...     result = critical_path(write_traces(run, folder))
        >>> result.straggler.rank, result.straggler.cause
        (1, 'kernels')
    """
    run = read_run(paths, progress=progress)
    graph = build_graph(run, classes=classes)
    weights = step_weights(graph, step)
    replayed = replay_graph(graph)
    binding = binding_dependencies(graph, replayed.start_us)
    slopes = sensitivities(graph, step=step)
    ends = _ends(graph, replayed, weights)
    names = tuple(dict.fromkeys(graph.steps[i].name for i in np.flatnonzero(weights)))
    task_us, lag_us = critical_us(graph, replayed, binding, ends)
    looked = Looked(
        graph=graph,
        slopes=slopes,
        task_us=task_us,
        lag_us=lag_us,
        slack_us=slack_us(graph, replayed, _deadlines_us(graph, replayed, ends)),
        counts=_in_steps(graph, weights),
        steps=max(len(names), 1),
        meetings=find_meetings(graph, replayed),
    )
    straggler, alone = find_straggler(
        graph, looked.meetings, weights, message_sizes(run, graph), slopes.step_us
    )
    explained, end_task, begin_us = _explained(graph, replayed, weights)
    return CriticalPathReport(
        graph=graph,
        replayed=replayed,
        sensitivities=slopes,
        slack_us=looked.slack_us,
        steps=names,
        step_us=slopes.step_us,
        by_class=shares_by_class(looked),
        by_rank=shares_by_rank(looked),
        by_task=shares_by_task(looked),
        by_group=shares_by_group(looked),
        waits=waits_by_pair(looked),
        straggler=straggler,
        path_step=explained,
        path=hops(graph, replayed, binding, end_task, begin_us),
        notes=(*graph.notes, *_notes(run, graph, alone), *_ran_ahead(graph, replayed, weights)),
    )


# What is looked at
# ---------------------------------------------------------------------------------------


def _ends(graph: ExecutionGraph, timeline: Timeline, weights: np.ndarray) -> Ends:
    """The end of each step that counts, its begin and weight; or the end of the window."""
    if not weights.any():
        return [(int(np.argmax(timeline.end_us)), float(timeline.start_us.min()), 1.0)]
    return [
        (graph.steps[i].end_task, replayed_span_us(timeline, graph.steps[i])[0], float(weights[i]))
        for i in np.flatnonzero(weights)
    ]


def _deadlines_us(graph: ExecutionGraph, timeline: Timeline, ends: Ends) -> np.ndarray:
    """(tasks,) steps must end as they do, and so must the window."""
    deadline = np.full(graph.tasks, timeline.end_us.max())
    tasks = [task for task, _, _ in ends]
    deadline[tasks] = timeline.end_us[tasks]
    return deadline


def _in_steps(graph: ExecutionGraph, weights: np.ndarray) -> np.ndarray:
    """(tasks,) bool, whether a task belongs to a step that counts."""
    if not weights.any():
        return np.ones(graph.tasks, bool)
    return np.append(weights > 0, False)[graph.step]


def _explained(
    graph: ExecutionGraph, timeline: Timeline, weights: np.ndarray
) -> tuple[str | None, int, float]:
    """The step that the path explains, its end and begin: the middle one, where it took longest."""
    if not weights.any():
        task, begin, _ = _ends(graph, timeline, weights)[0]
        return None, task, begin
    by_name: dict[str, list[tuple[float, Step]]] = {}
    for i in np.flatnonzero(weights):
        begin, end = replayed_span_us(timeline, graph.steps[i])
        by_name.setdefault(graph.steps[i].name, []).append((end - begin, graph.steps[i]))
    means = sorted((float(np.mean([t for t, _ in rows])), name) for name, rows in by_name.items())
    _, name = means[(len(means) - 1) // 2]
    _, longest = max(by_name[name], key=lambda row: row[0])
    return name, longest.end_task, replayed_span_us(timeline, longest)[0]


# What is taken for granted
# ---------------------------------------------------------------------------------------


def _notes(run: Run, graph: ExecutionGraph, alone: tuple[int, ...]) -> list[Note]:
    """What was set aside, or cannot be told."""
    notes = replay_notes(run, graph)
    if alone and len(graph.ranks) > 1:
        listed = ", ".join(map(str, alone[:8])) + (", ..." if alone[8:] else "")
        text = f"no other rank launches the kernels of ranks {listed}: nothing says if one is slow"
        notes.append(Note("ranks-without-peers", text))
    return notes


def _ran_ahead(graph: ExecutionGraph, timeline: Timeline, weights: np.ndarray) -> list[Note]:
    """Hosts that run ahead end their steps long before their devices end the work."""
    if not weights.any():
        return []
    ended = max(timeline.end_us[step.end_task] for step in graph.steps)
    behind_us = float(timeline.end_us.max() - ended)
    spans = [float(np.diff(replayed_span_us(timeline, step))[0]) for step in graph.steps]
    if behind_us < _BEHIND * float(weights @ spans):
        return []
    text = (
        f"devices end {behind_us / 1e3:.1f} ms after the last step: the hosts run ahead, and the "
        "steps tell their pace alone"
    )
    return [Note("hosts-ran-ahead", text)]
