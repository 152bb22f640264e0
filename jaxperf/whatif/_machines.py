"""Other machines: measured durations move by the ratio of modelled ones."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from jaxperf.config import Hardware, Scenario, load_hardware, recorded_hardware, set_hardware
from jaxperf.cost import (
    PRECISIONS,
    CostModel,
    Fit,
    Work,
    WorkKind,
    cost_ratio,
    default_model,
    device_of,
    distinct_work,
    draw_models,
    fitted_model,
    load_fit,
    moved_device,
    select_work,
    task_work,
)
from jaxperf.graph import COMPUTE_CLASSES, ExecutionGraph, TaskClass, TaskKind
from jaxperf.replay import double_precision
from jaxperf.trace import Note, Run

# Keys that change the order of things rather than the time of a kernel.
_QUEUE = "launch_queue"
# What work of unknown size is taken to be bound by.
_BY_PEAK = (TaskClass.GEMM, TaskClass.ATTENTION, TaskClass.CONVOLUTION, TaskClass.MOE)


@dataclass(frozen=True, eq=False)
class Machines:
    """The recorded machine, and those that scenarios name.

    Attributes:
        recorded: description of the recorded machine; `None` where no scenario needs it.
        model: its model.
        fit: what the model was fitted to; `None` where it was not.
        work: of each different piece of work.
        work_of_task: (tasks,) int64, index into `work`; -1 where no machine changes the task.
        hardware: the machine of each scenario; `None` where it is the recorded one.
        notes: what is taken for granted.
    """

    recorded: Hardware | None
    model: CostModel | None
    fit: Fit | None
    work: Work | None
    work_of_task: np.ndarray
    hardware: tuple[Hardware | None, ...]
    notes: tuple[Note, ...]


def find_machines(
    run: Run,
    graph: ExecutionGraph,
    scenarios: Sequence[Scenario],
    hardware: Hardware | str | os.PathLike[str] | None,
    fit: Fit | str | os.PathLike[str] | None,
) -> Machines:
    """Resolve every machine that scenarios name, and the work that moves between them.

    Args:
        run, graph: the run.
        scenarios: what is asked.
        hardware: the recorded machine, as `load_hardware` takes it; `None` to tell by its name.
        fit: a `Fit` or its file, or `None`.

    Returns:
        The machines.

    Raises:
        ConfigError: the recorded machine is not known, or a key or value is not valid.
    """
    if not any(scenario.set for scenario in scenarios):
        nothing = np.full(graph.tasks, -1, np.int64)
        return Machines(None, None, None, None, nothing, (None,) * len(scenarios), ())
    machine = recorded_machine(run, graph, hardware, fit)
    assert machine.recorded
    changed = tuple(_changed(machine.recorded, scenario.set) for scenario in scenarios)
    return replace(machine, hardware=changed)


def recorded_machine(
    run: Run,
    graph: ExecutionGraph,
    hardware: Hardware | str | os.PathLike[str] | None,
    fit: Fit | str | os.PathLike[str] | None,
) -> Machines:
    """The machine that a run was recorded on, and the work that was done there.

    Args:
        run, graph, hardware, fit: see `find_machines`.

    Returns:
        The machine, without others.

    Raises:
        ConfigError: the recorded machine is not known.
    """
    recorded = recorded_hardware([trace.device_name for trace in run.traces], hardware)
    found = load_fit(fit) if isinstance(fit, str | os.PathLike) else fit
    model = fitted_model(found, recorded) if found else default_model(recorded)
    work, work_of_task, notes = _distinct_work(run, graph)
    if found is None:
        text = "the cost model was not fitted to this machine: see jaxperf calibrate"
        notes = (Note("model-not-fitted", text), *notes)
    return Machines(recorded, model, found, work, work_of_task, (), notes)


def launch_queue(scenario: Scenario) -> int | None:
    """The launch queue that a scenario asks for, `None` where it leaves it alone."""
    return int(scenario.set[_QUEUE]) if _QUEUE in scenario.set else None


def time_ratio(machines: Machines, index: int) -> np.ndarray | None:
    """Modelled time on a scenario's machine over that on the recorded one.

    Args:
        machines: of `find_machines`.
        index: of the scenario.

    Returns:
        (works,) float64; `None` where the machine is the recorded one.
    """
    hardware = machines.hardware[index]
    if hardware is None:
        return None
    assert machines.model
    return _ratio(machines.model, machines, hardware)


def drawn_time_ratio(machines: Machines, index: int, draws: int, seed: int) -> np.ndarray | None:
    """The same for parameters that are drawn from the fit.

    Args:
        machines: of `find_machines`.
        index: of the scenario.
        draws: how many sets of parameters.
        seed: of the draws, which are the same for all scenarios.

    Returns:
        (works, draws) float64, or (works,) where there is no fit to draw from; `None` where the
        machine is the recorded one.
    """
    hardware = machines.hardware[index]
    if hardware is None or machines.fit is None or not machines.fit.leaves:
        return time_ratio(machines, index)
    assert machines.recorded
    models = draw_models(machines.fit, machines.recorded, draws, seed)
    return _ratio(models, machines, hardware).T


def out_of_range(machines: Machines, scenario: Scenario) -> tuple[str, ...]:
    """The changed values of which the fitted model has seen nothing.

    Args:
        machines: of `find_machines`.
        scenario: one of theirs.

    Returns:
        A text for each.
    """
    found = []
    for key, value in scenario.set.items():
        if key in (_QUEUE, "memory_bytes"):
            continue
        if machines.fit is None:
            found.append(f"{key} = {value}: the model was not fitted")
            continue
        low, high = machines.fit.hardware_range.get(key, (np.nan, np.nan))
        if not (isinstance(value, float | int) and low <= value <= high):
            found.append(f"{key} = {value}: fitted on {', '.join(machines.fit.hardware)} only")
    return tuple(found)


def _changed(recorded: Hardware, values: Mapping[str, float | str]) -> Hardware | None:
    numbers = {key: value for key, value in values.items() if key != "hardware"}
    other = load_hardware(str(values["hardware"])) if "hardware" in values else recorded
    changed = set_hardware(other, numbers)
    return None if changed == recorded else changed


def _distinct_work(run: Run, graph: ExecutionGraph) -> tuple[Work, np.ndarray, tuple[Note, ...]]:
    """Each different piece of work once, and which one each task does."""
    work = task_work(graph, run)
    moves = np.isin(graph.task_class, [*COMPUTE_CLASSES, TaskClass.COMMUNICATION])
    tasks = np.flatnonzero(moves & (graph.kind >= TaskKind.KERNEL))
    first, inverse = distinct_work(work, tasks)
    of_task = np.full(graph.tasks, -1, np.int64)
    of_task[tasks] = inverse
    unknown = work.kind[tasks] == WorkKind.UNKNOWN
    time_us = graph.duration_ns[tasks] / 1e3
    notes = ()
    if unknown.any():
        share = 100.0 * time_us[unknown].sum() / max(time_us.sum(), 1e-9)
        text = (
            f"the work of {int(unknown.sum())} kernels ({share:.1f} % of the device's time) is not "
            "known: they move with the peak rate or the bandwidth that bounds their class"
        )
        notes = (Note("work-unknown", text),)
    return select_work(work, tasks[first]), of_task, notes


def _ratio(model: CostModel, machines: Machines, hardware: Hardware) -> np.ndarray:
    """(works,) or (draws, works) of one or several models, by the kind of work or by its class."""
    assert machines.recorded and machines.work
    new, old = device_of(hardware), device_of(machines.recorded)
    with double_precision():
        device = moved_device(model.device, old, new)
        modelled = np.asarray(cost_ratio(model, device, machines.work))
    peak, memory, node = (
        np.divide(getattr(old, name), getattr(new, name))
        for name in ("peak_flops_per_s", "memory_bytes_per_s", "node_bus_bytes_per_s")
    )
    task_class = machines.work.task_class
    bound = np.where(np.isin(task_class, _BY_PEAK), peak[PRECISIONS.index("bf16")], memory)
    bound = np.where(task_class == TaskClass.COMMUNICATION, node, bound)
    return np.where(np.isnan(modelled), bound, modelled)
