"""Clocks of least energy where the step is the longest of some paths: an interior-point method.

Energy of a step of length T, in `x = f0 / f` of each group, is taken as a sum over groups: what
their tasks take, and their share of static power over T, with shares and their slopes as at the
point before, which the caller's rounds move to where they hold. What is left is convex, smooth but
where the voltage stops to fall. There the range of a group is cut in two, and the method has a
variable for each part: energy falls less in the second, so that the first fills first.
"""

from dataclasses import dataclass, fields

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jax.typing import ArrayLike

from jaxperf.energy.clocks._scenarios import GroupedTasks, rank_energy_j
from jaxperf.energy.power._model import PowerModel, static_power_w, task_energy_j, task_time_us

# The weight of energy against the barriers grows by a factor, with some Newton steps for each.
_FIRST, _LAST, _LEVELS, _STEPS = 1e1, 1e10, 16, 5
# Parts of a Newton step that are tried.
_TRIED = np.append(0.6 ** np.arange(24), 0.0)


@dataclass(frozen=True, eq=False)
class Paths:
    """Paths through the graph whose time the step is never shorter than.

    Attributes:
        slope_us: (groups, paths) by `f0 / f` of each group.
        intercept_us: (paths,) what does not follow the clock.
    """

    slope_us: ArrayLike
    intercept_us: ArrayLike


jax.tree_util.register_dataclass(Paths, [f.name for f in fields(Paths)], [])


@jax.jit
def least_energy(
    work: GroupedTasks,
    model: PowerModel,
    paths: Paths,
    target_us: ArrayLike,
    before: ArrayLike,
    low: ArrayLike,
    high: ArrayLike,
) -> Array:
    """The slowness of groups that takes least energy, for each target.

    Args:
        work: of `prepare_clocks`.
        model: the accelerators.
        paths: none of them longer than the least target where all groups are as fast as can be.
        target_us: (points,) longest step.
        before: (groups, points) slowness where shares of static power are taken.
        low, high: () bounds of `f0 / f`.

    Returns:
        (groups, points) `f0 / f`, strictly between the bounds.
    """
    target_us, before, low, high = (jnp.asarray(x) for x in (target_us, before, low, high))
    slope, intercept = jnp.asarray(paths.slope_us), jnp.asarray(paths.intercept_us)
    bend = jnp.clip(_bend(model), low + 0.01 * (high - low), high - 0.01 * (high - low))
    room = jnp.stack([jnp.full(work.groups, bend - low), jnp.full(work.groups, high - bend)])

    begin = jnp.stack([jnp.full(work.groups, low), jnp.full(work.groups, bend)])

    def one(point: tuple[Array, Array]) -> Array:
        target, before = point
        energy = _separable_energy(work, model, target, before)
        scale = jnp.abs(energy(jnp.full_like(before, low))).sum()

        def parts(y: Array) -> Array:
            """(2, groups) energy of both parts of the range."""
            return jax.vmap(energy)(y + begin) / scale

        def barrier(y: Array, weight: Array) -> Array:
            spare = (target - intercept - slope.T @ (low + y.sum(0))) / target
            bounds = jnp.log(y).sum() + jnp.log(room - y).sum() + jnp.log(spare).sum()
            value = weight * parts(y).sum() - bounds
            return jnp.where(jnp.isnan(value), jnp.inf, value)

        def newton(y: Array, weight: Array) -> Array:
            first, second = _derivatives(parts, y)
            spare = target - intercept - slope.T @ (low + y.sum(0))
            pull = slope @ (1.0 / spare)
            gradient = weight * first - 1.0 / y + 1.0 / (room - y) + pull[None]
            curvature = weight * jnp.maximum(second, 0.0) + y**-2.0 + (room - y) ** -2.0
            # Paths see the sum of both parts: the system is one of groups alone.
            give = 1.0 / curvature
            scaled = slope / spare[None]
            matrix = jnp.diag(1.0 / give.sum(0)) + scaled @ scaled.T
            right = -(gradient * give).sum(0) / give.sum(0)
            move = jax.scipy.linalg.solve(matrix, right, assume_a="pos")
            force = (move + (gradient * give).sum(0)) / give.sum(0)
            direction = give * (force[None] - gradient)
            tried = jax.vmap(lambda part: y + part * direction)(jnp.asarray(_TRIED))
            return tried[jnp.argmin(jax.vmap(barrier, (0, None))(tried, weight))]

        def level(y: Array, weight: Array) -> tuple[Array, None]:
            return lax.fori_loop(0, _STEPS, lambda _, y: newton(y, weight), y), None

        spare = target - intercept - low * slope.sum(0)
        longer = slope.T @ room.sum(0)
        part = jnp.min(jnp.where(longer > 0, spare / jnp.where(longer > 0, longer, 1.0), jnp.inf))
        start = room * jnp.minimum(0.5 * part, 0.5)
        y, _ = lax.scan(level, start, jnp.geomspace(_FIRST, _LAST, _LEVELS))
        return low + y.sum(0)

    return jnp.transpose(lax.map(one, (target_us, before.T)))


def _bend(model: PowerModel) -> Array:
    """Where the voltage stops to fall, in `f0 / f`."""
    slope = jnp.asarray(model.voltage_slope)
    relative = 1.0 - (1.0 - model.minimum_voltage) / jnp.where(slope > 0, slope, 1.0)
    return jnp.where((slope > 0) & (relative > 0), 1.0 / relative, jnp.inf)


def _derivatives(function, y: Array) -> tuple[Array, Array]:
    """First and second derivatives of a function of each element by itself."""
    one = jnp.ones_like(y)

    def first(y: Array) -> Array:
        return jax.jvp(function, (y,), (one,))[1]

    return jax.jvp(first, (y,), (one,))


def _separable_energy(work: GroupedTasks, model: PowerModel, step_us: Array, before: Array):
    """(groups,) energy by slowness, equal in slope to that of `rank_energy_j` at `before`."""
    tasks, groups = work.tasks, work.groups
    alike = jnp.asarray(tasks.ranks_alike)[tasks.rank]
    nominal = model.nominal_clock_hz

    def of_rows(slower: Array) -> Array:
        return jnp.append(slower, jnp.ones_like(slower[:1]))[work.group]

    def by_group(values: Array) -> Array:
        return jax.ops.segment_sum(values, work.group, groups + 1)[:groups]

    time_us = task_time_us(model, tasks, nominal / of_rows(before))
    busy_us = jax.ops.segment_sum(time_us, tasks.rank, len(tasks.ranks))[tasks.rank]
    share = by_group(alike * time_us / jnp.where(busy_us > 0, busy_us, 1.0))

    def uncorrected(slower: Array) -> Array:
        dynamic_j = by_group(alike * task_energy_j(model, tasks, nominal / of_rows(slower)))
        return dynamic_j + share * static_power_w(model, nominal / slower) * (step_us * 1e-6)

    def whole(slower: Array) -> Array:
        rank_j = rank_energy_j(work, model, (nominal / slower)[:, None], step_us[None])
        return jnp.asarray(tasks.ranks_alike) @ rank_j[:, 0]

    correction = jax.grad(whole)(before) - _derivatives(uncorrected, before)[0]
    return lambda slower: uncorrected(slower) + correction * slower
