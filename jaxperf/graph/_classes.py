"""Which class a kernel belongs to, by its name; and how a user adds names to the table."""

import difflib
import enum
import os
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import msgspec
import numpy as np

from jaxperf.config import load_toml
from jaxperf.errors import ConfigError
from jaxperf.trace import Note, Trace

# Kernels of no known class that a note names, and how much of a name it shows.
_NAMED = 3
_SHOWN = 60


class TaskClass(enum.IntEnum):
    """Classes that results are summed by and what-ifs select by (see the command line's help)."""

    OTHER = 0
    GEMM = 1
    ATTENTION = 2
    CONVOLUTION = 3
    NORMALIZATION = 4
    ELEMENTWISE = 5
    OPTIMIZER = 6
    EMBEDDING = 7
    MOE = 8
    MEMCPY = 9
    COMMUNICATION = 10
    HOST = 11
    LAUNCH = 12


COMPUTE_CLASSES: frozenset[TaskClass] = frozenset(
    {
        TaskClass.OTHER,
        TaskClass.GEMM,
        TaskClass.ATTENTION,
        TaskClass.CONVOLUTION,
        TaskClass.NORMALIZATION,
        TaskClass.ELEMENTWISE,
        TaskClass.OPTIMIZER,
        TaskClass.EMBEDDING,
        TaskClass.MOE,
    }
)
"""The classes that the selector `compute` stands for: every kernel that does not communicate."""

KERNEL_CLASS_NAMES = tuple(
    sorted(c.name.lower() for c in (COMPUTE_CLASSES | {TaskClass.COMMUNICATION}))
)
"""Classes that a kernel can have, as a table of the user names them."""


@dataclass(frozen=True, eq=False)
class KernelClasses:
    """A table of kernel names.

    Attributes:
        rows: class and regular expression. The first expression that is found anywhere in a name,
            upper or lower case, decides.
    """

    rows: tuple[tuple[TaskClass, str], ...]


_INDUCTOR = r"^triton_(poi|per|red|unk|split_scan)_"
_NORM = r"(layer|rms|batch|group|instance)_?norm"

KERNEL_CLASSES = KernelClasses(
    (
        # Inductor names a kernel after all operators in it: what it was made as comes first.
        (TaskClass.ATTENTION, r"^triton_tem_.*(flex_attention|flex_decoding)"),
        (TaskClass.CONVOLUTION, r"^triton_tem_.*conv"),
        (TaskClass.GEMM, r"^triton_tem_"),
        (TaskClass.OPTIMIZER, r"^triton_for_"),
        (TaskClass.NORMALIZATION, _INDUCTOR + r".*" + _NORM),
        (TaskClass.EMBEDDING, _INDUCTOR + r".*(?<!rotary_)embedding"),
        (TaskClass.ELEMENTWISE, _INDUCTOR + r"|^triton__\d"),
        (
            TaskClass.COMMUNICATION,
            # NCCL old and new, its symmetric kernels and RCCL; oneCCL; MSCCL and MSCCL++.
            r"nccl|rccl|oneccl|ccl_kernel|msccl"
            # DeepEP, hybrid and Mori's expert parallelism, TensorRT-LLM's all-to-all of experts.
            r"|deep_ep|dpsk::ep|hybrid_ep|mori::|EpDispatch|EpCombine|moe_?(a2a|alltoall|all_to_all)"
            r"|nvshmem|rocshmem|symm_mem|multimem_|userbuffers"
            # All-reduces of vLLM, SGLang, aiter, TensorRT-LLM, FlashInfer and PyTorch.
            r"|cross_device_reduce|custom_all_?reduce|quick_?reduce|lamport"
            r"|(one|two)_?shot_?(all_?)?(reduce|gather)|all_?reduce_?(kernel|fusion|(one|two)_?shot)"
            r"|mnnvl|ar_fusion|all_?to_?all_kernel|all_?gather_kernel|reduce_?scatter_kernel"
            r"|c10d::(?!.*checkForNaN)",
        ),
        (
            TaskClass.EMBEDDING,
            # FBGEMM's tables, and what sorts and bounds their indices.
            r"split_embedding|dense_embedding|embedding_(codegen|forward|backward)|\btbe\b"
            r"|bounds_check_indices|linearize_index|block_bucketize|permute_(1D|2D|indices|pooled)"
            r"|recat_|jagged|fbgemm_gpu::\w*(offsets|lengths)",
        ),
        (
            TaskClass.ELEMENTWISE,
            # Writes into a cache of keys and values, and the indices of its pages.
            r"reshape_and_cache|store_kv|set_kv|copy_kv|concat_and_cache|kv_ind(ex|ices)"
            r"|page_indices",
        ),
        (
            TaskClass.ATTENTION,
            r"flash_?(attn|attention|fwd|bwd|mla|decod)|\bflash::|fmha|sdpa|scaled_dot"
            r"|attention|attn|\bmha|_mha|\bmla\b|_mla_|Batch(Prefill|Decode|MLA)|Single(Prefill|Decode)"
            r"|^_(fwd|bwd)(_grouped)?_kernel(_stage\d|_aligned|_d[kqv]|$)",
        ),
        (
            TaskClass.NORMALIZATION,
            _NORM
            + r"|bn_(fw|bw)|GammaBeta|RowwiseMoments|\bln_(fwd|bwd)|qk_?norm|cuComputeGradInput"
            r"|(?<!vector)(?<!grad)_norm(?!al)|\bnorm(?!al)",
        ),
        (
            TaskClass.CONVOLUTION,
            r"conv(?!ert)|winograd|implicit_gemm|(xmma_|cudnn.*|tensorop_\w*)(fprop|wgrad|dgrad)"
            r"|(wgrad|dgrad)_?(2d|alg|engine|nchw)|scudnn|im2col|col2im"
            r"|igemm_(fwd|bwd|wrw)|(bwd|fwd)_(weight|data)|flip_filter|fft[12]d|gcnAsm"
            # What their libraries do before and after: layouts, offsets, partial sums.
            r"|nchwToNhwc|nhwcToNchw|CNHW2NCHW|batched_transpose_\d|SubTensorOp|scalePackedTensor"
            r"|cask_\w*cudnn|kern_precompute_indices",
        ),
        (
            TaskClass.MOE,
            r"\bmoe|_moe|topk_?gating|grouped_?topk|expert|permute_?tokens|\bep_(scatter|gather)"
            r"|_ep_(scatter|gather)|_combined_routing|_topk_forward|_sum_bitmatrix|matmul_scatter",
        ),
        (
            TaskClass.GEMM,
            r"(?<!fb)gemm|gemv|cutlass|cublas|xmma|matmul|\bmm\b|_mm_|\bbmm_|Cijk_|nvjet|wgmma"
            r"|splitk|dot_kernel|\bdot\b"
            r"|ampere_.*(s16816|sgemm|h16816)|volta_.*(sgemm|884)|turing_.*(sgemm|1688)",
        ),
        (
            TaskClass.OPTIMIZER,
            r"multi_tensor_|adam|\bsgd|\blamb\b|_lamb|fused_optimizer|adagrad|rmsprop|foreach",
        ),
        (TaskClass.EMBEDDING, r"(?<!rotary_)embedding|index_?select"),
        (
            TaskClass.ELEMENTWISE,
            r"element_?wise|point_?wise|reduce|reduction|softmax|copy|fill|memset|CatArray"
            r"|(?<![a-z])(con)?cat(?![a-z])|dropout|gelu|relu|silu|swiglu|activation|act_and_mul"
            r"|transpose|scatter|gather|index|indices|(?<![a-z])where(?![a-z])|quant|arange|sort|topk"
            r"|cumsum|(?<![a-z])cast|autocast|fp8_?(rowwise|qparam)|hfp8|scan|random|distribution"
            r"|pool|upsample|nll|cross_?entropy|tri[ul]_|rotary|(?<![a-z])rope|flip|amp_update"
            # XLA's fusions.
            r"|^(loop|input|wrapped)_\w+"
            r"|(?<![a-z])cub::Device|rocprim",
        ),
    )
)
"""The table that is used where none is given."""


def extend_classes(
    rows: Iterable[tuple[str, str]], classes: KernelClasses = KERNEL_CLASSES
) -> KernelClasses:
    """A table with rows of one's own before those of another.

    Args:
        rows: name of a class, such as `communication`, and a regular expression.
        classes: the table to put them before.

    Returns:
        The longer table.

    Raises:
        ConfigError: a class is unknown, or an expression is not valid.

    Example:
        >>> mine = extend_classes([("gemm", "^my_own")])
        >>> classify_kernel("my_own_kernel", mine).name
        'GEMM'
    """
    return _extended(rows, classes, "kernel classes")


def load_classes(
    path: str | os.PathLike[str], classes: KernelClasses = KERNEL_CLASSES
) -> KernelClasses:
    """A table with the rows of a file before those of another.

    Args:
        path: a TOML file of tables `[[kernel]]` with `class` and `pattern`.
        classes: the table to put them before.

    Returns:
        The longer table.

    Raises:
        ConfigError: the file cannot be read, or something in it is unknown or not valid.
    """
    rows = load_toml(Path(path), _ClassRows).kernel
    return _extended([(row.class_name, row.pattern) for row in rows], classes, str(path))


class _ClassRow(msgspec.Struct, frozen=True):
    class_name: str = msgspec.field(name="class")
    pattern: str


class _ClassRows(msgspec.Struct, frozen=True):
    kernel: list[_ClassRow]


def _extended(rows: Iterable[tuple[str, str]], classes: KernelClasses, where: str) -> KernelClasses:
    known = []
    for number, (name, pattern) in enumerate(rows):
        if name.lower() not in KERNEL_CLASS_NAMES:
            near = difflib.get_close_matches(name.lower(), KERNEL_CLASS_NAMES, n=3, cutoff=0.5)
            raise ConfigError(
                "no such class",
                where=f"{where}: row {number + 1}",
                got=repr(name),
                expected=f"one of {', '.join(near or KERNEL_CLASS_NAMES)}",
            )
        try:
            re.compile(pattern)
        except re.error as error:
            raise ConfigError(
                "not a regular expression",
                where=f"{where}: row {number + 1}",
                got=f"{pattern!r} ({error})",
            ) from None
        known.append((TaskClass[name.upper()], pattern))
    return KernelClasses((*known, *classes.rows))


@lru_cache(maxsize=64)
def _compiled(classes: KernelClasses) -> tuple[tuple[TaskClass, re.Pattern[str]], ...]:
    return tuple((kind, re.compile(pattern, re.IGNORECASE)) for kind, pattern in classes.rows)


# The ranks of a run have their names in common, and a name costs as much as a thousand events.
@lru_cache(maxsize=2**16)
def classify_kernel(name: str, classes: KernelClasses = KERNEL_CLASSES) -> TaskClass:
    """The class of a kernel by its name; `OTHER` where nothing matches.

    Args:
        name: as the profiler writes it.
        classes: the table of names.

    Returns:
        The class.

    Example:
        >>> classify_kernel("ncclDevKernel_AllReduce_Sum_bf16_RING_LL").name
        'COMMUNICATION'
        >>> classify_kernel("my_own_kernel").name
        'OTHER'
    """
    for kind, pattern in _compiled(classes):
        if pattern.search(name):
            return kind
    return TaskClass.OTHER


def classify_names(names: Sequence[str], classes: KernelClasses = KERNEL_CLASSES) -> np.ndarray:
    """(len(names),) int8, the class of each name of a table, decided once per name."""
    return np.fromiter((classify_kernel(name, classes) for name in names), np.int8, len(names))


def communicates(
    trace: Trace, row: np.ndarray, classes: KernelClasses = KERNEL_CLASSES
) -> np.ndarray:
    """(k,) bool, device work that says so in its arguments or by its name."""
    found = classify_names(trace.names, classes)
    return (trace.collective[row] >= 0) | (found[trace.name[row]] == TaskClass.COMMUNICATION)


def unclassified(trace: Trace, row: np.ndarray, task_class: np.ndarray) -> tuple[Note, ...]:
    """What to note of the kernels whose name no row of the table matches.

    Args:
        trace: the trace of a rank.
        row: (k,) rows of its device work.
        task_class: (k,) class of each.

    Returns:
        One note with their number, share of the device's time and the largest of them; none where
        every kernel is known.
    """
    other = row[task_class == TaskClass.OTHER]
    if not len(other):
        return ()
    time_ns = np.bincount(trace.name[other], trace.duration_ns[other], len(trace.names))
    percent = 100 * time_ns.sum() / max(1, int(trace.duration_ns[row].sum()))
    largest = np.argsort(-time_ns, kind="stable")[:_NAMED].tolist()
    named = ", ".join(_shown(trace.names[n]) for n in largest if time_ns[n] > 0)
    text = f"{len(other)} kernels, {percent:.1f} % of the device's time, are of no known class"
    where = trace.files[0] if trace.files else None
    return (Note("other-kernels", f"{text}: most in {named}" if named else text, where),)


def _shown(name: str) -> str:
    """`void (anonymous namespace)::f<int>(int)` is shown as `f`."""
    return re.split(r"[<(]", name.replace("(anonymous namespace)::", ""))[0][-_SHOWN:].removeprefix(
        "void "
    )
