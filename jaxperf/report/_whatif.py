"""What `jaxperf whatif` prints."""

from rich.console import Console, RenderableType
from rich.table import Table
from rich.text import Text

from jaxperf.report._json import breakdown_to_json, notes_to_json, rounded_us
from jaxperf.report._terminal import notes_table, plain_table, print_sections, with_rest
from jaxperf.report._words import (
    BREAKDOWN_PARTS,
    class_word,
    percent_text,
    share_text,
    time_text,
)
from jaxperf.whatif import INTERVAL, ScenarioAnswer, WhatIf

_MOST_ROWS = 24  # of scenarios; the JSON has them all
_RATIO_DECIMALS = 6
_SHARE_DECIMALS = 4


def whatif_to_json(result: WhatIf) -> dict:
    """The answers as plain values, ready for `json.dumps`.

    Args:
        result: of `whatif`.

    Returns:
        The baseline, the scenarios in their order, the contention that was seen, and notes. Times
        in us. What cannot be known is `None`.

    Example:
        >>> import tempfile
        >>> from jaxperf.simulator import SimulatedJob, simulate, write_traces
        >>> from jaxperf.whatif import whatif
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     paths = write_traces(simulate(SimulatedJob(layers=1)), folder)
        ...     result = whatif(paths, scale={"gemm": 1.0})
        >>> whatif_to_json(result)["scenarios"][0]["ratio"]
        1.0
    """
    baseline = result.baseline
    return {
        "baseline": {
            "step_us": rounded_us(baseline.step_us),
            "breakdown": breakdown_to_json(baseline.breakdown),
            "interval_us": _interval(baseline),
        },
        "scenarios": [
            {
                "name": answer.name,
                "changes": {**answer.scale, **answer.set},
                "step_us": rounded_us(answer.step_us),
                "ratio": round(answer.ratio, _RATIO_DECIMALS) if answer.ratio >= 0 else None,
                "breakdown": breakdown_to_json(answer.breakdown),
                "interval_us": _interval(answer),
                "out_of_range": list(answer.out_of_range),
                "origins": _origins(answer),
            }
            for answer in result.scenarios
        ],
        "contention": [
            {
                "class": each.task_class.name.lower(),
                "slowdown": round(each.slowdown, 4),
                "standard_error": round(each.standard_error, 4),
                "kernels": each.kernels,
            }
            for each in result.contention
        ],
        "notes": notes_to_json(result.notes),
    }


def _interval(answer: ScenarioAnswer) -> list[float | None] | None:
    return [rounded_us(bound) for bound in answer.interval_us] if answer.interval_us else None


def _origins(answer: ScenarioAnswer) -> dict[str, float] | None:
    if answer.origins is None:
        return None
    return {name: round(share, _SHARE_DECIMALS) for name, share in answer.origins.items()}


def print_whatif(result: WhatIf, console: Console) -> None:
    """Print the answers as tables that fit 80 columns.

    Args:
        result: of `whatif`.
        console: where to print.

    Example:
        >>> import tempfile
        >>> from jaxperf.simulator import SimulatedJob, simulate, write_traces
        >>> from jaxperf.whatif import whatif
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     paths = write_traces(simulate(SimulatedJob(layers=1)), folder)
        ...     result = whatif(paths, scale={"gemm": 0.5})
        >>> print_whatif(result, Console(width=80))  # doctest: +ELLIPSIS
        Step: ... replayed
        gemm × 0.5: ...
        ...
    """
    sections: list[tuple[str, RenderableType | None]] = [
        ("Scenarios", _scenarios(result)),
        ("Where a step's time goes", _breakdowns(result)),
        ("Critical path of changed jobs", _of_jobs(result)),
        ("Kernels that communication slows down", _contention(result)),
        ("Outside of what the model was fitted to", _out_of_range(result)),
        ("Notes", notes_table(result.notes)),
    ]
    print_sections(_answer(result), sections, console)


def changes_text(answer: ScenarioAnswer) -> str:
    """What a scenario changes, in a line.

    Args:
        answer: to one scenario.

    Returns:
        Such as `gemm × 0.5, memory_bytes_per_s = 4.8e+12`.
    """
    parts = [f"{selector} × {factor:g}" for selector, factor in answer.scale.items()]
    for key, value in answer.set.items():
        parts.append(f"{key} = {value if isinstance(value, str) else f'{value:g}'}")
    return ", ".join(parts) or "nothing"


def _answer(result: WhatIf) -> Text:
    text = Text("Step: ")
    text.append(time_text(result.baseline.step_us), style="bold")
    text.append(" replayed")
    text.append(_within(result.baseline), style="dim")
    if len(result.scenarios) == 1:
        answer = result.scenarios[0]
        text.append(f"\n{changes_text(answer)}: ")
        text.append(time_text(answer.step_us), style="bold")
        text.append(f", {percent_text(100.0 * (answer.ratio - 1.0), signed=True)}")
        text.append(_within(answer), style="dim")
    return text


def _within(answer: ScenarioAnswer) -> str:
    if answer.interval_us is None:
        return ""
    low, high = (time_text(bound) for bound in answer.interval_us)
    return f" ({INTERVAL:.0%} between {low} and {high})"


def _scenarios(result: WhatIf) -> RenderableType | None:
    if len(result.scenarios) < 2:
        return None
    drawn = result.baseline.interval_us is not None
    columns = ["scenario", "step", "change", *(["from", "to"] if drawn else [])]
    table = plain_table(*columns)
    ranked = sorted(result.scenarios, key=lambda answer: answer.step_us)
    for answer in ranked[:_MOST_ROWS]:
        bounds = answer.interval_us or ()
        table.add_row(
            Text(answer.name),
            time_text(answer.step_us),
            percent_text(100.0 * (answer.ratio - 1.0), signed=True),
            *(time_text(bound) for bound in bounds),
        )
    return with_rest(table, len(ranked) - _MOST_ROWS)


def _breakdowns(result: WhatIf) -> Table | None:
    answers = [result.baseline, *result.scenarios]
    if len(answers) != 2 or any(answer.breakdown is None for answer in answers):
        return None
    table = plain_table("", "baseline", "", "changed", "")
    for field, words in (*BREAKDOWN_PARTS, ("total_us", "total")):
        cells = []
        for answer in answers:
            total_us = answer.breakdown.total_us if answer.breakdown else float("nan")
            time_us = getattr(answer.breakdown, field)
            cells += [time_text(time_us), share_text(100.0 * time_us / total_us)]
        table.add_row(words, *cells, style="bold" if field == "total_us" else None)
    return table


def _of_jobs(result: WhatIf) -> RenderableType | None:
    """How much of each changed job's critical path was recorded."""
    table = plain_table("scenario", "recorded", "scaled", "modelled")
    answers = [answer for answer in result.scenarios if answer.origins is not None]
    for answer in answers[:_MOST_ROWS]:
        shares = [share_text(100.0 * share) for share in (answer.origins or {}).values()]
        table.add_row(Text(answer.name), *shares)
    return with_rest(table, len(answers) - _MOST_ROWS) if answers else None


def _contention(result: WhatIf) -> Table | None:
    if not result.contention:
        return None
    table = plain_table("class", "slower by", "±", "kernels")
    for each in result.contention:
        table.add_row(
            class_word(each.task_class.name.lower()),
            share_text(100.0 * each.slowdown),
            share_text(100.0 * each.standard_error),
            f"{each.kernels:,}",
        )
    return table


def _out_of_range(result: WhatIf) -> Text | None:
    if any(note.code == "model-not-fitted" for note in result.notes):
        return None
    lines = dict.fromkeys(line for answer in result.scenarios for line in answer.out_of_range)
    return Text("\n".join(list(lines)[:_MOST_ROWS])) if lines else None
