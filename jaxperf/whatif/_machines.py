"""Other machines: measured durations move by the ratio of modelled ones."""

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from jaxperf.config import (
    Hardware,
    Scenario,
    hardware_numbers,
    load_hardware,
    recorded_hardware,
    set_hardware,
)
from jaxperf.cost import (
    PRECISIONS,
    CostModel,
    Device,
    Fit,
    Work,
    WorkKind,
    cost_ratio,
    default_model,
    device_of,
    distinct_work,
    draw_models,
    fitted_model,
    known_work,
    load_fit,
    moved_device,
    select_work,
    task_work,
    work_quantities,
)
from jaxperf.errors import ConfigError
from jaxperf.graph import COMPUTE_CLASSES, ExecutionGraph, TaskClass, TaskKind
from jaxperf.replay import double_precision
from jaxperf.trace import Note, Run

Source = str | os.PathLike[str]
Ratio = Callable[[CostModel, Device], Array]

# It changes the order of things rather than the time of a kernel.
_QUEUE = "launch_queue"
# It changes what fits, and no time.
_SIZE = "memory_bytes"
# What work of unknown size is taken to be bound by: the peak of these, the memory of the others.
_BY_PEAK = (TaskClass.GEMM, TaskClass.ATTENTION, TaskClass.CONVOLUTION, TaskClass.MOE)
# Work this much beyond what was fitted is within its range.
_MARGIN = 1.5


@dataclass(frozen=True, eq=False)
class Machines:
    """The recorded machine, and those that scenarios name.

    Attributes:
        recorded: description of the recorded machine; `None` where no scenario needs it.
        model: its model.
        fit: what the model was fitted to; `None` where it was not.
        work: of each different piece of work.
        work_of_task: (tasks,) int64, index into `work`; -1 where no machine changes the task.
        ratio: modelled time of each piece of work on a device over that on the recorded one.
        hardware: the machine of each scenario; `None` where it is the recorded one.
        notes: what is taken for granted.
    """

    recorded: Hardware | None
    model: CostModel | None
    fit: Fit | None
    work: Work | None
    work_of_task: np.ndarray
    ratio: Ratio | None
    hardware: tuple[Hardware | None, ...]
    notes: tuple[Note, ...]


def find_machines(
    run: Run,
    graph: ExecutionGraph,
    scenarios: Sequence[Scenario],
    hardware: Hardware | Source | None,
    fit: Fit | Source | None,
    work: Work | None = None,
) -> Machines:
    """Resolve every machine that scenarios name, and the work that moves between them.

    Args:
        run, graph: the run.
        scenarios: what is asked.
        hardware: the recorded machine, as `load_hardware` takes it; `None` to tell by its name.
        fit: a `Fit` or its file, or `None`.
        work: (tasks,) of a graph that the traces do not tell the work of.

    Returns:
        The machines.

    Raises:
        ConfigError: the recorded machine is not known, or a key or value is not valid.
    """
    if any(scenario.set for scenario in scenarios):
        machine = recorded_machine(run, graph, hardware, fit, work)
        assert machine.recorded is not None
        changed = tuple(_changed(machine.recorded, scenario.set) for scenario in scenarios)
        return replace(machine, hardware=changed)
    # What is not needed is looked at all the same: a name that is wrong is told at once.
    if hardware is not None:
        recorded_hardware([], hardware)
    if isinstance(fit, str | os.PathLike):
        load_fit(fit)
    nothing = np.full(graph.tasks, -1, np.int64)
    return Machines(None, None, None, None, nothing, None, (None,) * len(scenarios), ())


def recorded_machine(
    run: Run,
    graph: ExecutionGraph,
    hardware: Hardware | Source | None,
    fit: Fit | Source | None,
    work: Work | None = None,
) -> Machines:
    """The machine that a run was recorded on, and the work that was done there.

    Args:
        run, graph, hardware, fit, work: see `find_machines`.

    Returns:
        The machine, without others.

    Raises:
        ConfigError: the recorded machine is not known.
    """
    recorded = recorded_hardware([trace.device_name for trace in run.traces], hardware)
    found = load_fit(fit) if isinstance(fit, str | os.PathLike) else fit
    model = fitted_model(found, recorded) if found else default_model(recorded)
    work = task_work(graph, run) if work is None else work
    work, of_task, notes = _distinct_work(graph, work)
    if found is None:
        text = "the cost model was not fitted to this machine: see jaxperf calibrate"
        notes = (Note("model-not-fitted", text), *notes)
    else:
        notes = (*notes, *_outside(found, work))
    return Machines(recorded, model, found, work, of_task, _ratio(work), (), notes)


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

    Raises:
        ConfigError: the model gives no time.
    """
    hardware = machines.hardware[index]
    if hardware is None:
        return None
    assert machines.model is not None
    return _evaluated(machines, machines.model, hardware)


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
    assert machines.recorded is not None
    models = draw_models(machines.fit, machines.recorded, draws, seed)
    return _evaluated(machines, models, hardware).T


def out_of_range(machines: Machines, index: int) -> tuple[str, ...]:
    """The changed values of a scenario's machine of which the model has seen nothing.

    Args:
        machines: of `find_machines`.
        index: of the scenario.

    Returns:
        A text for each.
    """
    hardware = machines.hardware[index]
    if hardware is None:
        return ()
    assert machines.recorded is not None
    fit, before = machines.fit, hardware_numbers(machines.recorded)
    found = []
    if fit is not None and machines.recorded.name not in fit.hardware:
        found.append(f"{machines.recorded.name}: fitted on {', '.join(fit.hardware)} only")
    for key, value in hardware_numbers(hardware).items():
        if key in (_QUEUE, _SIZE) or value == before.get(key):
            continue
        if fit is None:
            found.append(f"{key} = {value:g}: the model was not fitted")
            continue
        low, high = fit.hardware_range.get(key, (np.nan, np.nan))
        if not low <= value <= high:
            found.append(f"{key} = {value:g}: fitted from {low:g} to {high:g}")
    return tuple(found)


def _changed(recorded: Hardware, values: Mapping[str, float | str]) -> Hardware | None:
    if _SIZE in values:
        raise ConfigError(
            "changes no time",
            where=f"set {_SIZE}",
            expected="a rate, a bandwidth, a latency, or another number that a step depends on",
        )
    numbers = {key: value for key, value in values.items() if key != "hardware"}
    other = load_hardware(str(values["hardware"])) if "hardware" in values else recorded
    changed = set_hardware(other, numbers)
    return None if changed == recorded else changed


def _distinct_work(graph: ExecutionGraph, work: Work) -> tuple[Work, np.ndarray, tuple[Note, ...]]:
    """Each different piece of work once, and which one each task does."""
    moves = np.isin(graph.task_class, [*COMPUTE_CLASSES, TaskClass.COMMUNICATION])
    tasks = np.flatnonzero(moves & (graph.kind >= TaskKind.KERNEL))
    first, inverse = distinct_work(work, tasks)
    of_task = np.full(graph.tasks, -1, np.int64)
    of_task[tasks] = inverse
    unknown = ~known_work(work)[tasks]
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


def _outside(fit: Fit, work: Work) -> tuple[Note, ...]:
    """What to note of work beyond what the fit has seen."""
    outside = np.zeros(len(work), bool)
    for name, rows, values in work_quantities(work):
        low, high = fit.work_range.get(name, (np.nan, np.nan))
        within = (values >= low / _MARGIN) & (values <= high * _MARGIN)
        outside[rows[~within]] = True
    if not outside.any():
        return ()
    text = (
        f"{int(outside.sum())} of {len(work)} pieces of work are larger or smaller than any fitted"
    )
    return (Note("work-out-of-range", text),)


def _ratio(work: Work) -> Ratio:
    """A function that is compiled once for the work of a run."""
    known = known_work(work)
    multiplies = known & (work.kind == WorkKind.MATMUL)
    types, counts = np.unique(work.precision[multiplies], return_counts=True)
    # Products of unknown type are taken to be of the type of most others.
    usual = int(types[counts.argmax()]) if len(types) else PRECISIONS.index("fp16")
    by_peak = np.isin(work.task_class, _BY_PEAK)
    communicates = work.task_class == TaskClass.COMMUNICATION

    @jax.jit
    def ratio(model: CostModel, device: Device) -> Array:
        def shares(name: str):
            return jnp.asarray(getattr(model.device, name)) / jnp.asarray(getattr(device, name))

        peak = shares("peak_flops_per_s")[..., usual, None]
        memory, node = shares("memory_bytes_per_s"), shares("node_bus_bytes_per_s")
        bound = jnp.where(by_peak, peak, memory[..., None])
        bound = jnp.where(communicates, node[..., None], bound)
        return jnp.where(known, cost_ratio(model, device, work), bound)

    return ratio


def _evaluated(machines: Machines, model: CostModel, hardware: Hardware) -> np.ndarray:
    """(works,) or (draws, works) of one or several models, on the machine of a scenario."""
    assert machines.recorded is not None and machines.ratio is not None
    with double_precision():
        device = moved_device(model.device, device_of(machines.recorded), device_of(hardware))
        model, device = jax.tree.map(lambda leaf: np.asarray(leaf, np.float64), (model, device))
        found = np.asarray(machines.ratio(model, device))
    if not (np.isfinite(found) & (found > 0)).all():
        raise ConfigError(
            "the cost model gives no time",
            where="set",
            expected="numbers of the machine and of the fit within reason",
        )
    return found
