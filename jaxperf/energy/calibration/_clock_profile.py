"""How well a delay and a window of a meter explain its readings.

For each pair the energies that fit best are those of a linear least squares, so many pairs are one
batch of small systems. What counts is how much better they fit than a constant power: an idle
stretch of a log is fitted well by anything.
"""

from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np

from jaxperf.energy.calibration._design import Design, is_covered
from jaxperf.energy.calibration._meter import metered_w

PRIOR_SPREAD = 1.0
"""A number is believed to be off by as much as itself, one standard deviation."""

_BATCH_ROWS = 32_768
"""Readings that are looked at together, which bounds the memory."""
_BATCHES = (16, 2048)


@dataclass(frozen=True, eq=False)
class Readings:
    """Readings of one meter, on a clock of its own.

    Attributes:
        time_s: (m,) ascending, of each reading.
        power_w: (m,).
        spread_w: (m,) what a reading is believed to scatter by, up to a factor for all.
        interval_s: (m,) that a reading is the mean of; `None` where the meter's window is not
            known, and the same for all.
    """

    time_s: np.ndarray
    power_w: np.ndarray
    spread_w: np.ndarray
    interval_s: np.ndarray | None

    @property
    def period_s(self) -> float:
        """Median time between readings."""
        return float(np.median(np.diff(self.time_s)))

    @property
    def unit_window_s(self) -> np.ndarray:
        """(m,) what a window of 1 stands for."""
        return np.ones(len(self.time_s)) if self.interval_s is None else self.interval_s

    def rows(self, which: np.ndarray) -> "Readings":
        """Some of the readings."""
        interval_s = None if self.interval_s is None else self.interval_s[which]
        return Readings(self.time_s[which], self.power_w[which], self.spread_w[which], interval_s)


def most_in_traces(
    design: Design, readings: Readings, delays_s: np.ndarray, longest_s: float
) -> int:
    """How many readings at most may fall into the traces, whatever the delay."""
    # A closer look moves the delay by up to half a window.
    first_s, last_s = design.begin_s[0] + delays_s, design.end_s[-1] + delays_s + longest_s
    counts = np.searchsorted(readings.time_s, last_s) - np.searchsorted(readings.time_s, first_s)
    return int(counts.max())


def profile(
    design: Design,
    readings: Readings,
    points: np.ndarray,
    most: int,
    used: np.ndarray | None = None,
) -> tuple[np.ndarray, np.ndarray]:
    """Score a reading of each delay and window (points, 2), and how many readings it stands on.

    The score is half the logarithm of the variance left unexplained, by what a constant leaves. Of
    a long log only what may fall into the traces is looked at, for each delay another part.
    """
    # Every batch has the same shape, so that one program serves all.
    batch = int(np.clip(_BATCH_ROWS // most, *_BATCHES))
    scores, counts = [], []
    for at in range(0, len(points), batch):
        rows = points[np.minimum(np.arange(at, at + batch), len(points) - 1)]
        score, count = _profile_batch(design, readings, rows, most, used)
        scores.append(score)
        counts.append(count)
    return np.concatenate(scores)[: len(points)], np.concatenate(counts)[: len(points)]


def _profile_batch(
    design: Design, readings: Readings, points: np.ndarray, most: int, used: np.ndarray | None
) -> tuple[np.ndarray, np.ndarray]:
    last = len(readings.time_s) - 1
    begins = np.searchsorted(readings.time_s, design.begin_s[0] + points[:, 0])
    rows = begins[:, None] + np.arange(most)
    known = rows <= last
    rows = np.minimum(rows, last)
    end_s = readings.time_s[rows] - points[:, :1]
    window_s = points[:, 1:] * readings.unit_window_s[rows]
    covered = known & is_covered(design, end_s - window_s, end_s)
    if used is not None:
        covered &= used[rows]
    power_w, spread_w = readings.power_w[rows], readings.spread_w[rows]
    score = _scores(design.energy, design.prior, end_s, window_s, power_w, spread_w, covered)
    return np.asarray(score), covered.sum(axis=1)


@jax.jit
def _scores(energy, prior, end_s, window_s, power_w, spread_w, covered):
    numbers = len(prior)
    weight = jnp.where(covered, 1.0 / spread_w, 0.0)
    columns = metered_w(energy, end_s, 0.0, window_s) * weight[..., None] * prior[None, None]
    reading = power_w * weight
    # In shares of the priors, which are weak beliefs themselves.
    pull = 1.0 / PRIOR_SPREAD**2
    curvature = jnp.einsum("bmp,bmq->bpq", columns, columns) + pull * jnp.eye(numbers)[None]
    toward = jnp.einsum("bmp,bm->bp", columns, reading) + pull
    share = jnp.linalg.solve(curvature, toward[..., None])[..., 0]
    left = reading - jnp.einsum("bmp,bp->bm", columns, share)
    unexplained = (left**2).sum(1) + pull * ((share - 1.0) ** 2).sum(1)
    mean = (reading * weight).sum(1) / jnp.maximum((weight**2).sum(1), 1e-300)
    constant = ((reading - mean[:, None] * weight) ** 2).sum(1)
    count = covered.sum(1, dtype=float)
    # A thousandth of a spread is no difference, and 0 has no logarithm.
    fitted = unexplained / jnp.maximum(count - numbers, 1.0) + 1e-6
    return jnp.log(fitted / (constant / jnp.maximum(count - 1.0, 1.0) + 1e-6)) / 2
