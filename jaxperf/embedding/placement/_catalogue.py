"""A plan against other servers: what its memories save, and which servers are worth their money."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

import msgspec
import numpy as np

from jaxperf.config import RecommendationModel, Server, built_in_servers, load_memory, load_server
from jaxperf.embedding.placement._plan import SERVER, plan
from jaxperf.embedding.placement._plan_types import EmbeddingPlan
from jaxperf.errors import ConfigError

if TYPE_CHECKING:
    from jaxperf.embedding.hierarchy import LocalityCurves

_FAST = ("device", "host")  # kinds of memory that a server without slower ones has


@dataclass(frozen=True)
class Saving:
    """A plan against the same servers with HBM and DRAM alone.

    Attributes:
        baseline: their plan; `None` where no number of them does.
        reason: why there is none; `None` where there is one.
        rate_samples_per_s: at which power is compared: that asked for, or else the lower one.
        nodes, cost, power: the baseline's by the plan's, above 1 where the plan takes less; NaN
            where there is no baseline. MTrainS says 4 to 8 of nodes.
    """

    baseline: EmbeddingPlan | None
    reason: str | None
    rate_samples_per_s: float
    nodes: float
    cost: float
    power: float


@dataclass(frozen=True)
class CatalogueEntry:
    """The fewest servers of one kind.

    Attributes:
        server: its name in the catalogue.
        nodes: servers; `None` where no number does.
        binding: what keeps one less from the rate.
        cost_usd, power_w: of all of them; power at the rate asked for.
        energy_j_per_sample: the same of a sample.
        on_frontier: whether no other is as cheap with as little power.
    """

    server: str
    nodes: int | None
    binding: str
    cost_usd: float
    power_w: float
    energy_j_per_sample: float
    on_frontier: bool


def saving(
    found: EmbeddingPlan,
    model: RecommendationModel,
    server: Server | str | None = None,
    *,
    time_limit_s: float = 60.0,
    curves: "LocalityCurves | None" = None,
) -> Saving:
    """How much a plan saves against HBM and DRAM alone, in servers, money and power.

    The baseline is the same server without its other memories, and its fewest that reach the rate
    of the plan's target, or with no target hold the tables.

    Args:
        found: of `plan`.
        model: that it is of.
        server: that it is on, as for `plan`.
        time_limit_s: of the search for the baseline.
        curves: reuse of each table, as for `plan`.

    Returns:
        Ratios.

    Example:
        >>> from jaxperf.config import load_tables
        >>> demo = load_tables("demo")
        >>> saving(plan(demo, server="zionex"), demo, "zionex").nodes  # has no other memories
        1.0
    """
    described = server if isinstance(server, Server) else load_server(server or SERVER)
    tiers = [tier for tier in described.tiers if load_memory(tier.memory).kind in _FAST]
    baseline = found
    target = found.target_samples_per_s
    alone = msgspec.structs.replace(
        described, name=f"{described.name}, HBM and DRAM alone", tiers=tiers
    )
    if len(tiers) < len(described.tiers):
        unasked = msgspec.structs.replace(model, target_samples_per_s=target)
        try:
            baseline = plan(unasked, server=alone, time_limit_s=time_limit_s, curves=curves)
        except ConfigError as error:
            nothing = float("nan")
            return Saving(None, str(error), target or nothing, nothing, nothing, nothing)
    rate = target or min(found.samples_per_s, baseline.samples_per_s)
    power_w = _power_at_w(found, described, rate)
    return Saving(
        baseline,
        None,
        rate,
        baseline.nodes / found.nodes,
        baseline.cost_usd / found.cost_usd,
        _power_at_w(baseline, alone, rate) / power_w,
    )


def _power_at_w(found: EmbeddingPlan, server: Server, rate: float) -> float:
    """At a rate, if everything is idle until the next step that it asks for."""
    from jaxperf.embedding.hierarchy import machine_of

    machine = machine_of(server)
    gpus_w = np.multiply(machine.gpus, machine.gpu_idle_w)
    tiers_w = np.sum(np.asarray(machine.tiers.idle_w)[1:])
    idle_w = found.nodes * float(np.asarray(machine.host_w) + gpus_w + tiers_w)
    return idle_w + (found.power_w - idle_w) * min(rate / found.samples_per_s, 1.0)


def catalogue(
    model: RecommendationModel,
    target_samples_per_s: float,
    *,
    server: str | None = None,
    curves: "LocalityCurves | None" = None,
) -> tuple[CatalogueEntry, ...]:
    """The fewest servers of each kind, by the quick placement of `least_nodes`.

    Args:
        model: the tables.
        target_samples_per_s: the rate.
        server: one more, a file.
        curves: reuse of each table, as for `plan`.

    Returns:
        Entries, the fewest servers first.
    """
    from jaxperf.embedding.hierarchy import least_nodes, model_arrays, unbeaten

    servers = dict(built_in_servers())
    if server is not None and server not in servers:
        servers[server] = load_server(server)
    asked = msgspec.structs.replace(model, target_samples_per_s=target_samples_per_s)
    curves = model_arrays(model).curves if curves is None else curves
    plans = {name: least_nodes(asked, each, curves=curves) for name, each in servers.items()}
    best = {id(each) for each in unbeaten(p for p in plans.values() if p.nodes is not None)}
    entries = [
        CatalogueEntry(
            server=name,
            nodes=each.nodes,
            binding=each.binding
            if each.binding_tier is None
            else f"{each.binding} of {each.binding_tier}",
            cost_usd=float(each.outcome.cost_usd),
            power_w=each.target_power_w,
            energy_j_per_sample=each.target_power_w / target_samples_per_s,
            on_frontier=id(each) in best,
        )
        for name, each in plans.items()
    ]
    return tuple(sorted(entries, key=lambda entry: (entry.nodes or np.inf, entry.cost_usd)))
