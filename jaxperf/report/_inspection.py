"""What `jaxperf inspect` prints."""

from dataclasses import asdict

from rich.console import Console, Group
from rich.table import Table
from rich.text import Text

from jaxperf.inspection import Inspection, RankInspection
from jaxperf.report._terminal import PlainTable, notes_table, plain_table, print_sections, with_rest
from jaxperf.report._words import UNKNOWN, time_text

_MOST_ROWS = 16  # of ranks, lanes or files; the JSON has them all


def inspection_to_json(inspection: Inspection) -> dict:
    """An inspection as plain values, ready for `json.dumps`.

    Args:
        inspection: what is in the traces of a run.

    Returns:
        Its fields under their names; what cannot be known is `None`.

    Example:
        >>> inspection_to_json(Inspection((), None, None, (), ()))["dependencies"] is None
        True
    """
    return asdict(inspection)


def print_inspection(inspection: Inspection, console: Console) -> None:
    """Print an inspection as tables that fit 80 columns.

    Args:
        inspection: what is in the traces of a run.
        console: where to print; colours are left out where it is no terminal.

    Example:
        >>> print_inspection(Inspection((), None, None, (), ()), Console())
        No ranks.
    """
    sections = [
        ("Ranks", _ranks(inspection.ranks)),
        ("Events", _events(inspection.ranks)),
        *((f"Lanes of rank {rank.rank}", _lanes(rank)) for rank in inspection.ranks[:1]),
        *((f"Steps of rank {rank.rank}", _steps(rank)) for rank in inspection.ranks[:1]),
        ("Dependencies", _dependencies(inspection)),
        ("Set aside", _set_aside(inspection)),
        ("Notes", notes_table(inspection.notes)),
    ]
    print_sections(_answer(inspection), sections, console)


def _answer(inspection: Inspection) -> str:
    ranks = inspection.ranks
    if not ranks:
        return "No ranks."
    events = sum(rank.events for rank in ranks)
    device_tasks = sum(rank.device_tasks for rank in ranks)
    answer = f"{_counted(len(ranks), 'rank')}, {events:,} events, {device_tasks:,} on devices."
    if inspection.tasks is None:
        return f"{answer} No execution graph follows from them."
    return f"{answer} The execution graph has {inspection.tasks:,} tasks."


def _ranks(ranks: tuple[RankInspection, ...]) -> Group | None:
    if not ranks:
        return None
    table = plain_table("rank", "events", "threads", "streams", "steps", "span", "device")
    for rank in ranks[:_MOST_ROWS]:
        streams = sum(lane.stream is not None for lane in rank.lanes)
        table.add_row(
            str(rank.rank),
            f"{rank.events:,}",
            str(len(rank.lanes) - streams),
            str(streams),
            UNKNOWN if rank.steps is None else str(len(rank.steps)),
            UNKNOWN if rank.span_us is None else time_text(rank.span_us),
            (rank.device or UNKNOWN) + (" (cut off)" if rank.truncated else ""),
        )
    return with_rest(table, len(ranks) - _MOST_ROWS)


def _events(ranks: tuple[RankInspection, ...]) -> Table | None:
    totals: dict[str, int] = {}
    for rank in ranks:
        for category, count in rank.categories.items():
            totals[category] = totals.get(category, 0) + count
    return _counts(totals)


def _dependencies(inspection: Inspection) -> Table | None:
    return _counts(inspection.dependencies or {})


def _counts(counts: dict[str, int]) -> Table | None:
    if not counts:
        return None
    table = plain_table("kind", "number")
    for name, count in sorted(counts.items(), key=lambda item: -item[1]):
        table.add_row(name.replace("_", " "), f"{count:,}")
    return table


def _lanes(rank: RankInspection) -> Group | None:
    if not rank.lanes:
        return None
    table = plain_table("lane", "events", "covered")
    lanes = sorted(rank.lanes, key=lambda lane: -lane.events)
    for lane in lanes[:_MOST_ROWS]:
        table.add_row(Text(lane.name), f"{lane.events:,}", time_text(lane.busy_us))
    return with_rest(table, len(lanes) - _MOST_ROWS)


def _steps(rank: RankInspection) -> Group | None:
    if not rank.steps:
        return None
    table = plain_table("step", "measured")
    for step in rank.steps[:_MOST_ROWS]:
        table.add_row(Text(step.name), time_text(step.measured_us))
    return with_rest(table, len(rank.steps) - _MOST_ROWS)


def _set_aside(inspection: Inspection) -> Group | None:
    if not inspection.set_aside:
        return None
    table = PlainTable.grid(padding=(0, 2))
    for file in inspection.set_aside[:_MOST_ROWS]:
        table.add_row(Text(file.file), Text(file.reason))
    return with_rest(table, len(inspection.set_aside) - _MOST_ROWS)


def _counted(number: int, noun: str) -> str:
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"
