import jax
import numpy as np
import pytest
from hypothesis import given, strategies as st

from jaxperf.embedding.locality import (
    characterise,
    eviction_time_hit_ratio,
    expected_distinct_rows,
    footprint_table,
    independent_hit_ratio,
    lru_curve,
    mean_distinct_rows,
    model_footprint,
    popularity_of_bins,
    popularity_of_log,
    popularity_of_stats,
    read_locality_stats,
    read_popularity,
    reuse_times,
    sampled_curve,
    shared_eviction_time,
    shared_hit_ratio,
    zipf_popularity,
)
from jaxperf.errors import ConfigError, LogError
from tests.embedding.locality_cases import (
    LOW,
    MEDIUM,
    NIGHT,
    SCARAB,
    WEB07,
    WEB12,
    column,
    dense,
    oracle,
    small_logs,
    trace,
    trace_times,
)

# The oracle is printed with six decimals.
PRINTED = 0.5e-6 + 1e-9
SLOW = [pytest.param(name, marks=pytest.mark.slow) for name in (SCARAB, NIGHT)]


@pytest.mark.parametrize("name", [LOW, MEDIUM, WEB07, WEB12, *SLOW])
def test_distinct_rows_of_windows_equal_every_row_of_the_oracle(shared, name):
    rows = oracle(shared, "footprint_exact.csv", name)
    found = mean_distinct_rows(trace_times(shared, name), column(rows, "window_lookups"))
    assert abs(found - column(rows, "mean_distinct_rows", float)).max() <= PRINTED


@given(small_logs(), st.data())
def test_distinct_rows_are_the_mean_over_all_windows(row, data):
    window = data.draw(st.integers(1, len(row)))
    counts = [len(set(row[i : i + window])) for i in range(len(row) - window + 1)]
    assert mean_distinct_rows(reuse_times(row), window) == pytest.approx(np.mean(counts), abs=1e-9)


@given(small_logs(), st.integers(0, 100))
def test_the_model_footprint_sums_the_accesses_not_yet_reused(row, time):
    times = reuse_times(row)
    longer = [1.0 - times.count[times.time <= s].sum() / len(row) for s in range(time)]
    assert model_footprint(times, time) == pytest.approx(sum(longer), abs=1e-9)


@pytest.mark.parametrize("name", [LOW, MEDIUM, SCARAB])
def test_reuse_times_alone_give_the_curve_within_0_003(shared, name):
    rows = oracle(shared, "mrc_lru_exact.csv", name)
    log = trace(shared, name)
    model = eviction_time_hit_ratio(trace_times(shared, name), column(rows, "cache_rows"))
    assert abs(model - column(rows, "hits") / log.accesses).mean() <= 0.003


def test_popularity_alone_is_far_off_where_order_matters(shared):
    rows = oracle(shared, "mrc_lru_exact.csv", MEDIUM)[::4]
    log = trace(shared, MEDIUM)
    che = independent_hit_ratio(popularity_of_log(log.row), column(rows, "cache_rows"))
    (known,) = oracle(shared, "model_error_baseline.csv", MEDIUM)
    error = abs(che - column(rows, "hits") / log.accesses)
    assert error.mean() == pytest.approx(float(known["che_irm_mae"]), abs=1e-4)


def test_independent_lookups_of_a_zipf_law_hit_as_simulated(shared):
    rows = oracle(shared, "che_zipf_irm.csv")
    assert len(rows) == 16
    for row in rows:
        zipf = zipf_popularity(int(row["num_rows"]), float(row["zipf_alpha"]))
        size = int(row["cache_rows"])
        hit_ratio = float(independent_hit_ratio(zipf, size))
        assert hit_ratio == pytest.approx(float(row["che_hit_ratio"]), abs=1e-6)
        assert hit_ratio == pytest.approx(float(row["lru_hit_ratio_simulated"]), abs=1e-3)
        pinned = float(independent_hit_ratio(zipf, size, "pinned"))
        assert pinned == pytest.approx(float(row["static_topC_hit_ratio"]), abs=1e-6)


@pytest.mark.parametrize("policy", ["lru", "fifo", "random"])
def test_equally_popular_rows_hit_by_their_share_of_the_cache(policy):
    even = popularity_of_bins([1_000], [1])
    assert independent_hit_ratio(even, [0, 250, 1_000, 2_000], policy) == pytest.approx(
        [0.0, 0.25, 1.0, 1.0], abs=1e-9
    )


def test_distinct_rows_of_independent_lookups_by_hand():
    # Two rows read 3 : 1. Two lookups read both in 2 * 3/4 * 1/4 of the cases.
    assert expected_distinct_rows(popularity_of_bins([1, 1], [3, 1]), 2) == pytest.approx(1.375)


@pytest.mark.parametrize("name", [LOW, MEDIUM, WEB07, WEB12, *SLOW])
def test_one_percent_of_the_rows_gives_the_curve_within_0_01(shared, name):
    rows = oracle(shared, "mrc_lru_exact.csv", name)
    log = trace(shared, name)
    exact = column(rows, "hits") / log.accesses
    found = sampled_curve(
        log.row, column(rows, "cache_rows"), 0.01, times=trace_times(shared, name)
    )
    assert abs(found.hit_ratio - exact).mean() <= 0.01
    assert ((found.low <= exact) & (exact <= found.high)).mean() >= 0.9
    assert found.sampled_rows < 0.02 * log.distinct


def test_intervals_of_samples_cover_over_seeds(shared):
    rows = oracle(shared, "mrc_lru_exact.csv", WEB07)
    log = trace(shared, WEB07)
    exact = column(rows, "hits") / log.accesses
    times = trace_times(shared, WEB07)
    sizes = column(rows, "cache_rows")
    covered = []
    for seed in range(5):
        found = sampled_curve(log.row, sizes, 0.02, seed=seed, times=times)
        covered.append(((found.low <= exact) & (exact <= found.high)).mean())
    assert np.mean(covered) >= 0.9


def test_a_sample_is_the_same_for_the_same_seed():
    row = dense((np.random.default_rng(1).zipf(1.4, 20_000) % 3_000).tolist())
    first, again, other = (sampled_curve(row, [50], 0.1, seed=seed) for seed in (3, 3, 4))
    assert first.hit_ratio == again.hit_ratio
    assert first.sampled_rows != other.sampled_rows or first.hit_ratio != other.hit_ratio


@pytest.mark.parametrize("rate, message", [(0.0, "not a rate"), (0.01, "too few rows")])
def test_a_sample_that_says_nothing_is_refused(rate, message):
    with pytest.raises(ConfigError, match=message):
        sampled_curve(np.arange(100), [1], rate)


def test_a_sample_knows_what_a_cache_of_all_rows_hits():
    row = dense((np.random.default_rng(1).zipf(1.4, 20_000) % 3_000).tolist())
    distinct = len(np.unique(row))
    found = sampled_curve(row, [0, distinct, 10 * distinct], 0.1)
    known = [0.0, 1 - distinct / len(row), 1 - distinct / len(row)]
    for side in (found.low, found.hit_ratio, found.high):
        assert side == pytest.approx(known)


def test_no_lookups_read_no_rows():
    for popularity in (popularity_of_bins([1], [1]), popularity_of_bins([1, 9], [3, 1])):
        assert expected_distinct_rows(popularity, [0, 1]) == pytest.approx([0.0, 1.0])


@pytest.mark.parametrize("policy", ["lru", "fifo"])
def test_eviction_times_are_found_for_caches_of_nearly_all_rows(policy):
    zipf = zipf_popularity(10_000_000, 1.2)
    ratio = independent_hit_ratio(zipf, [9_000_000, 9_999_990, 10_000_000], policy)
    assert 0.99 < ratio[0] < ratio[1] <= ratio[2] == 1.0


@pytest.mark.parametrize("name, unique", [(LOW, 0.608), (MEDIUM, 0.238)])
def test_shares_of_popular_rows_equal_the_summary(shared, name, unique):
    (known,) = oracle(shared, "trace_summary.csv", name)
    found = characterise(trace(shared, name))
    assert found.distinct / found.accesses == pytest.approx(unique, abs=5e-4)
    assert found.mean_uses == pytest.approx(float(known["mean_reuse"]), abs=1e-9)
    assert found.top_1_percent_share == pytest.approx(float(known["top1pct_share"]), abs=1e-9)
    assert found.top_10_percent_share == pytest.approx(float(known["top10pct_share"]), abs=1e-9)
    assert (found.used_once, found.most_used) == (
        int(known["one_hit_ids"]),
        int(known["max_count"]),
    )
    assert found.uses.count.sum() == found.distinct
    assert found.reuse.count.sum() == found.accesses - found.distinct


@pytest.mark.parametrize(
    "year, name, lookups, distinct, uses",
    [
        (2021, "fbgemm_t856_bs65536.pt", 887_017_990, 128_435_723, 6.9),
        (2021, "fbgemm_t856_bs65536_0.pt", 468_084_223, 61_644_628, 7.6),
        (2022, "fbgemm_t788_bs131072_0.pt", 1_405_163_864, 110_259_238, 12.7),
    ],
)
def test_locality_statistics_are_read(shared, year, name, lookups, distinct, uses):
    path = shared / "dlrm" / "stats" / f"meta_dlrm_datasets_{year}_locality_stats.txt"
    stats = {one.name: one for one in read_locality_stats(path)}[name]
    assert (stats.lookups, stats.distinct, stats.mean_uses) == (lookups, distinct, uses)
    assert stats.lookups / stats.distinct == pytest.approx(uses, abs=0.05)
    # Shares have three decimals, so rows of a bin are known to about a percent.
    assert popularity_of_stats(stats).distinct == pytest.approx(distinct, rel=0.01)


def test_a_popularity_of_cachelib_is_read(shared):
    found = read_popularity(shared / "dlrm" / "stats" / "cachelib" / "cdn" / "pop.json")
    assert found.rows @ found.share == pytest.approx(1.0)
    assert found.distinct == 7_489_207


@pytest.mark.parametrize(
    "text",
    [
        '{"popularityBuckets": [1]}',
        "[]",
        '{"popularityBuckets": [1], "popularityWeights": 3}',
        '{"popularityBuckets": [1, -2], "popularityWeights": [3, 4]}',
        '{"popularityBuckets": [1, NaN], "popularityWeights": [3, 4]}',
        '{"popularityBuckets": [1, 0], "popularityWeights": [0, 4]}',
    ],
)
def test_a_broken_popularity_is_refused(tmp_path, text):
    path = tmp_path / "pop.json"
    path.write_text(text)
    with pytest.raises(LogError, match="no popularity"):
        read_popularity(path)


def test_locality_statistics_with_a_word_for_a_number_are_refused(shared, tmp_path):
    path = shared / "dlrm" / "stats" / "meta_dlrm_datasets_2021_locality_stats.txt"
    broken = tmp_path / "stats.txt"
    broken.write_text(path.read_text().replace("Avg col size: ", "Avg col size: about ", 1))
    with pytest.raises(LogError, match=r"stats.txt, line \d+: no number"):
        read_locality_stats(broken)


def test_a_table_alone_in_a_shared_cache_has_its_own_curve():
    row = dense((np.random.default_rng(0).zipf(1.2, 20_000) % 4_000).tolist())
    times = reuse_times(row)
    table = footprint_table([times], points=2_000)
    ratio = jax.jit(lambda size: shared_hit_ratio(table, [3.0], size))
    for size in (10.0, 300.0, 1_000.0):
        shared_ratio = ratio(size)
        assert shared_ratio == pytest.approx(eviction_time_hit_ratio(times, size), abs=1e-3)


def test_tables_in_one_cache_share_as_the_merged_log_does():
    rng = np.random.default_rng(2)
    hot = rng.zipf(1.6, 30_000) % 500
    cold = rng.integers(0, 2_000, 10_000)
    merged = np.empty(40_000, np.int64)
    of_cold = np.arange(40_000) % 4 == 3
    merged[~of_cold], merged[of_cold] = hot, 500 + cold
    logs = [reuse_times(dense(part.tolist())) for part in (hot, cold)]
    ratio = shared_hit_ratio(footprint_table(logs), [3.0, 1.0], 600)
    exact = lru_curve(dense(merged.tolist())).hit_ratio(600)
    assert (3 * ratio[0] + ratio[1]) / 4 == pytest.approx(exact, abs=0.005)


def test_a_cache_that_never_fills_keeps_every_row():
    times = reuse_times(dense([0, 1, 0, 1, 0, 2]))
    assert shared_hit_ratio(footprint_table([times]), [1.0], 50) == pytest.approx([0.5])


def test_gradients_of_shared_hit_ratios_equal_finite_differences():
    rng = np.random.default_rng(3)
    logs = [reuse_times(dense((rng.zipf(a, 5_000) % 900).tolist())) for a in (1.2, 1.5)]
    table = footprint_table(logs, points=64)
    at = jax.numpy.array([2.0, 1.0, 150.0])
    value = jax.jit(
        lambda x: jax.numpy.append(
            shared_hit_ratio(table, x[:2], x[2]), shared_eviction_time(table, x[:2], x[2])
        )
    )
    jacobian = jax.jit(jax.jacrev(value))(at)
    for i in range(3):
        step = 1e-6 * at[i]
        difference = (value(at.at[i].add(step)) - value(at.at[i].add(-step))) / (2 * step)
        assert np.asarray(jacobian[:, i]) == pytest.approx(np.asarray(difference), rel=1e-4)


def test_many_cache_sizes_are_one_batched_call():
    table = footprint_table([reuse_times(dense([0, 1, 2, 0, 1, 2, 3] * 50))])
    sizes = jax.numpy.linspace(0.5, 4.0, 8)
    ratio = jax.jit(lambda size: shared_hit_ratio(table, [1.0], size))
    batched = jax.jit(jax.vmap(ratio))(sizes)
    single = [ratio(size)[0] for size in sizes]
    assert batched[:, 0] == pytest.approx(np.array(single))
