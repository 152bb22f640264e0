"""Small traces, written by hand, for the tests of reading."""

import json
from pathlib import Path
from typing import Any

import numpy as np

from jaxperf.trace import Category, Trace, read_file

DEVICE_WORK = (Category.KERNEL, Category.MEMCPY, Category.MEMSET)


def row(name: str, cat: str, ts: Any, dur: Any = 1, pid: Any = 100, tid: Any = 100, **args: Any):
    """A complete event."""
    event = {"ph": "X", "cat": cat, "name": name, "pid": pid, "tid": tid, "ts": ts, "dur": dur}
    return event | {"args": {key.replace("_", " "): value for key, value in args.items()}}


def kernel(name: str, ts: Any, dur: Any = 1, stream: Any = 7, device: int = 0, **args: Any):
    """A kernel as Kineto writes it."""
    given = {"device": device, "stream": stream} | args
    return row(name, "kernel", ts, dur, pid=device, tid=stream, **given)


def document(events: list[Any], **metadata: Any) -> str:
    """A trace of rank 0, metadata before the events as Kineto puts it."""
    given = {"schemaVersion": 1, "distributedInfo": {"rank": 0, "world_size": 1}} | metadata
    return json.dumps(given | {"traceEvents": events}, indent=1)


def read(folder: Path, text: str | bytes, name: str = "trace.json") -> Trace:
    """The one trace in a text."""
    path = folder / name
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    (trace,) = read_file(path)
    return trace


def names(trace: Trace) -> list[str]:
    """The name of each row."""
    return [trace.names[index] for index in trace.name]


def codes(trace: Trace) -> set[str]:
    """The codes of the notes."""
    return {note.code for note in trace.notes}


def busy_us(trace: Trace, categories: tuple[Category, ...] = DEVICE_WORK) -> float:
    """Length of the union of the rows of some categories."""
    rows = np.isin(trace.category, categories)
    busy, covered = 0, -(2**62)
    for start, end in zip(trace.start_ns[rows].tolist(), trace.end_ns[rows].tolist(), strict=True):
        busy += max(0, end - max(start, covered))
        covered = max(covered, end)
    return busy / 1000
