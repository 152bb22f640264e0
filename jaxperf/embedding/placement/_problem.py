"""Tables, what each of them may do, and what that takes of memories: arrays, and nothing else.

An option of a table is a home tier, cached rows on the tiers above it and a policy. Its loads are
those of the whole table; a shard of a part `s` of the rows takes the part `s` of every load, so
that shares of options are what the linear program of the bound mixes, and what splitting does.

    T_j = max_r sum_o x_o busy_us[o, j, r]                 how long tier j is busy
    t   = max(max_s(fixed_s + sum_j stage_sj T_j),         stages that run side by side
              max_j sum_o x_o wear_us[o, j])               no faster than endurance allows
"""

from dataclasses import dataclass, replace

import numpy as np


@dataclass(frozen=True, eq=False)
class PlacementProblem:
    """Options of tables over tiers, pooled over the units of each tier.

    A tier has equal units (an accelerator's memory, a server's DRAM, a server's drives). There
    are as many devices as the tier with the most units has; device `g` of `D` uses unit
    `g * units[j] // D` of tier `j`.

    Attributes:
        tables: names of the tables.
        tiers: names of the tiers, the fastest first.
        resources: what keeps a tier busy, such as bandwidth and IOPS.
        stages: names of the stages of a step.
        units: (tiers,) of each tier; each divides the greatest.
        capacity_bytes: (tiers,) of all units together.
        table: (options,) the table that the option is of; ascending.
        size_bytes: (options, tiers) that the whole table takes.
        busy_us: (options, tiers, resources) of a step, if all units share the work evenly.
        wear_us: (options, tiers) least time of a step at which its writes are within the rated
            endurance of all units together; 0 where nothing wears.
        column_shards: (options,) most column-wise shards that still move whole blocks, and so
            share all loads; fewer divide it, so that shards are alike; 1 where columns are not to
            be split.
        stage_tiers: (stages, tiers) 1.0 where the time of the tier is part of the stage.
        fixed_us: (stages,) time of the stage besides.
    """

    tables: tuple[str, ...]
    tiers: tuple[str, ...]
    resources: tuple[str, ...]
    stages: tuple[str, ...]
    units: np.ndarray
    capacity_bytes: np.ndarray
    table: np.ndarray
    size_bytes: np.ndarray
    busy_us: np.ndarray
    wear_us: np.ndarray
    column_shards: np.ndarray
    stage_tiers: np.ndarray
    fixed_us: np.ndarray

    @property
    def options(self) -> int:
        """Options of all tables together."""
        return len(self.table)

    @property
    def devices(self) -> int:
        """Places that shards are packed on."""
        return int(self.units.max())

    @property
    def unit_of_device(self) -> np.ndarray:
        """(devices, tiers) the unit that each device uses."""
        return np.arange(self.devices)[:, None] * self.units // self.devices


def part_of(problem: PlacementProblem, kept: np.ndarray) -> PlacementProblem:
    """The problem with some of its options.

    Args:
        problem: all of them.
        kept: (options,) which to keep; at least one of each table.

    Returns:
        The same tables, tiers and stages.
    """
    of_options = ("table", "size_bytes", "busy_us", "wear_us", "column_shards")
    return replace(problem, **{name: getattr(problem, name)[kept] for name in of_options})


@dataclass(frozen=True, eq=False)
class PooledPlacement:
    """How much of each table takes which option, all units of a tier as one.

    Attributes:
        shares: (options,) in 0..1; those of a table sum to 1.
        step_us: time of a step if units share the work evenly.
        bound_us: no placement is faster; NaN where none was computed.
    """

    shares: np.ndarray
    step_us: float
    bound_us: float = float("nan")


@dataclass(frozen=True)
class StepTime:
    """The time of a step and the constraint that sets it.

    Attributes:
        step_us: the time.
        stage: the slowest stage, or `wear`.
        tier: of that stage the tier that is busy longest, or that wears; None where none is.
        resource: what keeps that tier busy; None with `wear`, or where no tier is busy.
    """

    step_us: float
    stage: str
    tier: str | None
    resource: str | None


def stage_times_us(problem: PlacementProblem, busy_us: np.ndarray) -> np.ndarray:
    """Time of each stage.

    Args:
        problem: gives the stages.
        busy_us: (..., tiers, resources) how long each resource of a tier is busy.

    Returns:
        (..., stages).
    """
    return problem.fixed_us + busy_us.max(axis=-1) @ problem.stage_tiers.T


def pooled_step(problem: PlacementProblem, shares: np.ndarray) -> StepTime:
    """The step of shares of options, if units share the work evenly.

    Args:
        problem: the options.
        shares: (options,) of the tables.

    Returns:
        The time, and what sets it.

    Example:
        >>> pooled_step(example_problem(), np.array([0.0, 1.0, 1.0, 0.0])).step_us
        42.0
    """
    busy_us = np.tensordot(shares, problem.busy_us, 1)
    return slowest(problem, busy_us, shares @ problem.wear_us)


def slowest(problem: PlacementProblem, busy_us: np.ndarray, wear_us: np.ndarray) -> StepTime:
    """The step of given loads.

    Args:
        problem: gives names and stages.
        busy_us: (tiers, resources).
        wear_us: (tiers,).

    Returns:
        The time, and what sets it.
    """
    stages_us = stage_times_us(problem, busy_us)
    stage = int(stages_us.argmax())
    if wear_us.max() > stages_us[stage]:
        return StepTime(float(wear_us.max()), "wear", problem.tiers[int(wear_us.argmax())], None)
    of_stage_us = busy_us.max(axis=1) * problem.stage_tiers[stage]
    tier = int(of_stage_us.argmax())
    if of_stage_us[tier] == 0.0:
        return StepTime(float(stages_us[stage]), problem.stages[stage], None, None)
    resource = problem.resources[int(busy_us[tier].argmax())]
    return StepTime(float(stages_us[stage]), problem.stages[stage], problem.tiers[tier], resource)


def capacity_excess_bytes(problem: PlacementProblem, shares: np.ndarray) -> np.ndarray:
    """(tiers,) bytes that shares of options take beyond the capacity; negative where some is left.

    Args:
        problem: the options.
        shares: (options,) of the tables.
    """
    return shares @ problem.size_bytes - problem.capacity_bytes


def slow_cost(problem: PlacementProblem) -> np.ndarray:
    """(options,) what each takes of slower memories: time, and then, far less, room.

    Args:
        problem: the options.

    Returns:
        Microseconds that tiers after the first are busy, but for a millionth of it; the least of
        it is the choice among placements of one step.
    """
    busy_us = problem.busy_us[:, 1:].max(axis=2).sum(axis=1)
    room = (problem.size_bytes / problem.capacity_bytes)[:, 1:].sum(axis=1)
    return busy_us + 1e-6 * busy_us.max() * room


def even_loads(problem: PlacementProblem, shares: np.ndarray) -> np.ndarray:
    """What one unit of each tier may take for the step to be that of even sharing.

    Args:
        problem: the options.
        shares: (options,) of the tables.

    Returns:
        (tiers, 2 + resources): bytes, times busy, and time by endurance.
    """
    step_us = pooled_step(problem, shares).step_us
    tier_us = np.tensordot(shares, problem.busy_us, 1).max(axis=1)
    left_us = step_us - problem.fixed_us - problem.stage_tiers @ tier_us
    in_stage = np.where(problem.stage_tiers > 0, left_us[:, None], np.inf).min(axis=0)
    loads = np.empty((len(problem.tiers), len(problem.resources) + 2))
    loads[:, 0] = problem.capacity_bytes / problem.units
    loads[:, 1:-1] = np.clip(tier_us + in_stage, 1e-6 * step_us, step_us)[:, None]
    loads[:, -1] = step_us
    return loads


def example_problem() -> PlacementProblem:
    """Two tables that are each in a fast memory or in a slow one; the fast one has room for one.

    Example:
        >>> example_problem().options
        4
    """
    busy_us = np.zeros((4, 2, 1))
    busy_us[:, :, 0] = [[1.0, 0.0], [0.0, 40.0], [2.0, 0.0], [0.0, 60.0]]
    return PlacementProblem(
        tables=("a", "b"),
        tiers=("fast", "slow"),
        resources=("bandwidth",),
        stages=("step",),
        units=np.array([1, 1]),
        capacity_bytes=np.array([100.0, 1000.0]),
        table=np.array([0, 0, 1, 1]),
        size_bytes=np.array([[80.0, 0.0], [0.0, 80.0], [90.0, 0.0], [0.0, 90.0]]),
        busy_us=busy_us,
        wear_us=np.zeros((4, 2)),
        column_shards=np.ones(4, np.int64),
        stage_tiers=np.ones((1, 2)),
        fixed_us=np.zeros(1),
    )
