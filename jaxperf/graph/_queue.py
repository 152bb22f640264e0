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
    """The waits for room in the launch queue of every stream that was seen to fill.

    All launches of such a stream get one, for under another configuration others would block.

    Args:
        trace: the trace.
        work: its device work.

    Returns:
        The waits, by stream.
    """
    rows, awaited, longest = [], [], 0
    quickest = _quickest_call(trace, work)
    for stream in range(work.streams):
        low, high = int(work.first[stream]), int(work.first[stream + 1])
        own = low + np.flatnonzero(work.call[low:high] >= 0)
        calls, first = np.unique(work.call[own], return_index=True)
        if not len(calls):
            continue
        before = own[first] - low
        started = trace.start_ns[calls]
        # On one stream work ends in order, so what has ended is a count.
        ended = np.searchsorted(np.maximum.accumulate(work.end_ns[low:high]), started, side="right")
        pending = before - ended
        length = int(pending.max())
        full = pending >= length - 1
        slow = trace.duration_ns[calls] > _BLOCKED_FACTOR * quickest[trace.name[calls]]
        limited = before >= length
        room_ns = work.end_ns[np.maximum(low + before - length, low)]
        returned = trace.end_ns[calls] - room_ns
        # An event recorded between launches takes a place too, so the level varies by a few.
        blocked = full & slow & (returned <= _TAIL_NS) & (returned >= -_TAIL_NS)
        if length < _LEAST_LENGTH or blocked.sum() < max(_LEAST_BLOCKED, 0.5 * full.sum()):
            continue
        rows.append(calls[limited])
        awaited.append(low + before[limited] - length)
        longest = max(longest, length)
    if not rows:
        return QueueWaits(np.empty(0, np.int64), np.empty(0, np.int64), 0)
    return QueueWaits(np.concatenate(rows), np.concatenate(awaited), longest)


def _quickest_call(trace: Trace, work: DeviceWork) -> np.ndarray:
    """(names,) the least duration of each launch call, by its name.

    Not the median: launches that block are the majority in some traces.
    """
    quickest = np.full(len(trace.names), np.iinfo(np.int64).max // _BLOCKED_FACTOR)
    calls = np.unique(work.call[work.call >= 0])
    np.minimum.at(quickest, trace.name[calls], trace.duration_ns[calls])
    return np.maximum(quickest, _QUICKEST_NS)
