"""The fit: energies, delay and window of a meter, and how sure they are.

Each number is `prior * softplus(x) / log 2`, so that it is never negative and x = 0 is the prior.
What is minimised is

    sum of rho((modelled - reading) / spread)   over the readings             (pseudo-Huber)
      + sum of belief(number / prior)**2 / 2    over the numbers

with the weak belief x - 1 below 1 and log x above, so that a number which is many times the prior
is hardly pulled back. It is minimised by Levenberg and Marquardt's method from the likeliest delay
and window (`clock_starts`). Intervals are those of the normal distribution with Gauss and Newton's
curvature.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace

import jax
import jax.numpy as jnp
import numpy as np

from jaxperf.energy.calibration._clock_profile import PRIOR_SPREAD, Readings
from jaxperf.energy.calibration._clock_search import NEARLY_AS_GOOD, ClockStart
from jaxperf.energy.calibration._design import Design, nonnegative_shares
from jaxperf.energy.calibration._meter import metered_w
from jaxperf.replay import double_precision

_HUBER = 2.0
"""Residuals beyond so many spreads count linearly."""
_ROUNDS = 3
_ITERATIONS = 40
_DAMPING = 1e-3
_MOST_DAMPING = 1e9
_HARDER = 5.0
_LEAST_SPREAD = 1e-6
_SETTLED = 1e-9
_METER_PRIOR = np.array([5.0, 2.0])
"""Standard deviations of the delay in seconds, and of the logarithm of the window, around where
the search has found them: so weak that they only count where the readings say nothing."""
_LEAST_SHARE = 1e-9
_MOST_ALIKE = 0.95
_HELD_SPREAD = 1e-6
"""In place of `PRIOR_SPREAD`, of a number that stays as it was believed."""


@dataclass(frozen=True, eq=False)
class Posterior:
    """What the readings say.

    Attributes:
        value: (numbers,) fitted.
        covariance: (numbers, numbers).
        delay_s, window: of the meter; `window` in units of `Readings.unit_window_s`.
        delay_spread_s, window_spread: standard deviations.
        spread: of the residuals, in those that the readings are believed to have.
        used: (m,) readings that it stands on.
        columns: (used, numbers) what each number adds to each reading, for each unit of it, in
            spreads.
        unit_window_s: median of `Readings.unit_window_s`.
        spread_w: median of what readings scatter by.
        mean_reading_w: mean of the readings.
        rivals_s: delays of other starts that are nearly as likely.
        mean_w: (numbers,) what each number adds to the mean reading, for each unit of it.
    """

    value: np.ndarray
    covariance: np.ndarray
    delay_s: float
    window: float
    delay_spread_s: float
    window_spread: float
    spread: float
    used: np.ndarray
    columns: np.ndarray
    unit_window_s: float
    spread_w: float
    mean_reading_w: float
    rivals_s: tuple[float, ...]
    mean_w: np.ndarray


def fit_readings(
    design: Design,
    readings: Readings,
    starts: list[ClockStart],
    progress: Callable[[int, int], None] | None = None,
    held: np.ndarray | None = None,
) -> Posterior:
    """The most probable numbers, from the most likely delay and window.

    Args:
        design: the linear part.
        readings: of the meter.
        starts: of `clock_starts`, at least one, the best first: the descent is from that one, and
            the others tell whether another delay is as likely.
        progress: called with the number of rounds done, and of all.
        held: (numbers,) bool, those that stay as they were believed; by default none.

    Returns:
        What was found.
    """
    best, *others = starts
    likely = (other for other in others if other.score - best.score < NEARLY_AS_GOOD)
    with double_precision():
        problem = _Problem(design, readings, best, held)
        x, spread = problem.start(), 1.0
        for done in range(_ROUNDS):
            residual, _ = problem.residuals(x, 1.0)
            spread = _spread(residual[: len(best.used)][best.used], len(x))
            x = problem.descend(x, spread)
            if progress:
                progress(done + 1, _ROUNDS)
        return replace(
            problem.posterior(x, spread), rivals_s=tuple(other.delay_s for other in likely)
        )


class _Problem:
    """The residuals around one start, and their descent."""

    def __init__(
        self, design: Design, readings: Readings, start: ClockStart, held: np.ndarray | None
    ):
        self.design, self.start_at = design, start
        held = np.zeros(len(design.keys), bool) if held is None else held
        self.prior_spread = np.where(held, _HELD_SPREAD, PRIOR_SPREAD)
        # What is not used scatters without bound: so one compiled program serves every start of
        # as many readings.
        spread_w = np.where(start.used, readings.spread_w, np.inf)
        self.readings = all_of_them = replace(readings, spread_w=spread_w)
        self.window_known = readings.interval_s is not None
        self.arguments = (
            design.energy,
            design.prior,
            tuple(
                getattr(all_of_them, name)
                for name in ("time_s", "power_w", "spread_w", "unit_window_s")
            ),
            np.array([start.delay_s, np.log(start.window)]),
            self.prior_spread,
        )

    def columns(self, delay_s: float, window: float) -> np.ndarray:
        """(readings, numbers) what each prior adds to each reading, in the reading's spread."""
        window_s = window * self.readings.unit_window_s
        metered = metered_w(self.design.energy, self.readings.time_s, delay_s, window_s)
        return np.asarray(metered) * self.design.prior / self.readings.spread_w[:, None]

    def start(self) -> np.ndarray:
        """The non-negative least squares at the start's delay and window."""
        at = self.start_at
        columns = self.columns(at.delay_s, at.window)
        share = nonnegative_shares(
            columns, self.readings.power_w / self.readings.spread_w, self.prior_spread
        )
        return np.concatenate([_inverse_share(share), [at.delay_s, np.log(at.window)]])

    def residuals(self, x: np.ndarray, spread: float) -> tuple[np.ndarray, np.ndarray]:
        """Those of readings, then of priors; and their slopes."""
        residual, slope = _residuals(x, *self.arguments, spread)
        slope = np.array(slope)
        if self.window_known:
            slope[: len(self.readings.time_s), -1] = 0.0
        return np.asarray(residual), slope

    def descend(self, x: np.ndarray, spread: float) -> np.ndarray:
        damping = _DAMPING
        residual, slope = self.residuals(x, spread)
        loss = _loss(residual, len(self.readings.time_s))
        for _ in range(_ITERATIONS):
            curvature, gradient = self._normal(residual, slope)
            damped = curvature + damping * np.diag(np.diag(curvature) + 1e-12)
            candidate = self._within(x - np.linalg.solve(damped, gradient))
            residual_there, slope_there = self.residuals(candidate, spread)
            loss_there = _loss(residual_there, len(self.readings.time_s))
            if not loss_there < loss:
                damping *= _HARDER
                if damping > _MOST_DAMPING:
                    break
                continue
            gained, damping = loss - loss_there, damping / _HARDER
            x, residual, slope, loss = candidate, residual_there, slope_there, loss_there
            if gained < _SETTLED * max(loss, 1.0):
                break
        return x

    def posterior(self, x: np.ndarray, spread: float) -> Posterior:
        at, numbers = self.start_at, len(self.design.keys)
        residual, slope = self.residuals(x, spread)
        # Errors that last for several readings count as one: less is told than there are readings.
        widening = _widening(residual[: len(at.used)][at.used])
        residual, slope = residual / widening, slope / widening
        spread *= widening
        delay_s, window = float(x[-2]), float(np.exp(x[-1]))
        # In shares of the priors, not in x: where a number is 0, x is far away and tells nothing.
        columns = self.columns(delay_s, window) / spread
        slope[: len(columns), :numbers] = columns
        share = _share(x[:numbers])
        belief = np.diag(1.0 / np.maximum(share, 1.0) / self.prior_spread)
        slope[len(columns) : len(columns) + numbers, :numbers] = belief
        covariance = self._covariance(residual, slope)
        prior = self.design.prior
        columns, spread_w = columns[at.used], self.readings.spread_w[at.used]
        local = np.sqrt(np.diag(covariance))
        return Posterior(
            value=share * prior,
            covariance=covariance[:numbers, :numbers] * np.outer(prior, prior),
            delay_s=delay_s,
            window=window,
            delay_spread_s=max(float(local[-2]), at.delay_spread_s),
            window_spread=0.0
            if self.window_known
            else max(float(local[-1]) * window, at.window_spread),
            spread=spread / widening,
            used=at.used,
            columns=columns / prior,
            unit_window_s=at.unit_s,
            spread_w=spread / widening * float(np.median(spread_w)),
            mean_reading_w=float(self.readings.power_w[at.used].mean()),
            rivals_s=(),
            mean_w=(columns * spread * spread_w[:, None]).mean(axis=0) / prior,
        )

    def _within(self, x: np.ndarray) -> np.ndarray:
        at = self.start_at
        window = np.clip(np.exp(x[-1]), *at.windows)
        half_s = window * at.unit_s / 2
        x[-2:] = np.clip(x[-2] + half_s, *at.middles_s) - half_s, np.log(window)
        return x

    def _normal(self, residual: np.ndarray, slope: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Curvature and gradient of the loss."""
        weight = self._weight(residual)
        return slope.T @ (slope * weight[:, None]), slope.T @ (weight * residual)

    def _covariance(self, residual: np.ndarray, slope: np.ndarray) -> np.ndarray:
        # Not by way of the curvature: exact readings and weak beliefs are 1e12 apart, squared.
        weighted = slope * np.sqrt(self._weight(residual))[:, None]
        _, length, direction = np.linalg.svd(weighted, full_matrices=False)
        scaled = direction / length[:, None]
        return scaled.T @ scaled

    def _weight(self, residual: np.ndarray) -> np.ndarray:
        weight = np.ones(len(residual))
        readings = len(self.readings.time_s)
        weight[:readings] = 1.0 / np.sqrt(1.0 + (residual[:readings] / _HUBER) ** 2)
        return weight


def _loss(residual: np.ndarray, readings: int) -> float:
    of_readings, of_priors = residual[:readings] / _HUBER, residual[readings:]
    huber = _HUBER**2 * (np.sqrt(1.0 + of_readings**2) - 1.0).sum()
    return float(huber + (of_priors**2).sum() / 2)


def _spread(residual: np.ndarray, numbers: int) -> float:
    # The numbers have taken freedom from the residuals.
    freedom = max(len(residual) - numbers, 1) / len(residual)
    typical = 1.4826 * float(np.median(np.abs(residual)) / np.sqrt(freedom))
    return max(typical, _LEAST_SPREAD)


def _widening(residual: np.ndarray) -> float:
    """By what residuals that resemble the one before them widen intervals: AR(1)."""
    total = max(float(residual @ residual), 1e-300)
    alike = np.clip(float(residual[1:] @ residual[:-1]) / total, 0.0, _MOST_ALIKE)
    return float(np.sqrt((1.0 + alike) / (1.0 - alike)))


def _share(x: np.ndarray) -> np.ndarray:
    return np.logaddexp(0.0, x) / np.log(2.0)


def _belief(share):
    # The inner maximum keeps the logarithm's slope finite where it is not taken.
    return jnp.where(share < 1.0, share - 1.0, jnp.log(jnp.maximum(share, 1.0)))


def _inverse_share(share: np.ndarray) -> np.ndarray:
    return np.log(np.expm1(np.maximum(share, _LEAST_SHARE) * np.log(2.0)))


@jax.jit
def _residuals(x, energy, prior, used, meter, prior_spread, spread):
    time_s, power_w, spread_w, unit_window_s = used

    def both(x):
        share, delay_s = jax.nn.softplus(x[:-2]) / np.log(2.0), x[-2]
        columns = metered_w(energy, time_s, delay_s, jnp.exp(x[-1]) * unit_window_s)
        of_readings = (columns @ (share * prior) - power_w) / (spread_w * spread)
        of_priors = _belief(share) / prior_spread
        of_meter = (x[-2:] - meter) / _METER_PRIOR
        residual = jnp.concatenate([of_readings, of_priors, of_meter])
        return residual, residual

    slope, residual = jax.jacfwd(both, has_aux=True)(x)
    return residual, slope
