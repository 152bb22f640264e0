"""The tables of an Nsight Systems export: an SQLite file, read-only, column by column.

Exports differ from release to release and hold only the tables that something was written to, so
every table and every column may be absent. Values are taken by their type, not by the declared one:
what is no integer in a column of integers is `MISSING`.
"""

import sqlite3
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType

import numpy as np

from jaxperf.errors import TraceError
from jaxperf.trace._document import NotATrace
from jaxperf.trace._types import MISSING

# The module's own texts of errors may not be UTF-8 where the schema is damaged.
_ERRORS = (sqlite3.Error, UnicodeError)
_ROWS_AT_ONCE = 50_000
# Longer names would only fill the memory; the longest C++ kernel names are a tenth of this.
_LONGEST_TEXT = 64 << 10
_LARGEST_VALUE_BYTES = 256 << 20
_SHOWN = 6
EXPORT_COMMAND = "nsys export --type sqlite REPORT.nsys-rep"


class Tables:
    """The ordinary tables of one file.

    Views, virtual tables and generated columns are not looked at: they would run what a stranger
    wrote. The file is opened read-only and taken as unchanging, so nothing is written beside it.

    Args:
        path: the file.
    """

    def __init__(self, path: Path):
        self._path = path
        self._columns: dict[str, frozenset[str]] = {}
        uri = path.resolve().as_uri() + "?mode=ro&immutable=1"
        try:
            self._connection = sqlite3.connect(uri, uri=True)
        except _ERRORS as error:
            raise self._damaged(error) from None
        self._connection.text_factory = lambda text: text.decode(errors="replace")
        self._connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, _LARGEST_VALUE_BYTES)

    def __enter__(self) -> "Tables":
        try:
            self._connection.execute("PRAGMA trusted_schema=OFF")
            # A virtual table has no root page.
            found = self._connection.execute(
                "SELECT name FROM sqlite_master WHERE type = 'table' AND rootpage > 0"
            )
            for (name,) in found.fetchall():
                rows = self._connection.execute(f"PRAGMA table_info({_quoted(name)})")
                self._columns[name] = frozenset(row[1] for row in rows.fetchall())
        except _ERRORS as error:
            self._connection.close()
            raise self._damaged(error) from None
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._connection.close()

    @property
    def names(self) -> tuple[str, ...]:
        """The tables of the file."""
        return tuple(self._columns)

    def has(self, table: str, *columns: str) -> bool:
        """Whether the file holds a table with all of these columns."""
        return set(columns) <= self._columns.get(table, frozenset()) and table in self._columns

    def numbers(self, table: str, columns: Sequence[str]) -> dict[str, np.ndarray]:
        """Columns of integers.

        Args:
            table: its name.
            columns: their names.

        Returns:
            (rows,) int64 of each, `MISSING` where it is NULL, of another type, or has no column;
            no rows where there is no such table.
        """
        return self.read(table, columns)[0]

    def texts(self, table: str, key: str, text: str) -> dict[int, str]:
        """A column of texts by a column of integers; empty where the table lacks either."""
        if not self.has(table, key, text):
            return {}
        numbers, texts = self.read(table, [key], text)
        return {
            number: value
            for number, value in zip(numbers[key].tolist(), texts, strict=True)
            if value is not None and number != MISSING
        }

    def read(
        self, table: str, columns: Sequence[str], text: str | None = None
    ) -> tuple[dict[str, np.ndarray], list[str | None]]:
        """Columns of integers, and one of texts, of the same rows; see `numbers`.

        Args:
            table: its name.
            columns: names of the columns of integers.
            text: name of the column of texts, `None` for none.

        Returns:
            The columns of integers, and the texts: `None` where it is NULL or of another type.
        """
        known = [column for column in columns if self.has(table, column)]
        wanted = [_quoted(column) for column in known]
        if text is not None and self.has(table, text):
            name = _quoted(text)
            wanted.append(f"CASE typeof({name}) WHEN 'text' THEN substr({name}, 1, ?) END")
        parts: dict[str, list[np.ndarray]] = {column: [] for column in known}
        texts: list[str | None] = []
        count = 0
        if table in self._columns:
            query = f"SELECT {', '.join([*wanted, '0'])} FROM {_quoted(table)}"
            longest = (_LONGEST_TEXT,) if len(wanted) > len(known) else ()
            try:
                cursor = self._connection.execute(query, longest)
                while rows := cursor.fetchmany(_ROWS_AT_ONCE):
                    values = list(zip(*rows, strict=True))
                    for column, given in zip(known, values, strict=False):
                        parts[column].append(_integers(given))
                    texts += values[len(known)] if longest else [None] * len(rows)
                    count += len(rows)
            except _ERRORS as error:
                raise self._damaged(error, table) from None
        found = {
            column: np.concatenate(parts[column]) if parts.get(column) else np.full(count, MISSING)
            for column in columns
        }
        return found, texts

    def stranger(self) -> NotATrace:
        """The error for a file of another program."""
        shown = ", ".join(self.names[:_SHOWN]) + (", ..." if len(self.names) > _SHOWN else "")
        return NotATrace(
            "an SQLite file of another program",
            where=str(self._path),
            got=f"tables {shown}" if shown else "no table",
            expected=f"an export of Nsight Systems ({EXPORT_COMMAND})",
        )

    def _damaged(self, error: Exception, table: str | None = None) -> TraceError:
        where = str(self._path) if table is None else f"{self._path}, table {table}"
        return TraceError(
            "a damaged SQLite file",
            where=where,
            got=" ".join(str(error).split())[:200],
            expected="a whole export of Nsight Systems",
            remedy=f"export it again: {EXPORT_COMMAND}",
        )


def _integers(values: tuple[object, ...]) -> np.ndarray:
    """(n,) int64, `MISSING` for what is no integer."""
    array = np.array(values)
    if array.dtype != np.int64:
        array = np.array([v if type(v) is int else MISSING for v in values], np.int64)
    return array


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'
