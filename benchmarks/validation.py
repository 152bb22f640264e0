"""Replays every real and simulated set, and writes what came of it to docs/validation.md.

    python benchmarks/validation.py SHARED [--write docs/validation.md] [--only TEXT] [--tables ...]

SHARED is the folder with `traces/` and `oracle/`. Each set gives every rank replayed alone, all
ranks in one graph, the simulated jobs under changes whose answers are known, the waits that are
inferred where the rows that tell them are removed, and what slows down beside communication. Two
tables more are of pairs of machines, and of intervals. docs/validation.md says what the columns
mean.
"""

import argparse
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path

import _alone
import _contention
import _intervals
import _joined
import _machines
import _what_if
from _tables import sets, write

from jaxperf.errors import JaxperfError
from jaxperf.graph import build_graph
from jaxperf.replay import ClassSlowdown
from jaxperf.trace import read_run

TABLES = ("sets", "machines", "intervals")


@dataclass
class Found:
    """What the sets gave, by their names."""

    alone: dict[str, list[_alone.Row]] = field(default_factory=dict)
    joined: dict[str, _joined.Row] = field(default_factory=dict)
    what_if: dict[str, list[_what_if.Answer]] = field(default_factory=dict)
    waits: dict[str, list[_joined.Waits]] = field(default_factory=dict)
    contention: dict[str, tuple[ClassSlowdown, ...]] = field(default_factory=dict)
    failed: int = 0


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("shared", type=Path)
    parser.add_argument("--write", type=Path, help="put the tables between the marks of this file")
    parser.add_argument("--only", default="", help="sets whose name holds this text")
    parser.add_argument("--tables", nargs="+", choices=TABLES, default=TABLES)
    arguments = parser.parse_args()
    texts, failed = {}, 0
    if "sets" in arguments.tables:
        found = _of_sets(arguments.shared, arguments.only)
        failed = found.failed
        texts |= {
            "alone": _alone.table(found.alone),
            "joined": _joined.table(found.joined),
            "what-if": _what_if.table(found.what_if),
            "waits": _joined.waits_table(found.waits),
            "contention": _contention.table(found.contention),
        }
    if "machines" in arguments.tables:
        rows = _machines.measure(arguments.shared)
        texts["machines"] = _machines.steps_table(rows)
        texts["machine classes"] = _machines.classes_table(rows)
    if "intervals" in arguments.tables:
        texts["intervals"] = _intervals.table(_intervals.measure())
    for mark, text in texts.items():
        print(f"{mark}\n\n{text}\n")
        if arguments.write:
            write(arguments.write, mark, text)
    return 1 if failed else 0


def _of_sets(shared: Path, only: str) -> Found:
    found = Found()
    for name, paths in sets(shared).items():
        if only not in name:
            continue
        begin = time.perf_counter()
        try:
            _measure(found, name, paths)
        except JaxperfError as error:
            print(f"{name}: {error}", file=sys.stderr)
            found.failed += 1
            continue
        print(f"{name}: {time.perf_counter() - begin:.1f} s", file=sys.stderr, flush=True)
    return found


def _measure(found: Found, name: str, paths: list[Path]) -> None:
    run = read_run(paths)
    found.alone[name] = [_alone.measure(trace) for trace in run.traces]
    found.waits[name] = [w for w in map(_joined.measure_waits, run.traces) if w]
    graph = build_graph(run)
    found.contention[name] = _contention.measure(run, graph)
    if len(run.traces) > 1:
        found.joined[name] = _joined.measure(run, graph)
        truth = paths[0] / "truth.json"
        if truth.exists():
            found.what_if[name] = _what_if.measure(run, graph, truth)


if __name__ == "__main__":
    sys.exit(main())
