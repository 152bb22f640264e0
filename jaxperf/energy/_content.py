"""The content of a file that may be compressed, told by its first bytes and not by its name."""

import lzma
import os
import zlib
from pathlib import Path

from jaxperf.errors import LogError

_GZIP, _XZ = b"\x1f\x8b", b"\xfd7zXZ\x00"

_MOST_BYTES = 1 << 30
"""Far above any log or table, far below a machine's memory."""


def read_content(path: str | os.PathLike[str]) -> bytes:
    """The bytes of a file, as they are.

    Raises:
        LogError: it cannot be read.

    Example:
        >>> import tempfile
        >>> with tempfile.NamedTemporaryFile() as file:
        ...     _ = file.write(b"time,watts")
        ...     file.flush()
        ...     read_content(file.name)
        b'time,watts'
    """
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise LogError("cannot be read", where=str(path), got=error.strerror) from None


def decompressed(content: bytes, where: str) -> tuple[bytes, bool]:
    """Content as it was before gzip or xz, where it is of one of them.

    Args:
        content: of a file.
        where: the file, for messages.

    Returns:
        The content, and whether it was there to its end: a log that is still written, or was cut,
        gives what it has.

    Raises:
        LogError: it is damaged, or holds more than a gigabyte.

    Example:
        >>> import gzip
        >>> packed = gzip.compress(b"time,watts")
        >>> decompressed(packed, "power.csv.gz"), decompressed(b"time", "power.csv")
        ((b'time,watts', True), (b'time', True))
    """
    parts: list[bytes] = []
    left = _MOST_BYTES
    while stream := _stream(content):
        try:
            part = stream.decompress(content, left + 1)
        except (zlib.error, lzma.LZMAError) as error:
            raise LogError("damaged compression", where=where, got=str(error)) from None
        left -= len(part)
        if left < 0:
            raise LogError("holds too much", where=where, expected=f"at most {_MOST_BYTES} bytes")
        parts.append(part)
        if not stream.eof:
            return b"".join(parts), False
        content = stream.unused_data
    if not parts:
        return content, True
    # Tapes and object stores pad with zeros.
    if content.strip(b"\0"):
        raise LogError(
            "damaged compression", where=where, got=f"{len(content)} bytes after the end"
        )
    return b"".join(parts), True


def _stream(content: bytes):
    """What decompresses content; `None` where it is not compressed."""
    if content.startswith(_GZIP):
        return zlib.decompressobj(wbits=31)
    return lzma.LZMADecompressor() if content.startswith(_XZ) else None
