"""Small runs for the tests of clocks: a graph, and what its tasks have to do."""

from dataclasses import replace

import numpy as np

from jaxperf.cost import PRECISIONS
from jaxperf.energy.power._model import PowerModel
from jaxperf.energy.power._tasks import PowerTasks
from jaxperf.graph import ExecutionGraph, TaskClass
from tests.helpers import make_graph

NOMINAL_HZ, LOWEST_HZ = 1980e6, 345e6
FLOP_J = 0.8e-12
BF16 = PRECISIONS.index("bf16")
MODEL = PowerModel(
    constant_w=np.float64(62.0),
    leakage_w=np.float64(25.0),
    clock_w=np.float64(30.0),
    minimum_voltage=np.float64(0.7),
    voltage_slope=np.float64(0.75),
    nominal_clock_hz=np.float64(NOMINAL_HZ),
    flop_j=np.full(len(PRECISIONS), FLOP_J),
    memory_byte_j=np.float64(31e-12),
    node_byte_j=np.float64(16e-12),
    network_byte_j=np.float64(80e-12),
    class_w=np.zeros(len(TaskClass)),
    unknown_w=np.full(len(TaskClass), 250.0),
)
"""Static power of 117 W at the nominal clock, of 86.85 W at half of it."""


def chains_graph(durations_us: list[list[float]]) -> ExecutionGraph:
    """A lane of kernels for each rank, and a last task that waits for all of them."""
    edges, lane, duration, release = [], [], [], {}
    for rank, chain in enumerate(durations_us):
        for k, each in enumerate(chain):
            task = len(duration)
            if k:
                edges.append((task - 1, task))
            else:
                release[task] = 0
            lane.append(rank)
            duration.append(round(1e3 * each))
    ends = np.cumsum([len(chain) for chain in durations_us]) - 1
    edges += [(int(end), len(duration)) for end in ends]
    graph = make_graph([*duration, 0], edges, release_ns=release, lane=[*lane, len(durations_us)])
    return replace(graph, task_class=np.full(graph.tasks, TaskClass.GEMM, np.int8))


def power_tasks(
    graph: ExecutionGraph,
    rank: np.ndarray | list[int],
    start_us: np.ndarray | list[float],
    *,
    end_us: float,
    clock_share: np.ndarray | float = 1.0,
    busy_w: np.ndarray | float = 400.0,
) -> PowerTasks:
    """The first tasks of a graph as kernels of so much power on top of static power."""
    n = len(rank)
    duration_us = graph.duration_ns[:n] / 1e3
    flops = np.broadcast_to(busy_w, n) * duration_us * 1e-6 / FLOP_J
    ranks = int(np.max(rank)) + 1
    return PowerTasks(
        ranks=tuple(range(ranks)),
        ranks_alike=np.ones(ranks),
        begin_us=0.0,
        end_us=float(end_us),
        task=np.arange(n, dtype=np.int32),
        rank=np.asarray(rank, np.int32),
        task_class=np.full(n, TaskClass.GEMM, np.int32),
        start_us=np.asarray(start_us, np.float64),
        duration_us=duration_us,
        is_known=np.ones(n, bool),
        precision=np.full(n, BF16, np.int32),
        flops=flops,
        memory_bytes=np.zeros(n),
        node_bytes=np.zeros(n),
        network_bytes=np.zeros(n),
        clock_share=np.broadcast_to(np.asarray(clock_share, np.float64), n).copy(),
    )
