"""From a posed search to its result, by each of the three methods."""

from collections.abc import Callable

import numpy as np

from jaxperf.search._archive import BEST, Archive
from jaxperf.search._conflict import conflict, conflict_error
from jaxperf.search._evaluate import evaluate
from jaxperf.search._exhaustive import BATCH, Tally, search_all, search_bounded
from jaxperf.search._gradient import search_gradient
from jaxperf.search._problem import Problem
from jaxperf.search._types import Certificate, SearchResult, point
from jaxperf.trace import Note

Progress = Callable[[int, int], None]


def solve(
    problem: Problem, method: str, *, seed: int = 0, progress: Progress | None = None
) -> SearchResult:
    """Search; see `jaxperf.search.search`.

    Args:
        problem: of `pose`.
        method: `bound`, `exhaustive` or `gradient`.
        seed: of the starts of `gradient`.
        progress: called with the number of points settled so far, and of all.

    Returns:
        The best, the front, and what became of all other points.

    Raises:
        ConfigError: no point is feasible.
    """
    if method == "gradient":
        return _by_gradient(problem, seed)
    archive, tally = (search_bounded if method == "bound" else search_all)(
        problem, progress=progress
    )
    if tally.complete and not len(archive.index):
        raise conflict_error(problem, _conflict(problem))
    return result(problem, method, archive, tally)


def result(problem: Problem, method: str, archive: Archive, tally: Tally) -> SearchResult:
    """What was found, as a result.

    Args:
        problem: what was searched.
        method: how.
        archive: the best and the front.
        tally: what became of all points.
    """
    certificate = Certificate(
        tally.points,
        dict(tally.refused.most_common()),
        dict(+tally.over),
        dict(+tally.excluded),
        tally.evaluated,
    )
    found = evaluate(problem, archive.index) if len(archive.index) else None
    points = [] if found is None else [point(problem, found, n) for n in range(len(archive.index))]
    front = [each for each, kept in zip(points, archive.front, strict=True) if kept]
    notes = list(problem.notes)
    if not tally.complete:
        text = f"{tally.settled:,} of {tally.points:,} points were settled when it was stopped"
        notes.append(Note("search-stopped", text))
    return SearchResult(
        problem,
        method,
        tuple(points[:BEST]),
        tuple(front),
        certificate,
        tally.complete,
        tuple(notes),
    )


def _by_gradient(problem: Problem, seed: int) -> SearchResult:
    found = search_gradient(problem, seed=seed)
    feasible = np.isfinite(found.cost).all(axis=1)
    if not feasible.any():
        raise conflict_error(problem, _conflict(problem))
    index, cost = found.index[feasible], found.cost[feasible]
    order = np.lexsort((index, *cost.T[::-1]))
    archive = Archive(index[order], cost[order])
    kept = archive.front
    kept[:BEST] = True
    archive = Archive(archive.index[kept], archive.cost[kept])
    tally = Tally(problem.space.size, evaluated=len(found.index))
    told = (
        f"{len(found.index):,} of {problem.space.size:,} points were measured, and nothing is"
        f" proven of the others; relaxed and rounded objective differ by {100 * found.gap:.2g} %"
    )
    whole = result(problem, "gradient", archive, tally)
    notes = (*problem.notes, Note("search-not-proven", told))
    return SearchResult(
        problem, "gradient", whole.best, whole.front, None, complete=True, notes=notes
    )


def _conflict(problem: Problem):
    size = problem.space.size
    batches = (range(at, min(at + BATCH, size)) for at in range(0, size, BATCH))
    return conflict(problem, (evaluate(problem, np.array(batch)) for batch in batches))
