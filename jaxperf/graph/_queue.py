"""The launch queue: a stream takes so many pieces of work in advance, and then a launch blocks.

Seen on NVIDIA devices from 2018 to 2025: with 1,022 pieces of a stream pending, the next launch
returns when the oldest of them has ended. No call says so. The length is read off the trace: it is
the most that was ever pending, if launches made at that level take long.
"""

from dataclasses import dataclass

import numpy as np

from jaxperf.graph._device import DeviceWork
from jaxperf.trace import Trace

_LEAST_LENGTH = 4
# A launch that waited for room returns this soon after there is some.
_TAIL_NS = 20_000
# A blocked launch takes at least this much longer than the quickest of its kind, which is said to
# take no less than what whole microseconds can show.
_BLOCKED_FACTOR = 3
_QUICKEST_NS = 3_000
# Launches that block at the highest level: fewer are no evidence.
_LEAST_BLOCKED = 4


@dataclass(frozen=True, eq=False)
class QueueWaits:
    """Launches that cannot be made before earlier work of their stream has ended.

    Attributes:
        row: (q,) int64, row of the launch call.
        awaited: (q,) int64, index of the device work.
        length: the longest queue seen to be full, 0 where none was.
    """

    row: np.ndarray
    awaited: np.ndarray
    length: int


def queue_waits(trace: Trace, work: DeviceWork) -> QueueWaits:
    """The waits for room in every launch queue that was seen to fill.

    A queue may be a stream's own, as on NVIDIA devices, or serve the whole device; the latter is
    looked at where no stream of the device shows one. All launches into such a queue get a wait,
    for under another configuration others would block.

    Args:
        trace: the trace.
        work: its device work.

    Returns:
        The waits, queue after queue.
    """
    quickest = _quickest_call(trace, work)
    found = []
    for device in np.unique(work.devices).tolist():
        streams = np.flatnonzero(work.devices == device)
        queues = [
            _waits_for_room(trace, work, np.arange(work.first[s], work.first[s + 1]), quickest)
            for s in streams
        ]
        if len(streams) > 1 and not any(queue.length for queue in queues):
            tasks = np.flatnonzero(np.isin(work.stream, streams))
            queues = [_waits_for_room(trace, work, tasks, quickest)]
        found += queues
    if not found:
        return QueueWaits(np.empty(0, np.int64), np.empty(0, np.int64), 0)
    return QueueWaits(
        np.concatenate([queue.row for queue in found]),
        np.concatenate([queue.awaited for queue in found]),
        max(queue.length for queue in found),
    )


def _waits_for_room(
    trace: Trace, work: DeviceWork, tasks: np.ndarray, quickest: np.ndarray
) -> QueueWaits:
    """The waits of one queue, which takes the given work; none where it was not seen to fill."""
    none = QueueWaits(np.empty(0, np.int64), np.empty(0, np.int64), 0)
    in_order = tasks[np.argsort(work.launch_ns[tasks], kind="stable")]
    by_end = tasks[np.argsort(work.end_ns[tasks], kind="stable")]
    launched = np.flatnonzero(work.call[in_order] >= 0)
    calls, first = np.unique(work.call[in_order[launched]], return_index=True)
    if not len(calls):
        return none
    before = launched[first]
    started = trace.start_ns[calls]
    pending = before - np.searchsorted(work.end_ns[by_end], started, side="right")
    length = int(pending.max())
    if length < _LEAST_LENGTH:
        return none
    limited = before >= length
    full = pending >= length - 1
    slow = trace.duration_ns[calls] > _BLOCKED_FACTOR * quickest[trace.name[calls]]
    # There is room once all but `length - 1` of what was launched before have ended.
    room = by_end[np.maximum(before - length, 0)]
    # An event recorded between launches takes a place too, so the level varies by a few.
    returned = trace.end_ns[calls] - work.end_ns[room]
    blocked = full & slow & (returned <= _TAIL_NS) & (returned >= -_TAIL_NS)
    if blocked.sum() < max(_LEAST_BLOCKED, 0.5 * full.sum()):
        return none
    return QueueWaits(calls[limited], room[limited], length)


def _quickest_call(trace: Trace, work: DeviceWork) -> np.ndarray:
    """(names,) the least duration of each launch call, by its name.

    Not the median: launches that block are the majority in some traces.
    """
    quickest = np.full(len(trace.names), np.iinfo(np.int64).max // _BLOCKED_FACTOR)
    calls = np.unique(work.call[work.call >= 0])
    np.minimum.at(quickest, trace.name[calls], trace.duration_ns[calls])
    return np.maximum(quickest, _QUICKEST_NS)
