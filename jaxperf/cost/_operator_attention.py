"""Fused attentions. Unfused ones are matrix multiplies and a softmax of their own."""

import math
from collections.abc import Callable
from dataclasses import dataclass

from jaxperf.cost._operator_inputs import Inputs
from jaxperf.cost._operator_work import Attention


@dataclass(frozen=True, slots=True)
class _Order:
    """Where the inputs of an operator stand; -1 for what it has not."""

    query: int = 0  # keys and values follow it
    causal: int = -1
    heads_first: bool = False  # (batch, heads, length, size), else (batch, length, heads, size)
    lengths: int = -1  # ends of the sequences of queries, and of keys after it
    longest: int = -1  # longest sequence of queries, and of keys after it
    window: int = -1  # keys to the left that are seen, and to the right after it
    window_pair: int = -1  # the same as one list
    hidden: tuple[int, ...] = ()  # where these are tensors, the keys are not told (pages, parts)
    backward: bool = False
    mask_number: bool = False  # causal is a number, 0 for none, that stands before the first truth


_ORDERS = {
    "aten::scaled_dot_product_attention": _Order(causal=5, heads_first=True),
    "aten::_scaled_dot_product_flash_attention": _Order(causal=4, heads_first=True),
    "aten::_scaled_dot_product_efficient_attention": _Order(causal=6, heads_first=True),
    "aten::_scaled_dot_product_cudnn_attention": _Order(causal=6, heads_first=True),
    "aten::_scaled_dot_product_flash_attention_backward": _Order(
        1, causal=11, heads_first=True, lengths=6, longest=8, backward=True
    ),
    "aten::_scaled_dot_product_efficient_attention_backward": _Order(
        1, causal=11, heads_first=True, backward=True
    ),
    "aten::_scaled_dot_product_cudnn_attention_backward": _Order(
        1, causal=14, heads_first=True, lengths=9, longest=11, backward=True
    ),
    "aten::_flash_attention_forward": _Order(causal=8, lengths=3, longest=5, window=11),
    "aten::_flash_attention_backward": _Order(
        1, causal=11, lengths=6, longest=8, window=15, backward=True
    ),
    "aten::_efficient_attention_forward": _Order(lengths=4, longest=6, mask_number=True),
    "aten::_efficient_attention_backward": _Order(
        1, lengths=6, longest=8, mask_number=True, backward=True
    ),
    "flash_attn::_flash_attn_forward": _Order(causal=5, window=6),
    "flash_attn::_flash_attn_backward": _Order(1, causal=11, window=12, backward=True),
    "flash_attn::_flash_attn_varlen_forward": _Order(
        causal=9, lengths=3, longest=5, window=10, hidden=(15, 17)
    ),
    "flash_attn::_flash_attn_varlen_backward": _Order(
        1, causal=15, lengths=9, longest=11, window=16, backward=True
    ),
    "FlashAttnFunc": _Order(causal=5, window_pair=6),
    "FlashAttnVarlenFunc": _Order(causal=9, lengths=3, longest=5, window_pair=10),
    "flash_attn_3::fwd": _Order(
        causal=24, lengths=7, longest=12, window=25, hidden=(3, 10, 11, 14)
    ),
    "flash_attn_3::bwd": _Order(1, causal=16, lengths=9, longest=13, window=17, backward=True),
}


def _attention(order: _Order, inputs: Inputs) -> Attention | None:
    q, k, v = (inputs.tensor(order.query + i) for i in range(3))
    if not q or not k or not v or len(q) != len(k) or v[:-1] != k[:-1] or 0 in q or 0 in k:
        return None
    mask = _mask(order, inputs)
    sizes = _sizes(order, inputs, q, k)
    if sizes is None:
        return None
    batch, queries, keys, told = sizes
    heads_at = 1 if order.heads_first else -2
    return Attention(
        batch,
        q[heads_at],
        k[heads_at],
        queries,
        keys,
        (q[-1] + v[-1]) / 2,
        *(mask or (False, math.inf)),
        order.backward,
        inputs.type(order.query).precision,
        mask is not None and told,
    )


def _mask(order: _Order, inputs: Inputs) -> tuple[bool, float] | None:
    """Whether it is causal, and keys that a query sees at most; `None` where that is not told."""
    if any(inputs.tensor(i) is not None for i in order.hidden):
        return None
    causal = _causal(order, inputs)
    if causal is None:
        return None
    left, right = _window(order, inputs)
    if left < 0 and (right < 0 or causal):
        return causal, math.inf
    # The query's own key comes on top of those to its left.
    return (True, left + 1 if left >= 0 else math.inf) if causal or right == 0 else None


def _causal(order: _Order, inputs: Inputs) -> bool | None:
    if not order.mask_number:
        return inputs.flag(order.causal)
    truths = [i for i in range(len(inputs.values)) if inputs.flag(i) is not None]
    number = inputs.number(truths[0] - 1) if truths else None
    return None if number is None else number > 0


def _window(order: _Order, inputs: Inputs) -> tuple[float, float]:
    """Keys to the left and right of a query that it sees, -1 for all."""
    pair = inputs.numbers(order.window_pair) if order.window_pair >= 0 else None
    if pair is not None and len(pair) == 2:
        return pair
    if order.window < 0:
        return -1, -1
    left, right = inputs.number(order.window), inputs.number(order.window + 1)
    return (-1 if left is None else left), (-1 if right is None else right)


def _sizes(
    order: _Order, inputs: Inputs, q: tuple[int, ...], k: tuple[int, ...]
) -> tuple[float, float, float, bool] | None:
    """Sequences, queries and keys of one, and whether all sequences are known to be as long."""
    ends = inputs.tensor(order.lengths) if order.lengths >= 0 else None
    if not ends or not ends[0]:
        if len(q) != 4:
            return None
        length_at = 2 if order.heads_first else 1
        return q[0], q[length_at], k[length_at], True
    # Sequences lie one after the other; (total, heads, size), or with a batch of one before it.
    total_at = -2 if order.heads_first else -3
    count = ends[0] - 1
    if count < 1:
        return None
    queries, keys = q[total_at] / count, k[total_at] / count
    longest = inputs.number(order.longest), inputs.number(order.longest + 1)
    return count, queries, keys, longest == (queries, keys)


ATTENTIONS: dict[str, Callable[[Inputs], Attention | None]] = {
    name: (lambda inputs, order=order: _attention(order, inputs)) for name, order in _ORDERS.items()
}
"""By name of the operator."""
