"""Step times of `groundtruth/nvidia_dgxc`: NVIDIA's recipes in NeMo, on 8 to 2,304 H100 and GB200.

The heads of the tables carry the parallelism, or else the README that the table is from (Grok, and
all of v25.05.05). What neither says is in the files that the recipes run: `grok1_314b.yaml`,
`gpt3_175b_hydra.yaml`, `nemotron4-*-synth.yaml` and the `configure.sh` beside each in
NVIDIA/dgxc-benchmarking, and `conf/training/llama/llama3_1_*.yaml` of
NVIDIA/NeMo-Framework-Launcher: sequence parallelism and tensor-parallel messages beside the
multiplies wherever there is tensor parallelism, an optimizer sharded over data parallelism whose
messages run beside the passes, and no recompute but that of attention in Nemotron-4 340B.
"""

import json
import re
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import numpy as np
from _jobs_fit import by_group, errors, factors, hold_out, summary, worst
from _tables import markdown, number

from jaxperf.config import Experts, Hardware, Job, load_hardware, load_job
from jaxperf.workload._fit_steps import STEP_PRIORS, MeasuredStep, held_out_steps_us
from jaxperf.workload._parameters import model_parameters

FILE = Path("groundtruth") / "nvidia_dgxc" / "step_times.json"
LARGE = 1024
"""GPUs of a cluster that fits to smaller ones are judged on."""

BUCKET_BYTES = 125e6
"""Of gradients that are summed together: `bucket_cap_mb` of the recipes, 50 to 220."""

_UNSEEN = ("step.launch_us", "step.collective_launch_us", "step.micro_batch_us")
"""With kernels as large as these no pass waits for its host."""

PRIORS = {path: prior for path, prior in STEP_PRIORS.items() if path not in _UNSEEN}

_LLAMA_405B = msgspec.structs.replace(
    load_job("llama3-405b"), name="Llama 3.1 405B", sharding="zero1", rank_order="tp-cp-dp-pp"
)
_GROK = Job(
    name="Grok-1 314B",
    layers=64,
    hidden_size=6144,
    ffn_hidden_size=32768,
    gated_ffn=True,
    attention_heads=48,
    key_value_heads=8,
    experts=Experts(count=8, per_token=2, ffn_hidden_size=32768),
    vocabulary_size=128256,
    sequence_length=8192,
    sharding="zero1",
    gradient_bytes=2,
)
_NEMOTRON_15B = Job(
    name="Nemotron-4 15B",
    layers=32,
    hidden_size=6144,
    attention_heads=48,
    key_value_heads=8,
    vocabulary_size=256000,
    sequence_length=4096,
    sharding="zero1",
)
_NEMOTRON_340B = Job(
    name="Nemotron-4 340B",
    layers=96,
    hidden_size=18432,
    attention_heads=96,
    key_value_heads=8,
    vocabulary_size=256000,
    sequence_length=4096,
    sharding="zero1",
    gradient_bytes=2,
)
MODELS: Mapping[str, Job] = {
    # The launcher's file has 16 groups of queries, not the 8 of the model.
    "llama3.1/README_405b.md": msgspec.structs.replace(_LLAMA_405B, key_value_heads=16),
    "llama3.1/README_70b.md": msgspec.structs.replace(load_job("llama3-70b"), name="Llama 3.1 70B"),
    "llama3.1/README_8b.md": msgspec.structs.replace(load_job("llama3-8b"), name="Llama 3.1 8B"),
    "llama3.1/README.md": msgspec.structs.replace(_LLAMA_405B, gradient_bytes=2),
    "nemo_megatron/README_175b.md": load_job("gpt3-175b"),
    "nemotron/README_15b.md": _NEMOTRON_15B,
    "nemotron/README_340b.md": msgspec.structs.replace(_NEMOTRON_340B, recompute="selective"),
    "nemotron/README.md": _NEMOTRON_340B,
    "grok1/README_314b.md": _GROK,
    "grok1/README.md": _GROK,
}
"""By the README of a recipe."""


class Layout(NamedTuple):
    """What a column of a table ran: its batch and parallelism, and what of the model it kept."""

    batch: int
    tensor: int = 1
    pipeline: int = 1
    context: int = 1
    expert: int = 1
    virtual: int = 1
    micro_batch: int = 1
    layers: int | None = None
    sequence: int | None = None


_GROK_LAYOUTS = {
    8: Layout(1024, 4, 1, 1, 2, layers=2, sequence=4096),
    16: Layout(1024, 4, 1, 1, 4, layers=4, sequence=4096),
    32: Layout(1024, 4, 1, 1, 8, layers=4, sequence=4096),
    64: Layout(1024, 4, 1, 2, 8, layers=8),
    128: Layout(1024, 4, 2, 2, 8, 8, layers=16),
    256: Layout(1024, 4, 4, 2, 8, 8, layers=32),
    512: Layout(1024, 4, 8, 2, 8, 8),
    1024: Layout(2048, 4, 8, 2, 8, 8),
    2048: Layout(4096, 4, 8, 2, 8, 8),
}
"""By GPUs: grok1/README_314b.md."""

_BLOCKS_OF_GB200 = 64
"""GPUs of a job in one NVLink domain of 72: of the 18 hosts of four, jobs take 16."""


def gb200() -> Hardware:
    """NVIDIA GB200 in an NVL72 rack.

    Peaks: llama3.1/README.md of NVIDIA/dgxc-benchmarking. Memory and its bandwidth:
    ai-dynamo/aiconfigurator, systems/gb200.yaml. All else is that of B200, the same die.
    """
    hardware = load_hardware("b200")
    peaks = hardware.peak_flops_per_s
    scale = 2450e12 / peaks["bf16"]
    return msgspec.structs.replace(
        hardware,
        name="NVIDIA GB200",
        device_pattern="GB200",
        gpus_per_node=_BLOCKS_OF_GB200,
        memory_bytes=198.7e9,
        memory_bytes_per_s=8e12,
        peak_flops_per_s={name: scale * peak for name, peak in peaks.items()},
    )


def rows(shared: Path) -> list[MeasuredStep]:
    """Every column of a table that is a job."""
    machines = {"H100": load_hardware("h100"), "GB200": gb200()}
    found = []
    for table in tables(shared):
        if why_not(table):
            continue
        for gpus, machine, layout, seconds in _columns(table):
            job = _job(table, gpus, layout)
            found.append(MeasuredStep(job, machines[machine], seconds * 1e6, _label(table, job)))
    return found


def tables(shared: Path) -> list[dict[str, Any]]:
    """The tables of the file."""
    return json.loads((shared / FILE).read_text())


def why_not(table: Mapping[str, Any]) -> str:
    """Why a table is left out; empty where it is not."""
    path, head = table["path"], table["header"][0]
    if "finetuning" in path:
        return "LoRA" if "LORA" in head else "finetuning of packed samples"
    if path.startswith(("maxtext", "paxml")):
        return "MaxText and Paxml"
    if path == "grok1/README.md" and "H100" in table["heading"]:
        return "experts that are not split with tensor parallelism"
    return ""


def _times(table: Mapping[str, Any]) -> dict[int, float]:
    """Seconds of a step by column, where there is a time."""
    (cells,) = (row[1:] for row in table["rows"] if row[0].startswith("Training step time"))
    texts = {column: text.replace(" ", "") for column, text in enumerate(cells)}
    return {column: float(text) for column, text in texts.items() if text}


def _columns(table: Mapping[str, Any]) -> list[tuple[int, str, Layout, float]]:
    """GPUs, machine, layout and seconds of each column that has a time."""
    found = []
    for column, seconds in _times(table).items():
        head = table["header"][1 + column]
        gpus, machine = re.findall(r"(\d+)x? (H100|GB200)", head)[0]
        cells = {name: texts[column] for name, *texts in table["rows"]}
        found.append((int(gpus), machine, _layout(table, int(gpus), machine, head, cells), seconds))
    return found


def _layout(
    table: Mapping[str, Any], gpus: int, machine: str, head: str, cells: Mapping[str, str]
) -> Layout:
    path = table["path"]
    if path == "grok1/README_314b.md":
        return _GROK_LAYOUTS[gpus]
    if path == "grok1/README.md":
        return Layout(2 * gpus, tensor=4, expert=8)
    if path == "llama3.1/README.md":
        batch, tensor = (256, 8) if machine == "H100" else (gpus // 2, 4)
        return Layout(batch, tensor, 8, 2, virtual=8)
    in_head = re.search(r"GBS=(\d+)", head)
    batch = int(in_head[1] if in_head else cells["GBS"])
    if path == "nemotron/README.md":
        return Layout(batch, 8, 4, virtual=12)
    stated = {name: int(n) for name, n in re.findall(r"(\w+)=(\d+)", table["header"][0])}
    # Of a smaller cluster, these rows say what differs from the head.
    changed = {name: int(cells[name]) for name in ("PP", "VP") if cells.get(name, "n/a") != "n/a"}
    stated |= changed
    return Layout(
        batch,
        stated["TP"],
        stated["PP"],
        stated.get("CP", 1),
        virtual=stated.get("VP", 1) if stated["PP"] > 1 else 1,
        micro_batch=stated["MBS"],
        layers=int(cells["Layers"]) if "Layers" in cells else None,
    )


def _job(table: Mapping[str, Any], gpus: int, layout: Layout) -> Job:
    model = MODELS[table["path"]]
    layers = layout.layers or model.layers
    data = gpus // (layout.tensor * layout.pipeline * layout.context)
    job = msgspec.structs.replace(
        model,
        layers=layers,
        sequence_length=layout.sequence or model.sequence_length,
        micro_batch_size=layout.micro_batch,
        micro_batches=layout.batch // (data * layout.micro_batch),
        data_parallel=data,
        tensor_parallel=layout.tensor,
        context_parallel=layout.context,
        pipeline_parallel=layout.pipeline,
        expert_parallel=layout.expert,
        virtual_stages=layout.virtual,
        schedule="interleaved" if layout.virtual > 1 else "1F1B",
        stage_layers=stage_layers(layers, layout.pipeline * layout.virtual),
        sequence_parallel=layout.tensor > 1,
        overlap_tensor=layout.tensor > 1,
        precision="fp8" if "FP8" in table["header"][0] else "bf16",
    )
    return with_buckets(job)


def stage_layers(layers: int, chunks: int) -> tuple[int, ...] | None:
    """As many in each chunk, where embedding and output layer may count as one layer each.

    So NeMo has it where layers do not divide: `account_for_embedding_in_pipeline_split`, and
    `account_for_loss_in_pipeline_split`.
    """
    if layers % chunks == 0:
        return None
    each, left = divmod(layers + 2, chunks)
    assert left == 0, "layers, embedding and output layer do not divide either"
    return (each - 1, *(each,) * (chunks - 2), each - 1)


def with_buckets(job: Job) -> Job:
    """A job whose gradients are summed in buckets of `BUCKET_BYTES`."""
    held = model_parameters(job) / (job.tensor_parallel * job.pipeline_parallel)
    buckets = max(1, round(held * job.gradient_bytes / BUCKET_BYTES))
    return msgspec.structs.replace(job, gradient_buckets=buckets)


def _label(table: Mapping[str, Any], job: Job) -> str:
    return (
        f"{table['release']} {job.name} {job.precision}, {job.world_size} GPUs, {job.layers} layers"
    )


def table(shared: Path) -> str:
    """The section of docs/jobs-validation.md."""
    every, found = tables(shared), rows(shared)
    reasons = Counter(reason for each in every for reason in [why_not(each)] * len(_times(each)))
    left = [[reason, count] for reason, count in reasons.most_common() if reason]
    return "\n\n".join(
        [
            "## NVIDIA's recipes in NeMo on H100 and GB200",
            (__doc__ or "").split("\n\n", 1)[1].strip(),
            f"{reasons['']} of {reasons.total()} columns of {len(every)} tables are jobs; the "
            "others are left out:",
            markdown(["why", "columns"], left),
            *machine_section("H100", [row for row in found if "H100" in row.hardware.name]),
            *machine_section("GB200", [row for row in found if "GB200" in row.hardware.name]),
        ]
    )


def machine_section(name: str, rows: list[MeasuredStep]) -> list[str]:
    """Paragraphs on the rows of one machine, whose fit knows only that machine."""
    groups = {"model": _model, "precision": _precision}
    groups = {name: key for name, key in groups.items() if len({key(row) for row in rows}) > 1}
    held = hold_out(rows, groups, PRIORS)
    parts = [f"### {len(rows)} rows on {name}", summary(held)]
    if 0 < sum(row.job.world_size >= LARGE for row in rows) < len(rows):
        text = f"A fit to fewer than {LARGE:,} GPUs, judged on {LARGE:,} and more:"
        parts += [text, extrapolated(rows)]
    for group, key in groups.items():
        parts += [f"By {group}, in five folds:", by_group(held, group, key)]
    return [*parts, "The worst rows:", worst(held), "Fitted to all rows:", factors(held.fit)]


def extrapolated(rows: list[MeasuredStep]) -> str:
    """A table of what a fit to small clusters tells of large ones, by model."""
    large = np.array([row.job.world_size >= LARGE for row in rows])
    found_us = held_out_steps_us(rows, large, priors=PRIORS)
    judged = [row for row, is_large in zip(rows, large, strict=True) if is_large]
    return judged_by_model(judged, found_us[large])


def judged_by_model(rows: list[MeasuredStep], found_us: np.ndarray) -> str:
    """A table of errors: of all rows, and of each model."""
    found, models = errors(rows, found_us), np.array([_model(row) for row in rows])
    lines = []
    for group in ("all", *dict.fromkeys(models)):
        error = found[(models == group) | (group == "all")]
        size = np.abs(error)
        cells = [number(float(cell), 1) for cell in (size.mean(), np.median(size), size.max())]
        lines.append([group, len(error), *cells, f"{error.mean():+.1f}"])
    return markdown(["judged on", "rows", "mean %", "median %", "worst %", "bias %"], lines)


def _model(row: MeasuredStep) -> str:
    return row.job.name


def _precision(row: MeasuredStep) -> str:
    return row.job.precision
