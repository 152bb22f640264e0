"""Traces of a run read by several machines: each keeps the columns of its files in a folder.

One file of columns for each file that was read, in NumPy's own format, whose members have check
sums. It is whole or not there: it is written under another name first.
"""

import io
import json
import os
from collections.abc import Callable, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any, get_type_hints

import msgspec
import numpy as np

from jaxperf._files import new_file
from jaxperf._npz import NotArrays, npz_arrays
from jaxperf.errors import OutputError, TraceError
from jaxperf.trace._document import NotATrace
from jaxperf.trace._run import (
    PathLike,
    find_files,
    note_missing,
    nothing_found,
    one_per_rank,
    read_files,
    with_rank_of,
)
from jaxperf.trace._types import Flows, Run, SetAside, Trace
from jaxperf.trace._worker import Outcome

_SHOWN = 6
_MOST_BYTES = 1 << 40  # of one file: as many as it takes, since we wrote it
_HINTS = get_type_hints(Trace)
_COLUMNS = [name for name, kind in _HINTS.items() if kind is np.ndarray]
_OTHERS = [name for name in _HINTS if name not in (*_COLUMNS, "flows", "metadata")]


def read_shard(
    paths: PathLike | Sequence[PathLike],
    folder: PathLike,
    index: int,
    count: int,
    *,
    workers: int | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> int:
    """Read one of every so many traces of a run, and keep their columns in a folder.

    Files whose columns are in the folder already are not read again.

    Args:
        paths: as `read_run` takes them; the same for every shard.
        folder: for the columns; the same for every shard, and not one of `paths`.
        index: of this shard, from 0: it reads files `index`, `index + count`, ...
        count: how many shards there are.
        workers: number of processes, see `read_run`.
        progress: see `read_run`.

    Returns:
        How many files were read.

    Raises:
        TraceError: a file cannot be read, or the folder has the columns of others.
        OutputError: the folder cannot be written.
    """
    if not 0 <= index < count:
        expected = "i of n with i from 0 to n - 1"
        raise TraceError("not a shard", got=f"{index} of {count}", expected=expected)
    several = [paths] if isinstance(paths, str | os.PathLike) else list(paths)
    files = find_files([Path(path) for path in several], [])
    numbers = range(index, len(files), count)
    todo = []
    for number in numbers:
        path = _file(folder, number, len(files), count)
        if not path.exists():
            todo.append(number)
        elif _source_of(path) != _source(files[number].path).tolist():
            remedy = "name a new folder"
            raise TraceError("holds the columns of another file", where=str(path), remedy=remedy)
    outcomes = read_files([files[n].path for n in todo], workers, progress) if todo else []
    for number, outcome in zip(todo, outcomes, strict=True):
        if not isinstance(outcome, tuple) and (
            files[number].named or not isinstance(outcome, NotATrace)
        ):
            raise outcome
        host = files[number].host
        if isinstance(outcome, tuple) and host is not None:
            outcome = with_rank_of(outcome, host)
        path = _file(folder, number, len(files), count)
        source = files[number].path
        _write(path, {"source": _source(source), **_arrays(source, outcome)})
    return len(todo)


def merge_shards(folder: PathLike) -> Run:
    """The run whose columns all shards have kept in a folder; as `read_run` gives it.

    Args:
        folder: that of `read_shard`.

    Raises:
        TraceError: files are missing; it says of which shards. Or one is damaged.
    """
    kept = sorted(Path(folder).glob("trace-*-of-*-in-*.npz"))
    if not kept:
        raise TraceError("holds no columns of traces", where=str(folder))
    totals = {tuple(path.stem.split("-")[i] for i in (3, 5)) for path in kept}
    if len(totals) > 1:
        remedy = "name a new folder for each run and number of shards"
        raise TraceError("holds columns of several runs", where=str(folder), remedy=remedy)
    total, count = (int(text) for text in totals.pop())
    missing = [n for n in range(total) if not _file(folder, n, total, count).exists()]
    if missing:
        shards = ", ".join(f"{n}/{count}" for n in sorted({n % count for n in missing})[:_SHOWN])
        raise TraceError(
            "not all traces were read",
            where=str(folder),
            got=f"{total - len(missing)} of {total}",
            expected=f"also those of shard {shards}",
        )
    traces, set_aside, notes = [], [], []
    for path in kept:
        found = _loaded(path)
        if isinstance(found, SetAside):
            set_aside.append(found)
        else:
            traces += found
    if not traces:
        raise nothing_found([Path(folder)], set_aside)
    one_each = one_per_rank(traces, notes)
    note_missing(one_each, notes)
    return Run(one_each, tuple(set_aside), tuple(notes))


def _file(folder: PathLike, number: int, total: int, count: int) -> Path:
    return Path(folder) / f"trace-{number:06d}-of-{total}-in-{count}.npz"


def _arrays(file: Path, outcome: Outcome) -> dict[str, np.ndarray]:
    if isinstance(outcome, TraceError):
        return {"set_aside": _text([str(file), outcome.what])}
    arrays: dict[str, np.ndarray] = {}
    for place, trace in enumerate(outcome):
        others = {name: getattr(trace, name) for name in (*_OTHERS, "metadata")}
        arrays[f"{place}.others"] = _text(msgspec.to_builtins(others))
        for name in _COLUMNS:
            arrays[f"{place}.{name}"] = getattr(trace, name)
        for field in fields(Flows):
            arrays[f"{place}.flows.{field.name}"] = getattr(trace.flows, field.name)
    return arrays


def _source(file: Path) -> np.ndarray:
    """By what a file is known again, wherever it is mounted: its name and size."""
    return _text([file.name, file.stat().st_size])


def _source_of(path: Path) -> list[int]:
    arrays = _read_arrays(path)
    if "source" not in arrays:
        raise _damaged(path)
    return arrays["source"].tolist()


def _text(value: Any) -> np.ndarray:
    return np.frombuffer(json.dumps(value).encode(), np.uint8)


def _loaded(path: Path) -> tuple[Trace, ...] | SetAside:
    arrays = _read_arrays(path)
    try:
        if "set_aside" in arrays:
            return SetAside(*json.loads(arrays["set_aside"].tobytes()))
        return tuple(_trace(arrays, place) for place in range(_places(arrays)))
    except (KeyError, TypeError, ValueError, RecursionError, msgspec.ValidationError):
        raise _damaged(path) from None


def _read_arrays(path: Path) -> dict[str, np.ndarray]:
    try:
        return npz_arrays(path.read_bytes(), _MOST_BYTES)
    except (OSError, NotArrays):
        raise _damaged(path) from None


def _damaged(path: Path) -> TraceError:
    remedy = "remove it and read its shard again: only this file is read anew"
    return TraceError("is damaged", where=str(path), remedy=remedy)


def _places(arrays: dict[str, np.ndarray]) -> int:
    return sum(name.endswith(".others") for name in arrays)


def _trace(arrays: dict[str, np.ndarray], place: int) -> Trace:
    others = json.loads(arrays[f"{place}.others"].tobytes())
    values: dict[str, Any] = {name: msgspec.convert(others[name], _HINTS[name]) for name in _OTHERS}
    values |= {name: arrays[f"{place}.{name}"] for name in _COLUMNS}
    flows = Flows(**{f.name: arrays[f"{place}.flows.{f.name}"] for f in fields(Flows)})
    metadata = msgspec.convert(others["metadata"], dict[str, Any])
    return Trace(metadata=metadata, flows=flows, **values)


def _write(path: Path, arrays: dict[str, np.ndarray]) -> None:
    content = io.BytesIO()
    np.savez(content, **arrays)  # pyright: ignore[reportArgumentType]
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise OutputError(f"cannot be made: {error.strerror}", where=str(path.parent)) from None
    with new_file(path, overwrite=True) as file:
        file.write(content.getbuffer())
