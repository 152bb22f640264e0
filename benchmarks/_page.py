"""A page of validation made by one command, section by section."""

import argparse
import importlib
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from _tables import write


def make_page(what: str | None, name: str, sections: Sequence[str]) -> int:
    """Print the sections that are asked for, and put them between the marks of a file.

    The section `each` is what `table` of the module `_NAME_each` gives for the shared folder; its
    marks are `NAME_each`.

    Args:
        what: says what the command does, in its first line.
        name: of the page.
        sections: that there are, in their order.
    """
    parser = argparse.ArgumentParser(description=(what or "").splitlines()[0])
    parser.add_argument("shared", type=Path)
    parser.add_argument("--only", nargs="+", choices=sections, default=sections)
    parser.add_argument(
        "--write", type=Path, help="put the sections between the marks of this file"
    )
    arguments = parser.parse_args()
    for each in arguments.only:
        begin = time.perf_counter()
        section = importlib.import_module(f"_{name}_{each}").table(arguments.shared)
        print(f"{section}\n", flush=True)
        print(f"{each}: {time.perf_counter() - begin:.1f} s", file=sys.stderr, flush=True)
        if arguments.write:
            write(arguments.write, f"{name}_{each}", section)
    return 0
