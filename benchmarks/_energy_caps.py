"""Power under a cap: `P = P0 + A r^gamma` on the sweeps of Zeus (NSDI 2023).

`r` is the speed of a job in parts of its fastest. A curve is one job on one GPU under every cap.
"""

import csv
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from _tables import markdown, number
from scipy.optimize import nnls

FOLDER = Path("power") / "gpu_power"
GPUS = ("v100", "a40", "p100", "rtx6000")
_GAMMA = np.arange(0.5, 12.1, 0.25)
_SMALLEST = 5
"""Caps of a curve: three numbers are fitted to one cap less."""


def table(shared: Path) -> str:
    """The section of the documentation."""
    rows = []
    for gpu in GPUS:
        curves = list(_curves(shared / FOLDER / f"zeus_nsdi23_power_{gpu}.csv"))
        in_fit = np.concatenate([_errors(speed, power_w) for speed, power_w in curves])
        left_out = np.concatenate([_held_out(speed, power_w) for speed, power_w in curves])
        saved, slower = np.array([_best_cap(speed, power_w) for speed, power_w in curves]).T
        medians = (number(float(np.median(x)), 1) for x in (in_fit, left_out, saved, slower))
        rows.append((gpu, len(curves), *medians))
    columns = ("GPU", "jobs", "in fit", "a cap held out", "energy saved", "slower")
    return (
        "Median error over jobs and caps, and the median over jobs of what the cap of least energy "
        "saves against the highest cap, and of how much slower it is, %:\n\n"
        + markdown(columns, rows)
    )


def _curves(path: Path) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Speed and power by cap, ascending."""
    jobs = defaultdict(list)
    with path.open() as file:
        for row in csv.DictReader(file):
            job = row["dataset"], row["network"], row["batch_size"], row["optimizer"]
            cap_w, time_s, power_w = (
                float(row[key]) for key in ("power_limit", "time_per_epoch", "average_power")
            )
            jobs[job].append((cap_w, time_s, power_w))
    for rows in jobs.values():
        _, time_s, power_w = np.array(sorted(rows)).T
        if len(rows) >= _SMALLEST:
            yield time_s.min() / time_s, power_w


def _fit(speed: np.ndarray, power_w: np.ndarray) -> tuple[float, float, float]:
    """P0, A and gamma of the least relative error."""
    found = []
    for gamma in _GAMMA:
        columns = np.stack([np.ones_like(speed), speed**gamma], axis=1) / power_w[:, None]
        (constant, slope), error = nnls(columns, np.ones_like(power_w))
        found.append((error, constant, slope, gamma))
    return min(found)[1:]


def _errors(speed: np.ndarray, power_w: np.ndarray) -> np.ndarray:
    return _error(_fit(speed, power_w), speed, power_w)


def _held_out(speed: np.ndarray, power_w: np.ndarray) -> np.ndarray:
    errors = []
    for i in range(len(speed)):
        others = np.arange(len(speed)) != i
        errors.append(_error(_fit(speed[others], power_w[others]), speed[i], power_w[i]))
    return np.array(errors)


def _error(fit: tuple[float, float, float], speed, power_w):
    constant, slope, gamma = fit
    return np.abs((constant + slope * speed**gamma) / power_w - 1.0) * 100.0


def _best_cap(speed: np.ndarray, power_w: np.ndarray) -> tuple[float, float]:
    energy = power_w / speed
    best = int(np.argmin(energy))
    return (1.0 - energy[best] / energy[-1]) * 100.0, (speed[-1] / speed[best] - 1.0) * 100.0
