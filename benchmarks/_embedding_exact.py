"""Hits and distinct rows, counted exactly, against programs that counted the same logs."""

from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
from _embedding_data import NAMES, accesses, column, oracle, times_of
from _tables import markdown

from jaxperf.embedding.locality import (
    lru_curve,
    mean_distinct_rows,
    pinned_curve,
    policy_hits,
    reuse_times,
    set_associative_estimate,
    set_associative_hits,
)

SETS = "LRU_32way_splitmix64"
WAYS = 32
SIMULATED = ("FIFO", "CLOCK", "LFU", "Belady")
NOT_MODELLED = ("S3FIFO", "ARC")
WINDOWS = (2, 3, 10, 100, 1_000, 10_000)


def table(shared: Path) -> str:
    counted = markdown(("what, log", "rows", "equal", "largest difference"), _counted(shared))
    policies = markdown(
        ("policy", "logs and sizes", "equal to the hit", "largest difference of hit ratio"),
        _policies(shared),
    )
    return f"{counted}\n\n{policies}"


def _counted(shared: Path) -> Iterator[tuple[str, int, object, str]]:
    curves, footprints = oracle(shared, "mrc_lru_exact.csv"), oracle(shared, "footprint_exact.csv")
    for name in NAMES:
        rows = curves[name]
        found = lru_curve(accesses(shared, name)).hits(column(rows, "cache_rows"))
        off = abs(found - column(rows, "hits"))
        yield f"LRU hits, {name}", len(rows), int((off == 0).sum()), f"{off.max()} hits"
    for name in NAMES:
        rows = footprints[name]
        found = mean_distinct_rows(times_of(shared, name), column(rows, "window_lookups"))
        off = abs(found - column(rows, "mean_distinct_rows", float))
        # The oracle has six decimals; this is half of the last, and 1e-9 of what is counted.
        near = int((off <= 0.5e-6 + 1e-9 * found).sum())
        yield f"distinct rows of windows, {name}", len(rows), near, f"{off.max():.1e} rows"
    row = accesses(shared, "cache2k_web07")
    slid = np.array([_slid_distinct(row.tolist(), window) for window in WINDOWS])
    off = abs(mean_distinct_rows(reuse_times(row), np.array(WINDOWS)) / slid - 1)
    told = f"{off.max():.1e} of it"
    yield "distinct rows, windows slid in plain Python", len(slid), int((off <= 1e-9).sum()), told


def _slid_distinct(accesses: list[int], window: int) -> float:
    """Distinct rows of all windows, on average, by sliding one over the log."""
    inside: dict[int, int] = {}
    total = 0
    for place, row in enumerate(accesses):
        inside[row] = inside.get(row, 0) + 1
        if place >= window:
            gone = accesses[place - window]
            inside[gone] -= 1
            if not inside[gone]:
                del inside[gone]
        if place >= window - 1:
            total += len(inside)
    return total / (len(accesses) - window + 1)


def _policies(shared: Path) -> Iterator[tuple[str, int, object, str]]:
    known = oracle(shared, "policy_oracle.csv")
    for policy in ("LRU", *SIMULATED):
        yield policy, *_compared(shared, known, policy, _hits(policy))
    yield f"LRU, sets of {WAYS}", *_compared(shared, known, SETS, _in_sets)
    binomial = _compared(shared, known, SETS, _by_binomial)
    yield f"LRU, sets of {WAYS}, from the curve by Smith's binomial", *binomial
    yield "pinned, 1 % and 10 % of the rows", *_pinned(shared)
    for policy in NOT_MODELLED:
        yield f"{policy}, not modelled", len(_rows(known, policy)), "-", "-"


def _hits(policy: str) -> Callable[[np.ndarray, np.ndarray], np.ndarray]:
    return lambda row, sizes: policy_hits(row, sizes, policy.lower())


def _in_sets(row: np.ndarray, sizes: np.ndarray) -> np.ndarray:
    return np.array([set_associative_hits(row, int(size), WAYS) for size in sizes])


def _by_binomial(row: np.ndarray, sizes: np.ndarray) -> np.ndarray:
    curve = lru_curve(row)
    return np.array([set_associative_estimate(curve, int(size), WAYS) for size in sizes])


def _rows(known: dict[str, list[dict[str, str]]], policy: str) -> list[dict[str, str]]:
    return [row for rows in known.values() for row in rows if row["policy"] == policy]


def _compared(shared: Path, known: dict, policy: str, count: Callable) -> tuple[int, object, str]:
    equal, off = [], []
    for name, rows in known.items():
        rows = [row for row in rows if row["policy"] == policy]
        found = count(accesses(shared, name), column(rows, "cache_rows"))
        equal.extend(found == column(rows, "hits"))
        off.extend(abs(found - column(rows, "hits")) / len(accesses(shared, name)))
    return len(equal), int(sum(equal)), f"{max(off):.1e}"


def _pinned(shared: Path) -> tuple[int, object, str]:
    off = []
    for name, (summary,) in oracle(shared, "trace_summary.csv").items():
        curve = pinned_curve(accesses(shared, name))
        for share, part in (("top1pct_share", 100), ("top10pct_share", 10)):
            rows = int(summary["unique_ids"]) // part
            off.append(abs(float(curve.hit_ratio(rows)) - float(summary[share])))
    return len(off), sum(each < 1e-12 for each in off), f"{max(off):.1e}"
