"""What a meter reads of a power that is constant between known moments.

    m_i = 1 / w * integral of P from t_i - d - w to t_i - d

The integral is the difference of two cumulative energies, each linear between the moments, so it is
exact, costs O(log n) a reading, and has a gradient in the delay d and the window w.
"""

from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.typing import ArrayLike

# The energy of one timeline (`power._timeline_power`) mapped over the numbers of a fit would be the
# same, but its slopes take twice as long: here one look-up and one row serve all numbers.


@dataclass(frozen=True, eq=False)
class CumulativeEnergy:
    """Energies since the first moment, each of a power that is constant between moments.

    Attributes:
        time_s: (moments,) ascending; equal ones may follow each other.
        energy_j: (moments, powers) up to each moment.
        power_w: (moments, powers) from each moment to the next; of the last for ever.
    """

    time_s: ArrayLike
    energy_j: ArrayLike
    power_w: ArrayLike


jax.tree_util.register_dataclass(CumulativeEnergy, ["time_s", "energy_j", "power_w"], [])


def cumulative_energy(
    start_s: np.ndarray, end_s: np.ndarray, power_w: np.ndarray
) -> CumulativeEnergy:
    """The sum of powers that each begin and end.

    Args:
        start_s, end_s: (n,) when each begins, and ends.
        power_w: (n, powers) what is drawn between.

    Returns:
        With 2n moments, in float64.

    Example:
        >>> one = cumulative_energy(np.array([0.0]), np.array([2.0]), np.array([[5.0]]))
        >>> one.energy_j.tolist()
        [[0.0], [10.0]]
    """
    time_s = np.concatenate([start_s, end_s])
    order = np.argsort(time_s, kind="stable")
    time_s = time_s[order]
    drawn_w = np.cumsum(np.concatenate([power_w, -power_w])[order], axis=0)
    energy_j = np.zeros_like(drawn_w)
    np.cumsum(drawn_w[:-1] * np.diff(time_s)[:, None], axis=0, out=energy_j[1:])
    return CumulativeEnergy(time_s, energy_j, drawn_w)


def _energy_until_j(energy: CumulativeEnergy, time_s: Array) -> Array:
    """(..., p) the energies up to any times (...); before the first moment there is none."""
    moments = jnp.asarray(energy.time_s)
    at = jnp.searchsorted(moments, jax.lax.stop_gradient(time_s), side="right") - 1
    inside = jnp.maximum(time_s - moments[jnp.maximum(at, 0)], 0.0)
    at = jnp.maximum(at, 0)
    return jnp.asarray(energy.energy_j)[at] + jnp.asarray(energy.power_w)[at] * inside[..., None]


@jax.jit
def metered_w(
    energy: CumulativeEnergy,
    time_s: ArrayLike,
    delay_s: ArrayLike,
    window_s: ArrayLike,
) -> Array:
    """What a meter reads of each power.

    Args:
        energy: of p powers.
        time_s: (...) of each reading.
        delay_s: from the end of the window to the reading; as `time_s`, or to broadcast with it.
        window_s: over which a reading is the mean, above 0; likewise.

    Returns:
        (..., p) watts, differentiable in all but `time_s`' order.

    Example:
        >>> one = cumulative_energy(np.array([0.0]), np.array([2.0]), np.array([[5.0]]))
        >>> metered_w(one, np.array([2.5]), 0.0, 1.0).tolist()
        [[2.5]]
    """
    time_s, delay_s, window_s = jnp.broadcast_arrays(time_s, delay_s, window_s)
    end_s = time_s - delay_s
    drawn_j = _energy_until_j(energy, end_s) - _energy_until_j(energy, end_s - window_s)
    return drawn_j / window_s[..., None]
