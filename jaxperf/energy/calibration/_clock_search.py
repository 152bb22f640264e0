"""How the clock of a log stands to that of the traces: a grid of delays and windows, ever finer."""

from dataclasses import dataclass, replace

import numpy as np

from jaxperf.energy.calibration._clock_profile import Readings, most_in_traces, profile
from jaxperf.energy.calibration._design import Design, is_covered
from jaxperf.replay import double_precision

_STEPS_S = (0.02, 0.1)
_MOST_LOOKED_AT = 30_000_000
"""Readings at all points of the grid together, beyond which its delays are further apart."""
_FINE_MIDDLES = 33
_FINE_WINDOWS = 16
_SHORTEST_WINDOW_S = 0.02
_LONGEST_WINDOW_S = 1.5
_WINDOWS = 8
_ASIDE = 2
"""Places in the grid of windows by which a closer look may find another."""
_CLOSER = 5
_STARTS = 3
NEARLY_AS_GOOD = 3.0
"""Logarithm of a likelihood ratio: of two delays, one is as good as ruled out beyond it."""
_LEAST_SHARE = 0.5
"""Delays at which fewer of the readings fall into the traces are not compared with the others."""


@dataclass(frozen=True, eq=False)
class ClockStart:
    """A delay and window of the meter that may be the true ones.

    Attributes:
        delay_s, window: of the meter; the mean over the neighbourhood, by likelihood.
        delay_spread_s, window_spread: standard deviations there.
        unit_s: what a window of 1 stands for, in the median.
        middles_s: limits of the delay and half the window together.
        windows: limits of the window.
        used: (m,) readings whose windows lie in the traces wherever they move.
        score: lower is better: the negative logarithm of a likelihood, on the readings that the
            first start stands on too; where these are few, as if all starts had as many readings.
    """

    delay_s: float
    window: float
    delay_spread_s: float
    window_spread: float
    unit_s: float
    middles_s: tuple[float, float]
    windows: tuple[float, float]
    used: np.ndarray
    score: float


def clock_starts(
    design: Design,
    readings: Readings,
    least_s: float,
    most_s: float,
    expected_s: float | None = None,
) -> list[ClockStart]:
    """The most likely delays and windows of a meter, the best first.

    Args:
        design: of the fit.
        readings: of the meter.
        least_s, most_s: of the delay.
        expected_s: the delay if the clocks agree, which is the first where it is nearly as likely
            as any: steps that are alike fit a step later as well. `None` where they cannot agree.

    Returns:
        At most four, each the best of its neighbourhood; none where no reading is in the traces.
    """
    windows = _windows(design, readings)
    longest_s = windows[-1] * float(readings.unit_window_s.max())
    delays_s = _delays_s(design, readings, (least_s, most_s), len(windows), longest_s)
    if not len(delays_s):
        return []
    if expected_s is not None and least_s <= expected_s <= most_s:
        delays_s = np.sort(np.append(delays_s, expected_s))
    else:
        expected_s = None
    most = most_in_traces(design, readings, delays_s, longest_s)
    points = np.stack(np.meshgrid(delays_s, windows, indexing="ij"), axis=-1)
    with double_precision():
        score, count = profile(design, readings, points.reshape(-1, 2), most)
        score, count = score.reshape(points.shape[:2]), count.reshape(points.shape[:2])
        score = np.where(count >= max(_LEAST_SHARE * count.max(initial=0), 1), score, np.inf)
        best = score.argmin(axis=1)
        lowest = score.min(axis=1)
        if not np.isfinite(lowest).any():
            return []
        rows = _valleys(lowest, delays_s, readings.period_s)
        if expected_s is not None:
            agree = int(np.searchsorted(delays_s, expected_s))
            near = np.abs(delays_s[rows] - expected_s) <= readings.period_s
            rows += [agree] if np.isfinite(lowest[agree]) and not near.any() else []
        starts = [
            _neighbourhood(design, readings, delays_s[row], windows, best[row], most)
            for row in rows
        ]
        starts = [start for start in starts if start.used.any()]
        return _expected_first(_compared(design, readings, starts, most), expected_s)


def _delays_s(
    design: Design,
    readings: Readings,
    range_s: tuple[float, float],
    windows: int,
    longest_s: float,
) -> np.ndarray:
    """The delays to look at, of those at which any reading falls into the traces.

    Apart by a quarter of what readings are, where that is not too many: short steps have narrow
    valleys, which a coarser grid misses.
    """
    least_s, most_s = range_s
    period_s = readings.period_s
    least_s = max(least_s, readings.time_s[0] - design.end_s[-1] - longest_s)
    most_s = min(most_s, readings.time_s[-1] - design.begin_s[0])
    if least_s > most_s:
        return np.zeros(0)
    coarse_s = float(np.clip(period_s / 4, *_STEPS_S))
    coarse = _evenly(least_s, most_s, coarse_s)
    most = most_in_traces(design, readings, coarse, longest_s)
    if not most:
        return np.zeros(0)
    looked_at = most * windows * (most_s - least_s) / _MOST_LOOKED_AT
    return _evenly(least_s, most_s, min(max(period_s / 4, looked_at), coarse_s))


def _evenly(least: float, most: float, step: float) -> np.ndarray:
    return np.linspace(least, most, max(int(np.ceil((most - least) / step)), 1) + 1)


def _expected_first(starts: list[ClockStart], expected_s: float | None) -> list[ClockStart]:
    if expected_s is None or not starts:
        return starts
    place = min(range(len(starts)), key=lambda i: abs(starts[i].delay_s - expected_s))
    found = starts[place]
    # Within its neighbourhood, and not a step away.
    around = found.middles_s[1] - found.middles_s[0]
    if abs(found.delay_s - expected_s) > around:
        return starts
    if found.score - starts[0].score >= NEARLY_AS_GOOD:
        return starts
    return [found, *starts[:place], *starts[place + 1 :]]


def _compared(
    design: Design, readings: Readings, starts: list[ClockStart], most: int
) -> list[ClockStart]:
    """The starts by their scores, those of the others on the readings of the first."""
    starts = sorted(starts, key=lambda start: start.score)
    if not starts or not np.isfinite(starts[0].score):
        return starts
    best, *others = starts
    scores = [best.score + _less_likely(design, readings, best, each, most) for each in others]
    found = [best, *(replace(each, score=s) for each, s in zip(others, scores, strict=True))]
    return sorted(found, key=lambda start: start.score)


def _less_likely(
    design: Design, readings: Readings, best: ClockStart, other: ClockStart, most: int
) -> float:
    """By what the score of another start is higher, of the readings that both stand on."""
    both = best.used & other.used
    if both.sum() < _LEAST_SHARE * best.used.sum():
        return other.score - best.score
    # Which readings a delay leaves out changes what a constant leaves unexplained: of steps that
    # are alike, by more than what tells one delay from another.
    points = np.array([[each.delay_s, each.window] for each in (best, other)])
    score, count = profile(design, readings, points, most, both)
    return float(count[1] * score[1] - count[0] * score[0])


def _windows(design: Design, readings: Readings) -> np.ndarray:
    """Windows that a meter is believed to have, shorter than its runs, apart by the same factor."""
    if readings.interval_s is not None:
        return np.ones(1)
    longest_s = min(max(_LONGEST_WINDOW_S, 1.5 * readings.period_s), _span_s(design) / 4)
    return np.geomspace(min(_SHORTEST_WINDOW_S, longest_s / 2), longest_s, _WINDOWS)


def _span_s(design: Design) -> float:
    return float((design.end_s - design.begin_s).sum())


def _valleys(score: np.ndarray, delays_s: np.ndarray, apart_s: float) -> list[int]:
    """Places of the lowest values, no two of delays closer than so much."""
    found: list[int] = []
    for row in np.argsort(score).tolist():
        if len(found) == _STARTS or not np.isfinite(score[row]):
            break
        if all(abs(delays_s[row] - delays_s[other]) > apart_s for other in found):
            found.append(row)
    return found


def _neighbourhood(
    design: Design,
    readings: Readings,
    delay_s: float,
    windows: np.ndarray,
    best: int,
    most: int,
) -> ClockStart:
    """What is likely around one point of the grid, looked at ever closer.

    Where readings are sparse and windows short, the likelihood is flat between the moments at which
    a change of power passes from one reading to the next: its mean lies in the middle, where a
    descent would stop anywhere. And steps of training give it many small valleys.
    """
    unit_s = float(np.median(readings.unit_window_s))
    window = windows[best]
    shortest = windows[max(best - _ASIDE, 0)]
    longest = windows[min(best + _ASIDE, len(windows) - 1)]
    # The middle of a window is told far better than its ends.
    mean = np.array([delay_s + window * unit_s / 2, (shortest + longest) / 2])
    half = np.array([min(readings.period_s / 2, _span_s(design) / 20), (longest - shortest) / 2])
    late_s, early_s = mean[0] + half[0], mean[0] - half[0]
    half_window_s = longest * readings.unit_window_s / 2
    used = is_covered(
        design,
        readings.time_s - late_s - half_window_s,
        readings.time_s - early_s + half_window_s,
    )
    start = ClockStart(
        delay_s=delay_s,
        window=window,
        delay_spread_s=np.inf,
        window_spread=np.inf,
        unit_s=unit_s,
        middles_s=(early_s, late_s),
        windows=(shortest, longest),
        used=used,
        score=np.inf,
    )
    freedom = int(used.sum()) - len(design.keys)
    if freedom <= 0:
        return start
    for _ in range(_CLOSER):
        grid, spacing = _grid(mean, half, start.windows)
        points = np.stack([grid[:, 0] - grid[:, 1] * unit_s / 2, grid[:, 1]], axis=1)
        score, _ = profile(design, readings, points, most, used)
        likelihood = np.exp(freedom * (score.min() - score))
        likelihood /= likelihood.sum()
        mean = likelihood @ grid
        spread = np.sqrt(likelihood @ (grid - mean) ** 2)
        at = likelihood @ points
        around = np.sqrt(likelihood @ (points - at) ** 2)
        start = replace(
            start,
            delay_s=float(at[0]),
            window=float(at[1]),
            delay_spread_s=float(around[0]),
            window_spread=float(around[1]),
            score=float(most * score.min()),
        )
        if (spread >= spacing).all():
            break
        half = np.minimum(half, np.maximum(3 * spread, 2 * spacing))
    return start


def _grid(
    mean: np.ndarray, half: np.ndarray, window_range: tuple[float, float]
) -> tuple[np.ndarray, np.ndarray]:
    """(points, 2) middles and windows around a mean, and how far apart they are."""
    middles_s = mean[0] + half[0] * np.linspace(-1.0, 1.0, _FINE_MIDDLES)
    low, high = np.clip([mean[1] - half[1], mean[1] + half[1]], *window_range)
    windows = np.linspace(low, high, _FINE_WINDOWS) if high > low else np.array([low])
    spacing = np.array([middles_s[1] - middles_s[0], (high - low) / (_FINE_WINDOWS - 1)])
    return np.stack(np.meshgrid(middles_s, windows, indexing="ij"), axis=-1).reshape(-1, 2), spacing
