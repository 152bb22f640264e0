"""The verb: what energy a run takes that was only traced."""

import math
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from jaxperf.config import (
    Hardware,
    Job,
    PowerDescription,
    load_job,
    recorded_hardware,
)
from jaxperf.energy._prediction_types import Accounting, EnergyPrediction
from jaxperf.energy._recorded_power import recorded_power
from jaxperf.energy._span import steady_span_us
from jaxperf.energy.calibration._verb import clock_zero_ns
from jaxperf.errors import ConfigError
from jaxperf.graph import KERNEL_CLASSES, KernelClasses, build_graph
from jaxperf.replay import replay_graph
from jaxperf.trace import Note, Run, read_run

Source = str | os.PathLike[str]


def predict(
    paths: Source | Sequence[Source],
    *,
    power: PowerDescription | Source | None = None,
    hardware: Hardware | Source | None = None,
    step: str | int | None = None,
    clock_hz: Mapping[str, float] | None = None,
    power_limit_w: float | None = None,
    frontier: int = 0,
    grid_us: float | None = None,
    pue: float | None = None,
    carbon_g_per_kwh: float | None = None,
    switches_w: float | None = None,
    steps: float | None = None,
    samples_per_step: float | None = None,
    tokens_per_step: float | None = None,
    job: Job | Source | None = None,
    classes: KernelClasses | str | os.PathLike[str] = KERNEL_CLASSES,
    progress: Callable[[int, int], None] | None = None,
) -> EnergyPrediction:
    """What power a run draws and what energy it takes, from its traces alone.

    Args:
        paths: a trace file, a folder of one run's traces, or several of either.
        power: what the accelerators and nodes draw, as `load_power` takes it; by default what comes
            with the package for the device that the traces name, which a note says.
        hardware: the recorded machine, as `load_hardware` takes it; by default the same way.
        step: look at one iteration only: its name, or its place (0 the first, -1 the last).
        clock_hz: what if kernels ran at other clocks: by selector (`all`, or as `select_tasks`
            takes it), the last that selects a kernel decides; what none selects keeps its clock.
        power_limit_w: what if each accelerator kept this limit.
        frontier: how many points of least energy for the shortest step and longer ones.
        grid_us: length of a cell of the power series; by default 1 ms where that makes some
            hundred.
        pue: energy of the facility by that of its nodes.
        carbon_g_per_kwh: of the electricity.
        switches_w: of the switches between nodes, at the wall.
        steps: of the whole training.
        samples_per_step, tokens_per_step: of the global batch.
        job: the recorded job, as `load_job` takes it; says these two where they are not given.
        classes: which class a kernel belongs to; see `build_graph`.
        progress: called with the number of files read so far, and of all files.

    Returns:
        The prediction. Where the traces are of some ranks of a larger job, each stands for an equal
        part of all.

    Raises:
        TraceError, GraphError: the paths hold nothing that can be replayed.
        ConfigError: the machine is not known, a file, number, selector or clock is not valid,
            there is no such step, or clocks are asked of a run whose own no clock explains.

    Example:
        >>> import tempfile
        >>> from jaxperf.simulator import SimulatedJob, simulate, write_traces
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     paths = write_traces(simulate(SimulatedJob(layers=1)), folder)
        ...     result = predict(paths, power="h100", hardware="h100")
        >>> 70 < result.accelerator_w < 700
        True
    """
    account = _account(
        job,
        steps=steps,
        samples_per_step=samples_per_step,
        tokens_per_step=tokens_per_step,
        pue=pue,
        carbon_g_per_kwh=carbon_g_per_kwh,
        switches_w=switches_w,
    )
    _check(grid_us=grid_us, power_limit_w=power_limit_w)
    if frontier < 0:
        raise ConfigError(
            "not a number of points", where="frontier", got=str(frontier), expected="0 or more"
        )
    run = read_run(paths, progress=progress)
    devices = [trace.device_name for trace in run.traces]
    described, assumed = recorded_power(devices, power)
    machine = recorded_hardware(devices, hardware)
    graph = build_graph(run, classes=classes)
    timeline = replay_graph(graph)
    span_us, step_us = steady_span_us(graph, timeline, step)
    alike, repeated = _ranks_alike(run)
    from jaxperf.cost import task_work
    from jaxperf.energy.power._prediction import predict_timeline

    work = task_work(graph, run)
    prediction = predict_timeline(
        graph,
        timeline,
        work,
        described,
        machine,
        span_us=span_us,
        step_us=step_us,
        ranks_alike=alike,
        grid_us=grid_us,
        accounting=account,
        notes=(*graph.notes, *assumed, *repeated),
    )
    series = replace(prediction.series, zero_ns=clock_zero_ns(run, graph))
    prediction = replace(prediction, series=series)
    if not clock_hz and power_limit_w is None and not frontier:
        return prediction
    from jaxperf.energy.clocks._whatif import clock_whatif
    from jaxperf.energy.power._builder import power_tasks

    clocks = clock_whatif(
        graph,
        power_tasks(graph, timeline, work, machine, *span_us, ranks_alike=alike),
        described,
        step_us=step_us,
        step=step,
        clock_hz=clock_hz,
        power_limit_w=power_limit_w,
        frontier=frontier,
    )
    return replace(prediction, clocks=clocks, notes=(*prediction.notes, *clocks.notes))


# The least that each may be; what is not named is above 0.
_LEAST = {"carbon_g_per_kwh": 0.0, "switches_w": 0.0, "pue": 1.0}


def _check(**numbers: float | None) -> None:
    for name, value in numbers.items():
        least = _LEAST.get(name)
        if value is not None and not (
            math.isfinite(value) and (value > 0 if least is None else value >= least)
        ):
            expected = "above 0" if least is None else f"{least:g} or more"
            raise ConfigError("not a quantity", where=name, got=repr(value), expected=expected)


def _account(job: Job | Source | None, **numbers: float | None) -> Accounting:
    """What energy is divided by and multiplied with; each number is checked."""
    _check(**numbers)
    if job is not None:
        known = job if isinstance(job, Job) else load_job(job)
        samples = float(known.global_batch_size)
        if numbers["samples_per_step"] is None:
            numbers["samples_per_step"] = samples
        if numbers["tokens_per_step"] is None:
            numbers["tokens_per_step"] = samples * known.sequence_length
    return Accounting(**{name: float(v) for name, v in numbers.items() if v is not None})


def _ranks_alike(run: Run) -> tuple[tuple[float, ...] | None, tuple[Note, ...]]:
    ranks = len(run.traces)
    world = max((trace.world_size or 0 for trace in run.traces), default=0)
    if world <= ranks:
        return None, ()
    text = f"{ranks} of {world} ranks were recorded: each stands for {world / ranks:g}"
    return (world / ranks,) * ranks, (Note("ranks-taken-alike", text),)
