"""What power follows from: the tasks of accelerators, when they ran, and what they had to do."""

from dataclasses import dataclass, fields

import jax
import numpy as np

SHORTEST_US = 1e-3
"""A task that takes no time draws what it needs within one tick of the trace's clock."""


@dataclass(frozen=True, eq=False)
class PowerTasks:
    """Kernels, copies and collectives on the accelerators of a run, at the nominal clock.

    Attributes:
        ranks: the ranks, one accelerator each.
        ranks_alike: (ranks,) float64, how many each stands for, itself included.
        begin_us, end_us: of the span that power is asked of, such as the steady steps.
        task: (n,) int32, of the graph.
        rank: (n,) int32, index into `ranks`.
        task_class: (n,) int32, a `TaskClass`.
        start_us, duration_us: (n,) float64, when it ran.
        is_known: (n,) bool, whether its work is known; where not, the next are 0.
        precision: (n,) int32, index into `PRECISIONS`, 0 where `flops` is 0.
        flops, memory_bytes: (n,) float64.
        node_bytes, network_bytes: (n,) float64, that it sends inside the node, and beyond.
        clock_share: (n,) float64, 0 to 1: the part of its time that is inverse to the clock.
    """

    ranks: tuple[int, ...]
    ranks_alike: np.ndarray
    begin_us: float
    end_us: float
    task: np.ndarray
    rank: np.ndarray
    task_class: np.ndarray
    start_us: np.ndarray
    duration_us: np.ndarray
    is_known: np.ndarray
    precision: np.ndarray
    flops: np.ndarray
    memory_bytes: np.ndarray
    node_bytes: np.ndarray
    network_bytes: np.ndarray
    clock_share: np.ndarray

    def __len__(self) -> int:
        return len(self.task)


jax.tree_util.register_dataclass(
    PowerTasks,
    [field.name for field in fields(PowerTasks) if field.name != "ranks"],
    ["ranks"],
)


def share_between(
    tasks: PowerTasks, begin_us: float | np.ndarray, end_us: float | np.ndarray
) -> np.ndarray:
    """How much of each task runs in a span.

    Args:
        tasks: n tasks.
        begin_us, end_us: (n,) or () of the span.

    Returns:
        (n,) 0 to 1; of a task that takes no time, whether it starts in the span.

    Example:
        >>> share_between(tasks, tasks.begin_us, tasks.end_us).max()
        np.float64(1.0)
    """
    start_us, duration_us = tasks.start_us, tasks.duration_us
    inside_us = np.minimum(start_us + duration_us, end_us) - np.maximum(start_us, begin_us)
    part = np.clip(inside_us / np.where(duration_us > 0, duration_us, 1.0), 0.0, 1.0)
    return np.where(duration_us > 0, part, (begin_us <= start_us) & (start_us < end_us))
