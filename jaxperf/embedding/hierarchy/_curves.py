"""How often a table's rows come again: hits by size of cache, distinct rows by length of a run."""

from collections.abc import Sequence
from dataclasses import dataclass, fields
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from jaxperf.embedding.locality import Popularity, expected_distinct_rows, zipf_popularity
from jaxperf.errors import ConfigError

POINTS = 256
"""Points of a grid. Grids are even in the logarithm, so that a place in one needs no search."""

_TIMES = 384
_SEEN = 25.0  # the coldest row is missed in this many of its periods with e^-25


@dataclass(frozen=True, eq=False)
class LocalityCurves:
    """What is known of the reuse of each table, of a stream of its accesses that goes on.

    Attributes:
        rows: (tables,) of each table, 2 at least.
        accesses: (tables,) at the end of the grid of `log_distinct`.
        hit_ratio: (tables, points) of LRU caches of `rows**(k / (points - 1))` rows.
        pinned_ratio: (tables, points) of the accesses, those to as many of the hottest rows.
        log_distinct: (tables, points) logarithm of the mean number of distinct rows in
            `accesses**(k / (points - 1))` accesses.
        hit_slope, pinned_slope, log_distinct_slope: (tables, points) by steps of the grid, such
            that the cubics between points are monotone.
    """

    rows: ArrayLike
    accesses: ArrayLike
    hit_ratio: ArrayLike
    hit_slope: ArrayLike
    pinned_ratio: ArrayLike
    pinned_slope: ArrayLike
    log_distinct: ArrayLike
    log_distinct_slope: ArrayLike


jax.tree_util.register_dataclass(LocalityCurves, [f.name for f in fields(LocalityCurves)], [])


def hit_ratio(curves: LocalityCurves, cached_rows: ArrayLike) -> jax.Array:
    """Share of accesses that an LRU cache of a table's own has.

    Args:
        curves: of the tables.
        cached_rows: (tables,) not whole numbers alone.

    Returns:
        (tables,) between 0 and 1, never falling with the size.

    Example:
        >>> curves = stack_curves([zipf_curve(1000, 0.0)])
        >>> f"{hit_ratio(curves, np.array([250.0]))[0]:.2f}"
        '0.25'
    """
    return _by_rows(curves.rows, curves.hit_ratio, curves.hit_slope, cached_rows)


def pinned_ratio(curves: LocalityCurves, pinned_rows: ArrayLike) -> jax.Array:
    """Share of accesses that go to as many of the hottest rows.

    Args:
        curves: of the tables.
        pinned_rows: (tables,) of each.

    Returns:
        (tables,) between 0 and 1.

    Example:
        >>> curves = stack_curves([zipf_curve(1000, 1.0)])
        >>> f"{pinned_ratio(curves, np.array([1.0]))[0]:.4f}"  # 1 / (1 + 1/2 + .. + 1/1000)
        '0.1336'
    """
    return _by_rows(curves.rows, curves.pinned_ratio, curves.pinned_slope, pinned_rows)


def distinct_rows(curves: LocalityCurves, accesses: ArrayLike) -> jax.Array:
    """Mean number of distinct rows among so many accesses in turn, as a batch makes them.

    Args:
        curves: of the tables.
        accesses: (tables,) to each.

    Returns:
        (tables,) rows; as many as accesses where there is less than one.

    Example:
        >>> curves = stack_curves([zipf_curve(1000, 0.0)])
        >>> f"{distinct_rows(curves, np.array([1000.0]))[0]:.0f}"  # 1000 (1 - 0.999^1000)
        '632'
    """
    accesses = jnp.asarray(accesses, jnp.result_type(float))
    grid = _place(curves.accesses, accesses)
    log_rows = _cubic(curves.log_distinct, curves.log_distinct_slope, grid)
    return jnp.where(accesses < 1, jnp.maximum(accesses, 0.0), jnp.exp(log_rows))


def stack_curves(curves: Sequence[LocalityCurves]) -> LocalityCurves:
    """The curves of several tables as one: `zipf_curve`, `csv_curve` and others give one each."""
    return jax.tree.map(lambda *each: np.concatenate(each), *curves)


def curve_of_points(
    rows: float,
    sizes: np.ndarray,
    hits: np.ndarray,
    windows: np.ndarray,
    distinct: np.ndarray,
    pinned: tuple[np.ndarray, np.ndarray] | None = None,
) -> LocalityCurves:
    """The curve of one table from points of it, however they were come by.

    Args:
        rows: of the table.
        sizes, hits: (n,) rows of a cache, rising, and its hit ratio.
        windows, distinct: (m,) accesses, rising, and the mean number of distinct rows in them.
        pinned: (p,) numbers of the hottest rows, rising, and their share of the accesses; as the
            cache's hits where not known.

    Returns:
        The curve, with one table.

    Example:
        >>> sizes = np.array([1.0, 10.0, 100.0])
        >>> curve = curve_of_points(100, sizes, np.array([0.1, 0.5, 1.0]), sizes, sizes)
        >>> f"{hit_ratio(curve, np.array([10.0]))[0]:.3f}"
        '0.500'
    """
    largest = max(float(rows), 2.0)
    grid = np.linspace(0.0, np.log(largest), POINTS)
    longest = max(float(windows[-1]), 2.0)
    times = np.linspace(0.0, np.log(longest), POINTS)
    ratio = _resampled(grid, np.log(sizes), hits)
    hottest = ratio if pinned is None else _resampled(grid, np.log(pinned[0]), pinned[1])
    log_distinct = _resampled(times, np.log(windows), np.log(distinct))
    columns = [part for values in (ratio, hottest, log_distinct) for part in _with_slopes(values)]
    return LocalityCurves(np.array([largest]), np.array([longest]), *columns)


def zipf_curve(rows: float, exponent: float) -> LocalityCurves:
    """The curve of a table whose rows are asked for independently, by a power law.

    Args:
        rows: of the table.
        exponent: the r-th row is asked for in proportion to `r^-exponent`.

    Returns:
        The curve, with one table.

    Example:
        >>> curve = zipf_curve(100_000, 0.8)
        >>> f"{hit_ratio(curve, np.array([1000.0]))[0]:.4f}"  # simulated: 0.2042
        '0.2043'
    """
    return popularity_curve(zipf_popularity(int(rows), exponent), rows)


def popularity_curve(popularity: Popularity, rows: float) -> LocalityCurves:
    """The curve of a table whose rows are asked for independently, each as often as is known.

    Of rows with shares q, n accesses meet `sum 1 - (1 - q)^n` distinct ones. An LRU cache of
    `sum 1 - exp(-q t)` rows has `sum q (1 - exp(-q t))` of the accesses (Che, Tung and Wang 2002).

    Args:
        popularity: of the rows.
        rows: of the table.

    Returns:
        The curve, with one table.
    """
    hottest_first = np.argsort(-popularity.share, kind="stable")
    number, share = popularity.rows[hottest_first], popularity.share[hottest_first]
    coldest = np.min(share[share > 0])
    times = np.geomspace(1.0, max(_SEEN / coldest, 2.0), _TIMES)
    held = -np.expm1(-np.outer(times, share))
    sizes, hits = held @ number, np.minimum(held @ (number * share), 1.0)
    distinct = np.minimum(expected_distinct_rows(popularity, times), max(rows, 1.0))
    counts, covered = np.cumsum(number), np.minimum(np.cumsum(number * share), 1.0)
    return curve_of_points(rows, sizes, hits, times, distinct, (counts, covered))


def csv_curve(path: Path | str, rows: float) -> LocalityCurves:
    """The curve of a table from a file of `rows,hit_ratio`, as others have measured it.

    What is not in it follows: an access more meets another row with the probability to miss, so
    that distinct rows grow by `1 - hit_ratio` (Denning); the hottest rows have what the cache has;
    a cache of all rows misses none.

    Args:
        path: a file with those two columns.
        rows: of the table.

    Returns:
        The curve, with one table.

    Raises:
        ConfigError: it is no such file, or the curve does not rise.
    """
    sizes, hits = _read_csv(Path(path))
    if sizes[0] > 1:
        sizes, hits = np.append(1.0, sizes), np.append(hits[0] / sizes[0], hits)
    if sizes[-1] < rows:
        sizes, hits = np.append(sizes, float(rows)), np.append(hits, 1.0)
    dense = np.geomspace(1.0, max(float(rows), 2.0), 4096)
    missed = 1 - np.interp(np.log(dense), np.log(sizes), hits)
    pace = 1 / np.maximum(missed, 1e-9)
    windows = 1 + np.append(0.0, np.cumsum(np.diff(dense) * (pace[1:] + pace[:-1]) / 2))
    return curve_of_points(rows, sizes, hits, windows, np.minimum(dense, rows))


def _read_csv(path: Path) -> tuple[np.ndarray, np.ndarray]:
    try:
        lines = [line for line in path.read_text(encoding="utf-8").split("\n") if line.strip()]
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError("cannot be read", where=str(path), got=str(error)) from None
    header = [word.strip() for word in lines[0].split(",")] if lines else []
    if header != ["rows", "hit_ratio"]:
        raise ConfigError(
            "not a curve", where=f"{path}:1", got=",".join(header), expected="rows,hit_ratio"
        )
    points = []
    for number, line in enumerate(lines[1:], 2):
        try:
            size, ratio = (float(word) for word in line.split(","))
        except ValueError:
            raise ConfigError("not two numbers", where=f"{path}:{number}", got=line[:40]) from None
        before = points[-1] if points else (0.0, 0.0)
        if not (size > before[0] and size >= 1 and before[1] <= ratio <= 1):
            raise ConfigError(
                "not a curve that rises",
                where=f"{path}:{number}",
                got=line[:40],
                expected="more rows than before, and a hit ratio as high at least, 1 at most",
            )
        points.append((size, ratio))
    if len(points) < 2:
        raise ConfigError("no curve", where=str(path), expected="two points at least")
    sizes, hits = np.array(points).T
    return sizes, hits


def _resampled(grid: np.ndarray, at: np.ndarray, values: np.ndarray) -> np.ndarray:
    return np.maximum.accumulate(np.interp(grid, at, values))


def _with_slopes(values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(1, points) values and slopes by which cubics stay monotone (Fritsch and Carlson 1980)."""
    from scipy.interpolate import PchipInterpolator

    steps = np.arange(len(values))
    return values[None, :], PchipInterpolator(steps, values).derivative()(steps)[None, :]


def _by_rows(rows, values, slopes, size: ArrayLike) -> jax.Array:
    size = jnp.asarray(size, jnp.result_type(float))
    ratio = _cubic(values, slopes, _place(rows, size))
    # Part of a row: as often as the row itself, for part of the time.
    return jnp.where(size < 1, jnp.maximum(size, 0.0) * jnp.asarray(values)[:, 0], ratio)


def _place(largest: ArrayLike, value: jax.Array) -> jax.Array:
    """(tables,) where a value stands on a grid from 1 to the largest, in steps of it."""
    inside = jnp.clip(value, 1.0, jnp.asarray(largest))
    return jnp.log(inside) / jnp.log(jnp.asarray(largest)) * (POINTS - 1)


def _cubic(values: ArrayLike, slopes: ArrayLike, place: jax.Array) -> jax.Array:
    """(tables,) Hermite's cubic between the points on either side."""
    values, slopes = jnp.asarray(values), jnp.asarray(slopes)
    left = jnp.clip(jax.lax.stop_gradient(jnp.floor(place)), 0, POINTS - 2).astype(jnp.int32)
    table = jnp.arange(len(values))
    x = place - left.astype(place.dtype)
    low, high = values[table, left], values[table, left + 1]
    low_slope, high_slope = slopes[table, left], slopes[table, left + 1]
    square, cube = x * x, x * x * x
    rising = 3 * square - 2 * cube
    return (
        low
        + (high - low) * rising
        + low_slope * (cube - 2 * square + x)
        + high_slope * (cube - square)
    )
