"""Job files: read, checked, and changed by key."""

from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import msgspec

from jaxperf.config._hardware import Hardware, hardware_numbers
from jaxperf.config._job import Job
from jaxperf.config._job_rules import check_job
from jaxperf.config._toml import (
    Source,
    config_folder,
    convert,
    load_toml,
    one_of,
    read_named,
)
from jaxperf.errors import ConfigError

_Kinds = tuple[msgspec.inspect.Type, ...]


def load_job(source: Source) -> Job:
    """Read the description of a training job.

    Args:
        source: a TOML file, or the name of one that comes with the package, such as `llama3-8b`.

    Returns:
        The job, which fulfils `check_job`.

    Raises:
        ConfigError: there is no such file or name, something in it is unknown or not valid, or
            the job cannot be.

    Example:
        >>> load_job("llama3-8b").layers
        32
    """
    return read_named(source, "job", _read_job, built_in_jobs())


@cache
def built_in_jobs() -> Mapping[str, Job]:
    """Every job that comes with the package, by the name of its file.

    Example:
        >>> built_in_jobs()["gpt3-175b"].hidden_size
        12288
    """
    return {path.stem: _read_job(path) for path in sorted(config_folder("jobs").glob("*.toml"))}


def set_job(job: Job, values: Mapping[str, Any], gpus: int | None = None) -> Job:
    """A job with some of its fields changed.

    Args:
        job: the job.
        values: by key, such as `layers` or `experts.count`. A number, a word, `true` or `false`,
            and for `stage_layers` numbers with commas between; `none` where a field may be absent.
            What has the value that follows from another field goes on following it: see
            `following_fields`.
        gpus: how many there are, where that is known.

    Returns:
        The changed job, which fulfils `check_job`.

    Raises:
        ConfigError: there is no such key, the value is not valid, or the job cannot be.

    Example:
        >>> set_job(load_job("llama3-8b"), {"layers": 16.0, "recompute": "full"}).layers
        16
    """
    keys, content = keys_with_kinds(), msgspec.to_builtins(job)
    content |= dict.fromkeys(following_fields(job, values))
    for key, value in values.items():
        if key not in keys:
            raise ConfigError(
                "no such key",
                where=f"set {key}",
                expected=one_of(key, keys),
            )
        table, _, field = key.rpartition(".")
        part = content
        if table:
            part = content[table] = {} if content[table] is None else content[table]
            if not isinstance(part, dict):
                raise ConfigError("no table", where=f"set {table}", got=str(part)[:40])
        part[field] = read_value(value, keys[key])
    return check_job(convert(content, Job, "set"), "set", gpus)


def check_keys(keys: Iterable[str], hardware: Hardware) -> None:
    """Refuse what is neither a field of a job, nor a number of a machine, nor `hardware` itself.

    Args:
        keys: that a user sets.
        hardware: the machine.

    Raises:
        ConfigError: there is no such key; the nearest that are, are named.
    """
    known = [*job_keys(), *hardware_numbers(hardware), "hardware"]
    for key in keys:
        if key not in known:
            raise ConfigError(
                "no such key",
                where=f"set {key}",
                expected=one_of(key, known),
            )


def following_fields(job: Job, values: Mapping[str, Any]) -> tuple[str, ...]:
    """The fields that a job gives, that change with others because they only say what follows.

    A feed-forward part of four hidden sizes stays one, as many heads of keys and values as of
    queries stay as many, and heads that share the hidden size go on sharing it.

    Args:
        job: the job.
        values: what is changed, as of `set_job`.

    Returns:
        Names of fields.

    Example:
        >>> gpt = Job(layers=2, hidden_size=64, ffn_hidden_size=256, attention_heads=4,
        ...           vocabulary_size=100, sequence_length=128)
        >>> following_fields(gpt, {"hidden_size": 128})
        ('ffn_hidden_size',)
        >>> set_job(gpt, {"hidden_size": 128}).ffn_size
        512
    """
    hidden, heads = job.hidden_size, job.attention_heads
    found = []
    for field, usual, others in (
        ("ffn_hidden_size", 4 * hidden, {"hidden_size"}),
        ("key_value_heads", heads, {"attention_heads"}),
        ("head_size", hidden // heads if heads else None, {"hidden_size", "attention_heads"}),
    ):
        if getattr(job, field) == usual and field not in values and others & set(values):
            found.append(field)
    return tuple(found)


def job_keys() -> tuple[str, ...]:
    """Every key that `set_job` takes, in the order of the fields.

    Example:
        >>> job_keys()[:3]
        ('name', 'layers', 'hidden_size')
    """
    return tuple(keys_with_kinds())


def is_job_key(key: str) -> bool:
    """Whether a key is a job's; no key of a number of a machine is.

    Example:
        >>> is_job_key("experts.count"), is_job_key("memory_bytes_per_s")
        (True, False)
    """
    return key in keys_with_kinds()


@cache
def keys_with_kinds() -> Mapping[str, _Kinds]:
    return dict(_places(msgspec.inspect.type_info(Job), ""))


def _places(kind: msgspec.inspect.Type, place: str) -> Iterable[tuple[str, _Kinds]]:
    """Each field of a noun, and of the nouns in it: its key, and what it may be."""
    assert isinstance(kind, msgspec.inspect.StructType)
    for field in kind.fields:
        kind = field.type
        kinds = kind.types if isinstance(kind, msgspec.inspect.UnionType) else (kind,)
        yield f"{place}{field.encode_name}", kinds
        for inner in kinds:
            if isinstance(inner, msgspec.inspect.StructType):
                yield from _places(inner, f"{place}{field.encode_name}.")


def read_value(value: Any, kinds: _Kinds) -> Any:
    """What the command line or a scenario says, as a TOML file would."""

    def may_be(kind: type[msgspec.inspect.Type]) -> bool:
        return any(isinstance(each, kind) for each in kinds)

    if isinstance(value, str):
        if value == "none" and may_be(msgspec.inspect.NoneType):
            return None
        if value in ("true", "false") and may_be(msgspec.inspect.BoolType):
            return value == "true"
        if may_be(msgspec.inspect.VarTupleType):
            return _read_numbers(value)
    # The command line cannot tell 4 from 4.0.
    whole = isinstance(value, float) and value.is_integer()
    return int(value) if whole and may_be(msgspec.inspect.IntType) else value


def _read_numbers(text: str) -> list[int] | str:
    try:
        return [int(part) for part in text.split(",")]
    except ValueError:
        return text


def _read_job(path: Path) -> Job:
    return check_job(load_toml(path, Job), str(path))
