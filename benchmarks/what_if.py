"""What scenarios cost: beside one replay, in memory, with contention; and what the verbs take.

    python benchmarks/what_if.py SHARED [--only NAME ...] [--write docs/performance.md]

The run is simulated: about 20,000 kernels on one rank, and on four. A scenario of classes has a
factor for each of eight or nine classes; a scenario of machines another bandwidth, peak and
latency. Seconds are wall clock, of everything after the graph: what a call of `jaxperf whatif` adds
to reading. docs/performance.md says what the columns mean.
"""

import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
from _processes import in_own_process, jaxperf, peak_bytes
from _script import make_tables, progress
from _tables import markdown, number

from jaxperf.config import Scenario, load_scenarios
from jaxperf.graph import ExecutionGraph, TaskKind, build_graph
from jaxperf.simulator import Noise, SimulatedJob, simulate, write_traces
from jaxperf.trace import Run, read_run

SCENARIOS, ROUNDS = 1024, 9
NOISE = Noise(0.03, 0.1, 0.1)
JOBS = {
    "1 rank": SimulatedJob(layers=24, hidden_size=512, steps=32, noise=NOISE),
    "4 ranks": SimulatedJob(layers=24, hidden_size=512, steps=8, data_parallel=4, noise=NOISE),
}
CLASSES = ("gemm", "attention", "normalization", "elementwise", "optimizer", "embedding", "host")
SELECTORS = {"1 rank": (*CLASSES, "memcpy", "launch"), "4 ranks": (*CLASSES, "communication")}
HARDWARE = "h100"
MEMORY = {"classes": (1_000, 10_000, 100_000), "samples": (100, 1_000)}
"""How many are asked in a process of its own, for the most memory that it has."""
CONTENDED = "traces/train_one_rank_of_many_hta/a100_rank3of8_6step.json.gz"
REAL = "traces/nanogpt_dp8_h100_8rank_4step"


def scenarios_table(_: Path) -> str:
    """One line a question, one column a run: seconds, and replays."""
    found = {name: measure_scenarios(name) for name in JOBS}
    heads = [f"{name}, {text}" for name in found for text in ("ms", "replays")]
    lines = []
    for what in next(iter(found.values())):
        cells = []
        for times in found.values():
            seconds, replay = times[what], times["one replay"]
            cells += [number(1e3 * seconds, 1), number(seconds / replay, 1)]
        lines.append([what, *cells])
    return markdown(["", *heads], lines)


def measure_scenarios(name: str) -> dict[str, float]:
    """Seconds of each question about one run."""
    import jax

    from jaxperf.compiled import compile_program
    from jaxperf.replay import double_precision, start_times_us
    from jaxperf.whatif import answer_scenarios

    run, graph = simulated(name)
    with double_precision():
        program = jax.device_put(compile_program(graph))

    def replay():
        with double_precision():
            start_times_us(program).block_until_ready()

    by_class, by_machine = class_scenarios(name, SCENARIOS), machine_scenarios(SCENARIOS)
    once = [Scenario(name="once", scale={"gemm": 0.5}, set={})]
    ask = lambda scenarios, **options: answer_scenarios(run, graph, scenarios, **options)
    classes = f"{SCENARIOS:,} scenarios of classes"
    replay()
    found = {f"{classes}, first call": seconds(lambda: ask(by_class))}
    ask(once)
    replays, many, few = [], [], []
    for _ in range(ROUNDS):
        replays.append(seconds(replay))
        many.append(seconds(lambda: ask(by_class)))
        few.append(seconds(lambda: ask(once)))
    found["one scenario, later calls"] = float(np.median(few))
    found[f"{classes}, later calls"] = float(np.median(many))
    found[f"{classes}, the replays alone"] = measure_engine(run, graph, by_class)
    found[f"{SCENARIOS:,} scenarios of machines, first call"] = seconds(
        lambda: ask(by_machine, hardware=HARDWARE)
    )
    kernels = int(on_device(graph).sum())
    progress(f"{name}: {graph.tasks:,} tasks, {kernels:,} of the device")
    return {"one replay": float(np.median(replays)), **found}


def measure_engine(run: Run, graph: ExecutionGraph, scenarios: list[Scenario]) -> float:
    """Seconds of the worlds alone, without grouping, compiling and breakdowns."""
    from jaxperf.replay import prepare_worlds, world_steps_us
    from jaxperf.whatif._factors import group_tasks, scenario_factors
    from jaxperf.whatif._machines import find_machines

    groups = group_tasks(graph, scenarios, find_machines(run, graph, scenarios, None, None))
    worlds = prepare_worlds(graph, groups.group, groups.lag_group, groups.groups)
    factors = np.stack([scenario_factors(groups, each, None) for each in scenarios], 1)
    answer = lambda: world_steps_us(worlds, len(scenarios), lambda s: factors[:, s])
    answer()
    return float(np.median([seconds(answer) for _ in range(ROUNDS)]))


def memory_table(_: Path) -> str:
    """One line a kind and number: seconds and peak memory of a process of its own."""
    lines = []
    with tempfile.TemporaryDirectory() as folder:
        # Simulating takes more memory than what is measured.
        in_own_process(write_job, "1 rank", folder)
        for kind, count in ((kind, count) for kind, counts in MEMORY.items() for count in counts):
            peak = in_own_process(measure_peak, folder, kind, count)
            lines.append(
                [
                    kind,
                    f"{count:,}",
                    number(peak["seconds"], 1),
                    number(peak["before_mb"], 0),
                    number(peak["peak_mb"], 0),
                ]
            )
            progress(lines[-1])
    columns = ["asked", "number", "s", "with the graph, MB", "after the answers, MB"]
    return markdown(columns, lines)


def measure_peak(folder: str, kind: str, count: int) -> dict[str, float]:
    """The most memory that this process has had, with the graph and after the answers."""
    run = read_run(folder)
    graph = build_graph(run)
    before_mb = peak_bytes() / 1e6

    from jaxperf.whatif import answer_scenarios

    once = [Scenario(name="once", scale={"gemm": 0.5}, set={})]
    scenarios = class_scenarios("1 rank", count) if kind == "classes" else once
    samples = count if kind == "samples" else 0
    took = seconds(lambda: answer_scenarios(run, graph, scenarios, samples=samples))
    return {"before_mb": before_mb, "peak_mb": peak_bytes() / 1e6, "seconds": took}


def contention_table(shared: Path) -> str:
    """One line with contention and one without: seconds of the scenarios, and the answers."""
    from jaxperf.whatif import answer_scenarios

    run = read_run(shared / CONTENDED)
    graph = build_graph(run)
    draw = np.random.default_rng(0)
    names = ("gemm", "communication", "host")
    scenarios = [
        Scenario(name=str(k), scale=dict(zip(names, row.tolist(), strict=True)), set={})
        for k, row in enumerate(draw.uniform(0.5, 1.5, (SCENARIOS, len(names))))
    ]
    removed = Scenario(name="none", scale={"communication": 0.0}, set={})
    lines = []
    for contention in (True, False):
        ask = lambda each, contention=contention: answer_scenarios(
            run, graph, each, contention=contention
        )
        answer = ask([removed])
        ask(scenarios[: len(scenarios) // 4])
        many = seconds(lambda ask=ask: ask(scenarios))
        found = ", ".join(
            f"{each.task_class.name.lower()} {100 * each.slowdown:.0f} %"
            for each in answer.contention
        )
        lines.append(
            [
                found if contention else "switched off",
                number(many, 2),
                number(answer.baseline.step_us / 1e3),
                number(answer.scenarios[0].step_us / 1e3),
            ]
        )
    columns = ["contention", f"{SCENARIOS:,} scenarios, s", "step, ms", "communication x 0, ms"]
    return markdown(columns, lines)


def verbs_table(shared: Path) -> str:
    """One line a verb on the command line: what the whole process takes."""
    path = shared / REAL
    with tempfile.TemporaryDirectory() as folder:
        verbs = {
            "inspect": ["inspect", path],
            "replay": ["replay", path],
            "whatif --scale gemm=0.5": ["whatif", path, "--scale", "gemm=0.5"],
            "the same, --samples 100": [
                *("whatif", path, "--scale", "gemm=0.5", "--samples", "100"),
            ],
            "whatif --set hardware=h200": ["whatif", path, "--set", "hardware=h200"],
            "critical-path": ["critical-path", path],
            "compare (with itself)": ["compare", path, path],
            "calibrate": ["calibrate", path, "--output", Path(folder) / "fit.toml"],
        }
        lines = []
        for verb, words in verbs.items():
            spent = jaxperf(*words)
            lines.append(
                [
                    verb,
                    number(spent.wall_s, 1),
                    number(spent.cpu_s, 1),
                    number(spent.peak_bytes / 1e6, 0),
                ]
            )
            progress(lines[-1])
    return markdown(["verb", "s", "CPU s", "peak MB"], lines)


def class_scenarios(name: str, count: int) -> list[Scenario]:
    """As they come from a file: a factor for each selector."""
    draw, selectors = np.random.default_rng(0), SELECTORS[name]
    lines = []
    for row in draw.uniform(0.5, 1.5, (count, len(selectors))):
        factors = ", ".join(f"{s} = {x:.4f}" for s, x in zip(selectors, row, strict=True))
        lines.append(f"[[scenario]]\nscale = {{ {factors} }}\n")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "scenarios.toml"
        path.write_text("\n".join(lines))
        return list(load_scenarios(path))


def machine_scenarios(count: int) -> list[Scenario]:
    """Other bandwidths, peaks and latencies: durations of their own for each kernel."""
    draw = np.random.default_rng(0).uniform(0.5, 2.0, (count, 3))
    return [
        Scenario(
            name=str(k),
            scale={},
            set={
                "memory_bytes_per_s": 3.35e12 * memory,
                "peak_flops_per_s.bf16": 989e12 * peak,
                "links.nvlink.latency_us": 8.5 * latency,
            },
        )
        for k, (memory, peak, latency) in enumerate(draw.tolist())
    ]


def write_job(name: str, folder: str) -> None:
    """Run a job, and write its traces."""
    write_traces(simulate(JOBS[name]), folder)


def simulated(name: str) -> tuple[Run, ExecutionGraph]:
    """A job run, written, read, and its graph."""
    with tempfile.TemporaryDirectory() as folder:
        write_job(name, folder)
        run = read_run(folder)
    return run, build_graph(run)


def on_device(graph: ExecutionGraph) -> np.ndarray:
    """(tasks,) bool, kernels, copies and collectives."""
    return (graph.kind >= TaskKind.KERNEL) & (graph.kind != TaskKind.ARRIVAL)


def seconds(work: Callable[[], object]) -> float:
    """Wall clock of one call."""
    begin = time.perf_counter()
    work()
    return time.perf_counter() - begin


TABLES = {
    "what-if scenarios": scenarios_table,
    "what-if memory": memory_table,
    "what-if contention": contention_table,
    "what-if verbs": verbs_table,
}


if __name__ == "__main__":
    sys.exit(make_tables(__doc__, TABLES))
