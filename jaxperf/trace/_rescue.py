"""What is done with a slice that the decoder refused."""

import re
from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence

import msgspec

from jaxperf.trace import _repair
from jaxperf.trace._events import Event, event_of
from jaxperf.trace._notes import NoteBook

# Possessive: of long blanks that no event follows, every way to divide them would be tried.
BETWEEN_EVENTS = re.compile(rb"\}\s*+,?+\s*+(?=\{)")
SEPARATORS = b" \t\r\n,"
LONGEST_EVENT_BYTES = 4 << 20
_NEXT_EVENT = re.compile(rb"\s*+,?+\s*+\{")
_ERROR_BYTE = re.compile(r"\(byte (\d+)\)")
_JOINED_PIECES = 64

Sink = Callable[[Sequence[Event]], None]


def note_repairs(notes: NoteBook, repairs: Mapping[str, int], place: str) -> None:
    """Note what the forgiving parser did at a place."""
    for code, count in repairs.items():
        notes.add(code, place, count)


class Rescue:
    """Takes a refused slice apart: runs of good events, and the pieces that are damaged.

    Args:
        text: the slice: events with commas between.
        offset: where in the file's text it starts.
        decode: decodes a JSON array of events.
        sink: takes the events.
        notes: where repairs are noted.
        last: no text follows the slice.
    """

    def __init__(
        self,
        text: bytes,
        offset: int,
        decode: Callable[[memoryview], Sequence[Event]],
        sink: Sink,
        notes: NoteBook,
        last: bool,
    ):
        self._offset = offset
        self._decode_array = decode
        self._sink = sink
        self._notes = notes
        self._last = last
        # One byte before and one after each run of pieces is overwritten with a bracket while the
        # run is decoded, so that runs are decoded in place.
        self._text = bytearray(b"[" + text + b"]")
        starts = [1 + len(text) - len(text.lstrip(SEPARATORS))]
        ends = []
        for match in BETWEEN_EVENTS.finditer(text):
            ends.append(match.start() + 2)
            starts.append(match.end() + 1)
        ends.append(1 + len(text.rstrip(SEPARATORS)))
        self._starts, self._ends = starts, ends
        self._bad: list[int] = []
        self._tail: bytes | None = None
        self._used = len(text)

    def run(self) -> tuple[int, bytes | None]:
        """Send on what can be read.

        Returns:
            How much of the slice was used (the start of an event at its end may be left), and the
            text after the array of events where that was closed in this slice.
        """
        todo = [(0, len(self._starts))]
        while todo and self._tail is None:
            first, end = todo.pop()
            try:
                events = self._decode(first, end)
            except msgspec.DecodeError as error:
                todo.extend(reversed(self._divide(first, end, error)))
            else:
                self._mend_bad()
                self._sink(events)
        if self._tail is None:
            self._finish()
        return self._used, self._tail

    def _decode(self, first: int, end: int) -> Sequence[Event]:
        start, stop = self._starts[first] - 1, self._ends[end - 1]
        text = self._text
        before, text[start] = text[start], ord("[")
        after, text[stop] = text[stop], ord("]")
        try:
            return self._decode_array(memoryview(text)[start : stop + 1])
        finally:
            text[start], text[stop] = before, after

    def _divide(self, first: int, end: int, error: Exception) -> list[tuple[int, int]]:
        """What to try after a run was refused: around the complaint where there is one."""
        byte = _ERROR_BYTE.search(str(error))
        at = self._starts[first] - 1 + int(byte[1]) if byte else None
        if at is not None and "trailing characters" in str(error) and self._closes(first, at):
            return []
        if end - first == 1:
            self._set_bad(first)
            return []
        if at is None:
            middle = (first + end) // 2
        else:
            middle = min(max(bisect_right(self._starts, at) - 1, first), end - 1)
        pieces = [(first, middle), (middle, middle + 1), (middle + 1, end)]
        if at is None:
            pieces = [(first, middle), (middle, end)]
        return [(low, high) for low, high in pieces if low < high]

    def _closes(self, first: int, at: int) -> bool:
        """Was the array of events closed just before `at`? Then keep what came before."""
        bracket = self._text.rfind(b"]", 0, at - 1)
        tail = bytes(self._text[bracket + 1 : -1])
        if _NEXT_EVENT.match(tail):
            return False
        start = self._starts[first] - 1
        before, self._text[start] = self._text[start], ord("[")
        try:
            events = self._decode_array(memoryview(self._text)[start : bracket + 1])
        except msgspec.DecodeError:
            return False
        finally:
            self._text[start] = before
        self._mend_bad()
        self._sink(events)
        self._used = bracket
        self._tail = tail
        return True

    def _set_bad(self, piece: int) -> None:
        """Remember a damaged piece; a list of objects inside an event makes several of one."""
        self._bad.append(piece)
        if 1 < len(self._bad) <= _JOINED_PIECES:
            try:
                events = self._decode(self._bad[0], piece + 1)
            except msgspec.DecodeError:
                return
            self._bad.clear()
            self._sink(events)

    def _mend_bad(self) -> None:
        for piece in self._bad:
            self._mend(piece)
        self._bad.clear()

    def _finish(self) -> None:
        """The damaged pieces at the end of the slice: perhaps the event only goes on."""
        if self._bad:
            start = self._starts[self._bad[0]]
            size = len(self._text) - start
            if not self._last and size < LONGEST_EVENT_BYTES:
                self._used = start - 1
                return
            *whole, final = self._bad
            for piece in whole:
                self._mend(piece)
            if not self._last or not self._cut_off(final):
                self._mend(final)

    def _cut_off(self, piece: int) -> bool:
        """Does the text end inside this event? Its last value cannot be trusted then."""
        return not bytes(self._text[self._starts[piece] : -1]).rstrip().endswith(b"}")

    def _mend(self, piece: int) -> None:
        start = self._starts[piece]
        if self._ends[piece] - start > LONGEST_EVENT_BYTES:
            self._notes.add("event-dropped", f"byte {self._offset + start - 1}")
            return
        values, repairs = _repair.parse(bytes(self._text[start : self._ends[piece]]))
        place = self._offset + start - 1
        items = [value for value in values if isinstance(value, dict)]
        events = [event_of(item) for item in items if "ph" in item]
        if events:
            note_repairs(self._notes, repairs, f"byte {place}")
            self._sink(events)
        if not events and items != [{}]:
            self._notes.add("event-dropped", f"byte {place}")
