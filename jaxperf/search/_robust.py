"""How sure the best points of a search are, where the numbers of the model are not.

All points are evaluated with the same draws: what makes both of two points slower says nothing of
which of them is the faster one.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

import jax
import numpy as np

from jaxperf.config import MEASURES
from jaxperf.cost import CostModel, Fit, cost_us, draw_models, model_leaves
from jaxperf.energy import static_power_w, task_energy_j, task_time_us, tasks_of_work
from jaxperf.errors import ConfigError
from jaxperf.replay import double_precision
from jaxperf.search._evaluate import step_energy_j, step_measures
from jaxperf.search._problem import Machine, Problem, points as points_of
from jaxperf.search._types import Point, costs
from jaxperf.workload import (
    StepFit,
    StepParameters,
    StepTable,
    changed_numbers,
    select_rows,
    step_factors_of,
    step_table,
    steps_of_pieces,
)

RESIDUAL = "residual"
"""Key of what a step takes beside the model: drawn for each point by itself."""
_COUNTS = ("gpus_per_node", "streaming_multiprocessors", "node_sums_in_switch")


@dataclass(frozen=True, slots=True)
class RobustPoint:
    """A point under uncertainty.

    Attributes:
        point: as the search found it.
        mean: of the objective.
        at_quantile: what the objective is not worse than in that share of the draws.
    """

    point: Point
    mean: float
    at_quantile: float


@dataclass(frozen=True, slots=True)
class RobustChoice:
    """The points of a search under uncertainty.

    Attributes:
        objective: the first one of the space.
        samples: how many sets of numbers were drawn.
        quantile: which one, such as 0.95.
        points: in the order they were given.
        first_beats_second: share of the draws in which the first is better than the second, draws
            in which they are equal counted by half; `None` of one point alone.
        standard_error: of that share, by the number of draws.
    """

    objective: str
    samples: int
    quantile: float
    points: tuple[RobustPoint, ...]
    first_beats_second: float | None
    standard_error: float | None

    @property
    def choice(self) -> RobustPoint:
        """The point that is the best at the quantile."""
        sign = 1.0 if MEASURES[self.objective] == "least" else -1.0
        return min(self.points, key=lambda each: sign * each.at_quantile)


def robust_choice(
    problem: Problem,
    points: Sequence[Point],
    *,
    fit: Fit | StepFit | None = None,
    spread: Mapping[str, float] | None = None,
    samples: int = 256,
    quantile: float = 0.95,
    seed: int = 0,
) -> RobustChoice:
    """The objective of some points with the numbers of the model drawn from what is known of them.

    Logarithms of numbers are normal about those of the problem. Numbers whose covariance the fit
    knows are drawn from it, others from `spread`, each number of a group by itself. Of shares
    between 0 and 1 it is the odds. What a fit to measured steps leaves of them is drawn for each
    point by itself, which is the cautious end: errors of similar points are alike.

    Args:
        problem: what was searched.
        points: of it, the best first, such as `SearchResult.best`.
        fit: what the problem was posed with.
        spread: standard deviation of the logarithm, about the relative one, by path or group of
            numbers: `device.memory_bytes_per_s`, `matmul`, `step.launch_us`, `step`; the longer
            key counts. Groups leave counts of the device alone. `residual` is that of a step about
            the model, by default that of the fit, or of the one that comes with the package.
        samples: how many draws.
        quantile: which one is asked for beside the mean.
        seed: of the draws.

    Returns:
        The points, and how sure the order of the first two is.

    Raises:
        ConfigError: there is no point, a spread is no spread or of nothing that there is, or
            nothing is known of how sure the numbers are.

    Example:
        >>> from jaxperf.config import SearchSpace, load_hardware, load_job
        >>> from jaxperf.search._evaluate import evaluate
        >>> from jaxperf.search._problem import pose
        >>> from jaxperf.search._types import point
        >>> space = SearchSpace("two", {"recompute": ("none", "full")}, gpus=8)
        >>> problem = pose(load_job("llama3-8b"), load_hardware("h100"), space)
        >>> measured = evaluate(problem, np.arange(2))
        >>> found = robust_choice(problem, [point(problem, measured, row) for row in range(2)])
        >>> found.first_beats_second > 0.9, found.points[0].at_quantile > found.points[0].mean
        (True, True)
    """
    _check(problem, points, spread, samples, quantile)
    measures = _drawn_measures(problem, points, fit, spread or {}, samples, seed)
    cost = costs(problem, measures)[..., 0]
    objective = problem.space.objectives[0]
    sign = 1.0 if MEASURES[objective] == "least" else -1.0
    mean, at_quantile = sign * cost.mean(axis=0), sign * np.quantile(cost, quantile, axis=0)
    share, error = _sureness(cost)
    found = zip(points, mean, at_quantile, strict=True)
    return RobustChoice(
        objective,
        samples,
        quantile,
        tuple(RobustPoint(each, float(m), float(q)) for each, m, q in found),
        share,
        error,
    )


def _sureness(cost: np.ndarray) -> tuple[float | None, float | None]:
    """How often the first is better than the second, and the standard error of that share."""
    if cost.shape[1] < 2:
        return None, None
    better = (np.sign(cost[:, 1] - cost[:, 0]) + 1) / 2
    return float(better.mean()), float(better.std(ddof=1) / np.sqrt(len(better)))


def _check(problem, points, spread, samples: int, quantile: float) -> None:
    if not points:
        raise ConfigError("no points", where="robust choice", expected="one or more")
    if samples < 2:
        raise ConfigError("too few", where="samples", got=str(samples), expected="2 or more")
    if not 0 < quantile < 1:
        raise ConfigError("no quantile", where="quantile", got=f"{quantile:g}", expected="0 to 1")
    paths = list(_paths(problem.machines[0].model))
    known = {*paths, *(path.partition(".")[0] for path in paths), RESIDUAL}
    for key, value in (spread or {}).items():
        if key not in known:
            groups = sorted(name for name in known if "." not in name)
            expected = f"one of {', '.join(groups)}, or a number of them, such as {paths[0]}"
            raise ConfigError("no such number", where=f"spread {key}", expected=expected)
        if not (np.isfinite(value) and value >= 0):
            raise ConfigError(
                "no spread",
                where=f"spread {key}",
                got=f"{value:g}",
                expected="0 or more, such as 0.05",
            )


# Draws
# ---------------------------------------------------------------------------------------


def _drawn_measures(
    problem: Problem,
    points: Sequence[Point],
    fit: Fit | StepFit | None,
    spread: Mapping[str, float],
    samples: int,
    seed: int,
) -> dict[str, np.ndarray]:
    """(samples, points) by name."""
    found = points_of(problem, np.array([each.index for each in points], np.int64))
    residual = np.array([_residual(machine, fit, spread) for machine in problem.machines])
    logs = _drawn_logs(problem, fit, spread, samples, seed)
    if not (logs or spread or residual.any() or (isinstance(fit, Fit) and fit.leaves)):
        raise ConfigError(
            "nothing is known of how sure the numbers of the model are",
            where="robust choice",
            expected="a fit with a covariance, or a spread, such as residual = 0.05",
        )
    own = np.random.default_rng([seed, 2]).standard_normal((samples, len(points)))
    own_factor = np.exp(residual[found.machine] * own)
    table = step_table(found.jobs)
    step_us, step_j = np.empty((2, samples, len(points)))
    for place in np.unique(found.machine):
        machine, rows = problem.machines[place], np.flatnonzero(found.machine == place)
        models = _drawn_models(machine, fit, samples, seed)
        step_us[:, rows], step_j[:, rows] = _on_machine(
            select_rows(table, rows), machine, models, logs, own_factor[:, rows]
        )
    measures = step_measures(problem, found.jobs, table.rows.ranks, step_us, step_j)
    memory = np.array([each.measures["memory_bytes"] for each in points])
    return measures | {"memory_bytes": np.broadcast_to(memory, step_us.shape)}


def _paths(model: CostModel) -> Iterator[str]:
    yield from model_leaves(model)
    yield from (f"step.{field.name}" for field in fields(StepParameters))


def _residual(machine: Machine, fit: Fit | StepFit | None, spread: Mapping[str, float]) -> float:
    if RESIDUAL in spread:
        return spread[RESIDUAL]
    if isinstance(fit, StepFit):
        return fit.spread
    factors = step_factors_of(machine.hardware) if fit is None else None
    return 0.0 if factors is None else factors.spread


def _drawn_logs(
    problem: Problem,
    fit: Fit | StepFit | None,
    spread: Mapping[str, float],
    samples: int,
    seed: int,
) -> dict[str, np.ndarray]:
    """(samples,) by path, what is added to the logarithm of a number."""
    random = np.random.default_rng([seed, 1])
    paths = list(_paths(problem.machines[0].model))
    # One of each number, so that those of one do not depend on which others are uncertain.
    normal = dict(zip(paths, random.standard_normal((len(paths), samples)), strict=True))
    fitted: dict[str, np.ndarray] = {}
    if isinstance(fit, StepFit) and np.isfinite(fit.covariance).all():
        zeros = np.zeros(len(fit.factors))
        drawn = random.multivariate_normal(zeros, fit.covariance, samples)
        fitted = dict(zip(fit.factors, drawn.T, strict=True))
    known = set(fitted)
    if isinstance(fit, Fit):
        known |= {leaf.partition("[")[0] for leaf in fit.leaves}
    deviations = {path: _deviation(path, spread) for path in paths if path not in known}
    return fitted | {path: d * normal[path] for path, d in deviations.items() if d}


def _deviation(path: str, spread: Mapping[str, float]) -> float:
    group, _, name = path.partition(".")
    return spread.get(path, 0.0 if name in _COUNTS else spread.get(group, 0.0))


def _drawn_models(
    machine: Machine, fit: Fit | StepFit | None, samples: int, seed: int
) -> CostModel:
    """A model with a leading axis of draws."""
    if isinstance(fit, Fit):
        return draw_models(fit, machine.hardware, samples, seed)
    return jax.tree.map(
        lambda leaf: np.broadcast_to(leaf, (samples, *np.shape(leaf))), machine.model
    )


# Steps
# ---------------------------------------------------------------------------------------


def _on_machine(
    table: StepTable,
    machine: Machine,
    models: CostModel,
    logs: Mapping[str, np.ndarray],
    own_factor: np.ndarray,
) -> tuple[np.ndarray, np.ndarray]:
    """(samples, rows) the steps, and what all accelerators take in one."""
    with double_precision():
        draw = jax.jit(jax.vmap(lambda model, logs: _drawn(table, machine, model, logs)))
        step_us, energy_j = jax.tree.map(np.asarray, draw(models, dict(logs)))
        step_us = step_us * own_factor
        power = machine.power
        if power is None:
            return step_us, np.full(step_us.shape, np.nan)
        static_w = float(static_power_w(power, machine.clock_hz or power.nominal_clock_hz))
    pairs = zip(energy_j, step_us, strict=True)
    return step_us, np.array([step_energy_j(table, j, static_w, us) for j, us in pairs])


def _drawn(
    table: StepTable, machine: Machine, model: CostModel, logs: Mapping[str, Any]
) -> tuple[jax.Array, jax.Array | None]:
    """(rows,) the steps of one draw, and (pieces,) what each piece takes."""
    model, parameters = changed_numbers(model, machine.parameters, logs)
    time_us, energy_j = cost_us(model, table.work), None
    power = machine.power
    if power is not None:
        clock_hz = machine.clock_hz or power.nominal_clock_hz
        tasks = tasks_of_work(table.work, np.zeros(len(table.work.kind)), machine.hardware)
        tasks = replace(tasks, duration_us=time_us)
        energy_j = task_energy_j(power, tasks, clock_hz)
        time_us = task_time_us(power, tasks, clock_hz)
    return steps_of_pieces(table, time_us, model, parameters).step_us, energy_j
