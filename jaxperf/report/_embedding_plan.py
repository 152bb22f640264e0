"""What `jaxperf embedding plan` prints."""

import math
from collections import Counter
from collections.abc import Sequence

from rich.console import Console
from rich.table import Table
from rich.text import Text

from jaxperf.embedding.placement import CatalogueEntry, EmbeddingPlan, Saving, TablePlan, TierUse
from jaxperf.report._json import notes_to_json, significant
from jaxperf.report._terminal import notes_table, plain_table, print_sections
from jaxperf.report._words import UNKNOWN, share_text, time_text

_MOST_TABLES = 16  # the JSON has them all
_PREFIXES = ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"))


Compared = tuple[Saving, Sequence[CatalogueEntry]]
"""What the plan saves, and other servers for the same rate."""


def plan_to_json(result: EmbeddingPlan, compared: Compared | None = None) -> dict:
    """A plan as plain values, ready for `json.dumps`.

    Args:
        result: of `jaxperf.embedding.plan`.
        compared: of `saving` and `catalogue`, where they were asked for.

    Returns:
        Costs in USD, power in W, the gap as a part of the bound. `shards` lists devices, each with
        its part of the table. What cannot be known is `None`.
    """
    return {
        "nodes": result.nodes,
        "binding": result.binding,
        "step_binding": result.step_binding,
        "samples_per_s": significant(result.samples_per_s),
        "cost_usd": significant(result.cost_usd),
        "power_w": significant(result.power_w),
        "bound_gap": significant(result.bound_gap),
        "tables": [_table_to_json(table) for table in result.tables],
        "tiers": [
            {
                "name": tier.name,
                "bytes": significant(tier.bytes),
                "hit_ratio": significant(tier.hit_ratio),
                "read_bytes_per_s": significant(tier.read_bytes_per_s),
                "iops": significant(tier.iops),
                "drive_writes_per_day": significant(tier.drive_writes_per_day),
            }
            for tier in result.tiers
        ],
        **({} if compared is None else _compared_to_json(result, *compared)),
        "notes": notes_to_json(result.notes),
    }


def _compared_to_json(
    result: EmbeddingPlan, saved: Saving, servers: Sequence[CatalogueEntry]
) -> dict:
    baseline = saved.baseline
    return {
        "saving": {
            "against": None if baseline is None else baseline.server,
            "baseline_nodes": None if baseline is None else baseline.nodes,
            "samples_per_s": significant(saved.rate_samples_per_s),
            "nodes": significant(saved.nodes),
            "cost": significant(saved.cost),
            "power": significant(saved.power),
            "reason": saved.reason,
        },
        "frontier": {
            "samples_per_s": significant(_rate(result)),
            "servers": [
                {
                    "server": entry.server,
                    "nodes": entry.nodes,
                    "binding": entry.binding,
                    "cost_usd": significant(entry.cost_usd),
                    "power_w": significant(entry.power_w),
                    "energy_j_per_sample": significant(entry.energy_j_per_sample),
                    "on_frontier": entry.on_frontier,
                }
                for entry in servers
            ],
        },
    }


def _rate(result: EmbeddingPlan) -> float:
    return result.target_samples_per_s or result.samples_per_s


def _table_to_json(table: TablePlan) -> dict:
    return {
        "name": table.name,
        "tier": table.tier,
        "cached_fraction": significant(table.cached_fraction),
        "policy": table.policy,
        "shards": [
            {
                "device": shard.device,
                "split": shard.split,
                "fraction": significant(shard.fraction),
            }
            for shard in table.shards
        ],
        "cached_by_tier": {name: significant(part) for name, part in table.cached_by_tier.items()},
    }


def print_plan(result: EmbeddingPlan, console: Console, compared: Compared | None = None) -> None:
    """Print a plan as tables that fit 80 columns.

    Args:
        result: of `jaxperf.embedding.plan`.
        console: where to print.
        compared: see `plan_to_json`.
    """
    answer = _answer(result)
    sections: list[tuple[str, Table | None]] = [
        ("Memories", _tiers(result.tiers)),
        (_tables_title(result), _tables(result)),
    ]
    if compared is not None:
        saved, servers = compared
        answer.append("\n" + _saving(saved))
        title = (
            f"Servers for {_rate(result):,.0f} samples/s, placed quickly; * no other beats.\n"
            "Power is at that rate; what binds is of one server less, or of the only one"
        )
        sections.append((title, _servers(servers)))
    sections.append(("Notes", notes_table(result.notes)))
    print_sections(answer, sections, console)


def _saving(saved: Saving) -> str:
    if saved.baseline is None:
        return f"No saving is known against HBM and DRAM alone: {saved.reason}"
    return (
        f"HBM and DRAM alone take {saved.nodes:.3g} times the servers, {saved.cost:.3g} times the"
        f" money\nand {saved.power:.3g} times the power: {saved.baseline.nodes:,} x"
        f" {saved.baseline.server}"
    )


def _servers(servers: Sequence[CatalogueEntry]) -> Table:
    table = plain_table("", "", "nodes", "million USD", "kW", "mJ/sample", "binds")
    for entry in servers:
        table.add_row(
            "*" if entry.on_frontier else "",
            Text(entry.server),
            "none" if entry.nodes is None else f"{entry.nodes:,}",
            *(
                f"{value:.3g}" if math.isfinite(value) else UNKNOWN
                for value in (
                    entry.cost_usd / 1e6,
                    entry.power_w / 1e3,
                    entry.energy_j_per_sample * 1e3,
                )
            ),
            Text(entry.binding),
        )
    return table


def _answer(result: EmbeddingPlan) -> Text:
    text = Text()
    text.append(f"{result.nodes:,}", style="bold")
    text.append(f" x {result.server}: ")
    text.append(f"{result.samples_per_s:,.0f} samples/s", style="bold")
    if result.target_samples_per_s is not None:
        text.append(f" of {result.target_samples_per_s:,.0f} asked for")
    text.append(f"\nA step of {time_text(result.step_us)}; what binds: ")
    text.append(result.step_binding, style="bold")
    if result.binding != result.step_binding:
        text.append("\nOne server less fails for: ")
        text.append(result.binding, style="bold")
    text.append(f"\n{result.cost_usd:,.0f} USD, {result.power_w:,.0f} W at this rate")
    if math.isfinite(result.bound_gap):
        gap = f"{100 * max(result.bound_gap, 0.0):.2g} %" if result.bound_gap > 1e-6 else "0 %"
        text.append(f"\nAt most {gap} above the bound of {time_text(result.bound_us)}")
    else:
        text.append("\nNo bound was proven")
    if math.isfinite(result.greedy_us):
        text.append(f"; greedy: {time_text(result.greedy_us)}")
    return text


def _tiers(tiers: tuple[TierUse, ...]) -> Table:
    table = plain_table("", "bytes", "full", "hits", "read", "IOPS", "writes/day")
    for tier in tiers:
        writes = f"{tier.drive_writes_per_day:.2g}"
        if math.isfinite(tier.rated_drive_writes_per_day):
            writes += f" of {tier.rated_drive_writes_per_day:.3g}"
        table.add_row(
            Text(tier.name),
            f"{_short(tier.bytes)}B",
            _part_text(tier.bytes / tier.capacity_bytes),
            _part_text(tier.hit_ratio),
            f"{_short(tier.read_bytes_per_s)}B/s",
            _short(tier.iops),
            writes if tier.drive_writes_per_day > 0 else UNKNOWN,
        )
    return table


def _tables_title(result: EmbeddingPlan) -> str:
    """How many there are, and how many of them have rows on each memory."""
    names = len({table.name for table in result.tables})
    count = Counter(tier for _, tier in {(table.name, table.tier) for table in result.tables})
    places = [f"{count[tier.name]:,} on {tier.name}" for tier in result.tiers if count[tier.name]]
    return f"Tables: {names:,}, with rows of {', of '.join(places)}"


def _tables(result: EmbeddingPlan) -> Table:
    table = plain_table("", "memory", "copied", "policy", "shards")
    for each in result.tables[:_MOST_TABLES]:
        table.add_row(
            Text(each.name),
            Text(each.tier),
            _part_text(each.cached_fraction) if each.policy else UNKNOWN,
            each.policy or UNKNOWN,
            f"{len(each.shards):,}",
        )
    if len(result.tables) > _MOST_TABLES:
        more = len(result.tables) - _MOST_TABLES
        table.add_row(f"{more:,} more: --json", "", "", "", "")
    return table


def _part_text(part: float) -> str:
    """As `share_text`, but that a small part is not 0."""
    return f"{100 * part:.2g} %" if 0 < part < 0.001 else share_text(100 * part)


def _short(value: float) -> str:
    scale, prefix = next(((s, p) for s, p in _PREFIXES if value >= s), (1.0, ""))
    return f"{value / scale:.3g} {prefix}"
