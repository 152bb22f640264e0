"""How long estimates and re-targeting take, for docs/performance.md.

    python benchmarks/jobs_speed.py SHARED [--write docs/performance.md]

Each estimate is a process of its own, compilation included; variants are one batched call, first
and warm; re-targeting goes from a simulated run of eight ranks to more.
"""

import sys
import tempfile
import time
from pathlib import Path

import numpy as np
from _processes import jaxperf
from _script import make_tables
from _tables import markdown, number

from jaxperf.config import load_hardware, load_job, set_job
from jaxperf.cost import default_model
from jaxperf.graph import build_graph
from jaxperf.replay import double_precision
from jaxperf.simulator import SimulatedJob, simulate, write_traces
from jaxperf.trace import read_run
from jaxperf.workload import (
    batched_step_us,
    default_step_parameters,
    recognise_job,
    retarget,
    steady_us,
)

ESTIMATES = (
    ("GPT-3 175B", "gpt3-175b", {"data_parallel": 8, "pipeline_parallel": 16}),
    ("Llama 3 405B", "llama3-405b", {}),
    ("Mixtral 8x7B", "mixtral-8x7b", {}),
)
VARIANTS = 10_000


def table(_: Path) -> str:
    return "\n\n".join([estimates(), variants(), retargeting()])


def estimates() -> str:
    rows = []
    for name, job, changes in ESTIMATES:
        gpus = set_job(load_job(job), changes).world_size
        words = [word for key, value in changes.items() for word in ("--set", f"{key}={value}")]
        spent = jaxperf("estimate", job, "--hardware", "h100", *words)
        peak_mb = number(spent.peak_bytes / 1e6, 0)
        rows.append([name, f"{gpus:,}", number(spent.wall_s, 1), peak_mb])
    return markdown(["estimate, first call", "GPUs", "seconds", "peak MB"], rows)


def variants() -> str:
    job, model = load_job("gpt3-175b"), default_model(load_hardware("h100"))
    random = np.random.default_rng(0)
    changes = {
        "micro_batches": random.integers(16, 256, VARIANTS).astype(float),
        "micro_batch_size": random.uniform(1, 4, VARIANTS),
        "data_parallel": random.integers(1, 64, VARIANTS).astype(float),
        "sequence_length": random.uniform(1024, 8192, VARIANTS),
    }
    seconds = []
    for _ in range(2):
        begin = time.perf_counter()
        with double_precision():
            np.asarray(batched_step_us(job, changes, model, default_step_parameters()))
        seconds.append(time.perf_counter() - begin)
    rows = [[f"{VARIANTS:,} variants of GPT-3 175B", f"{seconds[0]:.1f}", f"{seconds[1]:.2f}"]]
    return markdown(["one batched call", "first s", "warm s"], rows)


def retargeting() -> str:
    base = SimulatedJob(
        layers=8, micro_batches=4, data_parallel=2, tensor_parallel=2, pipeline_parallel=2
    )
    job = set_job(
        load_job("gpt3-15b"),
        {
            "layers": 8,
            "hidden_size": base.hidden_size,
            "ffn_hidden_size": "none",
            "attention_heads": base.attention_heads,
            "key_value_heads": "none",
            "head_size": "none",
            "vocabulary_size": base.vocabulary_size,
            "sequence_length": base.sequence_length,
            "micro_batch_size": base.micro_batch_size,
            "micro_batches": 4,
            "data_parallel": 2,
            "tensor_parallel": 2,
            "pipeline_parallel": 2,
            "sequence_parallel": "false",
            "sharding": "none",
            "rank_order": "tp-dp-pp",
        },
    )
    with tempfile.TemporaryDirectory() as folder:
        run = read_run(write_traces(simulate(base), folder))
    graph = build_graph(run)
    begin = time.perf_counter()
    recorded = recognise_job(run, graph, job, load_hardware("h100"))
    rows = [["recognise eight ranks", "", "", f"{time.perf_counter() - begin:.2f}"]]
    for ranks, changes in (
        (8, {}),
        (64, {"data_parallel": 8, "pipeline_parallel": 4}),
        (512, {"data_parallel": 16, "pipeline_parallel": 8, "tensor_parallel": 4, "layers": 32}),
    ):
        other = set_job(job, {**changes, "micro_batches": max(4, ranks // 16)})
        begin = time.perf_counter()
        emitted = retarget(recorded, other)
        seconds = time.perf_counter() - begin
        step_ms = steady_us(emitted) / 1e3
        rows.append([f"{ranks} ranks, {step_ms:.0f} ms a step", *_sizes(emitted), f"{seconds:.2f}"])
    return markdown(["re-target", "simulated ranks", "tasks", "seconds"], rows)


def _sizes(emitted) -> list[str]:
    return [str(len(emitted.graph.ranks)), f"{emitted.graph.tasks:,}"]


if __name__ == "__main__":
    sys.exit(make_tables(__doc__, {"jobs": table}))
