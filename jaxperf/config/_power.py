"""What accelerators, nodes and meters draw and lose, as files describe it."""

import math
import re
from collections.abc import Mapping
from functools import cache
from pathlib import Path

import msgspec

from jaxperf.config._toml import (
    Source,
    compile_pattern,
    config_folder,
    leaves,
    load_toml,
    read_named,
)
from jaxperf.errors import ConfigError


class Voltage(msgspec.Struct, frozen=True, kw_only=True):
    """How the voltage follows the clock, in parts of what both are at the nominal clock.

    Attributes:
        minimum: below it the voltage does not fall.
        slope: change of the voltage for a change of the clock, above it.
    """

    minimum: float
    slope: float


class Static(msgspec.Struct, frozen=True, kw_only=True):
    """What an accelerator draws while nothing runs, though a program holds it; they add up.

    Attributes:
        constant_w: whatever the clock is: memory refresh, fans, regulators.
        leakage_w: at the nominal clock; in proportion to the voltage.
        clock_w: at the nominal clock; in proportion to the clock and to the square of the voltage.
    """

    constant_w: float
    leakage_w: float
    clock_w: float


class Node(msgspec.Struct, frozen=True, kw_only=True):
    """What a node draws besides its accelerators, and what its power supplies lose.

    Attributes:
        host_w: processors, memory, disks and network adapters while training.
        fan_share: of the fans, for each watt of all else in the node.
        conversion_efficiency: of the power supplies: power out by power in.
    """

    host_w: float
    fan_share: float
    conversion_efficiency: float


class Meter(msgspec.Struct, frozen=True, kw_only=True):
    """How the accelerator's own meter sees its power.

    Attributes:
        window_s: over which one reading is the mean.
        delay_s: from the end of that window to the time stamp.
    """

    window_s: float
    delay_s: float


class PowerDescription(msgspec.Struct, frozen=True, kw_only=True):
    """Power of an accelerator and its node, as a file in `configs/power` describes them.

    Attributes:
        name: as the profiler names the device.
        device_pattern: regular expression for all the names that it goes by; `name` where empty.
        nominal_clock_hz: of the multiprocessors, at which the other numbers hold.
        minimum_clock_hz, maximum_clock_hz: what can be set.
        power_limit_w: which the device keeps by lowering its clock.
        idle_w: no program holds the device.
        static: nothing runs, though a program holds the device.
        voltage: how it follows the clock.
        flop_j: energy of an operation by type, such as `bf16`.
        memory_byte_j: of a byte to or from the device's memory.
        node_byte_j, network_byte_j: of a byte sent over the link inside a node, or between nodes.
        class_w: by class of kernel, what it draws besides the operations and bytes it is for.
        unknown_w: by class of kernel, what one draws whose work is not known; `other` for all
            classes that are not named.
        node: of whole accelerators.
        meter: of the accelerator.
    """

    name: str
    device_pattern: str = ""
    nominal_clock_hz: float
    minimum_clock_hz: float
    maximum_clock_hz: float
    power_limit_w: float
    idle_w: float
    static: Static
    voltage: Voltage
    flop_j: dict[str, float]
    memory_byte_j: float
    node_byte_j: float
    network_byte_j: float
    class_w: dict[str, float] = {}
    unknown_w: dict[str, float]
    node: Node
    meter: Meter


def load_power(source: Source) -> PowerDescription:
    """Read the description of what an accelerator and its node draw.

    Args:
        source: a TOML file; or the name of one that comes with the package, such as `h100`; or a
            device as the profiler names it.

    Returns:
        The description.

    Raises:
        ConfigError: there is no such file or name, or something in it is unknown or not valid.

    Example:
        >>> load_power("h100").power_limit_w
        700.0
    """
    return read_named(source, "power", _read_power, built_in_power(), power_of_device)


def power_of_device(device_name: str) -> PowerDescription | None:
    """The description that comes with the package of a device, by the profiler's name of it.

    Example:
        >>> power_of_device("NVIDIA H100 80GB HBM3").idle_w
        70.0
        >>> power_of_device("Tesla P4")
    """
    for power in built_in_power().values():
        if re.search(power.device_pattern or re.escape(power.name), device_name):
            return power
    return None


@cache
def built_in_power() -> Mapping[str, PowerDescription]:
    """Every description that comes with the package, by the name of its file.

    Example:
        >>> "h100" in built_in_power()
        True
    """
    return {path.stem: _read_power(path) for path in sorted(config_folder("power").glob("*.toml"))}


def _read_power(path: Path) -> PowerDescription:
    power = load_toml(path, PowerDescription)
    for key, value in leaves(msgspec.to_builtins(power)):
        if not isinstance(value, str) and not (math.isfinite(value) and value >= 0):
            raise ConfigError(
                "not a quantity", where=f"{path}: {key}", got=repr(value), expected="0 or more"
            )
    clocks = power.minimum_clock_hz, power.nominal_clock_hz, power.maximum_clock_hz
    if not 0 < clocks[0] <= clocks[1] <= clocks[2]:
        raise ConfigError(
            "clocks out of order",
            where=str(path),
            got=", ".join(f"{clock:g}" for clock in clocks),
            expected="0 < minimum_clock_hz <= nominal_clock_hz <= maximum_clock_hz",
        )
    efficiency = power.node.conversion_efficiency
    if not 0 < efficiency <= 1:
        raise ConfigError(
            "not an efficiency",
            where=f"{path}: node.conversion_efficiency",
            got=repr(efficiency),
            expected="above 0, at most 1",
        )
    if "other" not in power.unknown_w:
        raise ConfigError("missing key", where=f"{path}: unknown_w", expected="other")
    compile_pattern(power.device_pattern, f"{path}: device_pattern")
    return power
