"""Iterations of `groundtruth/vtrain`: GPT on 64 to 512 A100 in three dimensions, and on one node.

What the rows do not say is taken from the simulator that they come with (VIA-Research/vTrain,
config/validation and src/model): half precision, all activations recomputed, 1F1B, no overlap of
gradients, nodes of eight GPUs with 800 Gb/s. Its models know 50,257 tokens, padded here to 51,200,
and attend without fusion, for which the factor on the attention's overhead is left free.
"""

import csv
from pathlib import Path

from _jobs_fit import by_group, factors, hold_out, summary, with_network, worst

from jaxperf.config import Job, load_hardware
from jaxperf.workload._fit_steps import STEP_PRIORS, MeasuredStep

FOLDER = Path("groundtruth") / "vtrain"
NETWORK_BYTES_PER_S = 0.85 * 800e9 / 8 / 8
"""Of one of eight GPUs, of which NCCL reaches 85 %, as in `configs/hardware`."""

PRIORS = {**STEP_PRIORS, "attention.compute_overhead": 2.0}


SEVERAL = """The row of one micro-batch of 64 took twice as long as those of 32 and less; two rows
of 2 sequences with 4 and 8 tensor-parallel ranks (3072) took half as long again as the rows beside
them foretell: no size explains it. The rows of 8192 with two tensor-parallel ranks compute at 110
to 160 TFLOP/s in steady state where one and four reach 190 and 160; with 2 sequences they are
slower than with 3. All of these are told too short."""

SINGLE = """These rows are not independent: for the same layers, hidden size, tensor and pipeline
parallelism and micro-batch, the time that one more micro-batch takes is the same to the last digit
(1e-15) whatever the batch and data parallelism, so they were composed from few measured blocks.
Random folds therefore see nearly what they are asked; leaving out a block (hidden size, tensor
parallelism, sequences of a micro-batch) does not. Blocks of one size differ without pattern: of
2048, one more micro-batch takes 3.0 ms a layer on 4 ranks and 4.8 ms on 8 with one sequence."""


def table(shared: Path) -> str:
    """The section of docs/jobs-validation.md."""
    several = hold_out(rows(shared, "ground_truth_multi.csv"), {"model": _model}, PRIORS)
    groups = {"model": _model, "block": _block}
    single = hold_out(rows(shared, "ground_truth_single.csv"), groups, PRIORS)
    return "\n\n".join(
        [
            "## vTrain: GPT on A100 in three dimensions",
            (__doc__ or "").split("\n\n", 1)[1].strip(),
            f"### {len(several.rows)} rows on 64, 256 and 512 GPUs",
            summary(several),
            "By model, and by tensor and pipeline parallelism, in five folds:",
            by_group(several, "model", _model),
            by_group(several, "tensor parallelism", lambda row: row.job.tensor_parallel),
            by_group(several, "pipeline stages", lambda row: row.job.pipeline_parallel),
            "The worst rows:",
            worst(several, 12),
            SEVERAL,
            "Fitted to all rows:",
            factors(several.fit),
            f"### {len(single.rows)} rows on one node",
            SINGLE,
            summary(single),
            by_group(single, "tensor parallelism", lambda row: row.job.tensor_parallel),
            "The worst rows:",
            worst(single),
            "Fitted to all rows:",
            factors(single.fit),
        ]
    )


def rows(shared: Path, name: str) -> list[MeasuredStep]:
    """What a file of the folder measured."""
    hardware = with_network(load_hardware("a100"), NETWORK_BYTES_PER_S)
    with (shared / FOLDER / name).open(encoding="utf-8-sig") as file:
        found = list(csv.DictReader(file))
    jobs = [_job(row) for row in found]
    return [
        MeasuredStep(job, hardware, float(row["iteration time (ms)"]) * 1e3, _label(job))
        for job, row in zip(jobs, found, strict=True)
    ]


def _job(row: dict[str, str]) -> Job:
    data, micro_batch = int(row["data parallelism"]), int(row["micro batch"])
    return Job(
        name=f"GPT {row.get('Parameters (billion)', '')}",
        layers=int(row["# layers"]),
        hidden_size=int(row["hidden size"]),
        attention_heads=int(row["attention heads"]),
        vocabulary_size=51200,
        tied_embeddings=True,
        sequence_length=int(row["sequence length"]),
        micro_batch_size=micro_batch,
        micro_batches=int(row["global batch"]) // data // micro_batch,
        data_parallel=data,
        tensor_parallel=int(row["tensor parallelism"]),
        pipeline_parallel=int(row["pipeline parallelism"]),
        recompute="full",
        precision="fp16",
        gradient_buckets=1,
        overlap_gradients=False,
    )


def _model(row: MeasuredStep) -> str:
    return f"{row.job.layers} layers of {row.job.hidden_size}"


def _block(row: MeasuredStep) -> str:
    job = row.job
    return f"{job.hidden_size}, tensor {job.tensor_parallel}, {job.micro_batch_size} sequences"


def _label(job: Job) -> str:
    return (
        f"{job.layers} x {job.hidden_size}: tensor {job.tensor_parallel}, data "
        f"{job.data_parallel}, pipeline {job.pipeline_parallel}, {job.micro_batches} micro-batches "
        f"of {job.micro_batch_size}"
    )
