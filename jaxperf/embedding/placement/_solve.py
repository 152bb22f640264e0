"""The placement of a model on a number of servers: options, their bound, and shards on devices."""

import time
from dataclasses import dataclass

import numpy as np

from jaxperf.embedding.placement._columns import relax_by_columns
from jaxperf.embedding.placement._milp import Relaxation
from jaxperf.embedding.placement._options import (
    OptionLoads,
    TableOptions,
    grid_options,
    join_options,
    near_options,
    option_loads,
)
from jaxperf.embedding.placement._place import Placement, place
from jaxperf.embedding.placement._problem import PlacementProblem
from jaxperf.embedding.placement._study import Study, problem_of

# Factors between sizes of caches, each until a round of it gains less than that part.
_FACTORS = (1.6, 1.25, 1.12, 1.06, 1.03)
_GAINS = (0.01, 0.005, 0.002, 0.001, 0.0002)
_ROUNDS = 40
_USED = 1e-3  # share from which an option's neighbours are tried


@dataclass(frozen=True, eq=False)
class Solution:
    """A placement with all that it was chosen from.

    Attributes:
        problem: of the options.
        options: of the tables.
        loads: of the options on one server.
        placement: shards on devices, and the bound.
    """

    problem: PlacementProblem
    options: TableOptions
    loads: OptionLoads
    placement: Placement

    @property
    def shares(self) -> np.ndarray:
        """(options,) of the tables, as they were packed."""
        return self.placement.packing.shares(self.problem.options)


class Solver:
    """Placements of one model on servers of one kind; options found for one number serve others.

    Args:
        study: the model, the server and the rules.
    """

    def __init__(self, study: Study):
        self.study = study
        batch_size, tiers = study.model.batch_size, len(study.server.tiers)
        self._options = grid_options(study.arrays, batch_size, tiers, study.rules)
        self._loads = self._loads_of(self._options)

    def _loads_of(self, options: TableOptions) -> OptionLoads:
        study = self.study
        return option_loads(
            study.arrays, study.machine, study.model.batch_size, options, study.rules
        )

    def bound(self, nodes: int) -> tuple[PlacementProblem, Relaxation]:
        """The bound of the options so far.

        Raises:
            ConfigError: the tables do not fit.
        """
        problem = problem_of(self.study, nodes, self._options, self._loads)
        return problem, relax_by_columns(problem, self._options.cached.max(axis=1) == 0)

    def fine_bound(self, nodes: int, deadline: float) -> tuple[PlacementProblem, Relaxation]:
        """The bound, with sizes of caches as fine as matters.

        Raises:
            ConfigError: the tables do not fit.
        """
        problem, relaxed = self.bound(nodes)
        finer = 0
        for _ in range(_ROUNDS):
            used = np.flatnonzero(relaxed.shares > _USED)
            more = near_options(self._options, used, _FACTORS[finer])
            if not len(more.table) or time.monotonic() > deadline:
                break
            self._options, self._loads = join_options(
                [self._options, more], [self._loads, self._loads_of(more)]
            )
            before_us = relaxed.bound_us
            problem, relaxed = self.bound(nodes)
            if relaxed.bound_us > before_us * (1 - _GAINS[finer]):
                finer += 1
                if finer == len(_FACTORS):
                    break
        return problem, relaxed

    def solve(self, nodes: int, deadline: float) -> Solution:
        """Place the tables by `deadline`, in seconds of `time.monotonic`.

        Raises:
            ConfigError: the tables do not fit.
        """
        # Half of the time for the sizes at most.
        now = time.monotonic()
        problem, relaxed = self.fine_bound(nodes, now + (deadline - now) / 2)
        left_s = max(deadline - time.monotonic(), 0.0)
        placement = place(problem, relaxed=relaxed, time_limit_s=left_s)
        return Solution(problem, self._options, self._loads, placement)
