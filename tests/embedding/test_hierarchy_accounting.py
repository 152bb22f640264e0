import json
from typing import Any, cast

import pytest

from jaxperf.config import EmbeddingTable
from jaxperf.embedding.hierarchy import miss_rate, tier_hits, weight_bytes
from jaxperf.errors import ConfigError

TABLE = EmbeddingTable(name="t", rows=1_000_000, dimension=128)


def case(shared, name):
    folder = shared / "cases" / name
    values = json.loads((folder / "expected.json").read_text())["values"]
    return folder, {value["name"]: (value["value"], value["tol_abs"]) for value in values}


def test_a_cache_does_not_shrink_what_the_host_holds(shared):
    folder, expected = case(shared, "19-embedding-cache-placement")
    config = json.loads((folder / "config.json").read_text())
    table = EmbeddingTable(
        name="t", rows=config["table"]["rows"], dimension=config["table"]["dim"], element_bytes=4
    )
    found = {}
    for plan in config["plans"]:
        name, placement, ranks = plan.pop("id"), plan.pop("placement"), plan.pop("ranks", 1)
        plan.pop("sharding", None)
        placed = weight_bytes(table, placement, ranks=ranks, **plan)
        per_rank = "_per_rank" if ranks > 1 else ""
        found[f"{name}.hbm{per_rank}"] = placed.device_bytes
        found[f"{name}.ddr{per_rank}"] = placed.host_bytes
    assert found.keys() == expected.keys()
    for name, (value, tolerance) in expected.items():
        assert found[name] == pytest.approx(value, abs=tolerance), name


def test_rates_are_weighted_by_what_was_asked_for(shared):
    folder, expected = case(shared, "20-cache-hit-rates")
    stats = json.loads((folder / "stats.json").read_text())
    tables = stats["tables"]
    found = {
        "miss_rate.weighted": miss_rate(
            [table["requests"] for table in tables], [table["misses"] for table in tables]
        )
    }
    for tier in stats["tiers"]:
        hits = tier_hits(tier["unique"], tier["l1_hits"], tier["dram_hits"])
        found[f"{tier['id']}.dram_hit_rate_of_arrivals"] = hits.second_hit_rate
        found[f"{tier['id']}.overall_hit_rate"] = hits.overall_hit_rate
        found[f"{tier['id']}.ssd_reads"] = hits.missed
    assert found.keys() == expected.keys()
    for name, (value, tolerance) in expected.items():
        assert found[name] == pytest.approx(value, abs=tolerance), name


def test_what_was_not_asked_for_has_no_rate():
    assert miss_rate([0], [0]) is None
    assert tier_hits(0, 0, 0).overall_hit_rate is None
    assert tier_hits(5, 5, 0).second_hit_rate is None


def test_a_cache_is_whole_sets_and_never_above_its_limit():
    set_bytes = 32 * 128 * 4
    assert weight_bytes(TABLE, "managed_caching", cache_load_factor=1e-9).device_bytes == set_bytes
    capped = weight_bytes(
        TABLE, "managed_caching", cache_load_factor=0.5, max_cache_bytes=2.5 * set_bytes
    )
    assert capped.device_bytes == 2 * set_bytes


@pytest.mark.parametrize(
    "wrong",
    [
        lambda: weight_bytes(TABLE, cast(Any, "somewhere")),
        lambda: weight_bytes(TABLE, "split", device_fraction=1.5),
        lambda: weight_bytes(TABLE, "device", ranks=0),
        lambda: miss_rate([1], [2]),
        lambda: miss_rate([1, 2], [1]),
        lambda: tier_hits(10, 8, 3),
    ],
)
def test_what_cannot_be_is_refused(wrong):
    with pytest.raises(ConfigError):
        wrong()
