"""Trace-driven performance modelling of training runs, differentiable, in JAX."""

import sys
from types import ModuleType
from typing import TYPE_CHECKING, Any

from jaxperf._lazy import lazy_names

if TYPE_CHECKING:
    from jaxperf.calibrate import Calibration as Calibration, calibrate as calibrate
    from jaxperf.capture import capture as capture
    from jaxperf.comparison import (
        Comparison as Comparison,
        compare as compare,
    )
    from jaxperf.compiled import (
        Program as Program,
        compile_program as compile_program,
    )
    from jaxperf.config import (
        Hardware as Hardware,
        Job as Job,
        Scenario as Scenario,
        SearchSpace as SearchSpace,
        built_in_jobs as built_in_jobs,
        load_hardware as load_hardware,
        load_job as load_job,
        load_scenarios as load_scenarios,
        load_space as load_space,
        set_job as set_job,
        usual_space as usual_space,
    )
    from jaxperf.cost import (
        CostModel as CostModel,
        Fit as Fit,
        Work as Work,
        cost_us as cost_us,
        default_model as default_model,
        fitted_model as fitted_model,
        load_fit as load_fit,
        task_work as task_work,
    )
    from jaxperf.critical_path import (
        CriticalPathReport as CriticalPathReport,
        critical_path as critical_path,
    )
    from jaxperf.demonstration import (
        Demo as Demo,
        demo as demo,
    )
    from jaxperf.errors import (
        ConfigError as ConfigError,
        GraphError as GraphError,
        JaxperfError as JaxperfError,
        LogError as LogError,
        OutputError as OutputError,
        ProgramError as ProgramError,
        TraceError as TraceError,
    )
    from jaxperf.estimate import Estimate as Estimate, estimate as estimate
    from jaxperf.graph import (
        ExecutionGraph as ExecutionGraph,
        build_graph as build_graph,
        load_classes as load_classes,
        select_tasks as select_tasks,
    )
    from jaxperf.inspection import (
        Inspection as Inspection,
        inspect as inspect,
    )
    from jaxperf.interchange import (
        Export as Export,
        Table as Table,
        dependency_table as dependency_table,
        export as export,
        read_chakra as read_chakra,
        step_table as step_table,
        task_table as task_table,
        write_chakra as write_chakra,
        write_tables as write_tables,
    )
    from jaxperf.replay import (
        Replay as Replay,
        ScaledProgram as ScaledProgram,
        ScenarioTimes as ScenarioTimes,
        Sensitivities as Sensitivities,
        SmOccupation as SmOccupation,
        StepBreakdown as StepBreakdown,
        Timeline as Timeline,
        Utilization as Utilization,
        makespan_us as makespan_us,
        replay as replay,
        replay_graph as replay_graph,
        replay_scenarios as replay_scenarios,
        scale_groups as scale_groups,
        sensitivities as sensitivities,
        slack_us as slack_us,
        sm_utilization as sm_utilization,
        start_times_us as start_times_us,
        step_times_us as step_times_us,
    )
    from jaxperf.report import (
        calibration_to_json as calibration_to_json,
        comparison_to_json as comparison_to_json,
        critical_path_to_json as critical_path_to_json,
        estimate_to_json as estimate_to_json,
        export_to_json as export_to_json,
        inspection_to_json as inspection_to_json,
        print_calibration as print_calibration,
        print_comparison as print_comparison,
        print_critical_path as print_critical_path,
        print_estimate as print_estimate,
        print_export as print_export,
        print_inspection as print_inspection,
        print_replay as print_replay,
        print_search as print_search,
        print_whatif as print_whatif,
        replay_to_json as replay_to_json,
        search_to_json as search_to_json,
        whatif_to_json as whatif_to_json,
        write_fit as write_fit,
        write_report as write_report,
        write_trace as write_trace,
    )
    from jaxperf.search import SearchResult as SearchResult, search as search
    from jaxperf.trace import (
        Note as Note,
        Run as Run,
        Trace as Trace,
        read_run as read_run,
    )
    from jaxperf.whatif import (
        ScenarioAnswer as ScenarioAnswer,
        WhatIf as WhatIf,
        answer_scenarios as answer_scenarios,
        hardware_sensitivities as hardware_sensitivities,
        whatif as whatif,
    )
    from jaxperf.workload import (
        JobMemory as JobMemory,
        StepParameters as StepParameters,
        batched_step_us as batched_step_us,
        closed_form_step_us as closed_form_step_us,
        default_step_parameters as default_step_parameters,
        job_memory as job_memory,
        job_times as job_times,
        launch_command as launch_command,
        megatron_arguments as megatron_arguments,
        prepare_job as prepare_job,
        torchtitan_config as torchtitan_config,
    )

    __version__: str

# Where each of the names above is found when it is first used: `import jaxperf` loads neither jax
# nor what only some verbs need.
_MODULES = {
    "Calibration": "jaxperf.calibrate",
    "Comparison": "jaxperf.comparison",
    "ConfigError": "jaxperf.errors",
    "CostModel": "jaxperf.cost",
    "CriticalPathReport": "jaxperf.critical_path",
    "Demo": "jaxperf.demonstration",
    "Estimate": "jaxperf.estimate",
    "ExecutionGraph": "jaxperf.graph",
    "Export": "jaxperf.interchange",
    "Fit": "jaxperf.cost",
    "GraphError": "jaxperf.errors",
    "Hardware": "jaxperf.config",
    "Inspection": "jaxperf.inspection",
    "JaxperfError": "jaxperf.errors",
    "Job": "jaxperf.config",
    "JobMemory": "jaxperf.workload",
    "LogError": "jaxperf.errors",
    "Note": "jaxperf.trace",
    "OutputError": "jaxperf.errors",
    "Program": "jaxperf.compiled",
    "ProgramError": "jaxperf.errors",
    "Replay": "jaxperf.replay",
    "Run": "jaxperf.trace",
    "ScaledProgram": "jaxperf.replay",
    "Scenario": "jaxperf.config",
    "ScenarioAnswer": "jaxperf.whatif",
    "ScenarioTimes": "jaxperf.replay",
    "SearchResult": "jaxperf.search",
    "SearchSpace": "jaxperf.config",
    "Sensitivities": "jaxperf.replay",
    "SmOccupation": "jaxperf.replay",
    "StepBreakdown": "jaxperf.replay",
    "StepParameters": "jaxperf.workload",
    "Table": "jaxperf.interchange",
    "Timeline": "jaxperf.replay",
    "Trace": "jaxperf.trace",
    "TraceError": "jaxperf.errors",
    "Utilization": "jaxperf.replay",
    "WhatIf": "jaxperf.whatif",
    "Work": "jaxperf.cost",
    "answer_scenarios": "jaxperf.whatif",
    "batched_step_us": "jaxperf.workload",
    "build_graph": "jaxperf.graph",
    "built_in_jobs": "jaxperf.config",
    "calibrate": "jaxperf.calibrate",
    "calibration_to_json": "jaxperf.report",
    "capture": "jaxperf.capture",
    "closed_form_step_us": "jaxperf.workload",
    "compare": "jaxperf.comparison",
    "comparison_to_json": "jaxperf.report",
    "compile_program": "jaxperf.compiled",
    "cost_us": "jaxperf.cost",
    "critical_path": "jaxperf.critical_path",
    "critical_path_to_json": "jaxperf.report",
    "default_model": "jaxperf.cost",
    "default_step_parameters": "jaxperf.workload",
    "demo": "jaxperf.demonstration",
    "dependency_table": "jaxperf.interchange",
    "estimate": "jaxperf.estimate",
    "estimate_to_json": "jaxperf.report",
    "export": "jaxperf.interchange",
    "export_to_json": "jaxperf.report",
    "fitted_model": "jaxperf.cost",
    "hardware_sensitivities": "jaxperf.whatif",
    "inspect": "jaxperf.inspection",
    "inspection_to_json": "jaxperf.report",
    "job_memory": "jaxperf.workload",
    "job_times": "jaxperf.workload",
    "launch_command": "jaxperf.workload",
    "load_classes": "jaxperf.graph",
    "load_fit": "jaxperf.cost",
    "load_hardware": "jaxperf.config",
    "load_job": "jaxperf.config",
    "load_scenarios": "jaxperf.config",
    "load_space": "jaxperf.config",
    "makespan_us": "jaxperf.replay",
    "megatron_arguments": "jaxperf.workload",
    "prepare_job": "jaxperf.workload",
    "print_calibration": "jaxperf.report",
    "print_comparison": "jaxperf.report",
    "print_critical_path": "jaxperf.report",
    "print_estimate": "jaxperf.report",
    "print_export": "jaxperf.report",
    "print_inspection": "jaxperf.report",
    "print_replay": "jaxperf.report",
    "print_search": "jaxperf.report",
    "print_whatif": "jaxperf.report",
    "read_chakra": "jaxperf.interchange",
    "read_run": "jaxperf.trace",
    "replay": "jaxperf.replay",
    "replay_graph": "jaxperf.replay",
    "replay_scenarios": "jaxperf.replay",
    "replay_to_json": "jaxperf.report",
    "scale_groups": "jaxperf.replay",
    "search": "jaxperf.search",
    "search_to_json": "jaxperf.report",
    "select_tasks": "jaxperf.graph",
    "sensitivities": "jaxperf.replay",
    "set_job": "jaxperf.config",
    "slack_us": "jaxperf.replay",
    "sm_utilization": "jaxperf.replay",
    "start_times_us": "jaxperf.replay",
    "step_table": "jaxperf.interchange",
    "step_times_us": "jaxperf.replay",
    "task_table": "jaxperf.interchange",
    "task_work": "jaxperf.cost",
    "torchtitan_config": "jaxperf.workload",
    "usual_space": "jaxperf.config",
    "whatif": "jaxperf.whatif",
    "whatif_to_json": "jaxperf.report",
    "write_chakra": "jaxperf.interchange",
    "write_fit": "jaxperf.report",
    "write_report": "jaxperf.report",
    "write_tables": "jaxperf.interchange",
    "write_trace": "jaxperf.report",
}


_get, _names = lazy_names(__name__, _MODULES)


def __getattr__(name: str) -> Any:
    if name == "__version__":
        from importlib.metadata import version

        return version("jaxperf")
    return _get(name)


def __dir__() -> list[str]:
    return [*_names(), "__version__"]


class _Verbs(ModuleType):
    """`jaxperf.replay` is the verb, and so are the others, whichever sub-package is imported."""

    def __setattr__(self, name: str, value: Any) -> None:
        # Python binds a sub-package on its parent when it is imported, in the verb's place.
        if not (isinstance(value, ModuleType) and _MODULES.get(name) == f"{__name__}.{name}"):
            super().__setattr__(name, value)


sys.modules[__name__].__class__ = _Verbs
