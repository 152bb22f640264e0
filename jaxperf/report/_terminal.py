"""What `jaxperf replay` prints for a person: the answer first, then what explains it."""

from collections.abc import Iterable, Sequence
from typing import Any

from rich.console import Console, Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from jaxperf.replay import Breakdown, Replay
from jaxperf.report._escape import Harmless
from jaxperf.report._words import (
    BREAKDOWN_PARTS,
    UNKNOWN,
    bound_sentence,
    class_word,
    critical_path_title,
    critical_shares,
    group_notes,
    headline,
    percent_text,
    share_text,
    time_text,
)
from jaxperf.trace import Note

_BAR = 30  # cells of a bar that is full
_EIGHTHS = " ▏▎▍▌▋▊▉█"
_LONGEST = 1000  # characters of a cell: names of templates take hundreds
_MOST_ROWS = 16  # of ranks or steps; the JSON has them all


def print_replay(replay: Replay, console: Console) -> None:
    """Print a replay as tables that fit 80 columns.

    Args:
        replay: the result of a replay.
        console: where to print; colours are left out where it is no terminal.

    Example:
        >>> import tempfile
        >>> from jaxperf.replay import replay
        >>> from jaxperf.simulator import SimulatedJob, simulate, write_traces
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     result = replay(write_traces(simulate(SimulatedJob(layers=1)), folder))
        >>> print_replay(result, Console(width=80))  # doctest: +ELLIPSIS
        Mean of ... steps: ... measured, ... replayed
        ...
    """
    sections = [
        (critical_path_title(replay), _critical_path(replay)),
        ("Where a step's time goes", _breakdown(replay)),
        ("Steps", _steps(replay)),
        ("Ranks", _ranks(replay)),
        ("Notes", notes_table(replay.notes)),
    ]
    print_sections(_answer(replay), sections, console)


def print_sections(
    answer: Text | str,
    sections: Iterable[tuple[str, RenderableType | None]],
    console: Console,
) -> None:
    """The answer, then each section that has a body under its title."""
    print_plain(answer, console)
    for title, body in sections:
        if body is not None:
            print_plain(Text(f"\n{title}", style="bold"), console)
            print_plain(Padding(body, (0, 0, 0, 2)), console)


def print_plain(body: RenderableType, console: Console, *, soft_wrap: bool = False) -> None:
    """Print what may hold texts of others: none of them is taken for markup or for a code.

    Args:
        body: what is printed.
        console: where to print.
        soft_wrap: break no line, so that it can be copied whole.
    """
    console.print(Harmless(body), highlight=False, markup=False, soft_wrap=soft_wrap)


def _answer(replay: Replay) -> Text:
    span = headline(replay)
    text = Text()
    text.append(f"{span.name[0].upper()}{span.name[1:]}: ")
    text.append(time_text(span.measured_us), style="bold")
    text.append(" measured, ")
    text.append(time_text(span.replayed_us), style="bold")
    text.append(" replayed\nMean absolute error: ")
    text.append(percent_text(replay.mean_abs_error_percent), style="bold")
    if replay.hold_out is not None:
        held_out = percent_text(replay.hold_out.mean_abs_error_percent)
        text.append(f" ({held_out} on steps held out)")
    text.append(f"\n{bound_sentence(replay)}\n")
    text.append(
        f"Start of a task: off by {time_text(replay.task_start_error_median_us)} in the median, "
        f"{time_text(replay.task_start_error_p95_us)} at the 95th percentile",
        style="dim",
    )
    return text


def _critical_path(replay: Replay) -> Table | None:
    shares = critical_shares(replay)
    if not shares:
        return None
    table = plain_table("class", "time", "share", "")
    longest = shares[0][2]
    for name, time_us, share in shares:
        bar = Text(_bar(share / longest), style="cyan")
        table.add_row(class_word(name), time_text(time_us), share_text(share), bar)
    return table


def _bar(fraction: float) -> str:
    eighths = max(1, round(fraction * _BAR * 8))
    return "█" * (eighths // 8) + _EIGHTHS[eighths % 8].strip()


def _breakdown(replay: Replay) -> Table | None:
    measured, replayed = replay.breakdown_measured, replay.breakdown_replayed
    if measured is None or replayed is None:
        return None
    table = plain_table("", "measured", "", "replayed", "")
    for field, words in (*BREAKDOWN_PARTS, ("total_us", "total")):
        style = "bold" if field == "total_us" else None
        table.add_row(words, *_part(measured, field), *_part(replayed, field), style=style)
    return table


def _part(breakdown: Breakdown, field: str) -> tuple[str, str]:
    time_us = getattr(breakdown, field)
    share = 100.0 * time_us / breakdown.total_us if breakdown.total_us > 0 else float("nan")
    return time_text(time_us), share_text(share)


def _steps(replay: Replay) -> Group | None:
    if len(replay.steps) < 2:
        return None
    table = plain_table("step", "measured", "replayed", "error")
    for step in replay.steps[:_MOST_ROWS]:
        table.add_row(
            Text(step.name),
            time_text(step.measured_us),
            time_text(step.replayed_us),
            percent_text(step.error_percent, signed=True),
        )
    return with_rest(table, len(replay.steps) - _MOST_ROWS)


def _ranks(replay: Replay) -> Group:
    table = plain_table("rank", "events", "on device", "clock offset", "device")
    for summary in replay.ranks[:_MOST_ROWS]:
        table.add_row(
            str(summary.rank),
            f"{summary.events:,}",
            f"{summary.device_tasks:,}",
            time_text(summary.clock.offset_us),
            Text(summary.device or UNKNOWN),
        )
    return with_rest(table, len(replay.ranks) - _MOST_ROWS)


def notes_table(notes: Sequence[Note]) -> Table | None:
    """Notes by their code, the first of each code in full.

    Args:
        notes: what was repaired, guessed or set aside.

    Returns:
        The table; `None` where there is no note.
    """
    groups = group_notes(notes)
    if not groups:
        return None
    table = PlainTable.grid(padding=(0, 2))
    table.add_column(style="yellow", overflow="fold", max_width=28)
    table.add_column(overflow="fold")
    for group in groups:
        text = Text(group.notes[0].text)
        more = len(group.notes) - 1
        if more:
            text.append(f" (and {more} more of this kind)", style="dim")
        table.add_row(Text(group.code), text)
    return table


class PlainTable(Table):
    """A table whose cells show every text as it is, and the beginning of one without end."""

    def add_row(self, *cells: RenderableType | None, **how: Any) -> None:
        texts = [Text(cell) if isinstance(cell, str) else cell for cell in cells]
        for text in texts:
            if isinstance(text, Text):
                text.truncate(_LONGEST, overflow="ellipsis")
        super().add_row(*texts, **how)


def plain_table(*columns: str) -> Table:
    """A table without lines: words to the left, numbers to the right.

    Args:
        columns: the headings; the first column holds words, and so does a last one that is named
            `device` or not at all.

    Returns:
        The table, without rows.
    """
    table = PlainTable(box=None, padding=(0, 2, 0, 0), header_style="dim", pad_edge=False)
    for index, column in enumerate(columns):
        words = index == 0 or (index == len(columns) - 1 and column in ("", "device"))
        table.add_column(Text(column), justify="left" if words else "right", overflow="fold")
    return table


def with_rest(table: Table, rest: int) -> Group:
    """A table, and how many rows it leaves out.

    Args:
        table: the first rows.
        rest: number of rows left out; 0 or less for none.

    Returns:
        What to print.
    """
    return Group(table, Text(f"and {rest:,} more", style="dim")) if rest > 0 else Group(table)
