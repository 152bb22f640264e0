"""Power models against public measurements, for docs/energy-validation.md.

    python benchmarks/energy_power_models.py SHARED [--only NAME ...] [--write FILE]

SHARED is the folder with `power/`. Each set of measurements is a module `_power_NAME` beside this
one, whose `table` gives its section; `--write` puts it between the marks `power_NAME` of the file.
"""

import argparse
import importlib
import sys
import time
from pathlib import Path

from _tables import write

SETS = ("nodes", "kernels", "caps")


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("shared", type=Path)
    parser.add_argument("--only", nargs="+", choices=SETS, default=SETS)
    parser.add_argument(
        "--write", type=Path, help="put the sections between the marks of this file"
    )
    arguments = parser.parse_args()
    for name in arguments.only:
        begin = time.perf_counter()
        section = importlib.import_module(f"_power_{name}").table(arguments.shared)
        print(f"{section}\n", flush=True)
        print(f"{name}: {time.perf_counter() - begin:.1f} s", file=sys.stderr, flush=True)
        if arguments.write:
            write(arguments.write, f"power_{name}", section)
    return 0


if __name__ == "__main__":
    sys.exit(main())
