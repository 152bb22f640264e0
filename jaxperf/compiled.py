"""From an execution graph to a program: the recursion as a short list of joins.

Replaying a graph means solving `start = max over dependencies (start of source + weight)`. Most
tasks wait for one other task, the one before them in their lane. So the graph is compiled once, on
the host: runs of such tasks are contracted to chains, in which a start is the chain's start plus a
prefix sum; what remains are the chains' starts, each a maximum of a few inputs, which are computed
one after another in two-input steps. `docs/engine.md` tells the whole story.

Everything here is numpy; the program's arrays become leaves of a pytree in `jaxperf.replay`.
"""

import heapq
from dataclasses import dataclass

import numpy as np

from jaxperf.errors import ProgramError
from jaxperf.graph import ExecutionGraph
from jaxperf.trace import MISSING

_NS_PER_US = 1e3


@dataclass(frozen=True, eq=False)
class Program:
    """A graph compiled for replay: arrays only, padded so that similar graphs share a compilation.

    Tasks are laid out so that each chain is contiguous; a *position* is a place in that layout.
    Along a chain, each task starts a little later than the one before it:

        offset[i] = offset[i - 1] + duration[chain_task[i]] + lag[chain_lag[i]]   (0 at its head)

    Chains start at joins. Step `k` computes row `k + 1` of a table of times; row 0 is time zero:

        row[k + 1] = max over both sides of row[source_row] + offset[source_position]
                         + duration[source_task] + lag[source_lag] + constant

    The last task, position and lag are padding that adds nothing: an edge from the start of a task
    names it for the duration, and so on.

    Attributes:
        tasks, lags: () int32, how many the graph has; the lengths below include padding.
        duration_us: (tasks,) float64, the graph's own durations.
        lag_us: (lags,) float64, the graph's own lags.
        continues: (tasks,) bool, whether a position goes on with the chain of the one before.
        chain_task, chain_lag: (tasks,) int32, what lies between the starts of the two.
        position: (tasks,) int32, position of each task.
        row: (tasks,) int32, row that holds the start of each task's chain.
        source_row, source_position, source_task, source_lag: (2, steps) int32.
        constant_us: (2, steps) float64: a release, zero, or -inf for a side that never binds.
        source_slot: (2, steps) int32, where a replay that keeps only live rows finds each side.
        target_slot: (steps,) int32, and where it puts the result.
        begin_task, end_task: (iterations,) int32, of the graph's steps.
        begin_slot, end_slot: (iterations,) int32, where the starts of their chains are at last.
        makespan_row, makespan_slot: () int32, of the latest end of all tasks.
        slots: number of values that are alive at once, at most.
    """

    tasks: np.ndarray
    lags: np.ndarray
    duration_us: np.ndarray
    lag_us: np.ndarray
    continues: np.ndarray
    chain_task: np.ndarray
    chain_lag: np.ndarray
    position: np.ndarray
    row: np.ndarray
    source_row: np.ndarray
    source_position: np.ndarray
    source_task: np.ndarray
    source_lag: np.ndarray
    constant_us: np.ndarray
    source_slot: np.ndarray
    target_slot: np.ndarray
    begin_task: np.ndarray
    end_task: np.ndarray
    begin_slot: np.ndarray
    end_slot: np.ndarray
    makespan_row: np.ndarray
    makespan_slot: np.ndarray
    slots: int


def compile_program(graph: ExecutionGraph) -> Program:
    """Compile a graph for replay, in time linear in its size.

    Args:
        graph: the execution graph. Every task needs a dependency or a release.

    Returns:
        The program, its arrays on the host.

    Raises:
        ProgramError: an array has the wrong length or type, an index is out of range, a duration
            is negative, a task has nothing to start it, or dependencies form a cycle.

    Example:
        >>> program = compile_program(graph)
        >>> program.duration_us[: graph.tasks].tolist()
        [6.0, 10.0, 2.0]
    """
    _validate(graph)
    chains = _contract(graph)
    inputs = _inputs(graph, chains)
    rank = _rank_chains(graph, chains, inputs)
    return _emit(graph, chains, inputs, rank)


# Validation
# ---------------------------------------------------------------------------------------


def _validate(graph: ExecutionGraph) -> None:
    tasks, edges = len(graph.duration_ns), len(graph.source)
    if not tasks:
        raise ProgramError("the graph has no tasks", expected="at least one")
    for names, length in (
        (("name", "lane", "duration_ns", "release_ns", "order"), tasks),
        (("source", "target", "lag_ns"), edges),
    ):
        for name in names:
            column = getattr(graph, name)
            if column.shape != (length,) or not np.issubdtype(column.dtype, np.integer):
                raise ProgramError(
                    "wrong shape or type",
                    where=name,
                    got=f"{column.dtype}{column.shape}",
                    expected=f"integers of shape ({length},)",
                )
    if graph.from_start.shape != (edges,) or graph.from_start.dtype != bool:
        raise ProgramError(
            "wrong shape or type",
            where="from_start",
            got=f"{graph.from_start.dtype}{graph.from_start.shape}",
            expected=f"bool of shape ({edges},)",
        )
    iterations = graph.steps
    _check_range("source", graph.source, tasks)
    _check_range("target", graph.target, tasks)
    _check_range("steps.begin_task", np.array([s.begin_task for s in iterations], int), tasks)
    _check_range("steps.end_task", np.array([s.end_task for s in iterations], int), tasks)
    negative = np.flatnonzero(graph.duration_ns < 0)
    if len(negative):
        task = int(negative[0])
        raise ProgramError(
            "a duration is negative",
            where=_task_text(graph, task),
            got=f"{int(graph.duration_ns[task])} ns",
            expected="0 or more",
        )


def _check_range(name: str, index: np.ndarray, length: int) -> None:
    outside = np.flatnonzero((index < 0) | (index >= length))
    if len(outside):
        raise ProgramError(
            "index out of range",
            where=f"{name}[{outside[0]}]",
            got=str(int(index[outside[0]])),
            expected=f"0 to {length - 1}",
        )


def _task_text(graph: ExecutionGraph, task: int) -> str:
    name = int(graph.name[task])
    text = graph.names[name] if 0 <= name < len(graph.names) else "?"
    return f"task {task} ({text})"


# Chains
# ---------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class _Chains:
    """Runs of tasks that wait for nothing but the task before them.

    Attributes:
        position: (tasks,) place of each task in the layout.
        edge: (tasks,) by position, the dependency that continues the chain; -1 at a head.
        of_task: (tasks,) chain of each task.
        head: (chains,) first task.
    """

    position: np.ndarray
    edge: np.ndarray
    of_task: np.ndarray
    head: np.ndarray


def _contract(graph: ExecutionGraph) -> _Chains:
    tasks = len(graph.duration_ns)
    task_at = np.lexsort((graph.order, graph.lane))
    position = _inverse(task_at)

    dependencies = np.bincount(graph.target, minlength=tasks)
    released = graph.release_ns != MISSING
    idle = np.flatnonzero((dependencies == 0) & ~released)
    if len(idle):
        raise ProgramError(
            "nothing starts this task",
            where=_task_text(graph, int(idle[0])),
            expected="a dependency or a release",
        )
    # A task with one input goes on with its source's chain if it comes next in the layout. The
    # layout follows lanes, so this holds for nearly all of them, and a chain needs no other order.
    follows = position[graph.source] + 1 == position[graph.target]
    follows &= (dependencies[graph.target] == 1) & ~released[graph.target]
    edge = np.full(tasks, -1)
    followers = np.flatnonzero(follows)
    edge[position[graph.target[followers]]] = followers

    is_head = edge < 0
    of_task = np.empty(tasks, np.int64)
    of_task[task_at] = np.cumsum(is_head) - 1
    return _Chains(position, edge, of_task, task_at[is_head])


# Inputs of the chains, and the order in which chains are computed
# ---------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class _Inputs:
    """What each chain's start is the maximum of; a chain's inputs in the order of the graph.

    Attributes:
        target: (inputs,) chain.
        source: (inputs,) chain, -1 for time zero.
        edge: (inputs,) dependency, -1 for a release.
    """

    target: np.ndarray
    source: np.ndarray
    edge: np.ndarray


def _inputs(graph: ExecutionGraph, chains: _Chains) -> _Inputs:
    inside = np.zeros(len(graph.source), bool)
    inside[chains.edge[chains.edge >= 0]] = True
    edge = np.flatnonzero(~inside)
    released = np.flatnonzero(graph.release_ns[chains.head] != MISSING)
    none = np.full(len(released), -1)
    return _Inputs(
        target=np.concatenate([chains.of_task[graph.target[edge]], released]),
        source=np.concatenate([chains.of_task[graph.source[edge]], none]),
        edge=np.concatenate([edge, none]),
    )


def _rank_chains(graph: ExecutionGraph, chains: _Chains, inputs: _Inputs) -> np.ndarray:
    """(chains,) when each chain is computed: in order of launch, or as near to it as can be."""
    rank = _inverse(np.argsort(graph.order[chains.head], kind="stable"))
    edges = inputs.edge >= 0
    source, target = rank[inputs.source[edges]], rank[inputs.target[edges]]
    if np.all(source < target):
        return rank
    sequence = _topological(len(rank), source, target)
    if len(sequence) < len(rank):
        raise _cycle(graph, inputs, rank, sequence)
    return _inverse(sequence)[rank]


def _topological(nodes: int, source: np.ndarray, target: np.ndarray) -> np.ndarray:
    """Nodes in topological order, the lowest that is ready first; short if there is a cycle."""
    by_source = np.argsort(source, kind="stable")
    successors = target[by_source].tolist()
    first = np.searchsorted(source[by_source], np.arange(nodes + 1)).tolist()
    waiting = np.bincount(target, minlength=nodes).tolist()
    ready = [node for node in range(nodes) if not waiting[node]]
    sequence = []
    while ready:
        node = heapq.heappop(ready)
        sequence.append(node)
        for successor in successors[first[node] : first[node + 1]]:
            waiting[successor] -= 1
            if not waiting[successor]:
                heapq.heappush(ready, successor)
    return np.array(sequence, np.int64)


def _cycle(graph, inputs, rank, sequence) -> ProgramError:
    """The error that names the tasks of one cycle among the chains that could not be ordered."""
    stuck = np.ones(len(rank), bool)
    stuck[_inverse(rank)[sequence]] = False
    # Each stuck chain waits for a stuck chain: walking back from any of them ends in a cycle.
    blocking = np.flatnonzero((inputs.edge >= 0) & stuck[inputs.source] & stuck[inputs.target])
    blocker = np.full(len(rank), -1)
    blocker[inputs.target[blocking]] = blocking
    seen: dict[int, int] = {}
    path: list[int] = []
    chain = int(np.flatnonzero(stuck)[0])
    while chain not in seen:
        seen[chain] = len(path)
        path.append(int(blocker[chain]))
        chain = int(inputs.source[path[-1]])
    tasks: list[int] = []
    for entry in reversed(path[seen[chain] :]):
        edge = inputs.edge[entry]
        tasks += [int(graph.source[edge]), int(graph.target[edge])]
    tasks = [task for i, task in enumerate(tasks) if task != tasks[i - 1]] or tasks[:1]
    shown = [_task_text(graph, task) for task in tasks[:6]]
    more = [f"and {len(tasks) - 6} more"] if len(tasks) > 6 else []
    return ProgramError(
        "dependencies form a cycle",
        where=" -> ".join([*shown, *more, _task_text(graph, tasks[0])]),
        expected="an order in which every task follows what it waits for",
    )


def _inverse(permutation: np.ndarray) -> np.ndarray:
    inverse = np.empty_like(permutation)
    inverse[permutation] = np.arange(len(permutation))
    return inverse


# Steps
# ---------------------------------------------------------------------------------------


def _emit(graph: ExecutionGraph, chains: _Chains, inputs: _Inputs, rank: np.ndarray) -> Program:
    # A chain of c inputs takes max(c - 1, 1) steps, which fold the inputs from first to last. The
    # makespan is one more fold, over the ends of the tasks that no other end is bound to follow;
    # each of them joins it as soon as its chain is known, so that it need not be kept.
    sinks = _sinks(graph)
    sinks = sinks[np.argsort(rank[chains.of_task[sinks]], kind="stable")]
    sink_rank = rank[chains.of_task[sinks]]
    by_rank = np.argsort(rank[inputs.target], kind="stable")
    input_rank = rank[inputs.target[by_rank]]
    fold = np.maximum(np.bincount(input_rank, minlength=len(rank)) - 1, 1)
    width = fold + np.bincount(sink_rank, minlength=len(rank))
    first = np.cumsum(width) - width
    row = (first + fold)[rank][chains.of_task]

    sides = _Sides(graph, chains, row, steps=int(width.sum()))
    nth = _index_in_run(input_rank)
    step = first[input_rank] + np.maximum(nth - 1, 0)
    sides.put_inputs((nth > 0).astype(int), step, inputs.edge[by_rank], inputs.target[by_rank])
    sides.put_row(step[nth > 1], step[nth > 1])
    step = first[sink_rank] + fold[sink_rank] + _index_in_run(sink_rank)
    sides.put_ends((np.arange(len(sinks)) > 0).astype(int), step, sinks)
    sides.put_row(step[1:], step[:-1] + 1)
    return _finish(graph, chains, sides, row, makespan_row=int(step[-1]) + 1)


class _Sides:
    """The inputs of each step, filled in place; untouched, the left is zero, the right -inf."""

    def __init__(self, graph: ExecutionGraph, chains: _Chains, row: np.ndarray, steps: int):
        self.graph, self.chains, self.task_row, self.steps = graph, chains, row, steps
        self.no_task, self.no_lag = _paddings(len(row), len(graph.source))
        shape = (2, _padded(steps))
        self.row = np.zeros(shape, np.int32)
        self.position = np.full(shape, self.no_task, np.int32)
        self.task = np.full(shape, self.no_task, np.int32)
        self.lag = np.full(shape, self.no_lag, np.int32)
        self.constant_us = np.zeros(shape)
        self.constant_us[1] = -np.inf

    def put_inputs(self, side, step, edge, target_chain) -> None:
        """Dependencies, and releases where there is no edge."""
        release = edge < 0
        release_ns = self.graph.release_ns[self.chains.head[target_chain[release]]]
        self.constant_us[side[release], step[release]] = release_ns / _NS_PER_US
        at, edge = (side[~release], step[~release]), edge[~release]
        source = self.graph.source[edge]
        self._put_start(at, source)
        self.task[at] = np.where(self.graph.from_start[edge], self.no_task, source)
        self.lag[at] = edge

    def put_ends(self, side, step, task) -> None:
        self._put_start((side, step), task)
        self.task[side, step] = task

    def put_row(self, step, row) -> None:
        """Let the left side be a row as it is."""
        self.row[0, step] = row

    def _put_start(self, at, task) -> None:
        self.row[at] = self.task_row[task]
        self.position[at] = self.chains.position[task]
        self.constant_us[at] = 0.0


def _finish(
    graph: ExecutionGraph, chains: _Chains, sides: _Sides, row: np.ndarray, makespan_row: int
) -> Program:
    begin = np.array([s.begin_task for s in graph.steps], np.int32)
    end = np.array([s.end_task for s in graph.steps], np.int32)
    kept = np.unique(np.concatenate([row[begin], row[end], [makespan_row]]))
    slot, slots = _allocate(sides.row[:, : sides.steps], kept)
    target_slot = np.full(sides.row.shape[1], slots - 1)
    target_slot[: sides.steps] = slot[1:]

    tasks, lags = sides.no_task + 1, sides.no_lag + 1
    inside = np.flatnonzero(chains.edge >= 0)
    edge = chains.edge[inside]
    continues = np.zeros(tasks, bool)
    continues[inside] = True
    chain_task, chain_lag = np.full(tasks, sides.no_task), np.full(tasks, sides.no_lag)
    chain_task[inside] = np.where(graph.from_start[edge], sides.no_task, graph.source[edge])
    chain_lag[inside] = edge
    position = np.arange(tasks)
    position[: len(row)] = chains.position
    return Program(
        tasks=np.array(len(row), np.int32),
        lags=np.array(len(graph.source), np.int32),
        duration_us=_pad(graph.duration_ns / _NS_PER_US, tasks),
        lag_us=_pad(graph.lag_ns / _NS_PER_US, lags),
        continues=continues,
        chain_task=_int32(chain_task),
        chain_lag=_int32(chain_lag),
        position=_int32(position),
        row=_int32(_pad(row, tasks)),
        source_row=sides.row,
        source_position=sides.position,
        source_task=sides.task,
        source_lag=sides.lag,
        constant_us=sides.constant_us,
        source_slot=_int32(slot[sides.row]),
        target_slot=_int32(target_slot),
        begin_task=begin,
        end_task=end,
        begin_slot=_int32(slot[row[begin]]),
        end_slot=_int32(slot[row[end]]),
        makespan_row=np.array(makespan_row, np.int32),
        makespan_slot=_int32(slot[makespan_row]),
        slots=_padded(slots, least=32),
    )


def _sinks(graph: ExecutionGraph) -> np.ndarray:
    """Tasks whose end is not bound to be followed by another task's start."""
    followed = np.zeros(len(graph.duration_ns), bool)
    followed[graph.source[~graph.from_start & (graph.lag_ns >= 0)]] = True
    return np.flatnonzero(~followed)


def _index_in_run(values: np.ndarray) -> np.ndarray:
    """0, 1, 2, ... within each run of equal values."""
    index = np.arange(len(values))
    starts = np.ones(len(values), bool)
    starts[1:] = values[1:] != values[:-1]
    return index - np.maximum.accumulate(np.where(starts, index, 0))


# Slots
# ---------------------------------------------------------------------------------------


def _allocate(row: np.ndarray, kept: np.ndarray) -> tuple[np.ndarray, int]:
    """A slot for each row, reused once no later step reads it.

    Free slots queue: with at most `live` values alive, the k-th value to be born takes the place
    of the (k - live)-th value to die, which makes a forest that pointer doubling resolves.

    Args:
        row: (2, steps) the rows that each step reads; step k writes row k + 1.
        kept: rows that are wanted after the last step.

    Returns:
        (steps + 1,) the slots, and their number; slot 0 is row 0's, and the last is for padding.
    """
    steps = row.shape[1]
    step = np.arange(steps)
    # A value dies when its last reader runs, which may reuse the slot at once: reads come first.
    death = np.append(0, step + 1)
    death[row.T.reshape(-1)] = np.repeat(step, 2)
    death[kept] = steps
    death = death[1:]
    dead = np.cumsum(np.bincount(death, minlength=steps + 1))[:steps]
    live = int(np.max(step + 1 - dead))
    root = step.copy()
    root[live:] = np.argsort(death, kind="stable")[: steps - live]
    while np.any(root >= live):
        root = root[root]
    slot = np.append(0, root + 1)

    by_slot = np.argsort(root, kind="stable")
    same = root[by_slot[1:]] == root[by_slot[:-1]]
    assert np.all(by_slot[1:][same] >= death[by_slot[:-1]][same]), "a live value is overwritten"
    return slot, live + 2


# Padding
# ---------------------------------------------------------------------------------------


# Sizes below are powers of two. There a compilation takes a thousand times as long as a replay, so
# that programs had better share one; above, what is wasted begins to count.
_SMALL = 1 << 14


def _padded(size: int, least: int = 1024) -> int:
    """The next of 1024, 2048, ..., 16384, 18432, 20480, ...: from 16384 on in eighths.

    Example:
        >>> _padded(1000), _padded(1025), _padded(20000)
        (1024, 2048, 20480)
    """
    size = max(size, least)
    bits = (size - 1).bit_length()
    unit = 1 << (bits if size <= _SMALL else bits - 4)
    return -(-size // unit) * unit


def _paddings(tasks: int, lags: int) -> tuple[int, int]:
    """Indices of the last tasks and lags, both padded by at least one; alike where both are few."""
    if max(tasks, lags) < _SMALL:
        tasks = lags = max(tasks, lags)
    return _padded(tasks + 1) - 1, _padded(lags + 1) - 1


def _pad(values: np.ndarray, length: int) -> np.ndarray:
    padded = np.zeros(length, values.dtype)
    padded[: len(values)] = values
    return padded


def _int32(values: np.ndarray) -> np.ndarray:
    return np.asarray(values, np.int32)
