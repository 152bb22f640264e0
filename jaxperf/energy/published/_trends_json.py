"""Trends as JSON."""

from dataclasses import asdict
from typing import Any

from jaxperf.energy.published._trends import Series, Trends


def trends_to_json(trends: Trends) -> dict[str, Any]:
    """Trends as values that JSON has.

    Args:
        trends: of a table.

    Returns:
        `table`, `series` with their `points`, `power_ranges` and `notes`; what is not known is
        `None`.
    """
    return {
        "table": trends.source,
        "series": [_series(series) for series in trends.series],
        "power_ranges": [asdict(found) for found in trends.power_ranges],
        "notes": [
            {"code": note.code, "text": note.text, "where": note.where} for note in trends.notes
        ],
    }


def _series(series: Series) -> dict[str, Any]:
    return {
        "scale": series.scale,
        "benchmark": str(series.benchmark),
        "scenario": series.scenario or None,
        "boundary": series.boundary or None,
        "unit": series.unit,
        "rules_since": series.since or None,
        "points": [asdict(point) for point in series.points],
    }
