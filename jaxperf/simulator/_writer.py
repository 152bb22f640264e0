"""Writes what a profiler would have recorded of a simulated run: Kineto's Chrome JSON.

The rows, their names and their arguments are those of PyTorch's Kineto with CUPTI. Times are
microseconds with three decimals after `baseTimeNanoseconds`, so whole nanoseconds survive.
"""

import gzip
import json
import math
from collections.abc import Iterator
from pathlib import Path

from jaxperf._files import new_file
from jaxperf.errors import OutputError
from jaxperf.simulator._program import Collective, Copy, DeviceWork, Set
from jaxperf.simulator._run import DeviceRow, HostRow, SimulatedRun, SyncRow

# Traces begin some time after the base, so that clocks behind it still show positive times.
_BASE_NS = 1_735_689_600_000_000_000
_LEAD_NS = 10_000_000_000

_CALL_NUMBERS = {
    "cudaMemcpy": 31,
    "cudaMemcpyAsync": 41,
    "cudaMemsetAsync": 51,
    "cudaStreamSynchronize": 131,
    "cudaEventRecord": 135,
    "cudaEventSynchronize": 137,
    "cudaEventQuery": 138,
    "cudaStreamWaitEvent": 147,
    "cudaDeviceSynchronize": 165,
    "cudaLaunchKernel": 211,
    "cudaFuncSetAttribute": 273,
    "cuLaunchKernel": 307,
    "cudaGraphLaunch": 311,
    "cudaStreamIsCapturing": 317,
    "cudaLaunchKernelExC": 430,
}
"""CUPTI's callback ids; 0 for calls that are not listed."""

_WARPS_PER_MULTIPROCESSOR = 64


def write_traces(
    run: SimulatedRun,
    folder: str | Path,
    *,
    cuda_sync_rows: bool = True,
    capture_from_us: float | None = None,
    compress: bool = True,
) -> tuple[Path, ...]:
    """Writes one Kineto JSON file per rank.

    Args:
        run: a simulated run.
        folder: where to; it is made where it does not exist.
        cuda_sync_rows: write the rows that say which stream waits for which event, as recent
            profilers do where asked.
        capture_from_us: the profiler started then (on the simulation's clock): host rows that
            began before are missing, device rows that ended before are too. `None` records all.
        compress: write `.json.gz` rather than `.json`.

    Returns:
        The files, in order of rank.

    Raises:
        OutputError: a file exists already, or the folder cannot be written to.

    Example:
        >>> import json, tempfile
        >>> from jaxperf.simulator import Kernel, Launch, Rank, execute
        >>> run = execute({0: Rank({"main": [Launch(Kernel("add", 5.0))]})})
        >>> (path,) = write_traces(run, tempfile.mkdtemp(), compress=False)
        >>> rows = json.loads(path.read_text())["traceEvents"]
        >>> [row["name"] for row in rows if row["ph"] == "X" and row["cat"] != "Trace"]
        ['cudaLaunchKernel', 'add']
    """
    folder = Path(folder)
    suffix = ".json.gz" if compress else ".json"
    paths = {rank: folder / f"rank{rank}.pt.trace{suffix}" for rank in run.ranks}
    for path in paths.values():
        if path.exists():
            raise OutputError(
                "the file exists already", where=str(path), remedy="choose a new or empty folder"
            )
    capture_ns = None if capture_from_us is None else round(capture_from_us * 1e3)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for rank, path in paths.items():
            document = _RankWriter(run, rank, capture_ns, cuda_sync_rows).document()
            text = json.dumps(document, separators=(",", ":")).encode()
            # Without a time stamp the same run gives the same bytes.
            data = gzip.compress(text, compresslevel=5, mtime=0) if compress else text
            with new_file(path) as file:
                file.write(data)
    except OSError as error:
        raise OutputError(
            "traces cannot be written", where=str(folder), got=error.strerror or str(error)
        ) from None
    return tuple(paths.values())


class _RankWriter:
    """The document of one rank."""

    def __init__(self, run: SimulatedRun, rank: int, capture_ns: int | None, cuda_sync_rows: bool):
        record = run.ranks[rank]
        self.run, self.record, self.cuda_sync_rows = run, record, cuda_sync_rows
        self.process = 1000 + rank
        # The main thread carries the number of the process, as on Linux.
        self.threads = {
            name: self.process + (100 * index) for index, name in enumerate(record.program.threads)
        }
        self.host_shift_ns = _LEAD_NS + round(record.program.clock_offset_us * 1e3)
        self.device_shift_ns = self.host_shift_ns + round(
            record.program.device_clock_offset_us * 1e3
        )
        begin_ns = -math.inf if capture_ns is None else capture_ns
        self.host = sorted(
            (row for row in record.host if row.start_ns >= begin_ns),
            # Where rows coincide, the operator that was begun first holds the others, and a call
            # is in all of them.
            key=lambda row: (row.start_ns, -row.end_ns, row.correlation, row.external_id),
        )
        self.device = sorted(
            (row for row in record.device if row.end_ns > begin_ns), key=lambda row: row.start_ns
        )
        self.syncs = [row for row in record.syncs if row.start_ns >= begin_ns]

    def document(self) -> dict:
        world = len(self.run.ranks)
        document: dict = {"schemaVersion": 1, "deviceProperties": self._device_properties()}
        if world > 1:
            document["distributedInfo"] = self._distributed_info(world)
        events = [
            *self._host_events(),
            *self._device_events(),
            *(self._sync_events() if self.cuda_sync_rows else ()),
            *self._gpu_annotations(),
            *self._forward_backward_flows(),
            *self._names(),
            *self._capture_events(),
        ]
        return document | {
            "displayTimeUnit": "ms",
            "baseTimeNanoseconds": _BASE_NS,
            "traceEvents": events,
            "traceName": f"rank{self.record.rank}.pt.trace.json",
        }

    # -- metadata ---------------------------------------------------------------------------

    def _devices(self) -> list[int]:
        return sorted({row.device for row in self.device}) or [0]

    def _device_properties(self) -> list[dict]:
        return [
            {
                "id": device,
                "name": self.run.device_name,
                "totalGlobalMem": 80 * 2**30,
                "maxThreadsPerMultiprocessor": 32 * _WARPS_PER_MULTIPROCESSOR,
                "warpSize": 32,
                "numSms": self.run.streaming_multiprocessors,
            }
            for device in self._devices()
        ]

    def _distributed_info(self, world: int) -> dict:
        groups = {
            row.work.group: row.work
            for row in self.record.device
            if isinstance(row.work, Collective)
        }
        return {
            "backend": "nccl",
            "rank": self.record.rank,
            "world_size": world,
            "pg_count": len(groups),
            "pg_config": [
                {
                    "pg_name": name,
                    "pg_desc": work.description,
                    "backend_config": "cuda:nccl",
                    "pg_size": len(work.ranks),
                    "ranks": list(work.ranks),
                }
                for name, work in groups.items()
            ],
            "nccl_version": "2.21.5",
        }

    def _names(self) -> Iterator[dict]:
        time = {"ts": _us(self.host_shift_ns)}

        def named(kind: str, pid: int, tid: int, args: dict) -> dict:
            return {"name": kind, "ph": "M", **time, "pid": pid, "tid": tid, "args": args}

        yield named("process_name", self.process, 0, {"name": "python"})
        yield named("process_labels", self.process, 0, {"labels": "CPU"})
        for name, tid in self.threads.items():
            yield named("thread_name", self.process, tid, {"name": f"thread {tid} ({name})"})
        for device in self._devices():
            yield named("process_name", device, 0, {"name": "python"})
            yield named("process_labels", device, 0, {"labels": f"GPU {device}"})
        for device, stream in sorted({(row.device, row.stream) for row in self.device}):
            yield named("thread_name", device, stream, {"name": f"stream {stream} "})

    def _capture_events(self) -> Iterator[dict]:
        ends = [row.end_ns for row in (*self.host, *self.device)]
        starts = [row.start_ns for row in self.host]
        first, last = min(starts, default=0), max(ends, default=0)
        start = {"ts": _us(first + self.host_shift_ns)}
        yield {
            "ph": "X",
            "cat": "Trace",
            **start,
            "dur": _us(last - first),
            "pid": "Spans",
            "tid": "PyTorch Profiler",
            "name": "PyTorch Profiler (0)",
            "args": {"Op count": 0},
        }
        yield {
            "name": "Iteration Start: PyTorch Profiler",
            "ph": "i",
            "s": "g",
            "pid": "Traces",
            "tid": "Trace PyTorch Profiler",
            **start,
        }
        end = {"ts": _us(last + self.host_shift_ns)}
        yield {"name": "Record Window End", "ph": "i", "s": "g", "pid": "", "tid": "", **end}

    # -- host ---------------------------------------------------------------------------------

    def _host_events(self) -> Iterator[dict]:
        launches = {row.correlation for row in self.device}
        for row in self.host:
            place = self._host_place(row)
            yield {
                "ph": "X",
                "cat": row.category,
                "name": row.name,
                **place,
                "dur": _us(row.end_ns - row.start_ns),
                "args": _host_arguments(row),
            }
            if row.correlation in launches:
                yield {"ph": "s", "id": row.correlation, **place, "cat": "ac2g", "name": "ac2g"}

    def _host_place(self, row: HostRow) -> dict:
        return {
            "pid": self.process,
            "tid": self.threads[row.thread],
            "ts": _us(row.start_ns + self.host_shift_ns),
        }

    def _forward_backward_flows(self) -> Iterator[dict]:
        forward = {}
        for row in self.host:
            if row.sequence is None:
                continue
            if not row.backward:
                forward[row.sequence] = row
            elif row.sequence in forward:
                # The operators around a backward carry its number too: one arrow each.
                start = forward.pop(row.sequence)
                flow = {"id": row.sequence, "cat": "fwdbwd", "name": "fwdbwd"}
                yield {"ph": "s", **flow, **self._host_place(start)}
                yield {"ph": "f", **flow, **self._host_place(row), "bp": "e"}

    # -- devices ------------------------------------------------------------------------------

    def _device_events(self) -> Iterator[dict]:
        # Works that were launched before the capture carry a correlation that no call has.
        for row in self.device:
            place = self._device_place(row.device, row.stream, row.start_ns)
            yield {
                "ph": "X",
                "cat": _device_category(row.work),
                "name": row.work.name,
                **place,
                "dur": _us(row.end_ns - row.start_ns),
                "args": _device_arguments(row, self.run.streaming_multiprocessors),
            }
            flow = {"id": row.correlation, "cat": "ac2g", "name": "ac2g", "bp": "e"}
            yield {"ph": "f", **flow, **place}

    def _device_place(self, device: int, stream: int, time_ns: int) -> dict:
        return {"pid": device, "tid": stream, "ts": _us(time_ns + self.device_shift_ns)}

    def _sync_events(self) -> Iterator[dict]:
        for row in self.syncs:
            yield {
                "ph": "X",
                "cat": "cuda_sync",
                "name": row.kind,
                "pid": row.device,
                "tid": row.stream,
                "ts": _us(row.start_ns + self.host_shift_ns),
                "dur": _us(row.end_ns - row.start_ns),
                "args": _sync_arguments(row),
            }

    def _gpu_annotations(self) -> Iterator[dict]:
        """On each stream, the time from the first to the last work launched under an annotation."""
        recorded = {row.external_id for row in self.host if row.category == "user_annotation"}
        spans: dict[tuple[int, str, int, int], list[int]] = {}
        for row in self.device:
            for number, name in row.annotations:
                if number not in recorded:
                    continue
                span = spans.setdefault(
                    (number, name, row.device, row.stream), [row.start_ns, row.end_ns]
                )
                span[1] = max(span[1], row.end_ns)
        for (number, name, device, stream), (start_ns, end_ns) in spans.items():
            yield {
                "ph": "X",
                "cat": "gpu_user_annotation",
                "name": name,
                **self._device_place(device, stream, start_ns),
                "dur": _us(end_ns - start_ns),
                "args": {"External id": number},
            }


def _us(time_ns: int) -> float:
    # Both are exact far below 2^53 ns, and the shortest text of the quotient has three decimals.
    return time_ns / 1000


def _host_arguments(row: HostRow) -> dict:
    if row.correlation >= 0:
        args: dict = {"cbid": _CALL_NUMBERS.get(row.name, 0), "correlation": row.correlation}
        return args if row.external_id < 0 else {"External id": row.external_id, **args}
    args = {"External id": row.external_id, "Record function id": 0}
    if row.sequence is not None:
        args |= {"Sequence number": row.sequence, "Fwd thread id": 1 if row.backward else 0}
    inputs = {"Concrete Inputs": row.values, "Input type": row.types, "Input Dims": row.shapes}
    return args | {key: told for key, told in inputs.items() if told}


def _device_category(work: DeviceWork) -> str:
    match work:
        case Copy():
            return "gpu_memcpy"
        case Set():
            return "gpu_memset"
        case _:
            return "kernel"


def _device_arguments(row: DeviceRow, multiprocessors: int) -> dict:
    args: dict = {
        "device": row.device,
        "context": 1,
        "stream": row.stream,
        "correlation": row.correlation,
    }
    if row.external_id >= 0:
        args["External id"] = row.external_id
    work = row.work
    if isinstance(work, Copy | Set):
        # Bytes per nanosecond are the profiler's GB/s.
        duration_ns = max(row.end_ns - row.start_ns, 1)
        rate = work.size_bytes / duration_ns
        return args | {"bytes": work.size_bytes, "memory bandwidth (GB/s)": rate}
    if isinstance(work, Collective):
        return (
            args
            | _launch_arguments((24, 1, 1), (544, 1, 1), 96, 88016, multiprocessors)
            | (_collective_arguments(work, row.sequence))
        )
    return args | _launch_arguments(
        work.grid, work.block, work.registers_per_thread, work.shared_memory_bytes, multiprocessors
    )


def _launch_arguments(
    grid: tuple[int, int, int],
    block: tuple[int, int, int],
    registers: int,
    shared_memory_bytes: int,
    multiprocessors: int,
) -> dict:
    blocks = math.prod(grid) / multiprocessors
    warps = blocks * math.ceil(math.prod(block) / 32)
    return {
        "queued": 0,
        "registers per thread": registers,
        "shared memory": shared_memory_bytes,
        "blocks per SM": round(blocks, 6),
        "warps per SM": round(warps, 6),
        "grid": list(grid),
        "block": list(block),
        "est. achieved occupancy %": min(100, int(100 * warps / _WARPS_PER_MULTIPROCESSOR)),
    }


def _collective_arguments(work: Collective, sequence: int) -> dict:
    members = len(work.ranks)
    out_elements = {
        "allgather": work.elements * members,
        "reduce_scatter": work.elements // members,
    }.get(work.operation, work.elements)
    name = {"allgather": "_allgather_base", "reduce_scatter": "_reduce_scatter_base"}
    args = {
        "Collective name": name.get(work.operation, work.operation),
        "In msg nelems": work.elements,
        "Out msg nelems": out_elements,
        "Group size": members,
        "dtype": work.dtype,
        "In split size": "[]",
        "Out split size": "[]",
        "Process Group Name": work.group,
        "Process Group Description": work.description,
        "Process Group Ranks": str(list(work.ranks)),
        "Seq": sequence,
    }
    if work.source is not None:
        args |= {"Src Rank": work.source, "Dst Rank": work.destination}
    return args


def _sync_arguments(row: SyncRow) -> dict:
    args: dict = {"cuda_sync_kind": row.kind}
    if row.kind in ("Stream Wait Event", "Event Sync"):
        args |= {
            "wait_on_stream": row.record_stream,
            "wait_on_cuda_event_record_corr_id": row.record_correlation,
            "wait_on_cuda_event_id": row.event,
        }
    return args | {
        "stream": row.stream,
        "correlation": row.correlation,
        "device": row.device,
        "context": 1,
    }
