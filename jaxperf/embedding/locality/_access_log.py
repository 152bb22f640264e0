"""Read access logs of embedding tables: which rows were looked up, in order."""

import io
import os
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import PurePath

import numpy as np

from jaxperf.embedding.locality._log_content import (
    PlainIds,
    binary_ids,
    format_of,
    text_ids,
    unpacked,
)
from jaxperf.errors import LogError
from jaxperf.trace import Note

_LENGTHS, _OFFSETS, _ROWS = "lengths", "offsets", "rows"
_IDS = ("indices", "values", "ids")
_ENDINGS = (".gz", ".xz", ".npz", ".txt", ".trace", ".bin", ".csv")


@dataclass(frozen=True)
class AccessLog:
    """The lookups of one table.

    Attributes:
        table: its name.
        file: where it was read; empty where it was made of arrays.
        format: how it was written.
        ids: (n,) int64 keys or row indices as logged, in order.
        row: (n,) int32 rank of each id among the distinct ones, from 0.
        distinct: number of distinct ids.
        offsets: (bags + 1,) int64 where each bag begins, and the end; `None` where the log does
            not say which lookups belong to one sample.
        rows: rows of the table; `None` where the log does not say.
        notes: what was guessed.
    """

    table: str
    file: str
    format: str
    ids: np.ndarray
    row: np.ndarray
    distinct: int
    offsets: np.ndarray | None
    rows: int | None
    notes: tuple[Note, ...] = ()

    @property
    def accesses(self) -> int:
        """Number of lookups."""
        return len(self.ids)

    @property
    def bags(self) -> int | None:
        """Number of bags; `None` where the log has none."""
        return None if self.offsets is None else len(self.offsets) - 1


def access_log(
    ids: np.ndarray,
    *,
    table: str = "table",
    file: str = "",
    format: str = "array",
    offsets: np.ndarray | None = None,
    rows: int | None = None,
    hashed: bool = False,
    notes: tuple[Note, ...] = (),
    place: Callable[[int], str] | None = None,
) -> AccessLog:
    """An access log of an array.

    Args:
        ids: (n,) integers.
        table: name of the table.
        file: where they come from.
        format: how they were written there.
        offsets: (bags + 1,) where each bag begins, and the end.
        rows: rows of the table, above every id.
        hashed: ids are hashes, and a negative one is no fault.
        notes: what was guessed.
        place: where an id of an index stands, for messages.

    Raises:
        LogError: no ids, a negative one, or one that is not below `rows`; or offsets that do not
            start at 0, fall, or do not end with the ids.

    Example:
        >>> log = access_log(np.array([70, 10, 70]))
        >>> log.row.tolist(), log.distinct
        ([1, 0, 1], 2)
    """
    where = f"{file}: {table}" if file and format == "npz" else file or table
    at = place or (lambda index: f"{where}, access {index}")
    ids = np.asarray(ids)
    if ids.ndim != 1 or ids.dtype.kind not in "iu":
        raise LogError(
            "no ids",
            where=where,
            got=f"{ids.dtype} of shape {ids.shape}",
            expected="one row of integers",
        )
    if not len(ids):
        raise LogError("empty table", where=where, expected="at least one access")
    if ids.dtype == np.uint64:
        hashed, ids = hashed or bool(ids.max() >> np.uint64(63)), ids.view(np.int64)
    ids = ids.astype(np.int64, copy=False)
    if not hashed and ids.min() < 0:
        index = int(np.flatnonzero(ids < 0)[0])
        raise LogError("negative id", where=at(index), got=str(ids[index]), expected="0 or more")
    if rows is not None and ids.max() >= rows:
        index = int(np.flatnonzero(ids >= rows)[0])
        raise LogError(
            "id out of range", where=at(index), got=str(ids[index]), expected=f"below {rows}"
        )
    if offsets is not None:
        offsets = _checked_offsets(np.asarray(offsets), len(ids), where)
    distinct, row = np.unique(ids, return_inverse=True)
    row = row.astype(np.int32)
    return AccessLog(table, file, format, ids, row, len(distinct), offsets, rows, notes)


def _checked_offsets(offsets: np.ndarray, ids: int, where: str) -> np.ndarray:
    if offsets.ndim != 1 or offsets.dtype.kind not in "iu" or len(offsets) < 2:
        raise LogError(
            "no offsets",
            where=where,
            got=f"{offsets.dtype} of shape {offsets.shape}",
            expected="where each bag begins, and the end",
        )
    offsets = offsets.astype(np.int64)
    if offsets[-1] != ids or offsets[0] != 0:
        raise LogError(
            "lengths of bags and ids do not agree",
            where=where,
            got=f"bags from {offsets[0]} to {offsets[-1]}",
            expected=f"from 0 to {ids}, the number of ids",
        )
    if (np.diff(offsets) < 0).any():
        bag = int(np.flatnonzero(np.diff(offsets) < 0)[0])
        raise LogError("bag of negative length", where=f"{where}, bag {bag}")
    return offsets


def read_access_logs(
    path: str | os.PathLike[str], *, format: str = "auto", rows: int | None = None
) -> tuple[AccessLog, ...]:
    """Read the lookups of one table, or of all tables of a file.

    Text has one id a line, or the ids of one bag a line. A plain binary has ids of 4 or 8 bytes.
    An .npz has for each table an array of ids, named after it or `indices`, `ids` or `values`,
    and may have its `offsets` or `lengths` and the number of its `rows`, each behind the table's
    name and `_` (`t0_indices`, `t0_offsets`, `t1_indices`, ...); `lengths` of shape (tables, bags)
    divide one array of ids among tables, as FBGEMM's batches do. Each may be packed by gzip or xz.

    Args:
        path: the file.
        format: of `LOG_FORMATS`.
        rows: rows of each table, where the file does not say.

    Returns:
        One log a table. Ids of a binary that fill their type are taken as hashes, and may be
        negative.

    Raises:
        LogError: the file cannot be read in that format, is empty or cut off, its bytes stand in
            the other order, an id is negative or out of range, or bags and ids do not agree.
        ConfigError: there is no such format.

    Example:
        >>> import tempfile, pathlib
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     path = pathlib.Path(folder, "clicks.txt")
        ...     _ = path.write_text("3 1\\n3\\n")
        ...     (log,) = read_access_logs(path)
        >>> log.table, log.ids.tolist(), log.offsets.tolist()
        ('clicks', [3, 1, 3], [0, 2, 3])
    """
    where = os.fspath(path)
    content = unpacked(path)
    name, note = format_of(content, format, where)
    if name == "npz":
        return _npz_logs(content, where, rows)
    plain = text_ids(content, where) if name == "text" else binary_ids(content, name, where)
    return (_plain_log(plain, name, where, rows, note),)


def _plain_log(
    plain: PlainIds, name: str, where: str, rows: int | None, note: Note | None
) -> AccessLog:
    notes = [note] if note else []
    if plain.hashed:
        text = "ids fill their type: taken as hashes, of which only equality counts"
        notes.append(Note("hashed-ids", text, where))
    return access_log(
        plain.ids,
        table=_stem(where),
        file=where,
        format=name,
        offsets=plain.offsets,
        rows=rows,
        hashed=plain.hashed,
        notes=tuple(notes),
        place=plain.place,
    )


def _stem(where: str) -> str:
    name = PurePath(where).name
    while name.endswith(_ENDINGS):
        name = name[: name.rindex(".")]
    return name or where


def _npz_logs(content: bytes, where: str, rows: int | None) -> tuple[AccessLog, ...]:
    arrays = _arrays(content, where)
    parts: dict[str, dict[str, np.ndarray]] = {}
    for name, array in arrays.items():
        table, part = _table_and_part(name)
        if part in parts.setdefault(table, {}):
            raise LogError("two arrays of ids", where=f"{where}: {table or name}")
        parts[table][part] = array
    logs = [
        log
        for table, found in parts.items()
        for log in _table_logs(table or _stem(where), found, where, rows)
    ]
    if not logs:
        raise LogError("no tables", where=where, expected="an array of ids for each table")
    bags = {log.bags for log in logs if log.bags is not None}
    if len(bags) > 1:
        short, long = min(bags), max(bags)
        raise LogError(
            "mixed lengths: tables differ in their bags",
            where=where,
            got=f"{short} and {long}",
            expected="one bag of every table for each sample",
        )
    return tuple(logs)


def _arrays(content: bytes, where: str) -> dict[str, np.ndarray]:
    try:
        with np.load(io.BytesIO(content), allow_pickle=False) as file:
            return {name: file[name] for name in file.files}
    except (ValueError, EOFError, OSError, zipfile.BadZipFile, AttributeError) as error:
        raise LogError(
            "no .npz, or a damaged one", where=where, got=str(error).split("\n")[0]
        ) from None


def _table_and_part(name: str) -> tuple[str, str]:
    """`t0_lengths` is the `lengths` of `t0`; a name without such an ending has the ids."""
    for part in (_LENGTHS, _OFFSETS, _ROWS, *_IDS):
        if name == part or name.endswith((f"_{part}", f".{part}", f"/{part}")):
            return name[: -len(part) - 1], "ids" if part in _IDS else part
    return name, "ids"


def _table_logs(
    table: str, found: dict[str, np.ndarray], where: str, rows: int | None
) -> list[AccessLog]:
    place = f"{where}: {table}"
    if "ids" not in found:
        raise LogError("lengths without ids", where=place, expected="an array of ids")
    if _ROWS in found:
        if found[_ROWS].size != 1 or found[_ROWS].dtype.kind not in "iu":
            raise LogError("no number of rows", where=place, expected="one integer")
        rows = int(found[_ROWS].reshape(())[()])
    ids, lengths, offsets = found["ids"], found.get(_LENGTHS), found.get(_OFFSETS)
    if lengths is None:
        return [access_log(ids, table=table, file=where, format="npz", offsets=offsets, rows=rows)]
    if lengths.ndim not in (1, 2) or lengths.dtype.kind not in "iu" or not lengths.size:
        raise LogError(
            "no lengths",
            where=place,
            got=f"{lengths.dtype} of shape {lengths.shape}",
            expected="(bags,) or (tables, bags) integers",
        )
    if (lengths < 0).any():
        raise LogError("bag of negative length", where=place)
    total = int(lengths.sum())
    ends = np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)])
    if total != ids.size or (offsets is not None and not np.array_equal(offsets, ends)):
        raise LogError(
            "mixed lengths: bags, offsets and ids do not agree",
            where=place,
            got=f"lengths of {total} ids",
            expected=f"{ids.size} ids",
        )
    if lengths.ndim == 1:
        return [access_log(ids, table=table, file=where, format="npz", offsets=ends, rows=rows)]
    bags = lengths.shape[1]
    starts = ends[::bags]
    return [
        access_log(
            ids[starts[i] : starts[i + 1]],
            table=f"{table}_{i}",
            file=where,
            format="npz",
            offsets=ends[i * bags : (i + 1) * bags + 1] - starts[i],
            rows=rows,
        )
        for i in range(len(lengths))
    ]
