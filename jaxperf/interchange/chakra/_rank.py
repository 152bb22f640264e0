"""One rank's file of another tool: its nodes in order, its lanes, and where ranks meet."""

import json
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from jaxperf.errors import TraceError
from jaxperf.graph import GraphLane
from jaxperf.interchange.chakra._order import order_nodes
from jaxperf.interchange.chakra._schema import ChakraFile, ChakraNode, NodeType

COMMUNICATES = (NodeType.COMM_COLL_NODE, NodeType.COMM_SEND_NODE, NodeType.COMM_RECV_NODE)
MOVES = (NodeType.MEM_LOAD_NODE, NodeType.MEM_STORE_NODE)
_ON_HOST = (
    NodeType.INVALID_NODE,
    NodeType.METADATA_NODE,
    NodeType.STORAGE_NODE,
    NodeType.BATCH_NODE,
    NodeType.CHECKPOINT_NODE,
)
LONGEST_US = 1 << 52  # so that sums of nanoseconds fit 64 bits
_MOST_STREAM = 1 << 31
_UNTOLD_LANES = ("computation", "collectives", "sends", "receives")

Key = tuple[object, ...]


@dataclass(frozen=True, eq=False)
class ChakraRank:
    """The nodes of one rank in an order that their dependencies allow.

    Attributes:
        rank: the rank.
        path: of its file.
        nodes: the nodes that are tasks.
        lane: of each node.
        source, target: (m,) dependencies between them.
        timed: whether every node says when it started.
        dropped: control dependencies on nodes that are not there.
        groups: members of each process group by its name, where the file says.
    """

    rank: int
    path: str
    nodes: list[ChakraNode]
    lane: list[GraphLane]
    source: np.ndarray
    target: np.ndarray
    timed: bool
    dropped: int
    groups: Mapping[str, tuple[int, ...]]


def read_rank(rank: int, file: ChakraFile) -> ChakraRank:
    """The nodes of a file that are tasks, in order.

    Raises:
        TraceError: ids are not unique, nodes depend on what is not there or on each other in a
            cycle, or a time is out of range.
    """
    depended = {id for node in file.nodes for id in (*node.control, *node.data)}
    groups: dict[str, tuple[int, ...]] = {}
    nodes = []
    for node in file.nodes:
        if node.type == NodeType.METADATA_NODE:
            groups |= _groups(node.input_values)
            if node.id not in depended and not node.control and not node.data:
                continue
        nodes.append(node)
    place = {node.id: i for i, node in enumerate(nodes)}
    if len(place) < len(nodes):
        seen: set[int] = set()
        again = next(n.id for n in nodes if n.id in seen or seen.add(n.id))
        raise TraceError(
            "two nodes have one id",
            where=file.path,
            got=f"node {again} twice",
            expected="an id of its own for each",
            remedy="the tool that wrote the file has to be mended",
        )
    source, target, dropped = _dependencies(nodes, place, file.path)
    start = np.array([min(node.start_us, LONGEST_US) for node in nodes])
    timed = bool(len(start)) and bool(np.all(start > 0))
    number = np.array([node.id for node in nodes], np.uint64)
    priority = np.lexsort((number, start)) if timed else np.argsort(number, kind="stable")
    rises = np.empty(len(nodes), np.int64)
    rises[priority] = np.arange(len(nodes))
    name = lambda i: f"node {nodes[i].id}"
    order = order_nodes(len(nodes), source, target, rises, file.path, name)
    new = np.empty(len(nodes), np.int64)
    new[order] = np.arange(len(nodes))
    nodes = [nodes[i] for i in order.tolist()]
    for node in nodes:
        if node.duration_us > LONGEST_US or node.start_us > LONGEST_US:
            raise TraceError(
                "a time that no run has",
                where=f"{file.path}, node {node.id}",
                got=f"{max(node.duration_us, node.start_us)} us",
                expected="less than a century",
            )
    lane = [_lane(rank, node) for node in nodes]
    return ChakraRank(
        rank, file.path, nodes, lane, new[source], new[target], timed, dropped, groups
    )


def _dependencies(
    nodes: list[ChakraNode], place: dict[int, int], path: str
) -> tuple[np.ndarray, np.ndarray, int]:
    """Source, target, and how many control dependencies there are on nodes that are not."""
    pairs: dict[tuple[int, int], None] = {}
    dropped = 0
    for target, node in enumerate(nodes):
        for id in node.data:
            if id not in place:
                raise TraceError(
                    "a node depends on one that is not there",
                    where=f"{path}, node {node.id}",
                    got=f"node {id}",
                    expected="a node of the file",
                    remedy="the file was cut, or the tool that wrote it has to be mended",
                )
            pairs[place[id], target] = None
        for id in node.control:
            # Chakra's converter leaves out nodes that only callers and callees are bound to.
            if id in place:
                pairs[place[id], target] = None
            else:
                dropped += 1
    column = np.array(list(pairs), np.int64).reshape(-1, 2)
    return column[:, 0], column[:, 1], dropped


def _groups(text: str) -> dict[str, tuple[int, ...]]:
    """Process groups as PyTorch's observer notes them: a list of one text, which is JSON."""
    try:
        told = json.loads(text.strip()[2:-2])
        return {str(each["pg_name"]): tuple(sorted(map(int, each["ranks"]))) for each in told}
    except (ValueError, TypeError, KeyError, RecursionError):
        return {}


def _integer(node: ChakraNode, *names: str) -> int | None:
    for name in names:
        value = node.attributes.get(name)
        if isinstance(value, int) and 0 <= value < _MOST_STREAM:
            return value
    return None


def is_on_device(node: ChakraNode) -> bool:
    """Whether a node runs on the device: it communicates, moves memory, or is no CPU operation."""
    if node.type in COMMUNICATES or node.type in MOVES:
        return True
    return node.type not in _ON_HOST and not node.attributes.get("is_cpu_op", False)


def _lane(rank: int, node: ChakraNode) -> GraphLane:
    """A thread, a stream, or where no stream is told a lane for each kind of work.

    Sends and receives lie apart: two ranks that each send before they receive are no deadlock.
    """
    if not is_on_device(node):
        thread = _integer(node, "tid")
        return GraphLane(rank, "CPU" if thread is None else f"thread {thread}", -1, -1)
    stream = _integer(node, "stream")
    if stream is not None:
        return GraphLane(rank, f"GPU 0 stream {stream}", 0, stream)
    place = COMMUNICATES.index(node.type) + 1 if node.type in COMMUNICATES else 0
    return GraphLane(rank, f"GPU 0 {_UNTOLD_LANES[place]}", 0, place)


# Meetings
# ---------------------------------------------------------------------------------------


def find_meetings(ranks: list[ChakraRank]) -> tuple[list[list[tuple[int, int]]], int]:
    """(rank, node) of the parts of each meeting of two or more, and how many parts meet nobody."""
    found: dict[Key, dict[int, list[int]]] = {}
    parts = 0
    for index, rank in enumerate(ranks):
        for i, node in enumerate(rank.nodes):
            key = _key(rank, node) if node.type in COMMUNICATES else None
            if key is not None:
                found.setdefault(key, {}).setdefault(index, []).append(i)
                parts += 1
    meetings = []
    for by_rank in found.values():
        for turn in range(max(map(len, by_rank.values()))):
            meeting = [(r, nodes[turn]) for r, nodes in by_rank.items() if turn < len(nodes)]
            if len(meeting) > 1:
                meetings.append(meeting)
    met = sum(map(len, meetings))
    return meetings, parts - met if len(ranks) > 1 else 0


def _key(rank: ChakraRank, node: ChakraNode) -> Key | None:
    """What the parts of one meeting have in common; `None` for what waits for nobody."""
    tag = _integer(node, "comm_tag")
    name = node.attributes.get("pg_name", "")
    members = rank.groups.get(str(name), ())
    if node.type == NodeType.COMM_COLL_NODE:
        if len(members) == 1:
            return None
        return ("collective", name, members, node.attributes.get("comm_type"), tag)
    sends = node.type == NodeType.COMM_SEND_NODE
    source = _integer(node, "comm_src")
    target = _integer(node, "comm_dst")
    if len(members) == 2 and rank.rank in members:
        peer = members[0] if members[1] == rank.rank else members[1]
        source, target = (rank.rank, peer) if sends else (peer, rank.rank)
    source = rank.rank if sends else source
    target = target if sends else rank.rank
    if source is None or target is None:
        return ("untold", rank.rank)
    return ("send", source, target, tag)
