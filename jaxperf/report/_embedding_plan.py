"""What `jaxperf embedding plan` prints."""

import math
from collections import Counter

from rich.console import Console
from rich.table import Table
from rich.text import Text

from jaxperf.embedding.placement import EmbeddingPlan, TablePlan, TierUse
from jaxperf.report._json import notes_to_json
from jaxperf.report._terminal import notes_table, plain_table, print_sections
from jaxperf.report._words import UNKNOWN, share_text, time_text

_MOST_TABLES = 16  # the JSON has them all
_PREFIXES = ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"))


def plan_to_json(result: EmbeddingPlan) -> dict:
    """A plan as plain values, ready for `json.dumps`.

    Args:
        result: of `jaxperf.embedding.plan`.

    Returns:
        Costs in USD, power in W, the gap as a part of the bound. `shards` lists devices, each with
        its part of the table. What cannot be known is `None`.
    """
    return {
        "nodes": result.nodes,
        "binding": result.binding,
        "samples_per_s": _known(result.samples_per_s),
        "cost_usd": _known(result.cost_usd),
        "power_w": _known(result.power_w),
        "bound_gap": _known(result.bound_gap),
        "tables": [_table_to_json(table) for table in result.tables],
        "tiers": [
            {
                "name": tier.name,
                "bytes": _known(tier.bytes),
                "hit_ratio": _known(tier.hit_ratio),
                "read_bytes_per_s": _known(tier.read_bytes_per_s),
                "iops": _known(tier.iops),
                "drive_writes_per_day": _known(tier.drive_writes_per_day),
            }
            for tier in result.tiers
        ],
        "notes": notes_to_json(result.notes),
    }


def _table_to_json(table: TablePlan) -> dict:
    return {
        "name": table.name,
        "tier": table.tier,
        "cached_fraction": _known(table.cached_fraction),
        "policy": table.policy,
        "shards": [
            {
                "device": shard.device,
                "split": shard.split,
                "fraction": _known(shard.fraction),
            }
            for shard in table.shards
        ],
        "cached_by_tier": {name: _known(part) for name, part in table.cached_by_tier.items()},
    }


def _known(value: float) -> float | None:
    return float(f"{value:.10g}") if math.isfinite(value) else None


def print_plan(result: EmbeddingPlan, console: Console) -> None:
    """Print a plan as tables that fit 80 columns.

    Args:
        result: of `jaxperf.embedding.plan`.
        console: where to print.
    """
    sections = [
        ("Memories", _tiers(result.tiers)),
        (f"Tables, {_kinds(result)}", _tables(result)),
        ("Notes", notes_table(result.notes)),
    ]
    print_sections(_answer(result), sections, console)


def _answer(result: EmbeddingPlan) -> Text:
    text = Text()
    text.append(f"{result.nodes:,}", style="bold")
    text.append(f" x {result.server}: ")
    text.append(f"{result.samples_per_s:,.0f} samples/s", style="bold")
    if result.target_samples_per_s is not None:
        text.append(f" of {result.target_samples_per_s:,.0f} asked for")
    text.append(f"\nA step of {time_text(result.step_us)}; what binds: ")
    text.append(result.binding, style="bold")
    text.append(f"\n{result.cost_usd:,.0f} USD, {result.power_w:,.0f} W")
    text.append(
        f"\nAt most {100 * result.bound_gap:.2g} % above the bound of {time_text(result.bound_us)}"
    )
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
            share_text(100 * tier.bytes / tier.capacity_bytes),
            share_text(100 * tier.hit_ratio),
            f"{_short(tier.read_bytes_per_s)}B/s",
            _short(tier.iops),
            writes if tier.drive_writes_per_day > 0 else UNKNOWN,
        )
    return table


def _kinds(result: EmbeddingPlan) -> str:
    count = Counter(table.tier for table in result.tables)
    return ", ".join(f"{count[tier.name]:,} on {tier.name}" for tier in result.tiers)


def _tables(result: EmbeddingPlan) -> Table:
    table = plain_table("", "memory", "copied", "policy", "shards")
    for each in result.tables[:_MOST_TABLES]:
        table.add_row(
            Text(each.name),
            Text(each.tier),
            share_text(100 * each.cached_fraction) if each.policy else UNKNOWN,
            each.policy or UNKNOWN,
            f"{len(each.shards):,}",
        )
    if len(result.tables) > _MOST_TABLES:
        table.add_row(f"{len(result.tables) - _MOST_TABLES:,} more", "", "", "", "")
    return table


def _short(value: float) -> str:
    scale, prefix = next(((s, p) for s, p in _PREFIXES if value >= s), (1.0, ""))
    return f"{value / scale:.3g} {prefix}"
