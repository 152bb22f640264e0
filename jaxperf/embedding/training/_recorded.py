"""The tasks of a recorded run that have to do with its embedding tables."""

import enum
import re
from dataclasses import dataclass

import numpy as np

from jaxperf.embedding.training._device_steps import (
    counted_steps,
    device_breakdown,
    device_step_us,
)
from jaxperf.errors import ConfigError
from jaxperf.graph import ExecutionGraph, TaskClass, TaskKind, calls_by_correlation
from jaxperf.replay import Timeline
from jaxperf.trace import Category, Run, Trace, call_tree


class EmbeddingRole(enum.IntEnum):
    """What a task does for tables that are spread over ranks."""

    NONE = 0
    LOOKUP = 1
    UPDATE = 2  # backward lookups, what sorts for them, and the optimizer of the rows
    ALL_TO_ALL = 3  # of indices, pooled rows and their gradients


_AROUND = (Category.CPU_OP, Category.ANNOTATION, Category.RUNTIME, Category.DRIVER)
# Operators and kernels of FBGEMM and PyTorch; the first that is found decides. Tables of which
# every rank has a copy (FBGEMM's `dense`) are a part of the dense model.
_NAMES = (
    (
        EmbeddingRole.NONE,
        r"dense_embedding_codegen|SplitLookupFunction_Dense|backward_codegen_dense",
    ),
    (
        EmbeddingRole.UPDATE,
        r"SplitLookupFunction|embedding_(codegen_)?backward|embedding_dense_backward|bag_backward"
        r"|Embedding(Bag)?Backward|EmbeddingBag_acc|compute_grad_weight",
    ),
    (
        EmbeddingRole.LOOKUP,
        r"embedding_codegen_(forward|lookup)|aten::_?embedding(_bag)?(_forward_only)?$"
        r"|EmbeddingBag_updateOutput",
    ),
)
_ALL_TO_ALL = r"SendRecv|all_?to_?all"
_FIXED = 0.1


@dataclass(frozen=True, eq=False)
class RecordedEmbeddings:
    """Which tasks of a recorded run are the embedding tables'.

    Attributes:
        role: (tasks,) int8, an `EmbeddingRole`.
        fixed_us: what an all-to-all takes whatever it sends: that of one all-to-all in ten is less.
    """

    role: np.ndarray
    fixed_us: float


@dataclass(frozen=True, slots=True)
class RecordedStep:
    """What the device work of a steady step adds up to, the mean over ranks; microseconds.

    Streams run side by side, so that the parts may add up to more than the step.

    Attributes:
        step_us: the step, of host and device (see `EmbeddingAnswer`).
        lookup_us, update_us, all_to_all_us: of the tables; without waiting for other ranks.
        other_communication_us: all other messages, without waiting.
        dense_us: all other kernels.
        copies_us: copies and sets.
        waiting_us: of messages for other ranks.
        idle_us: nothing runs on the device.
    """

    step_us: float
    lookup_us: float
    update_us: float
    all_to_all_us: float
    other_communication_us: float
    dense_us: float
    copies_us: float
    waiting_us: float
    idle_us: float


def find_embeddings(graph: ExecutionGraph, run: Run) -> RecordedEmbeddings:
    """Find the tasks of embedding tables, by the operators that launched them and by their names.

    Args:
        graph: of `build_graph`.
        run: the traces that it was built from.

    Returns:
        The tasks.

    Raises:
        ConfigError: there is no lookup of a table that is spread over ranks.

    Example:
        >>> find_embeddings(graph, run).role  # doctest: +SKIP
        array([0, 0, 1, 3], dtype=int8)
    """
    role = np.zeros(graph.tasks, np.int8)
    by_name = _roles_of_names(graph.names)[graph.name]
    device = (graph.kind >= TaskKind.KERNEL) & (graph.kind <= TaskKind.COLLECTIVE)
    for index, trace in enumerate(run.traces):
        tasks = np.flatnonzero(device & (graph.trace == index) & (graph.event >= 0))
        found = _roles_of_launches(trace, graph.event[tasks])
        role[tasks] = np.where(found >= 0, found, np.maximum(by_name[tasks], 0))
    sends = np.array([bool(re.search(_ALL_TO_ALL, name, re.I)) for name in graph.names], bool)
    collective = graph.kind == TaskKind.COLLECTIVE
    role[collective] = np.where(sends[graph.name[collective]], EmbeddingRole.ALL_TO_ALL, 0)
    if not (role == EmbeddingRole.LOOKUP).any():
        raise ConfigError(
            "no lookup of an embedding table",
            where=", ".join(run.traces[0].files),
            expected="kernels of FBGEMM's split tables or of an embedding bag",
        )
    all_to_all_us = graph.duration_ns[role == EmbeddingRole.ALL_TO_ALL] / 1e3
    fixed_us = float(np.quantile(all_to_all_us, _FIXED)) if len(all_to_all_us) else 0.0
    return RecordedEmbeddings(role, fixed_us)


def recorded_step(
    graph: ExecutionGraph, recorded: RecordedEmbeddings, timeline: Timeline
) -> RecordedStep:
    """What a steady step of a run is made of.

    Args:
        graph: the execution graph.
        recorded: of `find_embeddings`.
        timeline: when its tasks start and end.

    Returns:
        The sums.
    """
    counted = counted_steps(graph)
    # Work of no iteration, whose step is -1, counts where there are none at all.
    weight = np.append(counted / max(counted.sum(), 1), 0.0 if len(counted) else 1.0)[graph.step]
    if not len(counted):
        weight = weight / len(graph.ranks)
    spent_us = weight * (timeline.end_us - timeline.start_us)
    waits = graph.arrival >= 0
    waiting_us = timeline.start_us[waits] - timeline.start_us[graph.arrival[waits]]
    device = (graph.kind >= TaskKind.KERNEL) & (graph.kind <= TaskKind.COLLECTIVE)
    communicates = graph.task_class == TaskClass.COMMUNICATION
    copies = graph.task_class == TaskClass.MEMCPY
    role = recorded.role
    return RecordedStep(
        step_us=device_step_us(graph, timeline),
        lookup_us=float(spent_us[role == EmbeddingRole.LOOKUP].sum()),
        update_us=float(spent_us[role == EmbeddingRole.UPDATE].sum()),
        all_to_all_us=float(spent_us[role == EmbeddingRole.ALL_TO_ALL].sum()),
        other_communication_us=float(
            spent_us[device & communicates & (role != EmbeddingRole.ALL_TO_ALL)].sum()
        ),
        dense_us=float(spent_us[device & ~communicates & ~copies & (role == 0)].sum()),
        copies_us=float(spent_us[device & copies & (role == 0)].sum()),
        waiting_us=float((weight[waits] * waiting_us).sum()),
        idle_us=device_breakdown(graph, timeline).idle_us,
    )


def _roles_of_names(names: tuple[str, ...]) -> np.ndarray:
    """(names,) the role that each tells of, -1 where it tells of none."""
    role = np.full(len(names), -1, np.int8)
    for index, name in enumerate(names):
        told = (each for each, pattern in _NAMES if re.search(pattern, name))
        role[index] = next(told, -1)
    return role


def _roles_of_launches(trace: Trace, rows: np.ndarray) -> np.ndarray:
    """(rows,) the role by the innermost event around the launch that tells one, -1 for none."""
    tree = call_tree(trace, _AROUND)
    role_of_event = _roles_of_names(trace.names)[trace.name]
    at = calls_by_correlation(trace, trace.correlation[rows])
    climbing = np.flatnonzero(at >= 0)
    while len(climbing):
        at[climbing] = tree.parent[at[climbing]]
        climbing = climbing[at[climbing] >= 0]
        climbing = climbing[role_of_event[at[climbing]] < 0]
    return np.where(at >= 0, role_of_event[at], -1)
