"""Recipes of NVIDIA and submissions to MLPerf as jobs; what small clusters tell of large ones."""

import csv
import importlib
from pathlib import Path

import numpy as np
import pytest

from jaxperf.config import check_job
from jaxperf.workload._fit_steps import computed_steps_us, fit_step_times

# docs/jobs-validation.md has what was measured: 3.4 % and 15.9 %.
LARGE_MEAN_PERCENT, LARGE_WORST_PERCENT = 8.0, 25.0


@pytest.fixture(scope="module")
def modules():
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(Path(__file__).resolve().parents[2] / "benchmarks"))
        return [importlib.import_module(f"_jobs_{name}") for name in ("dgxc", "mlperf")]


@pytest.fixture(scope="module")
def recipes(modules, shared):
    return modules[0].rows(shared)


@pytest.fixture(scope="module")
def submissions(modules, shared):
    return modules[1].rows(shared)


def test_every_row_is_a_job_that_can_be(recipes, submissions):
    assert len(recipes) == 202
    assert len(submissions) == 33
    for row in (*recipes, *submissions):
        check_job(row.job, row.label)


def test_tokens_per_second_of_a_recipe_are_those_of_its_table(modules, recipes, shared):
    stated = [
        float(tokens)
        for table in modules[0].tables(shared)
        if not modules[0].why_not(table)
        for step, tokens in zip(*(_cells(table, n) for n in ("Training", "Through")), strict=False)
        if step
    ]
    computed = [
        row.job.global_batch_size * row.job.sequence_length / row.step_us * 1e6 for row in recipes
    ]
    off = np.abs(np.array(computed) / np.array(stated, float) - 1) > 0.01
    # Grok on 512 GB200 repeats the tokens of 256; its use of the peak is that of twice as many.
    assert {recipes[row].label for row in np.flatnonzero(off)} == {
        f"v25.05.05 Grok-1 314B {precision}, 512 GPUs, 64 layers" for precision in ("bf16", "fp8")
    }


def test_a_submission_has_its_gpus_and_its_batch(modules, submissions, shared):
    with (shared / modules[1].FILE).open() as file:
        found = list(csv.DictReader(file))
    kept = [row for row, why in zip(found, modules[1].why_not(found), strict=True) if not why]
    for row, step in zip(kept, submissions, strict=True):
        assert step.job.world_size == int(row["nodes"]) * int(row["accel_per_node"])
        assert step.job.global_batch_size == int(row["global_batch_size"])


def test_sixteen_times_the_replicas_cost_a_step_what_they_were_measured_to(recipes):
    """The same work on each of 128 and of 2,048 GPUs: a step gains a few percent."""
    rows = [row for row in recipes if row.label.startswith("v25.02.02 GPT-3 175B bf16")]
    few, many = rows[0], rows[-1]
    assert (few.job.world_size, many.job.world_size) == (128, 2048)
    assert few.job.micro_batches == many.job.micro_batches
    few_us, many_us = computed_steps_us([few, many])
    assert many_us > few_us
    assert abs(many_us / few_us - many.step_us / few.step_us) < 0.03


@pytest.mark.slow
def test_clusters_of_fewer_than_1024_gpus_tell_of_larger_ones(modules, recipes):
    rows = [row for row in recipes if "H100" in row.hardware.name]
    rows = [row for row in rows if row.label.startswith("v25.02.02")]
    large = np.array([row.job.world_size >= modules[0].LARGE for row in rows])
    small = [row for row, is_large in zip(rows, large, strict=True) if not is_large]
    judged = [row for row, is_large in zip(rows, large, strict=True) if is_large]
    fit = fit_step_times(small, priors=modules[0].PRIORS)
    measured = np.array([row.step_us for row in judged])
    error = 100 * np.abs(computed_steps_us(judged, fit) / measured - 1)
    assert len(judged) == 24
    assert error.mean() < LARGE_MEAN_PERCENT
    assert error.max() < LARGE_WORST_PERCENT


def _cells(table, name):
    (cells,) = (row[1:] for row in table["rows"] if row[0].startswith(name))
    return [cell.replace(" ", "") for cell in cells]
