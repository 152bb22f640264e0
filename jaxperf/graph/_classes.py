"""Which class a kernel belongs to, by its name."""

import enum
import re
from collections.abc import Sequence
from functools import lru_cache

import numpy as np

from jaxperf.trace import Trace


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


# The first pattern that is found in the name decides, so the narrow ones stand first.
_PATTERNS: tuple[tuple[TaskClass, str], ...] = (
    (
        TaskClass.COMMUNICATION,
        # NCCL old and new, RCCL, oneCCL; DeepEP; symmetric memory and custom all-reduces.
        r"nccl|rccl|oneccl|ccl_kernel|deep_ep::|dpsk::ep|multimem_|nvshmem|rocshmem"
        r"|cross_device_reduce|custom_all_?reduce|(one|two)_?shot_all_?reduce|all_?reduce_kernel"
        r"|allreduce_(one|two)shot|quick_?reduce|symm_mem|lamport|mscclpp?|c10d::",
    ),
    (
        TaskClass.ATTENTION,
        r"flash|fmha|attention|attn|mha_|\bmla\b|_mla_|scaled_dot|paged_?att|sdpa",
    ),
    (
        TaskClass.CONVOLUTION,
        r"conv(?!ert)|winograd|implicit_gemm|xmma_(fprop|wgrad|dgrad)|cudnn.*(fprop|wgrad|dgrad)"
        r"|(wgrad|dgrad)_(alg|engine)|scudnn|im2col|col2im|flip_filter|fft[12]d"
        r"|miopen.*(igemm|bwd|fwd)"
        r"|cudnn::(?!bn).*nchw",
    ),
    (TaskClass.MOE, r"\bmoe|_moe|topk_?gating|expert|permute_?tokens|moe_align"),
    (
        TaskClass.GEMM,
        r"gemm|gemv|cutlass|cublas|xmma|matmul|\bmm\b|_mm_|Cijk_|nvjet|wgmma|splitk|dot_kernel"
        r"|ampere_.*(s16816|sgemm|h16816)|volta_.*(sgemm|884)|turing_.*(sgemm|1688)|\bdot\b",
    ),
    (
        TaskClass.OPTIMIZER,
        r"multi_tensor_apply|adam|\bsgd|\blamb\b|_lamb|fused_optimizer|adagrad|rmsprop|foreach",
    ),
    (
        TaskClass.EMBEDDING,
        r"(?<!rotary_)embedding|indexSelect|index_select|\btbe\b|split_embedding|jagged",
    ),
    (
        TaskClass.NORMALIZATION,
        r"layer_?norm|rms_?norm|batch_?norm|group_?norm|bn_(fw|bw)|\bnorm|_norm|BatchNorm"
        r"|LayerNorm|GammaBeta|GroupNorm",
    ),
    (
        TaskClass.ELEMENTWISE,
        r"elementwise|pointwise|triton_poi|triton_per|triton_red|reduce_kernel|softmax|copy"
        r"|fill|\bcat|Cat|dropout|gelu|relu|silu|activation|transpose|scatter|gather|index|where"
        r"|cast|arange|sort|cumsum|scan|random|distribution|pool|upsample|nll_loss|cross_entropy"
        r"|triu_tril|rotary|rope|flip|triton__\d|PackedTensor|SubTensorOp",
    ),
)

_COMPILED = tuple((kind, re.compile(pattern, re.IGNORECASE)) for kind, pattern in _PATTERNS)

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


# The ranks of a run have their names in common, and a name costs as much as a thousand events.
@lru_cache(maxsize=2**16)
def classify_kernel(name: str) -> TaskClass:
    """The class of a kernel by its name; `OTHER` where nothing matches.

    Example:
        >>> classify_kernel("ncclDevKernel_AllReduce_Sum_bf16_RING_LL").name
        'COMMUNICATION'
        >>> classify_kernel("my_own_kernel").name
        'OTHER'
    """
    for kind, pattern in _COMPILED:
        if pattern.search(name):
            return kind
    return TaskClass.OTHER


def classify_names(names: Sequence[str]) -> np.ndarray:
    """(len(names),) int8, the class of each name of a table, decided once per name."""
    return np.fromiter((classify_kernel(name) for name in names), np.int8, len(names))


def communicates(trace: Trace, row: np.ndarray) -> np.ndarray:
    """(k,) bool, device work that says so in its arguments or by its name."""
    classes = classify_names(trace.names)
    return (trace.collective[row] >= 0) | (classes[trace.name[row]] == TaskClass.COMMUNICATION)
