"""What a step moves between the tiers: rows that are found, fetched, updated and written back."""

from dataclasses import dataclass, fields
from functools import cache, partial

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from jaxperf.embedding.hierarchy._curves import (
    LocalityCurves,
    distinct_rows,
    hit_ratio,
    pinned_ratio,
)
from jaxperf.embedding.hierarchy._model import Design, HierarchyRules, ModelArrays
from jaxperf.embedding.hierarchy._tiers import Tiers, Traffic, whole_blocks

_QUADRATURE = 12
_ALMOST_NONE = 1e-30
_BISECTIONS = 30
_EARLIEST = 20.0  # e^-20 of an access fills no cache


@dataclass(frozen=True, eq=False)
class Flows:
    """Rows of a step, of all servers together.

    Attributes:
        lookups: (tables,) of the batch.
        distinct: (tables,) rows of the batch.
        hit_share: (tables, tiers) of the accesses to rows whose home is slower: those that this
            tier or a faster one has.
        found: (tables, tiers) rows of the batch that the tier has and no faster one.
        filled: (tables, tiers) rows that enter the tier from a slower one.
        written: (tables, tiers) rows that come back to the tier from the faster ones.
        locked: (tables,) rows of two batches, that the first tier must hold beside its own.
        conflicts: (tables,) of those, the ones that find no place in the cache.
    """

    lookups: jax.Array
    distinct: jax.Array
    hit_share: jax.Array
    found: jax.Array
    filled: jax.Array
    written: jax.Array
    locked: jax.Array
    conflicts: jax.Array


jax.tree_util.register_dataclass(Flows, [f.name for f in fields(Flows)], [])


def set_associative_ratio(
    curves: LocalityCurves, cached_rows: ArrayLike, ways: int | None
) -> jax.Array:
    """Share of accesses that an LRU cache of so many rows in sets of `ways` has.

    A row with d others used since is found with `P(Poisson(d ways / C) < ways)` (Smith 1978), which
    is the chance that C times a gamma variable of shape `ways` and mean 1 exceeds d: the hit ratio
    is the mean of the fully associative one over caches of that many rows, here by quadrature.

    Args:
        curves: of the tables.
        cached_rows: (tables,) of each.
        ways: rows of a set; `None` where any row may lie anywhere.

    Returns:
        (tables,) between 0 and 1.
    """
    if ways is None:
        return hit_ratio(curves, cached_rows)
    sizes, weights = _gamma_quadrature(ways)
    places = jnp.asarray(cached_rows)
    ratios = jax.vmap(lambda size: hit_ratio(curves, places * size))(jnp.asarray(sizes))
    return jnp.tensordot(jnp.asarray(weights), ratios, 1)


def conflict_rows(locked: ArrayLike, cached_rows: ArrayLike, ways: int | None) -> jax.Array:
    """Locked rows that find no place: those above `ways` of the sets that they fall in.

    The rows of a set are Poisson with mean `m = locked ways / C`; above `a` of them are
    `m - a + sum over k < a of (a - k) P(k)`.

    Args:
        locked: (tables,) rows.
        cached_rows: (tables,) places.
        ways: rows of a set; `None` where any row may lie anywhere.

    Returns:
        (tables,) rows, all of them where there is no place.

    Example:
        >>> f"{conflict_rows(np.array([1000.0]), np.array([1000.0]), 32)[0]:.0f}"
        '70'
    """
    locked, places = jnp.asarray(locked), jnp.asarray(cached_rows)
    if ways is None:
        return jnp.maximum(locked - places, 0.0)
    sets = jnp.where(places > 0, places, 1.0) / ways
    mean = jnp.maximum(locked / sets, _ALMOST_NONE)
    below = np.arange(ways, dtype=float)[:, None]
    log_factorial = np.cumsum(np.log(np.maximum(below, 1.0)), axis=0)
    chance = jnp.exp(below * jnp.log(mean)[None, :] - mean[None, :] - log_factorial)
    above = mean - ways + jnp.sum((ways - below) * chance, axis=0)
    return jnp.where(places > 0, jnp.maximum(sets * above, 0.0), locked)


def shared_cache_rows(
    curves: LocalityCurves, rates: ArrayLike, row_bytes: ArrayLike, capacity_bytes: ArrayLike
) -> jax.Array:
    """Rows that each table comes to hold of one LRU cache that all of them share.

    They share one eviction time: `sum_i b_i fp_i(r_i T) = capacity`, solved by bisection for `T`;
    its gradient is that of the implicit function.

    Args:
        curves: of the tables.
        rates: (tables,) accesses of each, of one unit of time; 0 for one that is not cached.
        row_bytes: (tables,) of each.
        capacity_bytes: () of the cache.

    Returns:
        (tables,) rows: all of them where there is room.

    Example:
        >>> from jaxperf.embedding.hierarchy._curves import stack_curves, zipf_curve
        >>> curves = stack_curves([zipf_curve(1000, 0.8)] * 2)
        >>> shared_cache_rows(curves, np.array([2.0, 1.0]), np.ones(2), 600.0).round().tolist()
        [371.0, 229.0]
    """
    rates, row_bytes = jnp.asarray(rates), jnp.asarray(row_bytes)
    held = jnp.where(rates > 0, jnp.asarray(curves.rows), 0.0)
    capacity = jnp.minimum(jnp.asarray(capacity_bytes), jnp.sum(held * row_bytes))

    def taken_bytes(log_time, rates, row_bytes):
        return jnp.sum(row_bytes * distinct_rows(curves, rates * jnp.exp(log_time)))

    still = jax.lax.stop_gradient((rates, row_bytes))
    root = jax.lax.stop_gradient(_eviction_time(taken_bytes, curves, *still, capacity))
    # A step of Newton's makes the root exact, and gives it the derivative of the implicit one.
    slope = jax.lax.stop_gradient(jax.grad(taken_bytes)(root, *still))
    residual = taken_bytes(root, rates, row_bytes) - capacity
    root = root - jnp.where(slope > 0, residual / jnp.where(slope > 0, slope, 1.0), 0.0)
    return distinct_rows(curves, rates * jnp.exp(root))


def _eviction_time(taken_bytes, curves, rates, row_bytes, capacity) -> jax.Array:
    """() logarithm of the time at which the rows since then fill the capacity."""

    def halve(_, ends):
        middle = (ends[0] + ends[1]) / 2
        below = taken_bytes(middle, rates, row_bytes) < capacity
        return jnp.where(below, middle, ends[0]), jnp.where(below, ends[1], middle)

    busy = rates > 0
    periods = jnp.asarray(curves.accesses) / jnp.where(busy, rates, 1.0)
    latest = jnp.log(jnp.max(jnp.where(busy, periods, 1.0)))
    first = -jnp.log(jnp.max(jnp.where(busy, rates, 1e-30))) - _EARLIEST
    low, high = jax.lax.fori_loop(0, _BISECTIONS, halve, (first, latest + 1.0))
    return (low + high) / 2


def flows_of(model: ModelArrays, design: Design, rules: HierarchyRules) -> Flows:
    """Rows that a step finds, fetches and writes back.

    A batch asks for its distinct rows once. Those that no cache down to tier j has are
    `min(u, n (1 - H_j))`: hits among the repeated ones of a batch are none of its fetches. Each
    row that was fetched has been updated when it leaves, so what enters a cache comes back below.

    Args:
        model: the tables.
        design: one.
        rules: of the hierarchy.

    Returns:
        The rows, of all servers together.
    """
    slower = _slower(design)
    lookups = jnp.asarray(design.batch_size) * jnp.asarray(model.pooling)
    of_batches = jax.vmap(partial(distinct_rows, model.curves))
    distinct, of_two = of_batches(jnp.stack([lookups, 2 * lookups]))
    hits = _hit_shares(model.curves, design, rules, slower)
    missed = jnp.minimum(distinct[:, None], lookups[:, None] * (1 - hits))
    locked = slower[:, 0] * of_two
    conflicts = conflict_rows(locked, jnp.asarray(design.cached_rows)[:, 0], rules.ways)
    return flows_of_missed(design, rules, lookups, distinct, hits, missed, locked, conflicts)


def flows_of_missed(
    design: Design, rules: HierarchyRules, lookups, distinct, hits, missed, locked, conflicts
) -> Flows:
    """The flows of given misses: linear in `missed` and in `conflicts`.

    Args:
        design: of its caches only whether there are any counts.
        rules: of the hierarchy.
        lookups, distinct, locked, conflicts: (tables,), and
        hits: (tables, tiers), as in `Flows`.
        missed: (tables, tiers) rows of a batch that no cache down to the tier has.

    Returns:
        The rows, of all servers together.
    """
    home = jnp.asarray(design.home_share)
    cached = jnp.asarray(design.cached_rows)
    slower = _slower(design)
    arriving = jnp.concatenate([distinct[:, None], missed[:, :-1]], axis=1)
    is_cache = jnp.where((cached > 0) & (slower > 0), 1.0, 0.0)
    admits = jnp.asarray(design.admits)[:, None]
    enters = jnp.full(cached.shape[1], float(rules.inclusive)).at[0].set(1.0)
    # Pinned rows are updated where they are; what else was fetched goes back where it came from.
    stays = slower * is_cache * (arriving - (1 - admits) * missed)
    return Flows(
        lookups=lookups,
        distinct=distinct,
        hit_share=hits,
        found=home * arriving + slower * (arriving - missed),
        filled=slower * is_cache * missed * admits * enters[None, :],
        written=home * arriving + stays,
        locked=locked,
        conflicts=conflicts,
    )


def traffic_of(
    model: ModelArrays, tiers: Tiers, flows: Flows, nodes: ArrayLike, rules: HierarchyRules
) -> Traffic:
    """What passes each tier of one server, if all of them share the work evenly.

    The first tier has the lookups themselves besides; `lookup_bytes` and `update_bytes` are those.

    Args:
        model: the tables.
        tiers: of a server.
        flows: of a step.
        nodes: () servers.
        rules: of the hierarchy.

    Returns:
        Bytes and blocks of the tiers; of the first, what is filled and written back from it.
    """
    row_bytes = jnp.asarray(model.weight_bytes) + jnp.asarray(model.state_bytes)
    blocks = whole_blocks(row_bytes, tiers.block_bytes)
    block_bytes = blocks * jnp.asarray(tiers.block_bytes)[None, :]
    share = 1 / jnp.asarray(nodes)
    first = jnp.arange(blocks.shape[1]) == 0
    # Of the first tier: rows that leave it are read, rows that enter it written.
    left = jnp.where(first[None, :], flows.filled, flows.found)
    entered = flows.filled + jnp.where(first[None, :], 0.0, flows.written)
    # A log-structured store packs rows into long writes and reads them again to merge them.
    is_block = jnp.asarray(tiers.is_block)
    in_log = is_block[None, :] * row_bytes[:, None] * jnp.asarray(rules.log_write_amplification)
    merged = (
        is_block[None, :] * row_bytes[:, None] * (jnp.asarray(rules.log_write_amplification) - 1)
    )
    in_place = (1 - is_block)[None, :] * block_bytes
    read_bytes = jnp.sum(left * block_bytes + entered * merged, axis=0) * share
    write_bytes = jnp.sum(entered * (in_place + in_log), axis=0) * share
    payload_read = jnp.sum(flows.found * row_bytes[:, None], axis=0) * share
    payload_written = jnp.sum(flows.written * row_bytes[:, None], axis=0) * share
    return Traffic(
        read_bytes=read_bytes,
        write_bytes=write_bytes,
        read_blocks=jnp.sum(left * blocks, axis=0) * share,
        write_blocks=jnp.sum(entered * blocks * (1 - is_block)[None, :], axis=0) * share,
        link_read_bytes=read_bytes + _below(payload_read),
        link_write_bytes=write_bytes + _below(payload_written),
    )


def lookup_bytes(
    model: ModelArrays, flows: Flows, design: Design, rules: HierarchyRules
) -> jax.Array:
    """() bytes of the first tiers that the forward lookups move: each row read, each sum written.

    The rows are read once per lookup: on an H100, 1.07 GB so counted take 0.345 ms, which is 3.1 of
    3.35 TB/s (NVIDIA/recsys-examples' benchmark of FBGEMM).
    """
    pooled = jnp.asarray(model.dimension) * jnp.asarray(rules.pooled_element_bytes)
    per_table = flows.lookups * jnp.asarray(model.weight_bytes)
    return jnp.sum(per_table + jnp.asarray(design.batch_size) * pooled)


def update_bytes(
    model: ModelArrays, flows: Flows, design: Design, rules: HierarchyRules
) -> jax.Array:
    """() bytes of the first tiers that the backward pass and the optimizer move.

    Twice those of the forward lookups, as TorchRec's planner takes it, and the state of each
    distinct row read and written.
    """
    state = 2 * flows.distinct * jnp.asarray(model.state_bytes)
    return 2 * lookup_bytes(model, flows, design, rules) + jnp.sum(state)


def _slower(design: Design) -> jax.Array:
    """(tables, tiers) part of each table whose home is slower than the tier."""
    home = jnp.asarray(design.home_share)
    return jnp.maximum(jnp.sum(home, axis=1, keepdims=True) - jnp.cumsum(home, axis=1), 0.0)


def _hit_shares(curves, design: Design, rules: HierarchyRules, slower: jax.Array) -> jax.Array:
    """(tables, tiers) hits of each tier's cache and those above it; none where nothing is slower.

    Inclusive caches hold the same rows, the larger one all of the smaller's; exclusive ones add up.
    """
    has = slower > 0
    # A cache holds rows of that part of the table alone whose home is slower.
    places = jnp.where(has, jnp.asarray(design.cached_rows) / jnp.where(has, slower, 1.0), 0.0)
    gather = jax.lax.cummax if rules.inclusive else jnp.cumsum
    totals = gather(places, axis=1).T
    recent = jax.vmap(partial(hit_ratio, curves))(totals)
    recent = recent.at[0].set(set_associative_ratio(curves, totals[0], rules.ways))
    hottest = jax.vmap(partial(pinned_ratio, curves))(totals)
    by_popularity = jnp.asarray(design.by_popularity)[None, :]
    ratio = (1 - by_popularity) * recent + by_popularity * hottest
    # Sets lose a little of the first cache, of which no slower one may seem to have less.
    return jax.lax.cummax(ratio, axis=0).T


def _below(values: jax.Array) -> jax.Array:
    """(tiers,) sum over the slower tiers."""
    return jnp.sum(values) - jnp.cumsum(values)


@cache
def _gamma_quadrature(ways: int) -> tuple[np.ndarray, np.ndarray]:
    """Points and weights of the mean over a gamma variable of shape `ways` and mean 1."""
    from scipy.special import roots_genlaguerre

    points, weights = roots_genlaguerre(_QUADRATURE, ways - 1)
    return points / ways, weights / weights.sum()
