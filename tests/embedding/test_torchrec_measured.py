"""The benchmark's ids: how many differ, and how many miss in a cache that they go round in."""

import json

import numpy as np
import pytest

from jaxperf.embedding.torchrec import read_measured_lookups
from jaxperf.embedding.torchrec._measured import power_law_shares, replayed_misses
from jaxperf.errors import ConfigError, LogError


def test_distinct_rows_are_those_that_the_benchmark_counted(shared):
    path = shared / "dlrm" / "bench" / "nvidia_dynamicemb_h100_benchmark_results.json"
    for each in json.loads(path.read_text()):
        share, count = power_law_shares(each["num_embeddings_per_feature"][0], each["alpha"])
        never = np.log1p(-share) * each["batch_size"]
        distinct = each["num_tables"] * (count @ -np.expm1(never))
        assert distinct == pytest.approx(each["avg_n_unique"], rel=1e-4)


def test_shares_are_those_of_all_rows():
    share, count = power_law_shares(300_000, 1.05)
    assert share @ count == pytest.approx(1.0)
    assert count.sum() == 299_999
    edges = np.arange(1, 300_001.0) ** -0.05
    alone = np.diff(edges) / (edges[-1] - edges[0])
    ours, truth = (
        counts @ -np.expm1(5000 * np.log1p(-shares))
        for shares, counts in ((share, count), (alone, np.ones(len(alone))))
    )
    assert ours == pytest.approx(truth, rel=1e-5)


@pytest.mark.parametrize("size", [0.6, 0.8, 1.0])
def test_misses_are_those_of_a_cache_that_is_simulated(size):
    rows, lookups, batches = 400_000, 10_000, 12
    rng = np.random.default_rng(7)
    share, count = power_law_shares(rows, 1.05)
    each_row = np.repeat(share, count.astype(int))
    drawn = [
        np.unique(rng.choice(len(each_row), lookups, p=each_row / each_row.sum()))
        for _ in range(batches)
    ]
    missing, footprint = replayed_misses(share, count, lookups, batches, size)
    assert footprint == pytest.approx(len(np.unique(np.concatenate(drawn))), rel=0.02)
    simulated = _misses(drawn, sets=round(size * footprint / 32), rng=rng)
    assert missing == pytest.approx(simulated, rel=0.03)


def _misses(batches, sets, rng) -> float:
    """Misses of a batch of the third round, in sets of 32 that evict the least recently used."""
    set_of = rng.integers(0, sets, 400_001)
    cache = [dict() for _ in range(sets)]
    missed = 0
    for turn in range(3):
        for batch in batches:
            for row in batch.tolist():
                lines = cache[set_of[row]]
                missed += turn == 2 and row not in lines
                lines.pop(row, None)
                lines[row] = None
                if len(lines) > 32:
                    del lines[next(iter(lines))]
    return missed / len(batches)


def test_other_files_are_refused(tmp_path):
    path = tmp_path / "results.json"
    with pytest.raises(LogError, match="results.json: cannot be read; got No such file"):
        read_measured_lookups(path)
    for text in ("{", "[3]", '[{"label": "x"}]', "null"):
        path.write_text(text)
        with pytest.raises(LogError, match="not such results; got .*; expected unpooled results"):
            read_measured_lookups(path)


def test_results_without_a_time_and_no_batches_are_refused(shared, tmp_path):
    path = shared / "dlrm" / "bench" / "nvidia_dynamicemb_h100_benchmark_results.json"
    with pytest.raises(ConfigError, match="no batches"):
        read_measured_lookups(path, batches=0)
    entries = json.loads(path.read_text())
    entries[0]["trc_forward_ms"] = None
    broken = tmp_path / "results.json"
    broken.write_text(json.dumps(entries))
    with pytest.raises(LogError, match="not such results"):
        read_measured_lookups(broken)
