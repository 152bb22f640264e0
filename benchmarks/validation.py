"""Replays every real and simulated set, and writes what came of it to docs/validation.md.

    uv run --group bench python benchmarks/validation.py SHARED --write docs/validation.md

SHARED is the folder with `traces/`, `oracle/` and `groundtruth/`. Each set gives every rank
replayed alone, all ranks in one graph, the simulated jobs under changes whose answers are known,
the waits that are inferred where the rows that tell them are removed, and what slows down beside
communication. More tables are of pairs of machines, of intervals, of the goals of the cost models,
and of HTA, which the group `bench` brings; where it is missing its table is left as it is.
docs/validation.md says what the columns mean.
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
import costs
import hta
from _script import progress
from _tables import sets, write

from jaxperf.errors import JaxperfError
from jaxperf.graph import build_graph
from jaxperf.replay import ClassSlowdown
from jaxperf.trace import read_run

TABLES = ("sets", "machines", "intervals", "goals", "hta")


@dataclass
class Found:
    """What the sets gave, by their names."""

    alone: dict[str, list[_alone.Row]] = field(default_factory=dict)
    joined: dict[str, _joined.Row] = field(default_factory=dict)
    what_if: dict[str, list[_what_if.Answer]] = field(default_factory=dict)
    waits: dict[str, list[_joined.Waits]] = field(default_factory=dict)
    contention: dict[str, tuple[ClassSlowdown, ...]] = field(default_factory=dict)
    failed: int = 0

    def texts(self) -> dict[str, str]:
        """The tables, by their marks."""
        return {
            "alone": _alone.table(self.alone),
            "joined": _joined.table(self.joined),
            "what-if": _what_if.table(self.what_if),
            "waits": _joined.waits_table(self.waits),
            "contention": _contention.table(self.contention),
        }


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("shared", type=Path)
    parser.add_argument("--write", type=Path, help="put the tables between the marks of this file")
    parser.add_argument("--only", default="", help="sets whose name holds this text")
    parser.add_argument("--tables", nargs="+", choices=TABLES, default=TABLES)
    parser.add_argument("--hta-python", default=sys.executable, help=hta.PYTHON_HELP)
    arguments = parser.parse_args()
    failed = 0
    for each in arguments.tables:
        begin = time.perf_counter()
        if each == "sets":
            found = _of_sets(arguments.shared, arguments.only)
            failed, texts = found.failed, found.texts()
        else:
            texts = _OTHERS[each](arguments.shared, arguments.hta_python)
        for mark, text in texts.items():
            print(f"{mark}\n\n{text}\n", flush=True)
            if arguments.write:
                write(arguments.write, mark, text)
        progress(f"{each}: {time.perf_counter() - begin:.0f} s")
    return 1 if failed else 0


def _machine_texts(shared: Path, _: str) -> dict[str, str]:
    rows = _machines.measure(shared)
    return {
        "machines": _machines.steps_table(rows),
        "machine classes": _machines.classes_table(rows),
    }


def _interval_texts(*_: object) -> dict[str, str]:
    return {"intervals": _intervals.table(_intervals.measure())}


def _goal_texts(shared: Path, _: str) -> dict[str, str]:
    return {"goals": costs.goals_table(shared)}


def _hta_texts(shared: Path, python: str) -> dict[str, str]:
    return {"hta": hta.paths_table(shared, python)} if hta.has_hta(python) else {}


_OTHERS = {
    "machines": _machine_texts,
    "intervals": _interval_texts,
    "goals": _goal_texts,
    "hta": _hta_texts,
}


def _of_sets(shared: Path, only: str) -> Found:
    found = Found()
    for name, paths in sets(shared).items():
        if only not in name:
            continue
        begin = time.perf_counter()
        try:
            _measure(found, name, paths)
        except JaxperfError as error:
            progress(f"{name}: {error}")
            found.failed += 1
            continue
        progress(f"{name}: {time.perf_counter() - begin:.1f} s")
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
