"""What NCCL chooses from and the numbers it chooses by; bandwidths as nccl-tests give them."""

import numpy as np

from jaxperf.cost._work import COLLECTIVE_OPERATIONS
from jaxperf.errors import ConfigError

ALGORITHMS = ("ring", "tree", "nvls", "direct")
"""Ring; chain in a node, tree over nodes; reduction in the switch; each rank with each other."""

PROTOCOLS = ("LL", "LL128", "Simple")

CHOICES = (
    ("ring", "LL"),
    ("ring", "LL128"),
    ("ring", "Simple"),
    ("tree", "LL"),
    ("tree", "LL128"),
    ("tree", "Simple"),
    ("nvls", "Simple"),
    ("direct", "LL"),
    ("direct", "Simple"),
)
"""Algorithm and protocol of each choice; per-choice parameters are indexed by it."""

CHOICE_NAMES = tuple(f"{algorithm}-{protocol}" for algorithm, protocol in CHOICES)
"""Such as `ring-LL128`."""

CHOICE_ALGORITHM = np.array([ALGORITHMS.index(algorithm) for algorithm, _ in CHOICES])
CHOICE_PROTOCOL = np.array([PROTOCOLS.index(protocol) for _, protocol in CHOICES])

# What NCCL takes each choice to cost: `ncclTunerConstants` and `ncclTopoTuneModel` of NVIDIA/nccl
# src/graph/tuning.cc, by choice. It never estimates the exchange of all with all.
TUNER_BASE_US = np.array([6.6, 14.0, 8.4, 6.8, 14.0, 8.4, 25.0, 0.0, 0.0])
TUNER_NODE_STEP_US = np.array([0.6, 1.9, 3.4, 0.6, 1.25, 4.0, 0.0, 0.0, 0.0])
TUNER_NETWORK_STEP_US = np.array([2.7, 4.0, 14.0, 5.0, 8.5, 14.0, 20.9, 0.0, 0.0])
TUNER_BUS_SHARE = np.array([1 / 3, 0.92, 1.0, 0.92 / 3.8, 0.92 * 7 / 9, 0.92, 0.65, 1.0, 1.0])
# A ring with LL reaches a quarter of the bus where it reduces on the way in both directions.
TUNER_LL_ALL_REDUCE_SHARE = 1 / 4
# On the way through a network no step is quicker than its posting.
TUNER_POST_US = np.array([1.0, 1.0, 3.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0])

# Share of its bandwidth that a tree reaches, LL, LL128 and Simple, by powers of two from 64 bytes.
TREE_CORRECTION = np.array(
    [
        [1, 1, 1, 1, 0.9, 0.8, 0.7, 0.7, 0.7, 0.7, 0.6, 0.5]
        + [0.4, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1, 1, 1, 1, 1],
        [1, 1, 1, 1, 1, 0.9, 0.8, 0.8, 0.8, 0.7, 0.6, 0.6]
        + [0.6, 0.6, 0.6, 0.6, 0.8, 0.9, 0.9, 0.9, 0.9, 1, 1, 1],
        [0.9, 0.9, 0.9, 0.9, 0.9, 0.9, 0.9, 0.8, 0.7, 0.6, 0.6, 0.5]
        + [0.5, 0.5, 0.5, 0.6, 0.7, 0.8, 0.7, 0.7, 0.8, 0.9, 0.9, 0.9],
    ]
)


def algorithm_bandwidth_bytes_per_s(
    operation: str | np.ndarray,
    message_bytes: np.ndarray | float,
    ranks: np.ndarray | float,
    time_us: np.ndarray | float,
) -> np.ndarray:
    """Size over time: `algbw` of nccl-tests (NVIDIA/nccl-tests doc/PERFORMANCE.md).

    Args:
        operation: name, or (n,) indices into `COLLECTIVE_OPERATIONS`; -1 is unknown.
        message_bytes: (n,) the whole buffer, as in `Work`.
        ranks: (n,) members of the group.
        time_us: (n,) how long it took.

    Returns:
        (n,) bytes per second; NaN where anything is unknown or the time is not positive.

    Raises:
        ConfigError: there is no such operation.

    Example:
        >>> float(algorithm_bandwidth_bytes_per_s("all_reduce", 268435456.0, 8, 2000.0)) / 1e9
        134.217728
    """
    known = (_operations(operation) >= 0) & (np.asarray(ranks) >= 1)
    time_us = np.asarray(time_us, np.float64)
    known = known & (time_us > 0)
    size = np.asarray(message_bytes, np.float64)
    return np.where(known, size / np.where(known, time_us, 1.0) * 1e6, np.nan)


def bus_bandwidth_bytes_per_s(
    operation: str | np.ndarray,
    message_bytes: np.ndarray | float,
    ranks: np.ndarray | float,
    time_us: np.ndarray | float,
) -> np.ndarray:
    """Bandwidth that a link must have for it: `busbw` of nccl-tests (doc/PERFORMANCE.md).

    Args:
        operation: name, or (n,) indices into `COLLECTIVE_OPERATIONS`; -1 is unknown.
        message_bytes: (n,) the whole buffer, as in `Work`.
        ranks: (n,) members of the group.
        time_us: (n,) how long it took.

    Returns:
        (n,) bytes per second: the algorithm's bandwidth times 2(n-1)/n for an all-reduce, (n-1)/n
        for an all-gather, reduce-scatter or all-to-all, and 1 otherwise; 0 in a group of one where
        the factor is; NaN where anything is unknown or the time is not positive.

    Raises:
        ConfigError: there is no such operation.

    Example:
        >>> float(bus_bandwidth_bytes_per_s("all_reduce", 268435456.0, 8, 2000.0)) / 1e9
        234.881024
    """
    speed = algorithm_bandwidth_bytes_per_s(operation, message_bytes, ranks, time_us)
    members = np.asarray(ranks, np.float64)
    others = (members - 1) / np.where(members >= 1, members, 1.0)
    one = np.ones_like(others)
    factor = np.select(
        [_operations(operation) == index for index in range(len(COLLECTIVE_OPERATIONS))],
        [2 * others, others, others, others, one, one],
        np.nan,
    )
    return speed * factor


def _operations(operation: str | np.ndarray) -> np.ndarray:
    """Indices of operations that exist, or -1."""
    if isinstance(operation, str):
        if operation not in COLLECTIVE_OPERATIONS:
            raise _no_such(operation)
        return np.array(COLLECTIVE_OPERATIONS.index(operation))
    index = np.asarray(operation)
    wrong = (index < -1) | (index >= len(COLLECTIVE_OPERATIONS))
    if wrong.any():
        raise _no_such(str(index[wrong][0]))
    return index


def _no_such(operation: str) -> ConfigError:
    return ConfigError(
        "no such collective operation",
        got=operation,
        expected=f"one of {', '.join(COLLECTIVE_OPERATIONS)}, or their indices",
    )
