"""Exports of Nsight Systems: the same run as the Kineto trace it was made of, and hostile files."""

import gzip
import sqlite3
from functools import cache

import numpy as np
import pytest

from jaxperf.errors import TraceError
from jaxperf.graph import DependencyKind, build_graph
from jaxperf.simulator import SimulatedJob, simulate, write_traces
from jaxperf.trace import MISSING, Category, read_file, read_run
from tests.graph.asked import replayed
from tests.scenarios import SCENARIOS
from tests.trace.nsight_files import NsightFile, global_id, write_nsight
from tests.trace.written import codes, names

PHENOMENA = ["several_waits", "event_reused", "event_synchronize", "graph_launch", "hand_over"]
SAME = ("duration_ns", "start_ns", "kind", "task_class", "step", "lane", "order")
EDGES = ("source", "target", "lag_ns", "from_start", "dependency")
WHAT_IF_PERCENT = 0.5  # as in tests/graph/test_scenarios.py
PID, TID = 4321, 4325


@pytest.fixture(scope="module")
def kineto(tmp_path_factory):
    @cache
    def paths(name: str):
        return SCENARIOS[name].write(tmp_path_factory.mktemp(name))

    return paths


def assert_same_graph(found, expected):
    """The same tasks at the same times to the nanosecond, bound in the same way."""
    for column in SAME + EDGES:
        assert np.array_equal(getattr(found, column), getattr(expected, column)), column
    assert [step.name for step in found.steps] == [step.name for step in expected.steps]


def one_export(folder, fill, name="report.sqlite"):
    """The one trace of an export that `fill` writes."""
    with NsightFile(folder / name) as file:
        fill(file)
    (trace,) = read_file(folder / name)
    return trace


def launch(file, correlation, start, *, pid=PID, kernel="k", device=0, stream=7, call="cuLaunch"):
    """A call, and the kernel that it launched 10 ns later."""
    file.add(
        "CUPTI_ACTIVITY_KIND_RUNTIME", start=start, end=start + 5, globalTid=global_id(pid, TID),
        correlationId=correlation, nameId=file.string(call),
    )  # fmt: skip
    number = file.string(kernel)
    file.add(
        "CUPTI_ACTIVITY_KIND_KERNEL", start=start + 10, end=start + 20, deviceId=device,
        streamId=stream, correlationId=correlation, globalPid=global_id(pid), shortName=number,
        demangledName=number, gridX=4, gridY=2, gridZ=1, blockX=128, blockY=1, blockZ=1,
    )  # fmt: skip


def push(file, text, start, end, kind=59, **values):
    """An NVTX range."""
    given = {"globalTid": global_id(PID, TID), "eventType": kind} | values
    file.add("NVTX_EVENTS", start=start, end=end, text=text, **given)


# The same run ------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", PHENOMENA)
def test_an_export_is_the_same_run_as_the_kineto_trace(kineto, tmp_path, name):
    export = write_nsight(kineto(name), tmp_path / "report.sqlite")
    found = build_graph(read_run(export))
    assert_same_graph(found, build_graph(read_run(kineto(name)[0])))
    assert replayed(found).steps_us == pytest.approx(SCENARIOS[name].run().steps_us, rel=1e-3)


@pytest.mark.parametrize("name", ["several_waits", "graph_launch"])
def test_an_export_answers_what_the_changed_run_takes(kineto, tmp_path, name):
    graph = build_graph(read_run(write_nsight(kineto(name), tmp_path / "report.sqlite")))
    for change in SCENARIOS[name].changes:
        right = SCENARIOS[name].run(change).steps_us
        answer = replayed(graph, change).steps_us
        assert answer == pytest.approx(right, rel=WHAT_IF_PERCENT / 100), change


def test_records_without_numbers_are_told_by_the_order_of_the_calls(kineto, tmp_path):
    (path,) = kineto("event_reused")
    export = write_nsight([path], tmp_path / "report.sqlite", event_numbers=False)
    assert_same_graph(build_graph(read_run(export)), build_graph(read_run(path)))


def test_waits_without_records_are_inferred_from_the_calls(kineto, tmp_path):
    (path,) = kineto("several_waits")
    without = ["CUPTI_ACTIVITY_KIND_CUDA_EVENT"]
    run = read_run(write_nsight([path], tmp_path / "report.sqlite", without=without))
    assert "event-records-missing" in codes(run.traces[0])
    graph = build_graph(run)
    assert (graph.dependency == DependencyKind.EVENT_WAIT).sum() > 0
    for change in SCENARIOS["several_waits"].changes:
        right = SCENARIOS["several_waits"].run(change).steps_us
        assert replayed(graph, change).steps_us == pytest.approx(right, rel=0.01), change


@pytest.fixture(scope="module")
def two_ranks(tmp_path_factory):
    job = SimulatedJob(data_parallel=2, layers=2, steps=3, clock_spread_us=0.0)
    return write_traces(simulate(job, seed=5), tmp_path_factory.mktemp("two"))


@pytest.mark.parametrize("files", ["one", "numbered"])
def test_two_ranks_wait_for_each_other_as_in_the_kineto_traces(two_ranks, tmp_path, files):
    if files == "one":
        write_nsight(two_ranks, tmp_path / "node.sqlite")
    else:
        for number, path in enumerate(two_ranks):
            write_nsight([path], tmp_path / f"report_{number}.sqlite")
    run = read_run(tmp_path)
    assert [trace.rank for trace in run.traces] == [0, 1]
    assert {"one": "ranks-in-one-file", "numbered": "ranks-from-order"}[files] in {
        note.code for note in (*run.notes, *run.traces[0].notes)
    }
    found, expected = build_graph(run), build_graph(read_run(list(two_ranks)))
    assert_same_graph(found, expected)
    assert np.array_equal(found.arrival, expected.arrival)
    assert (found.arrival >= 0).sum() > 0


# What rows mean ----------------------------------------------------------------------------------


def test_calls_copies_and_kernels_have_the_names_of_kineto(tmp_path):
    def fill(file):
        launch(file, 1, 100, kernel="void gemm<float>(int)", call="cudaLaunchKernel_ptsz_v7000")
        launch(file, 2, 200, call="cuLaunchKernelEx")
        place = {"globalPid": global_id(PID), "streamId": 7, "deviceId": 0}
        file.add(
            "CUPTI_ACTIVITY_KIND_MEMCPY", **place, start=300, end=310, correlationId=3,
            bytes=4096, copyKind=2, srcKind=2, dstKind=0,
        )  # fmt: skip
        file.add("CUPTI_ACTIVITY_KIND_MEMSET", **place, start=320, end=330, bytes=64, memKind=2)
        file.add("TARGET_INFO_GPU", id=0, name="NVIDIA H100 80GB HBM3", smCount=132)

    trace = one_export(tmp_path, fill)
    assert names(trace) == [
        "cudaLaunchKernel",
        "void gemm<float>(int)",
        "cuLaunchKernelEx",
        "k",
        "Memcpy DtoH (Device -> Pageable)",
        "Memset (Device)",
    ]
    assert trace.category.tolist() == [
        Category.RUNTIME,
        Category.KERNEL,
        Category.DRIVER,
        Category.KERNEL,
        Category.MEMCPY,
        Category.MEMSET,
    ]
    assert trace.correlation.tolist() == [1, 1, 2, 2, 3, MISSING]
    assert trace.bytes[-2:].tolist() == [4096, 64]
    assert trace.shapes[trace.shape[1]] == "[[4, 2, 1], [128, 1, 1]]"
    assert trace.blocks_per_sm[1] == pytest.approx(8 / 132)
    assert trace.device_name == "NVIDIA H100 80GB HBM3"
    assert [lane.name for lane in trace.lanes] == [f"thread {TID}", "GPU 0 stream 7"]


def test_whole_graphs_are_one_piece_of_work_each(tmp_path):
    def fill(file):
        launch(file, 1, 100)
        for number in (2, 3):
            file.add(
                "CUPTI_ACTIVITY_KIND_GRAPH_TRACE", start=100 * number, end=100 * number + 50,
                streamId=7, correlationId=number, globalPid=global_id(PID), graphId=5,
            )  # fmt: skip

    trace = one_export(tmp_path, fill)
    assert names(trace)[-2:] == ["CUDA graph 5"] * 2
    assert trace.duration_ns[-2:].tolist() == [50, 50]
    assert "graphs-as-one" in codes(trace)


def test_ranges_of_emit_nvtx_are_operators_with_their_inputs(tmp_path):
    def fill(file):
        launch(file, 1, 100)
        sizes = "sizes = [[2, 3], [3, 4], []]"
        push(file, f"aten::mm, seq = 12, op_id = 40, {sizes}, input_op_ids = [(1,0)]", 90, 130)
        push(file, "AddBackward0, op_id = 41, sizes = [[2, 3], [3", 140, 150)
        push(file, "forward, backward", 160, 170)
        push(file, None, 180, 190, textId=file.string("registered"))

    trace = one_export(tmp_path, fill)
    found = dict(zip(names(trace), range(trace.events), strict=True))
    row = found["aten::mm"]
    assert trace.category[row] == Category.CPU_OP
    assert trace.sequence[row] == 12
    assert trace.shapes[trace.shape[row]] == "[[2, 3], [3, 4], []]"
    row = found["AddBackward0"]
    assert (trace.category[row], trace.shape[row]) == (Category.CPU_OP, -1)
    for name in ("forward, backward", "registered"):
        assert trace.category[found[name]] == Category.ANNOTATION


@pytest.mark.parametrize("text", ["iteration {}", "Step_{}", "train step {}", "iter{}", "step: {}"])
def test_ranges_with_a_growing_number_are_the_steps(tmp_path, text):
    def fill(file):
        for number in range(3):
            launch(file, number + 1, 1000 * number + 10)
            push(file, text.format(number + 7), 1000 * number, 1000 * number + 900)

    trace = one_export(tmp_path, fill)
    steps = [name for name in names(trace) if name.startswith("ProfilerStep#")]
    assert steps == ["ProfilerStep#7", "ProfilerStep#8", "ProfilerStep#9"]
    assert "steps-from-ranges" in codes(trace)


def test_of_steps_inside_steps_the_outer_ones_count(tmp_path):
    def fill(file):
        launch(file, 1, 5)
        for number in range(2):
            push(file, f"iteration {number}", 1000 * number, 1000 * number + 900)
            for inner in range(2):
                begin = 1000 * number + 100 * inner
                push(file, f"step {2 * number + inner}", begin, begin + 80)

    found = names(one_export(tmp_path, fill))
    assert [n for n in found if n.startswith("ProfilerStep")] == [
        "ProfilerStep#0",
        "ProfilerStep#1",
    ]
    assert "step 3" in found


@pytest.mark.parametrize(
    "texts",
    [["step 1", "step 1"], ["step 2", "step 1"], ["layer 1", "layer 2"], ["step", "step"]],
    ids=["repeated", "falling", "other_word", "no_number"],
)
def test_other_ranges_are_no_steps(tmp_path, texts):
    def fill(file):
        launch(file, 1, 5)
        for number, text in enumerate(texts):
            push(file, text, 1000 * number, 1000 * number + 900)

    assert "steps-from-ranges" not in codes(one_export(tmp_path, fill))


def test_ranges_that_are_started_and_ended_do_not_nest(tmp_path):
    def fill(file):
        launch(file, 1, 5)
        push(file, "request", 0, 100, kind=60, endGlobalTid=global_id(PID, 9))
        push(file, "mark", 50, None, kind=34)

    trace = one_export(tmp_path, fill)
    assert trace.category[names(trace).index("request")] == Category.OTHER
    assert "mark" not in names(trace)


def test_times_count_from_1970(tmp_path):
    def fill(file):
        file.add("TARGET_INFO_SESSION_START_TIME", utcEpochNs=1_700_000_000 * 10**9)
        launch(file, 1, 250)

    assert one_export(tmp_path, fill).origin_ns == 1_700_000_000 * 10**9 + 250


# Ranks -------------------------------------------------------------------------------------------


def test_processes_are_ranks_in_order_of_their_gpus(tmp_path):
    with NsightFile(tmp_path / "node.sqlite") as file:
        for process, gpu in ((100, 1), (200, 0)):
            launch(file, 1, process, pid=process)
            file.add("TARGET_INFO_CUDA_DEVICE", gpuId=gpu, cudaId=0, pid=process)
        push(file, "loader", 0, 10, globalTid=global_id(300, 300))
    traces = read_file(tmp_path / "node.sqlite")
    assert [trace.origin_ns for trace in traces] == [200, 100]
    assert [trace.correlation.tolist() for trace in traces] == [[1, 1]] * 2
    assert codes(traces[0]) == {"ranks-in-one-file", "processes-left-out"}


def test_mpi_tells_the_ranks(tmp_path):
    with NsightFile(tmp_path / "node.sqlite") as file:
        for process, rank in ((100, 5), (200, 4)):
            launch(file, 1, process, pid=process)
            file.add("MPI_RANKS", globalTid=global_id(process, process), rank=rank)
    ranks = {trace.rank: trace.origin_ns for trace in read_file(tmp_path / "node.sqlite")}
    assert ranks == {4: 200, 5: 100}


def test_files_of_several_processes_follow_each_other(tmp_path):
    for node in (0, 1):
        with NsightFile(tmp_path / f"node{node}.sqlite") as file:
            for process in (100, 200):
                launch(file, 1, 1000 * node + process, pid=process)
    traces = read_run(tmp_path).traces
    assert {t.rank: t.origin_ns for t in traces} == {0: 100, 1: 200, 2: 1100, 3: 1200}


def test_a_name_tells_the_rank_and_repeated_captures_are_no_ranks(tmp_path):
    assert one_export(tmp_path, lambda file: launch(file, 1, 9), "rank3.sqlite").rank == 3
    folder = tmp_path / "repeated"
    folder.mkdir()
    for number in (1, 2):  # as nsys numbers one capture after the other
        one_export(folder, lambda file: launch(file, 1, 9), f"report{number}.sqlite")
    with pytest.raises(TraceError, match="two files of rank 0"):
        read_run(folder)


# Missing and hostile -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "table", ["StringIds", "CUPTI_ACTIVITY_KIND_RUNTIME", "CUPTI_ACTIVITY_KIND_KERNEL"]
)
def test_a_missing_table_is_missing_data(kineto, tmp_path, table):
    run = read_run(write_nsight(kineto("gpt_step"), tmp_path / "r.sqlite", without=[table]))
    (note,) = [note for note in run.traces[0].notes if note.code == "table-missing"]
    assert table in note.text
    assert build_graph(run).tasks > 0


def test_a_database_of_another_program_is_set_aside(tmp_path):
    with sqlite3.connect(tmp_path / "mlflow.db") as connection:
        connection.execute("CREATE TABLE runs (id INTEGER)")
    with pytest.raises(TraceError, match=r"another program; got tables runs; expected .*nsys"):
        read_run(tmp_path / "mlflow.db")
    one_export(tmp_path, lambda file: launch(file, 1, 9))
    (aside,) = read_run(tmp_path).set_aside
    assert aside.reason == "an SQLite file of another program"


def test_a_report_is_named_with_the_command_that_exports_it(tmp_path):
    (tmp_path / "run.nsys-rep").write_bytes(b"\0\1binary" * 99)
    with pytest.raises(TraceError, match="a report of Nsight Systems.*nsys export --type sqlite"):
        read_run(tmp_path / "run.nsys-rep")


def test_a_compressed_export_is_to_be_unpacked(tmp_path):
    one_export(tmp_path, lambda file: launch(file, 1, 9))
    packed = tmp_path / "report.sqlite.gz"
    packed.write_bytes(gzip.compress((tmp_path / "report.sqlite").read_bytes()))
    with pytest.raises(TraceError, match="a compressed SQLite file, which must be unpacked"):
        read_file(packed)


def test_an_export_without_events_is_no_trace(tmp_path):
    with NsightFile(tmp_path / "empty.sqlite") as file:
        for table in ("CUPTI_ACTIVITY_KIND_KERNEL", "NVTX_EVENTS"):
            file.create(table)
    with pytest.raises(TraceError, match="without events of CUDA or NVTX.*nsys profile"):
        read_file(tmp_path / "empty.sqlite")


def test_a_damaged_file_ends_in_one_line_or_is_read(kineto, tmp_path):
    """Bytes changed all over the file, and the file cut short: nothing else may come of it."""
    export = write_nsight(kineto("several_waits"), tmp_path / "whole.sqlite")
    whole = export.read_bytes()
    damaged = tmp_path / "damaged.sqlite"
    random = np.random.default_rng(8)
    refused = 0
    for attempt in range(60):
        data = bytearray(whole)
        if attempt % 3 == 0:
            data = data[: int(random.integers(16, len(data)))]
        else:
            for place in random.integers(16, len(data), 200 if attempt % 3 == 1 else 3):
                data[place] = int(random.integers(256))
        damaged.write_bytes(data)
        try:
            read_file(damaged)
        except TraceError as error:
            refused += "damaged SQLite file" in error.what
            assert "\n" not in str(error)
    assert refused > 20


def test_a_damaged_file_says_where_and_what_to_do(kineto, tmp_path):
    data = write_nsight(kineto("several_waits"), tmp_path / "whole.sqlite").read_bytes()
    (tmp_path / "cut.sqlite").write_bytes(data[: len(data) // 2])
    expected = r"cut.sqlite.*: a damaged SQLite file; got .*malformed.*; expected a whole export"
    with pytest.raises(TraceError, match=expected + ".*export it again: nsys export"):
        read_file(tmp_path / "cut.sqlite")


def test_wrong_types_and_nulls_are_missing_values(tmp_path):
    def fill(file):
        launch(file, 1, 100)
        connection = file.connection
        connection.execute("DROP TABLE CUPTI_ACTIVITY_KIND_KERNEL")
        connection.execute(
            'CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL ("start", "end", deviceId, streamId, '
            "correlationId, globalPid, demangledName)"
        )
        rows = [
            (110, 120, 0, 7, 1, global_id(PID), 2),
            ("late", 120, 0, 7, 1, global_id(PID), 2),
            (None, None, None, None, None, None, None),
            (130, b"\0", 0, 7, 1, global_id(PID), "name"),
            (150, 140, -3, 2**40, -1, global_id(PID), 2**63 - 1),
            (2**62 + 5, 5, 0, 7, 1, global_id(PID), 2),
        ]
        connection.executemany(
            "INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES (?, ?, ?, ?, ?, ?, ?)", rows
        )

    trace = one_export(tmp_path, fill)
    kernels = trace.category == Category.KERNEL
    assert trace.start_ns[kernels].tolist() == [10, 30, 50]
    assert trace.duration_ns[kernels].tolist() == [10, 0, 0]
    assert {"missing-time", "missing-duration", "negative-duration"} <= codes(trace)


def test_huge_and_broken_texts_are_read(tmp_path):
    def fill(file):
        launch(file, 1, 100, kernel="x" * (1 << 20))
        file.connection.execute("UPDATE StringIds SET value = CAST(x'ff41' AS TEXT) WHERE id = 1")

    trace = one_export(tmp_path, fill)
    assert names(trace) == ["\ufffdA", "x" * (1 << 16)]


def test_views_triggers_and_generated_columns_are_not_run(tmp_path):
    def fill(file):
        launch(file, 1, 100)
        endless = "WITH RECURSIVE r(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM r)"
        file.connection.execute(
            f"CREATE VIEW NVTX_EVENTS AS {endless} SELECT x AS start, x AS end, 59 AS eventType "
            "FROM r"
        )
        file.connection.execute(
            "ALTER TABLE CUPTI_ACTIVITY_KIND_KERNEL ADD COLUMN mangledSize INTEGER "
            "GENERATED ALWAYS AS (length(zeroblob(1000000000))) VIRTUAL"
        )
        file.connection.execute(
            "CREATE TRIGGER t AFTER INSERT ON StringIds BEGIN DELETE FROM StringIds; END"
        )

    assert one_export(tmp_path, fill).events == 2


def test_nothing_is_written_and_a_read_only_file_is_read(tmp_path):
    one_export(tmp_path, lambda file: launch(file, 1, 9))
    path = tmp_path / "report.sqlite"
    with sqlite3.connect(path) as connection:
        connection.execute("PRAGMA journal_mode=WAL")
    connection.close()
    before = path.read_bytes()
    path.chmod(0o400)
    tmp_path.chmod(0o500)
    try:
        assert len(read_file(path)) == 1
    finally:
        tmp_path.chmod(0o700)
    assert [entry.name for entry in tmp_path.iterdir()] == ["report.sqlite"]
    assert path.read_bytes() == before


def test_names_with_question_marks_and_hashes_are_only_names(tmp_path):
    trace = one_export(tmp_path, lambda file: launch(file, 1, 9), "a?mode=rwc#b %41.sqlite")
    assert trace.events == 2
