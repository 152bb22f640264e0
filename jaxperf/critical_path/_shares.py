"""What classes, ranks, tasks and groups of ranks have to do with the step."""

from dataclasses import dataclass

import numpy as np

from jaxperf.critical_path._meetings import Meetings
from jaxperf.graph import ExecutionGraph, TaskClass, TaskKind
from jaxperf.replay import Sensitivities, sum_by_class, sum_by_rank


@dataclass(frozen=True, slots=True)
class ClassShare:
    """What one class of tasks has to do with the step; `gap` is time between tasks.

    Attributes:
        task_class: name of the class.
        critical_us: its time on the critical path, per step.
        sensitivity_us: step time for 100 % of its time: a hundred times what one percent gains.
    """

    task_class: str
    critical_us: float
    sensitivity_us: float


@dataclass(frozen=True, slots=True)
class RankShare:
    """What one rank has to do with the step.

    Attributes:
        rank: the rank.
        critical_us, sensitivity_us: see `ClassShare`.
        slack_us: by how much it could come later to any one of its collectives before the step is
            longer; NaN where it meets nobody.
        waited_us: how long it waits for others at collectives, per step.
        caused_us: how long others wait for it, all together.
    """

    rank: int
    critical_us: float
    sensitivity_us: float
    slack_us: float
    waited_us: float
    caused_us: float


@dataclass(frozen=True, slots=True)
class TaskShare:
    """What the tasks of one name have to do with the step.

    Attributes:
        name: their name.
        task_class: name of their class.
        rank: the one rank on which they are critical; `None` where several or none are.
        count: how many there are, per step and over all ranks.
        critical_us, sensitivity_us: see `ClassShare`.
        slack_us: by how much any one of them could be longer before the step is.
    """

    name: str
    task_class: str
    rank: int | None
    count: float
    critical_us: float
    sensitivity_us: float
    slack_us: float


@dataclass(frozen=True, slots=True)
class GroupShare:
    """What the ranks that exchange with each other have to do with the step.

    Attributes:
        ranks: the members.
        count: collectives, or sends with their receives, per step.
        wait_us: how long members wait for the last, all together, per step.
        transfer_us: how long their transfers take, per step and member.
        sensitivity_us: of the transfers, see `ClassShare`.
    """

    ranks: tuple[int, ...]
    count: float
    wait_us: float
    transfer_us: float
    sensitivity_us: float


@dataclass(frozen=True, slots=True)
class Wait:
    """How long one rank waits for another, the last to come to a collective, per step."""

    rank: int
    for_rank: int
    wait_us: float


@dataclass(frozen=True, eq=False)
class Looked:
    """What the shares are taken of.

    Attributes:
        graph: the execution graph.
        slopes: the gradient of the step.
        task_us: (tasks,) time on the critical path, per step.
        lag_us: (dependencies,) the same of lags.
        slack_us: (tasks,) of `slack_us`.
        counts: (tasks,) bool, whether a task belongs to a step that is looked at.
        steps: how many steps are looked at.
        meetings: where ranks wait for each other.
    """

    graph: ExecutionGraph
    slopes: Sensitivities
    task_us: np.ndarray
    lag_us: np.ndarray
    slack_us: np.ndarray
    counts: np.ndarray
    steps: int
    meetings: Meetings


def shares_by_class(looked: Looked) -> tuple[ClassShare, ...]:
    """One for each class that is critical or that the step depends on, the longest first."""
    critical = sum_by_class(looked.graph, looked.task_us, looked.lag_us)
    slope = sum_by_class(looked.graph, looked.slopes.task_us, looked.slopes.dependency_us)
    rows = [
        ClassShare(name, critical.get(name, 0.0), slope.get(name, 0.0))
        for name in {**critical, **slope}
    ]
    return tuple(sorted(rows, key=lambda row: (-row.critical_us, -row.sensitivity_us)))


def shares_by_rank(looked: Looked) -> tuple[RankShare, ...]:
    """One for each rank, in order."""
    graph = looked.graph
    critical = sum_by_rank(graph, looked.task_us, looked.lag_us)
    slope = sum_by_rank(graph, looked.slopes.task_us, looked.slopes.dependency_us)
    slack = np.full(len(graph.ranks), np.inf)
    comes = looked.counts & (graph.kind == TaskKind.ARRIVAL)
    np.minimum.at(slack, graph.trace[comes], looked.slack_us[comes])
    waits = _wait_matrix_us(looked)
    return tuple(
        RankShare(
            rank,
            critical[rank],
            slope[rank],
            float(slack[i]) if np.isfinite(slack[i]) else float("nan"),
            float(waits[i].sum()),
            float(waits[:, i].sum()),
        )
        for i, rank in enumerate(graph.ranks)
    )


def shares_by_task(looked: Looked) -> tuple[TaskShare, ...]:
    """One for each name and class, the longest on the critical path first."""
    graph = looked.graph
    pair = graph.name.astype(np.int64) * len(TaskClass) + graph.task_class
    present = looked.counts | (looked.task_us != 0) | (looked.slopes.task != 0)
    pairs, place = np.unique(pair[present], return_inverse=True)

    def total(values: np.ndarray) -> np.ndarray:
        return np.bincount(place, values[present], len(pairs))

    count = total(looked.counts.astype(float)) / looked.steps
    critical, slope = total(looked.task_us), total(looked.slopes.task_us)
    slack = np.full(len(pairs), np.inf)
    np.minimum.at(slack, place, looked.slack_us[present])
    first, last = np.full(len(pairs), len(graph.ranks)), np.full(len(pairs), -1)
    on_path = looked.task_us[present] > 0
    np.minimum.at(first, place[on_path], graph.trace[present][on_path])
    np.maximum.at(last, place[on_path], graph.trace[present][on_path])
    return tuple(
        TaskShare(
            graph.names[pairs[i] // len(TaskClass)],
            TaskClass(pairs[i] % len(TaskClass)).name.lower(),
            graph.ranks[first[i]] if first[i] == last[i] else None,
            float(count[i]),
            float(critical[i]),
            float(slope[i]),
            float(slack[i]),
        )
        for i in np.lexsort((slack, -slope, -critical))
    )


def shares_by_group(looked: Looked) -> tuple[GroupShare, ...]:
    """One for each set of ranks that meet, the longest wait first."""
    graph, meetings = looked.graph, looked.meetings
    counts = looked.counts[meetings.transfer]
    transfer, group = meetings.transfer[counts], meetings.group[counts]
    size = np.array([len(ranks) for ranks in meetings.groups])

    def per_step(values: np.ndarray | None) -> np.ndarray:
        return np.bincount(group, values, len(size)) / looked.steps

    parts, wait = per_step(None), per_step(meetings.wait_us[counts])
    took = per_step(graph.duration_ns[transfer] / 1e3)
    slope = np.bincount(meetings.group, looked.slopes.task_us[meetings.transfer], len(size))
    return tuple(
        GroupShare(
            meetings.groups[i],
            float(parts[i] / size[i]),
            float(wait[i]),
            float(took[i] / size[i]),
            float(slope[i]),
        )
        for i in np.argsort(-wait, kind="stable")
        if parts[i]
    )


def waits_by_pair(looked: Looked) -> tuple[Wait, ...]:
    """Who waits for whom, the longest first."""
    waits = _wait_matrix_us(looked)
    rows, columns = np.nonzero(waits)
    order = np.argsort(-waits[rows, columns], kind="stable")
    ranks = looked.graph.ranks
    return tuple(
        Wait(ranks[i], ranks[j], float(waits[i, j]))
        for i, j in zip(rows[order].tolist(), columns[order].tolist(), strict=True)
    )


def _wait_matrix_us(looked: Looked) -> np.ndarray:
    """(ranks, ranks) how long one waits for the other, per step."""
    meetings, graph = looked.meetings, looked.graph
    counts = looked.counts[meetings.transfer]
    shape = len(graph.ranks), len(graph.ranks)
    pair = graph.trace[meetings.transfer[counts]], meetings.last[counts]
    waits = np.bincount(
        np.ravel_multi_index(pair, shape), meetings.wait_us[counts], shape[0] * shape[1]
    )
    return waits.reshape(shape) / looked.steps
