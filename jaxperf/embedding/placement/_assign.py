"""Shares of options to devices by linear programs: as fast as even sharing, in few shards.

A group of devices hands its options to its parts, for the least of the worst use of any unit. The
parts can always share evenly, so that the step is the pooled one; and a corner of the program has
no more shards than options and limits that bind. First servers, then the devices of each: of
`n` options, `D` devices and `k` limits of each there are at most about `n + D k` shards.
"""

import numpy as np

from jaxperf.embedding.placement._packing import (
    Packing,
    packing_of,
    shard_loads,
)
from jaxperf.embedding.placement._problem import PlacementProblem, even_loads

_LEAST = 1e-7  # of a shard: what is less is rounding
_EXCEEDED = 1e-6  # of a unit: more than rounding


def assign(problem: PlacementProblem, shares: np.ndarray) -> Packing | None:
    """Lay shares of options on devices, split by rows alone.

    Args:
        problem: the options.
        shares: (options,) of the tables; they fit all units of each tier together.

    Returns:
        The packing; None where the solver found none.

    Example:
        >>> from jaxperf.embedding.placement._problem import example_problem
        >>> assign(example_problem(), np.array([0.0, 1.0, 1.0, 0.0])).step.step_us
        42.0
    """
    option = np.flatnonzero(shares > 0)
    even = even_loads(problem, shares)
    groups = [(0, option, shares[option])]
    before = 1
    for count in _counts(problem):
        parts = []
        for group, option, rows in groups:
            found = _divide(problem, even, count, count // before, option, rows)
            if found is None:
                return None
            parts += [(group * (count // before) + part, *each) for part, each in enumerate(found)]
        groups, before = parts, count
    device = np.repeat([group for group, _, _ in groups], [len(each[1]) for each in groups])
    option = np.concatenate([each[1] for each in groups])
    return packing_of(problem, option, device, np.concatenate([each[2] for each in groups]))


def _counts(problem: PlacementProblem) -> list[int]:
    """Numbers of parts, each a multiple of the one before; the last is that of the devices."""
    counts = sorted({int(units) for units in problem.units})
    nested = all(after % before == 0 for before, after in zip(counts, counts[1:], strict=False))
    return counts if nested else counts[-1:]


def _divide(
    problem: PlacementProblem,
    even: np.ndarray,
    count: int,
    parts: int,
    option: np.ndarray,
    rows: np.ndarray,
) -> list[tuple[np.ndarray, np.ndarray]] | None:
    """Options and rows of each part of a group, of `count` such parts in all."""
    from scipy.optimize import linprog
    from scipy.sparse import csr_array, eye_array, hstack, kron

    if parts == 1:
        return [(option, rows)]
    loads = shard_loads(problem, option, rows, np.ones(len(option))) / even
    # A tier with fewer units than parts is shared by several, whoever takes what.
    own = np.flatnonzero(problem.units >= count)
    loads = loads[:, own] * (count / problem.units[own])[:, None]
    use = loads.reshape(len(option), -1).T
    use = use[use.max(axis=1, initial=0.0) > 0]
    limits = parts * len(use)
    of_part = eye_array(parts)
    upper = hstack([kron(of_part, csr_array(use)), csr_array(-np.ones((limits, 1)))])
    equal = kron(np.ones((1, parts)), eye_array(len(option)))
    result = linprog(
        np.r_[np.zeros(parts * len(option)), 1.0],
        A_ub=upper.tocsr(),
        b_ub=np.zeros(limits),
        A_eq=hstack([equal, csr_array((len(option), 1))]).tocsr(),
        b_eq=np.ones(len(option)),
        method="highs-ds",
    )
    solution = result.x
    if solution is None or solution[-1] > 1 + _EXCEEDED:
        return None
    share = solution[:-1].reshape(parts, -1)
    share[share < _LEAST] = 0.0
    share /= share.sum(axis=0)
    return [(option[part > 0], (rows * part)[part > 0]) for part in share]
