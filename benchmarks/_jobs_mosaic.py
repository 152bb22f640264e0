"""Rows of `groundtruth/mosaicml_mpt_fsdp`: MPT of 125M to 70B, fully sharded, on H100 and A100.

A row is a run of llm-foundry (mosaicml/llm-foundry, scripts/train/benchmarking), of which the step
is the tokens of a global batch by the tokens per second.
"""

import csv
from pathlib import Path
from typing import NamedTuple

import msgspec
from _jobs_fit import by_group, factors, hold_out, summary, worst

from jaxperf.config import Hardware, Job, load_hardware
from jaxperf.workload._fit_steps import STEP_PRIORS, MeasuredStep

FILE = Path("groundtruth") / "mosaicml_mpt_fsdp" / "throughput.csv"


class Shape(NamedTuple):
    """Layers, hidden size and attention heads."""

    layers: int
    hidden_size: int
    attention_heads: int


SHAPES = {
    "125m": Shape(12, 768, 12),
    "350m": Shape(24, 1024, 16),
    "760m": Shape(24, 1536, 12),
    "1b": Shape(24, 2048, 16),
    "3b": Shape(32, 2560, 20),
    "7b": Shape(32, 4096, 32),
    "13b": Shape(40, 5120, 40),
    "30b": Shape(48, 7168, 56),
    "70b": Shape(80, 8192, 64),
}
"""Of scripts/train/yamls/pretrain; the parameters of the rows agree to the last one."""

_SHARDING = {"FULL_SHARD": "zero3", "SHARD_GRAD_OP": "zero2"}


def rows(shared: Path) -> list[MeasuredStep]:
    machines = {
        "h100_80gb": load_hardware("h100"),
        "a100_80gb": load_hardware("a100"),
        "a100_40gb": _of_40_gigabytes(load_hardware("a100")),
    }
    with (shared / FILE).open() as file:
        found = list(csv.DictReader(file))
    return [
        MeasuredStep(
            _job(row),
            machines[row["GPU"]],
            int(row["GlobalBatchSize (T)"]) / int(row["Throughput (T/s)"]) * 1e6,
            _label(row),
        )
        for row in found
    ]


def _of_40_gigabytes(a100: Hardware) -> Hardware:
    """The older A100 (its data sheet, SXM4 40 GB)."""
    return msgspec.structs.replace(
        a100, name="NVIDIA A100-SXM4-40GB", memory_bytes=42.9e9, memory_bytes_per_s=1.555e12
    )


def _job(row: dict[str, str]) -> Job:
    shape = SHAPES[row["Model"]]
    return Job(
        name=f"MPT {row['Model']}",
        layers=shape.layers,
        hidden_size=shape.hidden_size,
        attention_heads=shape.attention_heads,
        vocabulary_size=50368,
        tied_embeddings=True,
        sequence_length=int(row["SeqLen (T)"]),
        micro_batch_size=int(row["MicroBatchSize"]),
        micro_batches=int(row["GradAccum"]),
        data_parallel=int(row["# GPUs"]),
        sharding=_SHARDING[row["Sharding Strategy"]],
        recompute="full" if row["Activation Checkpointing"] == "True" else "none",
        precision="fp8" if row["Precision"] == "amp_fp8" else "bf16",
        gradient_bytes=2.0 if row["MP Mode"] == "PURE" else 4.0,
    )


def _label(row: dict[str, str]) -> str:
    recomputed = ", recomputed" if row["Activation Checkpointing"] == "True" else ""
    return (
        f"{row['Model']}, {row['GPU']} x {row['# GPUs']}, {row['GradAccum']} x "
        f"{row['MicroBatchSize']} x {row['SeqLen (T)']} tokens{recomputed}"
    )
