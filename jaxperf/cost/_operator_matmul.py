"""Operators that multiply matrices."""

import math
from collections.abc import Callable

from jaxperf.cost._operator_inputs import RESULT_BYTES, Inputs, Shape
from jaxperf.cost._operator_work import Matmul

_WIDE = 2.0
"""Smallest element of a product: 8-bit operands give bf16 where nothing else is told."""


def _matmul(
    inputs: Inputs,
    operand: int,
    m: float,
    n: float,
    k: float,
    batch: float = 1.0,
    output_bytes: float = math.nan,
) -> Matmul:
    kind = inputs.type(operand)
    size = max(kind.bytes, _WIDE) if math.isnan(output_bytes) else output_bytes
    if inputs.untyped:
        return Matmul(
            m, n, k, batch, output_bytes=1.0, memory_bytes=batch * (m * k + k * n + m * n)
        )
    return Matmul(m, n, k * kind.packed, batch, kind.precision, size)


def _two(inputs: Inputs, a: int, output_bytes: float = math.nan) -> Matmul | None:
    """(m, k) @ (k, n), or (b, m, k) @ (b, k, n); inputs a and a + 1."""
    left, right = inputs.tensor(a), inputs.tensor(a + 1)
    if left is None or right is None or len(left) != len(right) or len(left) not in (2, 3):
        return None
    if left[-1] != right[-2]:
        return None
    batch = float(left[0]) if len(left) == 3 else 1.0
    return _matmul(inputs, a, left[-2], right[-1], left[-1], batch, output_bytes)


def _linear(inputs: Inputs, x: int = 0) -> Matmul | None:
    """(..., k) @ (n, k) transposed."""
    left, right = inputs.tensor(x), inputs.tensor(x + 1)
    if not left or right is None or len(right) != 2 or left[-1] != right[1]:
        return None
    return _matmul(inputs, x, math.prod(left[:-1]), right[0], left[-1])


def _general(inputs: Inputs) -> Matmul | None:
    """torch.matmul: leading dimensions are broadcast."""
    left, right = inputs.tensor(0), inputs.tensor(1)
    if not left or not right or max(len(left), len(right)) < 2:
        return None
    left = (1, *left) if len(left) == 1 else left
    right = (*right, 1) if len(right) == 1 else right
    if left[-1] != right[-2]:
        return None
    if len(right) == 2:  # the weight is read once
        return _matmul(inputs, 0, math.prod(left[:-1]), right[-1], left[-1])
    batch = broadcast(left[:-2], right[:-2])
    if batch is None:
        return None
    return _matmul(inputs, 0, left[-2], right[-1], left[-1], math.prod(batch))


def _vector(inputs: Inputs, a: int) -> Matmul | None:
    """(m, k) @ (k,)"""
    left, right = inputs.tensor(a), inputs.tensor(a + 1)
    if left is None or right is None or len(left) != 2 or len(right) != 1:
        return None
    return _matmul(inputs, a, left[0], 1, left[1])


def _summed(inputs: Inputs) -> Matmul | None:
    """addbmm: the sum of b products is one product over b k."""
    found = _two(inputs, 1)
    return found and _matmul(inputs, 1, found.m, found.n, found.batch * found.k)


def _scaled(inputs: Inputs) -> Matmul | None:
    told = inputs.number(6)
    return _two(inputs, 0, RESULT_BYTES.get(int(told), math.nan) if told is not None else math.nan)


def _grouped(inputs: Inputs, offsets: int) -> Matmul | None:
    """Groups of rows, columns or depths of one matrix, each with a matrix of its own."""
    left, right = inputs.tensor(0), inputs.tensor(1)
    if left is None or right is None or len(left) < 2 or len(right) < 2:
        return None
    if len(left) == 3 and len(right) == 3:
        return _two(inputs, 0)
    if len(right) == 3:
        groups = right[0]
        return _matmul(inputs, 0, left[0] / groups, right[2], left[1], groups) if groups else None
    if len(left) == 3:
        groups = left[0]
        return _matmul(inputs, 0, left[1], right[1] / groups, left[2], groups) if groups else None
    ends = inputs.tensor(offsets)
    if not ends or not ends[0]:
        return None
    return _matmul(inputs, 0, left[0], right[1], left[1] / ends[0], ends[0])


def broadcast(*shapes: Shape) -> Shape | None:
    """The shape that all broadcast to; `None` where they do not."""
    rank = max(map(len, shapes), default=0)
    sizes = []
    padded = [(1,) * (rank - len(shape)) + shape for shape in shapes]
    for column in zip(*padded, strict=True):
        largest = 0 if 0 in column else max(column)
        if any(size not in (1, largest) for size in column):
            return None
        sizes.append(largest)
    return tuple(sizes)


MATMULS: dict[str, Callable[[Inputs], Matmul | None]] = {
    "aten::mm": lambda x: _two(x, 0),
    "aten::bmm": lambda x: _two(x, 0),
    "aten::addmm": lambda x: _two(x, 1),
    "aten::_addmm_activation": lambda x: _two(x, 1),
    "aten::baddbmm": lambda x: _two(x, 1),
    "aten::addbmm": _summed,
    "aten::mv": lambda x: _vector(x, 0),
    "aten::addmv": lambda x: _vector(x, 1),
    "aten::linear": _linear,
    "aten::matmul": _general,
    "aten::_scaled_mm": _scaled,
    "aten::_int_mm": lambda x: _two(x, 0, 4.0),
    "aten::_grouped_mm": lambda x: _grouped(x, 2),
    "aten::_scaled_grouped_mm": lambda x: _grouped(x, 4),
    # The same product under the names of inference engines: rows times a weight of (n, k).
    "vllm::rocm_unquantized_gemm": _linear,
    "aiter::gemm_a16w16": _linear,
}
"""By name of the operator, in-place or not."""
