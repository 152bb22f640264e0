"""Spaces: what their files say, what they are refused for, and how many points they have."""

import math

import msgspec
import numpy as np
import pytest

from jaxperf.config import (
    SearchSpace,
    check_space,
    load_hardware,
    load_job,
    load_space,
    set_job,
    usual_space,
)
from jaxperf.config._space import field_values
from jaxperf.errors import ConfigError


@pytest.fixture(scope="module")
def job():
    return load_job("gpt3-175b")


@pytest.fixture(scope="module")
def hardware():
    return load_hardware("h100")


@pytest.fixture
def space_of(tmp_path, job, hardware):
    """Reads and checks a space from the text of its file."""

    def read(text: str, of=job) -> SearchSpace:
        path = tmp_path / "tried.toml"
        path.write_text(text)
        return check_space(load_space(path), of, hardware)

    return read


def test_a_file_says_choices_ranges_totals_limits_and_objectives(space_of):
    space = space_of("""
        gpus = 64
        global_batch_size = 128
        gpu_usd_per_hour = 2.5
        objectives = ["usd_per_million_tokens", "memory_bytes"]
        [choices]
        tensor_parallel = [1, 2, 4]
        recompute = ["none", "full"]
        sequence_parallel = [true, false]
        [ranges.micro_batch_size]
        first = 1
        last = 8
        points = 4
        scale = "log"
        [limits]
        memory_bytes = 60e9
    """)
    assert space.name == "tried"
    assert space.axes == {
        "tensor_parallel": (1, 2, 4),
        "recompute": ("none", "full"),
        "sequence_parallel": (True, False),
        "micro_batch_size": (1, 2, 4, 8),
    }
    assert space.size == 3 * 2 * 2 * 4
    assert (space.gpus, space.global_batch_size, space.gpu_usd_per_hour) == (64, 128, 2.5)
    assert space.objectives == ("usd_per_million_tokens", "memory_bytes")
    assert space.limits == {"memory_bytes": 60e9}


@pytest.mark.parametrize(
    ("numbers", "expected"),
    [
        ("first = 1, last = 2, points = 5", (1, 1.25, 1.5, 1.75, 2)),
        ("first = 1e9, last = 4e9, points = 3, scale = 'log'", (1e9, 2e9, 4e9)),
        ("first = -1, last = 1, points = 3", (-1, 0, 1)),
    ],
)
def test_the_steps_of_a_range_are_equal_or_their_ratios(space_of, numbers, expected):
    space = load_range(space_of, numbers)
    np.testing.assert_allclose(space, expected, rtol=1e-12, atol=1e-12)


def load_range(space_of, numbers):
    # A key that takes any number above 0, so that only the range is looked at.
    return space_of(f"[ranges]\nmemory_bytes_per_s = {{{numbers}}}").axes["memory_bytes_per_s"]


def test_whole_numbers_of_a_range_are_counts_in_spite_of_rounding(space_of, job):
    space = space_of(
        "[ranges]\nmicro_batches = {first = 1, last = 512, points = 10, scale = 'log'}"
    )
    values = field_values(space, job)["micro_batches"]
    assert values == tuple(2**n for n in range(10))
    assert {type(value) for value in values} == {int}
    assert str(space.axes["micro_batches"][3]) == "8"


@pytest.mark.parametrize(
    "text",
    [
        "[choice]\ntensor_parallel = [1]",
        "[choices]\ntensor_paralel = [1]",
        "[choices]\nlinks.nvlink = [1]",
        "[choices]\n'experts.count' = [8]",
        "[choices]\n'' = [8]",
        "[choices]\ntensor_parallel = []",
        "[choices]\ntensor_parallel = [1, 2, 1]",
        "[choices]\ntensor_parallel = [1, 1.0]",
        "[choices]\nsequence_parallel = [true, 'true']",
        "[choices]\ntensor_parallel = [true]",
        "[choices]\ntensor_parallel = [1.5]",
        "[choices]\ntensor_parallel = ['two']",
        "[choices]\ntensor_parallel = [[1]]",
        "[choices]\ntensor_parallel = 1",
        "[choices]\nsequence_parallel = [1]",
        "[choices]\nprecision = [16]",
        "[choices]\nrecompute = ['sometimes']",
        "[choices]\nstage_layers = ['48;48']",
        "[choices]\nexperts = ['none', 8]",
        "[choices]\nlayers = [1]\n[ranges.layers]\nfirst = 1\nlast = 2\npoints = 2",
        "[ranges.layers]\nfirst = 1\nlast = 2\npoints = 3",
        "[ranges.layers]\nfirst = 2\nlast = 1\npoints = 2",
        "[ranges.layers]\nfirst = 2\nlast = 2\npoints = 2",
        "[ranges.layers]\nfirst = 1\nlast = 4\npoints = 1",
        "[ranges.layers]\nfirst = 1\nlast = 4\npoints = 20000",
        "[ranges.layers]\nfirst = 1\nlast = 4\npoints = true",
        "[ranges.layers]\nfirst = true\nlast = 4\npoints = 2",
        "[ranges.layers]\nfirst = 0\nlast = 4\npoints = 2\nscale = 'log'",
        "[ranges.layers]\nfirst = nan\nlast = 4\npoints = 2",
        "[ranges.layers]\nfirst = 1\nlast = inf\npoints = 2",
        "[ranges.layers]\nfirst = 1\nlast = 4\npoints = 2\nscale = 'cubic'",
        "[ranges.layers]\nfirst = 1\nlast = 4",
        "[ranges.layers]\nfirst = 1\nlast = 4\npoints = 2\nstep = 1",
        "gpus = 0",
        "gpus = -8",
        "gpus = true",
        "gpus = 1.5",
        "gpus = 10000000000",
        "global_batch_size = 0",
        "gpus = 8\n[choices]\ndata_parallel = [1]",
        "global_batch_size = 8\n[choices]\nmicro_batches = [1]",
        "objectives = []",
        "objectives = ['step_us', 'step_us']",
        "objectives = ['step']",
        "objectives = 'step_us'",
        "objectives = ['step_us', 'memory_bytes', 'power_w_per_gpu', 'energy_j_per_token']",
        "objectives = ['usd_per_million_tokens']",
        "[limits]\nusd_per_million_tokens = 1",
        "[limits]\nstep = 1",
        "[limits]\nmemory_bytes = nan",
        "[limits]\nmemory_bytes = true",
        "[limits]\nmemory_bytes = '80 GB'",
        "gpu_usd_per_hour = nan",
        "gpu_usd_per_hour = inf",
        "gpu_usd_per_hour = 0",
        "gpu_usd_per_hour = -2",
        "gpu_usd_per_hour = true",
        "gpus = 8\ngpus = 8",
        "gpus =",
    ],
)
def test_what_a_file_cannot_say_is_an_error_of_one_line(space_of, text):
    with pytest.raises(ConfigError) as caught:
        space_of(text)
    told = str(caught.value)
    assert "\n" not in told and "Traceback" not in told
    assert "tried" in told or "set " in told


def test_a_space_of_more_points_than_can_be_numbered_is_refused(space_of):
    fields = ("memory_bytes_per_s", "layers", "hidden_size", "sequence_length", "vocabulary_size")
    ranges = "".join(
        f"[ranges.{name}]\nfirst = 1\nlast = 10000\npoints = 10000\n" for name in fields
    )
    with pytest.raises(ConfigError, match=r"too many points; got 1e\+20"):
        space_of(ranges)


def test_a_key_inside_a_part_and_the_part_itself_are_not_both_varied(hardware):
    job = load_job("mixtral-8x7b")
    axes = {"experts": (job.experts,), "experts.count": (8, 16)}
    with pytest.raises(ConfigError, match="said twice"):
        check_space(SearchSpace("both", axes), job, hardware)


@pytest.mark.parametrize(
    ("key", "values"),
    [
        ("layers", (4.0, 8)),
        ("gradient_bytes", (2, 4.0)),
        ("sequence_parallel", ("true", False)),
        ("stage_layers", ("none", "24,72", "48,48")),
        ("head_size", ("none", 64)),
        ("experts.shared", (0, 1)),
        ("recompute", ("none", "full")),
    ],
)
def test_values_are_read_as_the_one_of_set_is(key, values):
    job = load_job("mixtral-8x7b" if key.startswith("experts") else "gpt3-175b")
    table, _, inner = key.partition(".")
    read = field_values(SearchSpace("one", {key: values}), job)[key]
    for value, found in zip(values, read, strict=True):
        stages = len(found) if key == "stage_layers" and found else 1
        changes = {"pipeline_parallel": stages, "schedule": "1F1B", "virtual_stages": 1}
        base = msgspec.structs.replace(job, **changes)
        expected = getattr(set_job(base, {key: value}), table)
        expected = getattr(expected, inner) if inner else expected
        assert found == expected and type(found) is type(expected)


@pytest.mark.parametrize("gpus", [8, 96, 1024])
def test_the_usual_space_shares_layers_and_accelerators_out_without_a_rest(job, gpus):
    space = usual_space(job, gpus, 1024)
    axes = space.axes
    assert axes["tensor_parallel"] == (1, 2, 4, 8)
    assert axes["pipeline_parallel"] == tuple(
        n for n in range(1, 65) if not job.layers % n and not gpus % n
    )
    assert all(job.layers % n == 0 for n in axes["virtual_stages"])
    assert axes["micro_batch_size"] == (1, 2, 4, 8, 16)
    assert "expert_parallel" not in axes
    assert space.size == math.prod(map(len, axes.values()))


def test_the_usual_space_of_a_mixture_of_experts_spreads_them(hardware):
    job = load_job("mixtral-8x7b")
    space = check_space(usual_space(job, 64, 256), job, hardware)
    assert space.axes["expert_parallel"] == (1, 2, 4, 8)
