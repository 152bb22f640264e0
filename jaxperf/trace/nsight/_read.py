"""Read an export of Nsight Systems: one trace for each process that had work on a device."""

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from jaxperf.trace._columns import Columns
from jaxperf.trace._document import NotATrace
from jaxperf.trace._finished import Finished
from jaxperf.trace._notes import NoteBook
from jaxperf.trace._numbering import NSIGHT
from jaxperf.trace._types import MISSING, Trace
from jaxperf.trace.nsight._columns import process_columns
from jaxperf.trace.nsight._ranges import range_rows, with_steps
from jaxperf.trace.nsight._rows import Rows, call_rows, device_rows, graph_rows
from jaxperf.trace.nsight._tables import Tables
from jaxperf.trace.nsight._target import Gpu, Target
from jaxperf.trace.nsight._waits import sync_rows

# A file with any of these is an export, though perhaps one without events.
_TELLING = ("CUPTI_ACTIVITY_KIND_", "NVTX_EVENTS", "TARGET_INFO_SESSION_START_TIME")
_EXPECTED = {
    "StringIds": "names",
    "CUPTI_ACTIVITY_KIND_KERNEL": "kernels",
    "CUPTI_ACTIVITY_KIND_RUNTIME": "calls that launched them",
}


def read_nsight(path: Path, rank_in_name: int | None = None) -> tuple[Trace, ...]:
    """Read an SQLite export of Nsight Systems.

    Args:
        path: the file, which `is_sqlite`.
        rank_in_name: the rank that the file's name tells.

    Returns:
        One trace per process with device work, in order of rank; where no process has any, one of
        the process with most events.

    Raises:
        NotATrace: a database of another program, or an export without events of CUDA or NVTX.
        TraceError: the file is damaged.
    """
    notes = NoteBook(str(path))
    with Tables(path) as tables:
        if not any(name.startswith(_TELLING) for name in tables.names):
            raise tables.stranger()
        strings = tables.texts("StringIds", "id", "value")
        graphs = graph_rows(tables)
        work = [*device_rows(tables, strings), graphs]
        host = [*call_rows(tables, strings), sync_rows(tables, notes)]
        ranges = range_rows(tables, strings)
        target = Target(tables, strings)
        _note_missing(tables, notes)
    if len(graphs.start):
        notes.add("graphs-as-one", count=len(graphs.start))
    columns: dict[int, Columns] = {}
    for process in _processes(work, [*work, *host, ranges], notes):
        mine = [part.where(part.process == process) for part in (*work, *host)]
        named, step = with_steps(ranges.where(ranges.process == process))
        if step:
            notes.add("steps-from-ranges", text=f"ranges such as `{step}` are taken as the steps")
        # Of rows with the same times the first is the outer one: a range holds a call.
        found = process_columns(process, [named, *mine], target, notes)
        if found.dense:
            columns[process] = found
    if not columns:
        raise NotATrace(
            "an Nsight Systems export without events of CUDA or NVTX",
            where=str(path),
            remedy="capture with: nsys profile --trace=cuda,nvtx",
        )
    finished = {process: Finished(found) for process, found in columns.items()}
    ranks = _ranks(finished, target, rank_in_name, notes)
    return tuple(
        _trace(path, ranks[process], process, finished[process], target, notes)
        for process in sorted(ranks, key=lambda process: ranks[process])
    )


def _note_missing(tables: Tables, notes: NoteBook) -> None:
    missing = [f"{table} ({what})" for table, what in _EXPECTED.items() if not tables.has(table)]
    if missing:
        notes.add("table-missing", text=f"the export has no table {', '.join(missing)}")


def _processes(work: Sequence[Rows], rows: Sequence[Rows], notes: NoteBook) -> list[int]:
    """The processes that are ranks; `MISSING` stands for rows that tell no process."""
    working, every = _count(work), _count(rows)
    if not working:
        return [process for process, _ in every.most_common(1)]
    others = set(every) - set(working) - {MISSING}
    if others:
        notes.add("processes-left-out", count=len(others))
    return sorted(working)


def _count(rows: Sequence[Rows]) -> Counter[int]:
    counts: Counter[int] = Counter()
    for part in rows:
        found, count = np.unique(part.process, return_counts=True)
        counts.update(dict(zip(found.tolist(), count.tolist(), strict=True)))
    return counts


def _ranks(
    finished: dict[int, Finished], target: Target, rank_in_name: int | None, notes: NoteBook
) -> dict[int, int]:
    """The rank of each process."""
    processes = list(finished)
    known = [target.mpi_ranks[process] for process in processes if process in target.mpi_ranks]
    if len(set(known)) == len(processes):
        if len(processes) > 1:
            notes.add("ranks-in-one-file")
        return dict(zip(processes, known, strict=True))
    if len(processes) > 1:
        text = (
            f"the file holds {len(processes)} processes with device work; each is taken as a rank, "
            "in order of device, then of process id"
        )
        notes.add("ranks-in-one-file", text=text)

        def place(process: int) -> tuple[int, int]:
            device = finished[process].main_device()
            return target.gpu_number(process, 0 if device is None else device), process

        return {process: rank for rank, process in enumerate(sorted(processes, key=place))}
    if rank_in_name is not None:
        text = f"no rank in the file; rank {rank_in_name} taken from its name"
        notes.add("rank-from-name", text=text)
        return {processes[0]: rank_in_name}
    notes.add("rank-assumed")
    return {processes[0]: 0}


def _trace(
    path: Path, rank: int, process: int, finished: Finished, target: Target, notes: NoteBook
) -> Trace:
    device = finished.main_device()
    gpu = Gpu() if device is None else target.gpu(process, device)
    properties = {
        "id": device,
        "name": gpu.name,
        "numSms": gpu.multiprocessors,
        "totalGlobalMem": gpu.memory_bytes,
    }
    metadata: dict[str, Any] = {"profiler": NSIGHT}
    if device is not None:
        told = {key: value for key, value in properties.items() if value is not None}
        metadata["deviceProperties"] = [told]
    return Trace(
        rank=rank,
        world_size=None,
        files=(str(path),),
        device_name=gpu.name,
        origin_ns=finished.origin_ns + target.start_ns,
        metadata=metadata,
        truncated=False,
        notes=notes.notes(),
        **finished.fields,
    )
