"""Fit the numbers of the cost model to traces, by gradient, and say how sure they are."""

from typing import TYPE_CHECKING

from jaxperf._lazy import lazy_names
from jaxperf.calibrate._types import (
    Calibration as Calibration,
    ClassError as ClassError,
    FittedNumber as FittedNumber,
)
from jaxperf.calibrate._verb import calibrate as calibrate

if TYPE_CHECKING:
    from jaxperf.calibrate._optimise import (
        Observed as Observed,
        Posterior as Posterior,
        fit_factors as fit_factors,
    )

# What computes with jax is imported when it is first used.
_MODULES: dict[str, str] = dict.fromkeys(
    ("Observed", "Posterior", "fit_factors"), "jaxperf.calibrate._optimise"
)

__getattr__, __dir__ = lazy_names(__name__, _MODULES)
