"""From decoded events to columns, slice by slice, and from the columns of a rank to its `Trace`."""

import json
import re
from collections import Counter, defaultdict
from collections.abc import Sequence
from typing import Any

import numpy as np

from jaxperf.trace._categories import (
    DEVICE_WORK,
    FORWARD_BACKWARD_FLOWS,
    LAUNCH_FLOWS,
    category_of,
    device_category_of,
)
from jaxperf.trace._events import NO_ARGS, Args, Event, integer
from jaxperf.trace._notes import NoteBook
from jaxperf.trace._types import ALL_STREAMS, MISSING, Category, Collective, Flows, Lane

_LAUNCHES = (Category.RUNTIME, Category.DRIVER)
_OPERATORS = (Category.CPU_OP, Category.ANNOTATION)
_ON_DEVICE = (*DEVICE_WORK, Category.SYNC, Category.GPU_ANNOTATION)
_UNSIGNED_ALL_STREAMS = 2**32 - 1
_LARGEST_TIME_US = 2**63 / 1000 - 1
_NUMBER_AT_END = re.compile(r"(\d+)\D*$")


class _Table(dict):
    """Numbers things in order of first appearance."""

    def __missing__(self, key):
        number = self[key] = len(self)
        return number


class _Threads(dict):
    """Numbers (pid, tid) pairs, the same whether an id is written as a number or as text."""

    def __init__(self):
        self.written: dict[tuple[str, str], int] = {}

    def __missing__(self, key):
        text = (str(key[0]), str(key[1]))
        number = self[key] = self.written.setdefault(text, len(self.written))
        return number


class _Kinds(dict):
    """Numbers (category as written, name) pairs, and remembers what they mean."""

    def __init__(self, names: _Table):
        self._names = names
        self.categories: list[int] = []
        self.names: list[int] = []
        self.uncategorised: list[bool] = []

    def __missing__(self, key):
        written, name = key
        number = self[key] = len(self.names)
        self.categories.append(category_of(written, name))
        self.names.append(self._names[name])
        self.uncategorised.append(not written)
        return number


class _Shapes(dict):
    """Numbers JSON texts, the same whatever their white space."""

    def __init__(self):
        self.texts = _Table()

    def __missing__(self, key):
        text = key.decode(errors="replace")
        try:
            text = json.dumps(json.loads(text))
        except ValueError:
            pass  # kept as written
        number = self[key] = self.texts[text]
        return number


class Columns:
    """The events of one rank as they come in.

    Args:
        notes: where unusable times and the like are noted.
    """

    def __init__(self, notes: NoteBook):
        self._notes = notes
        self._rows = 0
        self._names = _Table()
        self._kinds = _Kinds(self._names)
        self._threads = _Threads()
        self._shapes = _Shapes()
        self._collectives = _Table()
        self._dense: dict[str, list[np.ndarray]] = defaultdict(list)
        self._sparse: dict[str, list[tuple[np.ndarray, np.ndarray]]] = defaultdict(list)
        self._flows: dict[str, list[np.ndarray]] = defaultdict(list)
        self._flow_names = _Table()
        self._open: dict[int, list[Event]] = defaultdict(list)
        self.thread_names: dict[tuple[str, str], str] = {}
        self.process_names: dict[str, str] = {}
        self.process_labels: dict[str, str] = {}

    def add(self, events: Sequence[Event]) -> None:
        """Take in a slice of the file's events, in file order."""
        phases = {event.ph for event in events}
        if phases & {"B", "E"}:
            events = self._paired(events)
        if phases & {"X", "B", "E"}:
            self._add_complete([event for event in events if event.ph == "X"])
        if phases & {"s", "f"}:
            self._add_flows([event for event in events if event.ph in ("s", "f")])
        if "M" in phases:
            self._add_metadata([event for event in events if event.ph == "M"])

    def close(self) -> None:
        """No more events come."""
        unclosed = sum(len(stack) for stack in self._open.values())
        if unclosed:
            self._notes.add("unpaired-begin-end", count=unclosed)

    @property
    def rows(self) -> int:
        """Complete events so far."""
        return self._rows

    def _paired(self, events: Sequence[Event]) -> list[Event]:
        """Begin and end events of a thread, nested as they are written, as complete ones."""
        found = []
        for event in events:
            if event.ph == "B":
                self._open[self._threads[event.pid, event.tid]].append(event)
            elif event.ph == "E":
                stack = self._open[self._threads[event.pid, event.tid]]
                if not stack or event.ts is None or stack[-1].ts is None:
                    self._notes.add("unpaired-begin-end")
                    continue
                begin = stack.pop()
                begin.dur = (_one_ns(event.ts) - _one_ns(begin.ts)) / 1000
                begin.ph = "X"
                found.append(begin)
            else:
                found.append(event)
        return found

    def _add_complete(self, events: Sequence[Event]) -> None:
        start, usable = _nanoseconds([event.ts for event in events])
        if not usable.all():
            self._notes.add("missing-time", count=int((~usable).sum()))
            events = [event for event, good in zip(events, usable, strict=True) if good]
            start = start[usable]
        if not events:
            return
        duration, known = _nanoseconds([event.dur for event in events])
        if not known.all():
            self._notes.add("missing-duration", count=int((~known).sum()))
        if (duration < 0).any():
            self._notes.add("negative-duration", count=int((duration < 0).sum()))
        kinds = list(map(self._kinds.__getitem__, [(event.cat, event.name) for event in events]))
        category = np.array(self._kinds.categories, np.int8)[kinds]
        name = np.array(self._kinds.names, np.int32)[kinds]
        threads = map(self._threads.__getitem__, [(event.pid, event.tid) for event in events])
        args = [event.args or NO_ARGS for event in events]
        uncategorised = np.array(self._kinds.uncategorised, bool)[kinds]
        self._special_rows(events, args, uncategorised, category, name)
        self._dense["start"].append(start)
        self._dense["duration"].append(np.maximum(duration, 0))
        self._dense["category"].append(category)
        self._dense["name"].append(name)
        self._dense["thread"].append(np.fromiter(threads, np.int32, len(events)))
        self._add_arguments(args, category)
        self._rows += len(events)

    def _special_rows(
        self,
        events: Sequence[Event],
        args: list[Args],
        uncategorised: np.ndarray,
        category: np.ndarray,
        name: np.ndarray,
    ) -> None:
        """Rows whose kind, or name, only their arguments tell."""
        for row in np.flatnonzero(category == Category.SYNC).tolist():
            if kind := args[row].sync_kind:
                name[row] = self._names[kind]
        for row in np.flatnonzero(category == Category.OTHER).tolist():
            if events[row].cat.startswith("mtia_"):
                category[row] = _mtia_category(events[row], args[row])
        for row in np.flatnonzero(uncategorised).tolist():
            if args[row].correlation_id is not None:
                args[row].correlation = integer(args[row].correlation_id)

    def _add_arguments(self, args: list[Args], category: np.ndarray) -> None:
        launches = self._pick(args, category, _LAUNCHES)
        self._int("correlation", launches, [a.correlation for a in launches[1]])
        self._external(launches)
        operators = self._pick(args, category, _OPERATORS)
        self._external(operators)
        self._int("sequence", operators, [a.sequence for a in operators[1]])
        self._int("forward_thread", operators, [a.forward_thread for a in operators[1]])
        self._int("correlation", operators, [a.correlation for a in operators[1]])
        self._input_shapes(operators)
        self._add_collectives(operators)
        device = self._pick(args, category, (*DEVICE_WORK, Category.SYNC))
        self._int("device", device, [a.device for a in device[1]])
        self._int("stream", device, [a.stream for a in device[1]])
        self._int("correlation", device, [a.correlation for a in device[1]])
        self._external(device)
        self._external(self._pick(args, category, (Category.GPU_ANNOTATION,)))
        copies = self._pick(args, category, (Category.MEMCPY, Category.MEMSET))
        self._int("bytes", copies, [a.bytes for a in copies[1]])
        kernels = self._pick(args, category, (Category.KERNEL,))
        blocks = np.array([a.blocks_per_sm for a in kernels[1]], np.float32)
        self._keep("blocks_per_sm", kernels[0], blocks, ~np.isnan(blocks))
        self._launch_shapes(kernels)
        self._add_collectives(kernels)
        syncs = self._pick(args, category, (Category.SYNC,))
        self._int("wait_on_stream", syncs, [_or_missing(a.wait_on_stream) for a in syncs[1]])
        self._int("wait_on_record", syncs, [_or_missing(a.wait_on_record) for a in syncs[1]])

    def _pick(
        self, args: list[Args], category: np.ndarray, wanted: Sequence[Category]
    ) -> tuple[np.ndarray, list[Args]]:
        chosen = np.zeros(len(Category), bool)
        chosen[list(wanted)] = True
        rows = np.flatnonzero(chosen[category])
        return rows, [args[row] for row in rows.tolist()]

    def _keep(self, column: str, rows: np.ndarray, values: np.ndarray, known: np.ndarray) -> None:
        if known.any():
            self._sparse[column].append((rows[known] + self._rows, values[known]))

    def _int(self, column: str, picked: tuple[np.ndarray, list[Args]], values: list[Any]) -> None:
        array = _int64(values)
        self._keep(column, picked[0], array, array != MISSING)

    def _external(self, picked: tuple[np.ndarray, list[Args]]) -> None:
        rows, args = picked
        values = _int64([a.external_id for a in args])
        if (values == MISSING).any():
            older = _int64([a.external_id_2021 for a in args])
            values = np.where(values == MISSING, older, values)
        self._keep("external_id", rows, values, values != MISSING)

    def _input_shapes(self, picked: tuple[np.ndarray, list[Args]]) -> None:
        shapes = self._shapes
        found = [
            shapes[text] if (text := bytes(a.input_dims) or bytes(a.input_dims_2021)) else -1
            for a in picked[1]
        ]
        values = np.array(found, np.int32)
        self._keep("shape", picked[0], values, values >= 0)

    def _launch_shapes(self, picked: tuple[np.ndarray, list[Args]]) -> None:
        shapes = self._shapes
        found = [
            shapes[b"[%b, %b]" % (grid, bytes(a.block) or b"null")]
            if (grid := bytes(a.grid))
            else -1
            for a in picked[1]
        ]
        values = np.array(found, np.int32)
        self._keep("shape", picked[0], values, values >= 0)

    def _add_collectives(self, picked: tuple[np.ndarray, list[Args]]) -> None:
        rows, args = picked
        having = [i for i, a in enumerate(args) if a.collective is not None]
        if having:
            values = np.array([self._collectives[_collective(args[i])] for i in having], np.int32)
            self._keep("collective", rows[having], values, values >= 0)

    def _add_flows(self, events: Sequence[Event]) -> None:
        known = LAUNCH_FLOWS | FORWARD_BACKWARD_FLOWS
        events = [event for event in events if event.cat in known]
        time, usable = _nanoseconds([event.ts for event in events])
        threads = map(self._threads.__getitem__, [(event.pid, event.tid) for event in events])
        columns = {
            "identity": _int64([self._flow_identity(event.id) for event in events]),
            "thread": np.fromiter(threads, np.int32, len(events)),
            "time": time,
            "is_start": np.array([event.ph == "s" for event in events], bool),
            "is_forward_backward": np.array(
                [event.cat in FORWARD_BACKWARD_FLOWS for event in events], bool
            ),
        }
        for column, values in columns.items():
            self._flows[column].append(values[usable])

    def _flow_identity(self, written: int | str) -> int:
        if isinstance(written, int):
            return written
        number = integer(written)
        # A name that is no number becomes a negative number of its own.
        return number if number != MISSING else -2 - self._flow_names[written]

    def _add_metadata(self, events: Sequence[Event]) -> None:
        for event in events:
            args = event.args
            if args is None:
                continue
            if event.name == "thread_name" and args.name:
                self.thread_names[str(event.pid), str(event.tid)] = args.name.strip()
            elif event.name == "process_name" and args.name:
                self.process_names[str(event.pid)] = args.name.strip()
            elif event.name == "process_labels" and args.labels:
                self.process_labels[str(event.pid)] = args.labels.strip()

    def finish(self) -> "Finished":
        """Sort, fill in and resolve lanes; the columns are used up."""
        return Finished(self)


class Finished:
    """The columns of a `Trace`, in its order: a keyword for each, in `fields`, and its origin."""

    def __init__(self, columns: Columns):
        self._columns = columns
        dense = {name: np.concatenate(columns._dense.pop(name)) for name in list(columns._dense)}
        start = dense.pop("start")
        duration = dense.pop("duration")
        self.origin_ns = int(start.min())
        start -= self.origin_ns
        order = np.lexsort((-duration, start))
        position = np.empty(len(order), np.int64)
        position[order] = np.arange(len(order))
        fields: dict[str, Any] = {"start_ns": start[order], "duration_ns": duration[order]}
        del start, duration
        self._category = dense.pop("category")[order]
        name = dense.pop("name")[order]
        self._thread = dense.pop("thread")[order]
        del order
        for column in _INT64_COLUMNS:
            fields[column] = self._filled(column, position, MISSING, np.int64)
        fields["blocks_per_sm"] = self._filled("blocks_per_sm", position, np.nan, np.float32)
        for column in ("shape", "collective"):
            fields[column] = self._filled(column, position, -1, np.int32)
        del position
        self._name_devices(name)
        self._device, self._stream = fields["device"], fields["stream"]
        self._resolve_devices()
        lane, thread_lanes, lanes = self._lanes()
        fields |= {
            "category": self._category,
            "name": name,
            "lane": lane,
            "lanes": lanes,
            "names": tuple(columns._names),
            "shapes": tuple(columns._shapes.texts),
            "collectives": tuple(columns._collectives),
            "flows": self._make_flows(thread_lanes),
        }
        self.fields = fields

    def main_device(self) -> int | None:
        """The device with most work, `None` where there is none."""
        work = np.isin(self._category, DEVICE_WORK)
        counts = Counter(self._device[work].tolist())
        return counts.most_common(1)[0][0] if counts else None

    def _filled(self, column: str, position: np.ndarray, missing: float, dtype: Any) -> np.ndarray:
        values = np.full(len(position), missing, dtype)
        for rows, part in self._columns._sparse.pop(column, ()):
            values[position[rows]] = part
        return values

    def _name_devices(self, name: np.ndarray) -> None:
        """Give rows without a category their own where their thread is a stream (JAX profiler)."""
        columns = self._columns
        streams = [
            number
            for (pid, tid), number in columns._threads.written.items()
            if "/device:" in columns.process_names.get(pid, "")
            and columns.thread_names.get((pid, tid), "").startswith("Stream #")
        ]
        if streams:
            of_name = np.array([device_category_of(text) for text in columns._names], np.int8)
            rows = np.isin(self._thread, streams) & (self._category == Category.CPU_OP)
            self._category[rows] = of_name[name[rows]]

    def _resolve_devices(self) -> None:
        """Device and stream of device rows from their thread, where the arguments lack them."""
        on_device = np.isin(self._category, _ON_DEVICE)
        stream = self._stream
        stream[on_device & (stream == _UNSIGNED_ALL_STREAMS)] = ALL_STREAMS
        threads = len(self._columns._threads.written)
        self._thread_device = np.full(threads, MISSING)
        self._thread_stream = np.full(threads, MISSING)
        for values, of_thread in (
            (self._device, self._thread_device),
            (stream, self._thread_stream),
        ):
            told = on_device & (values != MISSING)
            of_thread[self._thread[told]] = values[told]
        seen = np.unique(self._thread[on_device])
        labels = self._columns.process_labels
        for (pid, tid), number in self._columns._threads.written.items():
            if number in seen or labels.get(pid, "").startswith(("GPU ", "MTIA ")):
                if self._thread_device[number] == MISSING:
                    self._thread_device[number] = self._device_of(pid)
                if self._thread_stream[number] == MISSING:
                    self._thread_stream[number] = self._stream_of(pid, tid)
        for values, of_thread in (
            (self._device, self._thread_device),
            (stream, self._thread_stream),
        ):
            lacking = on_device & (values == MISSING)
            values[lacking] = of_thread[self._thread[lacking]]

    def _device_of(self, pid: str) -> int:
        for text in (self._columns.process_names.get(pid, ""), pid):
            if "/device:" in text or text == pid:
                match = _NUMBER_AT_END.search(text)
                if match:
                    return min(int(match[1]), 2**31)
        return 0

    def _stream_of(self, pid: str, tid: str) -> int:
        name = self._columns.thread_names.get((pid, tid), "")
        if match := re.match(r"[Ss]tream #?(\d+)", name):
            return int(match[1])
        if tid.startswith("-"):
            return ALL_STREAMS
        match = _NUMBER_AT_END.search(tid)
        return min(int(match[1]), 2**32) if match else ALL_STREAMS

    def _lanes(self) -> tuple[np.ndarray, np.ndarray, tuple[Lane, ...]]:
        """Lane of each row, lane of each thread, and the lanes: CPU threads, then streams."""
        stray = (self._category == Category.OTHER) & (self._thread_device != MISSING)[self._thread]
        on_device = np.isin(self._category, _ON_DEVICE)
        device = np.where(stray, self._thread_device[self._thread], self._device)
        stream = np.where(stray, self._thread_stream[self._thread], self._stream)
        is_stream = on_device | stray
        written = list(self._columns._threads.written)
        lane = np.empty(len(self._thread), np.int32)
        cpu = np.unique(self._thread[~is_stream])
        lanes = [self._cpu_lane(*written[number]) for number in cpu]
        lane[~is_stream] = np.searchsorted(cpu, self._thread[~is_stream])
        thread_lanes = np.full(len(written), -1, np.int32)
        pairs = np.stack([device[is_stream], stream[is_stream]], axis=1)
        streams, first, which = _unique_rows(pairs)
        threads = self._thread[is_stream]
        lane[is_stream] = len(cpu) + which
        thread_lanes[threads] = lane[is_stream]
        thread_lanes[cpu] = np.arange(len(cpu))
        for (number, of), row in zip(streams.tolist(), first.tolist(), strict=True):
            pid, tid = written[threads[row]]
            name = f"GPU {number} stream {of}" if of != ALL_STREAMS else f"GPU {number} all streams"
            lanes.append(Lane(pid, tid, name, number, of))
        return lane, thread_lanes, tuple(lanes)

    def _cpu_lane(self, pid: str, tid: str) -> Lane:
        name = self._columns.thread_names.get((pid, tid))
        if name is None:
            process = self._columns.process_names.get(pid)
            name = f"thread {tid} ({process})" if process else f"thread {tid}"
        return Lane(pid, tid, name)

    def _make_flows(self, thread_lanes: np.ndarray) -> Flows:
        def joined(column: str, dtype: Any) -> np.ndarray:
            parts = self._columns._flows[column]
            return np.concatenate(parts) if parts else np.zeros(0, dtype)

        return Flows(
            identity=joined("identity", np.int64),
            lane=thread_lanes[joined("thread", np.int32)],
            time_ns=joined("time", np.int64) - self.origin_ns,
            is_start=joined("is_start", np.bool_),
            is_forward_backward=joined("is_forward_backward", np.bool_),
        )


_INT64_COLUMNS = (
    "correlation",
    "external_id",
    "device",
    "stream",
    "bytes",
    "sequence",
    "forward_thread",
    "wait_on_stream",
    "wait_on_record",
)


def _nanoseconds(values: list[Any]) -> tuple[np.ndarray, np.ndarray]:
    """Microseconds as int64 nanoseconds, exactly, and which of them are usable; 0 elsewhere."""
    array = np.array(values, np.float64)
    usable = np.abs(array) < _LARGEST_TIME_US  # False for NaN, which None becomes
    if not usable.all():
        array = np.where(usable, array, 0.0)
    if len(array) and np.abs(array).max() >= 2.0**43:
        exact = [_one_ns(v) if good else 0 for v, good in zip(values, usable, strict=True)]
        return np.array(exact, np.int64), usable
    # Below 2^43 the fraction of a float64 is good to half a nanosecond; the whole part is exact.
    whole = np.floor(array)
    fraction = np.rint((array - whole) * 1000)
    return whole.astype(np.int64) * 1000 + fraction.astype(np.int64), usable


def _one_ns(value: Any) -> int:
    return round(value * 1000)


def _int64(values: list[Any]) -> np.ndarray:
    try:
        return np.array(values, np.int64)
    except (OverflowError, ValueError, TypeError):
        return np.array([integer(value) for value in values], np.int64)


def _or_missing(value: int) -> int:
    return MISSING if value in (-1, _UNSIGNED_ALL_STREAMS) else value


def _unique_rows(pairs: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Distinct (device, stream) pairs in order, a row of each, and which of them each row is."""
    if not len(pairs):
        return pairs, np.zeros(0, np.int64), np.zeros(0, np.int64)
    key = (pairs[:, 0] << 34) + pairs[:, 1]
    _, first, which = np.unique(key, return_index=True, return_inverse=True)
    return pairs[first], first, which


def _mtia_category(event: Event, args: Args) -> Category:
    """What a row of an MTIA device is.

    The device's firmware writes a row for each job, each of its transfers and each event. Only rows
    with a correlation answer a call of the host; the others lie inside those and would count twice.
    Runtime rows of the device's own process are its queues, not threads of the host.
    """
    if event.cat == "mtia_runtime":
        return Category.OTHER if args.device == event.pid else Category.RUNTIME
    if event.cat != "mtia_ccp_events":
        return Category.OTHER
    if event.name == "event_wait":
        return Category.SYNC
    if args.correlation == MISSING or event.name == "event_record":
        return Category.OTHER
    if event.name == "dma_request":
        if args.size is not None:
            args.bytes = integer(args.size)
        return Category.MEMCPY
    return Category.KERNEL


def _collective(args: Args) -> Collective:
    group = args.group if args.group is not None else args.group_description
    return Collective(
        name=args.collective or "",
        group=None if group is None else str(group),
        group_size=args.group_size,
        ranks=_ranks(args.group_ranks),
        dtype=args.dtype,
        in_elements=args.in_elements,
        out_elements=args.out_elements,
        sequence=args.collective_sequence,
        source=args.source,
        destination=args.destination,
    )


def _ranks(written: str | list[int] | None) -> tuple[int, ...]:
    if isinstance(written, list):
        return tuple(written)
    if not written or not re.fullmatch(r"\s*\[[\d,\s]*\]\s*", written):
        return ()  # absent, or abbreviated with dots
    return tuple(int(number) for number in re.findall(r"\d+", written))
