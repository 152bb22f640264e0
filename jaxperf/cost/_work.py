"""What a task has to do, whatever the machine: floating-point operations, bytes, messages."""

import enum
from collections.abc import Iterator
from dataclasses import dataclass, fields

import numpy as np

PRECISIONS = ("fp64", "fp32", "tf32", "fp16", "bf16", "fp8", "int8", "fp4")
"""Types that a matrix unit computes in; `Work.precision` and `Device.peak_flops_per_s` index it."""

ELEMENT_BYTES = np.array([8.0, 4.0, 4.0, 2.0, 2.0, 1.0, 1.0, 0.5])
"""(precisions,) size of an element of each type in memory."""

COLLECTIVE_OPERATIONS = (
    "all_reduce",
    "all_gather",
    "reduce_scatter",
    "all_to_all",
    "broadcast",
    "send_receive",
)
"""Kinds of communication; `Work.operation` indexes it. A reduce to one rank is a broadcast."""


class WorkKind(enum.IntEnum):
    """Which model tells how long a task takes."""

    UNKNOWN = 0  # nothing is known of it but its class
    MATMUL = 1  # matrix multiply, grouped and batched ones and convolutions included
    ATTENTION = 2
    MEMORY = 3  # bound by memory: everything that streams its operands once
    COLLECTIVE = 4


@dataclass(frozen=True, eq=False)
class Work:
    """The work of n tasks, as columns. Unknown is -1 in integer columns and NaN in the others.

    Attributes:
        kind: (n,) int8, a `WorkKind`.
        task_class: (n,) int8, a `TaskClass`.
        precision: (n,) int8, index into `PRECISIONS`.
        flops: (n,) float64, floating-point operations, a multiply-add counted as two.
        memory_bytes: (n,) float64, read and written once each.
        batch, m, n, k: (n,) float64, of a matrix multiply `batch` times (m, k) @ (k, n). Of
            attention: batch and heads, queries, keys, and size of a head.
        operation: (n,) int8, index into `COLLECTIVE_OPERATIONS`.
        message_bytes: (n,) float64, of a collective: the whole buffer, as nccl-tests counts it: all
            ranks' parts together of an all-gather or reduce-scatter, and what one rank holds
            otherwise.
        ranks: (n,) float64, members of the group.
        stride: (n,) float64, distance between the ranks of neighbours in the group.
    """

    kind: np.ndarray
    task_class: np.ndarray
    precision: np.ndarray
    flops: np.ndarray
    memory_bytes: np.ndarray
    batch: np.ndarray
    m: np.ndarray
    n: np.ndarray
    k: np.ndarray
    operation: np.ndarray
    message_bytes: np.ndarray
    ranks: np.ndarray
    stride: np.ndarray

    def __len__(self) -> int:
        return len(self.kind)


_INTEGERS = frozenset({"kind", "task_class", "precision", "operation"})


def unknown_work(tasks: int) -> Work:
    """Work of which nothing is known.

    Example:
        >>> unknown_work(2).flops
        array([nan, nan])
    """
    columns = {
        field.name: np.full(tasks, -1, np.int8)
        if field.name in _INTEGERS
        else np.full(tasks, np.nan)
        for field in fields(Work)
    }
    columns["kind"][:] = WorkKind.UNKNOWN
    columns["task_class"][:] = 0
    return Work(**columns)


def select_work(work: Work, rows: np.ndarray) -> Work:
    """The work of some of the tasks.

    Args:
        work: of all of them.
        rows: (k,) indices, or a mask.

    Returns:
        The work of those.
    """
    return Work(**{field.name: getattr(work, field.name)[rows] for field in fields(Work)})


_QUANTITIES = {
    WorkKind.MATMUL: ("matmul", ("flops", "memory_bytes", "m", "n", "k")),
    WorkKind.ATTENTION: ("attention", ("flops", "memory_bytes", "m", "n", "k")),
    WorkKind.MEMORY: ("memory", ("memory_bytes",)),
    WorkKind.COLLECTIVE: ("collective", ("message_bytes", "ranks")),
}


def work_quantities(work: Work) -> Iterator[tuple[str, np.ndarray, np.ndarray]]:
    """The sizes by which work may be within the range of a fit or outside of it.

    Args:
        work: of n tasks.

    Yields:
        Name of the quantity, such as `matmul.flops`; (k,) the tasks that have it; (k,) its values.
    """
    for kind, (field, names) in _QUANTITIES.items():
        for name in names:
            values = getattr(work, name)
            rows = np.flatnonzero((work.kind == kind) & np.isfinite(values))
            yield f"{field}.{name}", rows, values[rows]


def distinct_work(work: Work, tasks: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Tasks that do the same work.

    Args:
        work: of all tasks.
        tasks: (k,) the tasks to look at.

    Returns:
        (w,) index into `tasks` of the first with each different piece of work; and (k,) which piece
        each does.

    Example:
        >>> distinct_work(unknown_work(3), np.array([0, 2]))
        (array([0]), array([0, 0]))
    """
    rows = np.stack([getattr(work, field.name)[tasks] for field in fields(Work)], 1)
    # What is unknown is the same, and -1 stands for it: NaN is not even equal to itself.
    rows = np.ascontiguousarray(np.nan_to_num(rows.astype(np.float64), nan=-1.0))
    key = rows.view(np.dtype((np.void, rows.dtype.itemsize * rows.shape[1]))).reshape(-1)
    _, first, inverse = np.unique(key, return_index=True, return_inverse=True)
    return first, inverse.reshape(-1)
