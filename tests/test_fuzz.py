"""Readers and what anybody may give them: a result, or an error of one line; within bounds."""

import gzip
import io
import json
import lzma
import random
import subprocess
import sys
import tarfile
import tracemalloc
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import tomli_w
from hypothesis import HealthCheck, given, settings, strategies as st

from benchmarks._fuzz_targets import TARGETS, NotAnInput
from jaxperf import _npz, config
from jaxperf._bounded import TooManyBytes
from jaxperf.embedding.locality import _log_content
from jaxperf.embedding.locality._access_log import read_access_logs
from jaxperf.energy import _content, _log_files
from jaxperf.energy._log_files import open_logs
from jaxperf.energy._series_files import parse_power_series
from jaxperf.energy.published import read_facts
from jaxperf.errors import JaxperfError, LogError, TraceError
from jaxperf.trace import _document, _sources, read_file
from tests.trace.written import document

ROOT = Path(__file__).parents[1]
MB = 1 << 20
EVENT = {"ph": "X", "name": "a", "pid": 1, "tid": 1, "ts": 5, "dur": 2}
SLOW = {"graph", "inference", "score", "trace", "shards"}

some = settings(
    max_examples=100,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)


def reads_or_refuses(read: Callable[[], object]) -> None:
    try:
        read()
    except NotAnInput:
        pass
    except JaxperfError as error:
        assert len(str(error).splitlines()) == 1


# Drawn inputs
# ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", TARGETS)
def test_a_reader_reads_or_refuses_what_is_nearly_right(name):
    target = TARGETS[name]
    read, seeds = target.reader(), target.seeds()
    for number in range(20 if name in SLOW else 60):
        draw = random.Random(f"{name} {number}")
        content = draw.choice(seeds)
        for _ in range(1 + number % 4):
            try:
                content = target.mutation(content, draw)
            except (ValueError, TypeError, AttributeError, ArithmeticError):
                break  # no longer of a form that can be changed
        reads_or_refuses(lambda content=content: read(content))


numbers = st.one_of(
    st.integers(),
    st.integers(-(10**400), 10**400),
    st.floats(allow_nan=False, allow_infinity=False),
)
scalars = st.one_of(st.none(), st.booleans(), numbers, st.text(max_size=8))
anything = st.recursive(
    scalars,
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3)
    ),
    max_leaves=6,
)
CATEGORIES = (
    "kernel",
    "cpu_op",
    "cuda_runtime",
    "gpu_memcpy",
    "cuda_sync",
    "ac2g",
    "user_annotation",
)
ARGUMENTS = (
    *("correlation", "External id", "device", "stream", "bytes", "blocks per SM", "grid", "block"),
    *("Sequence number", "Fwd thread id", "Input Dims", "Input type", "Collective name", "Seq"),
    *("Group size", "Process Group Ranks", "cuda_sync_kind", "wait_on_stream", "name", "pid_raw"),
)
drawn_events = st.fixed_dictionaries(
    {"ph": st.sampled_from("XBEsfM") | anything},
    optional={
        "cat": st.sampled_from(CATEGORIES) | anything,
        "name": st.sampled_from(("aten::mm", "cudaLaunchKernel", "thread_name")) | anything,
        **dict.fromkeys(("ts", "dur", "pid", "tid", "id"), st.integers(0, 99) | anything),
        "args": st.dictionaries(
            st.sampled_from(ARGUMENTS), st.integers(0, 99) | anything, max_size=4
        )
        | anything,
    },
)


@some
@given(rows=st.lists(drawn_events, max_size=6), job=anything, base=anything)
def test_events_of_any_kind_are_read_or_refused(tmp_path_factory, rows, job, base):
    path = tmp_path_factory.getbasetemp() / "rank0.json"
    path.write_text(document(rows, distributedInfo=job, baseTimeNanoseconds=base))
    reads_or_refuses(lambda: read_file(path))


@some
@given(content=st.binary(max_size=64), rows=st.lists(drawn_events, max_size=3), at=st.integers(0))
def test_noise_in_a_trace_is_repaired_or_refused(tmp_path_factory, content, rows, at):
    text = document(rows).encode()
    at %= len(text)
    path = tmp_path_factory.getbasetemp() / "rank0.json"
    path.write_bytes(text[:at] + content + text[at:])
    reads_or_refuses(lambda: read_file(path))


toml_values = st.recursive(
    st.one_of(
        st.booleans(),
        st.integers(),
        st.floats(),
        st.text(st.characters(exclude_categories=["Cs"]), max_size=8),
        st.datetimes(),
    ),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text("abc.", max_size=4), inner),
    max_leaves=5,
)
TOML_FILES = {
    config.load_job: "jobs/deepseek-v3",
    config.load_hardware: "hardware/h100",
    config.load_power: "power/h100",
    config.load_server: "servers/h100-nand",
    config.load_tables: "tables/dlrm-dcnv2",
    config.load_memory: "memory/nand-pm9a3-7680gb",
}


@pytest.mark.parametrize("load", TOML_FILES)
@settings(parent=some, max_examples=40)
@given(data=st.data())
def test_toml_of_any_values_is_read_or_refused(tmp_path_factory, load, data):
    import tomllib

    tree = tomllib.loads((ROOT / "configs" / f"{TOML_FILES[load]}.toml").read_text())
    for key in data.draw(st.sets(st.sampled_from(sorted(tree)), max_size=3)):
        tree[key] = data.draw(toml_values)
    path = tmp_path_factory.getbasetemp() / "drawn.toml"
    path.write_text(tomli_w.dumps(tree))
    reads_or_refuses(lambda: load(path))


cells = st.one_of(numbers.map(str), st.text(max_size=6), st.sampled_from(("W", "[N/A]", "1e999")))
heads = st.sampled_from(("time,watts", "timestamp;power_kw;host", "time,energy [J]", "begin,end,w"))


@some
@given(head=heads, rows=st.lists(st.lists(cells, min_size=1, max_size=4), max_size=5))
def test_tables_of_any_cells_are_read_or_refused(head, rows):
    separator = ";" if ";" in head else ","
    text = "\n".join([head, *(separator.join(row) for row in rows)])
    content = text.encode("utf-8", "surrogatepass")
    reads_or_refuses(lambda: parse_power_series(content, "power.csv"))


# Bombs
# ---------------------------------------------------------------------------------------


def packed(*parts: bytes, times: int = 1) -> bytes:
    """Parts through gzip one after the other, the last several times."""
    *first, last = (gzip.compress(part, mtime=0) for part in parts)
    return b"".join(first) + last * times


BLANK = b" " * (16 * MB)
EVENTS = json.dumps([EVENT]).encode()
BOMBS: dict[str, Callable[[], bytes]] = {
    "blanks": lambda: packed(BLANK, times=16),
    "blanks in gzip in gzip": lambda: packed(packed(BLANK, times=16)),
    "blanks after a bracket": lambda: packed(b"[" + BLANK, BLANK, times=16),
    "one text that never ends": lambda: packed(b'[{"ph":"X","name":"', b"a" * 16 * MB, times=16),
    "metadata after the events": lambda: packed(
        b'{"traceEvents":' + EVENTS + b',"a":"', b"a" * 16 * MB, times=16
    ),
    "metadata before the events": lambda: packed(b'{"a":"', b"a" * 16 * MB, times=16),
    "quotes": lambda: packed(b"[", b'"' * 16 * MB, times=16),
    "an archive in gzip": lambda: packed(b"PK\3\4", bytes(16 * MB), times=16),
    "ten thousand files": lambda: made_zip({f"{n}.json": EVENTS for n in range(10_000)}),
    "a file that says it is of 4 GB": lambda: declared(made_zip({"a.json": EVENTS})),
}
READ_IN_BOUNDS = """
import json, resource, sys
from jaxperf.errors import JaxperfError
from jaxperf.trace import read_file
used = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
limit = used + (192 << 20)
resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
for path in sys.argv[1:]:
    try:
        print("read", [note.code for trace in read_file(path) for note in trace.notes])
    except JaxperfError as error:
        print(error)
"""


def made_zip(files: dict[str, bytes], kind: int = zipfile.ZIP_STORED) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", kind) as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    return file.getvalue()


def declared(archive: bytes) -> bytes:
    """A zip whose directory says that its file is of 4 GB, packed and unpacked."""
    entry = archive.rindex(b"PK\1\2")
    return archive[: entry + 20] + b"\xfe\xff\xff\xff" * 2 + archive[entry + 28 :]


@pytest.mark.skipif(sys.platform != "linux", reason="needs /proc and a limit of memory")
def test_bombs_are_read_or_refused_within_bounded_memory(tmp_path):
    for number, make in enumerate(BOMBS.values()):
        (tmp_path / f"{number}.json").write_bytes(make())
    files = [str(tmp_path / f"{number}.json") for number in range(len(BOMBS))]
    run = subprocess.run(
        [sys.executable, "-c", READ_IN_BOUNDS, *files], capture_output=True, text=True, cwd=ROOT
    )
    assert run.returncode == 0, run.stderr
    assert len(run.stdout.splitlines()) == len(BOMBS), run.stdout


def test_a_text_in_which_no_event_ends_is_refused_with_its_limit(tmp_path, monkeypatch):
    monkeypatch.setattr(_document, "_MOST_BETWEEN_BYTES", 4 * MB)
    path = tmp_path / "rank0.json.gz"
    path.write_bytes(packed(b'[{"ph":"X","name":"', b"a" * 16 * MB))
    with pytest.raises(TraceError, match="no event ends in a long text; got .* bytes; expected at"):
        read_file(path)


def test_an_archive_in_an_archive_is_refused_with_its_limit(tmp_path, monkeypatch):
    monkeypatch.setattr(_sources, "_MOST_INNER_BYTES", 1 * MB)
    path = tmp_path / "rank0.json.gz"
    path.write_bytes(packed(packed(random.Random(0).randbytes(2 * MB))))
    with pytest.raises(TraceError, match="holds too much; expected at most 1048576 bytes; unpack"):
        read_file(path)


def test_a_bomb_of_readings_is_refused_with_its_limit(monkeypatch):
    monkeypatch.setattr(_content, "_MOST_BYTES", 1 * MB)
    for content in (packed(BLANK), lzma.compress(BLANK)):
        with pytest.raises(LogError, match="holds too much; expected at most 1048576 bytes"):
            parse_power_series(content, "power.csv")


@pytest.mark.parametrize("cell", ["9999,{}", "{},1", "9999,1,{}"], ids=["value", "time", "host"])
def test_one_wide_cell_of_a_table_does_not_make_all_cells_wide(cell):
    rows = "".join(f"{second},1,a\n" for second in range(2000)) + cell.format("x" * 32_000) + ",a\n"
    tracemalloc.start()
    try:
        parse_power_series(f"time,watts,host\n{rows}".encode(), "power.csv")
        assert tracemalloc.get_traced_memory()[1] < 32 * MB
    finally:
        tracemalloc.stop()


def test_a_wide_field_of_published_results_is_refused(tmp_path):
    path = tmp_path / "facts.csv"
    path.write_bytes(TARGETS["facts"].seeds()[0].replace(b"ResNet", b"R" * 2000, 1))
    with pytest.raises(LogError, match="too long a field; got 2000 characters; expected at most"):
        read_facts(path)


def tar(files: dict[str, bytes], size: int | None = None, kind: bytes = tarfile.REGTYPE) -> bytes:
    """A tar archive; `size` is what its headers say instead of the truth."""
    file = io.BytesIO()
    for name, content in files.items():
        member = tarfile.TarInfo(name)
        member.size, member.type = len(content) if size is None else size, kind
        file.write(member.tobuf(tarfile.GNU_FORMAT))
        file.write(content + bytes(-len(content) % 512))
    return file.getvalue() + bytes(1024)


@pytest.mark.parametrize("kind", [tarfile.REGTYPE, tarfile.GNUTYPE_LONGNAME, tarfile.XHDTYPE])
def test_an_archive_of_logs_that_says_it_is_huge_is_refused(tmp_path, kind):
    path = tmp_path / "logs.tar"
    path.write_bytes(tar({"node_0.txt": b"a"}, size=10 << 30, kind=kind))
    with pytest.raises(LogError, match="holds too much|not a whole tar archive"):
        open_logs(path)


@pytest.mark.parametrize("pack", [gzip.compress, lzma.compress])
def test_a_bomb_of_logs_is_refused_with_its_limit(tmp_path, monkeypatch, pack):
    monkeypatch.setattr(_log_files, "_MOST_BYTES", 1 * MB)
    path = tmp_path / "logs.tar.gz"
    path.write_bytes(pack(tar({"node_0.txt": BLANK})))
    with pytest.raises(LogError, match="holds too much; expected at most 1048576 bytes in all"):
        open_logs(path)


@pytest.mark.parametrize("pack", [gzip.compress, lzma.compress])
def test_a_bomb_of_accesses_is_refused_with_its_limit(tmp_path, monkeypatch, pack):
    monkeypatch.setattr(_log_content, "MOST_BYTES", 1 * MB)
    path = tmp_path / "ids.txt.gz"
    path.write_bytes(pack(b"1\n" * MB))
    with pytest.raises(LogError, match="holds too much; expected at most 1048576 bytes; unpack"):
        read_access_logs(path)


def npz(header: dict[str, object], content: bytes = b"") -> bytes:
    file = io.BytesIO()
    np.lib.format.write_array_header_1_0(file, header)
    return made_zip({"ids.npy": file.getvalue() + content}, zipfile.ZIP_DEFLATED)


def array_of(*shape: int) -> dict[str, object]:
    return {"descr": "<i8", "fortran_order": False, "shape": shape}


@pytest.mark.parametrize("shape", [(10**13,), (10**9, 10**9), (10**30,), (-1,), (1,) * 65])
def test_arrays_that_say_they_are_huge_are_refused(tmp_path, shape):
    path = tmp_path / "ids.npz"
    path.write_bytes(npz(array_of(*shape), bytes(64)))
    with pytest.raises(LogError, match="no .npz, or a damaged one"):
        read_access_logs(path)


def test_arrays_that_are_huge_are_refused_with_their_limit(tmp_path, monkeypatch):
    with pytest.raises(TooManyBytes):
        _npz.npz_arrays(npz(array_of(2 * MB), bytes(16 * MB)), most_bytes=MB)
    path = tmp_path / "ids.npz"
    path.write_bytes(declared(npz(array_of(8), bytes(64))))
    monkeypatch.setattr("jaxperf._npz.npz_arrays.__defaults__", (MB,))
    with pytest.raises(LogError, match="holds too much; got 4294967294 bytes; expected at most"):
        read_access_logs(path)


@pytest.mark.parametrize(
    "text",
    [
        "a = " + "[" * 100_000,
        "a = " + "{a=" * 100_000,
        "[" + "a." * 100_000 + "a]",
        "a" * MB + " = 1",
        "layers = " + "9" * MB,
        "layers = 0x" + "f" * MB,
        "a." * 100_000 + "a = 1",
    ],
    ids=["arrays", "tables", "headers", "key", "digits", "bits", "dots"],
)
def test_toml_beyond_reason_is_refused_in_one_line(tmp_path, text):
    path = tmp_path / "job.toml"
    path.write_text(text)
    with pytest.raises(JaxperfError) as raised:
        config.load_job(path)
    assert len(str(raised.value)) < 2500 and len(str(raised.value).splitlines()) == 1


# Paths in archives
# ---------------------------------------------------------------------------------------

OUTSIDE = ("../../outside.json", "/tmp/outside.json", "..\\outside.json", "a/../../outside.json")


@pytest.mark.parametrize("name", OUTSIDE)
def test_nothing_is_written_of_an_archive(tmp_path, name):
    folder = tmp_path / "a" / "b"
    folder.mkdir(parents=True)
    (folder / "rank0.json.zip").write_bytes(made_zip({name: EVENTS}))
    (folder / "logs.tar").write_bytes(tar({name: b"time,watts\n0,1\n1,1\n"}))
    before = sorted(tmp_path.rglob("*"))
    assert len(read_file(folder / "rank0.json.zip")) == 1
    assert open_logs(folder / "logs.tar").names
    assert sorted(tmp_path.rglob("*")) == before
    assert not Path("/tmp/outside.json").exists()
