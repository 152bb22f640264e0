"""The readings of a plain log as rows of text: from a table, or from the output of ipmitool."""

import csv
import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from jaxperf.energy._series_columns import Columns, columns_of
from jaxperf.errors import LogError

_LONGEST_CELL = 256
"""As long as the name of a host can be; times and values are shorter."""

_IPMI_POWER = "Instantaneous power reading"
_IPMI = re.compile(
    rf"{_IPMI_POWER}\s*:(?P<power>[^\n]*)"
    rf"(?:(?:(?!{_IPMI_POWER}).)*?IPMI timestamp\s*:(?P<time>[^\n]*)\n)?",
    re.DOTALL,
)


@dataclass(frozen=True, eq=False)
class Rows:
    """The readings of a log as text, one row each.

    Attributes:
        line: (n,) where each stands, counted from 1.
        time, value: (n) as written; a time is empty where the row is not whole.
        begin: (n) likewise, of means until a time; all empty where powers are of a moment.
        owner: (n) host and GPU, with a tab between.
        columns: what they mean.
        cut: the text ends within a line: the last row may be short of something.
        odd: so it is: the last row is unlike all others.
    """

    line: np.ndarray
    time: Sequence[str]
    begin: Sequence[str]
    value: Sequence[str]
    owner: Sequence[str]
    columns: Columns
    cut: bool
    odd: bool


def rows_of(text: str, where: str, wanted: str | None = None) -> Rows:
    """The readings of a log; `wanted` as `columns_of` has it.

    Raises:
        LogError: there is none, the columns are not told, or readings are of parts of a host.

    Example:
        >>> rows = rows_of("time,host,watts\\n0,a,70\\n1,a,71\\n", "power.csv")
        >>> rows.line.tolist(), rows.value
        ([2, 3], ['70', '71'])
    """
    rows = _ipmi_rows(text) if _IPMI_POWER in text else _table_rows(text, where, wanted)
    if not rows.time:
        raise LogError("no readings", where=where, expected="lines of time and power")
    return rows


def _quoted_cells(line: str, separator: str) -> list[str]:
    return next(csv.reader([line], delimiter=separator))


def _table_rows(text: str, where: str, wanted: str | None) -> Rows:
    lines = enumerate(text.splitlines(), 1)
    numbered = [(n, line) for n, line in lines if line.strip() and not line.startswith("#")]
    if not numbered:
        raise LogError("an empty log", where=where, expected="lines of time and power")
    first, header = numbered[0]
    separator = max(",;\t", key=header.count)
    cells_of = _quoted_cells if '"' in text else str.split
    names = [cell.strip() for cell in cells_of(header, separator)]
    columns = columns_of(names, f"{where}, line {first}", wanted)
    if columns.header:
        # A log that was begun anew repeats its header.
        numbered = [(n, line) for n, line in numbered if line != header]
    split = [cells_of(line, separator) for _, line in numbered]
    width = columns.width
    nothing = [""] * width
    cells = [row if len(row) >= width else nothing for row in split]
    _refuse_parts(names, columns, cells, f"{where}, line {first}")
    hosts, gpus = _column(cells, columns.host), _column(cells, columns.gpu)
    owner = [f"{host}\t{gpu}" for host, gpu in zip(hosts, gpus, strict=True)]
    value = _column(cells, columns.value)
    cut = not text.endswith(("\n", "\r"))
    odd = cut and len(cells) > 2 and _is_unlike(columns.value == len(cells[-1]) - 1, value, owner)
    line = np.array([n for n, _ in numbered], np.int64)
    time, begin = _column(cells, columns.time), _column(cells, columns.begin)
    return Rows(line, time, begin, value, owner, columns, cut, odd)


def _column(cells: Sequence[Sequence[str]], column: int | None) -> list[str]:
    if column is None:
        return [""] * len(cells)
    return [_cell(row[column].strip()) for row in cells]


def _cell(text: str) -> str:
    # An array of texts is as wide as the longest of them: one would fill the memory.
    return text if len(text) <= _LONGEST_CELL else f"{text[:_LONGEST_CELL]}.."


def _refuse_parts(
    names: Sequence[str], columns: Columns, cells: Sequence[Sequence[str]], where: str
) -> None:
    """Rows of several parts of one host: which of them add up to it, only the user knows."""
    for part in columns.parts:
        found = sorted({row[part].strip() for row in cells if len(row) > part} - {""})
        if len(found) > 1:
            raise LogError(
                f"readings of several parts of a host, in the column {names[part]}",
                where=where,
                got=", ".join(found[:4]) + (", .." if len(found) > 4 else ""),
                expected="readings of whole hosts",
                remedy="keep the rows of those that add up to the host, and name the column host:"
                " then their sum is scored",
            )


def _is_unlike(value_is_last: bool, value: Sequence[str], owner: Sequence[str]) -> bool:
    """Whether the last row lacks what all others have: decimals, a unit, a host seen before."""
    if not value_is_last:
        return owner[-1] not in owner[:-1]
    *others, last = [re.sub(r"^[-+]?\d+", "", text) for text in value[-100:]]
    lengths = {len(other) for other in others}
    return len(lengths) == 1 and len(last) < lengths.pop()


def _ipmi_rows(text: str) -> Rows:
    found = list(_IPMI.finditer(text))
    line, counted, lines = 1, 0, []
    for match in found:
        line += text.count("\n", counted, match.start())
        counted = match.start()
        lines.append(line)
    return Rows(
        np.array(lines, np.int64),
        [_cell((match["time"] or "").strip()) for match in found],
        [""] * len(found),
        [_cell(match["power"].strip()) for match in found],
        ["\t"] * len(found),
        Columns(0, 1, None, None, None, None, counter=False, header=False),
        cut=bool(found) and found[-1]["time"] is None,
        odd=False,
    )
