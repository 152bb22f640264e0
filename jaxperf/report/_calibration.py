"""What `jaxperf calibrate` prints and writes."""

import os
from typing import TYPE_CHECKING

import msgspec
import tomli_w
from rich.console import Console, RenderableType
from rich.text import Text

from jaxperf._files import new_file
from jaxperf.calibrate import Calibration
from jaxperf.report._json import notes_to_json, rounded_percent, times_to_json
from jaxperf.report._terminal import notes_table, plain_table, print_sections, with_rest
from jaxperf.report._words import class_word, percent_text, time_text

if TYPE_CHECKING:
    from jaxperf.cost import Fit

_MOST_ROWS = 24  # of numbers; the JSON has them all
_DIGITS = 6


def calibration_to_json(result: Calibration) -> dict:
    """A calibration as plain values, ready for `json.dumps`.

    Args:
        result: of `calibrate`.

    Returns:
        Loss, errors by class, steps, fitted numbers with their intervals, and notes. What cannot be
        known is `None`.
    """
    return {
        "hardware": list(result.fit.hardware),
        "loss": {"before": _number(result.loss_before), "after": _number(result.loss_after)},
        "spread": _number(result.spread),
        "classes": [
            {
                "class": each.task_class,
                "works": each.works,
                "before_percent": rounded_percent(each.before_percent),
                "after_percent": rounded_percent(each.after_percent),
                "held_out": each.held_out,
                "held_out_before_percent": rounded_percent(each.held_out_before_percent),
                "held_out_after_percent": rounded_percent(each.held_out_after_percent),
            }
            for each in result.classes
        ],
        "steps": [
            {"name": after.name, "before": times_to_json(before), "after": times_to_json(after)}
            for before, after in zip(result.steps_before, result.steps, strict=True)
        ],
        "numbers": [
            {
                "leaf": each.leaf,
                "before": _number(each.before),
                "value": _number(each.value),
                "interval": [_number(bound) for bound in each.interval],
                "told": each.told,
            }
            for each in result.numbers
        ],
        "notes": notes_to_json(result.notes),
    }


def _number(value: float) -> float:
    return float(f"{value:.{_DIGITS}g}")


def write_fit(fit: "Fit", path: str | os.PathLike[str], *, overwrite: bool = False) -> None:
    """Write a fit to a TOML file, which `load_fit` and every verb with `--fit` read.

    Args:
        fit: of a `Calibration`.
        path: the file.
        overwrite: replace a file that is there.

    Raises:
        OutputError: the file exists, or cannot be written.
    """
    with new_file(path, overwrite) as file:
        file.write(b"# Fitted numbers of jaxperf's cost model, written by jaxperf calibrate.\n")
        file.write(tomli_w.dumps(msgspec.to_builtins(fit)).encode())


def print_calibration(result: Calibration, console: Console) -> None:
    """Print a calibration as tables that fit 80 columns.

    Args:
        result: of `calibrate`.
        console: where to print.
    """
    told = [each for each in result.numbers if each.told]
    answer = Text("Fitted ")
    answer.append(f"{len(told)} of {len(result.numbers)} numbers", style="bold")
    answer.append(f" that the traces tell; what is left unexplained varies by {result.spread:.1%}")
    sections: list[tuple[str, RenderableType | None]] = [
        ("Error by class", _classes(result)),
        ("Steps, replayed with modelled durations", _steps(result)),
        ("Numbers that the traces tell", _numbers(result)),
        ("Numbers that they cannot tell, kept near their defaults", _untold(result)),
        ("Notes", notes_table(result.notes)),
    ]
    print_sections(answer, sections, console)


def _classes(result: Calibration) -> RenderableType:
    table = plain_table("class", "works", "before", "after", "held out", "before", "after")
    for each in result.classes:
        table.add_row(
            class_word(each.task_class),
            f"{each.works:,}",
            percent_text(each.before_percent),
            percent_text(each.after_percent),
            f"{each.held_out:,}",
            percent_text(each.held_out_before_percent),
            percent_text(each.held_out_after_percent),
        )
    return table


def _steps(result: Calibration) -> RenderableType | None:
    if not result.steps:
        return None
    table = plain_table("run", "measured", "before", "", "after", "")
    for before, after in zip(result.steps_before, result.steps, strict=True):
        table.add_row(
            Text(after.name),
            time_text(after.measured_us),
            time_text(before.replayed_us),
            percent_text(before.error_percent, signed=True),
            time_text(after.replayed_us),
            percent_text(after.error_percent, signed=True),
        )
    return table


def _numbers(result: Calibration) -> RenderableType | None:
    told = [each for each in result.numbers if each.told]
    if not told:
        return None
    table = plain_table("number", "before", "after", "from", "to")
    for each in told[:_MOST_ROWS]:
        values = (each.before, each.value, *each.interval)
        table.add_row(Text(each.leaf), *(f"{value:.4g}" for value in values))
    return with_rest(table, len(told) - _MOST_ROWS)


def _untold(result: Calibration) -> Text | None:
    """Names of what is not told; an array all of which is untold goes by its own name."""
    told: dict[str, list[bool]] = {}
    for each in result.numbers:
        told.setdefault(each.leaf.partition("[")[0], []).append(each.told)
    names = dict.fromkeys(
        each.leaf if any(told[path := each.leaf.partition("[")[0]]) else path
        for each in result.numbers
        if not each.told
    )
    return Text(", ".join(names)) if names else None
