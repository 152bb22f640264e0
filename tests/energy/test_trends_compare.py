"""What may be compared, and why other results may not."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, strategies as st

from jaxperf.energy._log_files import open_logs
from jaxperf.energy._score_types import Check, EnergyScore, MeasuredWindow, Metric
from jaxperf.energy.published import (
    EnergyResult,
    benchmark_of,
    comparable,
    compare_results,
    normalise,
    read_facts,
    result_of_score,
)
from jaxperf.energy.training._score import score_training
from jaxperf.errors import ConfigError

NAN = float("nan")
RESULT = EnergyResult(
    source="facts.csv, line 2",
    round="v4.0",
    public_id="4.0-1",
    org="A",
    system="S",
    accelerator="G",
    accelerators=8.0,
    scale="datacenter",
    benchmark=benchmark_of("bert-99"),
    scenario="offline",
    boundary="AC",
    window="official",
    unit="samples/J",
    value=10.0,
    rate_per_s=1000.0,
    duration_s=NAN,
    power_w=100.0,
    line=2,
)
TRAINING = replace(
    RESULT, scale="training", benchmark=benchmark_of("gpt3"), scenario="", unit="J", boundary="DC"
)
CHANGES = [
    ({"scale": "edge"}, "divisions differ: datacenter against edge"),
    ({"benchmark": benchmark_of("bert-99.9")}, "accuracy targets differ: 99 against 99.9"),
    ({"benchmark": benchmark_of("gptj-99")}, "benchmarks differ: bert against gptj"),
    ({"scenario": "server"}, "scenarios differ: offline against server"),
    ({"unit": "tokens/J"}, "units differ: samples/J against tokens/J"),
    ({"boundary": "DC"}, "measured at different places: AC against DC"),
    ({"window": "run"}, "official window, the other of the run window"),
    ({"value": NAN}, "has no work by energy"),
    ({"value": 0.0}, "has no work by energy"),
]


def score(**fields):
    official = MeasuredWindow(2000.0, 20.0, 100.0, NAN, 100)
    base = EnergyScore(
        source="logs",
        division="inference",
        benchmark="bert-99",
        scenario="Offline",
        system="S",
        metric=Metric("average power", 20.0, "W"),
        efficiency=Metric("samples per joule", 5.0, "1/J"),
        average_power_w=20.0,
        energy_j=2000.0,
        duration_s=100.0,
        official=official,
        run_window=replace(official, energy_j=2500.0, average_power_w=25.0),
        runs=(),
        checks=(),
        notes=(),
    )
    return replace(base, **fields)


def test_a_result_compares_with_one_of_another_system():
    other = replace(RESULT, system="T", public_id="4.1-2", round="v4.1", value=25.0)
    assert comparable(RESULT, other) is None
    assert compare_results(RESULT, other).ratio == 2.5


def test_of_energy_to_train_less_is_better():
    other = replace(TRAINING, value=TRAINING.value / 4, accelerators=512.0)
    assert compare_results(TRAINING, other).ratio == 4.0


@pytest.mark.parametrize("change, reason", CHANGES)
def test_what_differs_is_named_from_either_side(change, reason):
    other = replace(RESULT, **change)
    assert reason in (comparable(RESULT, other) or "")
    assert comparable(other, RESULT)
    with pytest.raises(ConfigError, match="may not be compared") as error:
        compare_results(RESULT, other)
    assert reason in str(error.value)


@pytest.mark.parametrize(
    "benchmark, scenario", [("3d-unet-99", "offline"), ("resnet", "multistream")]
)
def test_results_on_both_sides_of_a_change_of_rules_do_not_compare(benchmark, scenario):
    before = replace(
        RESULT, round="v1.1", benchmark=benchmark_of(benchmark), scenario=scenario, scale="edge"
    )
    after = replace(before, round="v2.0")
    assert "rules changed in v2.0" in (comparable(before, after) or "")
    assert "rules changed in v2.0" in (comparable(after, before) or "")
    assert comparable(after, replace(before, round="v4.0")) is None


@pytest.mark.parametrize("one, other", [("AC", "DC"), ("", "DC"), ("", "")])
def test_trainings_compare_only_where_both_tell_one_place_of_measurement(one, other):
    first, second = (replace(TRAINING, boundary=place) for place in (one, other))
    assert comparable(first, second)
    with pytest.raises(ConfigError):
        compare_results(first, second)


def test_scores_of_logs_compare_with_one_another_and_with_the_table():
    assert (
        compare_results(score(), score(efficiency=Metric("samples per joule", 10.0, "1/J"))).ratio
        == 2.0
    )
    assert compare_results(score(), RESULT).ratio == 2.0
    tokens = score(efficiency=Metric("tokens per joule", 5.0, "1/J"))
    assert "units differ: tokens/J against samples/J" in (comparable(tokens, RESULT) or "")
    assert "accuracy targets" in (comparable(score(benchmark="bert-99.9"), RESULT) or "")
    assert "scenarios" in (comparable(score(scenario="Server"), RESULT) or "")


def test_the_power_of_the_run_window_does_not_compare_with_the_official_one():
    run = result_of_score(score(), "run")
    assert run.value == 5.0 * 20.0 / 25.0
    assert "run window" in (comparable(run, score()) or "")
    assert compare_results(run, run).ratio == 1.0


def test_a_training_score_is_its_energy_in_the_window():
    training = score(
        division="training", scenario=None, source="ac/smc_dc_1x8h100", efficiency=None
    )
    official, run = (result_of_score(training, window) for window in ("official", "run"))
    assert (official.value, official.unit, official.boundary) == (2000.0, "J", "DC")
    assert run.value == 2500.0
    assert "divisions differ" in (comparable(training, score()) or "")
    assert "measured at different places" in (
        comparable(training, result_of_score(training, boundary="AC")) or ""
    )
    converted = replace(training, checks=(Check("conversion efficiency given", "pass", ""),))
    assert "DC against DC by conversion" in (comparable(training, converted) or "")
    silent = replace(training, source="logs")
    assert "AC or DC" in (comparable(silent, silent) or "")


def test_a_score_without_work_by_energy_does_not_compare():
    assert "no work by energy" in (comparable(score(efficiency=None), score()) or "")


WORDS = {
    "round": ("", "v1.1", "v4.0"),
    "scale": ("datacenter", "edge", "inference", "tiny", "training"),
    "benchmark": tuple(benchmark_of(name) for name in ("bert-99", "bert-99.9", "3d-unet-99")),
    "scenario": ("offline", "server", "multistream"),
    "boundary": ("AC", "DC", ""),
    "window": ("official", "run"),
    "unit": ("samples/J", "tokens/J", "J"),
    "value": (1.0, 2.0, NAN, 0.0),
}


@given(
    *(
        st.fixed_dictionaries({name: st.sampled_from(words) for name, words in WORDS.items()})
        for _ in range(2)
    )
)
def test_a_refused_comparison_never_gives_a_number(one, other):
    first, second = replace(RESULT, **one), replace(RESULT, **other)
    reason = comparable(first, second)
    assert (reason is None) == (comparable(second, first) is None)
    if reason is None:
        assert np.isfinite(compare_results(first, second).ratio)
    else:
        with pytest.raises(ConfigError):
            compare_results(first, second)


def test_the_shared_training_systems_tell_ac_from_dc(shared: Path):
    table = normalise(read_facts(shared / "power" / "tables" / "mlperf_published_power_facts.csv"))
    trainings = [result for result in table.results if result.scale == "training"]
    assert {result.boundary for result in trainings} == {"AC", "DC"}
    by_place = {
        place: next(
            r
            for r in trainings
            if (r.boundary, str(r.benchmark), r.accelerators) == (place, "llama2_70b_lora", 8.0)
        )
        for place in ("AC", "DC")
    }
    assert comparable(by_place["AC"], by_place["DC"])
    # The published AC energy by the DC energy of the same runs, reference 6, row 4.
    assert by_place["AC"].value / by_place["DC"].value == pytest.approx(1.0304, abs=5e-5)


def test_scores_of_the_shared_logs_tell_how_they_were_measured(shared):
    logs = shared / "power" / "training_logs"
    ac, dc, converted = (
        score_training(open_logs(logs / f"{name}.tar.xz"))
        for name in (
            "smc_ac_1x8h100_bert_v40",
            "smc_dc_1x8h100_bert_v40",
            "lenovo_1x8b200_bert_v50",
        )
    )
    assert "AC against DC" in (comparable(ac, dc) or "")
    assert "DC against DC by conversion" in (comparable(dc, converted) or "")
    assert "run window" in (comparable(dc, result_of_score(dc, "run")) or "")
    assert compare_results(dc, dc).ratio == 1.0
