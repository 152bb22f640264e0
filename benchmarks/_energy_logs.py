"""Every session and submission, scored and held against what the rules' own programs found."""

import csv
import json
import time
from pathlib import Path

from _tables import largest, markdown

from jaxperf.energy import EnergyScore, RunScore, score

COLUMNS = ("logs", "how many", "what", "agree", "largest relative difference", "s")


def table(shared: Path) -> str:
    return markdown(COLUMNS, [*_inference(shared / "power"), *_training(shared / "power")])


def _inference(power: Path):
    expected = json.loads((power / "inference_logs" / "expected_check_py.json").read_text())
    begin = time.perf_counter()
    scores = [score(power / each["file"]) for each in expected]
    seconds = time.perf_counter() - begin
    pairs = list(zip(scores, expected, strict=True))
    off = [abs(s.official.average_power_w / e["avg_W_testing"] - 1) for s, e in pairs]
    # The expected power has five decimals; an average may lie half way between two of them.
    agree = [abs(s.official.average_power_w - e["avg_W_testing"]) <= 5.0001e-6 for s, e in pairs]
    count, took = len(scores), f"{seconds:.1f}"
    yield "inference", count, "average power", sum(agree), f"{max(off):.1e}", took
    outcomes = [
        (check.outcome == "fail") == (not e["checks"][check.name]["pass"])
        for s, e in pairs
        for check in s.checks
    ]
    yield "inference", count, "outcomes of checks", f"{sum(outcomes)} of {len(outcomes)}", "-", ""


def _training(power: Path):
    tables = power / "tables"
    runs = list(csv.DictReader((tables / "mlperf_training_power_runs.csv").open()))
    totals = list(csv.DictReader((tables / "mlperf_training_power_summary.csv").open()))
    rows_of = lambda name: [row for row in runs if row["run"] == name]
    begin = time.perf_counter()
    archives = sorted((power / "training_logs").glob("*.tar.xz"))
    scores = [score(each) for each in archives]
    took = f"{time.perf_counter() - begin:.1f}"
    off = [_closest(run, rows_of(run.name), *RUN) for each in scores for run in each.runs]
    yield "training", len(off), "energy of a run", _within(off), f"{largest(off):.1e}", took
    found = [_closest(each, totals, *TOTAL) for each in scores]
    yield "training", len(scores), "energy to train", _within(found), f"{largest(found):.1e}", ""


RUN = ("total_kJ_official", "total_kJ_windowed")
TOTAL = ("energy_kJ_official", "energy_kJ_windowed")


def _closest(found: EnergyScore | RunScore, rows: list[dict], official: str, run: str) -> float:
    """Difference to the nearest row: readings in AC and DC of one submission have one name."""
    return min(
        max(
            abs(found.official.energy_j / 1e3 / float(row[official]) - 1),
            abs(found.run_window.energy_j / 1e3 / float(row[run]) - 1),
        )
        for row in rows
    )


def _within(differences: list[float]) -> str:
    return f"{sum(each <= 1e-4 for each in differences)} of {len(differences)} within 1e-4"
