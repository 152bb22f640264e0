"""What an accelerator draws: static power, and the energy of what runs on it.

    v(f)        = max(v_min, 1 + slope (f / f0 - 1))         in parts of the voltage at f0
    P_static(f) = constant + leakage v + clock (f / f0) v^2
    E_task(f)   = t (f / f0) v^2 class + v^2 flop F + memory B + link L
    P(t)        = P_static + sum of E_k / t_k over the tasks that run at t

Static power and switching energy as in Kim et al., "Leakage current: Moore's law meets static
power" (2003); the energies of tasks that run at once add up. Every number is a leaf.
"""

from dataclasses import dataclass, fields, replace

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.typing import ArrayLike

from jaxperf.config import PowerDescription
from jaxperf.cost import PRECISIONS
from jaxperf.energy.power._tasks import PowerTasks
from jaxperf.errors import ConfigError
from jaxperf.graph import TaskClass


@dataclass(frozen=True, eq=False)
class PowerModel:
    """What an accelerator draws. Every field is a leaf.

    Attributes:
        constant_w, leakage_w, clock_w: () static power; see `jaxperf.config.Static`.
        minimum_voltage, voltage_slope: () see `jaxperf.config.Voltage`.
        nominal_clock_hz: () at which the other numbers hold.
        flop_j: (precisions,) energy of an operation of each of `PRECISIONS`.
        memory_byte_j, node_byte_j, network_byte_j: () energy of a byte.
        class_w: (classes,) by `TaskClass`, of a kernel besides its operations and bytes.
        unknown_w: (classes,) of a kernel whose work is not known.
    """

    constant_w: ArrayLike
    leakage_w: ArrayLike
    clock_w: ArrayLike
    minimum_voltage: ArrayLike
    voltage_slope: ArrayLike
    nominal_clock_hz: ArrayLike
    flop_j: ArrayLike
    memory_byte_j: ArrayLike
    node_byte_j: ArrayLike
    network_byte_j: ArrayLike
    class_w: ArrayLike
    unknown_w: ArrayLike


jax.tree_util.register_dataclass(PowerModel, [f.name for f in fields(PowerModel)], [])

# Where a type has no energy of its own, it is computed in the next of these that has.
_COMPUTED_AS = {
    "fp64": ("fp32",),
    "fp32": ("tf32",),
    "tf32": ("fp32",),
    "fp16": ("bf16", "tf32", "fp32"),
    "bf16": ("fp16", "tf32", "fp32"),
    "fp8": ("bf16", "fp16"),
    "int8": ("fp8", "bf16", "fp16"),
    "fp4": ("fp8", "bf16", "fp16"),
}


def power_model(description: PowerDescription) -> PowerModel:
    """The model of an accelerator that a file describes.

    Args:
        description: of `load_power`.

    Returns:
        Its numbers as float64 arrays. Where a type of operation has no energy, that of the next
        wider type which has one stands for it; where none has, the highest of those given.

    Raises:
        ConfigError: the description names a type or class that there is not.

    Example:
        >>> from jaxperf.config import load_power
        >>> float(static_power_w(power_model(load_power("h100")), 1980e6))
        117.0
    """
    known = {each.name.lower() for each in TaskClass}
    for table, words in (
        ("flop_j", set(description.flop_j) - set(PRECISIONS)),
        ("class_w", set(description.class_w) - known),
        ("unknown_w", set(description.unknown_w) - known),
    ):
        if words:
            raise ConfigError(
                "unknown key",
                where=f"{description.name}: {table}",
                got=", ".join(sorted(words)),
                expected=", ".join(PRECISIONS if table == "flop_j" else sorted(known)),
            )
    static, voltage = description.static, description.voltage
    return PowerModel(
        constant_w=np.float64(static.constant_w),
        leakage_w=np.float64(static.leakage_w),
        clock_w=np.float64(static.clock_w),
        minimum_voltage=np.float64(voltage.minimum),
        voltage_slope=np.float64(voltage.slope),
        nominal_clock_hz=np.float64(description.nominal_clock_hz),
        flop_j=np.array([_flop_j(description, name) for name in PRECISIONS]),
        memory_byte_j=np.float64(description.memory_byte_j),
        node_byte_j=np.float64(description.node_byte_j),
        network_byte_j=np.float64(description.network_byte_j),
        class_w=_by_class(description.class_w, 0.0),
        unknown_w=_by_class(description.unknown_w, description.unknown_w["other"]),
    )


def _flop_j(description: PowerDescription, precision: str) -> float:
    energies = description.flop_j
    found = (energies[p] for p in (precision, *_COMPUTED_AS[precision]) if p in energies)
    return next(found, max(energies.values(), default=float("nan")))


def _by_class(table: dict[str, float], otherwise: float) -> np.ndarray:
    return np.array([table.get(each.name.lower(), otherwise) for each in TaskClass])


def voltage(model: PowerModel, clock_hz: ArrayLike) -> Array:
    """The voltage at a clock, in parts of that at the nominal clock; shaped as `clock_hz`.

    Example:
        >>> [round(float(voltage(model, hz)), 3) for hz in (1980e6, 345e6)]  # of an H100
        [1.0, 0.7]
    """
    relative = jnp.asarray(clock_hz) / model.nominal_clock_hz
    return jnp.maximum(model.minimum_voltage, 1.0 + model.voltage_slope * (relative - 1.0))


def static_power_w(model: PowerModel, clock_hz: ArrayLike) -> Array:
    """What the accelerator draws at a clock while nothing runs; shaped as `clock_hz`.

    Example:
        >>> float(static_power_w(model, 1980e6)) > float(static_power_w(model, 990e6))
        True
    """
    v = voltage(model, clock_hz)
    relative = jnp.asarray(clock_hz) / model.nominal_clock_hz
    return jnp.asarray(model.constant_w + model.leakage_w * v + model.clock_w * relative * v**2)


def task_time_us(model: PowerModel, tasks: PowerTasks, clock_hz: ArrayLike) -> Array:
    """How long tasks take at a clock: what waits for memory or links does not follow it.

    Args:
        model: the accelerator.
        tasks: n tasks, as timed at the nominal clock.
        clock_hz: () or (n,), or with further leading axes.

    Returns:
        (n,), or with those axes.

    Example:
        >>> task_time_us(model, tasks, 990e6).tolist()  # half the clock; a copy does not follow
        [20.0, 2.0]
    """
    slower = model.nominal_clock_hz / jnp.asarray(clock_hz) - 1.0
    return jnp.asarray(tasks.duration_us * (1.0 + tasks.clock_share * slower))


def moved_energy_j(model: PowerModel, tasks: PowerTasks) -> Array:
    """What the bytes of tasks take to and from memory and over links, at any clock; (n,) joules.

    Example:
        >>> np.asarray(moved_energy_j(model, tasks) * 1e6).round().tolist()  # uJ, of 1 MB each
        [100.0, 100.0]
    """
    return jnp.asarray(
        model.memory_byte_j * jnp.asarray(tasks.memory_bytes)
        + model.node_byte_j * jnp.asarray(tasks.node_bytes)
        + model.network_byte_j * jnp.asarray(tasks.network_bytes)
    )


def task_energy_j(model: PowerModel, tasks: PowerTasks, clock_hz: ArrayLike) -> Array:
    """What tasks take on top of static power.

    Differentiable in every leaf of the model and in the clock.

    Args:
        model: the accelerator.
        tasks: n tasks, as timed at the nominal clock.
        clock_hz: () or (n,), or with further leading axes.

    Returns:
        (n,) joules, or with those axes.

    Example:
        >>> fast_j, slow_j = (task_energy_j(model, tasks, hz) for hz in (1980e6, 990e6))
        >>> bool(slow_j[0] < fast_j[0])  # the multiply, at a lower voltage
        True
    """
    v = voltage(model, clock_hz)
    time_s = task_time_us(model, tasks, clock_hz) * 1e-6
    activity = jnp.asarray(clock_hz) / model.nominal_clock_hz * v**2
    flop_j = jnp.asarray(model.flop_j)[tasks.precision] * tasks.flops
    moved_j = moved_energy_j(model, tasks)
    class_w = jnp.asarray(model.class_w)[tasks.task_class]
    unknown_w = jnp.asarray(model.unknown_w)[tasks.task_class]
    known_j = time_s * activity * class_w + v**2 * flop_j + moved_j
    # The same kernel at another clock does the same work: its energy changes with the voltage.
    unknown_j = tasks.duration_us * 1e-6 * v**2 * unknown_w
    return jnp.where(tasks.is_known, known_j, unknown_j)


def as_at_nominal_clock(model: PowerModel, tasks: PowerTasks, clock_hz: ArrayLike) -> PowerTasks:
    """Tasks as they would be timed at the nominal clock, from times at another.

    Args:
        model: the accelerators.
        tasks: n tasks, with the times and shares that they had.
        clock_hz: (n,) or (), the clock that they had.

    Returns:
        The tasks; `task_time_us` at that clock gives their times back.

    Example:
        >>> at_nominal = as_at_nominal_clock(model, tasks, 1e9)
        >>> bool(at_nominal.duration_us[0] < tasks.duration_us[0])
        True
    """
    relative = jnp.asarray(clock_hz) / model.nominal_clock_hz
    ratio = 1.0 - tasks.clock_share + tasks.clock_share * relative
    return replace(
        tasks,
        duration_us=tasks.duration_us * ratio,
        clock_share=tasks.clock_share * relative / ratio,
    )


def static_power_by_w(
    model: PowerModel, place: ArrayLike, places: int, time_us: Array, clock_hz: Array
) -> Array:
    """Static power where tasks of several clocks run: the mean over their time.

    What waits between them draws as much; where none runs the clock is the nominal one.

    Args:
        model: the accelerator.
        place: (n,) int, what each task belongs to, such as its rank.
        places: how many there are.
        time_us: (n,) or (n, scenarios) how long each counts.
        clock_hz: the same shape.

    Returns:
        (places,) or (places, scenarios) watts.

    Example:
        >>> float(static_power_by_w(model, tasks.rank, 1, jnp.array([3.0]), jnp.array([1.98e9]))[0])
        117.0
    """

    def total(values: Array) -> Array:
        return jax.ops.segment_sum(values, jnp.asarray(place), places)

    busy_us = total(time_us)
    mean_w = total(time_us * static_power_w(model, clock_hz)) / jnp.where(busy_us > 0, busy_us, 1.0)
    return jnp.where(busy_us > 0, mean_w, static_power_w(model, model.nominal_clock_hz))
