"""What `jaxperf critical-path` prints, for a person and as JSON."""

from rich.console import Console, Group
from rich.table import Table
from rich.text import Text

from jaxperf.critical_path import CriticalPathReport
from jaxperf.graph import TaskClass
from jaxperf.report._json import notes_to_json, rounded_percent, rounded_us
from jaxperf.report._terminal import notes_table, plain_table, print_sections, with_rest
from jaxperf.report._words import UNKNOWN, class_word, share_text, time_text

_MOST_ROWS = 12  # of a table; the JSON has more
_MOST_TASKS = 100  # of the JSON: names of tasks, and pairs of ranks
_CAUSE_WORDS = {
    "kernels": "its kernels: they take",
    "host": "its host: it takes",
    "link": "its link: it takes",
}


def print_critical_path(report: CriticalPathReport, console: Console) -> None:
    """Print what bounds the step as tables that fit 80 columns.

    Args:
        report: the result of `critical_path`.
        console: where to print; colours are left out where it is no terminal.

    Example:
        >>> import tempfile
        >>> from jaxperf.critical_path import critical_path
        >>> from jaxperf.simulator import SimulatedJob, simulate, write_traces
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     result = critical_path(write_traces(simulate(SimulatedJob(layers=1)), folder))
        >>> print_critical_path(result, Console(width=80))  # doctest: +ELLIPSIS
        Mean of 2 steps: ...
        ...
    """
    sections = [
        ("By class", _classes(report)),
        ("By task", _tasks(report)),
        ("By rank", _ranks(report)),
        ("Who waits for whom, per step", _waits(report)),
        (f"The path{f' of {report.path_step}' if report.path_step else ''}", _path(report)),
        ("Notes", notes_table(report.notes)),
    ]
    print_sections(_answer(report), sections, console)


def _answer(report: CriticalPathReport) -> Text:
    count = len(report.steps)
    text = Text("Window: " if not count else "Step: " if count == 1 else f"Mean of {count} steps: ")
    text.append(time_text(report.step_us), style="bold")
    shares = [(_share(report, row.critical_us), row.task_class) for row in report.by_class[:3]]
    words = [f"{share:.0f} % {class_word(name)}" for share, name in shares if share >= 5.0]
    text.append(f"\nCritical path: {', '.join(words)}\n" if words else "\n")
    text.append(_accusation(report))
    return text


def _accusation(report: CriticalPathReport) -> str:
    """What is to be said of a straggler."""
    if len(report.graph.ranks) < 2:
        if TaskClass.COMMUNICATION not in report.graph.task_class:
            return "One rank, which communicates with nobody."
        return "Of one rank alone nothing says who waits for whom."
    found = report.straggler
    if found is None:
        return _nobody(report)
    who = f"Rank {found.rank} holds" if found.rank is not None else _several(found.ranks)
    theirs = "those" if found.cause == "kernels" else "that"
    peers = f"{theirs} of its peers {time_text(found.peers_us)}" if found.peers else "others less"
    return (
        f"{who} the others up by {_CAUSE_WORDS[found.cause]} {time_text(found.own_us)} of a step,\n"
        f"{peers}. Without that the step would be {time_text(found.gain_us)} shorter."
    )


def _nobody(report: CriticalPathReport) -> str:
    last = max(report.by_rank, key=lambda row: row.caused_us)
    total_us = sum(row.caused_us for row in report.by_rank)
    text = "No rank is so slow that the step suffers"
    if total_us <= 0.0 or last.caused_us < 0.5 * total_us:
        return f"{text}."
    return (
        f"{text}; {100.0 * last.caused_us / total_us:.0f} % of the waiting is for rank {last.rank}."
    )


def _several(ranks: tuple[int, ...]) -> str:
    return f"One of the ranks {', '.join(map(str, ranks))} holds"


def _share(report: CriticalPathReport, time_us: float) -> float:
    return 100.0 * time_us / report.step_us if report.step_us > 0 else float("nan")


def _classes(report: CriticalPathReport) -> Table:
    table = plain_table("class", "on the path", "share", "1 % less gains")
    least_us = 5e-4 * report.step_us
    for row in report.by_class:
        if max(row.critical_us, row.sensitivity_us) < least_us:
            continue
        table.add_row(
            class_word(row.task_class),
            time_text(row.critical_us),
            share_text(_share(report, row.critical_us)),
            time_text(row.sensitivity_us / 100.0),
        )
    return table


def _tasks(report: CriticalPathReport) -> Group:
    table = plain_table("task", "rank", "count", "on the path", "1 % less gains")
    rows = [row for row in report.by_task if row.critical_us or row.sensitivity_us]
    for row in rows[:_MOST_ROWS]:
        table.add_row(
            _short(row.name, 31),
            UNKNOWN if row.rank is None else str(row.rank),
            f"{row.count:,.0f}",
            time_text(row.critical_us),
            time_text(row.sensitivity_us / 100.0),
        )
    return with_rest(table, len(rows) - _MOST_ROWS)


def _short(name: str, width: int) -> Text:
    """The begin of a name, on one line."""
    return Text(name if len(name) <= width else f"{name[: width - 1]}…")


def _ranks(report: CriticalPathReport) -> Group | None:
    if len(report.by_rank) < 2:
        return None
    table = plain_table("rank", "on the path", "1 % less gains", "waits", "others wait", "slack")
    for row in report.by_rank[:_MOST_ROWS]:
        table.add_row(
            str(row.rank),
            time_text(row.critical_us),
            time_text(row.sensitivity_us / 100.0),
            time_text(row.waited_us),
            time_text(row.caused_us),
            time_text(row.slack_us),
        )
    return with_rest(table, len(report.by_rank) - _MOST_ROWS)


def _waits(report: CriticalPathReport) -> Group | None:
    if not report.waits:
        return None
    table = plain_table("rank", "for rank", "wait")
    for row in report.waits[:_MOST_ROWS]:
        table.add_row(str(row.rank), str(row.for_rank), time_text(row.wait_us))
    return with_rest(table, len(report.waits) - _MOST_ROWS)


def _path(report: CriticalPathReport) -> Group | None:
    """The longest hops, in their order."""
    if not report.path:
        return None
    longest = sorted(range(len(report.path)), key=lambda i: -report.path[i].own_us)[:_MOST_ROWS]
    table = plain_table("lane", "rank", "at", "takes", "")
    for i in sorted(longest):
        hop = report.path[i]
        at, takes = time_text(hop.start_us), time_text(hop.own_us)
        table.add_row(_short(hop.lane, 20), str(hop.rank), at, takes, _short(hop.name, 28))
    return with_rest(table, len(report.path) - len(longest))


# JSON
# ---------------------------------------------------------------------------------------


def critical_path_to_json(report: CriticalPathReport) -> dict:
    """What bounds the step as plain values, ready for `json.dumps`.

    Args:
        report: the result of `critical_path`.

    Returns:
        Steps, shares by class, rank, task and group, waits, straggler, path and notes. Times are
        microseconds per step, to the nanosecond; what cannot be known is `None`. Of tasks and of
        pairs of ranks the first hundred; the report has them all.

    Example:
        >>> import tempfile
        >>> from jaxperf.critical_path import critical_path
        >>> from jaxperf.simulator import SimulatedJob, simulate, write_traces
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     result = critical_path(write_traces(simulate(SimulatedJob(layers=1)), folder))
        >>> critical_path_to_json(result)["by_class"][0]["class"]
        'gemm'
    """
    return {
        "step": report.steps[0] if len(report.steps) == 1 else None,
        "steps": list(report.steps),
        "step_us": rounded_us(report.step_us),
        "by_class": [{"class": row.task_class, **_time(report, row)} for row in report.by_class],
        "by_rank": [
            {
                "rank": row.rank,
                **_time(report, row),
                "slack_us": rounded_us(row.slack_us),
                "waited_us": rounded_us(row.waited_us),
                "caused_us": rounded_us(row.caused_us),
            }
            for row in report.by_rank
        ],
        "by_task": [
            {
                "name": row.name,
                "class": row.task_class,
                "rank": row.rank,
                "count": round(row.count, 3),
                **_time(report, row),
                "slack_us": rounded_us(row.slack_us),
            }
            for row in report.by_task[:_MOST_TASKS]
        ],
        "by_group": [
            {
                "ranks": list(row.ranks),
                "count": round(row.count, 3),
                "wait_us": rounded_us(row.wait_us),
                "transfer_us": rounded_us(row.transfer_us),
                "sensitivity_us": rounded_us(row.sensitivity_us),
            }
            for row in report.by_group
        ],
        "waits": [
            {"rank": row.rank, "for_rank": row.for_rank, "wait_us": rounded_us(row.wait_us)}
            for row in report.waits[:_MOST_TASKS]
        ],
        "straggler": _straggler(report),
        "path_step": report.path_step,
        "path": [
            {
                "rank": hop.rank,
                "lane": hop.lane,
                "name": hop.name,
                "tasks": hop.tasks,
                "start_us": rounded_us(hop.start_us),
                "own_us": rounded_us(hop.own_us),
                "waited_for": hop.waited_for,
                "lag_us": rounded_us(hop.lag_us),
            }
            for hop in report.path
        ],
        "notes": notes_to_json(report.notes),
    }


def _time(report: CriticalPathReport, row) -> dict:
    return {
        "critical_us": rounded_us(row.critical_us),
        "share_percent": rounded_percent(_share(report, row.critical_us)),
        "sensitivity_us": rounded_us(row.sensitivity_us),
    }


def _straggler(report: CriticalPathReport) -> dict | None:
    found = report.straggler
    if found is None:
        return None
    caused_us = sum(row.caused_us for row in report.by_rank if row.rank in found.ranks)
    return {
        "rank": found.rank,
        "ranks": list(found.ranks),
        "cause": found.cause,
        "excess_us": rounded_us(found.excess_us),
        "evidence": {
            "gain_us": rounded_us(found.gain_us),
            "caused_us": rounded_us(caused_us),
            "own_us": rounded_us(found.own_us),
            "peers_us": rounded_us(found.peers_us),
            "peers": list(found.peers),
            "names": [{"name": name, "excess_us": rounded_us(time)} for name, time in found.names],
        },
    }
