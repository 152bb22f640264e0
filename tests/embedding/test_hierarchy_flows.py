from dataclasses import replace
from functools import partial

import jax
import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from jaxperf.embedding.hierarchy import (
    HierarchyRules,
    conflict_rows,
    distinct_rows,
    flows_of,
    hit_ratio,
    policy_weights,
    traffic_of,
)
from jaxperf.errors import ConfigError
from tests.embedding.hierarchy_designs import CACHED_ROWS, DESIGN, HOME_SHARE, MODEL

ITEMS, HISTORY = 0, 1
FULL = HierarchyRules(ways=None)
HITS, DISTINCT = jax.jit(hit_ratio), jax.jit(distinct_rows)


@partial(jax.jit, static_argnums=1)
def jitted(design, inclusive=True):
    return flows_of(MODEL, design, HierarchyRules(ways=None, inclusive=inclusive))


def flows(design=DESIGN, inclusive=True):
    return jax.tree.map(np.asarray, jitted(design, inclusive))


def test_every_row_of_a_batch_is_found_once():
    for inclusive in (True, False):
        found = flows(inclusive=inclusive)
        np.testing.assert_allclose(found.found.sum(axis=1), found.distinct, rtol=1e-12)


def test_rows_that_miss_are_lookups_times_miss_ratio():
    found = flows()
    lookups = 8192 * 50.0
    sizes = np.array([1.0, 4e5, 1.0, 1.0])
    missed = lookups * (1 - np.asarray(HITS(MODEL.curves, sizes)))[HISTORY]
    assert found.lookups[HISTORY] == lookups
    assert found.found[HISTORY, 1:].sum() == pytest.approx(missed)


def test_three_writes_a_step_into_the_second_cache_as_fbgemm_makes_them():
    """Rows that it missed, rows that leave the first cache, rows that found no place there."""
    found = flows()
    missed_first = found.found[HISTORY, 1:].sum()
    missed_both = found.found[HISTORY, 2]
    assert found.filled[HISTORY, 1] == pytest.approx(missed_both)
    assert found.written[HISTORY, 1] == pytest.approx(missed_first)
    assert found.written[HISTORY, 2] == pytest.approx(missed_both)
    assert flows(inclusive=False).filled[HISTORY, 1] == 0


def test_caches_that_hold_no_row_twice_hit_more():
    both, once = flows(inclusive=True), flows(inclusive=False)
    assert once.hit_share[HISTORY, 1] > both.hit_share[HISTORY, 1]
    assert once.hit_share[HISTORY, 0] == both.hit_share[HISTORY, 0]


def test_a_table_in_two_places_asks_each_for_its_part():
    one = flows()
    home = HOME_SHARE.copy()
    home[ITEMS] = [0, 0, 1]
    cached = np.zeros_like(CACHED_ROWS)
    none = flows(replace(DESIGN, cached_rows=cached))
    assert none.found[ITEMS] == pytest.approx(np.array([0, 0.3, 0.7]) * one.distinct[ITEMS])
    # 7 of 10 rows, and 7 of 10 cached ones: the same hits.
    whole = replace(DESIGN, home_share=home)
    part = replace(whole, home_share=HOME_SHARE, cached_rows=CACHED_ROWS * [1, 0.7, 1])
    assert flows(part).hit_share[ITEMS, 1] == pytest.approx(flows(whole).hit_share[ITEMS, 1])


def test_pinned_rows_are_updated_in_place_and_no_other_enters():
    by_popularity, admits = policy_weights(["pinned", "pinned", "lru", "lru"])
    pinned = flows(replace(DESIGN, by_popularity=by_popularity, admits=admits))
    assert np.all(pinned.filled[HISTORY] == 0)
    np.testing.assert_allclose(pinned.written[HISTORY, 1:], pinned.found[HISTORY, 1:])
    assert pinned.hit_share[HISTORY, 0] > flows().hit_share[HISTORY, 0]


def test_no_such_policy():
    with pytest.raises(ConfigError, match="lru, clock, lfu, pinned"):
        policy_weights(["lru", "random"])


def test_conflicts_of_sets_by_simulation():
    random = np.random.default_rng(0)
    sets, ways, locked = 500, 8, 3500
    counts = [np.bincount(random.integers(0, sets, locked), minlength=sets) for _ in range(50)]
    simulated = np.mean([np.maximum(count - ways, 0).sum() for count in counts])
    found = conflict_rows(np.array([float(locked)]), np.array([float(sets * ways)]), ways)
    assert float(found[0]) == pytest.approx(simulated, rel=0.05)


def test_where_any_row_may_lie_anywhere_only_the_excess_conflicts():
    found = conflict_rows(np.array([100.0, 100.0]), np.array([60.0, 200.0]), None)
    assert found.tolist() == [40, 0]


def test_two_batches_of_rows_are_locked():
    twice = np.asarray(DISTINCT(MODEL.curves, 2 * 8192 * np.asarray(MODEL.pooling)))
    np.testing.assert_allclose(flows().locked, twice * [1, 1, 0, 0], atol=1e-9)


def test_a_log_structured_store_writes_and_reads_again_what_it_merges():
    found = flows()
    tiers = DESIGN.machine.tiers
    rules = replace(FULL, log_write_amplification=10.0)
    traffic = jax.jit(traffic_of)(MODEL, tiers, found, 2.0, rules)
    row_bytes = MODEL.weight_bytes + MODEL.state_bytes
    once = found.written[:, 2] @ row_bytes / 2
    assert float(traffic.write_bytes[2]) == pytest.approx(10 * once)
    read = found.found[:, 2].sum() * 4096 / 2
    assert float(traffic.read_bytes[2]) == pytest.approx(read + 9 * once)
    # What drives send passes the link of the host's memory as well, without what fills a block.
    above = traffic.read_bytes[1] + found.found[:, 2] @ row_bytes / 2
    assert float(traffic.link_read_bytes[1]) == pytest.approx(float(above))


@settings(max_examples=25)
@given(st.floats(0, 1), st.floats(0, 1), st.booleans())
def test_a_larger_cache_never_fetches_more(first, second, inclusive):
    low, high = sorted([first, second])
    small, large = (
        flows(replace(DESIGN, cached_rows=CACHED_ROWS * share), inclusive) for share in (low, high)
    )
    assert np.all(large.found[:, 2] <= small.found[:, 2] * (1 + 1e-9) + 1e-9)
