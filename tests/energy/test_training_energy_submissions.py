"""Published training submissions: energies, flags, and the check values of shared/reference."""

import csv
import re
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from jaxperf.energy._log_files import open_logs
from jaxperf.energy._score_types import EnergyScore
from jaxperf.energy.training import read_runs, score_training

SUBMISSIONS = (
    "dell_8x8h100_llama2_70b_lora_v41",
    *(f"lenovo_1x8b200_{name}_v50" for name in ("bert", "llama2_70b_lora", "stable_diffusion")),
    *(
        f"smc_{current}_{name}_v40"
        for current in ("ac", "dc")
        for name in (
            "1x8h100_bert",
            "1x8h100_dlrm_dcnv2",
            "1x8h100_llama2_70b_lora",
            "1x8h100_resnet",
            "1x8h100_unet3d",
            "64x8h100_gpt3",
            "64x8h100_llama2_70b_lora",
            "8x8h100_llama2_70b_lora",
            "8x8h100_resnet",
            "8x8h100_ssd",
            "9x8h100_unet3d",
        )
    ),
)
WITHIN = 1e-4


@cache
def scored(shared: Path, submission: str) -> EnergyScore:
    return score_training(open_logs(shared / f"power/training_logs/{submission}.tar.xz"))


@cache
def table(shared: Path, name: str) -> list[dict[str, str]]:
    with (shared / f"power/tables/mlperf_training_power_{name}.csv").open() as lines:
        return list(csv.DictReader(lines))


def rows(shared: Path, name: str, submission: str) -> list[dict[str, str]]:
    """Rows of a table about the submission that a file is named after."""
    pattern = r"(dell|lenovo|smc_ac|smc_dc)_(\d+)x8(?:h100|b200)_(.*)_v(\d)(\d)"
    found = re.fullmatch(pattern, submission)
    assert found
    who, nodes, benchmark, *version = found.groups()
    submitter = {"dell": "Dell", "lenovo": "Lenovo"}.get(who, f"{who.replace('_', '-')}-power")
    system = "SR780aV3" if who == "lenovo" else f"{nodes}x"
    return [
        row
        for row in table(shared, name)
        if row["submitter"] == submitter
        and row["benchmark"] == benchmark
        and row["system"].startswith(system)
        and row["round"] == "v" + ".".join(version)
    ]


def network_j(window) -> float:
    return 0.0 if np.isnan(window.interconnect_energy_j) else window.interconnect_energy_j


@pytest.mark.parametrize("submission", SUBMISSIONS)
def test_every_run_has_the_energies_and_flags_of_the_table(shared, submission):
    expected = {row["run"]: row for row in rows(shared, "runs", submission)}
    score = scored(shared, submission)
    assert {run.name for run in score.runs} == set(expected)
    for run in score.runs:
        row = expected[run.name]
        official, window = run.official, run.run_window
        measured_kj = {
            "node_kJ_official": (official.energy_j - network_j(official)) / 1e3,
            "switch_kJ": network_j(official) / 1e3,
            "total_kJ_official": official.energy_j / 1e3,
            "node_kJ_windowed": (window.energy_j - network_j(window)) / 1e3,
            "total_kJ_windowed": window.energy_j / 1e3,
        }
        for column, value_kj in measured_kj.items():
            assert value_kj == pytest.approx(float(row[column]), rel=WITHIN), column
        assert ",".join(run.flags) == row["flags"]


@pytest.mark.parametrize("submission", SUBMISSIONS)
def test_every_submission_has_the_scores_of_the_table(shared, submission):
    (row,) = rows(shared, "summary", submission)
    score = scored(shared, submission)
    assert score.official.energy_j / 1e3 == pytest.approx(
        float(row["energy_kJ_official"]), rel=WITHIN
    )
    assert score.run_window.energy_j / 1e3 == pytest.approx(
        float(row["energy_kJ_windowed"]), rel=WITHIN
    )
    assert network_j(score.official) / 1e3 == pytest.approx(float(row["switch_kJ"]), rel=WITHIN)
    assert score.duration_s / 60 == pytest.approx(float(row["ttt_min"]), rel=WITHIN)
    assert len(score.runs) == int(row["runs"])
    assert {flag for run in score.runs for flag in run.flags} == set(row["flags"].split()) - {""}


@pytest.mark.parametrize("submission", SUBMISSIONS)
def test_checks_fail_where_the_table_shows_the_defect(shared, submission):
    (row,) = rows(shared, "summary", submission)
    outcome = {check.name: check.outcome for check in scored(shared, submission).checks}
    ratio, interval_ms = float(row["ratio"]), float(row["interval"])
    assert (outcome["a reading every second"] == "fail") == (interval_ms > 1500)
    assert (outcome["official energy is that of the run"] == "warning") == (ratio - 1 > 0.01)
    assert (outcome["the measurement stops after it starts"] == "fail") == (
        row["flags"] == "stop<=start"
    )
    assert (outcome["switches logged as estimates"] == "fail") == row["flags"].startswith("switch")
    assert (outcome["conversion efficiency given"] == "warning") == row["submitter"].startswith(
        "smc"
    )
    assert outcome["all nodes in every run"] == outcome["enough runs"] == "pass"


@pytest.mark.parametrize(
    ("submission", "official_kj"),
    [
        ("smc_dc_64x8h100_gpt3_v40", 1_676_757.08),
        ("smc_ac_64x8h100_gpt3_v40", 1_699_340.34),
        ("smc_dc_1x8h100_llama2_70b_lora_v40", 11_769.96),
        ("smc_dc_8x8h100_llama2_70b_lora_v40", 20_381.55),
        ("smc_dc_64x8h100_llama2_70b_lora_v40", 45_837.40),
        ("smc_ac_1x8h100_llama2_70b_lora_v40", 12_127.90),
        ("smc_dc_1x8h100_resnet_v40", 5_520.38),
        ("smc_ac_1x8h100_resnet_v40", 5_671.89),
        ("smc_dc_1x8h100_bert_v40", 1_793.34),
        ("smc_dc_1x8h100_dlrm_dcnv2_v40", 1_265.89),
        ("smc_dc_1x8h100_unet3d_v40", 4_722.79),
        ("lenovo_1x8b200_bert_v50", 1_949.22),
        ("lenovo_1x8b200_llama2_70b_lora_v50", 6_114.24),
        ("lenovo_1x8b200_stable_diffusion_v50", 8_071.17),
        ("dell_8x8h100_llama2_70b_lora_v41", 16_384.27),
    ],
)
def test_published_energies(shared, submission, official_kj):
    score = scored(shared, submission)
    assert score.energy_j / 1e3 == pytest.approx(official_kj, rel=WITHIN)


@pytest.mark.parametrize(
    ("submission", "window_kj"),
    [
        ("smc_dc_1x8h100_bert_v40", 2_173.26),
        ("smc_dc_1x8h100_dlrm_dcnv2_v40", 1_588.59),
        ("smc_dc_9x8h100_unet3d_v40", 7_984.39),
    ],
)
def test_energies_of_the_run_alone(shared, submission, window_kj):
    score = scored(shared, submission)
    assert score.run_window.energy_j / 1e3 == pytest.approx(window_kj, rel=WITHIN)


def test_gpt3_on_512_gpus_takes_57_minutes_and_its_switches_203_mj(shared):
    score = scored(shared, "smc_dc_64x8h100_gpt3_v40")
    assert score.duration_s / 60 == pytest.approx(56.869, abs=5e-4)
    assert score.official.interconnect_energy_j == pytest.approx(203_262.67e3, rel=WITHIN)


@pytest.mark.parametrize(
    ("submission", "estimate_w"),
    [
        ("smc_dc_8x8h100_resnet_v40", 16_100.0),
        ("smc_dc_9x8h100_unet3d_v40", 16_100.0),
        ("smc_dc_64x8h100_llama2_70b_lora_v40", 59_570.0),
    ],
)
def test_switches_are_estimated_at_1610_w_each(shared, submission, estimate_w):
    for run in scored(shared, submission).runs:
        network_w = run.official.interconnect_energy_j / run.duration_s
        assert network_w == pytest.approx(estimate_w)
        assert network_w / 1610 == pytest.approx(round(network_w / 1610))


def test_the_power_of_64_nodes_training_gpt3(shared):
    # Every node, linear between its readings, each 2 s, from 5 s after run_start to 5 s before
    # run_stop; idle power before the first step is outside.
    for run in read_runs(open_logs(shared / "power/training_logs/smc_dc_64x8h100_gpt3_v40.tar.xz")):
        grid_ms = np.arange(run.result.start_ms + 5e3, run.result.stop_ms - 5e3, 2e3)
        nodes_w = np.array([np.interp(grid_ms, node.time_ms, node.power_w) for node in run.nodes])
        cluster_kw = nodes_w.sum(axis=0) / 1e3
        node_w = nodes_w.mean(axis=1)
        assert 431.1 < cluster_kw.mean() < 431.9
        assert 22.25 < cluster_kw.std() < 22.75
        assert 387.5 < np.percentile(cluster_kw, 5) < 391.5
        assert 455.5 < np.percentile(cluster_kw, 95) < 457.5
        assert 91.5 < np.abs(np.diff(cluster_kw)).max() < 94.5
        assert node_w.std() / node_w.mean() == pytest.approx(0.007, abs=5e-4)
