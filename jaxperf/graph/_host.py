"""CPU threads as tasks: each thread's time is cut where its innermost event changes.

Between two cuts a thread does one thing: a runtime call, an operator's own work, or the Python
between operators. Silence of a thread is host work too, except where another thread works in its
stead and it only waits for that one (`find_hand_overs`).
"""

from dataclasses import dataclass

import numpy as np

from jaxperf.trace import Category, Trace, call_tree

_TILED = (Category.CPU_OP, Category.ANNOTATION, Category.RUNTIME, Category.DRIVER)

# A thread that is silent for less than this is not suspected of waiting for another.
_SILENCE_NS = 5_000

# Part of a silence that the other thread must fill, and part of the other thread's activity that
# must lie in such silences, for the two to be taken as handing work to each other.
_FILLED = 0.5
_ALTERNATING = 0.8


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

    def lane_slice(self, lane: int) -> slice:
        """The pieces of one lane."""
        return slice(int(self.first[lane]), int(self.first[lane + 1]))


@dataclass(frozen=True, eq=False)
class HandOvers:
    """Where one thread waits for another.

    The silent piece is two pieces of host work in truth: before the other thread starts and after
    it has ended. One row per silence.

    Attributes:
        silent: (h,) int64, the silent piece.
        first: (h,) int64, first piece of the other thread's work in it.
        last: (h,) int64, last piece of the other thread's work in it.
    """

    silent: np.ndarray
    first: np.ndarray
    last: np.ndarray


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

    A silence of thread A counts if thread B was silent when it began and when it ended and was
    active during at least half of it, and if nearly all of B's activity lies in such silences of A.

    Args:
        trace: the trace.
        tiles: its threads.

    Returns:
        The hand-overs, at most one per silence.
    """
    called = np.isin(trace.category[tiles.event], [Category.RUNTIME, Category.DRIVER])
    quiet = ~((tiles.event >= 0) & called)
    lanes = np.flatnonzero(np.diff(tiles.first) > 0)
    # Of two threads that wait for each other in turn, the one that was there first is said to
    # wait; that the other waits for it follows.
    lanes = lanes[np.argsort(tiles.start_ns[tiles.first[lanes]], kind="stable")]
    found: dict[int, tuple[int, int, int]] = {}
    paired = set()
    for a in lanes.tolist():
        silences = np.arange(int(tiles.first[a]), int(tiles.first[a + 1]))
        long = tiles.end_ns[silences] - tiles.start_ns[silences] >= _SILENCE_NS
        silences = silences[quiet[silences] & long]
        for b in lanes.tolist():
            same_process = trace.lanes[a].process == trace.lanes[b].process
            if a == b or not same_process or (b, a) in paired or not len(silences):
                continue
            if _match_silences(tiles, quiet, silences, b, found):
                paired.add((a, b))
    silent = np.array(sorted(found), np.int64)
    pairs = np.array([found[s] for s in silent.tolist()], np.int64).reshape(-1, 3)
    return HandOvers(silent, pairs[:, 0], pairs[:, 1])


def _match_silences(
    tiles: Tiles,
    quiet: np.ndarray,
    silences: np.ndarray,
    lane: int,
    found: dict[int, tuple[int, int, int]],
) -> bool:
    """Add to `found` the silences that the thread `lane` fills; the busiest thread wins.

    Returns whether the two threads work in turn.
    """
    low, high = int(tiles.first[lane]), int(tiles.first[lane + 1])
    # Moments of thread B: its pieces' starts, and the end of the last.
    moments = np.append(tiles.start_ns[low:high], tiles.end_ns[high - 1])
    from_ns, to_ns = tiles.start_ns[silences], tiles.end_ns[silences]
    first = np.searchsorted(moments, from_ns, side="left")
    last = np.searchsorted(moments, to_ns, side="right") - 1
    inside = last > first
    first_tile = low + np.minimum(first, high - low - 1)
    silent_before = (first == 0) | quiet[np.maximum(first_tile - 1, low)]
    silent_after = (last == high - low) | quiet[np.minimum(low + last, high - 1)]
    active_ns = (
        moments[np.minimum(last, len(moments) - 1)] - moments[np.minimum(first, len(moments) - 1)]
    )
    good = inside & silent_before & silent_after & (active_ns >= _FILLED * (to_ns - from_ns))
    covered = int((last - first + 1)[good].sum())
    if covered < _ALTERNATING * len(moments):
        return False
    for k in np.flatnonzero(good).tolist():
        silence, ns = int(silences[k]), int(active_ns[k])
        if silence not in found or found[silence][2] < ns:
            found[silence] = (low + int(first[k]), low + int(last[k]) - 1, ns)
    return True


def working_in_turn(trace: Trace, tiles: Tiles, hand_overs: HandOvers) -> np.ndarray:
    """(lanes,) int64, the same number for threads that hand work to each other."""
    group = np.arange(len(trace.lanes))
    for silent, first in zip(hand_overs.silent.tolist(), hand_overs.first.tolist(), strict=True):
        a, b = group[tiles.lane[silent]], group[tiles.lane[first]]
        if a != b:
            group[group == b] = a
    return group
