"""What a backward pass needs of its forward pass, tensor by tensor, and the most it takes itself.

A part of a model is a sequence of operators. Each names the tensors that it saves and who reads
them, its weights on one rank, and the gradients that pass through it. Closed forms such as
s b h (34 + 5 a s / h) (Korthikanti et al., arXiv 2205.05198) are sums over them.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import prod


@dataclass(frozen=True, slots=True)
class SavedTensor:
    """A tensor that the forward pass leaves for the backward pass.

    Attributes:
        name: what it is.
        saved_by: the operators whose backward pass reads it; it is stored once.
        size_bytes: on one rank, for one micro-batch.
    """

    name: str
    saved_by: str
    size_bytes: float


@dataclass(frozen=True, slots=True)
class Weight:
    """Weights of one shape on one rank.

    Attributes:
        name: what they are.
        shape: of the part on this rank.
        count: how many of them.
    """

    name: str
    shape: tuple[float, ...]
    count: float = 1.0

    @property
    def elements(self) -> float:
        """Elements of all of them."""
        return self.count * prod(self.shape)


@dataclass(frozen=True, slots=True)
class Operator:
    """A step of the forward pass, as its backward pass sees it.

    Attributes:
        name: what it does.
        saved: tensors that it keeps, and that no operator before or after it lists too.
        weights: on this rank.
        output_gradient_bytes: gradient that its backward pass reads and then frees.
        input_gradient_bytes: gradient that its backward pass makes.
        workspace_bytes: what its backward pass allocates besides and frees at its end.
    """

    name: str
    saved: tuple[SavedTensor, ...] = ()
    weights: tuple[Weight, ...] = ()
    output_gradient_bytes: float = 0.0
    input_gradient_bytes: float = 0.0
    workspace_bytes: float = 0.0

    @property
    def saved_bytes(self) -> float:
        """Bytes of the saved tensors."""
        return sum(tensor.size_bytes for tensor in self.saved)


@dataclass(frozen=True, slots=True)
class Block:
    """Chains of operators that start from one stream of hidden states and are added to it.

    Attributes:
        chains: each in forward order. The first starts with the normalisation; others start from
            its result.
        stream_bytes: the hidden states, and so their gradient, which lives as long as the block
            works; 0 where nothing is added to them.
    """

    chains: tuple[tuple[Operator, ...], ...]
    stream_bytes: float = 0.0

    @property
    def operators(self) -> tuple[Operator, ...]:
        """All operators, in forward order."""
        return tuple(operator for chain in self.chains for operator in chain)


Part = tuple[Block, ...]
"""A layer, the embedding or the output layer."""


def saved_bytes(part: Iterable[Block]) -> float:
    """Bytes that a part keeps for the backward pass of one micro-batch."""
    return sum(operator.saved_bytes for block in part for operator in block.operators)


def kept_bytes(part: Part, recompute: bool) -> float:
    """Bytes that a part keeps between its forward and its backward pass.

    Args:
        part: the part.
        recompute: a layer keeps its input alone, and makes the rest anew.
    """
    return part[0].stream_bytes if recompute and _is_layer(part) else saved_bytes(part)


def weights_of(part: Iterable[Block]) -> tuple[Weight, ...]:
    """Weights of a part on one rank."""
    return tuple(
        weight for block in part for operator in block.operators for weight in operator.weights
    )


def backward_peak_bytes(parts: Sequence[Part], recompute: bool = False) -> float:
    """Most that a backward pass adds at any time to what its forward pass kept.

    Walks the operators backwards: each makes the gradient of its input, and then frees the
    gradient of its result and its saved tensors. The gradient of a block's result lives beside the
    block, as part of the gradient of its input.

    Args:
        parts: in forward order.
        recompute: layers keep their input alone; the rest is made anew before the backward pass.

    Returns:
        Bytes; at least 0.

    Example:
        A multiply reads the gradient of its result, 2 bytes, makes that of its input, 4 bytes, and
        only then frees the 3 bytes that it saved:

        >>> multiply = Operator("multiply", (SavedTensor("input", "multiply", 3.0),), (), 2.0, 4.0)
        >>> backward_peak_bytes([(Block(((multiply,),)),)])
        6.0
    """
    peak, freed = 0.0, 0.0
    for part in reversed(parts):
        freed -= saved_bytes(part) - kept_bytes(part, recompute)
        for block in reversed(part):
            peak, freed = _block_backward(block, peak, freed)
    return peak


def _is_layer(part: Part) -> bool:
    return part[0].stream_bytes > 0


def _block_backward(block: Block, peak: float, freed: float) -> tuple[float, float]:
    """The peak, and bytes freed until then, after one more block."""
    held = block.stream_bytes
    for chain in reversed(block.chains):
        for place, operator in enumerate(reversed(chain)):
            # A chain starts from the gradient of the block's result, which is held already.
            read = 0.0 if place == 0 and block.stream_bytes else operator.output_gradient_bytes
            made = operator.input_gradient_bytes + operator.workspace_bytes
            peak = max(peak, held + read + made - freed)
            freed += operator.saved_bytes
        if chain is not block.chains[0]:
            held += chain[0].input_gradient_bytes
    return peak, freed
