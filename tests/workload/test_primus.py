"""Recorded pipelines of `groundtruth/primus_pp_schedule`, replayed in their schedule's order."""

import importlib
from pathlib import Path

import numpy as np
import pytest

SCHEDULES = ("1F1B", "interleaved")
BAR_PERCENT = 2.0
CLOCKS_MS = 1.0
"""By so much may the clocks of two ranks differ: a message seems to arrive before it is sent."""


@pytest.fixture(scope="module")
def primus():
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(Path(__file__).resolve().parents[2] / "benchmarks"))
        return importlib.import_module("_jobs_primus")


@pytest.fixture(scope="module", params=SCHEDULES)
def recording(request, primus, shared):
    (name,) = (name for name, schedule in primus.RUNS.items() if schedule == request.param)
    return primus.read(shared / primus.FOLDER / name, request.param)


def test_ranks_did_their_passes_in_the_order_of_the_schedule(recording):
    source, target = recording.edges.T
    assert recording.start_ms.shape == (19, 8 * 16 * (4 if recording.schedule != "1F1B" else 2))
    assert np.all(recording.start_ms[:, target] > recording.end_ms[:, source] - CLOCKS_MS)


def test_an_iteration_replayed_with_its_own_passes_takes_what_it_took(recording, primus):
    """Lags of messages are those of the other iterations."""
    errors = primus.replay_errors(recording, own=True)
    assert np.abs(errors.total).max() < BAR_PERCENT
    passes = np.abs(np.stack([errors.start, errors.end]))
    assert passes[:, ~errors.stalled].max() < BAR_PERCENT
    # Once, while one rank stalled, the rank that sends to it started a pass later than its inputs
    # explain: 125 ms, in iteration 14 of the interleaved run.
    assert np.mean(passes > BAR_PERCENT) < 0.001


def test_an_iteration_is_foretold_by_the_passes_of_the_others(recording, primus):
    """But for stalls of 200 ms and more, of which nothing in the other iterations tells."""
    errors = primus.replay_errors(recording, own=False)
    steady = ~errors.stalled
    assert steady.sum() >= 12
    assert np.abs(errors.total[steady]).max() < BAR_PERCENT
    assert np.abs(np.stack([errors.start, errors.end])[:, steady]).max() < BAR_PERCENT
