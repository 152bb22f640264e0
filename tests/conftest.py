"""What every test shares: float64, strict promotion, and the way to the shared material."""

import os
from dataclasses import fields, replace
from pathlib import Path

import hypothesis
import jax
import numpy as np
import pytest

from jaxperf.graph import ExecutionGraph
from jaxperf.simulator import Noise, SimulatedJob, simulate, write_traces
from tests.helpers import random_graph

IN_CI = os.environ.get("CI") == "true"

# Strict promotion turns a silent float32-to-float64 or (n,)-to-(n, 1) slip into an error.
jax.config.update("jax_enable_x64", True)
jax.config.update("jax_numpy_dtype_promotion", "strict")
jax.config.update("jax_numpy_rank_promotion", "raise")

# The first example of a property may compile, so a deadline would measure the compiler. CI draws
# the same examples each time: a new failure there is the work of the change, not of chance.
hypothesis.settings.register_profile("jaxperf", deadline=None, derandomize=IN_CI)
hypothesis.settings.load_profile("jaxperf")


@pytest.fixture(scope="session")
def shared() -> Path:
    """The folder of traces and cases beside the checkout."""
    folder = Path(__file__).resolve().parents[2] / "shared"
    if folder.is_dir():
        return folder
    if IN_CI:
        pytest.fail(f"{folder} is absent; CI needs the shared traces and cases")
    pytest.skip(f"{folder} is absent")


@pytest.fixture
def million_tasks() -> ExecutionGraph:
    """A graph of a million tasks: a random one, and copies of it that follow each other."""
    copies = 20
    part = random_graph(np.random.default_rng(9), 50_000, lanes=40, spread=0.5)
    columns = {f.name: getattr(part, f.name) for f in fields(part)}
    columns = {name: each for name, each in columns.items() if isinstance(each, np.ndarray)}
    columns = {name: np.tile(each, copies) for name, each in columns.items()}
    first = np.arange(copies) * part.tasks
    columns["order"] = np.arange(copies * part.tasks)
    for end in ("source", "target"):
        columns[end] += np.repeat(first, len(part.source)).astype(np.int32)
    # The last task of each lane is followed by the first one in the next copy.
    lasts = [np.flatnonzero(part.lane == lane)[-1] for lane in range(40)]
    firsts = [np.flatnonzero(part.lane == lane)[0] for lane in range(40)]
    links = {"source": np.add.outer(first[:-1], lasts), "target": np.add.outer(first[1:], firsts)}
    for name in ("source", "target", "lag_ns", "unexplained_ns", "from_start", "dependency"):
        more = links.get(name, np.zeros((copies - 1, 40))).ravel()
        columns[name] = np.concatenate([columns[name], more.astype(columns[name].dtype)])
    return replace(part, **columns, steps=())


@pytest.fixture(scope="session")
def traces(tmp_path_factory) -> Path:
    """A folder with the traces of two simulated ranks; not to be written to."""
    folder = tmp_path_factory.mktemp("traces")
    noise = Noise(kernel=0.02, host=0.05, latency=0.05)
    job = SimulatedJob(layers=2, data_parallel=2, steps=4, noise=noise, clock_spread_us=500.0)
    write_traces(simulate(job), folder)
    return folder
