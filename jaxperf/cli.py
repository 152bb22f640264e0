"""The command line: each verb parses, calls the public function of its name, and prints.

What computes is imported inside the verbs, so that `--help` and `--version` answer at once.
"""

import argparse
import contextlib
import json
import os
import sys
import traceback
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NoReturn

from jaxperf.errors import JaxperfError, OutputError

DONE = 0
BUG = 1
USER_CAN_MEND = 2
# As a shell reports a program that was ended by the signal: 128 and its number.
INTERRUPTED = 130
PIPE_CLOSED = 141


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line.

    Args:
        argv: the arguments without the program's name; those of the process by default.

    Returns:
        The exit code: 0 done, 2 the user can mend it, 1 a bug of jaxperf.

    Example:
        >>> main(["inspect", "--json"])
        2
    """
    try:
        arguments = _parser().parse_args(argv)
        arguments.verb(arguments)
        sys.stdout.flush()
        return DONE
    except SystemExit as stop:  # argparse, after --help, --version, or a mistake
        return int(stop.code or DONE)
    except JaxperfError as error:
        return _complain(str(error))
    except MemoryError:
        return _complain("not enough memory; use a machine with more, or fewer ranks at a time")
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:
        # What is still buffered would raise once more when Python flushes it at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return PIPE_CLOSED
    except Exception:
        traceback.print_exc()
        print("jaxperf: this is a bug; please report it with the lines above", file=sys.stderr)
        return BUG


def _complain(message: str) -> int:
    # A file name or a text quoted from a file may hold a line feed; the message is one line.
    print("jaxperf: " + " ".join(message.split()), file=sys.stderr)
    return USER_CAN_MEND


# ---------------------------------------------------------------------------------------
# Verbs


def _demo(arguments: argparse.Namespace) -> None:
    from jaxperf.demonstration import demo, demo_to_json, print_demo

    with _progress(arguments) as progress:
        result = demo(arguments.output, overwrite=arguments.overwrite, progress=progress)
    _print(arguments, result, demo_to_json, print_demo)


def _inspect(arguments: argparse.Namespace) -> None:
    from jaxperf.inspection import inspect
    from jaxperf.report import inspection_to_json, print_inspection

    with _progress(arguments) as progress:
        result = inspect(arguments.paths, progress=progress)
    _print(arguments, result, inspection_to_json, print_inspection)


def _replay(arguments: argparse.Namespace) -> None:
    _check_outputs(arguments)
    import jaxperf
    from jaxperf.report import print_replay, replay_to_json, write_report, write_trace

    with _progress(arguments) as progress:
        result = jaxperf.replay(
            arguments.paths,
            step=arguments.step,
            hold_out=arguments.hold_out,
            baseline=arguments.baseline,
            progress=progress,
        )
    _print(arguments, result, replay_to_json, print_replay)
    for write, path in ((write_report, arguments.report), (write_trace, arguments.trace_out)):
        if path:
            write(result, path, overwrite=arguments.overwrite)
            if not arguments.quiet:
                print(f"Wrote {path}", file=sys.stderr)


def _print(arguments: argparse.Namespace, result, to_json, print_tables) -> None:
    if arguments.json:
        # A NaN is no JSON: what cannot be known is null by now.
        print(json.dumps(to_json(result), indent=2, allow_nan=False))
    else:
        from rich.console import Console

        print_tables(result, Console())


def _check_outputs(arguments: argparse.Namespace) -> None:
    """Refuse before the work what could not be written after it."""
    from jaxperf.report import check_new_file

    taken = {path.resolve(): "is also an input" for path in arguments.paths}
    for path in filter(None, (arguments.report, arguments.trace_out)):
        if path.resolve() in taken:
            raise OutputError(taken[path.resolve()], where=str(path), remedy="name another file")
        taken[path.resolve()] = "is named for two results"
        check_new_file(path, arguments.overwrite)


@contextlib.contextmanager
def _progress(arguments: argparse.Namespace) -> Iterator:
    """A bar on a terminal; yields what to call with the ranks read so far and all of them."""
    if arguments.quiet or not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

    columns = TextColumn("Reading"), BarColumn(), MofNCompleteColumn(), TextColumn("files")
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("read", total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)


# ---------------------------------------------------------------------------------------
# Arguments


class _Parser(argparse.ArgumentParser):
    """Says what is wrong in one line, without the usage before it."""

    def error(self, message: str) -> NoReturn:
        self.exit(USER_CAN_MEND, f"{self.prog}: {message}; see {self.prog} --help\n")


class _Version(argparse.Action):
    def __call__(self, parser, namespace, values, option_string=None):
        from importlib.metadata import version

        print(f"jaxperf {version('jaxperf')}")
        parser.exit()


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(
        prog="jaxperf",
        description="Replay training runs from their traces, and see where the time goes.",
        epilog="Exit codes: 0 done; 2 you can mend it, one line says how; 1 a bug of jaxperf.",
    )
    parser.add_argument("--version", action=_Version, nargs=0, help="print the version and exit")
    verbs = parser.add_subparsers(title="verbs", metavar="VERB", required=True)

    demo = _add_verb(verbs, "demo", _demo, "replay a trace that jaxperf makes itself")
    demo.add_argument(
        "--output",
        type=Path,
        metavar="FOLDER",
        help="where to write (default: jaxperf-demo here, with a number behind it if it exists)",
    )
    _add_overwrite(demo, "write over an earlier demo in FOLDER")

    inspect = _add_verb(verbs, "inspect", _inspect, "say what is in traces")
    _add_paths(inspect)

    replay = _add_verb(verbs, "replay", _replay, "replay traces and compare with the measured run")
    _add_paths(replay)
    replay.add_argument(
        "--step",
        type=_step,
        metavar="NAME|INDEX",
        help="replay one step: its name, or its place (0 the first, -1 the last)",
    )
    replay.add_argument(
        "--hold-out",
        action="store_true",
        help="also replay each step with durations taken from the other steps",
    )
    replay.add_argument(
        "--baseline",
        choices=["dpro"],
        help="leave out the dependencies between streams, as earlier replayers did",
    )
    replay.add_argument(
        "--report", type=Path, metavar="FILE.html", help="write a page to look at the result"
    )
    replay.add_argument(
        "--trace-out",
        type=Path,
        metavar="FILE.json.gz",
        help="write the replayed timeline for ui.perfetto.dev or chrome://tracing",
    )
    _add_overwrite(replay, "write over existing files")
    return parser


def _add_verb(verbs, name: str, call, summary: str) -> argparse.ArgumentParser:
    parser = verbs.add_parser(name, help=summary, description=f"{summary[0].upper()}{summary[1:]}.")
    parser.set_defaults(verb=call)
    parser.add_argument("--json", action="store_true", help="print the result as one JSON object")
    parser.add_argument("--quiet", action="store_true", help="show no progress bar")
    return parser


def _add_paths(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "paths",
        nargs="+",
        type=Path,
        metavar="PATH",
        help="a trace file, or a folder with the traces of one run",
    )


def _add_overwrite(parser: argparse.ArgumentParser, text: str) -> None:
    parser.add_argument("--overwrite", action="store_true", help=text)


def _step(text: str) -> str | int:
    try:
        return int(text)
    except ValueError:
        return text
