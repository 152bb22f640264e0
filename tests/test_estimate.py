"""Estimates: rates worked out by hand, what is told beside them, files, and what is refused."""

import gzip
import io
import json
import re

import msgspec
import numpy as np
import pytest
import tomli_w
from rich.console import Console

from jaxperf import Estimate, estimate, estimate_to_json, print_estimate, write_report, write_trace
from jaxperf.cli import main
from jaxperf.config import Job, built_in_jobs, load_hardware, set_hardware
from jaxperf.cost import Fit
from jaxperf.errors import ConfigError
from jaxperf.graph import TaskClass
from jaxperf.workload import StepFit, default_step_parameters, job_memory

changed = msgspec.structs.replace

JOB = Job(
    name="small",
    layers=4,
    hidden_size=512,
    attention_heads=8,
    vocabulary_size=1000,
    sequence_length=256,
    micro_batch_size=2,
    micro_batches=4,
    data_parallel=4,
    pipeline_parallel=2,
)
LARGE = changed(JOB, hidden_size=8192, attention_heads=64, layers=32, sequence_length=4096)


@pytest.fixture(scope="module")
def small() -> Estimate:
    return estimate(JOB, hardware="a100")


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    path = tmp_path_factory.mktemp("job") / "small.toml"
    content = {k: v for k, v in msgspec.to_builtins(JOB).items() if v is not None}
    path.write_text(tomli_w.dumps(content))
    return path


def test_the_rates_are_those_of_the_step(small):
    step_s, gpus = small.step_us / 1e6, 4 * 2
    sequences = 2 * 4 * 4
    assert small.gpus == gpus
    assert small.samples_per_s == pytest.approx(sequences / step_s)
    assert small.tokens_per_s_per_gpu == pytest.approx(sequences * 256 / step_s / gpus)
    # Four layers of 12 h^2 and the output layer; and attention, of each token with all of 256.
    per_token = 6 * (4 * 12 * 512**2 + 1000 * 512) + 12 * 4 * 512 * 256
    flops_per_s = per_token * sequences * 256 / step_s / gpus
    assert small.model_flops_per_s_per_gpu == pytest.approx(flops_per_s)
    assert small.model_flops_utilization == pytest.approx(flops_per_s / 312e12)


def test_the_breakdown_of_every_rank_adds_up_to_the_step(small):
    for part in (small.breakdown, *(each for _, each in small.rank_breakdowns)):
        assert part.total_us == pytest.approx(small.step_us)
        assert part.total_us == pytest.approx(
            part.compute_us
            + part.overlap_us
            + part.exposed_communication_us
            + part.memory_us
            + part.idle_us
        )
    assert sum(small.critical_path_us.values()) == pytest.approx(small.step_us)


def test_the_graph_holds_the_times_of_the_timeline(small):
    start_us, end_us = small.timeline.start_us, small.timeline.end_us
    np.testing.assert_allclose(small.graph.start_ns / 1e3, start_us, atol=1e-3)
    np.testing.assert_allclose(small.graph.end_ns / 1e3, end_us, atol=2e-3)
    assert end_us.max() == pytest.approx(small.step_us)
    host = small.graph.duration_ns[small.graph.task_class == TaskClass.LAUNCH]
    assert np.all(host > 0)


def test_what_is_taken_for_granted_is_noted(small):
    told = [note.code for note in small.notes]
    assert told == ["step-fit-assumed", "overheads-assumed", "power-assumed"]
    unknown = estimate(JOB, hardware="v100")
    told = [note.code for note in unknown.notes]
    assert told == ["model-not-fitted", "overheads-assumed", "power-assumed"]
    assert estimate(JOB).notes[0].code == "hardware-assumed"
    assert estimate(JOB).hardware == load_hardware("h100")


def test_keys_change_the_job_or_the_machine():
    found = estimate(JOB, change={"micro_batches": 8.0, "memory_bytes_per_s": 5e12})
    assert found.job == changed(JOB, micro_batches=8)
    assert found.hardware.memory_bytes_per_s == 5e12
    assert estimate(JOB, change={"hardware": "b200"}).hardware == load_hardware("b200")


def test_more_bandwidth_and_more_micro_batches_do_what_they_should(small):
    slow = set_hardware(small.hardware, {"memory_bytes_per_s": 1e11})
    assert estimate(JOB, hardware=slow).step_us > 1.5 * small.step_us
    more = estimate(JOB, hardware="a100", change={"micro_batches": 16})
    assert more.bubble_fraction < small.bubble_fraction / 2


def test_a_job_that_does_not_fit_is_told_what_would_make_it():
    found = estimate(LARGE, hardware="a100")
    assert not found.memory_fit.fits
    assert found.memory.peak.total_bytes > load_hardware("a100").memory_bytes
    assert all(remedy.fits for remedy in found.memory_fit.remedies)
    remedy = found.memory_fit.remedies[0]
    assert job_memory(remedy.job).peak.total_bytes <= load_hardware("a100").memory_bytes
    printed = io.StringIO()
    print_estimate(found, Console(width=80, file=printed))
    text = printed.getvalue()
    assert "It does not fit" in text and "What would fit" in text


@pytest.mark.parametrize(
    "job, machine, expected",
    [
        (JOB, {}, []),
        (changed(JOB, precision="fp8"), {}, ["precision fp8"]),
        (changed(JOB, data_parallel=8), {"links": "nvlink"}, ["links.network"]),
        (JOB, {"links": "network"}, ["links: none inside a node"]),
    ],
)
def test_what_has_no_basis_is_named(job, machine, expected):
    hardware = load_hardware("a100")
    if machine:
        kept = {name: hardware.links[name] for name in [machine["links"]]}
        hardware = changed(hardware, links=kept)
    found = estimate(job, hardware=hardware).out_of_range
    assert len(found) == len(expected)
    assert all(text in line for text, line in zip(expected, found, strict=True))


def test_work_beyond_that_of_a_fit_is_out_of_range():
    fit = Fit(
        hardware=("Tesla V100-SXM2-32GB",),
        numbers={"device.memory_bytes_per_s": (0.5,)},
        work_range={"matmul.flops": (1e3, 1e6)},
    )
    found = estimate(JOB, hardware="a100", fit=fit)
    assert found.out_of_range[0].startswith("hardware NVIDIA A100")
    (matmul,) = (line for line in found.out_of_range if line.startswith("matmul.flops"))
    assert matmul.endswith("the fit has seen 1e+03 to 1e+06")
    assert "model-not-fitted" not in {note.code for note in found.notes}
    assert found.step_us > estimate(JOB, hardware="a100").step_us


def test_a_fit_to_steps_gives_the_overheads_too():
    parameters = default_step_parameters()
    longer = StepFit(
        factors={"step.step_us": 2.0},
        parameters=type(parameters)(**{**parameters.__dict__, "step_us": np.float64(20e3)}),
        covariance=np.eye(1),
        spread=0.1,
    )
    found = estimate(JOB, hardware="v100", fit=longer, power="v100")
    usual = estimate(JOB, hardware="v100")
    assert found.step_us == pytest.approx(usual.step_us + 10e3, rel=1e-3)
    assert found.notes == ()


# The others differ from these in their sizes alone.
@pytest.mark.parametrize("name", ["gpt3-15b", "llama3-8b", "mixtral-8x7b", "deepseek-v3"])
def test_every_kind_of_job_that_comes_with_the_package_has_an_estimate(name):
    found = estimate(name, hardware="h100", change={"micro_batches": _few(name)})
    assert found.gpus == built_in_jobs()[name].world_size
    assert 0.05 < found.model_flops_utilization < 0.8
    assert found.out_of_range == ()


def _few(name):
    """As few micro-batches as the schedule takes."""
    return 2 * built_in_jobs()[name].pipeline_parallel


@pytest.mark.parametrize(
    "arguments, message",
    [
        ({"job": "lama3-70b"}, "no such job.*llama3-70b"),
        ({"job": JOB, "hardware": "h101"}, "no such hardware.*h100"),
        ({"job": JOB, "change": {"layer": 8}}, "set layer: no such key.*layers"),
        ({"job": JOB, "change": {"memory_bytes_per_": 8}}, "no such key.*memory_bytes_per_s"),
        ({"job": JOB, "change": {"layers": 5}}, "layers: not divisible by pipeline_parallel"),
        ({"job": JOB, "change": {"memory_bytes_per_s": -1.0}}, "not a quantity"),
        ({"job": JOB, "change": {"memory_bytes_per_s": 1e-300}}, "the step takes forever"),
        ({"job": JOB, "fit": "absent.toml"}, "absent.toml: cannot be read"),
        ({"job": "absent.toml"}, "absent.toml: cannot be read"),
        ({"job": changed(JOB, layers=5)}, "small: layers: not divisible"),
    ],
)
def test_what_cannot_be_is_refused(arguments, message):
    with pytest.raises(ConfigError, match=message):
        estimate(**arguments)


# The command line and the files
# ---------------------------------------------------------------------------------------


def test_the_json_is_one_object_that_says_what_the_estimate_does(file, capsys):
    assert main(["estimate", str(file), "--hardware", "a100", "--json"]) == 0
    captured = capsys.readouterr()
    printed = json.loads(captured.out)
    assert captured.err == ""
    assert list(printed) == [
        "job",
        "hardware",
        "gpus",
        "step_us",
        "tokens_per_s_per_gpu",
        "samples_per_s",
        "model_flops_per_s_per_gpu",
        "model_flops_utilization",
        "breakdown",
        "bubble",
        "critical_path_us",
        "memory",
        "energy",
        "out_of_range",
        "notes",
    ]
    assert printed == estimate_to_json(estimate(JOB, hardware="a100"))
    assert printed["job"] == "small" and printed["gpus"] == 8
    stages = printed["memory"]["stages"]
    assert [stage["rank"] for stage in stages] == [0, 4]
    parts = {key for key in stages[0] if key.endswith("_bytes")} - {"total_bytes", "over_bytes"}
    assert stages[0]["total_bytes"] == pytest.approx(sum(stages[0][key] for key in parts))
    assert printed["memory"]["fits"] is True and printed["memory"]["remedies"] == []


def test_energy_is_power_by_time_and_a_token_has_its_part(small):
    accelerators, _, nodes_ac, _ = small.energy.boundaries
    assert accelerators.average_w == pytest.approx(small.gpus * small.energy.accelerator_w)
    assert accelerators.step_j == pytest.approx(accelerators.average_w * small.step_us * 1e-6)
    tokens_per_s = small.tokens_per_s_per_gpu * small.gpus
    assert nodes_ac.token_j * tokens_per_s == pytest.approx(nodes_ac.average_w)
    # Every kernel of an estimate has known work.
    assert small.energy.known_work_share == pytest.approx(1.0)


def test_a_machine_that_nothing_describes_the_power_of_has_no_energy():
    stranger = msgspec.structs.replace(load_hardware("h100"), name="stranger")
    found = estimate(JOB, hardware=stranger)
    assert found.energy is None
    assert found.notes[-1].code == "power-unknown"
    assert estimate(JOB, hardware=stranger, power="h100").energy is not None


def test_several_settings_are_one_changed_job(file, capsys):
    options = ["--set", "micro_batches=2", "--set", "recompute=full", "--set", "hardware=h200"]
    assert main(["estimate", str(file), *options, "--json"]) == 0
    printed = json.loads(capsys.readouterr().out)
    assert printed["hardware"] == load_hardware("h200").name
    expected = estimate(changed(JOB, micro_batches=2, recompute="full"), hardware="h200")
    assert printed["step_us"] == pytest.approx(expected.step_us, abs=1e-3)


def test_a_person_is_told_the_answer_first(file, capsys):
    assert main(["estimate", str(file)]) == 0
    text = capsys.readouterr().out
    assert re.match(r"small on 8 NVIDIA H100 80GB HBM3: [\d.]+ ms a step\n", text)
    assert "hardware-assumed" in text and "It fits: stage 0 needs most" in text


def test_the_page_and_the_trace_are_written(file, tmp_path, capsys):
    page, trace = tmp_path / "report.html", tmp_path / "timeline.json.gz"
    assert main(["estimate", str(file), "--report", str(page), "--trace-out", str(trace)]) == 0
    assert capsys.readouterr().err == f"Wrote {page}\nWrote {trace}\n"
    text = page.read_text()
    assert "a step, estimated" in text and "measured above" not in text
    assert "Memory of a rank" in text and "overheads-assumed" in text
    document = json.loads(gzip.decompress(trace.read_bytes()))
    slices = [event for event in document["traceEvents"] if event["ph"] == "X"]
    assert {event["pid"] for event in slices} == {0, 4}
    assert not any("measured" in key for event in slices for key in event.get("args", {}))
    step_us = max(event["ts"] + event["dur"] for event in slices)
    assert step_us == pytest.approx(estimate(JOB).step_us, abs=0.01)
    assert any(event["name"] == "launch forward" for event in slices)


def test_a_result_is_not_written_over(small, tmp_path):
    path = tmp_path / "mine"
    path.write_text("mine")
    for write in (write_report, write_trace):
        with pytest.raises(Exception, match="exists already"):
            write(small, path)
    assert path.read_text() == "mine"


@pytest.mark.parametrize(
    "arguments, complaint",
    [
        ([], "required: JOB.toml"),
        (["lama3-70b"], "no such job"),
        (["llama3-70b", "--set", "layers=79"], "layers: not divisible.*such as 60 or 80"),
        (["llama3-70b", "--set", "layer=80"], "set layer: no such key.*layers"),
        (["llama3-70b", *["--set", "layers=80"] * 2], "--set layers: given twice"),
        (["llama3-70b", "--hardware", "h101"], "no such hardware"),
        (["llama3-70b", "--report", "none/report.html"], "its folder does not exist"),
    ],
)
def test_a_job_that_cannot_be_is_refused_in_one_line(arguments, complaint, capsys):
    assert main(["estimate", *arguments]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.count("\n") == 1
    assert re.search(complaint, captured.err), captured.err
