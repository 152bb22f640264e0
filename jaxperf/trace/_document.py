"""The JSON document around the events: where they begin and end, and how to cut between them.

A trace may be gigabytes, so the array of events is decoded in slices of a few MiB. Where a slice
may end is guessed from the text (a closing brace, a comma, an opening brace); the guess is right
only if the decoder accepts the slice. What it refuses is taken apart around the place it
complains about, down to single events, and only those are repaired.
"""

import re
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import msgspec

from jaxperf.errors import TraceError
from jaxperf.trace import _repair
from jaxperf.trace._events import Event, decode
from jaxperf.trace._notes import NoteBook
from jaxperf.trace._rescue import (
    BETWEEN_EVENTS,
    LONGEST_EVENT_BYTES,
    SEPARATORS,
    Rescue,
    Sink,
    note_repairs,
)
from jaxperf.trace._sources import Source

SLICE_BYTES = 2 << 20
_HEAD_BYTES = 64 << 20
_MOST_BETWEEN_BYTES = 256 << 20
"""Text in which no event ends: an event, or the metadata after the last one, is never as long."""
_EVENTS_KEYS = 16
"""Places that may begin the events: in a trace it is the first, or there are few in its texts."""
_BOM = b"\xef\xbb\xbf"

_EVENTS_KEY = re.compile(rb'"traceEvents"\s*:\s*\[')
_EVENTS_KEY_LENGTH = 64
_TAIL_OF_OBJECT = re.compile(rb"\s*(?:,\s*\"|\})")
_CLOSED_OBJECT = re.compile(rb"(?:\}|^)\s*,?\s*$")
_CLOSING_BRACKETS = 256

EXECUTION_TRACE = "an execution trace, not a timeline"
"""What a file seems to be that PyTorch's `ExecutionTraceObserver` wrote."""


class NotATrace(TraceError):
    """The file holds something else; `what` says what it seems to be."""


def is_trace(path: Path) -> bool:
    """Does the file hold a trace? Only its head is read."""
    notes = NoteBook(str(path))
    try:
        Document(str(path), Source(path, notes), notes).find_events()
    except TraceError:
        return False
    return True


class Document:
    """Reads the events of one file into a sink.

    Args:
        source: where the text comes from.
        notes: where repairs are noted.

    Attributes:
        metadata: the top-level values other than the events, after `read`.
        truncated: the text ended before the array of events did.
    """

    def __init__(self, file: str, source: Source, notes: NoteBook):
        self._file = file
        self._source = source
        self._notes = notes
        self._offset = 0  # of the slice at hand, in the decompressed text
        self._exact = False
        self.metadata: dict[str, Any] = {}
        self.truncated = False

    def read(self, sink: Sink) -> None:
        """Hand all events to `sink`, a few thousand at a time."""
        blocks = self._source.blocks()
        buffer, bare = self.find_events(blocks)
        tail: bytes | None = None
        while tail is None:
            at_end = True
            parts = [buffer]
            size = len(buffer)
            for block in blocks:
                parts.append(block)
                size += len(block)
                # Twice what was at hand: else a long event would be looked through again and again.
                if size >= max(SLICE_BYTES, 2 * len(buffer)):
                    at_end = False
                    break
            buffer = b"".join(parts)
            del parts
            if at_end:
                tail = self._last_slice(buffer, sink, bare)
                break
            cut = _last_boundary(buffer)
            if cut is None:
                buffer = self._without_blanks(buffer)
                continue
            used, tail = self._events(buffer[:cut], sink, last=False)
            if tail is not None:
                tail = buffer[used:] + b"".join(blocks)
                self._offset += used
                break
            rest = buffer[used:].lstrip(SEPARATORS)
            self._offset += len(buffer) - len(rest)
            buffer = rest
        if not bare and tail is not None:
            self._read_tail(tail)
        if self._source.cut:
            self.truncated = True

    def find_events(self, blocks: Iterator[bytes] | None = None) -> tuple[bytes, bool]:
        """Read up to the events.

        Returns:
            The text at hand after the opening bracket, and whether the array is all there is.

        Raises:
            NotATrace: there are none.
        """
        blocks = blocks or self._source.blocks()
        head = b""
        for block in blocks:
            head += block
            if block.strip() or len(head) >= _HEAD_BYTES:
                break
        start = 0
        if head.startswith(_BOM):
            start = len(_BOM)
            self._notes.add("byte-order-mark")
        stripped = head[start:].lstrip()
        start = len(head) - len(stripped)
        if not stripped:
            what = "an empty file" if not self._source.cut else "nothing readable in it"
            raise NotATrace(what, where=self._file, expected="a profiler trace")
        if stripped[:1] == b"[":
            self._offset = start + 1
            inner = stripped[1:].lstrip()
            if inner[:1] not in (b"{", b"]", b""):
                raise self._stranger("a JSON array of something else than events")
            return head[start + 1 :], True
        if stripped[:1] != b"{":
            raise self._stranger(_what_is(stripped))
        searched, keys = start, 0
        while keys < _EVENTS_KEYS:
            for match in islice(_EVENTS_KEY.finditer(head, searched), _EVENTS_KEYS):
                keys += 1
                if self._read_head(head[start : match.start()]):
                    self._offset = match.end()
                    return head[match.end() :], False
            searched = max(start, len(head) - _EVENTS_KEY_LENGTH)
            block = next(blocks, b"") if len(head) < _HEAD_BYTES else b""
            if not block:
                break
            head += block
        if _looks_like_event(stripped):
            self._offset = start  # events one after the other, without an array around them
            return head[start:], True
        raise self._stranger(_what_object(head[start:], self._source.cut))

    def _without_blanks(self, buffer: bytes) -> bytes:
        """Text in which no event ends, without what may stand before one."""
        rest = buffer.lstrip(SEPARATORS)
        self._offset += len(buffer) - len(rest)
        if len(rest) > _MOST_BETWEEN_BYTES:
            raise TraceError(
                "no event ends in a long text",
                where=f"{self._file}, byte {self._offset}",
                got=f"{len(rest)} bytes",
                expected=f"at most {_MOST_BETWEEN_BYTES} from the end of one event to the next",
            )
        return rest

    def _stranger(self, what: str) -> NotATrace:
        return NotATrace(what, where=self._file, expected="a profiler trace (JSON)")

    def _read_head(self, text: bytes) -> bool:
        """Keep the metadata before the events; False where `text` ends inside a value or a text."""
        found = _object_or_none(text + b'"":0}')
        if found is None:
            if len(text) > LONGEST_EVENT_BYTES:
                return False  # too long for the forgiving parser
            values, repairs = _repair.parse(text + b'"":0}')
            if len(values) != 1 or repairs["missing-bracket"] or "" not in values[0]:
                return False
            note_repairs(self._notes, repairs, "the metadata before the events")
            found = values[0]
        del found[""]
        self.metadata |= found
        return True

    def _read_tail(self, tail: bytes) -> None:
        found = _object_or_none(b'{"":0' + tail)
        if found is None and len(tail) > LONGEST_EVENT_BYTES:
            self._truncate("the metadata after the events")
            return
        if found is None:
            values, repairs = _repair.parse(b'{"":0' + tail)
            found = values[0] if values and isinstance(values[0], dict) else {}
            if repairs.pop("missing-bracket", 0):
                self._truncate("the metadata after the events")
            beyond = repairs.pop("stray-bracket", 0) + repairs.pop("stray-text", 0)
            if beyond or len(values) > 1:
                self._notes.add("text-after-end")
            note_repairs(self._notes, repairs, "the metadata after the events")
        found.pop("", None)
        self.metadata |= found

    def _array_end(self, buffer: bytes, bare: bool) -> int | None:
        """Position of the bracket that closes the events, judged by what follows it.

        Other arrays at the top level (`deviceProperties`) may follow: the first one counts.
        """
        if bare:
            text = buffer.rstrip()
            return len(text) - 1 if text.endswith(b"]") else None
        found = None
        at = len(buffer)
        for _ in range(_CLOSING_BRACKETS):
            at = buffer.rfind(b"]", 0, at)
            if at < 0 or len(buffer) - at > LONGEST_EVENT_BYTES:
                break
            if not _CLOSED_OBJECT.search(buffer, max(0, at - 256), at):
                continue
            tail = buffer[at + 1 :]
            if _TAIL_OF_OBJECT.match(tail) and _object_or_none(b'{"":0' + tail) is not None:
                found = at
        return found

    def _last_slice(self, buffer: bytes, sink: Sink, bare: bool) -> bytes | None:
        """Decode to the end of the array, or of the text; returns what follows the array."""
        end = self._array_end(buffer, bare)
        if end is not None:
            events = buffer[:end].rstrip()
            if events.endswith(b","):
                self._notes.add("stray-comma", f"byte {self._offset + len(events) - 1}")
                events = events.rstrip(SEPARATORS)
            used, tail = self._events(events, sink, last=True)
            if tail is not None:  # it was closed even earlier
                self._offset += used
                return tail + buffer[end:]
            self._offset += end + 1
            return buffer[end + 1 :]
        used, tail = self._events(buffer, sink, last=True)
        if tail is None:
            self._truncate(f"byte {self._offset + used}")
        elif bare and tail.strip():
            self._notes.add("text-after-end", f"byte {self._offset + used}")
        return tail

    def _truncate(self, place: str) -> None:
        self.truncated = True
        if "truncated" not in self._notes:
            self._notes.add("truncated", place)

    def _events(self, text: bytes, sink: Sink, last: bool) -> tuple[int, bytes | None]:
        """Decode a slice.

        Returns:
            How much of it was used, and the text after the array where it ended in this slice.
        """
        if not text.strip():
            return len(text), None
        try:
            sink(self._decode(b"[" + text + b"]"))
            return len(text), None
        except msgspec.DecodeError:
            rescue = Rescue(text, self._offset, self._decode, sink, self._notes, last)
            return rescue.run()

    def _decode(self, text: bytes | memoryview) -> Sequence[Event]:
        events = decode(text, self._exact)
        if not self._exact and _loses_digits(events):
            self._exact = True
            events = decode(text, True)
        return events


def _last_boundary(buffer: bytes) -> int | None:
    """Just after the last closing brace that another event seems to follow."""
    at = len(buffer)
    while (at := buffer.rfind(b"}", 0, at)) >= 0:
        match = BETWEEN_EVENTS.match(buffer, at)
        if match:
            return at + 1
    return None


def _loses_digits(events: Sequence[Event]) -> bool:
    # Above 2^43 microseconds a float64 no longer holds a nanosecond.
    return bool([True for e in events if type(e.ts) is float and e.ts >= 2.0**43])


def _object_or_none(text: bytes) -> dict[str, Any] | None:
    try:
        found = msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


def _looks_like_event(text: bytes) -> bool:
    first = text[: 1 << 16].split(b"}", 1)[0]
    return b'"ph"' in first and b'"ts"' in first


def _what_is(text: bytes) -> str:
    if text.startswith((b"\x89PNG", b"\xff\xd8\xff", b"GIF8", b"BM")):
        return "a picture"
    if text.startswith(b"SQLite format 3\0"):
        return "a compressed SQLite file, which must be unpacked first"
    if b"\0" in text[:4096] or text[:2] in (b"\xff\xfe", b"\xfe\xff"):
        return "a binary file"
    return "no JSON"


def _what_object(text: bytes, cut: bool) -> str:
    if b'"nodes"' in text[: 1 << 20] and b'"schema"' in text[: 1 << 20]:
        return EXECUTION_TRACE
    if cut:
        return "cut before its traceEvents"
    return "JSON without traceEvents"
