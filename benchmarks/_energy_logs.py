"""Every session and submission, scored and held against what the rules' own programs found."""

import csv
import json
import time
from pathlib import Path

from _tables import largest, markdown

from jaxperf.energy import EnergyScore, score

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
    # The expected power has five decimals.
    agree = [round(s.official.average_power_w, 5) == e["avg_W_testing"] for s, e in pairs]
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
    begin = time.perf_counter()
    archives = sorted((power / "training_logs").glob("*.tar.xz"))
    scores = [score(each) for each in archives]
    took = f"{time.perf_counter() - begin:.1f}"
    by_name = {run.name: run for each in scores for run in each.runs}
    off = [
        abs(getattr(by_name[row["run"]], window).energy_j / 1e3 / float(row[column]) - 1)
        for row in runs
        if by_name.get(row["run"]) is not None and _is_unique(row["run"], runs)
        for window, column in WINDOWS
    ]
    yield "training", len(by_name), "energy of a run", _within(off), f"{largest(off):.1e}", took
    found = [_closest(each, totals) for each in scores]
    yield "training", len(scores), "energy to train", _within(found), f"{largest(found):.1e}", ""


WINDOWS = (("official", "total_kJ_official"), ("run_window", "total_kJ_windowed"))


def _is_unique(run: str, rows: list[dict]) -> bool:
    """Runs of the DC and AC readings of one submission have one name."""
    return sum(row["run"] == run for row in rows) == 1


def _closest(found: EnergyScore, rows: list[dict]) -> float:
    """Difference to the row of the table that is of the same submission: the nearest one."""
    return min(
        max(
            abs(found.official.energy_j / 1e3 / float(row["energy_kJ_official"]) - 1),
            abs(found.run_window.energy_j / 1e3 / float(row["energy_kJ_windowed"]) - 1),
        )
        for row in rows
    )


def _within(differences: list[float]) -> str:
    return f"{sum(each <= 1e-4 for each in differences)} of {len(differences)} within 1e-4"
