"""The work of an operator, by its name and inputs.

The formulas of each family are in docs/classes.md. An operator that is not here, or whose inputs do
not tell enough, has no known work.
"""

import re

from jaxperf.cost._operator_attention import ATTENTIONS
from jaxperf.cost._operator_convolution import CONVOLUTIONS, Results, convolution
from jaxperf.cost._operator_inputs import Inputs
from jaxperf.cost._operator_matmul import MATMULS
from jaxperf.cost._operator_memory import MEMORIES, generated
from jaxperf.cost._operator_work import OperatorWork

_SIMPLE = {**MATMULS, **ATTENTIONS, **MEMORIES}
# Inductor's kernels are operators of their own name; its templates are matrix multiplies.
_GENERATED = re.compile(r"triton_(poi|per|red|for|unk)_")


def operator_work(name: str, inputs: Inputs, known: Results) -> OperatorWork | None:
    """The work of an operator.

    Args:
        name: as the profiler writes it, such as `aten::addmm`.
        inputs: its inputs; see `convolution` for the gradients of one side.
        known: what other operators of the trace tell of the shapes of convolutions.

    Returns:
        Its work; `None` where nothing is known.

    Example:
        >>> from jaxperf.cost._operator_inputs import read_inputs
        >>> inputs = read_inputs("[[8, 16], [16, 4]]", '["float", "float"]', None)
        >>> operator_work("aten::mm", inputs, {}).k
        16
    """
    plain = plain_operator(name)
    if plain in CONVOLUTIONS:
        return convolution(plain, inputs, known)
    if found := _SIMPLE.get(plain):
        return found(inputs)
    return generated(name, inputs) if _GENERATED.match(name) else None


def is_known(name: str) -> bool:
    """Whether an operator of this name can have known work."""
    plain = plain_operator(name)
    return plain in CONVOLUTIONS or plain in _SIMPLE or bool(_GENERATED.match(name))


def plain_operator(name: str) -> str:
    """The name without the mark of an operator that changes its input.

    Example:
        >>> plain_operator("aten::add_"), plain_operator("aten::__or__")
        ('aten::add', 'aten::__or__')
    """
    return name[:-1] if name.endswith("_") and not name.endswith("__") else name
