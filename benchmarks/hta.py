"""HTA's longest path through a step beside our replay of it, each rank alone.

    uv run --group bench python benchmarks/hta.py SHARED [--write docs/validation.md] [--only TEXT]

HTA (HolisticTraceAnalysis, `traceinsight` on PyPI) builds a graph of one rank's events within one
annotation, with the kernels launched from there, and finds the longest path through it. The length
of that path is put beside the measured step, for every step but the first of each trace that has
steps. HTA runs in a process of its own, a trace at a time; what it raises is written down, and so
is a trace that takes too long.
"""

import argparse
import importlib.util
import json
import re
import subprocess
import sys
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from _tables import markdown, mean, number, sets, write

from jaxperf.graph import build_graph
from jaxperf.replay._compare import compare_steps
from jaxperf.replay._verb import replay_graph
from jaxperf.trace import Run, Trace, read_run

COLUMNS = (
    "set",
    "ranks",
    "measured ms",
    "replayed ms",
    "HTA ms",
    "replayed %",
    "HTA %",
    "HTA s a step",
    "HTA failed",
)
TIMEOUT_S = 300

CHILD = """
import json, sys, time
from hta.trace_analysis import TraceAnalysis

path, *names = sys.argv[1:]
analysis = TraceAnalysis(trace_files={0: path}, trace_dir="", include_last_profiler_step=True)
for name in names:
    begin = time.process_time()
    try:
        result = analysis.critical_path_analysis(0, name, 0)
        if result is None or not result[1]:
            raise RuntimeError("no path")
        graph, _ = result
        found = {
            "path_us": float(sum(edge.weight for edge in graph.critical_path_edges_set)),
            "cpu_s": time.process_time() - begin,
        }
    except Exception as error:
        found = {"error": type(error).__name__}
    print("RESULT " + json.dumps(found), flush=True)
"""


@dataclass(frozen=True)
class Row:
    """One rank: its steps but the first, and of those the ones that HTA has a path for, if any.

    Attributes:
        measured_us: mean length of the steps.
        replayed_us: mean of the replay, and
        replayed_percent: mean size of its error.
        path_us: mean length of HTA's path, NaN where it has none, and
        path_percent: mean size of the difference from the measured step.
        cpu_s: HTA's time for a step.
        failures: what HTA raised, or how it ended.
    """

    measured_us: float
    replayed_us: float
    replayed_percent: float
    path_us: float
    path_percent: float
    cpu_s: float
    failures: tuple[str, ...]


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("shared", type=Path)
    parser.add_argument("--write", type=Path, help="put the table between the marks of this file")
    parser.add_argument("--only", default="", help="sets whose name holds this text")
    arguments = parser.parse_args()
    if importlib.util.find_spec("hta") is None:
        print("HTA is not installed: `uv run --group bench ...` has it", file=sys.stderr)
        return 2
    entries: dict[str, list[Row]] = {}
    for name, paths in sets(arguments.shared).items():
        if arguments.only not in name:
            continue
        begin = time.perf_counter()
        rows = [measure(trace) for trace in read_run(paths).traces]
        entries[name] = [row for row in rows if row is not None]
        print(f"{name}: {time.perf_counter() - begin:.1f} s", file=sys.stderr, flush=True)
    text = table({name: rows for name, rows in entries.items() if rows})
    print(text)
    if arguments.write:
        write(arguments.write, "hta", text)
    return 0


def measure(trace: Trace) -> Row | None:
    """One rank; `None` where no step takes time."""
    graph = build_graph(Run((trace,), (), ()))
    steps = [step for step in graph.steps if step.end_ns > step.begin_ns]
    steps = steps[1:] or steps
    if not steps:
        return None
    compared = compare_steps(tuple(steps), replay_graph(graph))
    results, ended = run_hta(trace.files[0], [c.name for c in compared])
    paths = [(c, r) for c, r in zip(compared, results, strict=False) if "path_us" in r]
    compared = tuple(c for c, _ in paths) or compared
    failures = [str(result["error"]) for result in results if "error" in result]
    return Row(
        mean(c.measured_us for c in compared),
        mean(c.replayed_us for c in compared),
        mean(abs(c.error_percent) for c in compared),
        mean(r["path_us"] for _, r in paths),
        mean(100 * abs(r["path_us"] / c.measured_us - 1) for c, r in paths),
        mean(r["cpu_s"] for _, r in paths),
        (*failures, *ended),
    )


def run_hta(path: str, names: list[str]) -> tuple[list[dict], list[str]]:
    """HTA's result for each step, as far as it came; and how it ended, if it did not end well."""
    command = [sys.executable, "-c", CHILD, path, *names]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S)
        output, ended = done.stdout, []
        if done.returncode:
            ended = re.findall(r"^(?:\w+\.)*(\w+(?:Error|Exception))\b", done.stderr, re.MULTILINE)
            ended = ended[-1:] or [f"exit {done.returncode}"]
    except subprocess.TimeoutExpired as error:
        output, ended = (error.stdout or b"").decode(), [f"over {TIMEOUT_S} s"]
    lines = [line.partition(" ")[2] for line in output.splitlines() if line.startswith("RESULT ")]
    return [json.loads(line) for line in lines], ended


def table(entries: dict[str, list[Row]]) -> str:
    """One line a set, averaged over its ranks; and the means over the sets that have paths."""

    def over(field: str, rows: list[Row]) -> float:
        return mean(getattr(row, field) for row in rows)

    lines = []
    for name, rows in entries.items():
        failures = Counter(failure for row in rows for failure in row.failures)
        lines.append(
            [
                name,
                len(rows),
                *[number(over(f, rows) / 1e3) for f in ("measured_us", "replayed_us", "path_us")],
                *[number(over(f, rows)) for f in ("replayed_percent", "path_percent", "cpu_s")],
                ", ".join(f"{word} ({count})" for word, count in failures.items()),
            ]
        )
    both = [rows for rows in entries.values() if over("path_us", rows) > 0]
    means = [
        mean(over(field, rows) for rows in both)
        for field in ("replayed_percent", "path_percent", "cpu_s")
    ]
    bold = [f"**{number(value)}**" for value in means]
    lines.append([f"**mean over {len(both)} sets that have paths**", *[""] * 4, *bold, ""])
    return markdown(COLUMNS, lines)


if __name__ == "__main__":
    sys.exit(main())
