"""What each change costs: run A replayed with what tasks and dependencies take in run B."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from jaxperf.comparison._align import Alignment, Side
from jaxperf.compiled import compile_program
from jaxperf.graph import DependencyKind, ExecutionGraph, TaskClass, TaskKind

# Numbers in the arrays of one batch of scenarios.
_BATCH = 1 << 21
_WIDEST = 32


@dataclass(frozen=True, eq=False)
class Deltas:
    """What is added to durations or lags of run A so that they are those of run B.

    Attributes:
        at: (k,) int64, task or dependency.
        delta_us: (k,) float64.
        task_class: (k,) int64, the class that it counts with.
        group: (k,) int64, the change that it counts with; -1 for none.
    """

    at: np.ndarray
    delta_us: np.ndarray
    task_class: np.ndarray
    group: np.ndarray


def duration_deltas(a: Side, b: Side, aligned: Alignment, group: np.ndarray) -> Deltas:
    """Durations: those of partners, none for what was removed, and what was added on top.

    Added work takes its own time and the gap before it, behind the task that it follows. A silence
    of a thread, between its calls, that only one run has stays as it is in A, and so does host work
    at a hand-over that only one run has: in the other run the same silence was read as a wait.

    Args:
        a, b: the runs.
        aligned: their tasks.
        group: (tasks of A + added,) int64, the change of each; -1 for none.

    Returns:
        The differences.
    """
    handed_a, handed_b = _at_hand_over(a.graph), _at_hand_over(b.graph)
    known = np.where(
        aligned.partner >= 0, handed_a == handed_b[aligned.partner], ~silences(a.graph)
    )
    tasks = np.flatnonzero(_in_counterpart(a, aligned) & known)
    again = tasks[aligned.partner[tasks] >= 0]
    partner = aligned.partner[again]
    placed = np.flatnonzero((aligned.behind >= 0) & ~silences(b.graph)[aligned.added])
    added = aligned.added[placed]
    gap_us = np.zeros(b.graph.tasks)
    follows = _follows(b)
    gap_us[b.graph.target[follows]] = b.graph.lag_ns[follows] / 1e3
    slot_us = np.maximum(b.graph.duration_ns[added] / 1e3 + gap_us[added], 0.0)
    class_b = b.graph.task_class[np.concatenate([partner, added])]
    # Away with what it takes in A, then what it takes in B: the class may be another.
    return Deltas(
        np.concatenate([tasks, again, aligned.behind[placed]]),
        np.concatenate(
            [-a.graph.duration_ns[tasks] / 1e3, b.graph.duration_ns[partner] / 1e3, slot_us]
        ),
        np.concatenate([a.graph.task_class[tasks], class_b]).astype(np.int64),
        np.concatenate([group[tasks], group[again], group[a.graph.tasks + placed]]),
    )


def lag_deltas(a: Side, b: Side, aligned: Alignment, group: np.ndarray) -> Deltas:
    """Lags: those of the same dependencies, and no gap before what was removed.

    Launches count as the class of launches, other lags as that of the task that waits.

    Args:
        a, b: the runs.
        aligned: their tasks.
        group: (tasks of A + added,) int64, the change of each; -1 for none.

    Returns:
        The differences.
    """
    edges, others = _same_dependencies(a, b, aligned)
    delta = np.zeros(len(a.graph.lag_ns))
    delta[edges] = b.graph.lag_ns[others] - a.graph.lag_ns[edges]
    removed = _in_counterpart(a, aligned) & (aligned.partner < 0)
    gaps = _follows(a) & removed[a.graph.target]
    delta[gaps] = -np.maximum(a.graph.lag_ns[gaps], 0)
    changed = np.flatnonzero(delta)
    target = a.graph.target[changed]
    launches = a.graph.dependency[changed] == DependencyKind.LAUNCH
    return Deltas(
        changed,
        delta[changed] / 1e3,
        np.where(launches, TaskClass.LAUNCH, a.graph.task_class[target]).astype(np.int64),
        np.where(removed[target], group[target], -1),
    )


def silences(graph: ExecutionGraph) -> np.ndarray:
    """(tasks,) bool, host work between calls, of which no event tells."""
    return (graph.kind == TaskKind.HOST_WORK) & (graph.event < 0)


def _at_hand_over(graph: ExecutionGraph) -> np.ndarray:
    """(tasks,) bool, host work that waits for another thread, or before such work."""
    waits = np.zeros(graph.tasks, bool)
    waits[graph.target[graph.dependency == DependencyKind.HAND_OVER]] = True
    follows = graph.dependency == DependencyKind.THREAD_ORDER
    follows &= waits[graph.target]
    waits[graph.source[follows]] = True
    return waits


def _in_counterpart(a: Side, aligned: Alignment) -> np.ndarray:
    """(tasks of A,) bool, in a repetition that run B has as well."""
    return np.isin(a.repeated.part, list(aligned.part))


def _follows(side: Side) -> np.ndarray:
    """(dependencies,) bool, on what is ahead in the same stream."""
    return side.graph.dependency == DependencyKind.STREAM_ORDER


def _same_dependencies(a: Side, b: Side, aligned: Alignment) -> tuple[np.ndarray, np.ndarray]:
    """Dependencies of A and of B of one kind between partners, or onto them if it is the only."""
    target, source = aligned.partner[a.graph.target], aligned.partner[a.graph.source]
    kinds = 2 * len(DependencyKind)

    def kind_of(side):
        return side.graph.dependency.astype(np.int64) * 2 + side.graph.from_start

    known = np.flatnonzero(target >= 0)
    onto_a = target[known] * kinds + kind_of(a)[known]
    onto_b = b.graph.target.astype(np.int64) * kinds + kind_of(b)
    found = _look_up(
        np.where(source[known] >= 0, onto_a * b.graph.tasks + source[known], -1),
        onto_b * b.graph.tasks + b.graph.source,
    )
    own_a = a.graph.target[known].astype(np.int64) * kinds + kind_of(a)[known]
    alone = _once(own_a)
    only = np.where(_once(onto_b), onto_b, -2)
    found = np.where(found < 0, _look_up(np.where(alone, onto_a, -1), only), found)
    return known[found >= 0], found[found >= 0]


def _look_up(wanted: np.ndarray, table: np.ndarray) -> np.ndarray:
    """(wanted,) int64, a place in the table that holds each number; -1 where none does."""
    if not len(table):
        return np.full(len(wanted), -1, np.int64)
    order = np.argsort(table, kind="stable")
    at = np.minimum(np.searchsorted(table[order], wanted), len(table) - 1)
    return np.where(table[order][at] == wanted, order[at], -1)


def _once(values: np.ndarray) -> np.ndarray:
    """(n,) bool, whether each value occurs no other time."""
    _, number, count = np.unique(values, return_inverse=True, return_counts=True)
    return count[number] == 1


def prices_us(
    a: Side, durations: Deltas, lags: Deltas, groups: int
) -> tuple[float, np.ndarray, np.ndarray]:
    """By how much the mean step of A grows: with all differences, with each class's, each change's.

    Args:
        a: run A.
        durations, lags: the differences.
        groups: number of changes.

    Returns:
        With all; (classes,) with those of each class alone; (groups,) of each change alone.
    """
    classes = len(TaskClass)
    scenarios = 2 + classes + groups  # as it is, all, classes, changes
    both = [_columns(deltas, classes) for deltas in (durations, lags)]
    steps = [
        a.repeated.replayed_us(start, end).mean(0) for start, end in _replays(a, both, scenarios)
    ]
    grown = np.concatenate(steps)[:scenarios]
    grown = grown[1:] - grown[0]
    return float(grown[0]), grown[1 : classes + 1], grown[classes + 1 :]


def _columns(deltas: Deltas, classes: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Scenario, place and amount of each difference, in order of scenarios."""
    named = np.flatnonzero(deltas.group >= 0)
    every = np.arange(len(deltas.at))
    column = np.concatenate(
        [np.ones(len(every), np.int64), 2 + deltas.task_class, 2 + classes + deltas.group[named]]
    )
    place = np.concatenate([every, every, named])
    order = np.argsort(column, kind="stable")
    return column[order], deltas.at[place[order]], deltas.delta_us[place[order]]


def _replays(a: Side, columns: list, scenarios: int) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Starts and ends (tasks, scenarios) of a few scenarios at a time."""
    from jaxperf.replay import double_precision, start_times_us

    graph = a.graph
    program = compile_program(graph)
    own = graph.duration_ns / 1e3, graph.lag_ns / 1e3
    width = min(max(_BATCH // max(graph.tasks, len(own[1]), 1), 1), _WIDEST)
    with double_precision():
        for first in range(0, scenarios, width):
            changed = []
            for values, (column, place, delta_us) in zip(own, columns, strict=True):
                batch = np.repeat(values[:, np.newaxis], width, 1)
                low, high = np.searchsorted(column, [first, first + width])
                at = place[low:high], column[low:high] - first
                np.add.at(batch, at, delta_us[low:high])
                changed.append(batch)
            # Times of many decimals do not cancel to the last bit.
            duration_us = np.maximum(changed[0], 0.0)
            start_us = np.asarray(start_times_us(program, duration_us, changed[1]))
            yield start_us, start_us + duration_us
