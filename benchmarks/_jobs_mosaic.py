"""Rows of `groundtruth/mosaicml_mpt_fsdp`: MPT of 125M to 70B, fully sharded, on H100 and A100.

A row is a run of llm-foundry, and its step the tokens of a global batch by the tokens per second.
Shapes are those of mosaicml/llm-foundry, scripts/train/yamls/pretrain; with learned positions and
biases they have the parameters that the rows give, to the last one. Weights are gathered and
gradients scattered layer by layer for each micro-batch, in bf16 or (gradients of `DEFAULT`) fp32.
The A100 of 40 GB has the bandwidth of its data sheet, 1.555 TB/s.

Each of the three clusters is fitted alone: their scripts name images of several versions of
PyTorch, and, by default, a Triton kernel for the attention (scripts/train/benchmarking/sweep.sh and
submit_benchmarks.py), whose share of the peak is another on each. That kernel does not gain from
the causal mask (Dao-AILab/flash-attention, issue 142), and on an A100 heads of 128 are slower than
heads of 64 (issue 1556 there; triton-lang/triton, issue 1975), against what the cost model expects.
So its overhead and the cost of its exponentials are left free, and so is how much long multiplies
throttle. These three were chosen after a look at what a fit to all rows leaves; no row's number was
used otherwise by the fit that tells it.
"""

import csv
from pathlib import Path
from typing import Literal, NamedTuple

import msgspec
import numpy as np
from _jobs_fit import Held, by_group, errors, factors, hold_out, summary, worst
from _tables import markdown, number

from jaxperf.config import Hardware, Job, load_hardware
from jaxperf.workload._fit_steps import (
    STEP_PRIORS,
    MeasuredStep,
    computed_steps_us,
)
from jaxperf.workload.memory._memory import job_memory

FILE = Path("groundtruth") / "mosaicml_mpt_fsdp" / "throughput.csv"
PRIORS = {
    **STEP_PRIORS,
    "attention.compute_overhead": 2.0,
    "attention.softmax_elements": 1.5,
    "matmul.throttle": 1.5,
}
FULL_SHARE = 0.8
"""Of the memory of a GPU: above it a job counts as one that fills it."""

_WORST = """\
The worst, as far as the rows themselves explain them:

- 30b on 8 GPUs with sequences of 8192: needs 99 % of the memory, and takes a quarter to a third
  longer than computed on both H100 and A100, where sequences of 4096 are told. An allocator that
  frees and asks again in each step would do that; the rows do not say.
- 760m on A100 of 80 GB with sequences of 512 and 1024: the same tokens in sequences of 2048 were
  faster there, although they have more attention. On the two other clusters they were not.
- 1b on 32 A100 of 40 GB: 15.6 thousand tokens per second and GPU; on 16, 64 and 128 of them it
  was 18.6 to 19.1.
- 70b on 64 A100 of 40 GB: 4096 tokens of work for each gather of a layer over eight nodes. The same
  on four nodes of A100 of 80 GB is told, so this one is not explained.
- 7b to 30b recomputed on A100 of 80 GB: up to 9 % faster than computed. Recomputation of PyTorch
  since 2.1 stops at the last tensor that is needed, which leaves out the last multiply of a layer;
  the jobs here recompute all of it. Which version ran, the rows do not say.

The fitted `overlap_slowdown`, 0.4 to 0.7, says that gathers and scatters cost half of their time
even where computation hides them: it stands for what else a fully sharded unit does once a pass."""


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
_SHARDING: dict[str, Literal["zero2", "zero3"]] = {"FULL_SHARD": "zero3", "SHARD_GRAD_OP": "zero2"}


def table(shared: Path) -> str:
    """The section of docs/jobs-validation.md."""
    clusters = by_cluster(rows(shared))
    held = {
        name: hold_out(mine, {"model": lambda row: row.job.name}, PRIORS)
        for name, mine in clusters.items()
    }
    return "\n\n".join(
        [
            "## MPT: fully sharded on H100 and A100",
            (__doc__ or "").split("\n\n", 1)[1].strip(),
            f"All {sum(map(len, clusters.values()))} rows, each told by fits that did not see it:",
            _overall(held),
            "By how much of the memory the job needs (the model of this package), in five folds:",
            _by_memory(held),
            _WORST,
            "What a fit to one cluster says of the rows of another:",
            _transfer(held),
            *(_of_cluster(name, each) for name, each in held.items()),
        ]
    )


def rows(shared: Path) -> list[MeasuredStep]:
    """What the file measured.

    Args:
        shared: the folder with `groundtruth/`.

    Returns:
        A step for each row, in the order of the file.
    """
    with (shared / FILE).open() as file:
        found = list(csv.DictReader(file))
    machines = {
        "h100_80gb": load_hardware("h100"),
        "a100_80gb": load_hardware("a100"),
        "a100_40gb": _of_40_gigabytes(load_hardware("a100")),
    }
    return [
        MeasuredStep(
            _job(row),
            machines[row["GPU"]],
            int(row["GlobalBatchSize (T)"]) / int(row["Throughput (T/s)"]) * 1e6,
            _label(row),
        )
        for row in found
    ]


def by_cluster(measured: list[MeasuredStep]) -> dict[str, list[MeasuredStep]]:
    """The rows of each machine, by its name."""
    found: dict[str, list[MeasuredStep]] = {}
    for row in measured:
        found.setdefault(row.hardware.name, []).append(row)
    return found


def _of_40_gigabytes(a100: Hardware) -> Hardware:
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
    notes = ", fp8" * (row["Precision"] == "amp_fp8")
    notes += ", recomputed" * (row["Activation Checkpointing"] == "True")
    return (
        f"{row['Model']} on {row['# GPUs']} {row['GPU']}, {row['GradAccum']} x "
        f"{row['MicroBatchSize']} x {row['SeqLen (T)']} tokens{notes}"
    )


# Tables
# ---------------------------------------------------------------------------------------


def _overall(held: dict[str, Held]) -> str:
    def cells(some: list[Held]) -> list[object]:
        folded = np.concatenate([errors(each.rows, each.folds_us) for each in some])
        left = np.concatenate([errors(each.rows, each.groups_us["model"]) for each in some])
        return [len(folded), *_statistics(folded), *_statistics(left)[::2]]

    lines = [[name, *cells([each])] for name, each in held.items()]
    return markdown(
        ["cluster", "rows", "mean %", "median %", "worst %", "model left out, mean %", "worst %"],
        [*lines, ["all", *cells(list(held.values()))]],
    )


def _by_memory(held: dict[str, Held]) -> str:
    every = [row for each in held.values() for row in each.rows]
    found = np.concatenate([errors(each.rows, each.folds_us) for each in held.values()])
    needed = np.array(
        [job_memory(row.job).peak.total_bytes / row.hardware.memory_bytes for row in every]
    )
    full = needed > FULL_SHARE
    percent = round(100 * FULL_SHARE)
    return markdown(
        ["memory", "rows", "mean %", "median %", "worst %", "bias %"],
        [
            [name, int(which.sum()), *_statistics(found[which]), f"{found[which].mean():+.1f}"]
            for name, which in ((f"to {percent} %", ~full), (f"above {percent} %", full))
        ],
    )


def _transfer(held: dict[str, Held]) -> str:
    lines = []
    for source, fitted in held.items():
        cells: list[object] = [source]
        for target, told in held.items():
            error = errors(told.rows, computed_steps_us(told.rows, fitted.fit))
            mean, bias = number(float(np.abs(error).mean()), 1), f"{error.mean():+.1f}"
            cells.append("" if source == target else f"{mean} ({bias})")
        lines.append(cells)
    return markdown(["fitted to", *(f"{name}: mean % (bias)" for name in held)], lines)


def _of_cluster(name: str, held: Held) -> str:
    return "\n\n".join(
        [
            f"### {name}",
            summary(held),
            by_group(held, "model", lambda row: row.job.name),
            by_group(held, "sequence", lambda row: row.job.sequence_length),
            "The worst rows:",
            worst(held),
            "Fitted to all rows:",
            factors(held.fit),
        ]
    )


def _statistics(error: np.ndarray) -> list[str]:
    size = np.abs(error)
    return [number(float(value), 1) for value in (size.mean(), np.median(size), size.max())]
