"""Energy against public logs and measurements, for docs/energy-validation.md.

    python benchmarks/energy.py SHARED [--only NAME ...] [--write docs/energy-validation.md]

SHARED is the folder with `power/`. Each section is a module `_energy_NAME` beside this one, whose
`table` gives it; `--write` puts it between the marks `energy_NAME` of the file.
"""

import argparse
import importlib
import sys
import time
from pathlib import Path

from _tables import write

SECTIONS = ("logs", "figures", "nodes", "defaults", "kernels", "caps", "fit", "limits", "clocks")


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("shared", type=Path)
    parser.add_argument("--only", nargs="+", choices=SECTIONS, default=SECTIONS)
    parser.add_argument(
        "--write", type=Path, help="put the sections between the marks of this file"
    )
    arguments = parser.parse_args()
    for name in arguments.only:
        begin = time.perf_counter()
        section = importlib.import_module(f"_energy_{name}").table(arguments.shared)
        print(f"{section}\n", flush=True)
        print(f"{name}: {time.perf_counter() - begin:.1f} s", file=sys.stderr, flush=True)
        if arguments.write:
            write(arguments.write, f"energy_{name}", section)
    return 0


if __name__ == "__main__":
    sys.exit(main())
