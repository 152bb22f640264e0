"""Which of the kernels that one operator launched does how much of its work."""

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

from jaxperf.cost._operator_work import Attention, Backward, Matmul, OperatorWork, Single, Stream
from jaxperf.cost._work import PRECISIONS
from jaxperf.graph import TaskClass

Share = tuple[Single, float] | None
"""A record and the part of it; `None` where it is not known."""

# What libraries do before and after the work itself: layouts, offsets, partial sums, conversions.
_HELPER = re.compile(
    r"splitk_?reduce|reduce_?splitk|reduce_wgrad|nchwToNhwc|nhwcToNchw|CNHW2NCHW|batched_transpose"
    r"|transpose_readWrite|SubTensorOp|scalePackedTensor|compute\w*Offsets|kern_precompute"
    r"|flip_filter|im2col|col2im|memset|fill|epilogue::|globalKernel|dot_do_o|convert_?dq"
    r"|preprocess|postprocess|prepare_|combine|scal_kernel",
    re.IGNORECASE,
)
_WEIGHT = re.compile(r"wgrad|wrw|bwd_?weight", re.IGNORECASE)
_DATA = re.compile(r"dgrad|bwd_?data|igemm_bwd|_bwd_(?!weight)", re.IGNORECASE)
_REDUCED = re.compile(r"tf32|_s1688|_s16816|s161616|xf32", re.IGNORECASE)
_ELEMENT = re.compile(
    r"OpaqueType<(?P<size>\d+)|\b(?P<name>double|float|c10::Half|c10::BFloat16|__half|__nv_bfloat16"
    r"|long|int|bool|unsigned char|signed char)\b|_(?P<letter>[sdh])(gemm|cudnn)"
)
_LETTERS = {"s": "float", "d": "double", "h": "c10::Half"}
_TYPES = {
    "double": (8, "fp64"),
    "float": (4, "fp32"),
    "c10::Half": (2, "fp16"),
    "c10::BFloat16": (2, "bf16"),
    "__half": (2, "fp16"),
    "__nv_bfloat16": (2, "bf16"),
    "long": (8, ""),
    "int": (4, ""),
    "bool": (1, ""),
    "unsigned char": (1, ""),
    "signed char": (1, "int8"),
}
_MULTIPLIES = (
    TaskClass.GEMM,
    TaskClass.CONVOLUTION,
    TaskClass.ATTENTION,
    TaskClass.MOE,
    TaskClass.OTHER,
)


@dataclass(frozen=True, slots=True)
class Kernel:
    """What the name of a kernel says.

    Attributes:
        task_class: its class.
        helps: it prepares or finishes the work of another.
        for_weight, for_data: it is a part of a convolution's backward pass.
        reduced: it computes products of 32-bit floats in tf32.
        element_bytes, precision: size and type of its elements, NaN and -1 where not said.
    """

    task_class: int
    helps: bool
    for_weight: bool
    for_data: bool
    reduced: bool
    element_bytes: float
    precision: int


@lru_cache(maxsize=2**16)
def kernel(name: str, task_class: int) -> Kernel:
    """What the name of a kernel says."""
    weight = bool(_WEIGHT.search(name))
    size, precision = _element(name)
    return Kernel(
        task_class,
        bool(_HELPER.search(name)),
        weight,
        not weight and bool(_DATA.search(name)),
        bool(_REDUCED.search(name)),
        size,
        PRECISIONS.index(precision) if precision else -1,
    )


def _element(name: str) -> tuple[float, str]:
    """Size and type of the elements, by the first type that is named."""
    found = _ELEMENT.search(name)
    if found is None:
        return math.nan, ""
    if found["size"]:
        return float(found["size"]), ""
    return _TYPES[found["name"] or _LETTERS[found["letter"]]]


def shares(
    work: OperatorWork, kernels: Sequence[Kernel], duration_ns: Sequence[float], innermost: bool
) -> list[Share]:
    """The part of an operator's work that each of its kernels does.

    A matrix multiply, a convolution or an attention is done by the kernels that are no helpers; of
    several each does what its time is of theirs. A stream is shared by all of them in that way.

    Args:
        work: of the operator.
        kernels: that it launched, in order.
        duration_ns: how long each takes.
        innermost: no other operator stands between it and the launches.

    Returns:
        A share for each kernel.
    """
    if isinstance(work, Stream):
        chosen = [k.task_class != TaskClass.COMMUNICATION for k in kernels]
        return _by_time([work] * len(kernels), chosen, duration_ns)
    able = [not k.helps and k.task_class in _MULTIPLIES for k in kernels]
    if not any(able) and innermost and sum(not k.helps for k in kernels) == 1:
        able = [not k.helps for k in kernels]
    if isinstance(work, Matmul | Attention):
        if isinstance(work, Attention) and any(
            k.task_class == TaskClass.ATTENTION for k in kernels
        ):
            able = [
                a and k.task_class == TaskClass.ATTENTION
                for a, k in zip(able, kernels, strict=True)
            ]
        found = _by_time([work] * len(kernels), able, duration_ns)
        return [
            share or (_cleared(work, k) if innermost and any(able) else None)
            for share, k in zip(found, kernels, strict=True)
        ]
    return _backward(work, kernels, able, duration_ns)


def _cleared(work: Matmul | Attention, k: Kernel) -> Share:
    """What fills the result of a multiply before it, with a bias or zeros, writes all of it."""
    if k.helps or k.task_class != TaskClass.ELEMENTWISE:
        return None
    if isinstance(work, Attention) or work.memory_bytes is not None:
        return None
    return Stream(work.batch * work.m * work.n * work.output_bytes, precision=work.precision), 1.0


def _by_time(
    records: Sequence[Single | None],
    chosen: Sequence[bool],
    duration_ns: Sequence[float],
    parts: Sequence[str] | None = None,
) -> list[Share]:
    """Each part is shared by those of the chosen kernels that belong to it."""
    # A kernel shorter than the clock's tick takes part all the same.
    time = [max(t, 1) if yes else 0 for t, yes in zip(duration_ns, chosen, strict=True)]
    parts = parts or [""] * len(records)
    total: dict[str, float] = {}
    for part, t in zip(parts, time, strict=True):
        total[part] = total.get(part, 0) + t
    return [
        (record, t / total[part]) if t and record is not None else None
        for record, t, part in zip(records, time, parts, strict=True)
    ]


def _backward(
    work: Backward, kernels: Sequence[Kernel], able: Sequence[bool], duration_ns: Sequence[float]
) -> list[Share]:
    data, weight = work.data, work.weight
    if work.told and (data is None or weight is None):
        return _by_time([data or weight] * len(kernels), able, duration_ns)
    roles = ["weight" if k.for_weight else "data" if k.for_data else "" for k in kernels]
    if work.told:
        roles = _by_order(roles, able)
        if {role for role, yes in zip(roles, able, strict=True) if yes} != {"data", "weight"}:
            return _by_time([_both(work)] * len(kernels), able, duration_ns)
    records = [{"data": data, "weight": weight, "": None}[role] for role in roles]
    return _by_time(records, able, duration_ns, roles)


def _by_order(roles: Sequence[str], able: Sequence[bool]) -> list[str]:
    """The gradient of the data is made first: that gives a role to kernels whose name does not."""
    at = [i for i, yes in enumerate(able) if yes]
    weights = [i for i in at if roles[i] == "weight"]
    datas = [i for i in at if roles[i] == "data"]
    if weights:
        begin = weights[0]
    elif datas:
        begin = datas[-1] + 1
    elif len(at) == 2:
        begin = at[1]
    else:
        return list(roles)
    return [role or ("data" if i < begin else "weight") for i, role in enumerate(roles)]


def _both(work: Backward) -> Matmul | None:
    """Both gradients as one multiply: that of the data, twice."""
    data, weight = work.data, work.weight
    if data is None or weight is None:
        return data or weight
    size = (data.memory_bytes or math.nan) + (weight.memory_bytes or math.nan)
    return replace(data, batch=2 * data.batch, memory_bytes=size)
