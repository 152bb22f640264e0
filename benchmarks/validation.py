"""Replays every real and simulated set, and writes what came of it to docs/validation.md.

    python benchmarks/validation.py SHARED [--write docs/validation.md]

SHARED is the folder with `traces/` and `oracle/`. Per set, averaged over its ranks, each replayed
alone:

* replay: mean absolute error of the steps (of the window, where a trace has no steps);
* worst: of the worst rank;
* starts: median error of the starts of all tasks, in percent of the step;
* dpro: the same replay without dependencies between streams and without unexplained delays;
* hold-out: each step but the first, with durations from the others; and, beside it, what a guess
  gets that takes the mean of the other steps for the step left out;
* unexplained: delays that nothing in the trace explains and that the replay keeps, in percent.
"""

import argparse
import json
import math
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from jaxperf.errors import JaxperfError
from jaxperf.graph import ExecutionGraph, build_graph
from jaxperf.replay._compare import compare_steps, compare_windows, measured_timeline
from jaxperf.replay._verb import hold_out_of, replay_graph
from jaxperf.trace import Run, Trace, read_run

_LINES = ("<!-- table: begin -->", "<!-- table: end -->")


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


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("shared", type=Path)
    parser.add_argument("--write", type=Path, help="put the table between the marks of this file")
    parser.add_argument("--only", help="sets whose name holds this text")
    arguments = parser.parse_args()
    table, failed = [], 0
    for name, paths in sets(arguments.shared).items():
        if arguments.only and arguments.only not in name:
            continue
        begin = time.perf_counter()
        try:
            run = read_run(paths)
            rows = [measure(trace) for trace in run.traces]
        except JaxperfError as error:
            print(f"{name}: {error}", file=sys.stderr)
            failed += 1
            continue
        table.append((name, rows))
        print(line(name, rows), f"{time.perf_counter() - begin:.1f} s", file=sys.stderr, flush=True)
    text = "\n".join([*header(), *(line(*entry) for entry in table), *summary(table)])
    print(text)
    if arguments.write:
        write(arguments.write, text)
    return 1 if failed else 0


def sets(shared: Path) -> dict[str, list[Path]]:
    """Every set of traces: its name and paths."""
    listed = json.loads((shared / "traces" / "sets.json").read_text())
    real = {name: [shared / "traces" / path for path in paths] for name, paths in listed.items()}
    simulated = sorted((shared / "oracle").iterdir())
    return real | {f"oracle/{path.name}": [path] for path in simulated if path.is_dir()}


def measure(trace: Trace) -> Row:
    """Replay one rank alone."""
    run = Run((trace,), (), ())
    graph = build_graph(run)
    error, starts, steps = replay_error(graph)
    dpro, _, _ = replay_error(build_graph(run, between_streams=False))
    held = hold_out_of(run, graph, graph.steps)
    late = graph.unexplained_ns[graph.unexplained_ns > 0].sum()
    return Row(
        steps,
        error,
        starts,
        dpro,
        held.mean_abs_error_percent if held else math.nan,
        naive(graph, {c.name for c in held.steps[1:]}) if held else math.nan,
        100.0 * float(late) / float(graph.end_ns.max() - graph.start_ns.min()),
    )


def replay_error(graph: ExecutionGraph) -> tuple[float, float, int]:
    """Mean absolute step error, median start error in percent of the step, number of steps."""
    measured, replayed = measured_timeline(graph), replay_graph(graph)
    compared = [c for c in compare_steps(graph.steps, replayed) if c.measured_us > 0]
    steps = len(compared)
    compared = compared or [compare_windows(measured, replayed)]
    length = np.mean([c.measured_us for c in compared])
    late = np.median(np.abs(replayed.start_us - measured.start_us))
    return (
        float(np.mean([abs(c.error_percent) for c in compared])),
        float(100.0 * late / length),
        steps,
    )


def naive(graph: ExecutionGraph, names: set[str]) -> float:
    """Error of the mean of the other steps, the first left out, taken for each step."""
    lengths = {s.name: (s.end_ns - s.begin_ns) / 1e3 for s in graph.steps if s.name in names}
    if len(lengths) < 2:
        return math.nan
    total = sum(lengths.values())
    guesses = {name: (total - own) / (len(lengths) - 1) for name, own in lengths.items()}
    return float(np.mean([100.0 * abs(guesses[n] - own) / own for n, own in lengths.items()]))


def header() -> list[str]:
    return [
        "| set | ranks | steps | replay % | worst % | starts % | dpro % | hold-out % | guess % "
        "| unexplained % |",
        "|---|--:|--:|--:|--:|--:|--:|--:|--:|--:|",
    ]


def line(name: str, rows: list[Row]) -> str:
    """One line of the table."""

    def mean(field: str) -> str:
        values = [getattr(row, field) for row in rows]
        known = [value for value in values if not math.isnan(value)]
        return f"{np.mean(known):.2f}" if known else "-"

    worst = max(row.replay for row in rows)
    return (
        f"| {name} | {len(rows)} | {rows[0].steps} | {mean('replay')} | {worst:.2f} "
        f"| {mean('starts')} | {mean('dpro')} | {mean('hold_out')} | {mean('naive')} "
        f"| {mean('unexplained')} |"
    )


def summary(table: list[tuple[str, list[Row]]]) -> list[str]:
    """Means over the sets."""

    def over(field: str, entries) -> str:
        per_set = [np.nanmean([getattr(row, field) for row in rows]) for _, rows in entries]
        return f"{np.nanmean(per_set):.2f}" if per_set else "-"

    several = [entry for entry in table if not math.isnan(entry[1][0].hold_out)]
    several = [entry for entry in several if entry[1][0].steps >= 3]
    worst = max((row.replay for _, rows in table for row in rows), default=math.nan)
    return [
        f"| **mean over {len(table)} sets** | | | **{over('replay', table)}** | **{worst:.2f}** "
        f"| {over('starts', table)} | {over('dpro', table)} "
        f"| **{over('hold_out', several)}** | {over('naive', several)} "
        f"| {over('unexplained', table)} |"
    ]


def write(path: Path, text: str) -> None:
    """Replace what stands between the marks."""
    before, _, rest = path.read_text().partition(_LINES[0])
    _, mark, after = rest.partition(_LINES[1])
    if not mark:
        raise SystemExit(f"{path}: no lines {_LINES[0]} and {_LINES[1]}")
    path.write_text(f"{before}{_LINES[0]}\n{text}\n{_LINES[1]}{after}")


if __name__ == "__main__":
    sys.exit(main())
