"""The rank that holds the others up, and by what: its kernels, its host, or its link.

A rank is compared with its peers, the ranks that do the same work. What it takes longer than their
median is taken away, and the run is replayed without it: a rank stands out where that makes the
step clearly shorter. So nobody is accused of slowness that costs nothing, and a stage of a pipeline
is not measured against stages that have other work.
"""

from dataclasses import dataclass

import numpy as np

from jaxperf.compiled import compile_program
from jaxperf.critical_path._meetings import Meetings
from jaxperf.critical_path._slow_links import slow_links
from jaxperf.graph import COMPUTE_CLASSES, DependencyKind, ExecutionGraph, TaskKind

CAUSES = ("kernels", "host", "link")
_KERNELS, _HOST, _LINK = range(3)

# A rank stands out where the step would be shorter by this part of itself: devices of one kind
# differ by one or two percent, and hosts scatter as much.
_STANDS_OUT = 0.03
_LIKELIEST = 4
"""So many ranks are tried for each cause, those that take longest compared with their peers."""

# Ranks that launch nearly the same kernels do the same work. Stages of a pipeline differ in a few
# kernels of hundreds, an embedding or a loss, so with sends between stages they have to be equal.
_ALIKE = 0.9
_EQUAL = 0.999

_ON_HOST = (
    DependencyKind.THREAD_ORDER,
    DependencyKind.HAND_OVER,
    DependencyKind.LAUNCH,
    DependencyKind.HOST_SYNC,
    DependencyKind.QUEUE_FULL,
)


@dataclass(frozen=True, slots=True)
class Straggler:
    """The rank that the others wait for.

    Attributes:
        rank: the rank; `None` where the ranks of a slow link cannot be told apart.
        ranks: the rank, or those that cannot be told apart.
        cause: `kernels`: its computation takes longer; `host`: its host does, and its device or the
            others wait for it; `link`: copies to and from its host, or what it exchanges with other
            ranks.
        excess_us: what it takes longer than its peers, per step.
        gain_us: by how much the step would be shorter without.
        own_us: what the cause takes on this rank, per step.
        peers_us: the median of its peers.
        peers: the ranks it was compared with.
        names: what takes longer, the most first: name, and microseconds per step; empty for links.
    """

    rank: int | None
    ranks: tuple[int, ...]
    cause: str
    excess_us: float
    gain_us: float
    own_us: float
    peers_us: float
    peers: tuple[int, ...]
    names: tuple[tuple[str, float], ...]


@dataclass(frozen=True, eq=False)
class _Work:
    """What is looked at: steps by name, of each task, and what each rank spends in them.

    Attributes:
        step: (tasks,) int64, index of the task's step among those looked at; -1 for none.
        lag_step: (dependencies,) int64, the same, of the task that waits.
        cause, lag_cause: (tasks,), (dependencies,) int8, index into `CAUSES`; -1 for none.
        names: of the steps, by index.
        own_us: (ranks, steps, causes) float64.
    """

    step: np.ndarray
    lag_step: np.ndarray
    cause: np.ndarray
    lag_cause: np.ndarray
    names: tuple[str | None, ...]
    own_us: np.ndarray


@dataclass(frozen=True, eq=False)
class _Suspect:
    """A rank and a cause, and what makes it as quick as its peers.

    Attributes:
        rank: index of the rank.
        cause: index into `CAUSES`.
        peers: indices of the ranks it is compared with.
        own_us, peers_us: what the cause takes per step, here and there.
        factor: (steps,) of its own tasks and lags.
        transfer: (k,) tasks of all members of exchanges over its links.
        transfer_factor: (k,) of those.
    """

    rank: int
    cause: int
    peers: tuple[int, ...]
    own_us: float
    peers_us: float
    factor: np.ndarray
    transfer: np.ndarray
    transfer_factor: np.ndarray


def find_straggler(
    graph: ExecutionGraph,
    meetings: Meetings,
    weights: np.ndarray,
    message: np.ndarray,
    step_us: float,
) -> tuple[Straggler | None, tuple[int, ...]]:
    """The rank without whose slowness the step would be shorter by 3 % or more.

    Args:
        graph: the execution graph.
        meetings: where its ranks wait for each other.
        weights: (iterations,) of `step_weights`.
        message: (tasks,) of `message_sizes`.
        step_us: the steady step.

    Returns:
        The rank with the largest gain, `None` where none stands out; and the ranks that have no
        peers to be compared with.

    Example:
        >>> from jaxperf.replay import Timeline
        >>> from jaxperf.critical_path._meetings import find_meetings
        >>> timeline = Timeline(np.array([0.0, 4.0, 15.0]), np.array([6.0, 14.0, 17.0]))
        >>> alone = find_meetings(graph, timeline)
        >>> find_straggler(graph, alone, np.ones(1), np.full(3, -1), 17.0)
        (None, (0,))
    """
    work = _work(graph, weights)
    peers = _peers(graph, work, meetings)
    alone = tuple(graph.ranks[i] for i, others in enumerate(peers) if not len(others))
    suspects = _suspects(graph, work, peers, meetings, message, _STANDS_OUT * step_us)
    gains = _gains_us(graph, work, weights, suspects)
    best = int(np.argmax(gains)) if len(gains) else -1
    if best < 0 or gains[best] < _STANDS_OUT * step_us:
        return None, alone
    found = suspects[best]
    ranks = [graph.ranks[found.rank]]
    if found.cause == _LINK:
        ranks = _tied(graph, suspects, gains, float(gains[best]))
    accused = Straggler(
        rank=ranks[0] if len(ranks) == 1 else None,
        ranks=tuple(ranks),
        cause=CAUSES[found.cause],
        excess_us=found.own_us - found.peers_us,
        gain_us=float(gains[best]),
        own_us=found.own_us,
        peers_us=found.peers_us,
        peers=tuple(graph.ranks[index] for index in found.peers),
        names=_names(graph, work, found) if found.cause != _LINK else (),
    )
    return accused, alone


def _tied(
    graph: ExecutionGraph, suspects: list[_Suspect], gains: np.ndarray, most_us: float
) -> list[int]:
    """The ranks of a slow link: whoever of them is to blame, the gain is the same."""
    return [
        graph.ranks[suspect.rank]
        for suspect, gain in zip(suspects, gains.tolist(), strict=True)
        if suspect.cause == _LINK and gain > 0.98 * most_us
    ]


# Who spends what, and who does the same work
# ---------------------------------------------------------------------------------------


def _work(graph: ExecutionGraph, weights: np.ndarray) -> _Work:
    names: dict[str, int] = {}
    place = np.full(len(graph.steps) + 1, -1)
    for i in np.flatnonzero(weights):
        place[i] = names.setdefault(graph.steps[i].name, len(names))
    step = place[graph.step] if names else np.zeros(graph.tasks, np.int64)
    cause = _causes(graph)
    lag_cause = np.where(np.isin(graph.dependency, _ON_HOST), _HOST, _KERNELS)
    lag_cause[graph.dependency == DependencyKind.RENDEZVOUS] = -1
    work = _Work(step, step[graph.target], cause, lag_cause, tuple(names) or (None,), np.zeros(0))
    own = _spent_us(graph, work)
    return _Work(step, work.lag_step, cause, lag_cause, work.names, own)


def _causes(graph: ExecutionGraph) -> np.ndarray:
    """(tasks,) what each task's time is put down to."""
    cause = np.full(graph.tasks, -1)
    cause[np.isin(graph.kind, (TaskKind.KERNEL, TaskKind.MEMSET, TaskKind.MEMCPY))] = _KERNELS
    to_host = np.array(["HtoD" in n or "DtoH" in n or "PtoP" in n for n in graph.names], bool)
    cause[(graph.kind == TaskKind.MEMCPY) & to_host[graph.name]] = _LINK
    # Of the threads only those that launch or open steps hold anything up.
    launches = graph.source[graph.dependency == DependencyKind.LAUNCH]
    opens = np.array([s.begin_task for s in graph.steps], np.int64)
    leads = np.isin(graph.lane, np.unique(graph.lane[np.concatenate([launches, opens])]))
    cause[(graph.kind <= TaskKind.HOST_RETURN) & leads] = _HOST
    return cause


def _spent_us(graph: ExecutionGraph, work: _Work) -> np.ndarray:
    """(ranks, steps, causes) durations and lags."""
    shape = len(graph.ranks), len(work.names), len(CAUSES)
    spent = np.zeros(shape)
    for step, cause, rank, time_ns in (
        (work.step, work.cause, graph.trace, graph.duration_ns),
        (work.lag_step, work.lag_cause, graph.trace[graph.target], _own_lag_ns(graph)),
    ):
        counts = (step >= 0) & (cause >= 0)
        cell = np.ravel_multi_index((rank[counts], step[counts], cause[counts]), shape)
        spent += np.bincount(cell, time_ns[counts] / 1e3, spent.size).reshape(shape)
    return spent


def _own_lag_ns(graph: ExecutionGraph) -> np.ndarray:
    """(dependencies,) from the end of what was awaited, also where the lag counts from its start.

    Devices follow the start of a launch call or its end, and which of the two is a fit: ranks that
    are alike may differ in it.
    """
    since_end = np.maximum(graph.lag_ns - graph.duration_ns[graph.source], 0)
    return np.where(graph.from_start, since_end, graph.lag_ns)


def _peers(graph: ExecutionGraph, work: _Work, meetings: Meetings) -> list[np.ndarray]:
    """The ranks that launch the same kernels as each rank, itself left out."""
    computes = (work.step >= 0) & np.isin(graph.task_class, [int(c) for c in COMPUTE_CLASSES])
    computes &= graph.kind == TaskKind.KERNEL
    used, name = np.unique(graph.name[computes], return_inverse=True)
    shape = len(graph.ranks), len(used)
    cell = np.ravel_multi_index((graph.trace[computes], name), shape)
    launched = np.bincount(cell, minlength=shape[0] * shape[1]).reshape(shape)
    alike = _EQUAL if _is_pipeline(graph, meetings) else _ALIKE
    peers = []
    for rank, mine in enumerate(launched):
        common, all_of_both = np.minimum(launched, mine).sum(1), np.maximum(launched, mine).sum(1)
        same = (common >= alike * all_of_both) & (all_of_both > 0)
        same[rank] = False
        peers.append(np.flatnonzero(same))
    return peers


def _is_pipeline(graph: ExecutionGraph, meetings: Meetings) -> bool:
    """Whether two of several ranks send to each other."""
    sends = np.array(["sendrecv" in name.lower() for name in graph.names], bool)
    pairs = np.array([len(ranks) == 2 for ranks in meetings.groups], bool)
    if not len(pairs):
        return False
    return bool((sends[graph.name[meetings.transfer]] & pairs[meetings.group]).any())


# What a rank takes longer than its peers
# ---------------------------------------------------------------------------------------


def _suspects(
    graph: ExecutionGraph,
    work: _Work,
    peers: list[np.ndarray],
    meetings: Meetings,
    message: np.ndarray,
    least_us: float,
) -> list[_Suspect]:
    """Ranks that take longer than their peers by what would stand out; no gain can be larger."""
    found = []
    links = slow_links(graph, meetings, message, work.step >= 0)
    none = np.zeros(0, np.int64), np.zeros(0)
    for cause in range(len(CAUSES)):
        mine = []
        for rank, others in enumerate(peers):
            link = links.get(rank) if cause == _LINK else None
            if len(others) or link is not None:
                mine.append(_suspect(graph, work, rank, cause, others, link or none))
        mine = [suspect for suspect in mine if suspect.own_us - suspect.peers_us >= least_us]
        mine.sort(key=lambda suspect: suspect.peers_us - suspect.own_us)
        found += mine[:_LIKELIEST]
    return found


def _suspect(
    graph: ExecutionGraph,
    work: _Work,
    rank: int,
    cause: int,
    others: np.ndarray,
    link: tuple[np.ndarray, np.ndarray],
) -> _Suspect:
    own = work.own_us[rank, :, cause]
    theirs = np.median(work.own_us[others, :, cause], axis=0) if len(others) else own
    factor = np.divide(theirs, own, out=np.ones_like(own), where=own > 0)
    transfer, transfer_factor = link
    mine = graph.trace[transfer] == rank
    took_us = graph.duration_ns[transfer[mine]] / 1e3 / len(work.names)
    own_us = float(own.mean() + took_us.sum())
    peers_us = float(theirs.mean() + took_us @ transfer_factor[mine])
    peers = tuple(others.tolist())
    return _Suspect(rank, cause, peers, own_us, peers_us, factor, transfer, transfer_factor)


# What it would gain
# ---------------------------------------------------------------------------------------


def _gains_us(
    graph: ExecutionGraph, work: _Work, weights: np.ndarray, suspects: list[_Suspect]
) -> np.ndarray:
    """(suspects,) by how much the step would be shorter.

    It is what most steps gain, so that a single pause is no slowness. Hosts that run ahead end
    their steps whatever the devices do: then the end of the window tells.
    """
    if not suspects:
        return np.zeros(0)
    from jaxperf.replay import double_precision, makespan_us, step_times_us

    program = compile_program(graph)
    steps = len(work.names)
    place = {name: i for i, name in enumerate(work.names)}
    names = np.array([place.get(step.name, -1) for step in graph.steps], np.int64)
    names[weights == 0] = -1
    counted = np.flatnonzero(names >= 0)
    ranks = np.bincount(names[counted], minlength=steps) if len(counted) else np.ones(steps)

    def times_us(duration_us: np.ndarray, lag_us: np.ndarray) -> tuple[np.ndarray, float]:
        end = float(makespan_us(program, duration_us, lag_us))
        each = np.asarray(step_times_us(program, duration_us, lag_us))
        return np.bincount(names[counted], each[counted], steps) / ranks, end

    gains = []
    with double_precision():
        before, end = times_us(graph.duration_ns / 1e3, graph.lag_ns / 1e3)
        for suspect in suspects:
            after, new_end = times_us(*_without(graph, work, suspect))
            gain = before - after
            gains.append(max(min(gain.mean(), np.median(gain)), (end - new_end) / steps))
    return np.array(gains)


def _without(
    graph: ExecutionGraph, work: _Work, suspect: _Suspect
) -> tuple[np.ndarray, np.ndarray]:
    """(tasks,), (dependencies,) durations and lags if the rank were as its peers are."""
    duration_us, lag_us = graph.duration_ns / 1e3, graph.lag_ns / 1e3
    task = (graph.trace == suspect.rank) & (work.cause == suspect.cause) & (work.step >= 0)
    lag = (work.lag_cause == suspect.cause) & (work.lag_step >= 0)
    lag &= graph.trace[graph.target] == suspect.rank
    duration_us[task] *= suspect.factor[work.step[task]]
    own_lag_us = _own_lag_ns(graph)[lag] / 1e3
    lag_us[lag] += (suspect.factor[work.lag_step[lag]] - 1.0) * own_lag_us
    duration_us[suspect.transfer] *= suspect.transfer_factor
    return duration_us, lag_us


def _names(
    graph: ExecutionGraph, work: _Work, suspect: _Suspect, most: int = 3
) -> tuple[tuple[str, float], ...]:
    """What takes longer than on the peers, the most first."""
    counts = (work.cause == suspect.cause) & (work.step >= 0)

    def spent(rank: int) -> np.ndarray:
        mine = counts & (graph.trace == rank)
        return np.bincount(graph.name[mine], graph.duration_ns[mine], len(graph.names))

    excess = spent(suspect.rank) - np.median([spent(peer) for peer in suspect.peers], axis=0)
    longest = np.argsort(-excess, kind="stable")[:most]
    steps = 1e3 * len(work.names)
    return tuple((graph.names[i], float(excess[i]) / steps) for i in longest if excess[i] > 0)
