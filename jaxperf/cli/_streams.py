"""Standard output and standard error, whatever they are connected to."""

import contextlib
import io
import os
import sys

from jaxperf.errors import OutputError

# For an encoding without them; each as wide as what it stands for.
_PLAIN = str.maketrans("µ–’…·×█▉▊▋▌▍▎▏", "u-'~.x########")


class HeldText(io.StringIO):
    """Text on its way to standard output, made for what that is connected to."""

    @property
    def encoding(self) -> str:
        return sys.stdout.encoding or "utf-8"

    def isatty(self) -> bool:
        return sys.stdout.isatty()


def write_stdout(text: str = "") -> None:
    """Write text, and all that was written before; what the encoding cannot say is escaped.

    Raises:
        OutputError: it cannot be written.
        BrokenPipeError: whoever read it has left.
    """
    encoding = sys.stdout.encoding or "utf-8"
    try:
        "µ█".encode(encoding)
    except UnicodeEncodeError:
        text = text.translate(_PLAIN)
    try:
        sys.stdout.write(text.encode(encoding, "backslashreplace").decode(encoding))
        sys.stdout.flush()
    except OSError as error:
        # What is still buffered would raise once more when Python flushes it at exit.
        with contextlib.suppress(OSError, ValueError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        if isinstance(error, BrokenPipeError):
            raise
        got = error.strerror or str(error)
        raise OutputError("cannot be written", where="standard output", got=got) from None


def say(message: str) -> None:
    """One line on standard error, without anything that would steer a terminal."""
    # Whether it can be read is no reason to end: what it says is also told by the exit code.
    with contextlib.suppress(OSError):
        print(one_line(message), file=sys.stderr, flush=True)


def one_line(message: str) -> str:
    """A message as one line of printable characters; file names may hold anything."""
    return "".join(
        each if each.isprintable() else each.encode("unicode_escape").decode()
        for each in " ".join(message.split())
    )
