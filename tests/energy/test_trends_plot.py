"""The picture of trends: whole XML, names as text, labels that do not cover one another."""

import io
import re
from dataclasses import replace
from xml.etree import ElementTree

import pytest
from rich.console import Console

from jaxperf.energy.published import Series, TrendPoint, Trends, benchmark_of
from jaxperf.report._energy_trends import print_trends, trends_svg

NAME = "</title><script>alert(1)</script>&\x00\x1b\"'"


def point(round_name, improvement):
    return TrendPoint(round_name, improvement, improvement, improvement, 1, NAME, NAME, 2)


def series(name, *improvements, scale="edge"):
    points = tuple(point(f"v{i}.0", value) for i, value in enumerate(improvements))
    return Series(scale, benchmark_of(name), "offline", "AC", "samples/J", "", points)


def drawn(*found):
    return trends_svg(Trends(NAME, found, (), ()))


def test_names_are_text_whatever_they_hold():
    svg = drawn(series(NAME, 1.0, 2.0))
    root = ElementTree.fromstring(svg)
    assert not [element for element in root.iter() if element.tag.endswith("script")]
    texts = [element.text or "" for element in root.iter()]
    assert any("<script>alert(1)</script>" in text for text in texts)
    assert "<script" not in svg
    assert not re.search(r"[\x00-\x08\x0b\x0c\x0e-\x1f]", svg)


def test_a_series_of_one_round_is_not_drawn():
    svg = drawn(series("bert-99", 1.0))
    assert "line c" not in svg
    assert "No benchmark has results in two rounds." in svg


def test_better_stands_higher_and_equal_factors_are_equal_steps():
    svg = drawn(series("bert-99", 1.0, 10.0, 100.0))
    (path,) = re.findall(r'class="line c0" d="M([^"]*)"', svg)
    heights = [float(place.split()[1]) for place in path.split("L")]
    assert heights[0] > heights[1] > heights[2]
    assert heights[0] - heights[1] == pytest.approx(heights[1] - heights[2], abs=0.2)


def test_labels_of_equal_series_stand_apart():
    found = [series(f"model{i}", 1.0, 2.0) for i in range(15)]
    root = ElementTree.fromstring(drawn(*found))
    labels = [
        float(element.attrib["y"])
        for element in root.iter()
        if element.tag.endswith("text") and (element.text or "").startswith("model")
    ]
    assert len(labels) == 15
    steps = [b - a for a, b in zip(sorted(labels), sorted(labels)[1:], strict=False)]
    assert min(steps) > 12.0


def test_each_scale_and_scenario_has_its_panel():
    one = series("bert-99", 1.0, 2.0)
    svg = drawn(one, replace(one, scale="tiny", scenario=""), replace(one, scenario="server"))
    assert svg.count("<g transform") == 3


def test_the_table_says_that_its_best_is_that_of_the_first_round():
    file = io.StringIO()
    print_trends(
        Trends("t.csv", (series("bert-99", 1.0, 3.0),), (), ()), Console(width=80, file=file)
    )
    header, row = (
        line for line in file.getvalue().splitlines() if "bert" in line or "then" in line
    )
    assert header.split()[-6:] == ["first", "best", "then", "last", "times", "better"]
    assert row.split()[-4:] == ["v0.0", "1", "v1.0", "3.00"]
