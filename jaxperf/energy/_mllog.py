"""Lines of MLPerf's logging format: `:::MLLOG {json}`, as training and loadgen write them."""

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

import msgspec

from jaxperf._json import NOT_READABLE
from jaxperf.errors import LogError

MARK = b":::MLLOG "
"""What an event begins with; a prefix may stand before it."""


@dataclass(frozen=True, slots=True)
class LoggedEvent:
    """One event of a log.

    Attributes:
        key: what it is.
        value: as logged.
        time_ms: as logged: since the epoch in training logs, since the start in those of loadgen.
        line: of the file, counted from 1.
        metadata: as logged; empty where it is not a table.
    """

    key: str
    value: Any
    time_ms: float
    line: int
    metadata: dict[str, Any]


class _Line(msgspec.Struct):
    key: str
    time_ms: float
    value: Any = None
    metadata: Any = None


_DECODER = msgspec.json.Decoder(_Line)


def read_events(
    content: bytes, where: str, keys: Collection[str] | None = None
) -> list[LoggedEvent]:
    """The events of a log, in the order of its lines; other lines are passed over.

    Args:
        content: of the file.
        where: the file, for messages.
        keys: only events of these; all of them by default.

    Returns:
        The events.

    Raises:
        LogError: an event that was asked for is not whole: its text ends early, or it has no key
            or time.

    Example:
        >>> line = b':::MLLOG {"key": "power_reading", "value": 70, "time_ms": 1000}'
        >>> read_events(line, "node_0.txt")[0].value
        70
    """
    marks = None if keys is None else [f'"{key}"'.encode() for key in keys]
    events = []
    position, line, counted = content.find(MARK), 1, 0
    while position >= 0:
        end = content.find(b"\n", position)
        text = content[position + len(MARK) : end if end >= 0 else len(content)]
        if marks is None or any(mark in text for mark in marks):
            line += content.count(b"\n", counted, position)
            counted = position
            event = _event(text, f"{where}, line {line}", line)
            if keys is None or event.key in keys:
                events.append(event)
        position = content.find(MARK, position + len(MARK) + len(text))
    return events


def _event(text: bytes, where: str, line: int) -> LoggedEvent:
    try:
        found = _DECODER.decode(text)
    except NOT_READABLE as error:
        raise LogError(
            "not a whole MLLOG event",
            where=where,
            got=f"{text[:60].decode(errors='replace')!r}: {error}",
            expected='{"key": .., "time_ms": .., "value": ..}',
            remedy="remove the line if the log was cut there",
        ) from None
    metadata = found.metadata if isinstance(found.metadata, dict) else {}
    return LoggedEvent(found.key, found.value, found.time_ms, line, metadata)
