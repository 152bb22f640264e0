"""Damaged text: each kind is mended and noted, and nothing beside it is lost."""

import json

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from jaxperf.errors import TraceError
from jaxperf.trace import read_file
from jaxperf.trace._document import Document
from jaxperf.trace._repair import parse
from tests.trace.written import codes, document, kernel, names, read, row

FRAME = "pkg/model.py(31): forward"
EVENTS = [
    row("aten::mm", "cpu_op", 0, 30, External_id=1),
    row(FRAME, "python_function", 1, 20, Python_id=7),
    row("cudaLaunchKernel", "cuda_runtime", 5, 6, correlation=11),
    kernel("mm_kernel", 20, 30, correlation=11),
]
TEXT = document(EVENTS)


def replaced(old, new, text=TEXT):
    assert old in text
    return text.replace(old, new, 1)


DAMAGE = {
    "control-character": replaced(FRAME, "pkg/model.py(31):\n\tforward\x01"),
    "lone-backslash": replaced(FRAME, r"C:\new\_temp\model.py(31): forward"),
    "inner-quote": replaced(FRAME, 'register("first", "IMPL"): <module>'),
    "empty-value": replaced('"dur": 20', '"dur": '),
    "not-a-number": replaced('"Python id": 7', '"Python id": NaN, "b": -Infinity, "c": inf'),
    "unreadable-value": replaced('"Python id": 7', '"Python id": 007'),
    "stray-comma": replaced('"Python id": 7', '"Python id": 7,,'),
    "missing-comma": replaced('"Python id": 7', '"Python id": 7 "more": 1'),
    "missing-bracket": replaced('"Python id": 7\n   }', '"Python id": 7\n   '),
    "stray-bracket": replaced('"Python id": 7\n   }', '"Python id": 7\n   }}'),
    "missing-quote": replaced(FRAME + '"', FRAME),
    "byte-order-mark": "\ufeff" + TEXT,
    "stray-text": replaced(",\n  {", ", lost,\n  {"),
    "text-after-end": TEXT + "\nkilled by signal 9",
}


@pytest.mark.parametrize("code", DAMAGE)
def test_each_kind_of_damage_is_mended_and_noted(tmp_path, code):
    trace = read(tmp_path, DAMAGE[code])
    assert trace.events == 4
    assert codes(trace) <= {code, "missing-duration"}
    assert code in codes(trace)
    others = [names(trace)[index] for index in (0, 2, 3)]
    assert others == ["aten::mm", "cudaLaunchKernel", "mm_kernel"]
    assert trace.duration_ns[[0, 2, 3]].tolist() == [30_000, 6_000, 30_000]
    assert not trace.truncated


@pytest.mark.parametrize(
    ("code", "name"),
    [
        ("control-character", "pkg/model.py(31):\n\tforward\x01"),
        ("lone-backslash", r"C:\new\_temp\model.py(31): forward"),
        ("inner-quote", 'register("first", "IMPL"): <module>'),
    ],
)
def test_damaged_names_are_read_as_they_were_meant(tmp_path, code, name):
    assert names(read(tmp_path, DAMAGE[code]))[1] == name


def test_bytes_that_are_not_utf8_are_replaced(tmp_path):
    trace = read(tmp_path, TEXT.encode().replace(b"model.py", b"mod\xff"))
    assert names(trace)[1] == "pkg/mod\ufffd(31): forward"
    assert codes(trace) == {"not-utf8"}


def test_half_a_surrogate_pair_is_replaced(tmp_path):
    trace = read(tmp_path, replaced(FRAME, r"\ud83d\ude00 \ud83d half"))
    assert names(trace)[1] == "\U0001f600 \ufffd half"


def test_a_repeated_key_counts_as_written_last(tmp_path):
    trace = read(tmp_path, replaced('"dur": 20', '"dur": 19,\n"dur": 20'))
    assert trace.duration_ns.tolist() == [30_000, 20_000, 6_000, 30_000]


def test_a_missing_comma_between_events_is_supplied(tmp_path):
    text = json.dumps({"traceEvents": EVENTS}).replace('}}, {"ph"', '}} {"ph"', 1)
    assert names(read(tmp_path, text)) == names(read(tmp_path, TEXT))


def test_a_second_document_is_ignored_with_a_note(tmp_path):
    trace = read(tmp_path, TEXT + TEXT)
    assert trace.events == 4
    assert "text-after-end" in codes(trace)


def test_what_cannot_be_mended_is_dropped_with_its_place(tmp_path):
    text = replaced('"ph": "X",\n   "cat": "python_function"', '"cat": "python_function"')
    trace = read(tmp_path, text)
    assert trace.events == 3
    (note,) = trace.notes
    assert note.code == "event-dropped"
    place = text.rindex("{", 0, text.index("python_function"))
    assert note.where == f"{tmp_path / 'trace.json'}, byte {place}"


def test_many_damaged_events_are_one_note_with_their_number(tmp_path, monkeypatch):
    monkeypatch.setattr("jaxperf.trace._document.SLICE_BYTES", 1000)
    events = [row(f"frame {i}", "python_function", i) for i in range(300)]
    text = document(events).replace("frame ", r"C:\_x ")
    trace = read(tmp_path, text)
    assert trace.events == 300
    (note,) = trace.notes
    assert (note.code, note.text[:4]) == ("lone-backslash", "300 ")


def test_a_cut_last_event_is_left_out_even_if_it_could_be_closed(tmp_path):
    cut = TEXT.index('"dur": 30', TEXT.index("mm_kernel")) + len('"dur": 3')
    trace = read(tmp_path, TEXT[:cut])
    assert names(trace) == ["aten::mm", FRAME, "cudaLaunchKernel"]
    assert trace.truncated
    assert codes(trace) == {"truncated"}


def test_a_file_cut_in_the_metadata_after_the_events_keeps_them_all(tmp_path):
    text = json.dumps({"traceEvents": EVENTS, "distributedInfo": {"rank": 2}, "z": "abc"})
    trace = read(tmp_path, text[: text.index('"abc"') + 3])
    assert trace.events == 4
    assert trace.rank == 2
    assert trace.truncated


@settings(max_examples=150)
@given(st.data())
def test_any_cut_keeps_the_whole_events_before_it(tmp_path_factory, data):
    events = [kernel(f"k{index}", 10 * index, 7, correlation=index) for index in range(12)]
    text = document(events, baseTimeNanoseconds=1711964646000000000)
    cut = data.draw(st.integers(1, len(text)))
    ends = [text.index(f'"correlation": {i}\n') for i in range(12)]
    whole = sum(text.index("}\n", text.index("}", end) + 1) < cut for end in ends)
    folder = tmp_path_factory.mktemp("cut")
    try:
        trace = read(folder, text[:cut])
    except TraceError:
        assert whole == 0
    else:
        assert trace.events >= whole
        assert names(trace)[:whole] == [f"k{index}" for index in range(whole)]
        assert (trace.duration_ns[:whole] == 7000).all()
        assert trace.truncated == (cut < len(text))


@settings(max_examples=250)
@given(st.data())
def test_any_damaged_bytes_leave_the_other_events_untouched(tmp_path_factory, data):
    events = [kernel(f"kernel_{index}", 10 * index, 7) for index in range(9)]
    text = bytearray(document(events).encode())
    hit = text.index(b'"ph"', text.index(b"kernel_4") - 60)
    start, end = text.rindex(b"{", 0, hit), text.index(b"kernel_5") - 60
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(start + 1, end))
        text[at] = data.draw(st.integers(0, 255))
    trace = read(tmp_path_factory.mktemp("damage"), bytes(text))
    found = dict(zip(names(trace), trace.duration_ns.tolist(), strict=True))
    for index in (0, 1, 2, 7, 8):
        assert found[f"kernel_{index}"] == 7000


@settings(max_examples=250)
@given(st.binary(max_size=60), st.integers(0, 400), st.integers(0, 30))
def test_nothing_but_a_trace_error_comes_of_any_bytes(tmp_path_factory, noise, at, gone):
    text = TEXT.encode()
    at = at * len(text) // 400
    path = tmp_path_factory.mktemp("noise") / "rank0.json"
    path.write_bytes(text[:at] + noise + text[at + gone :])
    try:
        (trace,) = read_file(path)
    except TraceError as error:
        assert "\n" not in str(error)
    else:
        assert (trace.duration_ns >= 0).all()
        assert (np.diff(trace.start_ns) >= 0).all()


@settings(max_examples=300)
@given(st.binary(max_size=200) | st.text('{}[]",:\\ \n1aeu0-.').map(str.encode))
def test_the_forgiving_parser_never_raises(data):
    values, repairs = parse(data)
    assert isinstance(values, list)
    assert all(count > 0 for count in repairs.values())


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
)


@settings(max_examples=200)
@given(st.dictionaries(st.text(), JSON), st.booleans())
def test_the_forgiving_parser_reads_json_as_json(value, escaped):
    values, repairs = parse(json.dumps(value, ensure_ascii=escaped).encode(errors="replace"))
    if "\\ud" not in json.dumps(value):
        assert values == [value]
        assert not repairs


def test_damage_all_over_a_large_slice_takes_linear_time(tmp_path, monkeypatch):
    calls = 0
    decode = Document._decode

    def counted(self, text):
        nonlocal calls
        calls += 1
        return decode(self, text)

    monkeypatch.setattr(Document, "_decode", counted)
    text = document([row(f"frame {i}", "python_function", i) for i in range(2000)])
    trace = read(tmp_path, text.replace("frame ", r"C:\_x "))
    assert trace.events == 2000
    assert calls < 4 * 2000
