"""Energy: power logs scored by the rules of MLPerf Power, and the power of what was replayed."""

import importlib
from typing import TYPE_CHECKING

from jaxperf.energy._predict import predict as predict
from jaxperf.energy._prediction_types import (
    Accounting as Accounting,
    BoundaryEnergy as BoundaryEnergy,
    EnergyPrediction as EnergyPrediction,
    RankPower as RankPower,
)
from jaxperf.energy._score import score as score
from jaxperf.energy._score_types import (
    Check as Check,
    EnergyScore as EnergyScore,
    MeasuredWindow as MeasuredWindow,
    Metric as Metric,
    RunScore as RunScore,
)
from jaxperf.energy.published import Trends as Trends, trends as trends

if TYPE_CHECKING:
    from jaxperf.energy.power._prediction import predict_timeline as predict_timeline

# What computes with jax is imported when it is first used.
_MODULES = {
    "predict_timeline": "jaxperf.energy.power._prediction",
}


def __getattr__(name: str):
    if name not in _MODULES:
        raise AttributeError(f"module 'jaxperf.energy' has no attribute {name!r}")
    return getattr(importlib.import_module(_MODULES[name]), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *_MODULES})
