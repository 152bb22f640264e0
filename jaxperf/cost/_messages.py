"""The work of a collective: from what the profiler said of it, from its operator, from its name."""

import math
import re
from dataclasses import dataclass

from jaxperf.cost._operator_inputs import Inputs
from jaxperf.cost._work import COLLECTIVE_OPERATIONS
from jaxperf.trace import Collective


@dataclass(frozen=True, slots=True)
class Message:
    """One collective; see `collective_work`. Unknown is -1 and NaN."""

    operation: int = -1
    message_bytes: float = math.nan
    ranks: float = math.nan
    stride: float = math.nan


# Sizes by the names of c10::ScalarType.
_ELEMENT_BYTES = {
    "Double": 8,
    "Long": 8,
    "Float": 4,
    "Int": 4,
    "Half": 2,
    "BFloat16": 2,
    "Short": 2,
    "Char": 1,
    "Byte": 1,
    "Bool": 1,
    "Float8_e4m3fn": 1,
    "Float8_e4m3fnuz": 1,
    "Float8_e5m2": 1,
    "Float8_e5m2fnuz": 1,
    "ComplexFloat": 8,
    "ComplexDouble": 16,
}

# In order: the first that is found in the name without its underscores decides.
_OPERATIONS = (
    ("allreduce", "all_reduce"),
    ("crossdevicereduce", "all_reduce"),
    ("quickreduce", "all_reduce"),
    ("barrier", "all_reduce"),
    ("reducescatter", "reduce_scatter"),
    ("allgather", "all_gather"),
    ("alltoall", "all_to_all"),
    ("broadcast", "broadcast"),
)
_TO_ONE = re.compile(r"^(nccl(dev)?kernel|nccl:|c10d::)?reduce")
_OPERATORS = re.compile(
    r"^(nccl|c10d|_c10d_functional\w*|gloo|mpi|ucc|xccl|symm_mem|vllm|sglang|sgl_kernel|aiter)\b"
)
_PEERS = re.compile(r"^(send|recv|isend|irecv)$")
# DeepEP sends tokens to their experts and back.
_EXPERTS = re.compile(r"(deep_ep|dpsk::ep|hybrid_ep|mori)\b.*(dispatch|combine)", re.IGNORECASE)
# A kernel of NCCL alone does not tell: an all-to-all is made of sends and receives too.
_UNTOLD = re.compile(r"sendrecv|generic", re.IGNORECASE)
_PEERS_KERNEL = re.compile(r"sendrecv", re.IGNORECASE)
RECORDER = "record_param_comms"
"""The operator by which PyTorch notes the parameters of a collective."""
# Its inputs end with the group's first rank, stride and size; with its size alone in older traces.
_WITH_STRIDE = 10


def operation_index(name: str) -> int:
    """Index into `COLLECTIVE_OPERATIONS` of what a name says, -1 where it does not.

    Args:
        name: of a collective as the profiler writes it, of an operator, or of a kernel.

    Returns:
        The index.

    Example:
        >>> operation_index("_reduce_scatter_base"), operation_index("ncclDevKernel_SendRecv")
        (2, -1)
    """
    if _PEERS.match(name.removeprefix("nccl:")):
        return _index("send_receive")
    if _EXPERTS.search(name):
        return _index("all_to_all")
    plain = re.split(r"[<(]", name)[0].replace("_", "").lower()
    if _UNTOLD.search(plain):
        return -1
    for word, operation in _OPERATIONS:
        if word in plain:
            return _index(operation)
    return _index("broadcast") if _TO_ONE.search(plain) else -1


def is_collective(name: str) -> bool:
    """Whether an operator of this name is a collective that its name tells."""
    return bool(_OPERATORS.search(name)) and operation_index(name) >= 0


def message_of_collective(collective: Collective, kernel: str, world_size: int | None) -> Message:
    """The work of a collective that the profiler described.

    Args:
        collective: what it wrote.
        kernel: name of the kernel, which tells where that does not.
        world_size: ranks of the job, `None` where not known.

    Returns:
        The work, with NaN for what is not told.
    """
    operation = operation_index(collective.name)
    if operation < 0:
        operation = operation_index(kernel)
    ranks = collective.group_size or len(collective.ranks) or math.nan
    size = _ELEMENT_BYTES.get(collective.dtype or "", math.nan)
    sent, received = collective.in_elements, collective.out_elements
    whole = max(sent or 0, received or 0) if sent is not None or received is not None else math.nan
    if operation == _index("all_to_all") and sent:
        whole = sent  # what one rank holds; with uneven parts it receives another number
    return Message(operation, whole * size, ranks, _stride(collective, world_size))


def message_of_operator(
    name: str, inputs: Inputs | None, kernel: str, group: Inputs | None = None
) -> Message:
    """The work of a collective of which the trace holds operators alone.

    Args:
        name: of the operator, empty where there is none.
        inputs: its inputs; the first tensor is what a rank gives.
        kernel: name of the kernel.
        group: inputs of the `RECORDER` around it, which tell its group.

    Returns:
        The work, with NaN for what is not told.
    """
    operation = operation_index(name)
    by_peers = operation in (_index("all_to_all"), _index("send_receive"))
    if operation < 0 or (_PEERS_KERNEL.search(kernel) and not by_peers):
        operation = operation_index(kernel)
    ranks, stride = _group(group)
    tensors = inputs.tensors() if inputs is not None else []
    given = inputs.bytes(tensors[0]) if inputs is not None and tensors else math.nan
    if operation == _index("all_gather"):
        given *= ranks  # the tensor is one rank's part
    return Message(operation, given if given > 0 else math.nan, ranks, stride)


def _group(recorder: Inputs | None) -> tuple[float, float]:
    """Ranks and stride: the last values; older traces lack the stride."""
    if recorder is None:
        return math.nan, math.nan
    count = len(recorder.values)
    ranks = recorder.number(count - 1)
    stride = recorder.number(count - 2) if count >= _WITH_STRIDE else None
    if not ranks or ranks < 1:
        return math.nan, math.nan
    return ranks, stride if stride else math.nan


def _index(operation: str) -> int:
    return COLLECTIVE_OPERATIONS.index(operation)


def _stride(collective: Collective, world_size: int | None) -> float:
    """Distance between neighbours, where it is the same for all of them."""
    ranks = sorted(set(collective.ranks))
    if len(ranks) > 1:
        steps = {after - before for before, after in zip(ranks, ranks[1:], strict=False)}
        return float(steps.pop()) if len(steps) == 1 else math.nan
    if world_size is not None and collective.group_size == world_size > 1:
        return 1.0
    return math.nan
