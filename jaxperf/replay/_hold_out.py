"""Durations of one step from the other steps: what replay can claim on what it has not seen."""

import re
from collections.abc import Iterator, Set

import numpy as np

from jaxperf.graph import ExecutionGraph, TaskKind
from jaxperf.replay._compare import step_names

_STEPS = 2
"""With fewer steps there is nothing to learn from."""


def held_out(
    graph: ExecutionGraph, shapes: np.ndarray, wanted: Set[str]
) -> Iterator[tuple[str, np.ndarray, np.ndarray]]:
    """For each wanted step in turn, durations and lags that use nothing measured in that step.

    A task takes the duration that the same task has in the middle step of the others, by length: a
    step's waits lie now here, now there, and belong together. Where that step lacks the task, it
    takes the mean over the tasks of the other steps that are most alike: at the same place of
    lanes that run the same sequence of tasks, between the same neighbours, of the same name and
    shape, of the same name, of the same kind. A start's own, unexplained delay is treated as its
    task's duration is, and is nothing where no other step has the task.

    Args:
        graph: the execution graph.
        shapes: (tasks,) int64, equal for tasks of the same shape.
        wanted: names of the steps to leave out, each alone.

    Yields:
        Name of the step, (tasks,) durations in ns, and (dependencies,) lags in ns.
    """
    names = step_names(graph)
    if len(names) < _STEPS:
        return
    of_step = np.array([names.index(step.name) for step in graph.steps])
    step = np.where(graph.step >= 0, of_step[graph.step], -1)
    keys = _keys(graph, step, len(names), _names_without_number(graph), shapes)
    # The first step warms up: where there are enough others nothing is learnt from it.
    warm = step != 0 if len(names) > _STEPS else np.ones(graph.tasks, bool)
    length_ns = [
        float(np.mean([s.end_ns - s.begin_ns for s in graph.steps if s.name == name]))
        for name in names
    ]
    for left_out, name in enumerate(names):
        if name not in wanted:
            continue
        inside = step == left_out
        known = (step >= 0) & ~inside & warm
        middle = step == _middle_step(length_ns, left_out)
        duration = _mean_of_same(graph.duration_ns, keys, known, inside, middle)
        own = np.zeros(len(graph.lag_ns))
        for kind in np.unique(graph.dependency[graph.unexplained_ns != 0]).tolist():
            edges = np.flatnonzero(graph.dependency == kind)
            target = graph.target[edges]
            own[edges] = _mean_of_same(
                graph.unexplained_ns[edges],
                [key[target] for key in keys[:3]],
                known[target],
                inside[target],
                middle[target],
            )
        changed = inside[graph.target]
        lag = np.where(changed, graph.lag_ns - graph.unexplained_ns + own, graph.lag_ns)
        yield name, np.where(inside, duration, graph.duration_ns), lag


def same_task_keys(graph: ExecutionGraph, shapes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """What makes two tasks of different steps the same: their place, else their occurrence.

    Args:
        graph: the execution graph.
        shapes: (tasks,) int64, equal for tasks of the same shape.

    Returns:
        (tasks,) equal numbers at the same place of steps that repeat, -1 elsewhere; and (tasks,)
        equal numbers for the n-th of a name and shape between the same neighbours.
    """
    names = step_names(graph)
    of_step = np.array([names.index(step.name) for step in graph.steps], np.int64)
    step = np.where(graph.step >= 0, of_step[graph.step], -1) if names else graph.step
    keys = _keys(graph, step, max(len(names), 1), _names_without_number(graph), shapes)
    return keys[0], keys[1]


def _middle_step(length_ns: list[float], left_out: int) -> int:
    """Of the steps that may be learnt from the one of median length."""
    first = 1 if len(length_ns) > _STEPS else 0
    others = [i for i in range(first, len(length_ns)) if i != left_out]
    return sorted(others, key=lambda i: length_ns[i])[(len(others) - 1) // 2]


def _names_without_number(graph: ExecutionGraph) -> np.ndarray:
    """(tasks,) int64, a number for each name; `ProfilerStep#5` is the same name as `#6`."""
    plain: dict[str, int] = {}
    table = [plain.setdefault(re.sub(r"#\d+", "#", name), len(plain)) for name in graph.names]
    return np.array(table, np.int64)[graph.name]


def _places(graph: ExecutionGraph, step: np.ndarray, steps: int, name: np.ndarray) -> np.ndarray:
    """(tasks,) equal numbers for tasks at the same place of steps that repeat; -1 for others."""
    place = np.full(graph.tasks, -1, np.int64)
    next_place = 0
    order = np.lexsort((np.arange(graph.tasks), step, graph.lane))
    order = order[step[order] >= 0]
    lane_step = graph.lane[order].astype(np.int64) * steps + step[order]
    bounds = np.flatnonzero(np.diff(lane_step)) + 1
    groups: dict[tuple[int, bytes], list[np.ndarray]] = {}
    for part in np.split(order, bounds):
        if len(part):
            content = name[part] * len(TaskKind) + graph.kind[part]
            groups.setdefault((int(graph.lane[part[0]]), content.tobytes()), []).append(part)
    for parts in groups.values():
        if len(parts) > 1:
            for part in parts:
                place[part] = next_place + np.arange(len(part))
            next_place += len(parts[0])
    return place


def _keys(
    graph: ExecutionGraph, step: np.ndarray, steps: int, name: np.ndarray, shapes: np.ndarray
) -> list[np.ndarray]:
    """From the closest to the widest, what makes two tasks alike; -1 where it does not apply."""
    kinds = len(TaskKind)
    named = name * kinds + graph.kind
    shaped = named * (int(shapes.max(initial=0)) + 2) + shapes + 1
    # Host work between two calls is told by its neighbours.
    same_before = np.append(False, graph.lane[1:] == graph.lane[:-1])
    before = np.where(same_before, np.append(0, named[:-1]), -1)
    after = np.where(np.append(same_before[1:], False), np.append(named[1:], 0), -1)
    context = _numbered(graph.lane.astype(np.int64), shaped, before, after)
    occurrence = _numbered(context, _index_in_run(context, step))
    return [
        _places(graph, step, steps, name),
        occurrence,
        context,
        shaped,
        named,
        graph.kind.astype(np.int64),
    ]


def _numbered(*columns: np.ndarray) -> np.ndarray:
    """One number for each different row of the columns."""
    number = columns[0]
    for column in columns[1:]:
        _, dense = np.unique(column, return_inverse=True)
        _, number = np.unique(
            number.astype(np.int64) * (int(dense.max(initial=0)) + 1) + dense, return_inverse=True
        )
    return number


def _index_in_run(group: np.ndarray, step: np.ndarray) -> np.ndarray:
    """How often each task's group came before it in its step."""
    order = np.lexsort((np.arange(len(group)), step, group))
    first = np.append(True, (np.diff(group[order]) != 0) | (np.diff(step[order]) != 0))
    begin = np.maximum.accumulate(np.where(first, np.arange(len(order)), 0))
    index = np.empty(len(group), np.int64)
    index[order] = np.arange(len(order)) - begin
    return index


def _trimmed_means(group: np.ndarray, values: np.ndarray) -> np.ndarray:
    """Mean of each group; of three values and more without the least and the greatest."""
    count, total = np.bincount(group), np.bincount(group, values)
    least, greatest = np.full(len(count), np.inf), np.full(len(count), -np.inf)
    np.minimum.at(least, group, values)
    np.maximum.at(greatest, group, values)
    trimmed = (total - least - greatest) / np.maximum(count - 2, 1)
    return np.where(count > 2, trimmed, total / count)


def _mean_of_same(
    values: np.ndarray,
    keys: list[np.ndarray],
    known: np.ndarray,
    wanted: np.ndarray,
    middle: np.ndarray,
) -> np.ndarray:
    """The value of the same task of the middle step, else the mean of known values most alike.

    Values that nothing is like are 0. Of the keys, the first two tell the same task.
    """
    result = np.zeros(len(values))
    missing = wanted.copy()
    for key, taken in [*((key, middle) for key in keys[:2]), *((key, known) for key in keys)]:
        if not missing.any():
            break
        usable = taken & (key >= 0)
        found, group = np.unique(key[usable], return_inverse=True)
        if not len(found):
            continue
        mean = _trimmed_means(group, values[usable])
        at = np.minimum(np.searchsorted(found, key), len(found) - 1)
        hit = missing & (key >= 0) & (found[at] == key)
        result[hit] = mean[at[hit]]
        missing &= ~hit
    return result
