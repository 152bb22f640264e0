"""Sharding plans and statistics of accesses, as files that users of TorchRec write and read.

TorchRec itself writes no plan. The JSON here is that of the `plan` beside a checkpoint of
TorchEasyRec, module -> table -> `sharding_type`, `compute_kernel`, `ranks`, with the further fields
of TorchRec's `ParameterSharding` under their names: `sharding_spec` and `cache_params`.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, TypeVar

import msgspec
import numpy as np

from jaxperf._files import new_file
from jaxperf._json import NOT_READABLE
from jaxperf.embedding.torchrec._offload_statistics import OffloadStatistics
from jaxperf.embedding.torchrec._types import Shard, ShardingOption
from jaxperf.errors import ConfigError

_PLACEMENT = re.compile(r"rank:(\d+)/[a-z]+(:\d+)?")
_Entries = TypeVar("_Entries")
_Count = Annotated[int, msgspec.Meta(ge=0)]


@dataclass(frozen=True)
class TableSharding:
    """How a plan shards one table.

    Attributes:
        sharding_type, compute_kernel: TorchRec's names.
        ranks: of the shards; empty where the file leaves that to TorchRec.
        shards: what each rank has; empty where the file does not tell, and of data parallelism.
        cache_load_factor: share of the rows in the cache; `None` where nothing is said.
    """

    sharding_type: str
    compute_kernel: str
    ranks: tuple[int, ...] = ()
    shards: tuple[Shard, ...] = ()
    cache_load_factor: float | None = None


ShardingPlan = Mapping[str, Mapping[str, TableSharding]]
"""The sharding of each table, by the path of the module that it is of, and its own name."""


class _ShardEntry(msgspec.Struct):
    shard_sizes: tuple[_Count, _Count]
    shard_offsets: tuple[_Count, _Count]
    placement: str


class _SpecEntry(msgspec.Struct):
    shards: list[_ShardEntry]


class _CacheEntry(msgspec.Struct, omit_defaults=True):
    load_factor: float | None = None


class _TableEntry(msgspec.Struct):
    sharding_type: str
    compute_kernel: str
    ranks: list[_Count] | None = None
    sharding_spec: _SpecEntry | None = None
    cache_params: _CacheEntry | None = None


class _StatisticsEntry(msgspec.Struct):
    cacheability: float
    expected_lookups: _Count
    mrc_hist_counts: Annotated[list[float], msgspec.Meta(min_length=1)]
    height: _Count


def place_option(
    option: ShardingOption, ranks: Sequence[int], cache_load_factor: float | None = None
) -> TableSharding:
    """A way to cut a table, with the ranks of its shards.

    Args:
        option: of `enumerate_options`.
        ranks: one per shard.
        cache_load_factor: of a cached kernel.

    Returns:
        What a plan says of the table.

    Raises:
        ConfigError: there are more or fewer ranks than shards.

    Example:
        >>> from jaxperf.config import EmbeddingTable
        >>> table = EmbeddingTable(name="ads", rows=10, dimension=128)
        >>> option = ShardingOption(table, "table_wise", "fused", (Shard(10, 128),))
        >>> place_option(option, [3]).ranks
        (3,)
    """
    if len(ranks) != len(option.shards):
        got, expected = f"{len(ranks)} ranks", f"{len(option.shards)}, one per shard"
        raise ConfigError(
            "ranks do not fit the shards", where=option.table.name, got=got, expected=expected
        )
    alone = option.sharding_type == "data_parallel"
    return TableSharding(
        option.sharding_type,
        option.compute_kernel,
        tuple(ranks),
        () if alone else option.shards,
        cache_load_factor,
    )


def write_sharding_plan(path: str | Path, plan: ShardingPlan, *, local_world_size: int) -> None:
    """Write a plan.

    Args:
        path: the JSON file.
        plan: to write.
        local_world_size: devices of a host: rank r is on device `r % local_world_size`.

    Raises:
        ConfigError: a host has no devices, or ranks and shards of a table differ in number.
        OutputError: the file cannot be written.

    Example:
        >>> import tempfile
        >>> plan = {"ebc": {"ads": TableSharding("table_wise", "fused", (3,), (Shard(10, 128),))}}
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     path = Path(folder, "plan.json")
        ...     write_sharding_plan(path, plan, local_world_size=8)
        ...     read_sharding_plan(path) == plan
        True
    """
    if local_world_size < 1:
        raise ConfigError("no such host", got=f"{local_world_size} devices", expected="at least 1")
    entries = {
        module: {name: _entry(table, local_world_size) for name, table in tables.items()}
        for module, tables in plan.items()
    }
    _write(path, entries)


def read_sharding_plan(path: str | Path) -> ShardingPlan:
    """Read a plan.

    Args:
        path: a JSON file of `write_sharding_plan`, or the `plan` of a checkpoint of TorchEasyRec.

    Returns:
        The plan.

    Raises:
        ConfigError: the file cannot be read, or is no plan.
    """
    entries = _read(path, dict[str, dict[str, _TableEntry]], "a sharding plan of TorchRec")
    return {
        module: {
            name: _table_sharding(entry, f"{path}: {module}.{name}")
            for name, entry in tables.items()
        }
        for module, tables in entries.items()
    }


def write_offload_statistics(path: str | Path, statistics: Mapping[str, OffloadStatistics]) -> None:
    """Write statistics, as the arguments of TorchRec's `EmbeddingOffloadStats` by table.

    `{name: EmbeddingOffloadStats(**{**entry, "mrc_hist_counts": torch.tensor(...)})}` of what is
    read from it goes to the `CacheParams` of TorchRec's `ParameterConstraints`.

    Args:
        path: the JSON file.
        statistics: by table.

    Raises:
        OutputError: the file cannot be written.

    Example:
        >>> import tempfile
        >>> known = {"ads": OffloadStatistics(0.5, 100, np.array([60.0, 40.0]), height=1000)}
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     path = Path(folder, "statistics.json")
        ...     write_offload_statistics(path, known)
        ...     read_offload_statistics(path)["ads"].miss_ratio(0.4)
        0.4
    """
    entries = {
        name: _StatisticsEntry(
            each.cacheability,
            each.expected_lookups,
            np.asarray(each.mrc_hist_counts, float).tolist(),
            each.height,
        )
        for name, each in statistics.items()
    }
    _write(path, entries)


def read_offload_statistics(path: str | Path) -> dict[str, OffloadStatistics]:
    """Read statistics that `write_offload_statistics` wrote.

    Args:
        path: the JSON file.

    Returns:
        The statistics by table.

    Raises:
        ConfigError: the file cannot be read, or holds no statistics.
    """
    entries = _read(path, dict[str, _StatisticsEntry], "statistics of TorchRec by table")
    return {
        name: OffloadStatistics(
            entry.cacheability,
            entry.expected_lookups,
            np.array(entry.mrc_hist_counts),
            entry.height,
        )
        for name, entry in entries.items()
    }


def _entry(table: TableSharding, local_world_size: int) -> _TableEntry:
    spec, cache = None, None
    if table.shards and len(table.ranks) != len(table.shards):
        raise ConfigError(
            "ranks do not fit the shards",
            got=f"{len(table.ranks)} ranks",
            expected=f"{len(table.shards)}, one per shard",
        )
    if table.shards:
        shards = [
            _ShardEntry(
                (shard.rows, shard.columns),
                (shard.row_offset, shard.column_offset),
                f"rank:{rank}/cuda:{rank % local_world_size}",
            )
            for rank, shard in zip(table.ranks, table.shards, strict=True)
        ]
        spec = _SpecEntry(shards)
    if table.cache_load_factor is not None:
        cache = _CacheEntry(table.cache_load_factor)
    ranks = list(table.ranks) or None
    return _TableEntry(table.sharding_type, table.compute_kernel, ranks, spec, cache)


def _table_sharding(entry: _TableEntry, where: str) -> TableSharding:
    entries = entry.sharding_spec.shards if entry.sharding_spec else []
    shards = tuple(Shard(*each.shard_sizes, *each.shard_offsets) for each in entries)
    placed = tuple(_rank(each.placement, where) for each in entries)
    ranks = placed if entry.ranks is None else tuple(entry.ranks)
    if placed and ranks != placed and len(ranks) == len(placed):
        raise ConfigError(
            "ranks and placements differ", where=where, got=f"{ranks}", expected=f"{placed}"
        )
    if shards and len(ranks) != len(shards):
        got, expected = f"{len(ranks)} ranks", f"{len(shards)}, one per shard"
        raise ConfigError("ranks do not fit the shards", where=where, got=got, expected=expected)
    load_factor = entry.cache_params.load_factor if entry.cache_params else None
    return TableSharding(entry.sharding_type, entry.compute_kernel, ranks, shards, load_factor)


def _rank(placement: str, where: str) -> int:
    match = _PLACEMENT.fullmatch(placement)
    if not match:
        raise ConfigError("no placement", where=where, got=placement, expected="rank:0/cuda:0")
    return int(match[1])


def _read(path: str | Path, kind: type[_Entries], expected: str) -> _Entries:
    try:
        return msgspec.json.decode(Path(path).read_bytes(), type=kind)
    except OSError as error:
        raise ConfigError("cannot be read", where=str(path), got=error.strerror) from error
    except NOT_READABLE as error:
        raise ConfigError(
            "not valid", where=str(path), got=str(error), expected=expected
        ) from error


def _write(path: str | Path, entries: object) -> None:
    with new_file(path, overwrite=True) as file:
        file.write(msgspec.json.format(msgspec.json.encode(entries)) + b"\n")
