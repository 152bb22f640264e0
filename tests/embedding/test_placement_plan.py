"""Plans of models on servers: the hierarchy's own step, the least servers, and refusals."""

import io
import json
from dataclasses import replace

import msgspec
import numpy as np
import pytest
from rich.console import Console

from jaxperf.config import EmbeddingTable, RecommendationModel, load_server
from jaxperf.embedding.hierarchy import HierarchyRules, model_arrays
from jaxperf.embedding.placement import plan
from jaxperf.embedding.placement._gradient import polish_caches
from jaxperf.embedding.placement._options import TableOptions, option_loads
from jaxperf.embedding.placement._problem import pooled_step
from jaxperf.embedding.placement._solve import Solver
from jaxperf.embedding.placement._study import design_of, outcome_of, problem_of, study_of
from jaxperf.errors import ConfigError
from jaxperf.report._embedding_plan import plan_to_json, print_plan

SERVER = "zionex-nand"


def crowded_model(rows: int = 4_400_000_000) -> RecommendationModel:
    """Tables of 2.1 TB, unless rows are given, that one server can hold only with its drives."""
    tables = [
        EmbeddingTable(
            name=f"t{index}",
            rows=rows >> index,
            dimension=64,
            pooling=float(2 + 5 * index),
            optimizer_row_bytes=4.0,
            zipf_exponent=1.0,
        )
        for index in range(4)
    ]
    return RecommendationModel(name="crowded", batch_size=8192, tables=tables)


@pytest.fixture(scope="module")
def solver():
    model = crowded_model()
    return Solver(study_of(model, model_arrays(model), load_server(SERVER), HierarchyRules()))


@pytest.fixture(scope="module")
def found():
    return plan(crowded_model(), server=SERVER, nodes=1, time_limit_s=20)


@pytest.mark.parametrize("nodes", [1, 3])
def test_the_step_and_the_bytes_of_options_are_those_of_the_hierarchy(solver, nodes):
    study = solver.study
    options = TableOptions(
        table=np.arange(4),
        home=np.array([2, 1, 0, 2]),
        cached=np.array([[0.001, 0.02, 0], [0.01, 0, 0], [0, 0, 0], [0.05, 0.3, 0]]),
        pinned=np.array([False, False, False, True]),
    )
    loads = option_loads(study.arrays, study.machine, 8192, options, study.rules)
    problem = problem_of(study, nodes, options, loads)
    outcome = outcome_of(study, design_of(study, nodes, options, np.ones(4)))
    step = pooled_step(problem, np.ones(4))
    assert step.step_us == pytest.approx(float(outcome.step_us), rel=1e-9)
    free = problem.capacity_bytes[:3] - problem.size_bytes.sum(axis=0)[:3]
    assert free == pytest.approx(outcome.free_bytes, rel=1e-9, abs=1.0)
    wear_us = problem.wear_us.sum(axis=0).max()
    assert wear_us == pytest.approx(float(outcome.endurance_us), rel=1e-9)
    busy_us = problem.busy_us.sum(axis=0).max(axis=1)[:3]
    assert busy_us == pytest.approx(outcome.busy_us, rel=1e-9)


def test_a_plan_is_near_its_bound_no_worse_than_greedy_and_within_endurance(found):
    assert found.bound_gap <= 0.01
    assert not found.step_us > found.greedy_us
    for tier in found.tiers:
        assert tier.bytes <= tier.capacity_bytes * (1 + 1e-6)
        assert tier.drive_writes_per_day <= tier.rated_drive_writes_per_day * (1 + 1e-9)
    assert found.tiers[2].drive_writes_per_day > 0
    assert found.samples_per_s == pytest.approx(8192 / found.step_us * 1e6)


def test_of_plans_as_fast_one_leaves_slower_memories_alone_and_splits_little():
    """A model that fits in HBM lies there whole, although its step is that of the network."""
    small = plan(crowded_model(20_000_000), server=SERVER, nodes=1, time_limit_s=5)
    assert small.binding == "network"
    assert {table.tier for table in small.tables} == {small.tiers[0].name}
    assert [tier.bytes for tier in small.tiers[1:]] == [0.0, 0.0]
    assert small.bound_gap < 1e-6
    # Filling one device after another cuts a table at most once a device.
    assert sum(len(table.shards) for table in small.tables) <= 4 + 8 - 1


def test_a_server_that_was_not_given_is_said_to_be_assumed(monkeypatch):
    monkeypatch.setattr("jaxperf.embedding.placement._plan._SERVER", SERVER)
    assumed = plan(crowded_model(20_000_000), nodes=1, time_limit_s=5)
    assert assumed.server == load_server(SERVER).name
    assert [note.code for note in assumed.notes][0] == "server-assumed"
    with pytest.raises(ConfigError, match="neither a number of nodes nor a rate"):
        plan(crowded_model())


def test_every_row_of_every_table_is_somewhere(found):
    parts = dict.fromkeys((table.name for table in crowded_model().tables), 0.0)
    for table in found.tables:
        parts[table.name] += sum(shard.fraction for shard in table.shards)
        assert all(0 <= shard.device < 8 for shard in table.shards)
        assert (table.policy is None) == (table.cached_fraction == 0)
    assert list(parts.values()) == pytest.approx([1.0] * 4)


def test_the_json_has_the_fields_of_a_plan(found):
    values = json.loads(json.dumps(plan_to_json(found)))
    assert list(values) == [
        *("nodes", "binding", "samples_per_s", "cost_usd", "power_w", "bound_gap"),
        *("tables", "tiers", "notes"),
    ]
    assert {"name", "tier", "cached_fraction", "policy", "shards"} <= set(values["tables"][0])
    assert list(values["tiers"][0]) == [
        *("name", "bytes", "hit_ratio", "read_bytes_per_s", "iops", "drive_writes_per_day")
    ]


def test_one_server_less_than_the_least_does_not_do(found):
    target = 1.5 * found.samples_per_s
    model = msgspec.structs.replace(crowded_model(), target_samples_per_s=target)
    least = plan(model, server=SERVER, time_limit_s=20)
    assert least.samples_per_s >= target
    assert least.nodes > 1
    assert least.binding == "wear of NAND SSD PM9A3 7.68 TB"
    with pytest.raises(ConfigError, match=r"wear of NAND .* exceeded by"):
        plan(
            crowded_model(),
            server=SERVER,
            nodes=least.nodes - 1,
            target_samples_per_s=target,
            time_limit_s=10,
        )


def test_what_does_not_fit_is_refused_with_the_bytes_that_are_short():
    crowded = crowded_model()
    larger = [msgspec.structs.replace(table, rows=table.rows * 100) for table in crowded.tables]
    model = msgspec.structs.replace(crowded, tables=larger)
    with pytest.raises(ConfigError, match=r"1 x ZionEX.*do not fit; got .* bytes more"):
        plan(model, server=SERVER, nodes=1)
    with pytest.raises(ConfigError, match="neither a number of nodes nor a rate"):
        plan(crowded, server=SERVER)
    with pytest.raises(ConfigError, match="nodes: not a quantity; got 0"):
        plan(crowded, server=SERVER, nodes=0)


@pytest.mark.slow
def test_descent_from_a_plan_finds_no_better_caches_and_from_a_poor_one_does(solver):
    study = solver.study
    problem, relaxed = solver.fine_bound(1, float("inf"))
    fine = design_of(study, 1, solver._options, relaxed.shares)
    _, polished_us = polish_caches(study.arrays, fine, study.rules)
    own_us = float(outcome_of(study, fine).step_us)
    assert own_us * (1 - 1e-3) <= polished_us <= own_us * (1 + 1e-9)
    poor = replace(fine, cached_rows=0.3 * fine.cached_rows)
    better, better_us = polish_caches(study.arrays, poor, study.rules)
    assert better_us < float(outcome_of(study, poor).step_us)
    assert (outcome_of(study, better).free_bytes >= -1e-5 * problem.capacity_bytes[:3]).all()


def test_the_printed_plan_says_nodes_rate_and_what_binds(found):
    text = io.StringIO()
    print_plan(found, Console(file=text, width=80))
    answer = text.getvalue()
    assert f"1 x {found.server}" in answer
    assert f"what binds: {found.binding}" in answer
    assert f"{found.samples_per_s:,.0f} samples/s" in answer
    assert max(len(line) for line in answer.splitlines()) <= 80
