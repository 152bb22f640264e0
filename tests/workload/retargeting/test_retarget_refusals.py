"""Descriptions that are not those of the trace, and jobs that cannot be: one line, and exit 2."""

import json
import re
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

import msgspec
import pytest
import tomli_w

from jaxperf import whatif
from jaxperf.cli import main
from jaxperf.config import Hardware, Job, Link
from jaxperf.errors import ConfigError
from jaxperf.graph import build_graph
from jaxperf.simulator import (
    Annotation,
    Kernel,
    Launch,
    Rank,
    SimulatedJob,
    SynchronizeStream,
    execute,
    simulate,
    write_traces,
)
from jaxperf.trace import read_run
from jaxperf.workload.retargeting._retarget import recognise_job

RECORDED = SimulatedJob(
    layers=2,
    hidden_size=512,
    attention_heads=8,
    vocabulary_size=8192,
    sequence_length=512,
    micro_batch_size=1,
    micro_batches=2,
    data_parallel=2,
    tensor_parallel=2,
    bucket_bytes=2**40,
)
DESCRIBED = Job(
    layers=2,
    hidden_size=512,
    attention_heads=8,
    vocabulary_size=8192,
    sequence_length=512,
    micro_batches=2,
    data_parallel=2,
    tensor_parallel=2,
    schedule="none",
    gradient_bytes=2.0,
    gradient_buckets=1,
)
MACHINE = Hardware(
    name="Simulated GPU",
    gpus_per_node=8,
    streaming_multiprocessors=132,
    memory_bytes=80e9,
    memory_bytes_per_s=3.2e12,
    l2_bytes=50e6,
    peak_flops_per_s={"bf16": 900e12},
    links={"nvlink": Link(350e9, 10.0), "network": Link(45e9, 26.0)},
)


def toml(path: Path, noun: msgspec.Struct, fields=None) -> Path:
    content = {key: value for key, value in msgspec.to_builtins(noun).items() if value is not None}
    path.write_bytes(tomli_w.dumps(content | (fields or {})).encode())
    return path


@pytest.fixture(scope="module")
def recorded():
    with TemporaryDirectory() as folder:
        write_traces(simulate(RECORDED), Path(folder) / "run")
        yield Path(folder) / "run"


@pytest.fixture
def command(recorded, tmp_path, capsys):
    """Asks on the command line, with some fields of the description changed."""

    def ask(*sets, fields=None, run=recorded, job=True, hardware=True):
        arguments = ["whatif", str(run), "--json"]
        for each in sets:
            arguments += ["--set", each]
        if job:
            arguments += ["--job", str(toml(tmp_path / "job.toml", DESCRIBED, fields))]
        if hardware:
            arguments += ["--hardware", str(toml(tmp_path / "machine.toml", MACHINE))]
        code = main(arguments)
        return code, capsys.readouterr()

    return ask


def assert_refused(asked, *words):
    """Exit 2, nothing on standard output, and one line that has all the words."""
    code, captured = asked
    assert code == 2, captured
    assert captured.out == ""
    assert captured.err.count("\n") == 1, captured.err
    assert "Traceback" not in captured.err
    for word in words:
        assert re.search(word, captured.err), captured.err


def test_the_right_description_is_answered(command, recorded):
    code, captured = command("layers=4")
    assert code == 0, captured.err
    (answer,) = json.loads(captured.out)["scenarios"]
    assert answer["changes"] == {"layers": 4}
    assert set(answer["origins"]) == {"recorded", "scaled", "modelled"}
    assert sum(answer["origins"].values()) == pytest.approx(1.0, abs=1e-3)
    (same,) = whatif(recorded, job=DESCRIBED, hardware=MACHINE, change={"layers": 4}).scenarios
    assert answer["step_us"] == pytest.approx(same.step_us, abs=1e-3)


# ---------------------------------------------------------------------------------------
# The description is not that of the trace


def assert_not_of_the_trace(run, graph, fields, words):
    job = msgspec.convert(msgspec.to_builtins(DESCRIBED) | fields, Job)
    with pytest.raises(ConfigError) as refused:
        recognise_job(run, graph, job, MACHINE)
    text = str(refused.value)
    assert "\n" not in text
    for word in words:
        assert re.search(word, text), text


@pytest.fixture(scope="module")
def read(recorded):
    run = read_run(recorded)
    return run, build_graph(run)


@pytest.mark.parametrize(
    "fields, words",
    [
        ({"layers": 3}, ("layers",)),
        ({"layers": 4}, ("layers",)),
        ({"layers": 1}, ("layers",)),
        ({"micro_batches": 1}, ("micro_batches", "got 2", "expected 1")),
        ({"micro_batches": 4}, ("micro_batches", "got 2", "expected 4")),
        ({"hidden_size": 1024}, ("shapes", "512", "1024")),
        ({"hidden_size": 256}, ("shapes", "512", "256")),
        ({"hidden_size": 768, "attention_heads": 12}, ("shapes", "512", "768")),
        ({"data_parallel": 1}, ("process group",)),
        ({"data_parallel": 4}, ("process group",)),
        ({"tensor_parallel": 1}, ("process group",)),
        ({"tensor_parallel": 4}, ("process group",)),
        ({"data_parallel": 4, "tensor_parallel": 1}, ("process group",)),
        ({"data_parallel": 1, "tensor_parallel": 4}, ("process group",)),
        ({"rank_order": "dp-tp-pp"}, ("process group|rank_order",)),
        ({"pipeline_parallel": 2, "schedule": "1F1B"}, ("pipeline|rank|process group",)),
        ({"context_parallel": 2}, ("context|rank|process group",)),
        ({"vocabulary_size": 16384}, ("vocab|shapes",)),
        ({"sequence_length": 1024}, ("shapes|sequence",)),
        ({"sequence_length": 256, "micro_batch_size": 2}, ("shapes|sequence",)),
        ({"micro_batch_size": 2}, ("shapes|micro_batch_size",)),
        ({"ffn_hidden_size": 4096}, ("shapes|ffn",)),
        ({"attention_heads": 16}, ("shapes|heads",)),
        ({"key_value_heads": 4}, ("shapes|heads",)),
        ({"gated_ffn": True}, ("shapes|ffn",)),
        ({"sharding": "zero3"}, ("sharding|gather",)),
        ({"recompute": "full"}, ("recompute",)),
        ({"precision": "fp32"}, ("precision", "bf16")),
        ({"sequence_parallel": True}, ("sequence_parallel|gather",)),
        ({"experts": {"count": 4, "per_token": 2, "ffn_hidden_size": 1024}}, ("experts",)),
    ],
    ids=str,
)
def test_a_description_that_is_not_of_the_trace_is_refused(read, fields, words):
    run, graph = read
    assert_not_of_the_trace(run, graph, fields, words)


@pytest.mark.parametrize(
    "fields",
    [{"layers": 3}, {"micro_batches": 4}, {"hidden_size": 1024}, {"tensor_parallel": 1}],
    ids=str,
)
def test_the_command_refuses_it_in_one_line(command, fields):
    assert_refused(command("layers=4", fields=fields), "expected")


@pytest.mark.parametrize(
    "degrees", [{"data_parallel": 2, "tensor_parallel": 1}, {"data_parallel": 1}], ids=str
)
def test_stages_that_the_description_leaves_out_are_refused(tmp_path, degrees):
    job = replace(RECORDED, data_parallel=1, tensor_parallel=1, pipeline_parallel=2)
    run = read_run(write_traces(simulate(job), tmp_path))
    assert_not_of_the_trace(run, build_graph(run), degrees, ("process group|rank|pipeline",))


# ---------------------------------------------------------------------------------------
# The other job cannot be


@pytest.mark.parametrize(
    "sets, words",
    [
        (["layers=0"], ("layers: not a count", "such as 1")),
        (["layers=3", "pipeline_parallel=2", "schedule=1F1B"], ("layers", "such as 2 or 4")),
        (["pipeline_parallel=2"], ("several stages need a schedule", "1F1B")),
        (["pipeline_parallel=4", "schedule=1F1B"], ("layers: not divisible", "such as 4")),
        (["tensor_parallel=3"], ("attention_heads: not divisible", "such as 6 or 9")),
        (["tensor_parallel=16"], ("attention_heads: not divisible", "such as 16")),
        (["attention_heads=7"], ("hidden_size: not divisible", "such as 511 or 518")),
        (["vocabulary_size=8191"], ("vocabulary_size: not divisible", "such as 8190 or 8192")),
        (["data_parallel=-1"], ("data_parallel: not a count",)),
        (["micro_batches=0"], ("micro_batches: not a count",)),
        (["expert_parallel=2"], ("no experts",)),
        (["layers=two"], ("layers", "[Ee]xpected int")),
        (["layers=2.5"], ("layers", "[Ee]xpected int")),
        (["schedule=gpip"], ("schedule: unknown word", "gpipe")),
        (["gpus_per_node=0"], ("gpus_per_node", "1 or more")),
        (["hidden_size=1e30"], ("hidden_size: too large a number",)),
        (
            ["pipeline_parallel=2", "schedule=interleaved", "virtual_stages=2"],
            ("layers: not divisible", "such as 4"),
        ),
    ],
    ids=str,
)
def test_a_job_that_cannot_be_is_refused_with_the_nearest_that_can(command, sets, words):
    assert_refused(command(*sets), *words)


@pytest.mark.parametrize(
    "key, nearest",
    [
        ("layrs", "layers"),
        ("data_paralel", "data_parallel"),
        ("microbatches", "micro_batches"),
        ("seq_length", "sequence_length"),
        ("memory_bytes_per_", "memory_bytes_per_s"),
    ],
)
def test_an_unknown_key_is_refused_with_the_nearest(command, key, nearest):
    assert_refused(command(f"{key}=4"), f"{key}: no such key", rf"\b{nearest}\b")


def test_an_unknown_key_of_the_file_is_refused_with_the_nearest(command):
    assert_refused(command("layers=4", fields={"layrs": 2}), "job.toml: layrs", r"\blayers\b")


@pytest.mark.parametrize(
    "sets",
    [
        ["schedule=zero-bubble", "pipeline_parallel=2"],
        ["schedule=dualpipe", "pipeline_parallel=2", "micro_batches=4"],
    ],
    ids=str,
)
def test_a_schedule_is_answered_or_refused_by_its_name(command, sets):
    code, captured = command(*sets)
    if code == 0:
        assert json.loads(captured.out)["scenarios"][0]["step_us"] > 0
    else:
        assert_refused((code, captured), "schedule")


@pytest.mark.parametrize(
    "field", ["optimizer=sgd", "precision=fp8", "overlap_gradients=false"], ids=str
)
def test_a_field_that_changes_nothing_is_not_passed_over_in_silence(command, field):
    """It is refused, noted, or it changes the answer."""
    code, captured = command(field, "micro_batches=3")
    if code == 2:
        assert_refused((code, captured), field.split("=")[0])
        return
    _, without = command("micro_batches=3")
    found, plain = (json.loads(each.out) for each in (captured, without))
    same = found["scenarios"][0]["step_us"] == plain["scenarios"][0]["step_us"]
    assert not same or any(field.split("=")[0] in note["text"] for note in found["notes"])


# ---------------------------------------------------------------------------------------
# What is asked for is not there


def test_a_field_of_the_job_without_a_job_is_refused(command):
    assert_refused(command("layers=4", job=False), "layers", "--job")


@pytest.mark.parametrize("size", ["nan", "inf", "1e400", "0", "1.5", "many"])
def test_a_node_of_no_size_is_refused(command, size):
    assert_refused(command(f"gpus_per_node={size}"), "gpus_per_node")


def test_a_machine_that_is_not_known_is_refused(command):
    assert_refused(command("layers=4", hardware=False), "Simulated GPU", "h100", "--hardware")


def test_a_job_file_that_is_absent_is_refused(recorded, tmp_path, capsys):
    path = tmp_path / "absent.toml"
    code = main(["whatif", str(recorded), "--job", str(path), "--set", "layers=4"])
    assert_refused((code, capsys.readouterr()), "absent.toml")


def test_a_trace_without_backward_passes_is_refused(command, tmp_path):
    def step(index):
        products = [Launch(Kernel("sm90_xmma_gemm_bf16", 20.0, "gemm")) for _ in range(12)]
        return Annotation(f"ProfilerStep#{index}", (*products, SynchronizeStream()))

    run = execute({0: Rank({"main": [step(index) for index in range(1, 4)]})})
    write_traces(run, tmp_path / "run")
    fields = {"data_parallel": 1, "tensor_parallel": 1}
    assert_refused(
        command("layers=4", fields=fields, run=tmp_path / "run"), "backward|micro_batches"
    )
