"""Energy over a span by class, rank and phase."""

import jax
import jax.numpy as jnp
from jax import Array

from jaxperf.energy.power._timeline_power import TimelinePower
from jaxperf.graph import TaskClass

PHASES = ("compute", "overlap", "exposed_communication", "memory", "idle")
"""What goes on in a rank, as `jaxperf.replay.Breakdown` has it; of `energy_by_phase_j`."""

CLASSES_AND_STATIC = (*(each.name.lower() for each in TaskClass), "static")
"""What the sums of `energy_by_class_j` are of."""

_S = 1e-6


def _inside_j(power: TimelinePower) -> Array:
    """(n,) what each task takes inside the span."""
    until_us = jnp.minimum(power.start_us + power.time_us, power.end_us)
    inside_us = jnp.maximum(until_us - jnp.maximum(power.start_us, power.begin_us), 0.0)
    return power.energy_j * inside_us / power.time_us


def energy_by_class_j(power: TimelinePower) -> Array:
    """Energy of all accelerators inside the span by class of task.

    Args:
        power: of `timeline_power`.

    Returns:
        (classes + 1,) as `CLASSES_AND_STATIC`: of tasks what is on top of static power, which is
        the last.
    """
    alike = power.ranks_alike
    inside_j = _inside_j(power) * alike[power.rank]
    of_tasks = jnp.zeros(len(TaskClass), inside_j.dtype).at[power.task_class]
    static_j = jnp.sum(alike * power.static_w) * (power.end_us - power.begin_us) * _S
    return jnp.concatenate([of_tasks.add(inside_j), static_j[None]])


def energy_by_rank_j(power: TimelinePower) -> Array:
    """(ranks,) energy of one accelerator of each rank inside the span, static power included."""
    static_j = power.static_w * (power.end_us - power.begin_us) * _S
    return static_j.at[power.rank].add(_inside_j(power))


def energy_by_phase_j(power: TimelinePower) -> Array:
    """Energy of all accelerators inside the span by what goes on in their rank.

    Args:
        power: of `timeline_power`.

    Returns:
        (phases,) as `PHASES`, static power included; they add up to the energy of the span.
    """
    communicates = power.task_class == TaskClass.COMMUNICATION
    copies = power.task_class == TaskClass.MEMCPY
    step_us = jnp.diff(jnp.clip(power.moment_us, power.begin_us, power.end_us))
    watts = power.energy_j / (power.time_us * _S)
    kinds = jnp.stack([~communicates & ~copies, communicates, copies], 1).astype(watts.dtype)
    columns = jnp.concatenate([kinds, watts[:, None]], 1)

    def of_rank(rank: Array) -> Array:
        mine = jnp.where((power.rank == rank)[:, None], columns, 0.0)
        # How many tasks of each kind run, and what they draw, from a moment to the next.
        running = jnp.cumsum(jnp.concatenate([mine, -mine])[power.order], axis=0)[:-1]
        computing, communicating, copying = (running[:, each] > 0.5 for each in range(3))
        drawn_w = running[:, 3] + power.static_w[rank]
        states = jnp.stack(
            [
                computing & ~communicating,
                computing & communicating,
                ~computing & communicating,
                ~computing & ~communicating & copying,
            ]
        )
        busy_j = jnp.where(states, (drawn_w * step_us)[None], 0.0).sum(1)
        busy_us = jnp.where(states.any(0), step_us, 0.0).sum()
        idle_j = power.static_w[rank] * (power.end_us - power.begin_us - busy_us)
        return jnp.append(busy_j, idle_j) * _S

    of_ranks = jax.lax.map(of_rank, jnp.arange(len(power.static_w), dtype=power.rank.dtype))
    return power.ranks_alike @ of_ranks
