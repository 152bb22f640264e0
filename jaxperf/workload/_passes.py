"""The passes of all ranks as blocks of tasks, and the messages between them."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from jaxperf.config import Job
from jaxperf.workload._layout import Layout
from jaxperf.workload._schedules import Pass, PassKind, dependencies, overlapped_passes
from jaxperf.workload._table import PieceTable
from jaxperf.workload._templates import Template, make_template, pass_items

# Only to order blocks in about their order in time.
_USUAL_TIME = {
    PassKind.FORWARD: 1,
    PassKind.BACKWARD: 2,
    PassKind.BACKWARD_INPUT: 1,
    PassKind.BACKWARD_WEIGHT: 1,
}


@dataclass(frozen=True, eq=False)
class Block:
    """A pass of one rank, or two that run at once.

    Attributes:
        rank: of the pipeline.
        positions: of the passes in the order of the rank.
        template: its tasks.
        place: among all blocks, so that each comes after those that it waits for.
    """

    rank: int
    positions: tuple[int, ...]
    template: Template
    place: int = -1


class StageLinks(NamedTuple):
    """Messages from stage to stage.

    Attributes:
        source, target: (messages,) blocks.
        backward: (messages,) int, 1 where a gradient is sent, else 0.
    """

    source: np.ndarray
    target: np.ndarray
    backward: np.ndarray


def pass_blocks(job: Job, layout: Layout, table: PieceTable, names: dict[str, int]) -> list[Block]:
    """The blocks of all ranks, rank after rank and in order; each template is made once.

    A pass that has nothing to do, such as the weight part of a stage without layers, is left out.

    Args:
        job: the job.
        layout: its structure.
        table: its pieces.
        names: index of each name; new ones are added.

    Returns:
        The blocks, not yet placed.
    """
    overlapped = overlapped_passes(job.schedule, layout.orders)
    blocks = []
    for rank, order in enumerate(layout.orders):
        known: dict[tuple, Template] = {}
        units = {unit: i for i, unit in enumerate(u for some in layout.units[rank] for u in some)}
        pairs, position = set(overlapped[rank]), 0
        while position < len(order):
            positions = (position, position + 1) if position in pairs else (position,)
            passes = tuple((order[p].kind, order[p].chunk) for p in positions)
            if passes not in known:
                flows = [
                    (kind, pass_items(table, kind, layout.units[rank][chunk]))
                    for kind, chunk in passes
                ]
                known[passes] = make_template(flows, names, units)
            if len(known[passes].piece):
                blocks.append(Block(rank, positions, known[passes]))
            position += len(positions)
    return blocks


def order_blocks(job: Job, layout: Layout, blocks: Sequence[Block]) -> list[Block]:
    """The blocks with their places, in about the order in which they run.

    Args:
        job: the job.
        layout: its structure.
        blocks: of `pass_blocks`.

    Returns:
        The blocks in the same order.
    """
    waits = _waits(job, layout, blocks)
    by_rank: dict[int, list[int]] = {}
    for index, block in enumerate(blocks):
        by_rank.setdefault(block.rank, []).append(index)
    end: dict[int, int] = {}
    start = np.zeros(len(blocks), np.int64)
    free, following = dict.fromkeys(by_rank, 0), dict.fromkeys(by_rank, 0)
    while len(end) < len(blocks):
        stuck = True
        for rank, mine in by_rank.items():
            while following[rank] < len(mine):
                index = mine[following[rank]]
                if not all(source in end for source, _ in waits[index]):
                    break
                begin = max([free[rank], *(end[source] for source, _ in waits[index])])
                passes = [layout.orders[rank][p] for p in blocks[index].positions]
                start[index] = begin
                end[index] = free[rank] = begin + sum(_USUAL_TIME[each.kind] for each in passes)
                following[rank] += 1
                stuck = False
        assert not stuck, "the passes of the schedule wait for each other"
    place = np.empty(len(blocks), np.int64)
    place[np.argsort(start, kind="stable")] = np.arange(len(blocks))
    return [replace(each, place=int(p)) for each, p in zip(blocks, place, strict=True)]


def stage_links(job: Job, layout: Layout, blocks: Sequence[Block]) -> StageLinks:
    """The messages between the blocks of different ranks.

    Args:
        job: the job.
        layout: its structure.
        blocks: of all ranks.

    Returns:
        One for each pass that waits for one of another rank.
    """
    rows = [
        (source, target, each.kind is not PassKind.FORWARD)
        for target, some in enumerate(_waits(job, layout, blocks))
        for source, each in some
    ]
    return StageLinks(*np.array(rows, np.int64).reshape(-1, 3).T)


def _waits(job: Job, layout: Layout, blocks: Sequence[Block]) -> list[list[tuple[int, Pass]]]:
    """For each block those of other ranks that it waits for, and for which of its passes."""
    block_of = {
        (block.rank, position): index
        for index, block in enumerate(blocks)
        for position in block.positions
    }
    before = dependencies(job.schedule, layout.orders)
    return [
        [
            (block_of[place], layout.orders[block.rank][position])
            for position in block.positions
            for place in before[block.rank][position]
            if place[0] != block.rank
        ]
        for block in blocks
    ]
