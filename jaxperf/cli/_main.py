"""The command line: from arguments to an exit code."""

import argparse
import os
import sys
import traceback
from collections.abc import Sequence
from typing import NoReturn

from jaxperf.cli._compiled import keep_compiled
from jaxperf.cli._embedding import add_embedding_verbs
from jaxperf.cli._energy import add_energy_verbs
from jaxperf.cli._runs import add_run_verbs
from jaxperf.cli._search import add_search_verb
from jaxperf.errors import JaxperfError

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
        keep_compiled()
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
    add_run_verbs(verbs)
    add_energy_verbs(verbs)
    add_embedding_verbs(verbs)
    add_search_verb(verbs)
    return parser
