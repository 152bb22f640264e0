"""Executes programs of ranks event by event.

One heap holds what happens next; every thread, stream and collective moves only when its turn in
time has come. It shares nothing with the replay, which solves the same question as one recursion:
where the two agree, neither is likely wrong.

A thread is a coroutine: it yields a time to sleep until, or a `_Signal` to sleep on. A stream is a
queue of works, event records and event waits, each taken up in order. What it means for time:

    work starts    max(launch start + launch latency, previous work's end + kernel gap,
                       each awaited event + wait lag)
    event          end of the last work before it on its stream, or the latest event that stream
                   had to wait for, whichever is later
    collective     ends a transfer time after its last member started
    blocking call  max(start + own time, end of what it waits for + return time)
    full queue     the launch waits for a place, then takes its own time

Streams share a device without slowing each other down. Noise is drawn along each thread's program,
so a task keeps its draw when durations change: two runs that differ in `scale` alone can be
compared without sampling error.
"""

import heapq
import random
from collections import deque
from collections.abc import Callable, Generator, Mapping, Sequence
from itertools import count

from jaxperf.errors import ConfigError
from jaxperf.simulator._program import (
    Annotation,
    Await,
    Call,
    Collective,
    Copy,
    DeviceWork,
    Instruction,
    Kernel,
    Launch,
    LaunchGraph,
    Noise,
    Op,
    Poll,
    Query,
    Rank,
    Record,
    Set,
    Signal,
    StreamWait,
    SynchronizeDevice,
    SynchronizeEvent,
    SynchronizeStream,
    Work,
)
from jaxperf.simulator._run import DeviceRow, HostRow, RankRecord, SimulatedRun, SyncRow
from jaxperf.simulator._scale import Scale

_NEVER_NS = -(10**15)
"""When an idle stream finished: so long ago that it delays nothing."""

_Coroutine = Generator["int | _Signal", None, None]


def execute(
    ranks: Mapping[int, Rank],
    *,
    noise: Noise | None = None,
    seed: int = 0,
    scale: Mapping[str, float] | None = None,
    device_name: str = "Simulated GPU",
    streaming_multiprocessors: int = 132,
) -> SimulatedRun:
    """Runs the programs of all ranks to their end.

    Args:
        ranks: the programs, by rank.
        noise: how much durations scatter; none where `None`.
        seed: the same seed gives the same run.
        scale: factors on durations by selector: a class of
            `jaxperf.simulator.SELECTABLE_CLASSES` or `name:REGEX`, optionally behind `rank:N/`.
            `host` is host work and the own time of calls, `launch` the launch latency.
        device_name: name of every device.
        streaming_multiprocessors: of every device.

    Returns:
        What every rank did, and when.

    Raises:
        ConfigError: a selector is unknown, or the programs wait for each other for ever.

    Example:
        >>> from jaxperf.simulator import Annotation, Kernel, Launch, SynchronizeDevice
        >>> body = [Launch(Kernel("gemm", 100.0, "gemm")), SynchronizeDevice()]
        >>> program = {0: Rank({"main": [Annotation("ProfilerStep#1", body)]})}
        >>> execute(program).step_us  # 6 launch latency + 100 + 3 return
        109.0
        >>> execute(program, scale={"gemm": 0.5}).step_us
        59.0
    """
    executor = _Executor(ranks, noise or Noise(), seed, Scale(scale))
    executor.run()
    return SimulatedRun(executor.records(), device_name, streaming_multiprocessors)


class _Signal:
    """Something that happens once. `time_ns` says when it counts as having happened."""

    __slots__ = ("time_ns", "waiters")

    def __init__(self):
        self.time_ns: int | None = None
        self.waiters: list[Callable[[], None]] = []

    def fire(self, time_ns: int) -> None:
        self.time_ns = time_ns
        waiters, self.waiters = self.waiters, []
        for resume in waiters:
            resume()


class _RecordedEvent:
    """One record of an event: where and by which call, and when it happens."""

    __slots__ = ("correlation", "number", "signal", "stream")

    def __init__(self, number: int, stream: int, correlation: int):
        self.number, self.stream, self.correlation = number, stream, correlation
        self.signal = _Signal()


class _QueuedWork:
    """A work in the queue of a stream."""

    __slots__ = (
        "annotations",
        "correlation",
        "duration_ns",
        "earliest_ns",
        "external_id",
        "meeting",
        "sequence",
        "submission",
        "work",
    )

    def __init__(self, work: DeviceWork, earliest_ns: int, duration_ns: int):
        self.work, self.earliest_ns, self.duration_ns = work, earliest_ns, duration_ns


class _QueuedWait:
    """A wait for an event in the queue of a stream."""

    __slots__ = ("signal",)

    def __init__(self, signal: _Signal):
        self.signal = signal


class _Stream:
    """A queue of works, records (`_Signal`) and waits; `ready_ns` bounds its next work."""

    __slots__ = ("busy_with", "device", "done_ns", "number", "queue", "ready_ns", "wake_ns")

    def __init__(self, device: "_Device", number: int):
        self.device, self.number = device, number
        self.queue: deque[_QueuedWork | _Signal | _QueuedWait] = deque()
        self.busy_with: _QueuedWork | None = None
        self.ready_ns = self.done_ns = self.wake_ns = _NEVER_NS


class _Device:
    """Streams, and the places in the launch queue."""

    def __init__(self, rank: "_RankState", number: int):
        self.rank, self.number = rank, number
        self.streams: dict[int, _Stream] = {}
        self.pending = 0
        self.blocked: deque[_Signal] = deque()

    def stream(self, number: int) -> _Stream:
        if number not in self.streams:
            self.streams[number] = _Stream(self, number)
        return self.streams[number]


class _RankState:
    """The changing state of a rank."""

    def __init__(self, number: int, program: Rank):
        self.number, self.program, self.timing = number, program, program.timing
        self.devices: dict[int, _Device] = {}
        self.events: dict[str, _RecordedEvent] = {}
        self.event_numbers: dict[str, int] = {}
        self.flags: dict[str, _Signal] = {}
        self.sequences: dict[tuple, int] = {}
        self.correlations = count(1)
        self.external_ids = count(1)
        self.host: list[HostRow] = []
        self.device_rows: list[DeviceRow] = []
        self.syncs: list[SyncRow] = []

    def device(self, number: int) -> _Device:
        if number not in self.devices:
            self.devices[number] = _Device(self, number)
        return self.devices[number]

    def flag(self, name: str) -> _Signal:
        return self.flags.setdefault(name, _Signal())


class _Thread:
    """A CPU thread, and the rows it stands in."""

    def __init__(self, rank: _RankState, name: str, seed: int):
        self.rank, self.name = rank, name
        self.random = random.Random(f"{seed}/{rank.number}/{name}")
        self.external_id = -1
        self.annotations: tuple[tuple[int, str], ...] = ()
        self.instruction: Instruction | None = None
        self.finished = False


class _Executor:
    def __init__(self, ranks: Mapping[int, Rank], noise: Noise, seed: int, scale: Scale):
        self.now_ns = 0
        self.noise, self.scale = noise, scale
        self._heap: list[tuple[int, int, Callable[[], None]]] = []
        self._tie_break = count()
        self._meetings: dict[tuple, list[tuple[_Stream, _QueuedWork, int]]] = {}
        self._ranks = {number: _RankState(number, ranks[number]) for number in sorted(ranks)}
        self._threads = [
            _Thread(rank, name, seed)
            for rank in self._ranks.values()
            for name in rank.program.threads
        ]
        self._handlers: dict[type, Callable[..., _Coroutine]] = {
            Work: self._work,
            Op: self._op,
            Annotation: self._annotation,
            Call: self._plain_call,
            Launch: self._launch,
            LaunchGraph: self._launch_graph,
            Record: self._record,
            StreamWait: self._stream_wait,
            Query: self._query,
            Poll: self._poll,
            SynchronizeEvent: self._synchronize_event,
            SynchronizeStream: self._synchronize_stream,
            SynchronizeDevice: self._synchronize_device,
            Signal: self._signal,
            Await: self._await,
        }

    # -- the clock ------------------------------------------------------------------------

    def run(self) -> None:
        for thread in self._threads:
            self._start(thread)
        while self._heap:
            self.now_ns, _, action = heapq.heappop(self._heap)
            action()
        self._check_all_finished()

    def records(self) -> dict[int, RankRecord]:
        return {
            number: RankRecord(
                number,
                rank.program,
                tuple(rank.host),
                tuple(rank.device_rows),
                tuple(rank.syncs),
            )
            for number, rank in self._ranks.items()
        }

    def _at(self, time_ns: int, action: Callable[[], None]) -> None:
        heapq.heappush(self._heap, (time_ns, next(self._tie_break), action))

    def _start(self, thread: _Thread) -> None:
        coroutine = self._run(thread, thread.rank.program.threads[thread.name])

        def resume() -> None:
            wanted = next(coroutine, None)
            if wanted is None:
                thread.finished = True
            elif isinstance(wanted, int):
                self._at(wanted, resume)
            else:
                wanted.waiters.append(lambda: self._at(self.now_ns, resume))

        self._at(0, resume)

    def _check_all_finished(self) -> None:
        stuck = [
            f"rank {thread.rank.number} thread {thread.name} at {_short(thread.instruction)}"
            for thread in self._threads
            if not thread.finished
        ]
        for rank in self._ranks.values():
            for device in rank.devices.values():
                for stream in device.streams.values():
                    if stream.busy_with is not None:
                        work = _short(stream.busy_with.work)
                        stuck.append(f"rank {rank.number} stream {stream.number} in {work}")
                    elif stream.queue:
                        stuck.append(f"rank {rank.number} stream {stream.number} at a wait")
        if stuck:
            raise ConfigError(
                "the programs wait for each other for ever",
                where="simulation",
                got="; ".join(stuck[:4]) + (f" and {len(stuck) - 4} more" if stuck[4:] else ""),
                expected="every collective launched by all members, every awaited flag raised",
            )

    # -- durations ------------------------------------------------------------------------

    def _noisy_ns(self, thread: _Thread, duration_us: float, deviation: float) -> int:
        if deviation:
            # Four deviations of the usual few percent never reach the floor.
            duration_us *= max(0.1, 1.0 + deviation * thread.random.gauss(0.0, 1.0))
        return round(duration_us * 1e3)

    def _work_ns(self, thread: _Thread, work: DeviceWork) -> int:
        factor = self.scale.of_device_work(thread.rank.number, work.kind, work.name)
        return self._noisy_ns(thread, work.duration_us * factor, self.noise.kernel)

    def _call_ns(self, thread: _Thread, name: str, duration_us: float) -> int:
        factor = self.scale.of_call(thread.rank.number, name)
        return self._noisy_ns(thread, duration_us * factor, self.noise.host)

    # -- instructions: rows and host work ---------------------------------------------------

    def _run(self, thread: _Thread, instructions: Sequence[Instruction]) -> _Coroutine:
        for instruction in instructions:
            thread.instruction = instruction
            yield from self._handlers[type(instruction)](thread, instruction)

    def _work(self, thread: _Thread, work: Work) -> _Coroutine:
        factor = self.scale.of_host_work(thread.rank.number)
        yield self.now_ns + self._noisy_ns(thread, work.duration_us * factor, self.noise.host)

    def _op(self, thread: _Thread, op: Op) -> _Coroutine:
        start_ns, outer = self.now_ns, thread.external_id
        thread.external_id = external_id = next(thread.rank.external_ids)
        yield from self._run(thread, op.body)
        thread.external_id = outer
        thread.rank.host.append(
            HostRow(
                "cpu_op",
                op.name,
                thread.name,
                start_ns,
                self.now_ns,
                external_id=external_id,
                sequence=op.sequence,
                backward=op.backward,
                shapes=op.shapes,
            )
        )

    def _annotation(self, thread: _Thread, annotation: Annotation) -> _Coroutine:
        start_ns, outer = self.now_ns, thread.annotations
        number = next(thread.rank.external_ids)
        thread.annotations = (*outer, (number, annotation.name))
        yield from self._run(thread, annotation.body)
        thread.annotations = outer
        thread.rank.host.append(
            HostRow(
                "user_annotation",
                annotation.name,
                thread.name,
                start_ns,
                self.now_ns,
                external_id=number,
            )
        )

    def _plain_call(self, thread: _Thread, call: Call) -> _Coroutine:
        correlation = next(thread.rank.correlations)
        yield from self._call(thread, call.name, call.duration_us, correlation)

    def _call(self, thread: _Thread, name: str, own_us: float, correlation: int) -> _Coroutine:
        """A call that waits for nothing."""
        start_ns = self.now_ns
        yield start_ns + self._call_ns(thread, name, own_us)
        self._add_call(thread, name, start_ns, 0, correlation)

    def _blocking_call(
        self,
        thread: _Thread,
        name: str,
        start_ns: int,
        own_us: float,
        signals: Sequence[_Signal],
        correlation: int,
    ) -> _Coroutine:
        """The rest of a call that began at `start_ns` and returns once all signals happened."""
        own_ns = self._call_ns(thread, name, own_us)
        own_end_ns = self.now_ns + own_ns
        done_ns = _NEVER_NS
        for signal in signals:
            while signal.time_ns is None:
                yield signal
            done_ns = max(done_ns, signal.time_ns)
        end_ns = max(own_end_ns, done_ns + round(thread.rank.timing.sync_return_us * 1e3))
        yield end_ns
        self._add_call(thread, name, start_ns, end_ns - start_ns - own_ns, correlation)

    def _add_call(
        self, thread: _Thread, name: str, start_ns: int, waited_ns: int, correlation: int
    ) -> None:
        is_driver = name.startswith("cu") and name[2].isupper()
        thread.rank.host.append(
            HostRow(
                "cuda_driver" if is_driver else "cuda_runtime",
                name,
                thread.name,
                start_ns,
                self.now_ns,
                waited_ns,
                correlation,
                thread.external_id,
            )
        )

    # -- instructions: launches -------------------------------------------------------------

    def _launch(self, thread: _Thread, launch: Launch) -> _Coroutine:
        name = launch.call or _call_name(launch.work, launch.blocking)
        stream = thread.rank.device(launch.device).stream(launch.stream)
        yield from self._submit(
            thread, name, (launch.work,), stream, launch.call_us, launch.blocking
        )

    def _launch_graph(self, thread: _Thread, launch: LaunchGraph) -> _Coroutine:
        stream = thread.rank.device(launch.device).stream(launch.stream)
        yield from self._submit(thread, "cudaGraphLaunch", launch.works, stream, launch.call_us)

    def _submit(
        self,
        thread: _Thread,
        name: str,
        works: Sequence[DeviceWork],
        stream: _Stream,
        call_us: float | None,
        blocking: bool = False,
    ) -> _Coroutine:
        rank, start_ns = thread.rank, self.now_ns
        correlation = next(rank.correlations)
        device = stream.device
        if device.pending >= rank.timing.launch_queue:
            place = _Signal()
            device.blocked.append(place)
            yield place
        else:
            device.pending += 1
        blocked_ns = self.now_ns - start_ns
        own_us = rank.timing.launch_call_us if call_us is None else call_us
        latency_us = rank.timing.launch_latency_us * self.scale.of_latency(rank.number)
        earliest_ns = self.now_ns + self._noisy_ns(thread, latency_us, self.noise.latency)
        remaining = [len(works)]
        for work in works:
            item = _QueuedWork(work, earliest_ns, self._work_ns(thread, work))
            item.submission, item.correlation = remaining, correlation
            item.external_id, item.annotations = thread.external_id, thread.annotations
            item.meeting, item.sequence = None, -1
            if isinstance(work, Collective):
                item.meeting, item.sequence = self._meeting_of(rank, work)
            stream.queue.append(item)
        self._advance(stream)
        if blocking:
            done = self._mark(stream)
            yield from self._blocking_call(thread, name, start_ns, own_us, [done], correlation)
        else:
            yield self.now_ns + self._call_ns(thread, name, own_us)
            self._add_call(thread, name, start_ns, blocked_ns, correlation)

    def _meeting_of(self, rank: _RankState, work: Collective) -> tuple[tuple, int]:
        if rank.number not in work.ranks:
            raise ConfigError(
                "a rank launches a collective of a group it is no member of",
                where=f"rank {rank.number}, {work.operation} of group {work.group!r}",
                got=f"members {list(work.ranks)}",
                expected=f"{rank.number} among them",
            )
        key = (work.group, work.source, work.destination)
        sequence = rank.sequences.get(key, 0)
        rank.sequences[key] = sequence + 1
        return (*key, sequence), sequence

    # -- instructions: events and synchronisation ---------------------------------------------

    def _record(self, thread: _Thread, record: Record) -> _Coroutine:
        rank = thread.rank
        correlation = next(rank.correlations)
        number = rank.event_numbers.setdefault(record.event, len(rank.event_numbers) + 1)
        recorded = _RecordedEvent(number, record.stream, correlation)
        rank.events[record.event] = recorded
        stream = rank.device(record.device).stream(record.stream)
        stream.queue.append(recorded.signal)
        self._advance(stream)
        yield from self._call(thread, "cudaEventRecord", rank.timing.event_call_us, correlation)

    def _stream_wait(self, thread: _Thread, wait: StreamWait) -> _Coroutine:
        rank, start_ns = thread.rank, self.now_ns
        correlation = next(rank.correlations)
        recorded = rank.events.get(wait.event)
        if recorded is not None:
            stream = rank.device(wait.device).stream(wait.stream)
            stream.queue.append(_QueuedWait(recorded.signal))
            self._advance(stream)
        yield from self._call(thread, "cudaStreamWaitEvent", rank.timing.event_call_us, correlation)
        self._add_sync(
            thread, "Stream Wait Event", wait.device, wait.stream, start_ns, correlation, recorded
        )

    def _query(self, thread: _Thread, query: Query) -> _Coroutine:
        correlation = next(thread.rank.correlations)
        own_us = thread.rank.timing.query_call_us
        yield from self._call(thread, "cudaEventQuery", own_us, correlation)

    def _poll(self, thread: _Thread, poll: Poll) -> _Coroutine:
        rank = thread.rank
        # No noise here: the number of queries depends on time, and would shift all later draws.
        query_ns = round(
            rank.timing.query_call_us * self.scale.of_call(rank.number, "cudaEventQuery") * 1e3
        )
        between_ns = round(poll.between_us * self.scale.of_host_work(rank.number) * 1e3)
        if query_ns + between_ns <= 0:
            # Without time of its own the loop would never let time pass.
            query_ns = 1
        recorded = rank.events.get(poll.event)
        happened = False
        while not happened:
            start_ns = self.now_ns
            happened = recorded is None or recorded.signal.time_ns is not None
            correlation = next(rank.correlations)
            yield start_ns + query_ns
            self._add_call(thread, "cudaEventQuery", start_ns, 0, correlation)
            if not happened:
                yield self.now_ns + between_ns

    def _synchronize_event(self, thread: _Thread, wait: SynchronizeEvent) -> _Coroutine:
        recorded = thread.rank.events.get(wait.event)
        signals = [] if recorded is None else [recorded.signal]
        yield from self._synchronize(
            thread, "cudaEventSynchronize", "Event Sync", 0, -1, signals, recorded
        )

    def _synchronize_stream(self, thread: _Thread, wait: SynchronizeStream) -> _Coroutine:
        stream = thread.rank.device(wait.device).stream(wait.stream)
        yield from self._synchronize(
            thread,
            "cudaStreamSynchronize",
            "Stream Sync",
            wait.device,
            wait.stream,
            [self._mark(stream)],
        )

    def _synchronize_device(self, thread: _Thread, wait: SynchronizeDevice) -> _Coroutine:
        streams = thread.rank.device(wait.device).streams.values()
        signals = [self._mark(stream) for stream in streams]
        yield from self._synchronize(
            thread, "cudaDeviceSynchronize", "Context Sync", wait.device, -1, signals
        )

    def _synchronize(
        self,
        thread: _Thread,
        name: str,
        kind: str,
        device: int,
        stream: int,
        signals: Sequence[_Signal],
        recorded: _RecordedEvent | None = None,
    ) -> _Coroutine:
        start_ns, correlation = self.now_ns, next(thread.rank.correlations)
        own_us = thread.rank.timing.sync_call_us
        yield from self._blocking_call(thread, name, start_ns, own_us, signals, correlation)
        self._add_sync(thread, kind, device, stream, start_ns, correlation, recorded)

    def _add_sync(
        self,
        thread: _Thread,
        kind: str,
        device: int,
        stream: int,
        start_ns: int,
        correlation: int,
        recorded: _RecordedEvent | None,
    ) -> None:
        row = SyncRow(kind, device, stream, start_ns, self.now_ns, correlation)
        if recorded is not None:
            row = SyncRow(
                kind,
                device,
                stream,
                start_ns,
                self.now_ns,
                correlation,
                recorded.number,
                recorded.stream,
                recorded.correlation,
            )
        thread.rank.syncs.append(row)

    # -- instructions: hand-over between threads ----------------------------------------------

    def _signal(self, thread: _Thread, signal: Signal) -> _Coroutine:
        flag = thread.rank.flag(signal.flag)
        if flag.time_ns is not None:
            raise ConfigError(
                "a flag is raised twice",
                where=f"rank {thread.rank.number} thread {thread.name}",
                got=repr(signal.flag),
                expected="a flag of its own for each hand-over",
            )
        flag.fire(self.now_ns)
        yield from ()

    def _await(self, thread: _Thread, wait: Await) -> _Coroutine:
        flag = thread.rank.flag(wait.flag)
        while flag.time_ns is None:
            yield flag
        yield max(self.now_ns, flag.time_ns + round(thread.rank.timing.hand_over_us * 1e3))

    # -- streams ----------------------------------------------------------------------------

    def _mark(self, stream: _Stream) -> _Signal:
        """Happens when all that the stream was given so far has ended."""
        mark = _Signal()
        stream.queue.append(mark)
        self._advance(stream)
        return mark

    def _advance(self, stream: _Stream) -> None:
        """Takes up whatever the stream can take up now."""
        queue = stream.queue
        while queue and stream.busy_with is None:
            head = queue[0]
            if isinstance(head, _QueuedWork):
                start_ns = max(head.earliest_ns, stream.ready_ns)
                if start_ns > self.now_ns:
                    self._advance_at(stream, start_ns)
                    return
                queue.popleft()
                self._begin(stream, head)
            elif isinstance(head, _Signal):
                queue.popleft()
                head.fire(stream.done_ns)
            elif head.signal.time_ns is None:
                head.signal.waiters.append(lambda: self._advance(stream))
                return
            else:
                queue.popleft()
                event_ns = head.signal.time_ns
                lag_ns = round(stream.device.rank.timing.wait_lag_us * 1e3)
                stream.done_ns = max(stream.done_ns, event_ns)
                stream.ready_ns = max(stream.ready_ns, event_ns + lag_ns)

    def _advance_at(self, stream: _Stream, time_ns: int) -> None:
        # The head of a queue never changes its earliest start, so one wake-up is enough.
        if stream.wake_ns != time_ns:
            stream.wake_ns = time_ns
            self._at(time_ns, lambda: self._advance(stream))

    def _begin(self, stream: _Stream, item: _QueuedWork) -> None:
        stream.busy_with = item
        start_ns = self.now_ns
        if item.meeting is None:
            end_ns = start_ns + item.duration_ns
            self._at(end_ns, lambda: self._finish(stream, item, start_ns, 0))
            return
        assert isinstance(item.work, Collective)
        arrived = self._meetings.setdefault(item.meeting, [])
        arrived.append((stream, item, start_ns))
        members = len(item.work.ranks) if item.work.source is None else 2
        if len(arrived) == members:
            del self._meetings[item.meeting]
            longest_ns = max(member.duration_ns for _, member, _ in arrived)
            for member_stream, member, member_start_ns in arrived:
                self._at(
                    start_ns + longest_ns,
                    lambda s=member_stream, m=member, t=member_start_ns: self._finish(
                        s, m, t, start_ns - t
                    ),
                )

    def _finish(self, stream: _Stream, item: _QueuedWork, start_ns: int, waited_ns: int) -> None:
        device = stream.device
        device.rank.device_rows.append(
            DeviceRow(
                item.work,
                device.number,
                stream.number,
                start_ns,
                self.now_ns,
                waited_ns,
                item.correlation,
                item.external_id,
                item.sequence,
                item.annotations,
            )
        )
        stream.busy_with = None
        stream.done_ns = self.now_ns
        stream.ready_ns = self.now_ns + round(device.rank.timing.kernel_gap_us * 1e3)
        item.submission[0] -= 1
        if item.submission[0] == 0:
            self._release_place(device)
        self._advance(stream)

    def _release_place(self, device: _Device) -> None:
        if device.blocked:
            # The place goes straight to whoever has waited longest.
            device.blocked.popleft().fire(self.now_ns)
        else:
            device.pending -= 1


def _call_name(work: DeviceWork, blocking: bool) -> str:
    match work:
        case Kernel():
            return "cudaLaunchKernel"
        case Collective():
            return "cudaLaunchKernelExC"
        case Copy():
            return "cudaMemcpy" if blocking else "cudaMemcpyAsync"
        case Set():
            return "cudaMemsetAsync"


def _short(thing: object) -> str:
    text = repr(thing)
    return text if len(text) <= 80 else text[:77] + "..."
