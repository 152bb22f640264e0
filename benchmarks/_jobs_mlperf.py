"""Step times of `groundtruth/mlperf_training`: GPT-3 and Llama 3.1 on 32 to 10,752 GPUs.

Submissions to MLPerf Training v3.1 to v5.1 that train from scratch, with NVIDIA's implementation in
NeMo. Parallelism is joined to a row where its file of settings is clear. Where it is not joined, it
is in the name of the submitter's settings, such as `config_DGXH100_96x8x128x4x8_mbs1.sh`: nodes,
GPUs, micro-batches, tensor and pipeline parallelism. What no name says is in `conf/custom.yaml` and
`config_common.sh` beside them: FP8, sequence parallelism, tensor-parallel messages beside the
multiplies, an optimizer sharded over data parallelism with messages beside the passes, gradients
summed in bf16, embedding and output layer counted as a layer each where layers do not divide, and
no recompute. Of GPT-3 tokens per second are logged, from which the step follows; of the others a
step is the median.
"""

import csv
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import _jobs_dgxc
import msgspec
from _jobs_dgxc import (
    PRIORS,
    gb200,
    judged_by_model,
    machine_section,
    stage_layers,
    with_buckets,
)
from _tables import markdown

from jaxperf.config import Hardware, Job, load_hardware, load_job
from jaxperf.workload._fit_steps import MeasuredStep, computed_steps_us, fit_step_times

FILE = Path("groundtruth") / "mlperf_training" / "step_times.csv"

MODELS: Mapping[str, Job] = {
    "gpt3": load_job("gpt3-175b"),
    "llama31_405b": msgspec.structs.replace(
        load_job("llama3-405b"), name="Llama 3.1 405B", sharding="zero1", gradient_bytes=2
    ),
    "llama31_8b": msgspec.structs.replace(
        load_job("llama3-8b"), name="Llama 3.1 8B", sharding="zero1", gradient_bytes=2
    ),
}
"""By benchmark."""


FAMILIES: Mapping[str, re.Pattern[str]] = {
    "H100 and H200": re.compile("H100|H200"),
    "B200 and GB200": re.compile("B200"),
}
"""Machines that are fitted together: too few rows are of one."""


class Settings(NamedTuple):
    """Parallelism and micro-batch of a submission."""

    tensor: int
    pipeline: int
    virtual: int
    context: int
    micro_batch: int


_GPT3_V31 = Settings(4, 8, 12, 1, 1)
_GPT3_V41 = Settings(4, 8, 6, 1, 2)
_LLAMA_405B = Settings(4, 8, 8, 2, 1)
_LLAMA_8B = Settings(1, 1, 1, 2, 1)
NAMED: Mapping[tuple[str, str], Settings] = {
    ("ND_H100_v5_n1344_pytorch", "gpt3"): _GPT3_V31,
    ("eos-dfw_n1024_ngc23.09_nemo", "gpt3"): _GPT3_V31,
    ("eos-dfw_n1280_ngc23.09_nemo", "gpt3"): _GPT3_V31,
    ("eos-dfw_n1344_ngc23.09_nemo", "gpt3"): _GPT3_V31,
    ("eos-dfw_n512_ngc23.09_nemo", "gpt3"): _GPT3_V31,
    ("eos-dfw_n768_ngc23.09_nemo", "gpt3"): _GPT3_V31,
    ("eos_n64_ngc23.09_nemo", "gpt3"): _GPT3_V31,
    ("eos_n96_ngc23.09_nemo", "gpt3"): _GPT3_V31,
    ("eos_n32_ngc24.09_nemo", "gpt3"): _GPT3_V41,
    ("eos_n64_ngc24.09_nemo", "gpt3"): _GPT3_V41,
    ("1536xBM.GPU.H100.8", "gpt3"): _GPT3_V41,
    ("3072xBM.GPU.H100.8", "gpt3"): _GPT3_V41,
    ("hpg.dgxb200x8.n32", "llama31_405b"): _LLAMA_405B,
    ("hpg.dgxb200x8.n56", "llama31_405b"): _LLAMA_405B,
    ("hpg.dgxb200x8.n4", "llama31_8b"): _LLAMA_8B,
    ("hpg.dgxb200x8.n16", "llama31_8b"): _LLAMA_8B,
    ("hpg.dgxb200x8.n32", "llama31_8b"): _LLAMA_8B,
}
"""By system and benchmark: settings from the name of their file, `INTERLEAVED_PIPELINE` inside."""

_REPLICAS_LAST = re.compile(r"carina_|tyche_ngpu512_|hsg_|hpg\\.")
"""Systems whose data-parallel ranks are farthest apart: `TP_PP_DP_MAPPING`."""

_NOT_BESIDE = re.compile(r"hsg_|hpg\\.")
"""Systems whose tensor-parallel messages run alone: `TP_COMM_OVERLAP` is False, or not set."""


def rows(shared: Path) -> list[MeasuredStep]:
    """Every submission that is a job."""
    with (shared / FILE).open() as file:
        found = list(csv.DictReader(file))
    reasons = why_not(found)
    return [_measured(row) for row, reason in zip(found, reasons, strict=True) if not reason]


def why_not(found: Sequence[Mapping[str, str]]) -> list[str]:
    """Why each row of the file is left out; empty where it is not."""
    seen, reasons = set(), []
    for row in found:
        same = (row["benchmark"], row["submitter"], row["nodes"], row["median_train_step_time_s"])
        reason = _why_not(row)
        if not reason and row["median_train_step_time_s"] and same in seen:
            reason = "submitted again in a later round"
        seen.add(same)
        reasons.append(reason)
    return reasons


def _why_not(row: Mapping[str, str]) -> str:
    if row["benchmark"] not in MODELS:
        return row["benchmark"]
    if _settings(row) is None:
        return "parallelism unknown"
    if row["config_ambiguous"] == "True":
        return "settings ambiguous"
    if "fp4" in row["config_file"]:
        return "FP4"
    if _machine(row) is None:
        return "machine without a file"
    return ""


def _settings(row: Mapping[str, str]) -> Settings | None:
    if not row["TENSOR_MODEL_PARALLEL"]:
        return NAMED.get((row["system"], row["benchmark"]))
    virtual = row["INTERLEAVED_PIPELINE"]
    return Settings(
        int(row["TENSOR_MODEL_PARALLEL"]),
        int(row["PIPELINE_MODEL_PARALLEL"]),
        int(virtual) if virtual.isdigit() else 1,
        int(row["CONTEXT_PARALLEL"] or 1),
        int(row["MICRO_BATCH_SIZE"]),
    )


def _machine(row: Mapping[str, str]) -> Hardware | None:
    name = row["accelerator"]
    if "GB200" in name:
        return gb200()
    for short in ("H100", "H200", "B200"):
        if short in name:
            return load_hardware(short.lower())
    return None


def _measured(row: Mapping[str, str]) -> MeasuredStep:
    settings, hardware, model = _settings(row), _machine(row), MODELS[row["benchmark"]]
    assert settings is not None, "why_not leaves such a row out"
    assert hardware is not None, "why_not leaves such a row out"
    gpus, batch = int(row["nodes"]) * int(row["accel_per_node"]), int(row["global_batch_size"])
    data = gpus // (settings.tensor * settings.pipeline * settings.context)
    chunks = settings.pipeline * settings.virtual
    job = msgspec.structs.replace(
        model,
        micro_batch_size=settings.micro_batch,
        micro_batches=batch // (data * settings.micro_batch),
        data_parallel=data,
        tensor_parallel=settings.tensor,
        context_parallel=settings.context,
        pipeline_parallel=settings.pipeline,
        rank_order="tp-cp-pp-dp" if _REPLICAS_LAST.match(row["system"]) else "tp-cp-dp-pp",
        schedule="interleaved" if settings.virtual > 1 else "1F1B",
        virtual_stages=settings.virtual,
        stage_layers=stage_layers(model.layers, chunks),
        sequence_parallel=settings.tensor > 1,
        overlap_tensor=settings.tensor > 1 and not _NOT_BESIDE.match(row["system"]),
        precision="fp8",
    )
    seconds = row["median_train_step_time_s"]
    if row["benchmark"] == "gpt3":
        tokens = batch * model.sequence_length
        seconds = tokens / float(row["median_throughput_samples_per_s"])
    label = f"{row['round']} {model.name}, {gpus} {hardware.name}, {row['submitter']}"
    return MeasuredStep(with_buckets(job), hardware, float(seconds) * 1e6, label)


def table(shared: Path) -> str:
    """The section of docs/jobs-validation.md."""
    with (shared / FILE).open() as file:
        found = list(csv.DictReader(file))
    reasons = Counter(why_not(found))
    left = [[reason, count] for reason, count in reasons.most_common() if reason]
    parts = [
        "## MLPerf Training: GPT-3 and Llama 3.1 on H100, H200, B200 and GB200",
        (__doc__ or "").split("\n\n", 1)[1].strip(),
        f"{reasons['']} of {len(found)} rows are jobs; the others are left out:",
        markdown(["why", "rows"], left),
    ]
    recipes = _jobs_dgxc.rows(shared)
    for name, machines in FAMILIES.items():
        mine = [row for row in rows(shared) if machines.search(row.hardware.name)]
        theirs = [row for row in recipes if machines.search(row.hardware.name)]
        fit = fit_step_times(theirs, priors=PRIORS)
        parts += [
            *machine_section(name, mine),
            f"A fit to the {len(theirs)} rows of NVIDIA's recipes on such machines, and to none of "
            "these, tells:",
            judged_by_model(mine, computed_steps_us(mine, fit)),
        ]
    return "\n\n".join(parts)
