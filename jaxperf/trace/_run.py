"""Read the traces of a run: find the files, set strangers aside, and settle which rank is which."""

import os
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from jaxperf.errors import TraceError
from jaxperf.trace._document import EXECUTION_TRACE, NotATrace, is_trace
from jaxperf.trace._execution_trace import with_execution_trace, without_inputs
from jaxperf.trace._numbering import number_exports, with_rank
from jaxperf.trace._sources import is_sqlite
from jaxperf.trace._types import Note, Run, SetAside, Trace
from jaxperf.trace._worker import Outcome, read_in_parallel, read_or_error

PathLike = str | os.PathLike[str]

# WORKER.MILLISECONDS.pt.trace.json[.gz], as torch.profiler.tensorboard_trace_handler names files.
_CAPTURE = re.compile(r"(?P<worker>.+)\.(?P<stamp>\d+)\.pt\.trace\.json(?:\.\w+)?")
# Starting two processes takes up to a second on a busy machine: as long as reading 70 MiB of text.
_PAYS_BYTES = 256 << 20
_USUAL_COMPRESSION = 15
_COMPRESSED = (b"\x1f\x8b", b"PK", b"\x28\xb5")
_SHOWN = 6
# jax.profiler writes here, a folder for each profile, named for its time.
_JAX_PROFILES = Path("plugins", "profile")
_JAX_TRACE, _JAX_XPLANE = ".trace.json.gz", ".xplane.pb"


@dataclass(frozen=True)
class _File:
    path: Path
    named: bool  # by the caller, not found in a folder
    host: int | None = None  # of a JAX profile of several hosts, in order of their names


def read_run(
    paths: PathLike | Sequence[PathLike],
    *,
    ranks: Mapping[int, PathLike] | None = None,
    workers: int | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> Run:
    """Read the traces of one run, each rank once.

    The rank of a file is the one written in it, else the one in its name (`rank3_trace.json`), else
    0. Of two captures of one worker the newest is used, and of the profiles in a folder of
    `jax.profiler` the newest. An execution trace beside a trace of its name (`rank3.et.json`) gives
    operators the inputs that they lack. Files of a folder that are no traces are set aside.

    Args:
        paths: a trace file, a folder of one run's traces, or several of either.
        ranks: files whose rank is known better; they are read besides `paths`.
        workers: number of processes; by default one per CPU where the files are large enough.
        progress: called with the number of files read so far and of all files, from any thread.

    Returns:
        The run, traces in order of rank.

    Raises:
        TraceError: a file cannot be read, two files claim one rank, or no trace is found.

    Example:
        >>> import pathlib, tempfile
        >>> text = '[{"ph": "X", "name": "aten::mm", "pid": 1, "tid": 1, "ts": 5, "dur": 2.5}]'
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     for name in ("rank0.json", "rank1.json", "notes.txt"):
        ...         _ = pathlib.Path(folder, name).write_text(text if "rank" in name else "none")
        ...     run = read_run(folder)
        >>> [trace.rank for trace in run.traces], [aside.reason for aside in run.set_aside]
        ([0, 1], ['no JSON'])
    """
    given = {os.path.realpath(path): rank for rank, path in (ranks or {}).items()}
    several = [paths] if isinstance(paths, str | os.PathLike) else list(paths)
    places = [Path(path) for path in [*several, *(ranks or {}).values()]]
    set_aside: list[SetAside] = []
    files = find_files(places, set_aside)
    outcomes = read_files([file.path for file in files], workers, progress)
    traces: list[Trace] = []
    for file, outcome in zip(files, outcomes, strict=True):
        if isinstance(outcome, tuple):
            rank = given.get(os.path.realpath(file.path), file.host)
            traces += outcome if rank is None else with_rank_of(outcome, rank)
        elif isinstance(outcome, NotATrace) and not file.named:
            set_aside.append(SetAside(str(file.path), outcome.what))
        else:
            raise outcome
    if not traces:
        raise nothing_found(places, set_aside)
    notes: list[Note] = []
    if any(file.host is not None for file in files):
        text = "the hosts of the JAX profile are numbered in order of their names"
        notes.append(Note("ranks-from-order", text))
    one_each = one_per_rank(traces, notes)
    note_missing(one_each, notes)
    whole = tuple(_with_inputs_beside(trace, set_aside) for trace in one_each)
    return Run(traces=whole, set_aside=tuple(set_aside), notes=tuple(notes))


def find_files(places: Sequence[Path], set_aside: list[SetAside]) -> list[_File]:
    found: dict[str, _File] = {}
    for place in places:
        if place.is_dir():
            files = _files_of(_newest_profile(place, set_aside), set_aside)
        else:
            files = [_File(place, named=True)]
        for file in files:
            found.setdefault(os.path.realpath(file.path), file)
    return list(found.values())


def _newest_profile(folder: Path, set_aside: list[SetAside]) -> Path:
    """The newest profile where a folder is one that `jax.profiler` wrote to, else the folder."""
    if not (folder / _JAX_PROFILES).is_dir():
        return folder
    profiles = [path for path in _entries(folder / _JAX_PROFILES) if path.is_dir()]
    text = "an earlier profile; the newest is read"
    set_aside += [SetAside(str(profile), text) for profile in profiles[:-1]]
    return profiles[-1] if profiles else folder


def _files_of(folder: Path, set_aside: list[SetAside]) -> list[_File]:
    entries = _entries(folder)
    lost = [path for path in entries if path.is_symlink() and not os.path.exists(path)]
    set_aside += [SetAside(str(path), "a link that leads nowhere") for path in lost]
    paths = [path for path in entries if path.is_file()]
    hosts = [path for path in paths if path.name.endswith(_JAX_TRACE)]
    if not any(path.name.endswith(_JAX_XPLANE) for path in paths) or not hosts:
        return [_File(path, named=False) for path in paths]
    copy = folder / "perfetto_trace.json.gz"
    if copy in paths:
        paths.remove(copy)
        set_aside.append(SetAside(str(copy), "the same profile, for Perfetto"))
    number = {path: index for index, path in enumerate(hosts)} if len(hosts) > 1 else {}
    return [_File(path, named=False, host=number.get(path)) for path in paths]


def _entries(folder: Path) -> list[Path]:
    try:
        return sorted(path for path in folder.iterdir() if not path.name.startswith("."))
    except OSError as error:
        raise TraceError(f"cannot be read: {error.strerror}", where=str(folder)) from None


def read_files(
    paths: Sequence[Path], workers: int | None, progress: Callable[[int, int], None] | None
) -> list[Outcome]:
    if workers is None:
        pays = sum(_text_bytes(path) for path in paths) >= _PAYS_BYTES
        workers = _cpus() if pays else 1
    workers = min(workers, len(paths))
    if workers > 1 and sys.executable:
        return read_in_parallel(paths, workers, progress)
    outcomes: list[Outcome] = []
    for path in paths:
        outcomes.append(read_or_error(path))
        if progress:
            progress(len(outcomes), len(paths))
    return outcomes


def _cpus() -> int:
    # The CPUs we may use, not those of the machine; macOS does not tell.
    return len(os.sched_getaffinity(0)) if sys.platform == "linux" else os.cpu_count() or 1


def _text_bytes(path: Path) -> int:
    """About how much text a file holds; 0 where it cannot be read, which reading will report."""
    try:
        with open(path, "rb") as file:
            compressed = file.read(4).startswith(_COMPRESSED)
        return path.stat().st_size * (_USUAL_COMPRESSION if compressed else 1)
    except OSError:
        return 0


def with_rank_of(traces: tuple[Trace, ...], rank: int) -> tuple[Trace, ...]:
    if len(traces) != 1:
        raise TraceError(
            "holds several ranks, so it cannot be given one",
            where=traces[0].files[0],
            got=f"rank {rank}",
            remedy="leave it out of ranks=",
        )
    return (with_rank(traces[0], rank),)


def one_per_rank(traces: Sequence[Trace], notes: list[Note]) -> tuple[Trace, ...]:
    by_rank: dict[int, Trace] = {}
    for trace in number_exports(traces, notes):
        other = by_rank.get(trace.rank)
        if other is not None:
            trace = _newest(other, trace, notes)
        by_rank[trace.rank] = trace
    return tuple(by_rank[rank] for rank in sorted(by_rank))


def _newest(first: Trace, second: Trace, notes: list[Note]) -> Trace:
    """The later of two captures of one worker; an error where they are not that."""
    captures = [_CAPTURE.fullmatch(Path(trace.files[0]).name) for trace in (first, second)]
    if not (captures[0] and captures[1] and captures[0]["worker"] == captures[1]["worker"]):
        raise TraceError(
            f"two files of rank {first.rank}",
            where=first.files[0],
            got=f"also {second.files[0]}",
            expected="one file per rank",
            remedy="keep one run per folder, or put the rank in the names (rank3_trace.json)",
        )
    older, newer = (first, second)
    if int(captures[0]["stamp"]) > int(captures[1]["stamp"]):
        older, newer = second, first
    text = f"an earlier capture of the same worker as {newer.files[0]}, which is used instead"
    notes.append(Note("older-capture", text, older.files[0]))
    return newer


def _with_inputs_beside(trace: Trace, set_aside: list[SetAside]) -> Trace:
    """The trace with what an execution trace of its name tells of its operators, if it tells more.

    What was of use is taken off the files set aside.
    """
    stem = Path(trace.files[0]).name.partition(".")[0]
    for aside in set_aside:
        beside = Path(aside.file).name.partition(".")[0] == stem
        if aside.reason == EXECUTION_TRACE and beside and len(without_inputs(trace)):
            with suppress(TraceError):
                found = with_execution_trace(trace, aside.file)
                if not np.array_equal(found.shape, trace.shape):
                    set_aside.remove(aside)
                    return found
    return trace


def note_missing(traces: Sequence[Trace], notes: list[Note]) -> None:
    world_size = max((trace.world_size or 0 for trace in traces), default=0)
    if world_size > len(traces):
        text = f"{len(traces)} of the {world_size} ranks of the job are here"
        notes.append(Note("ranks-missing", text))


def nothing_found(places: Sequence[Path], set_aside: Sequence[SetAside]) -> TraceError:
    where = ", ".join(map(str, places)) or "no path"
    inside = [
        str(entry)
        for place in places
        if place.is_dir()
        for entry in _entries(place)
        if entry.is_dir() and any(_is_trace(path) for path in _entries(entry))
    ]
    if inside:
        return TraceError(
            "no trace in it, but in its sub-folders",
            where=where,
            got=", ".join(inside[:_SHOWN]) + (", ..." if len(inside) > _SHOWN else ""),
            remedy="name the one that holds the run",
        )
    reasons = [f"{Path(aside.file).name} ({aside.reason})" for aside in set_aside]
    got = ", ".join(reasons[:_SHOWN]) + (", ..." if len(reasons) > _SHOWN else "")
    return TraceError(
        "no trace found",
        where=where,
        got=got or "nothing",
        expected="traces of PyTorch or JAX (JSON), or exports of Nsight Systems (SQLite)",
    )


def _is_trace(path: Path) -> bool:
    return path.is_file() and (is_sqlite(path) or is_trace(path))
