"""Every number of the paper's figures, from the table of published values."""

import csv
import json
from dataclasses import fields, replace

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from jaxperf.energy.published import (
    benchmark_of,
    comparable,
    efficiency_ratio,
    energy_to_train,
    joules_per_sample,
    normalise,
    power_range_w,
    read_facts,
    result_of,
    trends,
)
from jaxperf.errors import ConfigError
from jaxperf.report import trends_to_json
from jaxperf.report._energy_trends import trends_svg

# The figures' own names of the Tiny models.
TINY = {
    "MobileNet": "MobileNetV1 (0.25x)",
    "ResNet": "ResNet-V1",
    "DSCNN": "DSCNN",
    "AutoEncoder": "FC AutoEncoder",
}
FIGURE_5 = [
    ("fig5a_datacenter_offline_best_samples_per_joule", "datacenter", "offline", (6, 4)),
    ("fig5b_edge_offline", "edge", "offline", (6, 4)),
    ("fig5c_tiny_best_inferences_per_joule", "tiny", "", (1, 3)),
]


@pytest.fixture(scope="module")
def tables(shared):
    return shared / "power" / "tables"


@pytest.fixture(scope="module")
def facts(tables):
    return read_facts(tables / "mlperf_published_power_facts.csv")


@pytest.fixture(scope="module")
def expected(tables):
    return json.loads((tables / "paper_figures_expected.json").read_text())


@pytest.fixture(scope="module")
def by_pairing(facts):
    return {pairing: trends(facts, pairing=pairing) for pairing in ("lines", "any")}


def points_of(found, scale, scenario, model):
    benchmark = benchmark_of(TINY[model] if scale == "tiny" else model)
    (series,) = [
        series
        for series in found.series
        if (series.scale, series.scenario, series.benchmark) == (scale, scenario, benchmark)
        and series.unit != "tokens/J"
    ]
    return {point.round: point for point in series.points}


@pytest.mark.parametrize("figure, scale, scenario, digits", FIGURE_5)
def test_figure_5_is_the_best_up_to_each_round(
    by_pairing, expected, figure, scale, scenario, digits
):
    for model, rounds in expected[figure].items():
        # One number of the table follows only from a join of its columns; see the next test.
        joined = (figure, model) == (FIGURE_5[0][0], "ResNet")
        points = points_of(by_pairing["any" if joined else "lines"], scale, scenario, model)
        assert set(rounds) <= set(points)
        for name, (best, improvement) in rounds.items():
            assert round(points[name].best, digits[0]) == best, (model, name)
            assert round(points[name].improvement, digits[1]) == improvement, (model, name)


def test_the_best_resnet_of_v41_is_what_was_measured_not_a_join_of_two_systems(
    by_pairing, expected, tables
):
    """The figure divides the throughput of one system by the power of another with the same id."""
    with (tables / "mlperf_inference_power_closed.csv").open() as file:
        logs = {
            row["submitter"]: row
            for row in csv.DictReader(file)
            if (row["round"], row["benchmark"], row["scenario"]) == ("v4.1", "resnet50", "Offline")
            and row["system"] in ("H200-SXM-141GBx8_TRT_MaxQ", "r760_u6_slim")
        }
    nvidia, untether = (
        (float(logs[name]["perf_value"]), float(logs[name]["avg_W"]))
        for name in ("NVIDIA", "UntetherAI")
    )
    figure = expected[FIGURE_5[0][0]]["ResNet"]["v4.1"][0]
    assert figure == pytest.approx(nvidia[0] / untether[1], rel=1e-8)
    measured = max(nvidia[0] / nvidia[1], untether[0] / untether[1])
    found = points_of(by_pairing["lines"], "datacenter", "offline", "ResNet")["v4.1"]
    assert found.best == pytest.approx(measured, rel=1e-8)
    assert found.improvement == pytest.approx(1.8388, abs=5e-5)
    codes = {note.code for note in by_pairing["lines"].notes}
    assert {"several-results-of-one-id", "values-of-another-submission"} <= codes


def test_only_that_number_depends_on_the_pairing(by_pairing):
    differ = {
        (one.scale, one.scenario, str(one.benchmark))
        for one, other in zip(by_pairing["lines"].series, by_pairing["any"].series, strict=True)
        if [p.best for p in one.points] != [p.best for p in other.points]
        and one.scenario == "offline"
        and str(one.benchmark) in ("resnet", "retinanet", "bert-99", "rnnt", "gptj-99")
    }
    assert differ == {("datacenter", "offline", "resnet")}


def test_gptj_over_a_hundred_times_is_a_comparison_across_units(facts, expected, by_pairing):
    published = [
        result
        for result in normalise(facts, tokens_per_sample={}).results
        if (result.scale, result.scenario) == ("datacenter", "offline")
        and result.benchmark == benchmark_of("GPTJ-99.0")
    ]
    first, last = (
        max((each for each in published if each.round == name), key=lambda each: each.value)
        for name in ("v3.1", "v4.1")
    )
    mixed = last.value / first.value
    assert round(mixed, 2) == expected["fig5a_gptj_unit_mixing_ratio_v41_over_v31"]
    assert comparable(first, last) == "the units differ: samples/J against tokens/J"
    honest = points_of(by_pairing["lines"], "datacenter", "offline", "GPTJ-99.0")["v4.1"]
    assert honest.improvement < 2.0


@pytest.mark.parametrize(
    "scale, scenario",
    [("tiny", None), ("edge", None), ("datacenter", "Offline"), ("training", None)],
)
def test_figure_2_is_the_range_of_power(facts, expected, scale, scenario):
    found = power_range_w(facts, scale, scenario=scenario, through="v4.1")
    assert [round(found.least_w, 4), round(found.most_w, 4)] == expected["fig2_power_range_W"][
        scale
    ]


def test_the_highest_power_of_a_datacenter_is_in_the_server_scenario(facts, expected):
    found = power_range_w(facts, "datacenter", through="v4.1")
    assert found.most_w == expected["fig2_power_range_W"]["datacenter_max_any_scenario"]
    assert found.most_id == "4.1-0049"


def test_figure_6_is_energy_to_train_by_accelerators(facts, expected):
    found = energy_to_train(facts, "llama2_70b_lora", boundary="DC")
    told = {
        f"{one.accelerators:g}": {
            "kJ": round(one.energy_j / 1e3, 2),
            "min": round(one.duration_s / 60, 3),
            "avg_W": round(one.power_w, 1),
        }
        for one in found
    }
    assert told == expected["fig6_llama2_lora_dc"]
    assert [one.accelerators for one in found] == [8.0, 64.0, 512.0]


def test_figure_7_is_joules_of_one_sample(facts, expected):
    figure = expected["fig7_joules_per_sample_4.0-0063"]
    offline = joules_per_sample(facts, public_id="4.0-0063")
    server = joules_per_sample(facts, public_id="4.0-0063", scenario="Server")
    for name, joules in figure.items():
        model = name.split(" ")[0]
        found = (server if "server" in name else offline)[model]
        assert found == pytest.approx(joules, abs=5.1e-7 if "server" not in name else 5.1e-5), name


def test_figures_8_and_9_are_the_price_of_accuracy(facts, expected):
    found = efficiency_ratio(
        facts, "BERT-99.9", "BERT-99.0", scale="datacenter", scenario="Offline"
    )
    told = {one.round: {"n": len(one.by_id), "median": round(one.median, 4)} for one in found}
    assert told == expected["fig8_9_bert999_over_bert99_efficiency"]
    ids = {public_id: ratio for one in found for public_id, ratio in one.by_id.items()}
    for public_id, ratio in expected["fig9_by_id"].items():
        assert round(ids[public_id], 4) == ratio


def test_figure_11_is_what_software_alone_gave(facts, expected):
    results = {
        public_id: result_of(facts, public_id=public_id, model="ResNet", scenario="Offline")
        for public_id in expected["fig11a_r282_resnet_offline"]
    }
    for public_id, told in expected["fig11a_r282_resnet_offline"].items():
        assert results[public_id].rate_per_s == told["throughput"]
        assert results[public_id].power_w == told["power"]
    ratio = results["3.1-0127"].value / results["1.1-124"].value
    # Reference 1.5; the paper says 1.28.
    assert ratio == pytest.approx(1.222, abs=5e-4)


def test_what_is_not_in_the_table_is_refused(facts):
    for call in (
        lambda: power_range_w(facts, "tiny", scenario="Offline"),
        lambda: joules_per_sample(facts, public_id="0.0-0"),
        lambda: energy_to_train(facts, "bert", boundary="moon"),
        lambda: result_of(facts, public_id="4.1-0049", model="resnet", scenario="Offline"),
        lambda: joules_per_sample(facts, public_id="4.1-0049"),
        lambda: efficiency_ratio(facts, "BERT-99", "ResNet", scale="edge", scenario="Offline"),
        lambda: efficiency_ratio(facts, "BERT-99.9", "BERT-99", scale="tiny", scenario="Offline"),
    ):
        with pytest.raises(ConfigError, match="facts|targets|several"):
            call()


@given(seed=st.integers(0, 2**32 - 1))
@settings(max_examples=5)
def test_the_order_of_the_rows_of_the_table_does_not_matter(facts, by_pairing, seed):
    order = np.random.default_rng(seed).permutation(facts.rows)
    columns = {
        field.name: getattr(facts, field.name)[order]
        for field in fields(facts)
        if field.name not in ("source", "notes")
    }
    assert trends(replace(facts, **columns)) == by_pairing["lines"]


def test_trends_are_json(by_pairing):
    told = trends_to_json(by_pairing["lines"])
    again = json.loads(json.dumps(told, allow_nan=False))
    assert len(again["series"]) == len(by_pairing["lines"].series)
    assert {found["scale"] for found in again["power_ranges"]} == {
        "datacenter",
        "edge",
        "tiny",
        "training",
    }
    assert again["notes"][0]["code"]


def test_the_picture_has_a_line_for_each_series_of_two_rounds(by_pairing):
    found = by_pairing["lines"]
    svg = trends_svg(found)
    assert svg.count('<path class="line') == sum(len(s.points) > 1 for s in found.series)
    assert "http" not in svg.replace('xmlns="http://www.w3.org/2000/svg"', "")
