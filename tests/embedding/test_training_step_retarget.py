"""Recorded runs asked again: against graphs built with the change, and on real traces."""

from dataclasses import fields, replace

import numpy as np
import pytest

from jaxperf.embedding.training import (
    EmbeddingChange,
    EmbeddingRole,
    RecordedEmbeddings,
    StepParts,
    balanced_change,
    build_training_graph,
    cached_change,
    change_of_parts,
    embedding_whatif,
    find_embeddings,
    recorded_step,
    replay_training,
    retarget_embeddings,
)
from jaxperf.embedding.training._device_steps import device_breakdown, device_step_us
from jaxperf.errors import ConfigError
from jaxperf.graph import build_graph
from jaxperf.replay import replay_graph
from jaxperf.trace import read_run

ROLES = {
    "lookup_us": EmbeddingRole.LOOKUP,
    "update_us": EmbeddingRole.UPDATE,
    "indices_us": EmbeddingRole.ALL_TO_ALL,
    "pooled_us": EmbeddingRole.ALL_TO_ALL,
    "gradients_us": EmbeddingRole.ALL_TO_ALL,
}


def parts_of(seed):
    """Parts of two ranks, whole microseconds, with nothing fetched."""
    rng = np.random.default_rng(seed)
    values = {f.name: rng.integers(1, 100, 2).astype(float) for f in fields(StepParts)}
    return StepParts(**values | {"fetch_us": np.zeros((2, 1)), "fill_us": np.zeros(2)})


def as_recorded(parts, **options):
    """The graph of some steps as a recording has it, and its tasks of tables."""
    built = build_training_graph(parts, **options)
    roles = np.array([ROLES.get(part, EmbeddingRole.NONE) for part in built.part], np.int8)
    return replay_training(built).graph, RecordedEmbeddings(roles, fixed_us=0.0)


def answer(parts, change, **options):
    return retarget_embeddings(*as_recorded(parts, **options), change)


@pytest.mark.parametrize("seed", [1, 2])
@pytest.mark.parametrize("overlap", [True, False])
@pytest.mark.parametrize("fetch_us", [40.0, 900.0])
def test_a_run_asked_with_fetches_is_the_run_built_with_them(seed, overlap, fetch_us):
    parts = parts_of(seed)
    fetching = replace(parts, fetch_us=np.full((2, 1), fetch_us))
    built = replay_training(build_training_graph(fetching, overlap=overlap))
    change = EmbeddingChange(fetch_us=fetch_us)
    # Without fetches, indices are sent as early as a prefetch needs them where it is asked for.
    asked = answer(parts, change, overlap=overlap)
    assert asked.step_us == pytest.approx(built.step_us, rel=1e-9)


@pytest.mark.parametrize("overlap", [True, False])
def test_rows_fetched_before_the_lookups_are_the_run_built_so(overlap):
    parts = parts_of(3)
    fetching = replace(parts, fetch_us=np.full((2, 1), 70.0))
    built = replay_training(build_training_graph(fetching, prefetch=False, overlap=overlap))
    change = EmbeddingChange(fetch_us=70.0, prefetch=False)
    asked = answer(parts, change, prefetch=False, overlap=overlap)
    assert asked.step_us == pytest.approx(built.step_us, rel=1e-9)


def test_scaled_parts_are_the_run_built_with_them():
    parts = parts_of(4)
    other = replace(
        parts,
        lookup_us=parts.lookup_us * np.array([3.0, 1.0]),
        update_us=parts.update_us * 2,
        pooled_us=parts.pooled_us * 0.5,
        gradients_us=parts.gradients_us * 0.5,
        indices_us=parts.indices_us * 0.5,
        fill_us=np.array([11.0, 5.0]),
    )
    built = replay_training(build_training_graph(other))
    change = change_of_parts(parts, other)
    assert change.all_to_all_scale == pytest.approx(0.5)
    assert answer(parts, change).step_us == pytest.approx(built.step_us, rel=1e-6)


def test_shares_of_the_critical_path_say_what_was_modelled():
    hidden = answer(parts_of(5), EmbeddingChange(fetch_us=1.0))
    exposed = answer(parts_of(5), EmbeddingChange(fetch_us=1e5))
    assert hidden.origins["modelled"] == 0
    assert exposed.origins["modelled"] > 0.95
    assert sum(exposed.origins.values()) == pytest.approx(1)


def test_a_balanced_run_has_the_same_lookups_on_all_ranks():
    graph, recorded = as_recorded(parts_of(6))
    change = balanced_change(graph, recorded)
    lookups = recorded.role == EmbeddingRole.LOOKUP
    spent = np.bincount(graph.trace[lookups], graph.duration_ns[lookups])
    assert spent * np.asarray(change.lookup_scale) == pytest.approx([spent.mean()] * 2)


def test_what_an_all_to_all_takes_whatever_it_sends_stays():
    parts = replace(parts_of(7), lookup_us=np.ones(2), update_us=np.ones(2))
    graph, recorded = as_recorded(parts, overlap=False)
    sent = np.stack([parts.indices_us, parts.pooled_us, parts.gradients_us])
    base_us = device_step_us(graph, replay_graph(graph))
    free = retarget_embeddings(graph, recorded, EmbeddingChange(all_to_all_scale=0.0))
    # Ranks meet in each, and one of them waits for the other's.
    assert sent.min(1).sum() <= base_us - free.step_us <= sent.max(1).sum()
    floored = replace(recorded, fixed_us=1e3)
    same = retarget_embeddings(graph, floored, EmbeddingChange(all_to_all_scale=0.0))
    assert same.ratio == 1


def test_changes_that_cannot_be_are_refused():
    graph, recorded = as_recorded(parts_of(8))
    for change in (
        EmbeddingChange(lookup_scale=-1.0),
        EmbeddingChange(fetch_us=np.ones(3)),
        EmbeddingChange(all_to_all_scale=float("nan")),
    ):
        with pytest.raises(ConfigError, match="not a change"):
            retarget_embeddings(graph, recorded, change)
    fetching = replace(parts_of(8), fetch_us=np.ones((2, 1)))
    with pytest.raises(ConfigError, match="cannot be taken out"):
        change_of_parts(fetching, parts_of(8))


@pytest.fixture(scope="module")
def dlrm(shared):
    """One step of eight ranks, and its graph."""
    run = read_run(shared / "traces" / "dlrm_param_v100_8rank_1step")
    graph = build_graph(run)
    return graph, find_embeddings(graph, run)


def test_the_tasks_of_tables_of_a_real_run_are_found(dlrm):
    graph, recorded = dlrm
    counts = np.bincount(recorded.role[graph.trace == 0], minlength=4)
    # Its manifest counts five all-to-alls of a rank; one table of two is on one rank alone.
    assert counts[EmbeddingRole.ALL_TO_ALL] == 5
    assert counts[EmbeddingRole.LOOKUP] == 1
    assert counts[EmbeddingRole.UPDATE] > 1
    names = {graph.names[name] for name in graph.name[recorded.role == EmbeddingRole.LOOKUP]}
    assert all("forward" in name and "dense" not in name for name in names)


def test_no_change_is_the_recorded_replay(dlrm):
    graph, recorded = dlrm
    timeline = replay_graph(graph)
    same = retarget_embeddings(graph, recorded, EmbeddingChange())
    assert same.step_us == pytest.approx(device_step_us(graph, timeline), rel=1e-9)
    assert same.ratio == pytest.approx(1, rel=1e-9)
    assert same.breakdown == device_breakdown(graph, timeline)
    assert same.origins == {"recorded": 1, "scaled": 0, "modelled": 0}


def test_slower_tiers_and_links_take_longer_and_faster_links_save_no_more_than_they_took(dlrm):
    graph, recorded = dlrm
    timeline = replay_graph(graph)
    step = recorded_step(graph, recorded, timeline)

    def asked(**change):
        return retarget_embeddings(graph, recorded, EmbeddingChange(**change)).step_us

    for prefetch in (True, False):
        steps = [asked(fetch_us=us, prefetch=prefetch) for us in (0.0, 1e3, 1e4, 1e5)]
        assert steps == sorted(steps)
        assert steps[-1] > 1e5
    assert asked(lookup_scale=1e4) > step.step_us
    sent = recorded.role == EmbeddingRole.ALL_TO_ALL
    sent_us = np.bincount(graph.trace[sent], graph.duration_ns[sent] / 1e3)
    assert 0 <= step.step_us - asked(all_to_all_scale=0.0) <= sent_us.max()


def test_a_step_is_made_of_its_parts(dlrm):
    graph, recorded = dlrm
    step = recorded_step(graph, recorded, replay_graph(graph))
    lookups = recorded.role == EmbeddingRole.LOOKUP
    assert step.lookup_us == pytest.approx(graph.duration_ns[lookups].sum() / 1e3 / 8)
    assert 0 < step.idle_us < step.step_us
    change = cached_change(step, 0.75, 900e9, 12e9)
    assert change.fetch_us == pytest.approx(0.25 * step.lookup_us * 75)


def test_a_run_without_tables_is_refused_in_one_line(shared):
    trace = shared / "traces" / "cuda_sync_events_a100" / "alexnet_critical_path.json.gz"
    with pytest.raises(ConfigError, match="no lookup of an embedding table"):
        embedding_whatif(trace, {})


@pytest.mark.slow
def test_three_steps_of_a_real_run_hide_a_prefetch_until_it_fills_them(shared):
    folder = shared / "traces" / "torchrec_sst_dlrm_v100_4rank_3step" / "run_b"
    changes = {str(us): EmbeddingChange(fetch_us=us) for us in (0.0, 5e4, 3e5)}
    told = embedding_whatif(folder, changes)
    assert told.answers["50000.0"].step_us == pytest.approx(told.recorded.step_us, rel=1e-9)
    # A fetch, and the update between two of them.
    update_us = told.recorded.update_us
    assert 3e5 < told.answers["300000.0"].step_us < 3e5 + 2 * update_us
