"""From traces to the execution graph of a run."""

import os
from dataclasses import fields, replace

import numpy as np

from jaxperf.errors import GraphError
from jaxperf.graph._classes import KERNEL_CLASSES, KernelClasses, load_classes
from jaxperf.graph._host_tasks import LONGEST_NS
from jaxperf.graph._rank import HOST_NAME, RankGraph, rank_graph
from jaxperf.graph._ranks import join_ranks
from jaxperf.graph._types import ExecutionGraph
from jaxperf.trace import Run, Trace

# Columns that hold an index, and what it points into.
_INDICES = {"source": "task", "target": "task", "arrival": "task", "lane": "lane", "step": "step"}


def build_graph(
    run: Run,
    *,
    between_streams: bool = True,
    classes: KernelClasses | str | os.PathLike[str] = KERNEL_CLASSES,
) -> ExecutionGraph:
    """The execution graph of a run: all its ranks on one clock, joined at their collectives.

    Of one rank alone a collective's duration is taken as measured, its wait for other ranks
    included.

    Args:
        run: the traces.
        between_streams: draw the dependencies between streams, and keep delays that nothing
            explains; without them the graph is that of earlier replayers (dPRO), which is of use
            for comparison only.
        classes: which class a kernel belongs to: a table, or a file of rows to put before the
            default one; see `load_classes`.

    Returns:
        The graph of all ranks.

    Raises:
        GraphError: no trace holds anything that can be replayed.
        ConfigError: the file of classes cannot be read, or is not valid.

    Example:
        >>> import tempfile
        >>> from jaxperf.simulator import SimulatedJob, simulate, write_traces
        >>> from jaxperf.trace import read_run
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     run = read_run(write_traces(simulate(SimulatedJob(layers=1)), folder))
        >>> graph = build_graph(run)
        >>> [step.name for step in graph.steps]
        ['ProfilerStep#1', 'ProfilerStep#2', 'ProfilerStep#3']
    """
    if not isinstance(classes, KernelClasses):
        classes = load_classes(classes)
    for trace in run.traces:
        _check_span(trace)
    ranks = [
        rank_graph(trace, between_streams=between_streams, classes=classes) for trace in run.traces
    ]
    if not any(rank.graph.tasks for rank in ranks):
        raise GraphError(
            "nothing to replay",
            where=", ".join(file for trace in run.traces for file in trace.files),
            got="no operator, call or kernel",
            expected="a profiler trace with CPU or device activity",
        )
    graph = ranks[0].graph if len(ranks) == 1 else _side_by_side(ranks)
    if len(ranks) > 1:
        before = np.cumsum([0, *(rank.graph.tasks for rank in ranks)]).tolist()
        first_work = [b + rank.first_work for b, rank in zip(before, ranks, strict=False)]
        graph = join_ranks(graph, run.traces, [rank.work for rank in ranks], first_work, classes)
    return replace(graph, notes=(*run.notes, *graph.notes))


def _check_span(trace: Trace) -> None:
    span_ns = int(trace.end_ns.max(initial=0))
    if span_ns >= LONGEST_NS:
        raise GraphError(
            "its times lie too far apart",
            where=", ".join(trace.files),
            got=f"{span_ns / 1e9:.0f} s from the first start to the last end",
            expected=f"at most {LONGEST_NS / 1e9:.0f} s",
            remedy="remove the events whose times are wrong",
        )


def _side_by_side(ranks: list[RankGraph]) -> ExecutionGraph:
    """The graphs of several ranks as one, each on its own clock."""
    graphs = [rank.graph for rank in ranks]
    names: dict[str, int] = {HOST_NAME: 0}
    before = {"task": 0, "lane": 0, "step": 0}
    columns: dict[str, list[np.ndarray]] = {
        field.name: [] for field in fields(ExecutionGraph) if field.type is np.ndarray
    }
    steps = []
    for index, graph in enumerate(graphs):
        table = np.array([names.setdefault(name, len(names)) for name in graph.names], np.int32)
        for name, parts in columns.items():
            values = getattr(graph, name)
            if name in _INDICES:
                values = np.where(values >= 0, values + before[_INDICES[name]], -1)
            parts.append(values)
        columns["name"][-1] = table[graph.name]
        columns["trace"][-1] = np.full(graph.tasks, index, np.int32)
        columns["order"][-1] = graph.order + before["task"]
        steps += [
            replace(
                step,
                begin_task=step.begin_task + before["task"],
                end_task=step.end_task + before["task"],
            )
            for step in graph.steps
        ]
        before["task"] += graph.tasks
        before["lane"] += len(graph.lanes)
        before["step"] += len(graph.steps)
    return ExecutionGraph(
        ranks=tuple(rank for graph in graphs for rank in graph.ranks),
        names=tuple(names),
        lanes=tuple(lane for graph in graphs for lane in graph.lanes),
        clocks=tuple(clock for graph in graphs for clock in graph.clocks),
        steps=tuple(steps),
        notes=tuple(note for graph in graphs for note in graph.notes),
        **{name: np.concatenate(parts) for name, parts in columns.items()},
    )
