"""The placement of a model on a number of servers: options, their bound, and shards on devices."""

import math
import time
from dataclasses import dataclass, replace

import numpy as np

from jaxperf.embedding.placement._bound import SizeCurves, bound_us, size_curves
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
from jaxperf.embedding.placement._study import Study, constants_of, problem_of
from jaxperf.errors import ConfigError

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
        self._curves: SizeCurves = size_curves(study)
        self._proven_us: dict[int, float] = {}

    def _loads_of(self, options: TableOptions) -> OptionLoads:
        study = self.study
        return option_loads(
            study.arrays, study.machine, study.model.batch_size, options, study.rules
        )

    @property
    def _start(self) -> np.ndarray:
        """(options,) those without caches: they take the least room."""
        return self._options.cached.max(axis=1) == 0

    def bound(self, nodes: int) -> tuple[PlacementProblem, Relaxation]:
        """The bound of the options so far.

        Raises:
            ConfigError: the tables do not fit.
        """
        problem = problem_of(self.study, nodes, self._options, self._loads)
        return problem, relax_by_columns(problem, self._start)

    def proven_us(
        self,
        nodes: int,
        problem: PlacementProblem,
        relaxed: Relaxation,
        asked_us: float = math.inf,
    ) -> float:
        """What no placement is below, whatever the sizes of its caches.

        Args:
            nodes: servers.
            problem: of them.
            relaxed: any relaxation of it.
            asked_us: only whether the bound is above it is asked for.
        """
        found_us = bound_us(self.study, nodes, problem, relaxed, self._curves, asked_us=asked_us)
        # Whatever the prices: the best bound so far stands.
        self._proven_us[nodes] = max(found_us, self._proven_us.get(nodes, 0.0))
        return self._proven_us[nodes]

    def excludes(self, nodes: int, step_us: float, *, network: bool) -> bool:
        """Whether it is proven that no placement on so many servers has such a step.

        Without the network, more servers are never worse: each has as much room and as much
        bandwidth. What excludes a number then excludes all that are fewer.

        Args:
            nodes: servers.
            step_us: asked for; infinite where the tables only have to fit.
            network: whether the time of the network counts.
        """
        problem = problem_of(self.study, nodes, self._options, self._loads)
        if not network:
            fixed_us = problem.fixed_us.copy()
            fixed_us[0] -= constants_of(self.study, nodes).communication_us
            problem = replace(problem, fixed_us=fixed_us)
        if problem.fixed_us.max() > step_us:
            return True
        try:
            relaxed = relax_by_columns(problem, self._start)
        except ConfigError:  # They do not fit.
            return True
        return self.proven_us(nodes, problem, relaxed, step_us) > step_us

    def fine_bound(self, nodes: int, deadline: float) -> tuple[PlacementProblem, Relaxation]:
        """The bound, with sizes of caches as fine as matters.

        Raises:
            ConfigError: the tables do not fit.
        """
        problem, relaxed = self.bound(nodes)
        finer = 0
        for _ in range(_ROUNDS):
            used = np.flatnonzero(relaxed.shares > _USED)
            more = near_options(
                self._options, used, _FACTORS[finer], inclusive=self.study.rules.inclusive
            )
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

    def solve(self, nodes: int, deadline: float, step_us: float = math.inf) -> Solution | None:
        """Place the tables by `deadline`, in seconds of `time.monotonic`.

        Args:
            nodes: servers.
            deadline: of the search.
            step_us: asked for.

        Returns:
            The placement; None where a bound excludes the step that is asked for.

        Raises:
            ConfigError: the tables do not fit.
        """
        # Half of the time for the sizes at most.
        now = time.monotonic()
        problem, relaxed = self.fine_bound(nodes, now + (deadline - now) / 2)
        # That of the options holds for no finer sizes of caches, for which there may be no time.
        proven_us = self.proven_us(nodes, problem, relaxed)
        if proven_us > step_us:
            return None
        left_s = max(deadline - time.monotonic(), 0.0)
        placement = place(problem, relaxed=relaxed, time_limit_s=left_s)
        placement = replace(placement, bound_us=proven_us)
        return Solution(problem, self._options, self._loads, placement)
