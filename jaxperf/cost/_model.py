"""How long work takes on a machine: one model for every kind of it, all of their numbers leaves."""

from collections.abc import Callable
from dataclasses import dataclass, fields, replace

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from jaxperf.config import Hardware
from jaxperf.cost._attention import (
    AttentionParameters,
    attention_us,
    default_attention_parameters,
)
from jaxperf.cost._collectives import (
    CollectiveParameters,
    collective_us,
    default_collective_parameters,
)
from jaxperf.cost._device import Device, device_of
from jaxperf.cost._matmul import MatmulParameters, default_matmul_parameters, matmul_us
from jaxperf.cost._protocols import CHOICE_NAMES
from jaxperf.cost._roofline import MemoryParameters, default_memory_parameters, memory_us
from jaxperf.cost._work import PRECISIONS, Work, WorkKind, select_work
from jaxperf.graph import TaskClass

jax.tree_util.register_dataclass(Work, [f.name for f in fields(Work)], [])


@dataclass(frozen=True, eq=False)
class CostModel:
    """A machine and how well it is used. Every leaf may be changed, fitted or searched.

    Attributes:
        device: the machine.
        matmul, attention, memory, collective: parameters of the model of each kind of work.
    """

    device: Device
    matmul: MatmulParameters
    attention: AttentionParameters
    memory: MemoryParameters
    collective: CollectiveParameters


jax.tree_util.register_dataclass(CostModel, [f.name for f in fields(CostModel)], [])


def default_model(hardware: Hardware) -> CostModel:
    """The model of a machine that was not fitted to anything.

    Args:
        hardware: of `load_hardware`.

    Returns:
        Its device, and parameters that are typical of recent devices.

    Example:
        >>> from jaxperf.config import load_hardware
        >>> float(default_model(load_hardware("h100")).device.memory_bytes_per_s)
        3350000000000.0
    """
    return CostModel(
        device_of(hardware),
        default_matmul_parameters(),
        default_attention_parameters(),
        default_memory_parameters(),
        default_collective_parameters(),
    )


def cost_us(model: CostModel, work: Work) -> Array:
    """How long each piece of work takes.

    Differentiable in every leaf of the model.

    Args:
        model: the machine.
        work: of n tasks, on the host.

    Returns:
        (n,) microseconds; NaN for work of unknown kind, and where a model lacks a number it needs.

    Example:
        >>> from jaxperf.config import load_hardware
        >>> from jaxperf.cost import matmul_work
        >>> time_us = cost_us(default_model(load_hardware("h100")), matmul_work(4096, 4096, 4096))
        >>> bool(2 * 4096**3 / 989.4e12 * 1e6 < time_us[0] < 300)
        True
    """
    kind = np.asarray(work.kind)
    time_us = jnp.full(kind.shape, jnp.nan, jnp.result_type(float))
    models: dict[WorkKind, Callable[[Work], Array]] = {
        WorkKind.MATMUL: lambda some: matmul_us(model.matmul, model.device, some),
        WorkKind.ATTENTION: lambda some: attention_us(model.attention, model.device, some),
        WorkKind.MEMORY: lambda some: memory_us(model.memory, model.device, some),
        WorkKind.COLLECTIVE: lambda some: collective_us(model.collective, model.device, some),
    }
    for which, model_us in models.items():
        rows = np.flatnonzero(kind == which)
        if len(rows):
            found_us = model_us(select_work(work, rows))
            time_us = time_us.at[rows].set(found_us, unique_indices=True)
    return time_us


def cost_ratio(model: CostModel, device: Device, work: Work) -> Array:
    """How much longer work takes on another device.

    Args:
        model: the machine as it is; or many, with a leading axis (draws,) on every leaf.
        device: the other one, with the same leading axis.
        work: of n tasks, on the host.

    Returns:
        (n,) or (draws, n) time there over time here; NaN where the model knows neither.
    """

    def ratio(model: CostModel, device: Device) -> Array:
        return cost_us(replace(model, device=device), work) / cost_us(model, work)

    many = np.ndim(model.device.memory_bytes_per_s) == 1
    return jax.vmap(ratio)(model, device) if many else ratio(model, device)


def model_leaves(model: CostModel) -> dict[str, np.ndarray]:
    """Every number of a model by its path, such as `device.memory_bytes_per_s`.

    Example:
        >>> from jaxperf.config import load_hardware
        >>> model = default_model(load_hardware("a100"))
        >>> float(model_leaves(model)["device.streaming_multiprocessors"])
        108.0
    """
    leaves, _ = jax.tree_util.tree_flatten_with_path(model)
    return {path_text(path): np.asarray(value) for path, value in leaves}


def element_names(path: str, leaf: np.ndarray) -> tuple[str, ...]:
    """What each element of a leaf is called.

    Args:
        path: of the leaf.
        leaf: its value, or anything of its shape.

    Returns:
        One name for each element: the path alone of a single number; else with the class, choice or
        type that the element is for, such as `memory.latency_us[elementwise]`.

    Example:
        >>> element_names("device.peak_flops_per_s", np.zeros(8))[4]
        'device.peak_flops_per_s[bf16]'
    """
    if np.ndim(leaf) == 0:
        return (path,)
    labels = {
        "device": PRECISIONS,
        "memory": tuple(kind.name.lower() for kind in TaskClass),
        "collective": CHOICE_NAMES,
    }[path.partition(".")[0]]
    assert len(labels) == np.size(leaf), f"{path} has no names for its elements"
    return tuple(f"{path}[{label}]" for label in labels)


def path_text(path) -> str:
    """A path of `jax.tree_util` as a user writes it."""
    return jax.tree_util.keystr(path, simple=True, separator=".")
