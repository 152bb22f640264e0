"""What a recorded run would take under changes, with intervals: one scenario or thousands."""

import importlib
from typing import TYPE_CHECKING

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


def __getattr__(name: str):
    if name not in _MODULES:
        raise AttributeError(f"module 'jaxperf.whatif' has no attribute {name!r}")
    return getattr(importlib.import_module(_MODULES[name]), name)
