"""How much of a device its kernels occupy over time, at any resolution."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from jaxperf.errors import ConfigError
from jaxperf.graph import ExecutionGraph, TaskKind
from jaxperf.replay._breakdown import on_device_us
from jaxperf.replay._types import Timeline


@dataclass(frozen=True, eq=False)
class SmOccupation:
    """What some of the kernels of a rank occupy, bin by bin. Every number is from 0 to 1.

    Attributes:
        busy: (bins,) float64, share of the time in which at least one of them runs.
        sm_share: (bins,) float64, share of the SMs (streaming multiprocessors) that they are known
            to occupy, averaged over the bin; NaN where some run and of none the share is known.
        unknown: (bins,) float64, share of the time in which one runs whose share is not known:
            what is truly occupied lies between `sm_share` and `sm_share + unknown`, at most 1.
    """

    busy: np.ndarray
    sm_share: np.ndarray
    unknown: np.ndarray


@dataclass(frozen=True, eq=False)
class Utilization:
    """How much of a rank's device is occupied over time.

    Attributes:
        grid_us: (bins + 1,) float64, edges of the bins.
        kernels: by all kernels.
        computing: by those that do not communicate.
        communicating: by those that do, from the arrival of their rank on: while a collective
            waits for other ranks it holds its SMs.
    """

    grid_us: np.ndarray
    kernels: SmOccupation
    computing: SmOccupation
    communicating: SmOccupation


def sm_utilization(
    graph: ExecutionGraph, timeline: Timeline, rank: int, *, grid_us: ArrayLike
) -> Utilization:
    """How much of a rank's device is occupied in each bin of a grid.

    A kernel with fewer blocks than the device has SMs occupies one SM a block, any other all
    (`blocks per SM` of the trace). Kernels that run at once add up, to 1 at most. Numbers are exact
    integrals over a bin: the mean over any bins is the number of the bin that they make up. Before
    and after the trace nothing runs. With several devices it is the mean over those with kernels.

    Args:
        graph: the execution graph.
        timeline: when its tasks start and end, measured or replayed.
        rank: the rank.
        grid_us: (bins + 1,) edges of the bins, increasing; two edges give one number for a span.

    Returns:
        The utilization, NaN throughout where the rank has no kernels.

    Raises:
        ConfigError: the graph has no such rank, or the grid does not increase.

    Example:
        >>> import tempfile
        >>> from jaxperf import Timeline, build_graph, read_run
        >>> from jaxperf.simulator import SimulatedJob, simulate, write_traces
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     paths = write_traces(simulate(SimulatedJob(layers=1)), folder)
        ...     graph = build_graph(read_run(paths))
        >>> measured = Timeline(graph.start_ns / 1e3, graph.end_ns / 1e3)
        >>> step = graph.steps[0]
        >>> span_us = [step.begin_ns / 1e3, step.end_ns / 1e3]
        >>> found = sm_utilization(graph, measured, step.rank, grid_us=span_us).kernels
        >>> bool(0 < found.sm_share[0] <= found.busy[0] <= 1)
        True
    """
    if rank not in graph.ranks:
        raise ConfigError(
            "no such rank",
            where="rank",
            got=str(rank),
            expected=f"one of {', '.join(map(str, graph.ranks))}",
        )
    grid = np.asarray(grid_us, np.float64)
    increases = grid.ndim == 1 and len(grid) > 1 and bool((np.diff(grid) > 0).all())
    if not (increases and np.isfinite(grid).all()):
        raise ConfigError(
            "no grid of times",
            where="grid_us",
            got=np.array2string(grid, threshold=8),
            expected="two edges or more, each later than the one before",
        )
    on_rank = graph.trace == graph.ranks.index(rank)
    computing = on_rank & (graph.kind == TaskKind.KERNEL)
    communicating = on_rank & (graph.kind == TaskKind.COLLECTIVE)
    kernels = computing | communicating
    device = np.array([lane.device for lane in graph.lanes], np.int64)[graph.lane]
    devices = np.unique(device[kernels]).tolist()
    by_device = [device == number for number in devices]
    return Utilization(
        grid,
        *(
            _mean_occupation(graph, timeline, [mine & these for these in by_device], grid)
            for mine in (kernels, computing, communicating)
        ),
    )


def _mean_occupation(
    graph: ExecutionGraph, timeline: Timeline, by_device: list[np.ndarray], grid: np.ndarray
) -> SmOccupation:
    """What the kernels of each device, given as masks of tasks, occupy on average."""
    if not by_device:
        return SmOccupation(*np.full((3, len(grid) - 1), np.nan))
    spent = np.zeros((len(grid), 4))
    for mask in by_device:
        tasks = np.flatnonzero(mask)
        spent += _integrals(*on_device_us(graph, timeline, tasks), graph.sm_share[tasks], grid)
    width = np.diff(grid)[:, np.newaxis] * len(by_device)
    known, sm_share, unknown, busy = np.clip(np.diff(spent, axis=0) / width, 0.0, 1.0).T
    # Where nothing of a kind runs its integral does not move at all, so that 0 is exact.
    return SmOccupation(busy, np.where((busy > 0) & (known == 0), np.nan, sm_share), unknown)


def _integrals(
    start_us: np.ndarray, end_us: np.ndarray, share: np.ndarray, time_us: np.ndarray
) -> np.ndarray:
    """(times, 4) up to each time: a kernel of known share ran, SMs occupied, unknown, any ran."""
    if not len(start_us):
        return np.zeros((len(time_us), 4))
    unknown = np.isnan(share)
    begun = np.stack([~unknown, np.where(unknown, 0.0, share), unknown], axis=1, dtype=np.float64)
    moment = np.concatenate([start_us, end_us])
    order = np.argsort(moment, kind="stable")
    moment = moment[order]
    # Sums of float32 in float64 are exact here: what has ended leaves nothing behind.
    running = np.cumsum(np.concatenate([begun, -begun])[order], axis=0)
    rate = np.minimum(np.column_stack([running, running[:, 0] + running[:, 2]]), 1.0)
    spent = np.zeros_like(rate)
    np.cumsum(rate[:-1] * np.diff(moment)[:, np.newaxis], axis=0, out=spent[1:])
    within = np.clip(time_us, moment[0], moment[-1])
    k = np.searchsorted(moment, within, side="right") - 1
    return spent[k] + rate[k] * (within - moment[k])[:, np.newaxis]
