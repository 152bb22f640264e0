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
from bisect import bisect_left
from dataclasses import dataclass
from heapq import heappop, heappush

import numpy as np

from jaxperf.graph._classes import KERNEL_CLASSES, KernelClasses, communicates
from jaxperf.graph._device import NEVER, DeviceWork, calls_by_correlation, calls_named, stream_of
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
        waiting: (w,) int64, the stream that waits; beyond those with work for one that has none.
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


def stream_waits(
    trace: Trace,
    work: DeviceWork,
    threads: np.ndarray,
    classes: KernelClasses = KERNEL_CLASSES,
) -> StreamWaits:
    """The waits between streams.

    Args:
        trace: the trace.
        work: its device work.
        threads: (lanes,) equal numbers for threads that work in turn: their calls are read as one.
        classes: see `build_graph`.

    Returns:
        The waits, from the profiler's rows where they say for which stream, else inferred.
    """
    calls = calls_named(trace, WAIT_CALL)
    rows = _rows_of_waits(trace)
    # With CUDA 12.9 and newer PyTorch writes rows that name no stream (pytorch/pytorch#195068).
    if not np.any(trace.wait_on_stream[rows] >= 0):
        rows = rows[:0]
    if len(rows):
        found, internal = _explicit(trace, work, rows)
    else:
        found, internal = _inferred(trace, work, calls, threads, classes)
    waits = np.array(found, np.int64).reshape(-1, 4)
    waits = waits[np.argsort(waits[:, 0], kind="stable")]
    return StreamWaits(
        waits[:, 0],
        waits[:, 1],
        waits[:, 2],
        waits[:, 3],
        0 if len(rows) else len(waits),
        (len(rows) if len(rows) else len(calls)) - internal - len(waits),
    )


def _rows_of_waits(trace: Trace) -> np.ndarray:
    match = np.array(["wait event" in name.lower() for name in trace.names], bool)
    return np.flatnonzero((trace.category == Category.SYNC) & match[trace.name])


def _explicit(
    trace: Trace, work: DeviceWork, rows: np.ndarray
) -> tuple[list[tuple[int, int, int, int]], int]:
    """Waits from `cuda_sync` rows, and the number of streams' waits for themselves."""
    call = calls_by_correlation(trace, trace.correlation[rows])
    record = calls_by_correlation(trace, trace.wait_on_record[rows])
    found = []
    own = 0
    idle: dict[tuple[int, int], int] = {}
    for row, wait_call, record_call in zip(
        rows.tolist(), call.tolist(), record.tolist(), strict=True
    ):
        device, number = int(trace.device[row]), int(trace.stream[row])
        waiting = stream_of(work, device, number)
        if waiting < 0 and number >= 0:
            # A stream that runs no work still carries what it waits for to those that wait for it.
            waiting = idle.setdefault((device, number), work.streams + len(idle))
        awaited = _awaited_stream(trace, work, waiting, row, record_call)
        awaited = idle.get((device, int(trace.wait_on_stream[row])), awaited)
        if awaited < 0 and waiting >= 0 and int(trace.wait_on_stream[row]) == number:
            own += 1
        if waiting < 0 or awaited < 0 or waiting == awaited:
            continue
        time = int(trace.start_ns[wait_call if wait_call >= 0 else row])
        # Where the record is unknown (-1) all work so far on the awaited stream is meant.
        recorded = int(trace.start_ns[record_call]) if record_call >= 0 else time
        found.append((time, waiting, awaited, min(recorded, time)))
    return found, own


def _awaited_stream(
    trace: Trace, work: DeviceWork, waiting: int, row: int, record_call: int
) -> int:
    """The stream a wait is for: the row gives its number, but not the device it is on."""
    numbered = work.numbers == int(trace.wait_on_stream[row])
    found = [stream for stream in np.flatnonzero(numbered).tolist() if stream != waiting]
    if len(found) < 2:
        return found[0] if found else -1
    recorded = int(trace.start_ns[record_call if record_call >= 0 else row])
    last = [work.launched_before(stream, recorded) for stream in found]
    launched = [int(work.launch_ns[k]) if k >= 0 else NEVER for k in last]
    return found[int(np.argmax(launched))]


_LAUNCH, _RECORD, _WAIT = range(3)

# Collectives that are started before the one that is waited for, such as prefetched gathers.
_AHEAD = 2
# Records that may be waited for later: those of older work are for nobody.
_OPEN = 512


def _inferred(
    trace: Trace,
    work: DeviceWork,
    waits: np.ndarray,
    threads: np.ndarray,
    classes: KernelClasses,
) -> tuple[list[tuple[int, int, int, int]], int]:
    """Waits from the order of launch, record and wait calls on each thread.

    Returns:
        The waits, and the number of those that concern no stream of the trace.
    """
    records = calls_named(trace, RECORD_CALL)
    linked = np.flatnonzero(work.call >= 0)
    launches, unique = np.unique(work.call[linked], return_index=True)
    stream = np.full(trace.events, -1, np.int64)
    stream[launches] = work.stream[linked[unique]]
    rows = np.concatenate([launches, records, waits])
    kind = np.repeat([_LAUNCH, _RECORD, _WAIT], [len(launches), len(records), len(waits)])
    order = np.argsort(rows, kind="stable")
    rows, kind = rows[order], kind[order]
    side = _communication_streams(trace, work, classes)
    found, internal = [], 0
    for thread in np.unique(threads[trace.lane[waits]]).tolist():
        mine = threads[trace.lane[rows]] == thread
        calls = _Calls(
            kind[mine].tolist(),
            trace.start_ns[rows[mine]].tolist(),
            stream[rows[mine]].tolist(),
            side,
        )
        calls, left_out = calls.without_internal()
        internal += left_out
        found += _Reader(work, calls, bool(len(records))).waits()
    return found, internal


def _communication_streams(
    trace: Trace, work: DeviceWork, classes: KernelClasses
) -> frozenset[int]:
    """Streams on which most of the kernels communicate."""
    kernels = trace.category[work.row] == Category.KERNEL
    total = np.bincount(work.stream[kernels], minlength=work.streams)
    of_it = np.bincount(
        work.stream[kernels & communicates(trace, work.row, classes)], minlength=work.streams
    )
    return frozenset(np.flatnonzero((total > 0) & (2 * of_it > total)).tolist())


@dataclass(frozen=True, eq=False)
class _Calls:
    """Launch, record and wait calls of one thread (and of those it hands its work to), in order."""

    kind: list[int]
    time_ns: list[int]
    stream: list[int]
    side_streams: frozenset[int]

    def without_internal(self) -> tuple["_Calls", int]:
        """The calls without those by which NCCL orders a stream of its own behind a collective.

        After the launch it records an event and lets a stream wait that never shows; only then
        comes the record that others wait for.
        """
        inner = set()
        for k in range(len(self.kind) - 3):
            if (
                self.kind[k : k + 4] == [_LAUNCH, _RECORD, _WAIT, _RECORD]
                and self.stream[k] in self.side_streams
                and self.kind[k + 4 : k + 5] != [_WAIT]
            ):
                inner |= {k + 1, k + 2}
        kept = [k for k in range(len(self.kind)) if k not in inner]
        return (
            _Calls(
                [self.kind[k] for k in kept],
                [self.time_ns[k] for k in kept],
                [self.stream[k] for k in kept],
                self.side_streams,
            ),
            len(inner) // 2,
        )


class _Reader:
    """Reads the calls of one thread: backward for the stream each is about, forward for matches."""

    def __init__(self, work: DeviceWork, calls: _Calls, has_records: bool):
        self.work = work
        self.kind = calls.kind
        self.time = calls.time_ns
        self.stream = list(calls.stream)
        self.side = calls.side_streams
        self.has_records = has_records
        self.before = self._streams_before()
        self._find_streams()

    def _streams_before(self) -> list[list[int]]:
        """Before each call: the streams this thread has launched on, the latest first."""
        seen: list[int] = []
        before = []
        for kind, stream in zip(self.kind, self.stream, strict=True):
            before.append(seen)
            if kind == _LAUNCH and (not seen or seen[0] != stream):
                seen = [stream] + [other for other in seen if other != stream]
        return before

    def _find_streams(self) -> None:
        """The stream that each wait makes wait, and the stream that each record marks."""
        ahead = next_launch = -1
        for k in range(len(self.kind) - 1, -1, -1):
            if self.kind[k] == _LAUNCH:
                next_launch = self.stream[k]
            elif self.kind[k] == _RECORD:
                self.stream[k] = self._record_stream(k)
            else:
                forks = self._follows_record(k) and self._is_fork(k - 1)
                self.stream[k] = next_launch if forks else ahead
            ahead = self.stream[k]

    def _record_stream(self, k: int) -> int:
        if k and self.kind[k - 1] == _LAUNCH and not self._is_fork(k):
            return self.stream[k - 1]
        waiting = self.stream[k + 1] if self._is_fork(k) else -1
        recent = [stream for stream in self.before[k] if stream != waiting]
        compute = [stream for stream in recent if stream not in self.side]
        return (compute or recent or [-1])[0]

    def _is_fork(self, k: int) -> bool:
        """Whether a record serves the wait that follows it at once.

        A record right after a launch on a communication stream marks the end of that collective.
        """
        if k + 1 >= len(self.kind) or self.kind[k + 1] != _WAIT:
            return False
        after_launch = k > 0 and self.kind[k - 1] == _LAUNCH
        return not (after_launch and self.stream[k - 1] in self.side)

    def waits(self) -> list[tuple[int, int, int, int]]:
        """(time, waiting, awaited, time of record) of every wait that can be understood."""
        found = []
        open_records: list[tuple[int, int]] = []
        group: list[int] = []
        for k, kind in enumerate(self.kind):
            if group and (kind != _WAIT or self.stream[k] != self.stream[group[0]]):
                found += self._joins(group, open_records)
                group = []
            if kind == _RECORD and self.stream[k] >= 0 and not self._is_fork(k):
                open_records.append((self.stream[k], self.time[k]))
            elif kind == _LAUNCH and not self.has_records and self.stream[k] in self.side:
                open_records.append((self.stream[k], self.time[k] + 1))
            elif kind == _WAIT and self.stream[k] >= 0:
                source = self._fork(k)
                if source is not None:
                    found.append((self.time[k], self.stream[k], *source))
                else:
                    group.append(k)
        return found + (self._joins(group, open_records) if group else [])

    def _fork(self, k: int) -> tuple[int, int] | None:
        """What a wait waits for that follows its record at once; `None` if it is none such."""
        waiting = self.stream[k]
        if self.has_records:
            if not self._follows_record(k) or not self._is_fork(k - 1):
                return None
            source = (self.stream[k - 1], self.time[k - 1])
        else:
            recent = [stream for stream in self.before[k] if stream not in self.side]
            if waiting not in self.side or not recent:
                return None
            source = (recent[0], self.time[k])
        possible = source[0] not in (-1, waiting) and self._possible(waiting, self.time[k], *source)
        return source if possible else None

    def _joins(
        self, group: list[int], open_records: list[tuple[int, int]]
    ) -> list[tuple[int, int, int, int]]:
        """Match waits in a row on one stream with earlier records, which it takes off the list."""
        waiting = self.stream[group[0]]
        del open_records[:-_OPEN]
        candidates = [
            record
            for record in open_records
            if record[0] != waiting and self._possible(waiting, self.time[group[-1]], *record)
        ]
        chosen = self._choose(group, candidates)
        latest: dict[int, int] = {}
        for stream, time in chosen:
            latest[stream] = max(latest.get(stream, time), time)
        open_records[:] = [
            (stream, time) for stream, time in open_records if time > latest.get(stream, time - 1)
        ]
        found = [(self.time[k], waiting, *record) for k, record in zip(group, chosen, strict=False)]
        if not chosen:
            k = group[0]
            others = [stream for stream in self.before[k] if stream != waiting]
            if others and self._possible(waiting, self.time[k], others[0], self.time[k]):
                found.append((self.time[k], waiting, others[0], self.time[k]))
        return found

    def _choose(self, group: list[int], candidates: list[tuple[int, int]]) -> list[tuple[int, int]]:
        """The records that waits in a row are for: all, or as many of one stream, in their order.

        The stream is that of the record just before; else of the record whose reaching let the
        waiting work start; else the one with as many open records as there are waits; else the
        latest. Of its records the last meant is the one that let the work start, else the oldest
        are meant.
        """
        if len(candidates) <= len(group):
            return candidates
        binding = self._binding(self.stream[group[0]], self.time[group[-1]], candidates)
        streams = [stream for stream, _ in candidates]
        just_before = self.stream[group[0] - 1] if self._follows_record(group[0]) else -1
        # Many open records are of work that is waited for later, all at once.
        if 0 < streams.count(just_before) <= len(group) + _AHEAD:
            stream = just_before
        elif binding is not None:
            stream = streams[binding]
        else:
            exact = [s for s in streams if streams.count(s) == len(group)]
            stream = (exact or streams)[-1]
        mine = [record for record in candidates if record[0] == stream]
        stop = len(group)
        if binding is not None and streams[binding] == stream:
            stop = mine.index(candidates[binding]) + 1
        return mine[max(0, stop - len(group)) : stop]

    def _follows_record(self, k: int) -> bool:
        return k > 0 and self.kind[k - 1] == _RECORD

    def _binding(self, waiting: int, wait_ns: int, candidates: list[tuple[int, int]]) -> int | None:
        """The candidate whose end let the waiting work start, `None` where something else did."""
        after = self.work.launched_after(waiting, wait_ns)
        if after < 0:
            return None
        start = int(self.work.start_ns[after])
        free = int(self.work.launch_ns[after])
        if after > self.work.first[waiting]:
            free = max(free, int(self.work.end_ns[after - 1]))
        best, best_end = None, free
        for i, (stream, time) in enumerate(candidates):
            end = int(self.work.end_ns[self.work.launched_before(stream, time)])
            if best_end < end and start - end <= _TOLERANCE_NS:
                best, best_end = i, end
        return best

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


class StreamTails:
    """What must have ended for a mark in a stream to be reached."""

    def __init__(self, work: DeviceWork, waits: StreamWaits):
        self._work = work
        self._times: dict[int, list[int]] = {}
        self._records: dict[int, list[tuple[int, int]]] = {}
        self._awaited: dict[int, set[int]] = {}
        for time, waiting, awaited, record in zip(
            waits.time_ns.tolist(),
            waits.waiting.tolist(),
            waits.awaited.tolist(),
            waits.record_ns.tolist(),
            strict=True,
        ):
            self._times.setdefault(waiting, []).append(time)
            self._records.setdefault(waiting, []).append((record, awaited))
            self._awaited.setdefault(waiting, set()).add(awaited)

    def at(self, stream: int, time_ns: int) -> list[int]:
        """Last work on a stream before a moment, and what later waits of the stream carry.

        An event recorded after waits with no kernel between carries those waits. Of two marks in
        one stream the later implies the earlier, so marks are followed latest first, and each
        stream once.

        Args:
            stream: index of the stream.
            time_ns: the moment.

        Returns:
            Indices of device work, none of which need be on the stream itself.
        """
        marks, done, found = [(-time_ns, stream)], set(), []
        while marks:
            moment, mark = heappop(marks)
            if mark in done:
                continue
            done.add(mark)
            last = -1
            if mark < self._work.streams:
                last = self._work.launched_before(mark, -moment)
            if last >= 0:
                found.append(last)
            since = int(self._work.launch_ns[last]) if last >= 0 else NEVER
            for record, awaited in self._carried(mark, since, -moment):
                heappush(marks, (-record, awaited))
        return sorted(found)

    def _carried(self, stream: int, since_ns: int, before_ns: int) -> list[tuple[int, int]]:
        """(record, stream) of the latest wait for each other stream within a time."""
        times = self._times.get(stream, [])
        carried: dict[int, int] = {}
        for k in range(bisect_left(times, before_ns) - 1, -1, -1):
            if times[k] <= since_ns or len(carried) == len(self._awaited[stream]):
                break
            record, awaited = self._records[stream][k]
            carried.setdefault(awaited, record)
        return [(record, awaited) for awaited, record in carried.items()]


def wait_dependencies(
    work: DeviceWork, waits: StreamWaits, tails: StreamTails
) -> tuple[np.ndarray, np.ndarray, int]:
    """Dependencies between device work that the waits mean.

    Args:
        work: the device work.
        waits: the waits between its streams.
        tails: what they carry.

    Returns:
        (m,) the awaited work, (m,) the work that waits, and how many were left out because the
        times contradict them.
    """
    pairs = set()
    for time, waiting, awaited, recorded in zip(
        waits.time_ns.tolist(),
        waits.waiting.tolist(),
        waits.awaited.tolist(),
        waits.record_ns.tolist(),
        strict=True,
    ):
        after = work.launched_after(waiting, time) if waiting < work.streams else -1
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
