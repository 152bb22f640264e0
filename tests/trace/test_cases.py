"""The shared cases that are about reading, with their right values."""

import json

import numpy as np
import pytest

from jaxperf.errors import TraceError
from jaxperf.trace import Category, read_file, read_run
from tests.trace.written import DEVICE_WORK, busy_us, codes, names


def expected(shared, case):
    values = json.loads((shared / "cases" / case / "expected.json").read_text())["values"]
    return {value["name"]: value["value"] for value in values}


@pytest.mark.parametrize(
    ("file", "code"),
    [
        ("a_newline_and_control", "control-character"),
        ("b_backslash", "lone-backslash"),
        ("c_empty_value", "empty-value"),
        ("d_inner_quotes", "inner-quote"),
    ],
)
def test_malformed_text_is_read_and_noted_with_its_place(shared, file, code):
    right = expected(shared, "01-malformed-text")
    path = shared / "cases" / "01-malformed-text" / f"{file}.json"
    (trace,) = read_file(path)
    assert trace.events == 4
    assert trace.events >= right.get(f"{file[0]}.events", right["d.events_min"])
    assert busy_us(trace) == right["gpu_busy_each"]
    (note,) = trace.notes
    assert note.code == code
    event = path.read_bytes().index(b'{"ph": "X"', path.read_bytes().index(b'"aten::add"'))
    assert note.where == f"{path}, byte {event}"


def test_malformed_names_keep_their_characters(shared):
    folder = shared / "cases" / "01-malformed-text"
    read = {file[0]: names(read_file(folder / file)[0])[1] for file in
            ("a_newline_and_control.json", "b_backslash.json", "d_inner_quotes.json")}  # fmt: skip
    assert read == {
        "a": "lib.register(first,\nsecond)\x01: <module>",
        "b": r"pkg\cuda\_setup.py(31): _first_use",
        "d": 'lib.register("first", "IMPL"): <module>',
    }


@pytest.mark.parametrize("file", ["cut.json", "cut.json.gz", "missing_end.json"])
def test_truncated_files_are_read_as_far_as_they_go(shared, file):
    right = expected(shared, "02-truncated")
    (trace,) = read_file(shared / "cases" / "02-truncated" / file)
    assert trace.events == right[f"{file}.events"]
    assert busy_us(trace) == right[f"{file}.gpu_busy"]
    assert trace.truncated
    assert codes(trace) == {"truncated"}


def test_bare_array_has_operators_and_no_device(shared):
    right = expected(shared, "03-bare-array")
    (trace,) = read_file(shared / "cases" / "03-bare-array" / "legacy.json")
    assert trace.events == right["events"]
    assert trace.rank == 0
    assert codes(trace) == {"rank-assumed"}
    for name in ("aten::mul", "aten::add"):
        rows = np.array([n == name for n in names(trace)])
        assert trace.duration_ns[rows].sum() / 1000 == right[f"cpu_time.{name}"]
    assert (trace.category == Category.CPU_OP).all()
    assert trace.end_ns.max() / 1000 == right["span"]
    assert not any(lane.is_stream for lane in trace.lanes)
    assert trace.device_name is None


@pytest.mark.parametrize(
    ("folder", "note"),
    [
        ("single", "rank-assumed"),
        ("named", "rank-from-name"),
        ("disagree", "rank-differs-from-name"),
    ],
)
def test_ranks_are_found(shared, folder, note):
    run = read_run(shared / "cases" / "04-rank-discovery" / folder)
    right = expected(shared, "04-rank-discovery")
    assert [trace.rank for trace in run.traces] == right[f"{folder}.ranks"]
    assert all(codes(trace) == {note} for trace in run.traces)


def test_clashing_ranks_are_refused_by_naming_both_files(shared):
    folder = shared / "cases" / "04-rank-discovery" / "clash"
    with pytest.raises(TraceError, match="two files of rank 0") as error:
        read_run(folder)
    assert str(folder / "first.json") in str(error.value)
    assert str(folder / "second.json") in str(error.value)


def test_clashing_ranks_are_settled_by_the_caller(shared):
    folder = shared / "cases" / "04-rank-discovery" / "clash"
    run = read_run([], ranks={1: folder / "first.json", 0: folder / "second.json"})
    assert [trace.rank for trace in run.traces] == [0, 1]
    assert run.traces[0].files == (str(folder / "second.json"),)


def test_run_folder_is_sorted_out(shared):
    right = expected(shared, "05-run-folder")
    run = read_run(shared / "cases" / "05-run-folder" / "run")
    assert [trace.rank for trace in run.traces] == right["ranks"]
    assert sorted(aside.file.rsplit("/", 1)[1] for aside in run.set_aside) == right["set_aside"]
    reasons = {aside.file.rsplit("/", 1)[1]: aside.reason for aside in run.set_aside}
    assert reasons["empty.pt.trace.json"] == "an empty file"
    assert reasons["execution_trace.json"] == "an execution trace, not a timeline"
    assert reasons["metrics.json"] == "JSON without traceEvents"
    older = [note for note in run.notes if note.code == "older-capture"]
    assert len(run.traces) + len(older) == right["traces"]
    assert older[0].where and older[0].where.endswith("nodea_41.1700000000000.pt.trace.json")
    assert run.traces[0].files[0].endswith("nodea_41.1700000005000.pt.trace.json.gz")


def test_kernels_shorter_than_a_microsecond_keep_their_length(shared):
    right = expected(shared, "06-sub-microsecond")
    (trace,) = read_file(shared / "cases" / "06-sub-microsecond" / "trace.json")
    work = np.isin(trace.category, DEVICE_WORK)
    durations = trace.duration_ns[work] / 1000
    assert len(durations) == right["count"]
    assert durations.sum() == pytest.approx(right["sum"], abs=1e-9)
    assert durations.mean() == pytest.approx(right["mean"], abs=1e-9)
    assert (durations.min(), durations.max()) == (right["min"], right["max"])
    assert busy_us(trace) == pytest.approx(right["gpu_busy"], abs=1e-9)
    span = trace.end_ns.max() / 1000
    assert span == pytest.approx(right["gpu_span"], abs=1e-9)
    assert span - busy_us(trace) == pytest.approx(right["gpu_idle"], abs=1e-9)


def test_the_longer_of_two_events_that_start_together_comes_first(shared):
    (trace,) = read_file(shared / "cases" / "07-equal-start" / "trace.json")
    assert names(trace) == ["parent", "child", "leaf"]
