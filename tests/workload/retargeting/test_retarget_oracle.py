"""Jobs whose true answers are known: every change of the job itself that their truth has."""

import json
from functools import cache

import pytest

from jaxperf import whatif
from jaxperf.config import Hardware, Job, Link, Scenario

# The goals of the project. Measured: 1.2 % on average, 4.4 % at worst.
MEAN_PERCENT, WORST_PERCENT = 4.0, 10.0

FIELD = {
    "dp": "data_parallel",
    "pp": "pipeline_parallel",
    "tp": "tensor_parallel",
    "layers": "layers",
    "hidden": "hidden_size",
    "heads": "attention_heads",
    "seq": "sequence_length",
    "vocab": "vocabulary_size",
    "micro": "micro_batch_size",
    "micros": "micro_batches",
    "buckets": "gradient_buckets",
}
FOLDERS = {
    "gpt_dp2_pp2_tp2": 11,
    "gpt_dp2_pp2_tp2_old_profiler": 1,
    "gpt_fsdp4": 4,
    "gpt_pp4_cpu_bound": 2,
}
"""The folders that have changes of the job, and how many; the other two ask for durations only."""


def fields(words):
    """What the truth says of a job, as fields of one."""
    found = {FIELD[word]: value for word, value in words.items() if word in FIELD}
    if "recompute" in words:
        found["recompute"] = "full" if words["recompute"] else "none"
    if "fsdp" in words:
        found["sharding"] = "zero3" if words["fsdp"] else "none"
    return found


def machine(facts):
    """The facts of the truth; what it leaves out, as a user would know it of such a machine."""
    return Hardware(
        name=facts["name"],
        gpus_per_node=facts["gpus_per_node"],
        streaming_multiprocessors=facts["sms"],
        memory_bytes=80 * 2**30,
        memory_bytes_per_s=facts["hbm_gbytes_per_s"] * 1e9,
        l2_bytes=50e6,
        launch_queue=facts["launch_queue"],
        peak_flops_per_s={"bf16": facts["peak_bf16_tflops"] * 1e12},
        links={
            "nvlink": Link(facts["nvlink_bus_gbytes_per_s"] * 1e9, 9.0),
            "network": Link(facts["network_bus_gbytes_per_s_per_gpu"] * 1e9, 24.0),
        },
    )


def is_of_the_job(change):
    return set(change) <= {*FIELD, "recompute", "fsdp"}


@cache
def answered(folder):
    """The answers of a folder, and its truth: what was asked, and the step that it takes."""
    truth = json.loads((folder / "truth.json").read_text())
    asked = [each for each in truth["what_if"] if is_of_the_job(each["change"])]
    result = whatif(
        folder,
        job=Job(**fields(truth["job"]), schedule=truth["schedule"], name=folder.name),
        hardware=machine(truth["hardware"]),
        scenarios=[Scenario(name=str(i), set=fields(e["change"])) for i, e in enumerate(asked)],
    )
    return result, truth, asked


def errors_percent(folder):
    result, _, asked = answered(folder)
    return {
        str(entry["change"]): 100 * (answer.step_us / entry["step_us"] - 1)
        for answer, entry in zip(result.scenarios, asked, strict=True)
    }


@pytest.mark.slow
@pytest.mark.parametrize("job", FOLDERS)
def test_every_change_of_a_job_is_answered(shared, job):
    errors = errors_percent(shared / "oracle" / job)
    assert len(errors) == FOLDERS[job]
    wrong = {change: error for change, error in errors.items() if abs(error) > WORST_PERCENT}
    assert not wrong
    assert sum(map(abs, errors.values())) / len(errors) <= MEAN_PERCENT


@pytest.mark.slow
@pytest.mark.parametrize("job", FOLDERS)
def test_every_answer_says_where_its_durations_come_from(shared, job):
    result, truth, _ = answered(shared / "oracle" / job)
    assert result.baseline.step_us == pytest.approx(truth["steady_step_us"], rel=0.02)
    for answer in result.scenarios:
        assert answer.origins is not None and answer.breakdown is not None
        assert set(answer.origins) == {"recorded", "scaled", "modelled"}
        assert sum(answer.origins.values()) == pytest.approx(1.0)
        assert answer.breakdown.total_us == pytest.approx(answer.step_us, rel=0.02)


def test_no_change_of_a_job_is_left_out(shared):
    found = {}
    for path in sorted((shared / "oracle").glob("*/truth.json")):
        changes = [each["change"] for each in json.loads(path.read_text())["what_if"]]
        if asked := [change for change in changes if is_of_the_job(change)]:
            found[path.parent.name] = len(asked)
    assert found == FOLDERS


@pytest.mark.slow
def test_the_mean_over_all_folders_is_within_the_goal(shared):
    errors = [
        abs(error) for job in FOLDERS for error in errors_percent(shared / "oracle" / job).values()
    ]
    print(f"{len(errors)} changes: mean {sum(errors) / len(errors):.2f} %, worst {max(errors):.2f}")
    assert sum(errors) / len(errors) <= MEAN_PERCENT
    assert max(errors) <= WORST_PERCENT
