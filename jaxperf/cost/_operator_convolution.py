"""Convolutions, as the matrix multiplies that they are: patches of the input times the weight.

Every pass has 2 N P K C F / g flops: N images, P places of the result, K and C channels of result
and input, F places of the filter, g groups. The operands are read once each: no patch is laid out.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace

from jaxperf.cost._operator_inputs import Inputs, Shape
from jaxperf.cost._operator_work import Backward, Matmul, OperatorWork

Results = dict[tuple[Shape, Shape], set[Shape]]
"""Shapes of results by those of input and weight.

Older traces hold no strides, so a forward pass does not tell its result; the backward pass has it
among its inputs. What is told in two ways is not known.
"""


def results(operators: Iterable[tuple[str, Inputs]]) -> Results:
    """What the backward passes among some operators tell of the results of forward passes."""
    found: Results = {}
    for name, inputs in operators:
        if order := _BACKWARD.get(name):
            x, weight, result = (inputs.tensor(i) for i in order)
            if x and weight and result:
                found.setdefault((x, weight), set()).add(result)
    return found


@dataclass(frozen=True, slots=True)
class _Order:
    """Where the inputs of an operator stand; -1 for what it has not."""

    stride: int
    padding: int
    dilation: int
    groups: int = -1
    transposed: int | bool = False  # or always, or never
    output_padding: int = -1


_FORWARD = {
    "aten::convolution": _Order(3, 4, 5, 8, 6, 7),
    "aten::_convolution": _Order(3, 4, 5, 8, 6, 7),
    "aten::convolution_overrideable": _Order(3, 4, 5, 8, 6, 7),
    "aten::cudnn_convolution": _Order(3, 2, 4, 5),
    "aten::cudnn_convolution_relu": _Order(3, 4, 5, 6),
    "aten::cudnn_convolution_add_relu": _Order(5, 6, 7, 8),
    "aten::cudnn_convolution_transpose": _Order(4, 2, 5, 6, True, 3),
    "aten::miopen_convolution": _Order(4, 3, 5, 6),
    "aten::miopen_convolution_relu": _Order(3, 4, 5, 6),
    "aten::miopen_depthwise_convolution": _Order(4, 3, 5, 6),
    "aten::miopen_convolution_transpose": _Order(5, 3, 6, 7, True, 4),
    "aten::_conv_depthwise2d": _Order(4, 5, 6),
    "aten::conv_depthwise3d": _Order(4, 5, 6),
    **{f"aten::conv{d}d": _Order(3, 4, 5, 6) for d in (1, 2, 3)},
    **{f"aten::conv_transpose{d}d": _Order(3, 4, 7, 6, True, 5) for d in (1, 2, 3)},
}

# Places of input, weight and gradient of the result.
_BACKWARD = {
    "aten::convolution_backward": (1, 2, 0),
    "aten::cudnn_convolution_backward": (0, 2, 1),
    "aten::miopen_convolution_backward": (0, 2, 1),
}
_MASK = {
    "aten::convolution_backward": 10,
    "aten::cudnn_convolution_backward": 10,
    "aten::miopen_convolution_backward": 9,
}

ONE_SIDED = {
    f"aten::{library}_convolution_backward_{side}": f"aten::{library}_convolution_backward"
    for library in ("cudnn", "miopen")
    for side in ("input", "weight")
}
"""Operators that make one of the two gradients, and the one around them that has all shapes."""

CONVOLUTIONS = frozenset({*_FORWARD, *_BACKWARD, *ONE_SIDED})


def convolution(name: str, inputs: Inputs, known: Results) -> OperatorWork | None:
    """The work of a convolution.

    Args:
        name: one of `CONVOLUTIONS`.
        inputs: its inputs; those of the operator around it where it is `ONE_SIDED`.
        known: what other operators tell of its shapes.

    Returns:
        Its work, `None` where the trace does not tell enough.
    """
    if name in _FORWARD:
        return _forward(inputs, _FORWARD[name], known)
    around = ONE_SIDED.get(name, name)
    x, weight, result = (inputs.tensor(i) for i in _BACKWARD[around])
    if not x or not weight or not result or not _consistent(x, weight, result):
        return None
    transposed = name == "aten::convolution_backward" and inputs.flag(7) is True
    both = _passes(inputs, _BACKWARD[around][0], x, weight, result, transposed)
    if name in ONE_SIDED:
        return both.data if name.endswith("input") else both.weight
    mask = inputs.flags(_MASK[name])
    if mask is None or len(mask) < 2:
        return replace(both, told=False)
    return Backward(both.data if mask[0] else None, both.weight if mask[1] else None)


def _forward(inputs: Inputs, order: _Order, known: Results) -> Matmul | None:
    x, weight = inputs.tensor(0), inputs.tensor(1)
    if not x or not weight or len(x) != len(weight):
        return None
    transposed = order.transposed
    if not isinstance(transposed, bool):
        transposed = inputs.flag(order.transposed)
    result = None if transposed is None else _result(inputs, order, x, weight, transposed)
    if result is None and not transposed:
        told = known.get((x, weight), set())
        result = next(iter(told)) if len(told) == 1 else None
    if result is None or not _consistent(x, weight, result):
        return None
    return _multiply(inputs, 0, x, weight, result, bool(transposed))


def _result(
    inputs: Inputs, order: _Order, x: Shape, weight: Shape, transposed: bool
) -> Shape | None:
    """The shape of the result; `None` where strides and the like are not told."""
    dimensions = len(x) - 2
    strides, paddings, dilations = (
        _each(inputs.numbers(i), dimensions) for i in (order.stride, order.padding, order.dilation)
    )
    if strides is None or paddings is None or dilations is None or 0 in strides:
        return None
    sizes = zip(x[2:], weight[2:], strides, paddings, dilations, strict=True)
    if not transposed:
        return (
            x[0],
            weight[0],
            *((i + 2 * p - d * (f - 1) - 1) // s + 1 for i, f, s, p, d in sizes),
        )
    more = _each(inputs.numbers(order.output_padding), dimensions)
    groups = inputs.number(order.groups)
    if more is None or groups is None:
        return None
    places = ((i - 1) * s - 2 * p + d * (f - 1) + 1 for i, f, s, p, d in sizes)
    return (x[0], int(weight[1] * groups), *(i + m for i, m in zip(places, more, strict=True)))


def _each(told: tuple[int, ...] | None, dimensions: int) -> tuple[int, ...] | None:
    """One number for all dimensions is written once."""
    if told is None or len(told) not in (1, dimensions):
        return None
    return told * dimensions if len(told) == 1 else told


def _consistent(*shapes: Shape) -> bool:
    return all(len(s) == len(shapes[0]) > 2 and 0 not in s for s in shapes)


def _multiply(
    inputs: Inputs, operand: int, x: Shape, weight: Shape, result: Shape, transposed: bool
) -> Matmul:
    kind = inputs.type(operand)
    filter_places = math.prod(weight[2:])
    if transposed:
        groups = result[1] / weight[1]
        m, n, k = x[0] * math.prod(x[2:]), weight[1] * filter_places, weight[0] / groups
    else:
        groups = x[1] / weight[1]
        m, n, k = x[0] * math.prod(result[2:]), weight[0] / groups, weight[1] * filter_places
    size = sum(map(math.prod, (x, weight, result))) * kind.bytes
    return Matmul(m, n, k, groups, kind.precision, kind.bytes, size)


def _passes(
    inputs: Inputs, operand: int, x: Shape, weight: Shape, result: Shape, transposed: bool
) -> Backward:
    forward = _multiply(inputs, operand, x, weight, result, transposed)
    product = forward.m * forward.n * forward.k

    def gradient(m: float, n: float) -> Matmul:
        return replace(forward, m=m, n=n, k=product / (m * n))

    return Backward(
        gradient(x[0] * math.prod(x[2:]), x[1] / forward.batch),
        gradient(weight[0] / forward.batch, weight[1] * math.prod(weight[2:])),
    )
