"""How a verb prints its result, shows how far it is, and writes its files."""

import argparse
import contextlib
import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path

from jaxperf.errors import OutputError


def print_result(arguments: argparse.Namespace, result, to_json, print_tables) -> None:
    if arguments.json:
        # A NaN is no JSON: what cannot be known is null by now.
        print(json.dumps(to_json(result), indent=2, allow_nan=False))
    else:
        from rich.console import Console

        print_tables(result, Console())


@contextlib.contextmanager
def stdout_kept_clean() -> Iterator[None]:
    """What libraries that are not Python write to standard output goes to standard error."""
    sys.stdout.flush()
    kept = os.dup(1)
    try:
        os.dup2(2, 1)
        yield
    finally:
        os.dup2(kept, 1)
        os.close(kept)


def say_written(arguments: argparse.Namespace, path: Path) -> None:
    if not arguments.quiet:
        print(f"Wrote {path}", file=sys.stderr)


def check_outputs(arguments: argparse.Namespace, *outputs: Path | None) -> None:
    """Refuse before the work what could not be written after it."""
    from jaxperf.report import check_new_file

    taken = {path.resolve(): "is also an input" for path in getattr(arguments, "paths", [])}
    for path in filter(None, outputs):
        if path.resolve() in taken:
            raise OutputError(taken[path.resolve()], where=str(path), remedy="name another file")
        taken[path.resolve()] = "is named for two results"
        check_new_file(path, arguments.overwrite)


@contextlib.contextmanager
def progress_bar(
    arguments: argparse.Namespace, doing: str = "Reading", what: str = "files"
) -> Iterator:
    """A bar on a terminal; yields what to call with what is done so far and all there is."""
    if arguments.quiet or not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeRemainingColumn,
    )

    columns = BarColumn(), MofNCompleteColumn(), TextColumn(what), TimeRemainingColumn()
    with Progress(TextColumn(doing), *columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(doing, total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)
