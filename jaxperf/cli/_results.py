"""How a verb writes its files, prints its result, and shows how far it is."""

import argparse
import contextlib
import json
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from jaxperf._files import check_new_file
from jaxperf.cli._streams import HeldText, say, write_stdout
from jaxperf.errors import JaxperfError, OutputError

_File = tuple[Callable[..., None], Path | None]


def print_result(
    arguments: argparse.Namespace, result: Any, to_json, print_tables, *files: _File
) -> None:
    """Write the files that were asked for, then print: whoever reads may leave at any time.

    Each is worth having without the others, so that a file that cannot be written ends nothing.

    Args:
        arguments: of the verb.
        result: what it found.
        to_json: makes plain values of it.
        print_tables: prints it on a console.
        files: what writes one, called with the result, its path and `overwrite`; and the path.

    Raises:
        JaxperfError: of the first file that could not be written.
    """
    faults: list[JaxperfError] = []
    for write, path in files:
        if path is not None:
            try:
                write(result, path, overwrite=arguments.overwrite)
            except JaxperfError as fault:
                faults.append(fault)
            else:
                if not arguments.quiet:
                    say(f"Wrote {path}")
    try:
        _print(arguments, result, to_json, print_tables)
    finally:
        for fault in faults:
            raise fault


def _print(arguments: argparse.Namespace, result: Any, to_json, print_tables) -> None:
    if arguments.json:
        # A NaN is no JSON: what cannot be known is null by now.
        text = json.dumps(to_json(result), indent=2, allow_nan=False) + "\n"
    else:
        from rich.console import Console

        held = HeldText()
        print_tables(result, Console(file=held, emoji=False))
        text = held.getvalue()
    write_stdout(text)


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


def check_outputs(arguments: argparse.Namespace, *outputs: Path | None) -> None:
    """Refuse before the work what could not be written after it."""
    given = [each for each in _named(arguments) if not any(each is path for path in outputs)]
    taken = {os.path.realpath(each): "is also an input" for each in given if os.path.isfile(each)}
    for path in filter(None, outputs):
        place = os.path.realpath(path)
        if place in taken:
            raise OutputError(taken[place], where=str(path), remedy="name another file")
        taken[place] = "is named for two results"
        check_new_file(path, arguments.overwrite)


def check_inputs(arguments: argparse.Namespace) -> None:
    """Refuse what reading could wait for without end."""
    for each in _named(arguments):
        if os.path.exists(each) and not os.path.isfile(each) and not os.path.isdir(each):
            raise OutputError(
                "is a device or a pipe", where=str(each), expected="the name of a file or folder"
            )


def _named(arguments: argparse.Namespace) -> Iterator[str | Path]:
    """All words of a command that may be names of files."""
    for value in vars(arguments).values():
        for each in value if isinstance(value, list) else [value]:
            if isinstance(each, str | Path):
                yield each


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
