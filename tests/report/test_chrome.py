"""The written trace: what Perfetto needs of it, and what a second reading needs."""

import collections
import dataclasses
import decimal
import gzip
import json

import numpy as np
import pytest

from jaxperf.errors import OutputError
from jaxperf.graph import DependencyKind, TaskKind, build_graph
from jaxperf.replay import Timeline
from jaxperf.report import write_trace
from jaxperf.report._timeline import timeline_spans
from jaxperf.trace import read_run
from tests.report.fabricated import ADAM, make_replay


def written(replay, path):
    write_trace(replay, path)
    text = path.read_bytes()
    if path.suffix == ".gz":
        text = gzip.decompress(text)
    return json.loads(text, parse_float=decimal.Decimal)


@pytest.fixture(scope="module")
def trace(replay, tmp_path_factory):
    return written(replay, tmp_path_factory.mktemp("trace") / "replayed.json")


def slices(trace, category=None):
    return [
        event
        for event in trace["traceEvents"]
        if event["ph"] == "X" and category in (None, event["cat"])
    ]


def assert_slices_nest(trace):
    """On each row any two slices are apart, or one lies inside the other: exactly."""
    rows = collections.defaultdict(list)
    for event in slices(trace):
        rows[event["pid"], event["tid"]].append((event["ts"], -event["dur"]))
    for row in rows.values():
        open_until = []
        for start, minus_duration in sorted(row):
            end = start - minus_duration
            while open_until and open_until[-1] <= start:
                open_until.pop()
            assert not open_until or end <= open_until[-1]
            open_until.append(end)


def test_there_is_a_process_per_rank_and_a_named_row_per_lane(trace, replay):
    names = {
        (event["pid"], event["tid"], event["name"]): event["args"]
        for event in trace["traceEvents"]
        if event["ph"] == "M"
    }
    assert names[0, 0, "process_name"]["name"] == "rank 0"
    assert names[1, 0, "process_labels"]["labels"] == "replayed, NVIDIA H100 80GB HBM3"
    rows = [args["name"] for (_, _, what), args in names.items() if what == "thread_name"]
    assert sorted(rows) == sorted(lane.name for lane in replay.graph.lanes)
    order = {
        key[:2]: args["sort_index"] for key, args in names.items() if key[2] == "thread_sort_index"
    }
    threads = {key: row["name"] for key, row in names.items() if key[2] == "thread_name"}
    in_order = sorted((k for k in threads if k[0] == 0), key=lambda k: order[k[:2]])
    assert [threads[key] for key in in_order] == [
        "thread 4000 (python)",
        "GPU 0 stream 7",
        "GPU 0 stream 20",
    ]


def test_times_are_exact_to_the_nanosecond(trace, replay):
    _, replayed = timeline_spans(replay)
    expected = sorted(replayed.start_ns[replay.graph.kind == TaskKind.KERNEL].tolist())
    kernels = [event for event in slices(trace, "kernel") if event["args"]["kind"] == "kernel"]
    assert sorted(int(event["ts"] * 1000) for event in kernels) == expected


def test_a_slice_says_what_was_measured_and_why_it_started(trace, replay):
    measured, replayed = timeline_spans(replay)
    task = int(np.flatnonzero(replay.graph.kind == TaskKind.KERNEL)[5])
    ts = decimal.Decimal(int(replayed.start_ns[task])) / 1000
    (event,) = [x for x in slices(trace, "kernel") if x["ts"] == ts]
    args = event["args"]
    assert args["class"] == "gemm"
    assert int(args["measured_start_us"] * 1000) == measured.start_ns[task]
    assert float(args["start_error_us"]) == (
        (replayed.start_ns[task] - measured.start_ns[task]) / 1000
    )
    kind = DependencyKind(replay.graph.dependency[replay.binding[task]])
    assert args["bound_by"] == kind.name.lower()


def test_slices_of_a_row_never_overlap(trace):
    assert_slices_nest(trace)


def test_what_overlaps_on_a_lane_gets_a_row_of_its_own(replay, tmp_path):
    start, end = replay.replayed.start_us.copy(), replay.replayed.end_us.copy()
    kernels = np.flatnonzero(replay.graph.lane == 1)[:6]
    start[kernels[1:]] = start[kernels[0]] + np.arange(1, 6)
    end[kernels] = start[kernels] + [30.0, 2.5, 9.0, 9.0, 1.0, 9.0]
    overlapping = dataclasses.replace(replay, replayed=Timeline(start, end))
    trace = written(overlapping, tmp_path / "overlapping.json")
    assert_slices_nest(trace)
    rows = [e["args"]["name"] for e in trace["traceEvents"] if e.get("name") == "thread_name"]
    assert rows.count("GPU 0 stream 7 (overlapping)") == 3
    assert len(slices(trace, "kernel")) == sum(
        kind in (TaskKind.KERNEL, TaskKind.COLLECTIVE) for kind in replay.graph.kind
    )


def test_a_collective_holds_its_wait_and_names_the_rank(trace):
    collectives = [e for e in slices(trace, "kernel") if e["args"]["kind"] == "collective"]
    waits = [e for e in slices(trace, "wait") if e["name"] == "wait for rank 1"]
    assert waits
    for wait in waits:
        (around,) = [
            e
            for e in collectives
            if (e["pid"], e["tid"]) == (wait["pid"], wait["tid"])
            and e["ts"] <= wait["ts"]
            and wait["ts"] + wait["dur"] <= e["ts"] + e["dur"]
        ]
        assert around["ts"] == wait["ts"]
        assert wait["args"]["for_rank"] == 1


def test_a_blocking_call_is_one_slice_around_its_wait(trace):
    calls = [e for e in slices(trace) if e["name"] == "cudaDeviceSynchronize"]
    assert len(calls) == 4
    waits = [e for e in slices(trace, "wait") if e["name"].startswith("wait for GPU")]
    inside = [
        wait
        for call in calls
        for wait in waits
        if (call["pid"], call["tid"]) == (wait["pid"], wait["tid"])
        and call["ts"] < wait["ts"]
        and wait["ts"] + wait["dur"] < call["ts"] + call["dur"]
    ]
    assert len(inside) == 4


def test_arrows_pair_up_cross_lanes_and_touch_a_slice(trace, replay):
    ends = collections.defaultdict(list)
    for event in trace["traceEvents"]:
        if event["ph"] in "sf":
            ends[event["id"]].append(event)
    graph, bound = replay.graph, replay.binding[replay.binding >= 0]
    crossing = graph.lane[graph.source[bound]] != graph.lane[graph.target[bound]]
    assert sorted(ends) == sorted(bound[crossing].tolist())
    rows = collections.defaultdict(list)
    for event in slices(trace):
        rows[event["pid"], event["tid"]].append((event["ts"], event["ts"] + event["dur"]))
    for start, finish in ends.values():
        assert (start["ph"], finish["ph"], finish["bp"]) == ("s", "f", "e")
        assert start["ts"] <= finish["ts"]
        for event in (start, finish):
            row = rows[event["pid"], event["tid"]]
            assert any(begin <= event["ts"] < end for begin, end in row)


def test_launch_and_device_work_share_a_correlation_id(trace):
    calls = {e["args"].get("correlation"): e for e in slices(trace, "cuda_runtime")}
    kernels = slices(trace, "kernel")
    assert all(kernel["args"]["correlation"] in calls for kernel in kernels)
    assert len({kernel["args"]["correlation"] for kernel in kernels}) == len(kernels)
    assert {kernel["args"]["stream"] for kernel in kernels} == {7, 20}


def test_steps_lie_around_what_their_thread_did(trace, replay):
    steps = slices(trace, "user_annotation")
    assert [step["name"] for step in steps] == ["ProfilerStep#0", "ProfilerStep#1"] * 2
    for step in steps:
        inside = [
            event
            for event in slices(trace)
            if (event["pid"], event["tid"]) == (step["pid"], step["tid"])
            and step["ts"] <= event["ts"] < step["ts"] + step["dur"]
        ]
        # Itself; then host work, the calls of four layers, the last launch, a call and its wait.
        assert len(inside) == 1 + 1 + 4 * 5 + 1 + 2


@pytest.mark.parametrize("ranks", [1, 3])
def test_the_trace_can_be_read_and_replayed_again(tmp_path, ranks):
    replay = make_replay(ranks=ranks)
    write_trace(replay, tmp_path / "replayed.json.gz")
    run = read_run(tmp_path / "replayed.json.gz")
    again, graph = build_graph(run), replay.graph
    assert again.ranks == graph.ranks
    for kind in (TaskKind.KERNEL, TaskKind.HOST_RETURN, TaskKind.COLLECTIVE):
        assert np.sum(again.kind == kind) == np.sum(graph.kind == kind)
    launch = DependencyKind.LAUNCH
    assert np.sum(again.dependency == launch) == np.sum(graph.dependency == launch)
    assert [step.name for step in again.steps] == [step.name for step in graph.steps]
    begins = [replay.replayed.start_us[step.begin_task] for step in graph.steps]
    first = min(replay.replayed.start_us[graph.trace == 0])
    assert again.steps[1].begin_ns == round((begins[1] - first) * 1e3)
    assert [trace.device_name for trace in run.traces] == ["NVIDIA H100 80GB HBM3"] * ranks
    assert {lane.name for lane in again.lanes if not lane.is_stream} == {
        f"thread {4000 + rank} (python)" for rank in range(ranks)
    }


def test_names_are_written_as_they_are(trace):
    assert ADAM in {event["name"] for event in slices(trace)}


def test_a_compressed_trace_is_the_same_trace(replay, trace, tmp_path):
    assert written(replay, tmp_path / "replayed.json.gz") == trace


def test_two_writings_are_equal_to_the_byte(replay, tmp_path):
    for name in ("a.json.gz", "b.json.gz"):
        write_trace(replay, tmp_path / name)
    assert (tmp_path / "a.json.gz").read_bytes() == (tmp_path / "b.json.gz").read_bytes()


def test_a_trace_is_not_written_over(replay, tmp_path):
    path = tmp_path / "replayed.json"
    path.write_text("mine")
    with pytest.raises(OutputError, match="exists already"):
        write_trace(replay, path)
    assert path.read_text() == "mine"
    write_trace(replay, path, overwrite=True)
    assert json.loads(path.read_text())["traceEvents"]


def test_one_rank_says_which_it_is(tmp_path):
    trace = written(make_replay(ranks=1, steps=1, layers=1), tmp_path / "one.json")
    assert trace["distributedInfo"] == {"rank": 0}
    assert trace["deviceProperties"] == [{"id": 0, "name": "NVIDIA H100 80GB HBM3"}]
