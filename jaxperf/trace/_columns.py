"""From decoded events to columns, slice by slice."""

import json
import re
from collections import defaultdict
from collections.abc import Sequence
from typing import Any

import numpy as np

from jaxperf.trace._categories import (
    DEVICE_WORK,
    FORWARD_BACKWARD_FLOWS,
    LAUNCH_FLOWS,
    category_of,
)
from jaxperf.trace._events import NO_ARGS, Args, Event, integer
from jaxperf.trace._jax_profile import MOST_EVENTS, Place, place_of, settle
from jaxperf.trace._notes import NoteBook
from jaxperf.trace._types import MISSING, Category, Collective

_LAUNCHES = (Category.RUNTIME, Category.DRIVER)
_OPERATORS = (Category.CPU_OP, Category.ANNOTATION)
UNSIGNED_ALL_STREAMS = 2**32 - 1
# Of times since 1970 the year 2116; a start, less the first, and a duration stay below 2^63 ns.
_EARLIEST_US, _LATEST_US = -(2**61) / 1000, 2**62 / 1000 - 1
_LONGEST_US = 2**61 / 1000 - 1


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


class _Texts(dict):
    """Numbers JSON texts, the same whatever their white space."""

    def __init__(self):
        self.texts = _Table()

    def __missing__(self, key):
        text = key.decode(errors="replace")
        try:
            text = json.dumps(json.loads(text))
        except (ValueError, RecursionError):
            pass  # kept as written
        number = self[key] = self.texts[text]
        return number


class Columns:
    """The events of one rank as they come in.

    Args:
        notes: where unusable times and the like are noted.

    Attributes:
        names, threads, shapes, input_types, input_values, collectives: tables, in order of first
            appearance.
        dense: per column, its parts: a value for each row.
        sparse: per column, its parts: rows that have a value, and the values. Most rows lack most
            columns, so this is what keeps a large trace small.
        flows: per column of the arrows, its parts.
        thread_names, process_names, process_labels: as the metadata rows give them.
    """

    def __init__(self, notes: NoteBook):
        self._notes = notes
        self._rows = 0
        self.names = _Table()
        self.kinds = _Kinds(self.names)
        self.threads = _Threads()
        self.shapes = _Texts()
        self.input_types = _Texts()
        self.input_values = _Texts()
        self.collectives = _Table()
        self.dense: dict[str, list[np.ndarray]] = defaultdict(list)
        self.sparse: dict[str, list[tuple[np.ndarray, np.ndarray]]] = defaultdict(list)
        self.flows: dict[str, list[np.ndarray]] = defaultdict(list)
        self._flow_names = _Table()
        self._open: dict[int, list[Event]] = defaultdict(list)
        self._places: dict[tuple[int | str, int | str], Place] = {}
        self.thread_names: dict[tuple[str, str], str] = {}
        self.process_names: dict[str, str] = {}
        self.process_labels: dict[str, str] = {}

    def add(self, events: Sequence[Event]) -> None:
        """Take in a slice of the file's events, in file order."""
        phases = {event.ph for event in events}
        if "M" in phases:
            # First, for names of threads may tell what their rows are.
            self._add_metadata([event for event in events if event.ph == "M"])
        if phases & {"B", "E"}:
            events = self._paired(events)
        if phases & {"X", "B", "E"}:
            self._add_complete([event for event in events if event.ph == "X"])
        if phases & {"s", "f"}:
            self._add_flows([event for event in events if event.ph in ("s", "f")])

    def close(self) -> None:
        """No more events come."""
        unclosed = sum(len(stack) for stack in self._open.values())
        if unclosed:
            self._notes.add("unpaired-begin-end", count=unclosed)
        if self._places and self._rows and self._rows % MOST_EVENTS == 0:
            self._notes.add("jax-events-capped", count=self._rows)

    @property
    def rows(self) -> int:
        """Complete events so far."""
        return self._rows

    def _paired(self, events: Sequence[Event]) -> list[Event]:
        """Begin and end events of a thread, nested as they are written, as complete ones."""
        found = []
        for event in events:
            if event.ph == "B":
                self._open[self.threads[event.pid, event.tid]].append(event)
            elif event.ph == "E":
                stack = self._open[self.threads[event.pid, event.tid]]
                if not stack or not (_is_time(event.ts) and _is_time(stack[-1].ts)):
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
        duration, known = _nanoseconds([event.dur for event in events], _LONGEST_US)
        if not known.all():
            self._notes.add("missing-duration", count=int((~known).sum()))
        if (duration < 0).any():
            self._notes.add("negative-duration", count=int((duration < 0).sum()))
        kinds = list(map(self.kinds.__getitem__, [(event.cat, event.name) for event in events]))
        category = np.array(self.kinds.categories, np.int8)[kinds]
        name = np.array(self.kinds.names, np.int32)[kinds]
        threads = map(self.threads.__getitem__, [(event.pid, event.tid) for event in events])
        args = [event.args or NO_ARGS for event in events]
        uncategorised = np.array(self.kinds.uncategorised, bool)[kinds]
        self._special_rows(events, args, uncategorised, category, name)
        self.dense["start"].append(start)
        self.dense["duration"].append(np.maximum(duration, 0))
        self.dense["category"].append(category)
        self.dense["name"].append(name)
        self.dense["thread"].append(np.fromiter(threads, np.int32, len(events)))
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
                name[row] = self.names[kind]
        for row in np.flatnonzero(category == Category.OTHER).tolist():
            if events[row].cat.startswith("mtia_"):
                category[row] = _mtia_category(events[row], args[row])
        for row in np.flatnonzero(uncategorised).tolist():
            if args[row].correlation_id is not None:
                args[row].correlation = integer(args[row].correlation_id)
            place = self._place(events[row])
            if place is not None:
                args[row] = events[row].args or Args()
                kind, text = settle(events[row].name, args[row], place)
                category[row], name[row] = kind, self.names[text]
                if args[row].step_num is not None and kind == Category.ANNOTATION:
                    words = f"ranges such as `{events[row].name}` are taken as the steps"
                    self._notes.add("steps-from-ranges", text=words)

    def _place(self, event: Event) -> Place | None:
        """Where a row of the JAX profiler lies, `None` for one of another."""
        place = self._places.get((event.pid, event.tid))
        if place is None:
            pid, tid = str(event.pid), str(event.tid)
            names = self.process_names.get(pid, ""), self.thread_names.get((pid, tid), "")
            place = place_of(*names)
            if place is not None:
                self._places[event.pid, event.tid] = place
        return place

    def _add_arguments(self, args: list[Args], category: np.ndarray) -> None:
        launches = self._pick(args, category, _LAUNCHES)
        self._int("correlation", launches, [a.correlation for a in launches[1]])
        self._external(launches)
        operators = self._pick(args, category, _OPERATORS)
        self._external(operators)
        self._int("sequence", operators, [a.sequence for a in operators[1]])
        self._int("forward_thread", operators, [a.forward_thread for a in operators[1]])
        self._int("correlation", operators, [a.correlation for a in operators[1]])
        self._inputs(operators)
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
            self.sparse[column].append((rows[known] + self._rows, values[known]))

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

    def _inputs(self, picked: tuple[np.ndarray, list[Args]]) -> None:
        rows, args = picked
        written = [bytes(a.input_dims) or bytes(a.input_dims_2021) for a in args]
        self._texts("shape", rows, self.shapes, written)
        self._texts("input_type", rows, self.input_types, [bytes(a.input_types) for a in args])
        self._texts(
            "input_value", rows, self.input_values, [bytes(a.concrete_inputs) for a in args]
        )

    def _texts(self, column: str, rows: np.ndarray, table: _Texts, written: list[bytes]) -> None:
        numbers = np.array([table[text] if text else -1 for text in written], np.int32)
        self._keep(column, rows, numbers, numbers >= 0)

    def _launch_shapes(self, picked: tuple[np.ndarray, list[Args]]) -> None:
        written = [
            b"[%b, %b]" % (grid, bytes(a.block) or b"null") if (grid := bytes(a.grid)) else b""
            for a in picked[1]
        ]
        self._texts("shape", picked[0], self.shapes, written)

    def _add_collectives(self, picked: tuple[np.ndarray, list[Args]]) -> None:
        rows, args = picked
        having = [i for i, a in enumerate(args) if a.collective is not None]
        if having:
            values = np.array([self.collectives[_collective(args[i])] for i in having], np.int32)
            self._keep("collective", rows[having], values, values >= 0)

    def _add_flows(self, events: Sequence[Event]) -> None:
        known = LAUNCH_FLOWS | FORWARD_BACKWARD_FLOWS
        events = [event for event in events if event.cat in known]
        time, usable = _nanoseconds([event.ts for event in events])
        threads = map(self.threads.__getitem__, [(event.pid, event.tid) for event in events])
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
            self.flows[column].append(values[usable])

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


def _is_time(value: Any) -> bool:
    return value is not None and bool(_EARLIEST_US < _float(value) < _LATEST_US)


def _nanoseconds(values: list[Any], latest_us: float = _LATEST_US) -> tuple[np.ndarray, np.ndarray]:
    """Microseconds as int64 nanoseconds, exactly, and which of them are usable; 0 elsewhere."""
    try:
        array = np.array(values, np.float64)
    except (ValueError, OverflowError):  # of a signalling NaN, or of too large a whole number
        array = np.array([np.nan if value is None else _float(value) for value in values])
    usable = (array > _EARLIEST_US) & (array < latest_us)  # False for NaN, which None becomes
    if not usable.all():
        array = np.where(usable, array, 0.0)
    if len(array) and np.abs(array).max() >= 2.0**43:
        exact = [_one_ns(v) if good else 0 for v, good in zip(values, usable, strict=True)]
        return np.array(exact, np.int64), usable
    # Below 2^43 the fraction of a float64 is good to half a nanosecond; the whole part is exact.
    whole = np.floor(array)
    fraction = np.rint((array - whole) * 1000)
    return whole.astype(np.int64) * 1000 + fraction.astype(np.int64), usable


def _float(value: Any) -> float:
    try:
        return float(value)
    except (ValueError, OverflowError):
        return np.nan


def _one_ns(value: Any) -> int:
    return round(value * 1000)


def _int64(values: list[Any]) -> np.ndarray:
    try:
        return np.array(values, np.int64)
    except (OverflowError, ValueError, TypeError):
        return np.array([integer(value) for value in values], np.int64)


def _or_missing(value: int) -> int:
    return MISSING if value in (-1, UNSIGNED_ALL_STREAMS) else value


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
    if not written or not re.fullmatch(r"\s*\[[0-9,\s]*\]\s*", written):
        return ()  # absent, or abbreviated with dots
    return tuple(int(number[:18]) for number in re.findall(r"[0-9]+", written))
