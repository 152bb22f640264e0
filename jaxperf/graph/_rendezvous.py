"""Waiting for other ranks, taken out of the durations of collectives.

A rank that comes early to a collective waits in its kernel for the last. The kernel becomes two
tasks: its arrival, which takes no time and is bound by what bound the kernel; and the transfer,
which starts when every recorded member has arrived. Between the two lies the wait.
"""

from dataclasses import dataclass

import numpy as np

from jaxperf.graph._collectives import Matches

# A collective whose first member ends this long before the last arrives does not wait for it: such
# are broadcasts seen from their root, and one-sided exchanges. As much is allowed as clocks that
# are aligned differ by, within bounds.
_LEAST_TOLERANCE_NS = 10_000
_MOST_TOLERANCE_NS = 50_000
_SPREADS = 8


@dataclass(frozen=True, eq=False)
class Rendezvous:
    """Collectives that wait for their last member.

    Attributes:
        part: (p,) int64, row of `Matches` of each part that takes part.
        hub: (p,) int64, number of the collective it belongs to, from 0.
        arrived_ns: (hubs,) int64, when the last member arrived.
        last: (hubs,) int64, index into `part` of that member.
        early_ns: (hubs,) int64, by how much transfers start before that, at most 0: clocks differ
            by a little even when they are aligned.
        free: number of collectives whose members did not wait for each other.
    """

    part: np.ndarray
    hub: np.ndarray
    arrived_ns: np.ndarray
    last: np.ndarray
    early_ns: np.ndarray
    free: int


def find_rendezvous(
    matches: Matches, start_ns: np.ndarray, end_ns: np.ndarray, uncertainty_ns: np.ndarray
) -> Rendezvous:
    """Tell the collectives that wait for their last member from those that do not.

    Args:
        matches: collectives that ranks have in common.
        start_ns, end_ns: (p,) of each part, on one clock.
        uncertainty_ns: (ranks,) of the clocks.

    Returns:
        Those that wait.
    """
    count = int(matches.match.max(initial=-1)) + 1
    arrived = np.full(count, np.iinfo(np.int64).min)
    np.maximum.at(arrived, matches.match, start_ns)
    left = np.full(count, np.iinfo(np.int64).max)
    np.minimum.at(left, matches.match, end_ns)
    spread = _SPREADS * float(np.nanmax(uncertainty_ns, initial=0.0))
    tolerance = min(_LEAST_TOLERANCE_NS + round(spread), _MOST_TOLERANCE_NS)
    waits = left >= arrived - tolerance
    number = np.cumsum(waits) - 1
    part = np.flatnonzero(waits[matches.match])
    hub = number[matches.match[part]]
    last = np.full(int(waits.sum()), -1)
    is_last = start_ns[part] == arrived[matches.match[part]]
    last[hub[is_last]] = np.flatnonzero(is_last)
    return Rendezvous(
        part,
        hub,
        arrived[waits],
        last,
        np.minimum(0, left - arrived)[waits],
        int((~waits).sum()),
    )
