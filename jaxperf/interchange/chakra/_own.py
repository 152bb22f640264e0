"""Chakra execution traces that jaxperf wrote, as the graph that was written."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from jaxperf.errors import TraceError
from jaxperf.graph import (
    DependencyKind,
    ExecutionGraph,
    GraphLane,
    RankClock,
    Step,
    TaskClass,
    TaskKind,
)
from jaxperf.interchange.chakra._order import order_nodes
from jaxperf.interchange.chakra._schema import Attribute, ChakraFile, ChakraNode, NodeType
from jaxperf.trace import MISSING

_KINDS = {kind.name.lower(): int(kind) for kind in TaskKind}
_CLASSES = {kind.name.lower(): int(kind) for kind in TaskClass}


@dataclass(frozen=True, eq=False)
class _Part:
    """The nodes of one rank that are tasks, and the file they are from."""

    rank: int
    file: ChakraFile
    nodes: list[ChakraNode]

    def where(self, node: ChakraNode) -> str:
        return f"{self.file.path}, node {node.id}"

    def integer(self, node: ChakraNode, name: str, default: int | None = None) -> int:
        """An attribute that is an integer; `default` where it is not there."""
        value: Any = node.attributes.get(name, default)
        if not _is_int64(value):
            raise _wrong(name, value, "an integer", self.where(node))
        return value

    def integers(self, node: ChakraNode, name: str, length: int | None) -> tuple[int, ...]:
        """An attribute that is a list of so many integers; zeros where it is not there."""
        value: Any = node.attributes.get(name, (0,) * (length or 0))
        told = isinstance(value, tuple) and all(map(_is_int64, value))
        if not told or (length is not None and len(value) != length):
            expected = "integers" if length is None else f"{length} integers"
            raise _wrong(name, value, expected, self.where(node))
        return value

    def word(self, node: ChakraNode, name: str, words: dict[str, int]) -> int:
        value = node.attributes.get(name)
        if value not in words:
            raise _wrong(name, value, ", ".join(words), self.where(node))
        return words[value]

    def listed(self, name: str, kind: type, length: int | None = None) -> tuple[Any, ...]:
        """A list of the file's head."""
        value: Any = self.file.attributes.get(name)
        told = isinstance(value, tuple) and all(isinstance(each, kind) for each in value)
        if not told or (length is not None and len(value) != length):
            raise _wrong(name, value, f"a list of {kind.__name__}", self.file.path)
        return value


def _is_int64(value: Any) -> bool:
    return isinstance(value, int) and -(1 << 63) <= value < 1 << 63


def _wrong(name: str, value: Attribute | None, expected: str, where: str) -> TraceError:
    got = "nothing" if value is None else repr(value)[:80]
    return TraceError(
        f"the attribute {name} is not valid",
        where=where,
        got=got,
        expected=expected,
        remedy="write the file again with jaxperf",
    )


def own_graph(files: Mapping[int, ChakraFile]) -> ExecutionGraph:
    """The graph that was written, without the rows of its traces.

    Args:
        files: by rank, ranks increasing.

    Returns:
        The graph; its notes and clocks were not written.

    Raises:
        TraceError: see `read_chakra`.
    """
    parts = [
        _Part(rank, file, [n for n in file.nodes if n.type != NodeType.METADATA_NODE])
        for rank, file in files.items()
    ]
    ranks = parts[0].listed("jaxperf_ranks", int)
    absent = sorted(set(ranks) - set(files))
    if absent:
        raise TraceError(
            "files of ranks are missing",
            where=parts[0].file.path,
            got=f"ranks {', '.join(map(str, files))}",
            expected=f"also {', '.join(map(str, absent[:8]))}{', ...' if absent[8:] else ''}",
            remedy="give the files of all ranks, or the folder",
        )
    task_of = _tasks(parts)
    columns = _columns(parts, task_of)
    lanes, steps = _lanes(parts), _steps(parts, task_of)
    nodes = [(part, node) for part in parts for node in part.nodes]
    graph = ExecutionGraph(
        ranks=tuple(files),
        lanes=lanes,
        clocks=tuple(RankClock(rank, np.nan, np.nan, np.nan) for rank in files),
        steps=steps,
        notes=(),
        **columns,
    )
    if np.any(graph.order[graph.source] >= graph.order[graph.target]):
        name = lambda task: f"node {nodes[task][1].id}"
        order_nodes(graph.tasks, graph.source, graph.target, graph.order, parts[0].file.path, name)
    return graph


def _tasks(parts: list[_Part]) -> dict[int, int]:
    """The task of each node's id, over all files."""
    task_of: dict[int, int] = {}
    for part in parts:
        for node in part.nodes:
            if node.id in task_of:
                raise TraceError(
                    "two nodes have one id",
                    where=part.where(node),
                    got=str(node.id),
                    expected="an id of its own",
                    remedy="give the files of one run alone",
                )
            task_of[node.id] = len(task_of)
    return task_of


def _columns(parts: list[_Part], task_of: dict[int, int]) -> dict[str, Any]:
    names: dict[str, int] = {}
    rows: dict[str, list] = {name: [] for name in _TASK_COLUMNS}
    edges: dict[str, list] = {name: [] for name in _EDGE_COLUMNS}
    before = {"lane": 0, "step": 0}
    for index, part in enumerate(parts):
        lanes = len(part.listed("jaxperf_lane_name", str))
        steps = len(part.listed("jaxperf_step_name", str))
        for node in part.nodes:
            lane = _within(part, node, "jaxperf_lane", lanes)
            step = _within(part, node, "jaxperf_step", steps, -1)
            arrival = part.integer(node, "jaxperf_arrival", -1)
            release = node.attributes.get("jaxperf_release_ns")
            share = node.attributes.get("jaxperf_sm_share", np.nan)
            values = (
                names.setdefault(node.name, len(names)),
                before["lane"] + lane,
                part.word(node, "jaxperf_kind", _KINDS),
                part.word(node, "jaxperf_class", _CLASSES),
                index,
                part.integer(node, "jaxperf_start_ns", 0),
                part.integer(node, "jaxperf_end_ns", 0),
                _duration_ns(part, node),
                MISSING if release is None else part.integer(node, "jaxperf_release_ns"),
                node.id,
                before["step"] + step if step >= 0 else -1,
                _task(part, node, task_of, arrival) if arrival >= 0 else -1,
                share if isinstance(share, float) else np.nan,
            )
            for column, value in zip(rows.values(), values, strict=True):
                column.append(value)
            _add_edges(edges, part, node, task_of)
        before["lane"] += lanes
        before["step"] += steps
    columns: dict[str, Any] = {
        name: np.array(rows[name], kind) for name, kind in _TASK_COLUMNS.items()
    }
    columns |= {name: np.array(edges[name], kind) for name, kind in _EDGE_COLUMNS.items()}
    # An id may be any number of 64 bits; its place serves as well.
    columns["order"] = np.argsort(np.argsort(columns["order"], kind="stable"))
    columns["event"] = np.full(len(task_of), -1, np.int32)
    return {"names": tuple(names), **columns}


_TASK_COLUMNS = {
    "name": np.int32,
    "lane": np.int32,
    "kind": np.int8,
    "task_class": np.int8,
    "trace": np.int32,
    "start_ns": np.int64,
    "end_ns": np.int64,
    "duration_ns": np.int64,
    "release_ns": np.int64,
    "order": np.uint64,
    "step": np.int32,
    "arrival": np.int32,
    "sm_share": np.float32,
}
_EDGE_COLUMNS = {
    "source": np.int32,
    "target": np.int32,
    "lag_ns": np.int64,
    "dependency": np.int8,
    "from_start": bool,
    "unexplained_ns": np.int64,
}


def _add_edges(edges: dict[str, list], part: _Part, node: ChakraNode, task_of: dict) -> None:
    source = part.integers(node, "jaxperf_source", None)
    if not source:
        if "jaxperf_release_ns" not in node.attributes:
            raise TraceError(
                "nothing starts a node",
                where=part.where(node),
                expected="jaxperf_source or jaxperf_release_ns",
                remedy="write the file again with jaxperf",
            )
        return
    reason = part.integers(node, "jaxperf_reason", len(source))
    if not all(0 <= each < len(DependencyKind) for each in reason):
        raise _wrong("jaxperf_reason", reason, "reasons of jaxperf", part.where(node))
    edges["source"] += [_task(part, node, task_of, each) for each in source]
    edges["target"] += [task_of[node.id]] * len(source)
    edges["lag_ns"] += part.integers(node, "jaxperf_lag_ns", len(source))
    edges["dependency"] += reason
    edges["from_start"] += map(bool, part.integers(node, "jaxperf_from_start", len(source)))
    edges["unexplained_ns"] += part.integers(node, "jaxperf_unexplained_ns", len(source))


def _task(part: _Part, node: ChakraNode, task_of: dict[int, int], id: int) -> int:
    if id not in task_of:
        raise TraceError(
            "a node depends on one that is not there",
            where=part.where(node),
            got=f"node {id}",
            expected="a node of the files",
            remedy="give the files of all ranks as they were written",
        )
    return task_of[id]


def _within(
    part: _Part, node: ChakraNode, name: str, count: int, default: int | None = None
) -> int:
    value = part.integer(node, name, default)
    if not (0 <= value < count or value == default):
        raise _wrong(name, value, f"0 to {count - 1}", part.where(node))
    return value


def _duration_ns(part: _Part, node: ChakraNode) -> int:
    value = part.integer(node, "jaxperf_duration_ns", node.duration_us * 1000)
    if not 0 <= value < 1 << 62:
        raise _wrong("jaxperf_duration_ns", value, "0 or more", part.where(node))
    return value


def _lanes(parts: list[_Part]) -> tuple[GraphLane, ...]:
    lanes: list[GraphLane] = []
    for part in parts:
        names = part.listed("jaxperf_lane_name", str)
        device = part.listed("jaxperf_lane_device", int, len(names))
        stream = part.listed("jaxperf_lane_stream", int, len(names))
        lanes += map(GraphLane, (part.rank,) * len(names), names, device, stream)
    return tuple(lanes)


def _steps(parts: list[_Part], task_of: dict[int, int]) -> tuple[Step, ...]:
    steps: list[Step] = []
    for part in parts:
        names = part.listed("jaxperf_step_name", str)
        begin, end, begin_ns, end_ns = (
            part.listed(f"jaxperf_step_{what}", int, len(names))
            for what in ("begin_node", "end_node", "begin_ns", "end_ns")
        )
        missing = [id for id in (*begin, *end) if id not in task_of]
        if missing:
            raise _wrong("jaxperf_step_begin_node", missing[0], "a node", part.file.path)
        for row in zip(names, begin, end, begin_ns, end_ns, strict=True):
            name, first, last, *times = row
            steps.append(Step(name, part.rank, task_of[first], task_of[last], *times))
    return tuple(steps)
