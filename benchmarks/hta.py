"""HTA beside jaxperf: what loading takes, and its longest path through a step beside our replay.

    uv run --group bench python benchmarks/hta.py SHARED [--only NAME ...] [--write PAGE]

HTA (HolisticTraceAnalysis, `traceinsight` on PyPI) builds a graph of one rank's events within one
annotation, with the kernels launched from there, and finds the longest path through it. The length
of that path is put beside the measured step, for every step but the first of each trace that has
steps. HTA runs in a process of its own, a trace at a time; what it raises is written down, and so
is a trace that takes too long. `hta` is a table of docs/validation.md, `hta load` one of
docs/performance.md; both are made by the commands of those pages too.
"""

import argparse
import json
import re
import subprocess
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from _script import progress
from _synthetic import write_trace
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
PYTHON_HELP = "a Python that has HTA (default: this one)"
LOADED = (
    "torchrec_sst_dlrm_v100_4rank_3step/run_a",
    "resnet_actckpt_ddp_mi300x_rank0_3step",
    "train_one_rank_of_many_hta/a100_rank3of8_6step",
    "megatron_gpt_tp8_a100_8rank_forward",
    "nanogpt_dp8_h100_8rank_4step",
)
SYNTHETIC_MEGABYTES = 256
LOAD_COLUMNS = (
    "set",
    "ranks",
    "events",
    "CPU s",
    "HTA CPU s",
    "HTA / jaxperf",
    "peak MB",
    "HTA peak MB",
    "HTA / jaxperf",
)

LOAD = str(Path(__file__).with_name("_load_once.py"))

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
    parser.add_argument("--write", type=Path, help="put the tables between the marks of this file")
    parser.add_argument("--only", nargs="+", choices=list(TABLES), default=list(TABLES))
    parser.add_argument("--hta-python", default=sys.executable, help=PYTHON_HELP)
    arguments = parser.parse_args()
    if not has_hta(arguments.hta_python):
        return 2
    for name in arguments.only:
        text = TABLES[name](arguments.shared, arguments.hta_python)
        print(f"{name}\n\n{text}\n", flush=True)
        if arguments.write:
            write(arguments.write, name, text)
    return 0


def has_hta(python: str) -> bool:
    """Whether an interpreter has HTA; where not, say so."""
    look = "import importlib.util, sys; sys.exit(importlib.util.find_spec('hta') is None)"
    found = subprocess.run([python, "-c", look]).returncode == 0
    if not found:
        progress(f"tables of HTA left out: {python} lacks it, `uv run --group bench` has it")
    return found


def load_table(shared: Path, python: str) -> str:
    """One line a set: CPU seconds and peak memory of loading, in processes of their own."""
    every = sets(shared)
    lines = [load_line(name, every[name], python) for name in LOADED]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "trace.json")
        write_trace(path, SYNTHETIC_MEGABYTES)
        lines.append(load_line(f"synthetic, {SYNTHETIC_MEGABYTES} MB", [path], python))
    return markdown(LOAD_COLUMNS, lines)


def load_line(name: str, paths: list[Path], python: str) -> list[str]:
    """Both beside one another."""
    traces = read_run(paths).traces
    files = [trace.files[0] for trace in traces]
    (ours,), _ = run_child([sys.executable, LOAD, "jaxperf", *files])
    found, ended = run_child([python, LOAD, "hta", *files])
    cells = [name, str(len(traces)), f"{sum(trace.events for trace in traces):,}"]
    for key, unit, digits in (("cpu_s", 1.0, 2), ("peak_bytes", 1e6, 0)):
        own, other = ours[key] / unit, found[0][key] / unit if found else float("nan")
        cells += [
            number(own, digits),
            number(other, digits) if found else ", ".join(ended),
            number(other / own, 1),
        ]
    progress(cells)
    return cells


def paths_table(shared: Path, python: str) -> str:
    """One line a set that has steps."""
    entries: dict[str, list[Row]] = {}
    for name, paths in sets(shared).items():
        begin = time.perf_counter()
        rows = [measure(trace, python) for trace in read_run(paths).traces]
        entries[name] = [row for row in rows if row is not None]
        progress(f"{name}: {time.perf_counter() - begin:.1f} s")
    return table({name: rows for name, rows in entries.items() if rows})


def measure(trace: Trace, python: str) -> Row | None:
    """One rank; `None` where no step takes time."""
    graph = build_graph(Run((trace,), (), ()))
    steps = [step for step in graph.steps if step.end_ns > step.begin_ns]
    steps = steps[1:] or steps
    if not steps:
        return None
    compared = compare_steps(tuple(steps), replay_graph(graph))
    results, ended = run_child([python, "-c", CHILD, trace.files[0], *(c.name for c in compared)])
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


def run_child(command: list[str]) -> tuple[list[dict], list[str]]:
    """What a program tells, as far as it came; and how it ended, if it did not end well."""
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


TABLES = {"hta": paths_table, "hta load": load_table}


if __name__ == "__main__":
    sys.exit(main())
