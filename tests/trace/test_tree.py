"""The call tree of CPU threads, and which operator owns a call."""

import json

import numpy as np
import pytest
from hypothesis import given, strategies as st

from jaxperf.trace import Category, call_tree, owning_operator, read_file
from tests.trace.written import document, kernel, names, read, row


def expected(shared, case):
    values = json.loads((shared / "cases" / case / "expected.json").read_text())["values"]
    return {value["name"]: value["value"] for value in values}


def parents(trace, tree):
    """Name of each host event and name of the event that encloses it."""
    named = names(trace)
    return {
        named[i]: named[tree.parent[i]] if tree.parent[i] >= 0 else None
        for i in range(trace.events)
        if tree.depth[i] >= 0
    }


def self_times_us(trace, tree):
    """Duration without the events directly inside."""
    own = trace.duration_ns.copy()
    inner = np.flatnonzero(tree.parent >= 0)
    np.subtract.at(own, tree.parent[inner], trace.duration_ns[inner])
    return {name: own[i] / 1e3 for i, name in enumerate(names(trace)) if tree.depth[i] >= 0}


def owners(trace):
    """Name of each kernel and of the operator around its launch call."""
    named = names(trace)
    calls = {
        int(trace.correlation[i]): i
        for i in range(trace.events)
        if trace.category[i] in (Category.RUNTIME, Category.DRIVER)
    }
    kernels = np.flatnonzero(trace.category == Category.KERNEL)
    rows = np.array([calls.get(int(trace.correlation[i]), -1) for i in kernels])
    found = owning_operator(trace, call_tree(trace), rows)
    return {
        named[k]: named[o] if o >= 0 else None
        for k, o in zip(kernels.tolist(), found.tolist(), strict=True)
    }


def test_of_calls_that_start_together_the_longer_is_outside(shared):
    right = expected(shared, "07-equal-start")
    (trace,) = read_file(shared / "cases" / "07-equal-start" / "trace.json")
    tree = call_tree(trace)
    assert parents(trace, tree) == {"parent": None, "child": "parent", "leaf": "child"}
    depth = dict(zip(names(trace), tree.depth.tolist(), strict=True))
    own_us = self_times_us(trace, tree)
    for name in ("parent", "child", "leaf"):
        assert depth[name] == right[f"depth.{name}"]
        assert own_us[name] == pytest.approx(right[f"self.{name}"], abs=0.001)
    assert sum(own_us.values()) == pytest.approx(right["thread_busy"], abs=0.001)


def test_jitter_does_not_part_kernels_from_their_operators(shared):
    right = expected(shared, "08-jitter-overlap")
    (trace,) = read_file(shared / "cases" / "08-jitter-overlap" / "trace.json")
    assert owners(trace) == {f"kernel_{x}": right[f"owner.kernel_{x}"] for x in "ace"}


def test_only_an_overlap_beyond_jitter_is_an_anomaly(shared):
    right = expected(shared, "08-jitter-overlap")
    (trace,) = read_file(shared / "cases" / "08-jitter-overlap" / "trace.json")
    tree = call_tree(trace)
    assert len(tree.overlaps) == right["overlap_anomalies"]
    assert [names(trace)[i] for i in tree.overlaps] == ["aten::e"]
    above = parents(trace, tree)
    assert above["aten::c"] is None
    assert above["aten::e"] is None
    assert above["aten::b"] is None


def test_rows_that_are_no_host_events_take_no_part(tmp_path):
    rows = [row("op", "cpu_op", 0, 10), kernel("k", 2, 3), row("gap", "Trace", 0, 99)]
    trace = read(tmp_path, document(rows))
    tree = call_tree(trace)
    assert parents(trace, tree) == {"op": None}
    assert (tree.parent == -1).all()


def test_threads_do_not_enclose_each_other(tmp_path):
    rows = [
        row("outer", "cpu_op", 0, 100, tid=1),
        row("elsewhere", "cpu_op", 10, 20, tid=2),
        row("inner", "cpu_op", 10, 20, tid=1),
    ]
    trace = read(tmp_path, document(rows))
    assert parents(trace, call_tree(trace)) == {
        "outer": None,
        "inner": "outer",
        "elsewhere": None,
    }


def test_the_owner_is_the_innermost_operator_beyond_annotations_and_calls(tmp_path):
    rows = [
        row("outer", "cpu_op", 0, 100),
        row("aten::mm", "cpu_op", 5, 80),
        row("scope", "user_annotation", 10, 60),
        row("cudaLaunchKernel", "cuda_runtime", 20, 20, correlation=1),
        row("cuLaunchKernel", "cuda_driver", 25, 10, correlation=1),
        kernel("inside", 50, correlation=1),
        row("cudaLaunchKernel", "cuda_runtime", 200, 10, correlation=2),
        kernel("outside", 220, correlation=2),
        kernel("orphan", 240, correlation=3),
    ]
    trace = read(tmp_path, document(rows))
    assert owners(trace) == {"inside": "aten::mm", "outside": None, "orphan": None}


def test_an_empty_event_lies_inside_what_encloses_it(tmp_path):
    rows = [row("outer", "cpu_op", 0, 10), row("empty", "cpu_op", 4, 0)]
    trace = read(tmp_path, document(rows))
    assert parents(trace, call_tree(trace)) == {"outer": None, "empty": "outer"}


@st.composite
def nested(draw) -> list[tuple[int, int, int]]:
    """(start, end, depth) of events that nest exactly, in whole microseconds."""
    found: list[tuple[int, int, int]] = []

    def fill(low: int, high: int, depth: int) -> None:
        at = low
        while at < high and len(found) < 40 and draw(st.booleans()):
            begin = draw(st.integers(at, high - 1))
            end = draw(st.integers(begin + 1, high))
            # Of two equal events neither is known to be the outer one.
            if depth == 0 or (begin, end) != (low, high):
                found.append((begin, end, depth))
                fill(begin, end, depth + 1)
            at = end

    fill(0, draw(st.integers(2, 1_000)), 0)
    return found


@given(nested(), st.randoms())
def test_any_nesting_is_recovered_whatever_the_order_of_the_rows(tmp_path_factory, events, random):
    rows = [row(f"e{i}", "cpu_op", a, b - a) for i, (a, b, _) in enumerate(events)]
    random.shuffle(rows)
    trace = read(tmp_path_factory.mktemp("nested"), document([row("k", "cpu_op", -10), *rows]))
    tree = call_tree(trace)
    depth = dict(zip(names(trace), tree.depth.tolist(), strict=True))
    assert depth == {"k": 0} | {f"e{i}": d for i, (_, _, d) in enumerate(events)}
    assert not len(tree.overlaps)
    inner = tree.parent >= 0
    outer = tree.parent[inner]
    assert (trace.start_ns[outer] <= trace.start_ns[inner]).all()
    assert (trace.end_ns[outer] >= trace.end_ns[inner]).all()
    assert (tree.depth[outer] == tree.depth[inner] - 1).all()
