"""Operators that stream their operands through memory: what they read and write, once each."""

import math
import re
from collections.abc import Callable

from jaxperf.cost._operator_inputs import UNKNOWN_TYPE, ElementType, Inputs, Shape
from jaxperf.cost._operator_matmul import broadcast
from jaxperf.cost._operator_work import Stream

_BOOL, _LONG = 1.0, 8.0
_ANY = 9


def _read(inputs: Inputs) -> float:
    return sum(inputs.bytes(i) for i in inputs.tensors())


def _stream(inputs: Inputs, memory_bytes: float, elements: float = 0.0) -> Stream | None:
    tensors = inputs.tensors()
    kind = inputs.type(tensors[0]) if tensors else UNKNOWN_TYPE
    return Stream(memory_bytes, elements, kind.precision) if memory_bytes or elements else None


def _widest(inputs: Inputs, tensors: list[int]) -> ElementType:
    """The type that a result of several tensors has: floats before whole numbers, large ones."""
    kinds = [inputs.type(i) for i in tensors]
    if any(math.isnan(kind.bytes) for kind in kinds):
        return UNKNOWN_TYPE
    # A tensor without dimensions does not widen one that has some.
    wide = [inputs.type(i) for i in tensors if inputs.tensor(i)] or kinds
    return max(wide, key=lambda kind: (kind.precision >= 0, kind.bytes))


def _pointwise(
    inputs: Inputs, operands: int = _ANY, result_bytes: float | None = None
) -> Stream | None:
    """Every operand is read; the result has the shape that they broadcast to.

    Tensors beyond the operands are places for the result.
    """
    tensors = inputs.tensors()[:operands]
    shape = broadcast(*(inputs.tensor(i) or () for i in tensors)) if tensors else None
    if shape is None:
        return None
    size = _widest(inputs, tensors).bytes if result_bytes is None else result_bytes
    return _stream(inputs, sum(map(inputs.bytes, tensors)) + math.prod(shape) * size)


def _where(inputs: Inputs) -> Stream | None:
    tensors = inputs.tensors()
    if len(tensors) < 2:
        return None
    shape = broadcast(*(inputs.tensor(i) or () for i in tensors))
    if shape is None:
        return None
    return _stream(inputs, _read(inputs) + math.prod(shape) * _widest(inputs, tensors[1:]).bytes)


def _like(inputs: Inputs, first: int = 0, more: float = 0.0) -> Stream | None:
    """Every tensor is read; the result is like one of them, and more bytes."""
    if inputs.tensor(first) is None:
        return None
    return _stream(inputs, _read(inputs) + inputs.bytes(first) + more)


def _written(inputs: Inputs) -> Stream | None:
    """The first tensor is overwritten."""
    return _stream(inputs, inputs.bytes(0)) if inputs.tensor(0) is not None else None


def _copied(inputs: Inputs) -> Stream | None:
    target, source = inputs.tensor(0), inputs.tensor(1)
    if target is None or source is None:
        return None
    return _stream(inputs, inputs.bytes(0) + inputs.bytes(1))


def _dropout(inputs: Inputs) -> Stream | None:
    return _like(inputs, more=inputs.elements(0) * _BOOL)


def _softmax(inputs: Inputs) -> Stream | None:
    result = 4.0 if inputs.flag(2) else inputs.type(0).bytes
    return _stream(inputs, inputs.bytes(0) + inputs.elements(0) * result)


def _reduced(inputs: Inputs, axes: int, keeps: float = 1.0) -> Stream | None:
    """The tensor is read; the result is counted where its axes are told."""
    shape = inputs.tensor(0)
    if not shape:
        return None
    told = inputs.numbers(axes)
    if told is None and (one := inputs.number(axes)) is not None:
        told = (int(one),)
    left = 1.0
    if told and all(-len(shape) <= axis < len(shape) for axis in told):
        gone = {axis % len(shape) for axis in told}
        left = math.prod(size for axis, size in enumerate(shape) if axis not in gone)
    return _stream(inputs, inputs.bytes(0) + left * keeps * inputs.type(0).bytes)


def _normalized(inputs: Inputs) -> Stream | None:
    """Forward: input and parameters are read, a result like the input is written."""
    return _like(inputs)


def _gradient(inputs: Inputs) -> Stream | None:
    """Backward: gradient, input and the rest are read, a gradient like the input is written."""
    return _like(inputs)


def _all_once(inputs: Inputs) -> Stream | None:
    """An operator that is given its results: each tensor is read or written."""
    return _stream(inputs, _read(inputs))


def _updated(inputs: Inputs, count: int) -> Stream | None:
    """The first tensors are read and written, the rest are read."""
    changed = sum(inputs.bytes(i) for i in range(count))
    return _stream(inputs, _read(inputs) + changed)


def _rotated(inputs: Inputs) -> Stream | None:
    """Queries and keys are read and written, and rows of a table are read by their position."""
    table = inputs.tensor(4)
    if inputs.tensor(0) is None or not table or len(table) != 2:
        return None
    rows = inputs.elements(0) * table[1] * inputs.type(4).bytes
    return _stream(inputs, inputs.bytes(0) + rows + 2 * (inputs.bytes(1) + inputs.bytes(2)))


def _rows(inputs: Inputs, table: int, index: int, shape: Shape | None = None) -> Stream | None:
    """Rows of a table are read by their index, and written one after the other."""
    weight, rows = inputs.tensor(table), inputs.tensor(index)
    if not weight or rows is None:
        return None
    moved = math.prod(rows) * math.prod(weight[1:]) if shape is None else math.prod(shape)
    return _stream(inputs, 2 * moved * inputs.type(table).bytes + inputs.bytes(index))


def _selected(inputs: Inputs) -> Stream | None:
    """Of index_select: along an axis that older traces do not tell."""
    x, index = inputs.tensor(0), inputs.tensor(2)
    axis = inputs.number(1)
    if axis is None and x and len(x) == 1:
        axis = 0.0
    if not x or index is None or axis is None or not -len(x) <= axis < len(x):
        return None
    size = x[int(axis)]
    moved = math.prod(x) / size * math.prod(index) if size else 0.0
    return _stream(inputs, 2 * moved * inputs.type(0).bytes + inputs.bytes(2))


def _scattered(inputs: Inputs) -> Stream | None:
    """scatter, index_add: index and source are read; as much of the target is read and written."""
    index, source = inputs.tensor(2), inputs.tensor(3)
    if index is None:
        return None
    moved = inputs.elements(3) if source is not None else inputs.elements(2)
    return _stream(inputs, inputs.bytes(2) + inputs.bytes(3) + 2 * moved * inputs.type(0).bytes)


def _gathered(inputs: Inputs) -> Stream | None:
    if inputs.tensor(0) is None or inputs.tensor(2) is None:
        return None
    return _stream(inputs, inputs.bytes(2) + 2 * inputs.elements(2) * inputs.type(0).bytes)


def _joined(inputs: Inputs) -> Stream | None:
    """cat, stack: a list of tensors is read and written; its type is not told."""
    return _lists(inputs, 1)


def _lists(inputs: Inputs, written: int) -> Stream | None:
    """Lists of tensors: all are read, the first of them are written."""
    lists = [inputs.list_of(i) for i in range(len(inputs.shapes))]
    sizes = [sum(map(math.prod, shapes)) for shapes in lists if shapes]
    if not sizes:
        return None
    kinds = inputs.types[: len(inputs.shapes)]
    if any(kind == "TensorList" and not shapes for kind, shapes in zip(kinds, lists, strict=False)):
        return None  # a list whose shapes were not recorded
    return _stream(inputs, 0.0, float(sum(sizes) + sum(sizes[:written])))


def _pooled(inputs: Inputs, dimensions: int, index_bytes: float) -> Stream | None:
    """Windows of the input are read, one value of each is written, and where it was."""
    x = inputs.tensor(0)
    window, stride, padding = (inputs.numbers(i) for i in (1, 2, 3))
    if not x or len(x) < dimensions or not window or padding is None:
        return None
    stride = stride or window
    windows, strides, paddings = (_each(told, dimensions) for told in (window, stride, padding))
    if windows is None or strides is None or paddings is None or 0 in strides:
        return None
    places = zip(x[-dimensions:], windows, strides, paddings, strict=True)
    kept = math.prod((i + 2 * p - w) // s + 1 for i, w, s, p in places)
    result = math.prod(x[:-dimensions]) * kept
    return _stream(inputs, inputs.bytes(0) + result * (inputs.type(0).bytes + index_bytes))


def _each(told: tuple[int, ...], dimensions: int) -> tuple[int, ...] | None:
    return told * dimensions if len(told) == 1 else told if len(told) == dimensions else None


def _resized(inputs: Inputs) -> Stream | None:
    """The last dimensions become what the second input says."""
    x, size = inputs.tensor(0), inputs.numbers(1)
    if not x or not size or len(size) >= len(x):
        return None
    result = math.prod(x[: -len(size)]) * math.prod(size)
    return _stream(inputs, inputs.bytes(0) + result * inputs.type(0).bytes)


def _pool_gradient(inputs: Inputs) -> Stream | None:
    return _like(inputs, 1)


def _table_gradient(inputs: Inputs) -> Stream | None:
    """Gradients of rows are read, and added to those of the table; to clear it is another task."""
    return _stream(inputs, inputs.bytes(1) + 3 * inputs.bytes(0)) if inputs.tensor(0) else None


_UNARY = """
neg abs exp exp2 expm1 log log2 log10 log1p sqrt rsqrt reciprocal sin cos tan asin acos atan sinh
cosh tanh erf erfc erfinv floor ceil round trunc frac sign sgn square sigmoid relu relu6 gelu silu
elu celu selu leaky_relu hardtanh hardswish hardsigmoid softplus mish log_sigmoid_forward logit
nan_to_num threshold tril triu glu bitwise_not
""".split()
_BINARY = """
add sub rsub mul div true_divide floor_divide remainder fmod pow atan2 maximum minimum fmax fmin
copysign hypot masked_fill threshold_backward sigmoid_backward tanh_backward gelu_backward
silu_backward elu_backward leaky_relu_backward hardtanh_backward hardswish_backward
hardsigmoid_backward softplus_backward mish_backward logit_backward native_dropout_backward
bitwise_and bitwise_or bitwise_xor bitwise_left_shift bitwise_right_shift __and__ __or__ __xor__
__iand__ __ior__ __ixor__ __lshift__ __rshift__ _masked_scale polar
""".split()
_OTHERS = """
clamp clamp_min clamp_max lerp addcmul addcdiv prelu _prelu_kernel mse_loss mse_loss_backward
smooth_l1_loss smooth_l1_loss_backward huber_loss binary_cross_entropy_backward
""".split()
_TESTS = "isnan isinf isfinite signbit logical_not".split()
_COMPARISONS = "eq ne lt le gt ge logical_and logical_or logical_xor".split()
_COPIES = "clone contiguous flip roll _conj_physical logcumsumexp cumsum cumprod".split()
_OVERWRITES = """
fill zero normal uniform bernoulli random exponential log_normal geometric cauchy
""".split()
_NORMS = """
native_layer_norm layer_norm rms_norm _fused_rms_norm native_group_norm group_norm batch_norm
native_batch_norm cudnn_batch_norm miopen_batch_norm _native_batch_norm_legit
_batch_norm_with_update _batch_norm_no_update instance_norm
""".split()
_NORM_GRADIENTS = """
native_layer_norm_backward _fused_rms_norm_backward native_group_norm_backward
native_batch_norm_backward cudnn_batch_norm_backward miopen_batch_norm_backward
batch_norm_backward evaluate_batch_norm_backward
""".split()
_AXES_REDUCED = """
sum nansum mean amax amin max min argmax argmin prod all any var std logsumexp count_nonzero
""".split()
_ONE_LIST = """
_foreach_add _foreach_sub _foreach_mul _foreach_div _foreach_addcdiv _foreach_addcmul
_foreach_sqrt _foreach_lerp _foreach_neg _foreach_reciprocal _foreach_maximum _foreach_minimum
_foreach_pow _foreach_exp _foreach_abs _foreach_clamp_max _foreach_clamp_min _foreach_sign
_foreach_rsqrt
""".split()

MEMORIES: dict[str, Callable[[Inputs], Stream | None]] = {
    **{f"aten::{name}": lambda x: _pointwise(x, 1) for name in _UNARY},
    **{f"aten::{name}": lambda x: _pointwise(x, 2) for name in _BINARY},
    **{f"aten::{name}": _pointwise for name in _OTHERS},
    **{f"aten::{name}": lambda x: _pointwise(x, 1, _BOOL) for name in _TESTS},
    **{f"aten::{name}": lambda x: _pointwise(x, 2, _BOOL) for name in _COMPARISONS},
    **{f"aten::{name}": _like for name in _COPIES},
    **{f"aten::{name}": _written for name in _OVERWRITES},
    **{f"aten::{name}": _normalized for name in _NORMS},
    **{f"aten::{name}": _gradient for name in _NORM_GRADIENTS},
    **{f"aten::{name}": lambda x: _reduced(x, 1) for name in _AXES_REDUCED},
    **{f"aten::{name}": lambda x: _lists(x, 1) for name in _ONE_LIST},
    "aten::norm": lambda x: _reduced(x, 2),
    "aten::linalg_vector_norm": lambda x: _reduced(x, 2),
    "aten::var_mean": lambda x: _reduced(x, 1, 2.0),
    "aten::where": _where,
    "aten::copy": _copied,
    "aten::native_dropout": _dropout,
    "aten::_softmax": _softmax,
    "aten::_log_softmax": _softmax,
    "aten::_softmax_backward_data": _like,
    "aten::_log_softmax_backward_data": _like,
    "aten::cat": _joined,
    "aten::_cat": _joined,
    "aten::embedding": lambda x: _rows(x, 0, 1),
    "aten::embedding_dense_backward": _table_gradient,
    "aten::index_select": _selected,
    "aten::gather": _gathered,
    "aten::scatter": _scattered,
    "aten::scatter_add": _scattered,
    "aten::index_add": _scattered,
    "aten::index_copy": _scattered,
    "aten::max_pool2d_with_indices": lambda x: _pooled(x, 2, _LONG),
    "aten::max_pool3d_with_indices": lambda x: _pooled(x, 3, _LONG),
    "aten::avg_pool2d": lambda x: _pooled(x, 2, 0.0),
    "aten::avg_pool3d": lambda x: _pooled(x, 3, 0.0),
    "aten::_adaptive_avg_pool2d": _resized,
    "aten::upsample_bilinear2d": _resized,
    "aten::upsample_nearest2d": _resized,
    "aten::max_pool2d_with_indices_backward": _pool_gradient,
    "aten::max_pool3d_with_indices_backward": _pool_gradient,
    "aten::avg_pool2d_backward": _pool_gradient,
    "aten::_adaptive_avg_pool2d_backward": _pool_gradient,
    "aten::_foreach_zero": lambda x: _lists(x, 0),
    "aten::_foreach_copy": lambda x: _lists(x, 0),
    "aten::_foreach_norm": lambda x: _lists(x, 0),
    "aten::_fused_adam": lambda x: _optimizer(x),
    "aten::_fused_adamw": lambda x: _optimizer(x),
    "aten::_fused_sgd": lambda x: _fused(x, (0, 2)),
    "aten::_fused_adagrad": lambda x: _fused(x, (0, 2)),
    # Functions of Apex and Megatron.
    "ScaledUpperTriangMaskedSoftmax": _like,
    "ScaledMaskedSoftmax": _like,
    "ScaledSoftmax": _like,
    "FusedLayerNormAffineFunction": _normalized,
    "FusedRMSNormAffineFunction": _normalized,
    # Of inference engines: the result comes first.
    "_C::rms_norm": _all_once,
    "_C::silu_and_mul": _all_once,
    "_C::gelu_and_mul": _all_once,
    "_C::static_scaled_fp8_quant": _all_once,
    "_C::fused_add_rms_norm": lambda x: _updated(x, 2),
    "_C::rotary_embedding": _rotated,
    "sgl_kernel::rotary_embedding": _rotated,
    "sgl_kernel::rmsnorm": _all_once,
    "sgl_kernel::silu_and_mul": _all_once,
    "sgl_kernel::fused_add_rmsnorm": lambda x: _updated(x, 2),
    "aiter::rmsnorm": _all_once,
    "aiter::add_rmsnorm": _all_once,
}
"""By name of the operator, in-place or not."""


def _fused(inputs: Inputs, changed: tuple[int, ...]) -> Stream | None:
    """Parameters, gradients and states in lists: all are read, some are written."""
    lists = [inputs.list_of(i) for i in range(len(inputs.shapes))]
    if len(lists) < 2 or not lists[0] or not lists[1]:
        return None
    sizes = [float(sum(map(math.prod, shapes))) for shapes in lists]
    return _stream(inputs, 0.0, sum(sizes) + sum(sizes[i] for i in changed if i < len(sizes)))


def _optimizer(inputs: Inputs) -> Stream | None:
    """Adam: parameters and both moments are written."""
    return _fused(inputs, (0, 2, 3))


_LOOKS_UP = re.compile(r"embedding|index|gather|scatter|nll_loss")


def generated(name: str, inputs: Inputs) -> Stream | None:
    """A kernel that Inductor generated, from its arguments.

    It goes over its points once, so of no tensor it reads or writes more elements than it has
    points: of a slice it is given the whole. Its last whole numbers are its points along each axis.
    """
    counts = [int(value) for value in inputs.values if value.isdigit()]
    points = float(math.prod(counts)) if counts else math.inf
    if not counts and _LOOKS_UP.search(name):
        return None
    sizes = [min(inputs.elements(i), points) * inputs.type(i).bytes for i in inputs.tensors()]
    return _stream(inputs, sum(sizes))
