"""Rows that a recorded run is made to fetch: tasks and dependencies put into its graph."""

from dataclasses import replace

import numpy as np

from jaxperf.embedding.training._recorded import EmbeddingRole
from jaxperf.graph import DependencyKind, ExecutionGraph, GraphLane, TaskClass, TaskKind
from jaxperf.trace import MISSING

TableStep = tuple[np.ndarray, np.ndarray]
"""Lookups and updates of a step of a rank, in order of their launches."""


def table_steps(graph: ExecutionGraph, role: np.ndarray, rank: int) -> list[TableStep]:
    """The steps of a rank, in order; of a run without steps all tasks together.

    Args:
        graph: the execution graph.
        role: (tasks,) an `EmbeddingRole`.
        rank: index of the rank.

    Returns:
        Those that have lookups or updates.
    """
    of_tables = (role == EmbeddingRole.LOOKUP) | (role == EmbeddingRole.UPDATE)
    tasks = np.flatnonzero(of_tables & (graph.trace == rank))
    if graph.steps:
        tasks = tasks[graph.step[tasks] >= 0]
    tasks = tasks[np.argsort(graph.order[tasks], kind="stable")]
    steps = [tasks[graph.step[tasks] == each] for each in np.unique(graph.step[tasks])]
    lookup = EmbeddingRole.LOOKUP
    return [(each[role[each] == lookup], each[role[each] != lookup]) for each in steps]


class Fetches:
    """Collects tasks that fetch rows, and what they wait for.

    Attributes:
        graph: that they are put into.
        times_us: of each task.
    """

    def __init__(self, graph: ExecutionGraph) -> None:
        self.graph = graph
        self.times_us: list[float] = []
        self._lanes = list(graph.lanes)
        self._tasks: list[tuple[int, int, int, int]] = []
        self._links: list[tuple[int, int, int, bool, int]] = []

    def add_beside(self, rank: int, steps: list[TableStep], time_us: float) -> None:
        """Fetch the rows of each next batch on a stream of their own.

        It begins when the update of the step before has ended, the first with its step, and the
        update of the step waits for it; lookups stand for updates where none were found.
        """
        graph, lane, before = self.graph, self._new_lane(rank), None
        for lookups, updates in steps:
            last = updates if len(updates) else lookups
            first = int(last[0])
            release = MISSING
            if before is None and graph.step[first] < 0:
                release = int(graph.start_ns.min())
            task = self._add(rank, lane, first, release, time_us)
            if before is not None:
                self._link(before, task)
            elif graph.step[first] >= 0:
                self._link(graph.steps[graph.step[first]].begin_task, task, from_start=True)
            self._link(task, first)
            before = int(last[-1])

    def add_before_lookups(self, rank: int, steps: list[TableStep], time_us: float) -> None:
        """Fetch the rows of each step before its first lookup: when that could have begun."""
        graph = self.graph
        for lookups, updates in steps:
            first = int(lookups[0] if len(lookups) else updates[0])
            release = int(graph.release_ns[first])
            task = self._add(rank, int(graph.lane[first]), first, release, time_us)
            for edge in np.flatnonzero(graph.target == first).tolist():
                source, lag_ns = int(graph.source[edge]), int(graph.lag_ns[edge])
                row = (bool(graph.from_start[edge]), int(graph.dependency[edge]))
                self._links.append((source, task, lag_ns, *row))
            self._link(task, first)

    def join(self) -> ExecutionGraph:
        """The graph with all of them; each is ordered just before what waits for it."""
        graph, more = self.graph, len(self._tasks)
        rank, lane, place, release = np.array(self._tasks).T
        source, target, lag_ns, from_start, dependency = np.array(self._links).T

        def longer(column: np.ndarray, values) -> np.ndarray:
            return np.concatenate([column, np.broadcast_to(values, more).astype(column.dtype)])

        def linked(column: np.ndarray, values: np.ndarray) -> np.ndarray:
            return np.concatenate([column, values.astype(column.dtype)])

        return replace(
            graph,
            names=(*graph.names, "fetch rows"),
            lanes=tuple(self._lanes),
            name=longer(graph.name, len(graph.names)),
            lane=longer(graph.lane, lane),
            kind=longer(graph.kind, TaskKind.MEMCPY),
            task_class=longer(graph.task_class, TaskClass.MEMCPY),
            trace=longer(graph.trace, rank),
            event=longer(graph.event, -1),
            start_ns=longer(graph.start_ns, 0),
            end_ns=longer(graph.end_ns, 0),
            duration_ns=longer(graph.duration_ns, np.rint(np.array(self.times_us) * 1e3)),
            release_ns=longer(graph.release_ns, release),
            order=np.concatenate([2 * graph.order, 2 * graph.order[place] - 1]),
            source=linked(graph.source, source),
            target=linked(graph.target, target),
            lag_ns=linked(graph.lag_ns, lag_ns),
            unexplained_ns=linked(graph.unexplained_ns, np.zeros(len(source))),
            from_start=linked(graph.from_start, from_start),
            dependency=linked(graph.dependency, dependency),
            step=longer(graph.step, graph.step[place]),
            arrival=longer(graph.arrival, -1),
            sm_share=longer(graph.sm_share, np.nan),
        )

    def _add(self, rank: int, lane: int, before: int, release: int, time_us: float) -> int:
        self._tasks.append((rank, lane, before, release))
        self.times_us.append(time_us)
        return self.graph.tasks + len(self._tasks) - 1

    def _link(self, source: int, target: int, from_start: bool = False) -> None:
        self._links.append((source, target, 0, from_start, DependencyKind.EVENT_WAIT))

    def _new_lane(self, rank: int) -> int:
        number = self.graph.ranks[rank]
        streams = [each for each in self.graph.lanes if each.is_stream and each.rank == number]
        last = max(streams, key=lambda each: (each.device, each.stream))
        self._lanes.append(GraphLane(number, "fetched rows", last.device, last.stream + 1))
        return len(self._lanes) - 1
