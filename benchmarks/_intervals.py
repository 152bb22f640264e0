"""How often the 90 % interval of `jaxperf whatif --samples` holds what another run takes.

Simulated jobs are run under several seeds. Each run gives an interval, unchanged and with quicker
matrix multiplies; the steady steps of all the other runs lie in it or not.
"""

import tempfile
from dataclasses import dataclass, replace

import numpy as np
from _tables import markdown, mean, number

from jaxperf.simulator import Noise, SimulatedJob, simulate, write_traces
from jaxperf.whatif import whatif

SEEDS = 16
SAMPLES = 200
SCALE = {"gemm": 0.5}
_NOISE, _NOISIER = Noise(0.03, 0.1, 0.1), Noise(0.1, 0.3, 0.3)
_SMALL = SimulatedJob(layers=2, hidden_size=512, steps=5, noise=_NOISE)
JOBS = {
    "1 rank": _SMALL,
    "1 rank, noisier": replace(_SMALL, noise=_NOISIER),
    "1 rank, bound by its host": replace(
        _SMALL, hidden_size=128, sequence_length=128, vocabulary_size=4096
    ),
    "4 replicas": replace(_SMALL, data_parallel=4),
    "4 replicas, noisier": replace(_SMALL, data_parallel=4, noise=_NOISIER),
    "4 shards": replace(_SMALL, tensor_parallel=4),
    "2 stages of 2 replicas": replace(
        _SMALL, pipeline_parallel=2, data_parallel=2, micro_batches=4, steps=3
    ),
}
"""Noise is of kernels, of the host and of launch latencies: 3, 10 and 10 %, or 10, 30 and 30 %."""


@dataclass(frozen=True)
class Row:
    """Of one job and one question, in percent.

    Attributes:
        job: which.
        inside: share of pairs of two runs, of which one's step is in the other's interval.
        width: mean half width of the intervals, over the step.
        spread: standard deviation of the steps of the runs, over the step.
        bias: mean of the answers over the mean of the true steps, less one.
    """

    job: str
    inside: float
    width: float
    spread: float
    bias: float


def measure(seeds: int = SEEDS) -> tuple[list[Row], list[Row]]:
    """Unchanged, and with `SCALE`, job by job."""
    plain, scaled = [], []
    for name, job in JOBS.items():
        unchanged, changed = [], []
        for seed in range(seeds):
            run = simulate(job, seed=seed)
            with tempfile.TemporaryDirectory() as folder:
                answer = whatif(
                    write_traces(run, folder), scale=SCALE, samples=SAMPLES, contention=False
                )
            truth = simulate(job, seed=seed, scale=SCALE).step_us
            for found, each, step_us in (
                (unchanged, answer.baseline, run.step_us),
                (changed, answer.scenarios[0], truth),
            ):
                assert each.interval_us is not None
                found.append((*each.interval_us, each.step_us, step_us))
        plain.append(_row(name, unchanged))
        scaled.append(_row(name, changed))
    return plain, scaled


def _row(name: str, runs: list[tuple[float, ...]]) -> Row:
    low, high, answer, step = np.array(runs).T
    inside = (low[:, None] <= step) & (step <= high[:, None])
    other = ~np.eye(len(step), dtype=bool)
    return Row(
        job=name,
        inside=100.0 * float(inside[other].mean()),
        width=100.0 * float(((high - low) / 2 / answer).mean()),
        spread=100.0 * float(step.std(ddof=1) / step.mean()),
        bias=100.0 * float(answer.mean() / step.mean() - 1.0),
    )


def table(found: tuple[list[Row], list[Row]]) -> str:
    """One line a job: unchanged, and then changed."""
    lines = [
        [plain.job, *_cells(plain), *_cells(scaled)] for plain, scaled in zip(*found, strict=True)
    ]
    means = [number(mean(row.inside for row in rows), 1) for rows in found]
    lines.append([f"**all {len(lines)}**", f"**{means[0]}**", "", "", f"**{means[1]}**", "", ""])
    columns = ["inside, %", "half width, %", "runs vary, %"]
    return markdown(["job", *columns, *(f"gemm x 0.5: {text}" for text in columns)], lines)


def _cells(row: Row) -> list[str]:
    return [number(row.inside, 1), number(row.width), number(row.spread)]
