"""Executes programs of ranks event by event.

One heap holds what happens next; every thread, stream and collective moves only when its turn in
time has come. It shares nothing with the replay, which solves the same question as one recursion:
where the two agree, neither is likely wrong.

A thread is a coroutine: it yields a time to sleep until, or a `Moment` to sleep on. A stream is a
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

from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import replace

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
from jaxperf.simulator._run import HostRow, RankRecord, SimulatedRun, SyncRow
from jaxperf.simulator._scale import Scale
from jaxperf.simulator._state import (
    NEVER_NS,
    Clock,
    Moment,
    QueuedWait,
    QueuedWork,
    RankState,
    RecordedEvent,
    Stream,
    Submission,
    Thread,
)
from jaxperf.simulator._streams import Streams

_Coroutine = Generator["int | Moment", None, None]


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
            `host` is all that CPU threads do: work, the own time of calls, returning from waits
            and waking up; `launch` is the launch latency.
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


class _Executor:
    def __init__(self, ranks: Mapping[int, Rank], noise: Noise, seed: int, scale: Scale):
        self.clock = Clock()
        self.streams = Streams(self.clock)
        self.noise, self.scale = noise, scale
        self._ranks = {number: RankState(number, ranks[number]) for number in sorted(ranks)}
        self._threads = [
            Thread(rank, name, seed)
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
        self.clock.run()
        self._check_all_finished()

    def records(self) -> dict[int, RankRecord]:
        return {
            number: RankRecord(
                number,
                rank.program,
                tuple(rank.host_rows),
                tuple(rank.device_rows),
                tuple(rank.sync_rows),
            )
            for number, rank in self._ranks.items()
        }

    def _start(self, thread: Thread) -> None:
        coroutine = self._run(thread, thread.rank.program.threads[thread.name])

        def resume() -> None:
            wanted = next(coroutine, None)
            if wanted is None:
                thread.finished = True
            elif isinstance(wanted, int):
                self.clock.at(wanted, resume)
            else:
                wanted.waiters.append(lambda: self.clock.at(self.clock.now_ns, resume))

        self.clock.at(0, resume)

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

    def _noisy_ns(self, thread: Thread, duration_us: float, deviation: float) -> int:
        if deviation:
            # Four deviations of the usual few percent never reach the floor.
            duration_us *= max(0.1, 1.0 + deviation * thread.random.gauss(0.0, 1.0))
        return round(duration_us * 1e3)

    def _work_ns(self, thread: Thread, work: DeviceWork) -> int:
        factor = self.scale.of_device_work(thread.rank.number, work.kind, work.name)
        return self._noisy_ns(thread, work.duration_us * factor, self.noise.kernel)

    def _call_ns(self, thread: Thread, name: str, duration_us: float) -> int:
        factor = self.scale.of_call(thread.rank.number, name)
        return self._noisy_ns(thread, duration_us * factor, self.noise.host)

    def _constant_ns(self, thread: Thread, duration_us: float) -> int:
        """Host time that never scatters: waking up, and returning from a wait."""
        return round(duration_us * self.scale.of_host_work(thread.rank.number) * 1e3)

    # -- instructions: rows and host work ---------------------------------------------------

    def _run(self, thread: Thread, instructions: Sequence[Instruction]) -> _Coroutine:
        for instruction in instructions:
            thread.instruction = instruction
            yield from self._handlers[type(instruction)](thread, instruction)

    def _work(self, thread: Thread, work: Work) -> _Coroutine:
        factor = self.scale.of_host_work(thread.rank.number)
        yield self.clock.now_ns + self._noisy_ns(thread, work.duration_us * factor, self.noise.host)

    def _op(self, thread: Thread, op: Op) -> _Coroutine:
        start_ns, outer = self.clock.now_ns, thread.external_id
        thread.external_id = external_id = next(thread.rank.external_ids)
        yield from self._run(thread, op.body)
        thread.external_id = outer
        thread.rank.host_rows.append(
            HostRow(
                "cpu_op",
                op.name,
                thread.name,
                start_ns,
                self.clock.now_ns,
                external_id=external_id,
                sequence=op.sequence,
                backward=op.backward,
                shapes=op.shapes,
                types=op.types,
                values=op.values,
            )
        )

    def _annotation(self, thread: Thread, annotation: Annotation) -> _Coroutine:
        start_ns, outer = self.clock.now_ns, thread.annotations
        number = next(thread.rank.external_ids)
        thread.annotations = (*outer, (number, annotation.name))
        yield from self._run(thread, annotation.body)
        thread.annotations = outer
        thread.rank.host_rows.append(
            HostRow(
                "user_annotation",
                annotation.name,
                thread.name,
                start_ns,
                self.clock.now_ns,
                external_id=number,
            )
        )

    def _plain_call(self, thread: Thread, call: Call) -> _Coroutine:
        correlation = next(thread.rank.correlations)
        yield from self._call(thread, call.name, call.duration_us, correlation)

    def _call(self, thread: Thread, name: str, own_us: float, correlation: int) -> _Coroutine:
        """A call that waits for nothing."""
        start_ns = self.clock.now_ns
        yield start_ns + self._call_ns(thread, name, own_us)
        self._add_call(thread, name, start_ns, 0, correlation)

    def _blocking_call(
        self,
        thread: Thread,
        name: str,
        start_ns: int,
        own_us: float,
        moments: Sequence[Moment],
        correlation: int,
    ) -> _Coroutine:
        """The rest of a call that began at `start_ns` and returns once all moments have come."""
        timing = thread.rank.timing
        own_ns = self._call_ns(thread, name, own_us)
        own_end_ns = self.clock.now_ns + own_ns
        done_ns = NEVER_NS
        for moment in moments:
            while moment.time_ns is None:
                yield moment
            done_ns = max(done_ns, moment.time_ns)
        end_ns = max(own_end_ns, done_ns + self._constant_ns(thread, timing.sync_return_us))
        yield end_ns
        self._add_call(thread, name, start_ns, end_ns - start_ns - own_ns, correlation)

    def _add_call(
        self, thread: Thread, name: str, start_ns: int, waited_ns: int, correlation: int
    ) -> None:
        is_driver = name.startswith("cu") and name[2].isupper()
        thread.rank.host_rows.append(
            HostRow(
                "cuda_driver" if is_driver else "cuda_runtime",
                name,
                thread.name,
                start_ns,
                self.clock.now_ns,
                waited_ns,
                correlation,
                thread.external_id,
            )
        )

    # -- instructions: launches -------------------------------------------------------------

    def _launch(self, thread: Thread, launch: Launch) -> _Coroutine:
        name = launch.call or _call_name(launch.work, launch.blocking)
        stream = thread.rank.stream(launch.device, launch.stream)
        yield from self._submit(
            thread, name, (launch.work,), stream, launch.call_us, launch.blocking
        )

    def _launch_graph(self, thread: Thread, launch: LaunchGraph) -> _Coroutine:
        stream = thread.rank.stream(launch.device, launch.stream)
        yield from self._submit(thread, "cudaGraphLaunch", launch.works, stream, launch.call_us)

    def _submit(
        self,
        thread: Thread,
        name: str,
        works: Sequence[DeviceWork],
        stream: Stream,
        call_us: float | None,
        blocking: bool = False,
    ) -> _Coroutine:
        rank, start_ns = thread.rank, self.clock.now_ns
        correlation = next(rank.correlations)
        place = self.streams.take_place(stream.device, rank.timing.launch_queue)
        if place is not None:
            yield place
        blocked_ns = self.clock.now_ns - start_ns
        own_us = rank.timing.launch_call_us if call_us is None else call_us
        latency_us = rank.timing.launch_latency_us * self.scale.of_latency(rank.number)
        earliest_ns = self.clock.now_ns + self._noisy_ns(thread, latency_us, self.noise.latency)
        submission = Submission(thread, correlation, earliest_ns, len(works))
        for work in works:
            item = QueuedWork(work, self._work_ns(thread, work), submission)
            if isinstance(work, Collective):
                item.meeting, item.sequence = self._meeting_of(rank, work)
            self.streams.append(stream, item)
        if blocking:
            done = self.streams.mark(stream)
            yield from self._blocking_call(thread, name, start_ns, own_us, [done], correlation)
        else:
            yield self.clock.now_ns + self._call_ns(thread, name, own_us)
            self._add_call(thread, name, start_ns, blocked_ns, correlation)

    def _meeting_of(self, rank: RankState, work: Collective) -> tuple[tuple, int]:
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

    def _record(self, thread: Thread, record: Record) -> _Coroutine:
        rank = thread.rank
        correlation = next(rank.correlations)
        number = rank.event_numbers.setdefault(record.event, len(rank.event_numbers) + 1)
        recorded = RecordedEvent(number, record.stream, correlation)
        rank.events[record.event] = recorded
        self.streams.append(rank.stream(record.device, record.stream), recorded.moment)
        yield from self._call(thread, "cudaEventRecord", rank.timing.event_call_us, correlation)

    def _stream_wait(self, thread: Thread, wait: StreamWait) -> _Coroutine:
        rank, start_ns = thread.rank, self.clock.now_ns
        correlation = next(rank.correlations)
        recorded = rank.events.get(wait.event)
        if recorded is not None:
            stream = rank.stream(wait.device, wait.stream)
            self.streams.append(stream, QueuedWait(recorded.moment))
        yield from self._call(thread, "cudaStreamWaitEvent", rank.timing.event_call_us, correlation)
        self._add_sync(
            thread, "Stream Wait Event", wait.device, wait.stream, start_ns, correlation, recorded
        )

    def _query(self, thread: Thread, query: Query) -> _Coroutine:
        correlation = next(thread.rank.correlations)
        own_us = thread.rank.timing.query_call_us
        yield from self._call(thread, "cudaEventQuery", own_us, correlation)

    def _poll(self, thread: Thread, poll: Poll) -> _Coroutine:
        rank = thread.rank
        # No noise here: the number of queries depends on time, and would shift all later draws.
        query_ns = round(
            rank.timing.query_call_us * self.scale.of_call(rank.number, "cudaEventQuery") * 1e3
        )
        between_ns = self._constant_ns(thread, poll.between_us)
        if query_ns + between_ns <= 0:
            # Without time of its own the loop would never let time pass.
            query_ns = 1
        recorded = rank.events.get(poll.event)
        happened = False
        while not happened:
            start_ns = self.clock.now_ns
            happened = recorded is None or recorded.moment.time_ns is not None
            correlation = next(rank.correlations)
            yield start_ns + query_ns
            self._add_call(thread, "cudaEventQuery", start_ns, 0, correlation)
            if not happened:
                yield self.clock.now_ns + between_ns

    def _synchronize_event(self, thread: Thread, wait: SynchronizeEvent) -> _Coroutine:
        recorded = thread.rank.events.get(wait.event)
        moments = [] if recorded is None else [recorded.moment]
        yield from self._synchronize(
            thread, "cudaEventSynchronize", "Event Sync", 0, -1, moments, recorded
        )

    def _synchronize_stream(self, thread: Thread, wait: SynchronizeStream) -> _Coroutine:
        stream = thread.rank.stream(wait.device, wait.stream)
        yield from self._synchronize(
            thread,
            "cudaStreamSynchronize",
            "Stream Sync",
            wait.device,
            wait.stream,
            [self.streams.mark(stream)],
        )

    def _synchronize_device(self, thread: Thread, wait: SynchronizeDevice) -> _Coroutine:
        streams = thread.rank.device(wait.device).streams.values()
        moments = [self.streams.mark(stream) for stream in streams]
        yield from self._synchronize(
            thread, "cudaDeviceSynchronize", "Context Sync", wait.device, -1, moments
        )

    def _synchronize(
        self,
        thread: Thread,
        name: str,
        kind: str,
        device: int,
        stream: int,
        moments: Sequence[Moment],
        recorded: RecordedEvent | None = None,
    ) -> _Coroutine:
        start_ns, correlation = self.clock.now_ns, next(thread.rank.correlations)
        own_us = thread.rank.timing.sync_call_us
        yield from self._blocking_call(thread, name, start_ns, own_us, moments, correlation)
        self._add_sync(thread, kind, device, stream, start_ns, correlation, recorded)

    def _add_sync(
        self,
        thread: Thread,
        kind: str,
        device: int,
        stream: int,
        start_ns: int,
        correlation: int,
        recorded: RecordedEvent | None,
    ) -> None:
        row = SyncRow(kind, device, stream, start_ns, self.clock.now_ns, correlation)
        if recorded is not None:
            row = replace(
                row,
                event=recorded.number,
                record_stream=recorded.stream,
                record_correlation=recorded.correlation,
            )
        thread.rank.sync_rows.append(row)

    # -- instructions: hand-over between threads ----------------------------------------------

    def _signal(self, thread: Thread, signal: Signal) -> _Coroutine:
        flag = thread.rank.flag(signal.flag)
        if flag.time_ns is not None:
            raise ConfigError(
                "a flag is raised twice",
                where=f"rank {thread.rank.number} thread {thread.name}",
                got=repr(signal.flag),
                expected="a flag of its own for each hand-over",
            )
        flag.fire(self.clock.now_ns)
        yield from ()

    def _await(self, thread: Thread, wait: Await) -> _Coroutine:
        flag = thread.rank.flag(wait.flag)
        while flag.time_ns is None:
            yield flag
        wake_up_ns = self._constant_ns(thread, thread.rank.timing.hand_over_us)
        yield max(self.clock.now_ns, flag.time_ns + wake_up_ns)


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
