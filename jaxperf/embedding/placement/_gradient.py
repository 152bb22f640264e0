"""Cache sizes as continuous quantities: descent on the hierarchy's own step, homes as given.

The step is a maximum over tiers, made smooth by `log sum exp` at a temperature that falls. Sizes
are optimised as logarithms; after each step those of a tier that overflows shrink by one factor
(the projection). Rows without a place change with the sizes as well, so that only iterates that
fit when they are evaluated count.
"""

from dataclasses import replace
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import Array

from jaxperf.embedding.hierarchy._model import Design, HierarchyRules, ModelArrays
from jaxperf.embedding.hierarchy._step import Outcome, evaluate
from jaxperf.replay import double_precision

_LARGEST_CHANGE = 0.1  # of a logarithm in one step, at first
_WARM, _COLD = 0.05, 0.001  # temperatures, as parts of the step
_SLACK = 1e-6  # of a tier


def polish_caches(
    model: ModelArrays, design: Design, rules: HierarchyRules, *, steps: int = 200
) -> tuple[Design, float]:
    """Change the sizes of the caches that there are for a faster step.

    Args:
        model: the tables.
        design: one whose tables fit; homes and policies stay.
        rules: of the hierarchy.
        steps: of descent.

    Returns:
        The fastest design on the way, the given one included, and its step: no faster than the
        rated endurance allows.
    """
    with double_precision():
        cached, step_us = _polish(model, jax.tree.map(jnp.asarray, design), rules, steps)
        return replace(design, cached_rows=np.asarray(cached)), float(step_us)


@partial(jax.jit, static_argnums=3)
def _polish(model: ModelArrays, design: Design, rules: HierarchyRules, steps: int):
    start = jnp.asarray(design.cached_rows)
    has = start > 0
    row_bytes = (jnp.asarray(model.weight_bytes) + jnp.asarray(model.state_bytes))[:, None]
    capacity = jnp.asarray(design.machine.tiers.capacity_bytes)
    adam = optax.scale_by_adam()

    def caches(log_cached: Array) -> Array:
        return jnp.where(has, jnp.exp(log_cached), 0.0)

    def smooth(log_cached: Array, temperature: Array):
        design_ = replace(design, cached_rows=caches(log_cached))
        outcome = evaluate(model, design_, rules)
        times_us = _times_us(outcome, rules)
        step_us = jax.lax.stop_gradient(jnp.max(times_us))
        scaled = jax.nn.logsumexp(times_us / (temperature * step_us)) * temperature
        return scaled, (step_us, outcome.free_bytes)

    def descend(carry, number):
        log_cached, state, best, best_us = carry
        temperature = _WARM * (_COLD / _WARM) ** (number / steps)
        slope = jax.value_and_grad(smooth, has_aux=True)
        (_, (step_us, free)), gradient = slope(log_cached, temperature)
        cached = caches(log_cached)
        better = (step_us < best_us) & (free >= -_SLACK * capacity).all()
        best = jnp.where(better, cached, best)
        best_us = jnp.where(better, step_us, best_us)
        # Optax mixes whole numbers and floats.
        with jax.numpy_dtype_promotion("standard"):
            change, state = adam.update(gradient, state)
        pace = _LARGEST_CHANGE * 0.5 * (1 + jnp.cos(jnp.pi * number / steps))
        moved = caches(
            jnp.minimum(log_cached - pace * jnp.asarray(change), jnp.log(model.rows)[:, None])
        )
        room = free + jnp.sum(cached * row_bytes, axis=0)
        taken = jnp.sum(moved * row_bytes, axis=0)
        fits = jnp.clip(room / jnp.where(taken > 0, taken, 1.0), 0.01, 1.0)
        moved = jnp.log(jnp.where(has, moved * fits[None, :], 1.0))
        return (moved, state, best, best_us), None

    log_start = jnp.log(jnp.where(has, start, 1.0))
    carry = (log_start, adam.init(log_start), start, jnp.asarray(jnp.inf, start.dtype))
    (_, _, best, best_us), _ = jax.lax.scan(descend, carry, jnp.arange(steps, dtype=start.dtype))
    return best, best_us


def _times_us(outcome: Outcome, rules: HierarchyRules) -> Array:
    """What the step is the greatest of: the accelerators, each other tier, and endurance."""
    device_us = outcome.dense_us + outcome.communication_us + outcome.busy_us[0]
    if rules.prefetch:
        below_us = outcome.busy_us[1:] + outcome.update_us
    else:
        device_us = device_us + outcome.prefetch_us
        below_us = jnp.zeros_like(outcome.busy_us[1:])
    return jnp.concatenate([jnp.stack([device_us, outcome.endurance_us]), below_us])
