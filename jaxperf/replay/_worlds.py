"""Many changed worlds of one run: its steady step, and its timeline, under changed durations.

A world is a column of factors, one for each group of tasks. Where the groups are few, and durations
are neither drawn nor slowed by communication, all worlds are one batch of `replay_scenarios`;
else each has durations of its own, a chunk of worlds at a time, so that memory does not grow with
their number.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from jaxperf.compiled import Program, compile_program
from jaxperf.graph import ExecutionGraph
from jaxperf.replay._batch import replay_scenarios, scale_groups
from jaxperf.replay._breakdown import communication_overlap_us
from jaxperf.replay._compare import steady_weights
from jaxperf.replay._contention import Contention, contended_durations_us
from jaxperf.replay._part import Part, part_of, part_start_times
from jaxperf.replay._precision import double_precision
from jaxperf.replay._times import CHUNK, milestones, start_times_us
from jaxperf.replay._types import Timeline
from jaxperf.replay._variation import Variation

# With more groups the coefficients of a `ScaledProgram` cost more than durations of one's own.
_FEW_GROUPS = 64
# Worlds of one call where they are one batch, and elements of an array where they are not.
_BATCH = 4096
_ELEMENTS = 2**24

Progress = Callable[[int, int], None]


@dataclass(frozen=True, eq=False)
class Worlds:
    """A run ready to be asked; see `prepare_worlds`.

    Attributes:
        graph: the execution graph.
        program: the same, compiled, on the device.
        weights: (iterations,) what each counts in the steady step; all 0 where there is none.
        begin_us: start of the window, from which it counts where there are no iterations.
        group: (tasks,) int32, the factor of each task; the last is always 1. Padded as the program
            is, and so are the columns below.
        lag_group: (dependencies,) int32, that of each lag.
        groups: number of factors.
        alone_us: (tasks,) durations with no communication beside them.
        beside_us: (tasks,) what communication adds to them in the unchanged run.
        part: what contention changes of the program; `None` where there is none.
        contention: which kernels of the part communication slows down.
    """

    graph: ExecutionGraph
    program: Program
    weights: np.ndarray
    begin_us: float
    group: np.ndarray
    lag_group: np.ndarray
    groups: int
    alone_us: np.ndarray
    beside_us: np.ndarray
    part: Part | None
    contention: Contention | None


def prepare_worlds(
    graph: ExecutionGraph,
    group: np.ndarray,
    lag_group: np.ndarray,
    groups: int,
    contention: Contention | None = None,
) -> Worlds:
    """Compile a run, and take from its kernels what communication had slowed them down by.

    Args:
        graph: the execution graph.
        group: (tasks,) int, the group of each task from 0; `groups` where nothing changes it.
        lag_group: (dependencies,) int, that of each lag.
        groups: the number of groups.
        contention: of `fit_contention`.

    Returns:
        The run, ready to be asked.
    """
    on_host = compile_program(graph)
    duration_us = on_host.duration_us
    with double_precision():
        program = jax.device_put(on_host)
        start_us = np.asarray(start_times_us(program, duration_us))[: graph.tasks]
    alone_us, part = duration_us.copy(), None
    if contention is not None:
        end_us = start_us + duration_us[: graph.tasks]
        overlap_us = communication_overlap_us(graph, Timeline(start_us, end_us))
        alone_us[contention.kernel] -= contention.slowdown * overlap_us[contention.kernel]
        part, contention = _part_of(on_host, contention)
    return Worlds(
        graph=graph,
        program=program,
        weights=steady_weights(graph),
        begin_us=float(start_us.min()),
        group=_as_long(duration_us, group.astype(np.int32)),
        lag_group=_as_long(program.lag_us, lag_group.astype(np.int32)),
        groups=groups,
        alone_us=alone_us,
        beside_us=duration_us - alone_us,
        part=part,
        contention=contention,
    )


def _part_of(program: Program, contention: Contention) -> tuple[Part, Contention]:
    """The part of a program that contention changes, and the contention in its numbers."""
    kernels, messages = len(contention.kernel), len(contention.begin)
    tasks = np.concatenate([contention.kernel, contention.begin, contention.end])
    part, place = part_of(program, tasks)
    kernel, begin, end = np.split(place, [kernels, kernels + messages])
    return part, replace(contention, kernel=kernel, begin=begin, end=end)


def world_timelines(worlds: Worlds, factors: np.ndarray) -> Iterator[Timeline]:
    """The timeline of each world.

    Args:
        worlds: the run.
        factors: (groups, n) float64.

    Yields:
        One for each column.
    """
    width = _width(worlds)
    tasks = worlds.graph.tasks
    for first in range(0, factors.shape[1], width):
        columns = factors[:, first : first + width]
        with double_precision():
            durations, starts = _timelines(
                worlds.program,
                worlds.part,
                worlds.contention,
                worlds.beside_us,
                worlds.alone_us,
                worlds.program.lag_us,
                worlds.group,
                worlds.lag_group,
                _with_one(columns, min(width, factors.shape[1])),
            )
        starts, durations = np.asarray(starts)[:tasks], np.asarray(durations)[:tasks]
        for k in range(columns.shape[1]):
            yield Timeline(starts[:, k], starts[:, k] + durations[:, k])


def steady_step_us(worlds: Worlds, timeline: Timeline) -> float:
    """The steady step in a timeline: mean over ranks and iterations, else the window.

    Args:
        worlds: the run.
        timeline: of its tasks.

    Returns:
        Microseconds.
    """
    if not worlds.weights.any():
        return float(timeline.end_us.max()) - worlds.begin_us
    begin = timeline.start_us[[step.begin_task for step in worlds.graph.steps]]
    end = timeline.end_us[[step.end_task for step in worlds.graph.steps]]
    return float(worlds.weights @ (end - begin))


def world_steps_us(
    worlds: Worlds,
    columns: int,
    factors: Callable[[slice], np.ndarray],
    *,
    variation: Variation | None = None,
    seed: int = 0,
    progress: Progress | None = None,
) -> np.ndarray:
    """The steady step of each of any number of worlds.

    Args:
        worlds: the run.
        columns: how many worlds.
        factors: from a slice of them to their (groups, k) float64 factors.
        variation: draw the durations of each world from this distribution; else they are measured.
        seed: of what is drawn.
        progress: called with the number of worlds answered, and of all.

    Returns:
        (columns,) microseconds.
    """
    if not columns:
        return np.empty(0)
    batch = worlds.contention is None and variation is None and worlds.groups <= _FEW_GROUPS
    some = _in_batch(worlds) if batch else _on_their_own(worlds, variation, seed)
    width = min(_BATCH if batch else _width(worlds), columns)
    found = []
    for first in range(0, columns, width):
        which = slice(first, min(first + width, columns))
        with double_precision():
            # Equal widths share one compilation.
            answer = np.asarray(some(_with_one(factors(which), width), first // width))
        found.append(answer[: which.stop - first])
        if progress:
            progress(which.stop, columns)
    return np.concatenate(found)


def _in_batch(worlds: Worlds) -> Callable[[np.ndarray, int], Array]:
    # A group of its own for what nothing changes would cost a term in each weight.
    graph = worlds.graph
    group, lag_group = (
        np.where(g == worlds.groups, -1, g)
        for g in (worlds.group[: graph.tasks], worlds.lag_group[: len(graph.source)])
    )
    scaled = scale_groups(worlds.program, group, worlds.groups, lag_group=lag_group)
    with double_precision():
        scaled = jax.device_put(scaled)

    def some(factors: np.ndarray, _: int) -> Array:
        times = replay_scenarios(scaled, factors[:-1])
        return _steady(worlds, times.makespan_us, times.step_us)

    return some


def _on_their_own(
    worlds: Worlds, variation: Variation | None, seed: int
) -> Callable[[np.ndarray, int], Array]:
    duration, drawn = worlds.alone_us, None
    if variation is not None:
        mean = _as_long(duration, variation.mean_us)
        drawn = (
            _as_long(duration, variation.spread),
            _as_long(duration, variation.same),
            _as_long(duration, variation.seen, fill=1),
        )
        # What the kernels lost to communication is not drawn: it follows from the overlap.
        duration = mean * (duration / np.maximum(duration + worlds.beside_us, 1e-9))

    def some(factors: np.ndarray, chunk: int) -> Array:
        key = jax.random.fold_in(jax.random.key(seed), chunk)
        makespan, step = _milestones(
            worlds.program,
            worlds.part,
            worlds.contention,
            worlds.beside_us,
            duration,
            worlds.program.lag_us,
            worlds.group,
            worlds.lag_group,
            factors,
            drawn,
            key,
        )
        return _steady(worlds, makespan, step)

    return some


def _steady(worlds: Worlds, makespan: Array, step: Array) -> Array:
    if not worlds.weights.any():
        return makespan - worlds.begin_us
    return jnp.asarray(worlds.weights) @ step


def _width(worlds: Worlds) -> int:
    return int(np.clip(_ELEMENTS // worlds.graph.tasks, 1, CHUNK))


def _as_long(padded: np.ndarray, column: np.ndarray, fill: int = 0) -> np.ndarray:
    """A column as long as a padded one, so that worlds share compilations as programs do."""
    return np.pad(column, (0, len(padded) - len(column)), constant_values=fill)


def _with_one(factors: np.ndarray, width: int) -> np.ndarray:
    """Factors with the row of what nothing changes, and columns of ones up to a width."""
    full = np.ones((factors.shape[0] + 1, width))
    full[:-1, : factors.shape[1]] = factors
    return full


# On the device
# ---------------------------------------------------------------------------------------


@jax.jit
def _timelines(program, part, contention, beside, alone, lag, group, lag_group, factor):
    duration, lags = _changed(
        program, part, contention, beside, alone, lag, group, lag_group, factor
    )
    return duration, start_times_us(program, duration, lags)


@jax.jit
def _milestones(
    program, part, contention, beside, alone, lag, group, lag_group, factor, drawn, key
):
    if drawn is not None:
        spread, same, seen = (jnp.asarray(x)[:, None] for x in drawn)
        shape = alone.shape[0], factor.shape[1]
        own, shared = (jax.random.normal(k, shape, factor.dtype) for k in jax.random.split(key))
        # The mean over the steps that were seen is itself uncertain, alike in all of them.
        seen = seen.astype(factor.dtype)
        z = own + shared[same[:, 0]] / jnp.sqrt(seen)
        keep_mean = spread**2 * (1.0 + 1.0 / seen) / 2.0
        alone = jnp.asarray(alone)[:, None] * jnp.exp(spread * z - keep_mean)
    duration, lags = _changed(
        program, part, contention, beside, alone, lag, group, lag_group, factor
    )
    return milestones(program, duration, lags, None)


def _changed(program, part, contention, beside, alone, lag, group, lag_group, factor):
    """(tasks, worlds) durations and (dependencies, worlds) lags of each world."""
    alone = jnp.asarray(alone)
    alone = alone if alone.ndim == 2 else alone[:, None]
    duration = alone * factor[group]
    lags = jnp.asarray(lag)[:, None] * factor[lag_group]
    if contention is not None:
        first = duration + jnp.asarray(beside)[:, None] * factor[group]
        settled = contended_durations_us(
            contention,
            part_start_times(program, part, first, lags),
            duration[part.task],
            first[part.task],
        )
        duration = duration.at[part.task].set(settled)
    return duration, lags
