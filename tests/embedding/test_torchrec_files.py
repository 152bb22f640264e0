"""Plans and statistics of TorchRec, written and read."""

import json

import numpy as np
import pytest

from jaxperf.config import EmbeddingTable
from jaxperf.embedding.torchrec import (
    OffloadStatistics,
    Shard,
    TableSharding,
    Topology,
    enumerate_options,
    offload_statistics,
    place_option,
    read_offload_statistics,
    read_sharding_plan,
    write_offload_statistics,
    write_sharding_plan,
)
from jaxperf.errors import ConfigError, OutputError

TABLE = EmbeddingTable(name="ads", rows=1000, dimension=64)
TOPOLOGY = Topology(4, 2)


def options(sharding_type):
    return enumerate_options(TABLE, TOPOLOGY, sharding_types=[sharding_type])


@pytest.fixture
def plan():
    return {
        "model.ebc": {
            "ads": place_option(options("row_wise")[2], range(4), cache_load_factor=0.1),
            "users": place_option(options("table_wise")[0], [3]),
            "small": place_option(options("data_parallel")[0], range(4)),
        }
    }


def test_a_plan_is_read_as_it_was_written(plan, tmp_path):
    path = tmp_path / "plan.json"
    write_sharding_plan(path, plan, local_world_size=2)
    assert read_sharding_plan(path) == plan


def test_a_plan_has_torchrec_s_names(plan, tmp_path):
    path = tmp_path / "plan.json"
    write_sharding_plan(path, plan, local_world_size=2)
    tables = json.loads(path.read_text())["model.ebc"]
    assert tables["users"] == {
        "sharding_type": "table_wise",
        "compute_kernel": "fused",
        "ranks": [3],
        "sharding_spec": {
            "shards": [
                {
                    "shard_sizes": [1000, 64],
                    "shard_offsets": [0, 0],
                    "placement": "rank:3/cuda:1",
                }
            ]
        },
        "cache_params": None,
    }
    assert tables["ads"]["cache_params"] == {"load_factor": 0.1}
    assert tables["small"]["sharding_spec"] is None


def test_the_plan_of_a_checkpoint_of_torcheasyrec_is_read(tmp_path):
    path = tmp_path / "plan"
    path.write_text(
        '{"model.ebc": {"ads": {"sharding_type": "row_wise", "compute_kernel": "fused",'
        ' "ranks": [0, 1]}, "small": {"sharding_type": "data_parallel",'
        ' "compute_kernel": "dense", "ranks": null, "enforce_hbm": true}}}'
    )
    assert read_sharding_plan(path)["model.ebc"] == {
        "ads": TableSharding("row_wise", "fused", (0, 1)),
        "small": TableSharding("data_parallel", "dense"),
    }


def test_ranks_follow_from_placements(tmp_path):
    path = tmp_path / "plan"
    path.write_text(
        '{"ebc": {"t": {"sharding_type": "table_wise", "compute_kernel": "fused", "sharding_spec":'
        ' {"shards": [{"shard_sizes": [9, 8], "shard_offsets": [0, 0],'
        ' "placement": "rank:5/cuda:1"}]}}}}'
    )
    found = read_sharding_plan(path)["ebc"]["t"]
    assert found == TableSharding("table_wise", "fused", (5,), (Shard(9, 8),))


SPEC = '{"shards": [{"shard_sizes": [9, 8], "shard_offsets": [0, 0], "placement": "%s"}]}'
ENTRY = '{"m": {"t": {"sharding_type": "row_wise", "compute_kernel": "fused", %s}}}'


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[]", "plan: not valid; got Expected `object`, got `array`; expected a sharding plan"),
        ("\xff", "plan: not valid"),
        ('{"m": {"t": {"sharding_type": 3}}}', "Expected `str`, got `int`"),
        ('{"m": {"t": {"sharding_type": "row_wise"}}}', "missing required field `compute_kernel`"),
        (ENTRY % '"ranks": [-1]', "Expected `int` >= 0"),
        (ENTRY % f'"sharding_spec": {SPEC % "cuda:0"}', "m.t: no placement; got cuda:0"),
        (
            ENTRY % f'"ranks": [0, 1], "sharding_spec": {SPEC % "rank:0/cuda:0"}',
            "m.t: ranks do not fit the shards; got 2 ranks; expected 1, one per shard",
        ),
    ],
)
def test_a_broken_plan_is_refused_in_one_line(text, message, tmp_path):
    path = tmp_path / "plan"
    path.write_bytes(text.encode("latin-1"))
    with pytest.raises(ConfigError) as refused:
        read_sharding_plan(path)
    assert message in str(refused.value)
    assert "\n" not in str(refused.value)


def test_files_that_are_not_there(plan, tmp_path):
    with pytest.raises(ConfigError, match="cannot be read; got No such file"):
        read_sharding_plan(tmp_path / "none")
    with pytest.raises(OutputError, match="its folder does not exist"):
        write_sharding_plan(tmp_path / "none" / "plan", plan, local_world_size=2)


def test_ranks_must_fit_the_shards():
    with pytest.raises(ConfigError, match="ads: ranks do not fit the shards; got 1 ranks"):
        place_option(options("row_wise")[0], [0])


def test_torchrec_reads_our_curve_off_the_histogram():
    rows = np.array([10, 50, 200, 400, 1000])
    ratio = np.array([0.2, 0.45, 0.6, 0.7, 0.75])
    statistics = offload_statistics(rows, ratio, table_rows=1000, expected_lookups=321, bins=1000)
    assert statistics.mrc_hist_counts.sum() == pytest.approx(1.0)
    for load_factor in (0.01, 0.05, 0.13, 0.2, 0.33, 0.4, 0.9):
        ours = 1 - np.interp(load_factor * 1000, rows, ratio)
        # A cache of C rows is read off one bin below or above.
        assert statistics.miss_ratio(load_factor) == pytest.approx(ours, abs=0.01)
    assert statistics.miss_ratio(0.0) == 1.0
    # TorchRec makes a cache of everything hit always, first touches too.
    assert statistics.miss_ratio(1.0) == 0.0
    area = 1 - np.trapezoid(np.append(0, ratio), np.append(0, rows)) / 1000
    assert statistics.cacheability == pytest.approx(area, abs=1e-3)


def test_a_histogram_is_read_as_torchrec_reads_it():
    # Three bins of 4 rows: k rows hit what is within k - 1, so that 5 rows reach into the second.
    statistics = OffloadStatistics(0.5, 10, np.array([5.0, 3.0, 2.0]), height=12)
    found = [statistics.miss_ratio(rows / 12) for rows in (0, 1, 4, 5, 8, 9, 12)]
    assert found == pytest.approx([1.0, 0.5, 0.5, 0.2, 0.2, 0.0, 0.0])
    assert OffloadStatistics(0.5, 10, np.zeros(3), height=12).miss_ratio(0.1) == 0.0


def test_statistics_are_read_as_they_were_written(tmp_path):
    path = tmp_path / "statistics.json"
    made = offload_statistics([100], [0.5], table_rows=1000, expected_lookups=77, bins=10)
    write_offload_statistics(path, {"ads": made})
    found = read_offload_statistics(path)["ads"]
    np.testing.assert_array_equal(found.mrc_hist_counts, made.mrc_hist_counts)
    assert (found.cacheability, found.expected_lookups, found.height) == (
        made.cacheability,
        77,
        1000,
    )
    assert set(json.loads(path.read_text())["ads"]) == {
        "cacheability",
        "expected_lookups",
        "mrc_hist_counts",
        "height",
    }
    path.write_text('{"ads": {"cacheability": 1, "expected_lookups": 1, "height": 3}}')
    with pytest.raises(ConfigError, match="missing required field `mrc_hist_counts`"):
        read_offload_statistics(path)


@pytest.mark.parametrize(
    ("rows", "ratio", "expected"),
    [
        ([], [], "a size for each hit ratio"),
        ([1, 2], [0.5], "a size for each hit ratio"),
        ([2, 1], [0.1, 0.5], "sizes that rise, from 1 to 10 rows"),
        ([1, 11], [0.1, 0.5], "sizes that rise, from 1 to 10 rows"),
        ([1, 2], [0.5, 0.1], "hit ratios from 0 to 1 that do not fall"),
        ([1, 2], [0.5, np.nan], "hit ratios from 0 to 1 that do not fall"),
    ],
)
def test_what_is_no_curve_is_refused(rows, ratio, expected):
    with pytest.raises(ConfigError, match=f"not a miss-ratio curve; expected {expected}"):
        offload_statistics(rows, ratio, table_rows=10, expected_lookups=1)


def test_ranks_that_contradict_their_placements_are_refused(plan, tmp_path):
    path = tmp_path / "plan.json"
    write_sharding_plan(path, plan, local_world_size=2)
    content = json.loads(path.read_text())
    content["model.ebc"]["users"]["ranks"] = [1]
    path.write_text(json.dumps(content))
    with pytest.raises(ConfigError, match=r"users: ranks and placements differ; got \(1,\)"):
        read_sharding_plan(path)


def test_a_plan_for_no_devices_or_for_too_few_ranks_is_not_written(plan, tmp_path):
    path = tmp_path / "plan.json"
    with pytest.raises(ConfigError, match="no such host"):
        write_sharding_plan(path, plan, local_world_size=0)
    short = {"ebc": {"ads": TableSharding("table_wise", "fused", (), (Shard(1000, 64),))}}
    with pytest.raises(ConfigError, match="got 0 ranks; expected 1"):
        write_sharding_plan(path, short, local_world_size=2)
    assert not path.exists()
