"""What traces say of the cost of work: measured times of different pieces of work, run by run."""

from collections.abc import Callable
from dataclasses import dataclass

import jax.numpy as jnp
import numpy as np
from jax import Array

from jaxperf.compiled import Program, compile_program
from jaxperf.config import Hardware
from jaxperf.cost import Work, distinct_work, known_work, select_work, task_work
from jaxperf.graph import ExecutionGraph, TaskClass, TaskKind
from jaxperf.replay import (
    communication_overlap_us,
    measured_timeline,
    steady_weights,
    step_names,
    step_times_us,
)
from jaxperf.trace import Note, Run

_OVERLAPPED = 0.05
"""A kernel that shares more of its time with communication may be slower for it."""


@dataclass(frozen=True, eq=False)
class RunWork:
    """The different pieces of work of one run, with their measured times.

    Attributes:
        graph: the execution graph.
        program: the same, compiled.
        hardware: the machine.
        work: (w) pieces of work that the model knows.
        task_class: (w,) class of each.
        time_us: (w,) mean over its tasks in the steps that may be learnt from; NaN where none is.
        held_out_us: (w,) mean over those in the steps held out; NaN where none is.
        task: (t,) tasks that do known work.
        of_task: (t,) which work each does.
        notes: what was set aside.
    """

    graph: ExecutionGraph
    program: Program
    hardware: Hardware
    work: Work
    time_us: np.ndarray
    held_out_us: np.ndarray
    task: np.ndarray
    of_task: np.ndarray
    notes: tuple[Note, ...]


def run_work(
    run: Run, graph: ExecutionGraph, hardware: Hardware, *, hold_out_step: bool
) -> RunWork:
    """The pieces of work of one run.

    Kernels that overlap with communication, and collectives whose waiting for other ranks is part
    of their time, tell nothing and are set aside.

    Args:
        run, graph: the run.
        hardware: the machine.
        hold_out_step: keep the last step for the test.

    Returns:
        The work and its times.
    """
    work = task_work(graph, run)
    timeline = measured_timeline(graph)
    duration_us = graph.duration_ns / 1e3
    known = known_work(work) & (duration_us > 0)
    waits = (graph.kind == TaskKind.COLLECTIVE) & (graph.arrival < 0)
    overlap = communication_overlap_us(graph, timeline) > _OVERLAPPED * duration_us
    overlap &= graph.task_class != TaskClass.COMMUNICATION
    task = np.flatnonzero(known & ~waits)
    first, of_task = distinct_work(work, task)
    clean = ~overlap[task]
    held = _in_last_step(graph)[task] if hold_out_step else np.zeros(len(task), bool)
    return RunWork(
        graph=graph,
        program=compile_program(graph),
        hardware=hardware,
        work=select_work(work, task[first]),
        time_us=_means(duration_us[task], of_task, clean & ~held, len(first)),
        held_out_us=_means(duration_us[task], of_task, clean & held, len(first)),
        task=task,
        of_task=of_task,
        notes=_notes(graph, known, waits, overlap),
    )


def replayed_step(
    run: RunWork, modelled: np.ndarray | None = None, *, hold_out_step: bool = False
) -> tuple[Callable[[Array], Array], float] | None:
    """The steady step as a function of modelled times, and as measured.

    Args:
        run: of `run_work`.
        modelled: (w,) bool, work that takes its modelled time; that of the others, as of tasks
            whose work is unknown, is as measured. By default all of it.
        hold_out_step: leave the last step out.

    Returns:
        From (w,) times of all works to the step in us; and the measured step. `None` where the run
        has no step to count.
    """
    graph = run.graph
    weights = steady_weights(graph)
    if hold_out_step and len(step_names(graph)) > 1:
        last = np.array([step.name == step_names(graph)[-1] for step in graph.steps])
        weights = np.where(last, 0.0, weights)
        weights /= max(weights.sum(), 1e-300)
    if not weights.any():
        return None
    duration_us = graph.duration_ns / 1e3
    measured = [(step.end_ns - step.begin_ns) / 1e3 for step in graph.steps]
    counts = np.full(len(run.task), True) if modelled is None else modelled[run.of_task]
    task, of_task = run.task[counts], run.of_task[counts]

    def step_us(time_us: Array) -> Array:
        durations = jnp.asarray(duration_us).at[task].set(time_us[of_task])
        return jnp.asarray(weights) @ step_times_us(run.program, durations)

    return step_us, float(weights @ np.array(measured))


def _in_last_step(graph: ExecutionGraph) -> np.ndarray:
    """(tasks,) bool, in the last of at least two steps."""
    names = step_names(graph)
    if len(names) < 2:
        return np.zeros(graph.tasks, bool)
    last = np.array([step.name == names[-1] for step in graph.steps])
    return (graph.step >= 0) & last[graph.step]


def _means(values: np.ndarray, group: np.ndarray, taken: np.ndarray, groups: int) -> np.ndarray:
    count = np.bincount(group[taken], minlength=groups)
    total = np.bincount(group[taken], values[taken], groups)
    return np.where(count > 0, total / np.maximum(count, 1), np.nan)


def _notes(graph, known, waits, overlap) -> tuple[Note, ...]:
    device = (graph.kind >= TaskKind.KERNEL) & (graph.kind <= TaskKind.COLLECTIVE)
    unknown = device & ~known
    total_ns = max(graph.duration_ns[device].sum(), 1)
    said = [
        (unknown, "work-unknown", "do work that the trace does not tell"),
        (known & waits, "waits-not-fitted", "may wait for ranks that were not recorded"),
        (known & overlap, "overlap-not-fitted", "run beside communication"),
    ]
    notes = []
    for which, code, text in said:
        if which.any():
            percent = 100 * graph.duration_ns[which].sum() / total_ns
            count = f"{int(which.sum())} device tasks ({percent:.1f} % of the device's time)"
            notes.append(Note(code, f"{count} {text}: nothing is fitted to them"))
    return tuple(notes)
