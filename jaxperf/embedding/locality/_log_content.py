"""The bytes of an access log: unpacked, told apart by content, and read as numbers."""

import gzip
import io
import lzma
import os
import re
import warnings
import zlib
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from jaxperf._bounded import TooManyBytes, read_at_most
from jaxperf._npz import MOST_BYTES
from jaxperf.embedding.locality._binary_ids import BINARY_FORMATS, binary_format
from jaxperf.errors import ConfigError, LogError
from jaxperf.trace import Note

LOG_FORMATS = ("auto", "text", "npz", *BINARY_FORMATS)
"""What a caller may name; `auto` tells the others apart by content."""

_MARK = b"\xef\xbb\xbf"
"""What some editors put before text in UTF-8."""

_FOREIGN = (
    (b"\x93NUMPY", "a file of numpy.save", "write it with numpy.savez, or its bytes with tofile"),
    (b"\xff\xfe", "text in UTF-16", "save it as UTF-8"),
)
"""First bytes of what would be read as other ids than were meant."""

_XZ, _GZIP, _ZIP = b"\xfd7zXZ\x00", b"\x1f\x8b", b"PK\x03\x04"
_TEXT_BYTES = bytes(range(0x20, 0x7F)) + b"\t\r\n"
_LOOKED_AT = 1 << 16  # bytes that text is told by
_DECIMAL = b"0123456789-+, \t\r\n"
_INTEGER = re.compile(rb"[+-]?[0-9]{1,20}")
_ENDS = (np.iinfo(np.int64).min, np.iinfo(np.int64).max)
_BLANK = np.isin(np.arange(256), list(b" \t\n\r\v\f"))


@dataclass(frozen=True)
class TextIds:
    """The ids of a text, as they stand in the file.

    Attributes:
        ids: (n,) int64.
        offsets: (bags + 1,) where each bag begins, and the end; `None` where the log has no bags.
        line: the line, from 1, that an id stands in, by its index.
    """

    ids: np.ndarray
    offsets: np.ndarray | None
    line: Callable[[int], int]


def unpacked(path: str | os.PathLike[str], most: int = -1) -> bytes:
    """The content of a file, out of gzip or xz where its first bytes say so.

    Args:
        path: the file.
        most: bytes to read from its beginning; all where below 0.

    Raises:
        LogError: it cannot be read, or its compression is damaged or cut off or holds too much.
    """
    where = os.fspath(path)
    try:
        with open(path, "rb") as file:
            magic = file.read(len(_XZ))
            file.seek(0)
            if magic == _XZ:
                with lzma.open(file) as plain:
                    return _bounded(plain, most, where)
            if magic.startswith(_GZIP):
                with gzip.open(file) as plain:
                    return _bounded(plain, most, where)
            return file.read(most).removeprefix(_MARK)
    except (lzma.LZMAError, zlib.error, EOFError, gzip.BadGzipFile) as error:
        raise LogError("damaged compression", where=where, got=str(error)) from None
    except OSError as error:
        raise LogError("cannot be read", where=where, got=error.strerror) from None


def _bounded(plain: io.BufferedIOBase, most: int, where: str) -> bytes:
    if most >= 0:
        return plain.read(most).removeprefix(_MARK)
    try:
        return read_at_most(plain, MOST_BYTES).removeprefix(_MARK)
    except TooManyBytes:
        raise LogError(
            "holds too much",
            where=where,
            expected=f"at most {MOST_BYTES} bytes",
            remedy="unpack it first",
        ) from None


def format_of(content: bytes, name: str, where: str) -> tuple[str, Note | None]:
    """The format of a log, and a note of what it was told by where that is not plain.

    Args:
        content: unpacked.
        name: of `LOG_FORMATS`; any but `auto` is taken as it is.
        where: the file, for messages.

    Raises:
        ConfigError: there is no such format.
        LogError: the file is empty, or plainly of another kind, or nothing tells its format.
    """
    if name not in LOG_FORMATS:
        raise ConfigError(
            "unknown format of access logs", got=name, expected=", ".join(LOG_FORMATS)
        )
    if not content:
        raise LogError("empty file", where=where, expected="at least one access")
    for start, kind, remedy in _FOREIGN:
        if content.startswith(start):
            raise LogError(kind, where=where, expected="ids", remedy=remedy)
    head = content[:_LOOKED_AT]
    plain = "npz" if content.startswith(_ZIP) else "text"
    if name in BINARY_FORMATS and (plain == "npz" or not head.translate(None, _DECIMAL)):
        raise LogError(
            "wrong format", where=where, got=plain, expected=name, remedy=f"ask for {plain}"
        )
    if name != "auto":
        return name, None
    # A text with faults is one still.
    if plain == "npz" or len(head.translate(None, _TEXT_BYTES)) < 0.05 * len(head):
        return plain, None
    return binary_format(content, where)


def text_ids(content: bytes, where: str) -> TextIds:
    """Ids in decimal: one a line, or the ids of one bag a line.

    Blanks and commas stand between ids. Where a line has several ids every line is a bag, and a
    blank one before the last id is a bag without ids.

    Raises:
        LogError: something else than an int64 stands there.
    """
    content = content.replace(b",", b" ").replace(b"\r\n", b"\n").replace(b"\r", b"\n")
    blank = _BLANK[np.frombuffer(content, np.uint8)]
    starts = np.flatnonzero(~blank & np.concatenate([[True], blank[:-1]]))
    del blank
    ends = np.flatnonzero(np.frombuffer(content, np.uint8) == ord("\n"))
    line = lambda index: int(np.searchsorted(ends, starts[index])) + 1
    ids = _decimal(content)
    if ids is None or len(ids) != len(starts):
        index, token = next((i, t) for i, t in enumerate(content.split()) if not _is_int64(t))
        got = repr(token[:40].decode("utf-8", "replace"))
        raise LogError(
            "not an id",
            where=f"{where}, line {line(index)}",
            got=got,
            expected="an integer below 2^63",
        )
    before = np.concatenate([[0], np.searchsorted(starts, ends), [len(starts)]])
    if (np.diff(before) <= 1).all():
        return TextIds(ids, None, line)
    last = int(np.searchsorted(before, len(starts)))  # lines behind it are blank
    return TextIds(ids, before[: last + 1], line)


def _decimal(content: bytes) -> np.ndarray | None:
    """The integers of a text; `None` where it has anything else, or one that is no int64."""
    if not content.strip():
        return np.zeros(0, np.int64)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            ids = np.fromstring(content, np.int64, sep=" ")
    except (ValueError, DeprecationWarning):
        return None
    if not np.isin(ids, _ENDS).any():  # which an id too large is read as
        return ids
    tokens = content.split()
    return np.array(tokens, np.int64) if all(map(_is_int64, tokens)) else None


def _is_int64(token: bytes) -> bool:
    return bool(_INTEGER.fullmatch(token)) and -(1 << 63) <= int(token) < 1 << 63
