"""The search by bounds finds what enumeration finds, and both account for every point."""

import itertools

import msgspec
import numpy as np
import pytest

from jaxperf.config import SearchSpace, load_hardware, load_job, usual_space
from jaxperf.search._evaluate import evaluate
from jaxperf.search._parts import CHUNK_POINTS, parts_of, settle
from jaxperf.search._problem import pose
from jaxperf.search._processes import search_parts
from jaxperf.search._types import costs
from tests.search.space_draws import drawn_problems, optimum_of
from tests.search.varied_spaces import varied_problems


def search_all(problem, progress=None, chunk_points=CHUNK_POINTS):
    return search_parts(parts_of(problem, "exhaustive", chunk_points), progress=progress)


def search_bounded(problem, progress=None, chunk_points=CHUNK_POINTS):
    return search_parts(parts_of(problem, "bound", chunk_points), progress=progress)


def check_searches(problem) -> bool:
    """Both searches against all points at once; whether there is a feasible one."""
    every, tally = search_all(problem)
    bounded, proof = search_bounded(problem)
    size, measured = problem.space.size, evaluate(problem, np.arange(problem.space.size))
    assert every.best_cost == pytest.approx(optimum_of(problem), rel=1e-12)
    np.testing.assert_array_equal(every.index[every.front], bounded.index[bounded.front])
    np.testing.assert_allclose(
        every.cost[every.front], bounded.cost[bounded.front], rtol=1e-12, atol=0
    )
    check_front(costs(problem, measured.measures)[measured.feasible], every)
    for found in (tally, proof):
        assert found.complete and found.points == size
        assert found.refused.total() + found.excluded.total() + found.evaluated == size
    assert tally.evaluated == measured.points.valid.sum()
    assert tally.excluded.total() == 0
    assert tally.refused.total() == (~measured.points.valid).sum()
    assert tally.over == {name: over.sum() for name, over in measured.over.items()}
    assert proof.evaluated <= tally.evaluated
    assert proof.refused.total() <= tally.refused.total()
    return bool(measured.feasible.any())


def check_front(cost, archive):
    """Nothing is better than the front in all objectives, and everything else is worse."""
    front = archive.cost[archive.front]
    for one, other in itertools.permutations(front, 2):
        assert not (one <= other).all()
    for each in cost:
        assert (front <= each * (1 + 1e-12 * np.sign(each))).all(axis=1).any()


def test_bounds_find_what_enumeration_finds():
    assert sum(map(check_searches, itertools.islice(drawn_problems(21, most=3000), 6))) >= 3
    assert sum(map(check_searches, varied_problems(22, 6, most=1500))) >= 2


@pytest.mark.slow
def test_bounds_find_what_enumeration_finds_in_fifty_spaces():
    assert sum(map(check_searches, itertools.islice(drawn_problems(23, most=3000), 50))) >= 25


@pytest.mark.slow
def test_bounds_find_what_enumeration_finds_in_fifty_spaces_of_every_kind():
    assert sum(map(check_searches, varied_problems(24, 50, most=3000))) >= 15


@pytest.fixture(scope="module")
def gpt():
    job = load_job("gpt3-175b")
    return pose(job, load_hardware("h100"), usual_space(job, 1024, 1024))


def test_the_usual_space_of_a_large_model_is_proved_with_fewer_evaluations(gpt):
    every, tally = search_all(gpt)
    bounded, proof = search_bounded(gpt)
    assert bounded.index[0] == every.index[0]
    assert bounded.cost[0] == every.cost[0]
    assert proof.complete and proof.evaluated < tally.evaluated / 2


def test_parts_of_a_space_come_to_the_whole(gpt):
    parts = parts_of(gpt, "exhaustive", gpt.space.size // 3)
    outcomes = [settle(parts, chunk) for chunk in range(parts.count)]
    found = [(outcome.archive, outcome.tally) for outcome in outcomes]
    whole, tally = search_all(gpt)
    best = min(found, key=lambda each: each[0].best_cost)[0]
    assert (best.index[0], best.best_cost) == (whole.index[0], whole.best_cost)
    assert sum(each.evaluated for _, each in found) == tally.evaluated
    assert sum((each.refused for _, each in found), start=type(tally.refused)()) == tally.refused


@pytest.mark.parametrize("search", [search_all, search_bounded])
def test_progress_ends_at_the_size_of_the_space(gpt, search):
    told = []
    search(gpt, progress=lambda *numbers: told.append(numbers))
    assert told[-1] == (gpt.space.size, gpt.space.size)
    assert [done for done, _ in told] == sorted(done for done, _ in told)


@pytest.mark.parametrize("search", [search_all, search_bounded])
def test_a_stopped_search_keeps_what_it_has_and_says_that_it_is_not_complete(gpt, search):
    def stop(done, points):
        if 3 * done > points:
            raise KeyboardInterrupt

    archive, tally = search(gpt, progress=stop, chunk_points=2048)
    assert len(archive.index) and not tally.complete
    assert gpt.space.size / 3 < tally.settled < gpt.space.size


def test_a_space_without_a_feasible_point_has_no_best_and_is_settled():
    job = msgspec.structs.replace(load_job("llama3-8b"), schedule="1F1B")
    axes = {"tensor_parallel": (1, 2), "micro_batch_size": (1, 3)}
    space = SearchSpace("none", axes, 8, 32, limits={"memory_bytes": 1e9})
    problem = pose(job, load_hardware("h100"), space)
    for archive, tally in (search_all(problem), search_bounded(problem)):
        assert not len(archive.index) and archive.best_cost == np.inf
        assert tally.complete and tally.over["memory_bytes"] == 2 == tally.evaluated
        assert tally.refused.total() == 2


def test_a_space_of_one_point_is_searched():
    problem = pose(load_job("llama3-8b"), load_hardware("h100"), SearchSpace("one", {}))
    for archive, tally in (search_all(problem), search_bounded(problem)):
        assert archive.index.tolist() == [0] or tally.over["memory_bytes"] == 1
        assert tally.complete
