"""From scenarios to factors: tasks that no scenario tells apart are one group."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from jaxperf.config import Scenario
from jaxperf.errors import ConfigError
from jaxperf.graph import (
    ExecutionGraph,
    is_launch_selector,
    select_launch_lags,
    select_tasks,
)
from jaxperf.whatif._machines import Machines


@dataclass(frozen=True, eq=False)
class Groups:
    """Which tasks and lags have one factor in every scenario.

    Attributes:
        group: (tasks,) int64, from 0; `groups` where no scenario changes it.
        lag_group: (dependencies,) int64, the same of lags.
        groups: the number of groups, those of lags included.
        member: by selector, (groups,) bool, the groups that it multiplies.
        work: (groups,) int64, the work of each group, -1 where no machine changes it.
    """

    group: np.ndarray
    lag_group: np.ndarray
    groups: int
    member: Mapping[str, np.ndarray]
    work: np.ndarray


def group_tasks(graph: ExecutionGraph, scenarios: Sequence[Scenario], machines: Machines) -> Groups:
    """Group what the scenarios do not tell apart.

    Args:
        graph: the execution graph.
        scenarios: what is asked.
        machines: the machines that they name.

    Returns:
        The groups.

    Raises:
        ConfigError: a selector is not valid, or selects nothing.
    """
    selectors = _selectors(scenarios)
    # Each selector has a random number; tasks that the same ones select have the same sum.
    marks = np.random.default_rng(0).integers(1, 2**63, max(len(selectors), 1), np.uint64)
    task_mark = (machines.work_of_task + 1).astype(np.uint64)
    lag_mark = np.zeros(len(graph.source), np.uint64)
    for selector, mark in zip(selectors, marks, strict=False):
        tasks, lags = _selected(graph, selector)
        task_mark[tasks] += mark
        lag_mark[lags] += mark
    group, first, groups = _numbered(task_mark)
    lag_group, lag_first, lag_groups = _numbered(lag_mark)
    member = {}
    for selector in selectors:
        tasks, lags = _selected(graph, selector)
        member[selector] = np.concatenate([tasks[first], lags[lag_first]])
    total = groups + lag_groups
    return Groups(
        group=np.where(group < groups, group, total),
        lag_group=np.where(lag_group < lag_groups, groups + lag_group, total),
        groups=total,
        member=member,
        work=np.concatenate([machines.work_of_task[first], np.full(lag_groups, -1)]),
    )


def scenario_factors(groups: Groups, scenario: Scenario, ratio: np.ndarray | None) -> np.ndarray:
    """The factor of each group in one scenario.

    Args:
        groups: of `group_tasks`.
        scenario: the scenario.
        ratio: (works,) or (works, draws) of the modelled time of each work on the scenario's
            machine to that on the recorded one; `None` where that is the same.

    Returns:
        (groups,) or (groups, draws) float64.
    """
    factor = np.ones(groups.groups)
    for selector, value in scenario.scale.items():
        factor[groups.member[selector]] *= value
    # Without device work there is none to move.
    if ratio is None or not len(ratio):
        return factor
    moved = np.where((groups.work >= 0)[:, None], ratio.reshape(len(ratio), -1)[groups.work], 1.0)
    return (moved * factor[:, None]).reshape(-1, *ratio.shape[1:])


def _selectors(scenarios: Sequence[Scenario]) -> list[str]:
    selectors: dict[str, None] = {}
    for scenario in scenarios:
        for selector, factor in scenario.scale.items():
            if not (np.isfinite(factor) and factor >= 0):
                raise ConfigError(
                    "not a factor",
                    where=f"scale {selector}",
                    got=repr(factor),
                    expected="a number, 0 or more",
                )
            selectors[selector] = None
    return list(selectors)


def _selected(graph: ExecutionGraph, selector: str) -> tuple[np.ndarray, np.ndarray]:
    """(tasks,) and (dependencies,) bool, what a selector selects."""
    tasks = select_tasks(graph, selector, where=f"scale {selector}")
    if is_launch_selector(selector):
        return tasks, select_launch_lags(graph, tasks)
    return tasks, np.zeros(len(graph.source), bool)


def _numbered(mark: np.ndarray) -> tuple[np.ndarray, np.ndarray, int]:
    """A number for each mark but 0, which has the last; the first of each; how many."""
    marks, first, group = np.unique(mark, return_index=True, return_inverse=True)
    if len(marks) and marks[0] == 0:
        group = np.where(group == 0, len(marks) - 1, group - 1)
        first = first[1:]
    return group.reshape(-1), first, len(first)
