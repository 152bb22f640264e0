"""Replay a program: the scan, its gradient, and what follows from the timeline."""

import importlib
from typing import TYPE_CHECKING

from jaxperf.replay._critical import (
    CriticalPath as CriticalPath,
    binding_dependencies as binding_dependencies,
    critical_path as critical_path,
    critical_path_us_by_class as critical_path_us_by_class,
)
from jaxperf.replay._types import (
    Breakdown as Breakdown,
    HoldOut as HoldOut,
    RankSummary as RankSummary,
    Replay as Replay,
    StepBreakdown as StepBreakdown,
    TimeComparison as TimeComparison,
    Timeline as Timeline,
)
from jaxperf.replay._utilization import (
    SmOccupation as SmOccupation,
    Utilization as Utilization,
    sm_utilization as sm_utilization,
)
from jaxperf.replay._verb import replay as replay, replay_graph as replay_graph

if TYPE_CHECKING:
    from jaxperf.replay._batch import (
        ScaledProgram as ScaledProgram,
        ScenarioTimes as ScenarioTimes,
        replay_scenarios as replay_scenarios,
        scale_groups as scale_groups,
    )
    from jaxperf.replay._times import (
        makespan_us as makespan_us,
        start_times_us as start_times_us,
        step_times_us as step_times_us,
    )

# What computes with jax is imported when it is first used: `jaxperf --help` need not wait for it.
_MODULES = {
    "ScaledProgram": "jaxperf.replay._batch",
    "ScenarioTimes": "jaxperf.replay._batch",
    "makespan_us": "jaxperf.replay._times",
    "replay_scenarios": "jaxperf.replay._batch",
    "scale_groups": "jaxperf.replay._batch",
    "start_times_us": "jaxperf.replay._times",
    "step_times_us": "jaxperf.replay._times",
}


def __getattr__(name: str):
    if name not in _MODULES:
        raise AttributeError(f"module 'jaxperf.replay' has no attribute {name!r}")
    return getattr(importlib.import_module(_MODULES[name]), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *_MODULES})
