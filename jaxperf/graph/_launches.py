"""What the launches of a trace show, before anything is made of them."""

from dataclasses import dataclass

import numpy as np

from jaxperf.graph._device import calls_by_correlation
from jaxperf.trace import DEVICE_WORK, Trace


@dataclass(frozen=True, slots=True)
class LaunchStatistics:
    """Launches of a rank's device work.

    Attributes:
        linked: pieces of device work whose launch call is in the trace.
        orphans: pieces whose call is not, launched before the capture began as a rule.
        early: linked pieces stamped before their call began: host and device clocks disagree.
        worst_early_us: by how much at most, 0 where none is.
        mean_delay_us: start of the call to start of the work, over those not early; NaN for none.
        longest_queue: most pieces that were launched and had not started.
    """

    linked: int
    orphans: int
    early: int
    worst_early_us: float
    mean_delay_us: float
    longest_queue: int


def launch_statistics(trace: Trace) -> LaunchStatistics:
    """Count and time the launches of a trace, on the clocks as they are written.

    Args:
        trace: the trace.

    Returns:
        The statistics.
    """
    row = np.flatnonzero(np.isin(trace.category, DEVICE_WORK))
    call = calls_by_correlation(trace, trace.correlation[row])
    linked = row[call >= 0]
    launched = trace.start_ns[call[call >= 0]]
    delay = trace.start_ns[linked] - launched
    early = delay < 0
    # Early work is taken to start with its launch, so that no queue is shorter than empty.
    moment = np.concatenate([launched, np.maximum(trace.start_ns[linked], launched)])
    change = np.repeat([1, -1], len(linked))
    waiting = np.cumsum(change[np.lexsort((-change, moment))])
    return LaunchStatistics(
        len(linked),
        len(row) - len(linked),
        int(early.sum()),
        float(-delay.min(initial=0)) / 1e3,
        float(delay[~early].mean()) / 1e3 if (~early).any() else float("nan"),
        int(waiting.max(initial=0)),
    )
