"""Which pieces of device work on different ranks are one collective, or a send and its receive."""

import re
from dataclasses import dataclass

import numpy as np

from jaxperf.graph._classes import KERNEL_CLASSES, KernelClasses, communicates
from jaxperf.graph._device import DeviceWork
from jaxperf.trace import Category, Collective, Trace

# Operations by kernel name, where the profiler wrote no arguments.
_IN_NAME = re.compile(
    r"AllReduce|ReduceScatter|AllGather|Broadcast|AllToAll|SendRecv|Reduce", re.IGNORECASE
)
_POINT_TO_POINT = {"send", "recv"}

# Collectives that two captures must have in common for their ends to tell how they are paired.
_LEAST_COMMON = 3
# Collectives by which captures begin or end apart, at most.
_FARTHEST = 256
_MUCH_BETTER = 0.25
# The ends of one collective on real devices agree about as well, clocks apart.
_AGREE_NS = 200_000

Key = tuple[object, ...]


@dataclass(frozen=True, eq=False)
class Matches:
    """Collectives that two ranks or more have in common, one row per part.

    Attributes:
        match: (p,) int64, the same number for parts of one collective, from 0.
        rank: (p,) int64, index of the rank.
        work: (p,) int64, index of the device work on that rank.
        by_arguments: (matches,) bool, known from process group and operation; else from the order
            of kernels of one name.
        unmatched_rank, unmatched_work: (u,) int64, the parts that could not be matched, rank after
            rank in order of start.
        absent: ranks that are members of a collective and were not recorded.
    """

    match: np.ndarray
    rank: np.ndarray
    work: np.ndarray
    by_arguments: np.ndarray
    unmatched_rank: np.ndarray
    unmatched_work: np.ndarray
    absent: tuple[int, ...]


def match_collectives(
    traces: tuple[Trace, ...],
    works: list[DeviceWork],
    classes: KernelClasses = KERNEL_CLASSES,
) -> Matches:
    """Match the collectives of all ranks.

    Parts belong together by process group and operation, in their order; by sequence numbers where
    the profiler wrote them. Captures begin and end apart: the parts are matched from the end,
    unless the ends agree much better in another way.

    Args:
        traces: the traces, one per rank.
        works: their device work.
        classes: see `build_graph`.

    Returns:
        The matches; groups of one are left out, they wait for nobody.
    """
    ranks = [trace.rank for trace in traces]
    rows: dict[Key, dict[int, list[int]]] = {}
    known: dict[Key, bool] = {}
    members: set[int] = set()
    found: list[tuple[int, int]] = []
    shared = _shared_names(traces)
    for index, (trace, work) in enumerate(zip(traces, works, strict=True)):
        for key, task, by_arguments, group in _keys(trace, work, shared, classes):
            members.update(group)
            rows.setdefault(key, {}).setdefault(index, []).append(task)
            known[key] = by_arguments
            found.append((index, task))
    match, rank, task, by_arguments = [], [], [], []
    for key, parts in rows.items():
        for group in _aligned(works, traces, key, parts):
            match += [len(by_arguments)] * len(group)
            rank += [index for index, _ in group]
            task += [work for _, work in group]
            by_arguments.append(known[key])
    matched = set(zip(rank, task, strict=True))
    unmatched = np.array([part for part in found if part not in matched], np.int64).reshape(-1, 2)
    return Matches(
        np.array(match, np.int64),
        np.array(rank, np.int64),
        np.array(task, np.int64),
        np.array(by_arguments, bool),
        unmatched[:, 0],
        unmatched[:, 1],
        tuple(sorted(members - set(ranks))),
    )


def _shared_names(traces: tuple[Trace, ...]) -> frozenset[tuple[int, ...]]:
    """Members whose groups have the same names on every rank, so that the names tell them apart."""
    names: dict[tuple[int, ...], dict[int, set[str | None]]] = {}
    for trace in traces:
        for collective in trace.collectives:
            if collective.ranks and _operation(collective) not in _POINT_TO_POINT:
                of_rank = names.setdefault(collective.ranks, {})
                of_rank.setdefault(trace.rank, set()).add(collective.group)
    return frozenset(
        members
        for members, by_rank in names.items()
        if all(groups == next(iter(by_rank.values())) for groups in by_rank.values())
    )


def _keys(
    trace: Trace, work: DeviceWork, shared: frozenset[tuple[int, ...]], classes: KernelClasses
) -> list[tuple[Key, int, bool, tuple[int, ...]]]:
    """(key, work, from arguments, members) of every collective of a rank, in order of start."""
    row = work.row
    kernels = trace.category[row] == Category.KERNEL
    tasks = np.flatnonzero(communicates(trace, row, classes) & kernels)
    tasks = tasks[np.argsort(work.start_ns[tasks], kind="stable")].tolist()
    argued = {
        k: trace.collectives[trace.collective[row[k]]]
        for k in tasks
        if trace.collective[row[k]] >= 0
    }
    # At the head of a capture the arguments are missing; the stream tells the group.
    groups: dict[tuple[int, str], set[Key]] = {}
    for k, collective in argued.items():
        operation = _operation(collective)
        if operation not in _POINT_TO_POINT:
            seen = groups.setdefault((int(work.stream[k]), operation), set())
            seen.add((_members(collective, shared), operation))
    found = []
    for k in tasks:
        if k in argued:
            if argued[k].group_size == 1 or len(argued[k].ranks) == 1:
                continue
            key = _argued_key(argued[k], trace.rank, shared)
            found.append((key, k, True, argued[k].ranks))
            continue
        name = trace.names[trace.name[row[k]]]
        operation = _in_kernel_name(name)
        candidates = groups.get((int(work.stream[k]), operation), set())
        if len(candidates) == 1:
            found.append((next(iter(candidates)), k, True, ()))
        else:
            found.append((("any", operation), k, False, ()))
    return found


def _argued_key(collective: Collective, rank: int, shared: frozenset[tuple[int, ...]]) -> Key:
    operation = _operation(collective)
    if operation not in _POINT_TO_POINT:
        return _members(collective, shared), operation
    peer = collective.destination if operation == "send" else collective.source
    if peer is None and len(collective.ranks) == 2:
        peer = next(other for other in collective.ranks if other != rank)
    ends = (rank, peer) if operation == "send" else (peer, rank)
    return ("send", *ends)


def _members(collective: Collective, shared: frozenset[tuple[int, ...]]) -> object:
    """Who takes part: the ranks where they are known, and the group's name where all use it."""
    if not collective.ranks:
        return collective.group, collective.group_size
    return collective.ranks, collective.group if collective.ranks in shared else None


def _operation(collective: Collective) -> str:
    """`_allgather_base` and `all_gather` are `allgather`."""
    name = re.sub(r"_base$|_into_tensor|_tensor|_coalesced", "", collective.name.lower())
    name = re.sub(r"(?<=all|her|ter)v$", "", name)
    return name.replace("_", "").removeprefix("nccl:")


def _in_kernel_name(name: str) -> str:
    found = _IN_NAME.search(name)
    return found.group().lower() if found else plain_name(name)


def plain_name(kernel: str) -> str:
    """The name of a kernel without its types: `void (anonymous namespace)::f<int>(int)` is `f`."""
    return re.split(r"[<(]", kernel.replace("(anonymous namespace)::", ""))[0].removeprefix("void ")


def _aligned(
    works: list[DeviceWork], traces: tuple[Trace, ...], key: Key, parts: dict[int, list[int]]
) -> list[list[tuple[int, int]]]:
    """Parts of each collective of one key: (rank, work) of two ranks or more."""
    if len(parts) < 2:
        return []
    # A rank numbers its sends and receives together, so no send has its receive's number.
    numbered = _by_sequence(works, traces, parts) if key[0] != "send" else None
    if numbered is not None:
        return numbered
    ends = {r: works[r].end_ns[np.array(tasks)] for r, tasks in parts.items()}
    longest = max(parts, key=lambda r: len(parts[r]))
    meetings: dict[int, list[tuple[int, int]]] = {}
    for r, tasks in parts.items():
        shift = 0 if r == longest else _shift(ends[longest], ends[r])
        for i, task in enumerate(tasks):
            meetings.setdefault(i + shift, []).append((r, task))
    return [meetings[i] for i in sorted(meetings) if len(meetings[i]) > 1]


def _shift(ends: np.ndarray, others: np.ndarray) -> int:
    """Which of one rank's collectives the first of another rank's is.

    The last ones are the same, unless the ends agree much better if paired in another way, whatever
    the clocks: a capture may have ended earlier. Captures of as many collectives are taken to hold
    the same if their ends agree at all.
    """
    last = len(ends) - len(others)
    spread = {last: _spread(ends, others, last)}
    if len(ends) == len(others) and spread[last] <= _AGREE_NS:
        return last
    common = max(_LEAST_COMMON, len(others) // 2)
    for shift in range(max(common - len(others), -_FARTHEST), min(last, _FARTHEST) + 1):
        if min(len(ends), len(others) + shift) - max(0, shift) >= common:
            spread[shift] = _spread(ends, others, shift)
    best = min(spread, key=lambda shift: (spread[shift], abs(shift - last)))
    return best if spread[best] < _MUCH_BETTER * spread[last] else last


def _spread(ends: np.ndarray, others: np.ndarray, shift: int) -> float:
    """How much the difference between the clocks varies, if collectives are paired so."""
    low, high = max(0, shift), min(len(ends), len(others) + shift)
    apart = ends[low:high] - others[low - shift : high - shift]
    return float(np.median(np.abs(apart - np.median(apart))))


def _by_sequence(
    works: list[DeviceWork], traces: tuple[Trace, ...], parts: dict[int, list[int]]
) -> list[list[tuple[int, int]]] | None:
    """Parts with the same sequence number; `None` where the numbers are missing or repeat."""
    numbered: dict[int, list[tuple[int, int]]] = {}
    for index, tasks in parts.items():
        trace, work = traces[index], works[index]
        collective = trace.collective[work.row[tasks]]
        numbers = [trace.collectives[c].sequence if c >= 0 else None for c in collective.tolist()]
        if None in numbers or len(set(numbers)) < len(numbers):
            return None
        for number, task in zip(numbers, tasks, strict=True):
            numbered.setdefault(int(number or 0), []).append((index, task))
    return [numbered[n] for n in sorted(numbered) if len(numbered[n]) > 1]
