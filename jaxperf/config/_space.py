"""Spaces to search: which values each field of a job or a machine may take, and what is asked."""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import NoneType
from typing import Any, Literal, get_args, get_type_hints

import msgspec

from jaxperf.config._hardware import Hardware
from jaxperf.config._job import Job
from jaxperf.config._job_files import check_keys, is_job_key, keys_with_kinds, read_value
from jaxperf.config._toml import Source, convert, load_toml, nearest_words, read_named
from jaxperf.errors import ConfigError

Value = int | float | str | bool
MEASURES = {
    "step_us": "least",
    "tokens_per_s_per_gpu": "most",
    "memory_bytes": "least",
    "energy_j_per_token": "least",
    "power_w_per_gpu": "least",
    "usd_per_million_tokens": "least",
}
"""What is known of a point of a space, and which end of it is the better one."""
CLOCK = "clock_hz"
"""Key of the accelerators' clock, beside those of jobs and machines."""
_FOLLOW = {"gpus": "data_parallel", "global_batch_size": "micro_batches"}
_MOST_VALUES = 10_000
_MOST_POINTS = 10**18
_MOST = 10**9
# A power that should be a whole number is one but for rounding.
_ROUNDING = 1e-12


class Range(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Evenly spaced values.

    Attributes:
        first, last: both are among them.
        points: how many there are.
        scale: the steps between them are equal, or the ratios.
    """

    first: float
    last: float
    points: int
    scale: Literal["linear", "log"] = "linear"


class _SpaceFile(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    choices: dict[str, list[Value]] = {}
    ranges: dict[str, Range] = {}
    gpus: int | None = None
    global_batch_size: int | None = None
    gpu_usd_per_hour: float | None = None
    limits: dict[str, float] = {}
    objectives: tuple[str, ...] = ("step_us",)


@dataclass(frozen=True, eq=False)
class SearchSpace:
    """The configurations among which the best one is asked for.

    Attributes:
        name: what to call it.
        axes: values by key of the job, of the machine, `hardware` or `clock_hz`, each in order.
        gpus: of every configuration; the data-parallel degree follows from it.
        global_batch_size: of every configuration; the micro-batches follow from it.
        gpu_usd_per_hour: price of an accelerator with its part of all around it.
        limits: the worst value of a measure that is allowed, by name; what fits into the memory of
            the accelerators is a limit where none is given.
        objectives: one to three of `MEASURES`.
    """

    name: str
    axes: Mapping[str, tuple[Value, ...]]
    gpus: int | None = None
    global_batch_size: int | None = None
    gpu_usd_per_hour: float | None = None
    limits: Mapping[str, float] = field(default_factory=dict)
    objectives: tuple[str, ...] = ("step_us",)

    @property
    def size(self) -> int:
        """How many points it has, those that cannot be included."""
        return math.prod(len(values) for values in self.axes.values())


def load_space(source: Source) -> SearchSpace:
    """Read a space.

    Args:
        source: a TOML file.

    Returns:
        The space; its keys are known only beside a job and a machine, see `check_space`.

    Raises:
        ConfigError: there is no such file, or something in it is unknown or not valid.
    """
    return read_named(source, "space", _read_space, {})


def usual_space(job: Job, gpus: int, global_batch_size: int) -> SearchSpace:
    """What is usually tried for a model on so many accelerators.

    Tensor parallelism within eight, pipelines and virtual stages that divide the layers, powers of
    two of micro-batches, every way to recompute and to shard, and with experts their parallelism.
    The stages that a job has of its own are tried besides.

    Args:
        job: the model.
        gpus: accelerators.
        global_batch_size: sequences of a step.

    Returns:
        The space, with the step as objective.

    Example:
        >>> from jaxperf.config import load_job
        >>> space = usual_space(load_job("gpt3-175b"), 1024, 1024)
        >>> space.axes["pipeline_parallel"], space.axes["virtual_stages"]
        ((1, 2, 4, 8, 16, 32), (1, 2, 3, 4, 6, 8, 12))
    """
    powers = [2**n for n in range(20)]
    pipelines = [n for n in range(1, 65) if job.layers % n == 0 and gpus % n == 0]
    axes: dict[str, tuple[Value, ...]] = {
        "tensor_parallel": tuple(n for n in powers[:4] if gpus % n == 0),
        "pipeline_parallel": tuple(pipelines),
        "virtual_stages": tuple(n for n in range(1, 13) if job.layers % n == 0),
        "micro_batch_size": tuple(n for n in powers[:5] if global_batch_size % n == 0),
        "recompute": ("none", "selective", "full"),
        "sharding": ("none", "zero1", "zero2", "zero3"),
    }
    if job.stage_layers is not None:
        # Stages of its own fit one number of them; all others have as many layers in each.
        axes["stage_layers"] = ("none", ",".join(map(str, job.stage_layers)))
        axes["virtual_stages"] = _with(axes["virtual_stages"], job.virtual_stages)
        if gpus % job.pipeline_parallel == 0:
            axes["pipeline_parallel"] = _with(pipelines, job.pipeline_parallel)
    if job.experts is not None:
        count = job.experts.count
        axes["expert_parallel"] = tuple(n for n in powers[:7] if count % n == 0 and gpus % n == 0)
    return SearchSpace("usual", axes, gpus, global_batch_size)


def _with(values: Iterable[Any], more: int) -> tuple[Value, ...]:
    return tuple(sorted({*values, more}))


def check_space(space: SearchSpace, job: Job, hardware: Hardware) -> SearchSpace:
    """Refuse a space that asks for what there is not.

    Args:
        space: the space.
        job: the model that it is searched for.
        hardware: the machine.

    Returns:
        The same space.

    Raises:
        ConfigError: a key, measure or number is not valid, or two say the same.

    Example:
        >>> from jaxperf.config import load_hardware, load_job
        >>> space = SearchSpace("two", {"tensor_paralel": (1, 2)})
        >>> check_space(space, load_job("llama3-8b"), load_hardware("h100"))
        Traceback (most recent call last):
        jaxperf.errors.ConfigError: set tensor_paralel: no such key; \
expected one of tensor_parallel, ...
    """
    check_keys((key for key in space.axes if key != CLOCK), hardware)
    typed = field_values(space, job)
    for key, values in space.axes.items():
        if not values or len(set(typed.get(key, values))) < len(values):
            got = "none" if not values else "the same value twice"
            _refuse(space, key, "not a choice", got, "one or more different values")
    if space.size > _MOST_POINTS:
        got, expected = f"{space.size:.3g}", f"at most {_MOST_POINTS:g}"
        _refuse(space, "size", "too many points", got, expected)
    for total in _FOLLOW:
        _count(getattr(space, total), f"space {space.name}: {total}")
    for total, follows in _FOLLOW.items():
        if getattr(space, total) is not None and follows in space.axes:
            got, expected = f"{follows} beside {total}", f"one of them: {follows} follows"
            _refuse(space, follows, "said twice", got, expected)
    for name in (*space.objectives, *space.limits):
        if name not in MEASURES:
            _refuse(space, name, "no such measure", None, ", ".join(nearest_words(name, MEASURES)))
    count = len(space.objectives)
    if not 1 <= count <= 3 or len(set(space.objectives)) < count:
        _refuse(space, "objectives", "not one to three of them", str(count), "different measures")
    for name, limit in space.limits.items():
        if math.isnan(limit):
            _refuse(space, name, "not a limit", str(limit), "a number")
    price = space.gpu_usd_per_hour
    if price is not None and not (math.isfinite(price) and price > 0):
        _refuse(space, "gpu_usd_per_hour", "not a price", f"{price:g}", "a number above 0")
    asked = {*space.objectives, *space.limits}
    if "usd_per_million_tokens" in asked and space.gpu_usd_per_hour is None:
        _refuse(space, "gpu_usd_per_hour", "no price", None, "what an accelerator costs in an hour")
    return space


def field_values(space: SearchSpace, job: Job) -> dict[str, tuple[Any, ...]]:
    """The values of a space as the fields of a job have them, read as `set_job` reads them.

    Args:
        space: whose keys are known, see `check_space`.
        job: the model that it is searched for.

    Returns:
        (values,) by key of the job, in the order of the space.

    Raises:
        ConfigError: a value is not of the type of its field, or the job has no such table.

    Example:
        >>> from jaxperf.config import load_job
        >>> space = SearchSpace("two", {"stage_layers": ("none", "16,16"), "layers": (16.0,)})
        >>> field_values(space, load_job("llama3-8b"))
        {'stage_layers': (None, (16, 16)), 'layers': (16,)}
    """
    found, hints = {}, get_type_hints(Job)
    for key in filter(is_job_key, space.axes):
        table, _, inner = key.partition(".")
        hint = hints[table]
        if inner:
            if getattr(job, table) is None:
                _refuse(space, key, "no such part", f"a job without {table}", "other keys")
            if table in space.axes:
                _refuse(space, key, "said twice", f"{key} beside {table}", "one of them")
            (noun,) = set(get_args(hint)) - {NoneType}
            hint = get_type_hints(noun)[inner]
        values = [read_value(value, keys_with_kinds()[key]) for value in space.axes[key]]
        found[key] = tuple(convert(values, list[hint], f"space {space.name}: {key}"))
    return found


def _read_space(path: Path) -> SearchSpace:
    found = load_toml(path, _SpaceFile)
    axes: dict[str, tuple[Value, ...]] = {}
    for key, values in found.choices.items():
        axes[key] = tuple(values)
    for key, values in found.ranges.items():
        if key in axes:
            raise ConfigError("said twice", where=f"{path}: {key}", expected="choices or a range")
        axes[key] = _spaced(values, f"{path}: ranges.{key}")
    return SearchSpace(
        path.stem,
        axes,
        _count(found.gpus, f"{path}: gpus"),
        _count(found.global_batch_size, f"{path}: global_batch_size"),
        found.gpu_usd_per_hour,
        found.limits,
        found.objectives,
    )


def _spaced(values: Range, where: str) -> tuple[Value, ...]:
    first, last, points = values.first, values.last, values.points
    sound = math.isfinite(first) and math.isfinite(last) and first < last
    if not sound or not 2 <= points <= _MOST_VALUES or (values.scale == "log" and first <= 0):
        raise ConfigError(
            "not a range",
            where=where,
            got=f"{points} points from {first:g} to {last:g}, {values.scale}",
            expected=f"2 to {_MOST_VALUES} points, the first below the last, above 0 where log",
        )
    shares = [n / (points - 1) for n in range(points)]
    if values.scale == "log":
        spaced = [first * (last / first) ** share for share in shares]
    else:
        spaced = [first + (last - first) * share for share in shares]
    return tuple(_whole(value) for value in (first, *spaced[1:-1], last))


def _whole(value: float) -> float:
    near = round(value)
    return near if abs(value - near) <= _ROUNDING * abs(value) else value


def _count(value: int | None, where: str) -> int | None:
    if value is not None and not 1 <= value <= _MOST:
        raise ConfigError("not a count", where=where, got=str(value)[:40], expected=f"1 to {_MOST}")
    return value


def _refuse(space: SearchSpace, key: str, what: str, got: Any, expected: str) -> None:
    raise ConfigError(what, where=f"space {space.name}: {key}", got=got, expected=expected)
