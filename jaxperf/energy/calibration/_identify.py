"""What a log tells: which numbers, which sums of numbers, and which it cannot."""

import numpy as np

from jaxperf.energy.calibration._clock_profile import PRIOR_SPREAD
from jaxperf.energy.calibration._design import Design
from jaxperf.energy.calibration._fit import Posterior
from jaxperf.energy.calibration._types import FittedPower, SeenSum, Told

Z = 1.645
"""Standard normal: 90 % lie within so many standard deviations."""

_TOLD_WITHIN = 0.03
"""A number is told by the log where its interval, its own prior left out, is within this of it."""

_PRIOR_LEFT = 0.9
"""The log says nothing of a number of which it leaves so much of the variance believed before."""

_TOGETHER = 0.7
"""Numbers that the log does not tell belong together where their errors correlate so much."""

_SAME_COLUMN = 1.0 - 1e-9


def parameters_of(design: Design, posterior: Posterior) -> tuple[FittedPower, ...]:
    """Each number of a fit, with its interval and what tells it."""
    told = _words(design, posterior)
    spread = np.sqrt(np.diag(posterior.covariance))
    found = [
        FittedPower(
            key,
            float(design.prior[i]),
            float(posterior.value[i]),
            (
                float(max(posterior.value[i] - Z * spread[i], 0.0)),
                float(posterior.value[i] + Z * spread[i]),
            ),
            told[i],
        )
        for i, key in enumerate(design.keys)
    ]
    return tuple(found)


def sums_of(design: Design, posterior: Posterior) -> tuple[SeenSum, ...]:
    """Groups of numbers that the log tells only together.

    Of what the log does not tell, those are together that add to every reading in the same
    proportion, or whose errors make up for each other; their sum is what they add to the mean
    reading, and counts where the log tells it as well as a number.
    """
    untold = np.flatnonzero(~_told(design, posterior))
    length = np.maximum(np.linalg.norm(posterior.columns, axis=0), 1e-300)
    same = (posterior.columns / length).T @ (posterior.columns / length) > _SAME_COLUMN
    spread = np.maximum(np.sqrt(np.diag(posterior.covariance)), 1e-300)
    linked = same | (posterior.covariance / np.outer(spread, spread) < -_TOGETHER)
    mean_w = posterior.mean_w * posterior.value
    found = []
    for group in _components(linked[np.ix_(untold, untold)]):
        members = untold[group]
        weight = np.zeros(len(design.keys))
        weight[members] = posterior.mean_w[members]
        power_w = float(mean_w[members].sum())
        spread_w = float(np.sqrt(max(weight @ posterior.covariance @ weight, 0.0)))
        if len(members) > 1 and Z * spread_w <= _TOLD_WITHIN * power_w:
            keys = tuple(design.keys[i] for i in members.tolist())
            interval_w = (max(power_w - Z * spread_w, 0.0), power_w + Z * spread_w)
            found.append(SeenSum(keys, tuple(mean_w[members].tolist()), power_w, interval_w))
    return tuple(found)


def condition_of(design: Design, posterior: Posterior) -> float:
    """Largest by smallest change of the readings that the numbers, in shares of their priors, make.

    Infinite where a change of the numbers changes no reading.
    """
    values = np.linalg.svd(posterior.columns * design.prior, compute_uv=False)
    tiny = values[0] * 1e-12
    short = len(values) < len(design.keys) or values[-1] <= tiny
    return float("inf") if short else float(values[0] / values[-1])


def _words(design: Design, posterior: Posterior) -> list[Told]:
    """Of each number, what tells it."""
    in_sums = {key for each in sums_of(design, posterior) for key in each.keys}
    within, left = _told(design, posterior), _variance_left(design, posterior)
    return [
        "log"
        if within[i]
        else "sum"
        if key in in_sums
        else "loosely"
        if left[i] < _PRIOR_LEFT
        else "prior"
        for i, key in enumerate(design.keys)
    ]


def _told(design: Design, posterior: Posterior) -> np.ndarray:
    """(numbers,) bool, whether the log tells each to within `_TOLD_WITHIN`."""
    # What its own prior says of a number is no news: taken out, the readings' part is left.
    of_log = np.maximum(1.0 - _variance_left(design, posterior), 1e-12)
    of_readings = np.diag(posterior.covariance) / of_log
    return Z * np.sqrt(of_readings) <= _TOLD_WITHIN * posterior.value


def _variance_left(design: Design, posterior: Posterior) -> np.ndarray:
    """(numbers,) of the variance that was believed before, the part that the log leaves."""
    believed = (PRIOR_SPREAD * np.maximum(design.prior, posterior.value)) ** 2
    return np.diag(posterior.covariance) / believed


def _components(linked: np.ndarray) -> list[np.ndarray]:
    """Groups of places that are linked, directly or through others."""
    left, found = set(range(len(linked))), []
    while left:
        group, new = set(), {min(left)}
        while new:
            group |= new
            new = {int(j) for i in new for j in np.flatnonzero(linked[i])} & left - group
        left -= group
        found.append(np.array(sorted(group)))
    return found
