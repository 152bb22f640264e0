"""What becomes of points: refused, measured, or excluded by what was found before."""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from jaxperf.search._archive import Archive, add
from jaxperf.search._bound import Boxes, lower_bounds
from jaxperf.search._evaluate import evaluate
from jaxperf.search._problem import Points, Problem, points

_FIRST = 1024

Progress = Callable[[int, int], None]
"""Called with how many points are settled, and how many there are."""


@dataclass
class Tally:
    """What became of the points so far; see `Certificate`.

    Attributes:
        points: of the space, or of its part.
        refused, over, excluded: see `Certificate`.
        evaluated: measured exactly.
    """

    points: int
    refused: Counter[str] = field(default_factory=Counter)
    over: Counter[str] = field(default_factory=Counter)
    excluded: Counter[str] = field(default_factory=Counter)
    evaluated: int = 0

    @property
    def complete(self) -> bool:
        """Whether every point is settled."""
        return self.settled == self.points

    @property
    def settled(self) -> int:
        """Points that need not be looked at again."""
        return self.refused.total() + self.excluded.total() + self.evaluated


def measure_promising(
    problem: Problem, found: Boxes, archive: Archive, tally: Tally, index: np.ndarray
) -> Archive:
    """Measure the points that may beat what is known, the most promising first.

    Args:
        problem: of `pose`.
        found: the boxes of its space.
        archive: what is known.
        tally: counts what becomes of the points.
        index: (rows,) their numbers.

    Returns:
        What is known then.
    """
    some = points(problem, index)
    valid = _count_refused(some, tally)
    index = index[valid]
    if not len(index):
        return archive
    jobs = some.jobs.take(valid)
    bounds = lower_bounds(problem, found, Points(index, jobs, (), some.machine[valid]))
    order = np.lexsort(bounds.T[::-1])
    index, bounds = index[order], bounds[order]
    for at, end in ((0, _FIRST), (_FIRST, len(index))):
        here = slice(at, end)
        hopeless = beaten(archive, bounds[here])
        tally.excluded["pipeline"] += int(hopeless.sum())
        archive = measure(problem, archive, tally, index[here][~hopeless])
    return archive


def measure(
    problem: Problem,
    archive: Archive,
    tally: Tally,
    index: np.ndarray,
    count_refused: bool = False,
) -> Archive:
    """Measure points; see `measure_promising`.

    Args:
        problem, archive, tally, index: see there.
        count_refused: some of the points may not be able to be, and are to be counted so.

    Returns:
        What is known then.
    """
    if not len(index):
        return archive
    measured = evaluate(problem, index)
    for name, over in measured.over.items():
        tally.over[name] += int(over.sum())
    valid = len(_count_refused(measured.points, tally)) if count_refused else len(index)
    tally.evaluated += valid
    return add(problem, archive, measured)


def _count_refused(some: Points, tally: Tally) -> np.ndarray:
    """The rows of points that can be; the others are counted by the first rule they break."""
    left = np.ones(len(some.index), bool)
    for rule in some.broken:
        new = rule.jobs & left
        if new.any():
            tally.refused[rule.text] += int(new.sum())
        left &= ~rule.jobs
    return np.flatnonzero(left)


def beaten(archive: Archive, bounds: np.ndarray) -> np.ndarray:
    """(rows,) whether something found is at least as good as a bound in all objectives."""
    found = np.zeros(len(bounds), bool)
    for cost in archive.cost[archive.front]:
        found |= (cost <= bounds).all(axis=1)
    return found
