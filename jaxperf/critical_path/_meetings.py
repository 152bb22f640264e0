"""Where ranks wait for each other: the collectives, sends and receives that they have in common."""

from dataclasses import dataclass

import numpy as np

from jaxperf.graph import DependencyKind, ExecutionGraph, TaskKind
from jaxperf.replay import Timeline


@dataclass(frozen=True, eq=False)
class Meetings:
    """Collectives that wait for their last member, one row for each member's part.

    Attributes:
        transfer: (p,) int64, the task that follows the wait.
        meeting: (p,) int64, the number of the collective, from 0.
        group: (p,) int64, index into `groups`.
        groups: the ranks that meet.
        wait_us: (p,) float64, from the arrival of the member to that of the last.
        last: (p,) int64, index of the rank that came last, into the graph's `ranks`.
    """

    transfer: np.ndarray
    meeting: np.ndarray
    group: np.ndarray
    groups: tuple[tuple[int, ...], ...]
    wait_us: np.ndarray
    last: np.ndarray


def find_meetings(graph: ExecutionGraph, timeline: Timeline) -> Meetings:
    """The collectives of a graph that ranks have in common, and who waits for whom.

    Args:
        graph: the execution graph.
        timeline: when its tasks start and end.

    Returns:
        One row for each part; none where ranks have nothing in common.

    Example:
        >>> timeline = Timeline(np.array([0.0, 4.0, 15.0]), np.array([6.0, 14.0, 17.0]))
        >>> len(find_meetings(graph, timeline).transfer)  # of one rank alone
        0
    """
    transfer = np.flatnonzero(graph.arrival >= 0)
    arrival = graph.arrival[transfer]
    joins = np.flatnonzero(
        (graph.dependency == DependencyKind.RENDEZVOUS)
        & (graph.kind[graph.source] == TaskKind.ARRIVAL)
    )
    # One member's transfer waits for every arrival: it stands for the collective.
    stands_for_all = np.full(graph.tasks, -1, np.int64)
    stands_for_all[graph.source[joins]] = graph.target[joins]
    _, meeting = np.unique(stands_for_all[arrival], return_inverse=True)
    came_us = timeline.start_us[arrival]
    by_time = np.lexsort((came_us, meeting))
    closes = np.append(np.diff(meeting[by_time]) != 0, True)[: len(by_time)]
    last_part = by_time[closes][meeting]
    index, groups = _groups(graph, transfer, meeting)
    return Meetings(
        transfer,
        meeting,
        index[meeting],
        groups,
        came_us[last_part] - came_us,
        graph.trace[transfer][last_part].astype(np.int64),
    )


def _groups(
    graph: ExecutionGraph, transfer: np.ndarray, meeting: np.ndarray
) -> tuple[np.ndarray, tuple[tuple[int, ...], ...]]:
    """(meetings,) index of the ranks that meet, and their table."""
    members: list[list[int]] = [[] for _ in range(int(meeting.max(initial=-1)) + 1)]
    ranks = np.array(graph.ranks)[graph.trace[transfer]]
    for rank, number in zip(ranks.tolist(), meeting.tolist(), strict=True):
        members[number].append(rank)
    table: dict[tuple[int, ...], int] = {}
    index = [table.setdefault(tuple(sorted(ranks)), len(table)) for ranks in members]
    return np.array(index, np.int64), tuple(table)
