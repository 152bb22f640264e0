"""Placement problems for tests: random ones, and the best of all choices by trying each."""

import itertools

import numpy as np

from jaxperf.embedding.placement._problem import (
    PlacementProblem,
    capacity_excess_bytes,
    pooled_step,
)


def random_problem(
    seed: int, tables: int, options: int, units: tuple[int, ...] = (1, 1, 1), fill: float = 0.7
) -> PlacementProblem:
    """Tables of very different sizes on tiers that are each ten times slower than the last.

    The last tier holds all of them; the others a part. A cache on a faster tier saves time by a
    power of its size. The last tier wears.
    """
    rng = np.random.default_rng(seed)
    tiers = len(units)
    table = np.repeat(np.arange(tables), options)
    size_bytes = rng.lognormal(0.0, 1.5, tables) * 1e6
    demand_us = rng.lognormal(0.0, 1.5, tables) * 10.0
    power = rng.uniform(0.1, 0.7, tables)
    home = rng.integers(0, tiers, len(table))
    home[::options] = tiers - 1
    cached = np.where(home > 0, rng.uniform(0.0, 0.3, len(table)), 0.0)
    at = np.arange(len(table))
    size = np.zeros((len(table), tiers))
    size[at, home] = 1.0
    size[at, np.maximum(home - 1, 0)] += cached
    hits = cached ** power[table]
    pace = 10.0 ** np.arange(tiers)
    busy = np.zeros((len(table), tiers, 2))
    busy[at, home, 0] = (1.0 - hits) * pace[home]
    busy[at, np.maximum(home - 1, 0), 0] += hits * pace[np.maximum(home - 1, 0)]
    busy[:, :, 1] = busy[:, :, 0] * rng.uniform(0.0, 1.5, tiers)
    wear = np.zeros_like(size)
    wear[:, -1] = busy[:, -1, 0] * rng.uniform(0.0, 1.5)
    part = np.append(np.full(tiers - 1, 0.3), 2.0)
    return PlacementProblem(
        tables=tuple(f"t{index}" for index in range(tables)),
        tiers=tuple("abcd"[:tiers]),
        resources=("bandwidth", "iops"),
        stages=("device", "prefetch"),
        units=np.array(units),
        capacity_bytes=part * fill * size_bytes.sum(),
        table=table,
        size_bytes=size * size_bytes[table][:, None],
        busy_us=busy * demand_us[table][:, None, None],
        wear_us=wear * demand_us[table][:, None],
        column_shards=np.where(home == 0, 4, 1),
        stage_tiers=np.array([[1.0] + [0.0] * (tiers - 1), [0.0] + [1.0] * (tiers - 1)]),
        fixed_us=np.array([5.0, 0.0]),
    )


def best_of_all(problem: PlacementProblem) -> float:
    """The fastest step of whole tables, by trying every choice; infinite where none fits."""
    groups = [np.flatnonzero(problem.table == index) for index in range(len(problem.tables))]
    best = np.inf
    for chosen in itertools.product(*groups):
        shares = np.zeros(problem.options)
        shares[list(chosen)] = 1.0
        if (capacity_excess_bytes(problem, shares) <= 0).all():
            best = min(best, pooled_step(problem, shares).step_us)
    return best


def unit_loads(problem: PlacementProblem, packing) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Bytes, times busy and wear of each unit, added up shard by shard."""
    tiers = len(problem.tiers)
    size = np.zeros((problem.devices, tiers))
    busy = np.zeros((problem.devices, tiers, len(problem.resources)))
    wear = np.zeros((problem.devices, tiers))
    for option, device, rows, columns in zip(
        packing.option, packing.device, packing.rows, packing.columns, strict=True
    ):
        for tier in range(tiers):
            unit = device * problem.units[tier] // problem.devices
            part = rows * columns
            size[unit, tier] += part * problem.size_bytes[option, tier]
            busy[unit, tier] += part * problem.busy_us[option, tier] * problem.units[tier]
            wear[unit, tier] += part * problem.wear_us[option, tier] * problem.units[tier]
    return size, busy, wear
