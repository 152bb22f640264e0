"""The figures of the MLPerf Power paper, computed anew from the table of published values.

Each row has what the table gives, what
`paper_figures_expected.json` holds, and what the paper claims. `agree` compares the first two, to
the digits of the second.
"""

import json
from collections.abc import Iterator
from pathlib import Path

from _tables import markdown

from jaxperf.energy.published import (
    Facts,
    Trends,
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

COLUMNS = ("figure", "what", "computed", "expected", "agree", "paper")
TINY = {
    "MobileNet": "MobileNetV1 (0.25x)",
    "ResNet": "ResNet-V1",
    "DSCNN": "DSCNN",
    "AutoEncoder": "FC AutoEncoder",
}
FIGURE_5 = {
    "5a": ("fig5a_datacenter_offline_best_samples_per_joule", "datacenter", "offline"),
    "5b": ("fig5b_edge_offline", "edge", "offline"),
    "5c": ("fig5c_tiny_best_inferences_per_joule", "tiny", ""),
}
PAPER_5 = {
    ("5a", "RetinaNet"): "strongest of the old",
    ("5a", "GPTJ-99.0"): "over 100x",
    ("5a", "Llama2-70b-99.9"): "over 100x",
    ("5b", "BERT-99.0"): "4x",
    ("5b", "ResNet"): "1.5x",
    ("5c", "ResNet"): "over 1000x",
    ("5c", "MobileNet"): "79 to 596x",
    ("5c", "DSCNN"): "79 to 596x",
    ("5c", "AutoEncoder"): "79 to 596x",
}
PAPER_2 = {
    "tiny": "5.64 mW to 166.6 mW",
    "edge": "3.9 W to 1.1 kW",
    "datacenter": "266.9 W to 6.3 kW",
    "training": "5.5 to 498 kW",
}
PAPER_7 = {
    "resnet": "8.7 mJ",
    "3d-unet-99.9": "110.4 J",
    "stable-diffusion-xl": "492.4 J",
    "llama2-70b-99.9": "111.4 J",
}

Row = tuple[str, str, str, str, str, str]


def table(shared: Path) -> str:
    tables = shared / "power" / "tables"
    facts = read_facts(tables / "mlperf_published_power_facts.csv")
    expected = json.loads((tables / "paper_figures_expected.json").read_text("utf-8"))
    rows = [
        *_figure_2(facts, expected),
        *_figure_5(facts, expected),
        *_figures_6_and_7(facts, expected),
        *_figures_8_to_11(facts, expected),
    ]
    agreeing = sum(row[4] == "yes" for row in rows)
    return f"{markdown(COLUMNS, rows)}\n\n{agreeing} of {len(rows)} rows agree."


def _row(figure: str, what: str, computed: list[float], expected: list, paper: str = "") -> Row:
    agree = all(
        round(value, len(str(float(wanted)).partition(".")[2])) == wanted
        for value, wanted in zip(computed, expected, strict=True)
    )
    told = lambda values: ", ".join(f"{value:.9g}" for value in values)
    return figure, what, told(computed), told(expected), "yes" if agree else "no", paper


def _figure_2(facts: Facts, expected: dict) -> Iterator[Row]:
    figure = expected["fig2_power_range_W"]
    for scale, paper in PAPER_2.items():
        # The figure draws the Offline scenario of a datacenter.
        scenario = "Offline" if scale == "datacenter" else None
        found = power_range_w(facts, scale, scenario=scenario, through="v4.1")
        yield _row("2", f"{scale}, W", [found.least_w, found.most_w], figure[scale], paper)
    found = power_range_w(facts, "datacenter", through="v4.1")
    wanted = [figure["datacenter_max_any_scenario"]]
    yield _row("2", "datacenter, any scenario, W", [found.most_w], wanted)


def _figure_5(facts: Facts, expected: dict) -> Iterator[Row]:
    measured, joined = trends(facts), trends(facts, pairing="any")
    for figure, (key, scale, scenario) in FIGURE_5.items():
        for model, rounds in expected[key].items():
            wanted = [value for pair in rounds.values() for value in pair]
            paper = PAPER_5.get((figure, model), "")
            values = _best(measured, scale, scenario, model, rounds)
            rows = [_row(figure, f"{model}, by round", values, wanted, paper)]
            if rows[0][4] == "no":
                values = _best(joined, scale, scenario, model, rounds)
                rows.append(_row(figure, f"{model}, every value with every other", values, wanted))
            # Of a long row the last round is enough to read.
            last = lambda text: ", ".join(text.split(", ")[-2:])
            for name, what, computed, told, agree, claim in rows:
                yield name, what, last(computed), last(told), agree, claim
    reason, ratio = _as_published(facts, "GPTJ-99.0", "v3.1", "v4.1")
    what = f"GPT-J as published, refused: {reason}; if divided"
    wanted = [expected["fig5a_gptj_unit_mixing_ratio_v41_over_v31"]]
    yield _row("5a", what, [ratio], wanted, "over 100x")


def _as_published(facts: Facts, model: str, *rounds: str) -> tuple[str | None, float]:
    """Why the best Offline results of two rounds do not compare, and their ratio all the same."""
    results = [
        result
        for result in normalise(facts, tokens_per_sample={}).results
        if result.benchmark == benchmark_of(model)
        and (result.scale, result.scenario) == ("datacenter", "offline")
    ]
    first, last = (
        max((each for each in results if each.round == name), key=lambda each: each.value)
        for name in rounds
    )
    return comparable(first, last), last.value / first.value


def _best(found: Trends, scale: str, scenario: str, model: str, rounds: dict) -> list[float]:
    benchmark = benchmark_of(TINY[model] if scale == "tiny" else model)
    points = {
        point.round: point
        for series in found.series
        if (series.scale, series.scenario, series.benchmark) == (scale, scenario, benchmark)
        for point in series.points
    }
    return [value for name in rounds for value in (points[name].best, points[name].improvement)]


def _figures_6_and_7(facts: Facts, expected: dict) -> Iterator[Row]:
    trained = {
        f"{one.accelerators:g}": one
        for one in energy_to_train(facts, "llama2_70b_lora", boundary="DC")
    }
    paper = {"8": "11.77 MJ, 29.101 min", "64": "20.38 MJ, 5.488 min", "512": "45.84 MJ, 2.015 min"}
    for name, wanted in expected["fig6_llama2_lora_dc"].items():
        one = trained[name]
        computed = [one.energy_j / 1e3, one.duration_s / 60.0, one.power_w]
        yield _row("6", f"{name} GPUs, kJ, min, W", computed, list(wanted.values()), paper[name])
    for name, wanted in expected["fig7_joules_per_sample_4.0-0063"].items():
        scenario = "Server" if "server" in name else "Offline"
        model = name.split(" ")[0]
        found = joules_per_sample(facts, public_id="4.0-0063", scenario=scenario)[model]
        yield _row("7", f"{name}, J", [found], [wanted], PAPER_7.get(model, ""))


def _figures_8_to_11(facts: Facts, expected: dict) -> Iterator[Row]:
    prices = efficiency_ratio(
        facts, "BERT-99.9", "BERT-99.0", scale="datacenter", scenario="Offline"
    )
    for one in prices:
        wanted = expected["fig8_9_bert999_over_bert99_efficiency"][one.round]
        computed = [float(len(one.by_id)), one.median]
        paper = "0.85 with FP8" if one.round >= "v3.1" else "half"
        yield _row(
            "8, 9", f"{one.round}, submissions and median", computed, [*wanted.values()], paper
        )
    by_id = {public_id: ratio for one in prices for public_id, ratio in one.by_id.items()}
    for public_id, wanted in expected["fig9_by_id"].items():
        yield _row("9", public_id, [by_id[public_id]], [wanted])
    results = []
    for public_id, wanted in expected["fig11a_r282_resnet_offline"].items():
        one = result_of(facts, public_id=public_id, model="ResNet", scenario="Offline")
        results.append(one)
        computed = [one.rate_per_s, one.power_w]
        yield _row("11a", f"{public_id}, samples/s, W", computed, [*wanted.values()])
    yield _row("11a", "last by first", [results[-1].value / results[0].value], [1.222], "1.28x")
