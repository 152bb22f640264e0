import numpy as np
import pytest
from hypothesis import given, strategies as st

from jaxperf.embedding.locality import (
    lru_curve,
    pinned_curve,
    policy_hits,
    set_associative_estimate,
    set_associative_hits,
    splitmix64,
    stack_distances,
)
from jaxperf.errors import ConfigError
from tests.embedding.locality_cases import (
    LOW,
    MEDIUM,
    NIGHT,
    SCARAB,
    WEB07,
    WEB12,
    column,
    lru_hits,
    oracle,
    small_logs,
    trace,
)


@pytest.mark.parametrize(
    "name", [LOW, MEDIUM, SCARAB, WEB07, WEB12, pytest.param(NIGHT, marks=pytest.mark.slow)]
)
def test_exact_hits_equal_every_row_of_the_oracle(shared, name):
    rows = oracle(shared, "mrc_lru_exact.csv", name)
    log = trace(shared, name)
    assert (log.accesses, log.distinct) == (int(rows[0]["requests"]), int(rows[0]["unique_ids"]))
    assert (lru_curve(log.row).hits(column(rows, "cache_rows")) == column(rows, "hits")).all()


@pytest.mark.parametrize(
    "name, size, hits",
    [
        (MEDIUM, 1_025, 241_292),
        (LOW, 23_107, 73_444),
        pytest.param(SCARAB, 25_836, 754_546, marks=pytest.mark.slow),
    ],
)
def test_hits_of_the_first_check_value(shared, name, size, hits):
    assert lru_curve(trace(shared, name).row).hits(size) == hits


@pytest.mark.parametrize("name", [LOW, MEDIUM, pytest.param(SCARAB, marks=pytest.mark.slow)])
def test_sets_of_32_ways_equal_the_oracle_to_the_hit(shared, name):
    log = trace(shared, name)
    for row in oracle(shared, "policy_oracle.csv", name):
        if row["policy"] == "LRU_32way_splitmix64":
            assert set_associative_hits(log.row, int(row["cache_rows"]), 32) == int(row["hits"])


def test_the_binomial_model_of_sets_is_near_the_exact_count(shared):
    log = trace(shared, MEDIUM)
    estimate = set_associative_estimate(lru_curve(log.row), 1_025, 32)
    assert estimate / log.accesses == pytest.approx(239_027 / log.accesses, abs=1e-3)


@pytest.mark.parametrize(
    "policy", ["fifo", "clock", "lfu", pytest.param("belady", marks=pytest.mark.slow)]
)
def test_simulated_policies_equal_the_oracle_to_the_hit(shared, policy):
    log = trace(shared, LOW)
    rows = oracle(shared, "policy_oracle.csv", LOW)
    rows = [row for row in rows if row["policy"].lower() == policy][:2]
    hits = policy_hits(log.row, column(rows, "cache_rows"), policy)
    assert len(rows) == 2
    assert (hits == column(rows, "hits")).all()


@pytest.mark.slow
@pytest.mark.parametrize("policy", ["fifo", "clock", "lfu"])
@pytest.mark.parametrize("name", [MEDIUM, SCARAB])
def test_simulated_policies_equal_the_oracle_on_other_logs(shared, name, policy):
    log = trace(shared, name)
    rows = oracle(shared, "policy_oracle.csv", name)
    rows = [row for row in rows if row["policy"].lower() == policy]
    assert (policy_hits(log.row, column(rows, "cache_rows"), policy) == column(rows, "hits")).all()


def test_pinned_rows_take_the_share_of_the_most_used(shared):
    log = trace(shared, MEDIUM)
    (summary,) = oracle(shared, "trace_summary.csv", MEDIUM)
    share = pinned_curve(log.row).hit_ratio(log.distinct // 100)
    assert share == pytest.approx(float(summary["top1pct_share"]), abs=1e-12)


@given(small_logs())
def test_the_curve_is_that_of_a_cache_simulated_access_by_access(row):
    sizes = list(range(1, 15))
    assert lru_curve(row).hits(sizes).tolist() == [lru_hits(row.tolist(), c) for c in sizes]


@given(small_logs(), st.integers(1, 4), st.integers(1, 4))
def test_sets_are_caches_of_their_own(row, sets, ways):
    group = splitmix64(row) % np.uint64(sets)
    expected = sum(lru_hits(row[group == g].tolist(), ways) for g in range(sets))
    assert set_associative_hits(row, sets * ways + ways - 1, ways) == expected


@given(small_logs())
def test_a_distance_is_the_number_of_other_rows_in_between(row):
    distance = stack_distances(row)
    for t, found in enumerate(distance):
        before = np.flatnonzero(row[:t] == row[t])
        assert found == (len(set(row[before[-1] + 1 : t])) if len(before) else -1)


@given(small_logs(), st.integers(1, 8))
def test_no_policy_that_loads_every_miss_beats_the_bound(row, size):
    bound = policy_hits(row, [size], "belady")[0]
    for policy in ("lru", "fifo", "clock", "lfu"):
        assert policy_hits(row, [size], policy)[0] <= bound


@given(small_logs(), st.sampled_from(["lru", "fifo", "clock", "lfu", "belady"]))
def test_a_cache_of_all_rows_misses_first_uses_alone(row, policy):
    distinct = len(np.unique(row))
    assert policy_hits(row, [distinct, distinct + 3], policy).tolist() == [len(row) - distinct] * 2


@given(small_logs(), st.sampled_from(["fifo", "clock", "lfu", "belady"]))
def test_caches_far_larger_than_the_table_cost_no_more_than_it(row, policy):
    hits = len(row) - len(np.unique(row))
    assert policy_hits(row, [10**15], policy).tolist() == [hits]


@pytest.mark.parametrize(
    "policy, ways",
    [
        *((policy, None) for policy in ("lru", "pinned", "fifo", "clock", "lfu", "belady")),
        ("lru", 4),
    ],
)
def test_a_cache_of_no_rows_never_hits(policy, ways):
    assert policy_hits(np.array([0, 1, 0, 0]), [0], policy, ways).tolist() == [0]


@pytest.mark.parametrize(
    "arguments, message",
    [
        (([4], "random"), "unknown policy"),
        (([-1], "lru"), "not a size of a cache"),
        (([64], "fifo", 32), "sets are for lru alone"),
        (([16], "lru", 32), "not one whole set"),
    ],
)
def test_what_cannot_be_counted_is_refused(arguments, message):
    with pytest.raises(ConfigError, match=message):
        policy_hits(np.array([0, 1, 0]), *arguments)


def test_the_hash_of_sets_is_splitmix64():
    # First outputs of the reference generator seeded with 0 (Vigna, splitmix64.c).
    step = 0x9E3779B97F4A7C15
    seeds = np.array([0, step, 2 * step % 2**64], np.uint64)
    expected = [0xE220A8397B1DCDAF, 0x6E789E6AA1B965F4, 0x06C45D188009454F]
    assert splitmix64(seeds).tolist() == expected
