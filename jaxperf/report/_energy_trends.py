"""What `jaxperf energy trends` prints."""

from dataclasses import asdict
from itertools import groupby
from pathlib import Path

from rich.console import Console, Group
from rich.text import Text

from jaxperf.energy import Trends
from jaxperf.energy.published import Series, trend_rows, trends_svg
from jaxperf.report._energy_words import number_text
from jaxperf.report._files import new_file
from jaxperf.report._json import notes_to_json
from jaxperf.report._terminal import notes_table, plain_table, print_sections


def trends_to_json(result: Trends) -> dict:
    """Trends as plain values, ready for `json.dumps`.

    Args:
        result: of `jaxperf.energy.trends`.

    Returns:
        `table`, `series` with their `points`, `power_ranges` and `notes`; what is not known is
        `None`.
    """
    return {
        "table": result.source,
        "series": [_series_to_json(series) for series in result.series],
        "power_ranges": [asdict(found) for found in result.power_ranges],
        "notes": notes_to_json(result.notes),
    }


def _series_to_json(series: Series) -> dict:
    return {
        "scale": series.scale,
        "benchmark": str(series.benchmark),
        "scenario": series.scenario or None,
        "boundary": series.boundary or None,
        "unit": series.unit,
        "rules_since": series.since or None,
        "points": [asdict(point) for point in series.points],
    }


def print_trends(result: Trends, console: Console) -> None:
    """Print trends as tables that fit 80 columns: one for each scale.

    Args:
        result: of `jaxperf.energy.trends`.
        console: where to print.
    """
    sections = [
        *(
            (f"{scale or 'all'}: the best efficiency, first round and last", _series(list(rows)))
            for scale, rows in groupby(trend_rows(result), key=lambda row: row[0])
        ),
        ("Average power, W", _ranges(result)),
        ("Notes", notes_table(result.notes)),
    ]
    series = len(result.series)
    print_sections(
        Text(f"{result.source}: {series} series of comparable results"), sections, console
    )


def _series(rows: list[tuple]) -> Group:
    table = plain_table("benchmark", "scenario", "unit", "first", "best", "last", "times better")
    for _, scenario, label, unit, first, best, last, improvement in rows:
        table.add_row(label, scenario, unit, first, number_text(best), last, f"{improvement:.2f}")
    return Group(table)


def _ranges(result: Trends) -> Group:
    table = plain_table("scale", "results", "least", "most")
    for found in result.power_ranges:
        table.add_row(
            found.scale, str(found.results), number_text(found.least_w), number_text(found.most_w)
        )
    return Group(table)


def write_trends(result: Trends, path: Path, *, overwrite: bool = False) -> None:
    """Write a drawing of the trends, as SVG without links to anywhere.

    Args:
        result: of `jaxperf.energy.trends`.
        path: the file.
        overwrite: replace a file that is there.

    Raises:
        OutputError: the file is there already, or cannot be written.
    """
    with new_file(path, overwrite=overwrite) as file:
        file.write(trends_svg(result).encode())
