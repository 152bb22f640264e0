"""Replay a program: the scan, its gradient, and what follows from the timeline."""

from jaxperf.replay._types import Breakdown as Breakdown
from jaxperf.replay._types import HoldOut as HoldOut
from jaxperf.replay._types import RankSummary as RankSummary
from jaxperf.replay._types import Replay as Replay
from jaxperf.replay._types import TimeComparison as TimeComparison
from jaxperf.replay._types import Timeline as Timeline
