"""What the step time depends on: its gradient by durations and lags, and sums of it."""

from dataclasses import dataclass

import numpy as np

from jaxperf.compiled import compile_program
from jaxperf.errors import ConfigError
from jaxperf.graph import DependencyKind, ExecutionGraph, TaskClass
from jaxperf.replay._compare import choose_steps, steady_weights
from jaxperf.trace import MISSING

GAP = "gap"
"""The name under which time counts that is no task's: between what was awaited and what waited."""


@dataclass(frozen=True, eq=False)
class Sensitivities:
    """How the steady step time follows the durations of tasks and the lags of dependencies.

    Attributes:
        step_us: the steady step; the whole window where there are no steps.
        task: (tasks,) float64, by how much the step becomes longer where the task does.
        dependency: (dependencies,) float64, the same for the lags.
        task_us: (tasks,) float64, `task` times the duration: step time for 100 % of the task, as
            it would be if nothing else came to bound the step.
        dependency_us: (dependencies,) float64, the same for the lags.
    """

    step_us: float
    task: np.ndarray
    dependency: np.ndarray
    task_us: np.ndarray
    dependency_us: np.ndarray


def step_weights(graph: ExecutionGraph, step: str | int | None = None) -> np.ndarray:
    """How much each iteration of each rank counts in the step that is looked at.

    Args:
        graph: the execution graph.
        step: one iteration only: its name, or its place; by default the steady step.

    Returns:
        (iterations,) float64 that add up to 1; all 0 where no iteration takes any time.

    Raises:
        ConfigError: there is no such iteration, or it takes no time.

    Example:
        >>> step_weights(graph)
        array([0.])
    """
    if step is None:
        return steady_weights(graph)
    chosen = {s for s in choose_steps(graph, step) if s.end_ns > s.begin_ns}
    if not chosen:
        raise ConfigError(
            "the step takes no time", where="step", got=str(step), remedy="choose another"
        )
    return np.array([s in chosen for s in graph.steps]) / len(chosen)


def sensitivities(
    graph: ExecutionGraph,
    durations_us: np.ndarray | None = None,
    lags_us: np.ndarray | None = None,
    *,
    step: str | int | None = None,
) -> Sensitivities:
    """The gradient of the steady step time by every duration and every lag, in double precision.

    One reverse pass through `step_times_us`. Where no step is marked it is the gradient of the
    window, first start to last end. What the begin of a step waited for counts against it: it makes
    the step shorter.

    Args:
        graph: the execution graph.
        durations_us: (tasks,) where to take it; by default at the graph's own.
        lags_us: (dependencies,) the same for the lags.
        step: of one iteration only: its name, or its place.

    Returns:
        The gradient.

    Raises:
        ConfigError: there is no such iteration.
        ProgramError: durations or lags have a wrong shape or type, or the graph is no valid
            program.

    Example:
        >>> sensitivities(graph).task.tolist()  # the kernel follows the start of its call
        [0.0, 1.0, 1.0]
    """
    import jax
    import jax.numpy as jnp

    from jaxperf.replay._precision import double_precision
    from jaxperf.replay._times import makespan_us, padded, step_times_us

    weights = step_weights(graph, step)
    program = compile_program(graph)
    duration = np.asarray(padded("durations_us", durations_us, program.duration_us, graph.tasks))
    lag = np.asarray(padded("lags_us", lags_us, program.lag_us, len(graph.source)))

    def steady_us(duration, lag):
        if not weights.any():
            return makespan_us(program, duration, lag) - _begin_us(graph)
        return jnp.dot(jnp.asarray(weights), step_times_us(program, duration, lag))

    with double_precision():
        value, slopes = jax.value_and_grad(steady_us, (0, 1))(
            jnp.asarray(duration, float), jnp.asarray(lag, float)
        )
    task, dependency = np.asarray(slopes[0])[: graph.tasks], np.asarray(slopes[1])
    dependency = dependency[: len(graph.source)]
    return Sensitivities(
        float(value),
        task,
        dependency,
        task * duration[: graph.tasks],
        dependency * lag[: len(graph.source)],
    )


def _begin_us(graph: ExecutionGraph) -> float:
    """When the first task that waits for no other starts."""
    released = graph.release_ns[graph.release_ns != MISSING]
    return float(released.min()) / 1e3


# Sums
# ---------------------------------------------------------------------------------------


def sum_by_class(
    graph: ExecutionGraph, task_us: np.ndarray, dependency_us: np.ndarray
) -> dict[str, float]:
    """Times of tasks and lags by class of task.

    The lags of launches count as `launch`, as in a what-if; all other lags are no task's and count
    as `gap`.

    Args:
        graph: the execution graph.
        task_us: (tasks,) such as `Sensitivities.task_us`.
        dependency_us: (dependencies,) such as `Sensitivities.dependency_us`.

    Returns:
        Microseconds by the name of the class in lower case, of the classes that have any.

    Example:
        >>> found = sensitivities(graph)
        >>> sum_by_class(graph, found.task_us, found.dependency_us)
        {'gemm': 10.0, 'memcpy': 2.0, 'launch': 4.0, 'gap': 1.0}
    """
    launches = graph.dependency == DependencyKind.LAUNCH
    total = np.bincount(graph.task_class, task_us, len(TaskClass) + 1)
    total[TaskClass.LAUNCH] += dependency_us[launches].sum()
    total[-1] = dependency_us[~launches].sum()
    names = [*(kind.name.lower() for kind in TaskClass), GAP]
    return {name: float(time) for name, time in zip(names, total, strict=True) if time}


def sum_by_rank(
    graph: ExecutionGraph, task_us: np.ndarray, dependency_us: np.ndarray
) -> dict[int, float]:
    """Times of tasks and lags by rank, lags with the rank that waited.

    Args:
        graph, task_us, dependency_us: see `sum_by_class`.

    Returns:
        Microseconds of each rank of the graph.

    Example:
        >>> found = sensitivities(graph)
        >>> sum_by_rank(graph, found.task_us, found.dependency_us)
        {0: 17.0}
    """
    total = np.bincount(graph.trace, task_us, len(graph.ranks))
    total += np.bincount(graph.trace[graph.target], dependency_us, len(graph.ranks))
    return {rank: float(time) for rank, time in zip(graph.ranks, total, strict=True)}


def sum_by_name(graph: ExecutionGraph, task_us: np.ndarray) -> dict[str, float]:
    """Times of tasks by their name.

    Args:
        graph, task_us: see `sum_by_class`.

    Returns:
        Microseconds by name, of those that have any.

    Example:
        >>> sum_by_name(graph, sensitivities(graph).task_us)
        {'work': 12.0}
    """
    total = np.bincount(graph.name, task_us, len(graph.names))
    return {graph.names[i]: float(total[i]) for i in np.flatnonzero(total)}
