"""What the tests of locality compare with: the shared oracles, and caches in plain Python."""

import csv
from collections import OrderedDict
from functools import cache
from pathlib import Path

import numpy as np
from hypothesis import strategies as st

from jaxperf.embedding.locality import AccessLog, ReuseTimes, read_access_logs, reuse_times

LOW, MEDIUM, SCARAB = (
    "meta_emb_reuse_low_table_500K",
    "meta_emb_reuse_medium_table_500K",
    "scarab_recs",
)
WEB07, WEB12, NIGHT = "cache2k_web07", "cache2k_web12", "cache2k_orm-night"


def oracle(shared: Path, name: str, trace: str | None = None) -> list[dict[str, str]]:
    """Rows of an oracle, of one trace where it is named."""
    with open(shared / "dlrm" / "oracles" / name, newline="") as file:
        return [row for row in csv.DictReader(file) if trace in (None, row.get("trace"))]


def column(rows: list[dict[str, str]], name: str, kind: type = int) -> np.ndarray:
    return np.array([kind(row[name]) for row in rows])


@cache
def trace(shared: Path, name: str) -> AccessLog:
    ending = ".txt.gz" if name.startswith("meta") else ".trace.xz"
    (log,) = read_access_logs(shared / "dlrm" / "traces" / f"{name}{ending}")
    return log


@cache
def trace_times(shared: Path, name: str) -> ReuseTimes:
    return reuse_times(trace(shared, name).row)


def lru_hits(accesses: list[int], size: int) -> int:
    """Hits of a least-recently-used cache, access by access."""
    cache: OrderedDict[int, None] = OrderedDict()
    hits = 0
    for row in accesses:
        if row in cache:
            hits += 1
            cache.move_to_end(row)
            continue
        if len(cache) == size:
            cache.popitem(last=False)
        cache[row] = None
    return hits


def dense(ids: list[int]) -> np.ndarray:
    return np.unique(np.array(ids), return_inverse=True)[1].astype(np.int32)


def small_logs() -> st.SearchStrategy[np.ndarray]:
    """Logs of few rows, often used again."""
    return st.lists(st.integers(0, 12), min_size=1, max_size=80).map(dense)
