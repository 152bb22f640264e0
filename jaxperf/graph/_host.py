"""CPU threads as tasks: each thread's time is cut where its innermost event changes.

Between two cuts a thread does one thing: a runtime call, an operator's own work, or the Python
between operators. Silence of a thread is host work too, except where another thread works in its
stead and it only waits for that one (`find_hand_overs`).
"""

import re
from dataclasses import dataclass

import numpy as np

from jaxperf.graph._device import names_match
from jaxperf.trace import Category, Trace, call_tree

_CALLS = (Category.RUNTIME, Category.DRIVER)
_LAUNCHING = re.compile(r"Launch|Memcpy|Memset")
_TILED = (Category.CPU_OP, Category.ANNOTATION, Category.RUNTIME, Category.DRIVER)

# A thread that is silent for less than this is not suspected of waiting for another.
_SILENCE_NS = 5_000

# Part of a silence that the other thread must fill, and part of the other thread's activity that
# must lie in such silences, for the two to be taken as handing work to each other.
_FILLED = 0.5
_ALTERNATING = 0.8

# Work that may interrupt a wait, as a part of it.
_INTERRUPTED = 0.1


@dataclass(frozen=True, eq=False)
class Tiles:
    """Pieces of CPU threads, by lane and in order of time, without gaps inside a lane.

    Attributes:
        lane: (t,) int32, index into the trace's lanes.
        start_ns, end_ns: (t,) int64, as measured; a piece may be empty.
        event: (t,) int64, row of the innermost event, -1 between events.
        first: (lanes + 1,) int64, where each lane's pieces begin.
    """

    lane: np.ndarray
    start_ns: np.ndarray
    end_ns: np.ndarray
    event: np.ndarray
    first: np.ndarray


@dataclass(frozen=True, eq=False)
class HandOvers:
    """Where one thread waits for another.

    A silent piece is up to three things in truth: host work until the other thread starts, waiting,
    and host work from when the other has ended. One row per silence; several in a row are one wait
    that was interrupted by a little work.

    Attributes:
        silent: (h,) int64, the silent piece.
        first: (h,) int64, first piece of the other thread's work; -1 where it is at work already.
        last: (h,) int64, last piece of the other thread's work; -1 where it works on.
        other: (h,) int64, lane of the other thread.
    """

    silent: np.ndarray
    first: np.ndarray
    last: np.ndarray
    other: np.ndarray


def tile_threads(trace: Trace) -> Tiles:
    """Cut every CPU thread where its innermost operator, annotation or call changes.

    Every start and end of an event is a cut, so that each moment the graph refers to is the start
    or the end of a piece.

    Args:
        trace: the trace.

    Returns:
        The pieces of all CPU threads.
    """
    tree = call_tree(trace, _TILED)
    rows = np.flatnonzero(tree.depth >= 0)
    lane = trace.lane[rows]
    start, end = _clipped_times(trace, tree.parent, tree.depth, rows)

    # Ends come before starts at one moment; outer events start first and end last.
    depth = tree.depth[rows].astype(np.int64)
    full = end > start
    moment = np.concatenate([start, end[full]])
    moment_lane = np.concatenate([lane, lane[full]])
    rank = np.concatenate([depth + 1, -depth[full]])
    innermost = np.concatenate([np.where(full, rows, -2), tree.parent[rows[full]]])
    order = np.lexsort((rank, moment, moment_lane))
    moment, moment_lane, innermost = moment[order], moment_lane[order], innermost[order]
    # An empty event cuts the thread but is never what the thread does next.
    known = np.maximum.accumulate(np.where(innermost > -2, np.arange(len(order)), 0))
    innermost = np.where(innermost[known] > -2, innermost[known], -1)

    last_of_moment = np.ones(len(order), bool)
    last_of_moment[:-1] = (moment[1:] != moment[:-1]) | (moment_lane[1:] != moment_lane[:-1])
    moment, moment_lane = moment[last_of_moment], moment_lane[last_of_moment]
    innermost = innermost[last_of_moment]
    same = moment_lane[1:] == moment_lane[:-1]
    tile_lane = moment_lane[:-1][same]
    return Tiles(
        tile_lane.astype(np.int32),
        moment[:-1][same],
        moment[1:][same],
        innermost[:-1][same].astype(np.int64),
        np.searchsorted(tile_lane, np.arange(len(trace.lanes) + 1)),
    )


def _clipped_times(
    trace: Trace, parent: np.ndarray, depth: np.ndarray, rows: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Start and end of each row, made to nest exactly: jitter at the edges is cut off."""
    start, end = trace.start_ns.copy(), trace.end_ns
    order = rows[np.lexsort((start[rows], depth[rows], trace.lane[rows]))]
    left, right = order[:-1], order[1:]
    siblings = (trace.lane[left] == trace.lane[right]) & (depth[left] == depth[right])
    left, right = left[siblings], right[siblings]
    end[left] = np.minimum(end[left], np.maximum(start[left], start[right]))
    for level in range(1, int(depth.max(initial=0)) + 1):
        inner = rows[depth[rows] == level]
        outer = parent[inner]
        start[inner] = np.clip(start[inner], start[outer], end[outer])
        end[inner] = np.clip(end[inner], start[inner], end[outer])
    return start[rows], end[rows]


def find_hand_overs(trace: Trace, tiles: Tiles) -> HandOvers:
    """Silences of one thread in which another works in its stead, such as autograd's.

    A silence of thread A counts if thread B is active during at least half of it; it begins with a
    hand-over if B was silent while A was last active, and ends with one if B is silent while A is
    next active. Nearly all of B's activity must lie in such silences of A.

    Args:
        trace: the trace.
        tiles: its threads.

    Returns:
        The hand-overs, at most one per silence.
    """
    called = np.isin(trace.category[tiles.event], _CALLS)
    quiet = ~((tiles.event >= 0) & called)
    quiet &= tiles.end_ns - tiles.start_ns >= _SILENCE_NS
    lanes = np.flatnonzero((np.diff(tiles.first) > 0) & _works(trace))
    # Of two threads that wait for each other in turn, the one that was there first is said to
    # wait; that the other waits for it follows.
    lanes = lanes[np.argsort(tiles.start_ns[tiles.first[lanes]], kind="stable")]
    found: dict[int, tuple[int, int, int, int]] = {}
    paired = set()
    for a in lanes.tolist():
        silences = np.arange(int(tiles.first[a]), int(tiles.first[a + 1]))
        silences = silences[quiet[silences]]
        for b in lanes.tolist():
            same_process = trace.lanes[a].process == trace.lanes[b].process
            if a == b or not same_process or (b, a) in paired or not len(silences):
                continue
            waits = _filled_silences(tiles, silences, b)
            if waits:
                paired.add((a, b))
            for silence, first, last, active_ns in waits:
                # The thread that fills most of a silence is the one that is waited for.
                if silence not in found or found[silence][3] < active_ns:
                    found[silence] = (first, last, b, active_ns)
    silent = np.array(sorted(found), np.int64)
    pairs = np.array([found[s] for s in silent.tolist()], np.int64).reshape(-1, 4)
    return HandOvers(silent, pairs[:, 0], pairs[:, 1], pairs[:, 2])


def _works(trace: Trace) -> np.ndarray:
    """(lanes,) bool, threads that do more than look after others, as a watchdog does."""
    launching = names_match(trace.names, _LAUNCHING)
    working = np.isin(trace.category, [Category.CPU_OP, Category.ANNOTATION])
    working |= np.isin(trace.category, _CALLS) & launching[trace.name]
    return np.bincount(trace.lane[working], minlength=len(trace.lanes)) > 0


def _filled_silences(
    tiles: Tiles, silences: np.ndarray, lane: int
) -> list[tuple[int, int, int, int]]:
    """Silences in which the thread `lane` works: (silence, first, last, activity in ns) of each.

    Empty where the two threads do not work in turn.
    """
    low, high = int(tiles.first[lane]), int(tiles.first[lane + 1])
    # Moments of thread B: its pieces' starts, and the end of the last.
    moments = np.append(tiles.start_ns[low:high], tiles.end_ns[high - 1])
    from_ns, to_ns = tiles.start_ns[silences], tiles.end_ns[silences]
    first = np.searchsorted(moments, from_ns, side="left")
    last = np.searchsorted(moments, to_ns, side="right") - 1
    inside = last > first
    first, last = np.minimum(first, len(moments) - 1), np.maximum(last, 0)
    far = np.iinfo(np.int64).max
    silent_from = np.append(-far, moments)[first]
    silent_to = np.append(moments, far)[last + 1]
    # A's activity before the silence lies in a silence of B, or B was at work beside it.
    previous = np.maximum(silences - 1, tiles.first[tiles.lane[silences]])
    following = np.minimum(silences + 1, tiles.first[tiles.lane[silences] + 1] - 1)
    begins = silent_from <= tiles.start_ns[previous]
    ends = silent_to >= tiles.end_ns[following]
    active_from = np.where(begins, np.maximum(moments[first], from_ns), from_ns)
    active_to = np.where(ends, np.minimum(moments[last], to_ns), to_ns)
    filled = inside & (active_to - active_from >= _FILLED * (to_ns - from_ns))

    waits: list[tuple[int, int, int, int]] = []
    covered = 0
    group: list[int] = []
    for k in np.flatnonzero(filled).tolist():
        group = [k] if begins[k] else [*group, k] if group else []
        if not group or not ends[k]:
            continue
        span = int(to_ns[k] - from_ns[group[0]])
        if span <= (1 + _INTERRUPTED) * int(sum(to_ns[i] - from_ns[i] for i in group)):
            covered += int(last[k] - first[group[0]] + 1)
            waits += [
                (
                    int(silences[i]),
                    low + int(first[i]) if i == group[0] else -1,
                    low + int(last[i]) - 1 if i == k else -1,
                    int(active_to[i] - active_from[i]),
                )
                for i in group
            ]
        group = []
    return waits if covered >= _ALTERNATING * len(moments) else []


def working_in_turn(trace: Trace, tiles: Tiles, hand_overs: HandOvers) -> np.ndarray:
    """(lanes,) int64, the same number for threads that hand work to each other."""
    group = np.arange(len(trace.lanes))
    for silent, other in zip(hand_overs.silent.tolist(), hand_overs.other.tolist(), strict=True):
        a, b = group[tiles.lane[silent]], group[other]
        if a != b:
            group[group == b] = a
    return group
