"""Locality of embedding lookups: how fast it is counted, and how far models and samples are off.

    python benchmarks/embedding_locality.py SHARED

SHARED is the folder with `dlrm/`. Prints three tables: processor seconds of the exact curve for
logs of up to 5 million accesses and for random ones of doubling length, beside a tree in plain
Python; the error of hit ratios by reuse times, by popularity and from samples of 1 % of the rows
over ten seeds; that of independent lookups of a Zipf law.
"""

import argparse
import csv
import time
from collections import defaultdict
from pathlib import Path

import numpy as np
from _tables import markdown

from jaxperf.embedding.locality import (
    eviction_time_hit_ratio,
    independent_hit_ratio,
    lru_curve,
    popularity_of_log,
    read_access_logs,
    reuse_times,
    sampled_curve,
    zipf_popularity,
)

PLAIN_PYTHON = 100_000  # accesses; its time grows a little faster than they do
SEEDS = 10


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("shared", type=Path)
    folder = parser.parse_args().shared / "dlrm"
    exact = by_trace(folder, "mrc_lru_exact.csv")
    logs = {name: read(folder, name) for name in exact}
    speed(logs)
    errors(folder, exact, logs)
    zipf(folder)


def by_trace(folder: Path, name: str) -> dict[str, list[dict[str, str]]]:
    found = defaultdict(list)
    with open(folder / "oracles" / name, newline="") as file:
        for row in csv.DictReader(file):
            found[row.get("trace", "")].append(row)
    return dict(found)


def read(folder: Path, name: str) -> np.ndarray:
    ending = ".txt.gz" if name.startswith("meta") else ".trace.xz"
    (log,) = read_access_logs(folder / "traces" / f"{name}{ending}")
    return log.row


def speed(logs: dict[str, np.ndarray]) -> None:
    rng = np.random.default_rng(0)
    random = {
        f"random, {n:,}": rng.integers(0, n // 8, n).astype(np.int32)
        for n in (1 << power for power in range(18, 24))
    }
    rows = []
    for name, row in (logs | random).items():
        seconds = min(timed(lru_curve, row) for _ in range(3))
        unit = seconds / (len(row) * np.log2(len(row)))
        rows.append((name, f"{len(row):,}", f"{seconds:.2f}", f"{1e9 * unit:.1f}"))
    row = logs["scarab_recs"][:PLAIN_PYTHON]
    seconds = timed(tree_hits, row.tolist())
    unit = seconds / (len(row) * np.log2(len(row)))
    rows.append(("tree in plain Python", f"{len(row):,}", f"{seconds:.2f}", f"{1e9 * unit:.1f}"))
    assert (np.array(tree_hits(row.tolist())) == np.diff(lru_curve(row).hits_within)).all()
    print(markdown(("log", "accesses", "seconds", "ns / (n log2 n)"), rows), end="\n\n")


def timed(function, argument) -> float:
    # Nothing here runs in threads, and other work of the machine does not count.
    start = time.process_time()
    function(argument)
    return time.process_time() - start


def tree_hits(accesses: list[int]) -> list[int]:
    """Accesses by their distance, with a binary indexed tree of the last uses."""
    size = len(accesses)
    tree = [0] * (size + 1)
    last: dict[int, int] = {}
    hits: dict[int, int] = {}

    def add(place: int, value: int) -> None:
        while place <= size:
            tree[place] += value
            place += place & -place

    def total(place: int) -> int:
        found = 0
        while place:
            found += tree[place]
            place -= place & -place
        return found

    for place, row in enumerate(accesses, 1):
        if row in last:
            distance = len(last) - total(last[row])
            hits[distance] = hits.get(distance, 0) + 1
            add(last[row], -1)
        add(place, 1)
        last[row] = place
    return [hits.get(distance, 0) for distance in range(max(hits) + 1)]


def errors(folder: Path, exact: dict, logs: dict[str, np.ndarray]) -> None:
    baseline = by_trace(folder, "model_error_baseline.csv")
    rows = []
    for name, row in logs.items():
        sizes = np.array([int(point["cache_rows"]) for point in exact[name]])
        truth = np.array([int(point["hits"]) for point in exact[name]]) / len(row)
        times = reuse_times(row)
        model = abs(eviction_time_hit_ratio(times, sizes) - truth)
        che = abs(independent_hit_ratio(popularity_of_log(row), sizes[::4]) - truth[::4])
        mean, largest, covered, half = [], [], [], []
        for seed in range(SEEDS):
            found = sampled_curve(row, sizes, 0.01, seed=seed, times=times)
            mean.append(abs(found.hit_ratio - truth).mean())
            largest.append(abs(found.hit_ratio - truth).max())
            covered.append(((found.low <= truth) & (truth <= found.high)).mean())
            half.append((found.high - found.low).mean() / 2)
        known = baseline[name][0]
        rows.append(
            (
                name,
                f"{model.mean():.4f}",
                f"{float(known['aet_mae']):.4f}",
                f"{che.mean():.3f}",
                f"{float(known['che_irm_mae']):.3f}",
                f"{np.mean(mean):.4f} ({max(mean):.4f})",
                f"{float(known['aet_1pct_hash_sample_mae']):.4f}",
                f"{max(largest):.3f}",
                f"{100 * np.mean(covered):.0f} % ({100 * min(covered):.0f} %)",
                f"{np.mean(half):.4f}",
            )
        )
    columns = (
        "log",
        "reuse times",
        "known",
        "popularity",
        "known",
        "1 % sample, mean (worst)",
        "plain sample, known",
        "largest",
        "covered, mean (worst)",
        "half interval",
    )
    print(markdown(columns, rows), end="\n\n")


def zipf(folder: Path) -> None:
    rows = []
    for known in by_trace(folder, "che_zipf_irm.csv")[""]:
        law = zipf_popularity(int(known["num_rows"]), float(known["zipf_alpha"]))
        found = float(independent_hit_ratio(law, int(known["cache_rows"])))
        simulated = float(known["lru_hit_ratio_simulated"])
        rows.append(
            (
                f"{int(known['num_rows']):,} rows, {known['zipf_alpha']}",
                f"{int(known['cache_rows']):,}",
                f"{found:.5f}",
                f"{simulated:.5f}",
                f"{found - simulated:+.5f}",
            )
        )
    print(markdown(("Zipf law", "cache", "Che", "simulated", "error"), rows))


if __name__ == "__main__":
    main()
