"""Every point of a space, in batches, and every point that no bound excludes."""

from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field

import numpy as np

from jaxperf.search._archive import Archive, add, empty
from jaxperf.search._bound import box_bounds, boxes, lower_bounds
from jaxperf.search._evaluate import evaluate
from jaxperf.search._problem import Points, Problem, points

BATCH = 1 << 16
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


def search_all(
    problem: Problem, part: np.ndarray | None = None, progress: Progress | None = None
) -> tuple[Archive, Tally]:
    """Measure every point.

    Args:
        problem: of `pose`.
        part: numbers of the points to look at, all by default.
        progress: see there.

    Returns:
        The best and the front, and what became of every point.
    """
    size = problem.space.size if part is None else len(part)
    archive, tally = empty(problem), Tally(size)
    with suppress(KeyboardInterrupt):
        for at in range(0, size, BATCH):
            end = min(at + BATCH, size)
            index = np.arange(at, end) if part is None else part[at:end]
            archive = _measure(problem, archive, tally, index, count_refused=True)
            if progress is not None:
                progress(tally.settled, size)
    return archive, tally


def search_bounded(problem: Problem, progress: Progress | None = None) -> tuple[Archive, Tally]:
    """Measure the points that may be among the best, and prove of the others that they are not.

    Boxes come in the order of their bounds. Of a box that may hold something better, each point has
    a bound of its own; what is left is measured, the most promising first.

    Args:
        problem: of `pose`.
        progress: see there.

    Returns:
        The best and the front, which are those of `search_all` but for points beyond the best that
        only rank after it; and what became of every point.
    """
    found = boxes(problem)
    of_box = box_bounds(problem, found)
    order = np.lexsort(of_box.T[::-1])
    size, archive, tally = problem.space.size, empty(problem), Tally(problem.space.size)
    each, at = len(found.beyond), 0
    with suppress(KeyboardInterrupt):
        while at < len(order):
            # The first few say what the others have to beat.
            end = at + max(1, (BATCH if at else _FIRST) // each)
            some, at = order[at:end], end
            hopeless = _beaten(archive, of_box[some])
            tally.excluded["work"] += int(hopeless.sum()) * each
            some = some[~hopeless]
            for box_part in np.array_split(found.beyond, max(1, each // BATCH)):
                if len(some):
                    index = (found.first[some, None] + box_part).reshape(-1)
                    archive = _measure_promising(problem, found, archive, tally, index)
            if progress is not None:
                progress(tally.settled, size)
    return archive, tally


def _measure_promising(problem: Problem, found, archive: Archive, tally: Tally, index: np.ndarray):
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
        hopeless = _beaten(archive, bounds[here])
        tally.excluded["pipeline"] += int(hopeless.sum())
        archive = _measure(problem, archive, tally, index[here][~hopeless])
    return archive


def _measure(
    problem: Problem,
    archive: Archive,
    tally: Tally,
    index: np.ndarray,
    count_refused: bool = False,
) -> Archive:
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


def _beaten(archive: Archive, bounds: np.ndarray) -> np.ndarray:
    """(rows,) whether something found is at least as good as a bound in all objectives."""
    beaten = np.zeros(len(bounds), bool)
    for cost in archive.cost[archive.front]:
        beaten |= (cost <= bounds).all(axis=1)
    return beaten
