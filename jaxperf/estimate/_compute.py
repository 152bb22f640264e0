"""From a job and a machine to an estimate: the graph priced, replayed, and summed up."""

import os
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path

import numpy as np

from jaxperf.config import Hardware, Job, PowerDescription, power_of_device, read_toml
from jaxperf.cost import (
    PRECISIONS,
    CostModel,
    Fit,
    Work,
    default_model,
    fitted_model,
    load_fit,
    peak_sources,
    unknown_work,
    work_quantities,
)
from jaxperf.energy import Accounting, EnergyPrediction, predict_timeline
from jaxperf.errors import ConfigError
from jaxperf.estimate._types import Estimate
from jaxperf.graph import ExecutionGraph
from jaxperf.replay import (
    Breakdown,
    Timeline,
    binding_dependencies,
    critical_path_us_by_class,
    device_activity,
    double_precision,
    path_to,
)
from jaxperf.trace import Note
from jaxperf.workload import (
    HostedGraph,
    JobTimes,
    StepFit,
    StepParameters,
    built_in_step_factors,
    default_step_parameters,
    fitted_step_model,
    job_memory,
    job_times,
    load_step_factors,
    memory_fit,
    model_flops,
    pipeline_bubble_us,
    prepare_job,
    step_factors_of,
    step_fit_of,
    timed_graph,
)

_S = 1e6
# Work this much beyond what was fitted is within its range.
_MARGIN = 1.5


def estimate_job(
    job: Job,
    hardware: Hardware,
    fit: Fit | StepFit | str | os.PathLike[str] | None,
    power: PowerDescription | None = None,
    notes: tuple[Note, ...] = (),
) -> Estimate:
    """Estimate a job that is known in full; see `estimate`.

    Args:
        job: a job that can be (`check_job`).
        hardware: the machine.
        fit: see `estimate`.
        power: what the machine draws; by default what comes with the package for its name.
        notes: what was taken for granted already.

    Returns:
        The estimate.

    Raises:
        ConfigError: the fit cannot be read, or numbers of the machine are beyond reason.
    """
    fit, told = _fit_of(hardware, fit)
    model, parameters = _numbers_of(hardware, fit)
    prepared = prepare_job(job)
    with double_precision(), np.errstate(over="ignore", invalid="ignore"):
        times = job_times(prepared, model, parameters)
    step_us = float(times.step_us)
    if not (np.isfinite(step_us) and step_us > 0):
        raise ConfigError(
            "the step takes forever",
            where=job.name,
            expected="sizes of the job, and numbers of the machine, within reason",
        )
    hosted = prepared.hosted
    graph, timeline = _timed(hosted, times)
    binding = binding_dependencies(
        graph, timeline.start_us, np.asarray(times.duration_us), np.asarray(times.lag_us)
    )
    last = int(np.argmax(timeline.end_us))
    breakdowns = _rank_breakdowns(graph, timeline, step_us)
    alike = np.array(hosted.built.ranks_alike, float)
    bubble_us, passes_us = (
        float(np.average(times_us, weights=alike))
        for times_us in pipeline_bubble_us(hosted, timeline.start_us, timeline.end_us)
    )
    memory = job_memory(job)
    energy = _energy(job, hardware, power, hosted, graph, timeline, step_us)
    gpus = job.world_size
    flops_per_s = float(model_flops(job)) / step_us * _S / gpus
    samples_per_s = job.global_batch_size / step_us * _S
    return Estimate(
        job=job,
        hardware=hardware,
        gpus=gpus,
        step_us=step_us,
        tokens_per_s_per_gpu=samples_per_s * job.sequence_length / gpus,
        samples_per_s=samples_per_s,
        model_flops_per_s_per_gpu=flops_per_s,
        model_flops_utilization=flops_per_s / _peak(job, hardware)[1],
        breakdown=_mean(breakdowns, alike),
        bubble_us=bubble_us,
        bubble_fraction=bubble_us / passes_us,
        critical_path_us=critical_path_us_by_class(graph, path_to(graph, timeline, binding, last)),
        memory=memory,
        memory_fit=memory_fit(job, hardware.memory_bytes, memory),
        energy=energy,
        out_of_range=tuple(_out_of_range(job, hardware, fit, hosted.built.work)),
        notes=(
            *notes,
            *told,
            *_notes(fit, usual_overheads=bool(told)),
            *_power_notes(hardware, power, energy),
        ),
        graph=graph,
        timeline=timeline,
        binding=binding,
        rank_breakdowns=breakdowns,
        ranks_alike=hosted.built.ranks_alike,
    )


def step_numbers(
    hardware: Hardware, fit: Fit | StepFit | str | os.PathLike[str] | None = None
) -> tuple[CostModel, StepParameters, tuple[Note, ...]]:
    """The cost model and the step parameters that `estimate` takes for a machine.

    Args:
        hardware: the machine.
        fit: see `estimate`.

    Returns:
        Both, and notes on what was taken for granted.

    Raises:
        ConfigError: the fit cannot be read.

    Example:
        >>> from jaxperf.config import load_hardware
        >>> model, parameters, notes = step_numbers(load_hardware("h100"))
        >>> float(model.device.gpus_per_node)
        8.0
    """
    found, told = _fit_of(hardware, fit)
    return (*_numbers_of(hardware, found), (*told, *_notes(found, usual_overheads=bool(told))))


def _fit_of(
    hardware: Hardware, fit: Fit | StepFit | str | os.PathLike[str] | None
) -> tuple[Fit | StepFit | None, tuple[Note, ...]]:
    """What the user fitted; else what comes with the package for the machine, which a note says."""
    if isinstance(fit, str | os.PathLike):
        return load_any_fit(fit), ()
    if fit is not None:
        return fit, ()
    factors = step_factors_of(hardware)
    if factors is None:
        return None, ()
    text = f"times are fitted to {factors.steps} measured steps: {factors.source}"
    return step_fit_of(factors), (Note("step-fit-assumed", text),)


def load_any_fit(source: str | os.PathLike[str]) -> Fit | StepFit:
    """What `calibrate` has written, or a fit to measured steps.

    Args:
        source: a file, or the name of a fit to measured steps that comes with the package.

    Raises:
        ConfigError: there is none, or it cannot be read.

    Example:
        >>> type(load_any_fit("h100-fsdp")).__name__
        'StepFit'
    """
    text = os.fspath(source)
    if text in built_in_step_factors() or _holds_factors(Path(text)):
        return step_fit_of(load_step_factors(text))
    return load_fit(source)


def _holds_factors(path: Path) -> bool:
    """Whether a file is a fit to measured steps, not to kernels."""
    try:
        return "factors" in read_toml(path)
    except ConfigError:
        return False


def _numbers_of(hardware: Hardware, fit: Fit | StepFit | None) -> tuple[CostModel, StepParameters]:
    if isinstance(fit, StepFit):
        return fitted_step_model(fit, hardware), fit.parameters
    model = default_model(hardware) if fit is None else fitted_model(fit, hardware)
    return model, default_step_parameters()


def _timed(hosted: HostedGraph, times: JobTimes) -> tuple[ExecutionGraph, Timeline]:
    start_us, duration_us = np.asarray(times.start_us), np.asarray(times.duration_us)
    graph = timed_graph(hosted.graph, duration_us, start_us, np.asarray(times.lag_us))
    return graph, Timeline(start_us, start_us + duration_us)


def _energy(
    job: Job,
    hardware: Hardware,
    power: PowerDescription | None,
    hosted: HostedGraph,
    graph: ExecutionGraph,
    timeline: Timeline,
    step_us: float,
) -> EnergyPrediction | None:
    described = power or power_of_device(hardware.name)
    if described is None:
        return None
    samples = float(job.global_batch_size)
    return predict_timeline(
        graph,
        timeline,
        _work_of_tasks(hosted),
        described,
        hardware,
        span_us=(0.0, step_us),
        step_us=step_us,
        ranks_alike=tuple(map(float, hosted.built.ranks_alike)),
        accounting=Accounting(
            samples_per_step=samples, tokens_per_step=samples * job.sequence_length
        ),
    )


def _work_of_tasks(hosted: HostedGraph) -> Work:
    """(tasks,) the work of each task: that of its piece; what the host does has none."""
    pieces = hosted.built.work
    rows = hosted.row_of_task
    on_device = rows < len(pieces)
    work = unknown_work(len(rows))
    for field in fields(Work):
        getattr(work, field.name)[on_device] = getattr(pieces, field.name)[rows[on_device]]
    work.task_class[:] = hosted.graph.task_class
    return work


def _power_notes(
    hardware: Hardware, power: PowerDescription | None, energy: EnergyPrediction | None
) -> Iterator[Note]:
    if energy is None:
        text = f"no description of what {hardware.name} draws: energy is not known"
        yield Note("power-unknown", text)
        return
    if power is None:
        text = f"power is that of the package's description of {energy.device}"
        yield Note("power-assumed", text)
    yield from energy.notes


def _rank_breakdowns(
    graph: ExecutionGraph, timeline: Timeline, step_us: float
) -> tuple[tuple[int, Breakdown], ...]:
    found = []
    for rank in graph.ranks:
        activity = device_activity(graph, timeline, rank)
        assert activity is not None, "every rank has gradients to clear"
        found.append((rank, activity.between(0.0, step_us)))
    return tuple(found)


def _mean(breakdowns: tuple[tuple[int, Breakdown], ...], weights: np.ndarray) -> Breakdown:
    rows = [
        (b.compute_us, b.overlap_us, b.exposed_communication_us, b.memory_us, b.idle_us, b.total_us)
        for _, b in breakdowns
    ]
    return Breakdown(*np.average(rows, axis=0, weights=weights).tolist())


def _peak(job: Job, hardware: Hardware) -> tuple[str, float]:
    """The type that the job's multiplies are computed in, and its peak."""
    source = peak_sources(hardware)[PRECISIONS.index(job.precision)]
    return source, hardware.peak_flops_per_s[source]


def _out_of_range(
    job: Job, hardware: Hardware, fit: Fit | StepFit | None, work: Work
) -> Iterator[str]:
    source, _ = _peak(job, hardware)
    if source != job.precision:
        yield f"precision {job.precision}: {hardware.name} has no peak of it; {source} is taken"
    across, inside = job.world_size > hardware.gpus_per_node, job.world_size > 1
    if across and "network" not in hardware.links:
        yield "links.network: not described; as quick as the link inside a node"
    if inside and hardware.gpus_per_node > 1 and set(hardware.links) == {"network"}:
        yield "links: none inside a node is described; as quick as the network"
    if not isinstance(fit, Fit):
        return
    if hardware.name not in fit.hardware:
        yield f"hardware {hardware.name}: the fit has seen {', '.join(fit.hardware)}"
    for name, rows, values in work_quantities(work):
        low, high = fit.work_range.get(name, (np.nan, np.nan))
        if not len(rows):
            continue
        if np.isnan(low):
            yield f"{name}: the fit has seen none"
        elif values.min() < low / _MARGIN or values.max() > high * _MARGIN:
            span = f"{values.min():.3g} to {values.max():.3g}"
            yield f"{name} = {span}: the fit has seen {low:.3g} to {high:.3g}"


def _notes(fit: Fit | StepFit | None, *, usual_overheads: bool) -> Iterator[Note]:
    if fit is None:
        text = "times of kernels and collectives are those of the package's own cost model"
        yield Note("model-not-fitted", text)
    if usual_overheads or not isinstance(fit, StepFit):
        text = "what host and gaps between kernels take is as usual with PyTorch"
        yield Note("overheads-assumed", text)
