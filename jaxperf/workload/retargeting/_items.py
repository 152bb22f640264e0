"""What the threads of a rank did, launch by launch: the alphabet in which jobs are recognised.

A rank is read as one sequence of items in the order of its host: a launch with the device work it
gave, a wait of the host for the device, or a hand-over from one thread to another. Host work
belongs to the item that it leads to. Joined by the rules of streams and threads, items make a
graph again; so a job is changed by repeating, leaving out and resizing them.
"""

import enum
import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from jaxperf.graph import DependencyKind, ExecutionGraph, TaskClass, TaskKind
from jaxperf.trace import Collective, Run

_ON_DEVICE = (TaskKind.KERNEL, TaskKind.MEMCPY, TaskKind.MEMSET, TaskKind.COLLECTIVE)
_US = 1e-3
_NUMBER = re.compile(r"_\d+$")
COMPUTE = "compute"
"""The stream on which a rank spends most time of its kernels."""


class ItemKind(enum.IntEnum):
    """What an item does."""

    LAUNCH = 0
    WAIT = 1
    HAND_OVER = 2


@dataclass(frozen=True, slots=True)
class Message:
    """What is known of a collective, a send or a receive.

    Attributes:
        collective: as the profiler described it, `None` where it did not.
        axis: along which it goes, empty where not known.
        operation: of `jaxperf.cost.COLLECTIVE_OPERATIONS`, empty where not known.
        message_bytes: the whole buffer, NaN where not known.
        ranks, stride: members, and the distance between neighbours.
        towards: of a send or receive: 1 where the message goes to a later stage, -1 to an earlier.
        sends: this rank sends it.
    """

    collective: Collective | None = None
    axis: str = ""
    operation: str = ""
    message_bytes: float = float("nan")
    ranks: float = float("nan")
    stride: float = float("nan")
    towards: int = 0
    sends: bool = False


@dataclass(frozen=True, slots=True)
class DeviceItem:
    """Device work, and how it starts.

    Attributes:
        name, kind, task_class: as of a task.
        stream: `COMPUTE`, or what else tells it apart.
        duration_us: its own time.
        launch_lag_us, from_call_start: how long after its launch call it starts at the earliest.
        stream_lag_us: how long after the work before it on the stream.
        wait_lag_us: how long after what it waits for on other streams.
        awaits: streams, whose last work given before must have ended.
        sm_share: as of a task.
        blocks: thread blocks of a kernel, NaN where not known.
        message: of communication.
        holds_waits: of a message whose other members were not recorded: its duration has waiting
            for them in it.
        shape: of a multiply its three sizes, of an attention its batch and heads, length and size
            of a head, in ascending order; `None` where not known.
        task: of the graph it was read from, -1 for none.
    """

    name: str
    kind: TaskKind
    task_class: TaskClass
    stream: str
    duration_us: float
    launch_lag_us: float
    from_call_start: bool
    stream_lag_us: float
    wait_lag_us: float
    awaits: frozenset[str] = frozenset()
    sm_share: float = float("nan")
    blocks: float = float("nan")
    message: Message | None = None
    holds_waits: bool = False
    shape: tuple[float, ...] | None = None
    task: int = -1

    @property
    def computes(self) -> bool:
        """Whether it is a kernel that does not communicate."""
        return self.kind == TaskKind.KERNEL and self.message is None


@dataclass(frozen=True, slots=True)
class Item:
    """One step of the host, and what it gives to the device.

    Attributes:
        kind: what it does.
        on_main: it is on the thread that opens the iterations.
        host_us: host work that leads to it.
        call_us: the call's own time; of a wait the time to return.
        work: device work of a launch.
        waits_for: of a wait, the stream whose last work it waits for.
    """

    kind: ItemKind
    on_main: bool
    host_us: float
    call_us: float = 0.0
    work: tuple[DeviceItem, ...] = ()
    waits_for: str = COMPUTE

    @property
    def computes(self) -> bool:
        """Whether it launches a kernel that does not communicate."""
        return any(each.computes for each in self.work)

    @property
    def message(self) -> Message | None:
        """What it communicates."""
        return next((each.message for each in self.work if each.message), None)

    @property
    def axis(self) -> str:
        """Along which axis it communicates, empty where it does not."""
        return self.message.axis if self.message else ""

    @property
    def signature(self) -> tuple[str, ...]:
        """What items that do the same have in common.

        Compilers number their kernels, and layers that differ in nothing else are alike.
        """
        return (self.kind.name, *(_NUMBER.sub("", each.name) for each in self.work))


@dataclass(frozen=True, slots=True)
class RankStep:
    """The items of one iteration of one rank.

    Attributes:
        rank: the rank.
        steady: whether the iteration counts as steady.
        items: in the order of the host.
        tail_us: host work after the last of them.
    """

    rank: int
    steady: bool
    items: tuple[Item, ...]
    tail_us: float


def read_items(run: Run, graph: ExecutionGraph, weights: np.ndarray) -> list[RankStep]:
    """The items of every iteration of every rank.

    Args:
        run: the traces, which describe the collectives.
        graph: the graph of them.
        weights: (steps,) of the steady step, as `steady_weights` gives them.

    Returns:
        One for each step of the graph; for each rank as a whole where there are no steps.
    """
    reader = _Reader(run, graph)
    found = []
    for trace, rank in enumerate(graph.ranks):
        mine = [k for k, step in enumerate(graph.steps) if step.rank == rank]
        for k in mine or [-1]:
            on_host = (graph.trace == trace) & (graph.kind <= TaskKind.HOST_RETURN)
            tasks = np.flatnonzero(on_host & (graph.step == k) if mine else on_host)
            if len(tasks):
                items, tail_us = reader.items(tasks, graph.steps[k] if mine else None)
                steady = bool(weights[k] > 0) if mine else True
                found.append(RankStep(rank, steady, items, tail_us))
    return found


@dataclass
class _Edges:
    """Dependencies by the task at one end."""

    of: dict[int, list[int]] = field(default_factory=dict)

    def __getitem__(self, task: int) -> list[int]:
        return self.of.get(task, [])


class _Reader:
    """A graph with its dependencies at hand."""

    def __init__(self, run: Run, graph: ExecutionGraph):
        self.run, self.graph = run, graph
        self.by_source = {
            kind: _edges(graph.source, graph.dependency == kind)
            for kind in (DependencyKind.LAUNCH, DependencyKind.HAND_OVER)
        }
        self.by_target = {
            kind: _edges(graph.target, graph.dependency == kind)
            for kind in (
                DependencyKind.STREAM_ORDER,
                DependencyKind.EVENT_WAIT,
                DependencyKind.HOST_SYNC,
                DependencyKind.HAND_OVER,
            )
        }
        self.transfer = np.arange(graph.tasks)
        split = np.flatnonzero(graph.arrival >= 0)
        self.transfer[graph.arrival[split]] = split
        self.compute_lane = _compute_lanes(graph)

    def items(self, tasks: np.ndarray, step) -> tuple[tuple[Item, ...], float]:
        """Host tasks of one iteration, in order, as items; and the host work that is left."""
        graph = self.graph
        tasks = tasks[np.argsort(graph.order[tasks], kind="stable")]
        main = self._main_lane(tasks, step)
        pending: dict[int, float] = {}
        items: list[Item] = []
        for task in tasks.tolist():
            lane, duration_us = int(graph.lane[task]), float(graph.duration_ns[task]) * _US
            on_main = lane == main
            for edge in self.by_target[DependencyKind.HAND_OVER][task]:
                before = int(graph.lane[graph.source[edge]])
                host_us = pending.pop(before, 0.0)
                items.append(Item(ItemKind.HAND_OVER, before == main, host_us, duration_us))
                duration_us = 0.0
                break
            if graph.kind[task] == TaskKind.HOST_RETURN:
                stream = self._awaited_stream(task)
                wait = Item(ItemKind.WAIT, on_main, pending.pop(lane, 0.0), duration_us)
                items.append(replace(wait, waits_for=stream))
                continue
            launched = self._launched(task)
            if not launched:
                pending[lane] = pending.get(lane, 0.0) + duration_us
                continue
            work = tuple(self._device_item(edges) for edges in launched)
            host_us = pending.pop(lane, 0.0)
            items.append(Item(ItemKind.LAUNCH, on_main, host_us, duration_us, work))
        return tuple(items), pending.get(main, 0.0)

    def _launched(self, call: int) -> list[list[int]]:
        """Launch dependencies of a call, by the work that they lead to."""
        by_work: dict[int, list[int]] = {}
        for edge in self.by_source[DependencyKind.LAUNCH][call]:
            by_work.setdefault(int(self.graph.target[edge]), []).append(edge)
        return list(by_work.values())

    def _launch_lag(self, edges: list[int]) -> tuple[float, bool]:
        """How long after its call work starts; of two dependencies what both allow."""
        graph = self.graph
        if len(edges) == 1:
            return float(graph.lag_ns[edges[0]]) * _US, bool(graph.from_start[edges[0]])
        call_ns = graph.duration_ns[graph.source[edges]]
        after_ns = graph.lag_ns[edges] + np.where(graph.from_start[edges], 0, call_ns)
        return float(after_ns.max()) * _US, True

    def _main_lane(self, tasks: np.ndarray, step) -> int:
        if step is not None:
            return int(self.graph.lane[step.begin_task])
        lanes, counts = np.unique(self.graph.lane[tasks], return_counts=True)
        return int(lanes[counts.argmax()])

    def _awaited_stream(self, task: int) -> str:
        edges = self.by_target[DependencyKind.HOST_SYNC][task]
        lanes = [int(self.graph.lane[self.graph.source[edge]]) for edge in edges]
        if not lanes or any(self.compute_lane[lane] for lane in lanes):
            return COMPUTE
        return self._stream(lanes[0])

    def _stream(self, lane: int) -> str:
        return COMPUTE if self.compute_lane[lane] else str(self.graph.lanes[lane].stream)

    def _device_item(self, launch: list[int]) -> DeviceItem:
        graph = self.graph
        first = int(graph.target[launch[0]])
        launch_lag_us, from_call_start = self._launch_lag(launch)
        task = int(self.transfer[first])
        stream_edges = self.by_target[DependencyKind.STREAM_ORDER][first]
        waits = self.by_target[DependencyKind.EVENT_WAIT][first]
        kind = TaskKind(int(graph.kind[task]))
        communicates = graph.task_class[task] == TaskClass.COMMUNICATION
        return DeviceItem(
            name=graph.names[graph.name[task]],
            kind=kind,
            task_class=TaskClass(int(graph.task_class[task])),
            stream=self._stream(int(graph.lane[task])),
            duration_us=float(graph.duration_ns[task]) * _US,
            launch_lag_us=launch_lag_us,
            from_call_start=from_call_start,
            stream_lag_us=_mean_us(graph.lag_ns[stream_edges]),
            wait_lag_us=_mean_us(graph.lag_ns[waits]),
            awaits=frozenset(self._stream(int(graph.lane[graph.source[e]])) for e in waits),
            sm_share=float(graph.sm_share[task]),
            blocks=self._blocks(task),
            message=self._message(task) if communicates else None,
            holds_waits=communicates and bool(graph.arrival[task] < 0),
            task=task,
        )

    def _blocks(self, task: int) -> float:
        """Thread blocks, where the trace tells how many there are of each multiprocessor."""
        trace = self.run.traces[int(self.graph.trace[task])]
        row = int(self.graph.event[task])
        properties = trace.metadata.get("deviceProperties")
        if row < 0 or not isinstance(properties, list) or not properties:
            return float("nan")
        first = properties[0]
        sms = first.get("numSms") if isinstance(first, dict) else None
        return float(trace.blocks_per_sm[row]) * sms if isinstance(sms, int) else float("nan")

    def _message(self, task: int) -> Message:
        trace = self.run.traces[int(self.graph.trace[task])]
        row = int(self.graph.event[task])
        index = int(trace.collective[row]) if row >= 0 else -1
        return Message(trace.collectives[index] if index >= 0 else None)


def _edges(ends: np.ndarray, wanted: np.ndarray) -> _Edges:
    found = _Edges()
    for edge in np.flatnonzero(wanted).tolist():
        found.of.setdefault(int(ends[edge]), []).append(edge)
    return found


def _mean_us(lags_ns: np.ndarray) -> float:
    return float(lags_ns.mean()) * _US if len(lags_ns) else float("nan")


def _compute_lanes(graph: ExecutionGraph) -> np.ndarray:
    """(lanes,) bool, of each rank the stream with most time of kernels that do not communicate."""
    kernels = (graph.kind == TaskKind.KERNEL) & (graph.task_class != TaskClass.COMMUNICATION)
    busy = np.bincount(
        graph.lane[kernels], graph.duration_ns[kernels].astype(float), len(graph.lanes)
    )
    chosen = np.zeros(len(graph.lanes), bool)
    for rank in graph.ranks:
        mine = [k for k, lane in enumerate(graph.lanes) if lane.rank == rank and lane.is_stream]
        if mine and busy[mine].max() > 0:
            chosen[mine[int(busy[mine].argmax())]] = True
    return chosen


def mean_item(items: Sequence[Item]) -> Item:
    """One item in place of several that do the same: every time is the mean.

    Args:
        items: with the same signature.

    Returns:
        The mean; lags that are not known of all are the mean of those that are.
    """
    work = []
    for place, first in enumerate(items[0].work):
        each = [item.work[place] for item in items]
        durations_us = [w.duration_us for w in each]
        work.append(
            replace(
                first,
                # Of waits for ranks that were not recorded the shortest has least.
                duration_us=min(durations_us) if first.holds_waits else _mean(durations_us),
                launch_lag_us=_mean([w.launch_lag_us for w in each]),
                stream_lag_us=_mean([w.stream_lag_us for w in each]),
                wait_lag_us=_mean([w.wait_lag_us for w in each]),
                awaits=frozenset.intersection(*(w.awaits for w in each)),
                message=_mean_message([w.message for w in each]),
                task=-1,
            )
        )
    return replace(
        items[0],
        host_us=_mean([item.host_us for item in items]),
        call_us=_mean([item.call_us for item in items]),
        work=tuple(work),
    )


def _mean_message(messages: Sequence[Message | None]) -> Message | None:
    """The first, of mean size: durations are means too, and grow evenly with size."""
    first = messages[0]
    if first is None:
        return None
    sizes = [message.message_bytes for message in messages if message is not None]
    return replace(first, message_bytes=_mean(sizes))


def _mean(values: Sequence[float]) -> float:
    known = [value for value in values if value == value]
    return sum(known) / len(known) if known else float("nan")
