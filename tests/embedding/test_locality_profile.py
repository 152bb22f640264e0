import json
import subprocess
import sys
from xml.etree import ElementTree

import numpy as np
import pytest
from rich.console import Console

from jaxperf.embedding._profile import profile
from jaxperf.errors import ConfigError, LogError, OutputError
from jaxperf.report._embedding_profile import print_profile, profile_to_json, write_profile
from tests.embedding.locality_cases import LOW, MEDIUM


@pytest.fixture
def log(tmp_path):
    path = tmp_path / "clicks.txt"
    ids = np.random.default_rng(0).zipf(1.3, 3_000) % 700
    path.write_text("\n".join(map(str, ids)))
    return path


@pytest.fixture
def batch(tmp_path):
    path = tmp_path / "batch.npz"
    ids = np.random.default_rng(1).integers(0, 50, 400)
    np.savez(path, indices=ids, lengths=np.full((2, 100), 2))
    return path


def test_hits_of_asked_sizes_stand_in_the_curve(shared):
    path = shared / "dlrm" / "traces" / f"{MEDIUM}.txt.gz"
    found = profile_to_json(profile(path, sizes=[1_025]))
    assert found["accesses"] == 429_951
    assert found["distinct"] == 102_524
    assert found["curve"] == [
        {"rows": 1_025, "hits": 241_292, "hit_ratio": 241_292 / 429_951, "interval": None}
    ]
    assert found["distinct_per_batch"][0] == {"lookups": 1, "rows": 1.0}


def test_ways_and_policies_are_passed_on(shared):
    path = shared / "dlrm" / "traces" / f"{MEDIUM}.txt.gz"
    (found,) = profile(path, sizes=[1_025], ways=32).logs
    assert found.curve[0].hits == 239_027
    assert [note.code for note in found.notes] == ["sets-rounded"]
    (found,) = profile(path, sizes=[1_025], policy="fifo").logs
    assert found.curve[0].hits == 227_175


def test_a_sample_has_intervals(shared):
    path = shared / "dlrm" / "traces" / f"{LOW}.txt.gz"
    found = profile_to_json(profile(path, sizes=[23_107], sample=0.01))
    (point,) = found["curve"]
    low, high = point["interval"]
    assert low <= 73_444 / 379_910 <= high
    assert point["hits"] == round(point["hit_ratio"] * 379_910)


def test_a_log_too_small_to_sample_is_counted_and_noted(log):
    (found,) = profile(log, sample=0.01).logs
    assert found.sample is None
    assert "sample-too-small" in [note.code for note in found.notes]
    assert found.curve == profile(log).logs[0].curve


def test_one_log_is_read_without_the_list_and_several_with_it(log, batch):
    one = profile_to_json(profile(log))
    assert one["logs"] == [{key: value for key, value in one.items() if key != "logs"}]
    several = profile_to_json(profile([log, batch]))
    assert [entry["table"] for entry in several["logs"]] == ["clicks", "batch_0", "batch_1"]
    assert set(several) == {"logs", "notes"}
    json.dumps([one, several], allow_nan=False)


def test_demand_follows_from_pooling_and_the_bytes_of_a_row(batch):
    first, second = profile_to_json(profile(batch, row_bytes=256))["logs"]
    assert (first["samples"], first["pooling"]) == (100, 2.0)
    assert second["read_bytes_per_sample"] == 512.0


def test_bytes_of_a_sample_that_no_bag_tells_are_noted_and_all_notes_stand_together(log, batch):
    codes = [note.code for note in profile(log, row_bytes=256).notes]
    assert codes == ["bags-missing"]
    assert profile(batch, row_bytes=256).notes == profile(log).notes == ()
    several = profile([log, batch, log], row_bytes=256)
    assert profile_to_json(several)["notes"] == [profile_to_json(several)["logs"][0]["notes"][0]]


def test_what_a_log_does_not_say_is_null(log):
    found = profile_to_json(profile(log))
    assert [found[key] for key in ("rows", "samples", "pooling", "read_bytes_per_sample")] == [
        None
    ] * 4


def test_a_batch_asked_for_is_the_one_given(log):
    ((found,),) = [one.distinct_per_batch for one in profile(log, batch=100).logs]
    assert found.lookups == 100
    assert 1 < found.rows < 100


def test_logs_of_one_access_and_of_one_row_have_a_profile(tmp_path):
    for text, accesses, hits in (("5", 1, 0), ("5\n" * 50, 50, 49)):
        path = tmp_path / "log.txt"
        path.write_text(text)
        found = profile_to_json(profile(path, sizes=[1, 10**12]))
        assert (found["accesses"], found["distinct"]) == (accesses, 1)
        assert [point["hits"] for point in found["curve"]] == [hits, hits]
        assert found["distinct_per_batch"][-1]["rows"] == 1.0
        json.dumps(found, allow_nan=False)


def test_sizes_that_nobody_asked_for_are_few_where_each_costs_a_pass(log):
    many, few = profile(log).logs[0], profile(log, ways=2).logs[0]
    assert len(few.curve) <= 8 < len(many.curve)
    assert many.curve[-1].hits == 3_000 - many.distinct


def test_the_most_lookups_of_a_sample_stand_beside_the_mean(tmp_path):
    path = tmp_path / "bags.txt"
    path.write_text("1 2 3\n\n4\n5 6\n")
    found = profile_to_json(profile(path))
    assert (found["samples"], found["pooling"], found["most_pooling"]) == (4, 1.5, 3)


def test_bytes_of_a_row_are_known_of_a_popularity_too(shared):
    path = shared / "dlrm" / "stats" / "cachelib" / "cdn" / "pop.json"
    assert profile(path, sizes=[10], row_bytes=512).logs[0].row_bytes == 512


def test_popularity_alone_is_profiled_and_doubted(shared):
    path = shared / "dlrm" / "stats" / "meta_dlrm_datasets_2021_locality_stats.txt"
    logs = profile(path, sizes=[1_000_000], batch=1_000).logs
    assert (logs[1].accesses, logs[1].distinct) == (468_084_223, 61_644_628)
    assert 0 < logs[1].curve[0].hit_ratio < 1
    assert [note.code for note in logs[1].notes] == ["popularity-only"]
    (found,) = profile(shared / "dlrm" / "stats" / "cachelib" / "cdn" / "pop.json").logs
    assert found.accesses is None
    assert found.curve[-1].hit_ratio == 1.0
    assert profile_to_json(profile(path))["logs"][0]["reuse"] is None


@pytest.mark.parametrize(
    "options, message",
    [
        ({"policy": "random"}, "unknown policy"),
        ({"sizes": []}, "not sizes of caches"),
        ({"sizes": [0]}, "expected rows, 1 or more"),
        ({"sizes": [-5]}, "not sizes of caches"),
        ({"sizes": [10**25]}, "not sizes of caches"),
        ({"sample": 2.0}, "not a rate of sampling"),
        ({"sample": 0.5, "policy": "fifo"}, "a sample is for"),
        ({"ways": 0}, "not a set"),
        ({"ways": 32, "policy": "lfu"}, "not a set"),
        ({"ways": 32, "sizes": [8]}, "not one whole set"),
        ({"batch": 0}, "not a batch"),
        ({"batch": 10_000}, "clicks.txt: clicks: batch larger than the log"),
        ({"row_bytes": -1.0}, "not the size of a row"),
        ({"format": "csv"}, "unknown format"),
    ],
)
def test_options_that_mean_nothing_are_refused(log, options, message):
    with pytest.raises(ConfigError, match=message):
        profile(log, **options)


def test_no_logs_and_broken_logs_are_refused(tmp_path):
    with pytest.raises(ConfigError, match="no access logs"):
        profile([])
    broken = tmp_path / "broken.json"
    broken.write_text("{}")
    with pytest.raises(LogError, match="no popularity"):
        profile(broken)


def test_a_profile_fits_the_terminal(log, batch):
    console = Console(width=80, record=True, file=open("/dev/null", "w"))
    with console.file:
        print_profile(profile([log, batch], row_bytes=64), console)
        print_profile(profile(log, sample=0.2), console)
    text = console.export_text()
    assert "3,000 lookups of" in text
    assert "from 20 % of the rows" in text
    assert max(map(len, text.splitlines())) <= 80


def test_a_picture_is_whole_and_asks_nothing_of_a_network(log, batch, tmp_path):
    path = tmp_path / "profile.svg"
    write_profile(profile([log, batch], row_bytes=64), path)
    root = ElementTree.fromstring(path.read_text())
    assert "clicks" in "".join(root.itertext())
    assert "http" not in path.read_text().replace("http://www.w3.org/2000/svg", "")
    with pytest.raises(OutputError, match="exists already"):
        write_profile(profile(log), path)
    write_profile(profile(log), path, overwrite=True)


def test_locality_is_imported_without_jax():
    program = "import sys, jaxperf.embedding.locality; sys.exit('jax' in sys.modules)"
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)
