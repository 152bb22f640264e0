"""A recommendation model's embedding tables, and what its training has to reach."""

import math
from collections import Counter
from pathlib import Path

import msgspec

from jaxperf.config._toml import Source, config_folder, leaves, load_toml, read_named
from jaxperf.errors import ConfigError

_MOST_TABLES = 100_000


class EmbeddingTable(msgspec.Struct, frozen=True, kw_only=True):
    """An embedding table, or several alike.

    Attributes:
        name: of the table.
        rows: of it.
        dimension: elements of a row.
        pooling: mean lookups of a sample.
        element_bytes: of an element as it is stored.
        optimizer_row_bytes: state of the optimizer beside each row.
        count: tables alike, named `name`, `name.1`, `name.2` ..
        zipf_exponent: of the popularity of its rows: the r-th is asked for in proportion to
            `r^-exponent`; 0 is uniform. Taken where neither `accesses` nor `curve` tells more.
        accesses: a log of its accesses, beside the file or absolute; see `embedding profile`.
        curve: a CSV file of `rows,hit_ratio`, beside the file or absolute: measured by others.
    """

    name: str
    rows: int
    dimension: int
    pooling: float = 1.0
    element_bytes: float = 4.0
    optimizer_row_bytes: float = 0.0
    count: int = 1
    zipf_exponent: float | None = None
    accesses: str | None = None
    curve: str | None = None

    @property
    def row_bytes(self) -> float:
        """Weights of a row and the state beside them."""
        return self.dimension * self.element_bytes + self.optimizer_row_bytes

    @property
    def table_bytes(self) -> float:
        """All rows with their state."""
        return self.rows * self.row_bytes


class RecommendationModel(msgspec.Struct, frozen=True, kw_only=True):
    """Embedding tables, the dense part, and the rate that training has to reach.

    Attributes:
        name: of the model.
        batch_size: samples of an iteration, of all accelerators together.
        target_samples_per_s: of the whole job; `None` where none is asked for.
        dense_flops_per_sample: forward and backward.
        dense_parameters: of the dense part, replicated on every accelerator.
        tables: of the model.
    """

    name: str
    batch_size: int
    target_samples_per_s: float | None = None
    dense_flops_per_sample: float = 0.0
    dense_parameters: float = 0.0
    tables: list[EmbeddingTable]

    @property
    def table_bytes(self) -> float:
        """All tables, with the state of the optimizer."""
        return sum(table.table_bytes * table.count for table in self.tables)


def load_tables(source: Source) -> RecommendationModel:
    """Read the description of a recommendation model.

    Args:
        source: a TOML file; or the name of one that comes with the package.

    Returns:
        The model, with each table on its own (`count` is 1), and files of accesses and curves as
        paths that can be opened.

    Raises:
        ConfigError: there is no such file or name, or something in it is unknown or not valid.
    """
    known = {path.stem: path for path in sorted(config_folder("tables").glob("*.toml"))}
    path = read_named(source, "tables", lambda path: path, known)
    model = load_toml(path, RecommendationModel)
    _check_numbers(model, str(path))
    count = sum(table.count for table in model.tables)
    if count > _MOST_TABLES:
        raise ConfigError(
            "too many tables",
            where=f"{path}: tables",
            got=str(count),
            expected=f"at most {_MOST_TABLES}, all counts together",
        )
    tables = [_beside(each, path) for table in model.tables for each in _alone(table)]
    names = [table.name for table in tables]
    if len(set(names)) < len(names):
        twice, _ = Counter(names).most_common(1)[0]
        raise ConfigError("two tables of one name", where=str(path), got=twice)
    return msgspec.structs.replace(model, tables=tables)


def _alone(table: EmbeddingTable) -> list[EmbeddingTable]:
    names = [table.name, *(f"{table.name}.{index}" for index in range(1, table.count))]
    return [msgspec.structs.replace(table, name=name, count=1) for name in names]


def _beside(table: EmbeddingTable, path: Path) -> EmbeddingTable:
    files = {
        key: str(path.parent / getattr(table, key))
        for key in ("accesses", "curve")
        if getattr(table, key) is not None
    }
    return msgspec.structs.replace(table, **files)


def _check_numbers(model: RecommendationModel, where: str) -> None:
    if not model.tables:
        raise ConfigError("no table", where=f"{where}: tables", expected="at least one")
    may_be_zero = {"optimizer_row_bytes", "zipf_exponent"}
    for index, table in enumerate(model.tables):
        for key, value in leaves(msgspec.to_builtins(table)):
            least = 0 if key in may_be_zero else math.ulp(0.0)
            if isinstance(value, int | float) and not (math.isfinite(value) and value >= least):
                raise ConfigError(
                    "not a quantity",
                    where=f"{where}: tables[{index}].{key}",
                    got=repr(value),
                    expected="0 or more" if least == 0 else "a number above 0",
                )
    for key in ("batch_size", "target_samples_per_s"):
        value = getattr(model, key)
        if value is not None and not (math.isfinite(value) and value > 0):
            raise ConfigError(
                "not a quantity", where=f"{where}: {key}", got=repr(value), expected="above 0"
            )
    for key in ("dense_flops_per_sample", "dense_parameters"):
        value = getattr(model, key)
        if not (math.isfinite(value) and value >= 0):
            raise ConfigError(
                "not a quantity", where=f"{where}: {key}", got=repr(value), expected="0 or more"
            )
