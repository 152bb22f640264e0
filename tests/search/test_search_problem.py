"""Points of a space: their numbers, the jobs and machines they stand for, and which cannot be."""

import itertools

import msgspec
import numpy as np
import pytest

from jaxperf.config import (
    SearchSpace,
    built_in_jobs,
    check_job,
    is_job_key,
    load_hardware,
    load_job,
    set_hardware,
    set_job,
    usual_space,
)
from jaxperf.errors import ConfigError
from jaxperf.search._problem import points, pose, values_of
from tests.search.varied_spaces import varied_problems


@pytest.fixture(scope="module")
def hardware():
    return load_hardware("h100")


@pytest.fixture(scope="module")
def llama():
    return load_job("llama3-8b")


def every(problem):
    return points(problem, np.arange(problem.space.size))


def test_points_are_numbered_as_the_product_of_the_axes(llama, hardware):
    axes = {
        "micro_batch_size": (1, 2),
        "recompute": ("none", "full"),
        "gradient_buckets": (1, 4, 8),
    }
    problem = pose(llama, hardware, SearchSpace("small", axes))
    found = [tuple(values_of(problem, index).values()) for index in range(problem.space.size)]
    assert found == list(itertools.product(*axes.values()))


def test_a_space_without_axes_is_the_job_itself(llama, hardware):
    problem = pose(llama, hardware, SearchSpace("one", {}))
    assert problem.space.size == 1 and values_of(problem, 0) == {}
    assert every(problem).jobs.job(0) == llama


def test_degree_and_micro_batches_follow_from_accelerators_and_batch(llama, hardware):
    axes = {
        "tensor_parallel": (1, 2, 4),
        "context_parallel": (1, 2),
        "pipeline_parallel": (1, 2),
        "micro_batch_size": (1, 2),
    }
    problem = pose(llama, hardware, SearchSpace("usual", axes, 32, 128))
    found = every(problem)
    assert found.valid.all()
    for row in range(problem.space.size):
        job = found.jobs.job(row)
        assert job.world_size == 32 and job.global_batch_size == 128


def test_the_schedule_follows_from_virtual_stages_unless_it_is_asked_for(llama, hardware):
    base = msgspec.structs.replace(llama, schedule="zero-bubble")
    axes = {"virtual_stages": (1, 2)}
    job = msgspec.structs.replace(base, pipeline_parallel=2, micro_batches=4)
    found = every(pose(job, hardware, SearchSpace("two", axes)))
    assert [found.jobs.job(row).schedule for row in range(2)] == ["zero-bubble", "interleaved"]
    axes = {"virtual_stages": (1, 2), "schedule": ("1F1B",)}
    found = every(pose(job, hardware, SearchSpace("two", axes)))
    assert found.valid.tolist() == [True, False]


@pytest.mark.parametrize("axes", [{}, {"virtual_stages": (1,)}])
def test_a_job_without_stages_and_schedule_takes_the_usual_one_with_several(llama, hardware, axes):
    base = msgspec.structs.replace(llama, schedule="none", micro_batches=8)
    space = SearchSpace("stages", {"pipeline_parallel": (1, 4), **axes})
    found = every(pose(base, hardware, space))
    assert [found.jobs.job(row).schedule for row in range(2)] == ["none", "1F1B"]
    assert found.valid.all()


def test_an_interleaved_job_with_one_chunk_is_1f1b(llama, hardware):
    job = msgspec.structs.replace(
        llama, pipeline_parallel=2, micro_batches=4, schedule="interleaved", virtual_stages=2
    )
    found = every(pose(job, hardware, SearchSpace("two", {"virtual_stages": (1, 2)})))
    assert [found.jobs.job(row).schedule for row in range(2)] == ["1F1B", "interleaved"]


def test_fields_of_a_part_change_together_and_leave_the_others(hardware):
    mixtral = load_job("mixtral-8x7b")
    axes = {"experts.count": (8, 16), "layers": (16, 32), "experts.per_token": (1, 2)}
    problem = pose(mixtral, hardware, SearchSpace("experts", axes))
    found = every(problem)
    for row, (count, layers, per_token) in enumerate(itertools.product(*axes.values())):
        assert mixtral.experts is not None
        experts = msgspec.structs.replace(mixtral.experts, count=count, per_token=per_token)
        expected = msgspec.structs.replace(mixtral, layers=layers, experts=experts)
        assert found.jobs.job(row) == expected


@pytest.mark.parametrize(
    ("name", "axes"),
    [
        ("gpt3-15b", {"hidden_size": (3072, 6144), "micro_batch_size": (1, 2)}),
        ("gpt3-15b", {"attention_heads": (24, 48)}),
        ("llama3-8b", {"hidden_size": (4096, 8192), "ffn_hidden_size": (14336, 16384)}),
        ("llama3-8b", {"layers": (16.0, 32.0), "gradient_bytes": (2, 4)}),
        ("llama3-8b", {"stage_layers": ("none", "32"), "sequence_parallel": ("true", "false")}),
    ],
)
def test_a_point_is_the_job_that_the_same_values_set(name, axes, hardware):
    base = msgspec.structs.replace(
        load_job(name), schedule="1F1B", virtual_stages=1, pipeline_parallel=1, stage_layers=None
    )
    problem = pose(base, hardware, SearchSpace("some", axes))
    found = every(problem)
    for row in np.flatnonzero(found.valid):
        expected = set_job(base, values_of(problem, int(row)))
        assert found.jobs.job(int(row)) == expected
    assert found.valid.any()


def test_machines_are_every_combination_of_their_keys(llama, hardware):
    axes = {
        "hardware": ("h100", "b200"),
        "micro_batch_size": (1, 2),
        "links.network.bus_bytes_per_s": (25e9, 50e9),
        "clock_hz": (900e6, 1200e6),
    }
    problem = pose(llama, hardware, SearchSpace("machines", axes))
    found = every(problem)
    assert len(problem.machines) == 8
    for row in range(problem.space.size):
        values = values_of(problem, row)
        machine = problem.machines[found.machine[row]]
        network = {"links.network.bus_bytes_per_s": values["links.network.bus_bytes_per_s"]}
        assert machine.hardware == set_hardware(load_hardware(values["hardware"]), network)
        assert machine.clock_hz == values["clock_hz"]
        assert found.jobs.job(row).micro_batch_size == values["micro_batch_size"]


def job_in_plain_python(problem, index):
    """The job of a point, or `None` where something does not come out even or breaks a rule."""
    space, values = problem.space, values_of(problem, index)
    changes, parts = {}, {}
    for key, value in values.items():
        table, _, inner = key.partition(".")
        if is_job_key(key) and inner:
            parts.setdefault(table, {})[inner] = value
        elif is_job_key(key):
            changes[key] = value
    for table, inner in parts.items():
        changes[table] = msgspec.structs.replace(getattr(problem.job, table), **inner)
    job = msgspec.structs.replace(problem.job, **changes)
    if space.gpus is not None:
        replica = job.tensor_parallel * job.context_parallel * job.pipeline_parallel
        if space.gpus % replica:
            return None
        job = msgspec.structs.replace(job, data_parallel=space.gpus // replica)
    if space.global_batch_size is not None:
        at_once = job.data_parallel * job.micro_batch_size
        if space.global_batch_size % at_once:
            return None
        job = msgspec.structs.replace(job, micro_batches=space.global_batch_size // at_once)
    if "virtual_stages" in values and "schedule" not in values:
        chunked = job.virtual_stages > 1
        otherwise = "1F1B" if problem.job.schedule == "interleaved" else problem.job.schedule
        job = msgspec.structs.replace(job, schedule="interleaved" if chunked else otherwise)
    stages_asked = {"virtual_stages", "pipeline_parallel"} & values.keys()
    if stages_asked and "schedule" not in values:
        wrong = "dualpipe" if job.pipeline_parallel == 1 else "none"
        usual = "1F1B" if job.schedule == wrong else job.schedule
        job = msgspec.structs.replace(job, schedule=usual)
    try:
        return check_job(job, "point")
    except ConfigError:
        return None


@pytest.mark.parametrize("seed", range(3))
def test_the_points_that_can_be_are_those_that_check_job_lets_through(seed):
    valid = refused = 0
    for problem in varied_problems(seed, 8, most=600):
        found = every(problem)
        for index in range(problem.space.size):
            job = job_in_plain_python(problem, index)
            assert found.valid[index] == (job is not None), values_of(problem, index)
            if job is not None:
                assert found.jobs.job(index) == job
        valid, refused = valid + found.valid.sum(), refused + (~found.valid).sum()
    assert valid > 100 and refused > 100


def test_some_points_are_those_of_all_whatever_their_order():
    (problem,) = varied_problems(3, 1)
    whole = every(problem)
    some = np.random.default_rng(0).permutation(problem.space.size)[:40]
    found = points(problem, some)
    assert found.valid.tolist() == whole.valid[some].tolist()
    assert [found.jobs.job(row) for row in range(40)] == [whole.jobs.job(row) for row in some]
    assert found.machine.tolist() == whole.machine[some].tolist()
    assert len(points(problem, np.zeros(0, np.int64)).valid) == 0


def test_the_reasons_say_what_does_not_come_out_even(llama, hardware):
    axes = {"tensor_parallel": (1, 8), "micro_batch_size": (1, 3)}
    found = every(pose(llama, hardware, SearchSpace("uneven", axes, 20, 40)))
    reasons = {rule.text: rule.jobs.tolist() for rule in found.broken}
    (gpus,) = (jobs for text, jobs in reasons.items() if text.startswith("gpus: 20 not"))
    assert gpus == [False, False, True, True]
    (batch,) = (jobs for text, jobs in reasons.items() if text.startswith("global_batch_size: 40"))
    assert batch[:2] == [False, True]


@pytest.mark.parametrize(
    ("axes", "told"),
    [
        ({"clock_hz": (1e6,)}, "not a clock of the machine"),
        ({"clock_hz": (5e9,)}, "not a clock of the machine"),
        ({"clock_hz": ("fast",)}, "not a clock of the machine"),
        ({"clock_hz": (float("nan"),)}, "not a clock of the machine"),
        ({"hardware": ("h1000",)}, "no such hardware"),
        ({"hardware": (8,)}, "no such hardware"),
        ({"memory_bytes_per_s": (-1.0,)}, "memory_bytes_per_s"),
        ({"memory_bytes_per_s": (True,)}, "memory_bytes_per_s"),
        ({"memory_bytes_per_s": ("much",)}, "memory_bytes_per_s"),
        ({"gpus_per_node": (1.5,)}, "gpus_per_node"),
        (
            {
                "memory_bytes_per_s": tuple(range(1, 1001)),
                "links.network.latency_us": tuple(range(1, 101)),
            },
            "too many machines",
        ),
    ],
)
def test_machines_that_cannot_be_are_an_error_of_one_line(llama, hardware, axes, told):
    with pytest.raises(ConfigError, match=told) as caught:
        pose(llama, hardware, SearchSpace("machines", axes))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "asked",
    [
        {"objectives": ("energy_j_per_token",)},
        {"limits": {"power_w_per_gpu": 500.0}},
        {"axes": {"clock_hz": (900e6,)}},
    ],
)
def test_energy_is_not_asked_of_a_machine_whose_power_is_not_known(llama, hardware, asked):
    unknown = msgspec.structs.replace(hardware, name="an accelerator that nobody measured")
    space = SearchSpace("energy", **{"axes": {"micro_batch_size": (1, 2)}, **asked})
    with pytest.raises(ConfigError, match="what it draws is not known"):
        pose(llama, unknown, space)
    assert pose(llama, unknown, SearchSpace("time", {})).machines[0].power is None


@pytest.mark.parametrize("name", built_in_jobs())
def test_the_usual_space_of_every_job_has_points_with_one_stage_and_with_several(name, hardware):
    job = load_job(name)
    problem = pose(job, hardware, usual_space(job, 1024, 2048))
    found = every(problem)
    stages = found.jobs.array("pipeline_parallel")[found.valid]
    assert stages.min() == 1 and stages.max() > 1
    own = found.jobs.array("pipeline_parallel") == job.pipeline_parallel
    if job.stage_layers is not None and own.any():
        rows = np.flatnonzero(found.valid & own)
        assert any(found.jobs.job(int(row)).stage_layers == job.stage_layers for row in rows)
