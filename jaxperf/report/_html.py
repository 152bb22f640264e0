"""One HTML file that shows a replay: the answer in plain HTML, the timeline drawn by a script.

The page asks nothing of a network, and its policy forbids it to. Every text of a trace is escaped:
names may hold anything.
"""

import base64
import hashlib
import json
from collections.abc import Sequence
from datetime import UTC, datetime
from importlib import metadata, resources
from string import Template

from jaxperf.graph import TaskClass
from jaxperf.replay import Breakdown, Replay
from jaxperf.report._columns import page_data
from jaxperf.report._escape import markup_text
from jaxperf.report._words import (
    BREAKDOWN_PARTS,
    UNKNOWN,
    bound_sentence,
    breakdown_parts,
    class_word,
    critical_path_title,
    critical_shares,
    group_notes,
    headline,
    percent_text,
    share_text,
    time_text,
)

_SCRIPTS = ("words", "data", "picture", "inspector", "controls")  # each uses those before it


def replay_page(replay: Replay) -> str:
    """A replay as one HTML file."""
    span = headline(replay)
    return whole_page(
        replay,
        title=f"{time_text(span.replayed_us)} replayed – jaxperf",
        facts=_facts(replay),
        answer=_answer(replay),
        cards=critical_path_section(replay) + breakdowns_section(replay),
        tables=_tables(replay),
    )


def whole_page(
    replay: Replay,
    *,
    title: str,
    facts: str,
    answer: str,
    cards: str,
    tables: str,
    measured: bool = True,
) -> str:
    """The page with its timeline.

    Args:
        replay: what is drawn.
        title: plain text.
        facts, answer, cards, tables: HTML.
        measured: whether anything was measured; else there is one timeline.

    Returns:
        The page.
    """
    parts = resources.files("jaxperf.report") / "page"
    script = "\n".join((parts / f"{name}.js").read_text("utf-8") for name in _SCRIPTS)
    meta, data = page_data(replay, measured)
    return Template((parts / "page.html").read_text("utf-8")).substitute(
        title=markup_text(title),
        what="replay" if measured else "estimate",
        unmeasured="" if measured else " hidden",
        order=", measured above replayed" if measured else "",
        style=(parts / "page.css").read_text("utf-8"),
        script=script,
        script_hash=base64.b64encode(hashlib.sha256(script.encode()).digest()).decode(),
        # "<" may not stand in a script element: "</script>" would end it.
        meta=json.dumps(meta, separators=(",", ":")).replace("<", "\\u003c"),
        data=data,
        facts=facts,
        answer=answer,
        cards=cards,
        tables=tables,
        footer=_footer(),
    )


def _facts(replay: Replay) -> str:
    ranks = len(replay.graph.ranks)
    devices = dict.fromkeys(summary.device for summary in replay.ranks if summary.device)
    return markup_text(
        " · ".join(
            [
                *devices,
                f"{ranks} rank{'s' * (ranks != 1)}",
                f"{sum(summary.events for summary in replay.ranks):,} events",
                f"{replay.graph.tasks:,} tasks",
                f"{len(replay.graph.source):,} dependencies",
            ]
        )
    )


def _answer(replay: Replay) -> str:
    span = headline(replay)
    numbers = [
        ("", time_text(span.measured_us), f"measured, {span.name}"),
        ("", time_text(span.replayed_us), "replayed"),
        ("small", percent_text(replay.mean_abs_error_percent), "mean absolute error"),
    ]
    if replay.hold_out is not None:
        error = percent_text(replay.hold_out.mean_abs_error_percent)
        numbers.append(("small", error, "on steps held out"))
    listed = "".join(
        f'<div class="{kind}"><dt>{markup_text(words)}</dt><dd>{markup_text(value)}</dd></div>'
        for kind, value, words in numbers
    )
    window = replay.window
    aside = (
        f"Window {time_text(window.measured_us)} measured, {time_text(window.replayed_us)} "
        f"replayed. Tasks start {time_text(replay.task_start_error_median_us)} off in the median, "
        f"{time_text(replay.task_start_error_p95_us)} at the 95th percentile."
    )
    return (
        f'<dl class="numbers">{listed}</dl><div><p class="sentence">'
        f'{markup_text(bound_sentence(replay))}</p><p class="aside">{markup_text(aside)}</p></div>'
    )


def critical_path_section(replay: Replay) -> str:
    """The critical path by class, as a card."""
    shares = critical_shares(replay)
    if not shares:
        return section("Critical path", '<p class="empty">Not known.</p>')
    bar = "".join(
        f'<span style="width:{share:.3f}%;background:{_colour(name)}" '
        f'title="{markup_text(class_word(name))}: {time_text(time_us)}"></span>'
        for name, time_us, share in shares
    )
    rows = "".join(
        f'<li><span class="swatch" style="background:{_colour(name)}"></span>'
        f"<span>{markup_text(class_word(name))}</span><span>{time_text(time_us)}</span>"
        f"<span>{share_text(share)}</span></li>"
        for name, time_us, share in shares
    )
    return section(
        markup_text(critical_path_title(replay)),
        f'<div class="bar tall">{bar}</div><ul class="shares">{rows}</ul>',
    )


def _colour(task_class: str) -> str:
    known = task_class.upper() in TaskClass.__members__
    return f"var(--{task_class if known else 'other'})"


def breakdowns_section(replay: Replay, measured: bool = True) -> str:
    """Where the time of each rank goes, as a card."""
    title = "Where a step’s time goes, rank by rank"
    if not replay.rank_breakdowns:
        return section(title, '<p class="empty">No work on a device.</p>')
    legend = "".join(
        f'<li><span class="swatch part-{field}"></span>{words}</li>'
        for field, words in BREAKDOWN_PARTS
    )
    longest = max(part.total_us for _, *both in replay.rank_breakdowns for part in both)
    rows = "".join(
        f'<div class="pair"><span class="rank">rank {rank}</span>'
        + (f"{_bar('measured', before, longest)}<span></span>" if measured else "")
        + f"{_bar('replayed' if measured else 'estimated', after, longest)}</div>"
        for rank, before, after in replay.rank_breakdowns
    )
    many = " many" if len(replay.rank_breakdowns) > 4 else ""
    return section(title, f'<ul class="legend">{legend}</ul><div class="ranks{many}">{rows}</div>')


def _bar(which: str, breakdown: Breakdown, longest_us: float) -> str:
    width = 100.0 / longest_us if longest_us > 0 else 0.0
    parts = "".join(
        f'<span class="part-{field}" style="width:{width * time_us:.3f}%" '
        f'title="{words}: {time_text(time_us)}"></span>'
        for field, words, time_us in breakdown_parts(breakdown)
    )
    return (
        f'<span class="which">{which}</span><div class="bar {which}">{parts}</div>'
        f'<span class="sum">{time_text(breakdown.total_us)}</span>'
    )


def _tables(replay: Replay) -> str:
    return (
        f'<div class="tables">{_mean_breakdown(replay)}{_steps(replay)}{_ranks(replay)}'
        f"{notes_section(replay)}</div>"
    )


def _mean_breakdown(replay: Replay) -> str:
    measured, replayed = replay.breakdown_measured, replay.breakdown_replayed
    if measured is None or replayed is None:
        return ""
    rows = [
        [words, time_text(before), _of(before, measured), time_text(after), _of(after, replayed)]
        for (_, words, before), (_, _, after) in zip(
            breakdown_parts(measured), breakdown_parts(replayed), strict=True
        )
    ]
    rows.append(["total", time_text(measured.total_us), "", time_text(replayed.total_us), ""])
    return section(
        "A step, mean of ranks", html_table(["", "measured", "", "replayed", ""], rows, numbers=4)
    )


def _of(time_us: float, breakdown: Breakdown) -> str:
    return share_text(100.0 * time_us / breakdown.total_us if breakdown.total_us > 0 else 0.0)


def _steps(replay: Replay) -> str:
    if not replay.steps:
        return ""
    rows = [
        [
            step.name,
            time_text(step.measured_us),
            time_text(step.replayed_us),
            percent_text(step.error_percent, signed=True),
        ]
        for step in replay.steps
    ]
    return section("Steps", html_table(["step", "measured", "replayed", "error"], rows, numbers=3))


def _ranks(replay: Replay) -> str:
    rows = [
        [
            str(summary.rank),
            ", ".join(summary.files),
            summary.device or UNKNOWN,
            f"{summary.events:,}",
            f"{summary.device_tasks:,}",
            time_text(summary.clock.offset_us),
        ]
        for summary in replay.ranks
    ]
    head = ["rank", "files", "device", "events", "on device", "clock offset"]
    return section("Ranks", html_table(head, rows, numbers=3), wide=True)


def notes_section(replay: Replay) -> str:
    """The notes, as a wide part of the page."""
    rows = "".join(
        f'<tr><td class="code">{markup_text(group.code)}</td>'
        f'<td class="long">{markup_text(note.text)}</td>'
        f'<td class="long">{markup_text(note.where or "")}</td></tr>'
        for group in group_notes(replay.notes)
        for note in group.notes
    )
    if not rows:
        return section("Notes", '<p class="empty">Nothing was repaired or guessed.</p>', True)
    return section(
        "Notes: what was repaired, guessed or set aside",
        f'<div class="scroll"><table><thead><tr><th>code</th><th>what</th><th>where</th></tr>'
        f"</thead><tbody>{rows}</tbody></table></div>",
        wide=True,
    )


def section(title: str, body: str, wide: bool = False) -> str:
    """A titled part of the page."""
    return f"<section{' class=wide' * wide}><h2>{title}</h2>{body}</section>"


def html_table(head: Sequence[str], rows: Sequence[Sequence[str]], numbers: int) -> str:
    """A table whose last columns are numbers."""

    def cells(tag: str, row: Sequence[str]) -> str:
        texts = len(row) - numbers
        kind = lambda i: "long" if i < texts else "n"
        return "".join(
            f'<{tag} class="{kind(i)}">{markup_text(x)}</{tag}>' for i, x in enumerate(row)
        )

    body = "".join(f"<tr>{cells('td', row)}</tr>" for row in rows)
    return (
        f'<div class="scroll"><table><thead><tr>{cells("th", head)}</tr></thead>'
        f"<tbody>{body}</tbody></table></div>"
    )


def _footer() -> str:
    try:
        version = " " + metadata.version("jaxperf")
    except metadata.PackageNotFoundError:  # run from a checkout that was not installed
        version = ""
    return markup_text(f"Written by jaxperf{version} on {datetime.now(UTC):%Y-%m-%d %H:%M} UTC")
