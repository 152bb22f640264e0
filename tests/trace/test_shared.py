"""Every shared trace is read, and holds what its manifest says."""

import dataclasses
import json
from pathlib import Path

import numpy as np
import pytest

from jaxperf.errors import TraceError
from jaxperf.trace import Category, Trace, read_file, read_run

# One of each vintage and vendor, read in about two seconds together.
QUICK = (
    "b300_moe_forward",
    "mi210_gpu_only",
    "mi300x_torch_compile_triton",
    "mtia_inference",
    "cpu_only_rank34of300_5step",
    "cupti_counters",
    "rank_missing",
    "cuda_event_sync_multi_stream",
    "plain/rank3",
    "dlrm_param_v100_8rank_1step/rank1",
    "bert-small_h100",
    "repeat_bs64_iter1",
    "vllm_decode_full_graph_execution",
    "h100_transformer_toy_3step_run1",
    "run_c_sleep/rank2",
)
SHARED = Path(__file__).resolve().parents[3] / "shared"


def manifest():
    path = SHARED / "traces" / "manifest.json"
    if not path.exists():
        return []
    return [file for group in json.loads(path.read_text())["sets"] for file in group["files"]]


def cases():
    for facts in manifest():
        quick = facts["file"].removesuffix(".json.gz").endswith(QUICK)
        marks = [] if quick else [pytest.mark.slow]
        yield pytest.param(facts, id=facts["file"], marks=marks)


def counts(traces: tuple[Trace, ...]):
    def of(*kinds):
        return sum(int(np.isin(trace.category, kinds).sum()) for trace in traces)

    def steps(trace):
        marks = trace.name[trace.category == Category.ANNOTATION]
        return sum(trace.names[name].startswith("ProfilerStep#") for name in marks)

    work = (Category.KERNEL, Category.MEMCPY, Category.MEMSET)
    return {
        "events": sum(trace.events for trace in traces),
        "kernels": of(Category.KERNEL),
        "memcpy_memset": of(Category.MEMCPY, Category.MEMSET),
        "runtime_calls": of(Category.RUNTIME, Category.DRIVER),
        "python_function_events": of(Category.PYTHON),
        "cuda_sync_events": of(Category.SYNC),
        "profiler_steps": sum(steps(trace) for trace in traces),
        "gpu_streams": sum(
            len(np.unique(trace.lane[np.isin(trace.category, work)])) for trace in traces
        ),
        "flows": sum(len(trace.flows.identity) for trace in traces),
        "zero_duration_kernels": sum(
            int((trace.duration_ns[trace.category == Category.KERNEL] == 0).sum())
            for trace in traces
        ),
    }


@pytest.mark.parametrize("facts", list(cases()))
def test_a_shared_trace_holds_what_its_manifest_says(shared, facts):
    path = shared / "traces" / facts["file"]
    if facts["format"] != "kineto":
        with pytest.raises(TraceError, match="an execution trace, not a timeline"):
            read_file(path)
        return
    traces = read_file(path)
    right = {key: facts.get(key) for key in counts(traces)}
    right["events"] = facts["phases"]["X"]
    right["flows"] = facts["ac2g_flows"] + facts["fwdbwd_flows"]
    right["cuda_sync_events"] = sum(facts["cuda_sync_events"].values())
    found = counts(traces)
    if "mtia" in facts["file"]:
        # The manifest counts no device work there, for want of a category called kernel.
        for key in ("kernels", "memcpy_memset", "runtime_calls", "gpu_streams", "cuda_sync_events"):
            del right[key], found[key]
    assert found == right
    assert [trace.rank for trace in traces] == (
        [0, 1, 2, 3] if "fused_4rank" in facts["file"] else [facts["rank"] or 0]
        if "unfused" not in facts["file"] else [facts["rank"]]
    )  # fmt: skip
    for trace in traces:
        assert not trace.truncated
        assert trace.world_size == facts["world_size"]
        assert trace.device_name in (facts["gpus"] or [None]) or not facts["gpus"][0]
        expected = {"rank-assumed", "rank-from-name", "ranks-in-one-file"}
        assert {note.code for note in trace.notes} <= expected
        check_columns(trace)


def check_columns(trace: Trace):
    """What every reader of a `Trace` relies on."""
    assert trace.start_ns[0] == 0
    assert (trace.duration_ns >= 0).all()
    steps = np.diff(trace.start_ns)
    assert (steps >= 0).all()
    assert (np.diff(trace.duration_ns)[steps == 0] <= 0).all()
    for column, table in (
        (trace.name, trace.names),
        (trace.lane, trace.lanes),
        (trace.shape, trace.shapes),
        (trace.collective, trace.collectives),
    ):
        assert len(column) == trace.events
        assert column.max(initial=-1) < len(table)
        assert column.min(initial=0) >= -1
    work = np.isin(trace.category, (Category.KERNEL, Category.MEMCPY, Category.MEMSET))
    on_lane = np.array([(lane.device, lane.stream) for lane in trace.lanes])[trace.lane]
    assert (on_lane[work, 0] == trace.device[work]).all()
    assert (on_lane[work, 1] == trace.stream[work]).all()
    host = np.isin(trace.category, (Category.CPU_OP, Category.RUNTIME, Category.PYTHON))
    assert (on_lane[host] == -1).all()
    assert (trace.flows.lane >= -1).all()
    assert len(trace.flows.time_ns) == len(trace.flows.is_start) == len(trace.flows.lane)


@pytest.mark.slow
def test_merged_ranks_equal_the_separate_files(shared):
    folder = shared / "traces" / "resnet_ddp_mi300_4rank_3step_fused"
    merged = read_file(folder / "fused_4rank.json.gz")
    for trace in merged:
        (alone,) = read_file(folder / f"unfused_rank{trace.rank}.json.gz")
        for field in dataclasses.fields(trace):
            ours, theirs = getattr(trace, field.name), getattr(alone, field.name)
            if isinstance(ours, np.ndarray):
                assert np.array_equal(ours, theirs, equal_nan=ours.dtype.kind == "f"), field.name
            elif field.name == "flows":
                for part in dataclasses.fields(ours):
                    assert np.array_equal(getattr(ours, part.name), getattr(theirs, part.name))
            elif field.name not in ("files", "notes", "metadata", "world_size"):
                assert ours == theirs, field.name


def test_a_shared_folder_is_a_run(shared):
    run = read_run(shared / "traces" / "dlrm_param_v100_8rank_1step")
    assert [trace.rank for trace in run.traces] == list(range(8))
    # The execution traces beside gave operators what the timelines lack.
    assert run.set_aside == ()
    assert all("inputs-from-execution-trace" in [n.code for n in t.notes] for t in run.traces)
    assert not run.notes


def test_a_shared_set_of_several_runs_names_its_folders(shared):
    with pytest.raises(TraceError, match="overlap.*plain"):
        read_run(shared / "traces" / "deepseek_v3_decode_ep8_h200_8rank_cudagraph")


@pytest.mark.parametrize("name", ["gpt_fsdp4", "gpt_sync_every_micro"])
def test_the_oracle_is_read(shared, name):
    run = read_run(shared / "oracle" / name)
    assert [trace.rank for trace in run.traces] == list(range(len(run.traces)))
    for trace in run.traces:
        # These have epoch microseconds with a decimal: a float64 would be off by up to 125 ns.
        assert (trace.duration_ns % 1000).any()
        check_columns(trace)
