"""One clock for all ranks: a collective ends at the same moment everywhere."""

from dataclasses import dataclass

import numpy as np

from jaxperf.graph._collectives import Matches
from jaxperf.graph._device import DeviceWork

_ROUNDS = 3
# Fewer collectives tell no trend.
_FEW_FOR_DRIFT = 4
# And more tell it no better.
_MOST_FOR_DRIFT = 400


@dataclass(frozen=True, eq=False)
class Clocks:
    """What to take from each rank's times to be on one clock.

    Ranks that share collectives, directly or through others, form a group; the first rank of a
    group is its measure.

    Attributes:
        group: (ranks,) int64, index of the first rank of each rank's group.
        offset_ns: (ranks,) int64, the rank's clock minus that of the first of its group.
        uncertainty_ns: (ranks,) float64, half the spread (median absolute deviation) of the ends
            of its collectives around those of the others; NaN where it shares fewer than two.
        drift_ppm: (ranks,) float64, by how much the offset grows over time; NaN where too few
            collectives tell.
    """

    group: np.ndarray
    offset_ns: np.ndarray
    uncertainty_ns: np.ndarray
    drift_ppm: np.ndarray


def align_clocks(works: list[DeviceWork], origins_ns: list[int], matches: Matches) -> Clocks:
    """Find the offset of every rank's clock from the ends of the collectives they share.

    Medians over all shared collectives: a capture that begins or ends within a collective, and a
    few wrong matches, do no harm.

    Args:
        works: device work of the ranks, each on a clock that starts at its origin.
        origins_ns: the origins.
        matches: collectives that ranks have in common.

    Returns:
        The offsets.
    """
    ends = _end_table(works, origins_ns, matches)
    group, offset, drift = _outward(ends)
    offset, middle = _settled(ends, group, offset)
    late = ends - offset[:, None] - middle
    uncertainty = np.full(len(works), np.nan)
    for r in range(len(works)):
        good = ~np.isnan(late[r])
        if good.sum() >= 2:
            uncertainty[r] = np.median(np.abs(late[r, good])) / 2
    return Clocks(group, np.round(offset).astype(np.int64), uncertainty, 1e6 * drift)


def _end_table(works: list[DeviceWork], origins_ns: list[int], matches: Matches) -> np.ndarray:
    """(ranks, matches) float64, end of each part from the first of all; NaN where there is none."""
    end = np.array(
        [
            int(works[r].end_ns[k]) + origins_ns[r]
            for r, k in zip(matches.rank.tolist(), matches.work.tolist(), strict=True)
        ],
        np.int64,
    )
    # Of nanoseconds since 1970 a float64 would keep only every 256th.
    base = int(end.min()) if len(end) else 0
    table = np.full((len(works), len(matches.by_arguments)), np.nan)
    table[matches.rank, matches.match] = end - base
    return table


def _outward(ends: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Group, offset and drift of each rank, outward from the first along pairs that share most."""
    ranks = len(ends)
    present = (~np.isnan(ends)).astype(np.int64)
    shared = present @ present.T
    group, offset, drift = np.full(ranks, -1), np.zeros(ranks), np.zeros(ranks)
    for first in range(ranks):
        if group[first] >= 0:
            continue
        group[first] = first
        while True:
            inside, outside = np.flatnonzero(group == first), np.flatnonzero(group < 0)
            counts = shared[np.ix_(inside, outside)]
            if not counts.size or not counts.max():
                break
            a, b = np.unravel_index(int(counts.argmax()), counts.shape)
            known, new = inside[a], outside[b]
            offset[new] = offset[known] + np.nanmedian(ends[new] - ends[known])
            drift[new] = drift[known] + _slope(ends[known], ends[new] - ends[known])
            group[new] = first
    return group, offset, drift


def _slope(times: np.ndarray, apart: np.ndarray) -> float:
    """Median slope over all pairs (Theil and Sen), which a few wrong ends do not move."""
    good = np.flatnonzero(~np.isnan(apart))
    if len(good) < _FEW_FOR_DRIFT:
        return float("nan")
    good = good[:: -(-len(good) // _MOST_FOR_DRIFT)]
    first, second = np.triu_indices(len(good), 1)
    first, second = good[first], good[second]
    between = times[second] - times[first]
    apart_in_time = between != 0
    rise = apart[second] - apart[first]
    return float(np.median(rise[apart_in_time] / between[apart_in_time]))


def _settled(
    ends: np.ndarray, group: np.ndarray, offset: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Offsets against the middle of all ranks, and (matches,) that middle on the first's clock."""
    middle = np.full(ends.shape[1], np.nan)
    for _ in range(_ROUNDS):
        used = (~np.isnan(ends)).any(axis=0)
        middle[used] = np.nanmedian((ends - offset[:, None])[:, used], axis=0)
        apart = ends - middle
        seen = (~np.isnan(apart)).any(axis=1)
        offset = np.where(seen, np.array([_median(row) for row in apart]), offset)
        offset = offset - offset[group]
    used = (~np.isnan(ends)).any(axis=0)
    middle[used] = np.nanmedian((ends - offset[:, None])[:, used], axis=0)
    return offset, middle


def _median(values: np.ndarray) -> float:
    known = values[~np.isnan(values)]
    return float(np.median(known)) if len(known) else 0.0
