"""Operators with their inputs, as PyTorch's profiler lists them with `record_shapes=True`.

One input is its dimensions, its type and its value: a tensor has no value, a number no dimensions,
and what was not given has nothing.
"""

from collections.abc import Sequence

from jaxperf.simulator._program import Collective, Instruction, Op, Sizes

Input = tuple[Sizes | tuple[Sizes, ...], str, str]

NOTHING: Input = ((), "", "")
"""An optional input that was not given, or one whose value the profiler does not write."""


def tensor(*sizes: int, dtype: str = "c10::BFloat16") -> Input:
    """A tensor; activations, parameters and gradients are bfloat16."""
    return sizes, dtype, ""


def tensors(*shapes: Sizes) -> Input:
    """A list of tensors, whose types the profiler does not write."""
    return shapes, "TensorList", ""


def scalar(value: object) -> Input:
    """A number or truth; a text is written as it stands."""
    return (), "Scalar", str(value)


def scalars(*values: object) -> Input:
    """A list of numbers or truths."""
    return (), "ScalarList", str(list(values))


def operator(name: str, inputs: Sequence[Input], body: Sequence[Instruction] = ()) -> Op:
    """An operator with inputs in the order of its schema.

    Example:
        >>> operator("aten::add", [tensor(4, 8), tensor(8), scalar(1)]).shapes
        ((4, 8), (8,), ())
    """
    shapes, types, values = zip(*inputs, strict=True)
    return Op(name, body, shapes=shapes, types=types, values=values)


def collective_inputs(work: Collective) -> list[Input]:
    """Inputs of the operator of a collective, or of a send or receive."""
    buffer = [tensors((work.elements,)), NOTHING]
    if work.operation == "allreduce":
        timeout = scalar(-1)
        return [*buffer, NOTHING, NOTHING, timeout]
    peer = work.destination if work.operation == "send" else work.source
    tag = scalar(0)
    return [*buffer, scalar(work.ranks.index(peer)), tag]


def recorder_inputs(work: Collective, rank: int) -> list[Input]:
    """What PyTorch notes of a collective; last its group, by first rank, stride and size."""
    first, second, *_ = work.ranks
    group = [scalar(value) for value in (first, second - first, len(work.ranks))]
    within = scalar(work.ranks.index(rank))
    splits = [scalars(), scalars()]
    return [tensors((work.elements,)), NOTHING, NOTHING, within, NOTHING, *splits, *group]
