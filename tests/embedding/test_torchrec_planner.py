"""TorchRec's planner in compatibility mode: its own estimates, and its rules by hand."""

import importlib
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, strategies as st

from jaxperf.config import EmbeddingTable
from jaxperf.embedding.torchrec import (
    ALL_SHARDING_TYPES,
    OffloadStatistics,
    ShardEstimate,
    Topology,
    cut_table,
    enumerate_options,
    estimate_shards,
)
from jaxperf.errors import ConfigError

TABLE = EmbeddingTable(name="t0", rows=40_000_000, dimension=128, pooling=3.0)
NODE = Topology(8, 8)


@pytest.fixture(scope="module")
def benchmark():
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(Path(__file__).resolve().parents[2] / "benchmarks"))
        return importlib.import_module("embedding_torchrec")


def estimate(table, topology, sharding_type, kernel, **more) -> tuple[ShardEstimate, ...]:
    options = enumerate_options(table, topology, sharding_types=[sharding_type])
    option = next(each for each in options if each.compute_kernel == kernel)
    return estimate_shards(option, topology, 8192, **more)


def test_every_estimate_of_torchrec_is_met(benchmark, shared):
    rows = 0
    for golden, ours in benchmark.golden_rows(shared):
        assert ours == {name: pytest.approx(float(golden[name]), rel=1e-9) for name in ours}
        rows += 1
    assert rows == 1812


@pytest.mark.parametrize(
    ("kernel", "forward_ms", "total_ms", "hbm_bytes"),
    [
        ("fused", 0.140986, 0.527126, 20_515_127_296),
        ("fused_uvm_caching", 6.169017, 18.611217, 4_419_127_296),
    ],
)
def test_the_first_table_of_mlperf_on_one_node(kernel, forward_ms, total_ms, hbm_bytes):
    (found,) = estimate(TABLE, NODE, "table_wise", kernel)
    assert found.perf.fwd_compute_ms == pytest.approx(forward_ms, abs=5e-7)
    assert found.perf.total_ms == pytest.approx(total_ms, abs=5e-7)
    assert found.storage.hbm_bytes == hbm_bytes


def test_the_planner_thinks_a_cache_forty_times_slower_than_the_device():
    # Measured on an A10 in TorchEasyRec's pull request 508: 3.3 times.
    fast, slow = (
        estimate(TABLE, NODE, "table_wise", kernel)[0].perf.fwd_compute_ms
        for kernel in ("fused", "fused_uvm_caching")
    )
    assert slow / fast == pytest.approx(43.8, abs=0.05)


def test_the_last_devices_may_have_no_rows():
    table = EmbeddingTable(name="tiny", rows=5, dimension=8)
    shards = estimate(table, Topology(4, 4), "row_wise", "fused")
    assert [each.shard.rows for each in shards] == [2, 2, 1, 0]
    assert [each.shard.row_offset for each in shards] == [0, 2, 4, 5]
    # 2 rows of 32 bytes, 8,192 lookups of 4 devices among 4, and 4 x 8,192 outputs of 32 bytes.
    step_bytes = 8192 * 8 + 4 * 8192 * 32
    assert [each.storage.hbm_bytes for each in shards] == [
        64 + step_bytes,
        64 + step_bytes,
        32 + step_bytes,
        0,
    ]


@given(st.integers(1, 10_000), st.integers(1, 1024), st.integers(1, 4), st.integers(1, 8))
def test_shards_cover_a_table_once(rows, dimension, hosts, local):
    table = EmbeddingTable(name="any", rows=rows, dimension=dimension)
    for sharding_type in ALL_SHARDING_TYPES:
        shards = cut_table(table, Topology(hosts * local, local), sharding_type)
        cells = sum(shard.rows * shard.columns for shard in shards)
        copies = hosts * local if sharding_type == "data_parallel" else 1
        assert cells == copies * rows * dimension
        assert all(shard.row_offset + shard.rows <= rows for shard in shards)
        assert all(shard.column_offset + shard.columns <= dimension for shard in shards)


def test_columns_are_cut_by_the_least_divisor_that_is_a_multiple_of_four():
    table = EmbeddingTable(name="wide", rows=10, dimension=480)
    assert {shard.columns for shard in cut_table(table, NODE, "column_wise")} == {160}
    assert {shard.columns for shard in cut_table(table, NODE, "column_wise", 32)} == {32}
    grid = cut_table(table, Topology(8, 2), "grid_shard", 240)
    assert [(shard.row_offset, shard.column_offset) for shard in grid] == [
        (0, 0),
        (5, 0),
        (0, 240),
        (5, 240),
    ]


def test_an_all_reduce_over_more_than_two_hosts_counts_twice():
    # Twice 3/2 of 20.48e9 bytes over 8 adapters of 12.5 GiB/s; 9.22 times that in half of HBM.
    (found, *_) = estimate(TABLE, Topology(24, 8), "data_parallel", "dense")
    table_bytes = 40e6 * 128 * 4
    reduce_ms = 2 * 1.5 * table_bytes / (8 * 12.5 * 2**30) * 1e3
    optimizer_ms = 9.22 * table_bytes / (897 * 2**30 / 2) * 1e3
    assert found.perf.bwd_comms_ms == pytest.approx(reduce_ms + optimizer_ms)
    assert found.perf.fwd_comms_ms == found.perf.input_dist_comms_ms == 0


def test_the_state_of_an_optimizer_grows_with_the_weights():
    adam = EmbeddingTable(name="t", rows=1000, dimension=64, optimizer_row_bytes=2 * 64 * 4)
    (plain,) = estimate(
        EmbeddingTable(name="t", rows=1000, dimension=64), NODE, "table_wise", "fused"
    )
    (found,) = estimate(adam, NODE, "table_wise", "fused")
    assert found.storage.hbm_bytes - plain.storage.hbm_bytes == 2 * 1000 * 64 * 4
    (host,) = estimate(adam, NODE, "table_wise", "fused_uvm")
    assert host.storage.ddr_bytes == 3 * 1000 * 64 * 4


def test_statistics_of_accesses_are_a_prefetch_before_everything_else():
    statistics = OffloadStatistics(0.5, 2_000_000, np.array([0.5, 0.3, 0.2]), height=40_000_000)
    kernel = "fused_uvm_caching"
    (plain,) = estimate(TABLE, NODE, "table_wise", kernel, cache_load_factor=0.1)
    more = {"cache_load_factor": 0.1, "statistics": statistics}
    (found,) = estimate(TABLE, NODE, "table_wise", kernel, **more)
    # Half of two million rows of 512 bytes, over 32 GiB/s.
    prefetch_ms = 1e6 * 512 / (32 * 2**30) * 1e3
    assert found.perf.prefetch_compute_ms == pytest.approx(prefetch_ms)
    assert found.perf.total_ms - plain.perf.total_ms == pytest.approx(prefetch_ms)
    (by_rows, *_) = estimate(TABLE, NODE, "row_wise", kernel, **more)
    assert by_rows.perf.prefetch_compute_ms == pytest.approx(prefetch_ms / 8)


def test_unknown_names_are_refused():
    with pytest.raises(
        ConfigError, match="no such sharding type; got diagonal; expected one of data"
    ):
        cut_table(TABLE, NODE, "diagonal")
    with pytest.raises(ConfigError, match="local_world_size: no such devices; got 8 of 4"):
        Topology(4, 8)
