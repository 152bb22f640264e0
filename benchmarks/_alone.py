"""Each rank replayed alone, as if the others had not been recorded."""

import math
from dataclasses import dataclass

import numpy as np
from _tables import largest, markdown, mean, number

from jaxperf.graph import ExecutionGraph, build_graph
from jaxperf.replay._compare import compare_steps, compare_windows, measured_timeline
from jaxperf.replay._verb import hold_out_of, replay_graph
from jaxperf.trace import Run, Trace

COLUMNS = (
    "set",
    "ranks",
    "steps",
    "replay %",
    "worst %",
    "starts %",
    "dpro %",
    "hold-out %",
    "guess %",
    "unexplained %",
)


@dataclass(frozen=True)
class Errors:
    """How far a replay is off, in percent of the step (of the window, where there is none).

    Attributes:
        steps: number of steps.
        mean: mean over the steps, each averaged over the ranks.
        worst: the worst step of any rank.
        window: first start to last end.
        starts: median over all tasks.
    """

    steps: int
    mean: float
    worst: float
    window: float
    starts: float


@dataclass(frozen=True)
class Row:
    """One rank's figures, in percent; NaN where there is none."""

    steps: int
    replay: float
    starts: float
    dpro: float
    hold_out: float
    naive: float
    unexplained: float


def errors_of(graph: ExecutionGraph) -> Errors:
    """Replay a graph with its own durations."""
    measured, replayed = measured_timeline(graph), replay_graph(graph)
    window = compare_windows(measured, replayed)
    steps = [c for c in compare_steps(graph.steps, replayed) if c.measured_us > 0]
    each = [c for step in graph.steps for c in compare_steps((step,), replayed)]
    late_us = np.median(np.abs(replayed.start_us - measured.start_us))
    return Errors(
        len(steps),
        mean(abs(c.error_percent) for c in steps or [window]),
        largest(abs(c.error_percent) for c in (each if steps else [window])),
        abs(window.error_percent),
        float(100.0 * late_us / np.mean([c.measured_us for c in steps or [window]])),
    )


def measure(trace: Trace) -> Row:
    """Replay one rank alone."""
    run = Run((trace,), (), ())
    graph = build_graph(run)
    own = errors_of(graph)
    held = hold_out_of(run, graph, graph.steps)
    late = graph.unexplained_ns[graph.unexplained_ns > 0].sum()
    return Row(
        own.steps,
        own.mean,
        own.starts,
        errors_of(build_graph(run, between_streams=False)).mean,
        held.mean_abs_error_percent if held else math.nan,
        _naive(graph, {c.name for c in held.steps[1:]}) if held else math.nan,
        100.0 * float(late) / float(graph.end_ns.max() - graph.start_ns.min()),
    )


def _naive(graph: ExecutionGraph, names: set[str]) -> float:
    """Error of the mean of the other steps, the first left out, taken for each step."""
    lengths = {s.name: (s.end_ns - s.begin_ns) / 1e3 for s in graph.steps if s.name in names}
    if len(lengths) < 2:
        return math.nan
    total = sum(lengths.values())
    guesses = {name: (total - own) / (len(lengths) - 1) for name, own in lengths.items()}
    return float(np.mean([100.0 * abs(guesses[n] - own) / own for n, own in lengths.items()]))


def table(entries: dict[str, list[Row]]) -> str:
    """One line a set, averaged over its ranks; and the means over the sets."""

    def over(field: str, rows: list[Row]) -> float:
        return mean(getattr(row, field) for row in rows)

    lines = [
        [
            name,
            len(rows),
            rows[0].steps,
            number(over("replay", rows)),
            number(largest(row.replay for row in rows)),
            *[number(over(f, rows)) for f in ("starts", "dpro", "hold_out", "naive")],
            number(over("unexplained", rows)),
        ]
        for name, rows in entries.items()
    ]
    several = [rows for rows in entries.values() if rows[0].steps >= 3]

    def summary(field: str, sets: list[list[Row]]) -> str:
        return number(mean(over(field, rows) for rows in sets))

    sets = list(entries.values())
    worst = largest(row.replay for rows in sets for row in rows)
    lines.append(
        [
            f"**mean over {len(sets)} sets**",
            "",
            "",
            f"**{summary('replay', sets)}**",
            f"**{number(worst)}**",
            summary("starts", sets),
            summary("dpro", sets),
            f"**{summary('hold_out', several)}**",
            summary("naive", several),
            summary("unexplained", sets),
        ]
    )
    return markdown(COLUMNS, lines)
