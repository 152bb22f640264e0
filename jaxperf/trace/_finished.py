"""From the columns of a rank, as its file gives them, to those of its `Trace`."""

import re
from collections import Counter
from typing import Any

import numpy as np

from jaxperf.trace._categories import DEVICE_WORK, device_category_of
from jaxperf.trace._columns import UNSIGNED_ALL_STREAMS, Columns
from jaxperf.trace._types import ALL_STREAMS, MISSING, Category, Flows, Lane

_ON_DEVICE = (*DEVICE_WORK, Category.SYNC, Category.GPU_ANNOTATION)
# Of a run of digits only the first place is tried, and none that is no number of anything.
_NUMBER_AT_END = re.compile(r"(?<!\d)(\d{1,18}+)\D*+$")
_STREAM_NAME = re.compile(r"[Ss]tream #?(\d{1,9})(?!\d)")
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


class Finished:
    """The columns of a `Trace`, in its order: a keyword for each, in `fields`, and its origin."""

    def __init__(self, columns: Columns):
        self._columns = columns
        dense = {name: np.concatenate(columns.dense.pop(name)) for name in list(columns.dense)}
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
        for column in ("shape", "input_type", "input_value", "collective"):
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
            "names": tuple(columns.names),
            "shapes": tuple(columns.shapes.texts),
            "input_types": tuple(columns.input_types.texts),
            "input_values": tuple(columns.input_values.texts),
            "collectives": tuple(columns.collectives),
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
        for rows, part in self._columns.sparse.pop(column, ()):
            values[position[rows]] = part
        return values

    def _name_devices(self, name: np.ndarray) -> None:
        """Give rows without a category their own where their thread is a stream (JAX profiler)."""
        columns = self._columns
        streams = [
            number
            for (pid, tid), number in columns.threads.written.items()
            if "/device:" in columns.process_names.get(pid, "")
            and columns.thread_names.get((pid, tid), "").startswith("Stream #")
        ]
        if streams:
            of_name = np.array([device_category_of(text) for text in columns.names], np.int8)
            rows = np.isin(self._thread, streams) & (self._category == Category.CPU_OP)
            self._category[rows] = of_name[name[rows]]

    def _resolve_devices(self) -> None:
        """Device and stream of device rows from their thread, where the arguments lack them."""
        on_device = np.isin(self._category, _ON_DEVICE)
        stream = self._stream
        stream[on_device & (stream == UNSIGNED_ALL_STREAMS)] = ALL_STREAMS
        threads = len(self._columns.threads.written)
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
        for (pid, tid), number in self._columns.threads.written.items():
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
        if match := _STREAM_NAME.match(name):
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
        written = list(self._columns.threads.written)
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
            parts = self._columns.flows[column]
            return np.concatenate(parts) if parts else np.zeros(0, dtype)

        return Flows(
            identity=joined("identity", np.int64),
            lane=thread_lanes[joined("thread", np.int32)],
            time_ns=joined("time", np.int64) - self.origin_ns,
            is_start=joined("is_start", np.bool_),
            is_forward_backward=joined("is_forward_backward", np.bool_),
        )


def _unique_rows(pairs: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Distinct (device, stream) pairs in order, a row of each, and which of them each row is."""
    if not len(pairs):
        return pairs, np.zeros(0, np.int64), np.zeros(0, np.int64)
    key = (pairs[:, 0] << 34) + pairs[:, 1]
    _, first, which = np.unique(key, return_index=True, return_inverse=True)
    return pairs[first], first, which
