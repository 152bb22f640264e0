"""Simulated jobs of the shared oracle: waits without their rows, and steps under changes.

The ranks are replayed one by one, so only changes are asked that leave the waiting for other ranks
as it was.
"""

import json
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
WHAT_IF_PERCENT = 2.0
"""Each run of the oracle draws its noise anew, and collectives are taken as measured."""


@pytest.fixture(scope="module")
def runs(shared):
    return cache(lambda job: read_run([shared / "oracle" / job]))


@pytest.fixture(scope="module")
def graphs(runs):
    return cache(lambda job: build_graph(runs(job)))


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
def test_every_step_of_every_rank_replays(graphs, job):
    graph = graphs(job)
    assert len(graph.steps) == 3 * len(graph.ranks)
    right = pytest.approx(measured_steps_us(graph), rel=UNCHANGED_PERCENT / 100)
    assert replayed(graph).steps_us == right


@pytest.mark.parametrize(
    ("job", "change", "truth"),
    [
        *(
            (job, change, truth)
            for job in ("gpt_fsdp4", "gpt_sync_every_micro")
            for change, truth in [
                ({"gemm": 0.5}, {"gemm_scale": 0.5}),
                ({"gemm": 2.0}, {"gemm_scale": 2.0}),
                ({"host": 0.5}, {"cpu_scale": 0.5}),
                ({"host": 4.0}, {"cpu_scale": 4.0}),
                ({"normalization": 0.0}, {"norm_scale": 0.0}),
            ]
        ),
        ("gpt_pp4_cpu_bound", {"gemm": 0.5}, {"gemm_scale": 0.5}),
        ("gpt_pp4_cpu_bound", {"host": 4.0}, {"cpu_scale": 4.0}),
        ("gpt_pp4_cpu_bound", {"normalization": 0.0}, {"norm_scale": 0.0}),
    ],
    ids=lambda value: value if isinstance(value, str) else "_".join(map(str, *value.items())),
)
def test_the_steady_step_moves_like_the_changed_job(shared, graphs, job, change, truth):
    graph = graphs(job)
    right = true_steady_step_us(shared / "oracle" / job, truth)
    assert steady_step_us(graph, change) == pytest.approx(right, rel=WHAT_IF_PERCENT / 100)


def true_steady_step_us(folder: Path, change: dict[str, float]) -> float:
    asked = json.loads((folder / "truth.json").read_text())["what_if"]
    (step_us,) = [entry["step_us"] for entry in asked if entry["change"] == change]
    return step_us


def steady_step_us(graph: ExecutionGraph, change: dict[str, float]) -> float:
    """The mean over ranks and steps without the first."""
    first = graph.steps[0].name
    times_us = replayed(graph, change).steps_us
    return float(
        np.mean([t for t, s in zip(times_us, graph.steps, strict=True) if s.name != first])
    )
