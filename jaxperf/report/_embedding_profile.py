"""What `jaxperf embedding profile` prints."""

import math
import os

from rich.console import Console
from rich.table import Table
from rich.text import Text

from jaxperf._files import new_file
from jaxperf.embedding import LogProfile, Profile
from jaxperf.embedding.locality import Characteristics, Histogram
from jaxperf.report._json import known, notes_to_json
from jaxperf.report._svg import Chart, Series, picture
from jaxperf.report._terminal import notes_table, plain_table, print_sections
from jaxperf.report._words import UNKNOWN

_MOST_ROWS = 12  # of a table; the JSON has them all


def profile_to_json(result: Profile) -> dict:
    """A profile as plain values, ready for `json.dumps`.

    Args:
        result: of `jaxperf.embedding.profile`.

    Returns:
        `logs`, one object for each table, and `notes`. Where there is one table its object has
        those two keys as well, and so can be read without them. What cannot be known is `None`.

    Example:
        >>> profile_to_json(Profile(()))
        {'logs': [], 'notes': []}
    """
    logs = [_log(log) for log in result.logs]
    if len(logs) == 1:
        return {**logs[0], "logs": logs}
    return {"logs": logs, "notes": notes_to_json(result.notes)}


def _log(log: LogProfile) -> dict:
    return {
        "file": log.file,
        "table": log.table,
        "format": log.format,
        "accesses": log.accesses,
        "distinct": log.distinct,
        "policy": log.policy,
        "ways": log.ways,
        "sample": log.sample,
        "curve": [
            {
                "rows": point.rows,
                "hits": point.hits,
                "hit_ratio": point.hit_ratio,
                "interval": point.interval and list(point.interval),
            }
            for point in log.curve
        ],
        **_characteristics(log.characteristics),
        "distinct_per_batch": [
            {"lookups": batch.lookups, "rows": batch.rows} for batch in log.distinct_per_batch
        ],
        "notes": notes_to_json(log.notes),
    }


def _characteristics(found: Characteristics | None) -> dict:
    if found is None:
        keys = (
            "rows",
            "samples",
            "pooling",
            "most_pooling",
            "read_bytes_per_sample",
            "reuse",
            "popularity",
        )
        return dict.fromkeys(keys)
    return {
        "rows": found.rows,
        "samples": found.samples,
        "pooling": known(found.pooling),
        "most_pooling": found.most_pooling,
        "read_bytes_per_sample": known(found.read_bytes_per_sample),
        "reuse": {
            "first_uses": found.distinct,
            "first_use_share": found.distinct / found.accesses,
            "mean_uses_per_row": found.mean_uses,
            "times": _bins(found.reuse, "accesses"),
        },
        "popularity": {
            "top_1_percent_share": found.top_1_percent_share,
            "top_10_percent_share": found.top_10_percent_share,
            "most_used": found.most_used,
            "used_once": found.used_once,
            "uses": _bins(found.uses, "rows"),
        },
    }


def _bins(histogram: Histogram, what: str) -> list[dict]:
    pairs = zip(histogram.most.tolist(), histogram.count.tolist(), strict=True)
    return [{"at_most": most, what: count} for most, count in pairs]


def print_profile(result: Profile, console: Console) -> None:
    """Print a profile as tables that fit 80 columns.

    Args:
        result: of `jaxperf.embedding.profile`.
        console: where to print.

    Example:
        >>> print_profile(Profile(()), Console())  # of no logs
    """
    for index, log in enumerate(result.logs):
        sections = [
            (f"Hits of a cache ({_cache_words(log)})", _curve(log)),
            ("How the lookups repeat", _repeats(log)),
            ("Distinct rows of a batch", _batches(log)),
            ("Notes", notes_table(log.notes)),
        ]
        print_sections(_answer(log, first=index == 0), sections, console)


def _answer(log: LogProfile, *, first: bool) -> Text:
    text = Text("" if first else "\n")
    text.append(log.table, style="bold")
    lookups = "lookups" if log.accesses is None else f"{log.accesses:,} lookups"
    text.append(f": {lookups} of {log.distinct:,} distinct rows\n{log.file} ({log.format})")
    return text


def _cache_words(log: LogProfile) -> str:
    words = log.policy if log.ways is None else f"{log.policy}, sets of {log.ways}"
    return words if log.sample is None else f"{words}, from {100 * log.sample:g} % of the rows"


def _curve(log: LogProfile) -> Table:
    sampled = log.sample is not None
    table = plain_table("rows", "of distinct", "hits", "hit ratio", *["interval"] * sampled)
    for point in _spread(log.curve):
        share = f"{100 * point.rows / log.distinct:.2f} %"
        hits = UNKNOWN if point.hits is None else f"{point.hits:,}"
        cells = [f"{point.rows:,}", share, hits, f"{point.hit_ratio:.4f}"]
        if point.interval is not None:
            cells.append(f"{point.interval[0]:.4f} to {point.interval[1]:.4f}")
        table.add_row(*cells)
    return table


def _spread(items: tuple) -> list:
    """Not more than fit a table: the last, and others evenly before it."""
    step = math.ceil(len(items) / _MOST_ROWS) or 1
    return list(items[::-1][::step][::-1])


def _repeats(log: LogProfile) -> Table | None:
    found = log.characteristics
    if found is None:
        return None
    table = plain_table("", "")
    table.show_header = False
    rows = [
        ("lookups of a distinct row", f"{found.mean_uses:.3g}"),
        ("rows used once", f"{found.used_once:,}"),
        ("lookups of the most used row", f"{found.most_used:,}"),
        ("share of the top 1 % of rows", f"{100 * found.top_1_percent_share:.1f} %"),
        ("share of the top 10 % of rows", f"{100 * found.top_10_percent_share:.1f} %"),
        ("rows of the table", UNKNOWN if found.rows is None else f"{found.rows:,}"),
        ("lookups of a sample", _number(found.pooling)),
        (
            "most of one sample",
            UNKNOWN if found.most_pooling is None else f"{found.most_pooling:,}",
        ),
        ("bytes read by a sample", _number(found.read_bytes_per_sample)),
    ]
    for words, value in rows:
        table.add_row(words, value)
    return table


def _number(value: float) -> str:
    return f"{value:,.4g}" if math.isfinite(value) else UNKNOWN


def _batches(log: LogProfile) -> Table:
    table = plain_table("lookups", "distinct rows", "share")
    for batch in _spread(log.distinct_per_batch):
        share = f"{100 * batch.rows / batch.lookups:.1f} %"
        table.add_row(f"{batch.lookups:,}", f"{batch.rows:,.1f}", share)
    return table


def write_profile(
    result: Profile, path: str | os.PathLike[str], *, overwrite: bool = False
) -> None:
    """Draw miss ratios by cache size, and the demand of tables against their capacity, as SVG.

    Args:
        result: of `jaxperf.embedding.profile`.
        path: the file.
        overwrite: replace a file that is there.

    Raises:
        OutputError: the file is there already, or cannot be written.

    Example:
        >>> import pathlib, tempfile
        >>> from jaxperf.embedding import profile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     log, picture = pathlib.Path(folder, "log.txt"), pathlib.Path(folder, "log.svg")
        ...     _ = log.write_text("4\\n2\\n4\\n")
        ...     write_profile(profile(log), picture)
        ...     picture.read_text()[:4]
        '<svg'
    """
    misses = tuple(
        Series(
            log.table,
            [float(point.rows) for point in log.curve],
            [1.0 - point.hit_ratio for point in log.curve],
        )
        for log in result.logs
    )
    charts = [
        Chart("Miss ratio by size of the cache", "rows of the cache", "misses a lookup", misses),
        _demand(result),
    ]
    with new_file(path, overwrite=overwrite) as file:
        file.write(picture("Locality of embedding tables", charts).encode())


def _demand(result: Profile) -> Chart:
    """Lookups against rows; in bytes where all tables have a width, a sample where all have one."""
    widths = [log.row_bytes for log in result.logs]
    in_bytes = all(width is not None for width in widths)
    known = [log.characteristics for log in result.logs]
    by_sample = all(one is not None and math.isfinite(one.pooling) for one in known)
    series = []
    for log, found, width in zip(result.logs, known, widths, strict=True):
        scale = width if in_bytes and width is not None else 1.0
        rows = log.distinct if found is None or found.rows is None else found.rows
        lookups = math.nan if log.accesses is None else float(log.accesses)
        demand = found.pooling if by_sample and found is not None else lookups
        series.append(Series(log.table, [rows * scale], [demand * scale]))
    read = "bytes read" if in_bytes else "lookups"
    return Chart(
        title="Demand against capacity",
        x_label="bytes of the table" if in_bytes else "rows of the table (seen, where not known)",
        y_label=f"{read} a sample" if by_sample else f"{read} in the log",
        series=tuple(series),
        lines=False,
        log_y=True,
    )
