"""Tables: of a graph of five tasks whose values are worked out by hand."""

import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest

from jaxperf.errors import ConfigError, OutputError
from jaxperf.graph import (
    DependencyKind,
    ExecutionGraph,
    GraphLane,
    Step,
    TaskClass,
    TaskKind,
    build_graph,
)
from jaxperf.interchange import dependency_table, export, step_table, task_table, write_tables
from jaxperf.replay import replay_graph
from jaxperf.trace import read_run
from tests.helpers import make_graph


@pytest.fixture
def five() -> ExecutionGraph:
    """A host launches a gemm (10 us) and an all-reduce (8 us) on another stream, then a copy.

    Replayed: launch 0-2, second launch 2-4, gemm 3-13 (1 us after its launch ended), all-reduce
    5-13 (1 us after its own), copy 13-15 (after both).
    """
    graph = make_graph(
        [2_000, 2_000, 10_000, 8_000, 2_000],
        [(0, 1), (0, 2, 1_000), (1, 3, 1_000), (2, 4), (3, 4)],
        release_ns={0: 0},
        lane=[0, 0, 1, 2, 1],
        steps=[(0, 4)],
        task_class=[
            *(TaskClass.LAUNCH, TaskClass.LAUNCH, TaskClass.GEMM),
            *(TaskClass.COMMUNICATION, TaskClass.MEMCPY),
        ],
        dependency=[
            *(DependencyKind.THREAD_ORDER, DependencyKind.LAUNCH, DependencyKind.LAUNCH),
            *(DependencyKind.STREAM_ORDER, DependencyKind.EVENT_WAIT),
        ],
    )
    kinds = ("HOST_CALL", "HOST_CALL", "KERNEL", "COLLECTIVE", "MEMCPY")
    return replace(
        graph,
        names=("launch", "gemm", "allreduce", "copy"),
        name=np.array([0, 0, 1, 2, 3], np.int32),
        lanes=(
            GraphLane(0, "thread 1", -1, -1),
            GraphLane(0, "GPU 0 stream 7", 0, 7),
            GraphLane(0, "GPU 0 stream 20", 0, 20),
        ),
        kind=np.array([TaskKind[kind] for kind in kinds], np.int8),
        step=np.array([0, 0, 0, 0, -1], np.int32),
        start_ns=np.array([0, 2_000, 3_100, 5_000, 13_000]),
        end_ns=np.array([2_000, 4_000, 13_100, 13_000, 15_000]),
        steps=(Step("ProfilerStep#1", 0, 0, 4, 0, 15_000),),
    )


def _missing(table, name) -> list:
    column = table.columns[name]
    return [False] * len(column.values) if column.missing is None else column.missing.tolist()


def _words(table, name):
    column = table.columns[name]
    gaps = _missing(table, name)
    return [None if gap else column.words[i] for i, gap in zip(column.values, gaps, strict=True)]


def test_a_task_is_a_row_with_its_lane_kind_and_times(five):
    table = task_table(five, replay_graph(five))
    assert table.rows == 5
    assert _words(table, "name") == ["launch", "launch", "gemm", "allreduce", "copy"]
    assert _words(table, "class")[2:] == ["gemm", "communication", "memcpy"]
    assert _words(table, "kind")[1:3] == ["host_call", "kernel"]
    assert _words(table, "lane")[2] == "GPU 0 stream 7"
    assert table.columns["measured_start_ns"].values.tolist() == [0, 2_000, 3_100, 5_000, 13_000]
    assert table.columns["replayed_start_us"].values.tolist() == [0, 2, 3, 5, 13]
    assert table.columns["replayed_end_us"].values.tolist() == [2, 4, 13, 13, 15]
    assert _words(table, "step") == ["ProfilerStep#1"] * 4 + [None]


def test_what_is_not_known_is_missing_and_never_zero(five):
    table = task_table(five)
    assert _missing(table, "stream") == [True, True, False, False, False]
    assert _missing(table, "device") == [True, True, False, False, False]
    assert _missing(table, "release_ns") == [False, True, True, True, True]
    assert all(_missing(table, "arrival"))
    assert np.isnan(table.columns["sm_share"].values).all()
    assert "replayed_start_us" not in table.columns
    unmeasured = replace(five, start_ns=five.start_ns * 0, end_ns=five.end_ns * 0)
    assert all(_missing(task_table(unmeasured), "measured_start_ns"))


def test_a_dependency_is_a_row_with_its_reason_and_lag(five):
    table = dependency_table(five)
    assert table.columns["source"].values.tolist() == [0, 0, 1, 2, 3]
    assert table.columns["target"].values.tolist() == [1, 2, 3, 4, 4]
    assert table.columns["lag_ns"].values.tolist() == [0, 1_000, 1_000, 0, 0]
    assert _words(table, "kind")[-2:] == ["stream_order", "event_wait"]


def test_a_step_is_a_row_of_its_rank(five):
    table = step_table(five, replay_graph(five))
    assert _words(table, "step") == ["ProfilerStep#1"]
    assert table.columns["measured_end_ns"].values.tolist() == [15_000]
    assert table.columns["replayed_end_us"].values.tolist() == [15.0]
    assert step_table(replace(five, steps=())).rows == 0


def test_the_traces_tell_correlation_bytes_and_shapes(traces):
    run = read_run(traces)
    graph = build_graph(run)
    table = task_table(graph, run=run)
    correlation = table.columns["correlation"]
    kernel = int(np.flatnonzero(graph.kind == TaskKind.KERNEL)[0])
    trace = run.traces[graph.trace[kernel]]
    assert correlation.values[kernel] == trace.correlation[graph.event[kernel]]
    assert np.array(_missing(table, "correlation"))[graph.event < 0].all()
    shapes = _words(table, "shapes")
    assert shapes[kernel] == trace.shapes[trace.shape[graph.event[kernel]]]


def test_pandas_sums_durations_by_class_and_finds_exposed_communication(five):
    pytest.importorskip("pandas")
    frame = task_table(five, replay_graph(five)).to_pandas()
    by_class = frame.groupby("class", observed=True)["duration_ns"].sum()
    assert by_class.to_dict() == {
        **{"launch": 4_000, "gemm": 10_000},
        **{"communication": 8_000, "memcpy": 2_000},
    }
    assert frame["duration_ns"].dtype == np.int64
    assert str(frame["stream"].dtype) == "Int64"
    assert frame["stream"].isna().tolist() == [True, True, False, False, False]
    joined = dependency_table(five).to_pandas().merge(frame, left_on="source", right_on="task")
    assert joined.loc[joined["target"] == 4, "name"].tolist() == ["gemm", "allreduce"]


def test_arrow_has_nulls_and_dictionaries(five):
    arrow = pytest.importorskip("pyarrow")
    table = task_table(five, replay_graph(five)).to_arrow()
    assert table["stream"].null_count == 2
    assert table["sm_share"].null_count == 5
    assert table["measured_start_ns"].type == arrow.int64()
    assert arrow.types.is_dictionary(table["class"].type)
    assert table["step"].to_pylist() == ["ProfilerStep#1"] * 4 + [None]
    assert arrow.table(dependency_table(five))["lag_ns"].to_pylist() == [0, 1_000, 1_000, 0, 0]
    assert (
        task_table(replace(five, steps=(), step=five.step * 0 - 1)).to_arrow()["step"].null_count
        == 5
    )


def test_files_are_written_whole_and_not_over_others(five, tmp_path):
    parquet = pytest.importorskip("pyarrow.parquet")
    paths = write_tables(five, replay_graph(five), tmp_path / "new")
    assert [path.name for path in paths] == [
        *("tasks.parquet", "dependencies.parquet", "steps.parquet"),
    ]
    tasks = parquet.read_table(paths[0])
    assert tasks["name"].to_pylist() == ["launch", "launch", "gemm", "allreduce", "copy"]
    assert tasks["stream"].null_count == 2
    with pytest.raises(OutputError, match="exists already"):
        write_tables(five, None, tmp_path / "new")
    write_tables(five, None, tmp_path / "new", overwrite=True)
    assert "replayed_start_us" not in parquet.read_table(paths[0]).column_names
    with pytest.raises(OutputError, match="does not exist"):
        write_tables(five, None, tmp_path / "no" / "such")


@pytest.mark.parametrize(
    ("package", "extra", "verb"),
    [("pandas", "pandas", "to_pandas"), ("pyarrow", "arrow", "to_arrow")],
)
def test_a_package_that_is_missing_is_named_with_its_extra(package, extra, verb, five, monkeypatch):
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(ConfigError, match=rf"{package} is not installed.*jaxperf\[{extra}\]"):
        getattr(task_table(five), verb)()


def test_tables_are_refused_before_anything_is_read_where_they_cannot_be_written(monkeypatch):
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(ConfigError, match="pyarrow is not installed"):
        export("absent", tables="tables")
    with pytest.raises(ConfigError, match="expected --tables, --chakra or both"):
        export("absent")


def test_the_package_loads_neither_jax_nor_pandas_nor_pyarrow():
    code = (
        "import sys, jaxperf.graph, jaxperf.interchange._tables, jaxperf.interchange.chakra._read;"
        "print([m for m in ('pandas', 'pyarrow', 'jax') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
