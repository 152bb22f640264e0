"""The best points of a search, answered from a recorded run instead of the closed form."""

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from jaxperf.config import (
    CLOCK,
    Hardware,
    Job,
    Scenario,
    SearchSpace,
    following_fields,
    is_job_key,
    recorded_hardware,
    set_hardware,
)
from jaxperf.cost import Fit
from jaxperf.energy import static_power_w
from jaxperf.errors import ConfigError
from jaxperf.estimate import load_any_fit
from jaxperf.graph import build_graph
from jaxperf.replay import double_precision
from jaxperf.search._evaluate import Measured, evaluate, over_limits, step_measures
from jaxperf.search._problem import Machine, Problem, points, pose
from jaxperf.search._types import Point, costs
from jaxperf.trace import Note, read_run
from jaxperf.whatif import WhatIf, answer_scenarios
from jaxperf.workload import StepFit, check_retarget

MOST = 8
"""Points that are re-targeted, each of which takes seconds."""

_US = 1e-6
_RECORDED = Scenario(name="recorded")
Source = str | os.PathLike[str]


@dataclass(frozen=True, eq=False)
class TracedPoint:
    """A point of a search, and what the recorded run says of it.

    Attributes:
        point: as the search found it: its measures are those of the closed form.
        closed_form_us: its step by the closed form, times what makes the recorded job's step the
            measured one.
        step_us: of the recorded run, re-targeted to it; NaN where it was not.
        measures: those of `point` that follow from `step_us`, memory as it was; the work takes the
            energy that it takes in the closed form. Empty where it was not re-targeted.
        origins: shares of the critical path that were recorded, scaled and modelled; `None` of the
            recorded job itself, and where it was not re-targeted.
        notes: of a point that was not re-targeted, why; of others what the run was taken to be.
    """

    point: Point
    closed_form_us: float
    step_us: float
    measures: Mapping[str, float]
    origins: Mapping[str, float] | None
    notes: tuple[Note, ...]


def search_trace(
    paths: Source | Sequence[Source],
    recorded_job: Job,
    problem: Problem,
    candidates: Sequence[Point],
    *,
    hardware: Hardware | Source | None = None,
    fit: Fit | StepFit | Source | None = None,
    most: int = MOST,
    progress: Callable[[int, int], None] | None = None,
) -> tuple[TracedPoint, ...]:
    """Put the best points of a search into the order in which a recorded run has them.

    The traces are read once. In the order of the closed form, points to which the run can be
    re-targeted are, until there are enough of them; see docs/jobs.md.

    Args:
        paths: of the run, as `whatif` takes them.
        recorded_job: the job that was recorded.
        problem: what was searched.
        candidates: points of it, such as `SearchResult.best`, in any order.
        hardware: the recorded machine, as `whatif` takes it.
        fit: what the problem was posed with.
        most: how many points to re-target.
        progress: called with the number of worlds answered, and of all.

    Returns:
        All candidates: those that were re-targeted by the first objective, the best first and those
        that then keep no limit last; after them the others, in the order of the closed form.

    Raises:
        TraceError, GraphError: the paths hold nothing that can be replayed.
        ConfigError: the traces are not those of the recorded job, or of an unknown machine, or
            there is no candidate.

    Example:
        >>> import tempfile
        >>> from jaxperf.config import load_hardware
        >>> from jaxperf.search._types import point
        >>> from jaxperf.simulator import SimulatedJob, simulate, write_traces
        >>> job = Job(layers=2, hidden_size=1024, attention_heads=16, vocabulary_size=32768,
        ...           sequence_length=1024, micro_batch_size=4, schedule="none")
        >>> problem = pose(job, load_hardware("h100"), SearchSpace("depths", {"layers": (2, 4)}))
        >>> measured = evaluate(problem, np.arange(2))
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     paths = write_traces(simulate(SimulatedJob(layers=2)), folder)
        ...     candidates = [point(problem, measured, row) for row in (1, 0)]
        ...     found = search_trace(paths, job, problem, candidates, hardware="h100")
        >>> [each.point.job.layers for each in found]
        [2, 4]
    """
    _check(candidates, most)
    run = read_run(paths)
    machine = recorded_hardware([trace.device_name for trace in run.traces], hardware)
    ordered = _by_closed_form(problem, candidates)
    changes, notes = _changes(problem, recorded_job, machine, ordered, most)
    asked = [Scenario(name=_name(ordered[k]), set=values) for k, values in changes.items()]
    fitted = load_any_fit(fit) if isinstance(fit, str | os.PathLike) else fit
    answers = answer_scenarios(
        run,
        build_graph(run),
        [_RECORDED, *asked],
        job=recorded_job,
        hardware=machine,
        fit=fitted if isinstance(fitted, Fit) else None,
        progress=progress,
    )
    factor = answers.baseline.step_us / _closed_form_us(recorded_job, machine, fitted)
    first = _answered(problem, [ordered[k] for k in changes], answers, factor)
    nothing = float("nan"), {}, None
    rest = [
        TracedPoint(ordered[k], factor * ordered[k].measures["step_us"], *nothing, (note,))
        for k, note in notes.items()
    ]
    return (*first, *rest)


def _check(candidates: Sequence[Point], most: int) -> None:
    if not candidates:
        raise ConfigError("no points", where="search of a trace", expected="one or more")
    if most < 1:
        raise ConfigError("too few", where="most", got=str(most), expected="1 or more")


def _by_closed_form(problem: Problem, candidates: Sequence[Point]) -> list[Point]:
    names = problem.space.objectives
    measures = {name: np.array([each.measures[name] for each in candidates]) for name in names}
    order = np.argsort(costs(problem, measures)[:, 0], kind="stable")
    return [candidates[k] for k in order]


def _closed_form_us(job: Job, machine: Hardware, fit: Fit | StepFit | None) -> float:
    alone = pose(job, machine, SearchSpace("recorded", {}), fit=fit)
    return float(evaluate(alone, np.arange(1)).measures["step_us"][0])


# What is asked
# ---------------------------------------------------------------------------------------


def _changes(
    problem: Problem, recorded: Job, machine: Hardware, ordered: Sequence[Point], most: int
) -> tuple[dict[int, dict[str, Any]], dict[int, Note]]:
    """What makes of the recorded run each of the first points; and why not of the others."""
    changes: dict[int, dict[str, Any]] = {}
    notes: dict[int, Note] = {}
    for k, each in enumerate(ordered):
        if len(changes) == most:
            text = f"{_name(each)}: not among the best {most} by the closed form"
            notes[k] = Note("point-not-asked", text)
            continue
        try:
            changes[k] = _change(problem, recorded, machine, each)
        except ConfigError as error:
            notes[k] = Note("point-not-retargeted", f"{_name(each)}: {error}")
    return changes, notes


def _change(problem: Problem, recorded: Job, machine: Hardware, each: Point) -> dict[str, Any]:
    """Fields of the job and numbers of the machine in which a point differs from the run."""
    check_retarget(recorded, each.job)
    of_machine = {
        key: value for key, value in each.values.items() if key != CLOCK and not is_job_key(key)
    }
    _check_machine(problem, machine, each, of_machine)
    differ = {
        name: getattr(each.job, name)
        for name in Job.__struct_fields__
        if name != "name" and getattr(each.job, name) != getattr(recorded, name)
    }
    # What would follow from the others is told too: a point keeps what its space does not change.
    kept = {name: getattr(each.job, name) for name in following_fields(recorded, differ)}
    # More memory changes what fits, not how long it takes.
    of_machine.pop("memory_bytes", None)
    return differ | kept | of_machine


def _check_machine(
    problem: Problem, machine: Hardware, each: Point, of_machine: Mapping[str, Any]
) -> None:
    """Refuse a machine that does not follow from the recorded one, and other clocks."""
    nominal = {None} | {
        float(np.asarray(known.power.nominal_clock_hz))
        for known in problem.machines
        if known.power is not None and known.hardware == each.hardware
    }
    if each.clock_hz not in nominal:
        raise ConfigError(
            "a recorded run keeps its clock",
            where=f"set {CLOCK}",
            got=f"{each.clock_hz:g}",
            expected="the nominal one",
        )
    if "hardware" not in of_machine and set_hardware(machine, of_machine) != each.hardware:
        raise ConfigError(
            "the search is of another machine than the recorded one",
            where="hardware",
            got=each.hardware.name,
            expected=f"{machine.name}, or both in the space",
        )


def _name(each: Point) -> str:
    values = ", ".join(f"{key} {value}" for key, value in each.values.items())
    return f"point {each.index} ({values})"


# What is answered
# ---------------------------------------------------------------------------------------


def _answered(
    problem: Problem, some: Sequence[Point], answers: WhatIf, factor: float
) -> list[TracedPoint]:
    """Points that were re-targeted, best first."""
    if not some:
        return []
    found = answers.scenarios[1:]
    step_us = np.array([answer.step_us for answer in found])
    measured = _measured(problem, some, step_us)
    cost = costs(problem, measured.measures)[:, 0]
    names = [[name for name, over in measured.over.items() if over[k]] for k in range(len(some))]
    traced = []
    for k in np.lexsort((cost, ~measured.feasible)):
        notes = answers.notes
        if names[k]:
            text = f"{_name(some[k])}: re-targeted it does not keep {', '.join(names[k])}"
            notes = (Note("point-over-limit", text), *notes)
        measures = {name: float(values[k]) for name, values in measured.measures.items()}
        closed_form_us = factor * some[k].measures["step_us"]
        origins = found[k].origins
        traced.append(
            TracedPoint(some[k], closed_form_us, float(step_us[k]), measures, origins, notes)
        )
    return traced


def _measured(problem: Problem, some: Sequence[Point], step_us: np.ndarray) -> Measured:
    """The measures of points whose steps are other than those of the closed form."""
    found = points(problem, np.array([each.index for each in some], np.int64))
    gpus = np.array([each.job.world_size for each in some])
    before = {name: np.array([each.measures[name] for each in some]) for name in some[0].measures}
    # Only what is drawn all the time depends on how long the step takes.
    step_j = before["power_w_per_gpu"] * gpus * before["step_us"] * _US
    static_w = np.array([_static_w(problem.machines[place]) for place in found.machine])
    step_j += static_w * gpus * (step_us - before["step_us"]) * _US
    measures = step_measures(problem, found.jobs, gpus, step_us, step_j)
    measures["memory_bytes"] = before["memory_bytes"]
    return Measured(found, measures, over_limits(problem, found, measures))


def _static_w(machine: Machine) -> float:
    """What an accelerator draws while nothing runs, at its nominal clock; NaN where not known."""
    if machine.power is None:
        return float("nan")
    with double_precision():
        return float(static_power_w(machine.power, machine.power.nominal_clock_hz))
