"""Ranks of files that hold none, from the order of their names."""

import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from jaxperf.trace._types import Note, Trace

NSIGHT = "Nsight Systems"
"""`Trace.metadata["profiler"]` of such an export."""

_GUESSED = ("rank-assumed", "ranks-in-one-file")
_NUMBER = re.compile(r"\d+")


def with_rank(trace: Trace, rank: int) -> Trace:
    """The trace as that of another rank, without the notes on how its rank was found."""
    about_rank = ("rank-assumed", "rank-from-name", "rank-differs-from-name")
    notes = tuple(note for note in trace.notes if note.code not in about_rank)
    return replace(trace, rank=rank, notes=notes)


def number_exports(traces: Sequence[Trace], notes: list[Note]) -> list[Trace]:
    """Tell apart the ranks of several exports of Nsight Systems, which hold none.

    Names that differ in one number from 0 on, such as `report_0.sqlite` and `report_1.sqlite`, tell
    the ranks of files of one process each. Files of several processes follow each other in order of
    that number.

    Args:
        traces: of a run.
        notes: of the run.

    Returns:
        The traces, in the order they came in; unchanged where the names do not tell.
    """
    guessed = [
        trace
        for trace in traces
        if trace.metadata.get("profiler") == NSIGHT
        and any(note.code in _GUESSED for note in trace.notes)
    ]
    by_file: dict[str, list[Trace]] = {}
    for trace in guessed:
        by_file.setdefault(trace.files[0], []).append(trace)
    if len({trace.rank for trace in guessed}) == len(guessed):
        return list(traces)
    numbers = _numbers(list(by_file))
    if numbers is None:
        return list(traces)
    ranks: dict[int, int] = {}
    one_each = len(by_file) == len(guessed)
    for file in sorted(by_file, key=lambda file: numbers[file]):
        for trace in by_file[file]:
            ranks[id(trace)] = numbers[file] if one_each else len(ranks)
    notes.append(Note("ranks-from-order", "ranks follow from the numbers in the files' names"))
    return [with_rank(t, ranks[id(t)]) if id(t) in ranks else t for t in traces]


def _numbers(files: Sequence[str]) -> dict[str, int] | None:
    """The number of each file, where their names differ in one number alone, from 0 on."""
    names = [Path(file).name for file in files]
    found = [list(map(int, _NUMBER.findall(name))) for name in names]
    if len({_NUMBER.sub("#", name) for name in names}) != 1:
        return None
    differing = [column for column in zip(*found, strict=True) if len(set(column)) > 1]
    if len(differing) != 1 or min(differing[0]) != 0 or len(set(differing[0])) < len(files):
        return None
    return dict(zip(files, differing[0], strict=True))
