"""Calls that block a CPU thread until the device has got somewhere.

A blocking call has two parts, its own work and waiting, and only the first is duration. Which work
the call waits for is told by the profiler's synchronisation rows, by the call's name and order, or
by evidence: work that was pending when the call began and ended just before it returned.
"""

import re
from bisect import bisect_left
from dataclasses import dataclass

import numpy as np

from jaxperf.graph._device import (
    DEVICE_SYNC,
    DeviceWork,
    calls_by_correlation,
    calls_named,
    names_match,
    stream_of,
)
from jaxperf.graph._waits import RECORD_CALL, StreamTails
from jaxperf.trace import ALL_STREAMS, MISSING, Category, Trace

_STREAM = re.compile(r"StreamSynchronize")
_EVENT = re.compile(r"EventSynchronize")
_COPY = re.compile(r"Memcpy")
_ALLOCATION = re.compile(r"(Free|Malloc|HostAlloc|HostRegister|HostUnregister)", re.IGNORECASE)
_QUERY = re.compile(r"(Event|Stream)Query")
# Calls between two queries that do not end a polling loop.
_HARMLESS = re.compile(r"Query|StreamCapture|GetLastError|PeekAtLastError|CaptureInfo|IsCapturing")

# A call that returned this long after some work ended did not wait for that work.
_TAIL_NS = 50_000
# Shorter calls are not suspected of waiting without a word.
_SUSPECT_NS = 20_000
# Device work may seem to end this much after the return of the call that waited for it.
_CLOCK_NS = 20_000
# An event that a call waits for is among the last so many that its thread recorded.
_RECORDS = 8
# Fewer queries in a row are the allocator looking at its events, not a loop that waits.
_POLLS = 64


@dataclass(frozen=True, eq=False)
class BlockingCalls:
    """Calls that waited, one per row, in order of time.

    Attributes:
        first_row: (b,) int64, row of the call; of the first query of a polling loop.
        last_row: (b,) int64, row of the call; of the last query of a polling loop.
        call: (m,) int64, index of the blocking call of each awaited piece of work.
        awaited: (m,) int64, index of the device work.
        inferred: how many follow from evidence, not from the call's name or the profiler's rows.
    """

    first_row: np.ndarray
    last_row: np.ndarray
    call: np.ndarray
    awaited: np.ndarray
    inferred: int


def blocking_calls(trace: Trace, work: DeviceWork, tails: StreamTails) -> BlockingCalls:
    """Find the calls that waited for the device, and what each waited for.

    Args:
        trace: the trace.
        work: its device work.
        tails: what a mark in a stream stands for.

    Returns:
        The calls; those that found their work done are among them, for under another
        configuration they would wait.
    """
    finder = _Finder(trace, work, tails)
    found = [
        *((row, row, finder.whole_device(row)) for row in finder.named(DEVICE_SYNC)),
        *((row, row, finder.stream(row)) for row in finder.named(_STREAM)),
        *((row, row, finder.event(row)) for row in finder.named(_EVENT)),
        *((row, row, finder.copy(row)) for row in finder.named(_COPY)),
    ]
    inferred = [
        *((row, row, finder.allocation(row)) for row in finder.named(_ALLOCATION)),
        *((first, last, finder.polled(first, last)) for first, last in finder.polls()),
    ]
    rows = sorted((entry for entry in found + inferred if entry[2]), key=lambda entry: entry[0])
    return BlockingCalls(
        np.array([entry[0] for entry in rows], np.int64),
        np.array([entry[1] for entry in rows], np.int64),
        np.repeat(np.arange(len(rows)), [len(entry[2]) for entry in rows]),
        np.array([index for entry in rows for index in entry[2]], np.int64),
        sum(bool(entry[2]) for entry in inferred),
    )


class _Finder:
    """Answers for one trace what each kind of blocking call waited for."""

    def __init__(self, trace: Trace, work: DeviceWork, tails: StreamTails):
        self.trace = trace
        self.work = work
        self.tails = tails
        self.end_ns = trace.end_ns
        sync = np.flatnonzero(trace.category == Category.SYNC)
        order = np.argsort(trace.correlation[sync], kind="stable")
        self.sync_rows, self.sync_keys = sync[order], trace.correlation[sync][order]
        by_end = np.argsort(work.end_ns, kind="stable")
        self.by_end, self.ends = by_end, work.end_ns[by_end]
        self.own = _work_by_call(work)
        self.launches = _by_lane(trace, np.array(sorted(self.own), np.int64))
        self.records = _by_lane(trace, calls_named(trace, RECORD_CALL))

    def named(self, pattern: re.Pattern[str]) -> list[int]:
        """Rows of the calls of one kind."""
        return calls_named(self.trace, pattern).tolist()

    def whole_device(self, row: int) -> list[int]:
        """Everything launched before, on every stream of the device.

        Of several devices the one that is meant is told by the rows or by the times; if by neither,
        all had done their work when the call returned, and all are taken.
        """
        sync = self._sync_row(row)
        devices = np.unique(self.work.devices).tolist()
        if sync >= 0 and int(self.trace.device[sync]) != MISSING:
            devices = [int(self.trace.device[sync])]
        awaited = [
            self._before_all(np.flatnonzero(self.work.devices == device).tolist(), row)
            for device in devices
        ]
        waited = [k for k in awaited if self._waited(row, row, k)]
        if waited and len(awaited) > 1:
            return max(waited, key=lambda work: max(int(self.work.end_ns[k]) for k in work))
        return [k for work in awaited for k in work]

    def stream(self, row: int) -> list[int]:
        """Everything launched before on one stream; on which one, the rows or the times say."""
        sync = self._sync_row(row)
        if sync >= 0:
            if int(self.trace.stream[sync]) == ALL_STREAMS:
                return self.whole_device(row)
            stream = stream_of(
                self.work, int(self.trace.device[sync]), int(self.trace.stream[sync])
            )
            return self._before_all([stream], row) if stream >= 0 else []
        return self._most_likely_stream(row)

    def event(self, row: int) -> list[int]:
        """Everything before the record of one event; of which one, the rows or the order say."""
        sync = self._sync_row(row)
        if sync >= 0 and int(self.trace.wait_on_record[sync]) > 0:
            record = calls_by_correlation(self.trace, self.trace.wait_on_record[[sync]])[0]
            stream = stream_of(
                self.work, int(self.trace.device[sync]), int(self.trace.wait_on_stream[sync])
            )
            if stream < 0 and int(self.trace.wait_on_stream[sync]) >= 0:
                # No work of that stream is in the trace.
                return []
            if record >= 0 and stream >= 0:
                return self._kept(row, self.tails.at(stream, int(self.trace.start_ns[record])))
        return self._latest_record(row) or self._just_ended(row, row)

    def copy(self, row: int) -> list[int]:
        """The copy itself, where the call did not return before it was done."""
        own = self.own.get(row, [])
        name = self.trace.names[self.trace.name[row]]
        kinds = [self.trace.names[self.trace.name[self.work.row[k]]] for k in own]
        blocking = "Async" not in name or any("Pageable" in kind for kind in kinds)
        to_host = any("DtoH" in kind or "DeviceToHost" in kind for kind in kinds)
        last = [k for k in own if self.work.end_ns[k] <= self.end_ns[row] + _CLOCK_NS]
        if not last or len(last) < len(own) or not blocking:
            return []
        # A copy from pageable memory returns when the data are staged, done or not.
        done = all(self.work.end_ns[k] <= self.end_ns[row] for k in last)
        return last if to_host or "Async" not in name or done else []

    def allocation(self, row: int) -> list[int]:
        """Freeing and pinning memory may wait for the whole device: only evidence tells."""
        if self.trace.duration_ns[row] < _SUSPECT_NS:
            return []
        awaited = self._before_all(list(range(self.work.streams)), row)
        return awaited if self._waited(row, row, awaited) else []

    def polled(self, first: int, last: int) -> list[int]:
        """What a polling loop waited for: the work that ended just before its last query."""
        return self._just_ended(first, last)

    def polls(self) -> list[tuple[int, int]]:
        """First and last query of every polling loop."""
        calls = np.flatnonzero(np.isin(self.trace.category, [Category.RUNTIME, Category.DRIVER]))
        if not len(calls):
            return []
        calls = calls[np.argsort(self.trace.lane[calls], kind="stable")]
        query = names_match(self.trace.names, _QUERY)
        harmless = names_match(self.trace.names, _HARMLESS)
        part = np.cumsum(~harmless[self.trace.name[calls]])
        group = part * len(self.trace.lanes) + self.trace.lane[calls]
        is_query = query[self.trace.name[calls]]
        calls, group = calls[is_query], group[is_query]
        if not len(calls):
            return []
        _, start, count = np.unique(group, return_index=True, return_counts=True)
        return [
            (int(calls[s]), int(calls[s + n - 1]))
            for s, n in zip(start.tolist(), count.tolist(), strict=True)
            if n >= _POLLS
        ]

    def _sync_row(self, row: int) -> int:
        """The profiler's synchronisation row of a call, -1 where it wrote none."""
        at = int(np.searchsorted(self.sync_keys, self.trace.correlation[row]))
        if at < len(self.sync_keys) and self.sync_keys[at] == self.trace.correlation[row]:
            return int(self.sync_rows[at]) if self.trace.correlation[row] > 0 else -1
        return -1

    def _before_all(self, streams: list[int], row: int) -> list[int]:
        time = int(self.trace.start_ns[row])
        awaited = {k for stream in streams for k in self.tails.at(stream, time)}
        return self._kept(row, sorted(awaited))

    def _kept(self, row: int, awaited: list[int]) -> list[int]:
        """Leaves out what ended well after the return: it cannot have been waited for."""
        limit = int(self.end_ns[row]) + _CLOCK_NS
        return [k for k in awaited if self.work.end_ns[k] <= limit]

    def _most_likely_stream(self, row: int) -> list[int]:
        """Of the streams that could be meant, that of the thread's last launch, else the latest."""
        time = int(self.trace.start_ns[row])
        last = [self.work.launched_before(s, time) for s in range(self.work.streams)]
        possible = self._kept(row, [k for k in last if k >= 0])
        if not possible:
            return []
        if self._waited(row, row, possible):
            return [max(possible, key=lambda k: int(self.work.end_ns[k]))]
        launch = _last_before(self.launches, int(self.trace.lane[row]), row)
        recent = self.own[launch][-1] if launch >= 0 else -1
        return [recent] if recent in possible else []

    def _latest_record(self, row: int) -> list[int]:
        """What the thread's last event record stands for, where the times allow it."""
        lane, record = int(self.trace.lane[row]), row
        for _ in range(_RECORDS):
            record = _last_before(self.records, lane, record)
            launch = _last_before(self.launches, lane, record)
            if launch < 0:
                break
            stream = int(self.work.stream[self.own[launch][0]])
            awaited = self.tails.at(stream, int(self.trace.start_ns[record]))
            long = self.trace.duration_ns[row] >= _SUSPECT_NS
            if self._kept(row, awaited) and (not long or self._waited(row, row, awaited)):
                return awaited
        return []

    def _just_ended(self, first: int, last: int) -> list[int]:
        """The work that ended last before a return, if it ended during the call and close to it."""
        end = int(self.end_ns[last])
        at = int(np.searchsorted(self.ends, end, side="right")) - 1
        if at < 0:
            return []
        awaited = [int(self.by_end[at])]
        return awaited if self._waited(first, last, awaited) else []

    def _waited(self, first: int, last: int, awaited: list[int]) -> bool:
        """Whether the awaited work was pending at the start and ended just before the return."""
        if not awaited:
            return False
        ended = max(int(self.work.end_ns[k]) for k in awaited)
        end = int(self.end_ns[last])
        return (
            int(self.trace.start_ns[first]) < ended <= end + _CLOCK_NS and end - ended <= _TAIL_NS
        )


def _by_lane(trace: Trace, rows: np.ndarray) -> dict[int, list[int]]:
    """The given rows of each lane, in order."""
    by_lane: dict[int, list[int]] = {}
    for row, lane in zip(rows.tolist(), trace.lane[rows].tolist(), strict=True):
        by_lane.setdefault(lane, []).append(row)
    return by_lane


def _last_before(by_lane: dict[int, list[int]], lane: int, row: int) -> int:
    """The last of a lane's rows before a row, -1 where there is none."""
    rows = by_lane.get(lane, [])
    at = bisect_left(rows, row)
    return rows[at - 1] if at else -1


def _work_by_call(work: DeviceWork) -> dict[int, list[int]]:
    """Device work of each call that launched any."""
    linked = np.flatnonzero(work.call >= 0)
    order = linked[np.argsort(work.call[linked], kind="stable")]
    by_call: dict[int, list[int]] = {}
    for call, index in zip(work.call[order].tolist(), order.tolist(), strict=True):
        by_call.setdefault(call, []).append(index)
    return by_call
