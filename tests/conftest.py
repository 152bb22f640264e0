"""What every test shares: float64, strict promotion, and the way to the shared material."""

import os
from pathlib import Path

import hypothesis
import jax
import pytest

from jaxperf.simulator import Noise, SimulatedJob, simulate, write_traces

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


@pytest.fixture(scope="session")
def traces(tmp_path_factory) -> Path:
    """A folder with the traces of two simulated ranks; not to be written to."""
    folder = tmp_path_factory.mktemp("traces")
    noise = Noise(kernel=0.02, host=0.05, latency=0.05)
    job = SimulatedJob(layers=2, data_parallel=2, steps=4, noise=noise, clock_spread_us=500.0)
    write_traces(simulate(job), folder)
    return folder
