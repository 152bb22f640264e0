"""What `jaxperf compare` prints."""

from rich.console import Console, Group
from rich.table import Table
from rich.text import Text

from jaxperf.comparison import Baseline, Change, ChangeKind, Comparison, Coverage
from jaxperf.report._json import breakdown_to_json, notes_to_json, rounded_percent, rounded_us
from jaxperf.report._terminal import notes_table, plain_table, print_sections, with_rest
from jaxperf.report._words import BREAKDOWN_PARTS, class_word, percent_text, share_text, time_text

_MOST_ROWS = 16  # of changes; the JSON has them all
_NAME = 34  # characters of a name in a table
_COUNT_DECIMALS = 3


def comparison_to_json(comparison: Comparison) -> dict:
    """A comparison as plain values, ready for `json.dumps`.

    Args:
        comparison: what changed from one run to another.

    Returns:
        Both runs, the difference and what explains it. Times in us, per step and rank. What cannot
        be known is `None`.

    Example:
        >>> import tempfile
        >>> from jaxperf.comparison import compare
        >>> from jaxperf.simulator import SimulatedJob, simulate, write_traces
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     paths = write_traces(simulate(SimulatedJob(layers=1)), folder)
        ...     result = compare(paths, paths)
        >>> comparison_to_json(result)["difference_us"]
        0.0
    """
    runs = {"a": comparison.a, "b": comparison.b}
    return {
        **{name: _baseline(run) for name, run in runs.items()},
        "difference_us": rounded_us(comparison.difference_us),
        "difference_percent": rounded_percent(comparison.difference_percent),
        "within_variation": comparison.within_variation,
        "identical": comparison.identical,
        "explained_us": rounded_us(comparison.explained_us),
        "structure_us": rounded_us(comparison.structure_us),
        "predicted_b_step_us": rounded_us(comparison.predicted_b_step_us),
        "prediction_error_percent": rounded_percent(comparison.prediction_error_percent),
        "by_class": [
            {
                "class": row.task_class.name.lower(),
                "a_us": rounded_us(row.a_us),
                "b_us": rounded_us(row.b_us),
                "difference_us": rounded_us(row.difference_us),
                "critical_us": rounded_us(row.critical_us),
            }
            for row in comparison.by_class
        ],
        "changes": [_change(change) for change in comparison.changes],
        "breakdown": {name: breakdown_to_json(run.breakdown) for name, run in runs.items()},
        "dependencies": {
            name: {
                kind: round(number, _COUNT_DECIMALS) for kind, number in run.dependencies.items()
            }
            for name, run in runs.items()
        },
        "coverage": {
            "device": _coverage(comparison.device),
            "host": _coverage(comparison.host),
        },
        "notes": notes_to_json(comparison.notes),
    }


def _baseline(run: Baseline) -> dict:
    return {
        "unit": run.unit,
        "devices": list(run.devices),
        "steps": list(run.names),
        "step_us": rounded_us(run.step_us),
        "replayed_us": rounded_us(run.replayed_us),
        "spread_us": rounded_us(run.spread_us),
    }


def _change(change: Change) -> dict:
    return {
        "kind": change.kind.value,
        "name": change.name,
        "b_name": change.b_name,
        "class": change.task_class.name.lower(),
        "on_device": change.on_device,
        "a_lane": change.a_lane,
        "b_lane": change.b_lane,
        "count_a": round(change.count_a, _COUNT_DECIMALS),
        "count_b": round(change.count_b, _COUNT_DECIMALS),
        "a_us": rounded_us(change.a_us),
        "b_us": rounded_us(change.b_us),
        "difference_us": rounded_us(change.difference_us),
        "critical_us": rounded_us(change.critical_us),
        "within_variation": change.within_variation,
    }


def _coverage(coverage: Coverage) -> dict:
    return {
        "same": round(coverage.same, _COUNT_DECIMALS),
        "replaced": round(coverage.replaced, _COUNT_DECIMALS),
        "only_a": round(coverage.only_a, _COUNT_DECIMALS),
        "only_b": round(coverage.only_b, _COUNT_DECIMALS),
        "matched_percent": rounded_percent(coverage.matched_percent),
    }


def print_comparison(comparison: Comparison, console: Console) -> None:
    """Print a comparison as tables that fit 80 columns.

    Args:
        comparison: what changed from one run to another.
        console: where to print; colours are left out where it is no terminal.

    Example:
        >>> import tempfile
        >>> from jaxperf.comparison import compare
        >>> from jaxperf.simulator import SimulatedJob, simulate, write_traces
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     paths = write_traces(simulate(SimulatedJob(layers=1)), folder)
        ...     result = compare(paths, paths)
        >>> print_comparison(result, Console(width=80))  # doctest: +ELLIPSIS
        The runs are the same: no task differs.
        ...
    """
    differs = not comparison.identical
    sections = [
        ("Step", _steps(comparison)),
        ("By class", _by_class(comparison) if differs else None),
        ("Changes", _changes(comparison.changes)),
        ("Where a step's time goes", _breakdowns(comparison) if differs else None),
        ("Notes", notes_table(comparison.notes)),
    ]
    print_sections(_answer(comparison), sections, console)


def _answer(comparison: Comparison) -> Text:
    if comparison.identical:
        return Text("The runs are the same: no task differs.")
    text = Text(f"From A to B a {comparison.a.unit} changes by ")
    text.append(_signed(comparison.difference_us), style="bold")
    text.append(f" ({percent_text(comparison.difference_percent, signed=True)})")
    words = {
        True: ": within the run's own variation, no gain and no loss is shown.",
        False: ", more than repetitions of one run differ by.",
        None: "; too few repetitions to tell whether that is chance.",
    }
    text.append(words[comparison.within_variation])
    text.append(
        f"\nDurations explain {_signed(comparison.explained_us)} of it, "
        f"order and dependencies {_signed(comparison.structure_us)}.\n"
    )
    device = comparison.device
    text.append(
        f"On devices {device.same:.0f} tasks are the same, {device.replaced:.0f} replaced, "
        f"{device.only_a:.0f} removed, {device.only_b:.0f} added.",
        style="dim",
    )
    return text


def _signed(time_us: float) -> str:
    return ("+" if time_us > 0 else "") + time_text(time_us)


def _steps(comparison: Comparison) -> Table:
    table = plain_table("", "measured", "replayed", "spread", "number", "device")
    for word, run in (("A", comparison.a), ("B", comparison.b)):
        numbers = [time_text(x) for x in (run.step_us, run.replayed_us, run.spread_us)]
        table.add_row(word, *numbers, str(len(run.names)), Text(", ".join(run.devices)))
    error = percent_text(comparison.prediction_error_percent, signed=True)
    predicted = time_text(comparison.predicted_b_step_us)
    table.add_row("B from A", "", predicted, "", "", Text(f"{error} off"), style="dim")
    return table


def _by_class(comparison: Comparison) -> Table:
    table = plain_table("class", "A", "B", "difference", "on the step")
    for row in comparison.by_class:
        table.add_row(
            class_word(row.task_class.name.lower()),
            time_text(row.a_us),
            time_text(row.b_us),
            _signed(row.difference_us),
            _signed(row.critical_us),
        )
    return table


def _changes(changes: tuple[Change, ...]) -> Group | None:
    if not changes:
        return None
    table = plain_table("what", "name", "tasks", "difference", "on the step")
    table.columns[1].justify = "left"
    for change in changes[:_MOST_ROWS]:
        count = change.count_b if change.kind is ChangeKind.ADDED else change.count_a
        table.add_row(
            change.kind.value,
            Text(_named(change)),
            f"{count:.3g}",
            _signed(change.difference_us),
            _signed(change.critical_us),
            style="dim" if change.within_variation else None,
        )
    return with_rest(table, len(changes) - _MOST_ROWS)


def _named(change: Change) -> str:
    other = change.b_name if change.b_name is not None else change.b_lane
    name = _short(change.name)
    return name if other is None else f"{name}\n> {_short(other)}"


def _short(name: str) -> str:
    return name if len(name) <= _NAME else name[: _NAME - 1] + "…"


def _breakdowns(comparison: Comparison) -> Table | None:
    a, b = comparison.a.breakdown, comparison.b.breakdown
    if a is None or b is None:
        return None
    table = plain_table("", "A", "", "B", "", "difference")
    for field, words in (*BREAKDOWN_PARTS, ("total_us", "total")):
        before, after = getattr(a, field), getattr(b, field)
        cells = []
        for value, total in ((before, a.total_us), (after, b.total_us)):
            share = 100.0 * value / total if total > 0 else float("nan")
            cells += [time_text(value), share_text(share)]
        style = "bold" if field == "total_us" else None
        table.add_row(words, *cells, _signed(after - before), style=style)
    return table
