"""Where the time of a rank goes: computing, communicating, copying, or nothing."""

from dataclasses import dataclass

import numpy as np

from jaxperf.graph import ExecutionGraph, TaskClass, TaskKind
from jaxperf.replay._types import Breakdown, Timeline

_COMPUTE, _COMMUNICATION, _MEMORY = range(3)
# What is going on, by which of the three kinds of work run: a bit each.
_STATES = 8
COMMUNICATING = np.arange(_STATES) >> _COMMUNICATION & 1 == 1
"""(8,) bool, the states in which a rank communicates."""


@dataclass(frozen=True, eq=False)
class DeviceActivity:
    """What the devices of one rank do over time, ready to be summed over any span.

    Attributes:
        moment_us: (m,) float64, increasing; between two moments nothing starts or ends.
        elapsed_us: (m, 8) float64, time spent so far in each state: bit 0 computing, bit 1
            communicating, bit 2 copying or setting memory.
    """

    moment_us: np.ndarray
    elapsed_us: np.ndarray

    def between(self, begin_us: float, end_us: float) -> Breakdown:
        """The breakdown of a span.

        Args:
            begin_us: its start.
            end_us: its end.

        Returns:
            The times, which add up to the span.
        """
        spent = self._at(end_us) - self._at(begin_us)
        total = end_us - begin_us
        computing = np.arange(_STATES) >> _COMPUTE & 1 == 1
        compute = float(spent[computing & ~COMMUNICATING].sum())
        overlap = float(spent[computing & COMMUNICATING].sum())
        exposed = float(spent[~computing & COMMUNICATING].sum())
        memory = float(spent[1 << _MEMORY])
        idle = total - compute - overlap - exposed - memory
        return Breakdown(compute, overlap, exposed, memory, idle, total)

    def _at(self, time_us: float) -> np.ndarray:
        """Time spent in each state up to a moment."""
        k = int(np.searchsorted(self.moment_us, time_us, side="right")) - 1
        if k < 0:
            return np.zeros(_STATES)
        if k == len(self.moment_us) - 1:
            return self.elapsed_us[k]
        part = (time_us - self.moment_us[k]) / (self.moment_us[k + 1] - self.moment_us[k])
        return self.elapsed_us[k] + part * (self.elapsed_us[k + 1] - self.elapsed_us[k])


def device_activity(graph: ExecutionGraph, timeline: Timeline, rank: int) -> DeviceActivity | None:
    """What the devices of one rank do over time.

    Args:
        graph: the execution graph.
        timeline: when its tasks start and end.
        rank: the rank.

    Returns:
        The activity, `None` where the rank has no device work.
    """
    tasks = np.flatnonzero(
        (graph.kind >= TaskKind.KERNEL)
        & (graph.kind <= TaskKind.COLLECTIVE)
        & (graph.trace == graph.ranks.index(rank))
    )
    if not len(tasks):
        return None
    kind = np.full(len(tasks), _COMPUTE)
    kind[graph.task_class[tasks] == TaskClass.COMMUNICATION] = _COMMUNICATION
    kind[graph.task_class[tasks] == TaskClass.MEMCPY] = _MEMORY
    return _activity(*on_device_us(graph, timeline, tasks), kind)


def communication_overlap_us(graph: ExecutionGraph, timeline: Timeline) -> np.ndarray:
    """How long each task runs at the same time as communication of its rank.

    Args:
        graph: the execution graph.
        timeline: when its tasks start and end.

    Returns:
        (tasks,) float64.
    """
    overlap = np.zeros(graph.tasks)
    for index, rank in enumerate(graph.ranks):
        activity = device_activity(graph, timeline, rank)
        if activity is None:
            continue
        spent = activity.elapsed_us[:, COMMUNICATING].sum(1)
        mine = graph.trace == index
        at_end, at_start = (
            np.interp(time[mine], activity.moment_us, spent)
            for time in (timeline.end_us, timeline.start_us)
        )
        overlap[mine] = at_end - at_start
    return overlap


def on_device_us(
    graph: ExecutionGraph, timeline: Timeline, tasks: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """(k,) begin and (k,) end of device work; a collective is there from its rank's arrival on."""
    begins = np.where(graph.arrival[tasks] >= 0, graph.arrival[tasks], tasks)
    return timeline.start_us[begins], timeline.end_us[tasks]


def _activity(start_us: np.ndarray, end_us: np.ndarray, kind: np.ndarray) -> DeviceActivity:
    moment = np.concatenate([start_us, end_us])
    change = np.zeros((len(moment), 3), np.int64)
    change[np.arange(len(moment)), np.concatenate([kind, kind])] = np.repeat([1, -1], len(start_us))
    order = np.argsort(moment, kind="stable")
    running = np.cumsum(change[order], axis=0) > 0
    last = np.append(np.diff(moment[order]) > 0, True)
    moment, running = moment[order][last], running[last]
    state = running @ np.array([1, 2, 4])
    spent = np.zeros((len(moment), _STATES))
    spent[np.arange(1, len(moment)), state[:-1]] = np.diff(moment)
    spent[:, 0] = 0.0
    return DeviceActivity(moment, np.cumsum(spent, axis=0))


def mean_breakdown(breakdowns: list[Breakdown]) -> Breakdown:
    """The mean of several breakdowns, field by field."""
    rows = [
        (
            b.compute_us,
            b.overlap_us,
            b.exposed_communication_us,
            b.memory_us,
            b.idle_us,
            b.total_us,
        )
        for b in breakdowns
    ]
    return Breakdown(*np.mean(rows, axis=0).tolist())
