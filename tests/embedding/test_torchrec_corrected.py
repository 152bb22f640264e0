"""TorchRec's lookups as they really are, beside an H100's."""

import importlib
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from jaxperf.config import EmbeddingTable
from jaxperf.embedding.torchrec import (
    H100_RATES,
    LookupRates,
    LookupWork,
    Topology,
    correct_perf,
    enumerate_options,
    estimate_shards,
    fit_lookup_rates,
    lookup_errors,
    lookup_times,
    read_measured_lookups,
    shard_work,
)
from jaxperf.errors import ConfigError

ROUND = LookupRates(
    device_bytes_per_s=1e12,
    device_update_bytes_per_s=5e11,
    host_read_bytes_per_s=1e10,
    host_update_bytes_per_s=5e9,
    repeat_share=0.5,
    sort_keys_per_s=1e9,
    cache_lookups_per_s=1e9,
    launch_ms=0.25,
)
WORK = LookupWork(
    lookups=1e6,
    distinct_rows=2e5,
    outputs=1e6,
    row_bytes=100.0,
    state_row_bytes=200.0,
    table_rows=2**17,
    missing_rows=1e5,
)


@pytest.fixture(scope="module")
def benchmark():
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(Path(__file__).resolve().parents[2] / "benchmarks"))
        return importlib.import_module("embedding_torchrec")


@pytest.fixture(scope="module")
def measured(shared):
    folder = shared / "dlrm" / "bench"
    return read_measured_lookups(folder / "nvidia_dynamicemb_h100_benchmark_results.json")


def one(measured, part):
    return next(each for each in measured if part in each.label)


def test_lookups_by_hand():
    # 600,000 rows are read: 200,000 and half of the repeats. 2^17 rows have 3 bytes of number.
    gather_ms = (8e6 + 60e6 + 100e6) / 1e12 * 1e3
    sort_ms, gradient_ms = 3.0, (8e6 + 100e6) / 1e12 * 1e3
    fused = lookup_times(WORK, "fused", ROUND)
    assert fused.forward_ms == pytest.approx(gather_ms)
    assert fused.evaluation_ms == pytest.approx(gather_ms + 0.25)
    assert fused.backward_ms == pytest.approx(sort_ms + gradient_ms + 2 * 60e6 / 5e11 * 1e3)
    host = lookup_times(WORK, "fused_uvm", ROUND)
    assert host.forward_ms == pytest.approx(60e6 / 1e10 * 1e3)
    assert host.backward_ms == pytest.approx(sort_ms + 60e6 / 5e9 * 1e3)
    cached = lookup_times(WORK, "fused_uvm_caching", ROUND)
    assert cached.forward_ms == pytest.approx(1.0 + 10e6 / 1e10 * 1e3 + gather_ms)
    assert cached.backward_ms == pytest.approx(sort_ms + 40e6 / 5e9 * 1e3)
    beside = lookup_times(WORK, "fused_uvm_caching", ROUND, state_on_device=True)
    assert beside.backward_ms == pytest.approx(fused.backward_ms)
    assert beside.training_ms == pytest.approx(beside.forward_ms + beside.backward_ms)


def test_works_are_counted_together():
    missing = np.array([0.0, 1e5, 2e5])
    many = LookupWork(1e6, 2e5, 1e6, 100.0, 200.0, 2**17, missing)
    steps = np.diff(lookup_times(many, "fused_uvm_caching", ROUND).forward_ms)
    np.testing.assert_allclose(steps, 1.0)


def test_the_default_formulas_are_off_by_more_than_ten_times(benchmark, measured):
    off = np.array([each.compute_kernel != "fused" for each in measured])
    ratios = benchmark.planner_ratios(measured, Topology(1, 1))
    assert np.median(ratios) > 10
    assert np.all(ratios[off] > 10)
    assert np.median(benchmark.planner_ratios(measured, benchmark.H100_PEAKS)) > 10


def test_corrected_times_are_within_a_tenth(measured):
    errors = np.abs(lookup_errors(measured, H100_RATES))
    assert errors.shape == (10, 4)
    assert np.all(np.median(errors, axis=0) < 0.03)
    assert errors.max() < 0.06


@pytest.mark.parametrize(
    ("left_out", "median", "worst"),
    [
        ("one configuration", 0.02, 0.20),
        ("one and its like", 0.02, 0.20),
        ("one optimizer", 0.03, 0.25),
        ("one kernel", 0.06, 0.25),
    ],
)
def test_corrected_times_hold_where_nothing_was_fitted(
    left_out, median, worst, benchmark, measured
):
    errors = np.abs(benchmark.held_out_errors(measured, benchmark.LEFT_OUT[left_out]))
    assert np.median(errors) < median
    assert errors.max() < worst


def test_round_shares_of_the_data_sheet_are_already_near(benchmark, measured):
    errors = np.abs(lookup_errors(measured, benchmark.SHEET_RATES))
    assert np.median(errors) < 0.10


def test_a_fit_finds_the_rates_that_made_the_times(measured):
    made = [_timed(each, lookup_times(each.work, each.compute_kernel, ROUND)) for each in measured]
    start = LookupRates(2e12, 1e12, 2e10, 1e10, 0.7, 2e9, 2e9, 0.2)
    found = fit_lookup_rates(made, start)
    assert np.abs(lookup_errors(made, found)).max() < 0.02
    assert found.host_update_bytes_per_s == pytest.approx(5e9, rel=0.02)
    assert found.cache_lookups_per_s == pytest.approx(1e9, rel=0.05)


def test_bytes_over_bandwidth_explain_lookups_but_not_the_state_of_adam(measured):
    # 1,048,570 lookups of 512 bytes, read and written, and their ids, at 3.35e12 bytes/s.
    sgd = one(measured, "sgd_gpu")
    plain_ms = 1_048_570 * (8 + 512 + 512) / 3.35e12 * 1e3
    assert plain_ms == pytest.approx(0.323, abs=5e-4)
    assert plain_ms / sgd.forward_ms - 1 == pytest.approx(-0.06, abs=0.005)
    assert 2 * plain_ms / sgd.backward_ms - 1 == pytest.approx(0.05, abs=0.005)
    adam = one(measured, "adam_gpu")
    assert 2 * plain_ms / adam.backward_ms - 1 == pytest.approx(-0.36, abs=0.005)
    corrected = lookup_times(adam.work, "fused")
    assert corrected.backward_ms == pytest.approx(adam.backward_ms, rel=0.05)


def test_the_tenfold_slowdown_of_the_host_is_not_there(benchmark, measured):
    host = one(measured, "sgd_no_hbm")
    said_ms = benchmark.planner_perf(host, benchmark.H100_PEAKS).fwd_compute_ms
    assert said_ms == pytest.approx(169, abs=0.2)
    assert said_ms / host.forward_ms == pytest.approx(21.3, abs=0.1)
    assert lookup_times(host.work, "fused_uvm").forward_ms == pytest.approx(7.93, rel=0.05)


def test_a_cache_is_as_good_as_its_hits(measured):
    small, large = one(measured, "sgd_caching_pool=none_cap=25M_cfr=0.8"), one(measured, "cfr=1.0")
    model = [lookup_times(each.work, "fused_uvm_caching").forward_ms for each in (small, large)]
    assert model == [pytest.approx(3.99, rel=0.05), pytest.approx(3.36, rel=0.05)]
    # What differs is rows that miss, over the link.
    difference_ms = small.forward_ms - large.forward_ms
    assert model[0] - model[1] == pytest.approx(difference_ms, rel=0.05)


def test_a_shard_has_its_part_of_the_work():
    table = EmbeddingTable(
        name="t", rows=1000, dimension=256, pooling=4.0, optimizer_row_bytes=2048
    )
    topology = Topology(16, 8)
    (by_columns, *_) = enumerate_options(table, topology, sharding_types=["column_wise"])
    work = shard_work(by_columns, by_columns.shards[0], topology, 32, distinct_rows=800.0)
    assert (work.lookups, work.distinct_rows, work.outputs) == (2048, 800.0, 512)
    assert (work.row_bytes, work.state_row_bytes) == (512, 1024)
    (by_rows, *_) = enumerate_options(table, topology, sharding_types=["row_wise"])
    work = shard_work(by_rows, by_rows.shards[0], topology, 32, distinct_rows=800.0)
    assert (work.lookups, work.distinct_rows, work.table_rows) == (128, 50.0, 63)


def test_corrected_lookups_keep_torchrec_s_communication():
    table = EmbeddingTable(name="t", rows=1_000_000, dimension=128, pooling=10.0)
    topology = Topology(8, 8)
    option = enumerate_options(table, topology, sharding_types=["table_wise"])[1]
    (said,) = estimate_shards(option, topology, 4096)
    work = shard_work(option, said.shard, topology, 4096, distinct_rows=200_000.0)
    corrected = correct_perf(said.perf, lookup_times(work, option.compute_kernel))
    assert corrected.fwd_comms_ms == said.perf.fwd_comms_ms
    assert corrected.total_ms < said.perf.total_ms / 10


def test_what_has_no_sparse_lookups_is_refused():
    table = EmbeddingTable(name="t", rows=10, dimension=8)
    option = enumerate_options(table, Topology(1, 1))[0]
    with pytest.raises(ConfigError, match="t: no lookup times of data-parallel tables"):
        shard_work(option, option.shards[0], Topology(1, 1), 1, distinct_rows=1.0)
    with pytest.raises(ConfigError, match="no lookup times of that kernel; got dense"):
        lookup_times(WORK, "dense")
    with pytest.raises(ConfigError, match="no measured lookups"):
        fit_lookup_rates([], ROUND)


def _timed(measured, times):
    names = ("forward_ms", "backward_ms", "training_ms", "evaluation_ms")
    return replace(measured, **{name: float(getattr(times, name)) for name in names})


@pytest.mark.parametrize(
    "rows",
    [{"distinct_rows": 2e6}, {"missing_rows": 3e5}, {"missing_rows": -1.0}, {"lookups": np.nan}],
)
def test_rows_that_no_step_can_have_are_refused(rows):
    with pytest.raises(ConfigError, match="not the rows of a step"):
        lookup_times(replace(WORK, **rows), "fused_uvm_caching", ROUND)
