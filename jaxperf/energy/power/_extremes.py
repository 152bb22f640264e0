"""The highest and lowest power of a timeline, and its steepest changes; on the host."""

from collections.abc import Iterator
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from jaxperf.energy.power._timeline_power import TimelinePower, cumulative_energy_j

_S = 1e-6


class PowerExtremes(NamedTuple):
    """Highest and lowest mean power over any window inside the span, of all or of one rank."""

    highest_w: float
    lowest_w: float


def power_extremes(power: TimelinePower, window_us: float) -> PowerExtremes:
    """The highest and lowest power inside the span.

    The mean over a window that moves is linear between the moments at which the window's begin or
    end meets the start or end of a task: looking at those finds the extremes exactly.

    Args:
        power: in NumPy arrays.
        window_us: over which the mean is taken, such as that of a meter; at most the span.

    Returns:
        Both, of all accelerators.

    Example:
        >>> from jaxperf.energy.power._timeline_power import recorded_power
        >>> power = recorded_power(model, tasks, np.full(len(tasks), 1.98e9))
        >>> round(power_extremes(power, 1.0).lowest_w, 6)  # nothing runs before the kernel
        117.0
    """
    begin_us, end_us = float(power.begin_us), float(power.end_us)
    window_us = min(window_us, end_us - begin_us)
    begins = np.concatenate([[begin_us], power.moment_us, power.moment_us - window_us])
    begins = np.clip(begins, begin_us, end_us - window_us)
    energy_j = np.asarray(cumulative_energy_j(power, np.concatenate([begins, begins + window_us])))
    means_w = np.diff(energy_j.reshape(2, -1), axis=0) / (window_us * _S)
    return PowerExtremes(float(means_w.max()), float(means_w.min()))


def steepest_w(series_w: np.ndarray) -> tuple[float, float]:
    """The largest rise and the largest fall between neighbouring cells, both at least 0.

    Example:
        >>> steepest_w(np.array([100.0, 300.0, 250.0]))
        (200.0, 50.0)
    """
    change_w = np.diff(series_w)
    return float(np.max(change_w, initial=0.0)), float(np.max(-change_w, initial=0.0))


def each_rank(power: TimelinePower) -> Iterator[TimelinePower]:
    """The power of each rank by itself, of one accelerator; in NumPy arrays.

    Example:
        >>> from jaxperf.energy.power._timeline_power import recorded_power
        >>> (alone,) = each_rank(recorded_power(model, tasks, np.full(len(tasks), 1.98e9)))
        >>> len(alone.energy_j) == len(tasks)
        True
    """
    by_rank = np.argsort(power.rank, kind="stable")
    ranks = len(power.static_w)
    edges = np.searchsorted(np.asarray(power.rank)[by_rank], np.arange(ranks + 1))
    for rank in range(ranks):
        mine = by_rank[edges[rank] : edges[rank + 1]]
        start_us, time_us = power.start_us[mine], power.time_us[mine]
        moment_us = np.concatenate([start_us, start_us + time_us])
        order = np.argsort(moment_us)
        yield replace(
            power,
            rank=np.zeros(len(mine), np.int32),
            task_class=power.task_class[mine],
            start_us=start_us,
            time_us=time_us,
            moment_us=moment_us[order],
            order=order,
            energy_j=power.energy_j[mine],
            static_w=power.static_w[rank : rank + 1],
            ranks_alike=np.ones(1),
        )
