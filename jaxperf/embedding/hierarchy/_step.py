"""An iteration on a hierarchy: its time, and what it takes of each tier, of money and of power."""

from dataclasses import dataclass, fields, replace

import jax
import jax.numpy as jnp
import numpy as np

from jaxperf.cost import (
    COLLECTIVE_OPERATIONS,
    collective_us,
    default_collective_parameters,
    unknown_work,
)
from jaxperf.embedding.hierarchy._flows import (
    Flows,
    flows_of,
    lookup_bytes,
    traffic_of,
    update_bytes,
)
from jaxperf.embedding.hierarchy._model import Design, HierarchyRules, ModelArrays
from jaxperf.embedding.hierarchy._tiers import (
    Machine,
    Tiers,
    drive_writes_per_day,
    tier_limits_us,
    tier_us,
)

_GRADIENT_BYTES = 4.0
_SENT = tuple(COLLECTIVE_OPERATIONS.index(name) for name in ("all_to_all",) * 3 + ("all_reduce",))


@dataclass(frozen=True, eq=False)
class Outcome:
    """What comes of a design; of many designs all fields have a leading axis.

    Attributes:
        step_us: () time of an iteration.
        samples_per_s: () of the whole job.
        dense_us: () the dense part, forward and backward.
        lookup_us, update_us: () of the first tier: forward; backward and optimizer.
        fill_us: () of the first tier: rows that enter and leave its cache.
        communication_us: () all-to-all of indices, pooled rows and their gradients; all-reduce.
        prefetch_us: () slowest of the other tiers, or their sum where nothing overlaps.
        exposed_us: () what of that the accelerators wait for.
        endurance_us: () below it drives would be written more than they are rated for.
        limits_us: (tiers, 5) each limit of each tier alone, by `LIMITS`; of the first tier for what
            enters and leaves its cache.
        busy_us: (tiers,) of each tier.
        used_bytes, free_bytes: (tiers,) over all servers; free ones may be negative.
        hit_ratio: (tiers,) rows found there of those that no faster tier has; NaN where none.
        read_bytes_per_s, iops: (tiers,) over all servers.
        drive_writes_per_day: (tiers,) of each.
        rated_writes: (tiers,) those as part of the rated ones, 1 at most.
        life_years: (tiers,) until the rated writes are used up; infinite where nothing wears.
        cost_usd: () of all servers with their memories.
        memory_usd: () of the bytes used of the tiers but the first, at their prices.
        power_w: () of all servers.
        energy_j_per_sample: () of all servers.
        conflict_rows: () rows of two batches that find no place in the first tier's cache.
    """

    step_us: jax.Array
    samples_per_s: jax.Array
    dense_us: jax.Array
    lookup_us: jax.Array
    update_us: jax.Array
    fill_us: jax.Array
    communication_us: jax.Array
    prefetch_us: jax.Array
    exposed_us: jax.Array
    endurance_us: jax.Array
    limits_us: jax.Array
    busy_us: jax.Array
    used_bytes: jax.Array
    free_bytes: jax.Array
    hit_ratio: jax.Array
    read_bytes_per_s: jax.Array
    iops: jax.Array
    drive_writes_per_day: jax.Array
    rated_writes: jax.Array
    life_years: jax.Array
    cost_usd: jax.Array
    memory_usd: jax.Array
    power_w: jax.Array
    energy_j_per_sample: jax.Array
    conflict_rows: jax.Array


jax.tree_util.register_dataclass(Outcome, [f.name for f in fields(Outcome)], [])


def evaluate(model: ModelArrays, design: Design, rules: HierarchyRules) -> Outcome:
    """What comes of a design: differentiable in every number of it.

    The accelerators take `dense + lookup + update + fill + communication`. The next batch's rows
    are fetched, and the last one's written back, while they do all of that but the update, which
    needs both batches' rows in place: `t = device + max(0, prefetch - (device - update))`. Without
    prefetch everything adds up. No step is so fast that drives would be written more than they are
    rated for.

    Args:
        model: the tables and the dense part.
        design: one; `evaluate_designs` takes many.
        rules: how the hierarchy is run.

    Returns:
        Times, bytes, wear, cost and power. Nothing is refused: `free_bytes` below 0 say that it
        cannot be.
    """
    machine, tiers = design.machine, design.machine.tiers
    nodes = jnp.asarray(design.nodes)
    flows = flows_of(model, design, rules)
    traffic = traffic_of(model, tiers, flows, nodes, rules)
    limits_us = tier_limits_us(tiers, traffic)
    busy_us = tier_us(limits_us)

    read_rate = jnp.asarray(tiers.read_bytes_per_s)[0] * nodes
    lookup_us = lookup_bytes(model, flows, design, rules) / read_rate * 1e6
    update_us = update_bytes(model, flows, design, rules) / read_rate * 1e6
    computed_us = dense_us(model, design, rules)
    sent_us = communication_us(model, design, rules)
    device_us = computed_us + lookup_us + update_us + busy_us[0] + sent_us
    busy_us = busy_us.at[0].add(lookup_us + update_us)
    if rules.prefetch:
        prefetch_us = jnp.max(busy_us[1:], initial=0.0)
        exposed_us = jnp.maximum(prefetch_us - (device_us - update_us), 0.0)
    else:
        prefetch_us = exposed_us = jnp.sum(busy_us[1:])
    written_bytes = traffic.write_bytes * jnp.asarray(rules.drive_write_amplification)
    endurance_us = jnp.max(_endurance_us(tiers, written_bytes))
    step_us = jnp.maximum(device_us + exposed_us, endurance_us)

    used = _used_bytes(model, design, flows, rules)
    writes = drive_writes_per_day(tiers, written_bytes, step_us)
    rated = writes / jnp.asarray(tiers.drive_writes_per_day)
    wears = rated > 0
    life = jnp.asarray(tiers.warranty_years) / jnp.where(wears, rated, 1.0)
    price = jnp.asarray(tiers.price_usd_per_byte)
    capacity = jnp.asarray(tiers.capacity_bytes)
    samples_per_s = jnp.asarray(design.batch_size) / step_us * 1e6
    power_w = nodes * _node_w(machine, device_us / step_us, busy_us / step_us)
    return Outcome(
        step_us=step_us,
        samples_per_s=samples_per_s,
        dense_us=computed_us,
        lookup_us=lookup_us,
        update_us=update_us,
        fill_us=tier_us(limits_us)[0],
        communication_us=sent_us,
        prefetch_us=prefetch_us,
        exposed_us=exposed_us,
        endurance_us=endurance_us,
        limits_us=limits_us,
        busy_us=busy_us,
        used_bytes=used,
        free_bytes=nodes * capacity - used,
        hit_ratio=_hit_ratios(flows),
        read_bytes_per_s=traffic.read_bytes * nodes / step_us * 1e6,
        iops=(traffic.read_blocks + traffic.write_blocks) * nodes / step_us * 1e6,
        drive_writes_per_day=writes,
        rated_writes=rated,
        life_years=jnp.where(wears, life, jnp.inf),
        cost_usd=nodes * (jnp.asarray(machine.price_usd) + jnp.sum((capacity * price)[1:])),
        memory_usd=jnp.sum((used * price)[1:]),
        power_w=power_w,
        energy_j_per_sample=power_w / samples_per_s,
        conflict_rows=jnp.sum(flows.conflicts),
    )


def _endurance_us(tiers: Tiers, written_bytes: jax.Array) -> jax.Array:
    """(tiers,) the step in which a tier is written just as often as it is rated for."""
    rated = jnp.asarray(tiers.drive_writes_per_day)
    return drive_writes_per_day(tiers, written_bytes, jnp.ones(())) / rated


def dense_us(model: ModelArrays, design: Design, rules: HierarchyRules) -> jax.Array:
    """() time of the dense part, forward and backward, at the part of the peak that it reaches."""
    machine = design.machine
    flops = jnp.asarray(design.batch_size) * jnp.asarray(model.dense_flops_per_sample)
    accelerators = jnp.asarray(design.nodes) * jnp.asarray(machine.gpus)
    reached = jnp.asarray(machine.dense_flops_per_s) * jnp.asarray(rules.dense_utilization)
    return flops / (accelerators * reached) * 1e6


def communication_us(model: ModelArrays, design: Design, rules: HierarchyRules) -> jax.Array:
    """() of tables on one accelerator each: a part of the batch goes to every other one."""
    machine = design.machine
    ranks = jnp.asarray(design.nodes) * jnp.asarray(machine.gpus)
    part = jnp.asarray(design.batch_size) / ranks
    indices = part * jnp.sum(jnp.asarray(model.pooling)) * jnp.asarray(rules.index_bytes)
    pooled = part * jnp.sum(jnp.asarray(model.dimension)) * jnp.asarray(rules.pooled_element_bytes)
    dense = jnp.asarray(model.dense_parameters) * _GRADIENT_BYTES
    work = replace(
        unknown_work(len(_SENT)),
        operation=np.array(_SENT, np.int8),
        message_bytes=jnp.stack([indices, pooled, pooled, dense]),
        ranks=jnp.full(len(_SENT), ranks),
        stride=np.ones(len(_SENT)),
    )
    return jnp.sum(collective_us(default_collective_parameters(), machine.device, work))


def table_bytes(
    model: ModelArrays, design: Design, flows: Flows, rules: HierarchyRules
) -> jax.Array:
    """Room that tables take: homes and copies; in the first tier, rows without a place as well.

    Args:
        model: the tables.
        design: where they are.
        flows: of the design, with its conflicts.
        rules: how the hierarchy is run.

    Returns:
        (tiers,) bytes.
    """
    row_bytes = (jnp.asarray(model.weight_bytes) + jnp.asarray(model.state_bytes))[:, None]
    rows = jnp.asarray(design.home_share) * jnp.asarray(model.rows)[:, None]
    kept = jnp.asarray(design.machine.tiers.space_amplification)
    size = jnp.sum((rows + jnp.asarray(design.cached_rows)) * row_bytes, axis=0) * kept
    return size.at[0].add(jnp.sum(flows.conflicts * row_bytes[:, 0]))


def _used_bytes(
    model: ModelArrays, design: Design, flows: Flows, rules: HierarchyRules
) -> jax.Array:
    """(tiers,) of tables, of the dense part, and what is reserved."""
    return table_bytes(model, design, flows, rules) + besides_bytes(model, design, rules)


def besides_bytes(model: ModelArrays, design: Design, rules: HierarchyRules) -> jax.Array:
    """(tiers,) of all servers, of the dense part, and what is reserved."""
    machine = design.machine
    dense = jnp.asarray(model.dense_parameters) * jnp.asarray(rules.dense_bytes_per_parameter)
    reserved = reserved_bytes(machine.tiers.capacity_bytes, rules)
    return jnp.asarray(design.nodes) * reserved.at[0].add(dense * jnp.asarray(machine.gpus))


def reserved_bytes(capacity_bytes, rules: HierarchyRules) -> jax.Array:
    """(tiers,) of one server, that no rows may take: of the first two tiers."""
    capacity = jnp.asarray(capacity_bytes)
    upper = jnp.asarray(np.arange(capacity.shape[0]) < 2)
    return jnp.where(upper, capacity * jnp.asarray(rules.reserved_share), 0.0)


def _hit_ratios(flows: Flows) -> jax.Array:
    """(tiers,) weighted by rows: found there, of those that come as far."""
    found = jnp.sum(flows.found, axis=0)
    arriving = jnp.sum(found) - (jnp.cumsum(found) - found)
    some = arriving > 1e-9 * jnp.sum(found)
    return jnp.where(some, found / jnp.where(some, arriving, 1.0), jnp.nan)


def _node_w(machine: Machine, device_share: jax.Array, busy_share: jax.Array) -> jax.Array:
    """() of one server: each part idle, and active for as long as it is busy."""
    idle, active = jnp.asarray(machine.gpu_idle_w), jnp.asarray(machine.gpu_active_w)
    gpus_w = jnp.asarray(machine.gpus) * (idle + device_share * (active - idle))
    idle, active = jnp.asarray(machine.tiers.idle_w), jnp.asarray(machine.tiers.active_w)
    tiers_w = idle + busy_share * (active - idle)
    return jnp.asarray(machine.host_w) + gpus_w + jnp.sum(tiers_w[1:])
