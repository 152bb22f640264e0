from dataclasses import replace

import numpy as np
import pytest

from jaxperf.config import Job, load_hardware
from jaxperf.cost import default_model
from jaxperf.errors import ConfigError
from jaxperf.workload._fit_steps import (
    MeasuredStep,
    StepFit,
    changed_numbers,
    computed_steps_us,
    fit_step_times,
    fitted_step_model,
    held_out_steps_us,
)
from jaxperf.workload._step_parameters import default_step_parameters

MACHINE = load_hardware("a100")
PRIORS = {
    "matmul.compute_overhead": 1.0,
    "device.network_bus_bytes_per_s": 0.7,
    "step.step_us": 1.5,
}
TRUTH = {"matmul.compute_overhead": 2.0, "device.network_bus_bytes_per_s": 0.6, "step.step_us": 4.0}


@pytest.fixture(scope="module")
def measured() -> list[MeasuredStep]:
    """Steps of a machine that differs from the defaults in what is to be found."""
    jobs = [
        Job(
            layers=8,
            hidden_size=hidden,
            attention_heads=16,
            vocabulary_size=1000,
            sequence_length=1024,
            micro_batches=micro_batches,
            data_parallel=data,
            overlap_gradients=False,
        )
        for hidden in (1024, 2048)
        for micro_batches in (1, 4)
        for data in (1, 16, 64)
    ]
    rows = [MeasuredStep(job, MACHINE, 1.0, f"row {i}") for i, job in enumerate(jobs)]
    truth = replace(fit_step_times(rows[:1], priors=PRIORS), factors=TRUTH)
    times_us = computed_steps_us(rows, truth)
    return [replace(row, step_us=float(us)) for row, us in zip(rows, times_us, strict=True)]


@pytest.fixture(scope="module")
def fit(measured) -> StepFit:
    return fit_step_times(measured, priors=PRIORS)


def test_a_fit_finds_the_numbers_that_made_the_steps(fit):
    assert fit.factors == pytest.approx(TRUTH, rel=0.03)
    assert np.asarray(fit.parameters.step_us) == pytest.approx(4.0 * 10e3, rel=0.03)


def test_the_model_of_a_fit_has_its_numbers(fit):
    model = fitted_step_model(fit, MACHINE)
    nominal = MACHINE.links["network"].bus_bytes_per_s
    assert np.asarray(model.device.network_bus_bytes_per_s) == pytest.approx(
        0.6 * nominal, rel=0.03
    )


def test_what_rows_do_not_tell_stays_at_its_default(measured):
    alone = [row for row in measured if row.job.data_parallel == 1]
    fit = fit_step_times(alone, priors=PRIORS)
    assert fit.factors["device.network_bus_bytes_per_s"] == pytest.approx(1.0)
    sure = np.sqrt(np.diag(fit.covariance))
    assert sure[1] == pytest.approx(PRIORS["device.network_bus_bytes_per_s"])
    assert sure[2] < 0.2


@pytest.mark.parametrize("name", ["overlap_share", "overlap_slowdown"])
def test_of_a_share_the_odds_are_multiplied(name):
    _, parameters = changed_numbers(
        default_model(MACHINE), default_step_parameters(), {f"step.{name}": np.log(1e3)}
    )
    before, after = (float(getattr(each, name)) for each in (default_step_parameters(), parameters))
    assert after / (1 - after) == pytest.approx(1e3 * before / (1 - before))
    assert 0 < after < 1


def test_steps_that_wait_for_the_device_leave_the_host_at_its_defaults():
    job = Job(
        layers=2,
        hidden_size=4096,
        attention_heads=32,
        vocabulary_size=1000,
        sequence_length=4096,
    )
    paths = ("step.launch_us", "step.collective_launch_us", "step.micro_batch_us")
    fit = fit_step_times([MeasuredStep(job, MACHINE, 1e6)], priors=dict.fromkeys(paths, 1.0))
    assert list(fit.factors.values()) == pytest.approx([1.0] * 3)


@pytest.mark.slow
def test_a_held_out_row_has_no_part_in_what_is_told_of_it(measured):
    groups = np.arange(len(measured)) % 2
    found = held_out_steps_us(measured, groups, priors=PRIORS)
    np.testing.assert_allclose(found, [row.step_us for row in measured], rtol=0.05)
    wrong = [
        replace(row, step_us=row.step_us * (1 + 2 * (g == 0)))
        for row, g in zip(measured, groups, strict=True)
    ]
    again = held_out_steps_us(wrong, groups, priors=PRIORS)
    np.testing.assert_allclose(again[groups == 0], found[groups == 0], rtol=1e-9)


def test_rows_of_several_machines_keep_their_order(measured):
    other = load_hardware("h100")
    mixed = [
        replace(row, hardware=other if i % 2 else MACHINE) for i, row in enumerate(measured[:4])
    ]
    found = computed_steps_us(mixed)
    each = [computed_steps_us([row])[0] for row in mixed]
    np.testing.assert_allclose(found, each, rtol=1e-12)


def test_a_number_that_does_not_exist_is_refused_with_the_nearest(measured):
    with pytest.raises(ConfigError, match=r"priors.*step\.lunch_us.*step\.launch_us"):
        fit_step_times(measured, priors={"step.lunch_us": 1.0})


@pytest.mark.parametrize("step_us", [0.0, -1.0, float("nan")])
def test_a_step_without_time_is_refused(measured, step_us):
    with pytest.raises(ConfigError, match="row 0 row 0.*microseconds above 0"):
        fit_step_times([replace(measured[0], step_us=step_us)])


def test_no_rows_and_a_single_group_are_refused(measured):
    with pytest.raises(ConfigError, match="no measured steps"):
        fit_step_times([])
    with pytest.raises(ConfigError, match="one group"):
        held_out_steps_us(measured, [0] * len(measured))
