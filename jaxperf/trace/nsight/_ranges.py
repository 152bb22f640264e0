"""NVTX ranges of an Nsight Systems export: annotations, operators of PyTorch, and steps."""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from jaxperf.trace._categories import STEP_PREFIX
from jaxperf.trace._types import MISSING, Category
from jaxperf.trace.nsight._rows import Rows, on_thread
from jaxperf.trace.nsight._tables import Tables

# Event types of NVTX; other ones are marks, categories and domains.
_PUSH_POP, _START_END = 59, 60
# `aten::mm, seq = 12, op_id = 40, sizes = [[2, 3], [3, 4]], input_op_ids = [...]`, as
# torch.autograd.profiler.emit_nvtx writes it.
_OPERATOR = re.compile(r"(?P<name>[^,]+)(?P<told>, (?:seq|op_id) = .*)?", re.DOTALL)
_SEQUENCE = re.compile(r", seq = (\d{1,18})(?!\d)")
_SIZES = re.compile(r", sizes = (\[[\[\]\d, ]*\])(?=, input_op_ids|$)")
_OPERATOR_NAME = re.compile(r"(?:aten|c10d)::\w")
_STEP_NAME = re.compile(
    r"(?P<kind>ProfilerStep|(?:(?:train|training|global)[ _-]?)?(?:step|iteration|iter))"
    r"[ _#:=-]*(?P<number>\d{1,9})",
    re.IGNORECASE,
)


@dataclass(frozen=True)
class _Range:
    """What the text of a range says."""

    name: str
    category: Category
    sequence: int = MISSING
    sizes: str = ""


def range_rows(tables: Tables, strings: Mapping[int, str]) -> Rows:
    """NVTX ranges as annotations, and those of `emit_nvtx` as operators.

    Ranges that are started and ended, rather than pushed and popped, need not nest, nor end on
    their thread: they may be steps, but say nothing of what the thread does.
    """
    columns = ("start", "end", "eventType", "globalTid", "textId")
    rows, texts = tables.read("NVTX_EVENTS", columns, "text")
    pushed = np.isin(rows["eventType"], [_PUSH_POP, MISSING])
    chosen = (pushed | (rows["eventType"] == _START_END)) & (rows["end"] != MISSING)
    numbers: dict[str, int] = {}
    which = np.zeros(len(texts), np.int64)
    for row in np.flatnonzero(chosen).tolist():
        text = texts[row] or strings.get(int(rows["textId"][row])) or "unnamed range"
        which[row] = numbers.setdefault(text, len(numbers))
    ranges = [_read(text) for text in numbers] or [_Range("", Category.ANNOTATION)]
    category = np.array([entry.category for entry in ranges], np.int8)[which]
    shapes = {entry.sizes: None for entry in ranges}
    order = {sizes: number if sizes else MISSING for number, sizes in enumerate(shapes)}
    values = {
        "sequence": np.array([entry.sequence for entry in ranges], np.int64)[which],
        "shape": np.array([order[entry.sizes] for entry in ranges], np.int64)[which],
    }
    names = tuple(entry.name for entry in ranges)
    category = np.where(pushed, category, Category.OTHER).astype(np.int8)
    return on_thread(rows, category, which, names, values, tuple(shapes)).where(chosen)


def _read(text: str) -> _Range:
    match = _OPERATOR.fullmatch(text)
    if not match or not (match["told"] or _OPERATOR_NAME.match(text)):
        return _Range(text, Category.ANNOTATION)
    told = match["told"] or ""
    sequence, sizes = _SEQUENCE.search(told), _SIZES.search(told)
    shape = ""
    if sizes:
        try:
            shape = json.dumps(json.loads(sizes[1]))
        except ValueError:
            pass  # cut short by the profiler
    return _Range(match["name"], Category.CPU_OP, int(sequence[1]) if sequence else MISSING, shape)


def with_steps(ranges: Rows) -> tuple[Rows, str | None]:
    """The ranges of one process, its steps named as the graph expects them.

    Steps are ranges of one thread whose names are one word and a number that grows, such as
    `iteration 12` or `step_12`, and that do not overlap. Where several words are candidates
    (`iteration 3` with `step 1` inside), the ranges that cover most time are the steps.

    Args:
        ranges: of `range_rows`.

    Returns:
        The ranges, and the name of the first step as it was written: `None` where there are none,
        or where they have their name already.
    """
    matches = [_STEP_NAME.fullmatch(name) for name in ranges.names]
    kinds: dict[tuple[str, int], list[int]] = {}
    step_names = np.array([match is not None for match in matches], bool)
    for row in np.flatnonzero(step_names[ranges.name]).tolist():
        match = matches[ranges.name[row]]
        assert match
        kinds.setdefault((match["kind"].lower(), int(ranges.thread[row])), []).append(row)
    best: list[int] = []
    longest = -1
    for (kind, _), rows in kinds.items():
        if kind == "profilerstep":
            return ranges, None
        rows.sort(key=lambda row: int(ranges.start[row]))
        covered = int((ranges.end[rows] - ranges.start[rows]).sum())
        if covered > longest and _in_turn(ranges, rows, matches):
            best, longest = rows, covered
    if not best:
        return ranges, None
    name = ranges.name.copy()
    name[best] = np.arange(len(best)) + len(ranges.names)
    numbers = [_number(matches, ranges, row) for row in best]
    names = (*ranges.names, *(f"{STEP_PREFIX}{number}" for number in numbers))
    renamed = replace(ranges, name=name, names=names)
    return renamed, ranges.names[ranges.name[best[0]]]


def _number(matches: Sequence[re.Match[str] | None], ranges: Rows, row: int) -> int:
    match = matches[ranges.name[row]]
    assert match
    return int(match["number"])


def _in_turn(ranges: Rows, rows: list[int], matches: Sequence[re.Match[str] | None]) -> bool:
    """Whether these ranges, in order of start, follow each other with growing numbers."""
    numbers = np.array([_number(matches, ranges, row) for row in rows])
    follows = ranges.start[rows][1:] >= ranges.end[rows][:-1]
    return bool((np.diff(numbers) > 0).all() and follows.all())
