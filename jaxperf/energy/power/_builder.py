"""From a timeline and the work of its tasks to the tasks that power follows from."""

from collections.abc import Sequence

import numpy as np

from jaxperf.config import Hardware
from jaxperf.cost import (
    COLLECTIVE_OPERATIONS,
    PRECISIONS,
    Work,
    WorkKind,
    peak_sources,
    select_work,
)
from jaxperf.energy.power._tasks import PowerTasks
from jaxperf.graph import ExecutionGraph, TaskClass, TaskKind
from jaxperf.replay import Timeline, on_device_us

# Sharpness of the maximum of compute and memory time: as of the cost model's multiplies.
_SHARPNESS = 2.5

# Part of the time that is inverse to the clock where the work is not known: multiplies are mostly
# bound by the multiprocessors, streams by the memory, copies and messages by links. Assumptions.
_CLOCK_SHARE = {
    TaskClass.GEMM: 0.9,
    TaskClass.ATTENTION: 0.9,
    TaskClass.CONVOLUTION: 0.9,
    TaskClass.MOE: 0.5,
    TaskClass.OTHER: 0.5,
    TaskClass.NORMALIZATION: 0.1,
    TaskClass.ELEMENTWISE: 0.1,
    TaskClass.OPTIMIZER: 0.1,
    TaskClass.EMBEDDING: 0.1,
}


def power_tasks(
    graph: ExecutionGraph,
    timeline: Timeline,
    work: Work,
    hardware: Hardware,
    begin_us: float,
    end_us: float,
    ranks_alike: Sequence[float] | np.ndarray | None = None,
) -> PowerTasks:
    """The tasks on the accelerators of a run, and what each of them had to do.

    A collective lasts from the arrival of its rank: it draws power while it waits for the others.
    It moves what it sends, and reads and writes as much in the device's memory.

    Args:
        graph: the execution graph.
        timeline: when its tasks start and end.
        work: (tasks,) of `task_work`; rows are only needed of the tasks on accelerators.
        hardware: the machine that the times are of.
        begin_us, end_us: the span that power is asked of.
        ranks_alike: (ranks,) how many each rank stands for, itself included; 1 by default.

    Returns:
        The tasks, in the order of the graph.

    Example:
        >>> from jaxperf.config import load_hardware
        >>> from jaxperf.cost import unknown_work
        >>> hardware = load_hardware("h100")
        >>> tasks = power_tasks(graph, Timeline(*np.zeros((2, 3))), unknown_work(3), hardware, 0, 1)
        >>> len(tasks)
        0
    """
    task = np.flatnonzero((graph.kind >= TaskKind.KERNEL) & (graph.kind <= TaskKind.COLLECTIVE))
    start_us, end_of_task_us = on_device_us(graph, timeline, task)
    alike = np.ones(len(graph.ranks)) if ranks_alike is None else np.array(ranks_alike, float)
    return PowerTasks(
        ranks=graph.ranks,
        ranks_alike=alike,
        begin_us=float(begin_us),
        end_us=float(end_us),
        task=task.astype(np.int32),
        rank=graph.trace[task].astype(np.int32),
        task_class=graph.task_class[task].astype(np.int32),
        start_us=start_us,
        duration_us=end_of_task_us - start_us,
        **_drawing(
            select_work(work, task),
            graph.task_class[task],
            np.isin(graph.kind[task], (TaskKind.MEMCPY, TaskKind.MEMSET)),
            hardware,
        ),
    )


def tasks_of_work(work: Work, duration_us: np.ndarray, hardware: Hardware) -> PowerTasks:
    """Pieces of work as tasks of one accelerator, of which no time is known but how long they take.

    Args:
        work: of n pieces.
        duration_us: (n,).
        hardware: the machine that the times are of.

    Returns:
        The tasks, all of them from 0 on.

    Example:
        >>> from jaxperf.config import load_hardware
        >>> from jaxperf.cost import matmul_work
        >>> tasks = tasks_of_work(matmul_work(64, 64, 64), np.ones(1), load_hardware("h100"))
        >>> tasks.flops
        array([524288.])
    """
    count = len(duration_us)
    return PowerTasks(
        ranks=(0,),
        ranks_alike=np.ones(1),
        begin_us=0.0,
        end_us=float(np.max(duration_us, initial=0.0)),
        task=np.arange(count, dtype=np.int32),
        rank=np.zeros(count, np.int32),
        task_class=work.task_class.astype(np.int32),
        start_us=np.zeros(count),
        duration_us=duration_us,
        **_drawing(work, work.task_class, np.zeros(count, bool), hardware),
    )


def _drawing(
    work: Work, task_class: np.ndarray, copies: np.ndarray, hardware: Hardware
) -> dict[str, np.ndarray]:
    """What each of n tasks has to do; of `copies`, to or from the host, bytes are known, though not
    what bounds them."""
    computes = np.isin(work.kind, (WorkKind.MATMUL, WorkKind.ATTENTION))
    meets = work.kind == WorkKind.COLLECTIVE
    memory, flops = work.memory_bytes, work.flops
    node, network = sent_bytes(
        work.operation, work.message_bytes, work.ranks, work.stride, hardware.gpus_per_node
    )
    typed = work.precision >= 0
    is_known = np.select(
        [computes, meets],
        [np.isfinite(flops) & np.isfinite(memory) & typed, np.isfinite(node)],
        np.isfinite(memory) & ((work.kind == WorkKind.MEMORY) | copies),
    )
    flops = np.where(is_known & typed & np.isfinite(flops), flops, 0.0)
    node, network = (np.where(is_known & meets, sent, 0.0) for sent in (node, network))
    memory = np.where(is_known, np.where(meets, 2 * (node + network), memory), 0.0)
    precision = np.where(flops > 0, work.precision, 0).astype(np.int32)
    return {
        "is_known": is_known,
        "precision": precision,
        "flops": flops,
        "memory_bytes": memory,
        "node_bytes": node,
        "network_bytes": network,
        "clock_share": np.where(
            is_known,
            np.where(meets | copies, 0.0, _clock_share(hardware, precision, flops, memory)),
            _unknown_clock_share(task_class, copies),
        ),
    }


def sent_bytes(
    operation: np.ndarray,
    message_bytes: np.ndarray,
    ranks: np.ndarray,
    stride: np.ndarray,
    gpus_per_node: float,
) -> tuple[np.ndarray, np.ndarray]:
    """What a rank sends in a collective, the mean over its ranks.

    Of n ranks: 2 (n - 1) / n of the message in an all-reduce, (n - 1) / n in an all-gather,
    reduce-scatter, all-to-all or broadcast around a ring, and all of it in a send and receive, of
    which traces do not tell the direction. Of the k ranks of a node one sends the ring's part to
    the next node; what is sent to peers directly goes where they are.

    Args:
        operation: (n,) index into `COLLECTIVE_OPERATIONS`, -1 for none.
        message_bytes, ranks, stride: (n,) see `Work`.
        gpus_per_node: of the machine.

    Returns:
        (n,) bytes inside the node, and (n,) beyond it; NaN where something of it is unknown.

    Example:
        >>> one = np.ones(1)
        >>> sent_bytes(np.array([0]), 8e6 * one, 16 * one, one, 8)
        (array([13125000.]), array([1875000.]))
    """
    known = (operation >= 0) & (message_bytes >= 0) & (ranks >= 1) & ((stride > 0) | (ranks == 1))
    size, members = np.where(known, message_bytes, 0.0), np.where(known, ranks, 1.0)
    local = np.clip(gpus_per_node / np.where(known & (members > 1), stride, 1.0), 1.0, members)
    # The tolerance keeps a full node from being counted as two.
    nodes = np.ceil(members / local - 1e-3)
    local = members / nodes
    name = np.array(COLLECTIVE_OPERATIONS)[np.maximum(operation, 0)]
    others = np.maximum(members - 1, 1.0)
    ring = np.where(name == "all_reduce", 2.0, 1.0) * (members - 1) / members
    sent = size * np.where((name == "send_receive") & (members > 1), 1.0, ring)
    direct = np.isin(name, ("send_receive", "all_to_all"))
    beyond = np.where(direct, (members - local) / others, np.where(nodes > 1, 1 / local, 0.0))
    unknown = np.where(known, 0.0, np.nan)
    return sent * (1.0 - beyond) + unknown, sent * beyond + unknown


def _clock_share(
    hardware: Hardware, precision: np.ndarray, flops: np.ndarray, memory_bytes: np.ndarray
) -> np.ndarray:
    """(n,) t_c^p / (t_c^p + t_m^p), of the times of computation and memory at their peaks.

    That is the derivative of the logarithm of (t_c^p + t_m^p)^(1/p) by that of t_c, which is
    inverse to the clock. In closed form, for latencies and waves of the cost model, which
    `jax.grad` of it would count as bound by neither, follow the clock too.
    """
    peaks = np.array([hardware.peak_flops_per_s[name] for name in peak_sources(hardware)])
    assert len(peaks) == len(PRECISIONS)
    compute_s = flops / peaks[precision]
    memory_s = memory_bytes / hardware.memory_bytes_per_s
    longer = np.maximum(compute_s, memory_s)
    scale = np.where(longer > 0, longer, 1.0)
    compute, memory = (compute_s / scale) ** _SHARPNESS, (memory_s / scale) ** _SHARPNESS
    return compute / np.where(longer > 0, compute + memory, 1.0)


def _unknown_clock_share(task_class: np.ndarray, copies: np.ndarray) -> np.ndarray:
    by_class = np.array([_CLOCK_SHARE.get(each, 0.0) for each in TaskClass])
    return np.where(copies, 0.0, by_class[task_class])
