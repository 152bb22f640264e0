"""The wire format of protocol buffers, as far as Chakra's messages need it.

Format: "Encoding" in the Protocol Buffers documentation. A message is a run of fields, each a key
(number and wire type) and a value; a file of messages has each behind its length.
"""

from collections.abc import Iterable, Iterator

from jaxperf.errors import TraceError

VARINT, FIXED64, LENGTH, FIXED32 = 0, 1, 2, 5
_LONGEST = 10  # bytes of a varint of 64 bits
_BITS = (1 << 64) - 1

Field = tuple[int, int, int | bytes]
"""Number, wire type, and value: an unsigned integer, or the bytes of all that has a length."""


def varint(value: int) -> bytes:
    """An integer as a varint; a negative one as its 64-bit two's complement.

    Example:
        >>> varint(300).hex(), len(varint(-1))
        ('ac02', 10)
    """
    value &= _BITS
    if value < 0x80:
        return _ONE_BYTE[value]
    parts = bytearray()
    while value >= 0x80:
        parts.append(value & 0x7F | 0x80)
        value >>= 7
    parts.append(value)
    return bytes(parts)


_ONE_BYTE = tuple(bytes((i,)) for i in range(0x80))


def varint_field(number: int, value: int) -> bytes:
    """A field that holds an integer, a boolean or an enumeration."""
    return varint(number << 3 | VARINT) + varint(value)


def bytes_field(number: int, value: bytes) -> bytes:
    """A field that holds text, bytes or a message."""
    return varint(number << 3 | LENGTH) + varint(len(value)) + value


def packed(values: Iterable[int]) -> bytes:
    """Varints one behind the other, as repeated integers are written.

    Example:
        >>> packed([1, 300]).hex()
        '01ac02'
    """
    return b"".join(map(varint, values))


def signed(value: int) -> int:
    """A 64-bit unsigned integer as a signed one.

    Example:
        >>> signed((1 << 64) - 3)
        -3
    """
    return value - (1 << 64) if value >> 63 else value


def messages(data: bytes, where: str) -> Iterator[tuple[int, bytes]]:
    """The messages of a file that has each behind its length, and where each begins.

    Raises:
        TraceError: a length is broken, or goes beyond the end of the file.
    """
    at = 0
    while at < len(data):
        length, begin = read_varint(data, at, f"{where}, byte {at}")
        if length > len(data) - begin:
            raise TraceError(
                "a message is longer than the rest of the file",
                where=f"{where}, byte {at}",
                got=f"{length} bytes",
                expected=f"at most {len(data) - begin}",
                remedy="the file was cut, or is no Chakra execution trace",
            )
        at = begin + length
        yield begin, data[begin:at]


def message_fields(data: bytes, where: str) -> Iterator[Field]:
    """The fields of a message, in order.

    Raises:
        TraceError: a field is broken, or goes beyond the end of the message.
    """
    at, end = 0, len(data)
    while at < end:
        # Most integers are one byte; a call for each would be most of the time of reading a file.
        key, at = (data[at], at + 1) if data[at] < 0x80 else read_varint(data, at, where)
        kind = key & 7
        if kind == VARINT:
            value, at = read_varint(data, at, where)
            yield key >> 3, kind, value
            continue
        if kind == LENGTH:
            short = at < end and data[at] < 0x80
            size, at = (data[at], at + 1) if short else read_varint(data, at, where)
        elif kind in (FIXED64, FIXED32):
            size = 8 if kind == FIXED64 else 4
        else:
            raise TraceError(
                "a field of a message has no known kind",
                where=where,
                got=f"wire type {kind}",
                expected="0, 1, 2 or 5",
                remedy="the file is damaged, or is no Chakra execution trace",
            )
        if size > end - at:
            raise TraceError(
                "a field is longer than the rest of its message",
                where=where,
                got=f"{size} bytes",
                expected=f"at most {end - at}",
                remedy="the file is damaged, or is no Chakra execution trace",
            )
        yield key >> 3, kind, data[at : at + size]
        at += size


def unpacked(data: bytes, where: str) -> list[int]:
    """The varints that lie one behind the other.

    Raises:
        TraceError: the last one is cut.
    """
    if data.isascii():  # none has a second byte
        return list(data)
    values, at = [], 0
    while at < len(data):
        value, at = read_varint(data, at, where)
        values.append(value)
    return values


def read_varint(data: bytes, at: int, where: str) -> tuple[int, int]:
    """The varint that begins at a place, and the place behind it.

    Raises:
        TraceError: it is cut, or longer than 64 bits need.
    """
    value = shift = 0
    for byte in data[at : at + _LONGEST]:
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value & _BITS, at
        shift += 7
    raise TraceError(
        "an integer is cut, or has no end",
        where=where,
        expected=f"a varint of at most {_LONGEST} bytes",
        remedy="the file is damaged, or is no Chakra execution trace",
    )
