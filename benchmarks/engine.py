"""What a program costs: to compile, to replay, its gradient, and a thousand scenarios at once.

    python benchmarks/engine.py SHARED [--write docs/performance.md]

The graph is like a real one: a thread of calls with host work between them, each of which launches
a kernel on one of four streams; kernels start when they are launched and the one before has ended;
some wait for an event of another stream, and the thread waits for the device now and then.

Each round runs everything once, one after another, so that what else the machine does falls on all
of it alike; figures are medians over rounds, with quartiles, and compilation by XLA is not in them.
Nothing of the shared folder is read.
"""

import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import jax
import numpy as np
from _script import make_tables, progress
from _tables import markdown, number

from jaxperf.compiled import compile_program
from jaxperf.graph import DependencyKind, ExecutionGraph, GraphLane, Step, TaskClass, TaskKind
from jaxperf.replay import replay_scenarios, scale_groups, start_times_us, step_times_us
from jaxperf.trace import MISSING

LAUNCHES = (3_333, 20_000, 33_333, 333_333)
BATCHED_LAUNCHES = 40_000
"""Up to so many launches scenarios are timed."""
ROUNDS = 9
OWN_LAUNCHES, OWN_ROUNDS = 20_000, 3
STREAMS, SCENARIOS, ITERATIONS = 4, 1024, 3
LAUNCH_LATENCY_NS, KERNEL_GAP_NS, RETURN_NS = 5_000, 1_000, 2_000
COLUMNS = (
    "tasks",
    "type",
    "steps, slots",
    "compiled, million tasks a CPU s",
    "replay",
    "iterations",
    "gradient",
    "scenarios",
    "gradient / replay",
    "scenarios / replay",
    "error, ns",
)


def launches_graph(launches: int, seed: int = 0) -> ExecutionGraph:
    """Three tasks a launch: the call, the host work after it, and the kernel."""
    draw = np.random.default_rng(seed)
    call = 3 * np.arange(launches)
    host, kernel, tasks = call + 1, call + 2, 3 * launches
    stream = draw.integers(0, STREAMS, launches)
    duration, lane = np.empty(tasks, np.int64), np.zeros(tasks, np.int32)
    duration[call] = draw.integers(3_000, 9_000, launches)
    duration[host] = draw.integers(1_000, 20_000, launches)
    duration[kernel] = draw.integers(2_000, 60_000, launches)
    lane[kernel] = 1 + stream
    kind = np.tile([TaskKind.HOST_CALL, TaskKind.HOST_WORK, TaskKind.KERNEL], launches)
    task_class = np.tile([TaskClass.LAUNCH, TaskClass.HOST, TaskClass.OTHER], launches)
    task_class[kernel] = draw.integers(TaskClass.OTHER, TaskClass.COMMUNICATION + 1, launches)

    waits = np.flatnonzero(draw.random(launches) < 0.03)
    waits = waits[waits > 20]
    syncs = np.arange(500, launches, 500)
    order = DependencyKind.THREAD_ORDER
    edges = [
        _edges(call, host, 0, order),
        _edges(host[:-1], call[1:], 0, order),
        _edges(call, kernel, LAUNCH_LATENCY_NS, DependencyKind.LAUNCH, from_start=True),
        _edges(
            kernel[waits - draw.integers(1, 20, len(waits))],
            kernel[waits],
            0,
            DependencyKind.EVENT_WAIT,
        ),
        _edges(kernel[syncs - 1], host[syncs], RETURN_NS, DependencyKind.HOST_SYNC),
    ]
    for each in range(STREAMS):
        own = kernel[stream == each]
        edges.append(_edges(own[:-1], own[1:], KERNEL_GAP_NS, DependencyKind.STREAM_ORDER))
    source, target, lag_ns, from_start, dependency = (
        np.concatenate(column) for column in zip(*edges, strict=True)
    )
    release = np.full(tasks, MISSING)
    release[0] = 0
    bounds = np.linspace(0, launches - 1, ITERATIONS + 1).astype(int)
    nothing = np.zeros(tasks, np.int64)
    return ExecutionGraph(
        ranks=(0,),
        names=("work",),
        lanes=tuple(GraphLane(0, f"lane {i}", i - 1, i - 1) for i in range(STREAMS + 1)),
        name=nothing.astype(np.int32),
        lane=lane,
        kind=kind.astype(np.int8),
        task_class=task_class.astype(np.int8),
        trace=nothing.astype(np.int32),
        event=nothing.astype(np.int32),
        start_ns=nothing,
        end_ns=nothing,
        duration_ns=duration,
        release_ns=release,
        order=np.arange(tasks),
        source=source.astype(np.int32),
        target=target.astype(np.int32),
        lag_ns=lag_ns,
        unexplained_ns=np.zeros(len(lag_ns), np.int64),
        from_start=from_start,
        dependency=dependency,
        step=np.full(tasks, -1, np.int32),
        arrival=np.full(tasks, -1, np.int32),
        sm_share=np.full(tasks, np.nan, np.float32),
        clocks=(),
        steps=tuple(
            Step(f"step {i}", 0, int(call[a]), int(call[b]), 0, 0)
            for i, (a, b) in enumerate(zip(bounds[:-1], bounds[1:], strict=True))
        ),
        notes=(),
    )


def _edges(source, target, lag_ns: int, kind: DependencyKind, *, from_start: bool = False):
    size = len(source)
    return (
        source,
        target,
        np.full(size, lag_ns),
        np.full(size, from_start),
        np.full(size, kind, np.int8),
    )


def exact_starts_ns(graph: ExecutionGraph) -> np.ndarray:
    """Start times in integers, a task at a time, in the order of the graph's tasks."""
    by_target = np.argsort(graph.target, kind="stable")
    bounds = np.searchsorted(graph.target[by_target], np.arange(graph.tasks + 1)).tolist()
    source, lag = graph.source[by_target].tolist(), graph.lag_ns[by_target].tolist()
    from_start, duration = graph.from_start[by_target].tolist(), graph.duration_ns.tolist()
    start = np.maximum(graph.release_ns, MISSING).tolist()
    for task in range(graph.tasks):
        for edge in range(bounds[task], bounds[task + 1]):
            other = source[edge]
            ready = start[other] + lag[edge] + (0 if from_start[edge] else duration[other])
            start[task] = max(start[task], ready)
    return np.array(start)


def measure(work: dict[str, Callable], rounds: int) -> dict[str, np.ndarray]:
    """Milliseconds of each piece of work: quartiles over rounds."""
    for function in work.values():
        jax.block_until_ready(function())
    times = {name: [] for name in work}
    for _ in range(rounds):
        for name, function in work.items():
            before = time.perf_counter()
            jax.block_until_ready(function())
            times[name].append(1e3 * (time.perf_counter() - before))
    return {name: np.quantile(column, [0.25, 0.5, 0.75]) for name, column in times.items()}


def table(_: Path) -> str:
    """One line a size and type."""
    with jax.enable_x64(True):
        lines = [
            line(launches, dtype) for launches in LAUNCHES for dtype in (np.float64, np.float32)
        ]
    return markdown(COLUMNS, lines)


def line(launches: int, dtype: type) -> list[str]:
    """Compile, check and time one graph."""
    graph = launches_graph(launches)
    before = time.process_time()
    program = compile_program(graph)
    compile_s = time.process_time() - before
    program = jax.device_put(program)
    duration = jax.device_put(np.asarray(program.duration_us, dtype))
    scaled = jax.device_put(scale_groups(program, graph.task_class, len(TaskClass)))
    factors = np.random.default_rng(1).uniform(0.5, 1.5, (len(TaskClass), SCENARIOS)).astype(dtype)
    gradient = jax.jit(jax.grad(lambda d, p: step_times_us(p, d)[1]))
    work = {
        "replay": partial(start_times_us, program, duration),
        "iterations": partial(step_times_us, program, duration),
        "gradient": partial(gradient, duration, program),
    }
    if launches <= BATCHED_LAUNCHES:
        work["scenarios"] = lambda: replay_scenarios(scaled, factors).step_us
    times = measure(work, ROUNDS)
    starts_us = np.asarray(start_times_us(program, duration))[: graph.tasks]
    error_ns = float(np.max(np.abs(starts_us * 1e3 - exact_starts_ns(graph))))
    replay_ms = times["replay"][1]
    result = [
        f"{graph.tasks:,}",
        np.dtype(dtype).name,
        f"{int(program.makespan_row):,}, {program.slots}",
        number(graph.tasks / compile_s / 1e6, 1),
        *(
            _quartiles(times.get(name))
            for name in ("replay", "iterations", "gradient", "scenarios")
        ),
        number(times["gradient"][1] / replay_ms),
        number(times["scenarios"][1] / replay_ms, 1) if "scenarios" in times else "-",
        f"{error_ns:.2g}",
    ]
    progress(result)
    return result


def _quartiles(times_ms: np.ndarray | None) -> str:
    if times_ms is None:
        return "-"
    low, middle, high = times_ms
    return f"{middle:.2f} ({low:.2f}-{high:.2f})"


def own_table(_: Path) -> str:
    """Scenarios each with all its durations, beside one replay."""
    program = jax.device_put(compile_program(launches_graph(OWN_LAUNCHES)))
    duration = np.asarray(program.duration_us, np.float32)
    spread = np.random.default_rng(2).uniform(0.5, 1.5, (len(duration), SCENARIOS))
    many = jax.device_put((duration[:, None] * spread).astype(np.float32))
    times = measure(
        {
            "one": partial(step_times_us, program, jax.device_put(duration)),
            "many": partial(step_times_us, program, many),
        },
        OWN_ROUNDS,
    )
    one_ms, many_ms = times["one"][1], times["many"][1]
    return markdown(
        ["durations of their own, float32", "tasks", "ms", "replays of iterations"],
        [
            [
                f"{SCENARIOS:,} scenarios",
                f"{3 * OWN_LAUNCHES:,}",
                number(many_ms, 0),
                number(many_ms / one_ms, 0),
            ]
        ],
    )


if __name__ == "__main__":
    sys.exit(make_tables(__doc__, {"engine": table, "engine own": own_table}))
