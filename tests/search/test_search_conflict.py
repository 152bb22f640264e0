"""Why no point is feasible: hand-made cases, and every set of constraints tried one by one."""

from dataclasses import replace
from itertools import combinations

import msgspec
import numpy as np
import pytest

from jaxperf.config import SearchSpace, load_hardware, load_job
from jaxperf.search._conflict import conflict, conflict_error
from jaxperf.search._evaluate import Measured
from jaxperf.search._problem import points, pose

JOB, HARDWARE = load_job("llama3-8b"), load_hardware("h100")


def measured(problem, rows=None, **measures) -> Measured:
    """Points of a space with measures that are made up."""
    index = np.arange(problem.space.size) if rows is None else rows
    found = points(problem, index)
    values = {name: np.where(found.valid, each, np.nan) for name, each in measures.items()}
    limits = {"memory_bytes": HARDWARE.memory_bytes, **problem.space.limits}
    over = {}
    for name, limit in limits.items():
        less = name == "tokens_per_s_per_gpu"
        over[name] = (values[name] < limit) if less else (values[name] > limit)
    return Measured(found, values, over)


def four_batches(**limits):
    axes = {"micro_batch_size": (1, 2, 4, 8)}
    return pose(JOB, HARDWARE, SearchSpace("four", axes, 8, 64, None, limits))


def test_the_nearest_point_tells_how_much_memory_would_do():
    problem = four_batches(memory_bytes=50e9)
    found = conflict(problem, [measured(problem, memory_bytes=np.array([90e9, 70e9, 60e9, 80e9]))])
    (relaxed,) = found.relax
    assert (relaxed.constraint, relaxed.limit, relaxed.needed) == ("memory_bytes", 50e9, 60e9)
    assert (found.point, found.freed, found.points) == (2, 4, 4)
    assert dict(found.excluded) == {"memory_bytes": 4}


def test_of_two_limits_that_are_each_enough_the_one_is_relaxed_that_frees_more_points():
    problem = four_batches(memory_bytes=50e9, step_us=1e6)
    memory, step_us = np.array([40e9, 60e9, 70e9, 60e9]), np.array([2e6, 1e6, 1e6, 2e6])
    found = conflict(problem, [measured(problem, memory_bytes=memory, step_us=step_us)])
    assert [each.constraint for each in found.relax] == ["memory_bytes"]
    assert (found.freed, found.point) == (2, 1)
    assert dict(found.excluded) == {"memory_bytes": 3, "step_us": 2}


def test_two_limits_give_at_a_point_whose_greatest_excess_is_least():
    problem = four_batches(memory_bytes=50e9, tokens_per_s_per_gpu=1000.0)
    memory = np.array([100e9, 60e9, 55e9, 51e9])
    rate = np.array([999.0, 700.0, 800.0, 100.0])
    found = conflict(problem, [measured(problem, memory_bytes=memory, tokens_per_s_per_gpu=rate)])
    needed = {each.constraint: each.needed for each in found.relax}
    assert needed == {"memory_bytes": 55e9, "tokens_per_s_per_gpu": 800.0}
    assert found.point == 2


def test_limits_are_relaxed_before_rules_of_which_nothing_else_is_known():
    axes = {"micro_batch_size": (1, 3, 5, 7)}
    problem = pose(JOB, HARDWARE, SearchSpace("odd", axes, 8, 64, None, {"step_us": 1.0}))
    found = conflict(problem, [measured(problem, memory_bytes=90e9, step_us=2.0)])
    assert {each.constraint for each in found.relax} == {"memory_bytes", "step_us"}
    (rule,) = (name for name in found.excluded if name.startswith("global_batch_size"))
    assert found.excluded[rule] == 3


def test_rules_of_one_kind_are_one_constraint_whatever_the_numbers():
    axes = {"pipeline_parallel": (3, 5, 7)}
    job = msgspec.structs.replace(JOB, schedule="1F1B")
    problem = pose(job, HARDWARE, SearchSpace("odd", axes))
    found = conflict(problem, [measured(problem, memory_bytes=1.0)])
    assert dict(found.excluded) == {"layers: not divisible by pipeline_parallel": 3}
    assert [each.needed for each in found.relax] == [None]
    text = str(conflict_error(problem, found))
    assert "space odd: no point is feasible" in text
    assert "values of which this is not so: layers: not divisible by pipeline_parallel" in text
    assert "such as pipeline_parallel = 3" in text


def test_the_accelerators_that_do_not_come_out_even_are_named():
    axes = {"tensor_parallel": (4, 8)}
    problem = pose(JOB, HARDWARE, SearchSpace("uneven", axes, gpus=6))
    found = conflict(problem, [measured(problem, memory_bytes=1.0)])
    (name,) = found.excluded
    assert name == "gpus: 6 not divisible by tensor x context x pipeline_parallel"


def test_memory_of_each_of_several_machines_is_a_constraint_of_its_own():
    axes = {"hardware": ("h100", "a100"), "micro_batch_size": (1, 2)}
    problem = pose(JOB, HARDWARE, SearchSpace("machines", axes))
    batch = measured(problem, memory_bytes=np.array([200e9, 100e9, 90e9, 120e9]))
    names = [machine.hardware.name for machine in problem.machines]
    found = conflict(problem, [batch])
    assert dict(found.excluded) == {f"memory_bytes of {name}": 2 for name in names}
    assert [each.constraint for each in found.relax] == [
        min(f"memory_bytes of {name}" for name in names)
    ]


def test_the_error_says_a_value_that_is_enough():
    problem = four_batches(tokens_per_s_per_gpu=2000.0)
    rate = np.array([1234.56, 1.0, 1.0, 1.0])
    batch = measured(problem, memory_bytes=1.0, tokens_per_s_per_gpu=rate)
    text = str(conflict_error(problem, conflict(problem, [batch])))
    assert text == (
        "space four: no point is feasible; got 4 points, excluded by tokens_per_s_per_gpu (4); "
        "expected tokens_per_s_per_gpu of at most 1234, not 2000; "
        "nothing else excludes 4 points, such as micro_batch_size = 1"
    )


def test_memory_that_is_too_small_is_told_in_gigabytes_with_what_helps():
    batch = measured(four_batches(), memory_bytes=367.9e9)
    text = str(conflict_error(four_batches(), conflict(four_batches(), [batch])))
    of_machine = HARDWARE.memory_bytes / 1e9
    assert f"expected memory_bytes of at least 367.9 GB, not {of_machine:.4g} GB; " in text
    assert text.endswith("; more GPUs need less memory each")


def test_where_a_point_is_feasible_nothing_has_to_give():
    problem = four_batches()
    batch = measured(problem, memory_bytes=np.array([1.0, 1e15, 1e15, 1e15]))
    found = conflict(problem, [batch])
    assert (found.relax, found.freed, found.point) == ((), 1, 0)


@pytest.fixture(scope="module")
def drawn_axes():
    axes = {
        "tensor_parallel": (1, 2, 3, 8),
        "pipeline_parallel": (1, 2, 3, 4),
        "virtual_stages": (1, 2, 3),
        "micro_batch_size": (1, 2, 3),
    }
    return pose(JOB, HARDWARE, SearchSpace("drawn", axes, 64, 256))


@pytest.mark.parametrize("seed", range(8))
def test_the_set_is_the_smallest_of_all_that_make_a_point_feasible(drawn_axes, seed):
    random = np.random.default_rng(seed)
    names = ["memory_bytes", "step_us", "power_w_per_gpu", "tokens_per_s_per_gpu"]
    size = drawn_axes.space.size
    values = {name: random.integers(0, 12, size).astype(float) for name in names}
    limits = {name: float(random.integers(2, 6)) for name in names[:3]}
    limits["tokens_per_s_per_gpu"] = float(random.integers(7, 11))
    problem = replace(drawn_axes, space=replace(drawn_axes.space, limits=limits))
    whole = measured(problem, **values)
    # All that keep every limit are out of the way.
    values["step_us"] = np.where(whole.feasible, 20.0, values["step_us"])
    cuts = np.split(np.arange(size), [0, *sorted(random.choice(size, 3, replace=False))])
    batches = [
        measured(problem, rows, **{name: each[rows] for name, each in values.items()})
        for rows in cuts
    ]
    found = conflict(problem, batches)

    whole = measured(problem, **values)
    valid = whole.points.valid
    for count in range(1, len(names) + 1):
        freed = {}
        for members in combinations(names, count):
            rows = valid.copy()
            for name in set(names) - set(members):
                rows &= ~whole.over[name]
            freed[members] = rows
        most = max(int(rows.sum()) for rows in freed.values())
        if most:
            break
    members = tuple(name for name in names if name in {each.constraint for each in found.relax})
    assert len(members) == count
    assert found.freed == most == freed[members].sum()
    assert freed[members][found.point]
    for each in found.relax:
        assert each.needed == values[each.constraint][found.point]
    assert {name: n for name, n in found.excluded.items() if name in names} == {
        name: int(whole.over[name].sum()) for name in names if whole.over[name].any()
    }
    if count == 1:
        rows, (name,) = freed[members], members
        best = np.max if name == "tokens_per_s_per_gpu" else np.min
        assert found.relax[0].needed == best(values[name][rows])
