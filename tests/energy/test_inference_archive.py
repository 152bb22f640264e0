"""Published sessions, against what the rules' own program said of them and what was published."""

import csv
import json
import math
from pathlib import Path

import pytest

from jaxperf.energy._log_files import open_logs
from jaxperf.energy.inference import (
    average_power_factor,
    official_window,
    read_session,
    score_inference,
)

OUTCOMES = {"INFO": "pass", "WARNING": "warning", "ERROR": "fail"}

LENOVO = "v5-1-lenovo-sr780a-v3-b200sxmx8-trt-llama3-1-8b-offline"
ORIN = "v3-0-nvidia-orin-trt-maxq-3d-unet-99-singlestream"
OF_EVERY_KIND = (
    LENOVO,
    "v4-1-nvidia-h200-sxm-141gbx8-trt-maxq-resnet50-server",
    "v3-0-krai-firefly-tflite-v2-11-0-ruy-resnet50-singlestream",
    "v2-1-dell-xr12-a2x1-trt-maxq-resnet50-multistream",
    "v1-1-dell-xe2420-a10x2-trt-maxq-resnet50-server",
    "v1-0-dellemc-xe2420-datacenter-t4x4-trt-resnet50-offline",
    "v1-0-krai-rpi4coral-fan-off-tflite-v2-4-1-ruy-resnet50-singlestream",
)
"""Every round but one, every scenario, every outcome, one and several channels."""


@pytest.fixture(scope="module")
def expected(shared) -> dict[str, dict]:
    """What `compliance/check.py` said, by the archive's name."""
    rows = json.loads((shared / "power/inference_logs/expected_check_py.json").read_text())
    return {Path(row["file"]).name.removesuffix(".tar.xz"): row for row in rows}


@pytest.fixture(scope="module")
def published_mj(shared) -> dict[tuple[str, str], list[float]]:
    """Published energies per query, by round and scenario."""
    energies: dict[tuple[str, str], list[float]] = {}
    with (shared / "power/tables/mlperf_published_power_facts.csv").open(newline="") as file:
        for row in csv.DictReader(file):
            if row["metric"] == "energy_per_stream":
                scale = {"J": 1e3, "mJ": 1.0}[row["unit"]]
                place = row["round"], row["scenario"].replace(" ", "")
                energies.setdefault(place, []).append(float(row["value"]) * scale)
    return energies


def archive(shared: Path, name: str) -> Path:
    return shared / "power/inference_logs" / f"{name}.tar.xz"


def assert_as_expected(shared: Path, name: str, row: dict, published_mj: dict) -> None:
    logs = open_logs(archive(shared, name))
    session, score = read_session(logs), score_inference(logs)
    assert session.ranging is not None
    for phase, watts in ((session.ranging, "avg_W_ranging"), (session.testing, "avg_W_testing")):
        assert official_window(phase).average_power_w == pytest.approx(row[watts], abs=5.1e-6)
    assert official_window(session.testing).readings == row["n_samples"]
    # That program writes 0 where the analyzer measured no power factor.
    factor = average_power_factor(session.testing)
    assert (0.0 if math.isnan(factor) else factor) == pytest.approx(row["avg_pf"], abs=5.1e-6)
    run = session.testing.run
    assert run.duration_s == pytest.approx(row["duration_s"], abs=1e-9)
    assert run.scenario == row["scenario"]
    assert run.query_count == (None if math.isnan(row["query_count"]) else row["query_count"])
    # The detailed log has six digits, the summary a server's rate to the hundredth.
    speed = pytest.approx(row["perf_value"], rel=5e-6, abs=5.1e-3)
    assert any(value == speed for value in run.results.values())
    outcomes = {check.name: check.outcome for check in score.checks}
    assert outcomes == {check: OUTCOMES[said["level"]] for check, said in row["checks"].items()}
    assert score.benchmark == row["benchmark"]
    # The two windows differ by less than a sample of the hundreds.
    assert score.run_window.energy_j == pytest.approx(score.energy_j, rel=1e-3)
    energies = published_mj.get((row["round"], row["scenario"]))
    if score.metric.unit == "mJ" and energies:
        assert min(abs(mj / score.metric.value - 1) for mj in energies) < 1e-9


@pytest.mark.parametrize("name", OF_EVERY_KIND)
def test_a_published_session_of_every_kind_is_scored_as_by_the_rules_program(
    shared, expected, published_mj, name
):
    assert_as_expected(shared, name, expected[name], published_mj)


@pytest.mark.slow
def test_all_published_sessions_are_scored_as_by_the_rules_program(shared, expected, published_mj):
    assert len(expected) == 143
    for name, row in expected.items():
        assert_as_expected(shared, name, row, published_mj)


def test_a_session_of_round_5_1_passes_all_eleven_rules(shared):
    score = score_inference(open_logs(archive(shared, LENOVO)))
    assert score.average_power_w == pytest.approx(9436.05296875, abs=1e-9)
    assert {check.outcome for check in score.checks} == {"pass"}
    assert score.efficiency is not None
    assert score.efficiency.name == "tokens per joule"
    assert score.efficiency.value == pytest.approx(146_960 / 9436.05296875)
    assert score.system == "ThinkSystem SR780a V3 (8x B200-SXM-180GB, TensorRT)"


def test_a_testing_run_that_drew_18_percent_less_than_ranging_fails(shared):
    score = score_inference(open_logs(archive(shared, ORIN)))
    check = next(check for check in score.checks if check.name == "Check time difference")
    assert check.outcome == "fail"
    for figure in ("17.97 %", "33.31222 W", "27.3272 W", "0.34605", "0.36852"):
        assert figure in check.text


def test_local_clocks_of_round_1_0_are_noted(shared):
    name = "v1-0-dellemc-xe2420-datacenter-t4x4-trt-resnet50-offline"
    notes = {
        note.code: note.text for note in score_inference(open_logs(archive(shared, name))).notes
    }
    assert "-5 h from UTC" in notes["clock-not-utc"]
