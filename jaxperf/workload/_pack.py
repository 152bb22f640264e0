"""Pieces as the columns that the cost models read, on the host or on the device."""

from collections.abc import Sequence
from dataclasses import fields
from typing import Any

import jax.numpy as jnp
import numpy as np

from jaxperf.cost import COLLECTIVE_OPERATIONS, PRECISIONS, Work
from jaxperf.workload._pieces import Piece

_NUMBERS = ("flops", "memory_bytes", "batch", "m", "n", "k", "message_bytes", "ranks", "stride")


def pack_work(pieces: Sequence[Piece]) -> Work:
    """The work of some pieces, as columns on the host.

    Args:
        pieces: n of them, their numbers known.

    Returns:
        The work of n tasks.

    Example:
        >>> from jaxperf.workload._pieces import multiply
        >>> pack_work([multiply("qkv", 128, 256, 64, precision="bf16")]).flops
        array([4194304.])
    """
    columns = {name: np.array([getattr(p, name) for p in pieces], float) for name in _NUMBERS}
    return Work(**_kinds(pieces), **columns)


def pack_traced_work(pieces: Sequence[Piece]) -> Work:
    """The work of some pieces whose numbers may be traced: `cost_us` has gradients in them.

    Args:
        pieces: n of them, each number a scalar.

    Returns:
        The work of n tasks, its kinds on the host and its numbers on the device.

    Example:
        >>> from jaxperf.workload._pieces import multiply
        >>> import jax
        >>> def flops(m):
        ...     return pack_traced_work([multiply("up", m, 4.0, 8.0, precision="bf16")]).flops[0]
        >>> float(jax.grad(flops)(3.0))
        64.0
    """
    kind = jnp.result_type(float)
    columns: dict[str, Any] = {
        name: jnp.stack([jnp.asarray(getattr(piece, name), kind) for piece in pieces])
        for name in _NUMBERS
    }
    return Work(**_kinds(pieces), **columns)


def _kinds(pieces: Sequence[Piece]) -> dict[str, np.ndarray]:
    operation = [COLLECTIVE_OPERATIONS.index(p.operation) if p.operation else -1 for p in pieces]
    return {
        "kind": np.array([piece.kind for piece in pieces], np.int8),
        "task_class": np.array([piece.task_class for piece in pieces], np.int8),
        "precision": np.array([PRECISIONS.index(piece.precision) for piece in pieces], np.int8),
        "operation": np.array(operation, np.int8),
    }


assert {*_NUMBERS, "kind", "task_class", "precision", "operation"} == {
    field.name for field in fields(Work)
}
