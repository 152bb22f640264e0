"""Captures of several ranks, written by hand; and what a graph says of their collectives."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from jaxperf.graph import DependencyKind, ExecutionGraph, TaskKind, build_graph
from jaxperf.trace import Note, Run, read_run
from tests.trace.written import document, kernel

_KERNELS = {
    "allreduce": "AllReduce_Sum_bf16_RING_LL",
    "barrier": "AllReduce_Sum_bf16_RING_LL",
    "allgather": "AllGather_RING_LL",
    "broadcast": "Broadcast_RING_LL",
    "send": "SendRecv",
    "recv": "SendRecv",
}


class Ranks:
    """Device work of several ranks in the making; times are microseconds on one true clock.

    ranks = Ranks(0, 1)
    ranks.collective({0: 100, 1: 250}, 300)
    graph = ranks.graph(tmp_path)
    """

    def __init__(self, *ranks: int, clock_us: Mapping[int, float] | None = None):
        self.rows: dict[int, list[dict]] = {rank: [] for rank in ranks}
        self.clock_us = clock_us or {}
        """What the clock of a rank shows at time zero, where it is not zero."""

    def work(
        self,
        rank: int,
        name: str,
        start: float,
        end: float,
        *,
        stream: int = 7,
        said: Mapping[str, object] | None = None,
    ) -> None:
        """A kernel; `said` are further arguments, written as they are."""
        rows = self.rows[rank]
        ts = start + self.clock_us.get(rank, 0)
        made = kernel(name, ts, end - start, stream, rank, correlation=len(rows) + 1)
        rows.append(made | {"args": made["args"] | dict(said or {})})

    def part(
        self,
        rank: int,
        start: float,
        end: float,
        *,
        operation: str = "allreduce",
        members: Iterable[int] | None = None,
        group: str = "0",
        stream: int = 20,
        said: Mapping[str, object] | None = None,
    ) -> None:
        """One member's part of a collective; without members it carries no arguments at all."""
        name = f"ncclDevKernel_{_KERNELS[operation]}(ncclDevKernelArgsStorage<4096ul>)"
        if members is not None:
            ranks = sorted(members)
            said = {
                "Collective name": operation,
                "Group size": len(ranks),
                "Process Group Name": group,
                "Process Group Ranks": str(ranks),
                "In msg nelems": 1024,
                "Out msg nelems": 1024,
                "dtype": "BFloat16",
            } | dict(said or {})
        self.work(rank, name, start, end, stream=stream, said=said)

    def collective(
        self,
        starts: Mapping[int, float],
        end: float,
        *,
        members: Iterable[int] | None = None,
        **how: Any,
    ) -> None:
        """The parts of all who were recorded; the members are those who have a start."""
        for rank, start in starts.items():
            self.part(rank, start, end, members=members or tuple(starts), **how)

    def message(
        self,
        sender: tuple[int, float],
        receiver: tuple[int, float],
        end: float,
        *,
        members: Iterable[int] | None = None,
        sequence: tuple[int, int] | None = None,
        stream: int = 28,
        receiving_stream: int = 32,
    ) -> None:
        """A send and its receive, each a rank and its start; `sequence` is the number at each."""
        for side, (rank, start) in enumerate((sender, receiver)):
            said = {"Src Rank": sender[0], "Dst Rank": receiver[0]}
            if sequence is not None:
                said["Seq"] = sequence[side]
            self.part(
                rank,
                start,
                end,
                operation=("send", "recv")[side],
                members=members or (sender[0], receiver[0]),
                stream=(stream, receiving_stream)[side],
                said=said,
            )

    def run(self, folder: Path) -> Run:
        for rank, rows in self.rows.items():
            world = {"rank": rank, "world_size": len(self.rows)}
            text = document(sorted(rows, key=lambda row: row["ts"]), distributedInfo=world)
            (folder / f"rank{rank}.json").write_text(text)
        return read_run([folder])

    def graph(self, folder: Path) -> ExecutionGraph:
        return build_graph(self.run(folder))


@dataclass(frozen=True)
class Part:
    """A rank's part of a collective that waits for other ranks.

    `place` is its number among all collectives of its rank, in order of start.
    """

    rank: int
    place: int
    arrival: int
    transfer: int
    wait_us: float
    transfer_us: float


def collectives(graph: ExecutionGraph) -> dict[int, list[int]]:
    """The collectives of each rank in order of start, joined or not: not their arrivals."""
    found = {}
    for index, rank in enumerate(graph.ranks):
        tasks = np.flatnonzero((graph.kind == TaskKind.COLLECTIVE) & (graph.trace == index))
        found[rank] = tasks[np.argsort(graph.event[tasks])].tolist()
    return found


def parts(graph: ExecutionGraph) -> dict[tuple[int, int], Part]:
    """All parts that wait for others, by rank and place."""
    found = {}
    for rank, tasks in collectives(graph).items():
        for place, transfer in enumerate(tasks):
            arrival = int(graph.arrival[transfer])
            if arrival >= 0:
                start = int(graph.start_ns[transfer])
                wait = (start - int(graph.start_ns[arrival])) / 1e3
                whole = (int(graph.end_ns[transfer]) - start) / 1e3
                found[rank, place] = Part(rank, place, arrival, transfer, wait, whole)
    return found


def meetings(graph: ExecutionGraph) -> set[frozenset[tuple[int, int]]]:
    """Who meets whom: the (rank, place) of the parts that wait for each other."""
    by_arrival = {part.arrival: key for key, part in parts(graph).items()}
    met: dict[int, set[tuple[int, int]]] = {}
    for edge in np.flatnonzero(graph.dependency == DependencyKind.RENDEZVOUS).tolist():
        source, target = int(graph.source[edge]), int(graph.target[edge])
        if source in by_arrival:
            met.setdefault(target, set()).add(by_arrival[source])
    return {frozenset(keys) for keys in met.values()}


def waits_us(graph: ExecutionGraph) -> dict[tuple[int, int], float]:
    """Each part's wait for the last member."""
    return {key: part.wait_us for key, part in parts(graph).items()}


def transfers_us(graph: ExecutionGraph) -> dict[tuple[int, int], float]:
    """Each part's time from there to its end."""
    return {key: part.transfer_us for key, part in parts(graph).items()}


def offsets_us(graph: ExecutionGraph) -> dict[int, float]:
    """Each rank's clock minus the first rank's."""
    return {clock.rank: clock.offset_us for clock in graph.clocks}


def note(graph: ExecutionGraph, code: str) -> Note:
    """The one note of a code."""
    (found,) = [note for note in graph.notes if note.code == code]
    return found
