"""Configuration files: TOML into frozen nouns, with units in the keys and unknown keys refused."""

import difflib
import math
import os
import re
import tomllib
import warnings
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from jaxperf.errors import ConfigError

_T = TypeVar("_T")
Source = str | os.PathLike[str]


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
        l2_bytes: its last-level cache.
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
    l2_bytes: float
    launch_queue: int = 1024
    peak_flops_per_s: dict[str, float]
    links: dict[str, Link]


class Scenario(msgspec.Struct, frozen=True, kw_only=True):
    """One changed world.

    Attributes:
        name: what to call it in the result.
        scale: factor of the durations of what a selector selects.
        set: value of a field of the hardware, by its key; `hardware` names another machine.
    """

    name: str = ""
    scale: dict[str, float] = {}
    set: dict[str, float | str] = {}


class _Scenarios(msgspec.Struct, frozen=True):
    scenario: list[Scenario]


# Hardware
# ---------------------------------------------------------------------------------------


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
    text = os.fspath(source)
    if os.path.isfile(text) or text.endswith(".toml"):
        return _read_hardware(Path(text))
    known = built_in_hardware()
    found = known.get(text) or hardware_of_device(text)
    if found is None:
        raise ConfigError(
            "no such hardware",
            where="hardware",
            got=repr(text),
            expected=f"a TOML file, or one of {', '.join(nearest_words(text, known, most=8))}",
        )
    return found


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
    names = sorted({str(name) for name in device_names})
    found = hardware_of_device(names[0]) if len(names) == 1 else None
    if found is None:
        raise ConfigError(
            "the recorded machine is not known",
            where="hardware",
            got=", ".join(names),
            expected=f"one of {', '.join(built_in_hardware())}",
            remedy="describe it in a TOML file, and name that with --hardware",
        )
    return found


@cache
def built_in_hardware() -> Mapping[str, Hardware]:
    """Every description that comes with the package, by the name of its file.

    Example:
        >>> sorted(built_in_hardware())
        ['a100', 'b200', 'h100', 'h200', 'mi300x', 'v100']
    """
    return {path.stem: _read_hardware(path) for path in sorted(_configs("hardware").glob("*.toml"))}


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
    keys = dict(_places(content))
    for key, value in values.items():
        if key not in keys:
            raise ConfigError(
                "no such key",
                where=f"set {key}",
                expected=f"one of {', '.join(nearest_words(key, keys))}",
            )
        part, last = keys[key]
        # The command line cannot tell 4 from 4.0.
        whole = isinstance(part[last], int) and isinstance(value, float) and value.is_integer()
        part[last] = int(value) if whole else value
    return _check_hardware(_convert(content, Hardware, "set"), "set")


def hardware_numbers(hardware: Hardware) -> dict[str, float]:
    """Every number of a machine by its key.

    Example:
        >>> hardware_numbers(load_hardware("a100"))["peak_flops_per_s.bf16"]
        312000000000000.0
    """
    leaves = _leaves(msgspec.to_builtins(hardware))
    return {key: value for key, value in leaves if not isinstance(value, str | bool)}


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


# Scenarios
# ---------------------------------------------------------------------------------------


def load_scenarios(path: Source) -> tuple[Scenario, ...]:
    """Read a file of scenarios: tables `[[scenario]]` with `name`, `scale` and `set`.

    Args:
        path: the TOML file.

    Returns:
        The scenarios; those without a name are called by their place.

    Raises:
        ConfigError: the file cannot be read, or something in it is unknown or not valid.
    """
    found = load_toml(Path(path), _Scenarios).scenario
    return tuple(
        scenario if scenario.name else msgspec.structs.replace(scenario, name=f"scenario {place}")
        for place, scenario in enumerate(found)
    )


# TOML into nouns
# ---------------------------------------------------------------------------------------


def load_toml(path: Path, noun: type[_T]) -> _T:
    """Read a TOML file into a noun.

    Args:
        path: the file.
        noun: a msgspec `Struct`.

    Returns:
        What the file describes.

    Raises:
        ConfigError: the file cannot be read, or has a key or value that the noun has not.
    """
    try:
        content = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError("cannot be read", where=str(path), got=error.strerror) from None
    except UnicodeDecodeError:
        raise ConfigError("not text", where=str(path), expected="TOML in UTF-8") from None
    except (ValueError, RecursionError) as error:
        # Also of numbers with thousands of digits, and tables nested as deep.
        raise ConfigError("not valid TOML", where=str(path), got=str(error)) from None
    return _convert(content, noun, str(path))


def _convert(content: Any, noun: type[_T], where: str) -> _T:
    _refuse_unknown(content, noun, where, "")
    try:
        return msgspec.convert(content, noun)
    except msgspec.ValidationError as error:
        what, _, place = str(error).partition(" - at ")
        key = place.strip("`").removeprefix("$").removeprefix(".")
        raise ConfigError(
            what.replace("`", ""), where=f"{where}: {key}" if key else where
        ) from None


def _refuse_unknown(content: Any, noun: Any, where: str, place: str) -> None:
    """Refuse what no field of a noun takes, naming the fields that are nearest."""
    kind = msgspec.inspect.type_info(noun) if isinstance(noun, type) else noun
    if isinstance(kind, msgspec.inspect.StructType) and isinstance(content, dict):
        fields = {field.encode_name: field.type for field in kind.fields}
        for key, value in content.items():
            if key not in fields:
                raise ConfigError(
                    "unknown key",
                    where=f"{where}: {place}{key}",
                    expected=f"one of {', '.join(nearest_words(key, fields))}",
                )
            _refuse_unknown(value, fields[key], where, f"{place}{key}.")
    elif isinstance(kind, msgspec.inspect.DictType) and isinstance(content, dict):
        for key, value in content.items():
            _refuse_unknown(value, kind.value_type, where, f"{place}{key}.")
    elif isinstance(kind, msgspec.inspect.ListType) and isinstance(content, list):
        for index, value in enumerate(content):
            _refuse_unknown(value, kind.item_type, where, f"{place.rstrip('.')}[{index}].")


def _places(content: dict[str, Any], place: str = "") -> Iterable[tuple[str, tuple[dict, str]]]:
    """Each number of nested tables: its key, and where it stands."""
    for key, value in content.items():
        if isinstance(value, dict):
            yield from _places(value, f"{place}{key}.")
        elif not isinstance(value, str | bool):
            yield f"{place}{key}", (content, key)


def _leaves(content: Mapping[str, Any], place: str = "") -> Iterable[tuple[str, Any]]:
    for key, value in content.items():
        if isinstance(value, dict):
            yield from _leaves(value, f"{place}{key}.")
        else:
            yield f"{place}{key}", value


def compile_pattern(pattern: str, where: str) -> re.Pattern[str]:
    """A regular expression that a user wrote.

    Raises:
        ConfigError: it is not valid, or too large.

    Example:
        >>> compile_pattern("a+", "scale").pattern
        'a+'
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FutureWarning)
            return re.compile(pattern)
    except (re.error, OverflowError, RecursionError) as error:
        raise ConfigError(
            "not a regular expression", where=where, got=f"{pattern[:80]!r}: {error}"
        ) from None


def nearest_words(word: str, known: Iterable[str], most: int = 5) -> list[str]:
    """The known words that are most like one, else the first of them.

    Example:
        >>> nearest_words("gem", ["gemm", "attention"])
        ['gemm']
    """
    known = list(known)
    return difflib.get_close_matches(word, known, n=most, cutoff=0.5) or known[:most]


def _configs(kind: str) -> Path:
    # In a wheel the files lie inside the package, in a checkout beside it.
    package = Path(__file__).resolve().parent
    inside = package / "configs" / kind
    return inside if inside.is_dir() else package.parent / "configs" / kind
