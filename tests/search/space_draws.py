"""Spaces drawn at random, each small enough to enumerate, and what a search finds of them."""

import random
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import msgspec
import numpy as np

from jaxperf.config import SearchSpace, built_in_jobs, load_hardware
from jaxperf.search._evaluate import evaluate
from jaxperf.search._gradient import search_gradient
from jaxperf.search._problem import Problem, pose
from jaxperf.search._types import costs

_AXES: dict[str, tuple[Any, ...]] = {
    "tensor_parallel": (1, 2, 3, 4, 8),
    "pipeline_parallel": (1, 2, 3, 4, 6, 8, 12, 16),
    "context_parallel": (1, 2, 4),
    "virtual_stages": (1, 2, 3, 4, 6, 8),
    "micro_batch_size": (1, 2, 4, 8, 16),
    "recompute": ("none", "selective", "full"),
    "sharding": ("none", "zero1", "zero2", "zero3"),
    "sequence_parallel": (False, True),
    "precision": ("bf16", "fp8"),
    "overlap_gradients": (False, True),
    "overlap_tensor": (False, True),
    "gradient_buckets": (1, 4, 16),
    "clock_hz": (900e6, 1200e6, 1500e6, 1980e6),
}
_OBJECTIVES = ("step_us", "step_us", "tokens_per_s_per_gpu", "energy_j_per_token")


def drawn_problems(seed: int, *, most: int = 12_000) -> Iterator[Problem]:
    """Searches without end: built-in models on H100, 3 to 8 axes with some of their values each.

    Args:
        seed: of the draws.
        most: points of a space, of which none has fewer than 100.
    """
    draw, hardware = random.Random(seed), load_hardware("h100")
    bases = [
        msgspec.structs.replace(job, stage_layers=None, schedule="1F1B", virtual_stages=1)
        for job in built_in_jobs().values()
    ]
    while True:
        job = draw.choice(bases)
        axes = {}
        for name in draw.sample(list(_AXES), draw.randint(3, 8)):
            values = _AXES[name]
            kept = sorted(draw.sample(range(len(values)), draw.randint(2, len(values))))
            axes[name] = tuple(values[place] for place in kept)
        gpus = draw.choice((8, 24, 32, 64, 96, 256, 768, 1024))
        batch = gpus * draw.choice((1, 2, 4, 12))
        limits = draw.choice(({}, {}, {"memory_bytes": 40e9}, {"power_w_per_gpu": 550.0}))
        objective = draw.choice(_OBJECTIVES)
        space = SearchSpace("drawn", axes, gpus, batch, None, limits, (objective,))
        if 100 <= space.size <= most:
            yield pose(job, hardware, space)


@dataclass(frozen=True)
class AgainstEnumeration:
    """What a search found of a space that was enumerated too.

    Attributes:
        points: of the space.
        evaluated: how many of them the search evaluated.
        excess: by how much its best is worse than the optimum, as part of that; infinite where it
            found none that is feasible.
    """

    points: int
    evaluated: int
    excess: float


def gradient_against_enumeration(seed: int, count: int) -> list[AgainstEnumeration]:
    """Gradient search on the first drawn spaces that have a feasible point.

    Args:
        seed: of the draws.
        count: spaces.
    """
    found = []
    for problem in drawn_problems(seed):
        optimum = optimum_of(problem)
        if np.isfinite(optimum):
            search = search_gradient(problem)
            excess = abs((search.cost[:, 0].min() - optimum) / optimum)
            found.append(AgainstEnumeration(problem.space.size, len(search.index), excess))
        if len(found) == count:
            return found
    raise AssertionError("the draws have no end")


def optimum_of(problem: Problem) -> float:
    """The least cost by the first objective of all points; infinite where none is feasible."""
    measured = evaluate(problem, np.arange(problem.space.size))
    if not measured.feasible.any():
        return np.inf
    return costs(problem, measured.measures)[measured.feasible, 0].min()
