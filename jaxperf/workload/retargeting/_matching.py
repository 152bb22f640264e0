"""Which task of one recorded run is which of another run of the same program."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from jaxperf.graph import ExecutionGraph, TaskKind, calls_by_correlation
from jaxperf.trace import Run, call_tree, owning_operator

# Differences between two sequences beyond which the rest is given up: time and memory grow with
# their square, and programs that differ so much are not the same.
_MOST_DIFFERENCES = 4096


@dataclass(frozen=True, eq=False)
class Matching:
    """The tasks and operators of run A and their counterparts in run B.

    Attributes:
        partner: (tasks of A,) int64, task of B; -1 for none.
        operator: for each trace of A (events,) int64, row of B's trace; -1 for none. Only of
            operators around the launch of work that has a counterpart.
    """

    partner: np.ndarray
    operator: tuple[np.ndarray, ...]


def match_runs(run_a: Run, a: ExecutionGraph, run_b: Run, b: ExecutionGraph) -> Matching:
    """Pair the tasks of two runs: rank by rank, lane by lane, iteration by iteration, in order.

    Host tasks are alike if their name and the operator around them are; device work, if the
    operator that launched it and its class are: another size may well run another kernel.

    Args:
        run_a, a: a run and its graph.
        run_b, b: another run with as many ranks.

    Returns:
        The counterparts. Where B has fewer iterations than A its last one stands for the others.

    Example:
        >>> match_runs(run, graph, run, graph).partner  # doctest: +SKIP
        array([0, 1, 2])
    """
    side_a, side_b = _side(run_a, a), _side(run_b, b)
    lanes = _same_lanes(side_a, side_b)
    partner = np.full(a.tasks, -1, np.int64)
    for (lane, place), tasks_a in side_a.parts.items():
        tasks_b = side_b.parts.get((lanes.get(lane, -1), min(place, side_b.places - 1)))
        if tasks_b is not None:
            pairs = common_subsequence(
                [side_a.tokens[task] for task in tasks_a],
                [side_b.tokens[task] for task in tasks_b],
            )
            partner[tasks_a[pairs[:, 0]]] = tasks_b[pairs[:, 1]]
    return Matching(partner, _same_operators(side_a, side_b, partner))


def common_subsequence(a: Sequence, b: Sequence) -> np.ndarray:
    """A longest common subsequence, in time linear where the sequences agree.

    The greedy algorithm of Myers, "An O(ND) difference algorithm and its variations" (1986).

    Args:
        a, b: what is compared with `==`.

    Returns:
        (pairs, 2) int64, places in `a` and in `b`, both increasing. Of sequences that differ in
        thousands of places only as much as could be paired before.

    Example:
        >>> common_subsequence("layer", "player").tolist()
        [[0, 1], [1, 2], [2, 3], [3, 4], [4, 5]]
    """
    # ends[d][place]: how far into `a` one gets with d differences on diagonal 2 * place - d.
    ends: list[list[int]] = []
    for differences in range(min(len(a) + len(b), _MOST_DIFFERENCES) + 1):
        row = []
        for place in range(differences + 1):
            diagonal = 2 * place - differences
            x = _entry(ends, differences, place)[1]
            y = x - diagonal
            while x < len(a) and y < len(b) and a[x] == b[y]:
                x, y = x + 1, y + 1
            row.append(x)
            if diagonal == len(a) - len(b) and x >= len(a):
                return _walk_back([*ends, row], place)
        ends.append(row)
    last = len(ends) - 1
    inside = [x if x <= len(a) and x + last - 2 * p <= len(b) else -1 for p, x in enumerate(row)]
    return _walk_back(ends, int(np.argmax(inside)))


def _entry(ends: list[list[int]], differences: int, place: int) -> tuple[int, int]:
    """From which place of one difference less a diagonal is entered, and where."""
    if not differences:
        return 0, 0
    before = ends[differences - 1]
    # One element of `b` is skipped, or one of `a`.
    if place == 0 or (place < differences and before[place - 1] < before[place]):
        return place, before[place]
    return place - 1, before[place - 1] + 1


def _walk_back(ends: list[list[int]], place: int) -> np.ndarray:
    pairs = []
    for differences in range(len(ends) - 1, -1, -1):
        x, diagonal = ends[differences][place], 2 * place - differences
        place, begin = _entry(ends, differences, place)
        pairs += [(i, i - diagonal) for i in range(x - 1, begin - 1, -1)]
    return np.array(pairs[::-1], np.int64).reshape(-1, 2)


@dataclass(frozen=True, eq=False)
class _Side:
    """A run, as it is matched.

    Attributes:
        run, graph: the run.
        tokens: of each task, equal where tasks are alike.
        call: (tasks,) row of the call that launched device work, of a host task its own.
        parts: tasks by lane and place of their iteration, -1 outside of all, in order of launch.
        places: number of iterations.
    """

    run: Run
    graph: ExecutionGraph
    tokens: list[tuple[str, str]]
    call: np.ndarray
    parts: dict[tuple[int, int], np.ndarray]
    places: int


def on_device(graph: ExecutionGraph) -> np.ndarray:
    """(tasks,) bool, work of a device."""
    return (graph.kind >= TaskKind.KERNEL) & (graph.kind < TaskKind.ARRIVAL)


def _side(run: Run, graph: ExecutionGraph) -> _Side:
    device = on_device(graph)
    call = np.full(graph.tasks, -1, np.int64)
    operator = np.full(graph.tasks, "", object)
    for index, trace in enumerate(run.traces):
        mine = np.flatnonzero((graph.trace == index) & (graph.event >= 0))
        works = mine[device[mine]]
        call[mine] = graph.event[mine]
        call[works] = calls_by_correlation(trace, trace.correlation[graph.event[works]])
        owner = owning_operator(trace, call_tree(trace), call[mine])
        operator[mine] = [trace.names[trace.name[row]] if row >= 0 else "" for row in owner]
    classes = [f"class {number}" for number in graph.task_class]
    what = np.where(device, classes, [graph.names[number] for number in graph.name])
    numbers = {name: i for i, name in enumerate(dict.fromkeys(step.name for step in graph.steps))}
    of_step = np.array([*(numbers[step.name] for step in graph.steps), -1])
    parts: dict[tuple[int, int], list[int]] = {}
    for task in np.argsort(graph.order, kind="stable").tolist():
        if graph.kind[task] != TaskKind.ARRIVAL:
            key = int(graph.lane[task]), int(of_step[graph.step[task]])
            parts.setdefault(key, []).append(task)
    return _Side(
        run,
        graph,
        list(zip(what.tolist(), operator.tolist(), strict=True)),
        call,
        {key: np.array(tasks) for key, tasks in parts.items()},
        len(numbers),
    )


def _same_lanes(a: _Side, b: _Side) -> dict[int, int]:
    """{lane of A: lane of B} of the same rank and kind that do the most alike."""
    counts = []
    for side in (a, b):
        of_lane: list[Counter] = [Counter() for _ in side.graph.lanes]
        for lane, token in zip(side.graph.lane.tolist(), side.tokens, strict=True):
            of_lane[lane][token] += 1
        counts.append(of_lane)
    candidates = []
    for i, one in enumerate(a.graph.lanes):
        for j, other in enumerate(b.graph.lanes):
            same_rank = a.graph.ranks.index(one.rank) == b.graph.ranks.index(other.rank)
            if same_rank and one.is_stream == other.is_stream:
                alike = (counts[0][i] & counts[1][j]).total()
                candidates.append((-alike, one.stream != other.stream, i, j))
    found: dict[int, int] = {}
    for _, _, i, j in sorted(candidates):
        if i not in found and j not in found.values():
            found[i] = j
    return found


def _same_operators(a: _Side, b: _Side, partner: np.ndarray) -> tuple[np.ndarray, ...]:
    """The operators around the launches of paired work, from the innermost outwards."""
    paired = np.flatnonzero(on_device(a.graph) & (partner >= 0))
    found = []
    for index, (one, other) in enumerate(zip(a.run.traces, b.run.traces, strict=True)):
        row = np.full(one.events, -1, np.int64)
        tree_a, tree_b = call_tree(one), call_tree(other)
        mine = paired[a.graph.trace[paired] == index]
        at_a, at_b = a.call[mine], b.call[partner[mine]]
        while len(at_a):
            at_a, at_b = owning_operator(one, tree_a, at_a), owning_operator(other, tree_b, at_b)
            same = (at_a >= 0) & (at_b >= 0)
            same &= (
                np.array(one.names, object)[one.name[at_a]]
                == (np.array(other.names, object)[other.name[at_b]])
            )
            at_a, at_b = at_a[same], at_b[same]
            row[at_a] = at_b
        found.append(row)
    return tuple(found)
