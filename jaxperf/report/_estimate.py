"""What `jaxperf estimate` prints."""

from dataclasses import fields
from typing import TYPE_CHECKING

from rich.console import Console, Group
from rich.table import Table
from rich.text import Text

from jaxperf.energy import EnergyPrediction
from jaxperf.estimate import Estimate
from jaxperf.report._energy_prediction import energy_table, energy_to_json
from jaxperf.report._energy_words import watts_text
from jaxperf.report._json import breakdown_to_json, notes_to_json, rounded_us, significant
from jaxperf.report._terminal import notes_table, plain_table, print_sections, with_rest
from jaxperf.report._words import BREAKDOWN_PARTS, class_word, share_text, time_text

if TYPE_CHECKING:
    from jaxperf.workload import MemoryRemedy, StageMemory

MEMORY_PARTS = (
    ("weights_bytes", "weights"),
    ("gradients_bytes", "gradients"),
    ("optimizer_bytes", "optimizer"),
    ("activations_bytes", "activations"),
    ("others_bytes", "others"),
    ("total_bytes", "total"),
)
"""Parts of the memory of a stage as tables have them; see `memory_parts`."""

_MOST_ROWS = 16  # of stages; the JSON has them all
_MOST_REMEDIES = 5


def estimate_to_json(result: Estimate) -> dict:
    """An estimate as plain values, ready for `json.dumps`.

    Args:
        result: of `estimate`.

    Returns:
        Times in us, sizes in bytes. What cannot be known is `None`.

    Example:
        >>> from jaxperf.estimate import estimate
        >>> estimate_to_json(estimate("llama3-8b", change={"micro_batches": 1}))["gpus"]
        8
    """
    fit = result.memory_fit
    return {
        "job": result.job.name,
        "hardware": result.hardware.name,
        "gpus": result.gpus,
        "step_us": rounded_us(result.step_us),
        "tokens_per_s_per_gpu": significant(result.tokens_per_s_per_gpu),
        "samples_per_s": significant(result.samples_per_s),
        "model_flops_per_s_per_gpu": significant(result.model_flops_per_s_per_gpu),
        "model_flops_utilization": significant(result.model_flops_utilization),
        "breakdown": breakdown_to_json(result.breakdown),
        "bubble": {
            "bubble_us": rounded_us(result.bubble_us),
            "fraction": significant(result.bubble_fraction),
        },
        "critical_path_us": {
            name: rounded_us(time)
            for name, time in sorted(result.critical_path_us.items(), key=lambda x: (-x[1], x[0]))
        },
        "memory": {
            "fits": fit.fits,
            "memory_bytes": fit.memory_bytes,
            "stages": [
                _stage(stage, rank, over)
                for stage, rank, over in zip(
                    result.memory.stages, result.graph.ranks, fit.over_bytes, strict=True
                )
            ],
            "remedies": [
                {
                    "changes": dict(remedy.changes),
                    "total_bytes": remedy.total_bytes,
                    "fits": remedy.fits,
                }
                for remedy in fit.remedies
            ],
        },
        "energy": result.energy and energy_to_json(result.energy),
        "out_of_range": list(result.out_of_range),
        "notes": notes_to_json(result.notes),
    }


def _stage(stage: "StageMemory", rank: int, over_bytes: float) -> dict:
    parts = {f.name: getattr(stage, f.name) for f in fields(stage) if "bytes" in f.name}
    return {
        "stage": stage.stage,
        "rank": rank,
        "layers": stage.layers,
        **parts,
        "total_bytes": stage.total_bytes,
        "over_bytes": over_bytes,
    }


def print_estimate(result: Estimate, console: Console) -> None:
    """Print an estimate as tables that fit 80 columns.

    Args:
        result: of `estimate`.
        console: where to print.

    Example:
        >>> from jaxperf.estimate import estimate
        >>> print_estimate(estimate("llama3-8b"), Console(width=80))  # doctest: +ELLIPSIS
        Llama 3 8B on 8 NVIDIA H100 80GB HBM3: ... a step
        ...
    """
    sections = [
        ("Where a rank's step goes", _breakdown(result)),
        ("Critical path", _critical_path(result)),
        ("Energy", result.energy and energy_table(result.energy)),
        ("Memory of a rank, GB", _memory(result)),
        ("What would fit", _remedies(result)),
        ("Without a basis", _out_of_range(result)),
        ("Notes", notes_table(result.notes)),
    ]
    print_sections(_answer(result), sections, console)


def estimate_rates(result: Estimate) -> list[tuple[str, str]]:
    """What the step comes to: words and values.

    Args:
        result: of `estimate`.

    Returns:
        One row each.
    """
    return [
        ("tokens/s per GPU", f"{result.tokens_per_s_per_gpu:,.0f}"),
        ("model flops utilization", share_text(100.0 * result.model_flops_utilization)),
        ("TFLOP/s per GPU", f"{result.model_flops_per_s_per_gpu / 1e12:,.1f}"),
        ("bubble, of the time of passes", share_text(100.0 * result.bubble_fraction)),
        *([] if result.energy is None else _power_rates(result.energy)),
    ]


def _power_rates(energy: EnergyPrediction) -> list[tuple[str, str]]:
    return [
        ("average power, a GPU", watts_text(energy.accelerator_w)),
        ("average power, a node at the wall", watts_text(energy.node_ac_w)),
    ]


def fit_sentence(result: Estimate) -> str:
    """Whether the job fits, in one sentence.

    Args:
        result: of `estimate`.

    Returns:
        A sentence.
    """
    fit, peak = result.memory_fit, result.memory.peak
    needs = f"{gigabytes_text(peak.total_bytes)} of {gigabytes_text(fit.memory_bytes)} GB"
    where = f"stage {peak.stage}" if len(result.memory.stages) > 1 else "each rank"
    if fit.fits:
        return f"It fits: {where} needs most, {needs}."
    return f"It does not fit: {where} needs {needs}."


def remedy_text(remedy: "MemoryRemedy") -> str:
    """A remedy in a line.

    Args:
        remedy: of `memory_fit`.

    Returns:
        Such as `recompute = full: 61.0 GB`.
    """
    changes = ", ".join(f"{key} = {value}" for key, value in remedy.changes)
    short = "" if remedy.fits else ", the nearest that was found"
    return f"{changes}: {gigabytes_text(remedy.total_bytes)} GB{short}"


def gigabytes_text(size_bytes: float) -> str:
    """A size in GB (1e9 bytes).

    Example:
        >>> gigabytes_text(61.04e9)
        '61.0'
    """
    return f"{size_bytes / 1e9:,.1f}"


def memory_parts(stage: "StageMemory") -> list[tuple[str, float]]:
    """The parts of the memory of a stage, small ones together.

    Args:
        stage: of `job_memory`.

    Returns:
        Words and bytes, the total last.
    """
    named = [field for field, _ in MEMORY_PARTS if field not in ("others_bytes", "total_bytes")]
    sizes = {field: getattr(stage, field) for field in named}
    sizes["others_bytes"] = stage.total_bytes - sum(sizes.values())
    sizes["total_bytes"] = stage.total_bytes
    return [(words, sizes[field]) for field, words in MEMORY_PARTS]


def _answer(result: Estimate) -> Text:
    text = Text(f"{result.job.name} on {result.gpus:,} {result.hardware.name}: ")
    text.append(time_text(result.step_us), style="bold")
    text.append(" a step")
    for words, value in estimate_rates(result):
        text.append(f"\n{words}: ")
        text.append(value, style="bold")
    text.append(f"\n{fit_sentence(result)}", style=None if result.memory_fit.fits else "bold red")
    return text


def _breakdown(result: Estimate) -> Table:
    table = plain_table("", "time", "share")
    for field, words in (*BREAKDOWN_PARTS, ("total_us", "total")):
        time_us = getattr(result.breakdown, field)
        share = share_text(100.0 * time_us / result.breakdown.total_us)
        style = "bold" if field == "total_us" else None
        table.add_row(words, time_text(time_us), share, style=style)
    return table


def _critical_path(result: Estimate) -> Table:
    table = plain_table("class", "time", "share")
    total_us = sum(result.critical_path_us.values())
    for name, time_us in sorted(result.critical_path_us.items(), key=lambda x: -x[1]):
        if time_us > 0:
            table.add_row(
                class_word(name), time_text(time_us), share_text(100.0 * time_us / total_us)
            )
    return table


def _memory(result: Estimate) -> Group:
    table = plain_table("stage", *(words for _, words in MEMORY_PARTS))
    for stage in result.memory.stages[:_MOST_ROWS]:
        sizes = (gigabytes_text(size) for _, size in memory_parts(stage))
        table.add_row(str(stage.stage), *sizes)
    return with_rest(table, len(result.memory.stages) - _MOST_ROWS)


def _remedies(result: Estimate) -> Text | None:
    lines = [remedy_text(remedy) for remedy in result.memory_fit.remedies[:_MOST_REMEDIES]]
    return Text("\n".join(lines)) if lines else None


def _out_of_range(result: Estimate) -> Text | None:
    return Text("\n".join(result.out_of_range)) if result.out_of_range else None
