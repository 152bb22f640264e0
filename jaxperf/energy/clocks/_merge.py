"""Tasks that have one clock, as one: power and energy are sums of what tasks take and do."""

from dataclasses import replace

import numpy as np

from jaxperf.energy.power._tasks import PowerTasks

_SUMMED = ("flops", "memory_bytes", "node_bytes", "network_bytes")


def merge_tasks(
    tasks: PowerTasks, cell: np.ndarray, share: np.ndarray
) -> tuple[PowerTasks, np.ndarray]:
    """The sum of the tasks of each cell, which takes the same energy at every clock.

    The energy of a task is linear in its time, in the part of it that follows the clock, and in its
    operations and bytes, with coefficients of its class and type. So tasks of one clock, rank,
    class and type can be added up, exactly; a graph of 100,000 tasks has a few hundred such sums.

    Args:
        tasks: n tasks.
        cell: (n,) int, tasks of different cells may have different clocks.
        share: (n,) float64, how much of each task counts.

    Returns:
        A row for each sum, with `task` and `start_us` of the first task in it; and (rows,) int32,
        the cell of each row.

    Example:
        >>> merged, cell = merge_tasks(tasks, np.zeros(len(tasks), int), np.ones(len(tasks)))
        >>> len(merged) <= len(tasks)
        True
    """
    key = np.stack(
        [cell, tasks.rank, tasks.task_class, tasks.precision, np.asarray(tasks.is_known, int)]
    )
    _, first, row = np.unique(key, axis=1, return_index=True, return_inverse=True)
    row = row.reshape(-1)

    def total(values: np.ndarray) -> np.ndarray:
        return np.bincount(row, share * values, len(first))

    duration_us = total(tasks.duration_us)
    follows_us = total(tasks.duration_us * tasks.clock_share)
    merged = replace(
        tasks,
        **{name: getattr(tasks, name)[first] for name in ("task", "rank", "task_class")},
        **{name: getattr(tasks, name)[first] for name in ("start_us", "is_known", "precision")},
        **{name: total(getattr(tasks, name)) for name in _SUMMED},
        duration_us=duration_us,
        clock_share=follows_us / np.where(duration_us > 0, duration_us, 1.0),
    )
    return merged, np.asarray(cell)[first].astype(np.int32)
