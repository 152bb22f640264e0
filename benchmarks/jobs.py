"""Estimates of jobs against public measurements, for docs/jobs-validation.md.

    python benchmarks/jobs.py SHARED [--only NAME ...] [--write docs/jobs-validation.md]

SHARED is the folder with `groundtruth/`. Each set of measurements is a module `_jobs_NAME` beside
this one, whose `table` gives its section.
"""

import argparse
import importlib
import sys
import time
from importlib.util import find_spec
from pathlib import Path

from _tables import write

SETS = ("oracle", "batch", "vtrain", "simumax", "mosaic", "dgxc", "mlperf", "primus")


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("shared", type=Path)
    parser.add_argument("--only", nargs="+", choices=SETS, default=SETS)
    parser.add_argument(
        "--write", type=Path, help="put the sections between the marks of this file"
    )
    arguments = parser.parse_args()
    for name in arguments.only:
        if find_spec(f"_jobs_{name}") is None:
            print(f"{name}: no module _jobs_{name}", file=sys.stderr)
            continue
        begin = time.perf_counter()
        section = importlib.import_module(f"_jobs_{name}").table(arguments.shared)
        print(f"{section}\n", flush=True)
        print(f"{name}: {time.perf_counter() - begin:.1f} s", file=sys.stderr, flush=True)
        if arguments.write:
            write(arguments.write, name, section)
    return 0


if __name__ == "__main__":
    sys.exit(main())
