"""The fit itself: the most probable numbers of a cost model, and how sure they are.

Each fitted number is its default times `exp(x)`, so it stays positive. Before the data, `x` is
believed to be normal around 0 with a standard deviation, by default `PRIOR`. The logarithm of a
measured time is that of the modelled one plus an error of unknown spread with heavy tails. What is
minimised is

    sum of rho(log(model / measured) / spread)  over the works             (pseudo-Huber)
      + sum of (log(replayed / measured step) / STEP_SPREAD)**2 / 2  over the runs
      + sum of (x / prior)**2 / 2  over the numbers

by L-BFGS; then the spread is estimated from the residuals, and the fit repeated. Intervals are
those of the normal distribution with the curvature at the minimum (Laplace's approximation, with
Gauss-Newton's matrix).
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import Array

from jaxperf.cost import CostModel, Work, cost_us
from jaxperf.replay import double_precision

PRIOR = 0.7
"""A number is believed to be within a factor of two of its default, two times in three."""

STEP_SPREAD = 0.02
"""What a replay with modelled durations is believed to be off by at best."""

_FIRST_SPREAD = 0.2
_LEAST_SPREAD = 0.005
_HUBER = 2.0
"""Residuals beyond so many spreads count linearly."""

_ITERATIONS = 150
"""At most, in each of three rounds."""

_SETTLED = 1e-3
"""The loss is the logarithm of a likelihood: less, twice over, is told from nothing by no one."""

_DECREASE = 1e-4
_HALVINGS = 20
_ROUNDS = 3


@dataclass(frozen=True, eq=False)
class Observed:
    """Measured times of different pieces of work on one machine.

    Attributes:
        model: the machine with the model's default numbers.
        work: (n) the pieces of work; each of a kind that the model knows.
        time_us: (n,) measured.
        weight: (n,) how many observations each counts as; 0 leaves it out.
        step: from modelled times of all works to the logarithm of the replayed step over the
            measured one; `None` where there is no run to replay.
    """

    model: CostModel
    work: Work
    time_us: np.ndarray
    weight: np.ndarray
    step: Callable[[Array], Array] | None = None


@dataclass(frozen=True, eq=False)
class Posterior:
    """What the data say of the fitted numbers.

    Attributes:
        factor: (numbers,) of each default.
        covariance: (numbers, numbers) of the logarithms.
        spread: of what is left unexplained.
        loss_before, loss_after: with the same spread.
    """

    factor: np.ndarray
    covariance: np.ndarray
    spread: float
    loss_before: float
    loss_after: float


def fit_factors(
    observed: list[Observed],
    chosen: Any,
    prior: np.ndarray | float = PRIOR,
    *,
    progress: Callable[[int, int], None] | None = None,
) -> Posterior:
    """The most probable factors on chosen numbers of the cost model.

    Args:
        observed: measurements, machine by machine.
        chosen: a model whose leaves are bool, true for each number that is to be fitted.
        prior: (numbers,) standard deviation of their logarithms before the data, or one for all.
        progress: called with the number of iterations done, and of those at most.

    Returns:
        The factors of the chosen numbers, in the order of the model's leaves.
    """
    return _Problem(observed, chosen, prior).posterior(progress)


def with_factors(model: CostModel, chosen: Any, factor: Array) -> CostModel:
    """A model with its chosen numbers multiplied.

    Args:
        model: the model.
        chosen: the same with bool leaves.
        factor: (numbers,) in the order of the leaves.

    Returns:
        The changed model.
    """
    leaves, tree = jax.tree.flatten(model)
    changed, used = [], 0
    for leaf, which in zip(leaves, jax.tree.leaves(chosen), strict=True):
        at = np.flatnonzero(np.asarray(which).reshape(-1))
        value = jnp.asarray(leaf)
        if len(at):
            flat = value.reshape(-1)
            flat = flat.at[at].multiply(factor[used : used + len(at)], unique_indices=True)
            value = flat.reshape(value.shape)
            used += len(at)
        changed.append(value)
    return jax.tree.unflatten(tree, changed)


class _Problem:
    """The loss and its minimum. What was measured is an argument of what is compiled."""

    def __init__(self, observed: list[Observed], chosen: Any, prior: np.ndarray | float = PRIOR):
        self.observed, self.chosen = observed, chosen
        self.measured_us = np.concatenate([each.time_us for each in observed])
        self.weight = np.concatenate([each.weight for each in observed])
        self.numbers = sum(int(np.sum(leaf)) for leaf in jax.tree.leaves(chosen))
        self.prior = np.broadcast_to(prior, self.numbers)
        self.solver = optax.scale_by_lbfgs()
        self.direction = jax.jit(self.solver.update)
        # Compiled once: a solver that holds the loss in its own loops compiles it several times.
        self.loss_and_residuals = jax.jit(jax.value_and_grad(self._loss, has_aux=True))
        self.covariance = jax.jit(self._covariance)

    def posterior(self, progress: Callable[[int, int], None] | None = None) -> Posterior:
        with double_precision():
            x, measured_us = jnp.zeros(self.numbers), jnp.asarray(self.measured_us)
            spread = _FIRST_SPREAD
            for round in range(_ROUNDS):
                if round:
                    (_, residuals), _ = self.loss_and_residuals(x, measured_us, spread)
                    spread = max(self._spread(np.asarray(residuals)), _LEAST_SPREAD)
                x = self._minimum(x, measured_us, spread, round, progress)
            before, _ = self.loss(jnp.zeros(self.numbers), measured_us, spread)
            after, _ = self.loss(x, measured_us, spread)
            covariance = np.asarray(self.covariance(x, measured_us, spread))
        return Posterior(np.exp(np.asarray(x)), covariance, spread, float(before), float(after))

    def loss(self, x: Array, measured_us: Array, spread: float) -> tuple[Array, Array]:
        """The loss and its gradient."""
        (value, _), gradient = self.loss_and_residuals(x, measured_us, spread)
        return value, gradient

    def _minimum(self, x: Array, measured_us: Array, spread: float, round: int, progress) -> Array:
        """L-BFGS with a backtracking line search."""
        state = self.solver.init(x)
        value, gradient = self.loss(x, measured_us, spread)
        settled = 0
        for iteration in range(_ITERATIONS):
            # The solver mixes types of integers, which strict promotion refuses.
            with jax.numpy_dtype_promotion("standard"):
                toward, state = self.direction(gradient, state, x)
            before = float(value)
            slope = float(toward @ gradient)
            # At first nothing is known of the curvature.
            length = 1.0 if iteration else min(1.0, 0.1 / float(jnp.abs(toward).max() + 1e-12))
            for _ in range(_HALVINGS):
                candidate = x - length * toward
                value, new_gradient = self.loss(candidate, measured_us, spread)
                if float(value) <= before - _DECREASE * length * slope:
                    x, gradient = candidate, new_gradient
                    break
                length /= 2
            if progress:
                progress(round * _ITERATIONS + iteration + 1, _ROUNDS * _ITERATIONS)
            settled = settled + 1 if not before - float(value) > _SETTLED else 0
            if settled == 2:
                break
        return x

    def _spread(self, residuals: np.ndarray) -> float:
        known = np.abs(residuals)[self.weight > 0]
        if not len(known):
            return _FIRST_SPREAD
        # The numbers have taken freedom from the residuals.
        freedom = max(len(known) - self.numbers, 1) / len(known)
        # Of one type always: what is compiled for a Python number is not for one of numpy.
        return float(1.4826 * np.median(known) / np.sqrt(max(freedom, 0.25)))

    def _covariance(self, x: Array, measured_us: Array, spread: Array) -> Array:
        # Forward through the models, which have few numbers and many works; backward through the
        # replays, which have one step each.
        def residuals(x):
            found = self._residuals(self._modelled_us(x), measured_us)
            return found, found

        of_works, residual = jax.jacfwd(residuals, has_aux=True)(x)
        of_steps = jax.jacrev(lambda x: self._steps(self._modelled_us(x)))(x)
        weight = self.weight / jnp.sqrt(1.0 + (residual / spread / _HUBER) ** 2)
        curvature = (of_works * weight[:, None]).T @ of_works / spread**2
        curvature += of_steps.T @ of_steps / STEP_SPREAD**2
        return jnp.linalg.inv(curvature + jnp.diag(1.0 / self.prior**2))

    def _modelled_us(self, x: Array) -> list[Array]:
        return [
            cost_us(with_factors(each.model, self.chosen, jnp.exp(x)), each.work)
            for each in self.observed
        ]

    @staticmethod
    def _residuals(modelled_us: list[Array], measured_us: Array) -> Array:
        """(works,) logarithm of the modelled over the measured times."""
        return jnp.log(jnp.concatenate(modelled_us) / measured_us)

    def _steps(self, modelled_us: list[Array]) -> Array:
        """(runs,) logarithm of the replayed over the measured steps."""
        found = [
            each.step(time_us)
            for each, time_us in zip(self.observed, modelled_us, strict=True)
            if each.step is not None
        ]
        return jnp.stack(found) if found else jnp.zeros(0)

    def _loss(self, x: Array, measured_us: Array, spread: Array | float) -> tuple[Array, Array]:
        modelled_us = self._modelled_us(x)
        residuals = self._residuals(modelled_us, measured_us)
        scaled = residuals / spread / _HUBER
        huber = _HUBER**2 * (jnp.sqrt(1.0 + scaled**2) - 1.0)
        total = self.weight @ huber + self.weight.sum() * jnp.log(spread)
        total += jnp.sum((self._steps(modelled_us) / STEP_SPREAD) ** 2) / 2
        return total + jnp.sum((x / self.prior) ** 2) / 2, residuals
