import csv
import math
from dataclasses import replace

import msgspec
import numpy as np
import pytest

from jaxperf.config import (
    EmbeddingTable,
    RecommendationModel,
    built_in_servers,
    load_server,
    load_tables,
)
from jaxperf.embedding.hierarchy import (
    HierarchyRules,
    least_nodes,
    machine_of,
    model_arrays,
    savings,
    unbeaten,
    waterfall_designs,
)
from jaxperf.errors import ConfigError

ZIONEX, NAND, PMEM = (load_server(name) for name in ("zionex", "zionex-nand", "zionex-pmem"))
MODEL = RecommendationModel(
    name="four terabytes",
    batch_size=65536,
    target_samples_per_s=100e3,
    dense_parameters=1e6,
    dense_flops_per_sample=6e6,
    tables=[
        *(
            EmbeddingTable(name=name, rows=10_000_000_000, dimension=100, element_bytes=2.0)
            for name in ("giant", "giant.1")
        ),
        *(
            EmbeddingTable(name=name, rows=500_000, dimension=100, pooling=50, zipf_exponent=1.0)
            for name in ("small", "small.1")
        ),
    ],
)
"""4,000.4 GB of rows; the giant tables are uniform, so that caches are of no use."""


@pytest.fixture(scope="module")
def plans():
    return {server.name: least_nodes(MODEL, server) for server in (ZIONEX, NAND, PMEM)}


@pytest.mark.slow
def test_capacity_sets_the_number_by_hand(plans):
    plan = plans[ZIONEX.name]
    # A server has 0.95 x (320 + 1,536) GB, of which a GPU's copy of the dense part takes 16 MB.
    assert plan.nodes == math.ceil(4000.4e9 / (0.95 * 1856e9)) == 3
    assert (plan.binding, plan.binding_tier) == ("capacity", None)
    assert plan.outcome.samples_per_s > 100e3
    assert np.all(plan.outcome.free_bytes >= -1)


@pytest.mark.slow
def test_a_plan_holds_every_row_once(plans):
    for plan in plans.values():
        np.testing.assert_allclose(np.sum(plan.design.home_share, axis=1), 1.0, rtol=1e-9)
        assert np.all(plan.outcome.free_bytes > -1e-6 * 4e12)
        assert plan.outcome.rated_writes.max() <= 1 + 1e-9


@pytest.mark.slow
def test_with_persistent_memory_one_server_is_enough(plans):
    plan = plans[PMEM.name]
    assert plan.nodes == 1
    saved = savings(plan, plans[ZIONEX.name])
    assert saved.nodes == 3
    assert saved.cost == pytest.approx(3 * (150e3 + 6144) / (150e3 + 6144 + 16 * 1024))


@pytest.mark.slow
def test_what_wears_drives_out_needs_more_of_them(plans):
    """A step writes back what is on drives of the 131,072 rows of the giant tables, tenfold."""
    plan = plans[NAND.name]
    slow = least_nodes(msgspec.structs.replace(MODEL, target_samples_per_s=1e3), NAND)
    assert slow.nodes == 1
    fast = least_nodes(msgspec.structs.replace(MODEL, target_samples_per_s=1e6), NAND)
    assert plan.nodes is not None and fast.nodes is not None
    assert fast.nodes >= plan.nodes
    # 2 x 200 bytes, tenfold, at 1e6 a second; a server's drives may take 1.3 x 61.44 TB a day.
    rate = 1.3 * 61.44e12 / 86400 / (2 * 200 * 10)
    on_drives = 1 - fast.nodes * 0.95 * 1.856e12 / 4e12
    assert fast.nodes >= 1e6 * on_drives / rate - 1


@pytest.mark.slow
def test_at_the_rate_asked_for_a_plan_draws_less_than_at_its_highest(plans):
    plan = plans[ZIONEX.name]
    idle_w = 3 * (1500 + 8 * 55 + 24 * 1.5)
    busy = 100e3 / plan.outcome.samples_per_s
    assert plan.target_power_w == pytest.approx(idle_w + busy * (plan.outcome.power_w - idle_w))


@pytest.mark.slow
def test_a_rate_that_no_number_reaches_has_no_number_and_says_why():
    fast = msgspec.structs.replace(MODEL, target_samples_per_s=1e12)
    plan = least_nodes(fast, ZIONEX, most_nodes=4)
    assert plan.nodes is None
    assert plan.binding == "network"
    assert math.isnan(savings(plan, plan).nodes)


def test_a_model_without_a_rate_is_refused():
    with pytest.raises(ConfigError, match="no rate to reach"):
        least_nodes(msgspec.structs.replace(MODEL, target_samples_per_s=None), ZIONEX)


@pytest.mark.slow
def test_a_placement_of_ones_own_is_taken():
    def all_in_host_memory(model, machine, nodes, batch_size, rules):
        designs = waterfall_designs(model, machine, nodes, batch_size, rules)
        home = np.array([[[0.0, 1.0]] * 4] * 6)
        return replace(designs, home_share=home)

    plan = least_nodes(MODEL, ZIONEX, placement=all_in_host_memory)
    assert plan.nodes == math.ceil(4000.4e9 / (0.95 * 1536e9))
    assert np.all(np.asarray(plan.design.home_share)[:, 0] == 0)


@pytest.mark.slow
def test_the_least_number_is_found_although_more_may_be_too_slow():
    """Even numbers are made to put all rows in a tier without room: 3 do, 4 and 2 do not."""

    def odd_alone(model, machine, nodes, batch_size, rules):
        designs = waterfall_designs(model, machine, nodes, batch_size, rules)
        if nodes % 2:
            return designs
        return replace(designs, home_share=np.array([[[1.0, 0.0]] * 4] * 6))

    plan = least_nodes(MODEL, ZIONEX, placement=odd_alone, most_nodes=16)
    assert plan.nodes == 3
    assert plan.binding == "capacity"


@pytest.mark.slow
def test_only_plans_that_no_other_beats_stay(plans):
    kept = unbeaten(plans.values())
    costs = [plan.outcome.cost_usd for plan in kept]
    powers = [plan.target_power_w for plan in kept]
    assert costs == sorted(costs) and powers == sorted(powers, reverse=True)
    assert plans[ZIONEX.name] not in kept


def test_the_waterfall_fills_the_first_tier_with_what_is_asked_for_most():
    machine, arrays = machine_of(ZIONEX), model_arrays(MODEL)
    designs = waterfall_designs(arrays, machine, 3, 65536, HierarchyRules())
    giant, _, *small = np.asarray(designs.home_share)[3]
    assert np.array(small).tolist() == [[1, 0], [1, 0]]
    # Half of what there is in HBM, less the small table's rows.
    there = 3 * (0.95 * 320e9 - 8 * 16 * 1e6)
    assert giant[0] == pytest.approx((there / 2 - 0.4e9) / 2e12)


def test_every_server_that_comes_along_can_be_read():
    assert {"zionex", "zionex-pmem", "zionex-nand", "h100"} <= built_in_servers().keys()
    for server in built_in_servers().values():
        tiers = machine_of(server).tiers
        assert np.all(np.diff(tiers.read_bytes_per_s / tiers.capacity_bytes) < 0)


def test_mlperfs_tables_are_those_of_its_reference(shared):
    """Check value 16: 204,184,588 rows, 104.5 GB, 214 lookups a sample."""
    with open(shared / "dlrm" / "tables" / "table_configs.csv", encoding="utf-8") as file:
        rows = [r for r in csv.DictReader(file) if r["model"] == "mlperf_dlrm_dcnv2_multihot"]
    tables = load_tables("dlrm-dcnv2").tables
    assert [t.rows for t in tables] == [int(row["num_embeddings"]) for row in rows]
    assert [t.pooling for t in tables] == [float(row["pooling_factor"]) for row in rows]
    assert sum(t.rows for t in tables) == 204_184_588
    assert sum(t.rows * 128 * 4 for t in tables) == pytest.approx(104.5e9, rel=1e-3)
    assert sum(t.pooling for t in tables) == 214


def test_the_capacity_bound_model_has_twelve_trillion_parameters():
    model = load_tables("capacity-12t")
    assert sum(t.rows * t.dimension for t in model.tables) == 12_000_000_000_000
    assert len(model.tables) == 810
