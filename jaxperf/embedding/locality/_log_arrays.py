"""The arrays of an .npz: which table each is of, and which of its ids are of one bag.

The names are those of FBGEMM's requests (`indices`, `offsets`, `lengths`), of TorchRec's
`KeyedJaggedTensor` (`keys`, `values`, `lengths`, `weights`) and of `torch.nn.EmbeddingBag`
(`num_embeddings`).
"""

from dataclasses import dataclass

import numpy as np

from jaxperf._bounded import TooManyBytes
from jaxperf._npz import MOST_BYTES, NotArrays, npz_arrays
from jaxperf.errors import LogError

_PARTS = {
    "indices": "ids",
    "values": "ids",
    "ids": "ids",
    "lengths": "lengths",
    "offsets": "offsets",
    "rows": "rows",
    "num_embeddings": "rows",
    "batch_size": "batch_size",
    "num_tables": "num_tables",
    "per_sample_weights": "weights",
    "weights": "weights",
    "keys": "keys",
}


@dataclass(frozen=True)
class TableArrays:
    """What an .npz says of one table.

    Attributes:
        table: its name.
        ids: (n,) integers.
        offsets: (bags + 1,) int64 where each bag begins, and the end; `None` where unknown.
        rows: of the table; `None` where unknown.
    """

    table: str
    ids: np.ndarray
    offsets: np.ndarray | None
    rows: int | None


def npz_tables(content: bytes, where: str, unnamed: str) -> list[TableArrays]:
    """The tables of an .npz, in the order of their arrays.

    Args:
        content: of the file.
        where: the file, for messages.
        unnamed: what a table is called whose arrays do not say it.

    Raises:
        LogError: it is none or is damaged, or its arrays do not agree with each other.
    """
    groups: dict[str, dict[str, np.ndarray]] = {}
    for name, array in _arrays(content, where).items():
        table, part = _table_and_part(name, array)
        if part in groups.setdefault(table, {}):
            raise LogError(f"two arrays of {part}", where=f"{where}: {table or name}")
        groups[table][part] = array
    tables = [
        one for name, found in groups.items() for one in _divided(name, found, where, unnamed)
    ]
    if not tables:
        raise LogError("no tables", where=where, expected="an array of ids for each table")
    bags = {len(one.offsets) - 1 for one in tables if one.offsets is not None}
    if len(bags) > 1:
        raise LogError(
            "mixed lengths: tables differ in their bags",
            where=where,
            got=f"{min(bags)} and {max(bags)}",
            expected="one bag of every table for each sample",
        )
    return tables


def _arrays(content: bytes, where: str) -> dict[str, np.ndarray]:
    try:
        return npz_arrays(content)
    except TooManyBytes as error:
        raise LogError(
            "holds too much", where=where, got=str(error), expected=f"at most {MOST_BYTES} bytes"
        ) from None
    except NotArrays as error:
        raise LogError("no .npz, or a damaged one", where=where, got=str(error)) from None


def _table_and_part(name: str, array: np.ndarray) -> tuple[str, str]:
    """`t0_lengths` is the `lengths` of `t0`; a name without such an ending has the ids."""
    for ending, part in _PARTS.items():
        # Numbers named "keys" or "weights" are ids of a table of that name.
        if (part == "keys") != (array.dtype.kind in "US") or (
            part == "weights" and array.dtype.kind != "f"
        ):
            continue
        if name == ending or name.endswith((f"_{ending}", f".{ending}", f"/{ending}")):
            return name[: -len(ending) - 1], part
    return name, "ids"


def _divided(
    name: str, found: dict[str, np.ndarray], where: str, unnamed: str
) -> list[TableArrays]:
    """The tables that share an array of ids: all bags of one stand before those of the next."""
    place = f"{where}: {name}" if name else where
    if "ids" not in found:
        raise LogError(f"{', '.join(found)} without ids", where=place, expected="an array of ids")
    ids = found["ids"].reshape(-1)
    if "weights" in found and found["weights"].size != ids.size:
        raise LogError(
            "mixed lengths: weights and ids do not agree",
            where=place,
            got=f"{found['weights'].size} weights",
            expected=f"{ids.size}, one for each id",
        )
    offsets = _offsets(found, ids.size, place)
    bags = None if offsets is None else len(offsets) - 1
    rows = _whole_numbers("rows", found, place)
    tables = _number_of_tables(found, rows, bags, place)
    if tables is None:
        one_size = None if rows is None else int(rows[0])
        return [TableArrays(name or unnamed, ids, offsets, one_size)]
    if offsets is None or bags is None or bags % tables:
        raise LogError(
            "mixed lengths: bags do not divide among tables",
            where=place,
            got="neither lengths nor offsets" if bags is None else f"{bags} bags",
            expected=f"as many of each of {tables} tables",
        )
    of_each = bags // tables
    names = [f"{name or unnamed}_{i}" for i in range(tables)]
    if "keys" in found:
        keys = found["keys"].reshape(-1).tolist()
        names = [f"{name}_{key}" if name else str(key) for key in keys]
    parts = [offsets[i * of_each : (i + 1) * of_each + 1] for i in range(tables)]
    each_rows = [None] * tables if rows is None else np.broadcast_to(rows, tables).tolist()
    return [
        TableArrays(table, ids[part[0] : part[-1]], part - part[0], its_rows)
        for table, part, its_rows in zip(names, parts, each_rows, strict=True)
    ]


def _number_of_tables(
    found: dict[str, np.ndarray], rows: np.ndarray | None, bags: int | None, place: str
) -> int | None:
    """`None` where nothing says that there are several."""
    said = {}
    if "lengths" in found and found["lengths"].ndim == 2:
        said["lengths"] = len(found["lengths"])
    if "keys" in found:
        said["keys"] = found["keys"].size
        if not said["keys"]:
            raise LogError("no keys", where=place, expected="the name of each table")
    if rows is not None and len(rows) > 1:
        said["rows"] = len(rows)
    tables = _whole_numbers("num_tables", found, place)
    if tables is not None:
        said["num_tables"] = int(tables[0])
    batch_size = _whole_numbers("batch_size", found, place)
    if batch_size is not None and bags is not None:
        said["batch_size"] = -(-bags // int(batch_size[0]))
        if bags % int(batch_size[0]):
            raise LogError(
                "mixed lengths: bags are no whole batches",
                where=place,
                got=f"{bags} bags",
                expected=f"a multiple of {int(batch_size[0])}",
            )
    if len(set(said.values())) > 1:
        raise LogError(
            "mixed lengths: arrays differ in the number of tables",
            where=place,
            got=", ".join(f"{count} by {part}" for part, count in said.items()),
        )
    return next(iter(said.values()), None)


def _whole_numbers(part: str, found: dict[str, np.ndarray], place: str) -> np.ndarray | None:
    """(k,) the numbers of a part, above 0; one alone unless they are rows."""
    if part not in found:
        return None
    numbers = found[part].reshape(-1)
    many = part == "rows"
    if (
        numbers.dtype.kind not in "iu"
        or not len(numbers)
        or (numbers < 1).any()
        or not (many or len(numbers) == 1)
    ):
        raise LogError(
            f"no number of {part}",
            where=place,
            got=f"{found[part].dtype} of shape {found[part].shape}",
            expected="integers above 0" if many else "one integer above 0",
        )
    return numbers


def _offsets(found: dict[str, np.ndarray], ids: int, place: str) -> np.ndarray | None:
    """Where each bag begins, and the end, by the lengths or as they stand there."""
    offsets = None if "offsets" not in found else checked_offsets(found["offsets"], ids, place)
    if "lengths" not in found:
        return offsets
    lengths = found["lengths"]
    if lengths.ndim not in (1, 2) or lengths.dtype.kind not in "iu" or not lengths.size:
        raise LogError(
            "no lengths",
            where=place,
            got=f"{lengths.dtype} of shape {lengths.shape}",
            expected="(bags,) or (tables, bags) integers",
        )
    if (lengths < 0).any():
        raise LogError("bag of negative length", where=place)
    ends = np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)])
    if ends[-1] != ids or (offsets is not None and not np.array_equal(offsets, ends)):
        raise LogError(
            "mixed lengths: bags, offsets and ids do not agree",
            where=place,
            got=f"lengths of {ends[-1]} ids",
            expected=f"{ids} ids, and offsets at the sums of lengths",
        )
    return ends


def checked_offsets(offsets: np.ndarray, ids: int, where: str) -> np.ndarray:
    """Offsets of bags, once they rise from 0 to the number of ids.

    Raises:
        LogError: they do not.
    """
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
            remedy="append the end of the last bag"
            if 0 == offsets[0] <= offsets[-1] < ids
            else None,
        )
    if (np.diff(offsets) < 0).any():
        bag = int(np.flatnonzero(np.diff(offsets) < 0)[0])
        raise LogError("bag of negative length", where=f"{where}, bag {bag}")
    return offsets
