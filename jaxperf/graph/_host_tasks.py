"""Host tasks of one rank: the pieces of its threads, with waiting taken out of them.

Three things are not what the profiler's rows say. A silence in which another thread works is host
work before and after, and waiting between. A launch into a full queue begins when there is room. A
blocking call is three tasks: its own work, a return that starts when the awaited work has ended
(waking the thread takes time only if it slept), and an empty task that both lead to.
"""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from jaxperf.graph._device import DeviceWork
from jaxperf.graph._host import HandOvers, Tiles
from jaxperf.graph._queue import QueueWaits
from jaxperf.graph._syncs import BlockingCalls
from jaxperf.graph._types import DependencyKind, TaskKind
from jaxperf.trace import Category, Trace

LONGEST_NS = 2**50
"""A trace is shorter (13 days): lanes are told apart by lifting their times by this."""

# Own work of a blocking call where the trace has none of its name that did not wait.
_OWN_NS = 2_000


@dataclass(frozen=True, eq=False)
class HostTasks:
    """Host tasks of one rank, by lane and in order, and the dependencies among and onto them.

    Attributes:
        lane, kind, event: (h,) lane in the trace, `TaskKind`, row in the trace or -1.
        start_ns, end_ns: (h,) int64, as measured, without waiting.
        chain: (c,) int64, the tasks that follow each other on their lanes: all but returns.
        source, target, dependency: dependencies among host tasks.
        awaited, returning: (w,) device work, and the return that starts when it has ended.
        room, launching: (q,) device work, and the launch call that needs its place in the queue.
    """

    lane: np.ndarray
    kind: np.ndarray
    event: np.ndarray
    start_ns: np.ndarray
    end_ns: np.ndarray
    chain: np.ndarray
    source: np.ndarray
    target: np.ndarray
    dependency: np.ndarray
    awaited: np.ndarray
    returning: np.ndarray
    room: np.ndarray
    launching: np.ndarray

    @property
    def tasks(self) -> int:
        """Number of host tasks."""
        return len(self.lane)

    def last_of(self, rows: np.ndarray, lanes: np.ndarray, times_ns: np.ndarray) -> np.ndarray:
        """The last task of each event; where an event is empty, the task that ends at its time."""
        table = np.full(int(max(self.event.max(initial=-1), rows.max(initial=-1))) + 1, -1)
        event = self.event[self.chain]
        table[event[event >= 0]] = self.chain[event >= 0]
        found = table[rows]
        return np.where(found >= 0, found, self.ending_at(lanes, times_ns))

    def ending_at(self, lanes: np.ndarray, times_ns: np.ndarray) -> np.ndarray:
        """The task of a lane that ends at a moment: the last that ends no later, else its first."""
        lane = self.lane[self.chain].astype(np.int64)
        key = lane * LONGEST_NS + self.end_ns[self.chain]
        key_at = lanes.astype(np.int64) * LONGEST_NS + times_ns
        found = np.searchsorted(key, key_at, side="right") - 1
        return self.chain[np.maximum(found, np.searchsorted(lane, lanes, side="left"))]

    def starting_at(self, lanes: np.ndarray, times_ns: np.ndarray) -> np.ndarray:
        """The task of a lane that starts at a moment: the first no earlier, else its last."""
        lane = self.lane[self.chain].astype(np.int64)
        key = lane * LONGEST_NS + self.start_ns[self.chain]
        found = np.searchsorted(key, lanes.astype(np.int64) * LONGEST_NS + times_ns, side="left")
        return self.chain[np.minimum(found, np.searchsorted(lane, lanes, side="right") - 1)]


class _Pieces(NamedTuple):
    """Pieces of threads in the making; `place` orders them on their lane."""

    lane: np.ndarray
    place: np.ndarray
    kind: np.ndarray
    event: np.ndarray
    start_ns: np.ndarray
    end_ns: np.ndarray


def host_tasks(
    trace: Trace,
    tiles: Tiles,
    hand_overs: HandOvers,
    blocking: BlockingCalls,
    queue: QueueWaits,
    work: DeviceWork,
) -> HostTasks:
    """Turn the pieces of all threads into tasks.

    Args:
        trace: the trace.
        tiles: the pieces of its threads.
        hand_overs: silences in which another thread works.
        blocking: calls that wait for the device.
        queue: launches that wait for room in a queue.
        work: the device work.

    Returns:
        The host tasks and what they depend on.
    """
    start, end = tiles.start_ns.copy(), tiles.end_ns.copy()
    alive = np.ones(len(start), bool)
    full, room = _first_tile(trace, tiles, queue)
    start[full] = np.clip(work.end_ns[room], start[full], end[full])

    begins, ends = hand_overs.first >= 0, hand_overs.last >= 0
    waiting, first = hand_overs.silent[begins], hand_overs.first[begins]
    resuming, last = hand_overs.silent[ends], hand_overs.last[ends]
    lead_out_ns = end[resuming].copy()
    end[hand_overs.silent] = start[hand_overs.silent]
    end[waiting] = start[first]
    # The other thread's own silence before is no work either.
    preceded = (first > tiles.first[tiles.lane[first]]) & ~np.isin(first - 1, hand_overs.silent)
    alive[first[preceded] - 1] = False

    calls = _blocking_calls(trace, tiles, blocking, work)
    end[calls.tile] = calls.own_end_ns
    alive[calls.polling] = False

    called = np.isin(trace.category[tiles.event], [Category.RUNTIME, Category.DRIVER])
    kind = np.where((tiles.event >= 0) & called, TaskKind.HOST_CALL, TaskKind.HOST_WORK)
    row = tiles.event[calls.last_tile]
    finish = tiles.end_ns[calls.last_tile]
    groups = [
        _Pieces(tiles.lane, np.arange(len(start)), kind, tiles.event, start, end),
        _like(
            tiles, resuming, 0.2, TaskKind.HOST_WORK, tiles.event[resuming], end[last], lead_out_ns
        ),
        _like(
            tiles,
            calls.last_tile,
            0.4,
            TaskKind.HOST_RETURN,
            row,
            calls.return_start_ns,
            calls.return_end_ns,
        ),
        _like(tiles, calls.last_tile, 0.6, TaskKind.HOST_CALL, row, finish, finish),
    ]
    sizes = [len(group.lane) for group in groups]
    alive = np.concatenate([alive, np.ones(sum(sizes[1:]), bool)])
    pieces = _Pieces(*(np.concatenate(parts) for parts in zip(*groups, strict=True)))

    order = np.lexsort((pieces.place, pieces.lane))
    order = order[alive[order]]
    new = np.full(len(alive), -1, np.int64)
    new[order] = np.arange(len(order))
    tile, lead_out, returning, rejoining = np.split(new, np.cumsum(sizes)[:-1])
    lane = pieces.lane[order]
    chain = np.flatnonzero(pieces.kind[order] != TaskKind.HOST_RETURN)
    follows = lane[chain[1:]] == lane[chain[:-1]]
    source = [chain[:-1][follows], returning, tile[waiting], tile[last]]
    target = [chain[1:][follows], rejoining, tile[first], lead_out]
    dependency = np.repeat(
        [DependencyKind.THREAD_ORDER, DependencyKind.HAND_OVER],
        [len(source[0]) + len(returning), len(waiting) + len(resuming)],
    )
    sources, targets = np.concatenate(source), np.concatenate(target)
    kept = (sources >= 0) & (targets >= 0)
    waits = np.isin(blocking.call, calls.call)
    launching = tile[full]
    return HostTasks(
        lane.astype(np.int32),
        pieces.kind[order].astype(np.int8),
        pieces.event[order],
        pieces.start_ns[order],
        pieces.end_ns[order],
        chain,
        sources[kept],
        targets[kept],
        dependency[kept].astype(np.int8),
        blocking.awaited[waits],
        returning[np.searchsorted(calls.call, blocking.call[waits])],
        room[launching >= 0],
        launching[launching >= 0],
    )


def _like(
    tiles: Tiles,
    tile: np.ndarray,
    after: float,
    kind: TaskKind,
    event: np.ndarray,
    start_ns: np.ndarray,
    end_ns: np.ndarray,
) -> _Pieces:
    """Pieces on the lanes of given ones, placed just after them."""
    return _Pieces(
        tiles.lane[tile], tile + after, np.full(len(tile), kind), event, start_ns, end_ns
    )


def _first_tile(trace: Trace, tiles: Tiles, queue: QueueWaits) -> tuple[np.ndarray, np.ndarray]:
    """First piece of each launch that needs room in a queue, and the work that makes it."""
    first_of = np.full(trace.events, -1, np.int64)
    inside = np.flatnonzero(tiles.event >= 0)[::-1]
    first_of[tiles.event[inside]] = inside
    found = first_of[queue.row]
    return found[found >= 0], queue.awaited[found >= 0]


@dataclass(frozen=True, eq=False)
class _Blocking:
    """Blocking calls: where each is, when its own work ends, and its return.

    Attributes:
        call: (b,) int64, index among the blocking calls.
        tile, last_tile: (b,) int64, piece of the call; last piece of a polling loop.
        own_end_ns: (b,) int64, end of the call's own work.
        return_start_ns, return_end_ns: (b,) int64.
        polling: pieces of polling loops that are nothing but waiting.
    """

    call: np.ndarray
    tile: np.ndarray
    last_tile: np.ndarray
    own_end_ns: np.ndarray
    return_start_ns: np.ndarray
    return_end_ns: np.ndarray
    polling: np.ndarray


def _blocking_calls(
    trace: Trace, tiles: Tiles, blocking: BlockingCalls, work: DeviceWork
) -> _Blocking:
    call = np.arange(len(blocking.first_row))
    # Jitter may cut a call's end off, so its pieces are found by row and not by time.
    last_of = np.full(trace.events, -1, np.int64)
    last_of[tiles.event[tiles.event >= 0]] = np.flatnonzero(tiles.event >= 0)
    tile, last_tile = last_of[blocking.first_row], last_of[blocking.last_row]
    found = (tile >= 0) & (last_tile >= 0)
    call, tile, last_tile = call[found], tile[found], last_tile[found]
    ended = np.full(len(blocking.first_row), np.iinfo(np.int64).min)
    np.maximum.at(ended, blocking.call, work.end_ns[blocking.awaited])
    ended = ended[call]
    begin, finish = tiles.start_ns[tile], tiles.end_ns[last_tile]
    waited = ended > begin
    name = trace.name[blocking.first_row[call]]

    own = np.full(len(trace.names), _OWN_NS)
    own[name[~waited]] = np.iinfo(np.int64).max
    np.minimum.at(own, name[~waited], (finish - begin)[~waited])
    own_end = np.where(waited, np.minimum(begin + own[name], np.minimum(ended, finish)), finish)
    start = np.where(waited, np.clip(ended, own_end, finish), ended)
    # A call that found its work done says nothing of what waking up would have taken.
    anywhere = np.median((finish - start)[waited]) if waited.any() else 0
    usual = np.full(len(trace.names), anywhere, np.int64)
    for value in np.unique(name[waited]).tolist():
        usual[value] = np.median((finish - start)[waited & (name == value)])
    end = np.where(waited, finish, start + usual[name])
    polling = [np.arange(a + 1, b + 1) for a, b in zip(tile, last_tile, strict=True) if b > a]
    return _Blocking(
        call,
        tile,
        last_tile,
        own_end,
        start,
        end,
        np.concatenate(polling) if polling else np.empty(0, np.int64),
    )
