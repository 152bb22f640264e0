"""The best configuration of a space, and how it is known to be the best."""

from typing import TYPE_CHECKING

from jaxperf._lazy import lazy_names
from jaxperf.search._verb import search as search

if TYPE_CHECKING:
    from jaxperf.search._conflict import Conflict as Conflict, conflict as conflict
    from jaxperf.search._distributed import distributed_rows as distributed_rows
    from jaxperf.search._evaluate import Measured as Measured, evaluate as evaluate
    from jaxperf.search._from_trace import (
        TracedPoint as TracedPoint,
        search_trace as search_trace,
    )
    from jaxperf.search._gradient import search_gradient as search_gradient
    from jaxperf.search._problem import Problem as Problem, pose as pose
    from jaxperf.search._robust import RobustChoice as RobustChoice, robust_choice as robust_choice
    from jaxperf.search._types import (
        Certificate as Certificate,
        Point as Point,
        SearchResult as SearchResult,
    )

# What computes with jax is imported when it is first used.
_MODULES = {
    "Certificate": "jaxperf.search._types",
    "Conflict": "jaxperf.search._conflict",
    "Measured": "jaxperf.search._evaluate",
    "Point": "jaxperf.search._types",
    "Problem": "jaxperf.search._problem",
    "RobustChoice": "jaxperf.search._robust",
    "SearchResult": "jaxperf.search._types",
    "TracedPoint": "jaxperf.search._from_trace",
    "conflict": "jaxperf.search._conflict",
    "distributed_rows": "jaxperf.search._distributed",
    "evaluate": "jaxperf.search._evaluate",
    "pose": "jaxperf.search._problem",
    "robust_choice": "jaxperf.search._robust",
    "search_trace": "jaxperf.search._from_trace",
    "search_gradient": "jaxperf.search._gradient",
}

__getattr__, __dir__ = lazy_names(__name__, _MODULES)
