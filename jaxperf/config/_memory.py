"""Memories and the servers that hold them: the descriptions that come with the package."""

import math
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Literal

import msgspec

from jaxperf.config._hardware import load_hardware
from jaxperf.config._toml import Source, config_folder, leaves, load_toml, read_named
from jaxperf.errors import ConfigError


class Memory(msgspec.Struct, frozen=True, kw_only=True):
    """A memory, as a file in `configs/memory` describes one module, drive or stack of it.

    Attributes:
        name: of the product.
        kind: `device` is the accelerator's own, `host` is DRAM, `byte` is addressed by bytes and
            slower (storage-class memory, CXL), `block` is read and written in blocks (SSD).
        capacity_bytes: of one.
        read_bytes_per_s, write_bytes_per_s: of one.
        latency_us: of a read.
        block_bytes: least that is moved at once.
        queue_depth: blocks under way at once, of one.
        read_iops, write_iops: blocks a second of one; `None` where only bandwidth bounds it.
        drive_writes_per_day: rated, for `warranty_years`; `None` where it does not wear.
        warranty_years: of that rating.
        space_amplification: bytes that it takes to keep one of a row: above 1 where rows lie in a
            log-structured store, whose upper levels keep what the last one has an older copy of.
        price_usd: of one.
        idle_w, active_w: of one.
    """

    name: str
    kind: Literal["device", "host", "byte", "block"]
    capacity_bytes: float
    read_bytes_per_s: float
    write_bytes_per_s: float
    latency_us: float
    block_bytes: float
    queue_depth: float = 1024.0
    read_iops: float | None = None
    write_iops: float | None = None
    drive_writes_per_day: float | None = None
    warranty_years: float = 5.0
    space_amplification: float = 1.0
    price_usd: float
    idle_w: float
    active_w: float


class Tier(msgspec.Struct, frozen=True, kw_only=True):
    """A level of a server's hierarchy.

    Attributes:
        memory: its name among the descriptions that come with the package, or a TOML file,
            beside the server's own or absolute.
        count: modules, drives or stacks of it in the server.
        link_bytes_per_s: each way, between the tier and what is above it, of the whole server; what
            comes from tiers below passes it as well. `None` where the memory itself bounds.
    """

    memory: str
    count: int
    link_bytes_per_s: float | None = None


class Server(msgspec.Struct, frozen=True, kw_only=True):
    """A server that trains recommendation models.

    Attributes:
        name: of the server.
        hardware: its accelerators and links, as `load_hardware` takes it.
        tiers: from the fastest memory to the slowest; the first is the accelerators' own.
        price_usd: without the memories of `tiers` but the first.
        host_w: of the server without accelerators and the memories of `tiers`.
        gpu_idle_w, gpu_active_w: of one accelerator, its own memory included.
    """

    name: str
    hardware: str
    tiers: list[Tier]
    price_usd: float
    host_w: float
    gpu_idle_w: float
    gpu_active_w: float


def load_memory(source: Source) -> Memory:
    """Read the description of a memory.

    Args:
        source: a TOML file, or the name of one that comes with the package, such as `ddr4-64gb`.

    Returns:
        The description.

    Raises:
        ConfigError: there is no such file or name, or something in it is unknown or not valid.
    """
    return read_named(source, "memory", _read_memory, _built_in_memories())


def load_server(source: Source) -> Server:
    """Read the description of a server.

    Args:
        source: a TOML file, or the name of one that comes with the package.

    Returns:
        The description; its memories and its hardware are known.

    Raises:
        ConfigError: there is no such file or name, or something in it is unknown or not valid.
    """
    return read_named(source, "server", _read_server, built_in_servers())


@cache
def _built_in_memories() -> Mapping[str, Memory]:
    return {
        path.stem: _read_memory(path) for path in sorted(config_folder("memory").glob("*.toml"))
    }


@cache
def built_in_servers() -> Mapping[str, Server]:
    """Every server that comes with the package, by the name of its file."""
    return {
        path.stem: _read_server(path) for path in sorted(config_folder("servers").glob("*.toml"))
    }


def _read_memory(path: Path) -> Memory:
    memory = load_toml(path, Memory)
    may_be_zero = {"price_usd", "idle_w", "active_w", "latency_us"}
    _check_quantities(memory, may_be_zero, str(path))
    if memory.space_amplification < 1:
        raise ConfigError(
            "a row takes less than its bytes",
            where=f"{path}: space_amplification",
            got=repr(memory.space_amplification),
            expected="1 or more",
        )
    return memory


def _read_server(path: Path) -> Server:
    server = load_toml(path, Server)
    server = msgspec.structs.replace(server, tiers=[_beside(each, path) for each in server.tiers])
    _check_quantities(server, {"price_usd", "host_w", "gpu_idle_w", "gpu_active_w"}, str(path))
    load_hardware(server.hardware)
    memories = [load_memory(tier.memory) for tier in server.tiers]
    if not memories or memories[0].kind != "device":
        raise ConfigError(
            "the first tier is not the accelerators' own memory",
            where=f"{path}: tiers",
            got=memories[0].kind if memories else "none",
            expected="a memory of kind device",
        )
    for index, tier in enumerate(server.tiers):
        _check_quantities(tier, set(), f"{path}: tiers[{index}]")
    return server


def _beside(tier: Tier, path: Path) -> Tier:
    """A tier whose memory, where it is a file, is found from the server's own."""
    if not tier.memory.endswith(".toml"):
        return tier
    return msgspec.structs.replace(tier, memory=str(path.parent / tier.memory))


def _check_quantities(noun: msgspec.Struct, may_be_zero: set[str], where: str) -> None:
    for key, value in leaves(msgspec.to_builtins(noun)):
        if not isinstance(value, int | float):
            continue
        zero = key in may_be_zero
        if not math.isfinite(value) or value < 0 or (value == 0 and not zero):
            raise ConfigError(
                "not a quantity",
                where=f"{where}: {key}",
                got=repr(value),
                expected="0 or more" if zero else "a number above 0",
            )
