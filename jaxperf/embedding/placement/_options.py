"""What the tables of a model may do on a server's tiers, and what each of that takes.

Every option is a design of one table by itself, so that its loads are those of the hierarchy's
own model: rows found, filled and written back, in whole blocks, and the conflicts of a cache.
"""

from dataclasses import dataclass, fields
from functools import partial
from itertools import product

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.typing import ArrayLike

from jaxperf.embedding.hierarchy._curves import distinct_rows
from jaxperf.embedding.hierarchy._flows import (
    Flows,
    flows_of,
    lookup_bytes,
    traffic_of,
    update_bytes,
)
from jaxperf.embedding.hierarchy._model import Design, HierarchyRules, ModelArrays
from jaxperf.embedding.hierarchy._step import table_bytes
from jaxperf.embedding.hierarchy._tiers import Machine, drive_writes_per_day, tier_limits_us
from jaxperf.replay import double_precision

RESOURCES = ("bandwidth", "iops", "latency", "link", "link")
"""What keeps a tier busy; a link's two directions are two."""

_SIZES = 5  # of a cache, on a grid even in the logarithm
_LARGEST = 0.8  # part of the rows in the largest cache
_AT_ONCE = 1024


@dataclass(frozen=True, eq=False)
class TableOptions:
    """Options of tables, ascending by table.

    Attributes:
        table: (options,) of the model.
        home: (options,) tier that the rows lie on.
        cached: (options, tiers) part of the rows of which a copy lies on a faster tier.
        pinned: (options,) whether the hottest rows are pinned there; else they are the last used.
    """

    table: np.ndarray
    home: np.ndarray
    cached: np.ndarray
    pinned: np.ndarray


@dataclass(frozen=True, eq=False)
class OptionLoads:
    """What options take in a step, if one server did all of it.

    Attributes:
        size_bytes: (options, tiers) homes, copies, and rows without a place in the first tier.
        busy_us: (options, tiers, resources) by `RESOURCES`.
        wear_us: (options, tiers) least time of a step by the rated endurance.
        update_us: (options,) of the first tier's time, the backward pass and the optimizer.
        read_bytes, blocks, found: (options, tiers) what is read in whole blocks, lookups
            included, blocks that enter or leave, and rows that the tier has and no faster one.
    """

    size_bytes: np.ndarray
    busy_us: np.ndarray
    wear_us: np.ndarray
    update_us: np.ndarray
    read_bytes: np.ndarray
    blocks: np.ndarray
    found: np.ndarray


for _noun in (TableOptions, OptionLoads):
    jax.tree_util.register_dataclass(_noun, [f.name for f in fields(_noun)], [])


def home_options(tables: int, tiers: int) -> TableOptions:
    """Each table on each tier, with no copy of it on others.

    Args:
        tables: of the model.
        tiers: of the server.

    Returns:
        The options, `tiers` of each table.

    Example:
        >>> home_options(2, 2).home
        array([0, 1, 0, 1])
    """
    options = tables * tiers
    return TableOptions(
        table=np.repeat(np.arange(tables), tiers),
        home=np.tile(np.arange(tiers), tables),
        cached=np.zeros((options, tiers)),
        pinned=np.zeros(options, bool),
    )


def grid_options(
    model: ModelArrays, batch_size: float, tiers: int, rules: HierarchyRules
) -> TableOptions:
    """Homes, cache sizes on a coarse grid on every faster tier, and both ways to choose rows.

    Args:
        model: the tables.
        batch_size: samples of an iteration.
        tiers: of the server.
        rules: of the hierarchy; a cache that is inclusive is larger than those above it.

    Returns:
        The options, as many of each table.
    """
    tables = len(np.asarray(model.rows))
    homes, places, pinned = _patterns(tiers, rules.inclusive)
    with double_precision():
        distinct = np.asarray(distinct_rows(model.curves, batch_size * np.asarray(model.pooling)))
    # From far below what a batch touches; a tenth where it touches nearly all.
    least = np.clip(0.05 * distinct / np.asarray(model.rows), 1e-6, 0.1)
    sizes = np.geomspace(least, _LARGEST, _SIZES, axis=1)
    sizes = np.concatenate([np.zeros((tables, 1)), sizes], axis=1)
    count = len(homes)
    return TableOptions(
        table=np.repeat(np.arange(tables), count),
        home=np.tile(homes, tables),
        cached=sizes[:, places].reshape(tables * count, tiers),
        pinned=np.tile(pinned, tables),
    )


def _patterns(tiers: int, inclusive: bool) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Homes, places on the grid of sizes (0 is none) of each tier, and policies."""
    rows = []
    for home in range(tiers):
        for places in product(range(_SIZES + 1), repeat=home):
            used = [place for place in places if place]
            if inclusive and any(a >= b for a, b in zip(used, used[1:], strict=False)):
                continue
            for pinned in (False, True) if used else (False,):
                rows.append((home, [*places, *[0] * (tiers - home)], pinned))
    homes, places, pinned = zip(*rows, strict=True)
    return np.array(homes), np.array(places), np.array(pinned)


def near_options(
    options: TableOptions, which: np.ndarray, factor: float, *, inclusive: bool
) -> TableOptions:
    """Options with one cache larger or smaller than those of some options.

    Args:
        options: all.
        which: indices of those to vary.
        factor: by which sizes differ.
        inclusive: whether a cache has to be larger than those above it.

    Returns:
        The new options.
    """
    tiers = options.cached.shape[1]
    varied, chosen = [], []
    for tier, by in product(range(tiers), (1 / factor, factor)):
        has = which[options.cached[which, tier] > 0]
        cached = options.cached[has].copy()
        cached[:, tier] = np.minimum(cached[:, tier] * by, 1.0)
        varied.append(cached)
        chosen.append(has)
    chosen, cached = np.concatenate(chosen), np.concatenate(varied)
    if inclusive:
        above = np.maximum.accumulate(cached, axis=1)
        rises = ((cached == 0) | (cached == above)).all(axis=1)
        chosen, cached = chosen[rises], cached[rises]
    order = np.argsort(options.table[chosen], kind="stable")
    chosen, cached = chosen[order], cached[order]
    return TableOptions(options.table[chosen], options.home[chosen], cached, options.pinned[chosen])


def join_options(
    parts: list[TableOptions], loads: list[OptionLoads]
) -> tuple[TableOptions, OptionLoads]:
    """Options and their loads as one, ascending by table.

    Args:
        parts: some options each.
        loads: of each part.

    Returns:
        All of them.
    """
    order = np.argsort(np.concatenate([part.table for part in parts]), kind="stable")
    return (
        jax.tree.map(lambda *each: np.concatenate(each)[order], *parts),
        jax.tree.map(lambda *each: np.concatenate(each)[order], *loads),
    )


def option_loads(
    model: ModelArrays,
    machine: Machine,
    batch_size: float,
    options: TableOptions,
    rules: HierarchyRules,
) -> OptionLoads:
    """What options take, by the hierarchy's own model of a step.

    Args:
        model: the tables.
        machine: one server.
        batch_size: samples of an iteration, of the whole job.
        options: of the tables.
        rules: of the hierarchy.

    Returns:
        Loads of a job on one server: on more of them times are as many times less.
    """
    count = len(options.table)
    if not count:
        none = np.zeros((0, options.cached.shape[1]))
        busy_us = np.zeros((*none.shape, len(RESOURCES)))
        return OptionLoads(none, busy_us, none, np.zeros(0), none, none, none)
    padded = 1 << (count - 1).bit_length()  # few shapes are compiled
    index = np.minimum(np.arange(padded), count - 1)
    with double_precision():
        loads = _loads(
            model, machine, float(batch_size), jax.tree.map(lambda x: x[index], options), rules
        )
    return OptionLoads(**{name: np.asarray(values)[:count] for name, values in loads.items()})


@jax.jit
def _loads(
    model: ModelArrays, machine: Machine, batch_size, options: TableOptions, rules: HierarchyRules
) -> dict[str, Array]:
    one = partial(_load, model, machine, batch_size, rules)
    return jax.lax.map(one, options, batch_size=_AT_ONCE)


def _load(
    model: ModelArrays, machine: Machine, batch_size, rules: HierarchyRules, option: TableOptions
) -> dict[str, Array]:
    """Fields of `OptionLoads`, of one option."""
    alone = table_alone(model, option.table)
    home = jax.nn.one_hot(option.home, option.cached.shape[0], dtype=option.cached.dtype)[None]
    pinned = option.pinned.astype(home.dtype)[None]
    cached_rows = option.cached[None] * jnp.asarray(alone.rows)[:, None]
    design = Design(machine, 1.0, batch_size, home, cached_rows, pinned, 1 - pinned)
    return loads_of_flows(alone, design, flows_of(alone, design, rules), rules)


def loads_of_flows(
    alone: ModelArrays, design: Design, flows: Flows, rules: HierarchyRules
) -> dict[str, Array]:
    """What one table's flows take of one server: linear in them and in the cached rows.

    Args:
        alone: the table.
        design: of it.
        flows: of the design.
        rules: of the hierarchy.

    Returns:
        Fields of `OptionLoads`, of one option.
    """
    tiers = design.machine.tiers
    traffic = traffic_of(alone, tiers, flows, 1.0, rules)
    limits = tier_limits_us(tiers, traffic)
    link = jnp.asarray(tiers.link_bytes_per_s)
    busy_us = jnp.stack(
        [
            limits[:, 0] + limits[:, 1],
            limits[:, 2],
            limits[:, 3],
            traffic.link_read_bytes / link * 1e6,
            traffic.link_write_bytes / link * 1e6,
        ],
        axis=1,
    )
    rate = jnp.asarray(tiers.read_bytes_per_s)[0] / 1e6
    looked_up = lookup_bytes(alone, flows, design, rules)
    update_us = update_bytes(alone, flows, design, rules) / rate
    # Lookups come before whatever bounds the filling, so that they add to each limit of it.
    busy_us = busy_us.at[0].add(looked_up / rate + update_us)
    # Writes a day of steps of one microsecond, against the rated ones: microseconds that one needs.
    written = traffic.write_bytes * jnp.asarray(rules.drive_write_amplification)
    writes = drive_writes_per_day(tiers, written, jnp.ones((), written.dtype))
    return {
        "size_bytes": table_bytes(alone, design, flows, rules),
        "busy_us": busy_us,
        "wear_us": writes / jnp.asarray(tiers.drive_writes_per_day),
        "update_us": update_us,
        "read_bytes": traffic.read_bytes.at[0].add(looked_up),
        "blocks": traffic.read_blocks + traffic.write_blocks,
        "found": flows.found[0],
    }


def table_alone(model: ModelArrays, table: ArrayLike) -> ModelArrays:
    """A model of one of its tables.

    Args:
        model: all tables.
        table: () index of it.

    Returns:
        Arrays of one table.
    """
    return jax.tree.map(lambda leaf: _row(leaf, table), model)


def _row(leaf: ArrayLike, table: ArrayLike) -> Array:
    leaf = jnp.asarray(leaf)
    return leaf if leaf.ndim == 0 else jax.lax.dynamic_slice_in_dim(leaf, table, 1)
