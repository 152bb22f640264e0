"""Time and memory of a job of 8 to 64 ranks: graph, program, replay.

    python benchmarks/ranks.py SHARED [--write docs/performance.md]

The eight ranks of the simulated job `gpt_dp2_pp2_tp2` are repeated: other ranks, other clocks. Each
copy is a replica of the model, so the data-parallel groups grow over all copies and make them one
job; tensor and pipeline groups stay within a copy. Every size runs in a process of its own. CPU
time is the least of three runs of a stage; peak memory is the whole process, after each stage, the
interpreter with its imports taken off. The copies share the columns of the traces they are made
of: what grows is graph, program and replay.
"""

import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
from _processes import in_own_process, peak_bytes
from _script import make_tables, progress
from _tables import markdown, number

from jaxperf.compiled import compile_program
from jaxperf.graph import build_graph
from jaxperf.replay._precision import double_precision
from jaxperf.trace import Collective, Run, read_run

COPIES = (1, 2, 4, 8)
REPEATS = 3
DATA_PARALLEL_STRIDE = 2
"""How far apart the ranks of a data-parallel group are: tensor is fastest, then data."""
CLOCK_STEP_US = 731
"""How far each copy's clock is off from the one before."""
STAGES = ("graph", "program", "replay")
COLUMNS = (
    "ranks",
    "tasks",
    *[f"{stage} s" for stage in STAGES],
    *[f"{stage} us a task" for stage in STAGES],
    "peak MB",
    "peak KB a task",
    "clocks off by us",
)


def table(shared: Path) -> str:
    """One line a size."""
    lines = []
    for copies in COPIES:
        lines.append(line(in_own_process(measure, shared, copies)))
        progress(lines[-1])
    return markdown(COLUMNS, lines)


def measure(shared: Path, copies: int) -> dict[str, float]:
    """Build, compile and replay the job, stage by stage."""
    from jaxperf.replay import start_times_us

    run = read_run(shared / "oracle" / "gpt_dp2_pp2_tp2")
    run, offset_us = repeated(run, copies)
    empty = peak_bytes()
    graph = build_graph(run)
    result: dict[str, float] = {"ranks": len(run.traces), "tasks": graph.tasks}
    result["graph_bytes"] = peak_bytes() - empty
    program = compile_program(graph)
    result["program_bytes"] = peak_bytes() - empty
    with double_precision():
        start_us = start_times_us(program).block_until_ready()
        result["replay_bytes"] = peak_bytes() - empty
        result["replay_s"] = cpu_s(lambda: start_times_us(program).block_until_ready())
    assert np.abs(np.asarray(start_us) - graph.start_ns / 1e3).max() < 1e4
    result["graph_s"] = cpu_s(lambda: build_graph(run))
    result["program_s"] = cpu_s(lambda: compile_program(graph))
    found_us = np.array([clock.offset_us for clock in graph.clocks])
    result["clock_error_us"] = float(np.abs(found_us - offset_us).max())
    return result


def repeated(run: Run, copies: int) -> tuple[Run, np.ndarray]:
    """The run so many times as one job, and each rank's clock minus that of the first, in us."""
    ranks = len(run.traces)
    traces, offset_us = [], []
    for copy in range(copies):
        for trace in run.traces:
            rank = trace.rank + copy * ranks
            late_us = CLOCK_STEP_US * copy
            traces.append(
                replace(
                    trace,
                    rank=rank,
                    world_size=copies * ranks,
                    origin_ns=trace.origin_ns + 1000 * late_us,
                    collectives=tuple(
                        moved(collective, copy, copies, ranks) for collective in trace.collectives
                    ),
                )
            )
            offset_us.append(late_us)
    return Run(tuple(traces), (), ()), np.array(offset_us, float)


def moved(collective: Collective, copy: int, copies: int, ranks: int) -> Collective:
    """A collective of a copy: data-parallel groups span all copies, the others are its own."""
    members = collective.ranks
    own = tuple(rank + copy * ranks for rank in members)
    if members[1] - members[0] == DATA_PARALLEL_STRIDE:
        own = tuple(rank + c * ranks for c in range(copies) for rank in members)
    return replace(collective, ranks=own, group_size=len(own))


def cpu_s(work: Callable[[], object]) -> float:
    """The least CPU time of a few runs."""
    times = []
    for _ in range(REPEATS):
        begin = time.process_time()
        work()
        times.append(time.process_time() - begin)
    return min(times)


def line(result: dict[str, float]) -> list[object]:
    """One line of the table."""
    tasks = result["tasks"]
    seconds = [result[f"{stage}_s"] for stage in STAGES]
    peaks = [result[f"{stage}_bytes"] for stage in STAGES]
    return [
        result["ranks"],
        f"{tasks:,}",
        *[number(value, 3) for value in seconds],
        *[number(1e6 * value / tasks) for value in seconds],
        " / ".join(f"{peak / 1e6:,.0f}" for peak in peaks),
        number(peaks[-1] / tasks / 1e3),
        number(result["clock_error_us"], 1),
    ]


if __name__ == "__main__":
    sys.exit(make_tables(__doc__, {"ranks": table}))
