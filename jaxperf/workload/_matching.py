"""Which task of one recorded run is which of another run of the same program."""

from collections import Counter
from dataclasses import dataclass

import numpy as np

from jaxperf.graph import ExecutionGraph, TaskKind, calls_by_correlation
from jaxperf.trace import Run, call_tree, owning_operator

Token = tuple[str, str]


@dataclass(frozen=True, eq=False)
class Matching:
    """The tasks and operators of run A and their counterparts in run B.

    Attributes:
        partner: (tasks of A,) int64, task of B; -1 for none.
        operator: for each trace of A (events,) int64, row of B's trace; -1 for none. Only
            operators around the launch of work that has a counterpart.
    """

    partner: np.ndarray
    operator: tuple[np.ndarray, ...]


def match_runs(run_a: Run, a: ExecutionGraph, run_b: Run, b: ExecutionGraph) -> Matching:
    """Pair the tasks of two runs, rank by rank, lane by lane, iteration by iteration, in order.

    Host tasks are alike if name and surrounding operator are; device work if the operator that
    launched it and its class are, as another size may well run another kernel.

    Args:
        run_a, a: a run and its graph.
        run_b, b: another run with as many ranks.

    Returns:
        The counterparts.
    """
    side_a, side_b = _side(run_a, a), _side(run_b, b)
    lanes = _same_lanes(side_a, side_b)
    partner = np.full(a.tasks, -1, np.int64)
    for (lane, place), tasks_a in side_a.parts.items():
        tasks_b = side_b.parts.get((lanes.get(lane, -1), min(place, side_b.places - 1)))
        if tasks_b is None:
            continue
        tokens_a = [side_a.tokens[task] for task in tasks_a]
        tokens_b = [side_b.tokens[task] for task in tasks_b]
        pairs = common_subsequence(tokens_a, tokens_b)
        partner[tasks_a[pairs[:, 0]]] = tasks_b[pairs[:, 1]]
    return Matching(partner, _same_operators(side_a, side_b, partner))


@dataclass(frozen=True, eq=False)
class _Side:
    """A run, as it is matched.

    Attributes:
        run, graph: the run.
        tokens: of each task, equal where tasks are alike.
        launcher: (tasks,) row of the launch call of device work, the own row of a host task.
        parts: tasks by lane and place of the iteration, -1 outside, in order of launch.
        places: number of iterations.
    """

    run: Run
    graph: ExecutionGraph
    tokens: list[Token]
    launcher: np.ndarray
    parts: dict[tuple[int, int], np.ndarray]
    places: int


def _side(run: Run, graph: ExecutionGraph) -> _Side:
    on_device = _on_device(graph)
    launcher = np.full(graph.tasks, -1, np.int64)
    operator = np.full(graph.tasks, "", object)
    for index, trace in enumerate(run.traces):
        mine = np.flatnonzero((graph.trace == index) & (graph.event >= 0))
        works = mine[on_device[mine]]
        launcher[mine] = graph.event[mine]
        launcher[works] = calls_by_correlation(trace, trace.correlation[graph.event[works]])
        owner = owning_operator(trace, call_tree(trace), launcher[mine])
        operator[mine] = [trace.names[trace.name[row]] if row >= 0 else "" for row in owner]
    classes = [f"class {number}" for number in graph.task_class]
    names = [graph.names[number] for number in graph.name]
    what = np.where(on_device, classes, names)
    numbers = {name: i for i, name in enumerate(dict.fromkeys(step.name for step in graph.steps))}
    of_step = np.array([numbers[step.name] for step in graph.steps] + [-1])
    parts: dict[tuple[int, int], list[int]] = {}
    for task in np.argsort(graph.order, kind="stable").tolist():
        if graph.kind[task] != TaskKind.ARRIVAL:
            key = int(graph.lane[task]), int(of_step[graph.step[task]])
            parts.setdefault(key, []).append(task)
    tokens = list(zip(what.tolist(), operator.tolist(), strict=True))
    arrays = {key: np.array(tasks) for key, tasks in parts.items()}
    return _Side(run, graph, tokens, launcher, arrays, len(numbers))


def _on_device(graph: ExecutionGraph) -> np.ndarray:
    return (graph.kind >= TaskKind.KERNEL) & (graph.kind < TaskKind.ARRIVAL)


def _same_lanes(a: _Side, b: _Side) -> dict[int, int]:
    """{lane of A: lane of B} of one rank and kind that do the most alike."""
    counts = []
    for side in (a, b):
        of_lane = [Counter() for _ in side.graph.lanes]
        for lane, token in zip(side.graph.lane.tolist(), side.tokens, strict=True):
            of_lane[lane][token] += 1
        counts.append(of_lane)
    candidates = []
    for i, lane_a in enumerate(a.graph.lanes):
        for j, lane_b in enumerate(b.graph.lanes):
            same_rank = a.graph.ranks.index(lane_a.rank) == b.graph.ranks.index(lane_b.rank)
            if same_rank and lane_a.is_stream == lane_b.is_stream:
                common = (counts[0][i] & counts[1][j]).total()
                candidates.append((-common, lane_a.stream != lane_b.stream, i, j))
    found: dict[int, int] = {}
    for _, _, i, j in sorted(candidates):
        if i not in found and j not in found.values():
            found[i] = j
    return found


def _same_operators(a: _Side, b: _Side, partner: np.ndarray) -> tuple[np.ndarray, ...]:
    """The operators around the launches of paired work, from the innermost outwards."""
    paired = np.flatnonzero(_on_device(a.graph) & (partner >= 0))
    found = []
    for index, (one, other) in enumerate(zip(a.run.traces, b.run.traces, strict=True)):
        row = np.full(one.events, -1, np.int64)
        mine = paired[a.graph.trace[paired] == index]
        tree_a, tree_b = call_tree(one), call_tree(other)
        at_a, at_b = a.launcher[mine], b.launcher[partner[mine]]
        while len(at_a):
            at_a, at_b = owning_operator(one, tree_a, at_a), owning_operator(other, tree_b, at_b)
            both = (at_a >= 0) & (at_b >= 0)
            at_a, at_b = at_a[both], at_b[both]
            names_a = [one.names[name] for name in one.name[at_a]]
            names_b = [other.names[name] for name in other.name[at_b]]
            same = np.array(names_a, object) == np.array(names_b, object)
            at_a, at_b = at_a[same], at_b[same]
            row[at_a] = at_b
        found.append(row)
    return tuple(found)


def common_subsequence(a, b):
    """A longest common subsequence (Myers 1986), in time linear where the sequences agree."""
    reach = {1: 0}
    history = []
    for differences in range(len(a) + len(b) + 1):
        history.append(reach.copy())
        for diagonal in range(-differences, differences + 1, 2):
            down = diagonal == -differences or (
                diagonal != differences and reach[diagonal - 1] < reach[diagonal + 1]
            )
            x = reach[diagonal + 1] if down else reach[diagonal - 1] + 1
            y = x - diagonal
            while x < len(a) and y < len(b) and a[x] == b[y]:
                x, y = x + 1, y + 1
            reach[diagonal] = x
            if x >= len(a) and y >= len(b):
                return _backtrack(history, len(a), len(b))


def _backtrack(history, x, y):
    pairs = []
    for differences in range(len(history) - 1, -1, -1):
        reach = history[differences]
        diagonal = x - y
        down = diagonal == -differences or (
            diagonal != differences and reach[diagonal - 1] < reach[diagonal + 1]
        )
        before = diagonal + 1 if down else diagonal - 1
        x0 = reach[before]
        y0 = x0 - before
        x1 = x0 if down else x0 + 1
        while x > x1:
            x, y = x - 1, y - 1
            pairs.append((x, y))
        x, y = x0, y0
    return np.array(pairs[::-1], np.int64).reshape(-1, 2)
