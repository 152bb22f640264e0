"""What a recorded run would take under changes, with intervals: one scenario or thousands."""

from typing import TYPE_CHECKING

from jaxperf._lazy import lazy_names
from jaxperf.whatif._types import (
    INTERVAL as INTERVAL,
    ScenarioAnswer as ScenarioAnswer,
    WhatIf as WhatIf,
)
from jaxperf.whatif._verb import whatif as whatif

if TYPE_CHECKING:
    from jaxperf.whatif._answers import answer_scenarios as answer_scenarios
    from jaxperf.whatif._sensitivity import hardware_sensitivities as hardware_sensitivities

# What computes with jax is imported when it is first used.
_MODULES = {
    "answer_scenarios": "jaxperf.whatif._answers",
    "hardware_sensitivities": "jaxperf.whatif._sensitivity",
}

__getattr__, __dir__ = lazy_names(__name__, _MODULES)
