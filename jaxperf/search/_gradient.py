"""Gradient search: descent from many starts through a space whose axes are taken as continuous.

Between its points the objective is interpolated linearly on the simplices of the Kuhn
triangulation, whose corners are points of the space: in each cube the axes are raised one after
the other, that with the largest fractional part first. Values and slopes are so those of exact
evaluations, and a minimum of the relaxed objective is a point of the space.
"""

import math
from dataclasses import dataclass
from itertools import permutations
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax

from jaxperf.config import MEASURES
from jaxperf.replay import double_precision
from jaxperf.search._evaluate import Measured, evaluate
from jaxperf.search._problem import Problem
from jaxperf.search._types import costs

# As parts of an axis: how far coordinates move in a step, and scatter around where they are.
_FIRST_PACE, _LAST_PACE = 0.2, 0.02
_FIRST_SCATTER = 0.3
_SCATTERED = 0.5  # of the steps; the others see the objective as it is
# Of logarithms of the objective: what lies beyond a limit, and cannot be at all.
_OVER_LIMIT, _BY_LOG_OF_EXCESS = 1.0, 4.0
_BROKEN = 1.0


@dataclass(frozen=True, eq=False)
class GradientOutcome:
    """What a gradient search evaluated, and where its best start came to.

    Attributes:
        index: (points,) numbers of the points that were evaluated, each once, in order.
        cost: (points, objectives) of each, less is better, see `costs`; infinite where not
            feasible.
        best: number of the best of them by the first objective, `None` where none is feasible.
        relaxed: the first objective, interpolated where the best start came to rest; points that
            are not feasible count there with a penalty. NaN where no start came to a feasible
            point.
        rounded: the same at the best corner of the simplex around it, evaluated exactly.
    """

    index: np.ndarray
    cost: np.ndarray
    best: int | None
    relaxed: float
    rounded: float

    @property
    def gap(self) -> float:
        """By how much the relaxed value lies off the rounded one, as part of that."""
        return abs(self.relaxed - self.rounded) / self.rounded


def search_gradient(
    problem: Problem, *, starts: int = 16, steps: int = 30, seed: int = 0
) -> GradientOutcome:
    """Look for the best point of a space by descent, without a proof that it is the best.

    All starts move together by Adam within the box of the axes. The slope is taken at places that
    scatter around them, by a third of each axis at first and not at all in the second half of the
    steps: they see the whole landscape before its details. From the best point of all, steps along
    each axis and exchanges between two of them (tensor for pipeline parallelism) go on until none
    is better.

    Args:
        problem: of `pose`.
        starts: one or more; of several objectives the first half goes after the first alone, the
            others after products of powers of all.
        steps: of descent.
        seed: of starts and scatter.

    Returns:
        All that was evaluated: no other value is reported as that of a point.

    Example:
        >>> from jaxperf.config import SearchSpace, load_hardware, load_job
        >>> from jaxperf.search._problem import pose, values_of
        >>> axes = {"tensor_parallel": (1, 2, 4, 8), "recompute": ("none", "full")}
        >>> space = SearchSpace("small", axes, gpus=64, global_batch_size=128)
        >>> problem = pose(load_job("llama3-8b"), load_hardware("h100"), space)
        >>> found = search_gradient(problem, starts=2, steps=3)
        >>> values_of(problem, found.best), len(found.index)
        ({'tensor_parallel': 1, 'recompute': 'none'}, 6)
    """
    known = _Known(problem)
    random = np.random.default_rng(seed)
    weights = _weights(random, starts, len(problem.space.objectives))
    place = _descend(known, random, weights, steps)
    relaxed, rounded = _round(known, place, weights)
    _improve(known)
    return GradientOutcome(known.index, known.cost, known.best, relaxed, rounded)


class _Known:
    """Points that were evaluated, so that none is twice."""

    def __init__(self, problem: Problem):
        self.problem = problem
        self.sizes = [len(values) for values in problem.space.axes.values()]
        self.index = np.zeros(0, np.int64)
        self.cost = np.zeros((0, len(problem.space.objectives)))
        self.height = np.zeros_like(self.cost)

    def rows(self, codes: np.ndarray) -> np.ndarray:
        """(...,) rows of points by their (..., axes) places on the axes; evaluates new ones."""
        if self.sizes:
            index = np.ravel_multi_index(tuple(np.moveaxis(codes, -1, 0)), self.sizes)
        else:
            index = np.zeros(codes.shape[:-1], np.int64)
        new = np.setdiff1d(index, self.index)
        if len(new):
            measured = evaluate(self.problem, new)
            at = np.searchsorted(self.index, new)
            cost, height = _costs_and_heights(self.problem, measured)
            self.index = np.insert(self.index, at, new)
            self.cost = np.insert(self.cost, at, cost, axis=0)
            self.height = np.insert(self.height, at, height, axis=0)
        return np.searchsorted(self.index, index)

    @property
    def best(self) -> int | None:
        """Number of the best by the first objective."""
        if not np.isfinite(self.cost[:, 0]).any():
            return None
        return int(self.index[np.argmin(self.cost[:, 0])])


def _costs_and_heights(problem: Problem, measured: Measured) -> tuple[np.ndarray, np.ndarray]:
    """(rows, objectives) costs, and their logarithms with penalties, NaN of what cannot be."""
    rows = len(measured.points.index)
    if not measured.measures:
        shape = (rows, len(problem.space.objectives))
        return np.full(shape, np.inf), np.full(shape, np.nan)
    cost = costs(problem, measured.measures)
    feasible = measured.feasible[:, None]
    penalty = np.zeros(rows)
    for name, over in measured.over.items():
        limit = problem.space.limits.get(name)
        if limit is None:
            memory = np.array([machine.hardware.memory_bytes for machine in problem.machines])
            limit = memory[measured.points.machine]
        with np.errstate(invalid="ignore", divide="ignore"):
            excess = np.abs(np.log(measured.measures[name] / limit))
        excess = np.where(np.isfinite(excess), excess, 0.0)
        penalty += np.where(over, _OVER_LIMIT + _BY_LOG_OF_EXCESS * excess, 0.0)
    height = np.sign(cost) * np.log(np.abs(cost)) + penalty[:, None]
    return np.where(feasible, cost, np.inf), height


def _weights(random: np.random.Generator, starts: int, objectives: int) -> np.ndarray:
    """(starts, objectives) what each start makes of the objectives, summing to one."""
    weights = random.dirichlet(np.ones(objectives), starts)
    weights[: (starts + 1) // 2] = np.eye(objectives)[0]
    return weights


# Descent
# ---------------------------------------------------------------------------------------


class _Simplices(NamedTuple):
    """Those around some positions.

    Attributes:
        rows: (starts, axes + 1) known points, the corners in the order in which axes are raised.
        height: (starts, axes + 1) of the corners.
        axis: (starts, axes) which axis each edge from a corner to the next follows.
        weight: (starts, axes + 1) of the corners in the interpolation.
    """

    rows: np.ndarray
    height: np.ndarray
    axis: np.ndarray
    weight: np.ndarray


def _descend(
    known: _Known, random: np.random.Generator, weights: np.ndarray, steps: int
) -> np.ndarray:
    """(starts, axes) where the starts come to, from 0 to 1 along each axis."""
    place = random.random((len(weights), len(known.sizes)))
    adam = optax.scale_by_adam(b1=0.7, b2=0.8)
    with double_precision(), jax.numpy_dtype_promotion("standard"):
        state, update = adam.init(jnp.asarray(place)), jax.jit(adam.update)
        for step in range(steps):
            left = 1 - step / steps
            radius = _FIRST_SCATTER * max(1 - step / (_SCATTERED * steps), 0.0)
            scatter = radius * random.standard_normal(place.shape)
            slope = _slope(known, np.clip(place + scatter, 0, 1), weights)
            change, state = update(jnp.asarray(slope), state)
            pace = _LAST_PACE + (_FIRST_PACE - _LAST_PACE) * left
            place = np.clip(place - pace * np.asarray(change), 0, 1)
    return place


def _slope(known: _Known, place: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """(starts, axes) derivatives of the relaxed objective."""
    found = _simplices(known, place, weights)
    slope = np.zeros_like(place)
    np.put_along_axis(slope, found.axis, np.diff(found.height, axis=1), axis=1)
    return slope * (np.array(known.sizes) - 1)


def _simplices(known: _Known, place: np.ndarray, weights: np.ndarray) -> _Simplices:
    cells = np.array(known.sizes, np.int64) - 1
    within = place * cells
    low = np.clip(np.floor(within), 0, np.maximum(cells - 1, 0)).astype(np.int64)
    part = within - low
    axis = np.argsort(-part, axis=1, kind="stable")
    raised = np.cumsum(np.eye(len(cells), dtype=np.int64)[axis], axis=1)
    # An axis with one value has nowhere to go.
    corners = np.minimum(np.concatenate([low[:, None], low[:, None] + raised], axis=1), cells)
    rows = known.rows(corners)
    parts = np.take_along_axis(part, axis, axis=1)
    ends = np.ones((len(place), 1))
    weight = -np.diff(np.concatenate([ends, parts, 0 * ends], axis=1), axis=1)
    height = np.sum(known.height[rows] * weights[:, None], axis=-1)
    return _Simplices(rows, _without_gaps(height), axis, weight)


def _without_gaps(height: np.ndarray) -> np.ndarray:
    """What cannot be is higher than all other corners of its simplex: how bad it is nobody knows.

    One high value for all of a space would make cliffs of them, and hide what is around.
    """
    gap = np.isnan(height)
    top = np.max(height, axis=1, keepdims=True, where=~gap, initial=-np.inf)
    return np.where(gap, np.where(np.isfinite(top), top, 0.0) + _BROKEN, height)


# From there to points
# ---------------------------------------------------------------------------------------


def _round(known: _Known, place: np.ndarray, weights: np.ndarray) -> tuple[float, float]:
    """The first objective of the start with the best corner: interpolated, and at that corner."""
    # Only what goes after the first objective alone has a relaxed value of it.
    alone = weights[:, 0] == 1
    found = _simplices(known, place[alone], weights[alone])
    corner = np.min(known.cost[found.rows, 0], axis=1)
    start = int(np.argmin(corner))
    if not np.isfinite(corner[start]):
        return math.nan, math.nan
    sign = 1 if MEASURES[known.problem.space.objectives[0]] == "least" else -1
    relaxed = math.exp(sign * float(found.weight[start] @ found.height[start]))
    return relaxed, sign * float(corner[start])


def _improve(known: _Known) -> None:
    """Moves from the best point to better ones, until there is none."""
    moves, sizes = _moves(known.sizes), np.array(known.sizes, np.int64)
    before = None
    while known.best is not None and known.best != before:
        before = known.best
        codes = np.array(np.unravel_index(before, known.sizes), np.int64) + moves
        known.rows(codes[np.all((codes >= 0) & (codes < sizes), axis=1)])


def _moves(sizes: list[int]) -> np.ndarray:
    """(moves, axes) by 1, 2, 4, ... along each axis, and one up, another down."""
    one = np.eye(len(sizes), dtype=np.int64)
    moves = [one[:0]]
    for axis, size in enumerate(sizes):
        for power in range((size - 1).bit_length()):
            moves.append(np.stack([one[axis], -one[axis]]) << power)
    moves += [up[None] - down for up, down in permutations(one, 2)]
    return np.concatenate(moves)
