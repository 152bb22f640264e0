"""A script that makes a few tables of a page, each between marks of its own."""

import argparse
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

from _tables import write


def make_tables(what: str | None, tables: Mapping[str, Callable[[Path], str]]) -> int:
    """Print the tables that are asked for, and put them between the marks of a file.

    Args:
        what: says what the script does, in its first line.
        tables: by their marks, from the shared folder to the text.
    """
    parser = argparse.ArgumentParser(description=(what or "").splitlines()[0])
    parser.add_argument("shared", type=Path)
    parser.add_argument("--write", type=Path, help="put the tables between the marks of this file")
    parser.add_argument("--only", nargs="+", choices=list(tables), default=list(tables))
    arguments = parser.parse_args()
    for name in arguments.only:
        text = tables[name](arguments.shared)
        print(f"{name}\n\n{text}\n", flush=True)
        if arguments.write:
            write(arguments.write, name, text)
    return 0


def progress(line: object) -> None:
    """Tell whoever waits what was found, apart from the tables."""
    print(line, file=sys.stderr, flush=True)
