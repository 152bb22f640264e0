"""The power limit, in recorded times that already contain the clock which keeps it."""

from dataclasses import replace

import jax
import jax.numpy as jnp
from jax import Array
from jax.typing import ArrayLike

from jaxperf.energy.power._timeline_power import TimelinePower, rank_series_w

# After these the mean of every cell is within a thousandth of the limit, in tests of random tasks.
_ROUNDS = 4


def hold_limit(power: TimelinePower, limit_w: ArrayLike, grid_us: ArrayLike) -> TimelinePower:
    """What is drawn where the device keeps its limit by a lower clock, in the times as they are.

    Recorded times already contain the lower clock; energy at the nominal voltage would be too
    much. Where the mean over a cell is above the limit, what follows the voltage is taken to be
    less by as much; a task over several cells by the mean of what they ask for.

    Args:
        power: of `timeline_power`.
        limit_w: () of one accelerator.
        grid_us: (cells + 1,) edges inside the span, such as of 50 ms, over which the limit is kept.

    Returns:
        The same with lower energies. Static power and that of bytes stay, even above the limit.
    """
    grid_us = jnp.asarray(grid_us)

    def lowered(_: int, energies_j: tuple[Array, Array]) -> tuple[Array, Array]:
        before = replace(power, energy_j=energies_j[0], switching_j=energies_j[1])
        after = _lowered(before, limit_w, grid_us)
        return after.energy_j, after.switching_j

    # A task that spans cells is lowered by less than the fullest of them asks for.
    energies_j = power.energy_j, power.switching_j
    energy_j, switching_j = jax.lax.fori_loop(0, _ROUNDS, lowered, energies_j)
    return replace(power, energy_j=energy_j, switching_j=switching_j)


def _lowered(power: TimelinePower, limit_w: ArrayLike, grid_us: Array) -> TimelinePower:
    total_w = rank_series_w(power, grid_us)
    no_static = jnp.zeros_like(power.static_w)
    alone = replace(power, energy_j=power.switching_j, static_w=no_static)
    switching_w = rank_series_w(alone, grid_us)
    room_w = limit_w - (total_w - switching_w)
    some = switching_w > 0
    share = jnp.where(some, jnp.clip(room_w / jnp.where(some, switching_w, 1.0), 0.0, 1.0), 1.0)
    lengths_us = jnp.broadcast_to(jnp.diff(grid_us), share.shape)
    # Time that is lost, as it were: (ranks, cells + 1) up to each edge.
    lost_us = jnp.pad(jnp.cumsum((1.0 - share) * lengths_us, axis=1), ((0, 0), (1, 0)))
    rank = power.rank

    def lost_at_us(time_us: Array) -> Array:
        time_us = jnp.clip(time_us, grid_us[0], grid_us[-1])
        cell = jnp.clip(jnp.searchsorted(grid_us, time_us, side="right") - 1, 0, len(grid_us) - 2)
        return lost_us[rank, cell] + (1.0 - share[rank, cell]) * (time_us - grid_us[cell])

    end_us = power.start_us + power.time_us
    kept = 1.0 - (lost_at_us(end_us) - lost_at_us(power.start_us)) / power.time_us
    less_j = power.switching_j * (1.0 - kept)
    return replace(power, energy_j=power.energy_j - less_j, switching_j=power.switching_j - less_j)
