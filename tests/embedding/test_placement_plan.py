"""Plans of models on servers: the hierarchy's own step, the least servers, and refusals."""

import io
import json
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import msgspec
import numpy as np
import pytest
from rich.console import Console

from jaxperf.config import EmbeddingTable, RecommendationModel, built_in_servers, load_server
from jaxperf.embedding.hierarchy import HierarchyRules, model_arrays
from jaxperf.embedding.placement import catalogue, plan, saving
from jaxperf.embedding.placement._gradient import polish_caches
from jaxperf.embedding.placement._milp import relax
from jaxperf.embedding.placement._options import TableOptions, option_loads
from jaxperf.embedding.placement._plan import _least_nodes
from jaxperf.embedding.placement._plan_types import Shard, TablePlan
from jaxperf.embedding.placement._problem import pooled_step
from jaxperf.embedding.placement._solve import Solver
from jaxperf.embedding.placement._study import (
    _parts_of_row,
    design_of,
    outcome_of,
    problem_of,
    study_of,
)
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


def logged_model(path, ids) -> RecommendationModel:
    """The same tables, each with a log of these ids."""
    path.write_text("\n".join(map(str, ids)))
    tables = [
        msgspec.structs.replace(table, accesses=str(path), zipf_exponent=None)
        for table in crowded_model().tables
    ]
    return msgspec.structs.replace(crowded_model(), tables=tables)


@pytest.fixture(scope="module")
def new_rows(tmp_path_factory):
    return logged_model(tmp_path_factory.mktemp("logs") / "once.txt", range(2_000))


@pytest.fixture(scope="module")
def some_rows(tmp_path_factory):
    ids = np.random.default_rng(0).zipf(1.2, 20_000) % 10_000
    return logged_model(tmp_path_factory.mktemp("logs") / "some.txt", ids)


@pytest.fixture(scope="module")
def solver():
    model = crowded_model()
    return Solver(study_of(model, model_arrays(model), load_server(SERVER), HierarchyRules()))


@pytest.fixture(scope="module")
def found():
    return plan(crowded_model(), server=SERVER, nodes=1, time_limit_s=60)


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
    monkeypatch.setattr("jaxperf.embedding.placement._plan.SERVER", SERVER)
    assumed = plan(crowded_model(20_000_000), nodes=1, time_limit_s=5)
    assert assumed.server == load_server(SERVER).name
    assert [note.code for note in assumed.notes][0] == "server-assumed"


@pytest.mark.slow
def test_with_neither_servers_nor_a_rate_the_fewest_that_hold_the_tables_are_taken():
    """2.1 TB are more than the 1.76 TB that a server without drives has for rows."""
    without = plan(crowded_model(), server="zionex", time_limit_s=5)
    assert without.nodes == 2
    assert without.binding == "capacity"
    assert without.notes[0].code == "nodes-assumed"
    assert without.target_samples_per_s is None


def test_the_bound_of_a_short_search_is_below_what_a_long_one_finds(found, monkeypatch):
    monkeypatch.setattr("jaxperf.embedding.placement._plan._LEAST_S", 0.0)
    short = plan(crowded_model(), server=SERVER, nodes=1, time_limit_s=1e-3)
    assert short.bound_us <= found.bound_us * (1 + 1e-2)
    assert short.bound_us <= found.step_us
    assert short.step_us >= found.bound_us
    assert short.bound_gap == pytest.approx(short.step_us / short.bound_us - 1)


@pytest.mark.parametrize(
    ("logged", "rules"),
    [
        (False, HierarchyRules()),
        (True, HierarchyRules()),
        pytest.param(False, HierarchyRules(inclusive=False, ways=None), marks=pytest.mark.slow),
    ],
)
def test_no_sizes_of_caches_are_faster_than_the_bound(logged, rules, some_rows):
    """Of many sizes at random the relaxation is above the bound, at the prices of others too."""
    model, rng = some_rows if logged else crowded_model(), np.random.default_rng(0)
    study = study_of(model, model_arrays(model), load_server(SERVER), rules)
    solver = Solver(study)
    proven_us = solver.proven_us(1, *solver.bound(1))
    count = 400
    sizes = 10.0 ** rng.uniform(-6, 0, (4 * count, 3))
    home = np.tile(rng.permutation(np.repeat([0, 1, 2, 2], count // 4)), 4)
    sizes = np.where(np.arange(3) < home[:, None], sizes, 0.0)
    sizes[:, :2] = np.sort(sizes[:, :2], axis=1) * (home[:, None] == 2) + sizes[:, :2] * (
        home[:, None] == 1
    )
    options = TableOptions(
        table=np.repeat(np.arange(4), count),
        home=home,
        cached=sizes,
        pinned=(rng.uniform(size=4 * count) < 0.5) & (home > 0),
    )
    loads = option_loads(study.arrays, study.machine, 8192, options, rules)
    random = relax(problem_of(study, 1, options, loads))
    at_these = solver.proven_us(1, problem_of(study, 1, options, loads), random)
    assert max(proven_us, at_these) <= random.bound_us
    assert at_these >= 0.5 * random.bound_us


def test_a_log_structured_store_takes_more_than_the_rows_and_says_so(found):
    """Rows of 260 bytes, 1.11 times: the memory's own figure."""
    rows = {table.name: table.rows for table in crowded_model().tables}
    held = sum(
        260 * rows[table.name] * shard.fraction
        for table in found.tables
        if table.tier == found.tiers[2].name
        for shard in table.shards
    )
    assert found.tiers[2].bytes == pytest.approx(1.11 * held, rel=1e-6)
    assert "space-amplification" in [note.code for note in found.notes]


def test_column_shards_divide_the_row_in_multiples_of_4_elements_and_of_blocks():
    table = crowded_model().tables[0]
    for dimension, block, parts in ((64, 32, 8), (60, 32, 1), (100, 80, 5), (96, 64, 6), (6, 8, 1)):
        changed = msgspec.structs.replace(table, dimension=dimension)
        assert _parts_of_row(changed, block) == parts


class _Numbers:
    """Two servers hold the rows; 3, 4 and those from 40 on are not excluded, and 3 is slow."""

    def __init__(self):
        self.asked = []

    def excludes(self, nodes, step_us, *, network):
        return nodes < 2 or (network and nodes not in (3, 4) and nodes < 40)

    def solve(self, nodes, deadline, step_us):
        self.asked.append(nodes)
        step = 2.0 if nodes == 3 else 1.0
        return SimpleNamespace(placement=SimpleNamespace(step_us=step))


def test_the_least_servers_are_found_although_more_of_them_may_be_slower():
    numbers: Any = _Numbers()
    nodes, _, doubtful = _least_nodes(numbers, 1.0, 0.0)
    assert (nodes, doubtful, numbers.asked) == (4, [3], [3, 4])


@pytest.mark.slow
def test_drives_save_servers_against_hbm_and_dram_alone(found):
    saved = saving(found, crowded_model(), SERVER, time_limit_s=5)
    assert saved.baseline is not None
    assert (saved.baseline.nodes, saved.nodes) == (2, 2.0)
    # The drives of one server cost 8 x 900 USD.
    alone = 2 * (found.cost_usd - 7200)
    assert saved.cost == pytest.approx(alone / found.cost_usd)


@pytest.mark.slow
def test_the_catalogue_says_which_servers_no_other_beats():
    model = crowded_model(20_000_000)
    entries = catalogue(model, 1e3)
    assert {entry.server for entry in entries} == set(built_in_servers())
    assert all(entry.nodes == 1 for entry in entries)
    kept = [entry for entry in entries if entry.on_frontier]
    for entry in entries:
        beaten = any(
            other.cost_usd <= entry.cost_usd and other.power_w <= entry.power_w
            for other in entries
            if other is not entry
        )
        assert entry.on_frontier == (not beaten)
    assert kept[0].energy_j_per_sample == pytest.approx(kept[0].power_w / 1e3)


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
        *("nodes", "binding", "step_binding", "samples_per_s", "cost_usd", "power_w", "bound_gap"),
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


def test_a_plan_promises_no_hits_of_rows_that_come_once(new_rows):
    """Faster memories have at most the part of the lookups that they hold of the rows."""
    found = plan(new_rows, server=SERVER, nodes=1, time_limit_s=5)
    assert found.bound_us <= found.step_us
    held, asked = 0.0, 0.0
    for table in new_rows.tables:
        fast = sum(
            shard.fraction * (1.0 if each.tier != found.tiers[2].name else each.cached_fraction)
            for each in found.tables
            if each.name == table.name
            for shard in each.shards
        )
        held, asked = held + fast * table.pooling, asked + table.pooling
    missed = (1 - found.tiers[0].hit_ratio) * (1 - found.tiers[1].hit_ratio)
    assert missed >= 1 - held / asked - 0.02
    assert [note.code for note in found.notes][-1] == "pinned-held-out"
    assert "t0, t1, t2, t3: rows that stay" in found.notes[-1].text


def test_what_does_not_fit_is_refused_with_the_bytes_that_are_short():
    crowded = crowded_model()
    larger = [msgspec.structs.replace(table, rows=table.rows * 100) for table in crowded.tables]
    model = msgspec.structs.replace(crowded, tables=larger)
    with pytest.raises(ConfigError, match=r"1 x ZionEX.*do not fit; got .* bytes more"):
        plan(model, server=SERVER, nodes=1)
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
    assert f"what binds: {found.step_binding}" in answer
    assert "One server less" not in answer
    assert f"{found.power_w:,.0f} W at this rate" in answer
    assert f"{found.samples_per_s:,.0f} samples/s" in answer
    assert max(len(line) for line in answer.splitlines()) <= 80


def test_a_printed_plan_counts_tables_and_shows_small_copies_and_what_one_less_fails_for(found):
    fast, slow = found.tiers[0].name, found.tiers[1].name
    shards = (Shard(0, "rows", 0.5),)
    tables = [
        TablePlan("a", slow, 0.00015, "pinned", shards, {fast: 0.00015}),
        TablePlan("a", slow, 0.8, "pinned", shards, {fast: 0.8}),
        TablePlan("a", fast, 0.0, None, shards, {}),
        *(TablePlan(f"b{index}", fast, 0.0, None, shards, {}) for index in range(17)),
    ]
    changed = replace(found, tables=tuple(tables), binding="capacity", nodes=2)
    text = io.StringIO()
    print_plan(changed, Console(file=text, width=80))
    words = " ".join(text.getvalue().split())
    assert f"Tables: 18, with rows of 18 on {fast}, of 1 on {slow}" in words
    assert "0.015 %" in words
    assert "4 more: --json" in words
    assert "One server less fails for: capacity" in words
