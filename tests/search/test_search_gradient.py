"""Descent on a space taken as continuous; what is reported is exact."""

from types import SimpleNamespace

import numpy as np
import pytest

from jaxperf.config import SearchSpace, load_hardware, load_job
from jaxperf.search import _gradient
from jaxperf.search._evaluate import evaluate
from jaxperf.search._gradient import _Known, _simplices, _slope, search_gradient
from jaxperf.search._problem import pose
from jaxperf.search._types import costs
from tests.search.space_draws import gradient_against_enumeration

SIZES = (7, 1, 5, 9, 6)
ALONE = np.ones((1, 1))


@pytest.fixture
def landscape(monkeypatch):
    """Spaces whose step is a function of places on the axes, and the points asked for so far."""
    asked = []

    def make(step_us, *, memory_bytes=lambda codes: 0.0 * codes[0], exists=None, limit=1.0):
        axes = {f"axis {n}": tuple(range(size)) for n, size in enumerate(SIZES)}
        space = SearchSpace("made up", axes, limits={"memory_bytes": limit})

        def measure(problem, index):
            codes = np.array(np.unravel_index(index, SIZES), float)
            valid = np.ones(len(index), bool) if exists is None else exists(codes)
            measures = {"step_us": step_us(codes), "memory_bytes": memory_bytes(codes)}
            measures = {name: np.where(valid, each, np.nan) for name, each in measures.items()}
            over = measures["memory_bytes"] > limit
            asked.extend(index.tolist())
            return SimpleNamespace(
                points=SimpleNamespace(index=index, valid=valid),
                measures=measures,
                over={"memory_bytes": over},
                feasible=valid & ~over,
            )

        monkeypatch.setattr(_gradient, "evaluate", measure)
        return SimpleNamespace(space=space, machines=(), asked=asked)

    return make


def bowl(codes):
    """Least at (5, 0, 1, 6, 3)."""
    centre = np.array([5, 0, 1, 6, 3])[:, None]
    return 100.0 + np.sum((codes - centre) ** 2, axis=0)


def all_costs(problem):
    """(points,) the step of every point of a landscape, infinite where not feasible."""
    measured = _gradient.evaluate(problem, np.arange(problem.space.size))
    return np.where(measured.feasible, measured.measures["step_us"], np.inf)


def relaxed(known, place):
    found = _simplices(known, place, ALONE)
    return (found.weight * found.height).sum(axis=1)


def test_the_relaxed_objective_of_a_point_is_the_logarithm_of_its_own(landscape):
    known = _Known(landscape(bowl))
    codes = np.array([[5, 0, 1, 6, 3], [6, 0, 4, 8, 5], [0, 0, 0, 0, 0]])
    place = codes / np.maximum(np.array(SIZES) - 1, 1)
    np.testing.assert_allclose(relaxed(known, place), np.log(bowl(codes.T)), rtol=1e-12)


def test_a_product_of_powers_is_interpolated_exactly_with_its_slopes(landscape):
    powers = np.array([0.3, 0.0, -0.2, 0.1, 0.4])
    known = _Known(landscape(lambda codes: np.exp(powers @ codes)))
    place = np.random.default_rng(0).random((20, len(SIZES)))
    slopes = powers * (np.array(SIZES) - 1)
    np.testing.assert_allclose(relaxed(known, place), place @ slopes, atol=1e-12)
    np.testing.assert_allclose(_slope(known, place, ALONE), np.tile(slopes, (20, 1)), atol=1e-12)


def test_slopes_are_those_of_finite_differences(landscape):
    known = _Known(landscape(bowl))
    place = np.random.default_rng(1).uniform(0.01, 0.99, (20, len(SIZES)))
    slope = _slope(known, place, ALONE)
    for axis in range(len(SIZES)):
        by = 1e-7 * np.eye(len(SIZES))[axis]
        difference = (relaxed(known, place + by) - relaxed(known, place - by)) / 2e-7
        np.testing.assert_allclose(slope[:, axis], difference, atol=1e-6)


def test_the_corners_surround_a_position(landscape):
    known = _Known(landscape(bowl))
    place = np.random.default_rng(2).random((20, len(SIZES)))
    found = _simplices(known, place, ALONE)
    corners = np.stack(np.unravel_index(known.index[found.rows], SIZES), axis=-1)
    assert np.all(found.weight >= 0)
    np.testing.assert_allclose(found.weight.sum(axis=1), 1.0)
    centre = np.einsum("sc,sca->sa", found.weight, corners)
    np.testing.assert_allclose(centre, place * (np.array(SIZES) - 1), atol=1e-12)


def test_the_bottom_of_a_bowl_is_found_from_a_part_of_its_points(landscape):
    problem = landscape(bowl)
    found = search_gradient(problem)
    assert found.best == np.ravel_multi_index((5, 0, 1, 6, 3), SIZES)
    assert len(found.index) < problem.space.size / 2


def test_nothing_is_evaluated_twice(landscape):
    problem = landscape(bowl)
    found = search_gradient(problem)
    assert sorted(problem.asked) == found.index.tolist()


def test_a_limit_turns_the_descent_to_its_edge(landscape):
    limited = landscape(bowl, memory_bytes=lambda codes: codes[0] + codes[3], limit=6.0)
    found, every = search_gradient(limited), all_costs(limited)
    assert found.cost[:, 0].min() == every.min()
    assert np.all(np.isinf(found.cost[:, 0]) == np.isinf(every[found.index]))


def test_descent_leaves_what_is_far_beyond_a_limit(landscape):
    # Twelve of 1,890 points keep it, and the step alone leads away from them.
    limited = landscape(
        lambda codes: np.exp(-0.1 * codes.sum(axis=0)),
        memory_bytes=lambda codes: 2.0 ** codes.sum(axis=0),
        limit=5.0,
    )
    found, every = search_gradient(limited), all_costs(limited)
    assert np.isfinite(every).sum() < 20
    assert found.cost[:, 0].min() == every.min()


def test_points_that_cannot_be_do_not_stop_it(landscape):
    holed = landscape(bowl, exists=lambda codes: (codes[0] * 3 + codes[2] + codes[3]) % 3 != 1)
    found, every = search_gradient(holed), all_costs(holed)
    assert found.cost[:, 0].min() == every.min()


def test_without_a_feasible_point_there_is_no_best(landscape):
    nowhere = landscape(bowl, exists=lambda codes: codes[0] < 0)
    found = search_gradient(nowhere, starts=2, steps=3)
    assert found.best is None
    assert np.isnan(found.gap)


def test_what_is_rounded_is_exact_and_the_gap_that_to_the_relaxed(landscape):
    problem = landscape(bowl)
    found = search_gradient(problem)
    assert found.rounded in all_costs(problem)[found.index]
    assert found.gap == pytest.approx(abs(found.relaxed / found.rounded - 1))
    # Each corner around a position of rest is a step away at most.
    assert found.gap < 0.1


def test_a_seed_gives_the_same_search_again(landscape):
    first, again, other = (search_gradient(landscape(bowl), seed=seed) for seed in (3, 3, 4))
    np.testing.assert_array_equal(first.index, again.index)
    assert first.index.tolist() != other.index.tolist()


@pytest.mark.parametrize("axes", [{}, {"micro_batch_size": (1,)}])
def test_a_space_of_one_point_is_that_point(axes):
    space = SearchSpace("one", axes, gpus=64, limits={"memory_bytes": 1e12})
    problem = pose(load_job("llama3-8b"), load_hardware("h100"), space)
    found = search_gradient(problem, starts=1, steps=1)
    assert found.best == 0
    assert found.gap < 1e-12


def test_every_cost_is_that_of_the_evaluation():
    axes = {
        "tensor_parallel": (1, 2, 4),
        "micro_batch_size": (1, 2),
        "recompute": ("none", "selective", "full"),
    }
    objectives = ("tokens_per_s_per_gpu", "memory_bytes")
    space = SearchSpace("small", axes, gpus=64, global_batch_size=128, objectives=objectives)
    problem = pose(load_job("llama3-8b"), load_hardware("h100"), space)
    found = search_gradient(problem, starts=4, steps=4)
    measured = evaluate(problem, found.index)
    expected = np.where(measured.feasible[:, None], costs(problem, measured.measures), np.inf)
    np.testing.assert_allclose(found.cost, expected, rtol=1e-12)
    assert found.best == found.index[np.argmin(expected[:, 0])]


@pytest.mark.slow
def test_it_is_within_two_percent_of_enumeration_in_nine_spaces_of_ten():
    found = gradient_against_enumeration(seed=2, count=8)
    assert sum(each.excess <= 0.02 for each in found) >= 0.9 * len(found)
    large = [each for each in found if each.points > 2_000]
    assert large
    assert all(each.evaluated < each.points / 2 for each in large)
