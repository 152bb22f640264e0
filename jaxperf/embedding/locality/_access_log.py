"""Read access logs of embedding tables: which rows were looked up, in order."""

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import PurePath

import numpy as np

from jaxperf.embedding.locality._binary_ids import BINARY_FORMATS, binary_ids
from jaxperf.embedding.locality._log_arrays import checked_offsets, npz_tables
from jaxperf.embedding.locality._log_content import format_of, text_ids, unpacked
from jaxperf.errors import LogError
from jaxperf.trace import Note

_LOOKED_AT = 1 << 16  # ids that are looked at for hashes
_FEW_IDS = 32  # of which it cannot be said
_DENSE = 8  # times the accesses: ids up to which a table of all is smaller than a sort
_HASHED = 0.25  # share of the distinct ids whose size no row would have
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
        notes: what was guessed.
        place: where an id of an index stands, for messages.

    Returns:
        The log. Ids that fill their type are taken as hashes, which a note says, and then
        may be negative.

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
    hashed = _look_hashed(ids)
    if hashed:
        text = "ids fill their type: taken as hashes, of which only equality counts"
        notes = (*notes, Note("hashed-ids", text, where))
    ids = ids.astype(np.int64, copy=False)
    if (not hashed or rows is not None) and ids.min() < 0:
        index = int(np.flatnonzero(ids < 0)[0])
        raise LogError("negative id", where=at(index), got=str(ids[index]), expected="0 or more")
    if rows is not None and ids.max() >= rows:
        index = int(np.flatnonzero(ids >= rows)[0])
        raise LogError(
            "id out of range", where=at(index), got=str(ids[index]), expected=f"below {rows}"
        )
    if offsets is not None:
        offsets = checked_offsets(np.asarray(offsets), len(ids), where)
    row, distinct = _ranks(ids)
    return AccessLog(table, file, format, ids, row, distinct, offsets, rows, notes)


def _ranks(ids: np.ndarray) -> tuple[np.ndarray, int]:
    """(n,) int32 rank of each id among the distinct ones, and how many there are."""
    if ids.min() >= 0 and ids.max() < _DENSE * len(ids):  # a tenth of the time of a sort
        used = np.zeros(int(ids.max()) + 1, bool)
        used[ids] = True
        rank = np.cumsum(used, dtype=np.int32)
        return rank[ids] - np.int32(1), int(rank[-1])
    distinct, row = np.unique(ids, return_inverse=True)
    return row.astype(np.int32), len(distinct)


def _look_hashed(ids: np.ndarray) -> bool:
    """Whether many distinct ids are in the outer half of what their type holds."""
    width = ids.dtype.itemsize
    distinct = np.unique(ids[:_LOOKED_AT])
    if width < 4 or len(distinct) < _FEW_IDS:
        return False
    quarter = distinct >> distinct.dtype.type(8 * width - 2)
    return bool(((quarter == 1) | (quarter == -2)).mean() >= _HASHED)


def read_access_logs(
    path: str | os.PathLike[str], *, format: str = "auto", rows: int | None = None
) -> tuple[AccessLog, ...]:
    """Read the lookups of one table, or of all tables of a file.

    Text has one id a line, or the ids of one bag a line. A plain binary has ids of 4 or 8 bytes.
    An .npz has for each table an array of ids, named after it or `indices`, `ids` or `values`,
    and may have its `offsets` or `lengths` and the number of its `rows` or `num_embeddings`, each
    behind the table's name and `_` (`t0_indices`, `t0_offsets`, `t1_indices`, ...).

    Several tables may share an array of ids, the bags of one before those of the next, as in
    FBGEMM's requests and TorchRec's `KeyedJaggedTensor`: `lengths` of (tables * bags,), or
    `offsets` of (tables * bags + 1,), with `batch_size`, `num_tables`, the `keys` or the rows of
    each to say how many; or `lengths` of shape (tables, bags). Each may be packed by gzip or xz.

    Args:
        path: the file.
        format: of `LOG_FORMATS`.
        rows: rows of each table, where the file does not say.

    Returns:
        One log a table.

    Raises:
        LogError: the file cannot be read in that format, is empty or cut off, its ids are of
            another width or in the other byte order, an id is negative or out of range, or bags
            and ids do not agree; or nothing tells the format.
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
        return tuple(
            access_log(
                one.ids,
                table=one.table,
                file=where,
                format=name,
                offsets=one.offsets,
                rows=rows if one.rows is None else one.rows,
            )
            for one in npz_tables(content, where, _stem(where))
        )
    offsets = None
    if name == "text":
        text = text_ids(content, where)
        ids, offsets = text.ids, text.offsets
        place = lambda index: f"{where}, line {text.line(index)}"
    else:
        ids, doubt = binary_ids(content, name, where)
        place = lambda index: f"{where}, byte {index * BINARY_FORMATS[name].itemsize}"
        note = note or doubt
    return (
        access_log(
            ids,
            table=_stem(where),
            file=where,
            format=name,
            offsets=offsets,
            rows=rows,
            notes=(note,) if note else (),
            place=place,
        ),
    )


def _stem(where: str) -> str:
    name = PurePath(where).name
    while name.endswith(_ENDINGS):
        name = name[: name.rindex(".")]
    return name or where
