"""The least number of servers that reaches a rate, what keeps fewer from it, and the catalogue."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxperf.config import RecommendationModel, Server, load_memory
from jaxperf.embedding.hierarchy._curves import LocalityCurves
from jaxperf.embedding.hierarchy._designs import evaluate_designs
from jaxperf.embedding.hierarchy._flows import flows_of, lookup_bytes, update_bytes
from jaxperf.embedding.hierarchy._model import (
    Design,
    HierarchyRules,
    ModelArrays,
    model_arrays,
)
from jaxperf.embedding.hierarchy._step import (
    Outcome,
    besides_bytes,
    communication_us,
    dense_us,
)
from jaxperf.embedding.hierarchy._tiers import Machine, machine_of
from jaxperf.embedding.hierarchy._waterfall import waterfall_designs
from jaxperf.errors import ConfigError
from jaxperf.replay import double_precision

Placement = Callable[[ModelArrays, Machine, Any, Any, HierarchyRules], Design]
"""Designs, with a leading axis, for a model, a server, nodes, a batch size and rules."""

_ROUNDING = 1e-9


@dataclass(frozen=True, eq=False)
class NodePlan:
    """The least number of servers of one kind.

    Attributes:
        server: its name.
        tiers: names of its memories.
        nodes: servers; `None` where no number up to the most that was tried is enough.
        binding: what keeps one server less from it, or of one server what bounds its rate: one of
            `capacity`, `wear`, `compute`, `network`, `bandwidth`, `iops`, `latency`, `link`.
        binding_tier: the memory where it binds; `None` for `capacity`, `compute` and `network`.
        design: what is where; of `None` nodes, the best of the most that was tried.
        outcome: what comes of it, at the highest rate that it reaches.
        target_samples_per_s: the rate asked for.
        target_power_w: of all servers at that rate, idle for the rest of the time; at the highest
            rate where that is lower.
    """

    server: str
    tiers: tuple[str, ...]
    nodes: int | None
    binding: str
    binding_tier: str | None
    design: Design
    outcome: Outcome
    target_samples_per_s: float
    target_power_w: float


@dataclass(frozen=True)
class Savings:
    """A plan against a baseline; each is the baseline's by the plan's, NaN where one has no nodes.

    Attributes:
        nodes: of servers; MTrainS states 4 to 8.
        cost: of money.
        power: of power at the rate asked for, which both reach.
    """

    nodes: float
    cost: float
    power: float


def least_nodes(
    model: RecommendationModel,
    server: Server,
    *,
    curves: LocalityCurves | None = None,
    placement: Placement = waterfall_designs,
    rules: HierarchyRules | None = None,
    most_nodes: int = 4096,
) -> NodePlan:
    """The least number of servers that holds a model and trains it at its rate.

    More servers may be slower, as the network may take longer among them. Room, and the time of the
    dense part and of the lookups, are as many times those of one server; numbers that they exclude,
    or the network of that number, are left out, and each further one is tried from the least on.

    Args:
        model: with its target rate.
        server: of `load_server`.
        curves: reuse of each table; by default from the model's own description.
        placement: designs to choose from for a number of nodes; the fastest that can be is taken.
        rules: how the hierarchy is run.
        most_nodes: not to be exceeded.

    Returns:
        The plan.

    Raises:
        ConfigError: the model has no target rate.

    Example:
        >>> from jaxperf.config import load_server, load_tables
        >>> plan = least_nodes(load_tables("demo"), load_server("zionex"))
        >>> plan.nodes, bool(plan.outcome.samples_per_s > 500e3)
        (1, True)
    """
    target = model.target_samples_per_s
    if target is None:
        raise ConfigError("no rate to reach", where=f"{model.name}: target_samples_per_s")
    rules = HierarchyRules() if rules is None else rules
    arrays, machine = model_arrays(model, curves), machine_of(server)
    chosen, before, nodes, number = None, None, None, 0
    for number in _not_excluded(arrays, machine, model.batch_size, rules, target, most_nodes):
        chosen = _tried(arrays, machine, number, model.batch_size, rules, target, placement)
        if chosen.excess <= 1 + _ROUNDING:
            nodes = number
            break
    if chosen is None or (nodes is None and number < most_nodes):
        chosen = _tried(arrays, machine, most_nodes, model.batch_size, rules, target, placement)
    if nodes is not None and nodes > 1:
        before = _tried(arrays, machine, nodes - 1, model.batch_size, rules, target, placement)
    binding, tier = _binding(before or chosen)
    names = tuple(load_memory(each.memory).name for each in server.tiers)
    return NodePlan(
        server=server.name,
        tiers=names,
        nodes=nodes,
        binding=binding,
        binding_tier=None if tier is None else names[tier],
        design=chosen.design,
        outcome=chosen.outcome,
        target_samples_per_s=target,
        target_power_w=_power_w(chosen, target),
    )


def frontier(
    model: RecommendationModel, servers: Iterable[Server], **options: Any
) -> tuple[NodePlan, ...]:
    """The plans of a catalogue of servers that no other beats in cost and power at the rate.

    Args:
        model: with its target rate.
        servers: the catalogue.
        options: of `least_nodes`.

    Returns:
        Plans, the cheapest first; empty where no server reaches the rate.

    Raises:
        ConfigError: the model has no target rate.
    """
    plans = [least_nodes(model, server, **options) for server in servers]
    return unbeaten([plan for plan in plans if plan.nodes is not None])


def unbeaten(plans: Iterable[NodePlan]) -> tuple[NodePlan, ...]:
    """Plans that no other beats in both cost and power, the cheapest first."""
    kept: list[NodePlan] = []
    for plan in sorted(plans, key=_cost_and_power):
        if not kept or _cost_and_power(plan)[1] < _cost_and_power(kept[-1])[1]:
            kept.append(plan)
    return tuple(kept)


def savings(plan: NodePlan, baseline: NodePlan) -> Savings:
    """How many times fewer servers, less money and less power a plan takes than a baseline.

    Args:
        plan: with storage-class memory or drives, say.
        baseline: with HBM and DRAM alone.

    Returns:
        Ratios, above 1 where the plan takes less.
    """
    if plan.nodes is None or baseline.nodes is None:
        return Savings(float("nan"), float("nan"), float("nan"))
    cost, power = (
        old / new for old, new in zip(_cost_and_power(baseline), _cost_and_power(plan), strict=True)
    )
    return Savings(baseline.nodes / plan.nodes, cost, power)


@dataclass(frozen=True, eq=False)
class _Choice:
    """The best of some designs: used by available bytes, and the rate asked for by its own."""

    design: Design
    outcome: Outcome
    capacity: float
    rate: float

    @property
    def excess(self) -> float:
        return max(self.capacity, self.rate)


def _tried(arrays, machine, nodes: int, batch_size, rules, target, placement) -> _Choice:
    with double_precision():
        designs = placement(arrays, machine, nodes, batch_size, rules)
    return _best(designs, evaluate_designs(arrays, designs, rules), target)


def _not_excluded(
    arrays: ModelArrays, machine: Machine, batch_size, rules, target: float, most: int
) -> Iterable[int]:
    """Numbers of servers that hold the rows, and whose fixed times are within the step."""
    step_us = batch_size / target * 1e6
    numbers = np.arange(1, most + 1)
    with double_precision():
        free_bytes, device_us, network_us = _fixed(
            arrays, machine, float(batch_size), rules, numbers.astype(float)
        )
    row_bytes = np.asarray(arrays.weight_bytes) + np.asarray(arrays.state_bytes)
    needed = np.sum(np.asarray(arrays.rows) * row_bytes)
    holds = needed <= np.asarray(free_bytes) * (1 + _ROUNDING)
    fast = np.asarray(device_us) + np.asarray(network_us) <= step_us * (1 + _ROUNDING)
    return numbers[holds & fast].tolist()


@jax.jit
def _fixed(arrays: ModelArrays, machine: Machine, batch_size, rules: HierarchyRules, numbers):
    """(numbers,) bytes for rows, and the least times of accelerators and network."""
    tables, tiers = jnp.shape(arrays.rows)[0], jnp.shape(machine.tiers.capacity_bytes)[0]
    home = jnp.zeros((tables, tiers)).at[:, 0].set(1.0)
    rate = jnp.asarray(machine.tiers.read_bytes_per_s)[0]

    def of(nodes):
        nothing, none = jnp.zeros((tables, tiers)), jnp.zeros(tables)
        design = Design(machine, nodes, batch_size, home, nothing, none, none)
        flows = flows_of(arrays, design, rules)
        free = nodes * jnp.asarray(machine.tiers.capacity_bytes)
        free = jnp.sum(free - besides_bytes(arrays, design, rules))
        moved = lookup_bytes(arrays, flows, design, rules)
        moved = moved + update_bytes(arrays, flows, design, rules)
        device_us = dense_us(arrays, design, rules) + moved / (rate * nodes) * 1e6
        return free, device_us, communication_us(arrays, design, rules)

    return jax.lax.map(of, numbers)


def _best(designs: Design, outcomes: Outcome, target: float) -> _Choice:
    """The fastest design within all limits, or else the one that exceeds its worst limit least."""
    designs = jax.tree.map(np.asarray, designs)
    available = outcomes.used_bytes + outcomes.free_bytes
    capacity = np.max(outcomes.used_bytes / available, axis=1)
    rate = target / outcomes.samples_per_s
    excess = np.maximum(capacity, rate)
    can_be = excess <= 1 + _ROUNDING
    best = int(np.argmin(np.where(can_be, rate, 1 + excess)))
    design, outcome = jax.tree.map(lambda leaf: leaf[best], (designs, outcomes))
    return _Choice(design, outcome, float(capacity[best]), float(rate[best]))


def _binding(choice: _Choice) -> tuple[str, int | None]:
    """What exceeds its limit most, or of a design within them all what bounds the rate."""
    if choice.excess > 1 + _ROUNDING and choice.capacity > choice.rate:
        return "capacity", None
    return _slowest(choice.outcome)


def _slowest(outcome: Outcome) -> tuple[str, int | None]:
    """What takes the most of the step, with its tier."""
    if outcome.endurance_us >= outcome.step_us:
        return "wear", int(np.argmax(outcome.rated_writes))
    if outcome.exposed_us > 0:
        tier = 1 + int(np.argmax(outcome.busy_us[1:]))
        read, write, *others = outcome.limits_us[tier]
        names = ("bandwidth", "iops", "latency", "link")
        times = dict(zip(names, (read + write, *others), strict=True))
        return max(times, key=lambda name: times[name]), tier
    times = {
        "compute": outcome.dense_us,
        "network": outcome.communication_us,
        "bandwidth": outcome.lookup_us + outcome.update_us + outcome.fill_us,
    }
    worst = max(times, key=lambda name: times[name])
    return worst, 0 if worst == "bandwidth" else None


def _power_w(choice: _Choice, target: float) -> float:
    """At a rate, if everything is idle until the next step that it asks for."""
    machine, full_w = choice.design.machine, float(choice.outcome.power_w)
    gpus_w = np.multiply(machine.gpus, machine.gpu_idle_w)
    tiers_w = np.sum(np.asarray(machine.tiers.idle_w)[1:])
    idle_w = float(np.multiply(choice.design.nodes, np.add(machine.host_w, gpus_w + tiers_w)))
    return idle_w + (full_w - idle_w) * min(target / float(choice.outcome.samples_per_s), 1.0)


def _cost_and_power(plan: NodePlan) -> tuple[float, float]:
    return float(plan.outcome.cost_usd), plan.target_power_w
