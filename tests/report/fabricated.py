"""A replay put together by hand, so that the report is tested without the engine."""

from dataclasses import dataclass, field

import numpy as np

from jaxperf.graph import (
    DependencyKind as Dep,
    ExecutionGraph,
    GraphLane,
    RankClock,
    Step,
    TaskClass,
    TaskKind,
)
from jaxperf.replay import (
    Breakdown,
    HoldOut,
    RankSummary,
    Replay,
    StepBreakdown,
    TimeComparison,
    Timeline,
)
from jaxperf.trace import MISSING, Note

GEMM = "void cutlass::Kernel2<cutlass_80_tensorop_bf16_s16816gemm_bf16_128x256_32x3_tn_align8>"
NORM = "void at::native::vectorized_layer_norm_kernel<c10::BFloat16, float>(int, float)"
ADAM = 'void multi_tensor_apply_kernel<"fused adam", </script><b>bold</b>\\n>'
REDUCE = "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)"


@dataclass
class Builder:
    """Tasks and dependencies, one after the other, every source before its target."""

    tasks: list = field(default_factory=list)
    dependencies: list = field(default_factory=list)
    last: dict = field(default_factory=dict)
    random: np.random.Generator = field(default_factory=lambda: np.random.default_rng(0))

    def task(
        self,
        name,
        lane,
        kind,
        task_class,
        duration_us,
        *causes,
        event=-1,
        release=None,
        beside=False,
    ):
        """Add a task behind the last one of its lane, or beside it; causes are (task, kind, us)."""
        index = len(self.tasks)
        duration_ns = round(duration_us * 1e3 * self.random.lognormal(0.0, 0.05))
        self.tasks.append((name, lane, kind, task_class, duration_ns, event, release, index))
        order = Dep.STREAM_ORDER if kind >= TaskKind.KERNEL else Dep.THREAD_ORDER
        if lane in self.last and not beside:
            behind_kernel = self.tasks[self.last[lane]][2] >= TaskKind.KERNEL
            waits_here = self.tasks[self.last[lane]][2] == TaskKind.ARRIVAL
            lag = 0.9 if behind_kernel and not waits_here else 0.0
            self.dependencies.append((self.last[lane], index, round(lag * 1e3), order))
        for source, why, lag in causes:
            self.dependencies.append((source, index, round(lag * 1e3), why))
        if not beside:
            self.last[lane] = index
        return index


def make_replay(ranks=2, steps=2, layers=4, noise=0.5, seed=0) -> Replay:
    """A data-parallel job: each layer a few kernels and an all-reduce, a blocking call per step."""
    build = Builder()
    marks = [[] for _ in range(ranks)]
    for step in range(steps):
        begins = [len(build.tasks)] * ranks
        for rank in range(ranks):
            begins[rank] = len(build.tasks)
            host_work(build, rank, 40.0)
        for layer in range(layers):
            _layer(build, ranks, layer)
        for rank in range(ranks):
            marks[rank].append((step, begins[rank], finish_step(build, rank)))
    return assemble(build, ranks, marks, noise, np.random.default_rng(seed))


def host_work(build, rank, duration_us):
    release = None if 3 * rank in build.last else 50.0 * rank
    build.task("aten::linear", 3 * rank, 0, TaskClass.HOST, duration_us, release=release)


def launch_kernel(build, rank, name, task_class, duration_us, *causes):
    event = len(build.tasks)
    call = build.task(
        "cudaLaunchKernel", 3 * rank, TaskKind.HOST_CALL, TaskClass.LAUNCH, 4.2, event=event
    )
    return build.task(
        name,
        3 * rank + 1,
        TaskKind.KERNEL,
        task_class,
        duration_us,
        (call, Dep.LAUNCH, 2.5),
        *causes,
        event=event + 1,
    )


def _layer(build, ranks, layer):
    arrivals = []
    for rank in range(ranks):
        slow = 1.3 if rank == 1 else 1.0
        host_work(build, rank, 6.0)
        launch_kernel(build, rank, NORM, TaskClass.NORMALIZATION, 12.0 * slow)
        last = launch_kernel(build, rank, GEMM, TaskClass.GEMM, (80.0 + layer) * slow)
        host_work(build, rank, 3.0)
        event = len(build.tasks)
        call = build.task(
            "cudaLaunchKernelExC", 3 * rank, TaskKind.HOST_CALL, TaskClass.LAUNCH, 5.0, event=event
        )
        arrivals.append(
            build.task(
                REDUCE,
                3 * rank + 2,
                TaskKind.ARRIVAL,
                TaskClass.COMMUNICATION,
                0.0,
                (call, Dep.LAUNCH, 3.0),
                (last, Dep.EVENT_WAIT, 1.0),
                event=event + 1,
            )
        )
    for rank in range(ranks):
        build.task(
            REDUCE,
            3 * rank + 2,
            TaskKind.COLLECTIVE,
            TaskClass.COMMUNICATION,
            60.0,
            *((arrival, Dep.RENDEZVOUS, 0.0) for arrival in arrivals),
            event=build.tasks[arrivals[rank]][5],
        )


def finish_step(build, rank, busy_us=0.0):
    """An optimizer kernel, host work beside it, and a blocking call."""
    reduced = build.last[3 * rank + 2]
    adam = launch_kernel(
        build, rank, ADAM, TaskClass.OPTIMIZER, 55.0, (reduced, Dep.EVENT_WAIT, 1.0)
    )
    if busy_us:
        host_work(build, rank, busy_us)
    event = len(build.tasks)
    build.task(
        "cudaDeviceSynchronize",
        3 * rank,
        TaskKind.HOST_CALL,
        TaskClass.HOST,
        2.0,
        event=event,
    )
    returning = build.task(
        "cudaDeviceSynchronize",
        3 * rank,
        TaskKind.HOST_RETURN,
        TaskClass.HOST,
        1.5,
        (adam, Dep.HOST_SYNC, 3.0),
        event=event,
        beside=True,
    )
    return build.task(
        "cudaDeviceSynchronize",
        3 * rank,
        TaskKind.HOST_CALL,
        TaskClass.HOST,
        0.0,
        (returning, Dep.THREAD_ORDER, 0.0),
        event=event,
    )


def _evaluate(build, lag_ns):
    """Start of each task, and the dependency that bound it; by the definition, one by one."""
    by_target = [[] for _ in build.tasks]
    for index, dependency in enumerate(build.dependencies):
        by_target[dependency[1]].append((index, dependency))
    start = [0] * len(build.tasks)
    binding = [-1] * len(build.tasks)
    for task, incoming in enumerate(by_target):
        release = build.tasks[task][6]
        start[task] = -(10**9) if release is None else round(release * 1e3)
        for index, (source, _, _, _) in incoming:
            met = start[source] + build.tasks[source][4] + lag_ns[index]
            if met > start[task]:
                start[task], binding[task] = met, index
    return np.array(start), np.array(binding, np.int32)


def assemble(build, ranks, marks, noise=0.0, random=None) -> Replay:
    """A replay of what was built; `marks` are (step, first task, last task) of each rank."""
    random = random or np.random.default_rng(0)
    names = sorted({task[0] for task in build.tasks})
    column = lambda i, dtype: np.array([task[i] for task in build.tasks], dtype)  # noqa: E731
    edges = np.array(build.dependencies, np.int64).reshape(-1, 4)
    duration = column(4, np.int64)
    # What a replay does not know is the latency of each launch: it uses one for all.
    noisy = np.rint(edges[:, 2] * random.lognormal(0.0, noise, len(edges))).astype(np.int64)
    measured, _ = _evaluate(build, noisy.tolist())
    replayed, binding = _evaluate(build, edges[:, 2].tolist())
    measured_end, replayed_end = measured + duration, replayed + duration
    release = np.array([MISSING if t[6] is None else round(t[6] * 1e3) for t in build.tasks])
    steps = tuple(
        Step(f"ProfilerStep#{step}", rank, b, e, int(measured[b]), int(measured_end[e]))
        for rank in range(ranks)
        for step, b, e in marks[rank]
    )
    graph = ExecutionGraph(
        ranks=tuple(range(ranks)),
        names=tuple(names),
        lanes=tuple(
            lane
            for rank in range(ranks)
            for lane in (
                GraphLane(rank, f"thread {4000 + rank} (python)", -1, -1),
                GraphLane(rank, f"GPU {rank} stream 7", rank, 7),
                GraphLane(rank, f"GPU {rank} stream 20", rank, 20),
            )
        ),
        name=np.array([names.index(task[0]) for task in build.tasks], np.int32),
        lane=column(1, np.int32),
        kind=column(2, np.int8),
        task_class=column(3, np.int8),
        trace=(column(1, np.int32) // 3).astype(np.int32),
        event=column(5, np.int32),
        start_ns=measured,
        end_ns=measured_end,
        duration_ns=duration,
        release_ns=release,
        order=column(7, np.int64),
        source=edges[:, 0].astype(np.int32),
        target=edges[:, 1].astype(np.int32),
        lag_ns=edges[:, 2],
        unexplained_ns=np.zeros(len(edges), np.int64),
        from_start=np.zeros(len(edges), bool),
        dependency=edges[:, 3].astype(np.int8),
        step=np.full(len(duration), -1, np.int32),
        arrival=np.full(len(duration), -1, np.int32),
        sm_share=np.full(len(duration), np.nan, np.float32),
        clocks=(),
        steps=steps,
        notes=(),
    )
    return _summarised(graph, measured, measured_end, replayed, replayed_end, binding)


def _summarised(graph, measured, measured_end, replayed, replayed_end, binding):
    comparisons = tuple(
        TimeComparison(
            name,
            float(np.mean([s.end_ns - s.begin_ns for s in graph.steps if s.name == name])) / 1e3,
            float(
                np.mean(
                    [
                        replayed_end[s.end_task] - replayed[s.begin_task]
                        for s in graph.steps
                        if s.name == name
                    ]
                )
            )
            / 1e3,
        )
        for name in dict.fromkeys(step.name for step in graph.steps)
    )
    error = np.abs(replayed - measured) / 1e3
    total = comparisons[0].measured_us
    before = Breakdown(0.5 * total, 0.1 * total, 0.15 * total, 0.05 * total, 0.2 * total, total)
    after = Breakdown(0.52 * total, 0.1 * total, 0.14 * total, 0.05 * total, 0.19 * total, total)
    span = lambda start, end: float(end.max() - start.min()) / 1e3  # noqa: E731
    window = TimeComparison("window", span(measured, measured_end), span(replayed, replayed_end))
    return Replay(
        graph=graph,
        measured=Timeline(measured / 1e3, measured_end / 1e3),
        replayed=Timeline(replayed / 1e3, replayed_end / 1e3),
        binding=binding,
        ranks=tuple(
            RankSummary(
                rank,
                (f"rank{rank}.pt.trace.json.gz",),
                "NVIDIA H100 80GB HBM3",
                3 * graph.tasks,
                int(np.sum(graph.kind >= TaskKind.KERNEL)) // len(graph.ranks),
                RankClock(rank, 12.5 * rank if rank else float("nan"), 1.0, 0.0),
            )
            for rank in graph.ranks
        ),
        window=window,
        steps=comparisons,
        mean_abs_error_percent=float(np.mean([abs(s.error_percent) for s in comparisons])),
        task_start_error_median_us=float(np.median(error)),
        task_start_error_p95_us=float(np.percentile(error, 95)),
        breakdown_measured=before,
        breakdown_replayed=after,
        step_breakdowns=tuple(StepBreakdown(s.rank, s.name, before, after) for s in graph.steps),
        rank_breakdowns=tuple((rank, before, after) for rank in graph.ranks),
        critical_path_us={
            "host": 0.08 * window.replayed_us,
            "gemm": 0.61 * window.replayed_us,
            "normalization": 0.07 * window.replayed_us,
            "communication": 0.24 * window.replayed_us,
            "embedding": 0.0,
        },
        hold_out=HoldOut(comparisons, 0.8123456),
        notes=(
            Note("event-waits-inferred", "This profiler wrote no event waits: 16 inferred.", "r0"),
            Note("event-waits-inferred", "This profiler wrote no event waits: 12 inferred.", "r1"),
            Note("clock-aligned", "Clocks differ by <b>12.5</b> us.", None),
        ),
    )
