"""What `jaxperf search` prints."""

import math
import shlex
import textwrap
from collections.abc import Mapping, Sequence
from itertools import combinations
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
from rich.console import Console
from rich.table import Table
from rich.text import Text

from jaxperf._files import new_file
from jaxperf.config import MEASURES, hardware_numbers
from jaxperf.errors import ConfigError
from jaxperf.report._json import notes_to_json, significant
from jaxperf.report._svg import Chart, Series, picture
from jaxperf.report._terminal import notes_table, plain_table, print_plain, print_sections
from jaxperf.report._words import UNKNOWN, share_text, time_text

if TYPE_CHECKING:
    from jaxperf.search import Certificate, Point, RobustChoice, SearchResult, TracedPoint
    from jaxperf.trace import Note

_MOST_ROWS = 16
_MOST_RULES = 6
_FIRM = "\u00a0"


def search_to_json(result: "SearchResult") -> dict:
    """What a search found as plain values, ready for `json.dumps`.

    Args:
        result: of `search`.

    Returns:
        Points with their values, measures and the command that estimates them; the certificate.
        What cannot be known is `None`.
    """
    space = result.problem.space
    return {
        "job": result.problem.job.name,
        "method": result.method,
        "objectives": list(space.objectives),
        "points": space.size,
        "complete": result.complete,
        "best": [_point_to_json(result, each) for each in result.best],
        "front": [_point_to_json(result, each) for each in result.front],
        "certificate": result.certificate and _certificate_to_json(result.certificate),
        "traced": [_traced_to_json(each) for each in result.traced],
        "robust": result.robust and _robust_to_json(result.robust),
        "notes": notes_to_json(result.notes),
    }


def _point_to_json(result: "SearchResult", each: "Point") -> dict:
    return {
        "index": each.index,
        "values": dict(each.values),
        "hardware": each.hardware.name,
        "clock_hz": each.clock_hz,
        "job": _changes(result, each),
        "measures": {name: significant(value) for name, value in each.measures.items()},
        "command": point_command(result, each),
    }


def _traced_to_json(each: "TracedPoint") -> dict:
    return {
        "index": each.point.index,
        "closed_form_us": significant(each.closed_form_us),
        "step_us": significant(each.step_us),
        "measures": {name: significant(value) for name, value in each.measures.items()},
        "origins": each.origins and dict(each.origins),
        "notes": notes_to_json(each.notes),
    }


def _certificate_to_json(found: "Certificate") -> dict:
    return {
        "points": found.points,
        "refused": dict(found.refused),
        "over": dict(found.over),
        "excluded": dict(found.excluded),
        "evaluated": found.evaluated,
    }


def _robust_to_json(robust: "RobustChoice") -> dict:
    return {
        "objective": robust.objective,
        "samples": robust.samples,
        "quantile": robust.quantile,
        "points": [
            {
                "index": each.point.index,
                "mean": significant(each.mean),
                "at_quantile": significant(each.at_quantile),
            }
            for each in robust.points
        ],
        "choice": robust.choice.point.index,
        "first_beats_second": robust.first_beats_second,
        "standard_error": robust.standard_error,
    }


def point_command(result: "SearchResult", each: "Point") -> str:
    """The command line that estimates a point by itself.

    Args:
        result: the search; its job is called as the user called it.
        each: the point.

    Returns:
        One line for a shell. A clock is not part of it: `estimate` has none.
    """
    named = result.inputs
    machine = each.values.get("hardware", named.get("hardware", each.hardware.name))
    words = ["jaxperf", "estimate", named.get("job", result.problem.job.name)]
    words += ["--hardware", str(machine)]
    for option in ("fit", "power"):
        words += [f"--{option}", named[option]] if option in named else []
    numbers = {k: v for k, v in each.values.items() if k in hardware_numbers(each.hardware)}
    for key, value in {**_changes(result, each), **numbers}.items():
        words += ["--set", f"{key}={_word(value)}"]
    return shlex.join(words)


def _changes(result: "SearchResult", each: "Point") -> dict[str, Any]:
    """Fields of the point's job that are not those of the job it came from, by key."""
    found = {}
    before, after = (msgspec.to_builtins(job) for job in (result.problem.job, each.job))
    for key, value in after.items():
        if isinstance(value, dict) and isinstance(before[key], dict):
            found |= {f"{key}.{k}": v for k, v in value.items() if v != before[key][k]}
        elif value != before[key]:
            found[key] = value
    return found


def _word(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float):
        return f"{value:.17g}"
    if isinstance(value, list | tuple):
        return ",".join(map(str, value))
    return "none" if value is None else str(value)


def print_search(result: "SearchResult", console: Console) -> None:
    """Print what a search found as tables that fit 80 columns.

    Args:
        result: of `search`.
        console: where to print.
    """
    several = len(result.problem.space.objectives) > 1
    shown = result.front if several else result.best
    sections = [
        ("The front" if several else "The best", _points(result, shown)),
        ("From the trace", _traced(result) if result.traced else None),
        ("Under uncertainty", result.robust and _robust(result, result.robust)),
        ("The proof", result.certificate and _certificate(result.certificate)),
        ("Notes", notes_table((*result.notes, *_notes_of_trace(result)))),
    ]
    print_sections(_answer(result, console.width), sections, console)
    if result.choice is not None:
        # A command is copied: no line of it is broken.
        print_plain(f"\n{point_command(result, result.choice)}", console, soft_wrap=True)


def _answer(result: "SearchResult", width: int) -> Text:
    problem, text = result.problem, Text()
    best = result.choice
    if best is None:
        return Text("Nothing found yet")
    text.append(f"{problem.job.name} on {best.job.world_size:,} {best.hardware.name}: ")
    text.append(_value_text(problem.space.objectives[0], best), style="bold")
    if result.traced:
        text.append(f" in closed form, {time_text(result.traced[0].step_us)} from the trace")
    # A line ends between two values, and not inside of one.
    values = ", ".join(f"{key}{_FIRM}={_FIRM}{_word(value)}" for key, value in best.values.items())
    lines = textwrap.wrap(values, width, break_long_words=False, break_on_hyphens=False)
    text.append("\n" + "\n".join(lines).replace(_FIRM, " "))
    text.append(f"\n{_value_text('tokens_per_s_per_gpu', best)}, ")
    text.append(_value_text("memory_bytes", best))
    if math.isfinite(best.measures["energy_j_per_token"]):
        text.append(f", {_value_text('energy_j_per_token', best)}")
    return text


_MEASURES = {
    "step_us": ("step", time_text, " a step"),
    "tokens_per_s_per_gpu": ("tokens/s", lambda value: f"{value:,.0f}", " tokens/s per GPU"),
    "memory_bytes": ("GB", lambda value: f"{value / 1e9:.1f}", " GB"),
    "energy_j_per_token": ("J/token", lambda value: f"{value:.4g}", " J a token"),
    "power_w_per_gpu": ("W", lambda value: f"{value:,.0f}", " W per GPU"),
    "usd_per_million_tokens": ("USD/M", lambda value: f"{value:.4g}", " USD per million tokens"),
}
"""Of each measure what a column of it is called, its number, and what follows in a sentence."""
assert _MEASURES.keys() == MEASURES.keys()


def _value_text(measure: str, each: "Point") -> str:
    _, number_of, words = _MEASURES[measure]
    return number_of(each.measures[measure]) + words


def _points(result: "SearchResult", points: Sequence["Point"]) -> Table:
    """The points in numbers: objectives, and the axes in which they differ."""
    objectives = result.problem.space.objectives
    shown = list(dict.fromkeys((*objectives, "memory_bytes")))
    axes = [key for key in result.problem.space.axes if _differ(points, key)]
    table = plain_table("", *(_MEASURES[name][0] for name in shown), *map(_short, axes))
    for rank, each in enumerate(points[:_MOST_ROWS], 1):
        table.add_row(
            str(rank),
            *(_number(name, each.measures[name]) for name in shown),
            *(_word(each.values[key]) for key in axes),
        )
    if len(points) > _MOST_ROWS:
        table.add_row(f"{len(points) - _MOST_ROWS:,} more")
    return table


def _traced(result: "SearchResult") -> Table:
    """The best in the order of the recorded run, by their places in the other table."""
    place = {each.index: rank for rank, each in enumerate(result.best, 1)}
    columns = "step", "closed form, corrected", "tokens/s", "recorded", "scaled", "modelled"
    table = plain_table("", *columns)
    for each in result.traced:
        origins = each.origins or {}
        table.add_row(
            str(place[each.point.index]),
            time_text(each.step_us),
            time_text(each.closed_form_us),
            _number("tokens_per_s_per_gpu", each.measures.get("tokens_per_s_per_gpu", math.nan)),
            *(
                share_text(100 * origins[name]) if name in origins else UNKNOWN
                for name in ("recorded", "scaled", "modelled")
            ),
        )
    return table


def _notes_of_trace(result: "SearchResult") -> list["Note"]:
    """What is said of several points, once."""
    return list(dict.fromkeys(note for each in result.traced for note in each.notes))


def _differ(points: Sequence["Point"], key: str) -> bool:
    return len({each.values[key] for each in points}) > 1


def _short(key: str) -> str:
    """A name for a narrow column: `tensor_parallel` is told by its first word."""
    last = key.rpartition(".")[2]
    for ending in ("_parallel", "_size", "_stages"):
        last = last.removesuffix(ending)
    return last.replace("_", " ")


def _number(name: str, value: float) -> str:
    return _MEASURES[name][1](value) if math.isfinite(value) else UNKNOWN


def _robust(result: "SearchResult", robust: "RobustChoice") -> Table:
    table = plain_table("", "mean", f"p{100 * robust.quantile:g}", "")
    # Where a recorded run has another one first, that is the answer.
    first = result.traced[0].point.index if result.traced else robust.choice.point.index
    told = robust.choice.point.index == first
    for rank, each in enumerate(robust.points, 1):
        chosen = "chosen" if told and each is robust.choice else ""
        values = (_number(robust.objective, x) for x in (each.mean, each.at_quantile))
        table.add_row(str(rank), *values, chosen)
    if robust.first_beats_second is not None:
        text = f"{share_text(100 * robust.first_beats_second)} of the draws"
        table.add_row("", "1 before 2 in", text, "")
    return table


def _certificate(found: "Certificate") -> Table:
    table = plain_table("", "points", "")

    def add(count: int, what: str) -> None:
        table.add_row(f"{count:,}", share_text(100 * count / found.points), Text(what))

    add(found.evaluated, "measured")
    for name, count in found.over.items():
        add(count, f"of these over {name}")
    for name, count in found.excluded.items():
        add(count, f"cannot be better, by the bound of {name}")
    for text, count in _heads(found.refused).items():
        add(count, f"cannot be: {text}")
    return table


def _heads(refused: Mapping[str, int]) -> dict[str, int]:
    """Rules without the numbers of the one case, the most frequent first."""
    found: dict[str, int] = {}
    for text, count in refused.items():
        head = text.partition(";")[0]
        found[head] = found.get(head, 0) + count
    ordered = sorted(found.items(), key=lambda item: -item[1])
    shown, rest = ordered[:_MOST_RULES], ordered[_MOST_RULES:]
    return dict(shown) | ({"other rules": sum(n for _, n in rest)} if rest else {})


def write_front(result: "SearchResult", path: Path, *, overwrite: bool = False) -> None:
    """Write a drawing of the front of two or three objectives, as SVG without links to anywhere.

    Args:
        result: of `search`.
        path: the file.
        overwrite: replace a file that is there.

    Raises:
        ConfigError: there is one objective alone.
        OutputError: the file is there already, or cannot be written.
    """
    objectives = result.problem.space.objectives
    if len(objectives) < 2:
        raise ConfigError(
            "one objective has no front",
            where="objectives",
            got=", ".join(objectives),
            expected="two or three",
        )
    charts = []
    for x, y in combinations(objectives, 2):
        ordered = sorted(result.front, key=lambda each: each.measures[x])
        columns = [[each.measures[name] for each in ordered] for name in (x, y)]
        series = Series(f"{len(ordered)} points that no other beats", *columns)
        lines = len(objectives) == 2
        charts.append(Chart(result.problem.job.name, x, y, (series,), lines=lines, log_y=True))
    with new_file(path, overwrite=overwrite) as file:
        file.write(picture(f"Front of {result.problem.job.name}", charts).encode())
