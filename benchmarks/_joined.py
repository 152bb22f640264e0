"""All ranks of a run replayed in one graph; and the waits that are inferred where no row tells."""

import math
from dataclasses import dataclass, replace

import numpy as np
from _alone import Errors, errors_of
from _tables import largest, markdown, mean, number

from jaxperf.graph import DependencyKind, ExecutionGraph, build_graph
from jaxperf.replay._verb import hold_out_of
from jaxperf.trace import Category, Run, Trace

COLUMNS = (
    "set",
    "ranks",
    "steps",
    "replay %",
    "worst %",
    "window %",
    "starts %",
    "dpro %",
    "hold-out %",
    "joined",
    "not waiting",
    "unmatched",
    "clock us",
)


@dataclass(frozen=True)
class Row:
    """One run's figures: errors in percent, collectives counted, clocks in microseconds."""

    ranks: int
    errors: Errors
    dpro: float
    hold_out: float
    joined: int
    not_waiting: int
    unmatched: int
    clock_us: float


def measure(run: Run, graph: ExecutionGraph) -> Row:
    """Replay all ranks of a run together."""
    held = hold_out_of(run, graph, graph.steps)
    first = (graph.dependency == DependencyKind.RENDEZVOUS) & ~graph.from_start
    return Row(
        len(graph.ranks),
        errors_of(graph),
        errors_of(build_graph(run, between_streams=False)).mean,
        held.mean_abs_error_percent if held else math.nan,
        len(np.unique(graph.target[first])),
        _counted(graph, "collectives-not-waiting"),
        _counted(graph, "collectives-unmatched"),
        largest(clock.uncertainty_us for clock in graph.clocks),
    )


def _counted(graph: ExecutionGraph, code: str) -> int:
    """How many a note speaks of: its text begins with the number."""
    return sum(int(note.text.split()[0]) for note in graph.notes if note.code == code)


def table(entries: dict[str, Row]) -> str:
    """One line a run; and the means over them, with the worst step of all."""
    rows = list(entries.values())
    lines = [
        [
            name,
            row.ranks,
            row.errors.steps,
            *[number(getattr(row.errors, f), 3) for f in ("mean", "worst", "window", "starts")],
            number(row.dpro),
            number(row.hold_out),
            row.joined,
            row.not_waiting,
            row.unmatched,
            number(row.clock_us, 1),
        ]
        for name, row in entries.items()
    ]
    several = [row for row in rows if row.errors.steps >= 3]
    lines.append(
        [
            f"**mean over {len(rows)} runs**",
            "",
            "",
            f"**{number(mean(row.errors.mean for row in rows), 3)}**",
            f"**{number(largest(row.errors.worst for row in rows), 3)}**",
            number(mean(row.errors.window for row in rows), 3),
            f"**{number(mean(row.errors.starts for row in rows), 3)}**",
            number(mean(row.dpro for row in rows)),
            f"**{number(mean(row.hold_out for row in several))}**",
            *[sum(getattr(row, f) for row in rows) for f in ("joined", "not_waiting", "unmatched")],
            number(largest(row.clock_us for row in rows), 1),
        ]
    )
    return markdown(COLUMNS, lines)


# Waits between streams
# ---------------------------------------------------------------------------------------


WAITS_COLUMNS = (
    "traces with rows that tell waits",
    "ranks",
    "told by rows",
    "inferred without",
    "recovered %",
    "right %",
)


@dataclass(frozen=True)
class Waits:
    """Waits between streams that the profiler's rows tell, and those inferred without the rows."""

    told: int
    inferred: int
    both: int


def measure_waits(trace: Trace) -> Waits | None:
    """Take the rows away, and infer the waits from the order of calls; `None` without rows."""
    tells = np.array(["wait event" in name.lower() for name in trace.names], bool)
    if not (tells[trace.name] & (trace.category == Category.SYNC)).any():
        return None
    kept = trace.category != Category.SYNC
    columns = {k: v[kept] for k, v in trace.__dict__.items() if isinstance(v, np.ndarray)}
    told, inferred = _event_waits(trace), _event_waits(replace(trace, **columns))
    return Waits(len(told), len(inferred), len(told & inferred))


def _event_waits(trace: Trace) -> set[tuple[int, int]]:
    """Correlations of the awaited and of the waiting work."""
    graph = build_graph(Run((trace,), (), ()))
    waits = graph.dependency == DependencyKind.EVENT_WAIT
    source, target = graph.event[graph.source[waits]], graph.event[graph.target[waits]]
    pairs = zip(trace.correlation[source].tolist(), trace.correlation[target].tolist(), strict=True)
    return set(pairs)


def waits_table(entries: dict[str, list[Waits]]) -> str:
    """How many are recovered, and how many of the inferred are right: simulated jobs, real runs."""
    lines = []
    for simulated, title in ((True, "simulated jobs"), (False, "real traces")):
        found = [
            w for name, ws in entries.items() if name.startswith("oracle/") == simulated for w in ws
        ]
        told, inferred, both = (
            sum(getattr(w, f) for w in found) for f in ("told", "inferred", "both")
        )
        if told and inferred:
            shares = [number(100 * both / told), number(100 * both / inferred)]
            lines.append([title, len(found), told, inferred, *shares])
    return markdown(WAITS_COLUMNS, lines)
