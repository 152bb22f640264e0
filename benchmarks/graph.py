"""How fast a trace's columns become a graph, and the graph a program, in events a CPU second.

    python benchmarks/graph.py SHARED [--write docs/performance.md]

SHARED is the folder with `traces/` and `oracle/`. CPU time is that of the process, reading left
out; the least of three runs, because whatever else runs on the machine can only add to it. Before
each the classes of kernel names are forgotten: who reads one trace has not seen its names before.
Every set is measured; the largest, and those of more than a thousand events that fare worst, have
a line.
"""

import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from _script import make_tables, progress
from _tables import markdown, number, sets

from jaxperf.compiled import compile_program
from jaxperf.graph import build_graph, classify_kernel
from jaxperf.trace import read_run

COLUMNS = ("trace", "ranks", "events", "tasks", "graph s", "program s", "events a CPU second")
LARGEST, SLOWEST = 6, 4
SMALL_EVENTS = 1_000
GOAL_EVENTS_PER_S = 100_000
REPEATS = 3


@dataclass(frozen=True)
class Row:
    """One set, or the sum of several."""

    name: str
    ranks: int
    events: int
    tasks: int
    graph_s: float
    program_s: float

    @property
    def events_per_s(self) -> float:
        """Events a CPU second, from columns to program."""
        return self.events / (self.graph_s + self.program_s)


def table(shared: Path) -> str:
    """Every set measured."""
    rows = []
    for name, paths in sets(shared).items():
        rows.append(measure(name, paths))
        progress(rows[-1])
    return summary(rows)


def measure(name: str, paths: list[Path]) -> Row:
    """All ranks of a set in one graph."""
    run = read_run(paths)
    graph = build_graph(run)
    return Row(
        name,
        len(run.traces),
        sum(trace.events for trace in run.traces),
        graph.tasks,
        cpu_s(lambda: build_graph(run)),
        cpu_s(lambda: compile_program(graph)),
    )


def cpu_s(work: Callable[[], object]) -> float:
    """The least CPU time of a few runs."""
    times = []
    for _ in range(REPEATS):
        classify_kernel.cache_clear()
        begin = time.process_time()
        work()
        times.append(time.process_time() - begin)
    return min(times)


def summary(rows: list[Row]) -> str:
    """The largest, the slowest, and the sum of all; and how many are slow."""
    largest = sorted(rows, key=lambda row: -row.events)[:LARGEST]
    rest = [row for row in rows if row not in largest and row.events > SMALL_EVENTS]
    slowest = sorted(rest, key=lambda row: row.events_per_s)[:SLOWEST]
    counts = [sum(getattr(row, field) for row in rows) for field in ("ranks", "events", "tasks")]
    times = [sum(getattr(row, field) for row in rows) for field in ("graph_s", "program_s")]
    total = Row(f"**all {len(rows)} sets**", *counts, *times)
    below = [row for row in rows if row.events_per_s < GOAL_EVENTS_PER_S]
    lines = markdown(
        COLUMNS,
        [
            [
                row.name,
                row.ranks,
                f"{row.events:,}",
                f"{row.tasks:,}",
                number(row.graph_s),
                number(row.program_s, 3),
                f"{row.events_per_s:,.0f}",
            ]
            for row in (*largest, *slowest, total)
        ],
    )
    most = max((row.events for row in below), default=0)
    return (
        f"{lines}\n\nBelow {GOAL_EVENTS_PER_S:,} events a CPU second: {len(below)} of {len(rows)} "
        f"sets, of {most:,} events at most."
    )


if __name__ == "__main__":
    sys.exit(make_tables(__doc__, {"graph": table}))
