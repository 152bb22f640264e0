"""From a posed search to its result, by each of the three methods."""

import os
from collections.abc import Callable

import numpy as np

from jaxperf.search._archive import BEST, Archive, archive_of
from jaxperf.search._conflict import conflict, conflict_error
from jaxperf.search._evaluate import evaluate
from jaxperf.search._gradient import search_gradient
from jaxperf.search._parts import parts_of, shard_of
from jaxperf.search._problem import Problem
from jaxperf.search._processes import search_parts
from jaxperf.search._saved import open_folder
from jaxperf.search._tally import Tally
from jaxperf.search._types import Certificate, SearchResult, point
from jaxperf.trace import Note

Progress = Callable[[int, int], None]


def solve(
    problem: Problem,
    method: str,
    *,
    seed: int = 0,
    folder: str | os.PathLike[str] | None = None,
    shard: str | None = None,
    processes: int = 1,
    progress: Progress | None = None,
) -> SearchResult:
    """Search; see `jaxperf.search.search`.

    Args:
        problem: of `pose`.
        method: `bound`, `exhaustive` or `gradient`.
        seed: of the starts of `gradient`.
        folder, shard, processes: see there.
        progress: called with the number of points settled so far, and of all.

    Returns:
        The best, the front, and what became of all other points.

    Raises:
        ConfigError: no point is feasible.
    """
    if method == "gradient":
        return _by_gradient(problem, seed)
    parts = parts_of(problem, "bound" if method == "bound" else "exhaustive")
    archive, tally = search_parts(
        parts,
        folder=None if folder is None else open_folder(folder, parts),
        shard=None if shard is None else shard_of(shard),
        processes=processes,
        progress=progress,
    )
    if tally.complete and not len(archive.index):
        raise conflict_error(problem, _conflict(problem))
    return result(problem, method, archive, tally, shard)


def result(
    problem: Problem, method: str, archive: Archive, tally: Tally, shard: str | None = None
) -> SearchResult:
    """What was found, as a result.

    Args:
        problem: what was searched.
        method: how.
        archive: the best and the front.
        tally: what became of all points.
        shard: which part of the search this was, where it was one.
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
        settled = f"{tally.settled:,} of {tally.points:,} points are settled"
        if shard is None:
            notes.append(Note("search-stopped", f"{settled}: it was stopped"))
        else:
            text = f"{settled}: the other shards of {shard} have the rest"
            notes.append(Note("search-part", text))
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
    archive = archive_of(found.index[feasible], found.cost[feasible])
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
    parts = parts_of(problem)
    return conflict(problem, (evaluate(problem, parts.units(n)) for n in range(parts.count)))
