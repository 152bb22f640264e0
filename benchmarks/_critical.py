"""Which slow ranks are found: simulated jobs in which one rank is slow, or none.

    python benchmarks/_critical.py [--write docs/critical-path.md]

Each job is simulated with and without what makes the rank slow, so what it costs is known. A rank
counts as found where it is named with the right cause, alone or with those of its link.
"""

import argparse
import random
import tempfile
from collections import defaultdict
from dataclasses import replace
from pathlib import Path

from _tables import markdown, write

from jaxperf.critical_path import critical_path
from jaxperf.simulator import Noise, SimulatedJob, simulate, write_traces

JOBS = 100
MATTERS = 0.03
"""A slow rank matters where it makes the step so much longer; the verb asks for the same."""
COLUMNS = ("made slow", "jobs", "cost 3 % or more", "found of these", "named of the rest", "wrong")
SHAPES = (
    SimulatedJob(layers=2, hidden_size=1024, data_parallel=4),
    SimulatedJob(
        layers=2, hidden_size=256, sequence_length=256, vocabulary_size=4096, data_parallel=4
    ),
    SimulatedJob(layers=2, hidden_size=512, pipeline_parallel=2, data_parallel=2, micro_batches=4),
    SimulatedJob(layers=2, hidden_size=512, tensor_parallel=2, data_parallel=2),
)
SELECTORS = {"kernels": "compute", "host": "host", "link": "communication"}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--write", type=Path, help="put the table between the marks of this file")
    parser.add_argument("--jobs", type=int, default=JOBS)
    arguments = parser.parse_args()
    counts = defaultdict(lambda: [0] * (len(COLUMNS) - 1))
    for seed in range(arguments.jobs):
        cause, outcome = try_one(seed)
        counts[cause] = [a + b for a, b in zip(counts[cause], outcome, strict=True)]
    rows = [[cause, *map(str, counts[cause])] for cause in ("nobody", *SELECTORS)]
    table = markdown(COLUMNS, rows)
    if arguments.write:
        write(arguments.write, "stragglers", table)
    else:
        print(table)


def try_one(seed: int) -> tuple[str, list[int]]:
    draw = random.Random(seed)
    cause = draw.choice(["nobody", "nobody", *SELECTORS])
    noise = Noise(draw.choice([0.01, 0.03]), draw.choice([0.06, 0.15]), 0.1)
    steps = draw.choice([3, 4])
    job = replace(draw.choice(SHAPES), noise=noise, clock_spread_us=800.0, steps=steps)
    rank, factor = draw.randrange(4), draw.choice([1.1, 1.3, 1.6])
    factor = draw.choice([3.0, 8.0]) if cause == "link" else factor
    scale = {f"rank:{rank}/{SELECTORS[cause]}": factor} if cause != "nobody" else None
    usual, run = simulate(job, seed=seed), simulate(job, seed=seed, scale=scale)
    with tempfile.TemporaryDirectory() as folder:
        found = critical_path(write_traces(run, folder)).straggler
    matters = run.step_us - usual.step_us >= MATTERS * run.step_us
    right = found is not None and rank in found.ranks and found.cause == cause
    wrong = found is not None and not right
    return cause, [1, int(matters), int(matters and right), int(right and not matters), int(wrong)]


if __name__ == "__main__":
    main()
