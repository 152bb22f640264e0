"""What a search prints, and the picture of its front."""

import dataclasses
import io
import json
import os
import shlex
import xml.etree.ElementTree as ET

import pytest
from rich.console import Console

from jaxperf.cli import main
from jaxperf.config import SearchSpace
from jaxperf.errors import ConfigError
from jaxperf.report import print_search, search_to_json, write_front
from jaxperf.search import RobustChoice, TracedPoint, search
from jaxperf.search._robust import RobustPoint

AXES = {"micro_batch_size": (1, 2), "sharding": ("zero2", "zero3"), "clock_hz": (1.2e9, 1.98e9)}


@pytest.fixture(scope="module")
def found():
    space = SearchSpace("small", AXES, 16, 64, objectives=("step_us", "energy_j_per_token"))
    return search("llama3-8b", space=space, hardware="h100")


def test_the_table_is_the_front_and_the_proof_counts_every_point(found):
    written = io.StringIO()
    print_search(found, Console(file=written, width=80))
    printed = written.getvalue()
    assert "The front" in printed and "The proof" in printed
    certificate = search_to_json(found)["certificate"]
    settled = [certificate["refused"], certificate["excluded"]]
    assert sum(map(sum, (each.values() for each in settled))) + certificate["evaluated"] == 8


def test_no_line_of_the_answer_ends_inside_of_a_value(found):
    values = [f"{key} = " for key in AXES]
    for width in range(24, 81):
        written = io.StringIO()
        print_search(found, Console(file=written, width=width))
        head = written.getvalue().partition("The front")[0]
        assert all(value in head for value in values), width


def test_none_is_called_chosen_where_the_trace_has_another_first(found):
    near, other = (RobustPoint(point, 1.0 + k, 1.1 + k) for k, point in enumerate(found.best[:2]))
    robust = RobustChoice("step_us", 64, 0.95, (near, other), None, None)
    for first, times in ((near, 1), (other, 0)):
        traced = (TracedPoint(first.point, 1.0, 1.0, {}, None, ()),)
        written = io.StringIO()
        answer = dataclasses.replace(found, robust=robust, traced=traced)
        print_search(answer, Console(file=written, width=80))
        printed = written.getvalue()
        assert printed.count("chosen") == times
        assert "closed form, corrected" in printed
        assert max(map(len, printed.splitlines()[:-1])) <= 80


def test_a_launch_is_a_script_that_can_be_run(tmp_path, capsys):
    path = tmp_path / "launch.sh"
    words = ["llama3-8b", "--gpus", "16", "--global-batch", "64", "--hardware", "h100"]
    assert main(["search", *words, "--megatron", str(path)]) == 0
    assert path.read_text().startswith("#!/bin/sh\ntorchrun ")
    assert os.access(path, os.X_OK)


def test_the_command_of_a_point_estimates_that_very_point(found, capsys):
    best = search_to_json(found)["best"][0]
    assert found.best[0].clock_hz == 1.98e9
    assert main([*shlex.split(best["command"])[1:], "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["gpus"] == 16
    # The graph of the step, against its closed form.
    assert told["step_us"] == pytest.approx(best["measures"]["step_us"], rel=0.03)
    stages = told["memory"]["stages"]
    most = max(stage["total_bytes"] for stage in stages)
    assert most == pytest.approx(best["measures"]["memory_bytes"], rel=1e-9)


def test_the_picture_has_every_point_of_the_front(found, tmp_path):
    write_front(found, tmp_path / "front.svg")
    root = ET.parse(tmp_path / "front.svg").getroot()
    titles = [each.text or "" for each in root.iter("{http://www.w3.org/2000/svg}title")]
    for each in found.front:
        step_us, energy_j = (each.measures[name] for name in ("step_us", "energy_j_per_token"))
        assert any(title.endswith(f": {step_us:.6g}, {energy_j:.6g}") for title in titles)


def test_one_objective_has_no_picture(tmp_path):
    space = SearchSpace("one", {"sharding": ("zero2", "zero3")}, 16, 64)
    found = search("llama3-8b", space=space, hardware="h100")
    with pytest.raises(ConfigError, match="one objective has no front"):
        write_front(found, tmp_path / "front.svg")
    assert not (tmp_path / "front.svg").exists()
