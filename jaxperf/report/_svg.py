"""Pictures of lines and points as SVG that needs nothing else: no script, no font, no network."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from jaxperf.report._escape import markup_text

_WIDTH, _HEIGHT = 640, 380
_LEFT, _RIGHT, _TOP, _BOTTOM = 64, 24, 56, 48
_LINE = 16  # of the legend
COLOURS = "#125291 #199265 #e26082 #c555ce #807706 #7c4146 #188dff #ec3a4b #626984".split()
_DARK = "#4380cb #59d264 #fdb7a0 #d48aff #efe958 #c33b37 #c2c2e5 #d57600 #9294a4".split()


@dataclass(frozen=True)
class Series:
    """Points that belong together.

    Attributes:
        name: for the legend, or at its only point.
        x: (points,) abscissae.
        y: (points,) ordinates.
    """

    name: str
    x: Sequence[float]
    y: Sequence[float]


@dataclass(frozen=True)
class Chart:
    """One panel of a picture.

    Attributes:
        title: above it.
        x_label: of the abscissa.
        y_label: of the ordinate.
        series: what it shows; points that an axis cannot show are left out.
        lines: whether points of a series are joined.
        log_y: whether the ordinate is logarithmic, as the abscissa is, or linear where values are
            within a power of ten; else it is a share, from 0 to 1.
    """

    title: str
    x_label: str
    y_label: str
    series: tuple[Series, ...]
    lines: bool = True
    log_y: bool = False


def picture(title: str, charts: Sequence[Chart]) -> str:
    """A picture of charts, one below the other.

    Args:
        title: of the whole; read aloud, not drawn.
        charts: its panels.

    Returns:
        SVG.

    Example:
        >>> chart = Chart("hits", "rows", "ratio", (Series("t", [1, 10], [0.1, 0.4]),))
        >>> picture("example", [chart]).startswith("<svg")
        True
    """
    top, panels = 0, []
    for chart in charts:
        body, height = _panel(chart)
        panels.append(f'<g transform="translate(0 {top})">{body}</g>')
        top += height
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {top}" width="{_WIDTH}" '
        f'height="{top}" role="img"><title>{markup_text(title)}</title><style>{style()}</style>'
        f'<rect class="page" width="{_WIDTH}" height="{top}"/>{"".join(panels)}</svg>\n'
    )


def _panel(chart: Chart) -> tuple[str, int]:
    shown = [
        (
            series.name,
            [
                (x, y)
                for x, y in zip(series.x, series.y, strict=True)
                if math.isfinite(x + y) and x > 0 and (y > 0 or not chart.log_y)
            ],
        )
        for series in chart.series
    ]
    points = [point for _, part in shown for point in part]
    parts = [text_at(_LEFT, 24, chart.title, "title")]
    if not points:
        return "".join([*parts, text_at(_LEFT, 48, "Nothing to draw.", "soft")]), 72
    parts.append(text_at(_LEFT, 42, chart.y_label, "soft"))
    right, bottom = _WIDTH - _RIGHT, _HEIGHT - _BOTTOM
    place_x, ticks_x = _axis([x for x, _ in points], _LEFT, right)
    if chart.log_y:
        place_y, ticks_y = _axis([y for _, y in points], bottom, _TOP)
    else:
        place_y = lambda value: bottom + (_TOP - bottom) * value
        ticks_y = [0.0, 0.25, 0.5, 0.75, 1.0]
    for tick in ticks_y:
        parts.append(f'<path class="grid" d="M{_LEFT} {place_y(tick):.1f}H{right}"/>')
        parts.append(text_at(_LEFT - 7, place_y(tick) + 4, _short(tick), "soft end"))
    for tick in ticks_x:
        parts.append(f'<path class="grid" d="M{place_x(tick):.1f} {_TOP}V{bottom}"/>')
        parts.append(text_at(place_x(tick), bottom + 17, _short(tick), "soft middle"))
    parts.append(text_at((_LEFT + right) / 2, bottom + 36, chart.x_label, "soft middle"))
    for i, (name, part) in enumerate(shown):
        colour = f"c{i % len(COLOURS)}"
        places = [(place_x(x), place_y(y)) for x, y in part]
        if chart.lines and len(places) > 1:
            path = "L".join(f"{x:.1f} {y:.1f}" for x, y in places)
            parts.append(f'<path class="line {colour}" d="M{path}"/>')
        for (x, y), value in zip(places, part, strict=True):
            words = markup_text(f"{name}: {value[0]:.6g}, {value[1]:.6g}")
            parts.append(
                f'<circle class="dot {colour}" cx="{x:.1f}" cy="{y:.1f}" r="3">'
                f"<title>{words}</title></circle>"
            )
        y = _HEIGHT + _LINE * i
        parts.append(f'<circle class="dot {colour}" cx="{_LEFT}" cy="{y}" r="4"/>')
        parts.append(text_at(_LEFT + 12, y + 4, name, ""))
    return "".join(parts), _HEIGHT + _LINE * (len(shown) + 1)


def _axis(values: Sequence[float], start: float, end: float):
    """Where a value stands between two ends, and which ones to mark.

    Logarithmic, with powers of ten; linear where there would be no two of them.
    """
    if max(values) < 10 * min(values):
        return _linear_axis(min(values), max(values), start, end)
    first = math.floor(math.log10(min(values)))
    last = max(math.ceil(math.log10(max(values))), first + 1)
    step = max(1, math.ceil((last - first) / 8))
    place = lambda value: start + (end - start) * (math.log10(value) - first) / (last - first)
    return place, [10.0**power for power in range(first, last + 1, step)]


def _linear_axis(low: float, high: float, start: float, end: float):
    room = (high - low or high) / 4
    step = next(
        size
        for power in (math.floor(math.log10(room)),)
        for size in (10.0**power, 2 * 10.0**power, 5 * 10.0**power, 10.0 ** (power + 1))
        if size >= room
    )
    first, last = math.floor(low / step), math.ceil(high / step)
    last = max(last, first + 1)
    place = lambda value: start + (end - start) * (value / step - first) / (last - first)
    return place, [n * step for n in range(first, last + 1)]


def _short(value: float) -> str:
    for size, unit in ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")):
        if value >= size:
            return f"{value / size:.6g}{unit}"
    return f"{value:.6g}"


def text_at(x: float, y: float, text: str, kind: str) -> str:
    return f'<text class="{kind}" x="{x:.1f}" y="{y:.1f}">{markup_text(text)}</text>'


def style() -> str:
    def colours(names: Sequence[str]) -> str:
        return "".join(
            f".c{i}{{stroke:{name}}}.dot.c{i}{{fill:{name}}}" for i, name in enumerate(names)
        )

    return (
        "text{font:12px system-ui,sans-serif;fill:#171a1f}.title{font-weight:650;font-size:14px}"
        ".soft{fill:#565e69}.end{text-anchor:end}.middle{text-anchor:middle}.page{fill:#fff}"
        ".grid{stroke:#d9dde3;fill:none}.line{fill:none;stroke-width:2}.dot{stroke:none}"
        f"{colours(COLOURS)}@media (prefers-color-scheme:dark){{text{{fill:#e8ebef}}"
        f".soft{{fill:#9ba5b2}}.page{{fill:#12161c}}.grid{{stroke:#2c343f}}{colours(_DARK)}}}"
    )
