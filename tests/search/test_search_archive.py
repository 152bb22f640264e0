"""What is kept of points: the ten best and the front, against looking at every pair."""

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from jaxperf.config import MEASURES
from jaxperf.search._archive import BEST, add, empty, non_dominated

OBJECTIVES = ("step_us", "tokens_per_s_per_gpu", "memory_bytes")


def problem_of(count: int) -> Any:
    return SimpleNamespace(space=SimpleNamespace(objectives=OBJECTIVES[:count]))


def measured_of(index, cost, feasible=None) -> Any:
    """Points whose costs are given: a measure of which more is better is their negative."""
    measures = {
        name: column if MEASURES[name] == "least" else -column
        for name, column in zip(OBJECTIVES, cost.T, strict=False)
    }
    feasible = np.ones(len(index), bool) if feasible is None else feasible
    points = SimpleNamespace(index=index)
    return SimpleNamespace(points=points, measures=measures, feasible=feasible)


def archive_of(cost, feasible=None, batches=1, seed=0):
    """All points, handed over in batches in a random order."""
    problem = problem_of(cost.shape[1])
    archive = empty(problem)
    for some in np.array_split(np.random.default_rng(seed).permutation(len(cost)), batches):
        kept = None if feasible is None else feasible[some]
        archive = add(problem, archive, measured_of(some, cost[some], kept))
    return archive


def front_by_pairs(cost):
    """Points that no other beats: as good in all, and better in one or with a lower number."""
    front = []
    for i, one in enumerate(cost):
        beaten = any(
            (other <= one).all() and ((other < one).any() or j < i)
            for j, other in enumerate(cost)
            if i != j
        )
        if not beaten:
            front.append(i)
    return front


@pytest.mark.parametrize("objectives", [1, 2, 3])
@pytest.mark.parametrize("values", [3, 40])
def test_the_front_is_what_no_other_point_beats(objectives, values):
    # Few values make many points that cost the same.
    cost = np.random.default_rng(values).integers(0, values, (150, objectives)).astype(float)
    expected = front_by_pairs(cost)
    for batches in (1, 2, 20):
        archive = archive_of(cost, batches=batches, seed=batches)
        assert sorted(archive.index[archive.front]) == expected
        np.testing.assert_array_equal(archive.cost, cost[archive.index])


@pytest.mark.parametrize("batches", [1, 7])
def test_the_best_are_in_order_of_the_objectives_and_then_of_their_numbers(batches):
    cost = np.random.default_rng(0).integers(0, 12, (200, 2)).astype(float)
    archive = archive_of(cost, batches=batches)
    expected = sorted(range(len(cost)), key=lambda i: (*cost[i], i))
    assert archive.index[:BEST].tolist() == expected[:BEST]
    assert archive.best_cost == cost[:, 0].min()


def test_points_that_do_not_keep_a_limit_or_of_which_nothing_is_known_are_not_kept():
    cost = np.arange(20.0)[:, None]
    cost[3] = np.nan
    cost[4] = np.inf
    feasible = np.arange(20) >= 2
    assert archive_of(cost, feasible).index.tolist() == [2, *range(5, 14)]


def test_nothing_feasible_is_an_archive_of_nothing():
    archive = archive_of(np.zeros((5, 2)), np.zeros(5, bool))
    assert len(archive.index) == 0 and archive.best_cost == np.inf and not archive.front.any()


def test_a_point_that_comes_twice_is_kept_once():
    problem, cost = problem_of(1), np.arange(6.0)[:, None]
    archive = add(problem, empty(problem), measured_of(np.arange(6), cost))
    archive = add(problem, archive, measured_of(np.arange(6), cost))
    assert archive.index.tolist() == [0, 1, 2, 3, 4, 5]


def test_the_front_of_many_points_on_a_curve_is_all_of_them():
    first = np.linspace(1.0, 2.0, 1000)
    assert non_dominated(np.stack([first, 1.0 / first], axis=1)).all()
    assert non_dominated(np.stack([first, first], axis=1)).sum() == 1
