"""Changes of an input that keep it nearly valid: byte noise alone seldom comes past a parser.

A mutation takes an input and a generator, and gives another input. Documents are changed as trees,
logs as lines, folders of logs file by file.
"""

import copy
import random
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

import msgspec

Mutation = Callable[[bytes, random.Random], bytes]

_BIG = 1
"""The code of msgpack's extension for whole numbers beyond 64 bits."""

ODD_NUMBERS = (
    *(0, 1, -1, 2, 7, 255, 2**31 - 1, 2**31, -(2**31), 2**32 - 1, 2**53 + 1, 2**62, 2**63 - 1),
    *(-(2**63), 2**64 - 1, 10**18, 0.0, -0.0, 0.5, 1e-9, 5e-324, 1e16, 9.3e18, 1e300, -1e300),
    1.7976931348623157e308,
)
ODD_TEXTS = (
    *("", " ", "\0", "nan", "inf", "-inf", "1e999", "-1", "0", "00", "1_0", "0x10", "²", "١٢", "½"),
    *(
        "9" * 25,
        "9" * 5000,
        "a" * 1000,
        "é\U0001f600",
        "\x7f\x1b[31m",
        "\n",
        "\t",
        "%s",
        "{}",
        "$.",
    ),
    *("[", "[1, 2", "(", "*", "(?i", "../../etc", "/dev/null", "<script>", "1e-400", "+5", " 5 "),
    *("true", "null", "12-31-2024 23:59:60.999", "0000-00-00", "2024-02-30T25:61:00Z", "1970"),
    *("9999-12-31T23:59:59-14:00", "0001-01-01T00:00:00+14:00", "2024-06-01T12:00:00Z"),
)
NOT_FINITE = (float("nan"), float("inf"), float("-inf"), 10**400, -(10**30), 10**5000)
_DATES = (datetime(1, 1, 1, tzinfo=UTC), datetime(9999, 12, 31, tzinfo=UTC))

_TOKENS = (
    *(
        b"{",
        b"}",
        b"[",
        b"]",
        b",",
        b":",
        b'"',
        b"\\",
        b"\n",
        b"\r\n",
        b"\0",
        b"\xff",
        b"\xef\xbb\xbf",
    ),
    *(b"null", b"true", b"NaN", b"Infinity", b"-", b"1e999", b"e", b".", b"=", b"#", b"'", b"'''"),
    *(b"\xed\xa0\x80", b"\\ud800", b"\\u0000", b";", b"\t", b" ", b"999999999999999999999999"),
)


def pack(value: Any) -> bytes:
    """A tree as bytes; numbers that TOML and Python know but JSON does not included."""
    return msgspec.msgpack.encode(_packable(value))


def unpack(data: bytes) -> Any:
    """The tree of `pack`."""
    return msgspec.msgpack.decode(data, ext_hook=_big)


def _big(code: int, data: memoryview) -> int:
    return int.from_bytes(bytes(data), "little", signed=True)


def _packable(value: Any) -> Any:
    if isinstance(value, dict):
        return {str(key): _packable(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_packable(each) for each in value]
    if type(value) is int and not -(2**63) <= value < 2**64:
        size = value.bit_length() // 8 + 1
        return msgspec.msgpack.Ext(_BIG, value.to_bytes(size, "little", signed=True))
    return value


def noise(data: bytes, draw: random.Random) -> bytes:
    """Bytes changed, cut, doubled, or tokens put in."""
    for _ in range(1 + draw.getrandbits(2)):
        at = draw.randrange(len(data) + 1)
        kind = draw.randrange(6)
        if kind == 0:
            data = data[:at] + bytes([draw.getrandbits(8)]) + data[at + 1 :]
        elif kind == 1:
            data = data[:at] + draw.choice(_TOKENS) + data[at:]
        elif kind == 2:
            data = data[:at] + data[at + (1 << draw.randrange(6)) :]
        elif kind == 3:
            length = 1 << draw.randrange(8)
            data = data[:at] + data[max(0, at - length) : at] + data[at:]
        elif kind == 4 and draw.getrandbits(2) == 0:
            data = data[:at]
        elif data:
            at = min(at, len(data) - 1)
            data = data[:at] + bytes([data[at] ^ 1 << draw.randrange(8)]) + data[at + 1 :]
    return data


def changed_tree(tree: Any, draw: random.Random, odd: Sequence[Any]) -> Any:
    """A tree in which one value, in any depth, was changed, removed, doubled or moved."""
    holder: Any = [tree]
    key: Any = 0
    while isinstance(holder[key], dict | list) and holder[key] and draw.random() < 0.8:
        holder = holder[key]
        key = draw.choice(list(holder)) if isinstance(holder, dict) else draw.randrange(len(holder))
    root = (
        holder if not isinstance(holder, dict) and len(holder) == 1 and holder[0] is tree else None
    )
    value = holder[key]
    kind = draw.randrange(9)
    if kind <= 2:
        holder[key] = copy.deepcopy(draw.choice(odd))  # which a later change may go into
    elif kind == 3 and root is None:
        del holder[key]
    elif kind == 4:
        holder[key] = _other_kind(value, draw)
    elif kind == 5:
        holder[key] = _near(value, draw)
    elif kind == 6 and isinstance(holder, list):
        holder.insert(draw.randrange(len(holder) + 1), copy.deepcopy(value))
    elif kind == 7 and isinstance(holder, dict):
        holder[str(draw.choice((*list(holder), *ODD_TEXTS[:8])))] = copy.deepcopy(value)
    elif draw.getrandbits(1):
        holder[key] = [copy.deepcopy(value) for _ in range(draw.randrange(4))]
    else:
        holder[key] = {"": value}
    return root[0] if root is not None else tree


def _other_kind(value: Any, draw: random.Random) -> Any:
    if isinstance(value, str):
        return draw.choice((0, 1.5, None, [value], True))
    if isinstance(value, bool):
        return draw.choice(("true", 1, None))
    if isinstance(value, int | float):
        return draw.choice(
            (str(value), float(value) if abs(value) < 1e300 else 1.0, [value], False)
        )
    return draw.choice((None, "", 0, [], {}))


def _near(value: Any, draw: random.Random) -> Any:
    if isinstance(value, str):
        at = draw.randrange(len(value) + 1)
        return value[:at] + draw.choice(ODD_TEXTS) + value[at + draw.randrange(2) :]
    if isinstance(value, int | float) and not isinstance(value, bool):
        return draw.choice((value + 1, value - 1, -value, value * 1000, value * 0.001, value * 0))
    return value


_JSON_ODD = (*ODD_NUMBERS, *ODD_TEXTS, None, True, False, [], {}, [[]], [None], {"": {}})
_TOML_ODD = (*ODD_NUMBERS, *ODD_TEXTS, *NOT_FINITE, *_DATES, True, False, [], {}, [[]], {"": {}})


def json_text(data: bytes, draw: random.Random) -> bytes:
    """JSON with one value changed; what is no JSON, and every fifth input, gets noise."""
    if draw.random() < 0.8:
        try:
            tree = msgspec.json.decode(data)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return noise(data, draw)
        for _ in range(1 + draw.getrandbits(1)):
            tree = changed_tree(tree, draw, _JSON_ODD)
        return msgspec.json.encode(tree)
    return noise(data, draw)


def toml_tree(data: bytes, draw: random.Random) -> bytes:
    """A packed tree with one or two values changed."""
    tree = unpack(data)
    for _ in range(1 + draw.getrandbits(1)):
        tree = changed_tree(tree, draw, _TOML_ODD)
    return pack(tree)


def lines(data: bytes, draw: random.Random) -> bytes:
    """Text with lines doubled, moved, removed or cut, and cells or numbers made odd."""
    if draw.random() < 0.15:
        return noise(data, draw)
    found = data.split(b"\n")
    at = draw.randrange(len(found))
    kind = draw.randrange(6)
    if kind == 0:
        found.insert(draw.randrange(len(found) + 1), found[at])
    elif kind == 1 and len(found) > 1:
        del found[at]
    elif kind == 2:
        other = draw.randrange(len(found))
        found[at], found[other] = found[other], found[at]
    elif kind == 3:
        found[at] = noise(found[at], draw)
    else:
        found[at] = _odd_cell(found[at], draw)
    return b"\n".join(found)


def _odd_cell(line: bytes, draw: random.Random) -> bytes:
    """A line with one cell, between whatever separates most of them, made odd."""
    separator = max((b",", b";", b"\t", b" ", b":", b'"'), key=line.count)
    cells = line.split(separator)
    at = draw.randrange(len(cells))
    kind = draw.randrange(4)
    if kind == 0:
        cells[at] = draw.choice(ODD_TEXTS).encode("utf-8")
    elif kind == 1:
        cells[at] = str(draw.choice(ODD_NUMBERS)).encode()
    elif kind == 2:
        del cells[at]
    else:
        cells[at] = cells[draw.randrange(len(cells))]
    return separator.join(cells)


def chosen(mutation: Mutation) -> Mutation:
    """Inputs whose first byte chooses a reader: it is changed now and then."""

    def mutate(data: bytes, draw: random.Random) -> bytes:
        first = data[:1] or b"\0"
        if draw.random() < 0.05:
            first = bytes([draw.getrandbits(8)])
        return first + mutation(data[1:], draw)

    return mutate


def files(of_name: Callable[[str], Mutation]) -> Mutation:
    """A folder, packed as a table of contents by name: one file changed, removed or renamed."""

    def mutate(data: bytes, draw: random.Random) -> bytes:
        content: dict[str, Any] = unpack(data)
        name = draw.choice(list(content)) if content else "a"
        kind = draw.random()
        if kind < 0.03:
            content.pop(name, None)
        elif kind < 0.06:
            content[name[: draw.randrange(len(name) + 1)] + draw.choice(ODD_TEXTS[:12])] = b""
        elif kind < 0.08:
            content[draw.choice(list(content) or ["a"])] = content.get(name, b"")
        else:
            content[name] = of_name(name)(content.get(name, b""), draw)
        return msgspec.msgpack.encode(content)

    return mutate


def by_ending(name: str) -> Mutation:
    """JSON as trees, text as lines, anything else as bytes."""
    if name.endswith(".json"):
        return json_text
    return lines if name.endswith((".txt", ".csv", ".log")) else noise


Files = Mapping[str, bytes]
