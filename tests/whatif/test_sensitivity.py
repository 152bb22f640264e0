"""What one per cent more of a number is worth, beside what a what-if finds on both sides of it."""

import jax
import msgspec
import numpy as np
import pytest

from jaxperf import answer_scenarios, build_graph, hardware_sensitivities, read_run
from jaxperf.config import Scenario, hardware_numbers, load_hardware, set_hardware
from jaxperf.cost import cost_us, default_model, matmul_work
from jaxperf.errors import ConfigError
from jaxperf.simulator import (
    Annotation,
    Kernel,
    Launch,
    Op,
    Rank,
    SimulatedJob,
    SynchronizeStream,
    execute,
    simulate,
    write_traces,
)

H100 = load_hardware("h100")
TF32_ONLY = msgspec.structs.replace(H100, peak_flops_per_s={"tf32": 494.7e12})


@pytest.fixture(scope="module")
def job(tmp_path_factory):
    """A run whose ranks wait for each other now and then, and its graph."""
    folder = tmp_path_factory.mktemp("job")
    write_traces(simulate(SimulatedJob(layers=1, data_parallel=2, steps=1)), folder)
    run = read_run(folder)
    return run, build_graph(run)


@pytest.fixture(scope="module")
def found(job):
    return hardware_sensitivities(*job, hardware=H100)


@pytest.fixture(scope="module")
def products(tmp_path_factory):
    """A run that multiplies matrices of bf16, and its graph."""
    kernel = Kernel("nvjet_tst_128x256_64x4_1x2_h_bz_TNT", 100.0, "gemm")
    multiply = Op(
        "aten::mm",
        [Launch(kernel)],
        shapes=((4096, 2048), (2048, 4096)),
        types=("c10::BFloat16",) * 2,
        values=("", ""),
    )
    step = [multiply, multiply, SynchronizeStream()]
    steps = [Annotation(f"ProfilerStep#{k}", step) for k in range(3)]
    folder = tmp_path_factory.mktemp("products")
    write_traces(execute({0: Rank({"main": steps})}), folder)
    run = read_run(folder)
    return run, build_graph(run)


@jax.jit
def modelled_us(model):
    return cost_us(model, matmul_work(4096, 4096, 2048))


def product_us(hardware, key, share):
    """Modelled time of one of them with a number of the machine changed."""
    changed = set_hardware(hardware, {key: hardware_numbers(hardware)[key] * share})
    return float(modelled_us(default_model(changed))[0])


def differences_us(job, hardware, keys):
    """Change of the step from 0.5 % less of each number to 0.5 % more."""
    numbers = hardware_numbers(hardware)
    asked = [Scenario(set={key: numbers[key] * x}) for key in keys for x in (0.995, 1.005)]
    run, graph = job
    answers = answer_scenarios(run, graph, asked, hardware=hardware, contention=False).scenarios
    return {
        key: more.step_us - less.step_us
        for key, less, more in zip(keys, answers[::2], answers[1::2], strict=True)
    }


def test_a_sensitivity_is_the_finite_difference_of_a_whatif(job, found):
    worth_us = dict(found)
    keys = [
        "memory_bytes_per_s",
        "peak_flops_per_s.bf16",
        "links.nvlink.bus_bytes_per_s",
        "links.nvlink.latency_us",
    ]
    expected = differences_us(job, H100, keys)
    assert {key: worth_us[key] for key in keys} == pytest.approx(expected, rel=0.01)
    assert worth_us["memory_bytes_per_s"] < 0 < worth_us["links.nvlink.latency_us"]


def test_the_largest_gain_comes_first_and_what_changes_nothing_is_left_out(found):
    values = [value for _, value in found]
    assert values == sorted(values) and 0.0 not in values
    keys = {key for key, _ in found}
    assert keys <= hardware_numbers(H100).keys()
    # Both ranks share a node, and nothing in the job computes in fp8.
    assert "links.network.bus_bytes_per_s" not in keys
    assert "peak_flops_per_s.fp8" not in keys


def test_work_that_is_computed_at_the_peak_of_another_type_counts_for_that_type(products):
    key = "peak_flops_per_s.tf32"
    found = dict(hardware_sensitivities(*products, hardware=TF32_ONLY))
    assert [each for each in found if each.startswith("peak")] == [key]
    # Each step is two products of 100 us, one after the other.
    less_us, more_us = (product_us(TF32_ONLY, key, share) for share in (0.995, 1.005))
    expected_us = 2 * 100.0 * np.log(more_us / less_us)
    assert found[key] == pytest.approx(expected_us, rel=0.01)
    assert expected_us < -0.5


def test_a_machine_that_is_not_known_is_refused(job):
    with pytest.raises(ConfigError, match="recorded machine is not known; got Simulated GPU"):
        hardware_sensitivities(*job)
