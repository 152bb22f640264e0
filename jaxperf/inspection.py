"""What is in the traces of a run, before anything is computed from them."""

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from jaxperf.errors import GraphError
from jaxperf.graph import KERNEL_CLASSES, DependencyKind, ExecutionGraph, KernelClasses, build_graph
from jaxperf.trace import DEVICE_WORK, Category, Note, SetAside, Trace, read_run


@dataclass(frozen=True, slots=True)
class LaneInspection:
    """One CPU thread or one stream.

    Attributes:
        name: readable name.
        device: index of the device; `None` for a CPU thread.
        stream: number of the stream; `None` for a CPU thread.
        events: number of events.
        busy_us: time covered by at least one event; on a stream, by at least one piece of work.
    """

    name: str
    device: int | None
    stream: int | None
    events: int
    busy_us: float


@dataclass(frozen=True, slots=True)
class StepInspection:
    """One iteration: its name and how long it took."""

    name: str
    measured_us: float


@dataclass(frozen=True, slots=True)
class RankInspection:
    """What was read of one rank.

    Attributes:
        rank: the rank.
        world_size: ranks of the job; `None` where the trace does not say.
        files: the files it was read from.
        device: name of the device; `None` where the trace does not say.
        truncated: the file ended before its time.
        span_us: first start to last end; `None` where there is no event.
        events: number of events.
        device_tasks: kernels, copies and sets among them.
        categories: number of events per category, without the empty ones.
        lanes: threads and streams with events, in order of the trace.
        steps: iterations; `None` where no execution graph follows from the traces.
    """

    rank: int
    world_size: int | None
    files: tuple[str, ...]
    device: str | None
    truncated: bool
    span_us: float | None
    events: int
    device_tasks: int
    categories: dict[str, int]
    lanes: tuple[LaneInspection, ...]
    steps: tuple[StepInspection, ...] | None


@dataclass(frozen=True, slots=True)
class Inspection:
    """What is in the traces of a run.

    Attributes:
        ranks: in order of rank.
        tasks: tasks of the execution graph; `None` where none follows from the traces.
        dependencies: number of dependencies recovered, by kind; `None` likewise.
        set_aside: files that are no traces, and why.
        notes: everything that was repaired or guessed.
    """

    ranks: tuple[RankInspection, ...]
    tasks: int | None
    dependencies: dict[str, int] | None
    set_aside: tuple[SetAside, ...]
    notes: tuple[Note, ...]


def inspect(
    paths: str | os.PathLike | Sequence[str | os.PathLike],
    *,
    classes: KernelClasses | str | os.PathLike[str] = KERNEL_CLASSES,
    progress: Callable[[int, int], None] | None = None,
) -> Inspection:
    """Say what is in the traces of a run: events, lanes, steps and dependencies.

    Args:
        paths: a trace file, a folder with the traces of one run, or several of either.
        classes: which class a kernel belongs to; see `build_graph`.
        progress: called with the files read so far and their number.

    Returns:
        Counts and spans per rank, the dependencies by kind, and what was set aside.

    Raises:
        TraceError: there is no trace, or one cannot be read.

    Example:
        >>> inspect("run/").dependencies  # doctest: +SKIP
        {'thread_order': 8124, 'launch': 1312, 'stream_order': 1300, 'event_wait': 24}
    """
    run = read_run(paths, progress=progress)
    notes = (*run.notes, *(note for trace in run.traces for note in trace.notes))
    try:
        graph = build_graph(run, classes=classes)
    except GraphError as error:
        # Whoever looks into a trace that cannot be replayed wants to see why, and what is there.
        notes += (Note("no-graph", str(error)),)
        graph = None
    else:
        notes += tuple(note for note in graph.notes if note not in notes)
    return Inspection(
        ranks=tuple(_rank(trace, graph) for trace in run.traces),
        tasks=graph.tasks if graph else None,
        dependencies=_dependencies(graph) if graph else None,
        set_aside=run.set_aside,
        notes=notes,
    )


def _rank(trace: Trace, graph: ExecutionGraph | None) -> RankInspection:
    counts = np.bincount(trace.category, minlength=len(Category))
    return RankInspection(
        rank=trace.rank,
        world_size=trace.world_size,
        files=trace.files,
        device=trace.device_name,
        truncated=trace.truncated,
        span_us=_span_us(trace),
        events=trace.events,
        device_tasks=int(counts[list(DEVICE_WORK)].sum()),
        categories={kind.name.lower(): int(counts[kind]) for kind in Category if counts[kind]},
        lanes=_lanes(trace),
        steps=_steps(trace.rank, graph) if graph else None,
    )


def _span_us(trace: Trace) -> float | None:
    if not trace.events:
        return None
    return float(trace.end_ns.max() - trace.start_ns.min()) / 1e3


def _lanes(trace: Trace) -> tuple[LaneInspection, ...]:
    by_lane = np.argsort(trace.lane, kind="stable")  # within a lane still in order of start
    bounds = np.searchsorted(trace.lane[by_lane], np.arange(len(trace.lanes) + 1))
    lanes = []
    for lane, begin, end in zip(trace.lanes, bounds[:-1], bounds[1:], strict=True):
        if begin == end:
            continue
        rows = by_lane[begin:end]
        # The rows that annotate or synchronise a stream are not its work.
        busy = rows[np.isin(trace.category[rows], DEVICE_WORK)] if lane.is_stream else rows
        lanes.append(
            LaneInspection(
                name=lane.name,
                device=lane.device if lane.is_stream else None,
                stream=lane.stream if lane.is_stream else None,
                events=len(rows),
                busy_us=_covered_ns(trace.start_ns[busy], trace.end_ns[busy]) / 1e3,
            )
        )
    return tuple(lanes)


def _covered_ns(start_ns: np.ndarray, end_ns: np.ndarray) -> int:
    """Length of the union of spans that are in order of their start."""
    if not len(start_ns):
        return 0
    covered_until = np.maximum.accumulate(end_ns)
    new_from = np.maximum(start_ns[1:], covered_until[:-1])
    added = np.maximum(end_ns[1:] - new_from, 0)
    return int(end_ns[0] - start_ns[0] + added.sum())


def _steps(rank: int, graph: ExecutionGraph) -> tuple[StepInspection, ...]:
    return tuple(
        StepInspection(step.name, (step.end_ns - step.begin_ns) / 1e3)
        for step in graph.steps
        if step.rank == rank
    )


def _dependencies(graph: ExecutionGraph) -> dict[str, int]:
    counts = np.bincount(graph.dependency, minlength=len(DependencyKind))
    return {kind.name.lower(): int(counts[kind]) for kind in DependencyKind if counts[kind]}
