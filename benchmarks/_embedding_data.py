"""The access logs that were published, and what other programs counted in them."""

import csv
from collections import defaultdict
from functools import cache
from pathlib import Path

import numpy as np

from jaxperf.embedding.locality import ReuseTimes, read_access_logs, reuse_times

NAMES = (
    "meta_emb_reuse_low_table_500K",
    "meta_emb_reuse_medium_table_500K",
    "scarab_recs",
    "cache2k_web07",
    "cache2k_web12",
    "cache2k_orm-night",
)
LONG, LONGEST = "scarab_recs", "cache2k_orm-night"


def oracle(shared: Path, name: str) -> dict[str, list[dict[str, str]]]:
    """Rows of an oracle by trace; under "" where it has none."""
    found = defaultdict(list)
    with open(shared / "dlrm" / "oracles" / name, newline="") as file:
        for row in csv.DictReader(file):
            found[row.get("trace", "")].append(row)
    return dict(found)


def column(rows: list[dict[str, str]], name: str, kind: type = int) -> np.ndarray:
    """One column of an oracle."""
    return np.array([kind(row[name]) for row in rows])


def path_of(shared: Path, name: str) -> Path:
    """Where a log is."""
    ending = ".txt.gz" if name.startswith("meta") else ".trace.xz"
    return shared / "dlrm" / "traces" / f"{name}{ending}"


@cache
def accesses(shared: Path, name: str) -> np.ndarray:
    """(n,) rows of a log, as ranks of its ids."""
    (log,) = read_access_logs(path_of(shared, name))
    return log.row


@cache
def times_of(shared: Path, name: str) -> ReuseTimes:
    """Reuse times of a log."""
    return reuse_times(accesses(shared, name))
