"""Greedy placement: the upgrade with the greatest gain per byte first.

Each table begins where it takes least of scarce memory. Its options on the concave envelope of
time saved against memory taken are upgrades of falling gain per byte, and those of all tables are
taken in that order while they fit: the Lagrangian of one knapsack, and the usual baseline.
"""

from dataclasses import replace

import numpy as np

from jaxperf.embedding.placement._problem import (
    PlacementProblem,
    PooledPlacement,
    capacity_excess_bytes,
    pooled_step,
    slowest,
)

_SLACK = 1e-9  # of a tier's capacity or of a step: rounding of sums


def place_greedily(problem: PlacementProblem) -> PooledPlacement | None:
    """Place whole tables by gain per byte.

    Args:
        problem: the options.

    Returns:
        The fastest placement on the way; None where none of them fits.

    Example:
        >>> from jaxperf.embedding.placement._problem import example_problem
        >>> place_greedily(example_problem()).step_us
        42.0
    """
    # A byte of a small tier is scarcer than one of a large tier.
    taken = (problem.size_bytes / problem.capacity_bytes).sum(axis=1)
    cost_us = problem.busy_us.max(axis=2).sum(axis=1)
    first, steps = _upgrades(problem.table, taken, cost_us)
    state = _State(problem, first)
    for _, before, after in steps:
        if state.chosen[problem.table[before]] == before:
            state.try_change(after)
    _mend(problem, state, cost_us)
    # Loads were added up change by change: once more, without the rounding.
    best = state.best
    return best and replace(best, step_us=pooled_step(problem, best.shares).step_us)


class _State:
    """The option of each table, the loads of all, and the fastest placement that fitted."""

    def __init__(self, problem: PlacementProblem, chosen: np.ndarray):
        self.problem = problem
        self.chosen = chosen
        self.busy_us = problem.busy_us[chosen].sum(axis=0)
        self.wear_us = problem.wear_us[chosen].sum(axis=0)
        self.excess_bytes = capacity_excess_bytes(problem, _shares(problem, chosen))
        self.best: PooledPlacement | None = None
        self._record()

    def over(self, excess_bytes: np.ndarray) -> np.ndarray:
        return np.maximum(excess_bytes / self.problem.capacity_bytes - _SLACK, 0.0)

    def try_change(self, after: int) -> bool:
        """Take an option unless it makes a tier overflow more."""
        table = self.problem.table[after]
        before = self.chosen[table]
        added = self.problem.size_bytes[after] - self.problem.size_bytes[before]
        if (self.over(self.excess_bytes + added) > self.over(self.excess_bytes)).any():
            return False
        self.excess_bytes = self.excess_bytes + added
        self.busy_us += self.problem.busy_us[after] - self.problem.busy_us[before]
        self.wear_us += self.problem.wear_us[after] - self.problem.wear_us[before]
        self.chosen[table] = after
        self._record()
        return True

    def _record(self) -> None:
        if self.over(self.excess_bytes).any():
            return
        step_us = slowest(self.problem, self.busy_us, self.wear_us).step_us
        # Each change lets slower memories do less: of placements as fast the last is the best.
        if self.best is None or step_us <= self.best.step_us * (1 + _SLACK):
            self.best = PooledPlacement(_shares(self.problem, self.chosen), step_us)


def _shares(problem: PlacementProblem, chosen: np.ndarray) -> np.ndarray:
    shares = np.zeros(problem.options)
    shares[chosen] = 1.0
    return shares


def _upgrades(
    table: np.ndarray, taken: np.ndarray, cost_us: np.ndarray
) -> tuple[np.ndarray, list[tuple[float, int, int]]]:
    """The first option of each table, and steps (-gain, before, after) from the best on."""
    steps: list[tuple[float, int, int]] = []
    first = []
    bounds = np.flatnonzero(np.diff(table, prepend=-1))
    for begin, end in zip(bounds, [*bounds[1:], len(table)], strict=True):
        hull = _envelope(taken[begin:end], cost_us[begin:end]) + begin
        first.append(hull[0])
        gain = -np.diff(cost_us[hull]) / np.diff(taken[hull])
        steps += zip((-gain).tolist(), hull[:-1].tolist(), hull[1:].tolist(), strict=True)
    return np.array(first), sorted(steps)


def _envelope(taken: np.ndarray, cost_us: np.ndarray) -> np.ndarray:
    """Options on the lower convex envelope of cost over memory taken, while cost falls."""
    hull: list[int] = []
    for option in np.lexsort((cost_us, taken)):
        if hull and cost_us[option] >= cost_us[hull[-1]]:
            continue
        while len(hull) > 1 and _above(taken[[*hull[-2:], option]], cost_us[[*hull[-2:], option]]):
            hull.pop()
        if hull and taken[option] == taken[hull[-1]]:
            hull.pop()
        hull.append(int(option))
    return np.array(hull)


def _above(taken: np.ndarray, cost_us: np.ndarray) -> bool:
    """Whether the middle one of three points is not below the line through the others."""
    run, rise = np.diff(taken), np.diff(cost_us)
    return bool(rise[0] * run[1] >= rise[1] * run[0])


def _mend(problem: PlacementProblem, state: _State, cost_us: np.ndarray) -> None:
    """Where a tier still overflows, change tables for the least time per byte freed."""
    if state.best is not None:
        return
    over = state.over(state.excess_bytes) > 0
    before = state.chosen[problem.table]
    freed = (problem.size_bytes[before] - problem.size_bytes)[:, over].sum(axis=1)
    with np.errstate(divide="ignore", invalid="ignore"):
        price = np.where(freed > 0, (cost_us - cost_us[before]) / freed, np.inf)
    for option in np.argsort(price, kind="stable"):
        if state.best is not None or not np.isfinite(price[option]):
            return
        state.try_change(int(option))
