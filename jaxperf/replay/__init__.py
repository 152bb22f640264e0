"""Replay a program: the scan, its gradient, and what follows from the timeline."""

import importlib
from typing import TYPE_CHECKING

from jaxperf.replay._types import (
    Breakdown as Breakdown,
    HoldOut as HoldOut,
    RankSummary as RankSummary,
    Replay as Replay,
    TimeComparison as TimeComparison,
    Timeline as Timeline,
)
from jaxperf.replay._verb import replay as replay

if TYPE_CHECKING:
    from jaxperf.replay._times import (
        makespan_us as makespan_us,
        start_times_us as start_times_us,
        step_times_us as step_times_us,
    )

# What computes with jax is imported when it is first used: `jaxperf --help` need not wait for it.
_MODULES = {
    "makespan_us": "jaxperf.replay._times",
    "start_times_us": "jaxperf.replay._times",
    "step_times_us": "jaxperf.replay._times",
}


def __getattr__(name: str):
    if name not in _MODULES:
        raise AttributeError(f"module 'jaxperf.replay' has no attribute {name!r}")
    return getattr(importlib.import_module(_MODULES[name]), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *_MODULES})
