"""The work of operators, against counts made by hand."""

import itertools
import json
import math

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given

from jaxperf.cost._operator_convolution import results
from jaxperf.cost._operator_inputs import Inputs, read_inputs
from jaxperf.cost._operator_work import Backward, Single, as_work
from jaxperf.cost._operators import operator_work
from jaxperf.cost._work import PRECISIONS, Work, WorkKind
from jaxperf.cost._work_formulas import (
    attention_work,
    collective_work,
    matmul_work,
    memory_work,
)
from jaxperf.errors import ConfigError
from jaxperf.graph import TaskClass

BF16, FLOAT, LONG = "c10::BFloat16", "float", "long int"
SIZES = st.integers(1, 4096)


def inputs(shapes: list, types: list[str] | None = None, values: list[str] | None = None) -> Inputs:
    found = read_inputs(
        json.dumps(shapes),
        None if types is None else json.dumps(types),
        None if values is None else json.dumps(values),
    )
    assert found is not None
    return found


def record(name: str, shapes: list, types: list[str] | None = None, values=None):
    kinds = [BF16 if shape else "Scalar" for shape in shapes] if types is None else types
    return operator_work(name, inputs(shapes, kinds, values), {})


def work(name: str, shapes: list, types: list[str] | None = None, values=None) -> Work:
    """The one row of work of an operator."""
    found = record(name, shapes, types, values)
    assert found is not None and not isinstance(found, Backward)
    return as_work([found])


def row(found: Single | None) -> Work:
    assert found is not None
    return as_work([found])


# Matrix multiplies
# ---------------------------------------------------------------------------------------

PRODUCTS = {
    "mm": ("aten::mm", [[3, 5], [5, 7]], (1, 3, 7, 5)),
    "addmm": ("aten::addmm", [[7], [3, 5], [5, 7], [], []], (1, 3, 7, 5)),
    "addmm in place": ("aten::addmm_", [[3, 7], [3, 5], [5, 7], [], []], (1, 3, 7, 5)),
    "bmm": ("aten::bmm", [[2, 3, 5], [2, 5, 7]], (2, 3, 7, 5)),
    "baddbmm": ("aten::baddbmm", [[2, 3, 7], [2, 3, 5], [2, 5, 7], [], []], (2, 3, 7, 5)),
    "addbmm": ("aten::addbmm", [[3, 7], [2, 3, 5], [2, 5, 7], [], []], (1, 3, 7, 10)),
    "mv": ("aten::mv", [[3, 5], [5]], (1, 3, 1, 5)),
    "linear": ("aten::linear", [[2, 3, 5], [7, 5], [7]], (1, 6, 7, 5)),
    "matmul of matrices": ("aten::matmul", [[3, 5], [5, 7]], (1, 3, 7, 5)),
    "matmul by a weight": ("aten::matmul", [[2, 4, 3, 5], [5, 7]], (1, 24, 7, 5)),
    "matmul of stacks": ("aten::matmul", [[4, 2, 3, 5], [2, 5, 7]], (8, 3, 7, 5)),
    "matmul by a vector": ("aten::matmul", [[2, 3, 5], [5]], (1, 6, 1, 5)),
    "int8": ("aten::_int_mm", [[3, 5], [5, 7]], (1, 3, 7, 5)),
    "grouped rows": ("aten::_grouped_mm", [[12, 5], [4, 5, 7], [4]], (4, 3, 7, 5)),
    "grouped depths": ("aten::_grouped_mm", [[3, 20], [20, 7], [4]], (4, 3, 7, 5)),
    "grouped columns": ("aten::_grouped_mm", [[4, 3, 5], [5, 28], [4]], (4, 3, 7, 5)),
}


@pytest.mark.parametrize("case", PRODUCTS)
def test_a_product_has_its_sizes_and_two_flops_per_multiply_add(case):
    name, shapes, (batch, m, n, k) = PRODUCTS[case]
    found = work(name, shapes)
    sizes = [getattr(found, size).item() for size in ("batch", "m", "n", "k")]
    assert sizes == [batch, m, n, k]
    assert found.flops.item() == 2 * batch * m * n * k
    assert found.kind.item() == WorkKind.MATMUL


def test_a_product_reads_its_operands_and_writes_its_result_once():
    found = work("aten::bmm", [[2, 3, 5], [2, 5, 7]])
    assert found.memory_bytes.item() == 2 * 2 * (3 * 5 + 5 * 7 + 3 * 7)
    assert PRECISIONS[found.precision.item()] == "bf16"


def test_eight_bit_operands_give_the_result_that_the_operator_is_told():
    fp8 = "c10::Float8_e4m3fn"
    shapes = [[16, 32], [32, 64], [], [], [], [], [], []]
    kinds = [fp8, fp8, FLOAT, FLOAT, "", "", "Scalar", "Scalar"]
    values = ["", "", "", "", "", "", "6", "False"]
    operands = 16 * 32 + 32 * 64
    told = work("aten::_scaled_mm", shapes, kinds, values)
    assert told.memory_bytes.item() == operands + 4 * 16 * 64
    assert work("aten::_scaled_mm", shapes, kinds).memory_bytes.item() == operands + 2 * 16 * 64
    assert PRECISIONS[told.precision.item()] == "fp8"


def test_four_bit_operands_lie_two_to_a_byte():
    kinds = ["c10::Float4_e2m1fn_x2"] * 2
    found = work("aten::_scaled_mm", [[16, 32], [32, 64]], kinds)
    assert found.k.item() == 64
    assert found.memory_bytes.item() == 16 * 32 + 32 * 64 + 2 * 16 * 64


@pytest.mark.parametrize(
    "name, shapes",
    [
        ("aten::mm", [[3, 5], [4, 7]]),
        ("aten::mm", [[], [5, 7]]),
        ("aten::linear", [[3, 5], [7, 6]]),
        ("aten::matmul", [[2, 3, 5], [4, 5, 7]]),
        ("my::mm", [[3, 5], [5, 7]]),
    ],
)
def test_inputs_that_do_not_fit_tell_nothing(name, shapes):
    assert record(name, shapes) is None


@given(SIZES, SIZES, SIZES, st.integers(1, 64))
def test_a_batch_of_products_has_the_work_of_each(m, n, k, batch):
    one, many = matmul_work(m, n, k), matmul_work(m, n, k, batch=batch)
    assert many.flops.item() == batch * one.flops.item()
    assert many.memory_bytes.item() == batch * one.memory_bytes.item()


@given(SIZES, SIZES, SIZES)
def test_a_product_transposed_has_the_same_work(m, n, k):
    this, that = matmul_work(m, n, k), matmul_work(n, m, k)
    assert this.flops.item() == that.flops.item()
    assert this.memory_bytes.item() == that.memory_bytes.item()


def test_the_formulas_take_arrays():
    found = matmul_work(np.array([1, 2]), 4, np.array([8, 16]), precision="fp32")
    assert found.flops.tolist() == [64, 256]
    assert len(found) == 2


@pytest.mark.parametrize(
    "formula", [matmul_work, lambda **x: attention_work(1, 1, 1, 1, 1, 1, **x)]
)
def test_an_unknown_precision_is_refused_with_the_nearest(formula):
    sizes = {"m": 1, "n": 1, "k": 1} if formula is matmul_work else {}
    with pytest.raises(ConfigError, match="bf15.*expected one of bf16"):
        formula(**sizes, precision="bf15")


# Convolutions
# ---------------------------------------------------------------------------------------


def taps(x, weight, stride, padding, dilation, groups) -> tuple[int, list[int]]:
    """Multiply-adds of a convolution, counted one place of the result at a time."""
    places = []
    for size, field, s, p, d in zip(x[2:], weight[2:], stride, padding, dilation, strict=True):
        starts = range(-p, size + p - d * (field - 1), s)
        places.append(len(starts))
    per_place = weight[1] * math.prod(weight[2:])
    assert weight[1] == x[1] // groups
    count = 0
    for _ in itertools.product(range(x[0]), range(weight[0]), *map(range, places)):
        count += per_place
    return count, places


CONVOLUTION_CASES = {
    "plain": ([2, 4, 9, 8], [6, 4, 3, 3], [1, 1], [0, 0], [1, 1], 1),
    "strided and padded": ([2, 4, 9, 8], [6, 4, 3, 3], [2, 2], [1, 1], [1, 1], 1),
    "dilated": ([2, 4, 9, 8], [6, 4, 3, 2], [1, 1], [1, 0], [2, 1], 1),
    "grouped": ([2, 4, 9, 8], [6, 2, 3, 3], [1, 1], [1, 1], [1, 1], 2),
    "depthwise": ([2, 4, 9, 8], [4, 1, 3, 3], [1, 1], [1, 1], [1, 1], 4),
    "one dimension": ([2, 4, 30], [6, 4, 5], [3], [2], [1], 1),
    "three dimensions": ([1, 2, 5, 6, 4], [3, 2, 2, 3, 1], [1, 2, 1], [0, 1, 0], [1, 1, 1], 1),
}


def convolution_inputs(case: str) -> tuple[list, list[str]]:
    x, weight, stride, padding, dilation, groups = CONVOLUTION_CASES[case]
    zeros = [0] * len(stride)
    values = ["", "", "", *map(str, (stride, padding, dilation)), "False", str(zeros), str(groups)]
    return [x, weight, [weight[0]], [], [], [], [], [], []], values


@pytest.mark.parametrize("case", CONVOLUTION_CASES)
def test_a_convolution_multiplies_every_tap_of_every_place(case):
    shapes, values = convolution_inputs(case)
    count, places = taps(*CONVOLUTION_CASES[case])
    found = work("aten::convolution", shapes, values=values)
    assert found.flops.item() == 2 * count
    x, weight = shapes[:2]
    result = x[0] * weight[0] * math.prod(places)
    assert found.memory_bytes.item() == 2 * (math.prod(x) + math.prod(weight) + result)


@pytest.mark.parametrize("case", CONVOLUTION_CASES)
def test_both_gradients_of_a_convolution_cost_as_much_as_the_convolution(case):
    shapes, values = convolution_inputs(case)
    count, places = taps(*CONVOLUTION_CASES[case])
    x, weight = shapes[:2]
    result = [x[0], weight[0], *places]
    told = ["", "", "", "[0]", *values[3:], "[True, True, False]"]
    found = record("aten::convolution_backward", [result, x, weight, *[[]] * 8], values=told)
    assert isinstance(found, Backward)
    for gradient in (found.data, found.weight):
        assert row(gradient).flops.item() == pytest.approx(2 * count, rel=1e-12)
    assert found.data is not None and found.data.n * found.data.batch == x[1]


def test_a_gradient_that_is_not_asked_for_is_no_work():
    told = ["", "", "", "[0]", "[1, 1]", "[0, 0]", "[1, 1]", "False", "[0, 0]", "1"]
    shapes = [[2, 6, 7, 6], [2, 4, 9, 8], [6, 4, 3, 3], *[[]] * 8]
    found = record("aten::convolution_backward", shapes, values=[*told, "[False, True, False]"])
    assert isinstance(found, Backward)
    assert found.data is None and found.weight is not None and found.told
    unsaid = record("aten::convolution_backward", shapes, values=told)
    assert isinstance(unsaid, Backward) and not unsaid.told


def test_a_transposed_convolution_is_the_gradient_of_the_one_it_undoes():
    values = ["", "", "", "[2, 2]", "[0, 0]", "[1, 1]", "True", "[0, 0]", "1"]
    shapes = [[3, 8, 5, 5], [8, 4, 2, 2], [4], *[[]] * 6]
    found = work("aten::convolution", shapes, values=values)
    # Every element of the input meets every weight.
    assert found.flops.item() == 2 * (3 * 5 * 5) * (8 * 4 * 2 * 2)
    result = 3 * 4 * 10 * 10
    assert found.memory_bytes.item() == 2 * (3 * 8 * 25 + 8 * 4 * 4 + result)


def test_vendors_put_padding_before_stride():
    shapes = [[2, 4, 9, 8], [6, 4, 3, 3], *[[]] * 7]
    ours = convolution_inputs("strided and padded")
    cudnn = ["", "", "[1, 1]", "[2, 2]", "[1, 1]", "1", "False", "False", "True"]
    found = work("aten::cudnn_convolution", shapes, values=cudnn)
    assert found.flops.item() == work("aten::convolution", ours[0], values=ours[1]).flops.item()


def test_without_strides_the_backward_pass_tells_the_result_unless_it_tells_two():
    shapes = [[2, 4, 9, 9], [6, 4, 3, 3], *[[]] * 7]
    forward = inputs(shapes, [FLOAT, FLOAT])

    def backward(size: int) -> tuple[str, Inputs]:
        told = [[2, 4, 9, 9], [2, 6, size, size], [6, 4, 3, 3]]
        return "aten::cudnn_convolution_backward", inputs(told, [FLOAT] * 3)

    assert operator_work("aten::cudnn_convolution", forward, {}) is None
    found = operator_work("aten::cudnn_convolution", forward, results([backward(7)]))
    assert found is not None and not isinstance(found, Backward)
    assert row(found).flops.item() == 2 * (2 * 49) * 6 * (4 * 9)
    both = results([backward(7), backward(9)])
    assert operator_work("aten::cudnn_convolution", forward, both) is None


# Attention
# ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("queries, keys, window", [(256, 256, 10**6), (64, 256, 50), (256, 256, 9)])
def test_a_causal_attention_has_the_pairs_below_its_mask(queries, keys, window):
    position = np.arange(queries)[:, None] + keys - queries
    key = np.arange(keys)[None]
    seen = (key <= position) & (key > position - window)
    found = attention_work(2, 4, 4, queries, keys, 32, causal=True, window=window)
    # A query's own key counts half, as in the usual s^2 / 2.
    pairs = seen.sum() - (queries / 2 if window > keys else 0)
    assert found.flops.item() / (4 * 2 * 4 * 32) == pytest.approx(pairs, rel=0.01)


def test_a_full_causal_attention_has_half_the_pairs():
    full = attention_work(1, 8, 8, 2048, 2048, 64)
    causal = attention_work(1, 8, 8, 2048, 2048, 64, causal=True)
    assert full.flops.item() == 4 * 8 * 2048**2 * 64
    assert causal.flops.item() == full.flops.item() / 2


def test_grouped_heads_save_bytes_and_no_flops():
    many = attention_work(1, 32, 32, 512, 512, 128)
    few = attention_work(1, 32, 8, 512, 512, 128)
    assert few.flops.item() == many.flops.item()
    assert few.memory_bytes.item() == 2 * 2 * 512 * 128 * (32 + 8)


def test_the_backward_pass_has_five_products_to_two():
    forward = attention_work(1, 8, 8, 512, 512, 64)
    backward = attention_work(1, 8, 8, 512, 512, 64, backward=True)
    assert backward.flops.item() == 2.5 * forward.flops.item()
    assert backward.memory_bytes.item() == 2 * forward.memory_bytes.item()


Q, K = [2, 8, 512, 64], [2, 2, 512, 64]
FLIPPED = [[2, 512, 8, 64], [2, 512, 2, 64]]
FORWARD = attention_work(2, 8, 2, 512, 512, 64, causal=True)
BACKWARD = attention_work(2, 8, 2, 512, 512, 64, causal=True, backward=True)
ATTENTION_CASES = {
    "sdpa flash": (
        "aten::_scaled_dot_product_flash_attention",
        [Q, K, K, [], [], [], []],
        ["", "", "", "0.", "True", "False", ""],
        FORWARD,
    ),
    "sdpa efficient": (
        "aten::_scaled_dot_product_efficient_attention",
        [Q, K, K, [], [], [], [], []],
        ["", "", "", "", "False", "0.", "True", ""],
        FORWARD,
    ),
    "sdpa cudnn": (
        "aten::_scaled_dot_product_cudnn_attention",
        [Q, K, K, [], [], [], [], [], []],
        ["", "", "", "", "True", "0.", "True", "False", ""],
        FORWARD,
    ),
    "sdpa flash backward": (
        "aten::_scaled_dot_product_flash_attention_backward",
        [Q, Q, K, K, Q, [2, 8, 512], *[[]] * 9],
        [*[""] * 8, "512", "512", "0.", "True", "", "", ""],
        BACKWARD,
    ),
    "efficient, mask by number": (
        "aten::_efficient_attention_forward",
        [FLIPPED[0], FLIPPED[1], FLIPPED[1], *[[]] * 11],
        [*[""] * 6, "", "", "0.", "1", "True", "", "", ""],
        FORWARD,
    ),
    "flash": (
        "flash_attn::_flash_attn_forward",
        [FLIPPED[0], FLIPPED[1], FLIPPED[1], *[[]] * 8],
        ["", "", "", "0.", "0.125", "True", "-1", "-1", "0.", "", "False"],
        FORWARD,
    ),
    "flash backward": (
        "flash_attn::_flash_attn_backward",
        [FLIPPED[0], FLIPPED[0], FLIPPED[1], FLIPPED[1], FLIPPED[0], [2, 8, 512], *[[]] * 10],
        [*[""] * 9, "0.", "0.125", "True", "-1", "-1", "0.", "", "False", ""],
        BACKWARD,
    ),
    "function": (
        "FlashAttnFunc",
        [FLIPPED[0], FLIPPED[1], FLIPPED[1], *[[]] * 4],
        ["", "", "", "0.", "0.125", "True", "[-1, -1]"],
        FORWARD,
    ),
}


@pytest.mark.parametrize("case", ATTENTION_CASES)
def test_a_fused_attention_is_known_by_its_operator(case):
    name, shapes, values, right = ATTENTION_CASES[case]
    found = work(name, shapes, values=values)
    for field in ("kind", "precision", "flops", "memory_bytes", "batch", "m", "n", "k"):
        assert getattr(found, field).item() == getattr(right, field).item(), field


def test_a_window_to_the_left_of_a_query_is_causal():
    name, shapes, values, _ = ATTENTION_CASES["flash"]
    told = [*values[:5], "False", "127", "0", *values[8:]]
    right = attention_work(2, 8, 2, 512, 512, 64, causal=True, window=128)
    assert work(name, shapes, values=told).flops.item() == right.flops.item()


def test_attention_without_its_flag_has_bytes_and_no_flops():
    name, shapes, values, right = ATTENTION_CASES["sdpa flash"]
    found = work(name, shapes, values=[""] * len(values))
    assert np.isnan(found.flops.item())
    assert found.memory_bytes.item() == right.memory_bytes.item()


VARLEN = "flash_attn::_flash_attn_varlen_forward"


def varlen(longest: int) -> Work:
    """Four sequences of 512 tokens in all."""
    shapes = [[2048, 8, 64], [2048, 2, 64], [2048, 2, 64], [5], [5], *[[]] * 9]
    kinds = [BF16] * 3 + ["int"] * 2 + ["Scalar"] * 9
    values = [*[""] * 5, str(longest), str(longest), "0.", "0.1", "True", "-1", "-1", "0.", ""]
    return work(VARLEN, shapes, kinds, values)


def test_sequences_known_to_be_as_long_are_a_batch():
    right = attention_work(4, 8, 2, 512, 512, 64, causal=True)
    assert varlen(512).flops.item() == right.flops.item()
    assert varlen(512).memory_bytes.item() == right.memory_bytes.item()


def test_of_sequences_of_unknown_lengths_only_the_bytes_are_known():
    found = varlen(1024)
    assert np.isnan(found.flops.item())
    assert found.memory_bytes.item() == varlen(512).memory_bytes.item()
    assert found.kind.item() == WorkKind.ATTENTION


# What streams through memory
# ---------------------------------------------------------------------------------------

LISTED = ["TensorList", "TensorList", "Scalar"]
STREAMS = {
    "binary": ("aten::add", [[8, 16], [8, 16], []], [BF16, BF16, "Scalar"], None, 3 * 128 * 2),
    "in place": ("aten::mul_", [[8, 16], []], [BF16, "Scalar"], None, 2 * 128 * 2),
    "broadcast": ("aten::add", [[8, 16], [16], []], [FLOAT, FLOAT, "Scalar"], None, 4 * 272),
    "outer": ("aten::mul", [[8, 1], [16]], [FLOAT, FLOAT], None, 4 * (8 + 16 + 128)),
    "promoted": ("aten::add", [[16], [16]], [BF16, FLOAT], None, 16 * (2 + 4 + 4)),
    "number": ("aten::mul", [[16], []], [BF16, "double"], None, 16 * (2 + 2) + 8),
    "into a place": ("aten::exp", [[16], [16]], [FLOAT, FLOAT], None, 2 * 16 * 4),
    "compared": ("aten::lt", [[16], []], [FLOAT, "Scalar"], None, 16 * (4 + 1)),
    "masked": ("aten::masked_fill", [[8, 16], [1, 16], []], [BF16, "bool", "Scalar"], None, 528),
    "where": ("aten::where", [[16], [16], []], ["bool", BF16, BF16], None, 16 * (1 + 2 + 2) + 2),
    "cast": ("aten::copy_", [[16], [16], []], [FLOAT, BF16, "Scalar"], None, 16 * (4 + 2)),
    "clone": ("aten::clone", [[16], []], [BF16, "Scalar"], None, 2 * 16 * 2),
    "fill": ("aten::zero_", [[16]], [FLOAT], None, 64),
    "dropout": ("aten::native_dropout", [[16], [], []], [BF16, "", ""], None, 16 * (2 + 2 + 1)),
    "softmax": ("aten::_softmax", [[4, 8], [], []], [BF16, "", ""], ["", "1", "False"], 128),
    "softmax up": ("aten::_softmax", [[4, 8], [], []], [BF16, "", ""], ["", "1", "True"], 192),
    "softmax back": (
        "aten::_softmax_backward_data",
        [[4, 8], [4, 8], [], []],
        [FLOAT, FLOAT, "", ""],
        None,
        3 * 128,
    ),
    "layer norm": (
        "aten::native_layer_norm",
        [[4, 8], [], [8], [8], []],
        [BF16, "ScalarList", BF16, BF16, "Scalar"],
        None,
        2 * (32 + 8 + 8 + 32),
    ),
    "layer norm back": (
        "aten::native_layer_norm_backward",
        [[4, 8], [4, 8], [], [4, 1], [4, 1], [8], [8], []],
        [BF16, BF16, "", FLOAT, FLOAT, BF16, BF16, ""],
        None,
        2 * (32 + 32 + 8 + 8 + 32) + 4 * 8,
    ),
    "sum": ("aten::sum", [[4, 8], [], [], []], [FLOAT] + [""] * 3, ["", "[1]", "", ""], 4 * 36),
    "sum of all": ("aten::sum", [[4, 8], []], [FLOAT, ""], None, 4 * 33),
    "mean of some": ("aten::mean", [[4, 8, 2], []], [FLOAT, ""], ["", "[0, -1]"], 4 * (64 + 8)),
    "embedding": (
        "aten::embedding",
        [[1000, 64], [4, 8], [], [], []],
        [BF16, LONG, "", "", ""],
        None,
        32 * 8 + 2 * 32 * 64 * 2,
    ),
    "select": (
        "aten::index_select",
        [[1000, 64], [], [32]],
        [BF16, "Scalar", LONG],
        ["", "0", ""],
        32 * 8 + 2 * 32 * 64 * 2,
    ),
    "gather": (
        "aten::gather",
        [[100, 64], [], [8, 64], []],
        [FLOAT, "Scalar", LONG, "Scalar"],
        None,
        512 * (8 + 4 + 4),
    ),
    "pool": (
        "aten::max_pool2d_with_indices",
        [[2, 3, 8, 8], [], [], [], [], []],
        [BF16] + ["ScalarList"] * 5,
        ["", "[3, 3]", "[2, 2]", "[1, 1]", "[1, 1]", "False"],
        2 * 384 + 2 * 3 * 4 * 4 * (2 + 8),
    ),
    "generated": ("triton_poi_fused_add_0", [[16], [16], []], [BF16, FLOAT, ""], None, 96),
}


@pytest.mark.parametrize("case", STREAMS)
def test_a_stream_reads_its_operands_and_writes_its_result_once(case):
    name, shapes, kinds, values, size = STREAMS[case]
    found = work(name, shapes, kinds, values)
    assert found.memory_bytes.item() == size
    assert found.kind.item() == WorkKind.MEMORY
    assert np.isnan(found.flops.item())


LISTS = {
    "cat": ("aten::cat", [[[2, 3], [4, 3]], []], ["TensorList", "Scalar"], 2 * 18),
    "add": ("aten::_foreach_add_", [[[2, 3], [4]], [[2, 3], [4]], []], LISTED, 3 * 10),
    "copy": ("aten::_foreach_copy_", [[[2, 3], [4]], [[2, 3], [4]], []], LISTED, 2 * 10),
    "zero": ("aten::_foreach_zero_", [[[2, 3], [4]]], ["TensorList"], 10),
    "adam": ("aten::_fused_adamw_", [[[5]], [[5]], [[5]], [[5]], [], []], ["TensorList"] * 6, 35),
}


@pytest.mark.parametrize("case", LISTS)
def test_a_list_of_tensors_is_counted_in_elements(case):
    name, shapes, kinds, elements = LISTS[case]
    assert getattr(record(name, shapes, kinds), "elements") == elements  # noqa: B009


def test_lists_whose_shapes_were_not_recorded_tell_nothing():
    assert record("aten::_foreach_add_", [[], [], []], LISTED) is None
    assert record("aten::cat", [[], []], ["TensorList", "Scalar"]) is None
    assert record("aten::_fused_adamw_", [[]] * 6, ["TensorList"] * 6) is None


def test_a_generated_kernel_touches_no_more_of_a_tensor_than_it_has_points():
    shapes, kinds = [[16], [50304, 768], [16, 768], []], [LONG, BF16, BF16, "Scalar"]
    name = "triton_poi_fused_embedding_0"
    found = work(name, shapes, kinds, ["", "", "", str(16 * 768)])
    assert found.memory_bytes.item() == 16 * 8 + 2 * 16 * 768 * 2
    # Without its points, what it reads of the table is not told.
    assert record(name, shapes, kinds) is None


def test_a_type_that_is_not_known_leaves_the_bytes_unknown():
    found = work("aten::add", [[16], [16]], ["my::Type", "my::Type"])
    assert np.isnan(found.memory_bytes.item())


def test_shapes_that_are_no_shapes_tell_nothing():
    assert read_inputs("not json", None, None) is None
    assert read_inputs('{"a": 1}', None, None) is None
    assert record("aten::mm", [["s0", 5], [5, 7]], [BF16, BF16]) is None


def test_memory_and_collective_work_are_what_they_are_told():
    stream = memory_work(TaskClass.NORMALIZATION, 100, np.array([50, 100]), precision="fp32")
    assert stream.memory_bytes.tolist() == [600, 800]
    assert stream.task_class.tolist() == [TaskClass.NORMALIZATION] * 2
    sent = collective_work("reduce_scatter", 2.0**20, np.array([4, 8]), 8)
    assert sent.operation.tolist() == [2, 2]
    assert sent.ranks.tolist() == [4, 8]
    assert sent.stride.tolist() == [8, 8]
    assert sent.task_class.tolist() == [TaskClass.COMMUNICATION] * 2
    with pytest.raises(ConfigError, match="all_reduced.*expected one of all_reduce"):
        collective_work("all_reduced", 1, 2)
