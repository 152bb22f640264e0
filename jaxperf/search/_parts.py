"""A search cut into numbered chunks of points, each settled by itself.

Chunks depend on the problem alone, not on who settles them: what a search finds in them is the same
to the bit in one process, in several, and on several hosts of one kind. A chunk of the exhaustive
search is a range of the space's numbers; one of the search by bounds a range of its boxes in the
order of their bounds, of which chunk 0 holds the most promising: the others know what it found.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

import numpy as np

from jaxperf.errors import ConfigError
from jaxperf.search._archive import Archive, archive_of, empty
from jaxperf.search._bound import Boxes, box_bounds, boxes
from jaxperf.search._problem import Problem
from jaxperf.search._tally import Tally, beaten, measure, measure_promising

Method = Literal["exhaustive", "bound"]
CHUNK_POINTS = 1 << 14
"""Points of a chunk: about a second of work, which is what a kill or an interrupt loses."""


@dataclass(frozen=True, eq=False)
class OrderedBoxes:
    """The boxes of a search by bounds.

    Attributes:
        boxes: of the space.
        bounds: (boxes, objectives) what no point of each can do better than.
        order: (boxes,) of them, the most promising first.
    """

    boxes: Boxes
    bounds: np.ndarray
    order: np.ndarray


@dataclass(frozen=True, eq=False)
class Parts:
    """A search as chunks; see `parts_of`.

    Attributes:
        problem: what is searched.
        method: how.
        chunk_points: points of a chunk; a box is not cut, so of large ones more.
        ordered: the boxes of a search by bounds, otherwise `None`.
    """

    problem: Problem
    method: Method
    chunk_points: int
    ordered: OrderedBoxes | None = None

    @property
    def count(self) -> int:
        """How many chunks there are."""
        return -(-self._units // self._units_of_chunk)

    @property
    def _points_of_unit(self) -> int:
        return 1 if self.ordered is None else len(self.ordered.boxes.beyond)

    @property
    def _units(self) -> int:
        return self.problem.space.size // self._points_of_unit

    @property
    def _units_of_chunk(self) -> int:
        return max(1, self.chunk_points // self._points_of_unit)

    def units(self, chunk: int) -> np.ndarray:
        """Numbers of the points of a chunk, or places of its boxes in their order."""
        first = chunk * self._units_of_chunk
        return np.arange(first, min(first + self._units_of_chunk, self._units))

    def points(self, chunk: int) -> int:
        """How many points a chunk has."""
        return len(self.units(chunk)) * self._points_of_unit


@dataclass(frozen=True, eq=False)
class Outcome:
    """What became of a chunk.

    Attributes:
        chunk: its number.
        archive: the best and the front of its points, and of what was known before.
        tally: what became of each of its points.
    """

    chunk: int
    archive: Archive
    tally: Tally


@dataclass(frozen=True)
class Shard:
    """One of several that share a search: it settles chunks `index`, `index + count`, ...

    Attributes:
        index: from 0.
        count: how many there are.
    """

    index: int = 0
    count: int = 1

    def chunks(self, parts: Parts) -> range:
        """Numbers of its chunks."""
        return range(self.index, parts.count, self.count)


def shard_of(text: str) -> Shard:
    """The shard that `i/n` stands for.

    Args:
        text: from `0/n` to `n-1/n`, as schedulers count the tasks of an array.

    Raises:
        ConfigError: it is not of that form.

    Example:
        >>> shard_of("2/8")
        Shard(index=2, count=8)
    """
    index, _, count = text.partition("/")
    if not (index.isdecimal() and count.isdecimal()) or int(index) >= int(count):
        expected = "i/n with i from 0 to n - 1, such as 0/8"
        raise ConfigError("not a shard", where="shard", got=text, expected=expected)
    return Shard(int(index), int(count))


def parts_of(
    problem: Problem, method: Method = "exhaustive", chunk_points: int = CHUNK_POINTS
) -> Parts:
    """Cut a search into chunks.

    Args:
        problem: of `pose`.
        method: `exhaustive` or `bound`.
        chunk_points: points of a chunk.

    Returns:
        The chunks, of which every point of the space is in one.

    Raises:
        ConfigError: there are too many boxes; see `boxes`.
    """
    if method == "exhaustive":
        return Parts(problem, method, chunk_points)
    found = boxes(problem)
    bounds = box_bounds(problem, found)
    order = np.lexsort(bounds.T[::-1])
    return Parts(problem, method, chunk_points, OrderedBoxes(found, bounds, order))


def settle(parts: Parts, chunk: int, known: Archive | None = None) -> Outcome:
    """Measure the points of a chunk, or prove that they are not among the best.

    Args:
        parts: of `parts_of`.
        chunk: its number.
        known: what chunk 0 found, by which a search by bounds excludes points of the others.

    Returns:
        What became of them.
    """
    units, tally = parts.units(chunk), Tally(parts.points(chunk))
    archive = known or empty(parts.problem)
    if parts.ordered is None:
        archive = measure(parts.problem, archive, tally, units, count_refused=True)
        return Outcome(chunk, archive, tally)
    found, each = parts.ordered.boxes, len(parts.ordered.boxes.beyond)
    some = parts.ordered.order[units]
    hopeless = beaten(archive, parts.ordered.bounds[some])
    tally.excluded["work"] += int(hopeless.sum()) * each
    some = some[~hopeless]
    for beyond in np.array_split(found.beyond, max(1, each // parts.chunk_points)):
        if len(some):
            index = (found.first[some, None] + beyond).reshape(-1)
            archive = measure_promising(parts.problem, found, archive, tally, index)
    return Outcome(chunk, archive, tally)


def joined(parts: Parts, outcomes: Iterable[Outcome]) -> tuple[Archive, Tally]:
    """What several chunks come to, in whatever order they were settled.

    Args:
        parts: of `parts_of`.
        outcomes: of different chunks.

    Returns:
        The best and the front of all, and what became of their points among those of the space.
    """
    ordered = sorted(outcomes, key=lambda outcome: outcome.chunk)
    tally = Tally(parts.problem.space.size)
    for outcome in ordered:
        tally.refused.update(outcome.tally.refused)
        tally.over.update(outcome.tally.over)
        tally.excluded.update(outcome.tally.excluded)
        tally.evaluated += outcome.tally.evaluated
    archives = [empty(parts.problem), *(outcome.archive for outcome in ordered)]
    index, first = np.unique(np.concatenate([a.index for a in archives]), return_index=True)
    cost = np.concatenate([a.cost for a in archives])[first]
    return archive_of(index, cost), tally
