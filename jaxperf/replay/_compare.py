"""What was measured beside what was replayed: steps, window, starts and breakdowns."""

import difflib

import numpy as np

from jaxperf.errors import ConfigError
from jaxperf.graph import ExecutionGraph, Step, TaskKind
from jaxperf.replay._breakdown import device_activity, mean_breakdown
from jaxperf.replay._types import Breakdown, StepBreakdown, TimeComparison, Timeline


def measured_timeline(graph: ExecutionGraph) -> Timeline:
    """When the tasks of a graph started and ended in the trace."""
    return Timeline(graph.start_ns / 1e3, graph.end_ns / 1e3)


def choose_steps(graph: ExecutionGraph, step: str | int | None) -> tuple[Step, ...]:
    """The iterations that are asked for.

    Args:
        graph: the execution graph.
        step: name of one; or its place, 0 the first and -1 the last; or `None` for all.

    Returns:
        The iterations, of every rank that has them.

    Raises:
        ConfigError: there is no such iteration.
    """
    if step is None:
        return graph.steps
    names = step_names(graph)
    text = str(step)
    if text in names:
        wanted = text
    elif text.isascii() and text.lstrip("-").isdigit() and -len(names) <= int(text) < len(names):
        wanted = names[int(text)]
    else:
        near = difflib.get_close_matches(text, names, n=3) or names[:3]
        raise ConfigError(
            "no such step",
            where="step",
            got=text,
            expected=f"one of {', '.join(near)}" if names else "a trace with steps; it has none",
            remedy=f"or a place from 0 to {len(names) - 1}" if names else "leave the step out",
        )
    return tuple(known for known in graph.steps if known.name == wanted)


def step_names(graph: ExecutionGraph) -> list[str]:
    """Names of the iterations, in order."""
    return list(dict.fromkeys(step.name for step in graph.steps))


def steady_weights(graph: ExecutionGraph) -> np.ndarray:
    """What each iteration counts in the steady step, the mean over ranks and iterations.

    Args:
        graph: the execution graph.

    Returns:
        (iterations,) float64 that add up to 1. The first of at least three counts nothing, it warms
        up; nor does one that takes no time, or launches no device work where others do. All 0
        where there is none to count.

    Example:
        >>> steady_weights(graph)
        array([0.])
    """
    working = steps_with_work(graph)
    names = [name for name in step_names(graph) if name in working]
    counted = set(names[1:] if len(names) > 2 else names)
    counts = [step.name in counted and step.end_ns > step.begin_ns for step in graph.steps]
    return np.array(counts, np.float64) / max(sum(counts), 1)


def steps_with_work(graph: ExecutionGraph) -> set[str]:
    """Names of the iterations that take time, and launch device work if any does."""
    launched = graph.step[(graph.kind >= TaskKind.KERNEL) & (graph.step >= 0)]
    busy = {graph.steps[i].name for i in np.unique(launched).tolist()}
    timed = {step.name for step in graph.steps if step.end_ns > step.begin_ns}
    return timed & busy if busy else timed


def replayed_span_us(timeline: Timeline, step: Step) -> tuple[float, float]:
    """Begin and end of an iteration in a timeline."""
    return float(timeline.start_us[step.begin_task]), float(timeline.end_us[step.end_task])


def compare_steps(steps: tuple[Step, ...], replayed: Timeline) -> tuple[TimeComparison, ...]:
    """Each iteration measured and replayed, averaged over the ranks that have it."""
    rows: dict[str, list[tuple[float, float]]] = {}
    for step in steps:
        begin, end = replayed_span_us(replayed, step)
        measured = (step.end_ns - step.begin_ns) / 1e3
        # An empty step has nothing in it that could take time.
        rows.setdefault(step.name, []).append((measured, end - begin if measured else 0.0))
    return tuple(
        TimeComparison(name, *np.mean(times, axis=0).tolist()) for name, times in rows.items()
    )


def compare_windows(measured: Timeline, replayed: Timeline) -> TimeComparison:
    """First start to last end of all tasks."""
    spans = [
        float(timeline.end_us.max() - timeline.start_us.min()) for timeline in (measured, replayed)
    ]
    return TimeComparison("window", *spans)


def mean_abs_error_percent(comparisons: tuple[TimeComparison, ...]) -> float:
    """Mean size of the errors that are known; NaN where none is."""
    errors = np.abs([comparison.error_percent for comparison in comparisons])
    known = errors[~np.isnan(errors)]
    return float(known.mean()) if len(known) else float("nan")


def step_breakdowns(
    graph: ExecutionGraph, steps: tuple[Step, ...], measured: Timeline, replayed: Timeline
) -> tuple[StepBreakdown, ...]:
    """Breakdown of each iteration of each rank that has device work.

    Args:
        graph: the execution graph.
        steps: the iterations to look at; those that take no time are left out.
        measured: as measured.
        replayed: as replayed.

    Returns:
        One for each rank and iteration, rank after rank; for a rank without iterations that of its
        window.
    """
    found = []
    for index, rank in enumerate(graph.ranks):
        before = device_activity(graph, measured, rank)
        after = device_activity(graph, replayed, rank)
        if before is None or after is None:
            continue
        mine = [step for step in steps if step.rank == rank and step.end_ns > step.begin_ns]
        for step in mine:
            span = before.between(step.begin_ns / 1e3, step.end_ns / 1e3)
            again = after.between(*replayed_span_us(replayed, step))
            found.append(StepBreakdown(rank, step.name, span, again))
        if not mine:
            tasks = graph.trace == index
            span = before.between(*_window_us(measured, tasks))
            again = after.between(*_window_us(replayed, tasks))
            found.append(StepBreakdown(rank, None, span, again))
    return tuple(found)


def steady_breakdown(graph: ExecutionGraph, timeline: Timeline) -> Breakdown | None:
    """Where the time of a rank's steady step goes, averaged over ranks.

    Args:
        graph: the execution graph.
        timeline: when its tasks start and end.

    Returns:
        The mean over the iterations that `steady_weights` counts, of a rank without any that of its
        window; `None` where there is no device work.
    """
    counted = [
        step for step, weight in zip(graph.steps, steady_weights(graph), strict=True) if weight > 0
    ]
    found = []
    for index, rank in enumerate(graph.ranks):
        activity = device_activity(graph, timeline, rank)
        if activity is None:
            continue
        spans = [replayed_span_us(timeline, step) for step in counted if step.rank == rank]
        spans = spans or [_window_us(timeline, graph.trace == index)]
        found.append(mean_breakdown([activity.between(*span) for span in spans]))
    return mean_breakdown(found) if found else None


def _window_us(timeline: Timeline, tasks: np.ndarray) -> tuple[float, float]:
    return float(timeline.start_us[tasks].min()), float(timeline.end_us[tasks].max())


def rank_breakdowns(
    breakdowns: tuple[StepBreakdown, ...],
) -> tuple[tuple[int, Breakdown, Breakdown], ...]:
    """Mean breakdown of each rank over its iterations: (rank, measured, replayed)."""
    of_rank: dict[int, list[StepBreakdown]] = {}
    for breakdown in breakdowns:
        of_rank.setdefault(breakdown.rank, []).append(breakdown)
    return tuple(
        (
            rank,
            mean_breakdown([breakdown.measured for breakdown in mine]),
            mean_breakdown([breakdown.replayed for breakdown in mine]),
        )
        for rank, mine in of_rank.items()
    )
