"""Compression is told by content, and a broken stream is read as far as it goes."""

import builtins
import gzip
import io
import random
import zipfile
import zlib

import numpy as np
import pytest

from jaxperf.errors import TraceError
from jaxperf.trace import _sources, read_file
from jaxperf.trace._notes import NoteBook
from jaxperf.trace._sources import Source
from tests.trace.written import codes, document, kernel, names, read

TEXT = document([kernel(f"k{index}", 10 * index, 7) for index in range(3)]).encode()


def zipped(*members):
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in members:
            archive.writestr(name, content)
    return buffer.getvalue()


def zstd(content):
    return pytest.importorskip("zstandard").compress(content)


@pytest.mark.parametrize(
    "pack",
    [
        bytes,
        gzip.compress,
        zstd,
        lambda content: zipped(("a.json", content)),
        lambda content: zipped(("a.json.gz", gzip.compress(content))),
        lambda content: gzip.compress(gzip.compress(content)),
        lambda content: gzip.compress(content[:300]) + gzip.compress(content[300:]),
        lambda content: gzip.compress(content) + b"\0" * 512,
    ],
    ids=["plain", "gzip", "zstd", "zip", "gzip in zip", "gzip twice", "two members", "padded"],
)
@pytest.mark.parametrize("name", ["trace.json", "trace.json.gz", "trace"])
def test_compression_is_told_by_content_not_by_name(tmp_path, pack, name):
    trace = read(tmp_path, pack(TEXT), name)
    assert names(trace) == ["k0", "k1", "k2"]
    assert not trace.notes
    assert not trace.truncated


def test_an_archive_of_several_files_is_refused(tmp_path):
    path = tmp_path / "traces.zip"
    path.write_bytes(zipped(("a.json", TEXT), ("b.json", TEXT)))
    with pytest.raises(TraceError, match="several files.*2 files.*unpack"):
        read_file(path)


def test_a_missing_zstd_package_is_named(tmp_path, monkeypatch):
    packed = zstd(TEXT)
    imported = builtins.__import__

    def without(name, *args):
        if name.split(".")[0] in ("zstandard", "compression"):
            raise ImportError(name)
        return imported(name, *args)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(TraceError, match="pip install zstandard"):
        read(tmp_path, packed)


def long_text():
    draw = random.Random(1)
    lines = [b'{"a": %d, "b": "%s"},\n' % (draw.getrandbits(40), b"x" * 9) for _ in range(60_000)]
    return b"".join(lines)


@pytest.fixture(params=["zlib", "isal"])
def inflate(request, monkeypatch):
    if request.param == "isal":
        decompressor = pytest.importorskip("isal.isal_zlib").decompressobj
    else:
        decompressor = zlib.decompressobj
    monkeypatch.setattr(_sources, "_decompressor", decompressor)


def content_of(path, packed):
    path.write_bytes(packed)
    notes = NoteBook(str(path))
    source = Source(path, notes)
    return b"".join(source.blocks()), source.cut, {note.code for note in notes.notes()}


@pytest.mark.usefixtures("inflate")
@pytest.mark.parametrize("text", [long_text(), b"a" * (1 << 20), b"b" * (3 << 20), b""])
def test_gzip_comes_out_whole_whatever_its_size(tmp_path, text):
    packed = gzip.compress(text)
    assert content_of(tmp_path / "a.gz", packed) == (text, False, set())
    assert content_of(tmp_path / "a.gz", packed + packed) == (text + text, False, set())


@pytest.mark.usefixtures("inflate")
@pytest.mark.parametrize("left", [0.0, 0.3, 0.9, -1, -8, -9])
def test_cut_gzip_is_read_to_the_cut(tmp_path, left):
    text = long_text()
    packed = gzip.compress(text)
    cut = int(left * len(packed)) if left >= 0 else len(packed) + int(left)
    packed = packed[: max(cut, 12)]
    expected = zlib.decompressobj(31).decompress(packed)
    assert content_of(tmp_path / "a.gz", packed) == (expected, True, {"truncated"})


@pytest.mark.usefixtures("inflate")
@pytest.mark.parametrize("place", [0.5, 0.999])
def test_damaged_gzip_is_read_to_the_damage(tmp_path, place):
    text = long_text()
    packed = bytearray(gzip.compress(text))
    at = int(place * len(packed))
    packed[at : at + 40] = bytes(40)
    found, cut, notes = content_of(tmp_path / "a.gz", bytes(packed))
    assert cut
    assert notes == {"damaged-compression"}
    same = np.frombuffer(found[: len(text)], np.uint8) == np.frombuffer(
        text[: len(found)], np.uint8
    )
    before_damage = int(np.argmin(same)) if not same.all() else len(same)
    assert before_damage >= 0.95 * place * len(text)


@pytest.mark.parametrize("pack", [zstd, lambda text: zipped(("a.json", text))], ids=["zstd", "zip"])
def test_other_cut_streams_end_in_a_result_or_one_line(tmp_path, pack):
    events = [kernel(f"kernel {index}", 10 * index, 7, correlation=index) for index in range(4000)]
    packed = pack(document(events).encode())
    for share in (0.02, 0.5, 0.98):
        try:
            trace = read(tmp_path, packed[: int(share * len(packed))])
        except TraceError as error:
            assert "\n" not in str(error)
        else:
            assert trace.truncated
            assert codes(trace) & {"truncated", "damaged-compression"}
