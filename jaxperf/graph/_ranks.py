"""Joins the graphs of several ranks: one clock, and collectives that wait for their last member."""

from collections import Counter
from dataclasses import replace

import numpy as np

from jaxperf.graph._classes import KERNEL_CLASSES, KernelClasses
from jaxperf.graph._clocks import Clocks, align_clocks
from jaxperf.graph._collectives import Matches, match_collectives, plain_name
from jaxperf.graph._device import DeviceWork
from jaxperf.graph._rendezvous import Rendezvous, find_rendezvous
from jaxperf.graph._types import DependencyKind, ExecutionGraph, RankClock, TaskKind
from jaxperf.trace import MISSING, Note, Trace

_GROUPS = 6
"""A note lists so many groups of collectives at most."""


def join_ranks(
    graph: ExecutionGraph,
    traces: tuple[Trace, ...],
    works: list[DeviceWork],
    first_work: list[int],
    classes: KernelClasses = KERNEL_CLASSES,
) -> ExecutionGraph:
    """Put all ranks of a graph on one clock, and join them at their collectives.

    Args:
        graph: the ranks side by side, each on a clock that starts at its trace's origin.
        traces: the traces.
        works: their device work.
        first_work: the task of each rank's first device work.
        classes: see `build_graph`.

    Returns:
        The joined graph.
    """
    matches = match_collectives(traces, works, classes)
    clocks = align_clocks(works, [trace.origin_ns for trace in traces], matches)
    graph = _on_one_clock(graph, traces, clocks)
    first = np.array(first_work, np.int64)
    task = first[matches.rank] + matches.work
    unmatched = first[matches.unmatched_rank] + matches.unmatched_work
    rendezvous = find_rendezvous(
        matches, graph.start_ns[task], graph.end_ns[task], clocks.uncertainty_ns
    )
    notes = _notes(graph, task, unmatched, matches, rendezvous, clocks)
    graph = _with_rendezvous(graph, task[rendezvous.part], rendezvous)
    return replace(graph, order=_order(graph), notes=(*graph.notes, *notes))


def _on_one_clock(
    graph: ExecutionGraph, traces: tuple[Trace, ...], clocks: Clocks
) -> ExecutionGraph:
    origins = np.array([trace.origin_ns for trace in traces])
    shift = origins - clocks.offset_ns
    # Groups of ranks that no collective joins begin together.
    for first in np.unique(clocks.group).tolist():
        shift[clocks.group == first] -= shift[clocks.group == first].min()
    by_task = shift[graph.trace]
    by_rank = dict(zip(graph.ranks, shift.tolist(), strict=True))
    return replace(
        graph,
        start_ns=graph.start_ns + by_task,
        end_ns=graph.end_ns + by_task,
        release_ns=np.where(graph.release_ns == MISSING, MISSING, graph.release_ns + by_task),
        steps=tuple(
            replace(
                step,
                begin_ns=step.begin_ns + by_rank[step.rank],
                end_ns=step.end_ns + by_rank[step.rank],
            )
            for step in graph.steps
        ),
        clocks=tuple(
            RankClock(
                rank,
                float(clocks.offset_ns[i]) / 1e3 if clocks.group[i] == 0 else float("nan"),
                float(clocks.uncertainty_ns[i]) / 1e3,
                float(clocks.drift_ppm[i]),
            )
            for i, rank in enumerate(graph.ranks)
        ),
    )


def _with_rendezvous(
    graph: ExecutionGraph, transfer: np.ndarray, rendezvous: Rendezvous
) -> ExecutionGraph:
    """Split collectives into arrival and transfer; `transfer` are the tasks that become transfers.

    The member that arrived last stands for all: its transfer waits for every arrival, and the other
    transfers start with it. So a collective costs dependencies in proportion to its members.
    """
    parts = len(transfer)
    arrival = graph.tasks + np.arange(parts)
    stands_for_all = transfer[rendezvous.last[rendezvous.hub]]
    start_ns, duration_ns = graph.start_ns.copy(), graph.duration_ns.copy()
    begin = rendezvous.arrived_ns + rendezvous.early_ns
    start_ns[transfer] = begin[rendezvous.hub]
    duration_ns[transfer] = np.maximum(0, graph.end_ns[transfer] - start_ns[transfer])

    new_target = np.arange(graph.tasks)
    new_target[transfer] = arrival
    others = np.flatnonzero(stands_for_all != transfer)
    zeros = np.zeros(parts + len(others), np.int64)
    release = graph.release_ns.copy()
    release[transfer] = MISSING

    def with_copies(values: np.ndarray) -> np.ndarray:
        return np.concatenate([values, values[transfer]])

    own_arrival = np.full(graph.tasks + parts, -1, np.int32)
    own_arrival[transfer] = arrival
    return replace(
        graph,
        name=with_copies(graph.name),
        lane=with_copies(graph.lane),
        kind=np.append(graph.kind, np.full(parts, TaskKind.ARRIVAL)).astype(np.int8),
        task_class=with_copies(graph.task_class),
        trace=with_copies(graph.trace),
        event=with_copies(graph.event),
        step=with_copies(graph.step),
        sm_share=with_copies(graph.sm_share),
        order=with_copies(graph.order),
        start_ns=np.append(start_ns, graph.start_ns[transfer]),
        end_ns=np.append(graph.end_ns, graph.start_ns[transfer]),
        duration_ns=np.append(duration_ns, np.zeros(parts, np.int64)),
        release_ns=np.append(release, graph.release_ns[transfer]),
        arrival=own_arrival,
        source=np.concatenate([graph.source, arrival, stands_for_all[others]]).astype(np.int32),
        target=np.concatenate([new_target[graph.target], stands_for_all, transfer[others]]).astype(
            np.int32
        ),
        lag_ns=np.concatenate([graph.lag_ns, rendezvous.early_ns[rendezvous.hub], zeros[parts:]]),
        unexplained_ns=np.append(graph.unexplained_ns, zeros),
        from_start=np.concatenate(
            [graph.from_start, np.zeros(parts, bool), np.ones(len(others), bool)]
        ),
        dependency=np.append(
            graph.dependency, np.full(len(zeros), DependencyKind.RENDEZVOUS)
        ).astype(np.int8),
    )


def _order(graph: ExecutionGraph) -> np.ndarray:
    """(tasks,) an order of launch over all ranks: by the time of the host that launched the task.

    Within a rank the order stands; between ranks the clock decides. A transfer comes after every
    arrival; what is behind it on its stream may have been launched before, so this is a hint.
    """
    on_host = graph.kind <= TaskKind.HOST_RETURN
    by_order = np.lexsort((graph.kind != TaskKind.ARRIVAL, graph.order, graph.trace))
    first = np.append(True, np.diff(graph.trace[by_order]) != 0)
    launched = np.where(on_host[by_order] | first, graph.start_ns[by_order], -1)
    # Each rank lies above the one before it, so that one running maximum serves all.
    lift = graph.trace[by_order].astype(np.int64) * (int(graph.end_ns.max(initial=0)) + 1)
    moment = np.empty(graph.tasks, np.int64)
    moment[by_order] = np.maximum.accumulate(launched + lift) - lift
    rank_order = np.empty(graph.tasks, np.int64)
    rank_order[by_order] = np.arange(graph.tasks)

    joins = np.flatnonzero(graph.dependency == DependencyKind.RENDEZVOUS)
    arrivals = joins[graph.kind[graph.source[joins]] == TaskKind.ARRIVAL]
    others = joins[graph.kind[graph.source[joins]] != TaskKind.ARRIVAL]
    np.maximum.at(moment, graph.target[arrivals], moment[graph.source[arrivals]])
    np.maximum.at(moment, graph.target[others], moment[graph.source[others]])
    # What waits for every arrival comes before what starts with it.
    follows = np.zeros(graph.tasks, np.int8)
    follows[graph.target[arrivals]] = 1
    follows[graph.target[others]] = 2
    order = np.empty(graph.tasks, np.int64)
    order[np.lexsort((rank_order, follows, moment))] = np.arange(graph.tasks)
    return order


def _notes(
    graph: ExecutionGraph,
    task: np.ndarray,
    unmatched: np.ndarray,
    matches: Matches,
    rendezvous: Rendezvous,
    clocks: Clocks,
) -> list[Note]:
    """What was joined, and what could not be."""
    notes = []
    guessed = ~matches.by_arguments[matches.match]
    if guessed.any():
        spread = _end_spread_us(graph, task, matches)[~matches.by_arguments]
        notes.append(
            Note(
                "collectives-matched-by-order",
                f"{len(spread)} collectives without process group were matched by kernel name and "
                f"order; {100 * np.mean(spread < 200):.0f} % end within 200 us on all ranks",
            )
        )
    if len(unmatched):
        notes.append(
            Note(
                "collectives-unmatched",
                f"{len(unmatched)} collectives have no counterpart in the other traces and take "
                f"as long as measured: {_listed(graph, unmatched)}",
            )
        )
    if rendezvous.free:
        notes.append(
            Note(
                "collectives-not-waiting",
                f"{rendezvous.free} collectives ended on one rank before the last had arrived: "
                "they do not wait for each other and take as long as measured",
            )
        )
    if matches.absent:
        shown = ", ".join(map(str, matches.absent[:8])) + (", ..." if matches.absent[8:] else "")
        notes.append(
            Note(
                "ranks-not-recorded",
                f"ranks {shown} take part in collectives and were not recorded: waiting for them "
                "is in the durations",
            )
        )
    unknown = [str(r) for r, group in zip(graph.ranks, clocks.group, strict=True) if group]
    if unknown:
        notes.append(
            Note(
                "clock-unknown",
                f"ranks {', '.join(unknown)} share no collective with rank {graph.ranks[0]}: their "
                "clocks cannot be aligned with it, and they begin when it does",
            )
        )
    return notes


def _listed(graph: ExecutionGraph, tasks: np.ndarray) -> str:
    """How many tasks of which name each rank has, of the first few groups."""
    names = [plain_name(graph.names[n]) for n in graph.name[tasks]]
    ranks = [graph.ranks[index] for index in graph.trace[tasks]]
    groups = list(Counter(zip(ranks, names, strict=True)).items())
    by_rank: dict[int, list[str]] = {}
    for (rank, name), count in groups[:_GROUPS]:
        by_rank.setdefault(rank, []).append(f"{count} {name}")
    parts = [f"rank {rank}: {', '.join(texts)}" for rank, texts in by_rank.items()]
    more = sum(count for _, count in groups[_GROUPS:])
    return "; ".join([*parts, f"and {more} more"] if more else parts)


def _end_spread_us(graph: ExecutionGraph, task: np.ndarray, matches: Matches) -> np.ndarray:
    """(matches,) first to last end of each collective over its ranks."""
    count = len(matches.by_arguments)
    last, first = np.full(count, -np.inf), np.full(count, np.inf)
    np.maximum.at(last, matches.match, graph.end_ns[task])
    np.minimum.at(first, matches.match, graph.end_ns[task])
    return (last - first) / 1e3
