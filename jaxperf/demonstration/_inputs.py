"""What the demo asks its questions of: traces of a simulated job, lookups, embedding tables."""

import tempfile
from pathlib import Path

import numpy as np

from jaxperf._files import new_file
from jaxperf.errors import OutputError
from jaxperf.simulator import Noise, SimulatedJob, SimulatedRun, write_traces

# Four ranks, each with its own clock: two stages of a pipeline, two replicas of each.
JOB = SimulatedJob(
    layers=8,
    hidden_size=2048,
    data_parallel=2,
    pipeline_parallel=2,
    micro_batches=4,
    steps=4,
    noise=Noise(kernel=0.02, host=0.05, latency=0.05),
    clock_spread_us=2000.0,
    device_clock_spread_us=40.0,
)
_JOB_FILE = f"""\
# The job that the demo simulates.
name = "demo"
layers = {JOB.layers}
hidden_size = {JOB.hidden_size}
attention_heads = {JOB.attention_heads}
vocabulary_size = {JOB.vocabulary_size}
sequence_length = {JOB.sequence_length}
micro_batch_size = {JOB.micro_batch_size}
micro_batches = {JOB.micro_batches}
data_parallel = {JOB.data_parallel}
pipeline_parallel = {JOB.pipeline_parallel}
rank_order = "tp-dp-pp"
"""

# Rows of the table that is looked up, and how their popularity falls: a power law.
_ROWS, _EXPONENT = 20_000, 1.0
_LOOKUPS = 40_000
_TABLES_FILE = f"""\
# The model whose tables the demo places. All assumptions, but for the lookups of items.
name = "demo"
batch_size = 8192
target_samples_per_s = 500e3
dense_parameters = 1e6
dense_flops_per_sample = 6e6         # 6 a parameter

[[tables]]
name = "items"
rows = {_ROWS}
dimension = 64
pooling = 20
accesses = "accesses.txt"

[[tables]]
name = "users"                       # 512 GB: more than the accelerators of one server hold
rows = 2_000_000_000
dimension = 64
pooling = 1
zipf_exponent = 0.9
"""


def write_run(run: SimulatedRun, folder: Path) -> tuple[Path, ...]:
    """Write one trace per rank, and nothing else, into a folder that may hold earlier ones.

    Args:
        run: what was simulated.
        folder: where to write.

    Returns:
        The files, by rank.
    """
    # Written beside their place and moved, so that an earlier demo's files are replaced one by one
    # and nothing else in the folder is touched.
    try:
        folder.mkdir(exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder, prefix=".") as fresh:
            return tuple(path.replace(folder / path.name) for path in write_traces(run, fresh))
    except OSError as error:
        raise OutputError("cannot be written", where=str(folder), got=error.strerror) from error


def write_job(folder: Path) -> Path:
    """Write the simulated job as a user describes it, and say where."""
    return _written(folder / "job.toml", _JOB_FILE)


def write_accesses(folder: Path) -> Path:
    """Write a log of embedding lookups, an id a line, and say where."""
    generator = np.random.default_rng(0)
    # Popularity does not go by the number of a row.
    row_of_rank = generator.permutation(_ROWS)
    rows = row_of_rank[generator.choice(_ROWS, _LOOKUPS, p=_popularity())]
    return _written(folder / "accesses.txt", "".join(f"{row}\n" for row in rows.tolist()))


def write_tables(folder: Path) -> Path:
    """Write a model with two embedding tables, one of them that of the log, and say where."""
    return _written(folder / "tables.toml", _TABLES_FILE)


def _written(path: Path, text: str) -> Path:
    with new_file(path, overwrite=True) as file:
        file.write(text.encode())
    return path


def share_of_most_popular(rows: int) -> float:
    """Expected share of the lookups that goes to the most popular rows, as the log was drawn."""
    return float(_popularity()[:rows].sum())


def _popularity() -> np.ndarray:
    """(rows,) probability of each, the most popular first."""
    weight = np.arange(1, _ROWS + 1) ** -_EXPONENT
    return weight / weight.sum()
