"""Read one trace file."""

import os
import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from jaxperf.trace._columns import Columns
from jaxperf.trace._document import Document, NotATrace
from jaxperf.trace._events import Event, integer
from jaxperf.trace._finished import Finished
from jaxperf.trace._notes import NoteBook
from jaxperf.trace._sources import Source, is_sqlite, out_of_memory
from jaxperf.trace._types import Trace

_REPORT = ("a report of Nsight Systems", "export it: nsys export --type sqlite")
_BINARY = {
    ".nsys-rep": _REPORT,
    ".qdrep": _REPORT,
    ".xplane.pb": ("an XPlane profile of JAX", "name the trace.json.gz beside it"),
}
_MOST_RANKS = 2**31
_MOST_BASE_NS = 2**62  # the year 2116
_RANK_IN_NAME = re.compile(r"(?:^|[^a-z])(?:rank|worker)[\s_\-=.]*(\d{1,6})(?!\d)", re.IGNORECASE)


def read_file(path: str | os.PathLike[str]) -> tuple[Trace, ...]:
    """Read a trace of PyTorch, of another profiler that writes Chrome JSON, or of Nsight Systems.

    JSON (plain, gzip, zip or zstd) and SQLite are told by content. Damaged text is repaired, and a
    file that was cut is read as far as it goes; each repair is a note of the trace.

    Args:
        path: the file.

    Returns:
        One trace; several, in order of rank, where ranks were merged into one file.

    Raises:
        TraceError: the file cannot be read, or holds no trace.

    Example:
        >>> import pathlib, tempfile
        >>> text = '[{"ph": "X", "name": "aten::mm", "pid": 1, "tid": 1, "ts": 5, "dur": 2.5}]'
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     path = pathlib.Path(folder, "rank3.json")
        ...     _ = path.write_text(text)
        ...     (trace,) = read_file(path)
        >>> trace.rank, trace.events, trace.duration_ns.tolist()
        (3, 1, [2500])
    """
    path = Path(path)
    try:
        if is_sqlite(path):
            # Not every Python has sqlite3, and few users have such a file.
            from jaxperf.trace.nsight import read_nsight

            return read_nsight(path, rank_in_name(path.name))
        return _read(path)
    except NotATrace as error:
        raise _explained(error, path) from None
    except MemoryError:
        raise out_of_memory(str(path)) from None


def _explained(error: NotATrace, path: Path) -> NotATrace:
    """What a profiler's own binary file is, by its name, and what to read in its stead."""
    for suffix, (what, remedy) in _BINARY.items():
        if path.name.endswith(suffix):
            return NotATrace(what, where=str(path), expected="a profiler trace", remedy=remedy)
    return error


def _read(path: Path) -> tuple[Trace, ...]:
    file = str(path)
    notes = NoteBook(file)
    by_rank = _ByRank(notes)
    document = Document(file, Source(path, notes), notes)
    document.read(by_rank.add)
    columns = by_rank.finish()
    if not columns:
        raise NotATrace("a trace without timed events", where=file, expected="events with a time")
    if len(columns) > 1:
        notes.add("ranks-in-one-file")
    return tuple(
        _trace(path, document, columns[rank], rank, notes)
        for rank in sorted(columns, key=lambda rank: -1 if rank is None else rank)
    )


class _ByRank:
    """Sends events to the columns of their rank: most files hold one, without saying so."""

    def __init__(self, notes: NoteBook):
        self._notes = notes
        self._columns: dict[int | None, Columns] = {}

    def add(self, events: Sequence[Event]) -> None:
        # A list, not a generator: this looks at every event, and is three times as fast.
        if not [True for e in events if e.args is not None and e.args.raw_pid is not None]:
            self._of(None).add(events)
            return
        parts: dict[int | None, list[Event]] = defaultdict(list)
        for event in events:
            args = event.args
            if args is None or args.raw_pid is None or args.rank is None:
                parts[None].append(event)
                continue
            # TraceFuse of TraceLens shifts ids so that ranks do not collide, and keeps the old.
            event.pid = args.raw_pid
            if args.raw_correlation is not None:
                args.correlation = args.raw_correlation
            if args.raw_id is not None:
                event.id = args.raw_id
            parts[args.rank].append(event)
        for rank, part in parts.items():
            self._of(rank).add(part)

    def _of(self, rank: int | None) -> Columns:
        if rank not in self._columns:
            self._columns[rank] = Columns(self._notes)
        return self._columns[rank]

    def finish(self) -> dict[int | None, Columns]:
        """The columns of each rank that has timed events."""
        for columns in self._columns.values():
            columns.close()
        return {rank: columns for rank, columns in self._columns.items() if columns.rows}


def _trace(
    path: Path, document: Document, columns: Columns, merged: int | None, notes: NoteBook
) -> Trace:
    metadata = document.metadata
    job = _mapping(metadata.get("distributedInfo"))
    rank = merged if merged is not None else _rank(job, path, notes)
    finished = Finished(columns)
    base_ns = _whole(metadata.get("baseTimeNanoseconds"), _MOST_BASE_NS)
    return Trace(
        rank=rank,
        world_size=_whole(job.get("world_size"), _MOST_RANKS),
        files=(str(path),),
        device_name=_device_name(metadata.get("deviceProperties"), finished.main_device()),
        origin_ns=finished.origin_ns + (base_ns or 0),
        metadata=metadata,
        truncated=document.truncated,
        notes=notes.notes(),
        **finished.fields,
    )


def rank_in_name(name: str) -> int | None:
    """The rank that a file name tells, such as `rank3_trace.json`; `None` where it tells none."""
    match = _RANK_IN_NAME.search(name)
    return int(match[1]) if match else None


def _rank(job: Mapping[str, Any], path: Path, notes: NoteBook) -> int:
    written = job.get("rank")
    inside = _whole(integer(written) if isinstance(written, str) else written, _MOST_RANKS)
    named = rank_in_name(path.name)
    if inside is not None:
        if named is not None and named != inside:
            text = f"the file says rank {inside}, its name rank {named}; the file wins"
            notes.add("rank-differs-from-name", text=text)
        return inside
    if named is not None:
        notes.add("rank-from-name", text=f"no rank in the file; rank {named} taken from its name")
        return named
    notes.add("rank-assumed")
    return 0


def _whole(value: Any, most: int) -> int | None:
    """A whole number that a file says, `None` where it is none from 0 to below `most`."""
    return value if type(value) is int and 0 <= value < most else None


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


def _device_name(properties: Any, device: int | None) -> str | None:
    known = [p for p in properties if isinstance(p, dict)] if isinstance(properties, list) else []
    for entry in sorted(known, key=lambda entry: entry.get("id") != device):
        if isinstance(entry.get("name"), str) and entry["name"]:
            return entry["name"]
    return None
