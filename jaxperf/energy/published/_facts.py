"""The table of published results: one value a row, with its metric and its unit."""

import csv
import io
import math
import os
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from jaxperf.energy._content import decompressed, read_content
from jaxperf.energy.published._benchmarks import scenario_of
from jaxperf.errors import LogError
from jaxperf.trace import Note

_TEXTS = "round scale public_id org system accelerator model scenario metric unit".split()
_COLUMNS = [*_TEXTS, "total_accelerators", "value"]

SCALES = ("datacenter", "edge", "tiny", "training")
SCENARIOS = ("", "offline", "server", "interactive", "singlestream", "multistream")
_STREAMS = ("singlestream", "multistream")

_ENERGY: Mapping[str, float] = {"MJ": 1e6, "kJ": 1e3, "J": 1.0, "mJ": 1e-3, "uJ": 1e-6}
_TIME: Mapping[str, float] = {"h": 3600.0, "min": 60.0, "s": 1.0, "ms": 1e-3, "us": 1e-6}

_LONGEST_FIELD = 1000
"""A column of texts is as wide as the longest of them."""

UNITS: Mapping[str, Mapping[str, float]] = {
    "power": {"kW": 1e3, "W": 1.0, "mW": 1e-3, "uW": 1e-6},
    "throughput": {"samples/s": 1.0, "queries/s": 1.0, "tokens/s": 1.0},
    "latency": _TIME,
    "energy_per_stream": _ENERGY,
    "energy_per_inference": _ENERGY,
    "energy_to_train": _ENERGY,
    "time_to_train": _TIME,
}
"""By metric, its units and what each is in W, J, s or the work it names per second."""


@dataclass(frozen=True)
class Facts:
    """Published values, a column each; all have one entry a row.

    Attributes:
        source: the file.
        round, scale, public_id, org, system, accelerator: whose value it is.
        total_accelerators: of the system; NaN where the table does not tell.
        model, scenario: of the benchmark, as written.
        metric, unit: of the value, as in `UNITS`.
        value: in that unit.
        line: of the file, counted from 1.
        notes: what stands out.
    """

    source: str
    round: np.ndarray
    scale: np.ndarray
    public_id: np.ndarray
    org: np.ndarray
    system: np.ndarray
    accelerator: np.ndarray
    total_accelerators: np.ndarray
    model: np.ndarray
    scenario: np.ndarray
    metric: np.ndarray
    unit: np.ndarray
    value: np.ndarray
    line: np.ndarray
    notes: tuple[Note, ...]

    @property
    def rows(self) -> int:
        """Number of values."""
        return len(self.value)


def read_facts(path: str | os.PathLike[str]) -> Facts:
    """Read a table of published results.

    Args:
        path: CSV with a row of names; xz and gzip are told by content.

    Returns:
        The table, in the order of its rows. A row that stands twice is kept and noted: published
        tables have one for each of two results that happen to be equal.

    Raises:
        LogError: it cannot be read, a column is missing or stands twice, or a row has too few
            fields, an unknown scale, scenario or metric, a unit that is not one of its metric, or
            a value that is no positive number.

    Example:
        >>> import tempfile
        >>> head = "round,scale,public_id,org,system,accelerator,total_accelerators,model,"
        >>> head += "scenario,metric,unit,value\\n"
        >>> row1 = "v4.1,datacenter,1,A,S,G,8,ResNet,Offline,throughput,samples/s,1000\\n"
        >>> row2 = "v4.1,datacenter,1,A,S,G,8,ResNet,Offline,power,W,500\\n"
        >>> with tempfile.NamedTemporaryFile("w", suffix=".csv") as file:
        ...     _ = file.write(head + row1 + row2)
        ...     file.flush()
        ...     read_facts(file.name).value.tolist()
        [1000.0, 500.0]
    """
    source = os.fspath(path)
    content, whole = decompressed(read_content(path), source)
    if not whole:
        raise LogError("damaged compression", where=source, got="an end before that of the table")
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise LogError("not UTF-8 text", where=source, got=str(error)) from None
    rows = list(_rows(text, source))
    if not rows:
        raise LogError("no rows", where=source, expected="published results below the names")
    columns = {name: np.array([row[name] for row, _ in rows], np.str_) for name in _TEXTS}
    return Facts(
        source=source,
        total_accelerators=np.array(
            [_number(row, "total_accelerators", f"{source}, line {line}") for row, line in rows]
        ),
        value=np.array([_number(row, "value", f"{source}, line {line}") for row, line in rows]),
        line=np.array([line for _, line in rows], np.int64),
        notes=_repeated(rows, source),
        **columns,
    )


def _rows(text: str, source: str) -> Iterator[tuple[dict[str, str], int]]:
    reader = csv.reader(io.StringIO(text, newline=""))
    try:
        names = [name.strip() for name in next(reader, [])]
        _check_names(names, f"{source}, line 1")
        for fields in reader:
            if fields:
                where = f"{source}, line {reader.line_num}"
                yield _checked(names, fields, where), reader.line_num
    except csv.Error as error:
        raise LogError(
            "not a CSV table", where=f"{source}, line {reader.line_num}", got=str(error)
        ) from None


def _check_names(names: list[str], where: str) -> None:
    if missing := [name for name in _COLUMNS if name not in names]:
        raise LogError(
            "missing columns",
            where=where,
            got=",".join(names)[:200] or "an empty line",
            expected=", ".join(missing),
        )
    if twice := [name for name, count in Counter(names).items() if count > 1]:
        raise LogError("a column stands twice", where=where, got=", ".join(twice))


def _checked(names: list[str], fields: list[str], where: str) -> dict[str, str]:
    if len(fields) != len(names):
        raise LogError(
            "wrong number of fields", where=where, got=str(len(fields)), expected=str(len(names))
        )
    longest = max(map(len, fields))
    if longest > _LONGEST_FIELD:
        raise LogError(
            "too long a field",
            where=where,
            got=f"{longest} characters",
            expected=f"at most {_LONGEST_FIELD}",
        )
    row = {name: field.strip() for name, field in zip(names, fields, strict=True)}
    if not re.fullmatch(r"v\d+(\.\d+)*", row["round"]):
        raise LogError("not a round", where=where, got=repr(row["round"]), expected="such as v4.1")
    _check_word("scale", row["scale"], row["scale"], SCALES, where)
    _check_word("scenario", row["scenario"], scenario_of(row["scenario"]), SCENARIOS, where)
    _check_word("metric", row["metric"], row["metric"], UNITS, where)
    if row["metric"] == "energy_per_stream" and scenario_of(row["scenario"]) not in _STREAMS:
        raise LogError(
            "energy_per_stream outside a scenario of streams",
            where=where,
            got=repr(row["scenario"]),
            expected=", ".join(_STREAMS),
        )
    if row["unit"] not in UNITS[row["metric"]]:
        raise LogError(
            f"wrong unit of {row['metric']}",
            where=where,
            got=repr(row["unit"]),
            expected=", ".join(UNITS[row["metric"]]),
        )
    return row


def _check_word(what: str, written: str, word: str, known, where: str) -> None:
    if word not in known:
        raise LogError(
            f"unknown {what}",
            where=where,
            got=repr(written),
            expected=", ".join(name for name in known if name),
        )


def _number(row: dict[str, str], column: str, where: str) -> float:
    if not row[column] and column != "value":
        return math.nan
    try:
        number = float(row[column])
    except ValueError:
        number = math.nan
    # Nothing that was measured took no time, no power and no energy.
    if not 0.0 < number < math.inf:
        raise LogError(
            f"no positive number in {column}",
            where=where,
            got=repr(row[column]),
            expected="a finite number above 0",
        )
    return number


def _repeated(rows: list[tuple[dict[str, str], int]], source: str) -> tuple[Note, ...]:
    first: dict[tuple[str, ...], int] = {}
    again = []
    for row, line in rows:
        key = tuple(row[name] for name in _COLUMNS)
        if first.setdefault(key, line) != line:
            again.append(line)
    if not again:
        return ()
    return (
        Note(
            "repeated-facts",
            f"{len(again)} rows stand a second time; equal results count once",
            f"{source}, line {again[0]}",
        ),
    )
