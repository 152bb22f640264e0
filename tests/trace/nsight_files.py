"""SQLite files as `nsys export --type sqlite` writes them, made of Kineto traces of the same run.

The tables and columns are those of NVIDIA's schema for 2025.3, of which only what a reader could
want is filled. Nothing of the package is used.
"""

import gzip
import json
import re
import sqlite3
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

_COMMON = (
    '"start" INTEGER NOT NULL, "end" INTEGER NOT NULL, deviceId INTEGER NOT NULL, '
    "contextId INTEGER NOT NULL, greenContextId INTEGER, streamId INTEGER NOT NULL, "
    "correlationId INTEGER, globalPid INTEGER"
)
SCHEMA = {
    "StringIds": "id INTEGER NOT NULL PRIMARY KEY, value TEXT NOT NULL",
    "META_DATA_EXPORT": "name TEXT NOT NULL, value TEXT",
    "TARGET_INFO_SESSION_START_TIME": "utcEpochNs INTEGER, utcTime TEXT, localTime TEXT",
    "TARGET_INFO_GPU": (
        "vmId INTEGER NOT NULL, id INTEGER NOT NULL, name TEXT, busLocation TEXT, "
        "totalMemory INTEGER, smCount INTEGER, cuDevice INTEGER"
    ),
    "TARGET_INFO_CUDA_DEVICE": (
        "gpuId INTEGER NOT NULL, cudaId INTEGER NOT NULL, pid INTEGER NOT NULL, uuid TEXT"
    ),
    "PROCESSES": "globalPid INTEGER, pid INTEGER, name TEXT",
    "ThreadNames": "nameId INTEGER NOT NULL, priority INTEGER, globalTid INTEGER",
    "ENUM_CUPTI_SYNC_TYPE": "id INTEGER NOT NULL PRIMARY KEY, name TEXT, label TEXT",
    "ENUM_CUDA_MEM_KIND": "id INTEGER NOT NULL PRIMARY KEY, name TEXT, label TEXT",
    "CUPTI_ACTIVITY_KIND_KERNEL": (
        f"{_COMMON}, demangledName INTEGER NOT NULL, shortName INTEGER NOT NULL, "
        "mangledName INTEGER, gridX INTEGER NOT NULL, gridY INTEGER NOT NULL, "
        "gridZ INTEGER NOT NULL, blockX INTEGER NOT NULL, blockY INTEGER NOT NULL, "
        "blockZ INTEGER NOT NULL, graphNodeId INTEGER, graphId INTEGER"
    ),
    "CUPTI_ACTIVITY_KIND_MEMCPY": (
        f"{_COMMON}, bytes INTEGER NOT NULL, copyKind INTEGER NOT NULL, srcKind INTEGER, "
        "dstKind INTEGER"
    ),
    "CUPTI_ACTIVITY_KIND_MEMSET": (
        f"{_COMMON}, value INTEGER NOT NULL, bytes INTEGER NOT NULL, memKind INTEGER"
    ),
    "CUPTI_ACTIVITY_KIND_GRAPH_TRACE": f"{_COMMON}, graphId INTEGER, graphExecId INTEGER",
    "CUPTI_ACTIVITY_KIND_RUNTIME": (
        '"start" INTEGER NOT NULL, "end" INTEGER NOT NULL, eventClass INTEGER NOT NULL, '
        "globalTid INTEGER, correlationId INTEGER, nameId INTEGER NOT NULL, "
        "returnValue INTEGER NOT NULL, callchainId INTEGER"
    ),
    "CUPTI_ACTIVITY_KIND_SYNCHRONIZATION": (
        f"{_COMMON}, syncType INTEGER NOT NULL, eventId INTEGER NOT NULL, eventSyncId INTEGER"
    ),
    "CUPTI_ACTIVITY_KIND_CUDA_EVENT": (
        "timestamp INTEGER, deviceId INTEGER NOT NULL, contextId INTEGER NOT NULL, "
        "streamId INTEGER NOT NULL, correlationId INTEGER, globalPid INTEGER, "
        "eventId INTEGER NOT NULL, eventSyncId INTEGER"
    ),
    "NVTX_EVENTS": (
        '"start" INTEGER NOT NULL, "end" INTEGER, eventType INTEGER NOT NULL, rangeId INTEGER, '
        "text TEXT, globalTid INTEGER, endGlobalTid INTEGER, textId INTEGER, domainId INTEGER"
    ),
    "MPI_RANKS": "globalTid INTEGER NOT NULL, rank INTEGER NOT NULL",
}
_COPIES = {"HtoD": 1, "DtoH": 2, "DtoD": 8, "HtoH": 9, "PtoP": 10}
_MEMORY = ("Pageable", "Pinned", "Device", "Array", "Managed", "Device Static", "Managed Static")
_SYNCS = ("EVENT_SYNCHRONIZE", "STREAM_WAIT_EVENT", "STREAM_SYNCHRONIZE", "CONTEXT_SYNCHRONIZE")
_SYNC_TYPES = {"Event Sync": 1, "Stream Wait Event": 2, "Stream Sync": 3, "Context Sync": 4}


class NsightFile:
    """An export under construction.

    Args:
        path: where to; only tables that are written to exist, as in real exports.
    """

    def __init__(self, path: Path):
        self.path = path
        self.connection = sqlite3.connect(path)
        self._tables: set[str] = set()
        self._strings: dict[str, int] = {}

    def __enter__(self) -> "NsightFile":
        return self

    def __exit__(self, *error: object) -> None:
        self.connection.commit()
        self.connection.close()

    def create(self, table: str) -> None:
        if table not in self._tables:
            self._tables.add(table)
            self.connection.execute(f"CREATE TABLE {table} ({SCHEMA[table]})")

    def add(self, table: str, **values: Any) -> None:
        """A row; what is not given is 0 where the schema asks for a number, else NULL."""
        self.create(table)
        needed = re.findall(r'"?(\w+)"? INTEGER NOT NULL', SCHEMA[table])
        values = dict.fromkeys(needed, 0) | values
        columns = ", ".join(f'"{column}"' for column in values)
        marks = ", ".join("?" * len(values))
        self.connection.execute(
            f"INSERT INTO {table} ({columns}) VALUES ({marks})", list(values.values())
        )

    def string(self, text: str) -> int:
        """Number of a text in StringIds."""
        if text not in self._strings:
            self._strings[text] = len(self._strings) + 1
            self.add("StringIds", id=self._strings[text], value=text)
        return self._strings[text]


def global_id(process: int, thread: int = 0) -> int:
    """`globalTid`, or `globalPid` without a thread; the byte above is the machine's."""
    return 0x0100 << 48 | process << 24 | thread


def emit_nvtx(row: dict[str, Any]) -> str:
    """Text of a range as torch.autograd.profiler.emit_nvtx writes it."""
    if row["cat"] != "cpu_op":
        return row["name"]
    sequence = row["args"].get("Sequence number")
    middle = "" if sequence is None else f", seq = {sequence}"
    return f"{row['name']}{middle}, op_id = {row['args']['External id']}"


def write_nsight(
    kineto: Sequence[Path],
    path: Path,
    *,
    range_text: Callable[[dict[str, Any]], str] = emit_nvtx,
    event_numbers: bool = True,
    without: Sequence[str] = (),
) -> Path:
    """The events of Kineto traces, one process for each, as one export.

    Args:
        kineto: the traces.
        path: the file to write.
        range_text: text of the NVTX range of an operator or annotation; empty for none.
        event_numbers: write `eventSyncId`, as newer releases do.
        without: tables to leave out.
    """
    with NsightFile(path) as file:
        for table in ("StringIds", "META_DATA_EXPORT"):
            file.create(table)
        file.add("META_DATA_EXPORT", name="EXPORT_PRODUCT_VERSION", value="2025.3.1")
        for number, name in enumerate(_SYNCS, start=1):
            full = f"CUPTI_ACTIVITY_SYNCHRONIZATION_TYPE_{name}"
            file.add("ENUM_CUPTI_SYNC_TYPE", id=number, name=full, label=name.title())
        for number, label in enumerate(_MEMORY):
            file.add("ENUM_CUDA_MEM_KIND", id=number, name=label.upper(), label=label)
        documents = [_document(source) for source in kineto]
        base = documents[0]["baseTimeNanoseconds"]
        file.add("TARGET_INFO_SESSION_START_TIME", utcEpochNs=base)
        for gpu, document in enumerate(documents):
            _add_process(file, document, gpu, range_text, event_numbers)
        for table in without:
            file.connection.execute(f"DROP TABLE IF EXISTS {table}")
    return path


def _document(path: Path) -> dict[str, Any]:
    data = path.read_bytes()
    return json.loads(gzip.decompress(data) if path.suffix == ".gz" else data)


def _add_process(
    file: NsightFile,
    document: dict[str, Any],
    gpu: int,
    range_text: Callable[[dict[str, Any]], str],
    event_numbers: bool,
) -> None:
    events = [event for event in document["traceEvents"] if event["ph"] == "X"]
    process = next(e["pid"] for e in events if e["cat"].startswith(("cuda_", "cpu_", "user")))
    of_process = {"globalPid": global_id(process)}
    properties = document["deviceProperties"][0]
    file.add(
        "TARGET_INFO_GPU", id=gpu, name=properties["name"], smCount=properties["numSms"],
        totalMemory=properties["totalGlobalMem"], cuDevice=gpu,
    )  # fmt: skip
    file.add("TARGET_INFO_CUDA_DEVICE", gpuId=gpu, cudaId=0, pid=process)
    file.add("PROCESSES", **of_process, pid=process, name="/usr/bin/python3.12")
    records: dict[int, int] = {}
    for event in events:
        args = event.get("args", {})
        start = round(event["ts"] * 1000)
        times = {"start": start, "end": start + round(event["dur"] * 1000)}
        thread = {"globalTid": global_id(process, event["tid"] if event["pid"] == process else 0)}
        place = of_process | {
            "deviceId": args.get("device"),
            "contextId": 1,
            "streamId": args.get("stream"),
            "correlationId": args.get("correlation"),
        }
        name = event["name"]
        match event["cat"]:
            case "cpu_op" | "user_annotation":
                if text := range_text(event):
                    file.add("NVTX_EVENTS", **times, **thread, text=text, eventType=59)
            case "cuda_runtime" | "cuda_driver":
                version = "_v3020" if event["cat"] == "cuda_runtime" else ""
                file.add(
                    "CUPTI_ACTIVITY_KIND_RUNTIME", **times, **thread,
                    correlationId=args["correlation"], nameId=file.string(name + version),
                )  # fmt: skip
            case "kernel":
                number = file.string(name)
                sizes = dict(zip(("gridX", "gridY", "gridZ"), args["grid"], strict=True))
                sizes |= dict(zip(("blockX", "blockY", "blockZ"), args["block"], strict=True))
                file.add(
                    "CUPTI_ACTIVITY_KIND_KERNEL", **times, **place, **sizes,
                    demangledName=number, shortName=number,
                )  # fmt: skip
            case "gpu_memcpy":
                kind, source, target = re.fullmatch(r"Memcpy (\w+) \((.+) -> (.+)\)", name).groups()  # type: ignore[union-attr]
                file.add(
                    "CUPTI_ACTIVITY_KIND_MEMCPY", **times, **place, bytes=args["bytes"],
                    copyKind=_COPIES[kind], srcKind=_MEMORY.index(source),
                    dstKind=_MEMORY.index(target),
                )  # fmt: skip
            case "gpu_memset":
                memory = re.fullmatch(r"Memset \((.+)\)", name)[1]  # type: ignore[index]
                file.add(
                    "CUPTI_ACTIVITY_KIND_MEMSET", **times, **place, bytes=args["bytes"],
                    memKind=_MEMORY.index(memory),
                )  # fmt: skip
            case "cuda_sync":
                record = args.get("wait_on_cuda_event_record_corr_id", 0)
                number = {"eventId": args.get("wait_on_cuda_event_id", 0)}
                if event_numbers:
                    number["eventSyncId"] = record
                file.add(
                    "CUPTI_ACTIVITY_KIND_SYNCHRONIZATION", **times, **place, **number,
                    syncType=_SYNC_TYPES[name],
                )  # fmt: skip
                if record > 0 and record not in records:
                    records[record] = 1
                    recorded = place | {
                        "streamId": args["wait_on_stream"], "correlationId": record,
                    }  # fmt: skip
                    file.add("CUPTI_ACTIVITY_KIND_CUDA_EVENT", **recorded, **number)
