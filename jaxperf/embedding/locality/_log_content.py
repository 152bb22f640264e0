"""The bytes of an access log: unpacked, told apart by content, and read as numbers."""

import gzip
import lzma
import os
import zlib
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from jaxperf.errors import ConfigError, LogError
from jaxperf.trace import Note

BINARY_FORMATS = {
    "int32-be": np.dtype(">i4"),
    "int32-le": np.dtype("<i4"),
    "int64-be": np.dtype(">i8"),
    "int64-le": np.dtype("<i8"),
}
"""Formats of plain binary logs, and the type of an id in each."""

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
_LOOKED_AT = 1 << 16  # ids, or bytes of text, that a format is told by
_LONGEST = 20  # characters of an id: numpy gives all as many as the longest has
_SAME = 0.99  # share of ids that agree in a byte, for it to say which end is which


@dataclass(frozen=True)
class PlainIds:
    """The ids of a plain log, as they stand in the file.

    Attributes:
        ids: (n,) int64.
        offsets: (bags + 1,) where each bag begins, and the end; `None` where the log has no bags.
        place: where in the file an id stands, by its index.
        hashed: whether the ids fill their whole type, so that the sign is but one more bit.
    """

    ids: np.ndarray
    offsets: np.ndarray | None
    place: Callable[[int], str]
    hashed: bool = False


def unpacked(path: str | os.PathLike[str], most: int = -1) -> bytes:
    """The content of a file, out of gzip or xz where its first bytes say so.

    Args:
        path: the file.
        most: bytes to read from its beginning; all where below 0.

    Raises:
        LogError: it cannot be read, or its compression is damaged or cut off.
    """
    where = os.fspath(path)
    try:
        with open(path, "rb") as file:
            magic = file.read(len(_XZ))
            file.seek(0)
            if magic == _XZ:
                with lzma.open(file) as plain:
                    return plain.read(most).removeprefix(_MARK)
            if magic.startswith(_GZIP):
                with gzip.open(file) as plain:
                    return plain.read(most).removeprefix(_MARK)
            return file.read(most).removeprefix(_MARK)
    except (lzma.LZMAError, zlib.error, EOFError, gzip.BadGzipFile) as error:
        raise LogError("damaged compression", where=where, got=str(error)) from None
    except OSError as error:
        raise LogError("cannot be read", where=where, got=error.strerror) from None


def format_of(content: bytes, name: str, where: str) -> tuple[str, Note | None]:
    """The format of a log, and a note of what it was told by or of what speaks against it.

    Args:
        content: unpacked.
        name: of `LOG_FORMATS`; any but `auto` is taken as it is.
        where: the file, for messages.

    Raises:
        ConfigError: there is no such format.
        LogError: the file is empty, or cut off within an id.
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
    if name != "auto":
        return name, _doubt(content, name, where)
    if content.startswith(_ZIP):
        return "npz", None
    head = content[:_LOOKED_AT]
    if len(head.translate(None, _TEXT_BYTES)) < 0.05 * len(head):  # a broken text is one still
        return "text", None
    return _binary_format(content, where)


def _doubt(content: bytes, name: str, where: str) -> Note | None:
    if name not in BINARY_FORMATS:
        return None
    width, why = _width(content)
    if width == BINARY_FORMATS[name].itemsize:
        return None
    text = f"taken as {name} as asked, but the ids look like {width} bytes each: {why}"
    return Note("log-format-doubtful", text, where)


def text_ids(content: bytes, where: str) -> PlainIds:
    """Ids in decimal: one a line, or the ids of one bag a line.

    Blanks and commas stand between ids. Where a line has several ids every line is a bag, and a
    blank one before the last id is a bag without ids.

    Raises:
        LogError: something else than an int64 stands there.
    """
    content = content.replace(b",", b" ")
    tokens = content.split()
    lines = content.split(b"\n")

    def place(index: int) -> str:
        counts = np.cumsum([len(line.split()) for line in lines])
        return f"{where}, line {int(np.searchsorted(counts, index, side='right')) + 1}"

    try:
        if max(map(len, tokens), default=0) > _LONGEST:
            raise ValueError
        ids = np.array(tokens).astype(np.int64) if tokens else np.zeros(0, np.int64)
    except (ValueError, OverflowError):
        index, token = next((i, t) for i, t in enumerate(tokens) if not _is_int64(t))
        got = repr(token[:40].decode("utf-8", "replace"))
        raise LogError(
            "not an id", where=place(index), got=got, expected="an integer below 2^63"
        ) from None
    while lines and not lines[-1].strip():
        lines.pop()
    if len(tokens) == sum(1 for line in lines if line.strip()):
        return PlainIds(ids, None, place)
    lengths = [len(line.split()) for line in lines]
    return PlainIds(ids, np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64), place)


def _is_int64(token: bytes) -> bool:
    try:
        return len(token) <= _LONGEST and -(1 << 63) <= int(token) < 1 << 63
    except ValueError:
        return False


def binary_ids(content: bytes, name: str, where: str) -> PlainIds:
    """Ids of one width, one after the other.

    Raises:
        LogError: the file is cut off within an id, or its bytes stand in the other order: nearly
            all ids would end in a byte of zeros and hardly any would begin with one.
    """
    kind = BINARY_FORMATS[name]
    rest = len(content) % kind.itemsize
    if rest:
        raise LogError(
            "cut off within an id",
            where=f"{where}, byte {len(content) - rest}",
            got=f"{rest} bytes",
            expected=f"{kind.itemsize} bytes an id ({name})",
        )
    other = name[:-2] + ("le" if name.endswith("be") else "be")
    if _order(content, kind.itemsize) == other[-2:]:
        raise LogError(
            "wrong byte order",
            where=where,
            got=f"first id {_first(content, kind)} as {name}",
            expected=f"{_first(content, BINARY_FORMATS[other])} as {other}",
        )
    return PlainIds(
        np.frombuffer(content, kind).astype(np.int64),
        None,
        lambda index: f"{where}, byte {index * kind.itemsize}",
        hashed=not _extends_sign(_bytes(content, kind.itemsize)[:, 0 if "be" in name else -1]),
    )


def _first(content: bytes, kind: np.dtype) -> int:
    return int(np.frombuffer(content, kind, count=1)[0])


def _binary_format(content: bytes, where: str) -> tuple[str, Note]:
    width, why = _width(content)
    if len(content) % width:
        raise LogError(
            "cut off within an id",
            where=f"{where}, byte {len(content) // width * width}",
            expected=f"{width} bytes an id, or text, or .npz",
            remedy="name the format",
        )
    order = _order(content, width)
    name = f"int{8 * width}-{order or 'be'}"
    told = f"{why}; " + (
        "the byte that changes least is the highest"
        if order
        else "nothing tells which byte is the highest, which matters to sets alone"
    )
    return name, Note("log-format-guessed", f"taken as {name}: {told}", where)


def _width(content: bytes) -> tuple[int, str]:
    """Bytes of an id: the two halves of a long one differ, every other of short ones do not."""
    if len(content) < 8:
        return 4, "too short for ids of 8 bytes"
    words = np.frombuffer(content[: min(len(content) // 8, _LOOKED_AT) * 8], "<u4")
    even, odd = words[::2], words[1::2]
    distinct = sorted((len(np.unique(even)), len(np.unique(odd))))
    if 2 * distinct[0] < distinct[1]:
        return 8, "one half of every 8 bytes hardly changes"
    if len(even) == 1 and not (even.all() and odd.all()):
        return 8, "half of its 8 bytes are zero"
    ends = _bytes(content, 4)[:, [0, -1]].T
    if np.isin(even, odd).mean() < 0.01 and all(_evenness(column) > 0.8 for column in ends):
        return 8, "the halves of 8 bytes have no value in common"
    return 4, "the halves of 8 bytes are alike"


def _order(content: bytes, width: int) -> str | None:
    """`be` or `le` by the end whose byte is the same in all ids; `None` where neither end is."""
    columns = _bytes(content, width)
    first, last = _extends_sign(columns[:, 0]), _extends_sign(columns[:, -1])
    if first != last:
        return "be" if first else "le"
    # Ids of very large tables reach the highest byte, yet not as evenly as they fill the lowest.
    even = [_evenness(columns[:, i]) for i in (0, -1)]
    if max(even) > 0.8 and min(even) < 0.5:
        return "be" if even[0] < even[1] else "le"
    return None


def _bytes(content: bytes, width: int) -> np.ndarray:
    ids = min(len(content) // width, _LOOKED_AT)
    return np.frombuffer(content[: ids * width], np.uint8).reshape(ids, width)


def _extends_sign(column: np.ndarray) -> bool:
    # An id that does not fill its type begins with a byte of zeros, a negative one with ones.
    return bool(((column == 0) | (column == 0xFF)).mean() >= _SAME)


def _evenness(column: np.ndarray) -> float:
    """Entropy of a byte, to the most that so many can have: 1 where all values are as frequent."""
    share = np.bincount(column) / len(column)
    share = share[share > 0]
    return float(-(share * np.log2(share)).sum()) / max(min(8.0, np.log2(len(column))), 1.0)
