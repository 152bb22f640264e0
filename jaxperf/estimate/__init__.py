"""What a job that was never run would take: time, utilization, memory."""

from typing import TYPE_CHECKING

from jaxperf._lazy import lazy_names
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

__getattr__, __dir__ = lazy_names(__name__, _MODULES)
