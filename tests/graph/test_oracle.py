"""Simulated jobs of the shared oracle: waits without their rows, and steps under changes."""

import json
from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from jaxperf.graph import DependencyKind, ExecutionGraph, build_graph
from jaxperf.trace import Category, Run, Trace, read_run
from tests.graph.asked import measured_steps_us, replayed

JOBS = (
    "gpt_dp2_pp2_tp2",
    "gpt_dp2_pp2_tp2_old_profiler",
    "gpt_dp4_straggler",
    "gpt_fsdp4",
    "gpt_pp4_cpu_bound",
    "gpt_sync_every_micro",
)
WITH_ROWS = tuple(job for job in JOBS if not job.endswith("old_profiler"))

WAITS_PERCENT = 99.0
"""Of the waits the profiler wrote, and of those that were inferred."""
UNCHANGED_PERCENT = 0.5
WHAT_IF_PERCENT = 1.0
"""Each run of the oracle draws its noise anew."""
ALONE_PERCENT = 2.0
"""Of a rank alone collectives are taken as measured, their waiting included."""


@pytest.fixture(scope="module")
def runs(shared):
    return cache(lambda job: read_run([shared / "oracle" / job]))


@pytest.fixture(scope="module")
def graphs(runs):
    """All ranks of a job, joined."""
    return cache(lambda job: build_graph(runs(job)))


@pytest.fixture(scope="module")
def graphs_alone(runs):
    """Each rank of a job by itself."""
    return cache(lambda job: [build_graph(Run((trace,), (), ())) for trace in runs(job).traces])


def without_sync_rows(trace: Trace) -> Trace:
    """The trace as an older profiler would have written it."""
    kept = trace.category != Category.SYNC
    columns = trace.__dict__.items()
    return replace(trace, **{k: v[kept] for k, v in columns if isinstance(v, np.ndarray)})


def event_waits(graph: ExecutionGraph, trace: Trace) -> set[tuple[int, int]]:
    """Correlations of the awaited and of the waiting work."""
    waits = graph.dependency == DependencyKind.EVENT_WAIT
    source, target = graph.event[graph.source[waits]], graph.event[graph.target[waits]]
    pairs = zip(trace.correlation[source].tolist(), trace.correlation[target].tolist(), strict=True)
    return set(pairs)


@pytest.mark.parametrize("job", WITH_ROWS)
def test_waits_are_recovered_without_the_rows_that_tell_them(runs, job):
    for trace in runs(job).traces:
        old = without_sync_rows(trace)
        right = event_waits(build_graph(Run((trace,), (), ())), trace)
        inferred = event_waits(build_graph(Run((old,), (), ())), old)
        assert len(right) > 10
        assert 100 * len(right & inferred) >= WAITS_PERCENT * len(right)
        assert 100 * len(right & inferred) >= WAITS_PERCENT * len(inferred)


@pytest.mark.parametrize("job", JOBS)
def test_every_step_of_every_rank_replays_alone(graphs_alone, job):
    for graph in graphs_alone(job):
        assert len(graph.steps) == 3
        right = pytest.approx(measured_steps_us(graph), rel=UNCHANGED_PERCENT / 100)
        assert replayed(graph).steps_us == right


@pytest.mark.parametrize("job", JOBS)
def test_every_step_of_every_rank_replays_among_the_others(graphs, job):
    graph = graphs(job)
    assert len(graph.steps) == 3 * len(graph.ranks)
    right = pytest.approx(measured_steps_us(graph), rel=UNCHANGED_PERCENT / 100)
    assert replayed(graph).steps_us == right


SELECTORS = {
    "gemm_scale": "gemm",
    "comm_scale": "communication",
    "cpu_scale": "host",
    "norm_scale": "normalization",
}


@pytest.mark.parametrize("job", JOBS)
def test_the_steady_step_moves_like_the_changed_job(shared, graphs, job):
    asked = [
        entry for entry in questions(shared, job) if SELECTORS.keys() >= entry["change"].keys()
    ]
    assert asked
    for entry in asked:
        change = {SELECTORS[word]: factor for word, factor in entry["change"].items()}
        right = pytest.approx(entry["step_us"], rel=WHAT_IF_PERCENT / 100)
        assert steady_step_us([graphs(job)], change) == right, change


@pytest.mark.parametrize(
    ("job", "word", "factor"),
    [
        ("gpt_fsdp4", "gemm_scale", 0.5),
        ("gpt_fsdp4", "gemm_scale", 2.0),
        ("gpt_fsdp4", "cpu_scale", 0.5),
        ("gpt_fsdp4", "cpu_scale", 4.0),
        ("gpt_fsdp4", "norm_scale", 0.0),
        ("gpt_sync_every_micro", "gemm_scale", 0.5),
        ("gpt_sync_every_micro", "gemm_scale", 2.0),
        ("gpt_sync_every_micro", "cpu_scale", 0.5),
        ("gpt_sync_every_micro", "cpu_scale", 4.0),
        ("gpt_sync_every_micro", "norm_scale", 0.0),
        ("gpt_pp4_cpu_bound", "gemm_scale", 0.5),
        ("gpt_pp4_cpu_bound", "cpu_scale", 4.0),
        ("gpt_pp4_cpu_bound", "norm_scale", 0.0),
    ],
)
def test_ranks_alone_move_like_the_changed_job_where_waiting_stays(
    shared, graphs_alone, job, word, factor
):
    (right,) = [
        entry["step_us"] for entry in questions(shared, job) if entry["change"] == {word: factor}
    ]
    answer = steady_step_us(graphs_alone(job), {SELECTORS[word]: factor})
    assert answer == pytest.approx(right, rel=ALONE_PERCENT / 100)


def questions(shared: Path, job: str) -> list[dict]:
    """Changes of a job, and its true steady step under each."""
    return json.loads((shared / "oracle" / job / "truth.json").read_text())["what_if"]


def steady_step_us(graphs: Sequence[ExecutionGraph], change: dict[str, float]) -> float:
    """The mean over ranks and steps without the first."""
    first = graphs[0].steps[0].name
    return float(
        np.mean(
            [
                time
                for graph in graphs
                for step, time in zip(graph.steps, replayed(graph, change).steps_us, strict=True)
                if step.name != first
            ]
        )
    )
