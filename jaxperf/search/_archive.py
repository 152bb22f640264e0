"""What is kept of the points that were seen: the best, and those that no other beats."""

from dataclasses import dataclass

import numpy as np

from jaxperf.search._evaluate import Measured
from jaxperf.search._problem import Problem
from jaxperf.search._types import costs

BEST = 10
"""Points that are kept in order of the first objective, besides the front."""


@dataclass(frozen=True, eq=False)
class Archive:
    """The points kept so far.

    Attributes:
        index: (k,) their numbers, in order of the first objective.
        cost: (k, objectives) of each less is better.
    """

    index: np.ndarray
    cost: np.ndarray

    @property
    def front(self) -> np.ndarray:
        """(k,) bool, which of them no other beats."""
        return non_dominated(self.cost)

    @property
    def best_cost(self) -> float:
        """Of the first objective; infinite where nothing is feasible."""
        return float(self.cost[0, 0]) if len(self.index) else float("inf")


def empty(problem: Problem) -> Archive:
    """Nothing seen yet."""
    return Archive(np.zeros(0, np.int64), np.zeros((0, len(problem.space.objectives))))


def add(problem: Problem, archive: Archive, measured: Measured) -> Archive:
    """An archive with what is feasible of some more points.

    Args:
        problem: what is searched.
        archive: so far.
        measured: the points; numbers that the archive has already do no harm.

    Returns:
        The best and the front of all. Of points that cost the same the first number stays.
    """
    rows = np.flatnonzero(measured.feasible)
    if not len(rows):
        return archive
    index = np.concatenate([archive.index, measured.points.index[rows]])
    cost = np.concatenate([archive.cost, costs(problem, measured.measures)[rows]])
    index, first = np.unique(index, return_index=True)
    cost = cost[first]
    # What nothing is known of is not the best.
    known = np.isfinite(cost).all(axis=1)
    return archive_of(index[known], cost[known])


def archive_of(index: np.ndarray, cost: np.ndarray) -> Archive:
    """The best and the front of some points.

    Args:
        index: (n,) their numbers, each once.
        cost: (n, objectives) of each less is better.
    """
    order = np.lexsort((index, *cost.T[::-1]))
    index, cost = index[order], cost[order]
    kept = non_dominated(cost)
    kept[:BEST] = True
    return Archive(index[kept], cost[kept])


def non_dominated(cost: np.ndarray) -> np.ndarray:
    """Which points no other beats in all objectives.

    Args:
        cost: (n, objectives) in order of the first, then of the others; of each less is better.

    Returns:
        (n,) bool; of points that cost the same, the first.

    Example:
        >>> non_dominated(np.array([[1.0, 5.0], [2.0, 4.0], [3.0, 1.0], [3.0, 4.5]])).tolist()
        [True, True, True, False]
    """
    found = np.zeros(len(cost), bool)
    left = np.arange(len(cost))
    while len(left):
        # What comes later does not beat it, and what it beats beats nothing that it does not.
        found[left[0]] = True
        left = left[(cost[left] < cost[left[0]]).any(axis=1)]
    return found
