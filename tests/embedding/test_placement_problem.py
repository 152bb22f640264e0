"""The step of shares of options, and the bound of all placements."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from jaxperf.embedding.placement._columns import relax_by_columns
from jaxperf.embedding.placement._greedy import place_greedily
from jaxperf.embedding.placement._milp import place_pooled, relax, shortage_bytes
from jaxperf.embedding.placement._problem import (
    capacity_excess_bytes,
    example_problem,
    pooled_step,
)
from jaxperf.errors import ConfigError
from tests.embedding.placement_cases import best_of_all, random_problem

SIZES = st.tuples(st.integers(0, 10_000), st.integers(1, 6), st.integers(1, 4))


@settings(max_examples=15)
@given(SIZES)
def test_the_integer_program_finds_the_best_of_all_choices(sizes):
    seed, tables, options = sizes
    problem = random_problem(seed, tables, options)
    best_us = best_of_all(problem)
    try:
        found = place_pooled(problem, gap=1e-9)
    except ConfigError:
        found = None
    if not np.isfinite(best_us):
        assert found is None
        return
    assert found is not None
    assert found.step_us == pytest.approx(best_us, rel=1e-6)
    assert found.bound_us <= best_us * (1 + 1e-9)


@settings(max_examples=15)
@given(st.integers(0, 10_000))
def test_the_integer_program_is_never_worse_than_greedy_and_greedy_fits(seed):
    problem = random_problem(seed, 12, 5, fill=0.9)
    greedy = place_greedily(problem)
    if greedy is None:
        return
    assert (capacity_excess_bytes(problem, greedy.shares) <= 1e-6).all()
    assert greedy.step_us == pooled_step(problem, greedy.shares).step_us
    found = place_pooled(problem, known=greedy, time_limit_s=5)
    assert found is not None
    assert found.step_us <= greedy.step_us
    assert relax(problem).bound_us <= found.step_us * (1 + 1e-9)


def test_the_step_is_that_of_the_slowest_stage():
    problem = example_problem()
    step = pooled_step(problem, np.array([1.0, 0.0, 0.0, 1.0]))
    assert (step.step_us, step.stage, step.tier, step.resource) == (
        61.0,
        "step",
        "slow",
        "bandwidth",
    )
    side_by_side = replace(problem, stages=("a", "b"), stage_tiers=np.eye(2), fixed_us=np.zeros(2))
    assert pooled_step(side_by_side, np.array([1.0, 0.0, 0.0, 1.0])).step_us == 60.0


def test_wear_makes_the_step_wait():
    problem = replace(example_problem(), wear_us=np.array([[0, 0], [0, 500.0], [0, 0], [0, 0]]))
    step = pooled_step(problem, np.array([0.0, 1.0, 1.0, 0.0]))
    assert (step.step_us, step.stage, step.tier) == (500.0, "wear", "slow")
    # The other way round takes longer by bandwidth, and nothing wears.
    other = place_pooled(problem)
    assert other is not None
    assert other.step_us == 61.0


def test_a_table_in_two_parts_is_faster_than_whole_ones():
    problem = example_problem()
    halves = place_pooled(problem, np.array([8.0, 1.0]))
    assert halves is not None
    # All of b and an eighth of a in the fast tier: 2 + 1/8 + 7/8 of 40.
    assert halves.step_us == pytest.approx(37.125)
    assert halves.shares == pytest.approx([0.125, 0.875, 1.0, 0.0])


@settings(max_examples=15)
@given(st.integers(0, 10_000))
def test_columns_that_enter_one_by_one_give_the_bound_of_all_options(seed):
    problem = random_problem(seed, 20, 12, fill=2.0)
    start = np.zeros(problem.options, bool)
    start[::12] = True
    whole, by_columns = relax(problem), relax_by_columns(problem, start, gap=1e-9)
    assert by_columns.bound_us == pytest.approx(whole.bound_us, rel=1e-6)
    assert pooled_step(problem, by_columns.shares).step_us == pytest.approx(
        whole.bound_us, rel=1e-6
    )


def test_prices_are_what_the_bound_loses_with_more_room():
    problem = random_problem(3, 20, 6)
    relaxed = relax(problem)
    more = problem.capacity_bytes * np.array([1.001, 1.0, 1.0])
    gained_us = relaxed.bound_us - relax(replace(problem, capacity_bytes=more)).bound_us
    assert relaxed.capacity_price_us[0] > 0
    assert gained_us == pytest.approx(0.001 * relaxed.capacity_price_us[0], rel=0.05)


def test_tables_that_do_not_fit_are_refused_with_the_bytes_that_are_short():
    problem = replace(example_problem(), capacity_bytes=np.array([100.0, 60.0]))
    assert shortage_bytes(problem) == pytest.approx(10.0)
    with pytest.raises(ConfigError, match="do not fit; got 10 bytes more than all tiers"):
        relax(problem)
    assert place_greedily(problem) is None
