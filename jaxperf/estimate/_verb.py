"""The verb: what a job that was never run would take."""

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING

from jaxperf.config import (
    Hardware,
    Job,
    PowerDescription,
    check_job,
    check_keys,
    following_fields,
    is_job_key,
    load_hardware,
    load_job,
    load_power,
    set_hardware,
    set_job,
)
from jaxperf.estimate._types import Estimate
from jaxperf.trace import Note

if TYPE_CHECKING:
    from jaxperf.cost import Fit
    from jaxperf.workload import StepFit

Source = str | os.PathLike[str]

_ASSUMED = "h100"
_MACHINE = "hardware"


def estimate(
    job: Job | Source,
    *,
    hardware: Hardware | Source | None = None,
    change: Mapping[str, float | str] | None = None,
    fit: "Fit | StepFit | Source | None" = None,
    power: PowerDescription | Source | None = None,
) -> Estimate:
    """What one iteration of a job would take, from its description alone.

    Args:
        job: a job, a TOML file of one, or the name of one that comes with the package.
        hardware: a machine, a TOML file of one, or the name of one that comes with the package;
            H100 by default, which a note says.
        change: values by key of the job or the machine, such as `{"micro_batches": 64,
            "memory_bytes_per_s": 4.8e12}`; the key `hardware` names another machine.
        fit: what `calibrate` found, or its file; or what `fit_step_times` found.
        power: what the accelerators and nodes draw, as `load_power` takes it; by default what comes
            with the package for the machine, where something does.

    Returns:
        Time, utilization, memory, energy, and the timeline of one rank of each stage.

    Raises:
        ConfigError: a file, key or value is not valid, or the job cannot be.

    Example:
        >>> result = estimate("llama3-8b", hardware="h100", change={"micro_batches": 4})
        >>> result.gpus, 0.3 < result.model_flops_utilization < 0.8
        (8, True)
    """
    notes = []
    asked = dict(change or {})
    hardware = asked.pop(_MACHINE, hardware)  # type: ignore[assignment]
    if hardware is None:
        hardware = _ASSUMED
        text = f"no machine was named: {load_hardware(_ASSUMED).name} is assumed"
        notes.append(Note("hardware-assumed", text))
    machine = hardware if isinstance(hardware, Hardware) else load_hardware(str(hardware))
    described = check_job(job, job.name) if isinstance(job, Job) else load_job(job)
    of_job = {key: value for key, value in asked.items() if is_job_key(key)}
    of_machine = {key: value for key, value in asked.items() if key not in of_job}
    check_keys(of_machine, machine)
    following = following_fields(described, of_job)
    if following:
        text = f"what only says what follows was changed too: {', '.join(following)}"
        notes.append(Note("fields-follow", text))
    if of_job:
        described = set_job(described, of_job)
    if of_machine:
        machine = set_hardware(machine, of_machine)
    from jaxperf.estimate._compute import estimate_job

    drawn = load_power(power) if isinstance(power, str | os.PathLike) else power
    return estimate_job(described, machine, fit, drawn, tuple(notes))
