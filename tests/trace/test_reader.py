"""Times, order, lanes and the columns of one file."""

import json
from decimal import Decimal

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from jaxperf.errors import TraceError
from jaxperf.trace import ALL_STREAMS, MISSING, Category, Collective, Lane, read_file
from jaxperf.trace._reader import rank_in_name
from tests.trace.written import codes, document, kernel, names, read, row


def test_whole_epoch_microseconds_are_exact(tmp_path):
    trace = read(
        tmp_path, document([kernel("a", 1610366387190208, 3), kernel("b", 1610366387190209)])
    )
    assert trace.origin_ns == 1610366387190208000
    assert trace.start_ns.tolist() == [0, 1000]
    assert trace.duration_ns.tolist() == [3000, 1000]


def test_epoch_microseconds_with_decimals_are_exact(tmp_path):
    # A float64 of this size is good to a quarter of a microsecond.
    text = document([kernel("a", "A", "D"), kernel("b", "B")])
    text = text.replace('"A"', "1700000000000120.201").replace('"B"', "1700000000000120.203")
    trace = read(tmp_path, text.replace('"D"', "6.053"))
    assert trace.origin_ns == 1700000000000120201
    assert trace.start_ns.tolist() == [0, 2]
    assert trace.duration_ns.tolist() == [6053, 1000]


def test_the_base_time_is_part_of_the_origin_only(tmp_path):
    base = 1711964646000000000
    text = document([kernel("a", 7791234567890.123), kernel("b", 7791234567890.124)],
                    baseTimeNanoseconds=base)  # fmt: skip
    trace = read(tmp_path, text)
    assert trace.origin_ns == base + 7791234567890123
    assert trace.start_ns.tolist() == [0, 1]


@settings(max_examples=60)
@given(
    st.lists(st.integers(0, 9_000_000_000_000_000_000), min_size=1, max_size=5),
    st.sampled_from([1, 1000, 1_000_000]),
)
def test_every_nanosecond_of_an_int64_survives(tmp_path_factory, times_ns, scale):
    times = [time // scale for time in times_ns]
    events = [kernel(f"k{i}", f"@{time}@") for i, time in enumerate(times)]
    text = document(events)
    for time in times:
        text = text.replace(f'"@{time}@"', f"{time // 1000}.{time % 1000:03d}")
    trace = read(tmp_path_factory.mktemp("times"), text)
    assert (trace.start_ns + trace.origin_ns).tolist() == sorted(times)


def test_times_as_text_are_read(tmp_path):
    trace = read(
        tmp_path, document([kernel("a", "12.345", "2.5"), kernel("b", "1700000000000000.123")])
    )
    assert trace.origin_ns == 12345
    assert trace.start_ns.tolist() == [0, 1700000000000000123 - 12345]
    assert trace.duration_ns.tolist() == [2500, 1000]


def test_unusable_times_are_noted_and_never_invented(tmp_path):
    events = [
        kernel("kept", 5, 2),
        kernel("no start", None),
        kernel("far away", 10**40),
        kernel("negative", 9, -4),
        {key: value for key, value in kernel("no duration", 7).items() if key != "dur"},
    ]
    trace = read(tmp_path, document(events))
    assert names(trace) == ["kept", "no duration", "negative"]
    assert trace.duration_ns.tolist() == [2000, 0, 0]
    assert codes(trace) == {"missing-time", "missing-duration", "negative-duration"}
    assert {note.code: note.text[:2] for note in trace.notes}["missing-time"] == "2 "


def test_rows_are_sorted_and_ties_keep_the_order_of_the_file(tmp_path):
    events = [kernel("c", 20), kernel("short", 10, 1), kernel("long", 10, 5), kernel("twin", 10, 5)]
    assert names(read(tmp_path, document(events))) == ["long", "twin", "short", "c"]


def test_begin_and_end_events_become_complete_ones(tmp_path):
    def mark(ph, name, ts, tid=1):
        return {"ph": ph, "name": name, "pid": 1, "tid": tid, "ts": ts}

    events = [
        mark("B", "outer", 10),
        mark("B", "inner", 12.5),
        mark("B", "elsewhere", 13, tid=2),
        mark("E", "inner", 15.25),
        mark("E", "outer", 20),
        mark("E", "never begun", 21),
    ]
    trace = read(tmp_path, document(events))
    assert names(trace) == ["outer", "inner"]
    assert trace.duration_ns.tolist() == [10_000, 2_750]
    assert "2 begin or end" in {n.code: n.text for n in trace.notes}["unpaired-begin-end"]


def test_counters_instants_and_unknown_phases_are_no_events(tmp_path):
    events = [
        kernel("k", 1),
        {
            "ph": "i",
            "name": "[memory]",
            "pid": 1,
            "tid": 1,
            "ts": 2,
            "s": "t",
            "args": {"Bytes": 4},
        },
        {"ph": "C", "name": "counter", "pid": 1, "ts": 2, "args": {"value": 4}},
        {"ph": "b", "name": "async", "id": 1, "pid": 1, "ts": 2},
        {},
    ]
    trace = read(tmp_path, document(events))
    assert names(trace) == ["k"]
    assert not trace.notes


def test_lanes_follow_device_and_stream_not_thread(tmp_path):
    events = [
        row("aten::mm", "cpu_op", 0),
        kernel("a", 1) | {"tid": 1_000_007},
        kernel("b", 2) | {"tid": "stream 7"},
        kernel("c", 3, device=1),
        {
            "ph": "M",
            "name": "thread_name",
            "pid": 100,
            "tid": 100,
            "args": {"name": "thread 100 (py)"},
        },
    ]
    trace = read(tmp_path, document(events))
    assert [(lane.name, lane.device, lane.stream) for lane in trace.lanes] == [
        ("thread 100 (py)", -1, -1),
        ("GPU 0 stream 7", 0, 7),
        ("GPU 1 stream 7", 1, 7),
    ]
    assert trace.lane.tolist() == [0, 1, 1, 2]


def test_a_process_with_the_number_of_a_device_keeps_its_threads(tmp_path):
    events = [row("aten::mm", "cpu_op", 0, pid=1, tid=7), kernel("a", 1, device=1)]
    trace = read(tmp_path, document(events))
    assert trace.lanes == (Lane("1", "7", "thread 7"), Lane("1", "7", "GPU 1 stream 7", 1, 7))


def test_all_streams_has_one_number(tmp_path):
    def sync(kind, ts, stream, **args):
        given = {"cuda_sync_kind": kind, "stream": stream, "device": 0, "correlation": ts}
        return row("cudaSync", "cuda_sync", ts, pid=0, tid=stream) | {"args": given | args}

    wait = {"wait_on_stream": 24, "wait_on_cuda_event_record_corr_id": 1385}
    unknown = {"wait_on_stream": -1, "wait_on_cuda_event_record_corr_id": -1}
    events = [
        sync("Context Sync", 1, -1),
        sync("Context Sync", 2, 4294967295),
        sync("Stream Wait Event", 3, 20, **wait),
        sync("Event Sync", 4, -1, **unknown),
    ]
    trace = read(tmp_path, document(events))
    assert names(trace) == ["Context Sync", "Context Sync", "Stream Wait Event", "Event Sync"]
    assert (trace.category == Category.SYNC).all()
    assert trace.stream.tolist() == [ALL_STREAMS, ALL_STREAMS, 20, ALL_STREAMS]
    assert trace.wait_on_stream.tolist() == [MISSING, MISSING, 24, MISSING]
    assert trace.wait_on_record.tolist() == [MISSING, MISSING, 1385, MISSING]
    assert [trace.lanes[lane].name for lane in trace.lane[1:3]] == [
        "GPU 0 all streams",
        "GPU 0 stream 20",
    ]


def test_columns_hold_what_the_arguments_say(tmp_path):
    operator = row("aten::mm", "cpu_op", 0, External_id=3, Sequence_number=12, Fwd_thread_id=1)
    operator["args"]["Input Dims"] = [[2, 3], []]
    launch = row("cudaLaunchKernel", "cuda_runtime", 1, correlation=9, External_id=3)
    work = kernel("gemm", 2, correlation=9, grid=[4, 1, 1], block=[128, 1, 1], blocks_per_SM=0.5)
    copy = row("Memcpy HtoD", "gpu_memcpy", 3, pid=0, tid=7, device=0, stream=7, bytes=64)
    trace = read(tmp_path, document([operator, launch, work, copy]))
    assert trace.category.tolist() == [
        Category.CPU_OP,
        Category.RUNTIME,
        Category.KERNEL,
        Category.MEMCPY,
    ]
    assert trace.correlation.tolist() == [MISSING, 9, 9, MISSING]
    assert trace.external_id.tolist() == [3, 3, MISSING, MISSING]
    assert trace.sequence.tolist() == [12, MISSING, MISSING, MISSING]
    assert trace.forward_thread.tolist() == [1, MISSING, MISSING, MISSING]
    assert trace.bytes.tolist() == [MISSING, MISSING, MISSING, 64]
    assert [trace.shapes[i] if i >= 0 else None for i in trace.shape] == [
        "[[2, 3], []]",
        None,
        "[[4, 1, 1], [128, 1, 1]]",
        None,
    ]
    assert trace.blocks_per_sm[2] == 0.5
    assert np.isnan(trace.blocks_per_sm[[0, 1, 3]]).all()


def test_collectives_are_read_wherever_they_are_written(tmp_path):
    args = {
        "Collective name": "_reduce_scatter_base",
        "In msg nelems": 96,
        "Out msg nelems": 12,
        "Group size": 8,
        "dtype": "BFloat16",
        "Process Group Name": "0",
        "Process Group Ranks": "[0, 1, 2, 3]",
        "Seq": 5,
    }
    abbreviated = args | {"Process Group Ranks": "[0, 1, ..., 7]", "Src Rank": 1, "Dst Rank": 2}
    nccl = kernel("ncclDevKernel_Generic", 2)
    nccl["args"] |= args
    operator = row("record_param_comms", "cpu_op", 1) | {"args": args}
    annotation = row("nccl:send", "user_annotation", 0) | {"args": abbreviated}
    trace = read(tmp_path, document([nccl, operator, annotation, kernel("gemm", 3)]))
    assert trace.collective.tolist() == [1, 0, 0, -1]
    first, second = trace.collectives
    assert first == Collective(
        "_reduce_scatter_base", "0", 8, (0, 1, 2, 3), "BFloat16", 96, 12, sequence=5
    )
    assert (second.ranks, second.source, second.destination) == ((), 1, 2)


def test_flows_point_at_lanes(tmp_path):
    def arrow(ph, ident, ts, pid, tid, cat="ac2g"):
        return {"ph": ph, "id": ident, "pid": pid, "tid": tid, "ts": ts, "cat": cat, "name": cat}

    events = [
        row("cudaLaunchKernel", "cuda_runtime", 5, correlation=9, tid="100"),
        kernel("k", 8.5),
        arrow("s", 9, 5, 100, 100),
        arrow("f", "9", 8.5, 0, "stream 7"),
        arrow("s", 1, 6, 100, 100, "fwdbwd"),
        arrow("s", 2, 6, 100, 100, "something else"),
    ]
    events[1]["tid"] = "stream 7"
    flows = read(tmp_path, document(events)).flows
    assert flows.identity.tolist() == [9, 9, 1]
    assert flows.time_ns.tolist() == [0, 3500, 1000]
    assert flows.lane.tolist() == [0, 1, 0]
    assert flows.is_start.tolist() == [True, False, True]
    assert flows.is_forward_backward.tolist() == [False, False, True]


def test_metadata_on_both_sides_of_the_events_is_kept(tmp_path):
    text = (
        '{"schemaVersion": 1, "traceEvents": ['
        + json.dumps(kernel("k", 1))
        + '], "deviceProperties": [{"id": 1, "name": "B"}, {"id": 0, "name": "A"}],'
        ' "distributedInfo": {"rank": "3", "world_size": 8, "pg_config": [{"ranks": [0]}]}}'
    )
    trace = read(tmp_path, text)
    assert set(trace.metadata) == {"schemaVersion", "deviceProperties", "distributedInfo"}
    assert (trace.rank, trace.world_size, trace.device_name) == (3, 8, "A")


def test_the_word_trace_events_inside_the_metadata_misleads_nobody(tmp_path):
    text = '{"note": "see \\"traceEvents\\": [", "nested": {"traceEvents": []}, "traceEvents": ['
    trace = read(tmp_path, text + json.dumps(kernel("k", 1)) + "]}")
    assert names(trace) == ["k"]
    assert trace.metadata["nested"] == {"traceEvents": []}


def test_objects_in_lists_inside_an_event_do_not_end_it(tmp_path, monkeypatch):
    monkeypatch.setattr("jaxperf.trace._document.SLICE_BYTES", 256)
    odd = kernel("odd", 3)
    odd["args"]["stack"] = [{"frame": index, "text": "}, {"} for index in range(50)]
    events = [kernel("a", 1), odd, kernel("b", 5)] * 9
    trace = read(tmp_path, document(events))
    assert trace.events == 27
    assert not trace.notes


def test_the_size_of_a_slice_changes_nothing(tmp_path, monkeypatch):
    events = [kernel(f"k{index}", 3 * index, 2) for index in range(500)]
    whole = read(tmp_path, document(events))
    monkeypatch.setattr("jaxperf.trace._document.SLICE_BYTES", 300)
    sliced = read(tmp_path, document(events))
    assert names(sliced) == names(whole)
    assert np.array_equal(sliced.start_ns, whole.start_ns)
    assert sliced.metadata == whole.metadata


@pytest.mark.parametrize(
    ("content", "what"),
    [
        (b"", "an empty file"),
        (b"  \n", "an empty file"),
        (b"\x89PNG\r\n\x1a\n\0\0", "a picture"),
        (b"\0\1\2", "a binary file"),
        (b"some words", "no JSON"),
        (b"{}", "JSON without traceEvents"),
        (b"[]", "without timed events"),
        (b"[1, 2]", "something else than events"),
        (b'{"traceEvents": []}', "without timed events"),
        (b'{"schema": "1.1", "nodes": []}', "an execution trace"),
        (b'[{"loss": 1}, {"loss": 2}]', "without timed events"),
    ],
)
def test_what_is_no_trace_is_an_error_of_one_line(tmp_path, content, what):
    path = tmp_path / "trace.json"
    path.write_bytes(content)
    with pytest.raises(TraceError, match=what) as error:
        read_file(path)
    assert str(path) in str(error.value)
    assert "\n" not in str(error.value)


def test_what_cannot_be_opened_is_an_error_of_one_line(tmp_path):
    with pytest.raises(TraceError, match="no such file"):
        read_file(tmp_path / "absent.json")
    with pytest.raises(TraceError, match="a folder, not a file"):
        read_file(tmp_path)


@pytest.mark.parametrize(
    ("name", "rank"),
    [
        ("rank3_trace.json", 3),
        ("trace_rank-12.json", 12),
        ("step5.rank_07.json.gz", 7),
        ("unfused_rank2.json", 2),
        ("host_worker3.1700000000000.pt.trace.json", 3),
        ("Rank 4.json", 4),
        ("frank3.json", None),
        ("trace_3.json", None),
        ("pt.trace.json", None),
    ],
)
def test_ranks_in_names(name, rank):
    assert rank_in_name(name) == rank


def test_decimals_beyond_the_nanosecond_are_rounded(tmp_path):
    text = document([kernel("a", 1, "D")]).replace('"D"', "0.0006")
    assert read(tmp_path, text).duration_ns.tolist() == [1]
    assert round(Decimal("0.0006") * 1000) == 1
