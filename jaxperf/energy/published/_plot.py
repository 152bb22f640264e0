"""Trends as one SVG picture that needs nothing else: improvement by round, on a log axis."""

import math
import re
from collections.abc import Sequence
from html import escape

from jaxperf.energy.published._benchmarks import round_order
from jaxperf.energy.published._trends import Series, Trends, label_of

_WIDTH, _HEIGHT, _ACROSS = 640, 330, 2
_LEFT, _RIGHT, _TOP, _BOTTOM = 52, 236, 52, 34
_LABEL_GAP = 14.0
_TICKS = (1.0, 1.2, 1.5, 2.0, 2.5, 3.0, 4.0, 5.0, 7.0)

# Those of the report's page.
_COLOURS = (
    "#125291 #199265 #e26082 #c555ce #807706 #7c4146 #5d5f00 #580d71 #188dff #ec3a4b #626984"
).split()
_DARK = (
    "#4380cb #59d264 #fdb7a0 #d48aff #efe958 #c33b37 #44b571 #c35fff #c2c2e5 #d57600 #9294a4"
).split()


def trends_svg(trends: Trends) -> str:
    """A picture of how many times better the best result became.

    Args:
        trends: of a table.

    Returns:
        SVG, a panel for each scale and scenario. A series of one round is not drawn.
    """
    drawn = [series for series in trends.series if len(series.points) > 1]
    panels: dict[tuple[str, str], list[Series]] = {}
    for series in drawn:
        panels.setdefault((series.scale, series.scenario), []).append(series)
    rows = max(1, math.ceil(len(panels) / _ACROSS))
    width, height = _ACROSS * _WIDTH, rows * _HEIGHT
    if not panels:
        body = _text(20, 40, "No benchmark has results in two rounds.", "title")
    else:
        body = "".join(
            f'<g transform="translate({i % _ACROSS * _WIDTH} {i // _ACROSS * _HEIGHT})">'
            f"{_panel(' '.join(filter(None, key)), panels[key])}</g>"
            for i, key in enumerate(panels)
        )
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" '
        f'height="{height}" role="img"><title>{_plain("Energy trends of " + trends.source)}'
        f"</title><style>{_style()}</style>"
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
    parts = [_text(_LEFT, 22, name, "title"), _text(_LEFT, 38, "times the first round", "soft")]
    for tick in _ticks(most):
        parts.append(f'<path class="grid" d="M{_LEFT} {y(tick):.1f}H{right}"/>')
        parts.append(_text(_LEFT - 7, y(tick) + 4, f"{tick:g}×", "soft end"))
    parts += [_text(x[name], bottom + 18, name, "soft middle") for name in rounds]
    ends = _apart([y(one.points[-1].improvement) for one in series], bottom)
    for i, one in enumerate(series):
        places = [(x[point.round], y(point.improvement)) for point in one.points]
        colour = f"c{i % len(_COLOURS)}"
        path = "L".join(f"{px:.1f} {py:.1f}" for px, py in places)
        again = " again" if i >= len(_COLOURS) else ""
        parts.append(f'<path class="line {colour}{again}" d="M{path}"/>')
        px, py = places[-1]
        parts.append(
            f'<path class="leader {colour}" d="M{px + 4:.1f} {py:.1f}L{right + 14} {ends[i]:.1f}"/>'
        )
        parts.append(
            _text(right + 18, ends[i] + 4, f"{label_of(one)} {one.points[-1].improvement:.4g}×", "")
        )
        for point, (px, py) in zip(one.points, places, strict=True):
            words = (
                f"{label_of(one)}, {point.round}: {point.best:.6g} {one.unit}, "
                f"{point.improvement:.4g} times the first; {point.public_id} {point.system}"
            )
            parts.append(
                f'<circle class="dot {colour}" cx="{px:.1f}" cy="{py:.1f}" r="3">'
                f"<title>{_plain(words)}</title></circle>"
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


def _text(x: float, y: float, text: str, kind: str) -> str:
    return f'<text class="{kind}" x="{x:.1f}" y="{y:.1f}">{_plain(text)}</text>'


def _plain(text: str) -> str:
    # XML has no way to write most control characters.
    return escape(re.sub(r"[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]", "\ufffd", text))


def _style() -> str:
    def colours(names: Sequence[str]) -> str:
        return "".join(
            f".c{i}{{stroke:{name}}}.dot.c{i}{{fill:{name}}}" for i, name in enumerate(names)
        )

    return (
        "text{font:12px system-ui,sans-serif;fill:#171a1f}.title{font-weight:650;font-size:14px}"
        ".soft{fill:#565e69}.end{text-anchor:end}.middle{text-anchor:middle}"
        ".page{fill:#fff}.grid{stroke:#d9dde3;fill:none}.line{fill:none;stroke-width:2}"
        ".again{stroke-dasharray:5 3}.leader{fill:none;stroke-width:.7;opacity:.6}.dot{stroke:none}"
        f"{colours(_COLOURS)}@media (prefers-color-scheme:dark){{text{{fill:#e8ebef}}"
        f".soft{{fill:#9ba5b2}}.page{{fill:#12161c}}.grid{{stroke:#2c343f}}{colours(_DARK)}}}"
    )
