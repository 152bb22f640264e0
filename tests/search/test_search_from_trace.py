"""Searches from a recorded run: jobs whose true steps are known, and a small simulated one."""

import json
from functools import cache

import numpy as np
import pytest
from scipy.stats import kendalltau

from jaxperf import whatif
from jaxperf.config import Job, Scenario, SearchSpace, load_hardware
from jaxperf.errors import ConfigError
from jaxperf.search._evaluate import evaluate
from jaxperf.search._from_trace import search_trace
from jaxperf.search._problem import pose
from jaxperf.search._types import point
from tests.workload.retargeting.test_retarget_oracle import (
    FOLDERS,
    WORST_PERCENT,
    fields,
    is_of_the_job,
    machine,
)

TIED = 0.01
"""Configurations whose true values are as near to each other may swap."""


def known(folder):
    """The truth of a folder: its job, machine, and the true step of every configuration."""
    truth = json.loads((folder / "truth.json").read_text())
    asked = [each for each in truth["what_if"] if is_of_the_job(each["change"])]
    job = Job(**fields(truth["job"]), schedule=truth["schedule"], name=folder.name)
    steps = [truth["steady_step_us"], *(each["step_us"] for each in asked)]
    return job, machine(truth["hardware"]), [{}, *(fields(e["change"]) for e in asked)], steps


def posed(job, hardware, changes, objective="step_us"):
    """A space with all configurations, and those of its points that are."""
    keys = list(dict.fromkeys(key for change in changes for key in change))
    axes = {
        key: tuple(dict.fromkeys([getattr(job, key), *(c[key] for c in changes if key in c)]))
        for key in keys
    }
    problem = pose(job, hardware, SearchSpace(job.name, axes, objectives=(objective,)))
    codes = [[axes[key].index(c.get(key, getattr(job, key))) for key in keys] for c in changes]
    sizes = [len(values) for values in axes.values()]
    index = np.ravel_multi_index(np.transpose(codes), sizes)
    measured = evaluate(problem, index)
    assert measured.points.valid.all()
    return problem, [point(problem, measured, row) for row in range(len(index))]


@cache
def searched(folder, objective, most=20):
    """What a search from the traces of a folder finds, and the true value of each configuration."""
    job, hardware, changes, steps_us = known(folder)
    problem, candidates = posed(job, hardware, changes, objective)
    true = {}
    for each, step_us in zip(candidates, steps_us, strict=True):
        tokens = each.job.global_batch_size * each.job.sequence_length
        rate = tokens / (step_us * 1e-6) / each.job.world_size
        true[each.index] = {"step_us": step_us, "tokens_per_s_per_gpu": rate}
    return search_trace(folder, job, problem, candidates, hardware=hardware, most=most), true


def wrong_pairs(true, found):
    """Pairs in which the found order is not the true one, and the true values are no tie."""
    return [
        (true[i], true[j])
        for i in range(len(true))
        for j in range(i)
        if (true[i] - true[j]) * (found[i] - found[j]) <= 0
        and abs(true[i] - true[j]) > TIED * min(true[i], true[j])
    ]


@pytest.mark.slow
@pytest.mark.parametrize("objective", ["step_us", "tokens_per_s_per_gpu"])
@pytest.mark.parametrize("name", FOLDERS)
def test_a_search_ranks_configurations_as_the_truth_does(shared, name, objective):
    found, by_index = searched(shared / "oracle" / name, objective)
    assert len(found) == FOLDERS[name] + 1
    true = np.array([by_index[each.point.index][objective] for each in found])
    traced = np.array([each.measures[objective] for each in found])
    by_form = np.array([each.point.measures[objective] for each in found])
    errors = 100 * (traced / true - 1)
    rank = [kendalltau(true, values).statistic for values in (traced, by_form)]
    wrong = wrong_pairs(true, by_form)
    print(
        f"{name}, {objective}: tau {rank[0]:.2f}, errors {np.abs(errors).mean():.1f} % on average, "
        f"{np.abs(errors).max():.1f} % at worst; closed form tau {rank[1]:.2f}, "
        f"{len(wrong)} wrong pairs, errors "
        f"{[round(100 * (each.closed_form_us / by_index[each.point.index]['step_us'] - 1)) for each in found]}"
    )
    assert not wrong_pairs(true, traced)
    sign = 1 if objective == "step_us" else -1
    assert (np.diff(sign * traced) >= 0).all()
    assert np.abs(errors).max() <= WORST_PERCENT
