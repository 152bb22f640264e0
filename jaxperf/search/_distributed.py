"""The rows of a batch shared out over the processes that JAX itself has joined.

For jobs that have started `jax.distributed` already. All processes call the same function with the
same batch, and all get all of its rows. A process that is lost ends the others: what may be lost,
or comes and goes, is for the shards of `jaxperf.search._parts`.
"""

from collections.abc import Callable

import jax
import numpy as np
from jax.experimental import multihost_utils

BLOCK = 1 << 12
"""Rows that are worked out together, by however many processes: so that all bits are the same."""


def distributed_rows(
    function: Callable[[np.ndarray], dict[str, np.ndarray]], index: np.ndarray, block: int = BLOCK
) -> dict[str, np.ndarray]:
    """Columns of a batch, each process working out its share of the blocks.

    Args:
        function: the columns of some rows, by name, from their numbers; the same names each time.
        index: (rows,) numbers, the same in all processes.
        block: rows that the function gets at once.

    Returns:
        (rows, ...) by name, in every process.

    Example:
        >>> distributed_rows(lambda rows: {"square": rows**2}, np.arange(3), block=2)
        {'square': array([0, 1, 4])}
    """
    blocks = [index[at : at + block] for at in range(0, max(1, len(index)), block)]
    count = jax.process_count()
    turns = -(-len(blocks) // count)
    # Where blocks do not come out even, some are worked out twice: gathered are equal shares.
    mine = [min(turn * count + jax.process_index(), len(blocks) - 1) for turn in range(turns)]
    shares = [function(blocks[number]) for number in mine]
    found = {}
    for name in shares[0]:
        padded = np.stack([_padded(share[name], block) for share in shares])
        # As bytes: JAX would gather float64 as float32 where that is its default.
        every = multihost_utils.process_allgather(padded.view(np.uint8), tiled=False)
        every = np.asarray(every).reshape(count, *padded.view(np.uint8).shape).view(padded.dtype)
        rows = every.swapaxes(0, 1).reshape(-1, *padded.shape[2:])
        found[name] = rows[: len(index)]
    return found


def _padded(column: np.ndarray, rows: int) -> np.ndarray:
    filled = np.zeros((rows, *column.shape[1:]), column.dtype)
    filled[: len(column)] = column
    return filled
