"""A search as arrays: points of a space by number, and the jobs and machines they stand for."""

import math
import os
from dataclasses import dataclass
from functools import cached_property
from itertools import product
from typing import Any

import msgspec
import numpy as np

from jaxperf.config import (
    CLOCK,
    BrokenRule,
    Column,
    Hardware,
    Job,
    JobColumns,
    PowerDescription,
    SearchSpace,
    broken_rules,
    check_space,
    field_values,
    following_fields,
    is_job_key,
    job_columns,
    load_hardware,
    power_of_device,
    set_hardware,
)
from jaxperf.cost import CostModel, Fit
from jaxperf.energy import PowerModel, power_model
from jaxperf.errors import ConfigError
from jaxperf.estimate import step_numbers
from jaxperf.trace import Note
from jaxperf.workload import StepFit, StepParameters

_MOST_MACHINES = 10_000
_DEGREES = ("tensor_parallel", "context_parallel", "pipeline_parallel")


@dataclass(frozen=True, eq=False)
class Machine:
    """A machine of the space, at a clock.

    Attributes:
        hardware: its description.
        clock_hz: of its accelerators, `None` for the nominal one.
        model, parameters: how long work takes on it, and what else a step takes.
        power: what its accelerators draw; `None` where that is not known.
    """

    hardware: Hardware
    clock_hz: float | None
    model: CostModel
    parameters: StepParameters
    power: PowerModel | None


@dataclass(frozen=True, eq=False)
class Problem:
    """What is searched; see `pose`.

    Attributes:
        job: what all configurations have in common.
        space: which ones there are.
        machines: every machine of the space.
        notes: what was taken for granted.
    """

    job: Job
    space: SearchSpace
    machines: tuple[Machine, ...]
    notes: tuple[Note, ...] = ()

    @cached_property
    def typed(self) -> dict[str, tuple[Any, ...]]:
        """The values of the axes of the job, as its fields have them."""
        return field_values(self.space, self.job)


def pose(
    job: Job,
    hardware: Hardware,
    space: SearchSpace,
    *,
    fit: Fit | StepFit | str | os.PathLike[str] | None = None,
    power: PowerDescription | None = None,
) -> Problem:
    """A search whose machines are known in full.

    Args:
        job: what all configurations have in common.
        hardware: the machine, where the space does not name others.
        space: see `check_space`.
        fit: what `calibrate` or `fit_step_times` found, as `estimate` takes it.
        power: what accelerators draw; by default what comes with the package for each machine.

    Returns:
        The search.

    Raises:
        ConfigError: the space asks for what there is not, or for energy where none is known.
    """
    check_space(space, job, hardware)
    keys = [key for key in space.axes if not is_job_key(key)]
    count = math.prod(len(space.axes[key]) for key in keys)
    if count > _MOST_MACHINES:
        raise ConfigError(
            "too many machines",
            where=f"space {space.name}: {', '.join(keys)}",
            got=f"{count:,}",
            expected=f"at most {_MOST_MACHINES:,}",
        )
    machines, notes = [], {}
    for values in product(*(space.axes[key] for key in keys)):
        changes = dict(zip(keys, values, strict=True))
        named, clock_hz = changes.pop("hardware", None), changes.pop(CLOCK, None)
        found = hardware if named is None else load_hardware(str(named))
        found = set_hardware(found, changes) if changes else found
        model, parameters, told = step_numbers(found, fit)
        notes |= dict.fromkeys(told)
        described = power or power_of_device(found.name)
        _check_power(space, found, described, clock_hz)
        drawn = None if described is None else power_model(described)
        at_hz = None if clock_hz is None else float(clock_hz)
        machines.append(Machine(found, at_hz, model, parameters, drawn))
    # What only says what follows goes on following, as where one value is set.
    job = msgspec.structs.replace(job, **dict.fromkeys(following_fields(job, space.axes)))
    return Problem(job, space, tuple(machines), tuple(notes))


def _check_power(
    space: SearchSpace, hardware: Hardware, power: PowerDescription | None, clock_hz: Any
) -> None:
    asked = {*space.objectives, *space.limits}
    needed = sorted(asked & {"energy_j_per_token", "power_w_per_gpu"})
    needed += [CLOCK] if clock_hz is not None else []
    if power is None and needed:
        raise ConfigError(
            "what it draws is not known",
            where=f"{hardware.name}: {', '.join(needed)}",
            expected="a machine of the package, or a description of its power",
        )
    if power is None or clock_hz is None:
        return
    low, high = power.minimum_clock_hz, power.nominal_clock_hz
    if isinstance(clock_hz, str) or not low <= clock_hz <= high:
        raise ConfigError(
            "not a clock of the machine",
            where=f"space {space.name}: {CLOCK}",
            got=str(clock_hz),
            expected=f"{low:g} to {high:g}",
        )


@dataclass(frozen=True, eq=False)
class Points:
    """Some points of a space.

    Attributes:
        index: (rows,) their numbers.
        jobs: (rows,) what they stand for.
        broken: why some of them cannot be.
        machine: (rows,) index into those of the search.
    """

    index: np.ndarray
    jobs: JobColumns
    broken: tuple[BrokenRule, ...]
    machine: np.ndarray

    @property
    def valid(self) -> np.ndarray:
        """(rows,) whether a job can be."""
        refused = np.zeros(len(self.index), bool)
        for rule in self.broken:
            refused |= rule.jobs
        return ~refused


def values_of(problem: Problem, index: int) -> dict[str, Any]:
    """The values of a point by key, in the order of the axes; the last axis varies fastest.

    Args:
        problem: the search.
        index: number of the point.
    """
    axes = problem.space.axes
    codes = np.unravel_index(index, [len(values) for values in axes.values()])
    return {key: axes[key][int(code)] for key, code in zip(axes, codes, strict=True)}


def points(problem: Problem, index: np.ndarray) -> Points:
    """The jobs and machines of some points.

    Args:
        problem: the search.
        index: (rows,) numbers of points.

    Returns:
        The points, with every rule that some of them break: those of `check_job`, and that
        accelerators and global batch are shared out without a rest.
    """
    axes, rows = problem.space.axes, len(index)
    sizes = [len(values) for values in axes.values()]
    codes = dict(zip(axes, np.unravel_index(index, sizes) if axes else (), strict=True))
    columns = {
        field: _job_column(problem, field, keys, codes) for field, keys in _job_fields(axes).items()
    }
    jobs = JobColumns(problem.job, columns, rows)
    jobs, derived = _with_what_follows(problem, jobs)
    keys = [key for key in axes if not is_job_key(key)]
    machine = _joined(axes, keys, codes)[0] if keys else np.zeros(rows, int)
    sound = ~np.logical_or.reduce([rule.jobs for rule in derived] or [np.zeros(rows, bool)])
    broken = list(derived)
    for rule in broken_rules(jobs.take(np.flatnonzero(sound))):
        whole = np.zeros(rows, bool)
        whole[sound] = rule.jobs
        broken.append(BrokenRule(rule.text, whole))
    return Points(index, jobs, tuple(broken), machine)


def _job_fields(axes) -> dict[str, list[str]]:
    """Fields of a job that axes change, with their keys: those of a table change it together."""
    fields: dict[str, list[str]] = {}
    for key in axes:
        if is_job_key(key):
            fields.setdefault(key.partition(".")[0], []).append(key)
    return fields


def _job_column(problem: Problem, field: str, keys: list[str], codes) -> Column:
    axes = problem.space.axes
    if keys == [field]:
        return Column(problem.typed[field], codes[field])
    code, sizes = _joined(axes, keys, codes)
    different, place = np.unique(code, return_inverse=True)
    values = []
    for each in different:
        changes = zip(keys, np.unravel_index(each, sizes), strict=True)
        table = getattr(problem.job, field)
        parts = {key.partition(".")[2]: problem.typed[key][int(at)] for key, at in changes}
        values.append(msgspec.structs.replace(table, **parts))
    return Column(values, place)


def _with_what_follows(problem: Problem, jobs: JobColumns) -> tuple[JobColumns, list[BrokenRule]]:
    """Data-parallel degree, micro-batches and schedule, as they follow from the others."""
    space, columns, broken = problem.space, dict(jobs.columns), []
    if space.gpus is not None:
        replica = math.prod(jobs.array(name) for name in _DEGREES)
        degree, rest = np.divmod(space.gpus, replica)
        text = f"gpus: {space.gpus} not divisible by tensor x context x pipeline_parallel"
        broken.append(BrokenRule(text, rest > 0))
        columns["data_parallel"] = _counts(degree)
        jobs = JobColumns(jobs.base, columns, jobs.rows)
    if space.global_batch_size is not None:
        at_once = jobs.array("data_parallel") * jobs.array("micro_batch_size")
        batches, rest = np.divmod(space.global_batch_size, at_once)
        text = f"global_batch_size: {space.global_batch_size} not divisible by "
        broken.append(BrokenRule(f"{text}data_parallel x micro_batch_size", rest > 0))
        columns["micro_batches"] = _counts(batches)
        jobs = JobColumns(jobs.base, columns, jobs.rows)
    if "schedule" not in columns and {"virtual_stages", "pipeline_parallel"} & columns.keys():
        columns["schedule"] = _schedules(jobs)
        jobs = JobColumns(jobs.base, columns, jobs.rows)
    return jobs, [rule for rule in broken if rule.jobs.any()]


def _schedules(jobs: JobColumns) -> Column:
    """That of the job, where it has one for so many stages and chunks, and else the usual one."""
    found = np.zeros(jobs.rows, int)
    stages = jobs.array("pipeline_parallel")
    if jobs.base.schedule == "none":
        found[stages > 1] = 1
    if jobs.base.schedule == "dualpipe":
        found[stages == 1] = 1
    if "virtual_stages" in jobs.columns:
        if jobs.base.schedule == "interleaved":
            found[:] = 1
        found[jobs.array("virtual_stages") > 1] = 2
    return Column((jobs.base.schedule, "1F1B", "interleaved"), found)


def _counts(values: np.ndarray) -> Column:
    return job_columns(_ANY, {"micro_batches": np.maximum(values, 1).astype(int)}).columns[
        "micro_batches"
    ]


_ANY = Job(layers=1, hidden_size=1, attention_heads=1, vocabulary_size=1, sequence_length=1)


def _joined(axes, keys: list[str], codes):
    """One code for several axes, and their sizes."""
    sizes = [len(axes[key]) for key in keys]
    return np.asarray(np.ravel_multi_index([codes[key] for key in keys], sizes)), sizes
