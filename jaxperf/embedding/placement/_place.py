"""A placement of shards on devices: the best of what greedy and integer program lead to."""

import time
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from jaxperf.embedding.placement._assign import assign
from jaxperf.embedding.placement._greedy import place_greedily
from jaxperf.embedding.placement._milp import Relaxation, place_pooled, prefer_fast, relax
from jaxperf.embedding.placement._packing import Packing, pack
from jaxperf.embedding.placement._problem import (
    PlacementProblem,
    PooledPlacement,
    even_loads,
    part_of,
    slow_cost,
)
from jaxperf.errors import ConfigError

# Capacity that the pooled choice leaves free, so that its shards fit devices; and the part of a
# device that a greedy shard may take, or none where they are filled. From few splits on.
_FREE = (0.0, 0.001, 0.003, 0.01, 0.03, 0.1)
_LARGEST = (None, 0.25, 0.1)
# Few shards, as many as the linear programs make, and as many as are needed.
_WAYS = (pack, assign, partial(pack, largest=0.25))
_PIECE = 0.25  # of a unit that an equal shard of a pooled choice takes at most
_PROMISING = 12  # options of a table
_ROUNDING = 1e-6  # of a step
_ADDED = 0.001  # to the pooled step, by a good packing
_LESS = 1e-6  # of slower memories' time, for another placement
_MOST_PIECES = 1024  # of a table
_LEAST_SEARCH_S = 1.0
_PATIENCE_S = 30.0  # beyond the limit, where there is no placement yet


@dataclass(frozen=True, eq=False)
class Placement:
    """Where everything goes.

    Attributes:
        packing: shards on devices, and the time of their step.
        bound_us: no placement of the same options is faster.
        greedy_us: step of the greedy placement on the same devices; NaN where there is none.
        prices: of the bound's constraints.
    """

    packing: Packing
    bound_us: float
    greedy_us: float
    prices: Relaxation

    @property
    def step_us(self) -> float:
        """Time of the slowest device."""
        return self.packing.step.step_us

    @property
    def gap(self) -> float:
        """Time above the bound, as a part of it; NaN where there is none above 0."""
        if not self.bound_us > 0:
            return float("nan")
        return max(0.0, self.step_us / self.bound_us - 1.0)


def place(
    problem: PlacementProblem,
    *,
    relaxed: Relaxation | None = None,
    gap: float = 0.005,
    time_limit_s: float = 60.0,
) -> Placement:
    """Choose options and lay them on devices.

    Args:
        problem: the options.
        relaxed: of the problem, where it is known already.
        gap: to the bound at which the search ends, as a part of it.
        time_limit_s: of the search; what it has by then is the answer.

    Returns:
        The fastest placement found, no slower than the greedy one; of those as fast one that takes
        little of slower memories.

    Raises:
        ConfigError: the tables do not fit, in all or on single devices.

    Example:
        >>> from jaxperf.embedding.placement._problem import example_problem
        >>> placement = place(example_problem())
        >>> placement.step_us, placement.packing.rows  # an eighth of the first table is fast
        (37.125, array([0.125, 0.875, 1.   ]))
    """
    deadline = time.monotonic() + time_limit_s
    relaxed = relaxed or relax(problem)
    greedy, packed = _pack_greedily(problem)
    kept = _promising(problem, relaxed, greedy)
    index = np.flatnonzero(kept)
    search = _Search(
        part_of(problem, kept), _part(relaxed, kept), relaxed.bound_us * (1 + gap), gap, deadline
    )
    if packed is not None:
        search.best = replace(packed, option=np.searchsorted(index, packed.option))
    greedy_us = search.best_us if packed is not None else float("nan")
    search.run(None if greedy is None else replace(greedy, shares=greedy.shares[kept]))
    search.prefer_fast()
    if search.best is None:
        raise ConfigError(
            "the tables fit all devices together but not each",
            where="placement",
            expected="tables in smaller parts, or more devices",
        )
    packing = replace(search.best, option=index[search.best.option])
    return Placement(packing, relaxed.bound_us, greedy_us, relaxed)


def _pack_greedily(problem: PlacementProblem) -> tuple[PooledPlacement | None, Packing | None]:
    """The greedy placement, and its best packing; with some room left free where it needs that."""
    first = place_greedily(problem)
    for free in _FREE:
        tight = replace(problem, capacity_bytes=problem.capacity_bytes * (1 - free))
        greedy = place_greedily(tight) if free else first
        if greedy is None:
            break
        packings = [pack(problem, greedy.shares, largest=largest) for largest in _LARGEST]
        packed = [each for each in packings if each is not None]
        if packed:
            least_us = min(each.step.step_us for each in packed)
            alike = [each for each in packed if each.step.step_us <= least_us * (1 + _ROUNDING)]
            return first, min(alike, key=lambda each: len(each.option))
    return first, None


class _Search:
    """The best packing so far, and pooled placements to pack."""

    def __init__(self, problem, relaxed: Relaxation, goal_us: float, gap: float, deadline: float):
        self.problem, self.relaxed, self.goal_us = problem, relaxed, goal_us
        self.gap, self.deadline = gap, deadline
        self.best: Packing | None = None

    @property
    def best_us(self) -> float:
        return np.inf if self.best is None else self.best.step.step_us

    def run(self, greedy: PooledPlacement | None) -> None:
        """Pack pooled placements, in few shards first, until the goal or the deadline."""
        pooled: dict[float, PooledPlacement | None] = {}
        for way in _WAYS:
            for free in _FREE:
                left_s = self.deadline - time.monotonic()
                out_of_time = left_s < _LEAST_SEARCH_S and self.best is not None
                if self.best_us <= self.goal_us or out_of_time or left_s < -_PATIENCE_S:
                    return
                if free not in pooled:
                    pooled[free] = self._choose(free, greedy, max(left_s / 2, _LEAST_SEARCH_S))
                choice = pooled[free]
                if choice is None or choice.step_us >= self.best_us:
                    continue
                packing = way(self.problem, choice.shares)
                if packing is not None and packing.step.step_us < self.best_us:
                    self.best = packing

    def prefer_fast(self) -> None:
        """Let slower memories do less in a step that is no longer."""
        problem, cost = self.problem, slow_cost(self.problem)
        for free in _FREE if self.best is not None else ():
            assert self.best is not None
            own = cost @ self.best.shares(problem.options)
            tight = replace(problem, capacity_bytes=problem.capacity_bytes * (1 - free))
            # What packing adds to the pooled step has to be within the step that there is.
            limit_us = max(self.relaxed.bound_us, self.best_us * (1 - _ADDED))
            shares = prefer_fast(tight, limit_us)
            if shares is None or cost @ shares >= own * (1 - _LESS):
                return
            for way in _WAYS:
                packing = way(problem, shares)
                if packing is not None and packing.step.step_us <= self.best_us * (1 + 1e-9):
                    self.best = packing
                    return
            if time.monotonic() > self.deadline:
                return

    def _choose(
        self, free: float, greedy: PooledPlacement | None, time_limit_s: float
    ) -> PooledPlacement | None:
        problem, relaxed = self.problem, self.relaxed
        if free > 0.0:
            greedy = None
            problem = replace(problem, capacity_bytes=problem.capacity_bytes * (1 - free))
            try:
                relaxed = relax(problem)
            except ConfigError:  # With less capacity they do not fit.
                return None
        chosen = place_pooled(
            problem,
            _pieces(self.problem, self.relaxed.shares),
            relaxed=relaxed,
            known=greedy,
            gap=self.gap / 5,
            time_limit_s=time_limit_s,
        )
        if chosen is not None and chosen.step_us <= max(self.goal_us, relaxed.bound_us):
            return chosen
        # Few tables are in several parts there: one or two for each constraint that binds.
        return PooledPlacement(relaxed.shares, relaxed.bound_us, relaxed.bound_us)


def _promising(
    problem: PlacementProblem, relaxed: Relaxation, greedy: PooledPlacement | None
) -> np.ndarray:
    """(options,) the cheapest of each table at the bound's prices, and those that greedy took."""
    # What does not matter to the step matters to slower memories.
    cost = np.round(relaxed.reduced_cost_us / relaxed.bound_us, 9)
    order = np.lexsort((slow_cost(problem), -relaxed.shares, cost, problem.table))
    first = np.searchsorted(problem.table, np.arange(len(problem.tables)))
    kept = relaxed.shares > 0
    kept[order[np.arange(problem.options) - first[problem.table[order]] < _PROMISING]] = True
    return kept if greedy is None else kept | (greedy.shares > 0)


def _part(relaxed: Relaxation, kept: np.ndarray) -> Relaxation:
    return replace(
        relaxed, shares=relaxed.shares[kept], reduced_cost_us=relaxed.reduced_cost_us[kept]
    )


def _pieces(problem: PlacementProblem, shares: np.ndarray) -> np.ndarray:
    """(tables,) equal shards, so that each takes at most a quarter of a unit of any tier."""
    even = even_loads(problem, shares)
    part = shares[:, None]
    size = part * problem.size_bytes * problem.units / even[:, 0]
    busy = part * problem.busy_us.max(axis=2) * problem.units / even[:, 1]
    use = np.zeros((len(problem.tables), 2 * len(problem.tiers)))
    np.add.at(use, problem.table, np.concatenate([size, busy], axis=1))
    return np.ceil(use.max(axis=1) / _PIECE - 1e-9).clip(1, _MOST_PIECES)
