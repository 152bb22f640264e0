"""Energy over a span by class, rank and phase; on the host, of power in NumPy arrays."""

import numpy as np

from jaxperf.energy.power._timeline_power import TimelinePower
from jaxperf.graph import TaskClass

PHASES = ("compute", "overlap", "exposed_communication", "memory", "idle")
"""What goes on in a rank, as `jaxperf.replay.Breakdown` has it; of `energy_by_phase_j`."""

CLASSES_AND_STATIC = (*(each.name.lower() for each in TaskClass), "static")
"""What the sums of `energy_by_class_j` are of."""

_S = 1e-6


def _inside_j(power: TimelinePower) -> np.ndarray:
    """(n,) what each task takes inside the span."""
    until_us = np.minimum(power.start_us + power.time_us, power.end_us)
    inside_us = np.maximum(until_us - np.maximum(power.start_us, power.begin_us), 0.0)
    return np.asarray(power.energy_j * inside_us / power.time_us)


def energy_by_class_j(power: TimelinePower) -> np.ndarray:
    """Energy of all accelerators inside the span by class of task.

    Args:
        power: in NumPy arrays.

    Returns:
        (classes + 1,) as `CLASSES_AND_STATIC`: of tasks what is on top of static power, which is
        the last.

    Example:
        >>> from jaxperf.energy.power._timeline_power import recorded_power
        >>> power = recorded_power(model, tasks, np.full(len(tasks), 1.98e9))
        >>> static_j = energy_by_class_j(power)[-1]  # 117 W for 17 us
        >>> round(float(static_j), 6)
        0.001989
    """
    alike = np.asarray(power.ranks_alike)
    of_tasks = np.bincount(power.task_class, _inside_j(power) * alike[power.rank], len(TaskClass))
    static_j = np.sum(alike * power.static_w) * (power.end_us - power.begin_us) * _S
    return np.append(of_tasks, static_j)


def energy_by_rank_j(power: TimelinePower) -> np.ndarray:
    """(ranks,) energy of one accelerator of each rank inside the span, static power included.

    Example:
        >>> from jaxperf.energy.power._timeline_power import recorded_power
        >>> power = recorded_power(model, tasks, np.full(len(tasks), 1.98e9))
        >>> bool(np.isclose(energy_by_rank_j(power).sum(), energy_by_class_j(power).sum()))
        True
    """
    static_j = np.asarray(power.static_w * (power.end_us - power.begin_us) * _S)
    return static_j + np.bincount(power.rank, _inside_j(power), len(static_j))


def energy_by_phase_j(power: TimelinePower) -> np.ndarray:
    """Energy of all accelerators inside the span by what goes on in their rank.

    Args:
        power: in NumPy arrays.

    Returns:
        (phases,) as `PHASES`, static power included; they add up to the energy of the span.

    Example:
        >>> from jaxperf.energy.power._timeline_power import recorded_power
        >>> power = recorded_power(model, tasks, np.full(len(tasks), 1.98e9))
        >>> dict(zip(PHASES, energy_by_phase_j(power).round(6).tolist()))["idle"]  # 117 W for 5 us
        0.000585
    """
    ranks, task = len(power.static_w), np.asarray(power.order) % max(len(power.rank), 1)
    # Rank after rank, each in order of time: after the last end of a rank nothing of it runs.
    along = np.argsort(np.asarray(power.rank)[task], kind="stable")
    rank = np.asarray(power.rank)[task[along]]
    moment_us = np.clip(np.asarray(power.moment_us)[along], power.begin_us, power.end_us)
    step_us = np.where(rank[1:] == rank[:-1], np.diff(moment_us), 0.0)

    def running(values: np.ndarray) -> np.ndarray:
        """The sum over what runs from each moment to the next."""
        return np.cumsum(np.concatenate([values, -values])[power.order][along])[:-1]

    communicates = power.task_class == TaskClass.COMMUNICATION
    copies = power.task_class == TaskClass.MEMCPY
    computing, communicating, copying = (
        running(np.asarray(kind, int)) > 0
        for kind in (~communicates & ~copies, communicates, copies)
    )
    watts = np.asarray(power.energy_j / (power.time_us * _S))
    alike, static_w = np.asarray(power.ranks_alike), np.asarray(power.static_w)
    drawn_j = (running(watts) + static_w[rank[:-1]]) * step_us * _S * alike[rank[:-1]]
    busy = computing | communicating | copying
    busy_us = np.bincount(rank[:-1], np.where(busy, step_us, 0.0), ranks)
    idle_j = np.sum(alike * static_w * (power.end_us - power.begin_us - busy_us)) * _S
    states = (
        computing & ~communicating,
        computing & communicating,
        ~computing & communicating,
        ~computing & ~communicating & copying,
    )
    return np.array([*(drawn_j[state].sum() for state in states), idle_j])
