"""The verb: fit the power model to a measured power log, with the traces of what ran meanwhile."""

import os
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Literal

import numpy as np

from jaxperf.config import Hardware, PowerDescription, power_of_device, recorded_hardware
from jaxperf.energy._recorded_power import recorded_power
from jaxperf.energy._series import PowerSeries
from jaxperf.energy._series_cells import EARLIEST_NS
from jaxperf.energy.calibration._readings import readings_of
from jaxperf.energy.calibration._types import PowerFit
from jaxperf.errors import ConfigError
from jaxperf.graph import KERNEL_CLASSES, ExecutionGraph, KernelClasses, build_graph
from jaxperf.replay import measured_timeline
from jaxperf.trace import Note, Run, read_run

if TYPE_CHECKING:
    from jaxperf.energy.calibration._design import TimedTasks

Source = str | os.PathLike[str]


def calibrate(
    paths: Source | Sequence[Source],
    readings: Source | PowerSeries,
    *,
    power: PowerDescription | Source | None = None,
    hardware: Hardware | Source | None = None,
    per: Literal["gpu", "node"] = "gpu",
    zone: str | None = None,
    classes: KernelClasses | Source = KERNEL_CLASSES,
    progress: Callable[[int, int], None] | None = None,
) -> PowerFit:
    """Fit the numbers of the power model to a measured power log.

    Where the traces' clock and the log's count from the epoch, they may differ by a few seconds,
    which the fit finds. Where one does not, the fit finds where in the log the traces lie.

    Args:
        paths: one or more runs, each a trace file or a folder of one run's traces, recorded while
            the log was written.
        readings: a table of readings, a `node_*.txt` of MLPerf Training or a folder of those of one
            run, or a series; of several series the mean is taken.
        power: what the numbers are believed to be, as `load_power` takes it; by default the
            description that comes with the package for the device that the traces name, or else
            for the machine, which a note says.
        hardware: the machine, as `load_hardware` takes it; by default that of the device.
        per: whether each series is of an accelerator or of a node at its power supplies. The
            recorded ranks stand for all accelerators of the job in the node; others are idle. Of a
            series that `energy predict` has written the column of that name is taken.
        zone: of times in the log that name none.
        classes: which class a kernel belongs to; see `build_graph`.
        progress: called with the number of rounds of the fit done, and of all.

    Returns:
        The fit, with intervals, errors on readings held out, and what the log cannot tell.

    Raises:
        TraceError, GraphError: a run holds nothing that can be replayed.
        LogError: the log cannot be read, is all 0, or has too few readings in the traces.
        ConfigError: a device or word is not known, devices differ, or runs are not on one clock.

    Example:
        >>> fit = calibrate("traces", "power.csv", per="node")  # doctest: +SKIP
        >>> prediction = predict("traces", power=fit.description)  # doctest: +SKIP
    """
    if per not in ("gpu", "node"):
        raise ConfigError("no such part", where="per", got=str(per), expected="gpu or node")
    from jaxperf.energy.calibration._solve import fit_power

    sources = [paths] if isinstance(paths, str | os.PathLike) else list(paths)
    read = [read_run(source) for source in sources]
    names = [trace.device_name for run in read for trace in run.traces]
    machine = recorded_hardware(names, hardware)
    described = [name if name and power_of_device(name) else machine.name for name in names]
    description, assumed = recorded_power(described, power)
    series, notes = readings_of(
        readings, zone, description.node.conversion_efficiency, of_accelerator=per == "gpu"
    )
    graphs = [build_graph(run, classes=classes) for run in read]
    runs = [timed_tasks(run, graph, machine) for run, graph in zip(read, graphs, strict=True)]
    absolute = [run.zero_ns > EARLIEST_NS for run in runs]
    if len(set(absolute)) > 1:
        raise ConfigError(
            "the runs are not on one clock",
            where="traces",
            got="some whose times count from the epoch, and some whose times do not",
            remedy="fit to the runs of one kind",
        )
    gpus, idle_gpus, idle = _of_node(read, machine) if per == "node" else (None, 0.0, ())
    fit = fit_power(
        runs,
        series,
        description,
        gpus_per_node=gpus,
        idle_gpus=idle_gpus,
        same_clock=all(absolute) and int(series.time_ns[0]) > EARLIEST_NS,
        progress=progress,
    )
    recorded = tuple(note for graph in graphs for note in graph.notes)
    return replace(fit, notes=(*recorded, *assumed, *notes, *idle, *fit.notes))


def _of_node(runs: Sequence[Run], machine: Hardware) -> tuple[float, float, tuple[Note, ...]]:
    """Accelerators of a node that run the job, and others, as `predict` counts them."""
    sizes = {max(len(run.traces), *(trace.world_size or 0 for trace in run.traces)) for run in runs}
    if len(sizes) > 1:
        raise ConfigError(
            "the runs are of different numbers of accelerators",
            where="traces",
            got=", ".join(map(str, sorted(sizes))),
            remedy="fit to the readings of a node with runs of one size",
        )
    (size,) = sizes
    places = machine.gpus_per_node
    gpus = size / -(-size // places)
    if gpus == places:
        return gpus, 0.0, ()
    text = (
        f"{gpus:g} of {places} accelerators of a node run the job, as the traces say: the others"
        " are taken as idle"
    )
    return gpus, places - gpus, (Note("accelerators-idle", text),)


def timed_tasks(run: Run, graph: ExecutionGraph, hardware: Hardware) -> "TimedTasks":
    """The tasks of a run as recorded, and when its clock was zero.

    Args:
        run: its traces.
        graph: of `build_graph`.
        hardware: the machine.

    Returns:
        Tasks from when the last rank begins to when the first ends.
    """
    from jaxperf.cost import task_work
    from jaxperf.energy.calibration._design import TimedTasks
    from jaxperf.energy.power._builder import power_tasks

    ranks = [graph.trace == index for index in range(len(graph.ranks))]
    begin_ns = max(graph.start_ns[mine].min() for mine in ranks if mine.any())
    end_ns = min(graph.end_ns[mine].max() for mine in ranks if mine.any())
    tasks = power_tasks(
        graph,
        measured_timeline(graph),
        task_work(graph, run),
        hardware,
        begin_ns / 1e3,
        end_ns / 1e3,
    )
    return TimedTasks(tasks, clock_zero_ns(run, graph))


def clock_zero_ns(run: Run, graph: ExecutionGraph) -> int:
    """When the graph's clock was zero, on that of the first rank's trace, in nanoseconds.

    A profiler of PyTorch writes `baseTimeNanoseconds`, so that its clock counts from the epoch;
    other traces may count from the start of the machine.

    Args:
        run: its traces.
        graph: of `build_graph`.

    Returns:
        The moment. The graph begins with the first event of the ranks that share collectives.
    """
    offsets_ns = np.array([clock.offset_us for clock in graph.clocks]) * 1e3
    return min(
        trace.origin_ns - round(offset_ns)
        for trace, offset_ns in zip(run.traces, offsets_ns.tolist(), strict=True)
        if np.isfinite(offset_ns)
    )
