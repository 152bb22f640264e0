"""Rows of an Nsight Systems export in the words of Kineto: device work and calls.

Times are nanoseconds from the start of the session. `globalTid` holds the process in bits 24 to 47
and the thread below; `globalPid` is the same without the thread.
"""

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from jaxperf.trace._types import ALL_STREAMS, MISSING, Category
from jaxperf.trace.nsight._tables import Tables

DEVICE_COLUMNS = ("start", "end", "deviceId", "streamId", "correlationId", "globalPid")
_BITS = 24
_PART = (1 << _BITS) - 1
_MOST_DEVICES = 1 << 16
LARGEST_ID = 2**32 - 1
_LARGEST_SIZE = 2**31

_DRIVER_CALL = re.compile(r"cu[A-Z]")
# cudaLaunchKernel_v7000, cudaLaunchKernel_ptsz_v7000
_CALL_VERSION = re.compile(r"(?:_pts[zd])?_v\d+$|_pts[zd]$")

# CUpti_ActivityMemcpyKind, and what Nsight Systems adds for unified memory.
_COPIES = {
    1: "HtoD", 2: "DtoH", 3: "HtoA", 4: "AtoH", 5: "AtoA", 6: "AtoD", 7: "DtoA", 8: "DtoD",
    9: "HtoH", 10: "PtoP", 11: "HtoD", 12: "DtoH", 13: "DtoD",
}  # fmt: skip
_MEMORY = {
    0: "Pageable", 1: "Pinned", 2: "Device", 3: "Array", 4: "Managed", 5: "Device Static",
    6: "Managed Static",
}  # fmt: skip


@dataclass(frozen=True, eq=False)
class Rows:
    """Events of one kind, of all processes.

    Attributes:
        process: (n,) int64, the process; `MISSING` where not told.
        thread: (n,) int64, of a host row; -1 of a device row.
        start, end: (n,) int64, nanoseconds as written.
        category: (n,) int8.
        name: (n,) int64, index into `names`.
        names: distinct names.
        values: (n,) int64 each, further columns under the names they have in a `Trace`, `MISSING`
            where not told; `shape` is an index into `shapes`, and `blocks`, a float64, the thread
            blocks of a kernel.
        shapes: distinct shapes, as text.
    """

    process: np.ndarray
    thread: np.ndarray
    start: np.ndarray
    end: np.ndarray
    category: np.ndarray
    name: np.ndarray
    names: tuple[str, ...]
    values: Mapping[str, np.ndarray]
    shapes: tuple[str, ...] = ()

    def where(self, chosen: np.ndarray) -> "Rows":
        """Some of the rows."""
        return Rows(
            self.process[chosen],
            self.thread[chosen],
            self.start[chosen],
            self.end[chosen],
            self.category[chosen],
            self.name[chosen],
            self.names,
            {name: values[chosen] for name, values in self.values.items()},
            self.shapes,
        )


def process_of(global_id: np.ndarray) -> np.ndarray:
    """(n,) int64, the process of a `globalPid` or `globalTid`, `MISSING` where there is none."""
    return np.where(global_id == MISSING, MISSING, (global_id >> _BITS) & _PART)


def thread_of(global_id: np.ndarray) -> np.ndarray:
    """(n,) int64, the thread of a `globalTid`, 0 where there is none."""
    return np.where(global_id == MISSING, 0, global_id & _PART)


def device_rows(tables: Tables, strings: Mapping[int, str]) -> list[Rows]:
    """Kernels, copies and sets."""
    memory = tables.texts("ENUM_CUDA_MEM_KIND", "id", "label") or _MEMORY
    found = [_kernels(tables, strings)]
    for table, category, columns in (
        ("CUPTI_ACTIVITY_KIND_MEMCPY", Category.MEMCPY, ("copyKind", "srcKind", "dstKind")),
        ("CUPTI_ACTIVITY_KIND_MEMSET", Category.MEMSET, ("memKind",)),
    ):
        rows = tables.numbers(table, (*DEVICE_COLUMNS, "bytes", *columns))
        kinds = np.stack([rows[column] for column in columns], axis=1)
        distinct, name = np.unique(kinds, axis=0, return_inverse=True)
        words = _copy_name if category == Category.MEMCPY else _set_name
        names = tuple(words(kind, memory) for kind in distinct.tolist())
        values = {"bytes": rows["bytes"]}
        found.append(on_device(rows, category, name.reshape(-1), names, values))
    return found


def on_device(
    rows: Mapping[str, np.ndarray],
    category: Category,
    name: np.ndarray,
    names: tuple[str, ...],
    values: dict[str, np.ndarray],
    shapes: tuple[str, ...] = (),
) -> Rows:
    """Rows of devices, from the columns of a table with `DEVICE_COLUMNS`."""
    count = len(rows["start"])
    device, stream = rows["deviceId"], rows["streamId"]
    # Subsets of an export may lack these columns: then there is one device, or one stream.
    device = np.where((device >= 0) & (device < _MOST_DEVICES), device, 0)
    stream = np.where(stream == MISSING, 0, stream)
    stream = np.where((stream >= 0) & (stream < LARGEST_ID), stream, ALL_STREAMS)
    told = {"device": device, "stream": stream, "correlation": identity(rows["correlationId"])}
    return Rows(
        process_of(rows["globalPid"]),
        np.full(count, -1, np.int64),
        rows["start"],
        rows["end"],
        np.full(count, category, np.int8),
        name,
        names,
        told | values,
        shapes,
    )


def identity(numbers: np.ndarray) -> np.ndarray:
    """(n,) int64, correlation ids; `MISSING` for what is none."""
    return np.where((numbers > 0) & (numbers <= LARGEST_ID), numbers, MISSING)


def _kernels(tables: Tables, strings: Mapping[int, str]) -> Rows:
    name_columns = ("demangledName", "shortName", "mangledName")
    shape_columns = ("gridX", "gridY", "gridZ", "blockX", "blockY", "blockZ")
    rows = tables.numbers(
        "CUPTI_ACTIVITY_KIND_KERNEL", (*DEVICE_COLUMNS, *name_columns, *shape_columns)
    )
    number = rows["demangledName"]
    for column in name_columns[1:]:
        known = np.isin(number, list(strings))
        number = np.where(known, number, rows[column])
    name, names = named(number, strings, "unnamed kernel")
    sizes = np.stack([rows[column] for column in shape_columns], axis=1)
    known = ((sizes > 0) & (sizes <= _LARGEST_SIZE)).all(axis=1)
    distinct, shape = np.unique(sizes, axis=0, return_inverse=True)
    values = {
        "shape": np.where(known, shape.reshape(-1), MISSING),
        "blocks": np.where(known, sizes[:, :3].astype(np.float64).prod(axis=1), np.nan),
    }
    # As Kineto writes them: grid, then block.
    shapes = tuple(json.dumps([shape[:3], shape[3:]]) for shape in distinct.tolist())
    return on_device(rows, Category.KERNEL, name, names, values, shapes)


def graph_rows(tables: Tables) -> Rows:
    """Graphs recorded as one piece each: `--cuda-graph-trace=graph` hides their kernels."""
    rows = tables.numbers("CUPTI_ACTIVITY_KIND_GRAPH_TRACE", (*DEVICE_COLUMNS, "graphId"))
    distinct, name = np.unique(rows["graphId"], return_inverse=True)
    names = tuple(f"CUDA graph {n}" if n != MISSING else "CUDA graph" for n in distinct.tolist())
    return on_device(rows, Category.KERNEL, name, names, {})


def named(
    numbers: np.ndarray,
    strings: Mapping[int, str],
    unknown: str,
    change: Callable[[str], str] = str,
) -> tuple[np.ndarray, tuple[str, ...]]:
    """(n,) int64, index of each name, and the distinct names, by their numbers in `strings`."""
    distinct, name = np.unique(numbers, return_inverse=True)
    return name, tuple(change(strings.get(n, unknown)) for n in distinct.tolist())


def _copy_name(kinds: list[int], memory: Mapping[int, str]) -> str:
    direction, source, destination = kinds
    name = f"Memcpy {_COPIES.get(direction, 'Unknown')}"
    if source in memory and destination in memory:
        name += f" ({memory[source]} -> {memory[destination]})"
    return name


def _set_name(kinds: list[int], memory: Mapping[int, str]) -> str:
    return f"Memset ({memory[kinds[0]]})" if kinds[0] in memory else "Memset"


def call_rows(tables: Tables, strings: Mapping[int, str]) -> list[Rows]:
    """Calls of the CUDA runtime and driver: one table in recent exports, two in older ones."""
    found = []
    for table in ("CUPTI_ACTIVITY_KIND_RUNTIME", "CUPTI_ACTIVITY_KIND_DRIVER"):
        rows = tables.numbers(table, ("start", "end", "globalTid", "correlationId", "nameId"))
        name, names = named(
            rows["nameId"], strings, "unnamed call", lambda text: _CALL_VERSION.sub("", text)
        )
        driver = np.array([bool(_DRIVER_CALL.match(text)) for text in names], bool)
        category = np.where(driver[name], Category.DRIVER, Category.RUNTIME).astype(np.int8)
        values = {"correlation": identity(rows["correlationId"])}
        found.append(on_thread(rows, category, name, names, values))
    return found


def on_thread(
    rows: Mapping[str, np.ndarray],
    category: np.ndarray,
    name: np.ndarray,
    names: tuple[str, ...],
    values: Mapping[str, np.ndarray],
    shapes: tuple[str, ...] = (),
) -> Rows:
    """Rows of host threads, from the columns of a table with a `globalTid`."""
    return Rows(
        process_of(rows["globalTid"]),
        thread_of(rows["globalTid"]),
        rows["start"],
        rows["end"],
        category,
        name,
        names,
        values,
        shapes,
    )
