"""Many jobs as columns: what they share once, and what differs by job.

A hundred thousand configurations of a model differ in a dozen fields, and each part of a step
depends on a few of these. `by_parts` computes a part once for all jobs that are alike in what it
read of them, which it finds out by watching.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeVar

import msgspec
import numpy as np

from jaxperf.config._job import Job

Part = TypeVar("Part")


class Column(NamedTuple):
    """Values of one field.

    Attributes:
        values: the different ones.
        codes: (rows,) which of them each job has.
    """

    values: Sequence[Any]
    codes: np.ndarray


@dataclass(frozen=True, eq=False)
class JobColumns:
    """Jobs that differ in some fields.

    Attributes:
        base: what all have that no column says otherwise.
        columns: by field of the job.
        rows: how many jobs.
    """

    base: Job
    columns: Mapping[str, Column]
    rows: int

    def job(self, row: int) -> Job:
        """One of the jobs."""
        changes = {name: _value(column, row) for name, column in self.columns.items()}
        return msgspec.structs.replace(self.base, **changes)

    def array(self, name: str) -> np.ndarray:
        """(rows,) a field as numbers."""
        column = self.columns.get(name)
        if column is None:
            return np.full(self.rows, getattr(self.base, name), float)
        return np.asarray(column.values, float)[column.codes]

    def take(self, rows: np.ndarray) -> "JobColumns":
        """Some of the jobs, by index or mask."""
        columns = {
            name: Column(column.values, column.codes[rows]) for name, column in self.columns.items()
        }
        return JobColumns(self.base, columns, len(np.arange(self.rows)[rows]))


def job_columns(base: Job, values: Mapping[str, Sequence[Any] | np.ndarray]) -> JobColumns:
    """Jobs from the values of the fields in which they differ.

    Args:
        base: what all have otherwise.
        values: (rows,) by field.

    Returns:
        The jobs.

    Raises:
        ValueError: no field is given, or their lengths differ.

    Example:
        >>> base = Job(layers=4, hidden_size=64, attention_heads=4, vocabulary_size=100,
        ...            sequence_length=128)
        >>> jobs = job_columns(base, {"micro_batches": [8, 8, 4]})
        >>> jobs.rows, jobs.job(2).micro_batches
        (3, 4)
    """
    (rows,) = {len(column) for column in values.values()}
    return JobColumns(base, {name: _column(column) for name, column in values.items()}, rows)


def columns_of_jobs(jobs: Sequence[Job]) -> JobColumns:
    """Jobs of any kind as columns.

    Args:
        jobs: at least one.

    Returns:
        The same jobs.

    Example:
        >>> base = Job(layers=4, hidden_size=64, attention_heads=4, vocabulary_size=100,
        ...            sequence_length=128)
        >>> other = msgspec.structs.replace(base, recompute="full")
        >>> list(columns_of_jobs([base, other]).columns)
        ['recompute']
    """
    columns = {}
    if len(jobs) > 1:
        for name in Job.__struct_fields__:
            column = _column([getattr(job, name) for job in jobs])
            if len(column.values) > 1:
                columns[name] = column
    return JobColumns(jobs[0], columns, len(jobs))


def by_parts(jobs: JobColumns, part_of: Callable[[Job], Part]) -> tuple[list[Part], np.ndarray]:
    """A part of each job, computed once for all jobs that are alike in what it depends on.

    Args:
        jobs: the jobs.
        part_of: the part of a job. It must read the job by its attributes alone: what it looks at
            is what its result may depend on.

    Returns:
        The different parts, and (rows,) which of them each job has.

    Example:
        >>> base = Job(layers=4, hidden_size=64, attention_heads=4, vocabulary_size=100,
        ...            sequence_length=128)
        >>> jobs = job_columns(base, {"micro_batches": [8, 4, 8], "layers": [2, 4, 8]})
        >>> parts, part_of_row = by_parts(jobs, lambda job: 2 * job.micro_batches)
        >>> parts, part_of_row.tolist()
        ([16, 8], [0, 1, 0])
    """
    parts, group, _ = _parts(jobs, part_of)
    return parts, group


def fields_read(jobs: JobColumns, part_of: Callable[[Job], Any]) -> frozenset[str]:
    """The columns that a part of any of the jobs depends on; see `by_parts`.

    Example:
        >>> base = Job(layers=4, hidden_size=64, attention_heads=4, vocabulary_size=100,
        ...            sequence_length=128)
        >>> jobs = job_columns(base, {"micro_batches": [8, 4], "layers": [2, 4]})
        >>> sorted(fields_read(jobs, lambda job: 2 * job.micro_batches))
        ['micro_batches']
    """
    return frozenset(_parts(jobs, part_of)[2])


def _parts(
    jobs: JobColumns, part_of: Callable[[Job], Part]
) -> tuple[list[Part], np.ndarray, list[str]]:
    names: list[str] = []
    while True:
        first, group = _groups(jobs, names)
        parts, read = [], set()
        for row in first:
            part, looked_at = _watch(jobs.job(row), part_of)
            parts.append(part)
            read = looked_at & jobs.columns.keys() - set(names)
            if read:
                break
        if not read:
            return parts, group, names
        names = sorted({*names, *read})


def _groups(jobs: JobColumns, names: Iterable[str]) -> tuple[np.ndarray, np.ndarray]:
    """The first job of each group that is alike in some fields, and the group of each job."""
    group, first = np.zeros(jobs.rows, np.int64), np.zeros(min(jobs.rows, 1), np.int64)
    for name in names:
        column = jobs.columns[name]
        code = group * len(column.values) + column.codes
        _, first, group = np.unique(code, return_index=True, return_inverse=True)
    return first, group


def _column(values: Sequence[Any] | np.ndarray) -> Column:
    if isinstance(values, np.ndarray):
        found, codes = np.unique(values, return_inverse=True)
        return Column(found.tolist(), codes)
    place: dict[Any, int] = {}
    # True and 1 are equal, and not alike.
    codes = [place.setdefault((type(value), value), len(place)) for value in values]
    return Column([value for _, value in place], np.array(codes, np.int64))


def _value(column: Column, row: int) -> Any:
    return column.values[column.codes[row]]


# Watching what is read
# ---------------------------------------------------------------------------------------

_READ: ContextVar[set[str]] = ContextVar("read")


class _Watched(Job, frozen=True):
    """A job that tells which of its fields were read, on it or on a copy of it."""

    def __getattribute__(self, name: str) -> Any:
        _READ.get().add(name)
        return super().__getattribute__(name)


def _watch(job: Job, part_of: Callable[[Job], Part]) -> tuple[Part, set[str]]:
    values = {name: getattr(job, name) for name in Job.__struct_fields__}
    token = _READ.set(set())
    try:
        part = part_of(_Watched(**values))
        return part, _READ.get()
    finally:
        _READ.reset(token)
