"""Lower bounds: no point of any space does better than its own, nor than that of its box."""

import msgspec
import numpy as np
import pytest

from jaxperf.config import SearchSpace, load_hardware, load_job, usual_space
from jaxperf.errors import ConfigError
from jaxperf.search._bound import box_bounds, boxes, lower_bounds
from jaxperf.search._evaluate import evaluate
from jaxperf.search._problem import pose, values_of
from jaxperf.search._types import costs
from tests.search.varied_spaces import varied_problems


def bounds_and_costs(problem):
    """(valid points, objectives) the bound of each, that of its box, and what it costs."""
    measured = evaluate(problem, np.arange(problem.space.size))
    valid = np.flatnonzero(measured.points.valid)
    found = boxes(problem)
    own = lower_bounds(problem, found, measured.points)[valid]
    of_box = box_bounds(problem, found)[found.of(valid)]
    return own, of_box, costs(problem, measured.measures)[valid], valid


def check_bounds(problem) -> int:
    own, of_box, cost, valid = bounds_and_costs(problem)
    for bound in (own, of_box):
        above = np.argwhere(~(bound <= cost))
        told = [values_of(problem, int(valid[row])) for row, _ in above[:1]]
        assert not len(above), (problem.job, problem.space, told)
    return len(valid)


def test_no_drawn_point_does_better_than_its_bounds():
    assert sum(map(check_bounds, varied_problems(5, 8, most=600))) > 300


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(100, 103))
def test_no_point_of_many_drawn_spaces_does_better_than_its_bounds(seed):
    assert sum(map(check_bounds, varied_problems(seed, 60))) > 5000


def test_bounds_hold_where_exchanges_are_hidden_by_stages_that_have_most_to_do():
    # The first stages have dense layers and nothing to hide: the others set the pace all the same.
    job = msgspec.structs.replace(
        load_job("deepseek-v3"), layers=16, stage_layers=None, schedule="dualpipe"
    )
    axes = {
        "experts.dense_layers": (0, 2, 4, 6, 8, 12),
        "experts.ffn_hidden_size": (256, 2048),
        "pipeline_parallel": (2, 4, 8),
        "expert_parallel": (1, 8, 16, 32),
        "links.network.bus_bytes_per_s": (1e9, 5e10),
    }
    objectives = ("step_us", "energy_j_per_token")
    space = SearchSpace("hidden", axes, 256, 4096, objectives=objectives)
    assert check_bounds(pose(job, load_hardware("h100"), space)) > 100


def test_bounds_hold_where_stages_have_different_layers():
    job = msgspec.structs.replace(load_job("gpt3-15b"), pipeline_parallel=2, virtual_stages=1)
    job = msgspec.structs.replace(job, schedule="1F1B", layers=8, stage_layers=None)
    axes = {
        "stage_layers": ("none", "1,7", "4,4", "7,1"),
        "schedule": ("1F1B", "gpipe", "zero-bubble"),
        "micro_batches": (1, 2, 16),
        "micro_batch_size": (1, 2),
    }
    assert check_bounds(pose(job, load_hardware("h100"), SearchSpace("uneven", axes))) == 72


@pytest.fixture(scope="module")
def gpt():
    job = load_job("gpt3-175b")
    return pose(job, load_hardware("h100"), usual_space(job, 1024, 1024))


def test_boxes_hold_every_point_once(gpt):
    found = boxes(gpt)
    index = (found.first[:, None] + found.beyond).reshape(-1)
    np.testing.assert_array_equal(np.sort(index), np.arange(gpt.space.size))
    box = np.repeat(np.arange(len(found.first)), len(found.beyond))
    np.testing.assert_array_equal(found.of(index), box)


def test_of_a_fixed_batch_stages_and_their_chunks_do_not_tell_boxes_apart(gpt):
    apart = {"tensor_parallel": 4, "micro_batch_size": 5, "recompute": 3}
    assert len(boxes(gpt).first) == np.prod(list(apart.values()))


def test_the_bound_of_a_point_is_near_what_it_takes(gpt):
    own, of_box, cost, _ = bounds_and_costs(gpt)
    assert (own <= cost).all() and (of_box <= own * (1 + 1e-12)).all()
    assert np.median(own / cost) > 0.8


def test_a_bound_on_a_pipeline_of_one_stage_is_all_its_work():
    """Bound and step differ by what is done once: optimizer, host, sums of gradients."""
    job = msgspec.structs.replace(load_job("llama3-8b"), micro_batches=1, schedule="1F1B")
    axes = {"micro_batches": (1, 1001), "micro_batch_size": (4,)}
    machine = load_hardware("h100")
    own, _, cost, _ = bounds_and_costs(pose(job, machine, SearchSpace("one", axes)))
    # What is done once is in both steps: of the difference nothing is missing.
    np.testing.assert_allclose(own[1] - own[0], cost[1] - cost[0], rtol=1e-6)


@pytest.mark.parametrize(
    ("axes", "told"),
    [
        (
            {
                "micro_batch_size": tuple(range(1, 2001)),
                "sequence_length": tuple(range(1, 1001)),
            },
            "2,000,000 combinations",
        ),
        (
            {"gradient_buckets": tuple(range(1, 20001)), "prefetch": tuple(range(1, 10001))},
            "2e[+]08 combinations",
        ),
    ],
)
def test_a_space_too_large_for_a_proof_says_so(axes, told):
    problem = pose(load_job("llama3-8b"), load_hardware("h100"), SearchSpace("large", axes, 8, 64))
    with pytest.raises(ConfigError, match=told) as caught:
        boxes(problem)
    assert "\n" not in str(caught.value)
