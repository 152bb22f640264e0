"""Which host event encloses which: the call tree of each CPU thread, without recursion."""

from dataclasses import dataclass

import numpy as np

from jaxperf.trace._types import Category, Trace

JITTER_NS = 1_000
"""Overlaps below this are jitter of the profiler's clock; longer ones are counted."""

HOST_CATEGORIES = (
    Category.CPU_OP,
    Category.ANNOTATION,
    Category.PYTHON,
    Category.RUNTIME,
    Category.DRIVER,
)


@dataclass(frozen=True, eq=False)
class CallTree:
    """The nesting of host events.

    Attributes:
        parent: (events,) int32, row of the enclosing event; -1 at the top level and for other rows.
        depth: (events,) int32, 0 at the top level; -1 for rows that take no part.
        overlaps: (k,) int64, rows that overlap an earlier row of their thread by more than
            `JITTER_NS` without lying inside it. They are taken as siblings.
    """

    parent: np.ndarray
    depth: np.ndarray
    overlaps: np.ndarray


def call_tree(trace: Trace, categories: tuple[Category, ...] = HOST_CATEGORIES) -> CallTree:
    """The call tree of every CPU thread, one level of nesting at a time over all threads at once.

    An event lies inside an earlier one of its thread if it starts before that one ends, and ends
    with it up to jitter. Where two start together the longer one is the outer (the order of the
    rows of a `Trace`).

    Args:
        trace: the trace.
        categories: the categories that take part.

    Returns:
        The tree over all rows of the trace.
    """
    parent = np.full(trace.events, -1, np.int32)
    depth = np.full(trace.events, -1, np.int32)
    rows = np.flatnonzero(np.isin(trace.category, [int(c) for c in categories]))
    rows = rows[np.argsort(trace.lane[rows], kind="stable")]
    end_ns = trace.end_ns
    # One running maximum serves all threads: each is lifted above the one before it.
    span_ns = int(end_ns.max(initial=0)) + 2 * JITTER_NS
    enclosing = np.full(len(rows), -1, np.int64)
    overlaps = []
    level = 0
    while len(rows):
        lift = trace.lane[rows].astype(np.int64) * span_ns
        start, end = trace.start_ns[rows] + lift, end_ns[rows] + lift
        busy_until = np.concatenate(
            [[np.iinfo(np.int64).min // 2], np.maximum.accumulate(end)[:-1]]
        )
        inside = (start < busy_until) & (
            (end <= busy_until)
            | ((end - busy_until <= JITTER_NS) & (end - busy_until < busy_until - start))
        )
        top = ~inside
        overlaps.append(rows[top & (start < busy_until - JITTER_NS)])
        parent[rows[top]] = enclosing[top]
        depth[rows[top]] = level
        last_top = np.maximum.accumulate(np.where(top, np.arange(len(rows)), 0))
        enclosing = rows[last_top][inside]
        rows = rows[inside]
        level += 1
    found = np.concatenate(overlaps) if overlaps else np.empty(0, np.int64)
    return CallTree(parent, depth, np.sort(found))


def owning_operator(trace: Trace, tree: CallTree, rows: np.ndarray) -> np.ndarray:
    """The innermost operator around each of the given rows.

    Args:
        trace: the trace.
        tree: its call tree.
        rows: (k,) rows of host events, such as launch calls; -1 is allowed.

    Returns:
        (k,) int64, row of the operator that encloses each, -1 where there is none.
    """
    owner = np.where(rows >= 0, tree.parent[rows], -1).astype(np.int64)
    climbing = np.flatnonzero((owner >= 0) & (trace.category[owner] != Category.CPU_OP))
    while len(climbing):
        owner[climbing] = tree.parent[owner[climbing]]
        up = owner[climbing]
        climbing = climbing[(up >= 0) & (trace.category[up] != Category.CPU_OP)]
    return owner
