"""What other readers of a Chakra execution trace need to know of communication and of work.

The attributes are those that Chakra's feeder and ASTRA-sim read.
"""

from dataclasses import dataclass

import numpy as np

from jaxperf.graph import DependencyKind, ExecutionGraph, TaskKind
from jaxperf.interchange.chakra._schema import (
    AttributeType as Type,
    CollectiveCommType,
    NodeType,
    attribute,
)
from jaxperf.trace import Collective, Run

# The group of all ranks; ASTRA-sim takes it for granted.
_EVERYBODY = "0"
_COMM_TYPES = {
    "all_reduce": CollectiveCommType.ALL_REDUCE,
    "all_gather": CollectiveCommType.ALL_GATHER,
    "reduce_scatter": CollectiveCommType.REDUCE_SCATTER,
    "all_to_all": CollectiveCommType.ALL_TO_ALL,
    "broadcast": CollectiveCommType.BROADCAST,
}


@dataclass(frozen=True, eq=False)
class Communication:
    """What other readers need to know of the tasks that communicate, and of the work of others.

    Attributes:
        attributes: of each task that has any, as its node holds them.
        type: (tasks,) `NodeType`.
        groups: members of each process group by its name.
    """

    attributes: dict[int, bytes]
    type: np.ndarray
    groups: dict[str, tuple[int, ...]]


def find_communication(graph: ExecutionGraph, run: Run | None) -> Communication:
    """What can be told of a graph; with the traces that it was built from it is more."""
    type = np.full(graph.tasks, NodeType.COMP_NODE)
    # Of several ranks, what could not be joined waits for nobody and takes as long as measured.
    meets = graph.arrival >= 0 if len(graph.ranks) > 1 else graph.kind == TaskKind.COLLECTIVE
    groups = {_EVERYBODY: _everybody(graph, run)}
    names = {groups[_EVERYBODY]: _EVERYBODY}
    operation, attributes = _work(graph, run)
    meeting, members = _meetings(graph)
    for task in np.flatnonzero(meets).tolist():
        told = _told(graph, run, task)
        rank = int(graph.ranks[int(graph.trace[task])])
        number = int(meeting[task])
        parts = [attribute("comm_priority", Type.INT32, 0)]
        if number >= 0:
            parts.append(attribute("comm_tag", Type.INT32, number))
        ends = _ends(told, rank)
        if ends is not None:
            sends = ends[0] == rank
            type[task] = NodeType.COMM_SEND_NODE if sends else NodeType.COMM_RECV_NODE
            parts.append(attribute("comm_src", Type.INT32, ends[0]))
            parts.append(attribute("comm_dst", Type.INT32, ends[1]))
        else:
            type[task] = NodeType.COMM_COLL_NODE
            name = told.name if told else graph.names[graph.name[task]]
            comm_type = _comm_type(operation[task], name.lower())
            if comm_type is not None:
                parts.append(attribute("comm_type", Type.INT64, int(comm_type)))
            who = tuple(sorted(told.ranks)) if told and told.ranks else ()
            who = who or (members[number] if number >= 0 else ())
            if who:
                name = names.setdefault(who, str(len(names)))
                groups[name] = who
                parts.append(attribute("pg_name", Type.STRING, name))
        attributes[task] = attributes.get(task, b"") + b"".join(parts)
    return Communication(attributes, type, groups)


def _everybody(graph: ExecutionGraph, run: Run | None) -> tuple[int, ...]:
    world = max((trace.world_size or 0 for trace in run.traces), default=0) if run else 0
    return tuple(range(world)) if world else graph.ranks


def _meetings(graph: ExecutionGraph) -> tuple[np.ndarray, list[tuple[int, ...]]]:
    """(tasks,) number of the meeting that a transfer is part of, -1 for none; who meets."""
    joins = np.flatnonzero(
        (graph.dependency == DependencyKind.RENDEZVOUS)
        & (graph.kind[graph.source] == TaskKind.ARRIVAL)
    )
    # One member's transfer waits for every arrival: it stands for the collective.
    hub = np.full(graph.tasks, -1, np.int64)
    hub[graph.source[joins]] = graph.target[joins]
    transfer = np.flatnonzero(graph.arrival >= 0)
    first, number = np.unique(hub[graph.arrival[transfer]], return_inverse=True)
    # In order of launch, so that tags rise.
    place = np.argsort(np.argsort(graph.order[first], kind="stable"), kind="stable")
    meeting = np.full(graph.tasks, -1, np.int64)
    meeting[transfer] = place[number]
    members: list[list[int]] = [[] for _ in first]
    ranks = np.array(graph.ranks)[graph.trace[transfer]].tolist()
    for rank, each in zip(ranks, meeting[transfer].tolist(), strict=True):
        members[each].append(rank)
    return meeting, [tuple(sorted(set(each))) for each in members]


def _told(graph: ExecutionGraph, run: Run | None, task: int) -> Collective | None:
    """What the profiler said of a collective."""
    if run is None or graph.event[task] < 0:
        return None
    trace = run.traces[graph.trace[task]]
    index = trace.collective[graph.event[task]]
    return trace.collectives[index] if index >= 0 else None


def _ends(told: Collective | None, rank: int) -> tuple[int, int] | None:
    """Source and destination of a send or a receive."""
    operation = told.name.lower().removeprefix("nccl:") if told else ""
    if told is None or operation not in ("send", "recv"):
        return None
    peer = told.destination if operation == "send" else told.source
    if peer is None:
        peer = next((each for each in told.ranks if each != rank), None)
    if peer is None:
        return None
    return (rank, peer) if operation == "send" else (peer, rank)


def _comm_type(operation: str | None, name: str) -> CollectiveCommType | None:
    """What a collective does; the cost models know no reduce to one rank and no barrier."""
    if "barrier" in name:
        return CollectiveCommType.BARRIER
    if operation == "broadcast" and "broadcast" not in name:
        return CollectiveCommType.REDUCE
    return _COMM_TYPES.get(operation or "")


def _work(graph: ExecutionGraph, run: Run | None) -> tuple[list[str | None], dict[int, bytes]]:
    """(tasks,) operation of each collective; flops, bytes and messages as attributes of nodes.

    Without the traces the name of a kernel tells the operation, and nothing the rest.
    """
    from jaxperf.cost import COLLECTIVE_OPERATIONS, operation_index, task_work

    known = (*COLLECTIVE_OPERATIONS, None)  # -1 is unknown
    if run is None:
        by_name = [known[operation_index(name)] for name in graph.names]
        return [by_name[name] for name in graph.name.tolist()], {}
    work = task_work(graph, run)
    # A part of an all-gather is what a rank gives, as the size of its input is in PyTorch's traces.
    gathers = work.operation == COLLECTIVE_OPERATIONS.index("all_gather")
    message = np.where(gathers, work.message_bytes / work.ranks, work.message_bytes)
    found: dict[int, bytes] = {}
    for name, kind, values in (
        ("num_ops", Type.INT64, work.flops),
        ("tensor_size", Type.UINT64, work.memory_bytes),
        ("comm_size", Type.INT64, message),
    ):
        for task in np.flatnonzero(np.isfinite(values)).tolist():
            found[task] = found.get(task, b"") + attribute(name, kind, round(values[task]))
    return [known[operation] for operation in work.operation.tolist()], found
