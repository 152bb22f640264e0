"""Machines: an accelerator, its links, and the descriptions that come with the package."""

import math
import re
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import msgspec

from jaxperf.config._toml import (
    Source,
    compile_pattern,
    config_folder,
    convert,
    leaves,
    load_toml,
    number_places,
    one_of,
    read_named,
)
from jaxperf.errors import ConfigError


class Link(msgspec.Struct, frozen=True):
    """A link between accelerators.

    Attributes:
        bus_bytes_per_s: bus bandwidth of a large collective, per accelerator.
        latency_us: time of a small one.
        sums_in_switch: whether the switch can reduce (NVLink SHARP).
    """

    bus_bytes_per_s: float
    latency_us: float
    sums_in_switch: bool = False


class Hardware(msgspec.Struct, frozen=True, kw_only=True):
    """An accelerator and its links, as a file in `configs/hardware` describes them.

    Attributes:
        name: as the profiler names the device.
        device_pattern: regular expression for all the names that it goes by; `name` where empty.
        gpus_per_node: accelerators in a node.
        streaming_multiprocessors: of one accelerator; compute units on AMD.
        memory_bytes, memory_bytes_per_s: its memory.
        l2_bytes: its last-level cache, `None` where not known.
        launch_queue: kernels that may be launched ahead.
        peak_flops_per_s: dense peak by type, such as `bf16`.
        links: `network` between nodes, and one of any other name inside a node.
    """

    name: str
    device_pattern: str = ""
    gpus_per_node: int
    streaming_multiprocessors: int
    memory_bytes: float
    memory_bytes_per_s: float
    l2_bytes: float | None = None
    launch_queue: int = 1024
    peak_flops_per_s: dict[str, float]
    links: dict[str, Link]


def load_hardware(source: Source) -> Hardware:
    """Read the description of a machine.

    Args:
        source: a TOML file; or the name of one that comes with the package, such as `h100`; or a
            device as the profiler names it, such as `NVIDIA H100 80GB HBM3`.

    Returns:
        The description.

    Raises:
        ConfigError: there is no such file or name, or something in it is unknown or not valid.

    Example:
        >>> load_hardware("h100").streaming_multiprocessors
        132
        >>> load_hardware("Tesla V100-SXM2-16GB").name
        'Tesla V100-SXM2-32GB'
    """
    known = built_in_hardware()
    return read_named(source, "hardware", _read_hardware, known, hardware_of_device)


def hardware_of_device(device_name: str) -> Hardware | None:
    """The description that comes with the package of a device, by the profiler's name of it.

    Example:
        >>> hardware_of_device("NVIDIA A100-SXM4-80GB").memory_bytes_per_s
        2039000000000.0
        >>> hardware_of_device("Tesla P4")
    """
    for hardware in built_in_hardware().values():
        if re.search(hardware.device_pattern or re.escape(hardware.name), device_name):
            return hardware
    return None


def recorded_hardware(
    device_names: Iterable[str | None], hardware: Hardware | Source | None = None
) -> Hardware:
    """The machine that a run was recorded on.

    Args:
        device_names: as its traces name their devices.
        hardware: what the user says it is, which settles it.

    Returns:
        The description.

    Raises:
        ConfigError: the user says nothing, and the package knows no such device, or there are
            several.
    """
    if isinstance(hardware, Hardware):
        return hardware
    if hardware is not None:
        return load_hardware(hardware)
    names = sorted({name or "no name" for name in device_names})
    known = ", ".join(built_in_hardware())
    if not set(names) - {"no name"}:
        raise ConfigError(
            "the traces do not name their device",
            where="hardware",
            expected=f"one of {known}, or a TOML file that describes it",
            remedy="say which it is, such as --hardware mi300x",
        )
    found = hardware_of_device(names[0]) if len(names) == 1 else None
    if found is None:
        raise ConfigError(
            "the recorded machine is not known",
            where="hardware",
            got=", ".join(names),
            expected=f"one of {known}",
            remedy="describe it in a TOML file, and name that with --hardware",
        )
    return found


@cache
def built_in_hardware() -> Mapping[str, Hardware]:
    """Every description that comes with the package, by the name of its file.

    Example:
        >>> built_in_hardware()["h100"].gpus_per_node
        8
    """
    return {
        path.stem: _read_hardware(path) for path in sorted(config_folder("hardware").glob("*.toml"))
    }


def node_and_network(hardware: Hardware) -> tuple[Link, Link]:
    """The links inside a node and between nodes; a missing one is as quick as the other.

    Args:
        hardware: of `load_hardware`, which refuses a machine without links.

    Returns:
        Both links.

    Example:
        >>> [link.latency_us for link in node_and_network(load_hardware("h100"))]
        [8.5, 24.0]
    """
    links = list(hardware.links.values())
    node = next((link for name, link in hardware.links.items() if name != "network"), links[0])
    return node, hardware.links.get("network", node)


def set_hardware(hardware: Hardware, values: Mapping[str, Any]) -> Hardware:
    """A machine with some of its numbers changed.

    Args:
        hardware: the machine.
        values: by key, such as `memory_bytes_per_s` or `links.nvlink.latency_us`.

    Returns:
        The changed machine.

    Raises:
        ConfigError: there is no such key, or the value is not valid.

    Example:
        >>> set_hardware(load_hardware("h100"), {"links.nvlink.latency_us": 3.0}).links["nvlink"]
        Link(bus_bytes_per_s=..., latency_us=3.0, sums_in_switch=True)
    """
    content = msgspec.to_builtins(hardware)
    keys = dict(number_places(content))
    for key, value in values.items():
        if key not in keys:
            raise ConfigError(
                "no such key",
                where=f"set {key}",
                expected=one_of(key, keys),
            )
        part, last = keys[key]
        # The command line cannot tell 4 from 4.0.
        whole = isinstance(part[last], int) and isinstance(value, float) and value.is_integer()
        part[last] = int(value) if whole else value
    return _check_hardware(convert(content, Hardware, "set"), "set")


def hardware_numbers(hardware: Hardware) -> dict[str, float]:
    """Every number of a machine by its key.

    Example:
        >>> hardware_numbers(load_hardware("a100"))["peak_flops_per_s.bf16"]
        312000000000000.0
    """
    numbers = leaves(msgspec.to_builtins(hardware))
    return {key: value for key, value in numbers if not isinstance(value, str | bool | None)}


def _read_hardware(path: Path) -> Hardware:
    return _check_hardware(load_toml(path, Hardware), str(path))


def _check_hardware(hardware: Hardware, where: str) -> Hardware:
    for key, value in hardware_numbers(hardware).items():
        if not (math.isfinite(value) and value > 0):
            raise ConfigError(
                "not a quantity",
                where=f"{where}: {key}",
                got=repr(value),
                expected="a number above 0",
            )
    for key in ("peak_flops_per_s", "links"):
        if not getattr(hardware, key):
            raise ConfigError("empty table", where=f"{where}: {key}", expected="at least one entry")
    inside = [name for name in hardware.links if name != "network"]
    if len(inside) > 1:
        raise ConfigError(
            "two links inside a node",
            where=f"{where}: links",
            got=", ".join(inside),
            expected="network, and one of another name",
        )
    compile_pattern(hardware.device_pattern, f"{where}: device_pattern")
    return hardware
