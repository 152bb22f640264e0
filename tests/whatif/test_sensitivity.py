"""What one per cent more of a number is worth, beside what a what-if finds on both sides of it."""

import msgspec
import pytest

from jaxperf import answer_scenarios, build_graph, hardware_sensitivities, read_run
from jaxperf.config import Scenario, hardware_numbers, load_hardware
from jaxperf.errors import ConfigError
from jaxperf.simulator import SimulatedJob, simulate, write_traces

H100 = load_hardware("h100")
TF32_ONLY = msgspec.structs.replace(H100, peak_flops_per_s={"tf32": 494.7e12})


@pytest.fixture(scope="module")
def job(tmp_path_factory):
    """A run whose ranks wait for each other now and then, and its graph."""
    folder = tmp_path_factory.mktemp("job")
    write_traces(simulate(SimulatedJob(layers=1, data_parallel=2, steps=3)), folder)
    run = read_run(folder)
    return run, build_graph(run)


def differences_us(job, hardware, keys):
    """Change of the step from 0.5 % less of each number to 0.5 % more."""
    numbers = hardware_numbers(hardware)
    asked = [Scenario(set={key: numbers[key] * x}) for key in keys for x in (0.995, 1.005)]
    answers = answer_scenarios(*job, asked, hardware=hardware, contention=False).scenarios
    return {
        key: more.step_us - less.step_us
        for key, less, more in zip(keys, answers[::2], answers[1::2], strict=True)
    }


def test_a_sensitivity_is_the_finite_difference_of_a_whatif(job):
    found = dict(hardware_sensitivities(*job, hardware="h100"))
    keys = [
        "memory_bytes_per_s",
        "peak_flops_per_s.bf16",
        "links.nvlink.bus_bytes_per_s",
        "links.nvlink.latency_us",
    ]
    expected = differences_us(job, H100, keys)
    assert {key: found[key] for key in keys} == pytest.approx(expected, rel=0.01)
    assert found["memory_bytes_per_s"] < 0 < found["links.nvlink.latency_us"]


def test_the_largest_gain_comes_first_and_what_changes_nothing_is_left_out(job):
    found = hardware_sensitivities(*job, hardware=H100)
    values = [value for _, value in found]
    assert values == sorted(values) and 0.0 not in values
    keys = {key for key, _ in found}
    assert keys <= hardware_numbers(H100).keys()
    # Both ranks share a node, and nothing in the job computes in fp8.
    assert "links.network.bus_bytes_per_s" not in keys
    assert "peak_flops_per_s.fp8" not in keys


def test_work_that_is_computed_at_the_peak_of_another_type_counts_for_that_type(job):
    found = dict(hardware_sensitivities(*job, hardware=TF32_ONLY))
    assert [key for key in found if key.startswith("peak")] == ["peak_flops_per_s.tf32"]
    expected = differences_us(job, TF32_ONLY, ["peak_flops_per_s.tf32"])
    assert found["peak_flops_per_s.tf32"] == pytest.approx(
        expected["peak_flops_per_s.tf32"], rel=0.01
    )
    assert found["peak_flops_per_s.tf32"] < 0


def test_a_machine_that_is_not_known_is_refused(job):
    with pytest.raises(ConfigError, match="recorded machine is not known; got Simulated GPU"):
        hardware_sensitivities(*job)
