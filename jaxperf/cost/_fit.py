"""What a calibration found: numbers of the cost model, how sure they are, where they hold."""

import os
from collections.abc import Mapping
from pathlib import Path

import jax
import msgspec
import numpy as np

from jaxperf.config import Hardware, load_toml
from jaxperf.cost._model import (
    CostModel,
    default_model,
    element_names,
    model_leaves,
    path_text,
)
from jaxperf.errors import ConfigError


class Fit(msgspec.Struct, frozen=True, kw_only=True):
    """Fitted numbers of a cost model. Their logarithms are normally distributed.

    Attributes:
        hardware: names of the machines that it was fitted on.
        numbers: (elements,) of each fitted leaf of the model, by its path; of the device as a share
            of what the hardware's description says.
        leaves: the elements that were fitted, such as `memory.latency_us[gemm]`.
        covariance: (leaves, leaves), of their logarithms.
        hardware_range: least and greatest value of each key of the hardware that was seen.
        work_range: the same of each quantity of the work, such as `matmul.flops`.
    """

    hardware: tuple[str, ...]
    numbers: dict[str, tuple[float, ...]]
    leaves: tuple[str, ...] = ()
    covariance: tuple[tuple[float, ...], ...] = ()
    hardware_range: dict[str, tuple[float, float]] = {}
    work_range: dict[str, tuple[float, float]] = {}


def load_fit(path: str | os.PathLike[str]) -> Fit:
    """Read what `jaxperf calibrate` wrote.

    Args:
        path: the file.

    Returns:
        The fit.

    Raises:
        ConfigError: the file cannot be read, or is no fit.
    """
    fit = load_toml(Path(path), Fit)
    for name, values in fit.numbers.items():
        if not all(np.isfinite(value) and value > 0 for value in values):
            raise ConfigError(
                "not quantities",
                where=f"{path}: numbers {name}",
                got=", ".join(map(str, values)),
                expected="numbers above 0",
            )
    fits = len(fit.covariance) == len(fit.leaves)
    if not fits or any(len(row) != len(fit.leaves) for row in fit.covariance):
        raise ConfigError(
            "wrong shape",
            where=f"{path}: covariance",
            expected=f"{len(fit.leaves)} rows of as many numbers",
        )
    if fit.leaves and not _is_covariance(np.array(fit.covariance)):
        raise ConfigError(
            "no covariance",
            where=f"{path}: covariance",
            expected="finite numbers, symmetric, without negative variances",
        )
    return fit


def _is_covariance(matrix: np.ndarray) -> bool:
    if not np.isfinite(matrix).all() or not np.allclose(matrix, matrix.T):
        return False
    eigenvalues = np.linalg.eigvalsh(matrix)
    return bool(eigenvalues.min() >= -1e-9 * max(eigenvalues.max(), 1e-300))


def fitted_model(fit: Fit, hardware: Hardware) -> CostModel:
    """The cost model of a machine with the numbers of a fit.

    Args:
        fit: the fit.
        hardware: the machine; its own numbers stand where they were not fitted.

    Returns:
        The model.

    Raises:
        ConfigError: the fit names a number that the model does not have.
    """
    return _with_numbers(default_model(hardware), fit.numbers)


def draw_models(fit: Fit, hardware: Hardware, draws: int, seed: int) -> CostModel:
    """Models whose fitted numbers are drawn from the fit's distribution.

    Args:
        fit: the fit.
        hardware: the machine.
        draws: how many.
        seed: of the draws.

    Returns:
        One model, every leaf of which has a leading axis (draws,).
    """
    model = jax.tree.map(
        lambda x: np.repeat(np.asarray(x)[None], draws, 0), default_model(hardware)
    )
    numbers = {
        path: np.repeat(np.array(values)[None], draws, 0) for path, values in fit.numbers.items()
    }
    if fit.leaves:
        random = np.random.default_rng(seed)
        covariance = np.array(fit.covariance)
        moved = random.multivariate_normal(np.zeros(len(covariance)), covariance, draws)
        place = {
            name: (path, index)
            for path, leaf in model_leaves(default_model(hardware)).items()
            if path in numbers
            for index, name in enumerate(element_names(path, leaf))
        }
        for leaf, log_change in zip(fit.leaves, moved.T, strict=True):
            if leaf not in place:
                raise _unknown_number(leaf, place)
            path, index = place[leaf]
            numbers[path][:, index] *= np.exp(log_change)
    return _with_numbers(model, numbers, leading=1)


def _with_numbers(model: CostModel, numbers: Mapping, leading: int = 0) -> CostModel:
    """A model with some of its leaves replaced; they are given flat behind the leading axes."""
    leaves, tree = jax.tree_util.tree_flatten_with_path(model)
    known = [path_text(path) for path, _ in leaves]
    for path in numbers:
        if path not in known:
            raise _unknown_number(path, known)

    def replaced(path: str, value):
        value = np.asarray(value)
        if path not in numbers:
            return value
        new = np.asarray(numbers[path], np.float64)
        if new.size != value.size:
            raise ConfigError(
                "wrong length",
                where=f"numbers {path}",
                got=str(new.shape[-1]),
                expected=str(value.size // max(len(new) if leading else 1, 1)),
            )
        new = new.reshape(value.shape)
        return new * value if path.startswith("device.") else new

    values = [replaced(path, value) for path, (_, value) in zip(known, leaves, strict=True)]
    return jax.tree.unflatten(tree, values)


def _unknown_number(path: str, known) -> ConfigError:
    return ConfigError(
        "no such number of the cost model",
        where=path,
        expected=f"one of {', '.join(list(known)[:6])}",
        remedy="calibrate again with this version",
    )
