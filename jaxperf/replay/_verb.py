"""The verb: replay a run, and compare it with what was measured."""

import os
from collections.abc import Callable, Sequence

import numpy as np

from jaxperf.compiled import compile_program
from jaxperf.errors import ConfigError
from jaxperf.graph import KERNEL_CLASSES, ExecutionGraph, KernelClasses, TaskKind, build_graph
from jaxperf.replay._breakdown import mean_breakdown
from jaxperf.replay._compare import (
    choose_steps,
    compare_steps,
    compare_windows,
    mean_abs_error_percent,
    measured_timeline,
    rank_breakdowns,
    replayed_span_us,
    step_breakdowns,
    step_names,
    steps_with_work,
)
from jaxperf.replay._critical import (
    binding_dependencies,
    critical_path_us_by_class,
    path_to,
)
from jaxperf.replay._hold_out import held_out
from jaxperf.replay._notes import replay_notes
from jaxperf.replay._types import HoldOut, RankSummary, Replay, Timeline
from jaxperf.trace import Note, Run, read_run

BASELINES = ("dpro",)

_NO_OTHERS = Note(
    "hold-out-needs-steps",
    "no step was held out: one is told by the others, which takes two or more with work in them",
)


def replay(
    paths: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
    *,
    step: str | int | None = None,
    hold_out: bool = False,
    baseline: str | None = None,
    classes: KernelClasses | str | os.PathLike[str] = KERNEL_CLASSES,
    progress: Callable[[int, int], None] | None = None,
) -> Replay:
    """Replay the traces of a run, all ranks together, and compare with what was measured.

    Args:
        paths: a trace file, a folder of one run's traces, or several of either.
        step: look at one iteration only: its name, or its place (0 the first, -1 the last).
        hold_out: also replay each iteration with durations taken from the others.
        baseline: `dpro` leaves out the dependencies between streams, as earlier replayers did.
        classes: which class a kernel belongs to; see `build_graph`.
        progress: called with the number of files read so far, and of all files.

    Returns:
        The replayed timeline beside the measured one.

    Raises:
        TraceError: the paths hold no trace that can be read.
        GraphError: the traces hold nothing that can be replayed.
        ConfigError: there is no such step or baseline.

    Example:
        >>> import tempfile
        >>> from jaxperf.simulator import SimulatedJob, simulate, write_traces
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     paths = write_traces(simulate(SimulatedJob(layers=1)), folder)
        ...     result = replay(paths)
        >>> result.mean_abs_error_percent < 1.0
        True
    """
    if baseline not in (None, *BASELINES):
        raise ConfigError("no such baseline", where="baseline", got=str(baseline), expected="dpro")
    run = read_run(paths, progress=progress)
    graph = build_graph(run, between_streams=baseline is None, classes=classes)
    steps = choose_steps(graph, step)
    measured, replayed = measured_timeline(graph), replay_graph(graph)
    binding = binding_dependencies(graph, replayed.start_us)
    compared = compare_steps(steps, replayed)
    window = compare_windows(measured, replayed)
    late_us = np.abs(replayed.start_us - measured.start_us)
    by_step = step_breakdowns(graph, steps, measured, replayed)
    breakdowns = rank_breakdowns(by_step)
    told = hold_out_of(run, graph, steps) if hold_out else None
    few = (_NO_OTHERS,) if hold_out and told is None else ()
    return Replay(
        graph=graph,
        measured=measured,
        replayed=replayed,
        binding=binding,
        ranks=tuple(_summary(run, graph, index) for index in range(len(run.traces))),
        window=window,
        steps=compared,
        mean_abs_error_percent=mean_abs_error_percent(compared or (window,)),
        task_start_error_median_us=float(np.median(late_us)),
        task_start_error_p95_us=float(np.quantile(late_us, 0.95)),
        breakdown_measured=mean_breakdown([row[1] for row in breakdowns]) if breakdowns else None,
        breakdown_replayed=mean_breakdown([row[2] for row in breakdowns]) if breakdowns else None,
        step_breakdowns=by_step,
        rank_breakdowns=breakdowns,
        critical_path_us=_critical_path_us(graph, replayed, binding, steps, step is not None),
        hold_out=told,
        notes=(*graph.notes, *replay_notes(run, graph), *few),
        critical_path_step=steps[0].name if steps and step is not None else None,
    )


def replay_graph(
    graph: ExecutionGraph,
    durations_us: np.ndarray | None = None,
    lags_us: np.ndarray | None = None,
) -> Timeline:
    """When every task of a graph starts and ends, in double precision.

    Args:
        graph: the execution graph.
        durations_us: (tasks,) instead of the graph's own.
        lags_us: (dependencies,) instead of the graph's own.

    Returns:
        The timeline.

    Raises:
        ProgramError: the graph is no valid program.
    """
    return _timelines(graph, [(durations_us, lags_us)])[0]


def _timelines(graph: ExecutionGraph, changes: list) -> list[Timeline]:
    """The timelines of one graph under several durations and lags."""
    from jaxperf.replay._precision import double_precision
    from jaxperf.replay._times import start_times_us

    program = compile_program(graph)
    found = []
    with double_precision():
        for durations_us, lags_us in changes:
            duration = graph.duration_ns / 1e3 if durations_us is None else durations_us
            start = np.asarray(start_times_us(program, duration, lags_us))
            found.append(Timeline(start, start + duration))
    return found


def _summary(run: Run, graph: ExecutionGraph, index: int) -> RankSummary:
    trace = run.traces[index]
    works = (graph.kind >= TaskKind.KERNEL) & (graph.kind <= TaskKind.COLLECTIVE)
    on_device = works & (graph.trace == index)
    return RankSummary(
        trace.rank,
        trace.files,
        trace.device_name,
        trace.events,
        int(on_device.sum()),
        graph.clocks[index],
    )


def _critical_path_us(
    graph: ExecutionGraph, replayed: Timeline, binding: np.ndarray, steps: tuple, one: bool
) -> dict[str, float]:
    """Time by class on the path that bounds the window; of one step, on the path to its end."""
    if not one or not steps:
        last = int(np.argmax(replayed.end_us))
        path = path_to(graph, replayed, binding, last)
        return critical_path_us_by_class(graph, path)
    longest = max(steps, key=lambda step: float(np.diff(replayed_span_us(replayed, step))[0]))
    begin, _ = replayed_span_us(replayed, longest)
    path = path_to(graph, replayed, binding, longest.end_task)
    return critical_path_us_by_class(graph, path, since_us=begin)


def hold_out_of(run: Run, graph: ExecutionGraph, steps: tuple) -> HoldOut | None:
    """Each step replayed with what the others say; the first, which warms up, is not counted."""
    shapes = np.full(graph.tasks, -1, np.int64)
    for index, trace in enumerate(run.traces):
        mine = (graph.trace == index) & (graph.event >= 0)
        shapes[mine] = trace.shape[graph.event[mine]]
    names = step_names(graph)
    wanted = steps_with_work(graph) & {step.name for step in steps}
    changes = list(held_out(graph, shapes, wanted))
    if not changes:
        return None
    timelines = _timelines(graph, [(duration / 1e3, lag / 1e3) for _, duration, lag in changes])
    compared = []
    for (name, _, _), timeline in zip(changes, timelines, strict=True):
        compared += compare_steps(tuple(s for s in graph.steps if s.name == name), timeline)
    steady = tuple(c for c in compared if c.name != names[0] or len(compared) < 3)
    return HoldOut(tuple(compared), mean_abs_error_percent(steady))
