"""A simple placement: tables by their need for bandwidth, each tier filled before the next."""

from functools import partial
from itertools import product

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from jaxperf.embedding.hierarchy._curves import distinct_rows
from jaxperf.embedding.hierarchy._flows import conflict_rows, shared_cache_rows
from jaxperf.embedding.hierarchy._model import Design, HierarchyRules, ModelArrays
from jaxperf.embedding.hierarchy._step import reserved_bytes
from jaxperf.embedding.hierarchy._tiers import Machine

_FIRST_SHARES = (0.05, 0.15, 0.3, 0.5, 0.75, 1.0)
_OTHER_SHARES = (0.0, 0.1, 0.3, 0.6, 1.0)
_AT_ONCE = 64
_CONFLICT_ROOM = 1.5  # a smaller cache has more conflicts; this much covers them


def waterfall_designs(
    model: ModelArrays,
    machine: Machine,
    nodes: float,
    batch_size: float,
    rules: HierarchyRules,
) -> Design:
    """Placements by a waterfall, one for each way to part the tiers between homes and copies.

    Args:
        model: the tables.
        machine: one server.
        nodes: servers.
        batch_size: samples of an iteration.
        rules: how the hierarchy is run.

    Returns:
        Designs: 6 on two tiers, 30 on three, 150 on four.
    """
    others = np.shape(machine.tiers.capacity_bytes)[0] - 2
    shares = np.array([*product(_FIRST_SHARES, *[_OTHER_SHARES] * max(others, 0))])
    if others < 0:
        shares = np.zeros((1, 0))
    return _waterfalls(model, machine, float(nodes), float(batch_size), rules, shares)


@jax.jit
def _waterfalls(model, machine, nodes, batch_size, rules, shares) -> Design:
    one = partial(waterfall, model, machine, nodes, batch_size, rules)
    return jax.lax.map(one, shares, batch_size=_AT_ONCE)


def waterfall(
    model: ModelArrays,
    machine: Machine,
    nodes: ArrayLike,
    batch_size: ArrayLike,
    rules: HierarchyRules,
    cache_share: ArrayLike,
) -> Design:
    """Tables with the most bytes a second for their size go to the fastest tier, until it is full.

    One that does not fit any more is split by rows. What of a tier is kept for copies is one LRU
    cache of all tables whose home is slower.

    Args:
        model: the tables.
        machine: one server.
        nodes: () servers.
        batch_size: () samples of an iteration.
        rules: how the hierarchy is run.
        cache_share: (tiers - 1,) part of each tier but the last that is kept for copies.

    Returns:
        The design. What fits nowhere is on the last tier, whose `free_bytes` then are negative.
    """
    nodes, batch_size = jnp.asarray(nodes, float), jnp.asarray(batch_size, float)
    room = _room_bytes(model, machine, nodes, rules)
    kept = jnp.append(jnp.asarray(cache_share) * room[:-1], 0.0)
    row_bytes = jnp.asarray(model.weight_bytes) + jnp.asarray(model.state_bytes)
    size = jnp.asarray(model.rows) * row_bytes
    order = jnp.argsort(-_density(model, batch_size, row_bytes) / size)
    home = _filled(size, order, (room - kept).at[-1].set(jnp.inf))

    slower = jnp.maximum(1 - jnp.cumsum(home, axis=1), 0.0)
    slower = jnp.where(slower < 1e-12, 0.0, slower)
    above, columns = jnp.zeros_like(size), []
    for tier in range(len(room) - 1):
        part = slower[:, tier]
        # Exclusive caches hold, all down to this one, the rows that were used last.
        reach = kept[tier] + (0.0 if rules.inclusive else jnp.sum(above * part * row_bytes))
        rows = _shared(model, part, row_bytes, reach)
        if tier == 0:
            locked = part * distinct_rows(model.curves, 2 * batch_size * jnp.asarray(model.pooling))
            conflicts = jnp.sum(conflict_rows(locked, rows, rules.ways) * row_bytes)
            reach = jnp.maximum(reach - _CONFLICT_ROOM * conflicts, 0.0)
            rows = _shared(model, part, row_bytes, reach)
        columns.append(rows if rules.inclusive else jnp.maximum(rows - part * above, 0.0))
        above = jnp.where(part > 0, rows / jnp.where(part > 0, part, 1.0), 0.0)
    columns.append(jnp.zeros_like(size))
    return Design(
        machine=jax.tree.map(lambda leaf: jnp.asarray(leaf, float), machine),
        nodes=nodes,
        batch_size=batch_size,
        home_share=home,
        cached_rows=jnp.stack(columns, axis=1),
        by_popularity=jnp.zeros_like(size),
        admits=jnp.ones_like(size),
    )


def _room_bytes(model: ModelArrays, machine: Machine, nodes, rules: HierarchyRules) -> jax.Array:
    """(tiers,) what rows may take of each tier, over all servers."""
    tiers = machine.tiers
    capacity = jnp.asarray(tiers.capacity_bytes)
    room = nodes * (capacity - reserved_bytes(capacity, rules))
    dense = jnp.asarray(model.dense_parameters) * jnp.asarray(rules.dense_bytes_per_parameter)
    room = room.at[0].add(-dense * jnp.asarray(machine.gpus) * nodes)
    return jnp.maximum(room / jnp.asarray(tiers.space_amplification), 0.0)


def _density(model: ModelArrays, batch_size, row_bytes) -> jax.Array:
    """(tables,) bytes of a step: rows read for lookups, and distinct ones read and written."""
    lookups = batch_size * jnp.asarray(model.pooling)
    distinct = distinct_rows(model.curves, lookups)
    return lookups * jnp.asarray(model.weight_bytes) + 2 * distinct * row_bytes


def _filled(size: jax.Array, order: jax.Array, room: jax.Array) -> jax.Array:
    """(tables, tiers) part of each table on each tier, in order from the first tier down."""
    end = jnp.zeros_like(size).at[order].set(jnp.cumsum(size[order]))
    start = end - size
    below = jnp.cumsum(room)
    above = below - room
    above = above.at[-1].set(below[-2] if len(room) > 1 else 0.0)
    lap = jnp.minimum(end[:, None], below[None, :]) - jnp.maximum(start[:, None], above[None, :])
    return jnp.maximum(lap, 0.0) / size[:, None]


def _shared(model: ModelArrays, part: jax.Array, row_bytes: jax.Array, reach) -> jax.Array:
    """(tables,) rows of a cache of those parts of the tables."""
    rates = jnp.where(part > 0, jnp.asarray(model.pooling), 0.0)
    return part * shared_cache_rows(model.curves, rates, row_bytes * part, reach)
