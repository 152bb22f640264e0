"""Which task of one run is which of the other: repetition by repetition, lane by lane, in order."""

from collections import defaultdict
from dataclasses import dataclass

import numpy as np

from jaxperf.comparison._repetitions import Repetitions
from jaxperf.comparison._sequence import align
from jaxperf.comparison._traits import NAME, OPERATOR, WEIGHTS, Traits
from jaxperf.graph import ExecutionGraph, TaskKind

# A launch that comes earlier or later by less than this share of a step's kernels has not moved.
_MOVED = 0.02


@dataclass(frozen=True, eq=False)
class Side:
    """One of the two runs.

    Attributes:
        graph: its execution graph.
        traits: of its tasks.
        repeated: what repeats in it.
    """

    graph: ExecutionGraph
    traits: Traits
    repeated: Repetitions


@dataclass(frozen=True, eq=False)
class Alignment:
    """The tasks of run A and their counterparts in run B.

    Attributes:
        part: {repetition of A: repetition of B}, -1 on both sides for what lies outside; what is
            not here has no counterpart.
        partner: (tasks of A,) int64, task of B; -1 for none.
        moved: (tasks of A,) bool, on another stream or thread in B, or launched by another thread.
        reordered: (tasks of A,) bool, launched at another place in B.
        added: (k,) int64, tasks of B without a counterpart.
        added_part: (k,) int64, the repetition of A that they would belong to.
        behind: (k,) int64, the task of A that they follow; -1 where there is no place for them.
    """

    part: dict[int, int]
    partner: np.ndarray
    moved: np.ndarray
    reordered: np.ndarray
    added: np.ndarray
    added_part: np.ndarray
    behind: np.ndarray


def align_runs(a: Side, b: Side) -> Alignment:
    """Align the tasks of two runs.

    Args:
        a, b: the runs, their ranks in the same order.

    Returns:
        The alignment. Several repetitions of A may have one of B as their counterpart.
    """
    parts = _counterparts(a, b)
    partner = np.full(a.graph.tasks, -1, np.int64)
    moved, reordered = np.zeros((2, a.graph.tasks), bool)
    added: list[tuple[np.ndarray, np.ndarray, np.ndarray]] = []
    places_a, places_b = _places(a), _places(b)
    for rank in range(len(a.graph.ranks)):
        lanes = _same_lanes(a, b, rank)
        for part_a, part_b in parts.items():
            here_a = {lane: places_a.get((part_a, lane), _NONE) for lane in _lanes_of(a, rank)}
            here_b = {lane: places_b.get((part_b, lane), _NONE) for lane in _lanes_of(b, rank)}
            for lane_a, lane_b in lanes.items():
                _align_lane(a, b, here_a[lane_a], here_b[lane_b], partner)
            _pair_moved(a, b, here_a, here_b, partner, moved, lanes)
            reordered |= _reordered(a, b, here_a, partner)
            moved |= _launched_elsewhere(a, b, here_a, partner, lanes)
            added.append(_added(here_a, here_b, lanes, partner, part_a))
    _pair_arrivals(a.graph, b.graph, partner)
    columns = [np.concatenate(column) for column in zip(*added, strict=True)]
    return Alignment(parts, partner, moved, reordered & ~moved, *columns)


_NONE = np.empty(0, np.int64)


def _counterparts(a: Side, b: Side) -> dict[int, int]:
    """For each repetition of A the one of B that does the most alike; of equals the same place."""
    steady_a, steady_b = a.repeated.steady, b.repeated.steady
    found = {-1: -1}
    for part in range(len(a.repeated.names)):
        if part not in steady_a and part < len(b.repeated.names) and part not in steady_b:
            found[part] = part
    count_a, count_b = _contents(a, b)
    for place, part in enumerate(steady_a):
        alike = np.minimum(count_a[part], count_b[list(steady_b)]).sum(1)
        distance = np.abs(np.arange(len(steady_b)) - place)
        found[part] = steady_b[int(np.lexsort((distance, -alike))[0])]
    return found


def _contents(*sides: Side) -> list[np.ndarray]:
    """(repetitions, names) how often each name of device work, or of all, occurs in each run."""
    counted = []
    for side in sides:
        device = side.traits.on_device
        counted.append((device if device.any() else ~device) & (side.repeated.part >= 0))
    names = [side.traits.values[NAME][mask] for side, mask in zip(sides, counted, strict=True)]
    table, number = np.unique(np.concatenate(names), return_inverse=True)
    found = []
    for side, mask, mine in zip(sides, counted, np.split(number, [len(names[0])]), strict=True):
        size = len(side.repeated.names) * len(table)
        flat = side.repeated.part[mask].astype(np.int64) * len(table) + mine
        found.append(np.bincount(flat, minlength=size).reshape(-1, max(len(table), 1)))
    return found


def _lanes_of(side: Side, rank: int) -> list[int]:
    number = side.graph.ranks[rank]
    return [i for i, lane in enumerate(side.graph.lanes) if lane.rank == number]


def _places(side: Side) -> dict[tuple[int, int], np.ndarray]:
    """Tasks in order of launch by repetition and lane; arrivals go with their collectives."""
    graph, part = side.graph, side.repeated.part
    tasks = np.flatnonzero(graph.kind != TaskKind.ARRIVAL)
    order = tasks[np.lexsort((tasks, graph.order[tasks], graph.lane[tasks], part[tasks]))]
    key = np.stack([part[order], graph.lane[order]])
    cuts = np.flatnonzero((np.diff(key) != 0).any(0)) + 1
    return {(int(part[p[0]]), int(graph.lane[p[0]])): p for p in np.split(order, cuts) if len(p)}


def _same_lanes(a: Side, b: Side, rank: int) -> dict[int, int]:
    """{lane of A: lane of B} of streams and of threads that do the most alike."""
    lanes_a, lanes_b = _lanes_of(a, rank), _lanes_of(b, rank)
    alike = np.zeros((len(lanes_a), len(lanes_b)), np.int64)
    for trait, weight in enumerate(WEIGHTS):
        alike += weight * _common_counts(a, b, lanes_a, lanes_b, trait)
    candidates = []
    for i, lane_a in enumerate(lanes_a):
        for j, lane_b in enumerate(lanes_b):
            one, other = a.graph.lanes[lane_a], b.graph.lanes[lane_b]
            if one.is_stream == other.is_stream:
                strange = (one.device, one.stream) != (other.device, other.stream)
                candidates.append((-int(alike[i, j]), strange, lane_a, lane_b))
    found: dict[int, int] = {}
    for likeness, _, lane_a, lane_b in sorted(candidates):
        if likeness < 0 and lane_a not in found and lane_b not in found.values():
            found[lane_a] = lane_b
    return found


def _common_counts(
    a: Side, b: Side, lanes_a: list[int], lanes_b: list[int], trait: int
) -> np.ndarray:
    """(lanes of A, lanes of B) how many tasks of each pair could have a trait in common."""
    values = []
    for side, lanes in ((a, lanes_a), (b, lanes_b)):
        place = np.full(len(side.graph.lanes), -1)
        place[lanes] = np.arange(len(lanes))
        lane, value = place[side.graph.lane], side.traits.values[trait]
        known = (lane >= 0) & (value >= 0)
        values.append((lane[known], value[known]))
    table, number = np.unique(np.concatenate([v for _, v in values]), return_inverse=True)
    number_a, number_b = np.split(number, [len(values[0][0])])
    counts = [
        np.bincount(lane * len(table) + mine, minlength=len(lanes) * len(table))
        for (lane, _), mine, lanes in zip(
            values, (number_a, number_b), (lanes_a, lanes_b), strict=True
        )
    ]
    count_a, count_b = (count.reshape(-1, max(len(table), 1)) for count in counts)
    if not len(table):
        return np.zeros((len(lanes_a), len(lanes_b)), np.int64)
    return np.array([np.minimum(row, count_b).sum(1) for row in count_a])


def _align_lane(
    a: Side, b: Side, tasks_a: np.ndarray, tasks_b: np.ndarray, partner: np.ndarray
) -> None:
    values_a, values_b = a.traits.values[:, tasks_a], b.traits.values[:, tasks_b]
    _, token = np.unique(np.concatenate([values_a, values_b], 1), axis=1, return_inverse=True)
    token = token.reshape(-1)
    place_a, place_b = align(
        token[: len(tasks_a)], token[len(tasks_a) :], values_a, values_b, WEIGHTS
    )
    partner[tasks_a[place_a]] = tasks_b[place_b]


def _pair_moved(
    a: Side,
    b: Side,
    here_a: dict[int, np.ndarray],
    here_b: dict[int, np.ndarray],
    partner: np.ndarray,
    moved: np.ndarray,
    lanes: dict[int, int],
) -> None:
    """Pair what is left over with the same name and operator, in whatever lane and order."""
    tasks_a = np.concatenate(list(here_a.values()))
    taken = partner[tasks_a]
    tasks_b = np.setdiff1d(np.concatenate(list(here_b.values())), taken)
    waiting = defaultdict(list)
    for task in _in_order(b, tasks_b)[::-1].tolist():
        waiting[tuple(b.traits.values[[NAME, OPERATOR], task])].append(task)
    for task in _in_order(a, tasks_a[taken < 0]).tolist():
        alike = waiting.get(tuple(a.traits.values[[NAME, OPERATOR], task]))
        if alike:
            partner[task] = alike.pop()
            lane_b = int(b.graph.lane[partner[task]])
            moved[task] = lanes.get(int(a.graph.lane[task])) != lane_b


def _in_order(side: Side, tasks: np.ndarray) -> np.ndarray:
    """Those of some tasks that an event tells of, in order of launch."""
    tasks = tasks[side.graph.event[tasks] >= 0]
    return tasks[np.argsort(side.graph.order[tasks], kind="stable")]


def _launched_elsewhere(
    a: Side, b: Side, here_a: dict[int, np.ndarray], partner: np.ndarray, lanes: dict[int, int]
) -> np.ndarray:
    """(tasks of A,) bool, device work that another thread launches in B."""
    elsewhere = np.zeros(a.graph.tasks, bool)
    tasks = np.concatenate(list(here_a.values()))
    tasks = tasks[(a.traits.launcher[tasks] >= 0) & (partner[tasks] >= 0)]
    call_b = b.traits.launcher[partner[tasks]]
    tasks, call_b = tasks[call_b >= 0], call_b[call_b >= 0]
    same = np.full(len(a.graph.lanes), -1)
    same[list(lanes)] = list(lanes.values())
    expected = same[a.graph.lane[a.traits.launcher[tasks]]]
    elsewhere[tasks] = expected != b.graph.lane[call_b]
    return elsewhere


def _reordered(a: Side, b: Side, here_a: dict[int, np.ndarray], partner: np.ndarray) -> np.ndarray:
    """(tasks of A,) bool, launched earlier or later among the work of the busiest stream."""
    reordered = np.zeros(a.graph.tasks, bool)
    streams = {k: v for k, v in here_a.items() if a.graph.lanes[k].is_stream and len(v)}
    if len(streams) < 2:
        return reordered
    main = max(streams, key=lambda lane: len(streams[lane]))
    marks = streams[main][partner[streams[main]] >= 0]
    others = np.concatenate([v for k, v in streams.items() if k != main])
    others = others[partner[others] >= 0]
    before_a = np.searchsorted(np.sort(a.graph.order[marks]), a.graph.order[others])
    before_b = np.searchsorted(
        np.sort(b.graph.order[partner[marks]]), b.graph.order[partner[others]]
    )
    reordered[others] = np.abs(before_a - before_b) > max(_MOVED * len(marks), 1)
    return reordered


def _added(
    here_a: dict[int, np.ndarray],
    here_b: dict[int, np.ndarray],
    lanes: dict[int, int],
    partner: np.ndarray,
    part_a: int,
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Tasks of B that nothing is paired with, the repetition, and what each follows in A."""
    tasks_b = np.concatenate(list(here_b.values()))
    tasks_a = np.concatenate(list(here_a.values()))
    tasks_a = tasks_a[partner[tasks_a] >= 0]
    paired_with = dict(zip(partner[tasks_a].tolist(), tasks_a.tolist(), strict=True))
    lane_a = {lane_b: lane for lane, lane_b in lanes.items()}
    added, behind = [], []
    for lane_b, sequence in here_b.items():
        other = here_a.get(lane_a.get(lane_b, -1), _NONE)
        inside = set(other.tolist())
        in_a = np.array([paired_with.get(task, -1) for task in sequence.tolist()], np.int64)
        stays = np.array([task in inside for task in in_a.tolist()], bool)
        places = np.flatnonzero(stays)
        alone = np.flatnonzero(in_a < 0)
        added.append(sequence[alone])
        if len(places):
            at = np.maximum(np.searchsorted(places, alone) - 1, 0)
            behind.append(in_a[places[at]])
        else:
            # Nothing here is the same: the time goes to where the lane begins.
            behind.append(np.full(len(alone), other[0] if len(other) else -1, np.int64))
    found = np.concatenate(added) if len(tasks_b) else _NONE
    return found, np.full(len(found), part_a), np.concatenate(behind) if len(tasks_b) else _NONE


def _pair_arrivals(a: ExecutionGraph, b: ExecutionGraph, partner: np.ndarray) -> None:
    waits = np.flatnonzero((a.arrival >= 0) & (partner >= 0))
    partner[a.arrival[waits]] = b.arrival[partner[waits]]
