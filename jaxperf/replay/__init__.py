"""Replay a program: the scan, its gradient, and what follows from the timeline."""

from typing import TYPE_CHECKING

from jaxperf._lazy import lazy_names
from jaxperf.replay._breakdown import (
    DeviceActivity as DeviceActivity,
    communication_overlap_us as communication_overlap_us,
    device_activity as device_activity,
    mean_breakdown as mean_breakdown,
    on_device_us as on_device_us,
)
from jaxperf.replay._compare import (
    choose_steps as choose_steps,
    measured_timeline as measured_timeline,
    replayed_span_us as replayed_span_us,
    steady_breakdown as steady_breakdown,
    steady_weights as steady_weights,
    step_names as step_names,
)
from jaxperf.replay._critical import (
    CriticalPath as CriticalPath,
    binding_dependencies as binding_dependencies,
    critical_path_us_by_class as critical_path_us_by_class,
    path_to as path_to,
)
from jaxperf.replay._notes import replay_notes as replay_notes
from jaxperf.replay._precision import double_precision as double_precision
from jaxperf.replay._sensitivity import (
    Sensitivities as Sensitivities,
    sensitivities as sensitivities,
    step_weights as step_weights,
    sum_by_class as sum_by_class,
    sum_by_name as sum_by_name,
    sum_by_rank as sum_by_rank,
)
from jaxperf.replay._slack import slack_us as slack_us
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
from jaxperf.replay._variation import (
    Variation as Variation,
    duration_variation as duration_variation,
    task_shapes as task_shapes,
)
from jaxperf.replay._verb import replay as replay, replay_graph as replay_graph

if TYPE_CHECKING:
    from jaxperf.replay._batch import (
        ScaledProgram as ScaledProgram,
        ScenarioTimes as ScenarioTimes,
        replay_scenarios as replay_scenarios,
        scale_groups as scale_groups,
    )
    from jaxperf.replay._contention import (
        ClassSlowdown as ClassSlowdown,
        Contention as Contention,
        fit_contention as fit_contention,
    )
    from jaxperf.replay._times import (
        CHUNK as CHUNK,
        in_chunks as in_chunks,
        makespan_us as makespan_us,
        milestones as milestones,
        start_times_us as start_times_us,
        step_times_us as step_times_us,
    )
    from jaxperf.replay._worlds import (
        Worlds as Worlds,
        prepare_worlds as prepare_worlds,
        steady_step_us as steady_step_us,
        world_steps_us as world_steps_us,
        world_timelines as world_timelines,
    )

# What computes with jax is imported when it is first used: `jaxperf --help` need not wait for it.
_MODULES = {
    "CHUNK": "jaxperf.replay._times",
    "ClassSlowdown": "jaxperf.replay._contention",
    "Contention": "jaxperf.replay._contention",
    "ScaledProgram": "jaxperf.replay._batch",
    "ScenarioTimes": "jaxperf.replay._batch",
    "Worlds": "jaxperf.replay._worlds",
    "fit_contention": "jaxperf.replay._contention",
    "in_chunks": "jaxperf.replay._times",
    "makespan_us": "jaxperf.replay._times",
    "milestones": "jaxperf.replay._times",
    "prepare_worlds": "jaxperf.replay._worlds",
    "replay_scenarios": "jaxperf.replay._batch",
    "scale_groups": "jaxperf.replay._batch",
    "start_times_us": "jaxperf.replay._times",
    "steady_step_us": "jaxperf.replay._worlds",
    "step_times_us": "jaxperf.replay._times",
    "world_steps_us": "jaxperf.replay._worlds",
    "world_timelines": "jaxperf.replay._worlds",
}

__getattr__, __dir__ = lazy_names(__name__, _MODULES)
