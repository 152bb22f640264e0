"""Tables of tasks, dependencies and steps: columns that name their unit, for pandas and Arrow.

Times of a trace are int64 nanoseconds and stay so; replayed times are float64 microseconds. A value
that is not known is null, never 0.
"""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from jaxperf._files import check_new_file, new_file
from jaxperf.errors import ConfigError
from jaxperf.graph import DependencyKind, ExecutionGraph, TaskClass, TaskKind
from jaxperf.trace import MISSING, Run

if TYPE_CHECKING:
    from jaxperf.replay import Timeline


@dataclass(frozen=True, eq=False)
class Column:
    """One column of a table.

    Attributes:
        values: (n,) numbers or booleans; of text, int32 indices into `words`.
        missing: (n,) bool, where nothing is known; the value there means nothing. `None` where all
            is known, or where NaN says what is not.
        words: the table of texts, each once; `None` for numbers.
    """

    values: np.ndarray
    missing: np.ndarray | None = None
    words: tuple[str, ...] | None = None


@dataclass(frozen=True, eq=False)
class Table:
    """Columns of one length, in order; text is dictionary-encoded.

    Pandas, Polars, DuckDB and whatever else reads the Arrow PyCapsule protocol take it as it is.

    Attributes:
        name: such as `tasks`.
        columns: by name; a quantity's name ends in its unit.
    """

    name: str
    columns: Mapping[str, Column]

    @property
    def rows(self) -> int:
        """Number of rows."""
        return len(next(iter(self.columns.values())).values)

    def to_pandas(self) -> Any:
        """The table as a `pandas.DataFrame`: text categorical, integers with gaps `Int64`.

        Raises:
            ConfigError: pandas is not installed.

        Example:
            >>> frame = task_table(graph).to_pandas()  # doctest: +SKIP
            >>> frame.groupby("class", observed=True)["duration_ns"].sum()  # doctest: +SKIP
        """
        pandas = _pandas()

        def series(column: Column) -> Any:
            known = _known(column)
            if column.words is not None:
                codes = np.where(known, column.values, -1)
                return pandas.Categorical.from_codes(codes, list(column.words))
            if column.missing is None:
                return column.values
            return pandas.arrays.IntegerArray(column.values.astype(np.int64), ~known)

        return pandas.DataFrame(
            {name: series(column) for name, column in self.columns.items()}, copy=False
        )

    def to_arrow(self) -> Any:
        """The table as a `pyarrow.Table`: text dictionary-encoded, what is not known null.

        Raises:
            ConfigError: pyarrow is not installed.

        Example:
            >>> task_table(graph).to_arrow().column_names[:3]  # doctest: +SKIP
            ['task', 'rank', 'lane']
        """
        arrow = load_arrow()

        def array(column: Column) -> Any:
            values = arrow.array(column.values, mask=~_known(column))
            if column.words is None:
                return values
            return arrow.DictionaryArray.from_arrays(
                values, arrow.array(column.words, arrow.string())
            )

        arrays = {name: array(column) for name, column in self.columns.items()}
        return arrow.table(arrays).replace_schema_metadata({"jaxperf.table": self.name})

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        return self.to_arrow().__arrow_c_stream__(requested_schema)


def task_table(
    graph: ExecutionGraph, timeline: "Timeline | None" = None, run: Run | None = None
) -> Table:
    """One row per task of a graph.

    Args:
        graph: the execution graph.
        timeline: of a replay of it: adds `replayed_start_us` and `replayed_end_us`.
        run: the traces that it was built from: adds `correlation`, `bytes` and `shapes`.

    Returns:
        (tasks,) rows; docs/interchange.md says what each column is.

    Example:
        >>> import tempfile
        >>> from jaxperf.graph import build_graph
        >>> from jaxperf.simulator import SimulatedJob, simulate, write_traces
        >>> from jaxperf.trace import read_run
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     run = read_run(write_traces(simulate(SimulatedJob(layers=1)), folder))
        >>> columns = task_table(build_graph(run)).columns
        >>> gemm = columns["class"].words.index("gemm")
        >>> int(columns["duration_ns"].values[columns["class"].values == gemm].sum()) > 0
        True
    """
    device = np.array([lane.device for lane in graph.lanes], np.int64)[graph.lane]
    stream = np.array([lane.stream for lane in graph.lanes], np.int64)[graph.lane]
    untimed = None if _is_measured(graph) else np.ones(graph.tasks, bool)
    columns = {
        "task": Column(np.arange(graph.tasks)),
        "rank": Column(np.array(graph.ranks, np.int64)[graph.trace]),
        "lane": _text(graph.lane, [lane.name for lane in graph.lanes]),
        "device": _index(device),
        "stream": Column(stream, device < 0),
        "kind": _words_of(graph.kind, TaskKind),
        "class": _words_of(graph.task_class, TaskClass),
        "name": _text(graph.name, graph.names),
        "step": _text(graph.step, [step.name for step in graph.steps]),
        "duration_ns": Column(graph.duration_ns),
        "measured_start_ns": Column(graph.start_ns, untimed),
        "measured_end_ns": Column(graph.end_ns, untimed),
        "release_ns": Column(graph.release_ns, graph.release_ns == MISSING),
        "arrival": _index(graph.arrival),
        "sm_share": Column(graph.sm_share),
    }
    if timeline is not None:
        columns["replayed_start_us"] = Column(timeline.start_us)
        columns["replayed_end_us"] = Column(timeline.end_us)
    if run is not None:
        columns |= _of_events(graph, run)
    return Table("tasks", columns)


def dependency_table(graph: ExecutionGraph) -> Table:
    """One row per dependency of a graph: which task waits for which, why, and how long after.

    Args:
        graph: the execution graph.

    Returns:
        (dependencies,) rows; `source` and `target` are the `task` of `task_table`.

    Example:
        >>> table = dependency_table(graph)
        >>> [table.columns[name].values.tolist() for name in ("source", "target", "lag_ns")]
        [[0, 1], [1, 2], [4000, 1000]]
    """
    return Table(
        "dependencies",
        {
            "source": Column(graph.source.astype(np.int64)),
            "target": Column(graph.target.astype(np.int64)),
            "kind": _words_of(graph.dependency, DependencyKind),
            "from_start": Column(graph.from_start),
            "lag_ns": Column(graph.lag_ns),
            "unexplained_ns": Column(graph.unexplained_ns),
        },
    )


def step_table(graph: ExecutionGraph, timeline: "Timeline | None" = None) -> Table:
    """One row per iteration and rank.

    Args:
        graph: the execution graph.
        timeline: of a replay of it: adds `replayed_begin_us` and `replayed_end_us`.

    Returns:
        (steps,) rows.

    Example:
        >>> table = step_table(graph)
        >>> table.columns["end_task"].values.tolist()
        [2]
    """
    steps = graph.steps
    begin, end = (
        np.array([getattr(step, name) for step in steps], np.int64)
        for name in ("begin_task", "end_task")
    )
    untimed = None if _is_measured(graph) else np.ones(len(steps), bool)
    columns = {
        "rank": Column(np.array([step.rank for step in steps], np.int64)),
        "step": _text(np.arange(len(steps)), [step.name for step in steps]),
        "begin_task": Column(begin),
        "end_task": Column(end),
        "measured_begin_ns": Column(np.array([s.begin_ns for s in steps], np.int64), untimed),
        "measured_end_ns": Column(np.array([s.end_ns for s in steps], np.int64), untimed),
    }
    if timeline is not None:
        columns["replayed_begin_us"] = Column(timeline.start_us[begin])
        columns["replayed_end_us"] = Column(timeline.end_us[end])
    return Table("steps", columns)


def write_tables(
    graph: ExecutionGraph,
    timeline: "Timeline | None",
    folder: str | os.PathLike[str],
    run: Run | None = None,
    overwrite: bool = False,
) -> tuple[Path, ...]:
    """Write `tasks.parquet`, `dependencies.parquet` and `steps.parquet`.

    Args:
        graph: the execution graph.
        timeline: of a replay of it, `None` to leave the replayed times out.
        folder: where to write; it is made where it does not exist.
        run: see `task_table`.
        overwrite: replace files that are there.

    Returns:
        The files.

    Raises:
        ConfigError: pyarrow is not installed.
        OutputError: a file exists, or cannot be written.
    """
    load_arrow()
    import pyarrow.parquet as parquet

    target = make_folder(folder)
    tables = (
        task_table(graph, timeline, run),
        dependency_table(graph),
        step_table(graph, timeline),
    )
    paths = tuple(target / f"{table.name}.parquet" for table in tables)
    for path in paths:
        check_new_file(path, overwrite)
    for table, path in zip(tables, paths, strict=True):
        text: Any = [name for name, column in table.columns.items() if column.words is not None]
        with new_file(path, overwrite) as file:
            parquet.write_table(table.to_arrow(), file, compression="zstd", use_dictionary=text)
    return paths


def make_folder(folder: str | os.PathLike[str]) -> Path:
    """The folder, made where only it is missing; what is wrong with it `check_new_file` says."""
    target = Path(folder)
    if target.parent.is_dir() and not target.exists():
        target.mkdir()
    return target


def _known(column: Column) -> np.ndarray:
    """(n,) bool."""
    if column.missing is not None:
        return ~column.missing
    if np.issubdtype(column.values.dtype, np.floating):
        return ~np.isnan(column.values)
    return np.ones(len(column.values), bool)


def _index(values: np.ndarray) -> Column:
    return Column(values.astype(np.int64), values < 0)


def _text(codes: np.ndarray, words: Sequence[str]) -> Column:
    """A column of words; words that are there twice become one, as categories must be."""
    place: dict[str, int] = {}
    new = np.array([place.setdefault(word, len(place)) for word in words] or [0], np.int32)
    missing = codes < 0
    return Column(new[codes], missing if missing.any() else None, tuple(place))


def _words_of(codes: np.ndarray, kinds: Any) -> Column:
    return Column(codes.astype(np.int32), None, tuple(kind.name.lower() for kind in kinds))


def _is_measured(graph: ExecutionGraph) -> bool:
    """Whether the graph is of a recording: one that was worked out has no times but zero."""
    return bool(graph.end_ns.any() or graph.start_ns.any())


def _of_events(graph: ExecutionGraph, run: Run) -> dict[str, Column]:
    """What the traces say of the event of each task."""
    correlation = np.full(graph.tasks, MISSING)
    size = np.full(graph.tasks, MISSING)
    shape = np.full(graph.tasks, -1, np.int32)
    words: dict[str, int] = {}
    for index, trace in enumerate(run.traces):
        mine = np.flatnonzero((graph.trace == index) & (graph.event >= 0))
        event = graph.event[mine]
        correlation[mine] = trace.correlation[event]
        size[mine] = trace.bytes[event]
        codes = np.array([*(words.setdefault(s, len(words)) for s in trace.shapes), -1], np.int32)
        shape[mine] = codes[trace.shape[event]]
    return {
        "correlation": Column(correlation, (correlation == MISSING) | (correlation == -1)),
        "bytes": Column(size, size == MISSING),
        "shapes": _text(shape, tuple(words)),
    }


def _pandas() -> Any:
    try:
        import pandas
    except ImportError as error:
        raise _not_installed("pandas", "pandas") from error
    return pandas


def load_arrow() -> Any:
    """The package pyarrow.

    Raises:
        ConfigError: it is not installed.
    """
    try:
        import pyarrow
    except ImportError as error:
        raise _not_installed("pyarrow", "arrow") from error
    return pyarrow


def _not_installed(package: str, extra: str) -> ConfigError:
    return ConfigError(
        f"{package} is not installed",
        where="tables",
        remedy=f"install it with: pip install 'jaxperf[{extra}]'",
    )
