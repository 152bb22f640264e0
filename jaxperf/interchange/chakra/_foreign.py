"""Chakra execution traces of other tools as an execution graph.

A node waits for the nodes it depends on, and has no lag. Device nodes of one stream and CPU nodes
of one thread run one after another; ranks meet in collectives, sends and receives.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from jaxperf.graph import (
    DependencyKind,
    ExecutionGraph,
    GraphLane,
    RankClock,
    TaskClass,
    TaskKind,
    classify_names,
)
from jaxperf.interchange.chakra._order import order_nodes
from jaxperf.interchange.chakra._rank import (
    COMMUNICATES,
    LONGEST_US,
    MOVES,
    ChakraRank,
    find_meetings,
    is_on_device,
    read_rank,
)
from jaxperf.interchange.chakra._schema import ChakraFile, ChakraNode
from jaxperf.trace import MISSING, Note

_NS_PER_US = 1000


def foreign_graph(files: Mapping[int, ChakraFile]) -> ExecutionGraph:
    """The graph of files that another tool wrote, one per rank.

    Args:
        files: by rank, ranks increasing.

    Returns:
        The graph.

    Raises:
        TraceError: see `read_chakra`.
    """
    ranks = [read_rank(rank, file) for rank, file in files.items()]
    meetings, unmatched = find_meetings(ranks)
    graph = _Builder(ranks, meetings, unmatched).graph()
    where = ", ".join(rank.path for rank in ranks[:2])
    name = lambda task: f"{graph.names[graph.name[task]]} of rank {graph.ranks[graph.trace[task]]}"
    order = order_nodes(graph.tasks, graph.source, graph.target, graph.order, where, name)
    graph.order[order] = np.arange(graph.tasks)
    return graph


@dataclass(eq=False)
class _Builder:
    """Tasks and dependencies of all ranks: nodes first, then each arrival."""

    ranks: list[ChakraRank]
    meetings: list[list[tuple[int, int]]]
    unmatched: int
    edges: dict[tuple[int, int], tuple[DependencyKind, bool]] = field(default_factory=dict)

    def graph(self) -> ExecutionGraph:
        """The graph; its order is a wish, not yet one that dependencies allow."""
        nodes = [node for rank in self.ranks for node in rank.nodes]
        first = np.cumsum([0, *(len(rank.nodes) for rank in self.ranks)])
        parts = [first[r] + i for meeting in self.meetings for r, i in meeting]
        arrival = np.full(len(nodes) + len(parts), -1, np.int32)
        arrival[parts] = len(nodes) + np.arange(len(parts))
        trace = np.repeat(np.arange(len(self.ranks)), np.diff(first))
        lanes: dict[GraphLane, int] = {}
        lane = [lanes.setdefault(each, len(lanes)) for rank in self.ranks for each in rank.lane]
        names: dict[str, int] = {}
        name = [names.setdefault(node.name, len(names)) for node in nodes]
        kind, task_class = _kinds(nodes, tuple(names), name)
        duration = np.array([node.duration_us for node in nodes], np.int64) * _NS_PER_US
        self._draw(first, lane, kind, arrival)
        for meeting in self.meetings:
            # All carry the data for as long as the last to come does; the others also waited.
            tasks = [first[r] + i for r, i in meeting]
            duration[tasks] = duration[tasks].min()
        start, end = self._measured(nodes)

        def with_arrivals(values: list | np.ndarray, kind: type) -> np.ndarray:
            column = np.array(values, kind)
            return np.concatenate([column, column[parts]]) if parts else column

        tasks = len(arrival)
        source, target = np.array(list(self.edges), np.int32).reshape(-1, 2).T
        reasons = list(self.edges.values())
        started = np.zeros(tasks, bool)
        started[target] = True
        start = with_arrivals(start, np.int64)
        release = np.where(started, MISSING, start)
        counted = np.concatenate([np.arange(len(rank.nodes)) for rank in self.ranks])
        return ExecutionGraph(
            ranks=tuple(rank.rank for rank in self.ranks),
            names=tuple(names),
            lanes=tuple(lanes),
            name=with_arrivals(name, np.int32),
            lane=with_arrivals(lane, np.int32),
            kind=np.append(kind, np.full(len(parts), TaskKind.ARRIVAL)).astype(np.int8),
            task_class=with_arrivals(task_class, np.int8),
            trace=with_arrivals(trace, np.int32),
            event=np.full(tasks, -1, np.int32),
            start_ns=start,
            end_ns=np.append(end, start[len(nodes) :]),
            duration_ns=np.append(duration, np.zeros(len(parts), np.int64)),
            release_ns=release,
            order=with_arrivals(counted, np.int64),
            source=source,
            target=target,
            lag_ns=np.zeros(len(source), np.int64),
            unexplained_ns=np.zeros(len(source), np.int64),
            from_start=np.array([each[1] for each in reasons], bool),
            dependency=np.array([each[0] for each in reasons], np.int8),
            step=np.full(tasks, -1, np.int32),
            arrival=arrival,
            sm_share=np.full(tasks, np.nan, np.float32),
            clocks=tuple(RankClock(rank.rank, np.nan, np.nan, np.nan) for rank in self.ranks),
            steps=(),
            notes=tuple(self._notes(nodes)),
        )

    def _draw(self, first: np.ndarray, lane: list[int], kind: np.ndarray, arrival: np.ndarray):
        """All dependencies: as written, by lane, and between ranks."""
        begins = np.where(arrival >= 0, arrival, np.arange(len(arrival))).tolist()
        last: dict[int, int] = {}
        for index, rank in enumerate(self.ranks):
            before = int(first[index])
            for source, target in zip(rank.source.tolist(), rank.target.tolist(), strict=True):
                source, target = before + source, before + target
                why = _reason(kind[source], kind[target], lane[source] == lane[target])
                self.edges[source, begins[target]] = (why, False)
            for task in range(before, before + len(rank.nodes)):
                ahead = last.get(lane[task])
                if ahead is not None:
                    why = _reason(kind[ahead], kind[task], True)
                    self.edges.setdefault((ahead, begins[task]), (why, False))
                last[lane[task]] = task
        for meeting in self.meetings:
            tasks = [int(first[r]) + i for r, i in meeting]
            for task in tasks:
                self.edges[int(arrival[task]), tasks[0]] = (DependencyKind.RENDEZVOUS, False)
            for task in tasks[1:]:
                self.edges[tasks[0], task] = (DependencyKind.RENDEZVOUS, True)

    def _measured(self, nodes: list[ChakraNode]) -> tuple[np.ndarray, np.ndarray]:
        """Start and end in nanoseconds from the first start of each rank, zeros where not told."""
        start = []
        for rank in self.ranks:
            told = np.array([node.start_us for node in rank.nodes], np.int64)
            start.append((told - told.min(initial=LONGEST_US)) * _NS_PER_US * rank.timed)
        starts = np.concatenate(start)
        timed = np.repeat([rank.timed for rank in self.ranks], [len(r.nodes) for r in self.ranks])
        lasts = np.array([node.duration_us for node in nodes], np.int64) * _NS_PER_US
        return starts, (starts + lasts) * timed

    def _notes(self, nodes: list[ChakraNode]) -> Iterable[Note]:
        where = self.ranks[0].path
        silent = sum(node.type in COMMUNICATES and not node.duration_us for node in nodes)
        dropped = sum(rank.dropped for rank in self.ranks)
        if silent:
            yield Note(
                "chakra-no-duration",
                f"{silent} nodes that communicate say no duration and take no time",
                where,
            )
        if self.unmatched:
            yield Note(
                "chakra-unmatched",
                f"{self.unmatched} nodes that communicate have no counterpart in the other files "
                "and wait for nobody",
                where,
            )
        if dropped:
            yield Note(
                "chakra-callers-missing",
                f"{dropped} control dependencies on nodes that are not in the file were left out",
                where,
            )


def _kinds(
    nodes: list[ChakraNode], names: tuple[str, ...], name: list[int]
) -> tuple[np.ndarray, np.ndarray]:
    """Kind and class of each node."""
    kind = [_kind(node) for node in nodes]
    of_name = np.array(classify_names(names))
    task_class = of_name[name]
    kinds = np.array(kind, np.int8)
    task_class[kinds == TaskKind.HOST_WORK] = TaskClass.HOST
    task_class[kinds == TaskKind.MEMCPY] = TaskClass.MEMCPY
    task_class[kinds == TaskKind.COLLECTIVE] = TaskClass.COMMUNICATION
    return kinds, task_class


def _kind(node: ChakraNode) -> TaskKind:
    if node.type in COMMUNICATES:
        return TaskKind.COLLECTIVE
    if node.type in MOVES:
        return TaskKind.MEMCPY
    return TaskKind.KERNEL if is_on_device(node) else TaskKind.HOST_WORK


def _reason(source: Any, target: Any, one_lane: bool) -> DependencyKind:
    host = (source == TaskKind.HOST_WORK, target == TaskKind.HOST_WORK)
    if host == (True, True):
        return DependencyKind.THREAD_ORDER if one_lane else DependencyKind.HAND_OVER
    if host == (True, False):
        return DependencyKind.LAUNCH
    if host == (False, True):
        return DependencyKind.HOST_SYNC
    return DependencyKind.STREAM_ORDER if one_lane else DependencyKind.EVENT_WAIT
