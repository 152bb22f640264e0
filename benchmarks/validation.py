"""Replays every real and simulated set, and writes what came of it to docs/validation.md.

    python benchmarks/validation.py SHARED [--write docs/validation.md] [--only TEXT]

SHARED is the folder with `traces/` and `oracle/`. Four pieces are made: every rank replayed alone,
all ranks in one graph, the simulated jobs under changes whose answers are known, and the waits that
are inferred where the rows that tell them are removed. docs/validation.md says what the columns
mean.
"""

import argparse
import sys
import time
from pathlib import Path

import _alone
import _joined
import _what_if
from _tables import sets, write

from jaxperf.errors import JaxperfError
from jaxperf.graph import build_graph
from jaxperf.trace import read_run


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("shared", type=Path)
    parser.add_argument("--write", type=Path, help="put the tables between the marks of this file")
    parser.add_argument("--only", default="", help="sets whose name holds this text")
    arguments = parser.parse_args()
    alone: dict[str, list[_alone.Row]] = {}
    joined: dict[str, _joined.Row] = {}
    what_if: dict[str, list[_what_if.Answer]] = {}
    waits: dict[str, list[_joined.Waits]] = {}
    failed = 0
    for name, paths in sets(arguments.shared).items():
        if arguments.only not in name:
            continue
        begin = time.perf_counter()
        try:
            run = read_run(paths)
            alone[name] = [_alone.measure(trace) for trace in run.traces]
            waits[name] = [w for w in map(_joined.measure_waits, run.traces) if w]
            if len(run.traces) > 1:
                graph = build_graph(run)
                joined[name] = _joined.measure(run, graph)
                truth = paths[0] / "truth.json"
                if truth.exists():
                    what_if[name] = _what_if.measure(graph, truth)
        except JaxperfError as error:
            print(f"{name}: {error}", file=sys.stderr)
            failed += 1
            continue
        print(f"{name}: {time.perf_counter() - begin:.1f} s", file=sys.stderr, flush=True)
    texts = {
        "alone": _alone.table(alone),
        "joined": _joined.table(joined),
        "what-if": _what_if.table(what_if),
        "waits": _joined.waits_table(waits),
    }
    for mark, text in texts.items():
        print(f"{mark}\n\n{text}\n")
        if arguments.write:
            write(arguments.write, mark, text)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
