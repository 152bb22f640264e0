"""An execution graph as Chakra execution traces: one file per rank, nothing of the graph lost.

Chakra knows nodes that start when others have ended, and whole microseconds. What our graph knows
beyond that - nanoseconds, lags, dependencies on a start or on another rank - is kept in attributes
whose names begin with `jaxperf_`; `read_chakra` takes them, other readers pass over them.
"""

import json
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from jaxperf._files import check_new_file, new_file
from jaxperf.errors import ConfigError
from jaxperf.graph import ExecutionGraph, TaskClass, TaskKind
from jaxperf.interchange._tables import make_folder
from jaxperf.interchange.chakra._communication import Communication, find_communication
from jaxperf.interchange.chakra._protobuf import bytes_field, packed, varint
from jaxperf.interchange.chakra._schema import (
    VERSION,
    Attribute,
    AttributeType as Type,
    NodeType,
    attribute,
    encoded_name,
    input_values,
    metadata_attribute,
    node_head,
    with_length,
)
from jaxperf.trace import MISSING, Run

if TYPE_CHECKING:
    from jaxperf.replay import Timeline

_NS_PER_US = 1000
_NODES_AT_ONCE = 1 << 12


def write_chakra(
    graph: ExecutionGraph,
    folder: str | os.PathLike[str],
    prefix: str = "trace",
    *,
    timeline: "Timeline | None" = None,
    run: Run | None = None,
    overwrite: bool = False,
) -> tuple[Path, ...]:
    """Write a graph as Chakra execution traces: `<folder>/<prefix>.<rank>.et` for each rank.

    Args:
        graph: the execution graph.
        folder: where to write; it is made where it does not exist.
        prefix: how the names begin.
        timeline: of a replay of the graph: start times as replayed, not as measured.
        run: the traces that the graph was built from: they tell `comm_size`, `num_ops`,
            `tensor_size`, which is a send and which a receive, and members of process groups that
            were not recorded.
        overwrite: replace files that are there.

    Returns:
        The files, one per rank.

    Raises:
        ConfigError: the prefix is no name of a file.
        OutputError: a file exists, or cannot be written.

    Example:
        >>> import tempfile
        >>> from jaxperf.graph import build_graph
        >>> from jaxperf.simulator import SimulatedJob, simulate, write_traces
        >>> from jaxperf.trace import read_run
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     run = read_run(write_traces(simulate(SimulatedJob(layers=1)), folder))
        ...     [path.name for path in write_chakra(build_graph(run), folder, run=run)]
        ['trace.0.et']
    """
    if not prefix or Path(prefix).name != prefix:
        raise ConfigError("not the beginning of a file's name", where="prefix", got=repr(prefix))
    target = make_folder(folder)
    paths = tuple(target / f"{prefix}.{rank}.et" for rank in graph.ranks)
    for path in paths:
        check_new_file(path, overwrite)
    nodes = _Nodes(graph, timeline, find_communication(graph, run))
    for index, path in enumerate(paths):
        with new_file(path, overwrite) as file:
            file.write(nodes.metadata(index))
            for chunk in nodes.of_rank(index):
                file.write(chunk)
    return paths


class _Nodes:
    """The nodes of a graph, rank after rank; an id is the place in order of launch."""

    def __init__(
        self, graph: ExecutionGraph, timeline: "Timeline | None", communication: Communication
    ):
        self.graph, self.communication = graph, communication
        self.id = np.empty(graph.tasks, np.int64)
        self.id[np.argsort(graph.order, kind="stable")] = np.arange(graph.tasks)
        start_ns = graph.start_ns if timeline is None else np.rint(timeline.start_us * _NS_PER_US)
        since_ns = start_ns - (start_ns.min() if graph.tasks else 0)
        self.start_us = (since_ns // _NS_PER_US).astype(np.int64)
        by_target = np.argsort(graph.target, kind="stable")
        self.edges = by_target
        self.first_edge = np.searchsorted(graph.target[by_target], np.arange(graph.tasks + 1))
        self.names = [encoded_name(name) for name in graph.names]
        self.lane_of_rank = np.zeros(len(graph.lanes), np.int64)
        for rank in set(graph.ranks):
            own = [i for i, lane in enumerate(graph.lanes) if lane.rank == rank]
            self.lane_of_rank[own] = np.arange(len(own))
        self.step_of_rank = np.zeros(len(graph.steps), np.int64)
        for rank in set(graph.ranks):
            own = [i for i, step in enumerate(graph.steps) if step.rank == rank]
            self.step_of_rank[own] = np.arange(len(own))

    def metadata(self, index: int) -> bytes:
        """The head of a rank's file: what the file says of itself, and its process groups."""
        graph = self.graph
        rank = graph.ranks[index]
        lanes = [lane for lane in graph.lanes if lane.rank == rank]
        steps = [step for step in graph.steps if step.rank == rank]
        said: list[tuple[str, Type, Attribute]] = [
            ("schema", Type.STRING, f"jaxperf-chakra.{VERSION}"),
            ("jaxperf_format", Type.INT64, 1),
            ("jaxperf_rank", Type.INT64, rank),
            ("jaxperf_ranks", Type.INT64, graph.ranks),
            ("jaxperf_lane_name", Type.STRING, tuple(lane.name for lane in lanes)),
            ("jaxperf_lane_device", Type.INT64, tuple(lane.device for lane in lanes)),
            ("jaxperf_lane_stream", Type.INT64, tuple(lane.stream for lane in lanes)),
            ("jaxperf_step_name", Type.STRING, tuple(step.name for step in steps)),
            ("jaxperf_step_begin_ns", Type.INT64, tuple(step.begin_ns for step in steps)),
            ("jaxperf_step_end_ns", Type.INT64, tuple(step.end_ns for step in steps)),
            ("jaxperf_step_begin_node", Type.INT64, self._ids(s.begin_task for s in steps)),
            ("jaxperf_step_end_node", Type.INT64, self._ids(s.end_task for s in steps)),
        ]
        head = bytes_field(1, VERSION.encode())
        head += b"".join(metadata_attribute(*each) for each in said)
        groups = [
            {"pg_name": name, "ranks": list(who), "group_size": len(who)}
            for name, who in self.communication.groups.items()
        ]
        # As PyTorch's observer writes them, which ASTRA-sim reads: a list of one text.
        told = node_head(
            graph.tasks + index,
            encoded_name("## process_group:init ##"),
            NodeType.METADATA_NODE,
            (),
            0,
            0,
        ) + input_values(f"['{json.dumps(groups)}']")
        return with_length(head) + with_length(told)

    def of_rank(self, index: int) -> Iterator[bytes]:
        """The nodes of a rank in order of their ids, some at a time."""
        tasks = np.flatnonzero(self.graph.trace == index)
        tasks = tasks[np.argsort(self.id[tasks])]
        for first in range(0, len(tasks), _NODES_AT_ONCE):
            chunk = tasks[first : first + _NODES_AT_ONCE].tolist()
            yield b"".join(with_length(self._node(task)) for task in chunk)

    def _ids(self, tasks: Iterator[int] | Sequence[int]) -> tuple[int, ...]:
        return tuple(int(self.id[task]) for task in tasks)

    def _node(self, task: int) -> bytes:
        graph = self.graph
        edges = self.edges[self.first_edge[task] : self.first_edge[task + 1]]
        source = graph.source[edges]
        local = self.id[source[graph.trace[source] == graph.trace[task]]].tolist()
        if graph.arrival[task] >= 0:
            local.append(int(self.id[graph.arrival[task]]))
        duration_ns = int(graph.duration_ns[task])
        lane = graph.lanes[graph.lane[task]]
        parts = [
            node_head(
                int(self.id[task]),
                self.names[graph.name[task]],
                int(self.communication.type[task]),
                sorted(set(local)),
                int(self.start_us[task]),
                (duration_ns + _NS_PER_US // 2) // _NS_PER_US,
            ),
            _ON_DEVICE if lane.is_stream else _ON_HOST,
            _STREAM(lane.stream)
            if lane.is_stream
            else _THREAD(self.lane_of_rank[graph.lane[task]]),
            self.communication.attributes.get(task, b""),
            _KINDS[graph.kind[task]],
            _CLASSES[graph.task_class[task]],
            _LANE(self.lane_of_rank[graph.lane[task]]),
            _DURATION_NS(duration_ns),
        ]
        if graph.end_ns[task] or graph.start_ns[task]:
            parts.append(_START_NS(graph.start_ns[task]))
            parts.append(_END_NS(graph.end_ns[task]))
        if graph.release_ns[task] != MISSING:
            parts.append(_RELEASE_NS(graph.release_ns[task]))
        if graph.step[task] >= 0:
            parts.append(_STEP(self.step_of_rank[graph.step[task]]))
        if graph.arrival[task] >= 0:
            parts.append(_ARRIVAL(self.id[graph.arrival[task]]))
        if not np.isnan(graph.sm_share[task]):
            share = float(graph.sm_share[task])
            parts.append(attribute("jaxperf_sm_share", Type.DOUBLE, share))
        if len(edges):
            parts.append(_SOURCE(self.id[source]))
            parts.append(_LAG_NS(graph.lag_ns[edges]))
            parts.append(_REASON(graph.dependency[edges]))
            if graph.from_start[edges].any():
                parts.append(_FROM_START(graph.from_start[edges]))
            if graph.unexplained_ns[edges].any():
                parts.append(_UNEXPLAINED_NS(graph.unexplained_ns[edges]))
        return b"".join(parts)


class _IntegerAttribute:
    """An attribute whose name is encoded once."""

    def __init__(self, name: str, kind: Type):
        self.head = bytes_field(1, name.encode())
        self.key = varint(kind << 3)

    def __call__(self, value: Any) -> bytes:
        return bytes_field(10, self.head + self.key + varint(int(value)))


class _ListAttribute:
    """The same for a list of integers."""

    def __init__(self, name: str, kind: Type):
        self.head = bytes_field(1, name.encode())
        self.number = kind + 1

    def __call__(self, values: np.ndarray) -> bytes:
        inner = bytes_field(1, packed(values.tolist()))
        return bytes_field(10, self.head + bytes_field(self.number, inner))


_ON_HOST = attribute("is_cpu_op", Type.BOOL, True)
_ON_DEVICE = attribute("is_cpu_op", Type.BOOL, False)
_KINDS = [attribute("jaxperf_kind", Type.STRING, kind.name.lower()) for kind in TaskKind]
_CLASSES = [attribute("jaxperf_class", Type.STRING, kind.name.lower()) for kind in TaskClass]
_STREAM = _IntegerAttribute("stream", Type.INT64)
_THREAD = _IntegerAttribute("tid", Type.INT64)
_LANE = _IntegerAttribute("jaxperf_lane", Type.INT64)
_DURATION_NS = _IntegerAttribute("jaxperf_duration_ns", Type.INT64)
_START_NS = _IntegerAttribute("jaxperf_start_ns", Type.INT64)
_END_NS = _IntegerAttribute("jaxperf_end_ns", Type.INT64)
_RELEASE_NS = _IntegerAttribute("jaxperf_release_ns", Type.INT64)
_STEP = _IntegerAttribute("jaxperf_step", Type.INT64)
_ARRIVAL = _IntegerAttribute("jaxperf_arrival", Type.INT64)
_SOURCE = _ListAttribute("jaxperf_source", Type.INT64)
_LAG_NS = _ListAttribute("jaxperf_lag_ns", Type.INT64)
_REASON = _ListAttribute("jaxperf_reason", Type.INT64)
_FROM_START = _ListAttribute("jaxperf_from_start", Type.BOOL)
_UNEXPLAINED_NS = _ListAttribute("jaxperf_unexplained_ns", Type.INT64)
