"""Chakra execution traces as an execution graph."""

import os
import re
from collections.abc import Sequence
from pathlib import Path

from jaxperf.errors import TraceError
from jaxperf.graph import ExecutionGraph
from jaxperf.interchange.chakra._foreign import foreign_graph
from jaxperf.interchange.chakra._own import own_graph
from jaxperf.interchange.chakra._schema import ChakraFile, read_chakra_file

_RANK = re.compile(r"\.(\d+)\.et$")


def read_chakra(
    paths: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
) -> ExecutionGraph:
    """Read Chakra execution traces, one file per rank, as a graph that `replay_graph` takes.

    Files of `write_chakra` give back the graph that was written, without the rows of its traces.
    Of other files collectives meet by process group, operation and order; a node runs when what it
    depends on has ended, and, where it names a stream or thread, when that is free.

    Args:
        paths: the files, or a folder that holds them. A name ends in `.<rank>.et`.

    Returns:
        The graph of all ranks.

    Raises:
        TraceError: a file cannot be read or is damaged; nodes depend on what is not there or on
            each other in a cycle; or files of ranks are missing.

    Example:
        >>> import tempfile
        >>> from jaxperf.interchange import write_chakra
        >>> from jaxperf.simulator import SimulatedJob, simulate, write_traces
        >>> from jaxperf.trace import read_run
        >>> from jaxperf.graph import build_graph
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     run = read_run(write_traces(simulate(SimulatedJob(layers=1)), folder))
        ...     written = build_graph(run)
        ...     read = read_chakra(write_chakra(written, folder))
        >>> bool((read.duration_ns.sum() == written.duration_ns.sum()))
        True
    """
    by_rank: dict[int, ChakraFile] = {}
    for place, path in enumerate(_files(paths)):
        file = read_chakra_file(path)
        rank = _rank(file, place)
        if rank in by_rank:
            raise TraceError(
                "two files of one rank",
                where=file.path,
                got=f"rank {rank}, of which {by_rank[rank].path} is too",
                expected="one file for each rank",
                remedy="give the files of one run alone",
            )
        by_rank[rank] = file
    files = dict(sorted(by_rank.items()))
    own = [("jaxperf_format" in file.attributes) for file in files.values()]
    if all(own):
        return own_graph(files)
    if any(own):
        raise TraceError(
            "files of different tools",
            where=next(f.path for f in files.values() if "jaxperf_format" not in f.attributes),
            got="some written by jaxperf, some not",
            remedy="give the files of one run alone",
        )
    return foreign_graph(files)


def _files(paths: str | os.PathLike[str] | Sequence[str | os.PathLike[str]]) -> list[Path]:
    given = [paths] if isinstance(paths, str | os.PathLike) else list(paths)
    found: list[Path] = []
    for path in map(Path, given):
        found += sorted(path.glob("*.et")) if path.is_dir() else [path]
    if not found:
        raise TraceError(
            "no Chakra execution trace",
            where=", ".join(map(str, given)) or "paths",
            expected="files whose names end in .<rank>.et",
        )
    return found


def _rank(file: ChakraFile, place: int) -> int:
    said = file.attributes.get("jaxperf_rank")
    if isinstance(said, int):
        return said
    named = _RANK.search(Path(file.path).name)
    return int(named[1]) if named else place
