"""What the tables of the documentation have in common: the sets, and how a table is written."""

import json
import math
from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np


def sets(shared: Path) -> dict[str, list[Path]]:
    """Every set of traces: its name and paths."""
    listed = json.loads((shared / "traces" / "sets.json").read_text())
    real = {name: [shared / "traces" / path for path in paths] for name, paths in listed.items()}
    simulated = sorted((shared / "oracle").iterdir())
    return real | {f"oracle/{path.name}": [path] for path in simulated if path.is_dir()}


def markdown(columns: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """A table whose first column is text and whose others are numbers."""
    lines = [columns, ["---", *["--:"] * (len(columns) - 1)], *rows]
    return "\n".join(f"| {' | '.join(map(str, cells))} |" for cells in lines)


def number(value: float, digits: int = 2) -> str:
    """A number; `-` where there is none."""
    # Adding zero takes the sign off a negative zero.
    return "-" if math.isnan(value) else f"{round(value, digits) + 0.0:.{digits}f}"


def mean(values: Iterable[float]) -> float:
    """The mean of the values that are known; NaN where none is."""
    known = [value for value in values if not math.isnan(value)]
    return float(np.mean(known)) if known else math.nan


def largest(values: Iterable[float]) -> float:
    """The largest of the values that are known; NaN where none is."""
    return max((value for value in values if not math.isnan(value)), default=math.nan)


def write(path: Path, name: str, text: str) -> None:
    """Replace what stands between the marks of a name."""
    begin, end = f"<!-- {name}: begin -->", f"<!-- {name}: end -->"
    before, first, rest = path.read_text().partition(begin)
    _, last, after = rest.partition(end)
    if not (first and last):
        raise SystemExit(f"{path}: no lines {begin} and {end}")
    path.write_text(f"{before}{begin}\n{text}\n{end}{after}")
