"""What fuzzing has found, in small inputs of our own: each was a crash or a hang before."""

import io
import json
import zipfile
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec
import numpy as np
import pytest

from benchmarks._fuzz_targets import TARGETS
from jaxperf import config
from jaxperf.cost._fit import load_fit
from jaxperf.errors import GraphError, JaxperfError
from jaxperf.estimate._compute import load_any_fit
from jaxperf.graph import build_graph, load_classes
from jaxperf.trace import read_file, read_run
from tests.trace.written import document, kernel, row

DEEP = 100_000
NESTED = "[" * DEEP + "]" * DEEP
DIGITS = "9" * 5000
EVENT = {"ph": "X", "name": "a", "pid": 1, "tid": 1, "ts": 5, "dur": 2}


def packed_zip(name: str = "trace.json") -> bytearray:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr(name, json.dumps([EVENT]))
    return bytearray(file.getvalue())


def patched_zip(in_directory: int, value: bytes, in_file: dict[int, bytes] | None = None) -> bytes:
    """A zip with bytes of its directory's first entry, and of its file's head, replaced."""
    content = packed_zip()
    for at, new in (in_file or {}).items():
        content[at : at + len(new)] = new
    entry = content.rindex(b"PK\x01\x02") + in_directory
    content[entry : entry + len(value)] = value
    return bytes(content)


def events(*rows: dict) -> bytes:
    return json.dumps(rows).encode()


def changed_chunk(**changes: object) -> bytes:
    (chunk, _) = TARGETS["search"].seeds()
    return json.dumps(json.loads(chunk) | changes).encode()


def changed_shard(name: str, array: np.ndarray | None) -> bytes:
    """The columns of a shard as the target takes them, one of them replaced or taken away."""
    (_, shard, _) = TARGETS["shards"].seeds()
    arrays = msgspec.msgpack.decode(shard[1:])
    del arrays[name]
    if array is not None:
        arrays[name] = [array.dtype.str, list(array.shape), array.tobytes()]
    return b"\1" + msgspec.msgpack.encode(arrays)


def text_array(text: str) -> np.ndarray:
    return np.frombuffer(text.encode(), np.uint8)


def changed_file(target: str, name: str, content: bytes) -> bytes:
    files = msgspec.msgpack.decode(TARGETS[target].seeds()[0])
    return msgspec.msgpack.encode(files | {name: content})


def replaced(target: str, name: str, old: bytes, new: bytes) -> bytes:
    """The seed of a target with a text of one of its files replaced."""
    content = msgspec.msgpack.decode(TARGETS[target].seeds()[0])[name]
    assert old in content
    return changed_file(target, name, content.replace(old, new))


def mllog(key: str, value: str) -> bytes:
    return f':::MLLOG {{"key": "{key}", "time_ms": 0, "value": {value}}}\n'.encode()


def arrays_with_keys(keys: str = "", shape: Sequence[int] = (0,)) -> bytes:
    numbers = {"indices": ["<i8", [4], [0, 1, 2, 3]], "offsets": ["<i8", [5], [0, 1, 2, 3, 4]]}
    return msgspec.msgpack.encode(numbers | {"keys": ["<U1", list(shape), list(keys)]})


STATISTICS = TARGETS["popularity"].seeds()[0]
UTF8 = b'{"a": "\xff"}'

FOUND: dict[str, tuple[str, bytes, str | None]] = {
    # Archives around a trace.
    "a zip whose file has no name": ("sources", patched_zip(28, b"\0\0"), "nothing readable"),
    "a zip of a later version": ("sources", patched_zip(6, b"\x5c"), "cannot be unpacked here"),
    "a zip of an unknown compression": (
        "sources",
        patched_zip(10, b"\x63"),
        "cannot be unpacked here",
    ),
    "a zip with a password": (
        "sources",
        patched_zip(8, b"\1", {6: b"\1"}),
        "cannot be unpacked here",
    ),
    "a zip whose name is no text": (
        "sources",
        patched_zip(8, b"\0\x08", {6: b"\0\x08", 30: b"\xff"}),
        "nothing readable",
    ),
    "a zip whose file lies beyond its end": (
        "sources",
        patched_zip(42, b"\xff\xff\xff\x7f"),
        "nothing readable",
    ),
    # Traces.
    "arguments nested without end": (
        "trace",
        events(EVENT)[:-2] + b',"args":' + NESTED.encode() + b"}]",
        None,
    ),
    "shapes nested without end": (
        "trace",
        events(EVENT | {"cat": "cpu_op"})[:-2]
        + b',"args":{"Input Dims":'
        + NESTED.encode()
        + b"}}]",
        None,
    ),
    "metadata nested without end": (
        "trace",
        b'{"traceEvents":' + events(EVENT) + b',"a":' + NESTED.encode() + b"}",
        None,
    ),
    "metadata before the events nested without end": (
        "trace",
        b'{"a":' + NESTED.encode() + b',"traceEvents":' + events(EVENT) + b"}",
        "JSON without traceEvents",
    ),
    "a rank that is no decimal digit": (
        "trace",
        document([EVENT], distributedInfo={"rank": "²"}).encode(),
        None,
    ),
    "a rank of thousands of digits": (
        "trace",
        document([EVENT], distributedInfo={"rank": DIGITS}).encode(),
        None,
    ),
    "a begin and an end beyond any time": (
        "trace",
        events(EVENT, EVENT | {"ph": "B", "ts": 1e307}, EVENT | {"ph": "E", "ts": 1e308}),
        None,
    ),
    "a stream of thousands of digits": (
        "trace",
        events(
            {
                "ph": "M",
                "name": "thread_name",
                "pid": 0,
                "tid": 7,
                "args": {"name": f"stream {DIGITS}"},
            },
            EVENT | {"cat": "kernel", "pid": 0, "tid": 7},
        ),
        None,
    ),
    "a group of a rank of thousands of digits": (
        "trace",
        events(
            EVENT
            | {
                "cat": "kernel",
                "args": {"Collective name": "a", "Process Group Ranks": f"[{DIGITS}]"},
            }
        ),
        None,
    ),
    "a time of hundreds of digits in damaged text": (
        "trace",
        b'[{"ph":"X","name":"a\n","ts":1,"dur":' + b"9" * 400 + b"}]",
        None,
    ),
    # Columns of a shard, and what is kept of a search.
    "a shard without a column": ("shards", changed_shard("0.start_ns", None), "is damaged"),
    "a shard whose facts are no JSON": (
        "shards",
        changed_shard("0.others", text_array("{")),
        "is damaged",
    ),
    "a shard whose facts are another's": (
        "shards",
        changed_shard("0.others", text_array('{"rank": "a"}')),
        "is damaged",
    ),
    "a chunk whose costs are ragged": (
        "search",
        changed_chunk(cost=[[], [0.5, 3.0]]),
        "is damaged",
    ),
    "a chunk of points that cannot be": (
        "search",
        changed_chunk(index=[2**64 - 1, 2]),
        "is damaged",
    ),
    # Logs.
    "a counter beyond any energy": (
        "readings",
        b"time,host,energy [J]\n1717243200,a,1.7e308\n1717243201,a,200\n1717243202,a,5\n",
        "the energy counter of a falls",
    ),
    "a table of times beyond any clock": (
        "series",
        b"\0time,watts\n" + b"1.7e308,1\n" * 2,
        "lines are not readings",
    ),
    "a number of nodes of thousands of digits": (
        "training",
        changed_file("training", "system.json", json.dumps({"number_of_nodes": DIGITS}).encode()),
        None,
    ),
    "a system that is no UTF-8": (
        "training",
        changed_file("training", "system.json", b'{"system_name": "\xff"}'),
        "not a system description",
    ),
    "a scaling that is no UTF-8": (
        "training",
        changed_file("training", "scaling.json", UTF8),
        "no scaling factor",
    ),
    "an event nested without end": (
        "mllog",
        b"\0" + mllog("power_reading", NESTED),
        "not a whole MLLOG event",
    ),
    "a power log nested without end": (
        "mllog",
        b"\2" + mllog("power_reading", NESTED),
        "not a whole MLLOG event",
    ),
    "a record of a session nested without end": (
        "inference",
        changed_file("inference", "power/server.json", f'{{"modules": {NESTED}}}'.encode()),
        "not a record of a session",
    ),
    "edges nested without end": (
        "tiny",
        changed_file("tiny", "energy/trace1-timestamps.json", NESTED.encode()),
        "not a list of edges",
    ),
    "edges beyond all times": (
        "tiny",
        replaced("tiny", "energy/trace1-timestamps.json", b"61.0", b"1e308"),
        "the trace ends before the last edge",
    ),
    "a window of thousands of digits": (
        "tiny",
        replaced("tiny", "energy/results.txt", b"window 2 ", f"window {DIGITS} ".encode()),
        "window 2 has no energy",
    ),
    "no energy at all": (
        "tiny",
        replaced("tiny", "energy/results.txt", b"cost is 30.000", b"cost is 0.000"),
        "no energy was measured",
    ),
    "ids that are one number": (
        "arrays",
        msgspec.msgpack.encode(
            {
                "ids": ["<i8", [], [7]],
                "lengths": ["<i8", [2], [0, 1]],
                "batch_size": ["<i8", [1], [1]],
            }
        ),
        "empty table",
    ),
    "a window nested without end": ("series", b"\x0f" + NESTED.encode(), "not a window"),
    # Embeddings.
    "a popularity nested without end": (
        "popularity",
        b'\1{"a":' + NESTED.encode() + b"}",
        "no popularity",
    ),
    "statistics of a share with two points": (
        "popularity",
        STATISTICS.replace(b"0.500", b"0..5"),
        "incomplete locality statistics",
    ),
    "statistics that end with their head": (
        "popularity",
        b"\0" + STATISTICS.split(b"\n")[1].join([b"\n", b"\n"]) * 2,
        "incomplete locality statistics",
    ),
    "statistics of an average without a number": (
        "popularity",
        STATISTICS.replace(b"size: 2.0", b"size"),
        "incomplete locality statistics",
    ),
    "statistics of endless lookups": (
        "popularity",
        STATISTICS.replace(b"400", b"inf"),
        "no number in Avg # of indices; got 'inf'",
    ),
    "a popularity of hardly any rows": (
        "popularity",
        b'\1{"popularityBuckets": [1, 5e-324], "popularityWeights": [5, 5]}',
        None,
    ),
    "a popularity beyond any lookups": (
        "popularity",
        b'\1{"popularityBuckets": [1, 2], "popularityWeights": [1e308, 1e308]}',
        "no popularity",
    ),
    "accesses of less than one id": ("accesses", b"\3\x80", "cut off within an id"),
    "arrays of tables without keys": ("arrays", arrays_with_keys(), "no keys"),
    "arrays of tables with keys in two rows": ("arrays", arrays_with_keys("abcd", [2, 2]), None),
    "a plan nested without end": ("torchrec", b"\0" + NESTED.encode(), "not valid"),
    "measured lookups nested without end": (
        "torchrec",
        b"\2" + NESTED.encode(),
        "not such results",
    ),
    "measured lookups in a table without rows": (
        "torchrec",
        TARGETS["torchrec"].seeds()[2].replace(b"[100]", b"[0]"),
        "not such results",
    ),
    "measured lookups of a law beyond reason": (
        "torchrec",
        TARGETS["torchrec"].seeds()[2].replace(b"1.05", b"-1e300"),
        "not such results",
    ),
    "shapes of an operator nested without end": ("operator-inputs", NESTED.encode(), None),
}


@pytest.mark.parametrize(("target", "content", "refusal"), FOUND.values(), ids=FOUND)
def test_what_was_found_is_read_or_refused_in_one_line(target, content, refusal):
    read = TARGETS[target].reader()
    if refusal is None:
        read(content)
        return
    with pytest.raises(JaxperfError, match=refusal) as raised:
        read(content)
    assert len(str(raised.value).splitlines()) == 1


HUGE = "0x" + "f" * 5000
TOML: dict[str, tuple[Callable, str, str]] = {
    "a hardware of a number that no float holds": (
        config.load_hardware,
        f'name = "a"\nlaunch_queue = {HUGE}',
        "launch_queue: too large a number; got 20000 bits",
    ),
    "a job of a number that Python does not print": (
        config.load_job,
        f'schedule = "none"\ndata_parallel = {HUGE}',
        "data_parallel: too large a number",
    ),
    "a stage of more layers than Python prints": (
        config.load_job,
        f'schedule = "none"\nstage_layers = [{HUGE}]',
        r"stage_layers\[0\]: too large a number",
    ),
    "a model with more tables than there can be": (
        config.load_tables,
        'name = "a"\nbatch_size = 1\n'
        + '[[tables]]\nname = "t"\nrows = 1\ndimension = 1\ncount = 1_000_000_000_000',
        "too many tables; got 1000000000000; expected at most 100000",
    ),
    "a fit nested without end": (load_any_fit, f"a = {NESTED}", "not valid TOML"),
    "a kernel fit nested without end": (load_fit, f"a = {NESTED}", "not valid TOML"),
    "a class of thousands of letters": (
        load_classes,
        f'[[kernel]]\nclass = "{DIGITS}"\npattern = "a"',
        "no such class; got '9{499}\\.\\.; expected",
    ),
    "a measure with a line break": (
        lambda path: config.check_space(
            config.load_space(path), config.load_job("llama3-8b"), config.load_hardware("h100")
        ),
        'objectives = ["a\\nb"]',
        r"a\\nb: no such measure",
    ),
}


@pytest.mark.parametrize(("load", "text", "refusal"), TOML.values(), ids=TOML)
def test_what_was_found_in_toml_is_refused_in_one_line(tmp_path, load, text, refusal):
    path = tmp_path / "a.toml"
    path.write_text(text)
    with pytest.raises(JaxperfError, match=refusal) as raised:
        load(path)
    assert len(str(raised.value).splitlines()) == 1


def test_a_message_is_one_line_and_not_longer_than_a_screen():
    error = JaxperfError("a\nb", where="c\rd", got="x" * 10_000, remedy="\udc80")
    assert str(error).startswith(r"c\rd: a\nb; got xxx")
    assert len(str(error)) < 600 and str(error).endswith(r"xx..; \udc80")


def test_a_time_that_an_end_would_overflow_is_missing(tmp_path: Path):
    path = tmp_path / "rank0.json"
    path.write_bytes(events(EVENT, EVENT | {"ts": 9e15}, EVENT | {"dur": 9e15}))
    (trace,) = read_file(path)
    assert {"missing-time", "missing-duration"} <= {note.code for note in trace.notes}
    assert trace.end_ns.tolist() == [2000, 0]


def test_a_base_that_no_clock_shows_counts_for_nothing(tmp_path: Path):
    path = tmp_path / "rank0.json"
    path.write_text(document([EVENT], baseTimeNanoseconds=10**30))
    assert read_file(path)[0].origin_ns == 5000


def graph_of(folder: Path, *rows: dict):
    path = folder / "rank0.json"
    path.write_text(document(list(rows)))
    return build_graph(read_run(path))


def test_a_trace_of_months_becomes_no_graph(tmp_path: Path):
    with pytest.raises(GraphError, match="its times lie too far apart"):
        graph_of(tmp_path, kernel("a", 0), kernel("b", 1e13))


def test_steps_of_a_thread_without_work_are_none(tmp_path: Path):
    marks = [row("ProfilerStep#1", "trace", 0, 10), kernel("a", 2)]
    assert graph_of(tmp_path, *marks).steps == ()


def test_a_launch_long_after_its_work_does_not_fill_a_queue(tmp_path: Path):
    late = row("cudaLaunchKernel", "cuda_runtime", 50, 1, correlation=1)
    assert graph_of(tmp_path, late, kernel("a", 0, correlation=1)).tasks > 0
