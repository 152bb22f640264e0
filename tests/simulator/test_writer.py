"""The traces: valid JSON, the right rows, and nothing written over."""

import gzip
import json
from collections import Counter
from dataclasses import replace
from decimal import Decimal

import pytest

from jaxperf.errors import OutputError
from jaxperf.simulator import (
    Kernel,
    Launch,
    Noise,
    Op,
    Rank,
    Record,
    SimulatedJob,
    StreamWait,
    Work,
    execute,
    simulate,
    write_traces,
)

JOB = SimulatedJob(
    layers=2,
    hidden_size=512,
    attention_heads=8,
    vocabulary_size=4096,
    micro_batches=2,
    data_parallel=2,
    pipeline_parallel=2,
    noise=Noise(kernel=0.01, host=0.06),
)


@pytest.fixture(scope="module")
def run():
    return simulate(JOB)


@pytest.fixture(scope="module")
def documents(run, tmp_path_factory):
    paths = write_traces(run, tmp_path_factory.mktemp("traces"))
    assert [path.name for path in paths] == [f"rank{r}.pt.trace.json.gz" for r in range(4)]
    return [json.loads(gzip.decompress(path.read_bytes())) for path in paths]


def rows(document, *categories):
    events = document["traceEvents"]
    return [e for e in events if e["ph"] == "X" and e["cat"] in categories]


def written(run, folder, **options):
    paths = write_traces(run, folder, compress=False, **options)
    return [json.loads(path.read_text()) for path in paths]


def test_a_trace_says_what_it_is_of(documents):
    for rank, document in enumerate(documents):
        assert document["schemaVersion"] == 1
        assert document["distributedInfo"]["rank"] == rank
        assert document["distributedInfo"]["world_size"] == 4
        assert document["deviceProperties"][0]["name"] == "Simulated GPU"
        assert document["deviceProperties"][0]["numSms"] == 132


def test_every_row_of_the_run_is_written(run, documents):
    for record, document in zip(run.ranks.values(), documents, strict=True):
        host = rows(document, "cpu_op", "user_annotation", "cuda_runtime", "cuda_driver")
        assert Counter(e["name"] for e in host) == Counter(row.name for row in record.host)
        device = rows(document, "kernel", "gpu_memcpy", "gpu_memset")
        assert Counter(e["name"] for e in device) == Counter(r.work.name for r in record.device)


def test_times_are_whole_nanoseconds(run, tmp_path):
    for path in write_traces(run, tmp_path, compress=False):
        for event in json.loads(path.read_text(), parse_float=Decimal)["traceEvents"]:
            for key in ("ts", "dur"):
                assert Decimal(event.get(key, 0)) * 1000 % 1 == 0


def test_times_are_those_of_the_run(run, documents):
    for record, document in zip(run.ranks.values(), documents, strict=True):
        first_ns = min(row.start_ns for row in record.host)
        shift_us = min(e["ts"] for e in rows(document, "cuda_runtime", "user_annotation"))
        times = sorted(
            (round((e["ts"] - shift_us) * 1000) + first_ns, round(e["dur"] * 1000))
            for e in rows(document, "kernel", "gpu_memcpy", "gpu_memset")
        )
        assert times == sorted((r.start_ns, r.end_ns - r.start_ns) for r in record.device)


def test_every_kernel_has_a_launch_and_an_arrow(documents):
    for document in documents:
        calls = {e["args"]["correlation"]: e for e in rows(document, "cuda_runtime", "cuda_driver")}
        starts = {e["id"]: e for e in document["traceEvents"] if e["ph"] == "s"}
        ends = {e["id"] for e in document["traceEvents"] if e["ph"] == "f" and e["cat"] == "ac2g"}
        kernels = rows(document, "kernel")
        assert kernels
        for kernel in kernels:
            number = kernel["args"]["correlation"]
            assert calls[number]["ts"] < kernel["ts"]
            assert number in starts and number in ends


def test_kernels_carry_their_launch_dimensions(documents):
    kernel = next(e for e in rows(documents[0], "kernel") if "gemm" in e["name"])
    args = kernel["args"]
    blocks = args["grid"][0] * args["grid"][1] * args["grid"][2]
    assert args["blocks per SM"] == pytest.approx(blocks / 132, abs=1e-6)
    assert args["warps per SM"] == pytest.approx(blocks / 132 * 12, abs=1e-5)
    assert (kernel["pid"], kernel["tid"]) == (args["device"], args["stream"]) == (0, 7)


def test_collectives_carry_group_size_and_members(documents):
    args = next(e["args"] for e in rows(documents[2], "kernel") if "AllReduce" in e["name"])
    assert args["Collective name"] == "allreduce"
    assert (args["Group size"], args["Process Group Ranks"]) == (2, "[2, 3]")
    assert (args["dtype"], args["Seq"]) == ("BFloat16", 0)
    move = next(e["args"] for e in rows(documents[2], "kernel") if "SendRecv" in e["name"])
    assert (move["Collective name"], move["Src Rank"], move["Dst Rank"]) == ("recv", 0, 2)


def test_members_of_a_collective_agree_on_its_group_and_number(documents):
    def keys(document):
        return [
            (e["args"]["Process Group Name"], e["args"]["Seq"], e["args"]["In msg nelems"])
            for e in rows(document, "kernel")
            if "AllReduce" in e["name"]
        ]

    assert keys(documents[0]) == keys(documents[1])
    assert keys(documents[2]) == keys(documents[3])
    assert not set(keys(documents[0])) & set(keys(documents[2]))


def test_forward_and_backward_operators_are_joined(documents):
    events = documents[0]["traceEvents"]
    starts = {e["id"]: e for e in events if e.get("cat") == "fwdbwd" and e["ph"] == "s"}
    ends = {e["id"]: e for e in events if e.get("cat") == "fwdbwd" and e["ph"] == "f"}
    assert set(starts) == set(ends) and len(starts) > 20
    for number, start in starts.items():
        assert start["tid"] != ends[number]["tid"]
        assert start["ts"] < ends[number]["ts"]


def test_operators_nest(documents):
    for document in documents:
        for tid in {e["tid"] for e in rows(document, "cpu_op")}:
            open_ends = []
            for event in rows(document, "cpu_op", "user_annotation", "cuda_runtime"):
                if event["tid"] != tid:
                    continue
                end = event["ts"] + event["dur"]
                while open_ends and open_ends[-1] <= event["ts"] + 1e-6:
                    open_ends.pop()
                assert all(end <= outer + 1e-6 for outer in open_ends)
                open_ends.append(end)


def test_of_rows_that_coincide_the_outer_one_comes_first(tmp_path):
    inner = Op("inner", [Launch(Kernel("add", 5.0))])
    run = execute({0: Rank({"main": [Op("outer", [inner])]})})
    (document,) = written(run, tmp_path)
    nested = rows(document, "cpu_op", "cuda_runtime")
    assert [event["name"] for event in nested] == ["outer", "inner", "cudaLaunchKernel"]
    assert len({(event["ts"], event["dur"]) for event in nested}) == 1


def test_operators_carry_the_dimensions_type_and_value_of_each_input(documents):
    names = ("Input Dims", "Input type", "Concrete Inputs")
    told = [[e["args"].get(name) for name in names] for e in rows(documents[0], "cpu_op")]
    given = [row for row in told if row != [None] * 3]
    assert len(given) > len(told) / 2
    assert all(len(dims) == len(types) == len(values) for dims, types, values in given)
    products = [e["args"] for e in rows(documents[0], "cpu_op") if e["name"] == "aten::mm"]
    # 4 sequences of 1024 tokens times the weight of queries, keys and values.
    assert products[0] == products[0] | {
        "Input Dims": [[4096, 512], [512, 1536]],
        "Input type": ["c10::BFloat16"] * 2,
        "Concrete Inputs": ["", ""],
    }


def test_steps_are_annotations_on_the_host_and_on_the_device(documents):
    names = {f"ProfilerStep#{i}" for i in (1, 2, 3)}
    assert names <= {e["name"] for e in rows(documents[0], "user_annotation")}
    assert names <= {e["name"] for e in rows(documents[0], "gpu_user_annotation")}


def test_sync_rows_name_the_record_call(run, tmp_path):
    (document, *_) = written(run, tmp_path)
    records = {
        e["args"]["correlation"]: e
        for e in rows(document, "cuda_runtime")
        if e["name"] == "cudaEventRecord"
    }
    waits = [e for e in rows(document, "cuda_sync") if e["name"] == "Stream Wait Event"]
    assert waits
    for wait in waits:
        assert wait["args"]["wait_on_cuda_event_record_corr_id"] in records


def test_old_profilers_write_no_sync_rows(run, tmp_path):
    for document in written(run, tmp_path, cuda_sync_rows=False):
        assert not rows(document, "cuda_sync")
        assert [e for e in rows(document, "cuda_runtime") if e["name"] == "cudaStreamWaitEvent"]


def test_a_late_capture_lacks_launches_and_keeps_what_still_runs(tmp_path):
    main = [*[Launch(Kernel("early", 100.0))] * 4, Work(200.0), Launch(Kernel("late", 100.0))]
    run = execute({0: Rank({"main": main})})
    (document,) = written(run, tmp_path, capture_from_us=150.0)
    # The first kernel runs from 6 to 106, the second until 207.2.
    assert [e["name"] for e in rows(document, "kernel")] == ["early"] * 3 + ["late"]
    assert [e["args"]["correlation"] for e in rows(document, "cuda_runtime")] == [5]


def test_clocks_shift_host_and_device_rows(tmp_path):
    def times(folder, **offsets):
        main = [Work(5.0), Launch(Kernel("k", 10.0)), Record("e"), StreamWait("e")]
        run = execute({0: Rank({"main": main}, **offsets)})
        (document,) = written(run, tmp_path / folder)
        pick = ("cuda_runtime", "kernel", "cuda_sync")
        return [rows(document, category)[0]["ts"] for category in pick]

    call, kernel, sync = times("plain")
    shifted = times("shifted", clock_offset_us=1000.0, device_clock_offset_us=-30.0)
    assert shifted == pytest.approx([call + 1000.0, kernel + 970.0, sync + 1000.0])


def test_a_rank_alone_is_not_distributed(tmp_path):
    (document,) = written(execute({0: Rank({"main": [Work(1.0)]})}), tmp_path)
    assert "distributedInfo" not in document


def test_the_same_run_gives_the_same_bytes(tmp_path):
    job = replace(JOB, steps=1)
    first = write_traces(simulate(job), tmp_path / "a")
    second = write_traces(simulate(job), tmp_path / "b")
    assert [p.read_bytes() for p in first] == [p.read_bytes() for p in second]


def test_nothing_is_written_over(run, tmp_path):
    (tmp_path / "rank3.pt.trace.json.gz").write_text("mine")
    with pytest.raises(OutputError, match=r"rank3\.pt\.trace\.json\.gz: the file exists already"):
        write_traces(run, tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["rank3.pt.trace.json.gz"]


def test_a_folder_that_is_a_file_is_an_error(run, tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(OutputError, match="cannot be written"):
        write_traces(run, tmp_path / "file")
