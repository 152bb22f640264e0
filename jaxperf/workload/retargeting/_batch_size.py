"""Other batch sizes of a job that was recorded at two of them, or more."""

import json
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from jaxperf.cost import Work, WorkKind, task_work
from jaxperf.errors import ConfigError
from jaxperf.graph import ExecutionGraph, TaskKind, build_graph
from jaxperf.replay import Timeline, replay_graph, steady_weights
from jaxperf.trace import Note, Run, Trace, read_run
from jaxperf.workload.retargeting._matching import Matching, match_runs, on_device

Source = str | os.PathLike[str]

# Runs with less of their device time in common are not of one program.
_LEAST_IN_COMMON = 0.5
# Two times of the same host task further apart than this: the longer one did something once,
# such as loading or compiling code, or had to wait for the machine.
_ONCE = 3.0
# What a caching allocator asks the device for while it warms up.
_ALLOCATION = re.compile(r"(cuda|hip)(Malloc|Free)")


@dataclass(frozen=True, eq=False)
class BatchSizes:
    """Iterations at several batch sizes, as predicted.

    Attributes:
        sizes: the batch sizes.
        step_us: (sizes,) the steady step; of traces without iterations the whole window.
        device_us: (sizes,) all device work of the traces together.
        program: (sizes,) the recorded size that is nearest. Its host tasks, dependencies, and what
            of the shapes is not the batch are those of the prediction.
        recorded_share, scaled_share, modelled_share: (sizes,) shares of `device_us`: work that does
            not change with the batch; work that moves between and beyond its two measured times;
            and what one run alone has, which moves in proportion to its work or the batch.
        notes: what was taken for granted.
    """

    sizes: tuple[int, ...]
    step_us: np.ndarray
    device_us: np.ndarray
    program: tuple[int, ...]
    recorded_share: np.ndarray
    scaled_share: np.ndarray
    modelled_share: np.ndarray
    notes: tuple[Note, ...]


def predict_batch_sizes(
    runs: Mapping[int, Source | Sequence[Source]], sizes: Sequence[int]
) -> BatchSizes:
    """What an iteration would take at other batch sizes.

    The tasks of two recorded runs are paired. Which dimension of an operator's inputs is the batch
    is seen from the two shapes: the one that grows as the batch does, or is at least a multiple of
    it in both. So the work of each kernel is known at any size, and its time is the line through
    its two measured times, `overhead + rate * work`, neither negative; beyond both it works no
    faster than the fastest recorded kernel of its kind and precision. Host tasks keep their time,
    the mean of both runs; the graph says whether host or device bounds the iteration.

    Args:
        runs: the traces of each recorded size, as `read_run` takes them. Of more than two sizes
            those around the wanted one are taken, or the nearest two.
        sizes: the sizes that are wanted.

    Returns:
        The predictions, in the order of `sizes`.

    Raises:
        ConfigError: there are fewer than two sizes, or one is not positive; or the runs are not of
            the same program: other numbers of ranks, or little of their device work alike.
        TraceError, GraphError: a run cannot be read or replayed.

    Example:
        >>> import tempfile
        >>> from jaxperf.simulator import SimulatedJob, simulate, write_traces
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     runs = {
        ...         size: write_traces(
        ...             simulate(SimulatedJob(layers=1, micro_batch_size=size)), f"{folder}/{size}"
        ...         )
        ...         for size in (2, 8)
        ...     }
        ...     predicted = predict_batch_sizes(runs, [4])
        >>> truth_us = simulate(SimulatedJob(layers=1, micro_batch_size=4)).step_us
        >>> bool(abs(predicted.step_us[0] / truth_us - 1) < 0.02)
        True
    """
    if len(runs) < 2 or min([*runs, *sizes], default=0) < 1:
        raise ConfigError(
            "a batch size is predicted from two others",
            where="runs",
            got=f"runs of {sorted(runs)} for {list(sizes)}",
            expected="traces of two positive sizes or more",
        )
    recorded = [_read(size, runs[size]) for size in sorted(runs)]
    matchings: dict[tuple[int, int], Matching] = {}
    rows = []
    for size in sizes:
        own, other = _nearest(recorded, size)
        pair = own.size, other.size
        if pair not in matchings:
            matchings[pair] = _matched(own, other)
        rows.append(_predict(own, other, matchings[pair], size))
    columns = [np.array(column) for column in zip(*(row.figures for row in rows), strict=True)]
    notes = dict.fromkeys(note for row in rows for note in row.notes)
    programs = tuple(row.program for row in rows)
    step_us, device_us, recorded, scaled, modelled = columns
    return BatchSizes(
        tuple(sizes), step_us, device_us, programs, recorded, scaled, modelled, tuple(notes)
    )


@dataclass(frozen=True, eq=False)
class _Recorded:
    size: int
    run: Run
    graph: ExecutionGraph
    work: Work


def _read(size: int, paths: Source | Sequence[Source]) -> _Recorded:
    run = read_run(paths)
    graph = build_graph(run)
    return _Recorded(size, run, graph, task_work(graph, run))


def _nearest(recorded: Sequence[_Recorded], size: int) -> tuple[_Recorded, _Recorded]:
    """The nearest run, and the nearest on the other side of the size or else the next."""
    own, *others = sorted(recorded, key=lambda side: abs(np.log(side.size / size)))
    beyond = [side for side in others if (side.size > size) != (own.size > size)]
    return own, (beyond or others)[0]


def _matched(own: _Recorded, other: _Recorded) -> Matching:
    where = f"batch sizes {own.size} and {other.size}"
    ranks = len(own.run.traces), len(other.run.traces)
    if ranks[0] != ranks[1]:
        raise ConfigError(
            "the runs are not of the same job",
            where=where,
            got=f"{ranks[0]} and {ranks[1]} ranks",
            expected="as many in both",
        )
    matching = match_runs(own.run, own.graph, other.run, other.graph)
    graph, paired = own.graph, matching.partner >= 0
    device_ns = np.where(on_device(graph), graph.duration_ns, 0)
    share = float(device_ns[paired].sum() / max(int(device_ns.sum()), 1))
    if share < _LEAST_IN_COMMON:
        lost = np.argmax(np.where(paired, 0, device_ns))
        raise ConfigError(
            "the runs are not of the same program",
            where=where,
            got=f"{100 * share:.0f} % of the device time in both; only at {own.size}: "
            f"{graph.names[graph.name[lost]][:60]}",
            expected=f"{100 * _LEAST_IN_COMMON:.0f} % or more",
        )
    return matching


# One size
# ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Prediction:
    """Of one size: step and device time, and the three shares; see `BatchSizes`."""

    program: int
    figures: tuple[float, float, float, float, float]
    notes: tuple[Note, ...]


def _predict(own: _Recorded, other: _Recorded, matching: Matching, size: int) -> _Prediction:
    graph, partner = own.graph, matching.partner
    paired, device = partner >= 0, on_device(own.graph)
    own_us = graph.duration_ns / 1e3
    other_us = np.where(paired, other.graph.duration_ns[partner] / 1e3, np.nan)
    amounts = _amounts(own, other, matching, size)
    device_us = np.where(
        paired,
        _on_line(amounts[0], amounts[1], own_us, other_us, amounts[2]),
        own_us * amounts[2] / amounts[0],
    )
    beyond = amounts[2] > np.fmax(amounts[0], amounts[1])
    least_us = amounts[2] / _fastest_per_us(own, other)
    device_us = np.where(beyond & paired, np.maximum(device_us, least_us), device_us)
    host_us = _usual_us(graph, own_us, other_us)
    timeline = replay_graph(graph, np.where(device, device_us, host_us))
    total_us = float(device_us[device].sum())
    moves = amounts[0] != amounts[1]
    kinds = (paired & ~moves, paired & moves, ~paired)
    recorded, scaled, modelled = (
        float(device_us[device & kind].sum()) / max(total_us, 1e-9) for kind in kinds
    )
    dropped_us = (own_us - host_us)[~device].sum()
    return _Prediction(
        own.size,
        (_step_us(graph, timeline), total_us, recorded, scaled, modelled),
        _notes(own, other, matching, float(dropped_us)),
    )


def _amounts(own: _Recorded, other: _Recorded, matching: Matching, size: int) -> np.ndarray:
    """(3, tasks) the work of each task in both runs, and at another size."""
    graph, paired = own.graph, matching.partner >= 0
    traces = tuple(
        _resized(one, two, rows, (own.size, other.size, size))
        for one, two, rows in zip(own.run.traces, other.run.traces, matching.operator, strict=True)
    )
    there = _amount(task_work(graph, replace(own.run, traces=traces)))
    here = _amount(own.work)
    elsewhere = np.where(paired, _amount(other.work)[matching.partner], here)
    amounts = np.stack([here, elsewhere, there])
    # The size of a copy or message is recorded, and follows from no shape.
    told = (graph.kind == TaskKind.KERNEL) | (here == elsewhere)
    # Nor is the batch seen in an operator that has no counterpart.
    told &= paired | (here != there)
    known = told & (amounts > 0).all(0)
    sizes = np.array([own.size, other.size, size], np.float64)
    return np.where(known, amounts, sizes[:, np.newaxis])


def _amount(work: Work) -> np.ndarray:
    """(tasks,) what the time of each is proportional to where it is long; NaN where unknown."""
    return np.select(
        [
            np.isin(work.kind, [WorkKind.MATMUL, WorkKind.ATTENTION]),
            work.kind == WorkKind.MEMORY,
            work.kind == WorkKind.COLLECTIVE,
        ],
        [work.flops, work.memory_bytes, work.message_bytes],
        np.nan,
    )


def _fastest_per_us(own: _Recorded, other: _Recorded) -> np.ndarray:
    """(tasks,) most work in a microsecond of any recorded kernel of a task's kind and precision."""
    fastest: dict[tuple[int, int], float] = {}
    for side in (own, other):
        amount, time_us = _amount(side.work), side.graph.duration_ns / 1e3
        known = (side.graph.kind == TaskKind.KERNEL) & (amount > 0) & (time_us > 0)
        kinds = zip(
            side.work.kind[known].tolist(), side.work.precision[known].tolist(), strict=True
        )
        for kind, rate in zip(kinds, (amount[known] / time_us[known]).tolist(), strict=True):
            fastest[kind] = max(fastest.get(kind, 0.0), rate)
    kinds = zip(own.work.kind.tolist(), own.work.precision.tolist(), strict=True)
    return np.array([fastest.get(kind, np.inf) for kind in kinds])


def _on_line(
    amount_a: np.ndarray,
    amount_b: np.ndarray,
    time_a: np.ndarray,
    time_b: np.ndarray,
    amount: np.ndarray,
) -> np.ndarray:
    """Times at other amounts of work, on the line through two measured ones."""
    with np.errstate(divide="ignore", invalid="ignore"):
        slope = np.where(amount_a == amount_b, 0.0, (time_b - time_a) / (amount_b - amount_a))
        line = time_a + slope * (amount - amount_a)
        # Where the line has no positive overhead, what is less than both is in proportion.
        least = np.minimum(amount_a, amount_b)
        least_time = np.where(amount_a < amount_b, time_a, time_b)
        line = np.where(amount < least, np.maximum(line, least_time * amount / least), line)
    return np.where(slope > 0, line, (time_a + time_b) / 2)


def _usual_us(graph: ExecutionGraph, own_us: np.ndarray, other_us: np.ndarray) -> np.ndarray:
    """What host tasks take when nothing is done for the first time."""
    shorter, longer = np.fmin(own_us, other_us), np.fmax(own_us, other_us)
    usual_us = np.where(longer > _ONCE * shorter, shorter, (shorter + longer) / 2)
    alone = np.isnan(other_us)
    host = ~on_device(graph)
    for name in np.unique(graph.name[alone & host]).tolist():
        mine = host & (graph.name == name)
        if _ALLOCATION.match(graph.names[name]):
            usual_us[mine & alone] = 0.0
        elif (mine & ~alone).any():
            # As long as those of its name that both runs have, up to the usual scatter.
            most_us = _ONCE**2 * np.median(usual_us[mine & ~alone])
            slow = mine & alone & (own_us > most_us)
            usual_us[slow] = most_us
    return usual_us


def _step_us(graph: ExecutionGraph, timeline: Timeline) -> float:
    weights = steady_weights(graph)
    if not weights.any():
        return float(timeline.end_us.max() - timeline.start_us.min())
    spans = [timeline.end_us[s.end_task] - timeline.start_us[s.begin_task] for s in graph.steps]
    return float(np.dot(weights, spans))


def _notes(
    own: _Recorded, other: _Recorded, matching: Matching, dropped_us: float
) -> tuple[Note, ...]:
    notes = []
    if dropped_us > 0.1 * own.graph.duration_ns[~on_device(own.graph)].sum() / 1e3:
        text = (
            f"{dropped_us / 1e3:.1f} ms of host work at batch size {own.size} were done once "
            f"(compilation, loading, allocation) and are left out"
        )
        notes.append(Note("done-once", text))
    varying = _varying_shapes(own, other, matching)
    if varying:
        text = (
            f"batch sizes {own.size} and {other.size} also differ in other dimensions, such as "
            f"{varying}; near {own.size} they are taken to be those of {own.size}"
        )
        notes.append(Note("shapes-vary", text))
    return tuple(notes)


# Shapes
# ---------------------------------------------------------------------------------------


def _resized(trace: Trace, other: Trace, rows: np.ndarray, sizes: tuple[int, int, int]) -> Trace:
    """A trace whose operators have the shapes of another batch size.

    Args:
        trace: of the first size.
        other: of the second size.
        rows: (events,) the same operator in the other trace, -1 for none.
        sizes: the two batch sizes, and the one that is wanted.
    """
    shapes, shape = list(trace.shapes), trace.shape.copy()
    known: dict[tuple[int, int], int] = {}
    for row in np.flatnonzero(rows >= 0).tolist():
        key = int(trace.shape[row]), int(other.shape[rows[row]])
        if min(key) < 0:
            continue
        if key not in known:
            one, two = _sizes(trace.shapes[key[0]]), _sizes(other.shapes[key[1]])
            known[key] = len(shapes)
            shapes.append(json.dumps(_resized_sizes(one, two, sizes)))
        shape[row] = known[key]
    return replace(trace, shapes=tuple(shapes), shape=shape)


def _sizes(text: str) -> object:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def _resized_sizes(one: object, two: object, sizes: tuple[int, int, int]) -> object:
    """Nested lists of dimensions at another batch size; `None` where the two are not alike."""
    if not isinstance(one, list) or not isinstance(two, list) or len(one) != len(two):
        return None
    if any(isinstance(part, list) for part in one):
        return [_resized_sizes(*parts, sizes) for parts in zip(one, two, strict=True)]
    at = _batch_dimension(one, two, sizes[0], sizes[1])
    return [n * sizes[2] // sizes[0] if i == at else n for i, n in enumerate(one)]


def _batch_dimension(one: Sequence, two: Sequence, size_one: int, size_two: int) -> int:
    """Which dimension holds the batch; -1 for none.

    The first that grows exactly as the batch; else, as other dimensions may vary too and be
    flattened with it, the first that differs and is a multiple of the batch in both.
    """
    pairs = list(enumerate(zip(one, two, strict=True)))
    differ = [(i, a, b) for i, (a, b) in pairs if a != b]
    exact = [i for i, a, b in differ if a * size_two == b * size_one]
    multiple = [i for i, a, b in differ if a % size_one == 0 and b % size_two == 0]
    return (exact or multiple or [-1])[0]


def _varying_shapes(own: _Recorded, other: _Recorded, matching: Matching) -> str:
    """Two shapes that differ in more than the batch; empty where there are none."""
    for one, two, rows in zip(own.run.traces, other.run.traces, matching.operator, strict=True):
        seen = set()
        for row in np.flatnonzero(rows >= 0).tolist():
            key = int(one.shape[row]), int(two.shape[rows[row]])
            if min(key) < 0 or key in seen:
                continue
            seen.add(key)
            text, text_two = one.shapes[key[0]], two.shapes[key[1]]
            sizes = own.size, other.size, other.size
            if _resized_sizes(_sizes(text), _sizes(text_two), sizes) != _sizes(text_two):
                return f"{text} and {text_two} of {one.names[one.name[row]]}"
    return ""
