"""Events as msgspec decodes them: the fields we use, nothing else, two ways.

The strict decoder is for what profilers write; the lenient one takes any JSON object and makes the
same structs of it, coercing ids that are written as text.
"""

from collections.abc import Sequence
from decimal import Decimal
from typing import Any

import msgspec
from msgspec import Raw, Struct, field

from jaxperf.trace._types import MISSING

_INT64_MAX = 2**63 - 1


class Args(Struct, gc=False):
    """The arguments that are used; defaults mean "not written"."""

    correlation: int = MISSING
    external_id: int = field(name="External id", default=MISSING)
    external_id_2021: int = field(name="external id", default=MISSING)
    device: int = MISSING
    stream: int | str = MISSING
    bytes: int | str = MISSING
    blocks_per_sm: int | float = field(name="blocks per SM", default=float("nan"))
    sequence: int = field(name="Sequence number", default=MISSING)
    forward_thread: int = field(name="Fwd thread id", default=MISSING)
    input_dims: Raw = field(name="Input Dims", default=Raw())
    input_dims_2021: Raw = field(name="Input dims", default=Raw())
    input_types: Raw = field(name="Input type", default=Raw())
    concrete_inputs: Raw = field(name="Concrete Inputs", default=Raw())
    grid: Raw = Raw()
    block: Raw = Raw()
    sync_kind: str | None = field(name="cuda_sync_kind", default=None)
    wait_on_stream: int = MISSING
    wait_on_record: int = field(name="wait_on_cuda_event_record_corr_id", default=MISSING)
    collective: str | None = field(name="Collective name", default=None)
    group: str | int | None = field(name="Process Group Name", default=None)
    group_description: str | None = field(name="Process Group Description", default=None)
    group_size: int | None = field(name="Group size", default=None)
    group_ranks: str | list[int] | None = field(name="Process Group Ranks", default=None)
    dtype: str | None = None
    in_elements: int | None = field(name="In msg nelems", default=None)
    out_elements: int | None = field(name="Out msg nelems", default=None)
    collective_sequence: int | None = field(name="Seq", default=None)
    source: int | None = field(name="Src Rank", default=None)
    destination: int | None = field(name="Dst Rank", default=None)
    # Metadata rows: names of processes and threads.
    name: str | None = None
    labels: str | None = None
    # Merged ranks (TraceLens TraceFuse): the values before the merge.
    rank: int | None = None
    raw_pid: int | str | None = field(name="pid_raw", default=None)
    raw_correlation: int | None = field(name="correlation_raw", default=None)
    raw_id: int | str | None = field(name="id_raw", default=None)
    # MTIA.
    size: int | str | None = None
    # The JAX profiler.
    correlation_id: int | str | None = None
    step_num: int | str | None = None
    kernel_details: str | None = None
    memcpy_details: str | None = None
    memset_details: str | None = None


class Event(Struct, gc=False):
    """One element of `traceEvents`."""

    ph: str
    ts: int | float | None = None
    dur: int | float | None = None
    pid: int | str = ""
    tid: int | str = ""
    cat: str = ""
    name: str = ""
    id: int | str = ""
    args: Args | None = None


class ExactEvent(Event, gc=False):
    """An event whose times do not fit a float: epoch microseconds with decimals."""

    ts: Decimal | None = None
    dur: Decimal | None = None


NO_ARGS = Args()

_strict = msgspec.json.Decoder(list[Event])
_exact = msgspec.json.Decoder(list[ExactEvent])
_lenient = msgspec.json.Decoder(list[Any], float_hook=Decimal)

_NAMES = {f.encode_name: f.name for f in msgspec.structs.fields(Args)}
_INTS = frozenset(
    "correlation external_id external_id_2021 device sequence forward_thread wait_on_stream "
    "wait_on_record".split()
)
_OPTIONAL_INTS = frozenset(
    "group_size in_elements out_elements collective_sequence source destination rank "
    "raw_correlation".split()
)
_TEXTS = frozenset(
    "sync_kind collective group_description dtype name labels kernel_details memcpy_details "
    "memset_details".split()
)
_RAWS = frozenset("input_dims input_dims_2021 input_types concrete_inputs grid block".split())


def decode(text: bytes | memoryview, exact: bool) -> Sequence[Event]:
    """Events of a JSON array.

    Args:
        text: the array.
        exact: read times as decimals.

    Returns:
        The events; elements that are no events are left out.

    Raises:
        msgspec.DecodeError: the text is no JSON array, or an object in it has no `ph`, or it is
            nested a thousand deep.
    """
    try:
        return _decode(text, exact)
    except RecursionError:
        raise msgspec.DecodeError("nested too deeply") from None


def _decode(text: bytes | memoryview, exact: bool) -> Sequence[Event]:
    try:
        return (_exact if exact else _strict).decode(text)
    except msgspec.ValidationError:
        items = _lenient.decode(text)
        if any(type(item) is dict and item and "ph" not in item for item in items):
            raise
        return [event_of(item) for item in items if type(item) is dict and "ph" in item]


def event_of(item: dict[str, Any]) -> Event:
    """An event of a decoded JSON object, with whatever is of the wrong type coerced or absent."""
    args = item.get("args")
    return Event(
        ph=str(item.get("ph") or ""),
        ts=_number(item.get("ts")),  # type: ignore[arg-type]
        dur=_number(item.get("dur")),  # type: ignore[arg-type]
        pid=_identity(item.get("pid")),
        tid=_identity(item.get("tid")),
        cat=_text(item.get("cat")) or "",
        name=_text(item.get("name")) or "",
        id=_identity(item.get("id")),
        args=_args_of(args) if isinstance(args, dict) else None,
    )


def _args_of(written: dict[str, Any]) -> Args:
    args = Args()
    for key, value in written.items():
        name = _NAMES.get(key)
        if name is None or value is None:
            continue
        if name in _INTS:
            value = integer(value)
        elif name in _OPTIONAL_INTS:
            value = integer(value)
            value = None if value == MISSING else value
        elif name in _TEXTS:
            value = _text(value)
        elif name in _RAWS:
            value = Raw(msgspec.json.encode(value))
        elif name == "blocks_per_sm":
            number = _number(value)
            value = float("nan") if number is None else float(number)
        elif name == "group_ranks":
            value = value if isinstance(value, str) else msgspec.json.encode(value).decode()
        else:
            value = _identity(value)
        setattr(args, name, value)
    return args


def integer(value: Any) -> int:
    """An id written as a number or as text; `MISSING` where it is none that fits int64."""
    if isinstance(value, str):
        try:
            value = int(value, 0) if value[:2].lower() == "0x" else int(value)
        except ValueError:
            return MISSING
    elif isinstance(value, float | Decimal):
        value = int(value) if value == value and abs(value) < _INT64_MAX else MISSING
    elif not isinstance(value, int):
        return MISSING
    return value if -_INT64_MAX <= value <= _INT64_MAX else MISSING


def _number(value: Any) -> int | Decimal | None:
    if isinstance(value, bool):
        return None
    if isinstance(value, str | float):
        try:
            value = Decimal(value)
        except ArithmeticError:
            return None
    if isinstance(value, Decimal):
        return value if value.is_finite() else None
    return value if isinstance(value, int) and abs(value) <= _INT64_MAX else None


def _identity(value: Any) -> int | str:
    if isinstance(value, int | str):
        return value
    return "" if value is None else str(value)


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) or value is None else str(value)
