"""What a program costs: to compile, to replay, its gradient, and a thousand scenarios at once.

    python benchmarks/engine.py [--launches 3333 20000 33333 333333] [--rounds 15] [--record]

The graph is like a real one: a thread of calls with host work between them, each of which launches
a kernel on one of four streams; kernels start when they are launched and the one before has ended;
some wait for an event of another stream, and the thread waits for the device now and then.

Each round runs everything once, one after another, so that what else the machine does falls on all
of it alike; figures are medians over rounds, with quartiles, and compilation by XLA is not in them.
"""

import argparse
import json
import platform
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import jax
import numpy as np

from jaxperf.compiled import compile_program
from jaxperf.graph import DependencyKind, ExecutionGraph, GraphLane, Step, TaskClass, TaskKind
from jaxperf.replay import replay_scenarios, scale_groups, start_times_us, step_times_us
from jaxperf.trace import MISSING

ROOT = Path(__file__).parents[1]
STREAMS, SCENARIOS, ITERATIONS = 4, 1024, 3
LAUNCH_LATENCY_NS, KERNEL_GAP_NS, RETURN_NS = 5_000, 1_000, 2_000


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
    for number in range(STREAMS):
        own = kernel[stream == number]
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


def one_size(launches: int, dtype: type, rounds: int) -> dict[str, object]:
    """Compile, check and time one graph; prints a row."""
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
        "steps": partial(step_times_us, program, duration),
        "gradient": partial(gradient, duration, program),
    }
    if launches <= 40_000:
        work["scenarios"] = lambda: replay_scenarios(scaled, factors).step_us
    times = measure(work, rounds)
    starts_us = np.asarray(start_times_us(program, duration))[: graph.tasks]
    record: dict[str, object] = {
        "tasks": graph.tasks,
        "steps": int(program.makespan_row),  # the last step there is
        "dtype": np.dtype(dtype).name,
        "compile_s": compile_s,
        "error_ns": float(np.max(np.abs(starts_us * 1e3 - exact_starts_ns(graph)))),
        **{f"{name}_ms": column.round(3).tolist() for name, column in times.items()},
    }
    median = {name: column[1] for name, column in times.items()}
    cells = [f"{graph.tasks:9,}", np.dtype(dtype).name, f"{graph.tasks / compile_s / 1e6:5.1f} M/s"]
    for name in ("replay", "steps", "gradient", "scenarios"):
        if name in times:
            low, mid, high = times[name]
            cells.append(f"{name} {mid:.2f} [{low:.2f}-{high:.2f}]")
    cells.append(f"gradient/replay {median['gradient'] / median['replay']:.2f}")
    if "scenarios" in median:
        cells.append(f"scenarios/replay {median['scenarios'] / median['replay']:.1f}")
    cells.append(f"error {record['error_ns']:.2g} ns")
    print("  ".join(cells), flush=True)
    return record


def own_durations(launches: int, dtype: type, rounds: int) -> None:
    """Scenarios each with all its durations, beside one replay."""
    program = jax.device_put(compile_program(launches_graph(launches)))
    duration = np.asarray(program.duration_us, dtype)
    spread = np.random.default_rng(2).uniform(0.5, 1.5, (len(duration), SCENARIOS))
    many = jax.device_put((duration[:, None] * spread).astype(dtype))
    times = measure(
        {
            "one": partial(step_times_us, program, jax.device_put(duration)),
            "many": partial(step_times_us, program, many),
        },
        max(rounds // 5, 3),
    )
    print(
        f"{SCENARIOS} scenarios with durations of their own, {np.dtype(dtype).name}: "
        f"{times['many'][1]:.0f} ms, {times['many'][1] / times['one'][1]:.0f} replays"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description="What a program costs.")
    parser.add_argument("--launches", type=int, nargs="+", default=[3_333, 20_000, 33_333, 333_333])
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--record", action="store_true", help="append to benchmarks/history/")
    options = parser.parse_args()
    jax.config.update("jax_enable_x64", True)
    device = jax.devices()[0]
    print(f"jax {jax.__version__}, {device.platform} {device.device_kind}, ms [quartiles]")
    records = [
        one_size(launches, dtype, options.rounds)
        for launches in options.launches
        for dtype in (np.float64, np.float32)
    ]
    own_durations(min(options.launches, key=lambda n: abs(n - 20_000)), np.float32, options.rounds)
    if options.record:
        history = ROOT / "benchmarks" / "history"
        history.mkdir(exist_ok=True)
        machine = {"machine": platform.machine(), "jax": jax.__version__, "device": device.platform}
        with open(history / "engine.jsonl", "a") as file:
            for record in records:
                file.write(json.dumps({"time": int(time.time()), **machine, **record}) + "\n")


if __name__ == "__main__":
    main()
