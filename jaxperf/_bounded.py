"""What is unpacked of a small file may be of any length: it is read up to a limit."""

from collections.abc import Iterable
from functools import partial
from typing import Protocol

_AT_ONCE = 1 << 20


class TooManyBytes(Exception):
    """There is more than may be read."""


class Readable(Protocol):
    """What is read from."""

    def read(self, size: int, /) -> bytes:
        """At most so many bytes; none at the end."""
        ...


def read_at_most(stream: Readable, most_bytes: int) -> bytes:
    """All that a stream holds.

    Piece by piece, for what is asked for at once is taken from the memory at once.

    Raises:
        TooManyBytes: it holds more than `most_bytes`.

    Example:
        >>> import io
        >>> read_at_most(io.BytesIO(b"1 2 3"), 5)
        b'1 2 3'
    """
    return joined_at_most(iter(partial(stream.read, _AT_ONCE), b""), most_bytes)


def joined_at_most(pieces: Iterable[bytes], most_bytes: int) -> bytes:
    """All pieces as one.

    Raises:
        TooManyBytes: they hold more than `most_bytes`.

    Example:
        >>> joined_at_most([b"1 ", b"2"], 5)
        b'1 2'
    """
    parts, held = [], 0
    for part in pieces:
        parts.append(part)
        held += len(part)
        if held > most_bytes:
            raise TooManyBytes(f"more than {most_bytes} bytes")
    return b"".join(parts)
