"""The verb: the best configuration of a space."""

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Literal, get_args

from jaxperf.config import (
    Hardware,
    Job,
    PowerDescription,
    SearchSpace,
    check_job,
    load_hardware,
    load_job,
    load_power,
    load_space,
    usual_space,
)
from jaxperf.errors import ConfigError
from jaxperf.trace import Note

if TYPE_CHECKING:
    from jaxperf.cost import Fit
    from jaxperf.search._types import SearchResult
    from jaxperf.workload import StepFit

Source = str | os.PathLike[str]
Method = Literal["bound", "exhaustive", "gradient"]

_ASSUMED = "h100"


def search(
    job: Job | Source,
    *,
    space: SearchSpace | Source | None = None,
    hardware: Hardware | Source | None = None,
    gpus: int | None = None,
    global_batch_size: int | None = None,
    objectives: Sequence[str] = (),
    limits: Mapping[str, float] | None = None,
    method: Method = "bound",
    fit: "Fit | StepFit | Source | None" = None,
    power: PowerDescription | Source | None = None,
    trace: Source | Sequence[Source] = (),
    samples: int = 0,
    spread: Mapping[str, float] | None = None,
    seed: int = 0,
    folder: Source | None = None,
    shard: str | None = None,
    processes: int = 1,
    progress: Callable[[int, int], None] | None = None,
) -> "SearchResult":
    """The best configurations of a job among those of a space.

    Args:
        job: what all configurations have in common: a job, a TOML file of one, or the name of one
            that comes with the package.
        space: the configurations, or a TOML file of them; by default what is usually tried on so
            many accelerators, see `usual_space`.
        hardware: the machine, as `estimate` takes it, where the space does not name others.
        gpus: accelerators of every configuration, instead of what the space says; by default those
            of the job.
        global_batch_size: sequences of a step, the same way.
        objectives: one to three of `jaxperf.config.MEASURES`, instead of what the space says.
        limits: by name of a measure the worst that is allowed, besides those of the space.
        method: `bound` proves the best by bounds on what it leaves out, `exhaustive` measures every
            point, `gradient` descends from many starts and proves nothing.
        fit: what `calibrate` or `fit_step_times` found, as `estimate` takes it.
        power: what accelerators draw; by default what comes with the package for the machine.
        trace: files or folders with the traces of a run of this very job: the best are answered
            from it too, and put in its order.
        samples: how often to draw the numbers of the model for each of the best; see
            `robust_choice`.
        spread: how uncertain they are, where the fit does not say.
        seed: of the starts of `gradient`, and of the draws.
        folder: where to keep what is settled: a search that was stopped goes on from there, and
            shards of one search share it.
        shard: settle the part `i/n` of the search alone, i from 0; needs a folder.
        processes: on this machine.
        progress: called with the number of points settled so far, and of all.

    Returns:
        The best points, the front of several objectives, and what became of all others. Interrupted
        (KeyboardInterrupt), what was found until then.

    Raises:
        ConfigError: something is not valid, or no point is feasible: then the message says which
            constraints exclude the points, and which have to give.

    Example:
        >>> from jaxperf.config import SearchSpace
        >>> space = SearchSpace("two", {"micro_batch_size": (1, 2)}, 8, 32)
        >>> found = search("llama3-8b", space=space, hardware="h200")
        >>> found.best[0].values
        {'micro_batch_size': 2}
    """
    if method not in get_args(Method):
        expected = ", ".join(get_args(Method))
        raise ConfigError("no such method", where="method", got=repr(method), expected=expected)
    _check_sharing(method, folder, shard, processes)
    described = check_job(job, job.name) if isinstance(job, Job) else load_job(job)
    notes = []
    if hardware is None:
        hardware = _ASSUMED
        text = f"no machine was named: {load_hardware(_ASSUMED).name} is assumed"
        notes.append(Note("hardware-assumed", text))
    machine = hardware if isinstance(hardware, Hardware) else load_hardware(hardware)
    asked = _space(described, space, gpus, global_batch_size, objectives, limits)
    drawn = load_power(power) if isinstance(power, str | os.PathLike) else power
    from jaxperf.estimate import load_any_fit
    from jaxperf.search._problem import pose
    from jaxperf.search._robust import robust_choice
    from jaxperf.search._solve import solve

    found_fit = load_any_fit(fit) if isinstance(fit, str | os.PathLike) else fit
    problem = pose(described, machine, asked, fit=found_fit, power=drawn)
    problem = replace(problem, notes=(*notes, *problem.notes))
    found = solve(
        problem,
        method,
        seed=seed,
        folder=folder,
        shard=shard,
        processes=processes,
        progress=progress,
    )
    named = {"job": job, "hardware": hardware, "fit": fit, "power": power}
    if trace and found.best:
        from jaxperf.search._from_trace import search_trace

        traced = search_trace(trace, described, problem, found.best, fit=found_fit)
        found = replace(found, traced=traced)
    words = {key: os.fspath(x) for key, x in named.items() if isinstance(x, str | os.PathLike)}
    found = replace(found, inputs=words)
    if not samples or not found.best:
        return found
    chosen = robust_choice(
        problem, found.best, fit=found_fit, spread=spread, samples=samples, seed=seed
    )
    return replace(found, robust=chosen)


def _check_sharing(method: str, folder: Source | None, shard: str | None, processes: int) -> None:
    if processes < 1:
        raise ConfigError(
            "not a count", where="processes", got=str(processes), expected="1 or more"
        )
    if shard is not None and folder is None:
        raise ConfigError(
            "its outcome would be lost", where=f"shard {shard}", expected="a folder to keep it in"
        )
    if method == "gradient" and (folder is not None or processes > 1):
        raise ConfigError(
            "is not shared",
            where="method gradient",
            got=f"{processes} processes" if folder is None else f"folder {folder}",
            expected="bound or exhaustive, or one process without a folder",
        )


def _space(
    job: Job,
    space: SearchSpace | Source | None,
    gpus: int | None,
    global_batch_size: int | None,
    objectives: Sequence[str],
    limits: Mapping[str, float] | None,
) -> SearchSpace:
    for name, count in (("gpus", gpus), ("global_batch_size", global_batch_size)):
        if count is not None and count < 1:
            raise ConfigError("not a count", where=name, got=str(count), expected="1 or more")
    if space is None:
        batch = global_batch_size or job.global_batch_size
        found = usual_space(job, gpus or job.world_size, batch)
    else:
        found = space if isinstance(space, SearchSpace) else load_space(space)
    return replace(
        found,
        gpus=gpus or found.gpus,
        global_batch_size=global_batch_size or found.global_batch_size,
        objectives=tuple(objectives) or found.objectives,
        limits={**found.limits, **(limits or {})},
    )
