"""Several tables in one cache: one eviction time for all, with gradients."""

from collections.abc import Sequence
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from numpy.typing import ArrayLike

from jaxperf.embedding.locality._footprint import (
    ReuseTimes,
    miss_ratio_after,
    model_footprint,
)

_BISECTIONS = 60


@dataclass(frozen=True)
class FootprintTable:
    """Footprints and hit ratios of tables on a grid of times. A pytree; all leaves float.

    Attributes:
        time: (tables, points) times in accesses of the table, ascending from 0.
        footprint_rows: (tables, points) distinct rows that the table uses in that time.
        hit_ratio: (tables, points) share of its accesses whose row was used within it.
    """

    time: Array
    footprint_rows: Array
    hit_ratio: Array


jax.tree_util.register_dataclass(FootprintTable, ["time", "footprint_rows", "hit_ratio"], [])


def footprint_table(times: Sequence[ReuseTimes], points: int = 256) -> FootprintTable:
    """Put the reuse-time models of tables on grids, for `shared_hit_ratio`.

    Args:
        times: of `reuse_times`, one for each table.
        points: times on each grid, evenly in their logarithm.

    Returns:
        Numpy leaves in float64; what is computed from them has the precision that jax is set to.

    Example:
        >>> from jaxperf.embedding.locality import reuse_times
        >>> footprint_table([reuse_times(np.arange(100) % 10)], points=3).time.tolist()
        [[0.0, 1.0, 100.0]]
    """
    grids = [np.concatenate([[0.0], np.geomspace(1.0, t.accesses, points - 1)]) for t in times]
    return FootprintTable(
        time=np.array(grids),  # type: ignore[arg-type]
        footprint_rows=np.array([model_footprint(*at) for at in zip(times, grids, strict=True)]),  # type: ignore[arg-type]
        hit_ratio=np.array([1.0 - miss_ratio_after(*at) for at in zip(times, grids, strict=True)]),  # type: ignore[arg-type]
    )


def shared_eviction_time(table: FootprintTable, lookups: ArrayLike, rows: ArrayLike) -> Array:
    """The time after which a cache that tables share evicts a row.

    It is the root `T` of `sum_i fp_i(r_i T) = rows`, with `r_i` lookups of table `i` in a unit of
    time (Hu et al., USENIX ATC 2016; Xiang et al., ASPLOS 2013). Found by bisection, and followed
    by one step of Newton, whose derivative is that of the implicit function:
    `dT/drows = 1 / sum_i r_i fp_i'(r_i T)`.

    Args:
        table: of the tables.
        lookups: (tables,) lookups of each in a unit of time, above 0.
        rows: () size of the cache.

    Returns:
        () time in that unit; the longest of the tables' own where the cache never fills.

    Example:
        >>> from jaxperf.embedding.locality import reuse_times
        >>> from jaxperf.replay import double_precision
        >>> tables = footprint_table([reuse_times(np.arange(300) % 10)] * 2)
        >>> with double_precision():
        ...     round(float(shared_eviction_time(tables, [1.0, 1.0], 8)), 2)
        4.0
    """
    table = jax.tree.map(jnp.asarray, table)
    rates = jnp.asarray(lookups, table.time.dtype)
    size = jnp.asarray(rows, table.time.dtype)
    fixed_rates, fixed_size = jax.lax.stop_gradient((rates, size))
    longest = jnp.max(table.time[:, -1] / fixed_rates)

    def halve(_, span):
        low, high = span
        middle = 0.5 * (low + high)
        below = _footprint_rows(table, fixed_rates, middle) < fixed_size
        return jnp.where(below, middle, low), jnp.where(below, high, middle)

    low, high = jax.lax.fori_loop(0, _BISECTIONS, halve, (jnp.zeros_like(longest), longest))
    near = jax.lax.stop_gradient(0.5 * (low + high))
    found, slope = jax.value_and_grad(lambda t: _footprint_rows(table, rates, t))(near)
    slope = jax.lax.stop_gradient(slope)
    full = _footprint_rows(table, fixed_rates, longest) > fixed_size
    step = (size - found) / jnp.where(slope > 0, slope, 1.0)
    return jnp.where(full & (slope > 0), near + step, longest)


def shared_hit_ratio(table: FootprintTable, lookups: ArrayLike, rows: ArrayLike) -> Array:
    """Hit ratio of each table in a cache that all share.

    Args:
        table: of the tables.
        lookups: (tables,) lookups of each in a unit of time, above 0.
        rows: () size of the cache, of rows of one size.

    Returns:
        (tables,) share of a table's lookups that hit. Differentiable in `lookups` and `rows`.

    Example:
        >>> import numpy as np
        >>> from jaxperf.embedding.locality import reuse_times
        >>> from jaxperf.replay import double_precision
        >>> loop = reuse_times(np.arange(300) % 10)
        >>> with double_precision():
        ...     shared_hit_ratio(footprint_table([loop, loop]), [1.0, 1.0], 30).round(2).tolist()
        [0.97, 0.97]
    """
    table = jax.tree.map(jnp.asarray, table)
    rates = jnp.asarray(lookups, table.time.dtype)
    time = shared_eviction_time(table, rates, rows)
    return jax.vmap(jnp.interp)(rates * time, table.time, table.hit_ratio)


def _footprint_rows(table: FootprintTable, rates: Array, time: Array) -> Array:
    return jnp.sum(jax.vmap(jnp.interp)(rates * time, table.time, table.footprint_rows))
