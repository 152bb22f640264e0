"""The verb: a run, written for other tools."""

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from jaxperf.errors import ConfigError
from jaxperf.graph import KERNEL_CLASSES, KernelClasses, build_graph
from jaxperf.interchange._tables import load_arrow, write_tables
from jaxperf.interchange.chakra import write_chakra
from jaxperf.replay import replay_graph, replay_notes
from jaxperf.trace import Note, read_run

_EITHER = "--tables, --chakra or both (in Python tables, chakra)"


@dataclass(frozen=True, slots=True)
class Export:
    """What was written of a run.

    Attributes:
        ranks: of the run.
        tasks: how many the execution graph has.
        dependencies: between them.
        files: that were written.
        notes: everything that was repaired, guessed or set aside.
    """

    ranks: tuple[int, ...]
    tasks: int
    dependencies: int
    files: tuple[str, ...]
    notes: tuple[Note, ...]


def export(
    paths: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
    *,
    tables: str | os.PathLike[str] | None = None,
    chakra: str | os.PathLike[str] | None = None,
    classes: KernelClasses | str | os.PathLike[str] = KERNEL_CLASSES,
    overwrite: bool = False,
    progress: Callable[[int, int], None] | None = None,
) -> Export:
    """Write a run for other tools: as tables, as Chakra execution traces, or both.

    Args:
        paths: a trace file, a folder of one run's traces, or several of either.
        tables: a folder for Parquet files of tasks, with their replayed times, dependencies and
            steps; see `write_tables`.
        chakra: a folder for one Chakra trace per rank; see `write_chakra`.
        classes: which class a kernel belongs to; see `build_graph`.
        overwrite: replace files that are there.
        progress: called with the number of files read so far, and of all files.

    Returns:
        What was written.

    Raises:
        ConfigError: neither is asked for, or pyarrow is not installed.
        OutputError: a file exists, or cannot be written.
        TraceError: the paths hold no trace that can be read.
        GraphError: the traces hold nothing that can be replayed.

    Example:
        >>> import tempfile
        >>> from jaxperf.simulator import SimulatedJob, simulate, write_traces
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     paths = write_traces(simulate(SimulatedJob(layers=1)), folder)
        ...     [os.path.basename(file) for file in export(paths, chakra=folder).files]
        ['trace.0.et']
    """
    if tables is None and chakra is None:
        raise ConfigError("nothing to write", where="export", expected=_EITHER)
    if tables is not None:
        load_arrow()
    run = read_run(paths, progress=progress)
    graph = build_graph(run, classes=classes)
    files = []
    if tables is not None:
        files += write_tables(graph, replay_graph(graph), tables, run, overwrite)
    if chakra is not None:
        files += write_chakra(graph, chakra, run=run, overwrite=overwrite)
    return Export(
        ranks=graph.ranks,
        tasks=graph.tasks,
        dependencies=len(graph.source),
        files=tuple(map(str, files)),
        notes=(*graph.notes, *replay_notes(run, graph)),
    )
