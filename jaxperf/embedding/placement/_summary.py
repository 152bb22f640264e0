"""A placement in the words of a plan."""

import numpy as np

from jaxperf.embedding.placement._options import TableOptions
from jaxperf.embedding.placement._packing import Packing
from jaxperf.embedding.placement._plan_types import EmbeddingPlan, Shard, TablePlan, TierUse
from jaxperf.embedding.placement._problem import StepTime
from jaxperf.embedding.placement._solve import Solution
from jaxperf.embedding.placement._study import (
    DEVICE,
    UPDATES,
    Study,
    constants_of,
    design_of,
    outcome_of,
)
from jaxperf.trace import Note

_GAP = 0.01  # above which the plan says so
_WHOLE = 1 - 1e-9


def summarize(
    study: Study, nodes: int, solution: Solution, binding: str | None, target: float | None
) -> EmbeddingPlan:
    """A solution as a plan.

    Args:
        study: the model and the server.
        nodes: servers.
        solution: of them.
        binding: what keeps one less from the rate; what sets the step where not given.
        target: rate asked for.

    Returns:
        The plan.
    """
    placement = solution.placement
    step_us = placement.step_us
    outcome = outcome_of(study, design_of(study, nodes, solution.options, solution.shares))
    samples_per_s = study.model.batch_size / step_us * 1e6
    step_binding = binding_word(study, nodes, placement.packing.step)
    return EmbeddingPlan(
        model=study.model.name,
        server=study.server.name,
        nodes=nodes,
        binding=binding or step_binding,
        step_binding=step_binding,
        step_us=step_us,
        samples_per_s=samples_per_s,
        target_samples_per_s=target,
        cost_usd=float(outcome.cost_usd),
        power_w=_power_w(study, nodes, float(outcome.power_w), float(outcome.step_us) / step_us),
        bound_us=placement.bound_us,
        bound_gap=placement.gap,
        greedy_us=placement.greedy_us,
        tables=_tables(study, solution.options, placement.packing),
        tiers=_tiers(study, nodes, solution),
        notes=_notes(study, solution, samples_per_s, target),
    )


def binding_word(study: Study, nodes: int, step: StepTime) -> str:
    """What sets the time of a step, such as `network`, or `bandwidth of` a memory.

    Args:
        study: the model and the server.
        nodes: servers.
        step: the time.

    Returns:
        The word; of the accelerators' own time, that of its greatest part.
    """
    if step.stage == "wear":
        return f"wear of {step.tier}"
    tier = study.tiers[0] if step.tier == UPDATES else step.tier
    if step.stage == DEVICE:
        constants = constants_of(study, nodes)
        memory_us = step.step_us - constants.dense_us - constants.communication_us
        parts = {
            "compute": constants.dense_us,
            "network": constants.communication_us,
            f"{step.resource} of {tier}": memory_us,
        }
        return max(parts, key=lambda part: parts[part])
    return f"{step.resource} of {tier}"


def _power_w(study: Study, nodes: int, power_w: float, slower: float) -> float:
    """Power at the plan's own step: what is active takes its energy once a step."""
    machine = study.machine
    gpus_w = float(np.asarray(machine.gpus)) * float(np.asarray(machine.gpu_idle_w))
    memories_w = float(np.asarray(machine.tiers.idle_w)[1:].sum())
    idle_w = nodes * (float(np.asarray(machine.host_w)) + gpus_w + memories_w)
    return idle_w + (power_w - idle_w) * slower


def _tables(study: Study, options: TableOptions, packing: Packing) -> tuple[TablePlan, ...]:
    names = study.tiers
    plans = []
    for option in np.unique(packing.option).tolist():
        cached = options.cached[option]
        policy = "pinned" if options.pinned[option] else "lru"
        # What an inclusive hierarchy has in a small cache is in the larger one as well.
        copied = cached.max() if study.rules.inclusive else min(cached.sum(), 1.0)
        plans.append(
            TablePlan(
                name=study.model.tables[options.table[option]].name,
                tier=names[options.home[option]],
                cached_fraction=float(copied),
                policy=policy if copied else None,
                shards=_shards(packing, packing.option == option),
                cached_by_tier={
                    name: float(part) for name, part in zip(names, cached, strict=True) if part
                },
            )
        )
    return tuple(plans)


def _shards(packing: Packing, which: np.ndarray) -> tuple[Shard, ...]:
    shards = []
    for device, rows, columns in zip(
        packing.device[which].tolist(),
        packing.rows[which].tolist(),
        packing.columns[which].tolist(),
        strict=True,
    ):
        split = "columns" if columns < _WHOLE else "rows" if rows < _WHOLE else "table"
        shards.append(Shard(device, split, min(rows * columns, 1.0)))
    return tuple(shards)


def _tiers(study: Study, nodes: int, solution: Solution) -> tuple[TierUse, ...]:
    shares, loads, step_us = solution.shares, solution.loads, solution.placement.step_us
    found = shares @ loads.found
    arriving = found.sum() - (np.cumsum(found) - found)
    with np.errstate(divide="ignore", invalid="ignore"):
        hit_ratio = np.where(arriving > 1e-9 * found.sum(), found / arriving, np.nan)
    rated = np.asarray(study.machine.tiers.drive_writes_per_day)
    part_of_rated = shares @ loads.wear_us / nodes / step_us
    written = np.where(part_of_rated > 0, part_of_rated * np.where(np.isinf(rated), 0, rated), 0.0)
    size = shares @ loads.size_bytes
    room = constants_of(study, nodes).free_bytes
    read = shares @ loads.read_bytes / step_us * 1e6
    iops = shares @ loads.blocks / step_us * 1e6
    columns = zip(study.tiers, size, room, hit_ratio, read, iops, written, rated, strict=True)
    return tuple(TierUse(name, *(float(each) for each in values)) for name, *values in columns)


def _notes(
    study: Study, solution: Solution, samples_per_s: float, target: float | None
) -> tuple[Note, ...]:
    placement = solution.placement
    notes = []
    if target is not None and samples_per_s < target:
        notes.append(
            Note(
                "rate-not-reached",
                f"{samples_per_s:,.0f} samples/s are less than the {target:,.0f} asked for",
            )
        )
    if placement.packing.step.stage == "wear":
        notes.append(
            Note(
                "slowed-for-endurance",
                f"the step waits so that {placement.packing.step.tier} is written no more than"
                " it is rated for",
            )
        )
    if np.isnan(placement.gap):
        notes.append(Note("bound-not-proven", "no bound above 0 was proven for this placement"))
    if placement.gap > _GAP:
        notes.append(
            Note(
                "gap-to-bound",
                f"the placement is {100 * placement.gap:.2g} % above the bound; more time may"
                " find a faster one",
            )
        )
    size = solution.shares @ solution.loads.size_bytes
    kept = np.asarray(study.machine.tiers.space_amplification)
    for name, taken, factor in zip(study.tiers, size, kept, strict=True):
        if taken > 0 and factor > 1:
            notes.append(
                Note(
                    "space-amplification",
                    f"rows on {name} take {factor:.3g} times their bytes: it is a"
                    " log-structured store",
                )
            )
    table = solution.options.table[np.unique(placement.packing.option)]
    mixed = int((np.bincount(table) > 1).sum())
    if mixed:
        notes.append(
            Note(
                "tables-of-several-kinds",
                f"tables whose shards are on different memories or have different caches: {mixed};"
                " each kind has an entry of its own",
            )
        )
    if (placement.packing.rows < _WHOLE).any():
        notes.append(
            Note(
                "rows-dealt-evenly",
                "tables split by rows are taken to have their accesses spread evenly over shards",
            )
        )
    return tuple(notes)
