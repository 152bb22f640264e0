"""One clock for all ranks: a collective ends at the same moment everywhere."""

from dataclasses import dataclass

import numpy as np

from jaxperf.graph._collectives import Matches
from jaxperf.graph._device import DeviceWork

_ROUNDS = 3


@dataclass(frozen=True, eq=False)
class Clocks:
    """What to take from each rank's times to be on the clock of the first.

    Attributes:
        offset_ns: (ranks,) int64, the rank's clock minus the first rank's; 0 where it is not known.
        known: (ranks,) bool, whether collectives join the rank with the first.
        uncertainty_ns: (ranks,) float64, half the spread (median absolute deviation) of the ends
            of its collectives around those of the others; NaN where not known.
        drift_ppm: (ranks,) float64, by how much the offset grows over time; NaN where not known.
    """

    offset_ns: np.ndarray
    known: np.ndarray
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
    ranks = len(works)
    end = np.array(
        [
            int(works[r].end_ns[k]) + origins_ns[r]
            for r, k in zip(matches.rank.tolist(), matches.work.tolist(), strict=True)
        ],
        np.int64,
    )
    table = np.full((ranks, int(matches.match.max(initial=-1)) + 1), np.nan)
    base = int(end.min(initial=0))
    table[matches.rank, matches.match] = end - base
    offset = np.zeros(ranks)
    known = np.zeros(ranks, bool)
    known[0] = True
    # Outward from the first rank, always along the pair that shares most collectives.
    while True:
        shared = (~np.isnan(table[known])).astype(int) @ (~np.isnan(table[~known])).astype(int).T
        if not shared.size or not shared.max():
            break
        a, b = np.unravel_index(int(shared.argmax()), shared.shape)
        r, s = np.flatnonzero(known)[a], np.flatnonzero(~known)[b]
        offset[s] = offset[r] + np.nanmedian(table[s] - table[r])
        known[s] = True
    for _ in range(_ROUNDS):
        others = table - offset[:, None]
        middle = np.full(table.shape[1], np.nan)
        used = (~np.isnan(others)).any(axis=0)
        middle[used] = np.nanmedian(others[:, used], axis=0)
        for r in np.flatnonzero(known)[1:]:
            offset[r] = np.nanmedian(table[r] - middle)
        offset[known] -= np.nanmedian(table[0] - middle) if used.any() else 0.0
        offset[0] = 0.0
    uncertainty, drift = np.full(ranks, np.nan), np.full(ranks, np.nan)
    for r in np.flatnonzero(known):
        rest = table[r] - offset[r] - middle
        good = ~np.isnan(rest)
        if good.sum() >= 2:
            uncertainty[r] = np.median(np.abs(rest[good])) / 2
            drift[r] = 1e6 * np.polyfit(table[r, good], rest[good], 1)[0] if good.sum() > 7 else 0.0
    return Clocks(np.round(offset).astype(np.int64), known, uncertainty, drift)
