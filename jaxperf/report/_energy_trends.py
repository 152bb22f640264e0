"""What `jaxperf energy trends` prints, and what it draws: improvement by round, on a log axis."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from itertools import groupby
from pathlib import Path

from rich.console import Console, Group
from rich.text import Text

from jaxperf._files import new_file
from jaxperf.energy import Trends
from jaxperf.energy.published import Series, label_of, round_order
from jaxperf.report._energy_words import number_text
from jaxperf.report._escape import markup_text
from jaxperf.report._json import notes_to_json
from jaxperf.report._svg import COLOURS, style, text_at
from jaxperf.report._terminal import notes_table, plain_table, print_sections

_WIDTH, _HEIGHT, _ACROSS = 640, 330, 2
_LEFT, _RIGHT, _TOP, _BOTTOM = 52, 236, 52, 34
_LABEL_GAP = 14.0
_STYLE = ".again{stroke-dasharray:5 3}.leader{fill:none;stroke-width:.7;opacity:.6}"
_TICKS = (1.0, 1.2, 1.5, 2.0, 2.5, 3.0, 4.0, 5.0, 7.0)


def trends_to_json(result: Trends) -> dict:
    """Trends as plain values, ready for `json.dumps`.

    Args:
        result: of `jaxperf.energy.trends`.

    Returns:
        `table`, `series` with their `points`, `power_ranges` and `notes`; what is not known is
        `None`.

    Example:
        >>> from jaxperf.energy.published import TrendPoint, benchmark_of
        >>> points = (TrendPoint("v3.0", 2.0, 1.0, 2.0, 1, "3.0-1", "A", 2),
        ...           TrendPoint("v3.1", 3.0, 1.5, 3.0, 1, "3.1-1", "A", 4))
        >>> name = benchmark_of("bert-99")
        >>> series = Series("edge", name, "offline", "AC", "samples/J", "", points)
        >>> told = trends_to_json(Trends("facts.csv", (series,), (), ()))
        >>> told["series"][0]["points"][1]["improvement"]
        1.5
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
            (f"{scale or 'all'}: the best efficiency, first round and last", _series(series))
            for scale, series in groupby(result.series, key=lambda series: series.scale)
        ),
        ("Average power, W", _ranges(result)),
        ("Notes", notes_table(result.notes)),
    ]
    count = len(result.series)
    print_sections(
        Text(f"{result.source}: {count} series of comparable results"), sections, console
    )


def _series(found: Iterable[Series]) -> Group:
    table = plain_table(
        "benchmark", "scenario", "unit", "first", "best then", "last", "times better"
    )
    for series in found:
        first, last = series.points[0], series.points[-1]
        table.add_row(
            label_of(series),
            series.scenario,
            series.unit,
            first.round,
            number_text(first.best),
            last.round,
            f"{last.improvement:.2f}",
        )
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


def trends_svg(trends: Trends) -> str:
    """A picture of how many times better the best result became.

    Args:
        trends: of a table.

    Returns:
        SVG, a panel for each scale and scenario. A series of one round is not drawn.

    Example:
        >>> from jaxperf.energy.published import TrendPoint, benchmark_of
        >>> points = (TrendPoint("v3.0", 2.0, 1.0, 2.0, 1, "3.0-1", "A", 2),
        ...           TrendPoint("v3.1", 3.0, 1.5, 3.0, 1, "3.1-1", "A", 4))
        >>> name = benchmark_of("bert-99")
        >>> series = Series("edge", name, "offline", "AC", "samples/J", "", points)
        >>> trends_svg(Trends("facts.csv", (series,), (), ())).count("times the first;")
        2
    """
    drawn = [series for series in trends.series if len(series.points) > 1]
    panels: dict[tuple[str, str], list[Series]] = {}
    for series in drawn:
        panels.setdefault((series.scale, series.scenario), []).append(series)
    rows = max(1, math.ceil(len(panels) / _ACROSS))
    width, height = _ACROSS * _WIDTH, rows * _HEIGHT
    if not panels:
        body = text_at(20, 40, "No benchmark has results in two rounds.", "title")
    else:
        body = "".join(
            f'<g transform="translate({i % _ACROSS * _WIDTH} {i // _ACROSS * _HEIGHT})">'
            f"{_panel(' '.join(filter(None, key)), panels[key])}</g>"
            for i, key in enumerate(panels)
        )
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" '
        f'height="{height}" role="img"><title>{markup_text("Energy trends of " + trends.source)}'
        f"</title><style>{style()}{_STYLE}</style>"
        f'<rect class="page" width="{width}" height="{height}"/>{body}</svg>\n'
    )


def _panel(name: str, series: Sequence[Series]) -> str:
    rounds = sorted({point.round for one in series for point in one.points}, key=round_order)
    most = max(point.improvement for one in series for point in one.points)
    top = math.log(max(most, 1.25) * 1.05)
    right, bottom = _WIDTH - _RIGHT, _HEIGHT - _BOTTOM
    x = {
        name: _LEFT + (right - _LEFT) * i / max(1, len(rounds) - 1) for i, name in enumerate(rounds)
    }
    y = lambda value: bottom - (bottom - _TOP) * math.log(value) / top
    parts = [text_at(_LEFT, 22, name, "title"), text_at(_LEFT, 38, "times the first round", "soft")]
    for tick in _ticks(most):
        parts.append(f'<path class="grid" d="M{_LEFT} {y(tick):.1f}H{right}"/>')
        parts.append(text_at(_LEFT - 7, y(tick) + 4, f"{tick:g}×", "soft end"))
    parts += [text_at(x[name], bottom + 18, name, "soft middle") for name in rounds]
    ends = _apart([y(one.points[-1].improvement) for one in series], bottom)
    for i, one in enumerate(series):
        places = [(x[point.round], y(point.improvement)) for point in one.points]
        parts.append(_line(one, places, i, (right, ends[i])))
    return "".join(parts)


def _line(
    series: Series, places: Sequence[tuple[float, float]], number: int, label: tuple[float, float]
) -> str:
    """The line of a series through its places, a dot for each round, and its label beside it."""
    colour = f"c{number % len(COLOURS)}"
    again = " again" if number >= len(COLOURS) else ""
    path = "L".join(f"{x:.1f} {y:.1f}" for x, y in places)
    (x, y), (right, end) = places[-1], label
    words = f"{label_of(series)} {series.points[-1].improvement:.4g}×"
    parts = [
        f'<path class="line {colour}{again}" d="M{path}"/>',
        f'<path class="leader {colour}" d="M{x + 4:.1f} {y:.1f}L{right + 14} {end:.1f}"/>',
        text_at(right + 18, end + 4, words, ""),
    ]
    for point, (x, y) in zip(series.points, places, strict=True):
        words = (
            f"{label_of(series)}, {point.round}: {point.best:.6g} {series.unit}, "
            f"{point.improvement:.4g} times the first; {point.public_id} {point.system}"
        )
        parts.append(
            f'<circle class="dot {colour}" cx="{x:.1f}" cy="{y:.1f}" r="3">'
            f"<title>{markup_text(words)}</title></circle>"
        )
    return "".join(parts)


def _ticks(most: float) -> list[float]:
    decades = range(int(math.log10(most)) + 1)
    if most > 30.0:
        return [10.0**power for power in decades]
    return [tick * 10.0**power for power in decades for tick in _TICKS if tick * 10**power <= most]


def _apart(heights: Sequence[float], bottom: float) -> list[float]:
    """Heights of labels, moved as little as keeps them from covering one another."""
    order = sorted(range(len(heights)), key=lambda i: heights[i])
    placed = [0.0] * len(heights)
    last = -math.inf
    for i in order:
        last = placed[i] = max(heights[i], last + _LABEL_GAP)
    limit = bottom
    for i in reversed(order):
        placed[i] = min(placed[i], limit)
        limit = placed[i] - _LABEL_GAP
    return placed
