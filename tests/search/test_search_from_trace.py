"""Searches from a recorded run: jobs whose true steps are known, and a small simulated one."""

import json

import msgspec
import numpy as np
import pytest

from jaxperf.config import Job, SearchSpace, load_hardware, load_power, set_hardware, set_job
from jaxperf.energy import power_model, static_power_w
from jaxperf.errors import ConfigError
from jaxperf.search._evaluate import evaluate
from jaxperf.search._from_trace import _change, search_trace
from jaxperf.search._problem import pose
from jaxperf.search._types import point
from jaxperf.simulator import SimulatedJob, simulate
from jaxperf.workload import load_step_factors, step_fit_of
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


def posed(job, hardware, changes):
    """A space with all configurations, and those of its points that are."""
    keys = list(dict.fromkeys(key for change in changes for key in change))
    axes = {
        key: tuple(dict.fromkeys([getattr(job, key), *(c[key] for c in changes if key in c)]))
        for key in keys
    }
    problem = pose(job, hardware, SearchSpace(job.name, axes))
    found = [{key: change.get(key, getattr(job, key)) for key in keys} for change in changes]
    return problem, points_at(problem, found)


def points_at(problem, values):
    """The points of a space with these values."""
    axes = problem.space.axes
    codes = [[axes[key].index(each[key]) for key in axes] for each in values]
    columns = tuple(np.transpose(codes))
    index = np.asarray(np.ravel_multi_index(columns, [len(axis) for axis in axes.values()]))
    measured = evaluate(problem, index)
    assert measured.points.valid.all()
    return [point(problem, measured, row) for row in range(len(index))]


def wrong_pairs(true, found):
    """Pairs in which the found order is not the true one, and the true values are no tie."""
    return [
        (true[i], true[j])
        for i in range(len(true))
        for j in range(i)
        if (true[i] - true[j]) * (found[i] - found[j]) <= 0
        and abs(true[i] - true[j]) > TIED * min(true[i], true[j])
    ]


def kendall_tau(true, found):
    """Pairs in the same order less those in the other, as part of all."""
    above = np.triu_indices(len(true), 1)
    signs = [np.sign(np.subtract.outer(each, each))[above] for each in (true, found)]
    return round(float(np.mean(signs[0] * signs[1])), 2)


def rate(job, step_us):
    return job.sequence_length * job.global_batch_size / (step_us * 1e-6) / job.world_size


@pytest.mark.slow
@pytest.mark.parametrize("name", FOLDERS)
def test_a_search_ranks_configurations_as_the_truth_does(shared, name):
    job, hardware, changes, steps_us = known(shared / "oracle" / name)
    problem, candidates = posed(job, hardware, changes)
    found = search_trace(
        shared / "oracle" / name, job, problem, candidates, hardware=hardware, most=len(candidates)
    )
    assert len(found) == FOLDERS[name] + 1
    step_us = np.array([each.step_us for each in found])
    assert (np.diff(step_us) >= 0).all()
    by_index = dict(zip((each.index for each in candidates), steps_us, strict=True))
    true_us = np.array([by_index[each.point.index] for each in found])
    closed_form_us = np.array([each.closed_form_us for each in found])
    tau = {}
    for who, values_us in (("re-targeted", step_us), ("closed form", closed_form_us)):
        true_rate, its_rate = (
            np.array([rate(e.point.job, us) for e, us in zip(found, all_us, strict=True)])
            for all_us in (true_us, values_us)
        )
        pairs = (true_us, values_us), (true_rate, its_rate)
        tau[who] = [kendall_tau(*pair) for pair in pairs]
        if who == "re-targeted":
            assert not wrong_pairs(true_us, step_us)
            assert not wrong_pairs(true_rate, its_rate)
            its_own = [each.measures["tokens_per_s_per_gpu"] for each in found]
            np.testing.assert_allclose(its_own, its_rate)
    errors = 100 * np.abs(step_us / true_us - 1)
    print(f"{name}: tau {tau}, mean error {errors.mean():.1f} %, worst {errors.max():.1f} %")
    assert errors.max() <= WORST_PERCENT


# A small simulated run: what is done with every candidate
# ---------------------------------------------------------------------------------------

RECORDED = Job(
    layers=2,
    hidden_size=1024,
    attention_heads=16,
    vocabulary_size=32768,
    sequence_length=1024,
    micro_batch_size=4,
    data_parallel=2,
    schedule="none",
)
AXES = {
    "hardware": ("h100", "h200"),
    "clock_hz": (1500e6, 1980e6),
    "layers": (2, 4),
    "micro_batches": (1, 8),
    "precision": ("bf16", "fp8"),
}
USUAL = {
    "hardware": "h100",
    "clock_hz": 1980e6,
    "layers": 2,
    "micro_batches": 1,
    "precision": "bf16",
}
OTHERS = {
    "recorded": {},
    "deeper": {"layers": 4},
    "more": {"micro_batches": 8},
    "other machine": {"hardware": "h200"},
    "slower": {"clock_hz": 1500e6},
    "narrower": {"precision": "fp8"},
}


TRUTH = {
    "recorded": SimulatedJob(layers=2, data_parallel=2),
    "deeper": SimulatedJob(layers=4, data_parallel=2),
}
LIMIT_US = 20e3
"""Which eight micro-batches do not keep."""


@pytest.fixture(scope="module")
def problem():
    objectives = ("tokens_per_s_per_gpu",)
    space = SearchSpace("small", AXES, limits={"step_us": LIMIT_US}, objectives=objectives)
    return pose(RECORDED, load_hardware("h100"), space)


@pytest.fixture(scope="module")
def candidates(problem):
    found = points_at(problem, [USUAL | each for each in OTHERS.values()])
    return dict(zip(OTHERS, found, strict=True))


@pytest.fixture(scope="module")
def found(problem, candidates, traces):
    every = search_trace(
        traces, RECORDED, problem, list(candidates.values()), hardware="h100", most=4
    )
    names = {each.index: name for name, each in candidates.items()}
    return {names[each.point.index]: each for each in every}


def own_notes(each):
    return [note for note in each.notes if note.code.startswith("point-")]


@pytest.mark.slow
def test_no_candidate_is_left_out_and_the_retargeted_come_first(found):
    assert list(found) == ["other machine", "recorded", "deeper", "more", "narrower", "slower"]
    assert not any(own_notes(found[name]) for name in ("other machine", "recorded", "deeper"))


@pytest.mark.slow
@pytest.mark.parametrize("name", TRUTH)
def test_points_take_what_the_simulated_job_takes(found, name):
    assert found[name].step_us == pytest.approx(simulate(TRUTH[name]).step_us, rel=0.03)


@pytest.mark.slow
def test_the_closed_form_is_scaled_to_the_recorded_step(found):
    recorded = found["recorded"]
    assert recorded.closed_form_us == pytest.approx(recorded.step_us)
    factors = [each.closed_form_us / each.point.measures["step_us"] for each in found.values()]
    np.testing.assert_allclose(factors, factors[0])


@pytest.mark.slow
def test_a_point_that_keeps_no_limit_when_retargeted_comes_after_those_that_do(found):
    more = found["more"]
    assert more.step_us > LIMIT_US
    rates = {name: each.measures.get("tokens_per_s_per_gpu", 0.0) for name, each in found.items()}
    assert max(rates, key=rates.__getitem__) == "more"
    assert "accumulation-unseen" in {note.code for note in more.notes}
    (note,) = own_notes(more)
    assert note.code == "point-over-limit" and note.text.endswith("does not keep step_us")


@pytest.mark.slow
def test_measures_follow_from_the_retargeted_step(found):
    power = power_model(load_power("h100"))
    static_w = float(static_power_w(power, power.nominal_clock_hz))
    for name in ("recorded", "deeper", "more"):
        each = found[name]
        before, after, job = each.point.measures, each.measures, each.point.job
        assert after["tokens_per_s_per_gpu"] == pytest.approx(rate(job, each.step_us))
        assert after["memory_bytes"] == before["memory_bytes"]
        step_j = [m["power_w_per_gpu"] * m["step_us"] * 1e-6 for m in (before, after)]
        shorter_s = (before["step_us"] - after["step_us"]) * 1e-6
        assert step_j[0] - step_j[1] == pytest.approx(static_w * shorter_s)


@pytest.mark.slow
def test_points_to_which_the_run_cannot_be_retargeted_are_named(found):
    texts = {"narrower": "precision: a recorded run keeps this field", "slower": "keeps its clock"}
    for name, text in texts.items():
        (note,) = found[name].notes
        assert note.code == "point-not-retargeted" and text in note.text
        assert np.isnan(found[name].step_us) and not found[name].measures


@pytest.mark.slow
def test_points_beyond_the_best_of_the_closed_form_are_not_asked(problem, candidates, traces):
    some = [candidates[name] for name in ("recorded", "narrower", "deeper")]
    fit = step_fit_of(load_step_factors("h100"))
    first, *others = search_trace(traces, RECORDED, problem, some, hardware="h100", fit=fit, most=1)
    assert first.point is candidates["recorded"]
    assert first.closed_form_us == pytest.approx(first.step_us)
    assert [each.notes[0].code for each in others] == ["point-not-retargeted", "point-not-asked"]


@pytest.mark.slow
def test_a_search_of_another_machine_is_refused_point_by_point(traces):
    machine = load_hardware("h100")
    half = set_hardware(machine, {"memory_bytes_per_s": machine.memory_bytes_per_s / 2})
    problem = pose(RECORDED, half, SearchSpace("half", {"layers": (2,)}))
    (only,) = search_trace(
        traces, RECORDED, problem, points_at(problem, [{"layers": 2}]), hardware="h100"
    )
    assert "of another machine than the recorded one" in only.notes[0].text


def test_the_job_that_is_asked_for_is_that_of_the_point_in_every_field():
    recorded = msgspec.structs.replace(RECORDED, ffn_hidden_size=4096, key_value_heads=16)
    axes = {"hidden_size": (1024, 2048), "memory_bytes": (80e9, 160e9), "head_size": (64, 128)}
    problem = pose(recorded, load_hardware("h100"), SearchSpace("wide", axes))
    values = {"hidden_size": 2048, "memory_bytes": 160e9, "head_size": 128}
    (wide,) = points_at(problem, [values])
    change = _change(problem, recorded, load_hardware("h100"), wide)
    assert "memory_bytes" not in change
    assert set_job(recorded, change) == wide.job


def test_a_search_without_candidates_is_refused():
    problem = pose(RECORDED, load_hardware("h100"), SearchSpace("one", {"layers": (2,)}))
    with pytest.raises(ConfigError, match="search of a trace: no points"):
        search_trace("nowhere", RECORDED, problem, [])
    with pytest.raises(ConfigError, match="most: too few; got 0"):
        search_trace("nowhere", RECORDED, problem, points_at(problem, [{"layers": 2}]), most=0)
