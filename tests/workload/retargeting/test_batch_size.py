"""Batch sizes that were not recorded, beside what the simulator and real runs say of them."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, strategies as st

from jaxperf.errors import ConfigError
from jaxperf.graph import build_graph
from jaxperf.replay import measured_timeline
from jaxperf.simulator import SimulatedJob, simulate, write_traces
from jaxperf.trace import read_run
from jaxperf.workload.retargeting._batch_size import predict_batch_sizes
from jaxperf.workload.retargeting._matching import common_subsequence

SWEEP = Path("traces") / "particle_transformer_a100_batch_sweep"
# The windows of these hold no first calls of compiled or loaded code, by the manifest.
WARM = (2, 4, 8, 32, 128)
# Of two windows beyond 128 the device time alone is known: the spans hold first calls.
KERNEL_SUM_US = {256: 46_600.0, 512: 89_800.0}


def recorded(folder: Path, sizes: tuple[int, ...], **job) -> dict[int, tuple[Path, ...]]:
    """Traces of a simulated job at some batch sizes."""
    return {
        size: write_traces(simulate(SimulatedJob(micro_batch_size=size, **job)), folder / str(size))
        for size in sizes
    }


def measured_window_us(path: Path) -> float:
    timeline = measured_timeline(build_graph(read_run(path)))
    return float(timeline.end_us.max() - timeline.start_us.min())


JOBS = {
    "bound by the device": {"layers": 2, "hidden_size": 1024},
    "bound by the host": {"layers": 2, "hidden_size": 256, "sequence_length": 64},
    "whose small kernels fill no device": {
        "layers": 2,
        "hidden_size": 512,
        "sequence_length": 512,
    },
    "of several micro-batches": {"layers": 1, "micro_batches": 3},
    "of two replicas": {"layers": 2, "data_parallel": 2},
    "of two shards": {"layers": 1, "tensor_parallel": 2},
}


@pytest.mark.parametrize("job", JOBS.values(), ids=JOBS)
def test_two_sizes_of_a_simulated_job_tell_the_sizes_between_and_beyond(tmp_path, job):
    sizes = [4, 16]
    predicted = predict_batch_sizes(recorded(tmp_path, (2, 8), **job), sizes)
    truth_us = [simulate(SimulatedJob(micro_batch_size=size, **job)).step_us for size in sizes]
    assert predicted.step_us == pytest.approx(truth_us, rel=0.03)


def test_the_step_of_a_job_bound_by_its_host_hardly_depends_on_the_batch(tmp_path):
    runs = recorded(tmp_path, (2, 4), **JOBS["bound by the host"])
    predicted = predict_batch_sizes(runs, [1, 2, 4, 8])
    assert np.ptp(predicted.step_us) < 0.02 * predicted.step_us[0]
    assert (np.diff(predicted.device_us) > 0).all()


def test_a_recorded_size_is_itself(tmp_path):
    predicted = predict_batch_sizes(recorded(tmp_path, (2, 8), layers=1), [2, 8])
    truth_us = [simulate(SimulatedJob(layers=1, micro_batch_size=n)).step_us for n in (2, 8)]
    assert predicted.step_us == pytest.approx(truth_us, rel=0.01)
    assert predicted.program == (2, 8)


def test_what_does_not_hold_the_batch_stays_as_recorded(tmp_path):
    predicted = predict_batch_sizes(recorded(tmp_path, (2, 4), layers=1), [4, 8])
    total = predicted.recorded_share + predicted.scaled_share + predicted.modelled_share
    assert total == pytest.approx([1.0, 1.0])
    assert (predicted.recorded_share > 0).all()
    # The optimizer's share falls as the rest grows, and its time does not change.
    unchanged_us = predicted.recorded_share * predicted.device_us
    assert unchanged_us[1] == pytest.approx(unchanged_us[0], rel=1e-6)


def test_one_size_alone_is_refused(tmp_path):
    with pytest.raises(ConfigError, match="traces of two positive sizes"):
        predict_batch_sizes(recorded(tmp_path, (2,), layers=1), [4])


def test_sizes_below_one_are_refused(tmp_path):
    with pytest.raises(ConfigError, match="positive"):
        predict_batch_sizes({2: tmp_path, 4: tmp_path}, [0])


def test_runs_of_other_numbers_of_ranks_are_refused(tmp_path):
    runs = recorded(tmp_path / "one", (2,), layers=1)
    runs |= recorded(tmp_path / "two", (4,), layers=1, data_parallel=2)
    with pytest.raises(ConfigError, match="got 2 and 1 ranks"):
        predict_batch_sizes(runs, [8])


def test_runs_of_other_programs_are_refused(tmp_path, shared):
    runs = {
        128: shared / SWEEP / "fwd_bs128.json.gz",
        2: recorded(tmp_path, (2,), layers=1)[2],
    }
    with pytest.raises(ConfigError, match=r"% of the device time in both; only at 128: "):
        predict_batch_sizes(runs, [64])


@pytest.mark.parametrize("pair", [(8, 256), (16, 128), (2, 512), (32, 256)])
def test_two_batches_of_a_real_run_tell_the_others_within_a_tenth(shared, pair):
    runs = {size: shared / SWEEP / f"fwd_bs{size}.json.gz" for size in pair}
    sizes = [size for size in WARM if size not in pair]
    windows_us = [measured_window_us(shared / SWEEP / f"fwd_bs{size}.json.gz") for size in sizes]
    assert predict_batch_sizes(runs, sizes).step_us == pytest.approx(windows_us, rel=0.1)
    beyond = [size for size in KERNEL_SUM_US if size not in pair]
    device_us = predict_batch_sizes(runs, beyond).device_us
    assert device_us == pytest.approx([KERNEL_SUM_US[size] for size in beyond], rel=0.1)


def test_other_dimensions_that_vary_are_said(shared):
    runs = {size: shared / SWEEP / f"fwd_bs{size}.json.gz" for size in (8, 32)}
    assert "shapes-vary" in [note.code for note in predict_batch_sizes(runs, [16]).notes]


@given(st.lists(st.integers(0, 3), max_size=12), st.lists(st.integers(0, 3), max_size=12))
def test_common_subsequences_are_the_longest(a, b):
    best = np.zeros((len(a) + 1, len(b) + 1), int)
    for i, one in enumerate(a):
        for j, other in enumerate(b):
            best[i + 1, j + 1] = max(
                best[i, j + 1], best[i + 1, j], best[i, j] + 1 if one == other else 0
            )
    pairs = common_subsequence(a, b)
    assert len(pairs) == best[-1, -1]
    assert all(a[i] == b[j] for i, j in pairs.tolist())
    assert (np.diff(pairs, axis=0) > 0).all()
