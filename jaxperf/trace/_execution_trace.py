"""What PyTorch's execution trace knows of operators beyond the timeline: their inputs.

`ExecutionTraceObserver` writes the operators of a run without times, with inputs; a timeline of the
same run that was recorded without `record_shapes` has the times alone. Both hold the operators of
a thread in the order in which they began, so they are laid side by side, thread by thread. Ids are
no help: each profiler counts its own, and in blocks per thread.
"""

import json
import os
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from jaxperf._bounded import TooManyBytes, joined_at_most
from jaxperf._json import NOT_READABLE
from jaxperf.errors import TraceError
from jaxperf.trace._notes import NoteBook
from jaxperf.trace._sources import Source
from jaxperf.trace._types import Category, Note, Trace

# Share of the operators that two threads have side by side that must have the same name.
_SAME_THREAD = 0.9
# Share of the shorter one's operators that must be found: captures may begin and end apart.
_LEAST_OVERLAP = 0.5
# A name that is there more often is no landmark.
_LANDMARK = 8
_MOST_BYTES = 4 << 30
_LISTS = "GenericList[Tensor"


def with_execution_trace(trace: Trace, path: str | os.PathLike[str]) -> Trace:
    """A trace whose operators have the inputs that an execution trace of the same run tells.

    Only operators that have no input dimensions yet, or none of a list of tensors, get them, with
    types and values, and only in threads whose operators agree in name and order. Nothing else of
    the trace changes.

    Args:
        trace: the timeline of a rank.
        path: what `ExecutionTraceObserver` wrote of that rank, schema 1.0 or 1.1; may be
            compressed.

    Returns:
        The trace, with a note that says how many operators were found.

    Raises:
        TraceError: the file cannot be read, or is no execution trace.

    Example:
        >>> with_execution_trace(trace, "rank0.et.json.gz").shapes[:1]  # doctest: +SKIP
        ('[[4, 2048], [], []]',)
    """
    threads = _read(Path(path))
    rows = np.flatnonzero(np.isin(trace.category, (Category.CPU_OP, Category.ANNOTATION)))
    found: dict[int, _Operator] = {}
    for lane in np.unique(trace.lane[rows]).tolist():
        mine = rows[trace.lane[rows] == lane]
        # Ids of a thread rise; times may be too coarse to tell who began first.
        told = trace.external_id[mine]
        if len(np.unique(told)) == len(mine):
            mine = mine[np.argsort(told, kind="stable")]
        names = [trace.names[name] for name in trace.name[mine].tolist()]
        pairs = max((_side_by_side(names, each) for each in threads), key=len, default=[])
        found |= {int(mine[i]): operator for i, operator in pairs}
    bare = set(without_inputs(trace).tolist())
    given = {row: operator for row, operator in found.items() if row in bare and operator.shapes}
    note = Note(
        "inputs-from-execution-trace",
        f"{len(found)} of {len(rows)} operators and annotations were found in an execution trace; "
        f"{len(given)} of the {len(bare)} operators without all inputs got them from there",
        str(path),
    )
    return replace(_with_inputs(trace, given), notes=(*trace.notes, note))


def without_inputs(trace: Trace) -> np.ndarray:
    """Operators with no dimensions at all, or none of a list of tensors, as in older traces."""
    rows = np.flatnonzero(trace.category == Category.CPU_OP)
    pairs = np.stack([trace.shape[rows], trace.input_type[rows]], axis=1)
    distinct, which = np.unique(pairs, axis=0, return_inverse=True)
    lacks = [
        shape < 0 or (kind >= 0 and _lacks_list(trace.shapes[shape], trace.input_types[kind]))
        for shape, kind in distinct.tolist()
    ]
    return rows[np.array(lacks, bool)[which.reshape(-1)]]


def _lacks_list(shapes: str, types: str) -> bool:
    if "TensorList" not in types:
        return False
    try:
        pairs = zip(json.loads(shapes), json.loads(types), strict=False)
        return any(kind == "TensorList" and not shape for shape, kind in pairs)
    except (ValueError, TypeError, RecursionError):
        return False


# The file
# ---------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Operator:
    """One node: its name, and what it says of its inputs, as lists."""

    name: str
    shapes: list
    types: list
    values: list


class _Inputs(msgspec.Struct):
    values: list = []
    shapes: list = []
    types: list = []


class _Attribute(msgspec.Struct):
    name: str = ""
    value: Any = None


class _Node(msgspec.Struct):
    """A node of schema 1.0, which has it all in fields, or of 1.1, which has attributes."""

    name: str = ""
    rf_id: int = 0
    tid: int = 0
    inputs: list | _Inputs = []
    input_shapes: list = []
    input_types: list = []
    attrs: list[_Attribute] = []

    def number(self, name: str) -> int:
        told = next((each.value for each in self.attrs if each.name == name), None)
        return told if isinstance(told, int) else getattr(self, name)

    def operator(self) -> _Operator:
        if isinstance(self.inputs, _Inputs):
            inputs = self.inputs
            return _Operator(self.name, inputs.shapes, inputs.types, inputs.values)
        return _Operator(self.name, self.input_shapes, self.input_types, self.inputs)


class _File(msgspec.Struct):
    schema: str
    nodes: list[_Node]


def _read(path: Path) -> list[list[_Operator]]:
    """Operators of each thread in the order in which they began."""
    try:
        text = joined_at_most(Source(path, NoteBook(str(path))).blocks(), _MOST_BYTES)
        file = msgspec.json.decode(text, type=_File)
    except TooManyBytes:
        raise TraceError(
            "an execution trace that holds too much",
            where=str(path),
            expected=f"at most {_MOST_BYTES} bytes",
        ) from None
    except NOT_READABLE as error:
        raise TraceError(
            "no execution trace",
            where=str(path),
            got=str(error),
            expected="what PyTorch's ExecutionTraceObserver writes",
        ) from error
    threads: dict[int, list[tuple[int, _Operator]]] = {}
    for node in file.nodes:
        threads.setdefault(node.number("tid"), []).append((node.number("rf_id"), node.operator()))
    in_order = (sorted(each, key=lambda pair: pair[0]) for each in threads.values())
    return [[operator for _, operator in each] for each in in_order]


# Side by side
# ---------------------------------------------------------------------------------------


def _side_by_side(names: Sequence[str], thread: Sequence[_Operator]) -> list[tuple[int, _Operator]]:
    """Pairs of a place in `names` and its operator; none where the two are not one thread."""
    known = {operator.name for operator in thread}
    left = [i for i, name in enumerate(names) if name in known]
    there = set(names)
    right = [operator for operator in thread if operator.name in there]
    shift = _shift([names[i] for i in left], [operator.name for operator in right])
    if shift is None:
        return []
    low, high = max(0, -shift), min(len(left), len(right) - shift)
    beside = [(left[i], right[i + shift]) for i in range(low, high)]
    pairs = [(i, operator) for i, operator in beside if names[i] == operator.name]
    enough = max(_SAME_THREAD * len(beside), _LEAST_OVERLAP * min(len(left), len(right)))
    return pairs if len(pairs) >= enough else []


def _shift(names: Sequence[str], others: Sequence[str]) -> int | None:
    """How much later a name stands in the other list, as most of the rare names have it."""
    here, there = _places(names), _places(others)
    rarest = min(map(len, here.values()), default=0)
    rare = max(_LANDMARK, rarest)
    votes = Counter(
        other - place
        for name in here.keys() & there.keys()
        if max(len(here[name]), len(there[name])) <= rare
        for place in here[name]
        for other in there[name]
    )
    return max(votes, key=lambda shift: (votes[shift], -abs(shift)), default=None)


def _places(names: Iterable[str]) -> dict[str, list[int]]:
    places: dict[str, list[int]] = {}
    for place, name in enumerate(names):
        places.setdefault(name, []).append(place)
    return places


# Inputs, as a timeline writes them
# ---------------------------------------------------------------------------------------


def _with_inputs(trace: Trace, given: dict[int, _Operator]) -> Trace:
    texts = {
        row: (
            _text([_shape(kind, shape) for kind, shape in _zip(operator.types, operator.shapes)]),
            _text([_type(kind) for kind in operator.types]),
            _text([_value(kind, value) for kind, value in _zip(operator.types, operator.values)]),
        )
        for row, operator in given.items()
    }
    changed: dict[str, Any] = {}
    for place, (table, column) in enumerate(
        (("shapes", "shape"), ("input_types", "input_type"), ("input_values", "input_value"))
    ):
        known = {text: i for i, text in enumerate(getattr(trace, table))}
        codes = getattr(trace, column).copy()
        for row, each in texts.items():
            codes[row] = known.setdefault(each[place], len(known))
        changed |= {table: tuple(known), column: codes}
    return replace(trace, **changed)


def _zip(types: list, others: list) -> list[tuple[str, Any]]:
    return [(str(kind), others[i] if i < len(others) else None) for i, kind in enumerate(types)]


def _text(value: list) -> str:
    return msgspec.json.encode(value).decode()


def _shape(kind: str, shape: Any) -> Any:
    """Dimensions of a tensor, or of each of a list of tensors; of all else none."""
    is_tensor = kind.startswith(("Tensor(", _LISTS))
    return shape if is_tensor and isinstance(shape, list) else []


def _type(kind: Any) -> str:
    """`Tensor(float)` is `float`; of lists and numbers a timeline says only that they are."""
    kind = str(kind)
    if kind.startswith("Tensor("):
        return kind[len("Tensor(") : -1]
    if kind.startswith(_LISTS):
        return "TensorList"
    if kind.startswith("GenericList["):
        return "ScalarList"
    return "Scalar" if kind in ("Int", "Bool", "Double") else ""


def _value(kind: str, value: Any) -> str:
    """A number, a truth or a list of them as Python writes it; of tensors and all else nothing."""
    if _type(kind) == "Scalar" and isinstance(value, bool | int | float):
        return str(value)
    if _type(kind) == "ScalarList" and isinstance(value, list):
        return str(value) if all(isinstance(v, bool | int | float) for v in value) else ""
    return ""
