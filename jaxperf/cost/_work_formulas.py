"""The work of a matrix multiply, an attention, a stream through memory and a collective."""

import difflib
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import ArrayLike

from jaxperf.cost._work import (
    COLLECTIVE_OPERATIONS,
    ELEMENT_BYTES,
    PRECISIONS,
    Work,
    WorkKind,
    unknown_work,
)
from jaxperf.errors import ConfigError
from jaxperf.graph import TaskClass

BACKWARD_FLOPS = 2.5
"""Five matrix multiplies of an attention's backward pass, to two of its forward pass."""


def matmul_work(
    m: ArrayLike,
    n: ArrayLike,
    k: ArrayLike,
    *,
    batch: ArrayLike = 1,
    precision: str | ArrayLike = "bf16",
    output_bytes: ArrayLike | None = None,
    task_class: int = TaskClass.GEMM,
) -> Work:
    """The work of matrix multiplies, `batch` times (m, k) @ (k, n).

    flops = 2 batch m n k; bytes = batch (m k + k n + m n), each operand once (roofline; NVIDIA,
    "Matrix Multiplication Background User's Guide"). A grouped multiply has its groups for a batch
    and their mean m.

    Args:
        m, n, k: () or (rows,) sizes.
        batch: () or (rows,) number of them.
        precision: type of the operands, a name of `PRECISIONS` or indices into it.
        output_bytes: size of an element of the result; that of an operand, and 2 at least, where
            not given.
        task_class: class of the tasks.

    Returns:
        One row each, as the arguments broadcast.

    Raises:
        ConfigError: there is no such precision.

    Example:
        >>> work = matmul_work(128, 256, 64)
        >>> work.flops.item(), work.memory_bytes.item()
        (4194304.0, 114688.0)
    """
    type_index = precision_index(precision)
    batch, m, n, k, type_index = _rows(batch, m, n, k, type_index)
    size = _element_bytes(type_index)
    if output_bytes is None:
        output_bytes = np.maximum(size, 2.0)
    work = replace(
        _known(len(m), WorkKind.MATMUL, task_class),
        precision=type_index.astype(np.int8),
        flops=2 * batch * m * n * k,
        memory_bytes=batch * ((m * k + k * n) * size + m * n * np.asarray(output_bytes, float)),
    )
    return replace(work, batch=batch, m=m, n=n, k=k)


def attention_work(
    batch: ArrayLike,
    heads: ArrayLike,
    key_value_heads: ArrayLike,
    queries: ArrayLike,
    keys: ArrayLike,
    head_size: ArrayLike,
    *,
    causal: ArrayLike = False,
    window: ArrayLike = np.inf,
    backward: ArrayLike = False,
    precision: str | ArrayLike = "bf16",
) -> Work:
    """The work of fused attentions, which keep their scores on the chip.

    flops = 4 batch heads pairs head_size, with pairs = queries keys, and half of it where as many
    queries as keys are causal; 2.5 times that backward (Dao, arXiv 2307.08691, section 4.1). Bytes:
    queries, keys, values and results once; backward their gradients too.

    Args:
        batch: () or (rows,) sequences.
        heads, key_value_heads: () or (rows,) heads of the queries, and of keys and values.
        queries, keys: () or (rows,) length of a sequence of each.
        head_size: () or (rows,) size of a head.
        causal: () or (rows,) a query sees the keys up to its own; the last query sees all of them.
        window: () or (rows,) keys that a causal query sees at most.
        backward: () or (rows,) it is the backward pass.
        precision: type of the operands, a name of `PRECISIONS` or indices into it.

    Returns:
        One row each, as the arguments broadcast.

    Raises:
        ConfigError: there is no such precision.

    Example:
        >>> attention_work(1, 16, 16, 2048, 2048, 128, causal=True).flops.item()
        17179869184.0
    """
    type_index = precision_index(precision)
    batch, heads, kv, queries, keys, size, masked, window, back, type_index = _rows(
        batch,
        heads,
        key_value_heads,
        queries,
        keys,
        head_size,
        causal,
        window,
        backward,
        type_index,
    )
    pairs = np.where(masked > 0, _causal_pairs(queries, keys, window), queries * keys)
    elements = 2 * batch * size * (heads * queries + kv * keys)
    work = replace(
        _known(len(batch), WorkKind.ATTENTION, TaskClass.ATTENTION),
        precision=type_index.astype(np.int8),
        flops=4 * batch * heads * pairs * size * np.where(back > 0, BACKWARD_FLOPS, 1.0),
        memory_bytes=elements * np.where(back > 0, 2, 1) * _element_bytes(type_index),
    )
    return replace(work, batch=batch * heads, m=queries, n=keys, k=size)


def memory_work(
    task_class: ArrayLike,
    elements_read: ArrayLike,
    elements_written: ArrayLike,
    *,
    precision: str | ArrayLike = "bf16",
    element_bytes: ArrayLike | None = None,
) -> Work:
    """The work of tasks that stream their operands through memory once.

    Their flops are not counted: memory bounds them.

    Args:
        task_class: () or (rows,) a `TaskClass`, such as NORMALIZATION.
        elements_read, elements_written: () or (rows,) how many.
        precision: type of an element, a name of `PRECISIONS` or indices into it.
        element_bytes: size of an element; that of the type where not given.

    Returns:
        One row each, as the arguments broadcast.

    Raises:
        ConfigError: there is no such precision.

    Example:
        >>> memory_work(TaskClass.ELEMENTWISE, 3000, 1000).memory_bytes
        array([8000.])
    """
    type_index = precision_index(precision)
    kind, read, written, type_index = _rows(task_class, elements_read, elements_written, type_index)
    size = _element_bytes(type_index) if element_bytes is None else np.asarray(element_bytes, float)
    return replace(
        _known(len(kind), WorkKind.MEMORY, TaskClass.OTHER),
        task_class=kind.astype(np.int8),
        precision=type_index.astype(np.int8),
        memory_bytes=(read + written) * size,
    )


def collective_work(
    operation: str | ArrayLike,
    message_bytes: ArrayLike,
    ranks: ArrayLike,
    stride: ArrayLike = 1,
) -> Work:
    """The work of collectives.

    Args:
        operation: a name of `COLLECTIVE_OPERATIONS`, or indices into it.
        message_bytes: () or (rows,) the whole buffer, see `Work`.
        ranks: () or (rows,) members.
        stride: () or (rows,) distance between neighbours of the group, see `Work`.

    Returns:
        One row each, as the arguments broadcast.

    Raises:
        ConfigError: there is no such operation.

    Example:
        >>> collective_work("all_reduce", 2**20, 8).message_bytes
        array([1048576.])
    """
    index = _index(operation, COLLECTIVE_OPERATIONS, "operation")
    index, message, ranks, stride = _rows(index, message_bytes, ranks, stride)
    return replace(
        _known(len(index), WorkKind.COLLECTIVE, TaskClass.COMMUNICATION),
        operation=index.astype(np.int8),
        message_bytes=message,
        ranks=ranks,
        stride=stride,
    )


def precision_index(precision: str | ArrayLike) -> np.ndarray:
    """Index into `PRECISIONS` of a type by its name; indices pass unchanged, -1 for none.

    Raises:
        ConfigError: there is no such precision.

    Example:
        >>> precision_index("bf16").item()
        4
    """
    return _index(precision, PRECISIONS, "precision")


def _causal_pairs(queries: np.ndarray, keys: np.ndarray, window: np.ndarray) -> np.ndarray:
    """Query-key pairs under a causal mask: the area below min(position, window).

    The queries are the last of the keys' positions; where they are more than the keys, the first of
    them see none.
    """
    first = np.maximum(keys - queries, 0.0)
    most = np.minimum(window, keys)
    bend = np.maximum(most, first)
    return (bend**2 - first**2) / 2 + (keys - bend) * most


def _index(value: str | ArrayLike, names: Sequence[str], what: str) -> np.ndarray:
    if not isinstance(value, str):
        return np.asarray(value)
    if value not in names:
        near = difflib.get_close_matches(value, names, n=3, cutoff=0.5) or names
        expected = f"one of {', '.join(near)}"
        raise ConfigError(f"no such {what}", where=what, got=repr(value), expected=expected)
    return np.asarray(names.index(value))


def _element_bytes(type_index: np.ndarray) -> np.ndarray:
    known = type_index >= 0
    return np.where(known, ELEMENT_BYTES[np.where(known, type_index, 0).astype(int)], np.nan)


def _rows(*columns: ArrayLike) -> list[np.ndarray]:
    shape = np.broadcast_shapes(*(np.shape(column) for column in columns), (1,))
    return [np.array(np.broadcast_to(np.asarray(c, np.float64), shape)) for c in columns]


def _known(rows: int, kind: WorkKind, task_class: int) -> Work:
    return replace(
        unknown_work(rows),
        kind=np.full(rows, kind, np.int8),
        task_class=np.full(rows, task_class, np.int8),
    )
