"""Waits of one stream for another: from the profiler's rows, else from the order of calls.

`cudaEventRecord` marks a place in a stream, `cudaStreamWaitEvent` makes another stream wait for it.
Newer profilers write a row per wait that names both; older ones write the calls alone, without
stream or event. What a program does with them is of few kinds, and the order of the calls on their
thread tells which:

* a fork: the record is followed at once by the wait, and then by a launch on the waiting stream
  (a collective that needs what the compute stream made);
* a join: the wait comes later, before the next launch on the stream that waits (the compute stream
  needs what the collective made).
"""

import re
from dataclasses import dataclass

import numpy as np

from jaxperf.graph._device import DeviceWork, calls_by_correlation, stream_of
from jaxperf.trace import Category, Trace

RECORD_CALL = re.compile(r"^(cuda|hip|cu)EventRecord")
WAIT_CALL = re.compile(r"^(cuda|hip|cu)StreamWaitEvent")

# Work that waited cannot have started earlier than this before the end of what it waited for.
_TOLERANCE_NS = 10_000


@dataclass(frozen=True, eq=False)
class StreamWaits:
    """Waits of streams, one per row, in order of time.

    Attributes:
        time_ns: (w,) int64, when the wait was called.
        waiting: (w,) int64, the stream that waits.
        awaited: (w,) int64, the stream it waits for.
        record_ns: (w,) int64, when the place in the awaited stream was marked.
        inferred: how many follow from the order of calls, not from the profiler's rows.
        unresolved: how many wait calls could not be understood.
    """

    time_ns: np.ndarray
    waiting: np.ndarray
    awaited: np.ndarray
    record_ns: np.ndarray
    inferred: int
    unresolved: int


def stream_waits(trace: Trace, work: DeviceWork) -> StreamWaits:
    """The waits between streams.

    Args:
        trace: the trace.
        work: its device work.

    Returns:
        The waits, from the profiler's rows where it wrote any, else inferred.
    """
    calls = _calls(trace, WAIT_CALL)
    rows = _rows_of_waits(trace)
    found = _explicit(trace, work, rows) if len(rows) else _inferred(trace, work, calls)
    waits = np.array(found, np.int64).reshape(-1, 4)
    waits = waits[np.argsort(waits[:, 0], kind="stable")]
    return StreamWaits(
        waits[:, 0],
        waits[:, 1],
        waits[:, 2],
        waits[:, 3],
        0 if len(rows) else len(waits),
        (len(rows) if len(rows) else len(calls)) - len(waits),
    )


def calls_named(trace: Trace, pattern: re.Pattern[str]) -> np.ndarray:
    """Rows of runtime and driver calls whose name matches, in order of time."""
    match = np.array([bool(pattern.search(name)) for name in trace.names], bool)
    called = np.isin(trace.category, [Category.RUNTIME, Category.DRIVER])
    return np.flatnonzero(called & match[trace.name]) if len(match) else np.empty(0, np.int64)


_calls = calls_named


def _rows_of_waits(trace: Trace) -> np.ndarray:
    match = np.array(["wait event" in name.lower() for name in trace.names], bool)
    return np.flatnonzero((trace.category == Category.SYNC) & match[trace.name])


def _explicit(trace: Trace, work: DeviceWork, rows: np.ndarray) -> list[tuple[int, int, int, int]]:
    """Waits from `cuda_sync` rows."""
    call = calls_by_correlation(trace, trace.correlation[rows])
    record = calls_by_correlation(trace, trace.wait_on_record[rows])
    found = []
    for row, wait_call, record_call in zip(
        rows.tolist(), call.tolist(), record.tolist(), strict=True
    ):
        device = int(trace.device[row])
        waiting = stream_of(work, device, int(trace.stream[row]))
        awaited = stream_of(work, device, int(trace.wait_on_stream[row]))
        if waiting < 0 or awaited < 0 or waiting == awaited:
            continue
        time = int(trace.start_ns[wait_call if wait_call >= 0 else row])
        # Where the record is unknown (-1) all work so far on the awaited stream is meant.
        recorded = int(trace.start_ns[record_call]) if record_call >= 0 else time
        found.append((time, waiting, awaited, min(recorded, time)))
    return found


_LAUNCH, _RECORD, _WAIT = range(3)


def _inferred(trace: Trace, work: DeviceWork, waits: np.ndarray) -> list[tuple[int, int, int, int]]:
    """Waits from the order of launch, record and wait calls on each thread."""
    if not len(waits):
        return []
    records = _calls(trace, RECORD_CALL)
    linked = np.flatnonzero(work.call >= 0)
    launches, unique = np.unique(work.call[linked], return_index=True)
    stream_of_launch = dict(
        zip(launches.tolist(), work.stream[linked[unique]].tolist(), strict=True)
    )
    rows = np.concatenate([launches, records, waits])
    kind = np.repeat([_LAUNCH, _RECORD, _WAIT], [len(launches), len(records), len(waits)])
    order = np.lexsort((rows, trace.lane[rows]))
    rows, kind = rows[order], kind[order]
    found = []
    for lane in np.unique(trace.lane[waits]).tolist():
        mine = trace.lane[rows] == lane
        thread = _Thread(trace, work, rows[mine].tolist(), kind[mine].tolist(), stream_of_launch)
        found += thread.waits(bool(len(records)))
    return found


class _Thread:
    """The calls of one thread, read once from last to first for targets, then forward."""

    def __init__(self, trace, work, rows, kinds, stream_of_launch):
        self.work = work
        self.rows = rows
        self.kinds = kinds
        self.time = trace.start_ns[rows].tolist()
        self.streams = [stream_of_launch.get(row, -1) for row in rows]
        self.before = self._streams_before()

    def _streams_before(self) -> list[list[int]]:
        """Before each call: the streams this thread has launched on, the latest first."""
        seen: list[int] = []
        before = []
        for kind, stream in zip(self.kinds, self.streams, strict=True):
            before.append(seen)
            if kind == _LAUNCH and (not seen or seen[0] != stream):
                seen = [stream] + [other for other in seen if other != stream]
        return before

    def waits(self, has_records: bool) -> list[tuple[int, int, int, int]]:
        """(time, waiting, awaited, time of record) of every wait that can be understood."""
        target = self._targets()
        found = []
        open_records: list[tuple[int, int]] = []
        for k, kind in enumerate(self.kinds):
            if kind == _RECORD and self.streams[k] >= 0:
                followed_by_wait = k + 1 < len(self.kinds) and self.kinds[k + 1] == _WAIT
                if not followed_by_wait or target[k + 1] == self.streams[k]:
                    open_records.append((self.streams[k], self.time[k]))
            elif kind == _LAUNCH and not has_records and self._is_side_stream(k):
                open_records.append((self.streams[k], self.time[k] + 1))
            elif kind == _WAIT:
                source = self._source(k, target[k], open_records)
                if source is not None:
                    found.append((self.time[k], target[k], *source))
        return found

    def _targets(self) -> list[int]:
        """Stream that each wait makes wait; on the way, the stream of each record."""
        target = [-1] * len(self.kinds)
        ahead = -1
        for k in range(len(self.kinds) - 1, -1, -1):
            if self.kinds[k] == _LAUNCH:
                ahead = self.streams[k]
            elif self.kinds[k] == _WAIT:
                target[k] = ahead
            else:
                ahead = self.streams[k] = self._record_stream(k, target)
        return target

    def _record_stream(self, k: int, target: list[int]) -> int:
        """Stream that a record marks: the last launched on; for a fork not the one that waits."""
        recent = self.before[k]
        if k + 1 < len(self.kinds) and self.kinds[k + 1] == _WAIT and self.kinds[k - 1] != _LAUNCH:
            recent = [stream for stream in recent if stream != target[k + 1]]
        return recent[0] if recent else -1

    def _is_side_stream(self, k: int) -> bool:
        """Whether a launch went to another stream than the one before it."""
        return bool(self.before[k]) and self.before[k][0] != self.streams[k]

    def _source(
        self, k: int, waiting: int, open_records: list[tuple[int, int]]
    ) -> tuple[int, int] | None:
        """What a wait waits for: (stream, time of record); takes it off the open records."""
        if waiting < 0:
            return None
        if k and self.kinds[k - 1] == _RECORD and self.streams[k - 1] not in (-1, waiting):
            return self.streams[k - 1], self.time[k - 1]
        for i, (stream, time) in enumerate(open_records):
            if stream != waiting and self._possible(waiting, self.time[k], stream, time):
                del open_records[i]
                return stream, time
        others = [stream for stream in self.before[k] if stream != waiting]
        if others and self._possible(waiting, self.time[k], others[0], self.time[k]):
            return others[0], self.time[k]
        return None

    def _possible(self, waiting: int, wait_ns: int, awaited: int, record_ns: int) -> bool:
        """Whether the times allow it: the work after the wait started after the awaited ended."""
        after = self.work.launched_after(waiting, wait_ns)
        before = self.work.launched_before(awaited, record_ns)
        if before < 0:
            return False
        if after < 0:
            return True
        ended = int(self.work.end_ns[before]) - _TOLERANCE_NS
        return int(self.work.start_ns[after]) >= ended


@dataclass(frozen=True, eq=False)
class StreamTails:
    """What must have ended for a mark in a stream to be reached."""

    work: DeviceWork
    waits: StreamWaits

    def at(self, stream: int, time_ns: int) -> list[int]:
        """Last work on a stream before a moment, and what later waits of the stream carry.

        An event recorded after waits with no kernel between carries those waits.

        Args:
            stream: index of the stream.
            time_ns: the moment.

        Returns:
            Indices of device work, none of which need be on the stream itself.
        """
        last = self.work.launched_before(stream, time_ns)
        found = [last] if last >= 0 else []
        since = int(self.work.launch_ns[last]) if last >= 0 else None
        mine = np.flatnonzero(self.waits.waiting == stream)
        high = int(np.searchsorted(self.waits.time_ns[mine], time_ns, side="left"))
        for k in reversed(mine[:high].tolist()):
            if since is not None and int(self.waits.time_ns[k]) <= since:
                break
            found += self.at(int(self.waits.awaited[k]), int(self.waits.record_ns[k]))
        return sorted(set(found))


def wait_dependencies(work: DeviceWork, waits: StreamWaits) -> tuple[np.ndarray, np.ndarray, int]:
    """Dependencies between device work that the waits mean.

    Args:
        work: the device work.
        waits: the waits between its streams.

    Returns:
        (m,) the awaited work, (m,) the work that waits, and how many were left out because the
        times contradict them.
    """
    tails = StreamTails(work, waits)
    pairs = set()
    for time, waiting, awaited, recorded in zip(
        waits.time_ns.tolist(),
        waits.waiting.tolist(),
        waits.awaited.tolist(),
        waits.record_ns.tolist(),
        strict=True,
    ):
        after = work.launched_after(waiting, time)
        if after >= 0:
            pairs.update(
                (before, after)
                for before in tails.at(awaited, recorded)
                if work.stream[before] != waiting
            )
    edges = np.array(sorted(pairs), np.int64).reshape(-1, 2)
    kept = work.start_ns[edges[:, 1]] >= work.end_ns[edges[:, 0]] - _TOLERANCE_NS
    edges, contradicted = edges[kept], int((~kept).sum())
    return edges[:, 0], edges[:, 1], contradicted
