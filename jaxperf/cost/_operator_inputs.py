"""The inputs of an operator, from the texts that a profiler wrote."""

import json
import math
import re
from dataclasses import dataclass

from jaxperf.cost._work import PRECISIONS

Shape = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class ElementType:
    """A type of tensors: size of an element, and index into `PRECISIONS` (-1 for none of them)."""

    bytes: float
    precision: int = -1
    packed: int = 1  # elements in one that the shape counts


def _type(size: float, precision: str = "", packed: int = 1) -> ElementType:
    return ElementType(size, PRECISIONS.index(precision) if precision else -1, packed)


UNKNOWN_TYPE = ElementType(math.nan)
# Traces of 2021 hold no types: then sizes are counted in elements, and a kernel's name may tell.
_ELEMENTS = ElementType(1.0)

# Names of c10::TypeMeta, as they stand in traces of all years.
_TYPES = {
    "double": _type(8, "fp64"),
    "float": _type(4, "fp32"),
    "c10::Half": _type(2, "fp16"),
    "c10::BFloat16": _type(2, "bf16"),
    "c10::Float8_e4m3fn": _type(1, "fp8"),
    "c10::Float8_e4m3fnuz": _type(1, "fp8"),
    "c10::Float8_e5m2": _type(1, "fp8"),
    "c10::Float8_e5m2fnuz": _type(1, "fp8"),
    "c10::Float8_e8m0fnu": _type(1),
    "c10::Float4_e2m1fn_x2": _type(1, "fp4", 2),
    "signed char": _type(1, "int8"),
    "unsigned char": _type(1),
    "char": _type(1, "int8"),
    "bool": _type(1),
    "short": _type(2),
    "short int": _type(2),
    "int": _type(4),
    "long": _type(8),
    "long int": _type(8),
    "long long": _type(8),
    "unsigned short": _type(2),
    "unsigned int": _type(4),
    "unsigned long": _type(8),
    "c10::complex<float>": _type(8),
    "c10::complex<double>": _type(16),
}
_SCALARS = {"Scalar", "ScalarList", "TensorList", "GenericList", "OptionalTensorList"}

# c10::ScalarType, by which an operator is told the type of its result.
RESULT_BYTES = {0: 1, 1: 1, 2: 2, 3: 4, 4: 8, 5: 2, 6: 4, 7: 8, 11: 1, 15: 2, 23: 1, 24: 1}


@dataclass(frozen=True, slots=True)
class Inputs:
    """The inputs of an operator, in order of its schema.

    Attributes:
        shapes: of each input; empty for what is no tensor, nested for a list of tensors.
        types: of each input, as written; empty where the trace does not tell.
        values: of each input that is no tensor, as written; empty where the trace does not tell.
    """

    shapes: tuple[Shape | tuple[Shape, ...], ...]
    types: tuple[str, ...]
    values: tuple[str, ...]

    def tensor(self, i: int) -> Shape | None:
        """The shape of input i; `None` where it is no tensor."""
        if i >= len(self.shapes) or self.list_of(i):
            return None
        kind = self.types[i] if i < len(self.types) else ""
        shape: Shape = self.shapes[i]  # type: ignore[assignment]
        return shape if kind in _TYPES or (shape and kind not in _SCALARS) else None

    @property
    def untyped(self) -> bool:
        """No type is told: sizes are in elements."""
        return not self.types

    def type(self, i: int) -> ElementType:
        """The type of input i."""
        if self.untyped:
            return _ELEMENTS
        return _TYPES.get(self.types[i] if i < len(self.types) else "", UNKNOWN_TYPE)

    def elements(self, i: int) -> float:
        """Elements of input i, 0 where it is no tensor."""
        shape = self.tensor(i)
        return 0.0 if shape is None else float(math.prod(shape))

    def bytes(self, i: int) -> float:
        """Size of input i, 0 where it is no tensor, NaN where its type is not known."""
        elements = self.elements(i)
        return elements * self.type(i).bytes if self.tensor(i) is not None else 0.0

    def list_of(self, i: int) -> tuple[Shape, ...]:
        """Shapes of the tensors in the list that input i is; empty where it is none."""
        if i >= len(self.shapes) or not self.shapes[i]:
            return ()
        first = self.shapes[i][0]
        return self.shapes[i] if isinstance(first, tuple) else ()  # type: ignore[return-value]

    def flag(self, i: int) -> bool | None:
        """The value of input i; `None` where the trace does not tell."""
        return {"True": True, "False": False}.get(self._value(i))

    def number(self, i: int) -> float | None:
        """The value of input i; `None` where the trace does not tell."""
        try:
            return float(self._value(i))
        except ValueError:
            return None

    def numbers(self, i: int) -> tuple[int, ...] | None:
        """The whole numbers in the list that input i is; `None` where the trace does not tell."""
        value = self._value(i)
        return tuple(map(int, re.findall(r"-?\d+", value))) if value.startswith("[") else None

    def flags(self, i: int) -> tuple[bool, ...] | None:
        """The truths in the list that input i is; `None` where the trace does not tell."""
        value = self._value(i)
        found = re.findall(r"True|False", value)
        return tuple(word == "True" for word in found) if value.startswith("[") else None

    def tensors(self) -> list[int]:
        """Which inputs are tensors."""
        return [i for i in range(len(self.shapes)) if self.tensor(i) is not None]

    def _value(self, i: int) -> str:
        return self.values[i] if i < len(self.values) else ""


def read_inputs(shapes: str | None, types: str | None, values: str | None) -> Inputs | None:
    """The inputs of an operator.

    Args:
        shapes, types, values: as a `Trace` keeps them, `None` where it has none.

    Returns:
        The inputs; `None` where the shapes are not told or cannot be read.

    Example:
        >>> inputs = read_inputs("[[4, 8], []]", '["float", "Scalar"]', '["", "1"]')
        >>> inputs.bytes(0), inputs.number(1)
        (128.0, 1.0)
    """
    told = _list(shapes)
    if told is None:
        return None
    frozen = tuple(_frozen(shape) for shape in told)
    return Inputs(frozen, tuple(map(str, _list(types) or ())), tuple(map(str, _list(values) or ())))


def _list(text: str | None) -> list | None:
    try:
        found = json.loads(text) if text else None
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, list) else None


def _frozen(shape: object) -> tuple:
    if not isinstance(shape, list):
        return ()
    if any(isinstance(part, list) for part in shape):
        return tuple(_frozen(part) for part in shape)
    # A size of a nested or symbolic tensor may not be a number.
    return tuple(part for part in shape if isinstance(part, int)) if _whole(shape) else ()


def _whole(shape: list) -> bool:
    return all(isinstance(part, int) and part >= 0 for part in shape)
