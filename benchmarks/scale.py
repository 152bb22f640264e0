"""How time and memory grow with the trace, the ranks and the scenarios, as a user meets them.

    python benchmarks/scale.py SHARED [--only NAME ...] [--write docs/performance.md]

The traces of one rank are synthetic (`_synthetic.py`), those of several are the simulated job
`gpt_dp2_pp2_tp2` repeated (`ingest.py`). The first table of traces goes from file to answer in one
process and looks at it after every stage; all others are commands, each a process from start to end
that finds nothing compiled.
"""

import random
import sys
import tempfile
import time
from collections.abc import Iterable
from pathlib import Path

from _processes import Spent, in_own_process, jaxperf, peak_bytes
from _script import make_tables, progress
from _synthetic import write_trace
from _tables import markdown, number
from ingest import repeat_files

MEGABYTES = (128, 256, 512, 1024)
COPIES = (1, 2, 4, 8)
SCENARIOS = (1_000, 10_000, 100_000)
SCALE = "gemm=0.5"
SELECTORS = ("gemm", "communication", "normalization", "host")
RUN = "oracle/gpt_dp2_pp2_tp2"
STAGES = ("read", "graph", "program", "replay", "whatif")
SPENT = ("s", "CPU s", "peak MB")


def traces_tables(_: Path) -> str:
    """Two tables of one line a size: stages in one process, and the verbs beside one another."""
    verbs = {"inspect": (), "replay": (), "whatif": ("--scale", SCALE)}
    roads, commands = [], []
    for megabytes in MEGABYTES:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder, "trace.json")
            write_trace(path, megabytes)
            found = in_own_process(measure_road, path)
            spent = [jaxperf(verb, path, *words) for verb, words in verbs.items()]
        roads.append(_road(found))
        commands.append([number(found["bytes"] / 1e6, 0), *_cells(spent)])
        progress((roads[-1], commands[-1]))
    columns = [
        "MB",
        "events",
        "tasks",
        *(f"{stage} s" for stage in STAGES),
        "s a million events",
        *(f"MB after {stage}" for stage in STAGES),
        "peak / text",
    ]
    heads = ["MB", *(f"{verb}, {what}" for verb in verbs for what in SPENT)]
    return f"{markdown(columns, roads)}\n\n{markdown(heads, commands)}"


def _road(found: dict[str, float]) -> list[str]:
    whole_s = sum(found[f"{stage}_s"] for stage in STAGES)
    return [
        number(found["bytes"] / 1e6, 0),
        f"{found['events']:,}",
        f"{found['tasks']:,}",
        *(number(found[f"{stage}_s"]) for stage in STAGES),
        number(1e6 * whole_s / found["events"]),
        *(number(found[f"{stage}_bytes"] / 1e6, 0) for stage in STAGES),
        number(found[f"{STAGES[-1]}_bytes"] / found["bytes"]),
    ]


def measure_road(path: Path) -> dict[str, float]:
    """CPU seconds of each stage, and the most memory that the process has had after it."""
    from jaxperf.compiled import compile_program
    from jaxperf.graph import build_graph
    from jaxperf.trace import read_run

    found: dict[str, float] = {"bytes": path.stat().st_size}

    def stage(name, work):
        begin = time.process_time()
        result = work()
        found[f"{name}_s"] = time.process_time() - begin
        found[f"{name}_bytes"] = peak_bytes()
        return result

    run = stage("read", lambda: read_run(path))
    graph = stage("graph", lambda: build_graph(run))
    program = stage("program", lambda: compile_program(graph))

    # What is imported here would count as memory of the stages before.
    from jaxperf.config import Scenario
    from jaxperf.replay import double_precision, start_times_us
    from jaxperf.whatif import answer_scenarios

    def replay():
        with double_precision():
            return start_times_us(program).block_until_ready()

    scenario = Scenario(name="changed", scale={"gemm": 0.5}, set={})
    stage("replay", replay)
    stage("whatif", lambda: answer_scenarios(run, graph, [scenario]))
    return found | {"events": sum(trace.events for trace in run.traces), "tasks": graph.tasks}


def ranks_table(shared: Path) -> str:
    """One line a number of ranks."""
    lines = []
    for copies in COPIES:
        with tempfile.TemporaryDirectory() as folder:
            repeat_files(shared / RUN, Path(folder), copies)
            ranks = len(list(Path(folder).iterdir()))
            spent = jaxperf("replay", folder)
        lines.append([ranks, *_cells([spent]), number(1e3 * spent.cpu_s / ranks, 0)])
        progress(lines[-1])
    return markdown(["ranks", *SPENT, "CPU ms a rank"], lines)


def scenarios_table(shared: Path) -> str:
    """One line a number of scenarios of one file."""
    lines = []
    for count in SCENARIOS:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder, "scenarios.toml")
            _write_scenarios(path, count)
            spent = jaxperf("whatif", shared / RUN, "--scenarios", path)
        lines.append([f"{count:,}", *_cells([spent]), number(1e6 * spent.cpu_s / count, 0)])
        progress(lines[-1])
    return markdown(["scenarios", *SPENT, "CPU us a scenario"], lines)


def _write_scenarios(path: Path, count: int) -> None:
    draw = random.Random(0)
    with open(path, "w") as file:
        for _ in range(count):
            factors = ", ".join(f"{each} = {draw.uniform(0.5, 1.5):.4f}" for each in SELECTORS)
            file.write(f"[[scenario]]\nscale = {{ {factors} }}\n\n")


def _cells(spent: Iterable[Spent]) -> list[str]:
    return [
        number(value, digits)
        for each in spent
        for value, digits in ((each.wall_s, 1), (each.cpu_s, 1), (each.peak_bytes / 1e6, 0))
    ]


TABLES = {
    "scale traces": traces_tables,
    "scale ranks": ranks_table,
    "scale scenarios": scenarios_table,
}


if __name__ == "__main__":
    sys.exit(make_tables(__doc__, TABLES))
