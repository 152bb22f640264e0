"""Shards on devices: nothing is lost, nothing overflows, and the step is that of the slowest."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from jaxperf.embedding.placement._assign import assign
from jaxperf.embedding.placement._milp import prefer_fast, relax
from jaxperf.embedding.placement._packing import pack
from jaxperf.embedding.placement._place import place
from jaxperf.embedding.placement._problem import (
    example_problem,
    pooled_step,
    slow_cost,
    stage_times_us,
)
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


def test_filled_devices_take_one_shard_more_each_at_most():
    """Of four tables of 7, 3, 1 and 1 on four devices each is busy for 3 (McNaughton's rule)."""
    busy_us = np.array([7.0, 3.0, 1.0, 1.0])[:, None, None] / 4
    problem = replace(
        example_problem(),
        tables=tuple("abcd"),
        tiers=("fast",),
        units=np.array([4]),
        capacity_bytes=np.array([400.0]),
        table=np.arange(4),
        size_bytes=np.full((4, 1), 10.0),
        busy_us=busy_us,
        wear_us=np.zeros((4, 1)),
        column_shards=np.ones(4, np.int64),
        stage_tiers=np.ones((1, 1)),
    )
    packing = pack(problem, np.ones(4))
    assert packing is not None
    assert packing.step.step_us == pytest.approx(3.0, rel=1e-6)
    assert len(packing.option) == 6
    check(problem, packing)


@settings(max_examples=4)
@given(st.integers(0, 10_000))
def test_what_does_not_slow_the_step_lies_in_the_fastest_memory_there_is_room_for(seed):
    problem = random_problem(seed, 30, 5, units=MANY)
    # The device's own time, and not that of memories, bounds the step.
    long_us = 10 * problem.busy_us.max(axis=2).sum()
    stage_tiers = np.array([[0.0, 0.0, 0.0], [0.0, 1.0, 1.0]])
    bound = replace(problem, fixed_us=np.array([long_us, 0.0]), stage_tiers=stage_tiers)
    placement = place(bound, time_limit_s=2)
    check(bound, placement.packing)
    assert placement.step_us == pytest.approx(placement.bound_us, rel=1e-9)
    # No shares that fit take less of slower memories; packing them may leave some room.
    least = prefer_fast(bound, placement.step_us)
    assert least is not None
    cost = slow_cost(bound)
    assert cost @ placement.packing.shares(bound.options) <= 1.1 * (cost @ least)


def test_the_first_tier_is_split_by_columns_where_blocks_stay_whole():
    even = replace(
        example_problem(),
        units=np.array([4, 1]),
        capacity_bytes=np.array([800.0, 1000.0]),
        fixed_us=np.zeros(1),
    )
    shares = np.array([1.0, 0.0, 1.0, 0.0])
    by_rows = pack(even, shares, largest=0.25)
    assert by_rows is not None
    assert (by_rows.columns == 1.0).all()
    assert by_rows.step.step_us == pytest.approx(3.0)
    by_columns = pack(replace(even, column_shards=np.full(4, 8)), shares, largest=0.25)
    assert by_columns is not None
    assert (by_columns.rows == 1.0).all()
    assert by_columns.step.step_us == pytest.approx(3.0)


def test_column_shards_are_alike_and_divide_the_row():
    """A row of 8 parts over 3 devices: 4 shards of 2 parts, and not 3 of 2 and two thirds."""
    problem = replace(
        example_problem(),
        units=np.array([4, 1]),
        capacity_bytes=np.array([800.0, 1000.0]),
        column_shards=np.full(4, 8),
    )
    packing = pack(problem, np.array([1.0, 0.0, 1.0, 0.0]), largest=0.4)
    assert packing is not None
    parts = packing.columns * 8
    assert parts == pytest.approx(np.round(parts))
    assert (8 % np.round(parts) == 0).all()


@settings(max_examples=6)
@given(st.integers(0, 10_000))
def test_linear_programs_share_evenly_in_few_shards(seed):
    problem = random_problem(seed, 60, 5, units=MANY)
    shares = relax(problem).shares
    packing = assign(problem, shares)
    assert packing is not None
    check(problem, packing)
    assert packing.step.step_us <= pooled_step(problem, shares).step_us * (1 + 1e-6)
    # An option of each table, one more for each limit of the relaxation, and of each unit.
    limits = len(problem.tiers) * (len(problem.resources) + 2)
    assert len(packing.option) <= 60 + limits + limits * problem.units.sum()


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
