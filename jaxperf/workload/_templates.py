"""The tasks of one pass, built once and repeated for each micro-batch."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from jaxperf.workload._layout import Unit, Units, gives_gradients, needs_weights
from jaxperf.workload._schedules import PassKind
from jaxperf.workload._table import PieceTable

LANES = (
    "compute",
    "tensor",
    "context",
    "expert",
    "receive forward",
    "receive backward",
    "data",
)
"""The streams of a rank; a message that nothing runs beside is on that of the kernels."""

COMPUTE = LANES.index("compute")


class Item(NamedTuple):
    """A piece of a pass.

    Attributes:
        unit: what it belongs to.
        name: what its task is called.
        piece: its index in the table.
        axis: of a message, else empty.
        beside: see `Piece`.
    """

    unit: Unit
    name: str
    piece: int
    axis: str
    beside: bool


@dataclass(frozen=True, eq=False)
class Template:
    """The tasks of one pass, or of two that run at once, numbered from 0.

    Attributes:
        name: (n,) int32, index into the names.
        piece: (n,) int32, index into the table of pieces.
        lane: (n,) int32, index into `LANES`.
        source, target: (m,) int64, dependencies.
        entries: tasks that wait for nothing in the template.
        exits: tasks that what comes after waits for.
        unit: (u,) int32, index into the units of the rank, in order of execution.
        first, last: (u,) int64, the first and last task of each on the stream of the kernels.
        needs_weights, gives_gradients: (u,) bool, see `jaxperf.workload._layout`.
    """

    name: np.ndarray
    piece: np.ndarray
    lane: np.ndarray
    source: np.ndarray
    target: np.ndarray
    entries: tuple[int, ...]
    exits: tuple[int, ...]
    unit: np.ndarray
    first: np.ndarray
    last: np.ndarray
    needs_weights: np.ndarray
    gives_gradients: np.ndarray


def pass_items(table: PieceTable, kind: PassKind, units: Units) -> list[Item]:
    """The pieces of a pass through some units, in order.

    Args:
        table: of the job.
        kind: forward, backward, or a part of backward.
        units: in the order of the forward pass.

    Returns:
        The pieces.
    """
    if kind is PassKind.FORWARD:
        return [item for unit in units for item in _items(table, unit, ("forward",))]
    items = [
        item for unit in reversed(units) for item in _items(table, unit, ("recompute", "backward"))
    ]
    if kind is PassKind.BACKWARD:
        return items
    of_weights = [table.pieces[item.piece].of_weights for item in items]
    if kind is PassKind.BACKWARD_WEIGHT:
        return [item for item, chosen in zip(items, of_weights, strict=True) if chosen]
    return [
        # What it would have run beside is put off.
        item._replace(beside=item.beside and not _runs_beside(items, of_weights, index))
        for index, item in enumerate(items)
        if not of_weights[index]
    ]


def _items(table: PieceTable, unit: Unit, keys: Sequence[str]) -> Iterator[Item]:
    for key in keys:
        for index, piece in table.of(key, unit.kind):
            yield Item(unit, unit.name_of(piece.name), index, piece.axis, piece.beside)


def _runs_beside(items: list[Item], of_weights: list[bool], index: int) -> bool:
    """Whether the kernel that a message runs beside is a gradient of weights."""
    after = (i for i in range(index + 1, len(items)) if not items[i].axis)
    return of_weights[next(after, index)]


def make_template(
    flows: Sequence[tuple[PassKind, list[Item]]], names: dict[str, int], units: dict[Unit, int]
) -> Template:
    """The tasks of one pass, or of two that run at once.

    Alone, a message is on the stream of the kernels, but for those beside a kernel. Two passes take
    turns at each message, which runs beside the kernels of the other pass (DeepSeek-V3, arXiv
    2412.19437, section 3.2.1).

    Args:
        flows: kind and pieces of each pass.
        names: index of each name; new ones are added.
        units: index of each unit of the rank.

    Returns:
        The tasks.
    """
    rows: list[tuple[int, int, int]] = []
    edges: list[tuple[int, int]] = []
    # Of each flow what its next piece waits for, and messages beside that piece.
    waits: list[list[int]] = [[] for _ in flows]
    beside: list[list[int]] = [[] for _ in flows]
    last_of_lane: dict[int, int] = {}
    span: dict[tuple[int, Unit], list[int]] = {}
    for flow, item in _in_turns([items for _, items in flows]):
        alone = not item.axis or (len(flows) == 1 and not item.beside)
        lane = COMPUTE if alone else LANES.index(item.axis)
        task = len(rows)
        rows.append((names.setdefault(item.name, len(names)), item.piece, lane))
        sources = {*waits[flow], last_of_lane.get(lane, -1)} - {-1}
        edges += [(source, task) for source in sorted(sources)]
        last_of_lane[lane] = task
        if item.beside:
            beside[flow].append(task)
        else:
            waits[flow], beside[flow] = [task, *beside[flow]], []
        if lane == COMPUTE:
            span.setdefault((flow, item.unit), [task])[1:] = [task]
    column = np.array(rows, np.int32).reshape(-1, 3)
    edge = np.array(edges, np.int64).reshape(-1, 2)
    used = list(span)
    return Template(
        *column.T,
        *edge.T,
        entries=tuple(sorted(set(range(len(rows))) - set(edge[:, 1].tolist()))),
        exits=tuple(sorted({task for each in (*waits, *beside) for task in each})),
        unit=np.array([units[unit] for _, unit in used], np.int32),
        first=np.array([tasks[0] for tasks in span.values()], np.int64),
        last=np.array([tasks[-1] for tasks in span.values()], np.int64),
        needs_weights=np.array([needs_weights(flows[f][0]) for f, _ in used], bool),
        gives_gradients=np.array([gives_gradients(flows[f][0], u) for f, u in used], bool),
    )


def _in_turns(flows: Sequence[list[Item]]) -> Iterator[tuple[int, Item]]:
    """The pieces of all flows; a message hands over to the next flow."""
    left = [iter(items) for items in flows]
    running = list(range(len(flows)))
    while running:
        for flow in tuple(running):
            for item in left[flow]:
                yield flow, item
                if item.axis and not item.beside and len(running) > 1:
                    break
            else:
                running.remove(flow)
