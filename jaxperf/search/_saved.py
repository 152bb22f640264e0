"""A folder in which a search keeps what it has settled, one file a chunk.

A file is whole or not there: it is written under another name first. It names the search that it is
part of, by a digest of all that its numbers follow from, and has a digest of its own content.
"""

import hashlib
import os
from collections import Counter
from collections.abc import Iterable
from importlib.metadata import version
from pathlib import Path
from typing import Annotated, Any

import jax
import msgspec
import numpy as np

from jaxperf._files import new_file
from jaxperf._json import NOT_READABLE
from jaxperf.errors import ConfigError, OutputError
from jaxperf.search._archive import Archive
from jaxperf.search._parts import Outcome, Parts
from jaxperf.search._tally import Tally

_SHOWN = 6
_SEARCH = "search.json"


class _Chunk(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    search: str
    chunk: int
    shards: int
    index: list[Annotated[int, msgspec.Meta(ge=0, le=10**18)]]
    cost: list[list[float]]
    points: int
    refused: dict[str, int]
    over: dict[str, int]
    excluded: dict[str, int]
    evaluated: int


class _Sealed(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Content beside its digest."""

    sha256: str
    content: msgspec.Raw


class Folder:
    """What is kept of a search; see `open_folder`.

    Attributes:
        path: of the folder.
        parts: the search.
    """

    def __init__(self, path: Path, parts: Parts, search: str):
        self.path = path
        self.parts = parts
        self._search = search

    def save(self, outcome: Outcome, shards: int = 1) -> None:
        """Keep what became of a chunk.

        Args:
            outcome: of the chunk.
            shards: how many share the search, to say later who has not come to an end.

        Raises:
            OutputError: it cannot be written.
        """
        archive, tally = outcome.archive, outcome.tally
        content = _Chunk(
            search=self._search,
            chunk=outcome.chunk,
            shards=shards,
            index=archive.index.tolist(),
            cost=archive.cost.tolist(),
            points=tally.points,
            refused=tally.refused,
            over=tally.over,
            excluded=tally.excluded,
            evaluated=tally.evaluated,
        )
        _write(self._file(outcome.chunk), content)

    def chunk(self, number: int) -> Outcome | None:
        """What became of a chunk, `None` where that is not kept.

        Raises:
            ConfigError: its file is damaged, or of another search.
        """
        content = self._content(number)
        return None if content is None else self._outcome(content)

    def all_chunks(self) -> list[Outcome]:
        """What became of every chunk.

        Raises:
            ConfigError: some are missing; it says which, and whose they are. Or a file is damaged.
        """
        contents = [self._content(number) for number in range(self.parts.count)]
        missing = [number for number, content in enumerate(contents) if content is None]
        kept = [content for content in contents if content is not None]
        if missing:
            shards = {content.shards for content in kept}
            raise self._incomplete(missing, shards.pop() if len(shards) == 1 else 1)
        return [self._outcome(content) for content in kept]

    def _incomplete(self, missing: list[int], shards: int) -> ConfigError:
        whose = sorted({number % shards for number in missing})
        of = f" of shard {_some(f'{each}/{shards}' for each in whose)}" if shards > 1 else ""
        return ConfigError(
            "not all chunks are settled",
            where=str(self.path),
            got=f"{self.parts.count - len(missing)} of {self.parts.count} chunks",
            expected=f"also {_some(missing)}{of}",
            remedy="run what is missing again with the same folder: it goes on from there",
        )

    def _file(self, number: int) -> Path:
        return self.path / f"chunk-{number:08d}.json"

    def _content(self, number: int) -> _Chunk | None:
        content = _read(self._file(number), _Chunk)
        if content is None:
            return None
        expected = (self._search, number, self.parts.points(number))
        if (content.search, content.chunk, content.points) != expected:
            raise _of_another(self._file(number), "its digest")
        objectives = len(self.parts.problem.space.objectives)
        if [len(costs) for costs in content.cost] != [objectives] * len(content.index):
            raise _damaged(self._file(number))
        return content

    def _outcome(self, content: _Chunk) -> Outcome:
        objectives = len(self.parts.problem.space.objectives)
        cost = np.array(content.cost, float).reshape(-1, objectives)
        archive = Archive(np.array(content.index, np.int64), cost)
        refused, over, excluded = map(Counter, (content.refused, content.over, content.excluded))
        tally = Tally(content.points, refused, over, excluded, content.evaluated)
        return Outcome(content.chunk, archive, tally)


def open_folder(path: str | os.PathLike[str], parts: Parts) -> Folder:
    """A folder for what is settled of a search; it is made where there is none.

    Args:
        path: of the folder.
        parts: the search.

    Raises:
        ConfigError: the folder is of another search, or something in it is damaged.
        OutputError: it cannot be written.
    """
    folder, described = Path(path), _described(parts)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise OutputError(f"cannot be made: {error.strerror}", where=str(folder)) from None
    kept = _read(folder / _SEARCH, dict[str, str])
    if kept is None:
        _write(folder / _SEARCH, described)
    elif kept != described:
        names = sorted(k for k in kept.keys() | described.keys() if kept.get(k) != described.get(k))
        raise _of_another(folder, _some(names))
    return Folder(folder, parts, _digest(msgspec.json.encode(described)))


def _of_another(where: Path, what: str) -> ConfigError:
    return ConfigError(
        "is of another search",
        where=str(where),
        got=f"another value of {what}",
        expected="what was settled of this one",
        remedy="name a new folder",
    )


def _described(parts: Parts) -> dict[str, str]:
    """All that the numbers of a search follow from, by name; in short where it is long."""
    problem = parts.problem
    machines = [
        [machine.hardware, machine.clock_hz, *map(_numbers, (machine.model, machine.parameters))]
        + [_numbers(machine.power)]
        for machine in problem.machines
    ]
    return {
        "jaxperf": version("jaxperf"),
        "jax": jax.__version__,
        "method": parts.method,
        "chunk_points": str(parts.chunk_points),
        "job": _digest(msgspec.json.encode(problem.job)),
        "space": _digest(msgspec.json.encode(problem.space)),
        "machines": _digest(msgspec.json.encode(machines)),
    }


def _numbers(tree: Any) -> list[str]:
    """The digests of all arrays and numbers of a pytree, and of its form."""
    leaves, form = jax.tree_util.tree_flatten(tree)
    arrays = [np.asarray(leaf) for leaf in leaves]
    return [str(form), *(_digest(f"{a.dtype}{a.shape}".encode() + a.tobytes()) for a in arrays)]


def _digest(content: bytes | msgspec.Raw) -> str:
    return hashlib.sha256(content).hexdigest()


def _some(items: Iterable[object]) -> str:
    every = [str(item) for item in items]
    return ", ".join(every[:_SHOWN]) + (f" and {len(every) - _SHOWN} more" * (len(every) > _SHOWN))


def _read(path: Path, kind: Any) -> Any:
    """The content of a file, `None` where there is none."""
    try:
        sealed = msgspec.json.decode(path.read_bytes(), type=_Sealed)
        if _digest(sealed.content) == sealed.sha256:
            return msgspec.json.decode(sealed.content, type=kind)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise ConfigError(f"cannot be read: {error.strerror}", where=str(path)) from None
    except NOT_READABLE:
        pass
    raise _damaged(path)


def _damaged(path: Path) -> ConfigError:
    remedy = "remove it and search again: only this part is done anew"
    return ConfigError("is damaged", where=str(path), remedy=remedy)


def _write(path: Path, content: Any) -> None:
    inner = msgspec.json.encode(content)
    sealed = msgspec.json.encode(_Sealed(_digest(inner), msgspec.Raw(inner)))
    with new_file(path, overwrite=True) as file:
        file.write(sealed)
