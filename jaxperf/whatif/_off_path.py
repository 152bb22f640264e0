"""Changes that the step does not wait for."""

from collections.abc import Sequence

import numpy as np

from jaxperf.config import Scenario
from jaxperf.graph import ExecutionGraph
from jaxperf.replay import sensitivities, sum_by_class
from jaxperf.trace import Note
from jaxperf.whatif._factors import group_tasks, scenario_factors
from jaxperf.whatif._machines import Machines, time_ratio

# An answer that moves by a smaller part of the step does not move; and what has a smaller part of
# the step is not what bounds it.
_STILL = 5e-4
_NO_SHARE = 0.01
_NAMED = 4
_LOOKED_AT = 64


def off_path_note(
    graph: ExecutionGraph,
    scenarios: Sequence[Scenario],
    machines: Machines,
    steps_us: np.ndarray,
) -> Note | None:
    """What bounds the step, where answers do not move because something else was changed.

    Args:
        graph: the execution graph, as recorded.
        scenarios: what is asked, the unchanged one first.
        machines: the machines that they name.
        steps_us: (scenarios,) the answers.

    Returns:
        The note; `None` where every answer moves, or nothing was changed where one does not.
    """
    still = np.flatnonzero(np.abs(steps_us - steps_us[0]) < _STILL * steps_us[0])[1:_LOOKED_AT]
    if not len(still):
        return None
    groups = group_tasks(graph, scenarios, machines)
    factors = {
        int(k): scenario_factors(groups, scenarios[k], time_ratio(machines, k)) for k in still
    }
    changed = {k: np.append(factor != 1.0, False) for k, factor in factors.items()}
    if not any(some.any() for some in changed.values()):
        return None
    slopes = sensitivities(graph)
    share = np.bincount(groups.group, np.abs(slopes.task_us), groups.groups + 1)
    share += np.bincount(groups.lag_group, np.abs(slopes.dependency_us), groups.groups + 1)
    least_us = _NO_SHARE * slopes.step_us
    names = [
        scenarios[k].name
        for k, some in changed.items()
        if some.any() and share[some].sum() < least_us
    ]
    if not names:
        return None
    by_class = sum_by_class(graph, slopes.task_us, slopes.dependency_us)
    first = max(by_class, key=lambda name: by_class[name])
    percent = 100.0 * by_class[first] / slopes.step_us
    more = [f"{len(names) - _NAMED} more"] if len(names) > _NAMED else []
    where = f" in {', '.join(names[:_NAMED] + more)}" if len(scenarios) > 2 else ""
    text = (
        f"the step does not wait for what was changed{where}: {percent:.0f} % of its critical path "
        f"is of the class {first}"
    )
    return Note("change-off-path", text)
