"""PyTorch's execution traces give operators the inputs that their timeline lacks."""

import gzip
import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from jaxperf.cost import known_work, task_work
from jaxperf.errors import TraceError
from jaxperf.graph import build_graph
from jaxperf.trace import Category, Run, Trace, read_run
from jaxperf.trace._execution_trace import with_execution_trace

OPERATORS = ("aten::ones", "aten::linear", "aten::mm", "aten::cat")


def _timeline(folder: Path) -> Trace:
    """A step around four operators, one of them inside another, on one thread."""
    rows = [("ProfilerStep#1", "user_annotation", 0, 100, 3)]
    times = ((1, 5), (10, 30), (12, 10), (50, 5))
    rows += [
        (name, "cpu_op", *time, 4 + i)
        for i, (name, time) in enumerate(zip(OPERATORS, times, strict=True))
    ]
    events = [
        {
            **{"ph": "X", "name": name, "cat": kind, "ts": start, "dur": duration},
            **{"pid": 1, "tid": 1, "args": {"External id": id}},
        }
        for name, kind, start, duration, id in rows
    ]
    path = folder / "rank0.json"
    path.write_text(json.dumps({"traceEvents": events}))
    return read_run(path).traces[0]


INPUTS = {
    "aten::ones": (
        [[2, 3], 6, "<None>"],
        [[[], []], [], []],
        ["GenericList[Int,Int]", "Int", "None"],
    ),
    "aten::linear": (
        [[9, 9, 0, 8, 2, "cuda:0"], True],
        [[4, 2], []],
        ["Tensor(c10::Half)", "Bool"],
    ),
    "aten::mm": ([[9, 9, 0, 8, 2, "cuda:0"]], [[4, 2]], ["Tensor(c10::Half)"]),
    "aten::cat": (
        [[[9, 9, 0, 1, 4, "cpu"], [8, 8, 0, 2, 4, "cpu"]], 0],
        [[[1], [2]], []],
        ["GenericList[Tensor(int),Tensor(int)]", "Int"],
    ),
}


def _nodes(form: str) -> list[dict]:
    """Its nodes, as both schemas write them: in order of their ends, with ids of their own."""
    names = ("[pytorch|profiler|execution_trace|thread]", *OPERATORS)
    nodes = []
    for id, name in sorted(enumerate(names), key=lambda pair: pair[1] == "aten::linear"):
        values, shapes, types = INPUTS.get(name, ([], [], []))
        if form == "1.0.1":
            told = {"inputs": values, "input_shapes": shapes, "input_types": types}
            nodes.append({"name": name, "id": 50 - id, "rf_id": id, "tid": 1, **told})
        else:
            told = {"values": values, "shapes": shapes, "types": types}
            attributes = [
                {"name": key, "type": "uint64", "value": value}
                for key, value in (("rf_id", id), ("tid", 1), ("op_schema", ""))
            ]
            nodes.append({"name": name, "id": 50 - id, "inputs": told, "attrs": attributes})
    return nodes


def _told(trace: Trace, table: str, column: str) -> list:
    texts, codes = getattr(trace, table), getattr(trace, column)
    rows = np.flatnonzero(trace.category == Category.CPU_OP)
    return [json.loads(texts[codes[row]]) if codes[row] >= 0 else None for row in rows]


@pytest.mark.parametrize("form", ["1.0.1", "1.1.0-chakra.0.0.4"])
def test_operators_get_inputs_as_a_timeline_writes_them(form, tmp_path):
    trace = _timeline(tmp_path)
    path = tmp_path / "rank0.et.json.gz"
    path.write_bytes(gzip.compress(json.dumps({"schema": form, "nodes": _nodes(form)}).encode()))
    found = with_execution_trace(trace, path)
    assert _told(trace, "shapes", "shape") == [None] * 4
    assert _told(found, "shapes", "shape") == [
        *([[], [], []], [[4, 2], []], [[4, 2]], [[[1], [2]], []]),
    ]
    assert _told(found, "input_types", "input_type") == [
        *(["ScalarList", "Scalar", ""], ["c10::Half", "Scalar"], ["c10::Half"]),
        ["TensorList", "Scalar"],
    ]
    assert _told(found, "input_values", "input_value") == [
        *(["[2, 3]", "6", ""], ["", "True"], [""], ["", "0"]),
    ]
    note = found.notes[-1]
    assert note.code == "inputs-from-execution-trace"
    assert note.text.startswith("4 of 5 operators and annotations were found")


def test_one_that_lies_beside_its_timeline_is_used(tmp_path):
    _timeline(tmp_path)
    text = json.dumps({"schema": "1.0.1", "nodes": _nodes("1.0.1")})
    (tmp_path / "rank0.et.json").write_text(text)
    (tmp_path / "rank1.et.json").write_text(text)
    run = read_run(tmp_path)
    assert _told(run.traces[0], "shapes", "shape")[2] == [[4, 2]]
    assert [Path(aside.file).name for aside in run.set_aside] == ["rank1.et.json"]


def test_what_the_timeline_says_itself_stays(tmp_path):
    trace = _timeline(tmp_path)
    row = int(np.flatnonzero(trace.category == Category.CPU_OP)[2])
    shape = trace.shape.copy()
    shape[row] = 0
    path = tmp_path / "a.et.json"
    path.write_text(json.dumps({"schema": "1.0.1", "nodes": _nodes("1.0.1")}))
    found = with_execution_trace(replace(trace, shapes=("[[7, 7]]",), shape=shape), path)
    assert _told(found, "shapes", "shape")[2] == [[7, 7]]


def test_a_thread_of_other_operators_gets_none(tmp_path):
    trace = _timeline(tmp_path)
    others = [{"name": name, "rf_id": i, "tid": 1} for i, name in enumerate(OPERATORS[::-1])]
    path = tmp_path / "a.et.json"
    path.write_text(json.dumps({"schema": "1.0.1", "nodes": others}))
    found = with_execution_trace(trace, path)
    assert _told(found, "shapes", "shape") == [None] * 4
    assert found.notes[-1].text.startswith("0 of 5")


@pytest.mark.parametrize(
    "text",
    ["", "[]", '{"traceEvents": []}', '{"schema": "1", "nodes": [3]}', '{"nodes":' + "[" * 9999],
)
def test_what_is_no_execution_trace_is_refused(text, tmp_path):
    path = tmp_path / "a.et.json"
    path.write_text(text)
    with pytest.raises(TraceError, match="no execution trace") as error:
        with_execution_trace(_timeline(tmp_path), path)
    assert "\n" not in str(error.value)


def _without_inputs(trace: Trace) -> Trace:
    operators = trace.category == Category.CPU_OP
    return replace(
        trace,
        **{
            name: np.where(operators, -1, getattr(trace, name)).astype(np.int32)
            for name in ("shape", "input_type", "input_value")
        },
    )


@pytest.mark.parametrize(
    ("folder", "least"),
    [("megatron_gpt_tp8_a100_8rank_forward", 0.999), ("dlrm_param_v100_8rank_1step", 0.98)],
)
def test_a_real_execution_trace_tells_the_work_that_the_timeline_told(folder, least, shared):
    path = shared / "traces" / folder
    trace = read_run(path / "rank0.json.gz").traces[0]
    found = with_execution_trace(_without_inputs(trace), path / "rank0.et.json.gz")
    pairs = [
        (a == b)
        for a, b in zip(
            _told(trace, "shapes", "shape"), _told(found, "shapes", "shape"), strict=True
        )
        if a is not None
    ]
    # The others are lists of tensors, of which an old timeline says no dimensions.
    assert np.mean(pairs) > least - 0.002
    known = []
    for each in (trace, found):
        run = Run((each,), (), ())
        graph = build_graph(run)
        known.append(known_work(task_work(graph, run)))
    assert np.all(known[1][known[0]])
    assert known[1].sum() >= known[0].sum() > 100
