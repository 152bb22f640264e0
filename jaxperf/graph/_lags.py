"""How long a device takes to react: a few numbers per device, fitted once to its trace.

A piece of device work starts when the last of three things has happened: its launch call has done
its part, the work before it on the stream has ended, and what it waits for on other streams has
ended; each plus a lag that is a property of the device, not of the task. The lags are means over
the starts that each of the three explains, so that sums over many tasks are right.

A start that none of them explains within `UNEXPLAINED_NS` keeps its own lag, and is counted: the
trace does not say what it waited for.
"""

from dataclasses import dataclass

import numpy as np

from jaxperf.graph._device import DeviceWork
from jaxperf.trace import Category, Trace

UNEXPLAINED_NS = 10_000
"""A start that is this far from what its dependencies say keeps the lag it was measured with."""

# Work of one stream that overlaps by less is in order, by a device that starts the next early.
_OVERLAP_NS = 10_000
_ROUNDS = 4
# Fewer starts than this are no ground for a mean.
_FEW = 8
# Lags of a launch, a stream and a wait where a trace has no start that shows them: typical of
# NVIDIA devices since 2018.
_USUAL_NS = (2_000, 1_000, 2_000)
_UNKNOWN = np.iinfo(np.int64).min // 4


@dataclass(frozen=True, eq=False)
class DeviceDependencies:
    """What each piece of device work waits for, with fitted lags.

    Attributes:
        launch: (l,) int64, work with a launch dependency of its own.
        launch_lag_ns: (l,) int64.
        launch_own_ns: (l,) int64, the part of the lag that the fit does not explain; and so below.
        launch_from_start: (l,) bool, counted from the start of the call rather than its end.
        before, after: (s,) int64, neighbours on a stream.
        stream_lag_ns, stream_own_ns: (s,) int64.
        awaited, waiting: (e,) int64, waits between streams.
        wait_lag_ns, wait_own_ns: (e,) int64.
        unexplained: number of starts that kept their own lag.
        unexplained_ns: time that these lags add up to.
        overlapping: neighbours on a stream that ran at the same time.
        guessed: waits between streams that only the times tell of.
    """

    launch: np.ndarray
    launch_lag_ns: np.ndarray
    launch_own_ns: np.ndarray
    launch_from_start: np.ndarray
    before: np.ndarray
    after: np.ndarray
    stream_lag_ns: np.ndarray
    stream_own_ns: np.ndarray
    awaited: np.ndarray
    waiting: np.ndarray
    wait_lag_ns: np.ndarray
    wait_own_ns: np.ndarray
    unexplained: int
    unexplained_ns: int
    overlapping: int
    guessed: int


def fit_lags(
    trace: Trace,
    work: DeviceWork,
    awaited: np.ndarray,
    waiting: np.ndarray,
    blocking: np.ndarray,
    *,
    by_time: bool = True,
) -> DeviceDependencies:
    """Fit the lags of each device of a rank.

    Args:
        trace: the trace.
        work: its device work.
        awaited, waiting: (e,) waits between streams.
        blocking: (d,) bool, work whose launch call returns only when the work is done.
        by_time: let late starts that nothing explains wait for work elsewhere that ended just then,
            and else keep their delay.

    Returns:
        The dependencies of all device work.
    """
    before, after, overlapping = stream_order(work)
    fit = _Fit(trace, work, before, after, awaited, waiting, blocking)
    late = np.flatnonzero((fit.late > UNEXPLAINED_NS) | fit.free)
    guess = _waits_by_time(work, late if by_time else late[:0])
    if len(guess):
        awaited = np.concatenate([awaited, guess[:, 0]])
        waiting = np.concatenate([waiting, guess[:, 1]])
        fit = _Fit(trace, work, before, after, awaited, waiting, blocking)
    lags, unexplained = fit.with_own_lags() if by_time else (fit.lags, np.empty(0, np.int64))
    own = [changed - fitted for changed, fitted in zip(lags, fit.lags, strict=True)]
    return DeviceDependencies(
        fit.launch,
        lags[0],
        own[0],
        fit.from_start,
        before,
        after,
        lags[1],
        own[1],
        awaited,
        waiting,
        lags[2],
        own[2],
        len(unexplained),
        int(fit.late[unexplained].sum()),
        overlapping,
        len(guess),
    )


class _Fit:
    """The lags of one rank's device work, and how late each start is by them."""

    def __init__(self, trace, work, before, after, awaited, waiting, blocking):
        self.launch = launch = _first_of_launch(work)
        calls = work.call[launch]
        call_start, call_end = trace.start_ns[calls], trace.end_ns[calls]
        self.start, end = work.start_ns, work.end_ns
        device = work.devices[work.stream]
        kind = _kinds(trace, work, blocking) + 4 * np.unique(device, return_inverse=True)[1]
        pair = kind[before] * (int(kind.max(initial=0)) + 1) + kind[after]
        free_ns = np.full(work.tasks, _UNKNOWN, np.int64)
        np.maximum.at(free_ns, after, end[before])
        np.maximum.at(free_ns, waiting, end[awaited])
        self.from_start = blocking[launch] | _start_tells_more(
            self.start[launch] - call_start,
            self.start[launch] - call_end,
            kind[launch],
            free_ns[launch] <= call_start,
        )
        self.sources = (
            _Source(launch, np.where(self.from_start, call_start, call_end), kind[launch]),
            _Source(after, end[before], pair),
            _Source(waiting, end[awaited], device[waiting]),
        )
        self.lags = _fit(self.start, self.sources)
        explained, self.binding = _explained(work.tasks, self.sources, self.lags)
        # At the head of a stream that no launch leads to there is nothing to be late for.
        self.free = explained == _UNKNOWN
        self.late = np.where(self.free, 0, self.start - explained)

    def with_own_lags(self) -> tuple[list[np.ndarray], np.ndarray]:
        """The lags, those of starts far from explained set to what was measured; and which."""
        kept = np.abs(self.late) > UNEXPLAINED_NS
        lags = [
            _keep_own(source, lag, self.start, kept, self.late, self.binding == k)
            for k, (source, lag) in enumerate(zip(self.sources, self.lags, strict=True))
        ]
        return lags, np.flatnonzero(kept & (self.late > 0))


def _waits_by_time(work: DeviceWork, late: np.ndarray) -> np.ndarray:
    """Waits that no call tells of: a late start just after the end of earlier work elsewhere.

    Args:
        work: the device work.
        late: (k,) work that started later than anything explains.

    Returns:
        (m, 2) the awaited work, and the work that waited; of several candidates the last to end.
    """
    by_end = np.argsort(work.end_ns, kind="stable")
    ends = work.end_ns[by_end]
    low = np.searchsorted(ends, work.start_ns[late] - UNEXPLAINED_NS)
    high = np.searchsorted(ends, work.start_ns[late], side="right")
    found = []
    for task, a, b in zip(late.tolist(), low.tolist(), high.tolist(), strict=True):
        near = by_end[a:b]
        near = near[
            (work.stream[near] != work.stream[task])
            & (work.devices[work.stream[near]] == work.devices[work.stream[task]])
            & (work.launch_ns[near] <= work.launch_ns[task])
        ]
        if len(near):
            found.append((int(near[-1]), task))
    return np.array(found, np.int64).reshape(-1, 2)


@dataclass(frozen=True, eq=False)
class _Source:
    """One cause of starts: which work, when the cause happened, and which parameter it shares."""

    target: np.ndarray
    time_ns: np.ndarray
    group: np.ndarray


def _kinds(trace: Trace, work: DeviceWork, blocking: np.ndarray) -> np.ndarray:
    """0 kernels, 1 copies, 2 sets, 3 copies whose call waits for them."""
    category = trace.category[work.row]
    kind = (category == Category.MEMCPY) * 1 + (category == Category.MEMSET) * 2
    return np.where(blocking, 3, kind).astype(np.int64)


def _first_of_launch(work: DeviceWork) -> np.ndarray:
    """Of the work that one call launched on one stream, the first; the rest follows in order."""
    linked = np.flatnonzero(work.call >= 0)
    key = work.call[linked] * (work.streams + 1) + work.stream[linked]
    _, first = np.unique(key, return_index=True)
    return np.sort(linked[first])


def stream_order(work: DeviceWork) -> tuple[np.ndarray, np.ndarray, int]:
    """Neighbours on each stream.

    Graph launches run branches at the same time on what the profiler shows as one stream: such work
    follows what had ended when it started, and what comes later waits for every branch.

    Args:
        work: the device work.

    Returns:
        (m,) the earlier, (m,) the later, and the number of neighbours that ran at the same time.
    """
    inner = np.ones(work.tasks, bool)
    inner[work.first[:-1][work.first[:-1] < work.tasks]] = False
    after = np.flatnonzero(inner)
    before = after - 1
    concurrent = work.start_ns[after] < work.end_ns[before] - _OVERLAP_NS
    branched = np.unique(work.stream[after[concurrent]])
    overlapping = int((work.start_ns[after] < work.end_ns[before]).sum())
    if not len(branched):
        return before, after, overlapping
    plain = ~np.isin(work.stream[after], branched)
    pairs = [pair for s in branched.tolist() for pair in _branches(work, s)]
    extra = np.array(pairs, np.int64).reshape(-1, 2)
    return (
        np.concatenate([before[plain], extra[:, 0]]),
        np.concatenate([after[plain], extra[:, 1]]),
        overlapping,
    )


def _branches(work: DeviceWork, stream: int) -> list[tuple[int, int]]:
    low, high = int(work.first[stream]), int(work.first[stream + 1])
    starts = work.start_ns[low:high].tolist()
    ends = work.end_ns[low:high].tolist()
    open_work: list[int] = []
    previous: list[int] = []
    pairs = []
    for k, start in enumerate(starts):
        done = [other for other in open_work if ends[other] <= start + _OVERLAP_NS]
        if done:
            open_work = [other for other in open_work if other not in done]
            previous = done
        pairs += [(low + other, low + k) for other in previous]
        open_work.append(k)
    return pairs


def _start_tells_more(
    after_start: np.ndarray, after_end: np.ndarray, kind: np.ndarray, idle: np.ndarray
) -> np.ndarray:
    """Whether work follows the start of its launch call more closely than the end, per kind.

    Only launches onto an idle stream tell. Real devices follow the end.
    """
    result = np.zeros(len(kind), bool)
    for value in np.unique(kind).tolist():
        mine = kind == value
        telling = mine & idle
        if telling.sum() >= _FEW:
            # Where all calls are alike the two cannot be told apart.
            result[mine] = _spread(after_start[telling]) <= 0.5 * _spread(after_end[telling])
        else:
            # No lag before the end of a call, which a quicker host would carry before its start.
            result[mine] = after_end[mine] < 0
    return result


def _spread(values: np.ndarray) -> float:
    return float(np.median(np.abs(values - np.median(values))))


def _fit(start: np.ndarray, sources: tuple[_Source, ...]) -> list[np.ndarray]:
    """Lag of every dependency: per group the mean over the starts that the group explains."""
    delays = [start[source.target] - source.time_ns for source in sources]
    # A cause explains a start the better, the later it happened: begin with the latest cause.
    lags = [np.zeros(len(source.target), np.int64) for source in sources]
    for _ in range(_ROUNDS):
        explained, binding = _explained(len(start), sources, lags)
        lags = [
            _group_lags(
                delay,
                source.group,
                # Of several waits before one start only the last to end explains it.
                (binding[source.target] == k) & (source.time_ns + lag == explained[source.target]),
                _USUAL_NS[k],
            )
            for k, (source, delay, lag) in enumerate(zip(sources, delays, lags, strict=True))
        ]
    return lags


def _explained(
    tasks: int, sources: tuple[_Source, ...], lags: list[np.ndarray]
) -> tuple[np.ndarray, np.ndarray]:
    """When each task should start, and which source says so; `_UNKNOWN` and -1 for none."""
    best = np.full(tasks, _UNKNOWN, np.int64)
    binding = np.full(tasks, -1, np.int8)
    for k, (source, lag) in enumerate(zip(sources, lags, strict=True)):
        earlier = best.copy()
        np.maximum.at(best, source.target, source.time_ns + lag)
        binding[best > earlier] = k
    return best, binding


def _group_lags(
    delay: np.ndarray, group: np.ndarray, bound: np.ndarray, usual_ns: int
) -> np.ndarray:
    """Lag of each group: the trimmed mean delay of its binding members.

    Where only a few bind there is nothing to average, and each keeps its own delay, unless that is
    so long that it has another cause. A member that
    does not bind started for another reason, so its own delay is only an upper bound.
    """
    several = bound.sum() >= _FEW
    everyone = round(_trimmed_mean(delay[bound])) if several else usual_ns
    lag = np.minimum(delay, everyone)
    for value in np.unique(group).tolist():
        mine = group == value
        binding = mine & bound
        if binding.sum() >= _FEW:
            lag[mine] = round(_trimmed_mean(delay[binding]))
        else:
            far = delay[binding] - usual_ns > UNEXPLAINED_NS
            lag[binding] = np.where(far, usual_ns, delay[binding])
    return lag


def _trimmed_mean(delay: np.ndarray) -> float:
    """Mean of the delays near their median: a start far from it has another cause."""
    centre = float(np.median(delay))
    reach = max(UNEXPLAINED_NS / 2, 4 * _spread(delay))
    near = np.abs(delay - centre) <= min(reach, UNEXPLAINED_NS)
    return float(delay[near].mean()) if near.any() else centre


def _keep_own(
    source: _Source,
    lag: np.ndarray,
    start: np.ndarray,
    kept: np.ndarray,
    late: np.ndarray,
    bound: np.ndarray,
) -> np.ndarray:
    """Give unexplained starts a lag of their own: later on the cause that binds, earlier on all."""
    own = start[source.target] - source.time_ns
    is_late = kept[source.target] & (late[source.target] > 0) & bound[source.target]
    is_early = kept[source.target] & (late[source.target] < 0)
    lag = np.where(is_late, own, lag)
    return np.where(is_early, np.minimum(lag, own), lag)
