"""The device side: streams take up works, records and waits, and collectives meet across ranks."""

from jaxperf.simulator._program import Collective
from jaxperf.simulator._run import DeviceRow
from jaxperf.simulator._state import Clock, Device, Moment, QueuedWait, QueuedWork, Stream


class Streams:
    """Moves every stream of every rank; collectives that some member has reached wait here."""

    def __init__(self, clock: Clock):
        self._clock = clock
        self._meetings: dict[tuple, list[tuple[Stream, QueuedWork, int]]] = {}

    def append(self, stream: Stream, item: QueuedWork | Moment | QueuedWait) -> None:
        """Gives a stream something to take up, after all it was given before."""
        stream.queue.append(item)
        self._advance(stream)

    def mark(self, stream: Stream) -> Moment:
        """The moment when all that the stream was given so far has ended."""
        mark = Moment()
        self.append(stream, mark)
        return mark

    def take_place(self, device: Device, places: int) -> Moment | None:
        """Takes a place of the launch queue; where none is free, a moment to wait for."""
        if device.pending < places:
            device.pending += 1
            return None
        place = Moment()
        device.blocked.append(place)
        return place

    def _release_place(self, device: Device) -> None:
        if device.blocked:
            # The place goes straight to whoever has waited longest.
            device.blocked.popleft().fire(self._clock.now_ns)
        else:
            device.pending -= 1

    def _advance(self, stream: Stream) -> None:
        """Takes up whatever the stream can take up now."""
        queue = stream.queue
        while queue and stream.busy_with is None:
            head = queue[0]
            if isinstance(head, QueuedWork):
                start_ns = max(head.submission.earliest_ns, stream.ready_ns)
                if start_ns > self._clock.now_ns:
                    self._wake(stream, start_ns)
                    return
                queue.popleft()
                self._begin(stream, head)
            elif isinstance(head, Moment):
                queue.popleft()
                head.fire(stream.done_ns)
            elif head.moment.time_ns is None:
                if stream.held_by is not head:
                    stream.held_by = head
                    head.moment.waiters.append(lambda: self._advance(stream))
                return
            else:
                queue.popleft()
                event_ns = head.moment.time_ns
                lag_ns = round(stream.device.rank.timing.wait_lag_us * 1e3)
                stream.done_ns = max(stream.done_ns, event_ns)
                stream.ready_ns = max(stream.ready_ns, event_ns + lag_ns)

    def _wake(self, stream: Stream, time_ns: int) -> None:
        # The head of a queue never changes its earliest start, so one wake-up is enough.
        if stream.wake_ns != time_ns:
            stream.wake_ns = time_ns
            self._clock.at(time_ns, lambda: self._advance(stream))

    def _begin(self, stream: Stream, item: QueuedWork) -> None:
        stream.busy_with = item
        if item.meeting is None:
            self._end_after(item.duration_ns, stream, item, waited_ns=0)
            return
        assert isinstance(item.work, Collective)
        arrived = self._meetings.setdefault(item.meeting, [])
        arrived.append((stream, item, self._clock.now_ns))
        members = len(item.work.ranks) if item.work.source is None else 2
        if len(arrived) == members:
            del self._meetings[item.meeting]
            longest_ns = max(member.duration_ns for _, member, _ in arrived)
            for its_stream, member, start_ns in arrived:
                waited_ns = self._clock.now_ns - start_ns
                self._end_after(longest_ns, its_stream, member, waited_ns)

    def _end_after(
        self, duration_ns: int, stream: Stream, item: QueuedWork, waited_ns: int
    ) -> None:
        start_ns = self._clock.now_ns - waited_ns
        self._clock.at(
            self._clock.now_ns + duration_ns,
            lambda: self._end(stream, item, start_ns, waited_ns),
        )

    def _end(self, stream: Stream, item: QueuedWork, start_ns: int, waited_ns: int) -> None:
        now_ns, device, submission = self._clock.now_ns, stream.device, item.submission
        device.rank.device_rows.append(
            DeviceRow(
                item.work,
                device.number,
                stream.number,
                start_ns,
                now_ns,
                waited_ns,
                submission.correlation,
                submission.external_id,
                item.sequence,
                submission.annotations,
            )
        )
        stream.busy_with = None
        stream.done_ns = now_ns
        stream.ready_ns = now_ns + round(device.rank.timing.kernel_gap_us * 1e3)
        submission.remaining -= 1
        if submission.remaining == 0:
            self._release_place(device)
        self._advance(stream)
