"""Plain binary logs: of what width and byte order their ids are, and what contradicts a request.

No header says it. A file is taken for what its content makes likely. What was asked for is refused
only where the content would be a coincidence: short ids of which every second is zero, or long ones
whose two halves are equally large and pair up within ids no more than across them.
"""

from dataclasses import dataclass

import numpy as np

from jaxperf.errors import LogError
from jaxperf.trace import Note

BINARY_FORMATS = {
    "int32-be": np.dtype(">i4"),
    "int32-le": np.dtype("<i4"),
    "int64-be": np.dtype(">i8"),
    "int64-le": np.dtype("<i8"),
}
"""Formats of plain binary logs, and the type of an id in each."""

_LOOKED_AT = 1 << 16  # ids that a format is told by
_SAME = 0.99  # share of ids that agree in a byte, for it to say which end is which
_SURE_BITS = 32  # of evidence: a chance below 2^-32
_FEW_PAIRS = 64  # of 8 bytes, below which no request is refused for its width
_EVEN = 0.8  # entropy of a byte, to the most it can have, that hashes exceed
_REPEATS = 32


@dataclass(frozen=True)
class _Width:
    """Bytes of an id, what told it, and whether nothing else is likely."""

    id_bytes: int
    why: str
    sure: bool = False


_UNTOLD = _Width(8, "no id comes twice, and every byte is used evenly")


def binary_ids(content: bytes, name: str, where: str) -> tuple[np.ndarray, Note | None]:
    """Ids of one width, one after the other, as was asked for.

    Args:
        content: unpacked.
        name: of `BINARY_FORMATS`.
        where: the file, for messages.

    Returns:
        ids: (n,) of that type.
        note: what speaks against it, where something does.

    Raises:
        LogError: the file is cut off within an id; or its ids are of the other width, or their
            bytes stand in the other order, beyond doubt.
    """
    kind = BINARY_FORMATS[name]
    told = _width(content)
    order = _order(content, told.id_bytes)
    likely = f"int{8 * told.id_bytes}-{order or name[-2:]}"
    if told.sure and told.id_bytes != kind.itemsize:
        raise _contradicted(
            f"wrong width: {told.why}", content, name, likely, where, order_told=order is not None
        )
    rest = len(content) % kind.itemsize
    if rest:
        raise LogError(
            "cut off within an id",
            where=f"{where}, byte {len(content) - rest}",
            got=f"{rest} bytes",
            expected=f"{kind.itemsize} bytes an id ({name})",
        )
    order = _order(content, kind.itemsize) or name[-2:]
    if order != name[-2:]:
        raise _contradicted("wrong byte order", content, name, f"{name[:-2]}{order}", where)
    note = None
    if told.id_bytes != kind.itemsize and told is not _UNTOLD:
        text = f"taken as {name} as asked, but the ids look like {likely}: {told.why}"
        note = Note("log-format-doubtful", text, where)
    return np.frombuffer(content, kind), note


def _contradicted(
    what: str, content: bytes, asked: str, likely: str, where: str, *, order_told: bool = True
) -> LogError:
    instead = likely if order_told else f"{likely[:-2]}be or {likely[:-2]}le"
    first = lambda name: int(np.frombuffer(content, BINARY_FORMATS[name], count=1)[0])
    return LogError(
        what,
        where=where,
        got=f"first id {first(asked)} as {asked}",
        expected=f"{first(likely)} as {likely}",
        remedy=f"ask for {instead}; ids that are meant as {asked} can be given as text or .npz",
    )


def binary_format(content: bytes, where: str) -> tuple[str, Note]:
    """The format that the content makes likely, and a note of what told it.

    Raises:
        LogError: nothing tells it, or the file is cut off within an id.
    """
    told = _width(content)
    width = told.id_bytes
    if len(content) % width:
        raise LogError(
            "cut off within an id",
            where=f"{where}, byte {len(content) // width * width}",
            expected=f"{width} bytes an id, or text, or .npz",
            remedy="name the format",
        )
    if told is _UNTOLD:
        raise LogError(
            "no log that can be told",
            where=where,
            got=f"{len(content)} bytes in which {told.why}",
            expected="ids of 4 or 8 bytes, text, or .npz",
            remedy="if these are hashes, name the format",
        )
    order = _order(content, width)
    name = f"int{8 * width}-{order or 'be'}"
    end = (
        "the byte that changes least is the highest"
        if order
        else "nothing tells which byte is the highest, which matters to sets alone"
    )
    return name, Note("log-format-guessed", f"taken as {name}: {told.why}; {end}", where)


def _width(content: bytes) -> _Width:
    """Bytes of an id: the two halves of a long one differ, every other of short ones do not."""
    if len(content) < 8:
        return _Width(4, "too short for ids of 8 bytes")
    first, second = _words(content, 8).view("<u4").reshape(-1, 2).T
    many = len(first) >= _FEW_PAIRS
    for half, other in ((first, second), (second, first)):
        chance = _share_of_zero(other)
        bits = np.inf if chance == 0 else -len(half) * np.log2(chance)
        if _extends_sign(half) and (bits >= _SURE_BITS or (chance == 0 and len(half) == 1)):
            return _Width(8, "one half of every 8 bytes is zero", sure=many)
    within, across = _distinct_pairs(first, second), _distinct_pairs(second[:-1], first[1:])
    common = min(np.isin(first, second).mean(), np.isin(second, first).mean())
    filled = all(_evenness(column) > _EVEN for column in _columns(content, 8))
    if filled and _sign_of_one_half(content):
        return _Width(8, "only every second 4 bytes fill their type", sure=many)
    if 0.9 * across < within and _alike(content, common):
        return _Width(4, "the halves of 8 bytes are alike", sure=many)
    paired = common < 0.01 and len(first) - within >= _REPEATS and 1.5 * within < across
    if filled and common < 0.01 and within == len(first):
        return _UNTOLD
    if paired or (filled and common < 0.01):
        return _Width(8, "one half of 8 bytes tells the other", sure=filled and paired)
    distinct = sorted((len(np.unique(first)), len(np.unique(second))))
    if 2 * distinct[0] < distinct[1]:
        return _Width(8, "one half of every 8 bytes hardly changes")
    return _Width(4, "the halves of 8 bytes are alike")


def _distinct_pairs(first: np.ndarray, second: np.ndarray) -> int:
    return len(np.unique(first.astype(np.uint64) << np.uint64(32) | second))


def _sign_of_one_half(content: bytes) -> bool:
    """Whether the sign bit of 8 bytes is never set, and that of their lower half is at random."""
    negative = (_columns(content, 8) >= 0x80).mean(axis=1)
    return any(
        negative[high] <= 1 - _SAME and 0.25 <= negative[low] <= 0.75
        for high, low in ((0, 4), (7, 3))
    )


def _alike(content: bytes, common: float) -> bool:
    """Whether every second 4 bytes are as large as the others, and read as rows or recur there."""
    order = "<u4" if _order(content, 4) == "le" else ">u4"
    halves = _words(content, 8).view(order).reshape(-1, 2)
    if max(_share_of_zero(half) for half in halves.T) >= _SAME:
        return False
    lengths = np.frexp(halves.astype(np.float64))[1]
    counts = [np.bincount(of_half, minlength=33) for of_half in lengths.T]
    apart = 0.5 * np.abs(counts[0] - counts[1]).sum() / len(halves)
    chance = np.sqrt(np.count_nonzero(counts[0]) / (np.pi * len(halves)))
    rows = bool(((halves >> 31).mean(axis=0) <= 1 - _SAME).all())
    return bool(apart <= 0.1 + chance) and (rows or common >= 0.5)


def _order(content: bytes, width: int) -> str | None:
    """`be` or `le` by the end whose byte is the same in all ids; `None` where neither end is."""
    if len(content) < width:
        return None
    columns = _columns(content, width)
    first, last = (_extends_sign(columns[i]) for i in (0, -1))
    if first != last:
        return "be" if first else "le"
    # Ids of very large tables reach the highest byte, yet not as evenly as they fill the lowest.
    even = [_evenness(column) for column in columns]
    many = columns.shape[1] >= _SURE_BITS
    if many and max(even[0], even[-1]) > _EVEN and min(even[0], even[-1]) < 0.5:
        return "be" if even[0] < even[-1] else "le"
    # Where all bytes are used evenly, ids are hashes; many are cut to positive numbers.
    negative = [(columns[i] >= 0x80).mean() for i in (0, -1)]
    cut = min(negative) <= 1 - _SAME and max(negative) >= 0.25
    if many and min(even) > _EVEN and cut:
        return "be" if negative[0] < negative[1] else "le"
    return None


def _words(content: bytes, width: int) -> np.ndarray:
    return np.frombuffer(content, f"<u{width}", count=min(len(content) // width, _LOOKED_AT))


def _columns(content: bytes, width: int) -> np.ndarray:
    """(width, ids) the bytes of ids, each id once: a few that are used often say little."""
    return np.unique(_words(content, width)).view(np.uint8).reshape(-1, width).T


def _extends_sign(column: np.ndarray) -> bool:
    # An id that does not fill its type begins with zeros, a negative one with ones.
    return _share_of_zero(column) >= _SAME


def _share_of_zero(column: np.ndarray) -> float:
    return float(((column == 0) | (column == np.iinfo(column.dtype).max)).mean())


def _evenness(column: np.ndarray) -> float:
    """Entropy of a byte, to the most that so many can have: 1 where all values are as frequent."""
    share = np.bincount(column) / len(column)
    share = share[share > 0]
    return float(-(share * np.log2(share)).sum()) / max(min(8.0, np.log2(len(column))), 1.0)
