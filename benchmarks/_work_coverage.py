"""How much of the device's time has known work, and whether the formulas can be right.

    python benchmarks/_work_coverage.py [SET]...

One rank of each set. A multiply faster than its device's peak, or a kernel that moves more than its
memory can, shows a formula that counts too much, unless an algorithm or a cache explains it.
"""

import sys
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from _tables import markdown, number, sets

from jaxperf.config import hardware_of_device
from jaxperf.cost._work import PRECISIONS, Work, WorkKind
from jaxperf.cost._work_of_tasks import known_work, task_work
from jaxperf.errors import GraphError
from jaxperf.graph import ExecutionGraph, TaskClass, TaskKind, build_graph
from jaxperf.trace import Category, Run, Trace, read_run

SHARED = Path(__file__).resolve().parents[2] / "shared"
# Stamps of shorter kernels are too coarse for a rate.
SHORTEST_NS = 5_000

CAUSES = (
    ("winograd", "Winograd's algorithm multiplies less"),
    ("vectorized_gather", "an expanded index is read once"),
    ("triton", "a part of a tensor is read, of which the whole is counted"),
)


@dataclass(frozen=True)
class Coverage:
    """Of one trace: time and known time per class, and what is too fast to be right.

    Attributes:
        device: its name.
        shapes: operators with shapes.
        time_ns, known_ns: by class.
        too_fast: (what, kernel, share of the device's time, times the peak, cause).
    """

    device: str
    shapes: int
    time_ns: dict[TaskClass, int]
    known_ns: dict[TaskClass, int]
    too_fast: list[tuple[str, str, float, float, str]]


def coverage(trace: Trace) -> Coverage:
    """What is known of the work of one rank."""
    run = Run((trace,), (), ())
    graph = build_graph(run)
    work = task_work(graph, run)
    on_device = (graph.kind >= TaskKind.KERNEL) & (graph.kind != TaskKind.ARRIVAL)
    time_ns = np.where(on_device & (graph.event >= 0), trace.duration_ns[graph.event], 0)
    known = known_work(work)
    spent, told = {}, {}
    for value in np.unique(graph.task_class[on_device]).tolist():
        mine = on_device & (graph.task_class == value)
        spent[TaskClass(value)] = int(time_ns[mine].sum())
        told[TaskClass(value)] = int(time_ns[mine & known].sum())
    operators = (trace.category == Category.CPU_OP) & (trace.shape >= 0)
    device = trace.device_name or "-"
    return Coverage(
        device, int(operators.sum()), spent, told, list(too_fast(graph, work, time_ns, device))
    )


def too_fast(
    graph: ExecutionGraph, work: Work, time_ns: np.ndarray, device: str
) -> Iterator[tuple[str, str, float, float, str]]:
    """Kernels above the peak of their device, by name."""
    hardware = hardware_of_device(device)
    if hardware is None:
        return
    peak = np.array([hardware.peak_flops_per_s.get(p, np.nan) for p in PRECISIONS] + [np.nan])
    long = time_ns >= SHORTEST_NS
    seconds = np.where(long, time_ns, 1) * 1e-9
    streams = np.isin(work.kind, [WorkKind.MATMUL, WorkKind.ATTENTION, WorkKind.MEMORY])
    ratios = {
        "flops": work.flops / seconds / peak[work.precision],
        "bytes": np.where(streams, work.memory_bytes, np.nan)
        / seconds
        / hardware.memory_bytes_per_s,
    }
    for what, ratio in ratios.items():
        by_name: dict[str, list[int]] = defaultdict(list)
        for task in np.flatnonzero(long & (ratio > 1)).tolist():
            by_name[graph.names[graph.name[task]]].append(task)
        for name, tasks in by_name.items():
            share = time_ns[tasks].sum() / time_ns.sum()
            size = float(np.median(work.memory_bytes[tasks]))
            yield (
                what,
                name,
                float(share),
                float(ratio[tasks].max()),
                cause(name, size, hardware.l2_bytes),
            )


def cause(name: str, size_bytes: float, cache_bytes: float | None) -> str:
    """What may explain it."""
    for word, text in CAUSES:
        if word in name.lower():
            return text
    if cache_bytes is not None and size_bytes <= 4 * cache_bytes:
        return "the last-level cache holds operands"
    return "-"


def main() -> None:
    wanted = sys.argv[1:]
    rows, fast = [], []
    total: dict[TaskClass, list[int]] = defaultdict(lambda: [0, 0])
    for name, paths in sets(SHARED).items():
        if wanted and name not in wanted:
            continue
        trace = read_run(paths).traces[0]
        try:
            found = coverage(trace)
        except GraphError:
            continue
        all_ns = sum(found.time_ns.values())
        if not all_ns:
            continue
        row = [name, found.device, found.shapes]
        row.append(number(100 * sum(found.known_ns.values()) / all_ns, 0))
        for kind in CLASSES:
            spent, told = found.time_ns.get(kind, 0), found.known_ns.get(kind, 0)
            row.append(number(100 * told / spent, 0) if spent else "-")
            if found.shapes:
                total[kind][0] += spent
                total[kind][1] += told
        rows.append(row)
        fast += [(name, what, kernel[:60], f"{100 * share:.2f}", f"{times:.2f}", why)
                 for what, kernel, share, times, why in found.too_fast]  # fmt: skip
    heads = [kind.name.lower()[:6] for kind in CLASSES]
    print(markdown(["set", "device", "with shapes", "known %", *heads], rows))
    print("\nOf traces with shapes, known % of the time of each class:")
    for kind, (spent, told) in total.items():
        print(f"  {kind.name.lower():14} {100 * told / spent if spent else 0:5.1f}")
    print()
    print(markdown(["set", "what", "kernel", "% of time", "x peak", "cause"], fast))


CLASSES = (
    TaskClass.GEMM,
    TaskClass.ATTENTION,
    TaskClass.CONVOLUTION,
    TaskClass.NORMALIZATION,
    TaskClass.ELEMENTWISE,
    TaskClass.EMBEDDING,
    TaskClass.OPTIMIZER,
    TaskClass.MOE,
    TaskClass.MEMCPY,
    TaskClass.COMMUNICATION,
    TaskClass.OTHER,
)

if __name__ == "__main__":
    main()
