"""The command line: from arguments to an exit code."""

import argparse
import contextlib
import errno
import os
import signal
import sys
import threading
import traceback
from collections.abc import Iterator, Sequence
from types import FrameType
from typing import NoReturn

from jaxperf.cli._compiled import keep_compiled
from jaxperf.cli._embedding import add_embedding_verbs
from jaxperf.cli._energy import add_energy_verbs
from jaxperf.cli._results import check_inputs
from jaxperf.cli._runs import add_run_verbs
from jaxperf.cli._search import add_search_verb
from jaxperf.cli._streams import one_line, say, write_stdout
from jaxperf.errors import JaxperfError

DONE = 0
BUG = 1
USER_CAN_MEND = 2
# As a shell reports a program that was ended by a signal: 128 and its number.
_SIGNALLED = 128
INTERRUPTED = 130
PIPE_CLOSED = 141

# What a machine has too little of, or a disk that fails: errors that name no file.
_NOT_OURS = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EMFILE, errno.ENFILE}
_NOT_OURS |= {errno.ENOMEM, errno.EAGAIN, errno.EROFS, errno.ESTALE}


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
    if sys.stderr is None:
        # Else the next file that is opened would get its number, and what libraries write there.
        sys.stderr = open(os.devnull, "w")  # noqa: SIM115
    if sys.stdout is None:
        return _complain("standard output: is closed")
    try:
        with _signals_unwind():
            code = _run(argv)
            write_stdout()  # what --help and --version have printed
            return code
    except SystemExit as stop:  # a signal
        return int(stop.code or DONE)
    except JaxperfError as error:
        return _complain(str(error))
    except MemoryError:
        return _complain("not enough memory; use a machine with more, or fewer ranks at a time")
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:
        return PIPE_CLOSED
    except OSError as error:
        if error.filename is None and error.errno not in _NOT_OURS:
            return _confess()
        where = "" if error.filename is None else f"{os.fsdecode(error.filename)}: "
        return _complain(f"{where}{error.strerror or error}")
    except Exception:
        return _confess()


def _run(argv: Sequence[str] | None) -> int:
    try:
        keep_compiled()
        arguments = _parser().parse_args(argv)
    except SystemExit as stop:  # after --help, --version, or a mistake
        return int(stop.code or DONE)
    check_inputs(arguments)
    arguments.verb(arguments)
    return DONE


@contextlib.contextmanager
def _signals_unwind() -> Iterator[None]:
    """A signal to end does so as an interrupt does: no half file stays, and no child."""

    def end(number: int, frame: FrameType | None) -> NoReturn:
        raise SystemExit(_SIGNALLED + number)

    # Handlers are those of the main thread; what nohup or a caller has set stays.
    is_main = threading.current_thread() is threading.main_thread()
    ours = [
        number
        for number in (signal.SIGTERM, signal.SIGHUP)
        if is_main and signal.getsignal(number) is signal.SIG_DFL
    ]
    for number in ours:
        signal.signal(number, end)
    try:
        yield
    finally:
        for number in ours:
            signal.signal(number, signal.SIG_DFL)


def _complain(message: str) -> int:
    say(f"jaxperf: {message}")
    return USER_CAN_MEND


def _confess() -> int:
    with contextlib.suppress(OSError):
        traceback.print_exc()
    say("jaxperf: this is a bug; please report it with the lines above")
    return BUG


class _Parser(argparse.ArgumentParser):
    """Says what is wrong in one line, without the usage before it."""

    def error(self, message: str) -> NoReturn:
        self.exit(USER_CAN_MEND, one_line(f"{self.prog}: {message}; see {self.prog} --help") + "\n")


class _Version(argparse.Action):
    def __call__(self, parser, namespace, values, option_string=None):
        from importlib.metadata import version

        write_stdout(f"jaxperf {version('jaxperf')}\n")
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
