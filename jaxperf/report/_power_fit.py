"""What `jaxperf energy calibrate` prints and writes."""

import math
import os

import msgspec
import tomli_w
from rich.console import Console, RenderableType
from rich.text import Text

from jaxperf._files import new_file
from jaxperf.energy import FittedPower, PowerFit
from jaxperf.report._json import notes_to_json, rounded_percent, significant
from jaxperf.report._terminal import notes_table, plain_table, print_sections
from jaxperf.report._words import percent_text

_DIGITS = 6
_UNTOLD = {
    "sum": "only in sum with others",
    "prior": "kept: the log says next to nothing",
}


def power_fit_to_json(fit: PowerFit) -> dict:
    """A fit of the power model as plain values, ready for `json.dumps`.

    Args:
        fit: of `calibrate`.

    Returns:
        Numbers with intervals and what tells them, sums, errors, clock, meter and notes. What
        cannot be known, and an infinite condition number, is `None`.
    """
    errors = fit.errors
    return {
        "device": fit.description.name,
        "per": fit.per,
        "readings": fit.readings,
        "parameters": [
            {
                "key": each.key,
                "prior": significant(each.prior, _DIGITS),
                "value": significant(each.value, _DIGITS),
                "interval": [significant(bound, _DIGITS) for bound in each.interval],
                "is_identified": each.is_identified,
                "told": each.told,
            }
            for each in fit.parameters
        ],
        "sums": [
            {
                "keys": list(each.keys),
                "each_w": [significant(watts, _DIGITS) for watts in each.each_w],
                "power_w": significant(each.power_w, _DIGITS),
                "interval_w": [significant(bound, _DIGITS) for bound in each.interval_w],
            }
            for each in fit.sums
        ],
        "held": list(fit.held),
        "errors": {
            "readings": errors.readings,
            "before_percent": rounded_percent(errors.before_percent),
            "after_percent": rounded_percent(errors.after_percent),
            "before_energy_percent": rounded_percent(errors.before_energy_percent),
            "after_energy_percent": rounded_percent(errors.after_energy_percent),
        },
        "spread_percent": rounded_percent(fit.spread_percent),
        "condition": significant(fit.condition, _DIGITS),
        "skew_s": _seconds(fit.skew_s),
        "skew_interval_s": [_seconds(bound) for bound in fit.skew_interval_s],
        "window_s": _seconds(fit.window_s),
        "window_interval_s": [_seconds(bound) for bound in fit.window_interval_s],
        "notes": notes_to_json(fit.notes),
    }


def write_power(fit: PowerFit, path: str | os.PathLike[str], *, overwrite: bool = False) -> None:
    """Write the fitted description to a TOML file, which `load_power` reads.

    Args:
        fit: of `calibrate`.
        path: the file.
        overwrite: replace a file that is there.

    Raises:
        OutputError: the file exists, or cannot be written.
    """
    lines = [
        f"# Fitted to {fit.readings} readings per {fit.per} by jaxperf energy calibrate.",
        f"# Mean error on {fit.errors.readings} readings held out:"
        f" {fit.errors.after_percent:.2f} %, before the fit {fit.errors.before_percent:.2f} %.",
        *(_line(each) for each in fit.parameters if each.told != "no-work"),
        "# All others are kept: nothing in the traces needs them, or no log at one clock tells.",
    ]
    with new_file(path, overwrite) as file:
        file.write(("\n".join(lines) + "\n\n").encode())
        file.write(tomli_w.dumps(msgspec.to_builtins(fit.description)).encode())


def print_power_fit(fit: PowerFit, console: Console) -> None:
    """Print a fit of the power model as tables that fit 80 columns.

    Args:
        fit: of `calibrate`.
        console: where to print.
    """
    needed = [each for each in fit.parameters if each.told != "no-work"]
    unused = [each.key for each in fit.parameters if each.told == "no-work"]
    known = [each for each in needed if each.is_identified]
    loosely = [each for each in needed if each.told == "loosely"]
    answer = Text("The log tells ")
    answer.append(f"{len(known)} of {len(needed)} numbers", style="bold")
    if fit.sums:
        answer.append(f", and {len(fit.sums)} sum{'s' * (len(fit.sums) > 1)} of others")
    answer.append("\nMean error on readings held out: ")
    answer.append(percent_text(fit.errors.after_percent), style="bold")
    answer.append(f", before the fit {percent_text(fit.errors.before_percent)}")
    low_s, high_s = fit.skew_interval_s
    answer.append(
        f"\nClock of the log less that of the traces: {fit.skew_s:+.3f} s ({low_s:+.3f} to"
        f" {high_s:+.3f})\nWindow of the meter: {fit.window_s:.3f} s"
    )
    sections: list[tuple[str, RenderableType | None]] = [
        ("Numbers that the log tells", _numbers(known)),
        ("Only in sum", _sums(fit)),
        ("Numbers that it tells loosely", _numbers(loosely)),
        ("Numbers that it cannot tell, kept near what was believed", _untold(needed)),
        ("Kept, as no log at one clock tells them", Text(", ".join(fit.held))),
        ("Kept, as nothing in the traces needs them", Text(", ".join(unused)) if unused else None),
        ("Notes", notes_table(fit.notes)),
    ]
    print_sections(answer, sections, console)


def _numbers(told: list[FittedPower]) -> RenderableType | None:
    if not told:
        return None
    table = plain_table("number", "before", "after", "from", "to")
    for each in told:
        values = (each.prior, each.value, *each.interval)
        table.add_row(Text(each.key), *(f"{value:.4g}" for value in values))
    return table


def _sums(fit: PowerFit) -> RenderableType | None:
    if not fit.sums:
        return None
    table = plain_table("numbers", "mean power", "from", "to")
    for each in fit.sums:
        watts = (each.power_w, *each.interval_w)
        table.add_row(Text(", ".join(each.keys)), *(f"{value:,.0f} W" for value in watts))
    return table


def _untold(needed: list[FittedPower]) -> RenderableType | None:
    untold = [each for each in needed if each.told in _UNTOLD]
    if not untold:
        return None
    table = plain_table("number", "before", "after", "")
    for each in untold:
        values = f"{each.prior:.4g}", f"{each.value:.4g}"
        table.add_row(Text(each.key), *values, _UNTOLD[each.told])
    return table


def _line(each: FittedPower) -> str:
    if each.told in _UNTOLD:
        return f"# {each.key}: {_UNTOLD[each.told]}"
    low, high = each.interval
    loosely = "" if each.is_identified else "told loosely, "
    return f"# {each.key}: {loosely}{low:.4g} to {high:.4g} with 90 % probability"


def _seconds(value: float) -> float | None:
    return round(value, 4) + 0.0 if math.isfinite(value) else None
