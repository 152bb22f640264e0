"""Messages of data parallelism in an iteration: sums of gradients, and gathers of weights."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from jaxperf.config import Job
from jaxperf.workload._layout import Layout, Unit
from jaxperf.workload._passes import Block
from jaxperf.workload._table import PieceTable
from jaxperf.workload._tasks import SPACING, Tasks
from jaxperf.workload._templates import LANES

_DATA = LANES.index("data")
_NONE = -1


class _Uses(NamedTuple):
    """Each time that a rank computes with a unit, in order. All (uses,).

    Attributes:
        unit: index into the units of the rank.
        first, last: tasks.
        last_key: key of the last task.
        needs, gives: see `needs_weights` and `gives_gradients`.
    """

    unit: np.ndarray
    first: np.ndarray
    last: np.ndarray
    last_key: np.ndarray
    needs: np.ndarray
    gives: np.ndarray


class _Message(NamedTuple):
    """A message of data parallelism; what it waits for, and what waits for it, or `_NONE`."""

    key: int
    name: int
    piece: int
    source: int
    target: int


def data_messages(
    job: Job,
    layout: Layout,
    table: PieceTable,
    tasks: Tasks,
    rank: int,
    blocks: Sequence[tuple[Block, int]],
    begin: int,
    done: Sequence[int],
) -> list[int]:
    """Add the messages of one rank, one after another on one stream, and their dependencies.

    Args:
        job: the job.
        layout: its structure.
        table: its pieces.
        tasks: to add to.
        rank: of the pipeline.
        blocks: of the rank, in order, each with its first task.
        begin: the first task of the rank.
        done: tasks that end the last pass.

    Returns:
        The last message, after which all gradients are summed; nothing where there is none.
    """
    units = [unit for some in layout.units[rank] for unit in some]
    uses = _uses(blocks)
    messages: list[_Message] = []
    if job.sharding == "zero3":
        messages += _gathers_of_units(job, table, tasks, units, uses, begin)
    elif job.sharding != "none" and job.overlap_parameters:
        messages += _gathers_of_buckets(layout, table, tasks, rank, units, uses)
    if job.sharding in ("zero2", "zero3"):
        messages += _sums_of_units(job, table, tasks, units, uses)
    else:
        messages += _sums_of_buckets(job, layout, table, tasks, rank, units, uses, done)
    if not messages:
        return []
    key, name, piece, source, target = np.array(messages, np.int64).T
    # Messages are issued in the order of their keys; of one key in the order they came in.
    order = np.argsort(key, kind="stable")
    key, name, piece, source, target = (each[order] for each in (key, name, piece, source, target))
    ranks, lanes = np.full(len(key), rank), np.full(len(key), _DATA)
    sent = tasks.add(ranks, lanes, name, piece, key)
    tasks.link(sent[:-1], sent[1:])
    tasks.link(source[source != _NONE], sent[source != _NONE])
    tasks.link(sent[target != _NONE], target[target != _NONE])
    return [int(sent[-1])]


def _uses(blocks: Sequence[tuple[Block, int]]) -> _Uses:
    templates = [(block.template, block.place, offset) for block, offset in blocks]
    return _Uses(
        np.concatenate([each.unit for each, _, _ in templates]),
        np.concatenate([each.first + offset for each, _, offset in templates]),
        np.concatenate([each.last + offset for each, _, offset in templates]),
        np.concatenate([place * SPACING + 4 * (each.last + 1) for each, place, _ in templates]),
        np.concatenate([each.needs_weights for each, _, _ in templates]),
        np.concatenate([each.gives_gradients for each, _, _ in templates]),
    )


def _gathers_of_units(
    job: Job, table: PieceTable, tasks: Tasks, units: list[Unit], uses: _Uses, begin: int
) -> list[_Message]:
    """For each use, unless the unit was used last."""
    ahead = job.prefetch if job.overlap_parameters else 0
    again = np.append(False, uses.unit[1:] == uses.unit[:-1])
    needed = np.flatnonzero(uses.needs & ~again)
    # Of two passes at once a use may begin before the one ahead of it has ended.
    by_end = np.argsort(uses.last)
    after = np.searchsorted(uses.last[by_end], uses.first[needed]) - 1 - ahead
    latest = by_end[after]
    # After a sum that the same task leaves to be sent.
    key = np.where(after < 0, -SPACING, uses.last_key[latest] + 2)
    source = np.where(after < 0, begin, uses.last[latest])
    return _per_unit(table, tasks, "gather", units, uses, needed, key, source, uses.first[needed])


def _sums_of_units(
    job: Job, table: PieceTable, tasks: Tasks, units: list[Unit], uses: _Uses
) -> list[_Message]:
    """After each use that leaves gradients; the next use waits unless they may overlap."""
    given = np.flatnonzero(uses.gives)
    target = np.full(len(given), _NONE)
    if not job.overlap_gradients:
        after = np.searchsorted(uses.first, uses.last[given], side="right")
        target = np.append(uses.first, _NONE)[after]
    key, source = uses.last_key[given] + 1, uses.last[given]
    return _per_unit(table, tasks, "sum", units, uses, given, key, source, target)


def _per_unit(
    table: PieceTable,
    tasks: Tasks,
    what: str,
    units: list[Unit],
    uses: _Uses,
    chosen: np.ndarray,
    key: np.ndarray,
    source: np.ndarray,
    target: np.ndarray,
) -> list[_Message]:
    pieces = [
        [
            (tasks.name(unit.name_of(piece.name)), index)
            for index, piece in table.of(what, unit.kind)
        ]
        for unit in units
    ]
    rows = zip(
        uses.unit[chosen].tolist(), key.tolist(), source.tolist(), target.tolist(), strict=True
    )
    return [
        _Message(at, name, index, before, after)
        for unit, at, before, after in rows
        for name, index in pieces[unit]
    ]


def _gathers_of_buckets(
    layout: Layout, table: PieceTable, tasks: Tasks, rank: int, units: list[Unit], uses: _Uses
) -> list[_Message]:
    """As the iteration begins, in the order in which the buckets are used first."""
    found = []
    for bucket, some in enumerate(layout.buckets[rank]):
        mine = np.isin(uses.unit, [units.index(unit) for unit in some])
        first = int(uses.first[np.flatnonzero(mine)[0]])
        found.append((first, bucket))
    return [
        _Message(place - SPACING, tasks.name(f"bucket {bucket}/{piece.name}"), index, _NONE, first)
        for place, (first, bucket) in enumerate(sorted(found))
        for index, piece in table.of("gather", rank, bucket)
    ]


def _sums_of_buckets(
    job: Job,
    layout: Layout,
    table: PieceTable,
    tasks: Tasks,
    rank: int,
    units: list[Unit],
    uses: _Uses,
    done: Sequence[int],
) -> list[_Message]:
    """Once an iteration, as the last backward pass leaves each bucket whole, or after it."""
    messages = []
    for bucket, some in enumerate(layout.buckets[rank]):
        last = np.flatnonzero(uses.gives & (uses.unit == units.index(some[-1])))[-1]
        key, source = int(uses.last_key[last]) + 1, int(uses.last[last])
        if not job.overlap_gradients:
            key, source = int(uses.last_key.max()) + 1, max(done)
        messages += [
            _Message(key, tasks.name(f"bucket {bucket}/{piece.name}"), index, source, _NONE)
            for index, piece in table.of("sum", rank, bucket)
        ]
    return messages
