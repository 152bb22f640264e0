"""Trace-driven performance modelling of training runs, differentiable, in JAX."""

import importlib
from typing import TYPE_CHECKING

from jaxperf.errors import (
    ConfigError as ConfigError,
    GraphError as GraphError,
    JaxperfError as JaxperfError,
    OutputError as OutputError,
    ProgramError as ProgramError,
    TraceError as TraceError,
)

# `jaxperf.replay` is the verb. Python binds a sub-package on its parent only when it is first
# imported, which is here, so no later import puts the package back in the verb's place.
from jaxperf.replay import replay as replay

if TYPE_CHECKING:
    from jaxperf.compiled import (
        Program as Program,
        compile_program as compile_program,
    )
    from jaxperf.demonstration import (
        Demo as Demo,
        demo as demo,
    )
    from jaxperf.graph import (
        ExecutionGraph as ExecutionGraph,
        build_graph as build_graph,
    )
    from jaxperf.inspection import (
        Inspection as Inspection,
        inspect as inspect,
    )
    from jaxperf.replay import (
        Replay as Replay,
        ScaledProgram as ScaledProgram,
        ScenarioTimes as ScenarioTimes,
        SmOccupation as SmOccupation,
        StepBreakdown as StepBreakdown,
        Timeline as Timeline,
        Utilization as Utilization,
        makespan_us as makespan_us,
        replay_graph as replay_graph,
        replay_scenarios as replay_scenarios,
        scale_groups as scale_groups,
        sm_utilization as sm_utilization,
        start_times_us as start_times_us,
        step_times_us as step_times_us,
    )
    from jaxperf.report import (
        inspection_to_json as inspection_to_json,
        print_inspection as print_inspection,
        print_replay as print_replay,
        replay_to_json as replay_to_json,
        write_report as write_report,
        write_trace as write_trace,
    )
    from jaxperf.trace import (
        Note as Note,
        Run as Run,
        Trace as Trace,
        read_run as read_run,
    )

    __version__: str

# Where each of the names above is found when it is first used: `import jaxperf` loads neither jax
# nor what only some verbs need.
_MODULES = {
    "Demo": "jaxperf.demonstration",
    "ExecutionGraph": "jaxperf.graph",
    "Inspection": "jaxperf.inspection",
    "Note": "jaxperf.trace",
    "Program": "jaxperf.compiled",
    "Replay": "jaxperf.replay",
    "Run": "jaxperf.trace",
    "ScaledProgram": "jaxperf.replay",
    "ScenarioTimes": "jaxperf.replay",
    "SmOccupation": "jaxperf.replay",
    "StepBreakdown": "jaxperf.replay",
    "Timeline": "jaxperf.replay",
    "Trace": "jaxperf.trace",
    "Utilization": "jaxperf.replay",
    "build_graph": "jaxperf.graph",
    "compile_program": "jaxperf.compiled",
    "demo": "jaxperf.demonstration",
    "inspect": "jaxperf.inspection",
    "inspection_to_json": "jaxperf.report",
    "makespan_us": "jaxperf.replay",
    "print_inspection": "jaxperf.report",
    "print_replay": "jaxperf.report",
    "read_run": "jaxperf.trace",
    "replay_graph": "jaxperf.replay",
    "replay_scenarios": "jaxperf.replay",
    "replay_to_json": "jaxperf.report",
    "scale_groups": "jaxperf.replay",
    "sm_utilization": "jaxperf.replay",
    "start_times_us": "jaxperf.replay",
    "step_times_us": "jaxperf.replay",
    "write_report": "jaxperf.report",
    "write_trace": "jaxperf.report",
}


def __getattr__(name: str):
    if name == "__version__":
        from importlib.metadata import version

        return version("jaxperf")
    if name not in _MODULES:
        raise AttributeError(f"module 'jaxperf' has no attribute {name!r}")
    return getattr(importlib.import_module(_MODULES[name]), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *_MODULES, "__version__"})
