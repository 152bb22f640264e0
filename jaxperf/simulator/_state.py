"""What changes while programs run: the clock, moments, streams, devices, ranks and threads."""

import heapq
import random
from collections import deque
from collections.abc import Callable
from itertools import count

from jaxperf.simulator._program import DeviceWork, Instruction, Rank
from jaxperf.simulator._run import DeviceRow, HostRow, SyncRow

NEVER_NS = -(10**15)
"""When an idle stream finished: so long ago that it delays nothing."""


class Clock:
    """The time, and what happens next; what happens at one time happens in order of request."""

    def __init__(self):
        self.now_ns = 0
        self._heap: list[tuple[int, int, Callable[[], None]]] = []
        self._tie_break = count()

    def at(self, time_ns: int, action: Callable[[], None]) -> None:
        heapq.heappush(self._heap, (time_ns, next(self._tie_break), action))

    def run(self) -> None:
        """Runs until nothing is left to happen."""
        while self._heap:
            self.now_ns, _, action = heapq.heappop(self._heap)
            action()


class Moment:
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


class RecordedEvent:
    """One record of an event: where and by which call, and when it happens."""

    __slots__ = ("correlation", "moment", "number", "stream")

    def __init__(self, number: int, stream: int, correlation: int):
        self.number, self.stream, self.correlation = number, stream, correlation
        self.moment = Moment()


class Submission:
    """What one launch call gave to a device: it holds a place in the queue until all has ended."""

    __slots__ = ("annotations", "correlation", "earliest_ns", "external_id", "remaining")

    def __init__(self, thread: "Thread", correlation: int, earliest_ns: int, works: int):
        self.correlation, self.earliest_ns, self.remaining = correlation, earliest_ns, works
        self.external_id, self.annotations = thread.external_id, thread.annotations


class QueuedWork:
    """A work in the queue of a stream; `meeting` is where the members of a collective meet."""

    __slots__ = ("duration_ns", "meeting", "sequence", "submission", "work")

    def __init__(self, work: DeviceWork, duration_ns: int, submission: Submission):
        self.work, self.duration_ns, self.submission = work, duration_ns, submission
        self.meeting: tuple | None = None
        self.sequence = -1


class QueuedWait:
    """A wait for an event in the queue of a stream."""

    __slots__ = ("moment",)

    def __init__(self, moment: Moment):
        self.moment = moment


class Stream:
    """A queue of works, records (`Moment`) and waits.

    `done_ns` is when all taken up so far was done, `ready_ns` bounds the start of the next work,
    `wake_ns` and `held_by` are the time and the wait that will next make it look at its queue.
    """

    __slots__ = (
        "busy_with",
        "device",
        "done_ns",
        "held_by",
        "number",
        "queue",
        "ready_ns",
        "wake_ns",
    )

    def __init__(self, device: "Device", number: int):
        self.device, self.number = device, number
        self.queue: deque[QueuedWork | Moment | QueuedWait] = deque()
        self.busy_with: QueuedWork | None = None
        self.held_by: QueuedWait | None = None
        self.ready_ns = self.done_ns = self.wake_ns = NEVER_NS


class Device:
    """Streams, the taken places of the launch queue, and the launches that wait for one."""

    def __init__(self, rank: "RankState", number: int):
        self.rank, self.number = rank, number
        self.streams: dict[int, Stream] = {}
        self.pending = 0
        self.blocked: deque[Moment] = deque()

    def stream(self, number: int) -> Stream:
        if number not in self.streams:
            self.streams[number] = Stream(self, number)
        return self.streams[number]


class RankState:
    """A rank: its devices, events and flags, its counters, and the rows written so far."""

    def __init__(self, number: int, program: Rank):
        self.number, self.program, self.timing = number, program, program.timing
        self.devices: dict[int, Device] = {}
        self.events: dict[str, RecordedEvent] = {}
        self.event_numbers: dict[str, int] = {}
        self.flags: dict[str, Moment] = {}
        self.sequences: dict[tuple, int] = {}
        self.correlations = count(1)
        self.external_ids = count(1)
        self.host_rows: list[HostRow] = []
        self.device_rows: list[DeviceRow] = []
        self.sync_rows: list[SyncRow] = []

    def stream(self, device: int, stream: int) -> Stream:
        return self.device(device).stream(stream)

    def device(self, number: int) -> Device:
        if number not in self.devices:
            self.devices[number] = Device(self, number)
        return self.devices[number]

    def flag(self, name: str) -> Moment:
        return self.flags.setdefault(name, Moment())


class Thread:
    """A CPU thread: its source of noise, the rows it stands in, and what it is doing."""

    def __init__(self, rank: RankState, name: str, seed: int):
        self.rank, self.name = rank, name
        self.random = random.Random(f"{seed}/{rank.number}/{name}")
        self.external_id = -1
        self.annotations: tuple[tuple[int, str], ...] = ()
        self.instruction: Instruction | None = None
        self.finished = False
