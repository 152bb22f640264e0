"""Replay a program: the scan, its gradient, and what follows from the timeline."""

from jaxperf.replay._types import (
    Breakdown as Breakdown,
    HoldOut as HoldOut,
    RankSummary as RankSummary,
    Replay as Replay,
    TimeComparison as TimeComparison,
    Timeline as Timeline,
)
from jaxperf.replay._verb import replay as replay
