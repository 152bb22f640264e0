"""Contention: a kernel takes longer while its device communicates.

While a collective runs, a kernel of class c progresses at `1 - slowdown_c` of its own speed: it
shares memory bandwidth and multiprocessors. So

    duration = duration alone + slowdown * time overlapped with communication

The slowdown is fitted from the same kernel seen alone and overlapped, within one trace.
"""

from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from jaxperf.graph import COMPUTE_CLASSES, ExecutionGraph, TaskClass, TaskKind
from jaxperf.replay._breakdown import communication_overlap_us
from jaxperf.replay._types import Timeline

# A slowdown is believed where it is this many standard errors from nothing, and worth a mention,
# over so many kernels that were seen both ways, of so many names and shapes.
_SIGNIFICANT = 3.0
_LEAST = 0.02
_FEW = 20
_FEW_GROUPS = 3
# What varies by more of its length while it is alone is not one kernel, whatever its name.
_ALIKE = 0.15
# Share of its own time beside communication, below which a kernel is alone, above which it is not.
_ALONE, _BESIDE = 0.05, 0.5
# A kernel stops for communication, never quite.
_MOST = 0.9
# Durations and overlaps settle by a factor of the slowdown in each round; until none moves by more.
_SETTLED = 1e-4
_ROUNDS = 50


@dataclass(frozen=True, slots=True)
class ClassSlowdown:
    """What a trace tells of one class of kernels.

    Attributes:
        task_class: the class.
        slowdown: share of its speed that a kernel loses while its device communicates.
        standard_error: of the slowdown.
        kernels: how many were seen, of those seen both alone and overlapped.
    """

    task_class: TaskClass
    slowdown: float
    standard_error: float
    kernels: int


@dataclass(frozen=True, eq=False)
class Contention:
    """Which kernels slow down while their rank communicates, and by how much.

    Attributes:
        classes: the slowdowns that were found, by class.
        kernel: (k,) int32, tasks that slow down, rank after rank.
        slowdown: (k,) float64.
        begin, end: (c,) int32, tasks at whose start and end communication begins and ends.
        kernel_bounds, communication_bounds: where each rank's begin in these; static.
    """

    classes: tuple[ClassSlowdown, ...]
    kernel: np.ndarray
    slowdown: np.ndarray
    begin: np.ndarray
    end: np.ndarray
    kernel_bounds: tuple[int, ...]
    communication_bounds: tuple[int, ...]


jax.tree_util.register_dataclass(
    Contention,
    ["kernel", "slowdown", "begin", "end"],
    ["classes", "kernel_bounds", "communication_bounds"],
)


def fit_contention(
    graph: ExecutionGraph, measured: Timeline, shapes: np.ndarray
) -> Contention | None:
    """The slowdown of each class of kernels, from kernels seen both alone and overlapped.

    Duration against overlapped time, by least squares with a level of its own for each name, shape
    and rank, trimmed once of what is far off. Names and shapes that disagree make the error large.

    Args:
        graph: the execution graph.
        measured: when its tasks started and ended.
        shapes: (tasks,) int64, equal for tasks of the same shape.

    Returns:
        The contention; `None` where no class is seen to slow down.
    """
    computes = (graph.kind == TaskKind.KERNEL) & np.isin(graph.task_class, list(COMPUTE_CLASSES))
    every = _select(graph, computes, ())
    if not len(every.kernel) or not len(every.begin):
        return None
    overlap = communication_overlap_us(graph, measured)
    duration = measured.end_us - measured.start_us
    key = _numbered(graph.name, shapes)
    found = []
    for kind in np.unique(graph.task_class[every.kernel]).tolist():
        tasks = every.kernel[graph.task_class[every.kernel] == kind]
        fit = _slowdown(duration[tasks], overlap[tasks], key[tasks], graph.trace[tasks])
        if fit and fit[0] > max(_SIGNIFICANT * fit[1], _LEAST):
            found.append(ClassSlowdown(TaskClass(kind), *fit))
    if not found:
        return None
    slow = np.isin(graph.task_class, [each.task_class for each in found])
    return _select(graph, computes & slow, tuple(found))


def overlapped_us(contention: Contention, start_us: Array, end_us: Array) -> Array:
    """How long each of the kernels runs at the same time as communication of its rank.

    Args:
        contention: which kernels, and what communicates.
        start_us, end_us: (tasks,) of a timeline.

    Returns:
        (k,) overlapped time of each kernel.
    """
    parts = []
    kernels, messages = contention.kernel_bounds, contention.communication_bounds
    for rank in range(len(kernels) - 1):
        kernel = contention.kernel[kernels[rank] : kernels[rank + 1]]
        which = slice(messages[rank], messages[rank + 1])
        begin, end = start_us[contention.begin[which]], end_us[contention.end[which]]
        if not len(begin):
            parts.append(jnp.zeros(len(kernel), start_us.dtype))
            continue
        order = jnp.argsort(begin)
        begin, end = begin[order], end[order]
        until = jax.lax.cummax(end)
        before = jnp.append(begin[:1], until[:-1])
        covered = jnp.cumsum(jnp.maximum(until - jnp.maximum(begin, before), 0))

        def elapsed(time, begin=begin, until=until, covered=covered):
            """Communication before a moment: of all begun so far, less what reaches beyond."""
            last = jnp.searchsorted(begin, time, side="right") - 1
            beyond = jnp.maximum(until[last] - time, 0)
            return jnp.where(last >= 0, covered[last] - beyond, 0)

        parts.append(elapsed(end_us[kernel]) - elapsed(start_us[kernel]))
    return jnp.concatenate(parts)


def contended_durations_us(
    contention: Contention, start_times, alone_us: Array, first_us: Array
) -> Array:
    """Durations under contention, for durations alone: the fixed point of overlap and duration.

    Args:
        contention: of `fit_contention`.
        start_times: from (tasks, scenarios) durations to start times of the same shape.
        alone_us: (tasks, scenarios) durations without communication beside them.
        first_us: (tasks, scenarios) where to start from, best near the answer.

    Returns:
        (tasks, scenarios) durations.
    """
    overlapped = jax.vmap(lambda s, e: overlapped_us(contention, s, e), (1, 1), 1)
    slowdown = jnp.asarray(contention.slowdown, alone_us.dtype)[:, None]

    def again(state):
        _, duration, round = state
        start = start_times(duration)
        slower = slowdown * overlapped(start, start + duration)
        changed = alone_us.at[contention.kernel].add(slower)
        return jnp.max(jnp.abs(changed - duration) / (duration + 1.0)), changed, round + 1

    def unsettled(state):
        moved, _, round = state
        return (moved > _SETTLED) & (round < _ROUNDS)

    state = jnp.full((), jnp.inf, alone_us.dtype), first_us, 0
    return jax.lax.while_loop(unsettled, again, state)[1]


def _select(graph: ExecutionGraph, kernels: np.ndarray, classes) -> Contention:
    """The contention of the given kernels, still without slowdowns where no class has one."""
    on_device = (graph.kind >= TaskKind.KERNEL) & (graph.kind <= TaskKind.COLLECTIVE)
    communicates = on_device & (graph.task_class == TaskClass.COMMUNICATION)
    kernel, message = (_by_rank(graph, mask) for mask in (kernels, communicates))
    slowdown = np.zeros(len(TaskClass))
    for each in classes:
        slowdown[each.task_class] = each.slowdown
    begin = np.where(graph.arrival[message] >= 0, graph.arrival[message], message)
    return Contention(
        classes=classes,
        kernel=kernel.astype(np.int32),
        slowdown=slowdown[graph.task_class[kernel]],
        begin=begin.astype(np.int32),
        end=message.astype(np.int32),
        kernel_bounds=_bounds(graph, kernel),
        communication_bounds=_bounds(graph, message),
    )


def _by_rank(graph: ExecutionGraph, mask: np.ndarray) -> np.ndarray:
    tasks = np.flatnonzero(mask)
    return tasks[np.argsort(graph.trace[tasks], kind="stable")]


def _bounds(graph: ExecutionGraph, tasks: np.ndarray) -> tuple[int, ...]:
    return tuple(np.searchsorted(graph.trace[tasks], np.arange(len(graph.ranks) + 1)).tolist())


def _numbered(*columns: np.ndarray) -> np.ndarray:
    rows = np.stack([column.astype(np.int64) for column in columns], 1)
    return np.unique(rows, axis=0, return_inverse=True)[1].reshape(-1)


def _slowdown(
    duration: np.ndarray, overlap: np.ndarray, key: np.ndarray, rank: np.ndarray
) -> tuple[float, float, int] | None:
    """Slope of the duration over the overlap, its standard error, and the number of kernels."""
    # The share of its own time that a kernel is overlapped is no longer where it happened to run
    # longer, as the overlapped time is: it is the instrument.
    share = overlap / np.maximum(duration, 1e-9)
    group = _numbered(key, rank)
    both, level = _seen_both_ways(duration, share, group)
    if both.sum() < _FEW:
        return None
    # In units of the kernel's time alone, so that long kernels do not decide for all.
    share, key, group = share[both], key[both], group[both]
    x, y = overlap[both] / level[both], duration[both] / level[both]
    slope, _ = _slope(share, x, y, key, group)
    rest = y - slope * x
    rest = rest - _group_medians(rest, group)[group]
    near = np.abs(rest) <= 5.0 * max(1.4826 * float(np.median(np.abs(rest))), 0.01)
    if near.sum() < _FEW:
        return None
    slope, error = _slope(share[near], x[near], y[near], key[near], group[near])
    return min(slope, _MOST), error, int(near.sum())


def _seen_both_ways(
    duration: np.ndarray, share: np.ndarray, group: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Kernels of groups that were seen both ways and are alike alone; and their length alone."""
    alone = share < _ALONE
    level = _group_medians(np.where(alone, duration, np.nan), group)[group]
    off = np.abs(duration / level - 1.0)
    scatter = 1.4826 * _group_medians(np.where(alone, off, np.nan), group)[group]
    number = len(np.bincount(group))
    times = [np.bincount(group[which], minlength=number) for which in (alone, share > _BESIDE)]
    return (np.minimum(*times)[group] > 1) & (scatter < _ALIKE), level


def _group_medians(values: np.ndarray, group: np.ndarray) -> np.ndarray:
    known = np.flatnonzero(~np.isnan(values))
    order = known[np.lexsort((values[known], group[known]))]
    count = np.bincount(group[order], minlength=int(group.max()) + 1)
    middle = np.cumsum(count) - count + np.maximum(count - 1, 0) // 2
    result = np.full(len(count), np.nan)
    result[count > 0] = values[order[middle[count > 0]]]
    return result


def _slope(z, x, y, key, group) -> tuple[float, float]:
    """Slope of y over x, z the instrument, each group with its own level; and its error."""
    count = np.maximum(np.bincount(group), 1)
    z, x, y = (v - (np.bincount(group, v) / count)[group] for v in (z, x, y))
    _, key = np.unique(key, return_inverse=True)
    known, product = np.bincount(key, z * x), np.bincount(key, z * y)
    keys = int((known > 0).sum())
    if keys < _FEW_GROUPS:
        return 0.0, np.inf
    slope = float(product.sum() / known.sum())
    freedom = max(len(x) - int((np.bincount(group) > 0).sum()) - 1, 1)
    scatter = ((y - slope * x) ** 2).sum() / freedom * (z @ z)
    # Few names and shapes may agree by chance: the error is no less than that of the scatter.
    apart = ((product - slope * known) ** 2).sum() * keys / (keys - 1)
    return slope, float(np.sqrt(max(apart, scatter)) / known.sum())
