"""Device work of one rank: in order on its streams, each piece with the call that launched it."""

import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from jaxperf.trace import DEVICE_WORK, MISSING, Category, Trace

NEVER = -(2**62)
"""Launch time of work that was launched before the capture began."""

# A clock is said to be off only if this share of the launches says so. It is then set so that the
# quickest launches take what they take on devices whose clock is right.
_CLOCK_QUANTILE = 0.01
_QUICKEST_LAUNCH_NS = 5_000
# Of fewer launches none need be quick.
_FEW = 8

DEVICE_SYNC = re.compile(r"(Device|Ctx|Context|Thread)Synchronize")
_TO_PAGEABLE = re.compile(r"DtoH.*-> Pageable")


@dataclass(frozen=True, eq=False)
class DeviceWork:
    """Kernels, copies and sets of one rank, stream after stream, each in order of execution.

    Attributes:
        row: (d,) int64, row in the trace.
        stream: (d,) int64, index of the stream among this rank's streams.
        start_ns, end_ns: (d,) int64, as measured, on the clock of the host.
        call: (d,) int64, row of the runtime or driver call that launched it, -1 for an orphan.
        launch_ns: (d,) int64, start of that call; for an orphan that of the work before it on the
            stream, `NEVER` at the head. Never decreases along a stream.
        first: (streams + 1,) int64, where each stream's work begins.
        lanes: (streams,) int64, lane of each stream in the trace.
        devices: (streams,) int64, device of each stream.
        numbers: (streams,) int64, the number of each stream on its device.
        clock_shift_ns: what was added to the device's times.
    """

    row: np.ndarray
    stream: np.ndarray
    start_ns: np.ndarray
    end_ns: np.ndarray
    call: np.ndarray
    launch_ns: np.ndarray
    first: np.ndarray
    lanes: np.ndarray
    devices: np.ndarray
    numbers: np.ndarray
    clock_shift_ns: int

    @property
    def tasks(self) -> int:
        """Number of pieces of device work."""
        return len(self.row)

    @property
    def streams(self) -> int:
        """Number of streams."""
        return len(self.lanes)

    def launched_before(self, stream: int, time_ns: int) -> int:
        """The last work of a stream that was launched before a moment, -1 where there is none."""
        low, high = int(self.first[stream]), int(self.first[stream + 1])
        found = low + int(np.searchsorted(self.launch_ns[low:high], time_ns, side="left")) - 1
        return found if found >= low else -1

    def launched_after(self, stream: int, time_ns: int) -> int:
        """The first work of a stream that was launched at or after a moment, -1 for none."""
        low, high = int(self.first[stream]), int(self.first[stream + 1])
        found = low + int(np.searchsorted(self.launch_ns[low:high], time_ns, side="left"))
        return found if found < high else -1


def calls_by_correlation(trace: Trace, correlations: np.ndarray) -> np.ndarray:
    """The runtime or driver call of each correlation.

    Whatever its name: new launch calls appear with every release. Where a driver call lies inside a
    runtime call of the same correlation, the inner one counts.

    Args:
        trace: the trace.
        correlations: (k,) int64.

    Returns:
        (k,) int64, row of the call, -1 where there is none.
    """
    calls = np.flatnonzero(
        np.isin(trace.category, [Category.RUNTIME, Category.DRIVER]) & (trace.correlation > 0)
    )
    if not len(calls):
        return np.full(len(correlations), -1, np.int64)
    # Rows are in order of start, so the stable sort leaves the innermost call last.
    calls = calls[np.argsort(trace.correlation[calls], kind="stable")]
    known = trace.correlation[calls]
    at = np.searchsorted(known, correlations, side="right") - 1
    found = (at >= 0) & (known[np.maximum(at, 0)] == correlations)
    return np.where(found, calls[np.maximum(at, 0)], -1)


def device_work(trace: Trace) -> DeviceWork:
    """Put the device work of a rank in order and find what launched it.

    Args:
        trace: the trace.

    Returns:
        The work of all streams.
    """
    row = np.flatnonzero(np.isin(trace.category, DEVICE_WORK))
    call = calls_by_correlation(trace, trace.correlation[row])
    launch = np.where(call >= 0, trace.start_ns[call], NEVER)
    # Short kernels share a whole-microsecond time stamp: then the order of launch decides.
    order = np.lexsort((trace.correlation[row], launch, trace.start_ns[row], trace.lane[row]))
    row, call, launch = row[order], call[order], launch[order]
    lanes, first, stream = np.unique(trace.lane[row], return_index=True, return_inverse=True)
    first = np.append(first, len(row)).astype(np.int64)
    for s in range(len(lanes)):
        part = slice(first[s], first[s + 1])
        launch[part] = np.maximum.accumulate(launch[part])
    shift = _clock_shift(trace, row, call)
    start = trace.start_ns[row] + shift
    known = [trace.lanes[lane] for lane in lanes.tolist()]
    return DeviceWork(
        row,
        stream.astype(np.int64),
        start,
        start + trace.duration_ns[row],
        call,
        launch,
        first,
        lanes.astype(np.int64),
        np.array([lane.device for lane in known], np.int64),
        np.array([lane.stream for lane in known], np.int64),
        shift,
    )


def _clock_shift(trace: Trace, row: np.ndarray, call: np.ndarray) -> int:
    """Nanoseconds to add to device times: work starts after its launch and ends before its wait."""
    linked = call >= 0
    if not linked.any():
        return 0
    delay = trace.start_ns[row[linked]] - trace.start_ns[call[linked]]
    quickest = int(np.quantile(delay, _CLOCK_QUANTILE, method="lower"))
    if quickest < 0:
        return -quickest + (_QUICKEST_LAUNCH_NS if len(delay) >= _FEW else 0)
    return max(min(0, _earliest_return(trace, row[linked], call[linked])), -quickest)


def _earliest_return(trace: Trace, row: np.ndarray, call: np.ndarray) -> int:
    """Least time from the end of work to the return of a call that certainly waited for it."""
    tails = []
    to_host = names_match(trace.names, _TO_PAGEABLE)[trace.name[row]]
    tails.append(trace.end_ns[call[to_host]] - trace.end_ns[row[to_host]])
    waits = calls_named(trace, DEVICE_SYNC)
    # Which of several devices a call waited for is not sure.
    if len(waits) and len({lane.device for lane in trace.lanes if lane.is_stream}) == 1:
        order = np.argsort(trace.start_ns[call], kind="stable")
        ended = np.maximum.accumulate(trace.end_ns[row[order]])
        before = np.searchsorted(trace.start_ns[call[order]], trace.start_ns[waits]) - 1
        tails.append((trace.end_ns[waits] - ended[before])[before >= 0])
    return int(np.concatenate(tails).min(initial=0))


def names_match(names: Sequence[str], pattern: re.Pattern[str]) -> np.ndarray:
    """(names,) bool, where the pattern is found."""
    return np.array([bool(pattern.search(name)) for name in names], bool)


def calls_named(trace: Trace, pattern: re.Pattern[str]) -> np.ndarray:
    """Rows of runtime and driver calls whose name matches, in order of time."""
    called = np.isin(trace.category, [Category.RUNTIME, Category.DRIVER])
    return np.flatnonzero(called & names_match(trace.names, pattern)[trace.name])


def stream_of(work: DeviceWork, device: int, number: int) -> int:
    """Index of a stream by its number; -1 where it is unknown or has no work.

    Args:
        work: the device work.
        device: the device, `MISSING` where the trace does not say.
        number: the stream's number on the device.

    Returns:
        Index among the rank's streams.
    """
    if number == MISSING:
        return -1
    match = (work.numbers == number) & ((work.devices == device) | (device == MISSING))
    found = np.flatnonzero(match)
    return int(found[0]) if len(found) == 1 else -1
