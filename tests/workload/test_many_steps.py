"""Steps and memory of many jobs at once are those of each alone."""

from dataclasses import fields

import numpy as np
import pytest

from jaxperf.config import columns_of_jobs, load_hardware
from jaxperf.cost import default_model
from jaxperf.replay import double_precision
from jaxperf.workload import default_step_parameters
from jaxperf.workload._closed_form import table_steps
from jaxperf.workload._many_steps import many_steps
from jaxperf.workload._pipeline_step import StepTime
from jaxperf.workload._step_table import step_table
from jaxperf.workload.memory._memory import job_memory
from jaxperf.workload.memory._memory_columns import memory_columns, peak_memory_bytes
from tests.job_draws import drawn_jobs


def test_steps_of_many_jobs_are_those_of_each_alone():
    jobs = drawn_jobs(0, 60)
    model, parameters = default_model(load_hardware("h100")), default_step_parameters()
    many = many_steps(columns_of_jobs(jobs), model, parameters)
    with double_precision():
        for row in range(0, len(jobs), 15):
            alone = table_steps(step_table(jobs[row : row + 1]), model, parameters)
            for field in fields(StepTime):
                found = getattr(many, field.name)[row]
                expected = float(getattr(alone, field.name)[0])
                assert found == pytest.approx(expected, rel=1e-9, abs=1e-6), field.name


@pytest.mark.parametrize("seed", range(2))
def test_memory_of_many_jobs_is_that_of_each_alone(seed):
    jobs = drawn_jobs(seed, 40)
    columns = columns_of_jobs(jobs)
    many = memory_columns(columns)
    peaks = peak_memory_bytes(columns)
    for row, job in enumerate(jobs):
        alone = job_memory(job)
        assert np.count_nonzero(many.held[row]) == len(alone.stages)
        for stage in alone.stages:
            for name, part in many.parts.items():
                assert part[row, stage.stage] == pytest.approx(getattr(stage, name), rel=1e-12)
        assert peaks[row] == pytest.approx(alone.peak.total_bytes, rel=1e-12)
