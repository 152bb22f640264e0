"""How fast a trace's columns become a graph, and the graph a program, in events a CPU second.

    python benchmarks/graph.py SHARED [--write docs/performance.md] [--only TEXT]

SHARED is the folder with `traces/` and `oracle/`. CPU time is that of the process, reading left
out; the least of three runs, because whatever else runs on the machine can only add to it.
"""

import argparse
import sys
import time
from collections.abc import Callable
from pathlib import Path

from _tables import markdown, number, sets, write

from jaxperf.compiled import compile_program
from jaxperf.graph import build_graph
from jaxperf.trace import read_run

COLUMNS = (
    "trace",
    "ranks",
    "events",
    "tasks",
    "graph s",
    "program s",
    "events a CPU second",
)
CHOSEN = (
    "amd_small_and_other_vendors/mtia_train_rank0",
    "nanogpt_dp8_h100_8rank_4step",
    "resnet_ddp_mi300_4rank_3step_fused/fused_4rank",
    "resnet_linear_rtx2080ti_1gpu_with_et/resnet",
    "oracle/gpt_dp2_pp2_tp2",
)
"""The sets with most events, and a simulated job."""
REPEATS = 3


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("shared", type=Path)
    parser.add_argument("--write", type=Path, help="put the table between the marks of this file")
    parser.add_argument("--only", help="sets whose name holds this text, instead of the largest")
    arguments = parser.parse_args()
    lines = []
    for name, paths in sets(arguments.shared).items():
        if name in CHOSEN if arguments.only is None else arguments.only in name:
            lines.append(measure(name, paths))
            print(lines[-1], file=sys.stderr, flush=True)
    text = markdown(COLUMNS, lines)
    print(text)
    if arguments.write:
        write(arguments.write, "graph", text)
    return 0


def measure(name: str, paths: list[Path]) -> list[object]:
    """One line of the table."""
    run = read_run(paths)
    events = sum(trace.events for trace in run.traces)
    graph = build_graph(run)
    graph_s = cpu_s(lambda: build_graph(run))
    program_s = cpu_s(lambda: compile_program(graph))
    return [
        name,
        len(run.traces),
        f"{events:,}",
        f"{graph.tasks:,}",
        number(graph_s),
        number(program_s),
        f"{events / (graph_s + program_s):,.0f}",
    ]


def cpu_s(work: Callable[[], object]) -> float:
    """The least CPU time of a few runs."""
    times = []
    for _ in range(REPEATS):
        begin = time.process_time()
        work()
        times.append(time.process_time() - begin)
    return min(times)


if __name__ == "__main__":
    sys.exit(main())
