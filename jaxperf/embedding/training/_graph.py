"""The execution graph of training steps of a recommendation model, without a trace.

Step i of each rank, in the order of its streams:

- Computation: fill of the cache, lookups, dense layers below, interaction and layers above, both
  backward, update of the rows. The interaction waits for the pooled rows, the update for their
  gradients, the end of the step for the all-reduce.
- All-to-all: pooled rows of i, indices of a later batch, gradients of the pooled rows of i.
- All-reduce of the dense gradients, from the end of the dense backward pass.
- One stream for each slower tier: rows of batch i + 1 are fetched beside step i. They may replace
  rows of batch i - 1, which are locked until its update, and the update of i, which writes rows of
  both batches, waits for them (FBGEMM's prefetch pipeline). Without prefetch the rows of i are
  fetched, tier after tier, before its lookups.

Messages of several ranks begin when all are there. The host is not in it.
"""

from dataclasses import dataclass

import numpy as np

from jaxperf.embedding.training._parts import StepParts, check_parts
from jaxperf.errors import ConfigError
from jaxperf.graph import DependencyKind, ExecutionGraph, GraphLane, Step, TaskClass, TaskKind
from jaxperf.trace import MISSING
from jaxperf.workload import Tasks

_COMPUTE, _ALL_TO_ALL, _ALL_REDUCE, _FIRST_TIER = range(4)
_LANES = ("compute", "all-to-all", "all-reduce")
_LEAST_STEPS = 3


@dataclass(frozen=True, slots=True)
class _Kind:
    """What a task is, by the part whose duration it has."""

    name: str
    kind: TaskKind
    task_class: TaskClass


_KINDS = {
    "begin": _Kind("begin of step", TaskKind.MEMSET, TaskClass.OTHER),
    "ready": _Kind("ready", TaskKind.ARRIVAL, TaskClass.COMMUNICATION),
    "indices_us": _Kind("indices", TaskKind.COLLECTIVE, TaskClass.COMMUNICATION),
    "fetch_us": _Kind("fetch rows", TaskKind.MEMCPY, TaskClass.MEMCPY),
    "fill_us": _Kind("fill cache", TaskKind.MEMCPY, TaskClass.MEMCPY),
    "lookup_us": _Kind("lookups", TaskKind.KERNEL, TaskClass.EMBEDDING),
    "pooled_us": _Kind("pooled rows", TaskKind.COLLECTIVE, TaskClass.COMMUNICATION),
    "bottom_forward_us": _Kind("bottom layers", TaskKind.KERNEL, TaskClass.GEMM),
    "top_forward_us": _Kind("interaction and top layers", TaskKind.KERNEL, TaskClass.GEMM),
    "top_backward_us": _Kind("backward of top layers", TaskKind.KERNEL, TaskClass.GEMM),
    "bottom_backward_us": _Kind("backward of bottom layers", TaskKind.KERNEL, TaskClass.GEMM),
    "gradients_us": _Kind("gradients of rows", TaskKind.COLLECTIVE, TaskClass.COMMUNICATION),
    "update_us": _Kind("update of rows", TaskKind.KERNEL, TaskClass.EMBEDDING),
    "all_reduce_us": _Kind("all-reduce", TaskKind.COLLECTIVE, TaskClass.COMMUNICATION),
    "end": _Kind("end of step", TaskKind.MEMSET, TaskClass.OTHER),
}
_PIECES = list(_KINDS)


@dataclass(frozen=True, eq=False)
class TrainingGraph:
    """The graph of some steps, and how long its tasks take.

    Attributes:
        graph: tasks and dependencies; all durations are 0, see `jaxperf.workload.timed_graph`.
        durations_us: (tasks,) of its tasks.
        part: (tasks,) the field of `StepParts` that each has its duration of; empty for others.
        ranks_alike: for each of the graph's ranks how many do the same, itself included.
    """

    graph: ExecutionGraph
    durations_us: np.ndarray
    part: tuple[str, ...]
    ranks_alike: tuple[int, ...]


def build_training_graph(
    parts: StepParts,
    *,
    steps: int = 5,
    prefetch: bool = True,
    overlap: bool = True,
    ranks_alike: int = 1,
) -> TrainingGraph:
    """The execution graph of steps in a row, of which the last are steady.

    Args:
        parts: how long each part takes.
        steps: how many; with three or more the last of them is steady.
        prefetch: the next batch's rows are fetched while this one is computed.
        overlap: messages run beside computation; else everything but a prefetch is in turn, as in
            the closed form of the hierarchy.
        ranks_alike: how many do what each rank of `parts` does.

    Returns:
        The graph.

    Raises:
        ConfigError: the durations do not fit each other, or the steps are too few.

    Example:
        >>> times = {name: np.ones(1) for name in StepParts.__dataclass_fields__}
        >>> built = build_training_graph(StepParts(**times | {"fetch_us": np.ones((1, 2))}))
        >>> built.graph.ranks, len(built.graph.steps)
        ((0,), 5)
    """
    check_parts(parts)
    if steps < _LEAST_STEPS:
        raise ConfigError(
            "too few steps to be steady", where="steps", got=str(steps), expected="3 or more"
        )
    builder = _Builder(parts, prefetch, overlap)
    begins, ends = zip(*(builder.step(index) for index in range(steps)), strict=True)
    return _graph(parts, builder, np.array(begins), np.array(ends), ranks_alike)


class _Builder:
    """Lays out step after step; each part is one task of every rank."""

    def __init__(self, parts: StepParts, prefetch: bool, overlap: bool) -> None:
        self.parts, self.prefetch, self.overlap = parts, prefetch, overlap
        self.tasks = Tasks()
        self.arrivals: list[tuple[np.ndarray, np.ndarray]] = []
        self.from_start: list[tuple[int, int]] = []
        self.step_of_task: list[np.ndarray] = []
        self._index = self._key = 0
        self._ranks = np.arange(parts.ranks)
        self._last: dict[int, np.ndarray] = {}
        # Batches whose indices are exchanged while another is computed: a fetch needs them first.
        self._ahead = 2 if prefetch else int(overlap)
        self._indices: dict[int, np.ndarray] = {}
        self._fetched: dict[int, list[np.ndarray]] = {}
        self._updated: dict[int, np.ndarray] = {}

    def step(self, index: int) -> tuple[np.ndarray, np.ndarray]:
        """Lay out a step; (ranks,) its first and its last tasks."""
        self._index = index
        begin = self._add("begin", _COMPUTE)
        if index == 0:
            for batch in range(self._ahead):
                self._exchange(batch, [begin])
            if self.prefetch:
                self._fetch_ahead(0, begin)
        if self.prefetch:
            self._fetch_ahead(index + 1, begin)
        last = self._beside(index, begin) if self.overlap else self._in_turn(index, begin)
        return begin, self._add("end", _COMPUTE, *last)

    def _beside(self, index: int, begin: np.ndarray) -> list[np.ndarray]:
        """A step whose messages run beside computation; what its end waits for."""
        ready = [begin, self._indices[index]]
        ready += self._fetched[index] if self.prefetch else self._fetch_now(ready)
        self._add("fill_us", _COMPUTE, *ready)
        lookup = self._add("lookup_us", _COMPUTE)
        pooled = self._send("pooled_us", _ALL_TO_ALL, lookup)
        self._exchange(index + self._ahead, [begin])
        self._add("bottom_forward_us", _COMPUTE)
        self._add("top_forward_us", _COMPUTE, pooled)
        top = self._add("top_backward_us", _COMPUTE)
        gradients = self._send("gradients_us", _ALL_TO_ALL, top)
        bottom = self._add("bottom_backward_us", _COMPUTE)
        reduced = self._send("all_reduce_us", _ALL_REDUCE, bottom)
        self._update(index, gradients)
        return [reduced]

    def _in_turn(self, index: int, begin: np.ndarray) -> list[np.ndarray]:
        """A step whose parts follow each other; what its end waits for."""
        last = self._exchange(index + self._ahead, [begin])
        ready = self._fetched[index] if self.prefetch else self._fetch_now([last])
        self._add("fill_us", _COMPUTE, last, *ready)
        lookup = self._add("lookup_us", _COMPUTE)
        pooled = self._send("pooled_us", _ALL_TO_ALL, lookup)
        self._add("bottom_forward_us", _COMPUTE, pooled)
        self._add("top_forward_us", _COMPUTE)
        self._add("top_backward_us", _COMPUTE)
        bottom = self._add("bottom_backward_us", _COMPUTE)
        self._update(index, self._send("gradients_us", _ALL_TO_ALL, bottom))
        return [self._send("all_reduce_us", _ALL_REDUCE, self._updated[index])]

    def _exchange(self, batch: int, after: list[np.ndarray]) -> np.ndarray:
        self._indices[batch] = self._send("indices_us", _ALL_TO_ALL, *after)
        return self._indices[batch]

    def _fetch_ahead(self, batch: int, begin: np.ndarray) -> None:
        """Every tier on its own, once the rows of two batches before are no longer locked."""
        after = [self._updated.get(batch - 2, begin), self._indices[batch]]
        tiers = range(self.parts.fetch_us.shape[1])
        self._fetched[batch] = [
            self._add("fetch_us", _FIRST_TIER + tier, *after, tier=tier) for tier in tiers
        ]

    def _fetch_now(self, after: list[np.ndarray]) -> list[np.ndarray]:
        """Tier after tier."""
        for tier in range(self.parts.fetch_us.shape[1]):
            after = [self._add("fetch_us", _FIRST_TIER + tier, *after, tier=tier)]
        return after

    def _update(self, index: int, gradients: np.ndarray) -> None:
        rows = self._fetched[index + 1] if self.prefetch else []
        self._updated[index] = self._add("update_us", _COMPUTE, gradients, *rows)

    def _send(self, part: str, lane: int, *after: np.ndarray) -> np.ndarray:
        """A message of all ranks: it begins when the last has arrived."""
        if self.parts.ranks == 1:
            return self._add(part, lane, *after)
        ready = self._add("ready", lane, *after)
        sent = self._add(part, lane)
        self.tasks.link(ready, np.full(len(ready), sent[0]))
        self.tasks.link(np.full(len(sent) - 1, sent[0]), sent[1:])
        self.from_start += [(int(sent[0]), int(target)) for target in sent[1:]]
        self.arrivals.append((sent, ready))
        return sent

    def _add(self, part: str, lane: int, *after: np.ndarray, tier: int = 0) -> np.ndarray:
        """A task of every rank, after the one before it on its lane and after others."""
        self._key += 1
        name = _KINDS[part].name + (f" of tier {tier + 1}" if part == "fetch_us" else "")
        same = np.ones(len(self._ranks), np.int64)
        # Tiers share a part: the piece tells both.
        piece = _PIECES.index(part) + tier * len(_PIECES)
        key = self._key * len(self._ranks) + self._ranks
        added = self.tasks.add(
            self._ranks, lane * same, self.tasks.name(name) * same, piece * same, key
        )
        before = [self._last[lane]] if lane in self._last else []
        for source in (*before, *after):
            self.tasks.link(source, added)
        self._last[lane] = added
        self.step_of_task.append(self._index + 0 * added)
        return added


def _graph(
    parts: StepParts, builder: _Builder, begins: np.ndarray, ends: np.ndarray, ranks_alike: int
) -> TrainingGraph:
    columns = builder.tasks.columns()
    count, ranks = len(columns.piece), parts.ranks
    used, lane = np.unique(columns.rank * 64 + columns.lane, return_inverse=True)
    source, target, from_start = _once(columns.source, columns.target, builder.from_start)
    same = lane[source] == lane[target]
    kind = np.where(same, DependencyKind.STREAM_ORDER, DependencyKind.EVENT_WAIT)
    kind[columns.rank[source] != columns.rank[target]] = DependencyKind.RENDEZVOUS
    release = np.full(count, MISSING)
    release[np.bincount(target, minlength=count) == 0] = 0
    arrival = np.full(count, -1, np.int32)
    for sent, ready in builder.arrivals:
        arrival[sent] = ready
    tier, piece = np.divmod(columns.piece, len(_PIECES))
    order = np.empty(count, np.int64)
    order[np.argsort(columns.key, kind="stable")] = np.arange(count)
    zeros, edges = np.zeros(count, np.int64), len(source)
    number = ends.shape[0]
    graph = ExecutionGraph(
        ranks=tuple(range(ranks)),
        names=tuple(builder.tasks.names),
        lanes=tuple(_lane(each) for each in used.tolist()),
        name=columns.name,
        lane=lane.reshape(-1).astype(np.int32),
        kind=np.array([_KINDS[each].kind for each in _PIECES], np.int8)[piece],
        task_class=np.array([_KINDS[each].task_class for each in _PIECES], np.int8)[piece],
        trace=columns.rank,
        event=np.full(count, -1, np.int32),
        start_ns=zeros,
        end_ns=zeros,
        duration_ns=zeros,
        release_ns=release,
        order=order,
        source=source,
        target=target,
        lag_ns=np.zeros(edges, np.int64),
        unexplained_ns=np.zeros(edges, np.int64),
        from_start=from_start,
        dependency=kind.astype(np.int8),
        step=(columns.rank * number + np.concatenate(builder.step_of_task)).astype(np.int32),
        arrival=arrival,
        sm_share=np.full(count, np.nan, np.float32),
        clocks=(),
        steps=tuple(
            Step(f"step {index}", rank, int(begins[index, rank]), int(ends[index, rank]), 0, 0)
            for rank in range(ranks)
            for index in range(number)
        ),
        notes=(),
    )
    durations_us = np.zeros(count)
    for place, part in enumerate(_PIECES):
        mine = np.flatnonzero(piece == place)
        if part == "fetch_us":
            durations_us[mine] = parts.fetch_us[columns.rank[mine], tier[mine]]
        elif part.endswith("_us"):
            durations_us[mine] = getattr(parts, part)[columns.rank[mine]]
    names = tuple(_PIECES[each] if _PIECES[each].endswith("_us") else "" for each in piece.tolist())
    return TrainingGraph(graph, durations_us, names, (ranks_alike,) * ranks)


def _once(
    source: np.ndarray, target: np.ndarray, from_start: list[tuple[int, int]]
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Dependencies without repetition, and which of them count from the start of their source."""
    pairs = np.unique(np.stack([source, target]), axis=1).astype(np.int32)
    known = set(from_start)
    starts = [pair in known for pair in zip(*pairs.tolist(), strict=True)]
    return pairs[0], pairs[1], np.array(starts, bool)


def _lane(number: int) -> GraphLane:
    rank, stream = divmod(number, 64)
    tier = stream - _FIRST_TIER + 1
    return GraphLane(rank, _LANES[stream] if tier < 1 else f"tier {tier}", 0, stream)
