"""Every table of docs/performance.md, each by a script that runs in a process of its own.

    uv run --group bench python benchmarks/performance.py SHARED --write docs/performance.md

A script is found here by its name; each can be run alone. HTA comes with the group `bench`, and its
table is left out where it is not there. Leave the machine alone meanwhile.
"""

import argparse
import os
import platform
import subprocess
import sys
import time
from importlib.metadata import version
from pathlib import Path

import hta
from _script import progress
from _tables import markdown, write

HERE = Path(__file__).parent
SCRIPTS = (
    "reading",
    "ingest",
    "graph",
    "ranks",
    "engine",
    "what_if",
    "jobs_speed",
    "scale",
    "hta",
)


COLUMNS = ("script", "load when it began", "s")


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("shared", type=Path)
    parser.add_argument("--write", type=Path, help="put the tables between the marks of this file")
    parser.add_argument("--only", nargs="+", choices=SCRIPTS, default=SCRIPTS)
    parser.add_argument("--hta-python", default=sys.executable, help=hta.PYTHON_HELP)
    arguments = parser.parse_args()
    lines = []
    for name in arguments.only:
        words = ["--write", arguments.write] if arguments.write else []
        if name == "hta":
            if not hta.has_hta(arguments.hta_python):
                lines.append(["`hta.py`, left out", "", ""])
                continue
            words += ["--only", "hta load", "--hta-python", arguments.hta_python]
        load, begin = os.getloadavg()[0], time.perf_counter()
        subprocess.run([sys.executable, HERE / f"{name}.py", arguments.shared, *words], check=True)
        lines.append([f"`{name}.py`", f"{load:.1f}", f"{time.perf_counter() - begin:.0f}"])
        progress(lines[-1])
    # A part of the scripts says nothing of when the others ran.
    if arguments.write and len(lines) == len(SCRIPTS):
        write(arguments.write, "machine", f"{machine()}\n\n{markdown(COLUMNS, lines)}")
    return 0


def machine() -> str:
    """A sentence on what the figures were taken with."""
    packages = ", ".join(f"{name} {version(name)}" for name in ("jax", "numpy", "msgspec"))
    where = f"{os.cpu_count()} cores ({platform.machine()}, {platform.system()})"
    return f"{where}, Python {platform.python_version()}, {packages}."


if __name__ == "__main__":
    sys.exit(main())
