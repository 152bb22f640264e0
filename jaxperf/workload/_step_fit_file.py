"""Fits to measured steps as files: those that come with the package, and a user's own."""

import os
from collections.abc import Mapping
from functools import cache
from pathlib import Path

import jax
import msgspec
import numpy as np

from jaxperf.config import Hardware, built_in_hardware, config_folder, load_toml, read_named
from jaxperf.cost import default_model
from jaxperf.errors import ConfigError
from jaxperf.replay import double_precision
from jaxperf.workload._fit_steps import StepFit, changed_numbers
from jaxperf.workload._step_parameters import default_step_parameters

Source = str | os.PathLike[str]


class StepFactors(msgspec.Struct, frozen=True, kw_only=True):
    """A fit to measured steps, as a file in `configs/steps` holds it.

    Attributes:
        hardware: names of the machines whose steps were measured.
        source: which steps.
        steps: how many.
        spread: standard deviation of the logarithm of a measured step about the computed one.
        factors: by path, what the default is multiplied by; see `StepFit`.
    """

    hardware: tuple[str, ...]
    source: str
    steps: int
    spread: float
    factors: dict[str, float]


def load_step_factors(source: Source) -> StepFactors:
    """Read a fit to measured steps.

    Args:
        source: a TOML file, or the name of one that comes with the package, such as `h100`.

    Returns:
        The fit.

    Raises:
        ConfigError: there is no such file or name, or something in it is not valid.

    Example:
        >>> load_step_factors("a100").hardware
        ('NVIDIA A100-SXM4-80GB',)
    """
    return read_named(source, "fit", _read_factors, built_in_step_factors())


@cache
def built_in_step_factors() -> Mapping[str, StepFactors]:
    """Every fit that comes with the package, by the name of its file."""
    paths = sorted(config_folder("steps").glob("*.toml"))
    return {path.stem: _read_factors(path) for path in paths}


def step_factors_of(hardware: Hardware) -> StepFactors | None:
    """The fit that comes with the package for a machine that comes with it too.

    Example:
        >>> from jaxperf.config import load_hardware
        >>> step_factors_of(load_hardware("v100"))
    """
    for name, known in built_in_hardware().items():
        if known.name == hardware.name:
            return built_in_step_factors().get(name)
    return None


def step_fit_of(factors: StepFactors) -> StepFit:
    """The fit that a file holds; what it does not say of its covariance is nothing.

    Args:
        factors: of `load_step_factors`.

    Returns:
        The fit.

    Raises:
        ConfigError: a path is no number of the model or of the step.
    """
    machine = next(iter(built_in_hardware().values()))
    logs = {path: np.log(factor) for path, factor in factors.factors.items()}
    with double_precision():
        _, parameters = changed_numbers(default_model(machine), default_step_parameters(), logs)
    size = len(factors.factors)
    return StepFit(
        dict(factors.factors),
        jax.tree.map(np.asarray, parameters),
        np.full((size, size), np.nan),
        factors.spread,
    )


def _read_factors(file: Path) -> StepFactors:
    found = load_toml(file, StepFactors)
    for path, factor in found.factors.items():
        if not (np.isfinite(factor) and factor > 0):
            raise ConfigError(
                "not a factor",
                where=f"{file}: factors {path}",
                got=repr(factor),
                expected="a number above 0",
            )
    return found
