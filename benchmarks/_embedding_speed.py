"""Seconds of exact curves, for real logs and for random ones of doubling length."""

import subprocess
import sys
from pathlib import Path

import numpy as np
from _embedding_data import LONG, LONGEST, accesses, path_of
from _tables import markdown
from _timed import Seconds, machine_load, timed

from jaxperf.embedding.locality import lru_curve

ROUNDS = 2
LENGTHS = tuple(1 << power for power in range(17, 24))
PLAIN_PYTHON = 100_000  # accesses; its time grows a little faster than they do
COLUMNS = ("", "accesses", "wall s", "user s", "user ns / (n log2 n)")


def table(shared: Path) -> str:
    load = machine_load()
    rows = []
    for name in (LONG, LONGEST):
        row = accesses(shared, name)
        rows.append(_row(f"curve, {name}", len(row), _best(row)))
        seconds = timed(_command, path_of(shared, name))[1]
        rows.append(_row(f"whole command, {name}", len(row), seconds))
    random, user = np.random.default_rng(0), []
    for length in LENGTHS:
        seconds = _best(random.integers(0, length // 8, length).astype(np.int32))
        user.append(seconds.user)
        rows.append(_row("curve, random", length, seconds))
    rows.append(_plain_python(accesses(shared, LONG)[:PLAIN_PYTHON]))
    power = np.polyfit(np.log(LENGTHS), np.log(user), 1)[0]
    linear = np.polyfit(np.log(LENGTHS), np.log(np.multiply(LENGTHS, np.log2(LENGTHS))), 1)[0]
    growth = (
        f"User seconds of the random logs grow with the power {power:.2f} of their length; n log n"
        f" does with {linear:.2f} over these lengths, n^2 with 2."
    )
    return f"{load}\n\n{markdown(COLUMNS, rows)}\n\n{growth}"


def _row(name: str, length: int, seconds: Seconds) -> tuple[str, ...]:
    unit = 1e9 * seconds.user / (length * np.log2(length))
    return name, f"{length:,}", f"{seconds.wall:.2f}", f"{seconds.user:.2f}", f"{unit:.1f}"


def _best(row: np.ndarray) -> Seconds:
    found = [timed(lru_curve, row)[1] for _ in range(ROUNDS)]
    return min(found, key=lambda seconds: seconds.wall)


def _command(path: Path) -> None:
    command = [sys.executable, "-m", "jaxperf", "embedding", "profile", str(path), "--json"]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def _plain_python(row: np.ndarray) -> tuple[str, ...]:
    hits, seconds = timed(_tree_hits, row.tolist())
    if (np.array(hits) != np.diff(lru_curve(row).hits_within)).any():
        raise SystemExit("the tree in plain Python counts other hits")
    return _row("tree in plain Python", len(row), seconds)


def _tree_hits(accesses: list[int]) -> list[int]:
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
