"""Every error a user can cause or mend.

    JaxperfError
    |- TraceError      a trace file or a folder of traces cannot be used
    |- GraphError      a trace was read, but no execution graph follows from it
    |- ProgramError    arrays that describe no valid program (cycle, index out of range)
    |- ConfigError     a TOML file or a value on the command line
    |- LogError        a log of power or of accesses cannot be used
    |- OutputError     a result cannot be written where it was asked for

The command line prints the message alone and ends with exit code 2.
"""

_LONGEST = 500


class JaxperfError(Exception):
    """Something the user can mend: one line that says what, where, and what to do.

    Args:
        what: the fault, in a few words.
        where: the file, event, key or argument at fault.
        got: what was found there.
        expected: what would have been right.
        remedy: what to do about it.

    Example:
        >>> print(JaxperfError("no events", where="a.json", expected="a profiler trace"))
        a.json: no events; expected a profiler trace
    """

    def __init__(
        self,
        what: str,
        *,
        where: str | None = None,
        got: str | None = None,
        expected: str | None = None,
        remedy: str | None = None,
    ):
        self.what = what
        self.where = where
        self.got = got
        self.expected = expected
        self.remedy = remedy
        super().__init__(self._message())

    def _message(self) -> str:
        what = _on_one_line(self.what)
        parts = [f"{_on_one_line(self.where)}: {what}" if self.where else what]
        if self.got:
            parts.append(f"got {_on_one_line(self.got)}")
        if self.expected:
            parts.append(f"expected {_on_one_line(self.expected)}")
        if self.remedy:
            parts.append(_on_one_line(self.remedy))
        return "; ".join(parts)

    def __reduce__(self):
        # Errors cross process boundaries when ranks are read in parallel.
        return (
            _rebuild,
            (type(self), self.what, self.where, self.got, self.expected, self.remedy),
        )


def _on_one_line(text: str) -> str:
    """Text of which a part may be a user's: without line breaks, and no longer than a screen."""
    text = str(text)
    if len(text) > _LONGEST:
        text = f"{text[:_LONGEST]}.."
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else repr(char)[1:-1] for char in text)


def _rebuild(kind, what, where, got, expected, remedy) -> JaxperfError:
    return kind(what, where=where, got=got, expected=expected, remedy=remedy)


class TraceError(JaxperfError):
    """A trace file or a folder of traces cannot be used."""


class GraphError(JaxperfError):
    """A trace was read, but no execution graph follows from it."""


class ProgramError(JaxperfError):
    """Arrays that describe no valid program: a cycle, or an index out of range."""


class ConfigError(JaxperfError):
    """A configuration file, or a value on the command line, is not valid."""


class LogError(JaxperfError):
    """A log of power, of a benchmark, or of accesses cannot be used."""


class OutputError(JaxperfError):
    """A result cannot be written where it was asked for."""
