"""Tasks and dependencies as they are collected: columns that grow by whole arrays."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

SPACING = 1 << 24
"""Distance between the keys of two blocks of tasks; see `Tasks.add`."""


class Columns(NamedTuple):
    """All tasks and dependencies.

    Attributes:
        rank, lane, name, piece: (n,) int32, see `Tasks.add`.
        key: (n,) int64.
        source, target: (m,) int32, tasks.
    """

    rank: np.ndarray
    lane: np.ndarray
    name: np.ndarray
    piece: np.ndarray
    key: np.ndarray
    source: np.ndarray
    target: np.ndarray


class Tasks:
    """Collects tasks and dependencies.

    Attributes:
        names: index of each name.
    """

    def __init__(self) -> None:
        self.names: dict[str, int] = {}
        self._count = 0
        self._tasks: list[tuple[np.ndarray, ...]] = []
        self._links: list[tuple[np.ndarray, np.ndarray]] = []

    def name(self, text: str) -> int:
        """The index of a name."""
        return self.names.setdefault(text, len(self.names))

    def add(
        self,
        rank: np.ndarray,
        lane: np.ndarray,
        name: np.ndarray,
        piece: np.ndarray,
        key: np.ndarray,
    ) -> np.ndarray:
        """Add tasks.

        Args:
            rank: (k,) rank of the pipeline.
            lane: (k,) index into the streams of a rank.
            name: (k,) index into the names.
            piece: (k,) index into the table of pieces.
            key: (k,) by which tasks are ordered; every dependency goes to a higher one, or to the
                same and a later task.

        Returns:
            (k,) their numbers.
        """
        self._tasks.append((rank, lane, name, piece, key))
        first, self._count = self._count, self._count + len(piece)
        return np.arange(first, self._count)

    def add_one(self, rank: int, lane: int, name: str, piece: int, *, key: int) -> int:
        """Add one task, by name; its number."""
        row = (rank, lane, self.name(name), piece, key)
        return int(self.add(*(np.array([value]) for value in row))[0])

    def link(self, source: np.ndarray, target: np.ndarray) -> None:
        """Let each target wait for its source."""
        self._links.append((source, target))

    def link_all(self, sources: Sequence[int], targets: Sequence[int]) -> None:
        """Let each target wait for all sources."""
        self.link(np.repeat(sources, len(targets)), np.tile(targets, len(sources)))

    def columns(self) -> Columns:
        """All of them."""
        rank, lane, name, piece, key = map(np.concatenate, zip(*self._tasks, strict=True))
        source, target = map(np.concatenate, zip(*self._links, strict=True))
        return Columns(
            rank.astype(np.int32),
            lane.astype(np.int32),
            name.astype(np.int32),
            piece.astype(np.int32),
            key.astype(np.int64),
            source.astype(np.int32),
            target.astype(np.int32),
        )
