"""What a job that was never run would take: time, utilization, memory."""

import importlib
from typing import TYPE_CHECKING

from jaxperf.estimate._types import Estimate as Estimate
from jaxperf.estimate._verb import estimate as estimate

if TYPE_CHECKING:
    from jaxperf.estimate._compute import (
        load_any_fit as load_any_fit,
        step_numbers as step_numbers,
    )

# What computes with jax is imported when it is first used.
_MODULES = {
    "load_any_fit": "jaxperf.estimate._compute",
    "step_numbers": "jaxperf.estimate._compute",
}


def __getattr__(name: str):
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(_MODULES[name]), name)
