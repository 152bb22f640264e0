"""One tiny trace for each way that profilers of some year or vendor write them."""

import json

import numpy as np
import pytest

from jaxperf.trace import MISSING, Category, read_file
from tests.trace.written import document, kernel, names, read, row


def test_kineto_of_2021(tmp_path):
    args = {"external id": 8, "correlation": 34417}
    on_device = {"device": 0, "stream": 7}
    events = [
        row("ProfilerStep#5", "Operator", 0, 40, pid=9, tid="25738"),
        row("aten::mm", "Operator", 1, 30, pid=9, tid="25738")
        | {"args": {"External id": 8, "Input dims": [[4, 4]], "Call stack": "a.py(1): f"}},
        row("cudaLaunchKernel", "Runtime", 2, 5, pid=9, tid="25738") | {"args": args},
        row("gemm", "Kernel", 9, 3, pid=0, tid="stream 7") | {"args": args | on_device},
        row("Memcpy HtoD", "Memcpy", 13, 3, pid=0, tid="stream 7")
        | {"args": args | on_device | {"bytes": 5}},
        row("Memset", "Memset", 17, 3, pid=0, tid="stream 7") | {"args": args | on_device},
        row("PyTorch Profiler (0)", "Trace", 0, 50, pid="Traces", tid="PyTorch Profiler"),
        {"ph": "s", "cat": "async", "name": "launch", "id": 34417, "pid": 9, "tid": 25738, "ts": 2},
        {"ph": "f", "cat": "async", "name": "launch", "id": 34417, "pid": 0, "tid": "stream 7",
         "ts": 9, "bp": "e"},
    ]  # fmt: skip
    trace = read(tmp_path, document(events))
    kinds = {trace.names[n]: Category(c) for n, c in zip(trace.name, trace.category, strict=True)}
    assert kinds == {
        "PyTorch Profiler (0)": Category.PROFILER,
        "ProfilerStep#5": Category.ANNOTATION,
        "aten::mm": Category.CPU_OP,
        "cudaLaunchKernel": Category.RUNTIME,
        "gemm": Category.KERNEL,
        "Memcpy HtoD": Category.MEMCPY,
        "Memset": Category.MEMSET,
    }
    assert trace.external_id.tolist() == [MISSING, MISSING, 8, 8, 8, 8, 8]
    assert trace.shapes == ("[[4, 4]]",)
    thread = names(trace).index("aten::mm")
    assert trace.flows.lane.tolist() == [trace.lane[thread], trace.lane[thread + 2]]
    assert len([lane for lane in trace.lanes if lane.process == "9"]) == 1


def test_hip(tmp_path):
    launch = row("hipLaunchKernel", "cuda_runtime", 1, correlation=5)
    launch["args"] |= {"stream": "0x0", "kernel": "k", "size": "3145728", "grid": [1, 1, 1]}
    copy = row("hipMemcpyWithStream", "cuda_runtime", 2, correlation=6)
    copy["args"] |= {"stream": "0x7f00", "bytes": "64", "kind": "1"}
    generic = kernel("ncclDevKernel_Generic", 4, stream=0, device=2, correlation=5)
    generic["args"] |= {"kind": "Dispatch Kernel", "Collective name": "allreduce"}
    trace = read(tmp_path, document([launch, copy, generic]))
    assert trace.correlation.tolist() == [5, 6, 5]
    assert trace.stream.tolist() == [MISSING, MISSING, 0]
    assert trace.collectives[trace.collective[2]].name == "allreduce"
    assert trace.lanes[trace.lane[2]].name == "GPU 2 stream 0"
    assert not trace.notes


def test_ids_as_text(tmp_path):
    events = [
        row("cudaLaunchKernel", "cuda_runtime", 1, correlation="17", External_id="0x10"),
        kernel("k", 2, stream="7", correlation="17"),
        row("Memset (Device)", "gpu_memset", 3, device="0", stream="7", bytes="512"),
    ]
    trace = read(tmp_path, document(events))
    assert trace.correlation.tolist() == [17, 17, MISSING]
    assert trace.external_id.tolist() == [16, MISSING, MISSING]
    assert trace.stream.tolist() == [MISSING, 7, 7]
    assert trace.bytes[2] == 512
    assert trace.lane[1] == trace.lane[2]


def test_ids_too_large_for_a_column_are_missing(tmp_path):
    events = [kernel("a", 1, correlation=2**64 - 1), kernel("b", 2, correlation=12)]
    assert read(tmp_path, document(events)).correlation.tolist() == [MISSING, 12]


@pytest.mark.parametrize("flow", ["ac2g", "async_cpu_to_gpu"])
def test_flows_of_other_years(tmp_path, flow):
    arrow = {"ph": "s", "cat": flow, "id": 3, "pid": 100, "tid": 100, "ts": 1}
    trace = read(tmp_path, document([row("cudaLaunchKernel", "cuda_runtime", 1), arrow]))
    assert trace.flows.identity.tolist() == [3]
    assert not trace.flows.is_forward_backward[0]


def test_a_bare_array_need_not_be_closed_to_be_read(tmp_path):
    text = json.dumps([kernel("a", 1), kernel("b", 2)])
    assert names(read(tmp_path, text)) == ["a", "b"]
    open_ended = read(tmp_path, text[:-1] + ",\n")
    assert names(open_ended) == ["a", "b"]
    assert open_ended.truncated


def test_events_line_by_line(tmp_path):
    text = "\n".join(json.dumps(kernel(name, i)) for i, name in enumerate("abc"))
    assert names(read(tmp_path, text)) == ["a", "b", "c"]


def test_merged_ranks_are_taken_apart(tmp_path):
    def shifted(event, rank):
        event = json.loads(json.dumps(event))
        raw = {"rank": rank, "pid_raw": event["pid"]}
        event["pid"] += 100_000_000 * rank
        if "correlation" in event["args"]:
            raw["correlation_raw"] = event["args"]["correlation"]
            event["args"]["correlation"] += 100_000 * rank
        event["args"] |= raw
        return event

    single = [
        row("cudaLaunchKernel", "cuda_runtime", 1, correlation=7),
        kernel("k", 3, correlation=7),
    ]
    label = {"ph": "M", "name": "process_name", "pid": 2, "args": {"name": "RANK 0 - GPU"}}
    merged = [label] + [shifted(event, rank) for rank in (0, 2) for event in single]
    path = tmp_path / "fused.json"
    path.write_text(json.dumps({"traceEvents": merged}))
    traces = read_file(path)
    alone = read(tmp_path, document(single))
    assert [trace.rank for trace in traces] == [0, 2]
    for trace in traces:
        assert [note.code for note in trace.notes] == ["ranks-in-one-file"]
        assert trace.lanes == alone.lanes
        for column in ("start_ns", "correlation", "device", "stream", "lane", "category"):
            assert np.array_equal(getattr(trace, column), getattr(alone, column))


def test_mtia_device_work_is_what_answers_a_call(tmp_path):
    def device_row(name, ts, dur, **args):
        return row(name, "mtia_ccp_events", ts, dur, pid=9, tid=4) | {"args": {"stream": 1} | args}

    def call(name, ts, pid=500, **args):
        return row(name, "mtia_runtime", ts, pid=pid, tid=500) | {"args": args}

    events = [
        call("runFunction - job_prep_and_submit_for_execution", 0, correlation=1),
        device_row("fc-dtype_Float", 5, 50, correlation=1, row="0", column="0", packet_ptr=3),
        device_row("dma_request", 10, 5, size=1852, direction="HOST_TO_DEVICE"),
        call("enqueueCommand memcpyHtoDAsync", 56, correlation=2, device=9, stream_id="1"),
        device_row("dma_request", 60, 5, correlation=2, size=64),
        device_row("event_record", 66, 0.2, correlation=3),
        device_row("event_wait", 67, 3, correlation=4, wait_on_stream=2),
        call("synchronize", 70, pid=9, device=9, stream_id=1),
    ]
    trace = read(tmp_path, document(events))
    assert trace.category.tolist() == [
        Category.RUNTIME,
        Category.KERNEL,
        Category.OTHER,
        Category.RUNTIME,
        Category.MEMCPY,
        Category.OTHER,
        Category.SYNC,
        Category.OTHER,
    ]
    assert trace.bytes[4] == 64
    assert trace.wait_on_stream[6] == 2
    work = [trace.lanes[lane].name for lane in trace.lane[[1, 2, 4, 5, 6]]]
    assert work == ["GPU 9 stream 1"] * 5


def test_jax_profiler(tmp_path):
    def named(kind, pid, name, tid=0):
        return {"ph": "M", "name": kind, "pid": pid, "tid": tid, "args": {"name": name}}

    def event(name, pid, tid, ts, **args):
        return {"ph": "X", "pid": pid, "tid": tid, "ts": ts, "dur": 2.5, "name": name, "args": args}

    events = [
        named("process_name", 1, "/device:GPU:1"),
        named("thread_name", 1, "Stream #20(Compute,MemcpyD2D)", 20),
        named("process_name", 701, "/host:CPU"),
        named("thread_name", 701, "python", 77),
        event("PjitFunction(step)", 701, 77, 1.0),
        event("cuLaunchKernelEx", 701, 77, 2.0, correlation_id="58"),
        event("fusion_12", 1, 20, 9.0, correlation_id="58", hlo_op="fusion.12"),
        event("MemcpyD2D", 1, 20, 12.0, correlation_id="59"),
        {},
    ]
    trace = read(tmp_path, json.dumps({"displayTimeUnit": "ns", "traceEvents": events}))
    assert trace.category.tolist() == [
        Category.CPU_OP,
        Category.DRIVER,
        Category.KERNEL,
        Category.MEMCPY,
    ]
    assert trace.correlation.tolist() == [MISSING, 58, 58, 59]
    assert [trace.lanes[lane].name for lane in trace.lane] == ["python"] * 2 + [
        "GPU 1 stream 20"
    ] * 2
    assert (trace.device[2], trace.stream[2]) == (1, 20)
