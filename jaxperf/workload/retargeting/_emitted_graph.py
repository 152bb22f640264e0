"""From the plans of ranks to an execution graph: the rules of threads, streams and rendezvous."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from itertools import zip_longest

import numpy as np

from jaxperf.cost import Work, unknown_work
from jaxperf.graph import (
    DependencyKind,
    ExecutionGraph,
    GraphLane,
    RankClock,
    Step,
    TaskClass,
    TaskKind,
)
from jaxperf.trace import MISSING
from jaxperf.workload._pack import pack_work
from jaxperf.workload._pieces import Piece
from jaxperf.workload.retargeting._items import COMPUTE, DeviceItem, ItemKind
from jaxperf.workload.retargeting._rank_program import Meeting, Op
from jaxperf.workload.retargeting._resized import Origin

_NS = 1e3
# Ranks without a recorded launch lag start their work at once.
_NO_LAG_US = 0.0


@dataclass(frozen=True, eq=False)
class EmittedGraph:
    """A graph, and where the durations of its tasks come from.

    Attributes:
        graph: the graph.
        origin: (tasks,) int8, an `Origin`.
        work: (tasks,) what each task does, as far as the job tells.
    """

    graph: ExecutionGraph
    origin: np.ndarray
    work: Work


def emit_graph(plans: Mapping[int, Sequence[Op]], *, steps: int, tail_us: float) -> EmittedGraph:
    """Write the graph of some iterations of every rank.

    Args:
        plans: by rank, its items of one iteration.
        steps: how many iterations follow each other.
        tail_us: host work at the end of each.

    Returns:
        The graph, without times: see `timed_graph`.
    """
    writer = _Writer()
    for index, (rank, ops) in enumerate(plans.items()):
        writer.rank(index, rank, ops, steps, tail_us)
    return writer.graph(tuple(plans))


@dataclass
class _Rank:
    """Where a rank stands while its plan is written."""

    index: int
    rank: int
    lanes: dict[str, int] = field(default_factory=dict)
    last_host: dict[bool, int] = field(default_factory=dict)
    last_work: dict[str, int] = field(default_factory=dict)
    labels: dict[str, int] = field(default_factory=dict)
    handing: int | None = None
    step: int = -1


class _Writer:
    """Columns of a graph in the making."""

    def __init__(self):
        self.names: dict[str, int] = {}
        self.lanes: list[GraphLane] = []
        self.tasks: list[tuple] = []
        self.edges: list[tuple[int, int, float, bool, DependencyKind]] = []
        self.meetings: dict[tuple[int, Meeting], list[tuple[int, int]]] = {}
        self.steps: list[Step] = []
        self.pieces: dict[Piece, int] = {}
        self.piece_of: dict[int, int] = {}

    def rank(self, index: int, rank: int, ops: Sequence[Op], steps: int, tail_us: float) -> None:
        state = _Rank(index, rank)
        for number in range(steps):
            state.step = len(self.steps)
            begin = len(self.tasks)
            for place, op in enumerate(ops):
                self._op(state, op, number, (number + place / len(ops)))
            last = self._host(state, True, "iteration", tail_us, TaskKind.HOST_WORK, number + 1.0)
            self.steps.append(Step(f"iteration {number + 1}", rank, begin, last, 0, 0))

    # -- items ----------------------------------------------------------------------------------

    def _op(self, state: _Rank, op: Op, number: int, order: float) -> None:
        item = op.item
        work_kind = TaskKind.HOST_WORK
        last = self._host(state, item.on_main, _name(op), item.host_us, work_kind, order, op)
        if item.kind == ItemKind.HAND_OVER:
            state.handing = last
            # What the thread that is woken does first is part of the hand-over.
            self._host(state, not item.on_main, _name(op), item.call_us, work_kind, order)
            return
        if item.kind == ItemKind.WAIT:
            self._wait(state, op, last, order)
            return
        kind = TaskKind.HOST_CALL
        call = self._host(state, item.on_main, _name(op), item.call_us, kind, order, op)
        for work, piece in zip_longest(item.work, op.pieces):
            task = self._device(state, op, work, call, number, order, piece)
            if op.label is not None:
                state.labels[op.label] = task

    def _wait(self, state: _Rank, op: Op, before: int, order: float) -> None:
        """A return that starts when the awaited work has ended, and what goes on after both."""
        item = op.item
        lane = self._lane(state, "main" if item.on_main else "autograd", None)
        returned = self._task(
            state, _name(op), lane, TaskKind.HOST_RETURN, TaskClass.HOST, item.call_us, order, op
        )
        awaited = state.last_work.get(item.waits_for)
        if awaited is not None:
            self.edges.append((awaited, returned, 0.0, False, DependencyKind.HOST_SYNC))
        else:
            self.edges.append((before, returned, 0.0, False, DependencyKind.THREAD_ORDER))
        after = self._host(state, item.on_main, _name(op), 0.0, TaskKind.HOST_CALL, order)
        self.edges.append((returned, after, 0.0, False, DependencyKind.THREAD_ORDER))

    def _host(
        self,
        state: _Rank,
        on_main: bool,
        name: str,
        time_us: float,
        kind: TaskKind,
        order: float,
        op: Op | None = None,
    ) -> int:
        lane = self._lane(state, "main" if on_main else "autograd", None)
        # The host work of what was recorded is as recorded, whatever the device is given.
        op = op if op is not None and op.origin == Origin.MODELLED else None
        task = self._task(state, name, lane, kind, TaskClass.HOST, time_us, order, op)
        before = state.last_host.get(on_main)
        if before is not None:
            self.edges.append((before, task, 0.0, False, DependencyKind.THREAD_ORDER))
        if state.handing is not None:
            self.edges.append((state.handing, task, 0.0, False, DependencyKind.HAND_OVER))
            state.handing = None
        state.last_host[on_main] = task
        return task

    def _device(
        self,
        state: _Rank,
        op: Op,
        work: DeviceItem,
        call: int,
        number: int,
        order: float,
        piece: Piece | None,
    ) -> int:
        lane = self._lane(state, work.stream, work)
        task = self._task(
            state, work.name, lane, work.kind, work.task_class, work.duration_us, order, op, work
        )
        if piece is not None:
            self.piece_of[task] = self.pieces.setdefault(piece, len(self.pieces))
        first = task
        if op.meeting is not None:
            first = self._task(
                state, work.name, lane, TaskKind.ARRIVAL, work.task_class, 0.0, order, op
            )
            self.meetings.setdefault((number, op.meeting), []).append((first, task))
        kind = DependencyKind
        lag_us = _known(work.launch_lag_us, _NO_LAG_US)
        self.edges.append((call, first, lag_us, work.from_call_start, kind.LAUNCH))
        stream_lag_us = _known(work.stream_lag_us, _NO_LAG_US)
        before = state.last_work.get(work.stream)
        if before is not None:
            self.edges.append((before, first, stream_lag_us, False, kind.STREAM_ORDER))
        wait_lag_us = _known(work.wait_lag_us, stream_lag_us)
        awaited = [state.last_work.get(stream) for stream in work.awaits if stream != work.stream]
        awaited += [state.labels.get(label) for label in op.awaits]
        for other in {each for each in awaited if each is not None and each != before}:
            self.edges.append((other, first, wait_lag_us, False, kind.EVENT_WAIT))
        state.last_work[work.stream] = task
        return task

    # -- columns --------------------------------------------------------------------------------

    def _lane(self, state: _Rank, name: str, work: DeviceItem | None) -> int:
        if name not in state.lanes:
            state.lanes[name] = len(self.lanes)
            if work is None:
                lane = GraphLane(state.rank, f"thread {name}", -1, -1)
            else:
                stream = len([lane for lane in state.lanes if lane not in ("main", "autograd")])
                text = "compute" if name == COMPUTE else name
                lane = GraphLane(state.rank, f"GPU 0 stream {text}", 0, stream)
            self.lanes.append(lane)
        return state.lanes[name]

    def _task(self, state, name, lane, kind, task_class, time_us, order, op, work=None) -> int:
        self.tasks.append(
            (
                self.names.setdefault(name, len(self.names)),
                lane,
                kind,
                task_class,
                state.index,
                round(time_us * _NS),
                order,
                state.step,
                Origin.RECORDED if op is None else op.origin,
                work.sm_share if work is not None else np.nan,
            )
        )
        return len(self.tasks) - 1

    def graph(self, ranks: tuple[int, ...]) -> EmittedGraph:
        arrival = np.full(len(self.tasks), -1, np.int32)
        for parts in self.meetings.values():
            hub = parts[-1][1]
            for arrived, transfer in parts:
                arrival[transfer] = arrived
                self.edges.append((arrived, hub, 0.0, False, DependencyKind.RENDEZVOUS))
                if transfer != hub:
                    self.edges.append((hub, transfer, 0.0, True, DependencyKind.RENDEZVOUS))
        columns = [np.array(column) for column in zip(*self.tasks, strict=True)]
        name, lane, kind, task_class, trace, duration, order, step, origin, share = columns
        source, target, lag, from_start, dependency = map(np.array, zip(*self.edges, strict=True))
        tasks = len(self.tasks)
        release = np.full(tasks, MISSING, np.int64)
        waits = np.zeros(tasks, bool)
        waits[target] = True
        release[~waits] = 0
        zeros = np.zeros(tasks, np.int64)
        return EmittedGraph(
            ExecutionGraph(
                ranks=ranks,
                names=tuple(self.names),
                lanes=tuple(self.lanes),
                name=name.astype(np.int32),
                lane=lane.astype(np.int32),
                kind=kind.astype(np.int8),
                task_class=task_class.astype(np.int8),
                trace=trace.astype(np.int32),
                event=np.full(tasks, -1, np.int32),
                start_ns=zeros,
                end_ns=zeros,
                duration_ns=duration.astype(np.int64),
                release_ns=release,
                order=_ranked(order),
                source=source.astype(np.int32),
                target=target.astype(np.int32),
                lag_ns=np.round(lag * _NS).astype(np.int64),
                unexplained_ns=np.zeros(len(source), np.int64),
                from_start=from_start.astype(bool),
                dependency=dependency.astype(np.int8),
                step=step.astype(np.int32),
                arrival=arrival,
                sm_share=share.astype(np.float32),
                clocks=tuple(RankClock(rank, 0.0, 0.0, 0.0) for rank in ranks),
                steps=tuple(self.steps),
                notes=(),
            ),
            origin.astype(np.int8),
            self._work(tasks, task_class.astype(np.int8)),
        )

    def _work(self, tasks: int, task_class: np.ndarray) -> Work:
        """What the tasks do; nothing is known of those without a piece."""
        work = unknown_work(tasks)
        work.task_class[:] = task_class
        if not self.pieces:
            return work
        known = pack_work(list(self.pieces))
        rows = np.array(list(self.piece_of))
        index = np.array(list(self.piece_of.values()))
        for column in fields(Work):
            if column.name != "task_class":
                getattr(work, column.name)[rows] = getattr(known, column.name)[index]
        return work


def _ranked(order: np.ndarray) -> np.ndarray:
    """Order of launch as whole numbers; of equals the first written is the first."""
    ranked = np.empty(len(order), np.int64)
    ranked[np.argsort(order, kind="stable")] = np.arange(len(order))
    return ranked


def _name(op: Op) -> str:
    return op.item.work[0].name if op.item.work else op.item.kind.name.lower().replace("_", " ")


def _known(time_us: float, otherwise_us: float) -> float:
    return time_us if time_us == time_us else otherwise_us
