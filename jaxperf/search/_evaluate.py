"""What configurations take: many thousands in a second, each as `closed_form_step` has it.

What a step depends on is worked out once for all configurations that are alike in it; see
`jaxperf.config.by_parts`.
"""

from dataclasses import dataclass, replace

import jax
import numpy as np

from jaxperf.config import MEASURES, JobColumns
from jaxperf.cost import Work, select_work
from jaxperf.energy import (
    PowerModel,
    PowerTasks,
    static_power_w,
    task_energy_j,
    task_time_us,
    tasks_of_work,
)
from jaxperf.replay import double_precision
from jaxperf.search._problem import Machine, Points, Problem, points
from jaxperf.workload import (
    StepTable,
    no_overheads,
    part_sums,
    peak_memory_bytes,
    piece_times_us,
    rank_totals,
    select_rows,
    step_table,
    steps_of_parts,
)

_US, _HOUR_US = 1e-6, 3600e6
_PIECES = 1024
APART = replace(no_overheads(), overlap_share=np.float64(0.0))
"""Of pieces that add up although they run beside each other, as their energies do."""


@dataclass(frozen=True, eq=False)
class Measured:
    """What is known of some points of a space.

    Attributes:
        points: the points.
        measures: (rows,) by name, see `MEASURES`; NaN of a point that cannot be, and where what it
            needs is not known.
        over: (rows,) bool by name of a limit, `memory_bytes` always: it is not kept.
    """

    points: Points
    measures: dict[str, np.ndarray]
    over: dict[str, np.ndarray]

    @property
    def feasible(self) -> np.ndarray:
        """(rows,) whether a point can be, and keeps every limit."""
        found = self.points.valid
        for over in self.over.values():
            found = found & ~over
        return found


def evaluate(problem: Problem, index: np.ndarray) -> Measured:
    """What some points of a space take.

    Args:
        problem: of `pose`.
        index: (rows,) numbers of the points.

    Returns:
        Their measures.

    Example:
        >>> from jaxperf.config import SearchSpace, load_hardware, load_job
        >>> from jaxperf.search._problem import pose
        >>> space = SearchSpace("batches", {"micro_batch_size": (1, 2)}, gpus=8)
        >>> problem = pose(load_job("llama3-8b"), load_hardware("h100"), space)
        >>> one, two = evaluate(problem, np.arange(2)).measures["step_us"]
        >>> bool(one < two < 2 * one)
        True
    """
    found = points(problem, np.asarray(index, np.int64))
    valid = np.flatnonzero(found.valid)
    whole = {name: np.full(len(index), np.nan) for name in MEASURES}
    if len(valid):
        measures = _measures(problem, found.jobs.take(valid), found.machine[valid])
        for name, values in measures.items():
            whole[name][valid] = values
    return Measured(found, whole, over_limits(problem, found, whole))


def _measures(problem: Problem, jobs: JobColumns, machine: np.ndarray) -> dict[str, np.ndarray]:
    """The measures of jobs that can be."""
    table = step_table(jobs)
    step_us, step_j = np.full((2, jobs.rows), np.nan)
    for place in np.unique(machine):
        rows = np.flatnonzero(machine == place)
        some = table if len(rows) == jobs.rows else select_rows(table, rows)
        step_us[rows], step_j[rows] = _on_machine(some, problem.machines[place])
    measures = step_measures(problem, jobs, table.rows.ranks, step_us, step_j)
    return measures | {"memory_bytes": peak_memory_bytes(jobs)}


def step_measures(
    problem: Problem, jobs: JobColumns, gpus: np.ndarray, step_us: np.ndarray, step_j: np.ndarray
) -> dict[str, np.ndarray]:
    """The measures that follow from the step and from what all accelerators take in one.

    Args:
        problem: the search.
        jobs: (rows,) that can be.
        gpus: (rows,) accelerators of each.
        step_us, step_j: (..., rows).

    Returns:
        (..., rows) by name, all of `MEASURES` but `memory_bytes`.
    """
    tokens = jobs.array("sequence_length") * jobs.array("data_parallel")
    tokens = tokens * jobs.array("micro_batch_size") * jobs.array("micro_batches")
    price = problem.space.gpu_usd_per_hour
    step_usd = np.nan if price is None else price * gpus * step_us / _HOUR_US
    return {
        "step_us": step_us,
        "tokens_per_s_per_gpu": tokens / (step_us * _US) / gpus,
        "energy_j_per_token": step_j / tokens,
        "power_w_per_gpu": step_j / (step_us * _US) / gpus,
        "usd_per_million_tokens": step_usd / tokens * 1e6 + np.zeros(jobs.rows),
    }


def _on_machine(table: StepTable, machine: Machine) -> tuple[np.ndarray, np.ndarray]:
    """(rows,) the steps, and what all accelerators take in one."""
    time_us, energy_j, static_w = timed_pieces(table.work, machine)
    with double_precision():
        parts = part_sums(table, time_us, machine.parameters)
        steps = steps_of_parts(table, parts, machine.model, machine.parameters)
    step_us = np.asarray(steps.step_us)
    return step_us, step_energy_j(table, energy_j, static_w, step_us)


def timed_pieces(work: Work, machine: Machine) -> tuple[np.ndarray, np.ndarray, float]:
    """What pieces of work take on a machine, at its clock.

    Args:
        work: of each piece.
        machine: the machine.

    Returns:
        (pieces,) microseconds, (pieces,) joules on top of static power, and that in watts; NaN
        where what it draws is not known.
    """
    time_us, energy_j = np.full((2, len(work.kind)), np.nan)
    with double_precision():
        # Compiled for one number of pieces: what a piece takes does not depend, not even in its
        # last digit, on those it is asked for with.
        for kind in np.unique(work.kind):
            of_kind = np.flatnonzero(work.kind == kind)
            for at in range(0, len(of_kind), _PIECES):
                rows = of_kind[at : at + _PIECES]
                some = select_work(work, np.resize(rows, _PIECES))
                time_us[rows], energy_j[rows] = (
                    each[: len(rows)] for each in _timed_block(some, machine)
                )
        if machine.power is None:
            return time_us, energy_j, float("nan")
        return time_us, energy_j, float(static_power_w(machine.power, _clock_hz(machine)))


def _timed_block(work: Work, machine: Machine) -> tuple[np.ndarray, np.ndarray]:
    time_us = piece_times_us(machine.model, work)
    if machine.power is None:
        return time_us, np.full(len(time_us), np.nan)
    tasks = tasks_of_work(work, time_us, machine.hardware)
    time_us, energy_j = _drawn(machine.power, tasks, _clock_hz(machine))
    return np.asarray(time_us), np.asarray(energy_j)


@jax.jit
def _drawn(power: PowerModel, tasks: PowerTasks, clock_hz: float) -> tuple[jax.Array, jax.Array]:
    return task_time_us(power, tasks, clock_hz), task_energy_j(power, tasks, clock_hz)


def _clock_hz(machine: Machine) -> float:
    assert machine.power is not None
    return machine.clock_hz or np.asarray(machine.power.nominal_clock_hz).item()


def step_energy_j(
    table: StepTable, energy_j: np.ndarray, static_w: float, step_us: np.ndarray
) -> np.ndarray:
    """What all accelerators take in a step.

    Args:
        table: of the jobs.
        energy_j: (pieces,) what each takes on top of static power.
        static_w: what an accelerator draws while nothing runs.
        step_us: (rows,).

    Returns:
        (rows,) joules.
    """
    # Nothing that runs beside something else takes less energy.
    energies = part_sums(table, energy_j, APART)
    return rank_totals(table, energies) + static_w * table.rows.ranks * step_us * _US


def limits_of(problem: Problem, machine: np.ndarray) -> dict[str, float | np.ndarray]:
    """The limits of points, by name.

    Args:
        problem: the search.
        machine: (rows,) that of each point, index into those of the search.

    Returns:
        Each () or (rows,); `memory_bytes` is what the machine has where the space says nothing.
    """
    limits: dict[str, float | np.ndarray] = dict(problem.space.limits)
    if "memory_bytes" not in limits:
        memory = np.array([each.hardware.memory_bytes for each in problem.machines])
        limits["memory_bytes"] = memory[machine]
    return limits


def over_limits(
    problem: Problem, found: Points, measures: dict[str, np.ndarray]
) -> dict[str, np.ndarray]:
    """(rows,) by limit, whether a point that can be does not keep it."""
    over = {}
    for name, limit in limits_of(problem, found.machine).items():
        values = measures[name]
        beyond = values < limit if name == "tokens_per_s_per_gpu" else values > limit
        over[name] = beyond & found.valid
    return over
