"""Clocks and power limits of a job of 100,000 tasks; and power limits beside what was measured.

    python benchmarks/energy_clocks.py SHARED [--part scenarios|frontier|zeus]

The job is simulated: a GPT of four pipeline stages on eight accelerators. A thousand scenarios set
clocks of rank and class, a thousand set power limits. The measured ones are sweeps of the power
limit over training on four accelerators (Zeus, NSDI 2023): of each job some limits are fitted, and
the governor is asked for the others.
"""

import contextlib
import io
import resource
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from jaxperf.compiled import compile_program
from jaxperf.config import load_hardware, load_power
from jaxperf.cost import task_work
from jaxperf.energy._span import steady_span_us
from jaxperf.energy.clocks._frontier import clock_frontier
from jaxperf.energy.clocks._limits import limit_scenarios
from jaxperf.energy.clocks._scenarios import clock_answers, prepare_clocks
from jaxperf.energy.power._builder import power_tasks
from jaxperf.energy.power._model import power_model
from jaxperf.graph import build_graph
from jaxperf.replay import double_precision, replay_graph
from jaxperf.simulator import Noise, SimulatedJob, simulate, write_traces
from jaxperf.trace import read_run

SCENARIOS = 1000
POINTS = 16


def table(shared: Path) -> str:
    told = io.StringIO()
    with contextlib.redirect_stdout(told):
        job = prepared_job()
        many_scenarios(*job)
        frontiers(*job)
    return f"```\n{told.getvalue()}```"


def prepared_job():
    """Graph, program and power tasks of the simulated job."""
    job = SimulatedJob(
        layers=8,
        hidden_size=4096,
        attention_heads=32,
        sequence_length=2048,
        micro_batch_size=1,
        micro_batches=10,
        data_parallel=2,
        pipeline_parallel=4,
        noise=Noise(kernel=0.02, host=0.05, latency=0.05),
    )
    with tempfile.TemporaryDirectory() as folder:
        run = read_run(write_traces(simulate(job), folder))
    graph = build_graph(run)
    timeline = replay_graph(graph)
    span_us, _ = steady_span_us(graph, timeline, None)
    tasks = power_tasks(graph, timeline, task_work(graph, run), load_hardware("h100"), *span_us)
    print(f"{graph.tasks:,} tasks, {len(tasks):,} on {len(graph.ranks)} accelerators")
    return graph, compile_program(graph), tasks


def many_scenarios(graph, program, tasks) -> None:
    """A thousand clocks of rank and class, and a thousand limits: first call, and warm."""
    description = load_power("h100")
    model = power_model(description)
    lowest_hz, highest_hz = description.minimum_clock_hz, description.nominal_clock_hz
    group, groups = by_rank_and_class(tasks)
    draw = np.random.default_rng(0)
    clock_hz = draw.uniform(lowest_hz, highest_hz, (groups, SCENARIOS))
    before = time.perf_counter()
    clocks = prepare_clocks(graph, program, tasks, group, groups)
    print(f"{groups} groups, prepared in {time.perf_counter() - before:.2f} s")
    for name in ("first", "warm"):
        before = time.perf_counter()
        with double_precision():
            clock_answers(clocks, model, clock_hz).energy_j.block_until_ready()
        print(f"{SCENARIOS} clocks, {name}: {time.perf_counter() - before:.2f} s")
    limit_w = np.linspace(150.0, description.power_limit_w, SCENARIOS)
    for name in ("first", "again"):
        before = time.perf_counter()
        answers = limit_scenarios(
            graph, program, tasks, model, limit_w, lowest_hz=lowest_hz, highest_hz=highest_hz
        )
        print(f"{SCENARIOS} limits, {name}: {time.perf_counter() - before:.2f} s")
    kept = answers.is_kept
    over = np.nanmax(answers.answers.rank_power_w / limit_w)
    print(f"{kept.sum()} limits can be kept; highest power by limit {over:.6f}")
    peak_mb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3
    print(f"peak memory {peak_mb:,.0f} MB")


def frontiers(graph, program, tasks) -> None:
    """The frontier of one clock for all, of a clock for each rank, and of rank and class."""
    description = load_power("h100")
    model = power_model(description)
    grouped = {
        "one clock": (np.zeros(len(tasks), int), 1),
        "by rank": (tasks.rank, len(tasks.ranks)),
        "by rank and class": by_rank_and_class(tasks),
    }
    for name, (group, groups) in grouped.items():
        before = time.perf_counter()
        found = clock_frontier(
            graph,
            program,
            tasks,
            model,
            group,
            groups,
            points=POINTS,
            lowest_hz=description.minimum_clock_hz,
            highest_hz=description.nominal_clock_hz,
        )
        seconds = time.perf_counter() - before
        print(f"{name}: {groups} groups, {seconds:.1f} s, excess {found.excess:.1e}")
        for k in range(0, len(found.target_us), 3):
            cells = found.target_us[k], found.step_us[k], found.energy_j[k]
            print("  target {:.0f} us, step {:.0f} us, {:.3f} J".format(*cells))
        sys.stdout.flush()


def by_rank_and_class(tasks) -> tuple[np.ndarray, int]:
    _, group = np.unique(tasks.rank * 64 + tasks.task_class, return_inverse=True)
    return group, int(group.max()) + 1
