"""Links that are slow: the same message takes longer wherever one rank takes part."""

import numpy as np

from jaxperf.critical_path._meetings import Meetings
from jaxperf.graph import ExecutionGraph
from jaxperf.trace import Run

# A link is slow where everything that goes over it takes so much longer than elsewhere.
_SLOW_LINK = 1.1


def message_sizes(run: Run, graph: ExecutionGraph) -> np.ndarray:
    """Which transfers carry the same message: of one operation, type and size.

    Args:
        run: the traces.
        graph: their execution graph.

    Returns:
        (tasks,) int64, equal for equal messages; -1 where it is not known.

    Example:
        >>> import tempfile
        >>> from jaxperf.graph import build_graph
        >>> from jaxperf.simulator import SimulatedJob, simulate, write_traces
        >>> from jaxperf.trace import read_run
        >>> job = SimulatedJob(layers=1, data_parallel=2)
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     run = read_run(write_traces(simulate(job), folder))
        >>> bool((message_sizes(run, build_graph(run)) >= 0).any())
        True
    """
    message = np.full(graph.tasks, -1)
    table: dict[tuple, int] = {}
    for index, trace in enumerate(run.traces):
        transfers = np.flatnonzero((graph.arrival >= 0) & (graph.trace == index))
        rows = trace.collective[graph.event[transfers]]
        for task, row in zip(transfers.tolist(), rows.tolist(), strict=True):
            if row >= 0:
                said = trace.collectives[row]
                key = said.name, said.dtype, said.in_elements, said.out_elements
                message[task] = table.setdefault(key, len(table))
    return message


def slow_links(
    graph: ExecutionGraph, meetings: Meetings, message: np.ndarray, counts: np.ndarray
) -> dict[int, tuple[np.ndarray, np.ndarray]]:
    """Transfers by the rank whose links are slow, and what makes them as quick as elsewhere.

    Compared are transfers of one operation and size, in groups whose ranks lie equally far apart.
    All of a rank that can be compared has to be slow: a pair of ranks that are far apart is slow as
    well, but each of the two has other links that are not.

    Args:
        graph: the execution graph.
        meetings: where its ranks wait for each other.
        message: (tasks,) of `message_sizes`.
        counts: (tasks,) bool, which tasks are looked at.

    Returns:
        By index of the rank: (k,) tasks, of all members, and (k,) factors.

    Example:
        >>> from jaxperf.replay import Timeline
        >>> from jaxperf.critical_path._meetings import find_meetings
        >>> timeline = Timeline(np.array([0.0, 4.0, 15.0]), np.array([6.0, 14.0, 17.0]))
        >>> alone = find_meetings(graph, timeline)
        >>> slow_links(graph, alone, np.full(3, -1), np.ones(3, bool))
        {}
    """
    duration_us = graph.duration_ns[meetings.transfer] / 1e3
    rows = _comparable(meetings, message, counts)
    slow = {}
    for index, rank in enumerate(graph.ranks):
        transfer, factor = [], []
        totals: dict[int, np.ndarray] = {}
        for by_group in rows:
            elsewhere = [p for g, p in by_group.items() if rank not in meetings.groups[g]]
            if not elsewhere:
                continue
            usual = float(np.median([np.median(duration_us[parts]) for parts in elsewhere]))
            for group, parts in by_group.items():
                own = float(np.median(duration_us[parts]))
                if rank in meetings.groups[group] and own > 0:
                    transfer.append(meetings.transfer[parts])
                    factor.append(np.full(len(parts), usual / own))
                    totals[group] = totals.get(group, 0.0) + len(parts) * np.array([own, usual])
        if totals and all(own > _SLOW_LINK * usual for own, usual in totals.values()):
            slow[index] = np.concatenate(transfer), np.concatenate(factor)
    return slow


def _comparable(
    meetings: Meetings, message: np.ndarray, counts: np.ndarray
) -> list[dict[int, np.ndarray]]:
    """Rows of the meetings that can be compared: for each operation, size and shape, by group."""
    kind = message[meetings.transfer]
    looked = np.flatnonzero(counts[meetings.transfer] & (kind >= 0))
    spans = [tuple(rank - ranks[0] for rank in ranks) for ranks in meetings.groups]
    rows: dict[tuple, dict[int, np.ndarray]] = {}
    order = looked[np.lexsort((meetings.group[looked], kind[looked]))]
    changes = np.diff(kind[order]) | np.diff(meetings.group[order])
    for parts in np.split(order, np.flatnonzero(changes) + 1) if len(order) else []:
        group = int(meetings.group[parts[0]])
        rows.setdefault((int(kind[parts[0]]), spans[group]), {})[group] = parts
    return list(rows.values())
