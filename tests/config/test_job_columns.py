"""Many jobs as columns: what is worked out once for several is what each would have alone."""

import msgspec
import numpy as np
import pytest

from jaxperf.config import (
    Job,
    broken_rules,
    by_parts,
    check_job,
    columns_of_jobs,
    job_columns,
    load_job,
)
from jaxperf.errors import ConfigError
from tests.job_draws import drawn_jobs


def test_a_part_is_worked_out_once_for_jobs_that_are_alike_in_what_it_reads():
    base = load_job("gpt3-175b")
    jobs = job_columns(base, {"micro_batches": [4, 8, 4, 8], "tensor_parallel": [1, 2, 4, 8]})
    calls = []

    def part(job: Job) -> int:
        calls.append(job.micro_batches)
        return job.micro_batches + 1

    parts, part_of_row = by_parts(jobs, part)
    assert [parts[place] for place in part_of_row] == [5, 9, 5, 9]
    assert len(calls) < jobs.rows + 1


def test_a_field_that_only_some_jobs_are_asked_for_still_tells_them_apart():
    base = load_job("gpt3-175b")
    jobs = job_columns(base, {"recompute": ["none", "full", "full"], "micro_batch_size": [1, 2, 4]})

    def part(job: Job) -> int:
        return job.micro_batch_size if job.recompute == "full" else 0

    parts, part_of_row = by_parts(jobs, part)
    assert [parts[place] for place in part_of_row] == [0, 2, 4]


def test_what_is_read_through_a_property_or_a_copy_counts():
    base = load_job("llama3-8b")
    jobs = job_columns(base, {"data_parallel": [1, 2], "key_value_heads": [8, 4]})
    parts, part_of_row = by_parts(
        jobs, lambda job: (job.world_size // job.context_parallel, job.kv_heads)
    )
    assert [parts[place] for place in part_of_row] == [(1, 8), (2, 4)]
    parts, part_of_row = by_parts(
        jobs, lambda job: msgspec.structs.replace(job, precision="fp8").data_parallel
    )
    assert [parts[place] for place in part_of_row] == [1, 2]


@pytest.mark.parametrize("seed", range(3))
def test_columns_are_the_jobs_they_were_made_of(seed):
    jobs = drawn_jobs(seed, 40)
    columns = columns_of_jobs(jobs)
    assert [columns.job(row) for row in range(columns.rows)] == jobs
    some = columns.take(np.array([3, 1]))
    assert [some.job(0), some.job(1)] == [jobs[3], jobs[1]]


@pytest.mark.parametrize("seed", range(3))
def test_the_jobs_that_break_no_rule_are_those_that_can_be(seed):
    jobs = drawn_jobs(seed, 300, valid=False)
    broken = np.zeros(len(jobs), bool)
    for rule in broken_rules(columns_of_jobs(jobs)):
        broken |= rule.jobs
    for job, refused in zip(jobs, broken, strict=True):
        if refused:
            with pytest.raises(ConfigError):
                check_job(job, "job")
        else:
            check_job(job, "job")
    assert 0 < broken.sum() < len(jobs)
