"""The messages of a Chakra execution trace, and the file of one rank.

Format: `schema/protobuf/et_def.proto` of MLCommons Chakra. A file is `GlobalMetadata`, then one
`Node` after another, each behind its length.
"""

import enum
import struct
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from jaxperf.errors import TraceError
from jaxperf.interchange.chakra._protobuf import (
    LENGTH,
    bytes_field,
    message_fields,
    messages,
    packed,
    signed,
    unpacked,
    varint,
    varint_field,
)

VERSION = "0.0.4"
"""Version of the schema that Chakra's own generator writes."""


class NodeType(enum.IntEnum):
    """What a node is."""

    INVALID_NODE = 0
    METADATA_NODE = 1
    MEM_LOAD_NODE = 2
    MEM_STORE_NODE = 3
    COMP_NODE = 4
    COMM_SEND_NODE = 5
    COMM_RECV_NODE = 6
    COMM_COLL_NODE = 7
    STORAGE_NODE = 8
    BATCH_NODE = 9
    CHECKPOINT_NODE = 10


class CollectiveCommType(enum.IntEnum):
    """What a collective does: the attribute `comm_type`."""

    ALL_REDUCE = 0
    REDUCE = 1
    ALL_GATHER = 2
    GATHER = 3
    SCATTER = 4
    BROADCAST = 5
    ALL_TO_ALL = 6
    REDUCE_SCATTER = 7
    REDUCE_SCATTER_BLOCK = 8
    BARRIER = 9


class AttributeType(enum.IntEnum):
    """The type of an attribute, by the number of its field; each but bytes has a list behind it."""

    DOUBLE = 3
    FLOAT = 5
    INT32 = 7
    INT64 = 9
    UINT32 = 11
    UINT64 = 13
    SINT32 = 15
    SINT64 = 17
    FIXED32 = 19
    FIXED64 = 21
    SFIXED32 = 23
    SFIXED64 = 25
    BOOL = 27
    STRING = 29
    BYTES = 31


Value = int | float | str | bytes
Attribute = Value | tuple[Value, ...]

_STRUCTS = {
    AttributeType.DOUBLE: "d",
    AttributeType.FLOAT: "f",
    AttributeType.FIXED32: "I",
    AttributeType.FIXED64: "Q",
    AttributeType.SFIXED32: "i",
    AttributeType.SFIXED64: "q",
}
_MOST_KNOWN = 1 << 16
_ZIGZAG = (AttributeType.SINT32, AttributeType.SINT64)
_SIGNED = (AttributeType.INT32, AttributeType.INT64)


@dataclass(slots=True)
class ChakraNode:
    """One node; `attributes` by name, where a list is a tuple. See the schema for the rest."""

    id: int
    name: str = ""
    type: int = NodeType.INVALID_NODE
    control: Sequence[int] = ()
    data: Sequence[int] = ()
    start_us: int = 0
    duration_us: int = 0
    input_values: str = ""
    attributes: dict[str, Attribute] = field(default_factory=dict)


@dataclass(frozen=True, eq=False)
class ChakraFile:
    """The nodes of one rank, and what the file says of itself."""

    path: str
    attributes: Mapping[str, Attribute]
    nodes: Sequence[ChakraNode]


# Writing
# ---------------------------------------------------------------------------------------


def attribute(name: str, kind: AttributeType, value: Attribute) -> bytes:
    """An attribute of a node or of the metadata, as the field that holds it.

    Args:
        name: of the attribute.
        kind: of integers, booleans, floats or text.
        value: one value, or a tuple.

    Returns:
        Bytes to append to a `Node`'s; see `metadata_attribute` for `GlobalMetadata`.

    Example:
        >>> attribute("comm_size", AttributeType.INT64, 300).hex()
        '520e0a09636f6d6d5f73697a6548ac02'
    """
    return bytes_field(10, _attribute(name, kind, value))


def metadata_attribute(name: str, kind: AttributeType, value: Attribute) -> bytes:
    """The same in `GlobalMetadata`."""
    return bytes_field(2, _attribute(name, kind, value))


def _attribute(name: str, kind: AttributeType, value: Attribute) -> bytes:
    head = bytes_field(1, name.encode())
    if isinstance(value, tuple):
        return head + bytes_field(kind + 1, _list(kind, value))
    if kind in _STRUCTS:
        wire = 1 if struct.calcsize("<" + _STRUCTS[kind]) == 8 else 5
        return head + varint(kind << 3 | wire) + struct.pack("<" + _STRUCTS[kind], value)
    if isinstance(value, str):
        return head + bytes_field(kind, value.encode())
    return head + varint_field(kind, int(value))


def _list(kind: AttributeType, values: tuple[Value, ...]) -> bytes:
    if kind == AttributeType.STRING:
        return b"".join(bytes_field(1, str(value).encode()) for value in values)
    return bytes_field(1, packed(int(value) for value in values))


def node_head(
    id: int, name: bytes, type: int, data: Iterable[int], start_us: int, duration_us: int
) -> bytes:
    """A `Node` without attributes; `name` as `encoded_name` gives it."""
    parts = [b"\x08", varint(id), name, b"\x18", varint(type)]
    sources = packed(data)
    if sources:
        parts.append(bytes_field(5, sources))
    parts += [b"\x30", varint(start_us), b"\x38", varint(duration_us)]
    return b"".join(parts)


def encoded_name(name: str) -> bytes:
    """The field that holds the name of a node."""
    return bytes_field(2, name.encode(errors="replace"))


def input_values(text: str) -> bytes:
    """The field of a node that holds the values of its inputs."""
    return bytes_field(8, bytes_field(1, text.encode()))


def with_length(message: bytes) -> bytes:
    """A message as a file holds it."""
    return varint(len(message)) + message


# Reading
# ---------------------------------------------------------------------------------------


def read_chakra_file(path: str | Path) -> ChakraFile:
    """Read the file of one rank.

    Raises:
        TraceError: it cannot be read, or is damaged.
    """
    where = str(path)
    try:
        data = Path(path).read_bytes()
    except OSError as error:
        raise TraceError("cannot be read", where=where, got=error.strerror or str(error)) from error
    try:
        file = _file(data, where)
    except TraceError as error:
        if data[:1] == b"{" or data[:2] == b"\x1f\x8b":
            raise TraceError(
                "no Chakra execution trace",
                where=where,
                got="JSON" if data[:1] == b"{" else "a compressed file",
                expected="messages of protocol buffers",
                remedy="convert it with Chakra's converter"
                if data[:1] == b"{"
                else "unpack it first",
            ) from error
        raise
    if not file.nodes:
        raise TraceError(
            "no nodes", where=where, got=f"{len(data)} bytes", expected="a Chakra execution trace"
        )
    return file


def _file(data: bytes, where: str) -> ChakraFile:
    found = messages(data, where)
    begin, first = next(found, (0, b""))
    attributes = _metadata(first, f"{where}, byte {begin}")
    known: dict[bytes, tuple[str, Attribute]] = {}
    nodes = [_node(message, f"{where}, byte {begin}", known) for begin, message in found]
    return ChakraFile(where, attributes, nodes)


def _metadata(data: bytes, where: str) -> dict[str, Attribute]:
    found: dict[str, Attribute] = {}
    for number, _, value in message_fields(data, where):
        if number == 2 and isinstance(value, bytes):
            name, attribute = _read_attribute(value, where)
            found[name] = attribute
    return found


def _node(data: bytes, where: str, known: dict[bytes, tuple[str, Attribute]]) -> ChakraNode:
    """A node; `known` are attributes that were read before, of which a file has few."""
    node = ChakraNode(0)
    for number, kind, value in message_fields(data, where):
        if isinstance(value, int):
            if number == 1:
                node.id = value
            elif number == 3:
                node.type = value
            elif number == 6:
                node.start_us = value
            elif number == 7:
                node.duration_us = value
            elif number in (4, 5):  # a writer need not pack them
                _add(node, number, [value])
        elif kind != LENGTH:
            continue
        elif number == 10:
            read = known.get(value)
            if read is None:
                read = _read_attribute(value, where)
                if len(known) < _MOST_KNOWN:
                    known[value] = read
            node.attributes[read[0]] = read[1]
        elif number == 2:
            node.name = value.decode(errors="replace")
        elif number in (4, 5):
            _add(node, number, unpacked(value, where))
        elif number == 8:
            node.input_values = next(
                (
                    text.decode(errors="replace")
                    for inner, _, text in message_fields(value, where)
                    if inner == 1 and isinstance(text, bytes)
                ),
                "",
            )
    return node


def _add(node: ChakraNode, number: int, more: list[int]) -> None:
    if number == 4:
        node.control = [*node.control, *more]
    else:
        node.data = [*node.data, *more]


def _read_attribute(data: bytes, where: str) -> tuple[str, Attribute]:
    name, found = "", 0
    for number, kind, value in message_fields(data, where):
        if number == 1 and isinstance(value, bytes):
            name = value.decode(errors="replace")
        elif number in _SCALARS:
            found = _scalar(_SCALARS[number], kind, value, where)
        elif number - 1 in _SCALARS and isinstance(value, bytes):
            found = _read_list(_SCALARS[number - 1], value, where)
    return name, found


_SCALARS = {int(kind): kind for kind in AttributeType}


def _scalar(type: AttributeType, kind: int, value: int | bytes, where: str) -> Value:
    if type in _STRUCTS:
        form = "<" + _STRUCTS[type]
        if isinstance(value, int) or len(value) != struct.calcsize(form):
            raise _wrong_kind(type, kind, where)
        return struct.unpack(form, value)[0]
    if type in (AttributeType.STRING, AttributeType.BYTES):
        if isinstance(value, int):
            raise _wrong_kind(type, kind, where)
        return value.decode(errors="replace") if type == AttributeType.STRING else value
    if not isinstance(value, int):
        raise _wrong_kind(type, kind, where)
    return _integer(type, value)


def _integer(type: AttributeType, value: int) -> int:
    if type in _ZIGZAG:
        return value >> 1 ^ -(value & 1)
    return signed(value) if type in _SIGNED else value


def _read_list(type: AttributeType, data: bytes, where: str) -> tuple[Value, ...]:
    values: list[Value] = []
    for number, kind, value in message_fields(data, where):
        if number != 1:
            continue
        textual = type in (AttributeType.STRING, AttributeType.BYTES)
        if kind != LENGTH or textual or isinstance(value, int):
            values.append(_scalar(type, kind, value, where))
        elif type in _STRUCTS:
            form = "<" + _STRUCTS[type]
            if len(value) % struct.calcsize(form):
                raise _wrong_kind(type, kind, where)
            values += [each for (each,) in struct.iter_unpack(form, value)]
        else:
            values += [_integer(type, each) for each in unpacked(value, where)]
    return tuple(values)


def _wrong_kind(type: AttributeType, kind: int, where: str) -> TraceError:
    return TraceError(
        "an attribute is not of its own type",
        where=where,
        got=f"wire type {kind}",
        expected=type.name.lower(),
        remedy="the file is damaged, or is no Chakra execution trace",
    )
