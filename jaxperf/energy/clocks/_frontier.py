"""The time-energy frontier of a run: slack is used to slow down what does not matter.

Which clocks take least energy while the step stays within a target is what Perseus asks of a
pipeline (Chung et al., "Reducing energy bloat in large model training", SOSP 2024). Here it is
asked of the whole dependency graph: the replayed step is the longest of many paths, each linear in
`f0 / f` of the groups, and energy is convex in it. So the paths that bind are found one by one, as
cutting planes (Kelley, "The cutting-plane method for solving convex programs", 1960): solve for
what is known of the step, replay, and add the critical path where the step is longer than that.
"""

from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from jaxperf.compiled import Program
from jaxperf.energy.clocks._least_energy import Paths, least_energy
from jaxperf.energy.clocks._scenarios import (
    ClockProgram,
    clock_answers,
    clock_step_us,
    prepare_clocks,
)
from jaxperf.energy.power._model import PowerModel
from jaxperf.energy.power._tasks import PowerTasks
from jaxperf.errors import ConfigError
from jaxperf.graph import ExecutionGraph
from jaxperf.replay import double_precision

POINTS = 16
"""Of a frontier, where nothing else is asked."""

# The first target is longer than the shortest step by this, so that there is something to solve.
_ABOVE_SHORTEST = 1e-4
# A step counts as within its target before it is brought there, clocks as settled where shares of
# static power no longer move them, and how often paths are added.
_CLOSE = 1e-5
_SETTLED = 1e-3
_ROUNDS = 60
# Paths are kept in arrays of such lengths, so that most rounds share a compilation.
_PATHS = 128


@dataclass(frozen=True, eq=False)
class Frontier:
    """Clocks of least energy for each target, each replayed.

    Attributes:
        target_us: (points,) rising.
        step_us: (points,) the steady step, replayed: at most the target.
        energy_j: (points,) of a steady step on all accelerators; falls.
        average_power_w: (points,) of all accelerators.
        rank_power_w: (ranks, points) of one accelerator of each rank, in the mean of a step.
        clock_hz: (groups, points).
        is_settled: whether the search came to rest; else energies may be above the least.
        excess: by how much, as a part, a step was above its target before it was brought there:
            of paths that were still missing.
    """

    target_us: np.ndarray
    step_us: np.ndarray
    energy_j: np.ndarray
    average_power_w: np.ndarray
    rank_power_w: np.ndarray
    clock_hz: np.ndarray
    is_settled: bool
    excess: float


def clock_frontier(
    graph: ExecutionGraph,
    program: Program,
    tasks: PowerTasks,
    model: PowerModel,
    group_of_task: np.ndarray,
    groups: int,
    *,
    lowest_hz: float,
    highest_hz: float,
    points: int = POINTS,
    shortest_us: float = 0.0,
    target_us: np.ndarray | None = None,
) -> Frontier:
    """The least energy of a step for targets from the shortest step upward.

    Args:
        graph: the execution graph.
        program: of `compile_program`.
        tasks: n tasks of the graph, with the times that they have at the nominal clock.
        model: the accelerators.
        group_of_task: (n,) int, the group of each task; -1 where its clock stays the nominal one.
        groups: the number of groups: each has one clock.
        lowest_hz, highest_hz: what can be set.
        points: how many targets, up to the step at the one clock for all that takes least energy.
        shortest_us: of the targets, such as the step that a power limit leaves; by default what the
            highest clock reaches.
        target_us: the targets instead, rising.

    Returns:
        The frontier; a target is left out where a shorter step takes as little energy.

    Raises:
        ConfigError: the clocks are out of order, or a target is shorter than the shortest step.

    Example:
        >>> bounds = {"lowest_hz": 345e6, "highest_hz": 1980e6}
        >>> frontier = clock_frontier(
        ...     graph, program, tasks, model, tasks.rank, 1, points=3, **bounds
        ... )
        >>> bool(np.all(np.diff(frontier.energy_j) < 0))
        True
    """
    if not 0 < lowest_hz < highest_hz:
        raise ConfigError(
            "clocks out of order",
            where="lowest_hz",
            got=f"{lowest_hz:g} to {highest_hz:g}",
            expected="0 < lowest_hz < highest_hz",
        )
    clocks = prepare_clocks(graph, program, tasks, group_of_task, groups)
    nominal = float(np.asarray(model.nominal_clock_hz))
    low, high = nominal / highest_hz, nominal / lowest_hz
    count = points if target_us is None else len(target_us)
    with double_precision():
        search = _Search(clocks, model, low, high, max(count, 2))
        targets = (
            search.targets_us(points, shortest_us) if target_us is None else np.asarray(target_us)
        )
        if targets[0] < search.shortest_us:
            raise ConfigError(
                "no clocks are as fast",
                where="target_us",
                got=f"{targets[0]:g}",
                expected=f"{search.shortest_us:g} or more",
            )
        slower, is_settled, excess = search.solve(np.maximum(targets, search.first_us))
        answers = clock_answers(clocks, model, nominal / slower)
    energy_j = np.asarray(answers.energy_j)
    least_before_j = np.minimum.accumulate(np.append(np.inf, energy_j[:-1]))
    kept = np.flatnonzero(energy_j < least_before_j)
    return Frontier(
        target_us=np.maximum(targets, search.first_us)[kept],
        step_us=np.asarray(answers.step_us)[kept],
        energy_j=energy_j[kept],
        average_power_w=np.asarray(answers.average_power_w)[kept],
        rank_power_w=np.asarray(answers.rank_power_w)[:, kept],
        clock_hz=(nominal / slower)[:, kept],
        is_settled=is_settled,
        excess=excess,
    )


class _Search:
    """Targets, and the paths that have been found to bind."""

    def __init__(
        self, clocks: ClockProgram, model: PowerModel, low: float, high: float, width: int
    ):
        self.clocks, self.model, self.low, self.high = clocks, model, low, high
        self.groups = clocks.groups
        # One clock for all, from the highest to the lowest, makes the first paths.
        uniform = np.tile(np.geomspace(low, high, width), (self.groups, 1))
        step_us, self.slope = self._replay(uniform)
        self.intercept = step_us - (self.slope * uniform).sum(0)
        self.shortest_us = float(step_us[0])
        self.first_us = self.shortest_us * (1.0 + _ABOVE_SHORTEST)
        answers = clock_answers(clocks, model, model.nominal_clock_hz / uniform)
        self.longest_us = float(step_us[int(np.argmin(np.asarray(answers.energy_j)))])

    def targets_us(self, points: int, shortest_us: float) -> np.ndarray:
        first_us = max(self.first_us, shortest_us)
        return np.geomspace(first_us, max(self.longest_us, first_us), points)

    def solve(self, target_us: np.ndarray) -> tuple[np.ndarray, bool, float]:
        """(groups, points) slowness of least energy, whether it settled, how far off it was."""
        slower = np.full((self.groups, len(target_us)), self.low)
        excess, is_settled = np.inf, False
        for _ in range(_ROUNDS):
            before = slower
            slower = np.asarray(
                least_energy(
                    self.clocks.work,
                    self.model,
                    self._paths(),
                    target_us,
                    before,
                    self.low,
                    self.high,
                )
            )
            step_us, slope = self._replay(slower)
            excess = float(np.max(step_us / target_us - 1.0))
            is_settled = bool(
                excess <= _CLOSE and np.max(np.abs(slower / before - 1.0)) <= _SETTLED
            )
            if is_settled:
                break
            self._add(slope, step_us - (slope * slower).sum(0), step_us > target_us)
        return self._within(slower, step_us, target_us), is_settled, max(excess, 0.0)

    def _paths(self) -> Paths:
        spare = -self.slope.shape[1] % _PATHS
        # A begin that moves can bend the step the other way; no path may forbid the shortest step.
        bound = self.first_us - self.low * self.slope.sum(0) - 0.5 * _ABOVE_SHORTEST * self.first_us
        return Paths(
            slope_us=np.pad(self.slope, ((0, 0), (0, spare))),
            intercept_us=np.pad(np.minimum(self.intercept, bound), (0, spare)),
        )

    def _add(self, slope: np.ndarray, intercept: np.ndarray, late: np.ndarray) -> None:
        self.slope = np.concatenate([self.slope, slope[:, late]], 1)
        self.intercept = np.concatenate([self.intercept, intercept[late]])

    def _replay(self, slower: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        step_us, slope = _step_and_slope(self.clocks, jnp.asarray(slower))
        return np.asarray(step_us), np.asarray(slope)

    def _within(self, slower: np.ndarray, step_us: np.ndarray, target_us: np.ndarray) -> np.ndarray:
        """Bring the last steps into their targets, towards the highest clock."""
        for _ in range(_ROUNDS):
            if np.all(step_us <= target_us):
                break
            above_us = np.maximum(step_us - self.shortest_us, 1e-300)
            part = np.where(
                step_us > target_us, (target_us - self.shortest_us) / above_us * (1 - 1e-9), 1.0
            )
            slower = self.low + np.clip(part, 0.0, 1.0) * (slower - self.low)
            step_us, _ = self._replay(slower)
        return slower


@jax.jit
def _step_and_slope(clocks: ClockProgram, slower: Array) -> tuple[Array, Array]:
    """(points,) steps, and the critical path of each: (groups, points) its slopes."""
    step_us, pull_back = jax.vjp(lambda x: clock_step_us(clocks, x), slower)
    return step_us, pull_back(jnp.ones_like(step_us))[0]
