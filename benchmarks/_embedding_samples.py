"""Curves from samples of 1 % of the rows, against exact ones, over ten seeds."""

from pathlib import Path

import numpy as np
from _embedding_data import NAMES, accesses, column, oracle, times_of
from _tables import markdown

from jaxperf.embedding.locality import sampled_curve

RATE = 0.01
SEEDS = 10
COLUMNS = (
    "log",
    "mean error, over seeds",
    "worst seed",
    "plain sample, known",
    "largest at any size",
    "in the interval, over seeds",
    "worst seed",
    "half interval",
)


def table(shared: Path) -> str:
    exact = oracle(shared, "mrc_lru_exact.csv")
    known = oracle(shared, "model_error_baseline.csv")
    rows, means, shares = [], [], []
    for name in NAMES:
        found = np.array(_of_seeds(shared, name, exact[name]))
        means.append(found[:, 0])
        shares.append(found[:, 2])
        rows.append(
            (
                name,
                f"{means[-1].mean():.4f}",
                f"{means[-1].max():.4f}",
                f"{float(known[name][0]['aet_1pct_hash_sample_mae']):.4f}",
                f"{found[:, 1].max():.3f}",
                f"{100 * shares[-1].mean():.0f} %",
                f"{100 * shares[-1].min():.0f} %",
                f"{found[:, 3].mean():.4f}",
            )
        )
    mean, share = np.concatenate(means), np.concatenate(shares)
    summary = (
        f"Of {len(mean)} samples {(mean <= 0.01).sum()} have a mean absolute error of at most 0.01,"
        f" and of {(share >= 0.9).sum()} the intervals cover at least 90 % of the sizes; over all"
        f" samples they cover {100 * share.mean():.1f} %."
    )
    return f"{markdown(COLUMNS, rows)}\n\n{summary}"


def _of_seeds(shared: Path, name: str, known: list[dict[str, str]]) -> list[tuple[float, ...]]:
    """Mean and largest error, share of sizes in the interval, half of it, for each seed."""
    row, sizes = accesses(shared, name), column(known, "cache_rows")
    truth = column(known, "hits") / len(row)
    found = []
    for seed in range(SEEDS):
        curve = sampled_curve(row, sizes, RATE, seed=seed, times=times_of(shared, name))
        off = abs(curve.hit_ratio - truth)
        covered = ((curve.low <= truth) & (truth <= curve.high)).mean()
        found.append((off.mean(), off.max(), covered, (curve.high - curve.low).mean() / 2))
    return found
