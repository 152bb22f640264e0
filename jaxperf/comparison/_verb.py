"""The verb: what changed from one run to another, and what it cost."""

import os
from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from jaxperf.comparison._align import Side, align_runs
from jaxperf.comparison._groups import changes_of, coverage, group_tasks
from jaxperf.comparison._price import duration_deltas, lag_deltas, prices_us
from jaxperf.comparison._repetitions import WINDOW, launchers, repetitions
from jaxperf.comparison._traits import Numbers, task_traits
from jaxperf.comparison._types import Baseline, ClassDifference, Comparison
from jaxperf.errors import ConfigError
from jaxperf.graph import (
    KERNEL_CLASSES,
    DependencyKind,
    ExecutionGraph,
    KernelClasses,
    TaskClass,
    build_graph,
)
from jaxperf.replay import (
    Breakdown,
    device_activity,
    mean_breakdown,
    measured_timeline,
    replay_graph,
    replay_notes,
)
from jaxperf.trace import Note, Run, read_run

PathLike = str | os.PathLike[str]

# With less of the device work matched, what is said of single changes says little.
_POOR_PERCENT = 70.0


def compare(
    a: PathLike | Sequence[PathLike],
    b: PathLike | Sequence[PathLike],
    *,
    step: str | int | None = None,
    classes: KernelClasses | str | os.PathLike[str] = KERNEL_CLASSES,
    progress: Callable[[int, int], None] | None = None,
) -> Comparison:
    """What changed from run A to run B, task by task and class by class, and what it cost.

    Args:
        a, b: a trace file, a folder of one run's traces, or several of either, each.
        step: look at one iteration only: its name, or its place (0 the first, -1 the last).
        classes: which class a kernel belongs to; see `build_graph`.
        progress: called with the number of files read so far, and of all files, of each run.

    Returns:
        The comparison.

    Raises:
        TraceError: the paths hold no trace that can be read.
        GraphError: the traces hold nothing that can be replayed.
        ConfigError: there is no such step, or the runs have different ranks.

    Example:
        >>> import tempfile
        >>> from jaxperf.simulator import SimulatedJob, simulate, write_traces
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     paths = write_traces(simulate(SimulatedJob(layers=1)), folder)
        ...     result = compare(paths, paths)
        >>> result.difference_us, result.identical
        (0.0, True)
    """
    runs = [read_run(paths, progress=progress) for paths in (a, b)]
    graphs = [build_graph(run, classes=classes) for run in runs]
    _check_ranks(*graphs)
    sides = _sides(runs, graphs, step)
    side_a, side_b = sides
    baselines = [_baseline(run, side) for run, side in zip(runs, sides, strict=True)]
    aligned = align_runs(side_a, side_b)
    groups = group_tasks(side_a, side_b, aligned)
    deltas = (
        duration_deltas(side_a, side_b, aligned, groups.group),
        lag_deltas(side_a, side_b, aligned, groups.group),
    )
    explained_us, class_us, group_us = prices_us(side_a, *deltas, groups.count)
    found = Comparison(
        a=baselines[0],
        b=baselines[1],
        within_variation=_within_variation(*baselines),
        explained_us=explained_us,
        by_class=_by_class(side_a, side_b, class_us),
        changes=changes_of(side_a, side_b, groups, group_us),
        device=coverage(side_a, side_b, groups, on_device=True),
        host=coverage(side_a, side_b, groups, on_device=False),
        notes=(),
    )
    unplaced = aligned.added[aligned.behind < 0]
    notes = [*_of_run("A", runs[0], graphs[0]), *_of_run("B", runs[1], graphs[1])]
    return replace(found, notes=(*notes, *_notes(found, unplaced, side_b)))


def _check_ranks(a: ExecutionGraph, b: ExecutionGraph) -> None:
    if a.ranks != b.ranks and (len(a.ranks), len(b.ranks)) != (1, 1):
        raise ConfigError(
            "the runs have different ranks",
            where="compare",
            got=f"{_listed(a.ranks)} in A and {_listed(b.ranks)} in B",
            expected="the same ranks in both, or one in each",
        )


def _listed(ranks: tuple[int, ...]) -> str:
    return ", ".join(map(str, ranks[:8])) + (", ..." if len(ranks) > 8 else "")


def _sides(runs: list[Run], graphs: list[ExecutionGraph], step: str | int | None) -> list[Side]:
    """Both runs with what repeats in both; where that differs, their windows."""
    numbers = Numbers()
    found = []
    for run, graph in zip(runs, graphs, strict=True):
        launcher = launchers(run, graph)
        repeated = repetitions(graph, measured_timeline(graph), launcher, step)
        found.append(Side(graph, task_traits(run, graph, launcher, numbers), repeated))
    if len({side.repeated.unit for side in found}) == 1:
        return found
    return [
        replace(
            side,
            repeated=repetitions(
                side.graph, measured_timeline(side.graph), side.traits.launcher, unit=WINDOW
            ),
        )
        for side in found
    ]


def _baseline(run: Run, side: Side) -> Baseline:
    timeline = replay_graph(side.graph)
    measured = side.repeated.measured_us()
    replayed = side.repeated.replayed_us(timeline.start_us, timeline.end_us)
    devices = dict.fromkeys(trace.device_name for trace in run.traces if trace.device_name)
    return Baseline(
        unit=side.repeated.unit,
        devices=tuple(devices),
        names=tuple(side.repeated.names[part] for part in side.repeated.steady),
        step_us=float(measured.mean()),
        replayed_us=float(replayed.mean()),
        spread_us=float(measured.std(ddof=1)) if len(measured) > 1 else float("nan"),
        breakdown=_breakdown(side),
        dependencies=_dependencies(side),
    )


def _breakdown(side: Side) -> Breakdown | None:
    """Mean over ranks and the repetitions that count, as measured."""
    found = []
    for index, rank in enumerate(side.graph.ranks):
        activity = device_activity(side.graph, measured_timeline(side.graph), rank)
        if activity is not None:
            found += [
                activity.between(*span.measured_us)
                for span in side.repeated.spans
                if span.rank == index and span.part in side.repeated.steady
            ]
    return mean_breakdown(found) if found else None


def _steady(side: Side) -> np.ndarray:
    """(tasks,) bool, in a repetition that counts."""
    return np.isin(side.repeated.part, side.repeated.steady)


def _dependencies(side: Side) -> dict[str, float]:
    counts = np.bincount(
        side.graph.dependency[_steady(side)[side.graph.target]], minlength=len(DependencyKind)
    )
    share = len(side.repeated.steady) * len(side.graph.ranks)
    return {
        kind.name.lower(): float(counts[kind]) / share for kind in DependencyKind if counts[kind]
    }


def _within_variation(a: Baseline, b: Baseline) -> bool | None:
    difference_us = abs(b.step_us - a.step_us)
    spreads = [one.spread_us for one in (a, b) if not np.isnan(one.spread_us)]
    if difference_us == 0:
        return True
    return bool(difference_us <= max(spreads)) if spreads else None


def _by_class(a: Side, b: Side, critical_us: np.ndarray) -> tuple[ClassDifference, ...]:
    sums = []
    for side in (a, b):
        steady = _steady(side)
        taken = np.bincount(
            side.graph.task_class[steady], side.graph.duration_ns[steady] / 1e3, len(TaskClass)
        )
        sums.append(taken / (len(side.repeated.steady) * len(side.graph.ranks)))
    rows = [
        ClassDifference(kind, float(sums[0][kind]), float(sums[1][kind]), float(critical_us[kind]))
        for kind in TaskClass
        if sums[0][kind] or sums[1][kind]
    ]
    return tuple(sorted(rows, key=lambda row: -max(row.a_us, row.b_us)))


def _of_run(word: str, run: Run, graph: ExecutionGraph) -> list[Note]:
    """The notes of one run, saying of which."""
    notes = [*graph.notes, *replay_notes(run, graph)]
    return [replace(note, where=note.where or word) for note in dict.fromkeys(notes)]


def _notes(found: Comparison, unplaced: np.ndarray, b: Side) -> list[Note]:
    """What the comparison takes for granted."""
    notes = []
    if set(found.a.devices) != set(found.b.devices):
        words = [", ".join(one.devices) or "an unnamed device" for one in (found.a, found.b)]
        notes.append(Note("devices-differ", f"A ran on {words[0]}, B on {words[1]}"))
    if found.a.unit == WINDOW:
        notes.append(
            Note("no-common-steps", "no steps are marked in both runs: whole captures are compared")
        )
    matched = found.device.matched_percent
    if matched < _POOR_PERCENT:
        text = (
            f"only {matched:.0f} % of the device work of a step has a counterpart in the other run"
        )
        notes.append(Note("few-counterparts", text))
    if len(unplaced):
        time_us = b.graph.duration_ns[unplaced].sum() / 1e3
        text = f"{len(unplaced)} added tasks of {time_us:.0f} us have no place in run A's lanes"
        notes.append(Note("added-without-place", f"{text} and are not priced"))
    return notes
