"""What a search finds: points, the front of those that none beats, and what proves it."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from jaxperf.config import MEASURES, Hardware, Job
from jaxperf.search._evaluate import Measured
from jaxperf.search._problem import Problem, values_of
from jaxperf.trace import Note

if TYPE_CHECKING:
    from jaxperf.search._from_trace import TracedPoint
    from jaxperf.search._robust import RobustChoice


@dataclass(frozen=True, eq=False)
class Point:
    """A configuration of a space, evaluated exactly.

    Attributes:
        index: its number in the space.
        values: by key of the space.
        job: what it stands for.
        hardware: its machine.
        clock_hz: of the accelerators, `None` for the nominal one.
        measures: by name, see `jaxperf.config.MEASURES`; NaN where not known.
    """

    index: int
    values: Mapping[str, Any]
    job: Job
    hardware: Hardware
    clock_hz: float | None
    measures: Mapping[str, float]


@dataclass(frozen=True, slots=True)
class Certificate:
    """What became of every point of a space.

    Attributes:
        points: of the space.
        refused: cannot be, by the text of the first rule that they break.
        over: do not keep a limit, by its name; found by evaluation or by a bound on it.
        excluded: cannot be better than what was found, by the name of the bound.
        evaluated: measured exactly, those that keep no limit included.
    """

    points: int
    refused: Mapping[str, int]
    over: Mapping[str, int]
    excluded: Mapping[str, int]
    evaluated: int


@dataclass(frozen=True, eq=False)
class SearchResult:
    """What a search found.

    Attributes:
        problem: what was searched.
        method: `exhaustive`, `bound` or `gradient`.
        best: the best by the first objective, best first, at most ten; empty where no point is
            feasible.
        front: points that no other beats in all objectives, by the first; of one objective the
            best alone.
        certificate: of a search that proves its answer, `None` of the gradient.
        complete: whether the search came to its end.
        notes: what was taken for granted.
        robust: the best under uncertainty, where it was asked for.
        traced: the best as a recorded run has them, where one was given; see `search_trace`.
        inputs: what the user named: `job`, `hardware`, `fit` and `power`, where they were named.
    """

    problem: Problem
    method: str
    best: tuple[Point, ...]
    front: tuple[Point, ...]
    certificate: Certificate | None
    complete: bool
    notes: tuple[Note, ...]
    robust: "RobustChoice | None" = None
    traced: "tuple[TracedPoint, ...]" = ()
    inputs: Mapping[str, str] = field(default_factory=dict)

    @property
    def choice(self) -> Point | None:
        """The best point: as a recorded run has it where one was given, else in closed form."""
        if self.traced:
            return self.traced[0].point
        return self.best[0] if self.best else None


def point(problem: Problem, measured: Measured, row: int) -> Point:
    """One of the points that were measured."""
    machine = problem.machines[int(measured.points.machine[row])]
    index = int(measured.points.index[row])
    return Point(
        index,
        values_of(problem, index),
        measured.points.jobs.job(row),
        machine.hardware,
        machine.clock_hz,
        {name: float(values[row]) for name, values in measured.measures.items()},
    )


def costs(problem: Problem, measures: Mapping[str, np.ndarray]) -> np.ndarray:
    """(rows, objectives) the objectives, of each less is better."""
    columns = [
        measures[name] if MEASURES[name] == "least" else -measures[name]
        for name in problem.space.objectives
    ]
    return np.stack(columns, axis=-1)
