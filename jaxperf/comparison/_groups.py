"""Tasks of one name to which the same happened, and what they take in both runs."""

from dataclasses import dataclass

import numpy as np

from jaxperf.comparison._align import Alignment, Side
from jaxperf.comparison._traits import NAME, plain_name
from jaxperf.comparison._types import Change, ChangeKind, Coverage
from jaxperf.graph import TaskClass

_SAME, _REPLACED, _MOVED, _REORDERED, _REMOVED, _ADDED = range(6)
_KINDS = {
    _REPLACED: ChangeKind.REPLACED,
    _MOVED: ChangeKind.MOVED,
    _REORDERED: ChangeKind.REORDERED,
    _REMOVED: ChangeKind.REMOVED,
    _ADDED: ChangeKind.ADDED,
}


@dataclass(frozen=True, eq=False)
class Groups:
    """The tasks of A, and behind them the tasks that were added, by what happened to them.

    Attributes:
        group: (tasks of A + added,) int64.
        task_a, task_b: (same,) int64, the task of each run; -1 for none.
        part: (same,) int64, the repetition of A.
        first: (groups,) int64, a row of each group.
        fate: (groups,) int64, what happened.
    """

    group: np.ndarray
    task_a: np.ndarray
    task_b: np.ndarray
    part: np.ndarray
    first: np.ndarray
    fate: np.ndarray

    @property
    def count(self) -> int:
        """Number of groups."""
        return len(self.first)


def group_tasks(a: Side, b: Side, aligned: Alignment) -> Groups:
    """Group tasks by what happened to them, their names, and their class.

    Args:
        a, b: the runs.
        aligned: their tasks.

    Returns:
        The groups; -1 for tasks in a repetition without counterpart.
    """
    none = np.full(len(aligned.added), -1)
    task_a = np.concatenate([np.arange(a.graph.tasks), none])
    task_b = np.concatenate([aligned.partner, aligned.added])
    part = np.concatenate([a.repeated.part, aligned.added_part])
    name_a = np.where(task_a >= 0, a.traits.values[NAME, task_a], -1)
    name_b = np.where(task_b >= 0, b.traits.values[NAME, task_b], -1)
    fate = np.where(name_a == name_b, _SAME, _REPLACED)
    for chosen, what in ((aligned.reordered, _REORDERED), (aligned.moved, _MOVED)):
        fate[: a.graph.tasks][chosen] = what
    fate[task_b < 0], fate[task_a < 0] = _REMOVED, _ADDED
    kind = np.where(task_a >= 0, a.graph.task_class[task_a], b.graph.task_class[task_b])
    rows = np.stack([fate, name_a, name_b, kind])
    _, first, group = np.unique(rows, axis=1, return_index=True, return_inverse=True)
    group = np.where(np.isin(part, list(aligned.part)), group.reshape(-1), -1)
    return Groups(group, task_a, task_b, part, first, fate[first])


def changes_of(a: Side, b: Side, groups: Groups, critical_us: np.ndarray) -> tuple[Change, ...]:
    """What differs by name, the largest effect on the step first.

    Args:
        a, b: the runs.
        groups: the groups.
        critical_us: (groups,) what each alone adds to the step.

    Returns:
        The groups whose tasks differ in a repetition that counts.
    """
    spread = _spread_us(a, b, groups)
    taken_a, taken_b = (_times_us(x.graph.duration_ns, t) for x, t in _tasks(a, b, groups))
    counts, share = _steady_rows(a, groups)
    sums = [
        np.bincount(groups.group[counts], column[counts], groups.count) / share
        for column in (groups.task_a >= 0, groups.task_b >= 0, taken_a, taken_b)
    ]
    found = []
    for g in range(groups.count):
        count_a, count_b, a_us, b_us = (float(column[g]) for column in sums)
        same = groups.fate[g] == _SAME
        if (count_a or count_b) and not (same and a_us == b_us and critical_us[g] == 0):
            within = None if np.isnan(spread[g]) else bool(abs(b_us - a_us) <= spread[g])
            numbers = count_a, count_b, a_us, b_us, float(critical_us[g]), within
            found.append(_change(a, b, groups, g, numbers))
    size = [max(abs(c.critical_us), abs(c.difference_us) * 1e-6) for c in found]
    return tuple(found[i] for i in np.argsort(-np.array(size), kind="stable"))


def _change(a: Side, b: Side, groups: Groups, g: int, numbers: tuple) -> Change:
    task_a, task_b = (int(x[groups.first[g]]) for x in (groups.task_a, groups.task_b))
    side, task = (a, task_a) if task_a >= 0 else (b, task_b)
    fate = int(groups.fate[g])
    slower = ChangeKind.SLOWER if numbers[3] > numbers[2] else ChangeKind.QUICKER
    kind = _KINDS.get(fate, slower if numbers[3] != numbers[2] else ChangeKind.SAME)
    replaced = task_a >= 0 and task_b >= 0 and fate == _REPLACED
    lanes = _moved_lanes(a, b, task_a, task_b) if fate == _MOVED else (None, None)
    return Change(
        kind,
        plain_name(side.graph.names[side.graph.name[task]]),
        plain_name(b.graph.names[b.graph.name[task_b]]) if replaced else None,
        TaskClass(side.graph.task_class[task]),
        bool(side.traits.on_device[task]),
        *lanes,
        *numbers,
    )


def _moved_lanes(a: Side, b: Side, task_a: int, task_b: int) -> tuple[str, str]:
    """Names of the two lanes: the streams, or the threads that launch where these differ."""
    pair = a.graph.lanes[a.graph.lane[task_a]].name, b.graph.lanes[b.graph.lane[task_b]].name
    calls = int(a.traits.launcher[task_a]), int(b.traits.launcher[task_b])
    if pair[0] != pair[1] or min(calls) < 0:
        return pair
    return a.graph.lanes[a.graph.lane[calls[0]]].name, b.graph.lanes[b.graph.lane[calls[1]]].name


def _tasks(a: Side, b: Side, groups: Groups):
    return (a, groups.task_a), (b, groups.task_b)


def _times_us(duration_ns: np.ndarray, task: np.ndarray) -> np.ndarray:
    return np.where(task >= 0, duration_ns[task], 0) / 1e3


def _steady_rows(a: Side, groups: Groups) -> tuple[np.ndarray, int]:
    """(rows,) bool, in a repetition that counts; and how many of these there are on all ranks."""
    counts = np.isin(groups.part, a.repeated.steady) & (groups.group >= 0)
    return counts, len(a.repeated.steady) * len(a.graph.ranks)


def _spread_us(a: Side, b: Side, groups: Groups) -> np.ndarray:
    """(groups,) the larger deviation of either run's repetitions; NaN of less than two."""
    steady = a.repeated.steady
    if len(steady) < 2:
        return np.full(groups.count, np.nan)
    spread = np.zeros(groups.count)
    place = np.searchsorted(steady, groups.part)
    counts, _ = _steady_rows(a, groups)
    flat = groups.group[counts] * len(steady) + place[counts]
    for side, task in _tasks(a, b, groups):
        taken = _times_us(side.graph.duration_ns, task)[counts]
        sums = np.bincount(flat, taken, groups.count * len(steady)).reshape(-1, len(steady))
        spread = np.maximum(spread, np.std(sums / len(a.graph.ranks), axis=1, ddof=1))
    return spread


def coverage(a: Side, b: Side, groups: Groups, on_device: bool) -> Coverage:
    """How many tasks of the repetitions that count found their counterpart.

    Args:
        a, b: the runs.
        groups: the groups.
        on_device: of device work, or of host work.

    Returns:
        The coverage, per step and rank.
    """
    device_a, device_b = (x.traits.on_device[t] for x, t in _tasks(a, b, groups))
    device = np.where(groups.task_a >= 0, device_a, device_b)
    counts, share = _steady_rows(a, groups)
    fate = groups.fate[groups.group[counts & (device == on_device)]]
    total = np.bincount(fate, minlength=len(_KINDS) + 1) / share
    same = float(total[[_SAME, _MOVED, _REORDERED]].sum())
    return Coverage(same, float(total[_REPLACED]), float(total[_REMOVED]), float(total[_ADDED]))
