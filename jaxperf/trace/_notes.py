"""Gathering notes while a file is read: one per kind of fault, with a count and the first place."""

from dataclasses import dataclass

from jaxperf.trace._types import Note

# `{}` is the count; docs/notes.md lists the same codes with more words.
TEXTS = {
    "truncated": "the file ends before its time; events after this place are lost",
    "damaged-compression": "the compressed stream is damaged; what follows could not be read",
    "byte-order-mark": "a byte order mark before the text was skipped",
    "not-utf8": "{} events held bytes that are not UTF-8; they were replaced by a mark",
    "control-character": "{} raw control characters inside quoted text were kept as text",
    "lone-backslash": "{} texts held single backslashes; they were read as written",
    "inner-quote": "{} quotes inside quoted text were read as text",
    "empty-value": "{} empty values were read as absent",
    "not-a-number": "{} values such as NaN or Infinity were read as absent",
    "unreadable-value": "{} values could not be understood and were read as absent",
    "stray-comma": "{} superfluous commas were skipped",
    "missing-comma": "{} missing commas were supplied",
    "missing-bracket": "{} missing closing brackets were supplied",
    "stray-bracket": "{} superfluous closing brackets were skipped",
    "missing-quote": "{} texts without their closing quote were ended",
    "stray-text": "{} pieces of text between events were skipped",
    "text-after-end": "text after the end of the document was ignored",
    "event-dropped": "{} events could not be mended and were left out",
    "missing-time": "{} events without a usable start time were left out",
    "missing-duration": "{} events without a usable duration were read as having none",
    "negative-duration": "{} negative durations were read as 0",
    "unpaired-begin-end": "{} begin or end events had no partner and were left out",
    "ranks-in-one-file": "the file holds several ranks merged into one; they were taken apart",
    "jax-events-capped": "the profile holds {} events, as many as JAX writes: later ones are lost "
    "(TF_PROFILER_TRACE_VIEWER_MAX_EVENTS raises the limit)",
    "table-missing": "tables of the export are missing",
    "graphs-as-one": "{} launches of CUDA graphs are one piece of work each: their kernels were "
    "not captured (nsys profile --cuda-graph-trace=node captures them)",
    "event-records-missing": "{} waits of streams do not say for what: events were not captured; "
    "the order of the calls tells",
    "processes-left-out": "{} processes without device work were left out",
    "steps-from-ranges": "ranges with a number in their name are taken as the steps",
    "rank-from-name": "no rank in the file; taken from its name",
    "rank-assumed": "no rank in the file or its name; taken as rank 0",
    "rank-differs-from-name": "the rank inside the file differs from its name; the one inside wins",
}


@dataclass
class _Entry:
    count: int
    where: str | None
    text: str


class NoteBook:
    """Notes of one file, counted per code.

    Args:
        file: the file they are about.
    """

    def __init__(self, file: str):
        self._file = file
        self._entries: dict[str, _Entry] = {}

    def add(self, code: str, place: str | None = None, count: int = 1, text: str = "") -> None:
        """Count faults of the kind `code`; `place` says where in the file."""
        entry = self._entries.get(code)
        if entry is None:
            where = f"{self._file}, {place}" if place else self._file
            self._entries[code] = _Entry(count, where, text or TEXTS[code])
        else:
            entry.count += count

    def __contains__(self, code: str) -> bool:
        return code in self._entries

    def notes(self) -> tuple[Note, ...]:
        """The notes so far, in order of first appearance."""
        return tuple(
            Note(code, entry.text.format(entry.count), entry.where)
            for code, entry in self._entries.items()
        )
