"""The pooled program: shares of options, the tiers' times, and the least step that holds them.

    min t   such that   sum_o of a table x_o = 1,   sum_o x_o size[o, j] <= capacity[j]
                        sum_o x_o busy[o, j, r] <= T_j,   fixed_s + sum_j stage[s, j] T_j <= t
                        sum_o x_o wear[o, j] <= t

The linear relaxation is a bound for every placement on devices: units that share evenly are the
best that can be, and a mixture of options is a table that is split. The integer program lets a
giant table be split in equal shards of any options; HiGHS takes no start, so that what is known
already bounds `t`, and options whose reduced cost takes the bound beyond it are left out.
"""

import time
from dataclasses import dataclass

import numpy as np

from jaxperf.embedding.placement._problem import (
    PlacementProblem,
    PooledPlacement,
    capacity_excess_bytes,
    pooled_step,
    slow_cost,
)
from jaxperf.errors import ConfigError

_INFEASIBLE = 2  # scipy's word for it
_LEAST_SHARE = 1e-7  # what is less is rounding


@dataclass(frozen=True, eq=False)
class Relaxation:
    """The linear relaxation of the pooled program.

    Attributes:
        shares: (options,) its solution.
        bound_us: no placement of these options is faster.
        reduced_cost_us: (options,) that a whole table in the option adds to the bound, at least.
        capacity_price_us: (tiers,) that the bound falls with all of a tier's capacity once more.
        busy_price: (tiers, resources) the same by the time a resource is busy.
        wear_price: (tiers,) the same by the time endurance asks for.
        stage_price: (stages,) that it falls with the time of the stage besides the tiers'.
    """

    shares: np.ndarray
    bound_us: float
    reduced_cost_us: np.ndarray
    capacity_price_us: np.ndarray
    busy_price: np.ndarray
    wear_price: np.ndarray
    stage_price: np.ndarray


def relax(problem: PlacementProblem) -> Relaxation:
    """Solve the linear relaxation.

    Args:
        problem: the options.

    Returns:
        The bound, its solution and its prices.

    Raises:
        ConfigError: the tables do not fit.

    Example:
        >>> from jaxperf.embedding.placement._problem import example_problem
        >>> round(relax(example_problem()).bound_us, 3)
        37.125
    """
    from scipy.optimize import linprog

    rows = _Rows(problem)
    result = linprog(
        rows.objective,
        A_ub=rows.upper,
        b_ub=rows.limit,
        A_eq=rows.equal,
        b_eq=np.ones(len(problem.tables)),
        method="highs",
    )
    if result.status == _INFEASIBLE:
        raise ConfigError(
            "the tables do not fit",
            where="placement",
            got=f"{shortage_bytes(problem):,.0f} bytes more than all tiers have room for",
        )
    if result.status != 0:
        raise ConfigError("no bound was found", where="placement", got=result.message)
    price = -result.ineqlin.marginals * rows.scale_us
    tiers, resources = len(problem.tiers), len(problem.resources)
    busy_price = np.zeros(tiers * resources)
    busy_price[rows.busy_at] = price[tiers : tiers + len(rows.busy_at)] / rows.scale_us
    return Relaxation(
        shares=_shares_of(problem, result.x),
        bound_us=float(result.fun * rows.scale_us),
        reduced_cost_us=result.lower.marginals[: problem.options] * rows.scale_us,
        capacity_price_us=price[:tiers],
        busy_price=busy_price.reshape(tiers, resources),
        wear_price=price[-tiers:] / rows.scale_us,
        stage_price=price[-tiers - len(problem.stages) : -tiers] / rows.scale_us,
    )


def prefer_fast(problem: PlacementProblem, step_us: float) -> np.ndarray | None:
    """Shares that take the least of slower memories, in a step that is no longer.

    Where a network or the dense part bounds a step, very many placements are as fast.

    Args:
        problem: the options.
        step_us: of a placement that there is.

    Returns:
        (options,) shares; few tables have several. None where there are none.

    Example:
        >>> from jaxperf.embedding.placement._problem import example_problem
        >>> prefer_fast(example_problem(), 100.0)  # of 102 and 42 and 61
        array([0.125, 0.875, 1.   , 0.   ])
    """
    from scipy.optimize import linprog

    rows = _Rows(problem)
    cost = slow_cost(problem)
    objective = np.zeros_like(rows.objective)
    objective[: problem.options] = cost / max(cost.max(), 1e-30)
    bounds = np.zeros((len(objective), 2))
    bounds[:, 1] = np.inf
    bounds[-1, 1] = step_us / rows.scale_us
    result = linprog(
        objective,
        A_ub=rows.upper,
        b_ub=rows.limit,
        A_eq=rows.equal,
        b_eq=np.ones(len(problem.tables)),
        bounds=bounds,
        method="highs",
    )
    return None if result.x is None else _shares_of(problem, result.x)


def place_pooled(
    problem: PlacementProblem,
    pieces: np.ndarray | None = None,
    *,
    relaxed: Relaxation | None = None,
    known: PooledPlacement | None = None,
    gap: float = 1e-3,
    time_limit_s: float = 30.0,
) -> PooledPlacement | None:
    """Choose options by the integer program, all units of a tier as one.

    Args:
        problem: the options.
        pieces: (tables,) equal shards that each table may be split in; whole tables if not given.
        relaxed: of `relax`, where it is known already.
        known: a placement that is to be bettered, such as a greedy one.
        gap: to the bound at which the search may end, as a part of it.
        time_limit_s: of the search.

    Returns:
        The fastest placement found, `known` included; None where there is none.

    Raises:
        ConfigError: the tables do not fit.

    Example:
        >>> from jaxperf.embedding.placement._problem import example_problem
        >>> place_pooled(example_problem()).shares
        array([0., 1., 1., 0.])
    """
    deadline = time.monotonic() + time_limit_s
    relaxed = relaxed or relax(problem)
    pieces = np.ones(len(problem.tables)) if pieces is None else pieces
    best = known
    # A few options a table first: a good placement soon lets most of the others be left out.
    for near in (_near(problem, relaxed, 3), np.ones(problem.options, bool)):
        if best is not None and best.step_us <= relaxed.bound_us * (1 + gap):
            break
        limit_us = np.inf if best is None else best.step_us
        cheap = relaxed.bound_us + relaxed.reduced_cost_us / pieces[problem.table] <= limit_us
        left_s = deadline - time.monotonic()
        if left_s <= 0.0:
            break
        found = _search(problem, near & cheap, pieces, relaxed.bound_us, limit_us, gap, left_s)
        if found is not None and (best is None or found.step_us < best.step_us):
            best = found
    return best and PooledPlacement(best.shares, best.step_us, relaxed.bound_us)


def _shares_of(problem: PlacementProblem, columns: np.ndarray) -> np.ndarray:
    """(options,) of a solution of the relaxation, without what is rounding."""
    shares = np.clip(columns[: problem.options], 0.0, 1.0)
    shares[shares < _LEAST_SHARE] = 0.0
    return shares / np.bincount(problem.table, shares)[problem.table]


def _near(problem: PlacementProblem, relaxed: Relaxation, most: int) -> np.ndarray:
    """The options of least reduced cost of each table."""
    order = np.lexsort((-relaxed.shares, relaxed.reduced_cost_us, problem.table))
    first = np.searchsorted(problem.table, np.arange(len(problem.tables)))
    near = np.zeros(problem.options, bool)
    near[order] = np.arange(problem.options) - first[problem.table[order]] < most
    return near


def _search(
    problem: PlacementProblem,
    allowed: np.ndarray,
    pieces: np.ndarray,
    bound_us: float,
    limit_us: float,
    gap: float,
    time_limit_s: float,
) -> PooledPlacement | None:
    from scipy.optimize import Bounds, LinearConstraint, milp

    rows = _Rows(problem, pieces)
    options, tiers = problem.options, len(problem.tiers)
    upper = np.full(options + tiers + 1, np.inf)
    upper[:options] = np.where(allowed, pieces[problem.table], 0.0)
    upper[-1] = limit_us / rows.scale_us
    lower = np.zeros_like(upper)
    lower[-1] = min(bound_us * (1 - 1e-9), limit_us) / rows.scale_us
    result = milp(
        rows.objective,
        integrality=np.r_[np.ones(options), np.zeros(tiers + 1)],
        bounds=Bounds(lower, upper),  # pyright: ignore[reportArgumentType]
        constraints=[
            LinearConstraint(rows.upper, -np.inf, rows.limit),
            LinearConstraint(rows.equal, 1.0, 1.0),
        ],
        options={"time_limit": time_limit_s, "mip_rel_gap": gap},
    )
    if result.x is None:
        return None
    shares = np.round(result.x[:options]) / pieces[problem.table]
    # HiGHS holds constraints to 1e-6 only.
    if (capacity_excess_bytes(problem, shares) > 1e-6 * problem.capacity_bytes).any():
        return None
    return PooledPlacement(shares, pooled_step(problem, shares).step_us)


class _Rows:
    """The pooled program as matrices; the columns are options, the tiers' times and the step.

    Times are in units of `scale_us`, sizes in parts of the capacity: HiGHS has absolute tolerances.
    """

    def __init__(self, problem: PlacementProblem, pieces: np.ndarray | None = None):
        from scipy.sparse import coo_array, csr_array, hstack, vstack

        tables, tiers = len(problem.tables), len(problem.tiers)
        options, stages = problem.options, len(problem.stages)
        count = np.ones(tables) if pieces is None else pieces
        part = 1.0 / count[problem.table]
        busy_us = problem.busy_us.reshape(options, -1)
        mean_us = busy_us / np.bincount(problem.table)[problem.table][:, None]
        self.scale_us = max(problem.fixed_us.max(), mean_us.sum(axis=0).max(), 1e-3)
        self.busy_at = np.flatnonzero(busy_us.max(axis=0) > 0)
        size = problem.size_bytes / problem.capacity_bytes
        of_tier = np.zeros((len(self.busy_at), tiers + 1))
        of_tier[np.arange(len(self.busy_at)), self.busy_at // len(problem.resources)] = -1.0
        to_step = np.zeros((tiers, tiers + 1))
        to_step[:, -1] = -1.0
        of_stage = np.c_[problem.stage_tiers, -np.ones(stages)]
        blocks = [
            (size, np.zeros((tiers, tiers + 1))),
            (busy_us[:, self.busy_at] / self.scale_us, of_tier),
            (np.zeros((options, stages)), of_stage),
            (problem.wear_us / self.scale_us, to_step),
        ]
        self.upper = vstack(
            [
                hstack([csr_array((left * part[:, None]).T), csr_array(right)])
                for left, right in blocks
            ]
        ).tocsr()
        self.limit = np.r_[
            np.ones(tiers),
            np.zeros(len(self.busy_at)),
            -problem.fixed_us / self.scale_us,
            np.zeros(tiers),
        ]
        columns = np.arange(options)
        self.equal = coo_array(
            (part, (problem.table, columns)), shape=(tables, options + tiers + 1)
        ).tocsr()
        self.objective = np.zeros(options + tiers + 1)
        self.objective[-1] = 1.0


def shortage_bytes(problem: PlacementProblem) -> float:
    """Bytes that all tiers together are short of, if tables are placed for the least of it.

    Args:
        problem: the options.

    Returns:
        0 where everything fits.

    Example:
        >>> from jaxperf.embedding.placement._problem import example_problem
        >>> from dataclasses import replace
        >>> small = replace(example_problem(), capacity_bytes=np.array([100.0, 60.0]))
        >>> f"{shortage_bytes(small):.0f}"  # of 170
        '10'
    """
    from scipy.optimize import linprog
    from scipy.sparse import csr_array, eye_array, hstack

    rows = _Rows(problem)
    tiers, tables = len(problem.tiers), len(problem.tables)
    scale = problem.capacity_bytes.max()
    size = csr_array(problem.size_bytes.T / scale)
    result = linprog(
        np.r_[np.zeros(problem.options), np.ones(tiers)],
        A_ub=hstack([size, -eye_array(tiers)]).tocsr(),
        b_ub=problem.capacity_bytes / scale,
        A_eq=hstack([rows.equal[:, : problem.options], csr_array((tables, tiers))]).tocsr(),
        b_eq=np.ones(tables),
        method="highs",
    )
    return float(result.fun) * scale
