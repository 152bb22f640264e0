"""Work by energy, by the rules of each kind of benchmark."""

import random

import pytest
from hypothesis import given, strategies as st

from jaxperf.energy.published import (
    benchmark_of,
    joules_per_unit,
    normalise,
    read_facts,
    trends,
)
from jaxperf.energy.published._benchmarks import round_order
from jaxperf.report import trends_to_json

HEAD = (
    "round,scale,public_id,org,system,accelerator,total_accelerators,model,scenario,metric,unit,"
    "value"
)


def table(tmp_path, *rows, name="facts.csv"):
    """Facts of rows `round scale id model scenario metric unit value`."""
    lines = [HEAD]
    for row in rows:
        round_name, scale, public_id, model, scenario, metric, unit, value = row.split()
        scenario = scenario.replace("-", "")
        model = model.replace("_", " ")
        system = f"S-{public_id}"
        lines.append(
            f"{round_name},{scale},{public_id},A,{system},G,8,{model},{scenario},{metric},{unit},"
            f"{value}"
        )
    path = tmp_path / name
    path.write_text("\n".join(lines) + "\n")
    return read_facts(path)


def only(facts, **options):
    (result,) = normalise(facts, **options).results
    return result


def codes(noted):
    return [note.code for note in noted.notes]


def test_offline_is_throughput_by_power(tmp_path):
    result = only(
        table(
            tmp_path,
            "v3.0 datacenter a ResNet Offline throughput samples/s 5000",
            "v3.0 datacenter a ResNet Offline power kW 2",
        )
    )
    assert (result.value, result.unit, result.power_w) == (2.5, "samples/J", 2000.0)
    assert joules_per_unit(result) == 0.4
    assert result.boundary == "AC"


def test_a_query_of_the_server_is_one_sample(tmp_path):
    result = only(
        table(
            tmp_path,
            "v3.0 datacenter a ResNet Server power W 100",
            "v3.0 datacenter a ResNet Server throughput queries/s 50",
        )
    )
    assert (result.value, result.unit) == (0.5, "samples/J")


@pytest.mark.parametrize("scenario, samples", [("SingleStream", 1), ("MultiStream", 8)])
@pytest.mark.parametrize("unit, joules", [("mJ", 1e-3), ("J", 1.0), ("uJ", 1e-6)])
def test_a_stream_is_samples_of_a_query_by_its_energy(tmp_path, scenario, samples, unit, joules):
    result = only(
        table(tmp_path, f"v3.0 edge a ResNet {scenario} energy_per_stream {unit} 40"),
    )
    assert result.value == pytest.approx(samples / (40 * joules), rel=1e-15)
    assert result.power_w != result.power_w


def test_tiny_is_inferences_by_joule_and_its_power_energy_by_latency(tmp_path):
    result = only(
        table(
            tmp_path,
            "v1.0 tiny a DSCNN - latency ms 20",
            "v1.0 tiny a DSCNN - energy_per_inference uJ 500",
        )
    )
    assert (result.value, result.unit) == (pytest.approx(2000.0), "inferences/J")
    assert result.power_w == pytest.approx(0.025)


def test_training_is_energy_and_its_power_energy_by_time(tmp_path):
    result = only(
        table(
            tmp_path,
            "v4.0 training DC-Power bert - energy_to_train kJ 1200",
            "v4.0 training DC-Power bert - time_to_train min 10",
        )
    )
    assert (result.value, result.unit, result.boundary) == (1.2e6, "J", "DC")
    assert result.power_w == pytest.approx(2000.0)
    assert str(result.benchmark) == "bert"
    assert not result.higher_is_better


def test_tokens_become_samples_only_where_their_number_is_known(tmp_path):
    facts = table(
        tmp_path,
        "v4.1 datacenter a gptj-99 Offline throughput tokens/s 6900",
        "v4.1 datacenter a gptj-99 Offline power W 100",
        "v4.1 datacenter a mixtral-8x7b Offline throughput tokens/s 6900",
        "v4.1 datacenter a mixtral-8x7b Offline power W 100",
    )
    found = normalise(facts)
    by_name = {str(result.benchmark): result for result in found.results}
    assert (by_name["gptj-99"].value, by_name["gptj-99"].unit) == (1.0, "samples/J")
    assert (by_name["mixtral-8x7b"].value, by_name["mixtral-8x7b"].unit) == (69.0, "tokens/J")
    assert codes(found) == ["tokens-per-sample-assumed"]
    assert {result.unit for result in normalise(facts, tokens_per_sample={}).results} == {
        "tokens/J"
    }


def test_units_that_cannot_be_made_equal_stand_as_series_apart(tmp_path):
    found = trends(
        table(
            tmp_path,
            "v4.0 datacenter a dlrm-v2-99 Offline throughput samples/s 100",
            "v4.0 datacenter a dlrm-v2-99 Offline power W 10",
            "v4.1 datacenter b dlrm-v2-99 Offline throughput tokens/s 900",
            "v4.1 datacenter b dlrm-v2-99 Offline power W 10",
        )
    )
    assert [(s.unit, s.points[-1].improvement) for s in found.series] == [
        ("samples/J", 1.0),
        ("tokens/J", 1.0),
    ]
    assert codes(found) == ["units-not-mixed"]


def test_a_series_begins_anew_where_its_data_set_changed(tmp_path):
    found = trends(
        table(
            tmp_path,
            "v1.1 edge a 3D-UNet-99.0 SingleStream energy_per_stream J 10",
            "v2.0 edge b 3D-UNet-99.0 SingleStream energy_per_stream J 100",
            "v2.1 edge b 3D-UNet-99.0 SingleStream energy_per_stream J 50",
        )
    )
    assert [(s.since, [p.improvement for p in s.points]) for s in found.series] == [
        ("", [1.0]),
        ("v2.0", [1.0, 2.0]),
    ]
    assert "rules-changed" in codes(found)


def test_less_energy_to_train_is_an_improvement(tmp_path):
    found = trends(
        table(
            tmp_path,
            "v4.0 training AC-Power bert - energy_to_train kJ 900",
            "v5.0 training AC-Power-2 bert - energy_to_train kJ 300",
            "v5.0 training DC-Power bert - energy_to_train kJ 100",
        )
    )
    assert [(s.boundary, s.points[-1].improvement) for s in found.series] == [
        ("AC", 3.0),
        ("DC", 1.0),
    ]


def test_a_round_that_is_worse_keeps_the_best(tmp_path):
    found = trends(
        table(
            tmp_path,
            "v9.0 edge a RNN-T SingleStream energy_per_stream J 1",
            "v10.0 edge b rnnt SingleStream energy_per_stream J 4",
        )
    )
    first, last = found.series[0].points
    assert (first.round, last.round) == ("v9.0", "v10.0")
    assert (last.best, last.improvement, last.of_round, last.public_id) == (1.0, 1.0, 0.25, "a")


TWO_OF_ONE_ID = (
    "v4.1 datacenter a ResNet Offline power W 100",
    "v4.1 datacenter a ResNet Offline throughput samples/s 1000",
    "v4.1 datacenter a ResNet Offline power W 10",
    "v4.1 datacenter a ResNet Offline throughput samples/s 500",
)


def test_of_several_results_of_one_id_each_is_taken_with_its_own_power(tmp_path):
    found = normalise(table(tmp_path, *TWO_OF_ONE_ID))
    assert sorted(result.value for result in found.results) == [10.0, 50.0]
    assert codes(found) == ["several-results-of-one-id"]


def test_a_join_of_the_columns_makes_results_that_nobody_measured(tmp_path):
    found = normalise(table(tmp_path, *TWO_OF_ONE_ID), pairing="any")
    assert sorted(result.value for result in found.results) == [5.0, 10.0, 50.0, 100.0]


def test_values_that_lost_their_neighbours_are_set_aside(tmp_path):
    one, two, three, four = TWO_OF_ONE_ID
    found = normalise(table(tmp_path, one, three, two, four))
    assert found.results == () or {r.value for r in found.results} <= {10.0, 50.0}
    assert "unpaired-result" in codes(found)


def test_a_throughput_without_power_is_set_aside_and_noted(tmp_path):
    found = normalise(table(tmp_path, TWO_OF_ONE_ID[1]))
    assert found.results == ()
    assert codes(found) == ["unpaired-result"]


def test_a_row_without_its_target_met_at_least_the_lower(tmp_path):
    found = normalise(
        table(
            tmp_path,
            "v3.0 edge a BERT SingleStream energy_per_stream J 1",
            "v3.0 training AC-Power BERT - energy_to_train kJ 1",
        )
    )
    assert {str(result.benchmark) for result in found.results} == {"bert-99", "bert"}
    assert codes(found) == ["accuracy-target-assumed"]


def test_values_in_the_wrong_place_are_noted(tmp_path):
    found = normalise(
        table(
            tmp_path,
            "v4.1 datacenter a ResNet Offline throughput samples/s 100",
            "v4.1 datacenter a ResNet Offline power W 100",
            "v4.1 datacenter b RGAT Offline throughput samples/s 100",
            "v4.1 datacenter b RGAT Offline power W 100",
        )
    )
    assert codes(found) == [
        "throughput-equals-power",
        "throughput-equals-power",
        "values-of-another-submission",
    ]
    assert found.notes[-1].where and found.notes[-1].where.endswith("line 4")


@pytest.mark.parametrize(
    "written, name",
    [
        ("BERT-99.0", "bert-99"),
        ("bert-99.9", "bert-99.9"),
        ("Llama2-70b-99", "llama2-70b-99"),
        ("RNN-T", "rnnt"),
        ("resnet50", "resnet"),
        ("ResNet-V1", "resnet-v1"),
        ("3D-UNet", "3d-unet"),
        ("mixtral-8x7b", "mixtral-8x7b"),
    ],
)
def test_a_benchmark_is_known_by_its_spellings(written, name):
    assert str(benchmark_of(written)) == name
    assert benchmark_of(name) == benchmark_of(written)


def test_rounds_are_numbers():
    assert sorted(["v10.0", "v4.1", "v0.7", "v4.0"], key=round_order) == [
        "v0.7",
        "v4.0",
        "v4.1",
        "v10.0",
    ]


@given(seed=st.integers(0, 2**32 - 1))
def test_the_order_of_rows_does_not_matter(tmp_path_factory, seed):
    rng = random.Random(seed)
    rows = []
    for round_name in ("v2.0", "v2.1", "v4.1"):
        for public_id in ("a", "b", "c"):
            head = f"{round_name} datacenter {public_id} BERT-99.0"
            rows.append(f"{head} Offline throughput samples/s {rng.randint(1, 9)}")
            rows.append(f"{head} Offline power W {rng.randint(1, 9)}")
            rows.append(
                f"{round_name} edge {public_id} 3D-UNet-99.9 SingleStream energy_per_stream mJ "
                f"{rng.randint(1, 9)}"
            )
    found = []
    for name in ("one.csv", "other.csv"):
        told = trends_to_json(trends(table(tmp_path_factory.getbasetemp(), *rows, name=name)))
        series = told["series"]
        for one in series:
            for point in one["points"]:
                # Between equals the first line is named, and lines move.
                del point["line"], point["public_id"], point["system"]
        found.append(series)
        rng.shuffle(rows)
    assert found[0] == found[1]
