"""The linear relaxation of very many options: only those that its prices ask for enter it."""

from dataclasses import replace

import numpy as np

from jaxperf.embedding.placement._milp import Relaxation, relax
from jaxperf.embedding.placement._problem import PlacementProblem, part_of

_NEW = 3  # options of a table that enter at once
_ROUNDS = 30


def relax_by_columns(
    problem: PlacementProblem, start: np.ndarray, *, gap: float = 1e-5
) -> Relaxation:
    """Solve the linear relaxation of all options by column generation.

    The prices of a relaxation with fewer options tell what each other option would gain. Whatever
    the prices, the least cost of each table together with what the constraints are worth is a
    bound for all options (Lagrange), so that the search may end at a gap.

    Args:
        problem: all options.
        start: (options,) those to begin with; the tables have to fit with them.
        gap: of the bound to the relaxation of the options that entered, as a part.

    Returns:
        The relaxation; its bound is one for all options.

    Raises:
        ConfigError: the tables do not fit with the options to begin with.

    Example:
        >>> from jaxperf.embedding.placement._problem import example_problem
        >>> start = np.array([False, True, False, True])
        >>> round(relax_by_columns(example_problem(), start).bound_us, 3)
        37.125
    """
    active = start.copy()
    first = np.searchsorted(problem.table, np.arange(len(problem.tables)))
    bound_us = 0.0
    for _ in range(_ROUNDS):
        relaxed = relax(part_of(problem, active))
        cost_us = option_cost_us(problem, relaxed)
        # At the optimum the options that carry a share are the cheapest of those that entered.
        known_us = np.minimum.reduceat(np.where(active, cost_us, np.inf), first)
        least_us = np.minimum.reduceat(cost_us, first)
        gain_us = known_us[problem.table] - cost_us
        bound_us = max(bound_us, relaxed.bound_us - float((known_us - least_us).sum()))
        if relaxed.bound_us - bound_us <= gap * relaxed.bound_us:
            break
        active |= _best_of_table(problem, gain_us, first)
    shares = np.zeros(problem.options)
    shares[active] = relaxed.shares
    return replace(
        relaxed,
        shares=shares,
        bound_us=bound_us,
        reduced_cost_us=cost_us - least_us[problem.table],
    )


def option_cost_us(problem: PlacementProblem, relaxed: Relaxation) -> np.ndarray:
    """What each option costs at the prices of a relaxation.

    Args:
        problem: the options; the relaxation may be of others.
        relaxed: of the same constraints.

    Returns:
        (options,) microseconds of the bound.
    """
    return (
        problem.size_bytes @ (relaxed.capacity_price_us / problem.capacity_bytes)
        + np.tensordot(problem.busy_us, relaxed.busy_price, 2)
        + problem.wear_us @ relaxed.wear_price
    )


def _best_of_table(problem: PlacementProblem, gain_us: np.ndarray, first: np.ndarray) -> np.ndarray:
    order = np.lexsort((-gain_us, problem.table))
    rank = np.empty(problem.options, np.int64)
    rank[order] = np.arange(problem.options) - first[problem.table[order]]
    return (rank < _NEW) & (gain_us > 0)
