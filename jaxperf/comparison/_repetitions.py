"""What repeats in a run: its steps, else the launches of one CUDA graph, else the whole capture."""

from dataclasses import dataclass

import numpy as np

from jaxperf.graph import ExecutionGraph, TaskKind, calls_by_correlation
from jaxperf.replay import Timeline, choose_steps, step_names
from jaxperf.trace import Run

STEP, GRAPH_LAUNCH, WINDOW = "step", "graph launch", "window"
# With fewer the first, which warms up, cannot be done without.
_FEW = 3


@dataclass(frozen=True, slots=True)
class Span:
    """One repetition on one rank.

    Attributes:
        part: index into the names of the repetitions.
        rank: index of the rank.
        begin_task: it starts when this task starts; -1 for the first start of all.
        end_task: it ends when this task ends; -1 for the last end of all.
        until_start: it ends when `end_task` starts.
        measured_us: begin and end in the trace.
    """

    part: int
    rank: int
    begin_task: int
    end_task: int
    until_start: bool
    measured_us: tuple[float, float]


@dataclass(frozen=True, eq=False)
class Repetitions:
    """What repeats in a run.

    Attributes:
        unit: what a repetition is.
        names: of the repetitions, in order.
        spans: of each repetition on each rank.
        part: (tasks,) int32, the repetition that a task belongs to; -1 for none.
        steady: those that count: of three and more without the first.
    """

    unit: str
    names: tuple[str, ...]
    spans: tuple[Span, ...]
    part: np.ndarray
    steady: tuple[int, ...]

    def measured_us(self) -> np.ndarray:
        """(steady,) mean over ranks."""
        return self._means([np.array(s.measured_us[1] - s.measured_us[0]) for s in self.spans])

    def replayed_us(self, start_us: np.ndarray, end_us: np.ndarray) -> np.ndarray:
        """(steady, ...) mean over ranks, of timelines (tasks, ...)."""
        return self._means([_length_us(span, start_us, end_us) for span in self.spans])

    def _means(self, lengths: list[np.ndarray]) -> np.ndarray:
        by_part = [
            [length for span, length in zip(self.spans, lengths, strict=True) if span.part == part]
            for part in self.steady
        ]
        return np.array([np.mean(some, axis=0) for some in by_part])


def _length_us(span: Span, start_us: np.ndarray, end_us: np.ndarray) -> np.ndarray:
    if span.begin_task < 0:
        return end_us.max(0) - start_us.min(0)
    ends = start_us if span.until_start else end_us
    return ends[span.end_task] - start_us[span.begin_task]


def repetitions(
    graph: ExecutionGraph,
    measured: Timeline,
    launcher: np.ndarray,
    step: str | int | None = None,
    unit: str | None = None,
) -> Repetitions:
    """What repeats in a run.

    Args:
        graph: the execution graph.
        measured: as measured.
        launcher: (tasks,) of `launchers`.
        step: only this iteration counts: its name or place; `None` for all.
        unit: what a repetition is to be; by default the first that there is.

    Returns:
        The repetitions.

    Raises:
        ConfigError: there is no such iteration.
    """
    lasting = [step for step in graph.steps if step.end_ns > step.begin_ns]
    if step is not None or (lasting and unit in (None, STEP)):
        return _steps(graph, step)
    if unit in (None, GRAPH_LAUNCH):
        launches = _graph_launches(graph, measured, launcher)
        if launches is not None:
            return launches
    return _window(graph, measured)


def _steps(graph: ExecutionGraph, step: str | int | None) -> Repetitions:
    names = step_names(graph)
    wanted = {chosen.name for chosen in choose_steps(graph, step)}
    spans = tuple(
        Span(
            names.index(s.name),
            graph.ranks.index(s.rank),
            s.begin_task,
            s.end_task,
            False,
            (s.begin_ns / 1e3, s.end_ns / 1e3),
        )
        for s in graph.steps
    )
    of_step = np.array([span.part for span in spans], np.int32)
    part = np.where(graph.step >= 0, of_step[graph.step], -1).astype(np.int32)
    lasting = {span.part for span in spans if span.measured_us[1] > span.measured_us[0]}
    # The profiler may close with a step in which nothing is done any more.
    working = set(part[(graph.kind >= TaskKind.KERNEL) & (part >= 0)].tolist())
    lasting = lasting & working or lasting
    counted = sorted(part for part in lasting if names[part] in wanted)
    return Repetitions(STEP, tuple(names), spans, part, _steady(counted))


def _steady(parts: list[int]) -> tuple[int, ...]:
    return tuple(parts[1:] if len(parts) >= _FEW else parts)


def _window(graph: ExecutionGraph, measured: Timeline) -> Repetitions:
    whole = float(measured.start_us.min()), float(measured.end_us.max())
    spans = tuple(Span(0, rank, -1, -1, False, whole) for rank in range(len(graph.ranks)))
    return Repetitions(WINDOW, (WINDOW,), spans, np.zeros(graph.tasks, np.int32), (0,))


def _graph_launches(
    graph: ExecutionGraph, measured: Timeline, launcher: np.ndarray
) -> Repetitions | None:
    """Repetitions that end with each launch of one CUDA graph, which does most of the work.

    `None` where there are no such launches, or not the same number on each rank. On the device one
    lasts from its first work to the first work of the next, the last to its own end.
    """
    cuts = [_same_launches(graph, launcher, rank) for rank in range(len(graph.ranks))]
    count = len(cuts[0])
    if count < 2 or any(len(calls) != count for calls in cuts):
        return None
    called = np.where(launcher >= 0, launcher, np.arange(graph.tasks))
    on_host = (launcher >= 0) | (graph.kind <= TaskKind.HOST_RETURN)
    part = np.full(graph.tasks, -1, np.int32)
    spans = []
    for rank, calls in enumerate(cuts):
        mine = np.flatnonzero(on_host & (graph.trace == rank))
        part[mine] = np.searchsorted(graph.start_ns[calls], graph.start_ns[called[mine]])
        works = mine[(launcher[mine] >= 0) & (part[mine] < count)]
        first = works[np.lexsort((graph.start_ns[works], part[works]))]
        begin = first[np.searchsorted(part[first], np.arange(count))].tolist()
        last = int(works[np.argmax(graph.end_ns[works])])
        for k in range(count):
            until = k + 1 < count
            end = begin[k + 1] if until else last
            edge = measured.start_us if until else measured.end_us
            whole = float(measured.start_us[begin[k]]), float(edge[end])
            spans.append(Span(k, rank, begin[k], end, until, whole))
    part[part == count] = -1
    names = tuple(f"graph launch {k + 1}" for k in range(count))
    return Repetitions(GRAPH_LAUNCH, names, tuple(spans), part, _steady(list(range(count))))


def _same_launches(graph: ExecutionGraph, launcher: np.ndarray, rank: int) -> np.ndarray:
    """Calls of one rank that each launch the same many tasks, together most of them; in order."""
    works = np.flatnonzero((launcher >= 0) & (graph.trace == rank))
    calls, count = np.unique(launcher[works], return_counts=True)
    many = calls[count > 1]
    contents = {
        tuple(sorted(graph.name[works[launcher[works] == call]].tolist())) for call in many.tolist()
    }
    if len(contents) != 1 or 2 * count[count > 1].sum() < len(works):
        return np.empty(0, np.int64)
    return many[np.argsort(graph.start_ns[many])]


def launchers(run: Run, graph: ExecutionGraph) -> np.ndarray:
    """(tasks,) int64, the call that launched each piece of device work; -1 where none is known.

    One launch of a CUDA graph has all its work, of which the graph draws one dependency a stream.
    """
    launcher = np.full(graph.tasks, -1, np.int64)
    for index, trace in enumerate(run.traces):
        mine = (graph.trace == index) & (graph.event >= 0)
        works = np.flatnonzero(
            mine & (graph.kind >= TaskKind.KERNEL) & (graph.kind < TaskKind.ARRIVAL)
        )
        calls = np.flatnonzero(mine & (graph.kind == TaskKind.HOST_CALL))
        task_of = np.full(trace.events + 1, -1, np.int64)
        task_of[graph.event[calls]] = calls
        rows = calls_by_correlation(trace, trace.correlation[graph.event[works]])
        launcher[works] = task_of[rows]
    return launcher
