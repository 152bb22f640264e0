"""The replayed timeline in the Chrome trace format, for Perfetto and for a second replay.

Format: "Trace Event Format" (Google, 2016). Perfetto drops a slice that overlaps another one of its
row without lying inside it, so times are exact to the nanosecond and such a slice gets a row of its
own. A flow arrow binds to the slice around its time, so it leaves one nanosecond before an end.
"""

import gzip
import json
import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import BinaryIO

import numpy as np

from jaxperf._files import new_file
from jaxperf.estimate import Estimate
from jaxperf.graph import DependencyKind, ExecutionGraph, TaskClass, TaskKind
from jaxperf.replay import Replay
from jaxperf.report._estimated_replay import estimated_replay
from jaxperf.report._timeline import (
    Spans,
    binding_source,
    busy_until,
    lane_order,
    timeline_spans,
)

_CATEGORY = {
    TaskKind.HOST_WORK: "cpu_op",
    TaskKind.HOST_CALL: "cuda_runtime",
    TaskKind.HOST_RETURN: "cuda_runtime",
    TaskKind.KERNEL: "kernel",
    TaskKind.MEMCPY: "gpu_memcpy",
    TaskKind.MEMSET: "gpu_memset",
    TaskKind.COLLECTIVE: "kernel",
    TaskKind.ARRIVAL: "kernel",
}
_CHUNK = 1 << 15
_GZIP_LEVEL = 1  # a third of the time of the default, for a file a quarter larger


def write_trace(
    result: Replay | Estimate, path: str | os.PathLike, overwrite: bool = False
) -> None:
    """Write the replayed or estimated timeline for Perfetto: a process per rank, a row per lane.

    Each slice says what was measured and what bound its start. Waits lie as slices of their own
    before or inside the slice that waited. Arrows are the dependencies that bound a start across
    lanes. Categories, streams and correlation ids are those of a profiler, so that the trace can be
    read again.

    Args:
        result: of a replay; or an estimate, of which nothing was measured.
        path: the file to write; compressed where its name ends in `.gz`.
        overwrite: replace a file that is there.

    Raises:
        OutputError: the file exists, or cannot be written.

    Example:
        >>> import tempfile
        >>> from jaxperf.replay import replay
        >>> from jaxperf.simulator import SimulatedJob, simulate, write_traces
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     result = replay(write_traces(simulate(SimulatedJob(layers=1)), folder))
        ...     write_trace(result, f"{folder}/replayed.json.gz")
        ...     again = replay(f"{folder}/replayed.json.gz")
        >>> abs(again.window.measured_us - result.window.replayed_us) < 0.01
        True
    """
    measured = isinstance(result, Replay)
    replay = result if measured else estimated_replay(result)
    with new_file(path, overwrite) as file:
        if os.fspath(path).endswith(".gz"):
            with gzip.GzipFile("", "wb", _GZIP_LEVEL, file, mtime=0) as packed:
                _write(replay, measured, packed)  # type: ignore[arg-type]
        else:
            _write(replay, measured, file)


def _write(replay: Replay, measured: bool, file: BinaryIO) -> None:
    before, replayed = timeline_spans(replay)
    slices = _slices(replay.graph, before, replayed)
    rows = _rows(replay.graph, slices)
    file.write(_head(replay).encode())
    separator = "\n"
    for lines in (
        _metadata_lines(replay, measured, rows),
        _step_lines(replay.graph, slices, before if measured else None, replayed, rows),
        _slice_lines(replay, measured, slices, rows),
        _wait_lines(replay.graph, replayed, rows),
        _flow_lines(replay, replayed, rows),
    ):
        for chunk in _chunks(lines):
            file.write((separator + chunk).encode())
            separator = ",\n"
    file.write(b"\n]}\n")


def _chunks(lines: Iterable[str]) -> Iterator[str]:
    held: list[str] = []
    for line in lines:
        held.append(line)
        if len(held) == _CHUNK:
            yield ",\n".join(held)
            held.clear()
    if held:
        yield ",\n".join(held)


def _head(replay: Replay) -> str:
    device = {summary.rank: summary.device for summary in replay.ranks}
    devices = [
        {"id": lane.device, "name": device[lane.rank]}
        for lane in replay.graph.lanes
        if lane.is_stream and device.get(lane.rank)
    ]
    known = {"schemaVersion": 1, "displayTimeUnit": "ms", "baseTimeNanoseconds": 0}
    known["deviceProperties"] = list({json.dumps(x): x for x in devices}.values())
    if len(replay.graph.ranks) == 1:
        known["distributedInfo"] = {"rank": replay.graph.ranks[0]}
    return json.dumps(known)[:-1] + ', "traceEvents": ['


@dataclass(frozen=True, eq=False)
class _Slices:
    """What is drawn: tasks, where the two parts of a blocking call or a collective are one.

    In order of lane and start.

    Attributes:
        task: (k,) the task that gives name and kind.
        first, last: (k,) the tasks that give start and end.
        start_ns, end_ns: (k,) as replayed.
        measured_start_ns, measured_end_ns: (k,) as measured.
    """

    task: np.ndarray
    first: np.ndarray
    last: np.ndarray
    start_ns: np.ndarray
    end_ns: np.ndarray
    measured_start_ns: np.ndarray
    measured_end_ns: np.ndarray


def _slices(graph: ExecutionGraph, measured: Spans, replayed: Spans) -> _Slices:
    order = np.lexsort((graph.order, replayed.start_ns, graph.lane))
    kind, lane, name = graph.kind[order], graph.lane[order], graph.name[order]
    same_lane = lane[:-1] == lane[1:]
    call = (kind[:-1] == TaskKind.HOST_CALL) & (kind[1:] == TaskKind.HOST_RETURN)
    collective = (kind[:-1] == TaskKind.ARRIVAL) & (kind[1:] == TaskKind.COLLECTIVE)
    joined = np.append((call | collective & (name[:-1] == name[1:])) & same_lane, False)
    # The moment at which a call and its return are both over is no slice.
    over = (kind[:-1] == TaskKind.HOST_RETURN) & (kind[1:] == TaskKind.HOST_CALL) & same_lane
    over &= graph.duration_ns[order[1:]] == 0

    is_drawn = (joined | (kind != TaskKind.ARRIVAL)) & ~_behind(joined[:-1]) & ~_behind(over)
    first = order[is_drawn]
    last = np.where(joined, np.append(order[1:], -1), order)[is_drawn]
    return _Slices(
        np.where(graph.kind[first] == TaskKind.ARRIVAL, last, first),
        first,
        last,
        replayed.start_ns[first],
        replayed.end_ns[last],
        measured.start_ns[first],
        measured.end_ns[last],
    )


def _behind(pairs: np.ndarray) -> np.ndarray:
    """Whether each of a sequence is the second of a marked pair of neighbours."""
    return np.append(False, pairs)


@dataclass(frozen=True, eq=False)
class _Rows:
    """Rows of the picture: the lanes, and more for slices that overlap on one.

    Attributes:
        of_task: (n,) row of each task.
        place: text of `pid` and `tid` of each row.
        owner: text that tells a reader which rank of several in a file a slice belongs to, as
            TraceLens writes it; empty for one rank.
        lane: lane of each row.
    """

    of_task: np.ndarray
    place: list[str]
    owner: list[str]
    lane: list[int]


def _rows(graph: ExecutionGraph, slices: _Slices) -> _Rows:
    lanes = lane_order(graph)
    row_of_lane = np.empty(len(lanes), np.int64)
    row_of_lane[lanes] = np.arange(len(lanes))
    row = row_of_lane[graph.lane]
    row_lane = lanes.tolist()

    lane = graph.lane[slices.task]
    busy = busy_until(lane, slices.start_ns, slices.end_ns, np.arange(len(lane)))
    free: dict[int, list[list[int]]] = {}  # lane -> [end, row] of its further rows
    for i in np.flatnonzero(busy > slices.start_ns).tolist():
        further = free.setdefault(int(lane[i]), [])
        for place in further:
            if place[0] <= slices.start_ns[i]:
                break
        else:
            place = [0, len(row_lane)]
            further.append(place)
            row_lane.append(int(lane[i]))
        place[0] = int(slices.end_ns[i])
        row[slices.first[i]] = row[slices.last[i]] = place[1]
    place = [
        f'"pid":{graph.lanes[lane].rank},"tid":{index + 1}' for index, lane in enumerate(row_lane)
    ]
    ranks = [graph.lanes[lane].rank for lane in row_lane]
    several = len(graph.ranks) > 1
    owner = [f'"rank":{rank},"pid_raw":{rank},' if several else "" for rank in ranks]
    return _Rows(row, place, owner, row_lane)


def _metadata_lines(replay: Replay, measured: bool, rows: _Rows) -> Iterator[str]:
    def line(what: str, place: str, **args: object) -> str:
        return f'{{"ph":"M","name":"{what}",{place},"args":{json.dumps(args)}}}'

    def owner(rank: int) -> dict:
        return {"rank": rank, "pid_raw": rank} if len(graph.ranks) > 1 else {}

    graph = replay.graph
    device = {summary.rank: summary.device for summary in replay.ranks}
    for rank in graph.ranks:
        place = f'"pid":{rank},"tid":0'
        yield line("process_name", place, name=f"rank {rank}", **owner(rank))
        # A label that begins with "GPU" or "MTIA" would make a device of the whole process.
        what = "replayed" if measured else "estimated"
        labels = f"{what}, {device[rank]}" if device.get(rank) else what
        yield line("process_labels", place, labels=labels, **owner(rank))
        yield line("process_sort_index", place, sort_index=rank)
    place_of = {lane: index for index, lane in enumerate(rows.lane[: len(graph.lanes)])}
    for index, (place, lane) in enumerate(zip(rows.place, rows.lane, strict=True)):
        is_further = index >= len(graph.lanes)
        name = graph.lanes[lane].name + (" (overlapping)" if is_further else "")
        yield line("thread_name", place, name=name, **owner(graph.lanes[lane].rank))
        # Further rows stand below the lane they belong to.
        yield line("thread_sort_index", place, sort_index=2 * place_of[lane] + is_further)


def _step_lines(
    graph: ExecutionGraph, slices: _Slices, measured: Spans | None, replayed: Spans, rows: _Rows
) -> Iterator[str]:
    """Steps around what they hold, on the row of the thread that opened them."""
    lane = graph.lane[slices.task]
    for step, after in zip(graph.steps, [*graph.steps[1:], None], strict=True):
        begin, end = replayed.start_ns[step.begin_task], replayed.end_ns[step.end_task]
        if after is not None and after.rank == step.rank:
            end = min(end, replayed.start_ns[after.begin_task])
        first, behind = np.searchsorted(lane, [own := graph.lane[step.begin_task], own + 1])
        last = first + np.searchsorted(slices.start_ns[first:behind], end) - 1
        end = max(end, slices.end_ns[last])  # a slice is not cut in two
        args = ""
        if measured is not None:
            measured_ns = measured.end_ns[step.end_task] - measured.start_ns[step.begin_task]
            args = f'"measured_us":{measured_ns / 1e3}'
        row = rows.of_task[step.begin_task]
        yield (
            f'{{"ph":"X","cat":"user_annotation","name":{json.dumps(step.name)},'
            f'{rows.place[row]},"ts":{_us(int(begin))},"dur":{_us(int(end - begin))},'
            f'"args":{{{(rows.owner[row] + args).rstrip(",")}}}}}'
        )


def _slice_lines(replay: Replay, measured: bool, slices: _Slices, rows: _Rows) -> Iterator[str]:
    graph = replay.graph
    labels, label = _labels(graph, slices.task)
    bound = _bound_words(replay)
    correlation = _correlations(graph)
    for begin in range(0, len(slices.task), _CHUNK):
        part = slice(begin, begin + _CHUNK)
        columns = zip(
            label[part].tolist(),
            rows.of_task[slices.first[part]].tolist(),
            slices.start_ns[part].tolist(),
            (slices.end_ns - slices.start_ns)[part].tolist(),
            slices.measured_start_ns[part].tolist(),
            (slices.measured_end_ns - slices.measured_start_ns)[part].tolist(),
            correlation[slices.first[part]].tolist(),
            bound[slices.first[part]].tolist(),
            strict=True,
        )
        place, owner = rows.place, rows.owner
        for which, row, start, duration, m_start, m_duration, link, why in columns:
            head, tail = labels[which]
            yield (
                f"{head}{place[row]}"
                f',"ts":{start // 1000}.{start % 1000:03}'
                f',"dur":{duration // 1000}.{duration % 1000:03}'
                f',"args":{{{owner[row]}{tail}'
                + (
                    f'"measured_start_us":{m_start // 1000}.{m_start % 1000:03}'
                    f',"measured_duration_us":{m_duration // 1000}.{m_duration % 1000:03}'
                    f',"start_error_us":{(start - m_start) / 1000},'
                    if measured
                    else ""
                )
                + (f'"correlation":{link},' if link else "")
                + (f'"bound_by":"{_BOUND[why]}"}}}}')
            )


def _labels(graph: ExecutionGraph, task: np.ndarray) -> tuple[list[tuple[str, str]], np.ndarray]:
    """Text of a slice that depends only on name, kind, class and lane, made once for each."""
    sizes = len(TaskKind), len(TaskClass), len(graph.lanes)
    key = graph.name[task].astype(np.int64)
    for column, size in zip((graph.kind, graph.task_class, graph.lane), sizes, strict=True):
        key = key * size + column[task]
    unique, label = np.unique(key, return_inverse=True)
    # Work of a step outside any operator bears the step's name: a reader would take it for a step.
    steps = {step.name for step in graph.steps}
    names = [json.dumps("host" if name in steps else name) for name in graph.names]
    labels = []
    for name, kind, task_class, lane in zip(
        *(x.tolist() for x in np.unravel_index(unique, (len(graph.names), *sizes))), strict=True
    ):
        where = graph.lanes[lane]
        place = f'"device":{where.device},"stream":{where.stream},' if where.is_stream else ""
        labels.append(
            (
                f'{{"ph":"X","cat":"{_CATEGORY[TaskKind(kind)]}","name":{names[name]},',
                f'{place}"kind":"{TaskKind(kind).name.lower()}",'
                f'"class":"{TaskClass(task_class).name.lower()}",',
            )
        )
    return labels, label


_BOUND = [*(kind.name.lower() for kind in DependencyKind), "release"]


def _bound_words(replay: Replay) -> np.ndarray:
    bound = np.full(replay.graph.tasks, len(DependencyKind), np.int8)
    known = replay.binding >= 0
    bound[known] = replay.graph.dependency[replay.binding[known]]
    return bound


def _correlations(graph: ExecutionGraph) -> np.ndarray:
    """(n,) one number for a launching call and its device tasks; 0 elsewhere."""
    launch = graph.dependency == DependencyKind.LAUNCH
    correlation = np.zeros(graph.tasks, np.int64)
    correlation[graph.source[launch]] = graph.source[launch] + 1
    correlation[graph.target[launch]] = graph.source[launch] + 1
    return correlation


def _wait_lines(graph: ExecutionGraph, replayed: Spans, rows: _Rows) -> Iterator[str]:
    waits = replayed.waits
    for task, begin, end, cause in zip(
        waits.task.tolist(),
        waits.begin_ns.tolist(),
        waits.end_ns.tolist(),
        waits.cause.tolist(),
        strict=True,
    ):
        row, name, args = rows.of_task[task], "wait", {"for_rank": None, "for_task": None}
        if cause >= 0:
            other, own = graph.lanes[graph.lane[cause]], graph.lanes[graph.lane[task]]
            name += " for " + (f"rank {other.rank}" if other.rank != own.rank else other.name)
            args = {"for_rank": other.rank, "for_task": graph.names[graph.name[cause]]}
        yield (
            f'{{"ph":"X","cat":"wait","name":{json.dumps(name)},{rows.place[row]}'
            f',"ts":{_us(begin)},"dur":{_us(end - begin)}'
            f',"args":{{{rows.owner[row]}{json.dumps(args)[1:]}}}'
        )


def _flow_lines(replay: Replay, replayed: Spans, rows: _Rows) -> Iterator[str]:
    graph = replay.graph
    source = binding_source(replay)
    target = np.flatnonzero((source >= 0) & (graph.lane[source] != graph.lane))
    source = source[target]
    dependency = replay.binding[target]
    begin, end = replayed.start_ns[source], replayed.end_ns[source]
    leaves = np.where(graph.from_start[dependency], begin, np.maximum(begin, end - 1))
    columns = zip(
        dependency.tolist(),
        graph.dependency[dependency].tolist(),
        rows.of_task[source].tolist(),
        leaves.tolist(),
        rows.of_task[target].tolist(),
        replayed.start_ns[target].tolist(),
        strict=True,
    )
    for identity, kind, from_row, leave, to_row, arrive in columns:
        head = f'"cat":"dependency","name":"{_BOUND[kind]}","id":{identity},'
        yield (
            f'{{"ph":"s",{head}{rows.place[from_row]},"ts":{_us(leave)}}},\n'
            f'{{"ph":"f","bp":"e",{head}{rows.place[to_row]},"ts":{_us(arrive)}}}'
        )


def _us(time_ns: int) -> str:
    """Nanoseconds as microseconds, exactly."""
    return f"{time_ns // 1000}.{time_ns % 1000:03}"
