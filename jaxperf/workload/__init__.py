"""Training jobs as graphs: schedules, kernels, messages, memory, and the step in closed form."""

from typing import TYPE_CHECKING

from jaxperf._lazy import lazy_names

if TYPE_CHECKING:
    from jaxperf.workload._build import (
        JobGraph as JobGraph,
        build_job_graph as build_job_graph,
        timed_graph as timed_graph,
    )
    from jaxperf.workload._closed_form import (
        batched_step_us as batched_step_us,
        closed_form_step as closed_form_step,
        closed_form_step_us as closed_form_step_us,
        part_sums as part_sums,
        steps_of_pieces as steps_of_pieces,
    )
    from jaxperf.workload._fit_steps import (
        MeasuredStep as MeasuredStep,
        StepFit as StepFit,
        changed_numbers as changed_numbers,
        computed_steps_us as computed_steps_us,
        fit_step_times as fit_step_times,
        fitted_step_model as fitted_step_model,
        held_out_steps_us as held_out_steps_us,
    )
    from jaxperf.workload._hosted_graph import (
        HostedGraph as HostedGraph,
        add_host as add_host,
        pipeline_bubble_us as pipeline_bubble_us,
    )
    from jaxperf.workload._job_durations import (
        JobTimes as JobTimes,
        PreparedJob as PreparedJob,
        job_times as job_times,
        prepare_job as prepare_job,
    )
    from jaxperf.workload._kernels import (
        embedding_backward as embedding_backward,
        embedding_forward as embedding_forward,
        head_backward as head_backward,
        head_forward as head_forward,
        layer_backward as layer_backward,
        layer_forward as layer_forward,
        layer_recompute as layer_recompute,
        optimizer_pieces as optimizer_pieces,
    )
    from jaxperf.workload._layout import (
        Layout as Layout,
        Unit as Unit,
        layout_of as layout_of,
    )
    from jaxperf.workload._many_steps import (
        many_steps as many_steps,
        piece_times_us as piece_times_us,
        rank_totals as rank_totals,
        select_rows as select_rows,
        steps_of_parts as steps_of_parts,
    )
    from jaxperf.workload._pack import (
        pack_traced_work as pack_traced_work,
        pack_work as pack_work,
    )
    from jaxperf.workload._parameters import (
        ParameterCounts as ParameterCounts,
        model_flops as model_flops,
        model_flops_per_token as model_flops_per_token,
        model_parameters as model_parameters,
    )
    from jaxperf.workload._pieces import (
        Piece as Piece,
    )
    from jaxperf.workload._pipeline_step import (
        StepTime as StepTime,
    )
    from jaxperf.workload._schedules import (
        Pass as Pass,
        PassKind as PassKind,
        bubble_fraction as bubble_fraction,
        bubble_us as bubble_us,
        passes_in_flight as passes_in_flight,
        schedule_passes as schedule_passes,
    )
    from jaxperf.workload._step_fit_file import (
        StepFactors as StepFactors,
        built_in_step_factors as built_in_step_factors,
        load_step_factors as load_step_factors,
        step_factors_of as step_factors_of,
        step_fit_of as step_fit_of,
    )
    from jaxperf.workload._step_parameters import (
        StepParameters as StepParameters,
        default_step_parameters as default_step_parameters,
        no_overheads as no_overheads,
    )
    from jaxperf.workload._step_table import (
        StepTable as StepTable,
        pass_fields as pass_fields,
        pass_table as pass_table,
        step_table as step_table,
    )
    from jaxperf.workload._table import (
        PieceTable as PieceTable,
        job_pieces as job_pieces,
    )
    from jaxperf.workload._tasks import (
        Tasks as Tasks,
    )
    from jaxperf.workload.launch import (
        launch_command as launch_command,
        megatron_arguments as megatron_arguments,
        torchtitan_config as torchtitan_config,
    )
    from jaxperf.workload.memory._memory import (
        JobMemory as JobMemory,
        StageMemory as StageMemory,
        job_memory as job_memory,
    )
    from jaxperf.workload.memory._memory_columns import peak_memory_bytes as peak_memory_bytes
    from jaxperf.workload.memory._memory_fit import (
        MemoryFit as MemoryFit,
        MemoryRemedy as MemoryRemedy,
        memory_fit as memory_fit,
    )
    from jaxperf.workload.retargeting._batch_size import (
        BatchSizes as BatchSizes,
        predict_batch_sizes as predict_batch_sizes,
    )
    from jaxperf.workload.retargeting._emitted_graph import (
        EmittedGraph as EmittedGraph,
    )
    from jaxperf.workload.retargeting._retarget import (
        RecordedJob as RecordedJob,
        origin_shares as origin_shares,
        recognise_job as recognise_job,
        retarget as retarget,
        steady_us as steady_us,
    )
    from jaxperf.workload.retargeting._stages import check_retarget as check_retarget

# Work is priced with jax: all of it is imported when it is first used.
_MODULES = {
    "add_host": "jaxperf.workload._hosted_graph",
    "batched_step_us": "jaxperf.workload._closed_form",
    "BatchSizes": "jaxperf.workload.retargeting._batch_size",
    "bubble_fraction": "jaxperf.workload._schedules",
    "bubble_us": "jaxperf.workload._schedules",
    "build_job_graph": "jaxperf.workload._build",
    "built_in_step_factors": "jaxperf.workload._step_fit_file",
    "changed_numbers": "jaxperf.workload._fit_steps",
    "check_retarget": "jaxperf.workload.retargeting._stages",
    "closed_form_step": "jaxperf.workload._closed_form",
    "closed_form_step_us": "jaxperf.workload._closed_form",
    "computed_steps_us": "jaxperf.workload._fit_steps",
    "default_step_parameters": "jaxperf.workload._step_parameters",
    "embedding_backward": "jaxperf.workload._kernels",
    "embedding_forward": "jaxperf.workload._kernels",
    "EmittedGraph": "jaxperf.workload.retargeting._emitted_graph",
    "fit_step_times": "jaxperf.workload._fit_steps",
    "fitted_step_model": "jaxperf.workload._fit_steps",
    "head_backward": "jaxperf.workload._kernels",
    "head_forward": "jaxperf.workload._kernels",
    "held_out_steps_us": "jaxperf.workload._fit_steps",
    "HostedGraph": "jaxperf.workload._hosted_graph",
    "job_memory": "jaxperf.workload.memory._memory",
    "job_pieces": "jaxperf.workload._table",
    "job_times": "jaxperf.workload._job_durations",
    "JobGraph": "jaxperf.workload._build",
    "JobMemory": "jaxperf.workload.memory._memory",
    "JobTimes": "jaxperf.workload._job_durations",
    "launch_command": "jaxperf.workload.launch",
    "layer_backward": "jaxperf.workload._kernels",
    "layer_forward": "jaxperf.workload._kernels",
    "layer_recompute": "jaxperf.workload._kernels",
    "Layout": "jaxperf.workload._layout",
    "layout_of": "jaxperf.workload._layout",
    "load_step_factors": "jaxperf.workload._step_fit_file",
    "many_steps": "jaxperf.workload._many_steps",
    "MeasuredStep": "jaxperf.workload._fit_steps",
    "megatron_arguments": "jaxperf.workload.launch",
    "memory_fit": "jaxperf.workload.memory._memory_fit",
    "MemoryFit": "jaxperf.workload.memory._memory_fit",
    "MemoryRemedy": "jaxperf.workload.memory._memory_fit",
    "model_flops": "jaxperf.workload._parameters",
    "model_flops_per_token": "jaxperf.workload._parameters",
    "model_parameters": "jaxperf.workload._parameters",
    "no_overheads": "jaxperf.workload._step_parameters",
    "optimizer_pieces": "jaxperf.workload._kernels",
    "origin_shares": "jaxperf.workload.retargeting._retarget",
    "pack_traced_work": "jaxperf.workload._pack",
    "pack_work": "jaxperf.workload._pack",
    "ParameterCounts": "jaxperf.workload._parameters",
    "part_sums": "jaxperf.workload._closed_form",
    "Pass": "jaxperf.workload._schedules",
    "pass_fields": "jaxperf.workload._step_table",
    "pass_table": "jaxperf.workload._step_table",
    "passes_in_flight": "jaxperf.workload._schedules",
    "PassKind": "jaxperf.workload._schedules",
    "peak_memory_bytes": "jaxperf.workload.memory._memory_columns",
    "Piece": "jaxperf.workload._pieces",
    "piece_times_us": "jaxperf.workload._many_steps",
    "PieceTable": "jaxperf.workload._table",
    "pipeline_bubble_us": "jaxperf.workload._hosted_graph",
    "predict_batch_sizes": "jaxperf.workload.retargeting._batch_size",
    "prepare_job": "jaxperf.workload._job_durations",
    "PreparedJob": "jaxperf.workload._job_durations",
    "rank_totals": "jaxperf.workload._many_steps",
    "recognise_job": "jaxperf.workload.retargeting._retarget",
    "RecordedJob": "jaxperf.workload.retargeting._retarget",
    "retarget": "jaxperf.workload.retargeting._retarget",
    "schedule_passes": "jaxperf.workload._schedules",
    "select_rows": "jaxperf.workload._many_steps",
    "StageMemory": "jaxperf.workload.memory._memory",
    "steady_us": "jaxperf.workload.retargeting._retarget",
    "step_factors_of": "jaxperf.workload._step_fit_file",
    "step_fit_of": "jaxperf.workload._step_fit_file",
    "step_table": "jaxperf.workload._step_table",
    "StepFactors": "jaxperf.workload._step_fit_file",
    "StepFit": "jaxperf.workload._fit_steps",
    "StepParameters": "jaxperf.workload._step_parameters",
    "steps_of_parts": "jaxperf.workload._many_steps",
    "steps_of_pieces": "jaxperf.workload._closed_form",
    "StepTable": "jaxperf.workload._step_table",
    "StepTime": "jaxperf.workload._pipeline_step",
    "Tasks": "jaxperf.workload._tasks",
    "timed_graph": "jaxperf.workload._build",
    "torchtitan_config": "jaxperf.workload.launch",
    "Unit": "jaxperf.workload._layout",
}

__getattr__, __dir__ = lazy_names(__name__, _MODULES)
