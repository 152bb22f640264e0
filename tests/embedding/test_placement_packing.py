"""Shards on devices: nothing is lost, nothing overflows, and the step is that of the slowest."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from jaxperf.embedding.placement._packing import pack
from jaxperf.embedding.placement._place import place
from jaxperf.embedding.placement._problem import example_problem, stage_times_us
from jaxperf.errors import ConfigError
from tests.embedding.placement_cases import random_problem, unit_loads

MANY = (16, 4, 4)


def check(problem, packing):
    """What holds for every packing, counted shard by shard."""
    size, busy, wear = unit_loads(problem, packing)
    assert (size <= problem.capacity_bytes / problem.units * (1 + 1e-6)).all()
    share = np.bincount(problem.table[packing.option], packing.rows * packing.columns)
    assert share == pytest.approx(np.ones(len(problem.tables)))
    steps_us = []
    for device in range(problem.devices):
        at = device * problem.units // problem.devices, np.arange(len(problem.tiers))
        steps_us.append(max(stage_times_us(problem, busy[at]).max(), wear[at].max()))
    assert packing.step.step_us == pytest.approx(max(steps_us), rel=1e-9)
    # Each unit by itself is written no faster than it is rated for.
    assert (wear <= packing.step.step_us * (1 + 1e-9)).all()


@settings(max_examples=6)
@given(st.integers(0, 10_000))
def test_a_placement_fits_each_device_and_is_never_worse_than_greedy(seed):
    problem = random_problem(seed, 30, 5, units=MANY, fill=0.9)
    try:
        placement = place(problem, time_limit_s=1)
    except ConfigError:
        return
    check(problem, placement.packing)
    assert placement.step_us >= placement.bound_us * (1 - 1e-9)
    if np.isfinite(placement.greedy_us):
        assert placement.step_us <= placement.greedy_us


def test_a_giant_table_is_split_over_devices():
    problem = random_problem(1, 30, 5, units=MANY)
    giant = problem.table == 7
    busy = np.where(giant[:, None, None], 50.0, 1.0) * problem.busy_us
    problem = replace(problem, busy_us=busy)
    placement = place(problem, time_limit_s=10)
    check(problem, placement.packing)
    devices = placement.packing.device[giant[placement.packing.option]]
    assert len(set(devices.tolist())) > 1
    assert placement.gap < 0.01


def test_the_first_tier_is_split_by_columns_where_blocks_stay_whole():
    even = replace(
        example_problem(),
        units=np.array([4, 1]),
        capacity_bytes=np.array([800.0, 1000.0]),
        fixed_us=np.zeros(1),
    )
    shares = np.array([1.0, 0.0, 1.0, 0.0])
    by_rows = pack(even, shares)
    assert by_rows is not None
    assert (by_rows.columns == 1.0).all()
    assert by_rows.step.step_us == pytest.approx(3.0)
    by_columns = pack(replace(even, column_shards=np.full(4, 8)), shares)
    assert by_columns is not None
    assert (by_columns.rows == 1.0).all()
    assert by_columns.step.step_us == pytest.approx(3.0)


def test_devices_that_are_nearly_full_hold_all_of_the_tables():
    problem = replace(
        example_problem(), units=np.array([2, 2]), capacity_bytes=np.array([1.0, 169.9])
    )
    check(problem, place(problem).packing)


@pytest.mark.slow
def test_856_tables_on_four_tiers_and_64_devices_are_within_a_hundredth_of_the_bound():
    problem = random_problem(1, 856, 22, units=(64, 8, 8, 8), fill=0.6)
    placement = place(problem, time_limit_s=60)
    check(problem, placement.packing)
    assert placement.gap <= 0.01
    assert placement.step_us <= placement.greedy_us
