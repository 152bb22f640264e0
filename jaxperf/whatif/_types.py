"""The nouns of a what-if: the answer to one scenario, and all of them."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from jaxperf.replay import Breakdown
from jaxperf.trace import Note

if TYPE_CHECKING:
    from jaxperf.replay import ClassSlowdown

INTERVAL = 0.9
"""Share of the draws that lie within an interval; as many of the others lie below as above."""


@dataclass(frozen=True, eq=False)
class ScenarioAnswer:
    """What one scenario comes to.

    Attributes:
        name: of the scenario.
        scale: factors by selector, as asked.
        set: values by key, as asked.
        step_us: the steady step: mean over ranks and iterations, the first of at least three left
            out; of a trace without iterations the whole window.
        ratio: of this to the baseline's.
        breakdown: where a rank's step goes; `None` where there is no device work, or there are many
            scenarios (a note says so).
        interval_us: within which 90 % of the draws lie; `None` where none were asked for.
        out_of_range: changed values of which the model has seen nothing.
        origins: of a changed job, shares of its critical path whose durations are `recorded`,
            `scaled` to another size, and `modelled` alone; `None` where the job is as recorded.
    """

    name: str
    scale: Mapping[str, float]
    set: Mapping[str, float | str]
    step_us: float
    ratio: float
    breakdown: Breakdown | None
    interval_us: tuple[float, float] | None
    out_of_range: tuple[str, ...]
    origins: Mapping[str, float] | None = None


@dataclass(frozen=True, eq=False)
class WhatIf:
    """The answers to a number of scenarios.

    Attributes:
        baseline: the run unchanged.
        scenarios: one answer for each, in their order.
        contention: by how much each class of kernels was seen to slow down while its rank
            communicates; empty where nothing was seen, or it was switched off.
        notes: everything that was repaired, guessed or set aside.
    """

    baseline: ScenarioAnswer
    scenarios: tuple[ScenarioAnswer, ...]
    contention: "tuple[ClassSlowdown, ...]"
    notes: tuple[Note, ...]
