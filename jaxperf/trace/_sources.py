"""Bytes of a file, decompressed as they are needed; the kind of compression is told by content."""

import io
import lzma
import struct
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from jaxperf.errors import TraceError
from jaxperf.trace._notes import NoteBook

try:
    # 1.5 to 4 times faster than zlib on traces.
    from isal import isal_zlib

    _decompressor = isal_zlib.decompressobj
    _INFLATE_ERRORS: tuple[type[Exception], ...] = (
        zlib.error,
        isal_zlib.error,  # type: ignore[assignment] # its stub says an instance
    )
except ImportError:
    _decompressor = zlib.decompressobj
    _INFLATE_ERRORS = (zlib.error,)

_GZIP = b"\x1f\x8b"
_ZIP = b"PK\x03\x04"
_ZSTD = b"\x28\xb5\x2f\xfd"
_SQLITE = b"SQLite format 3\0"
# The last four are what `zipfile` raises of names, places and sizes that cannot be.
_ZIP_ERRORS = (
    *(zipfile.BadZipFile, EOFError, zlib.error, lzma.LZMAError),
    *(ValueError, IndexError, OverflowError, struct.error),
)
_READ_BYTES = 1 << 20
_SALVAGE_BYTES = 4 << 10
_MOST_INNER_BYTES = 256 << 20
_NESTING = 3


def is_sqlite(path: Path) -> bool:
    """Does the file begin as an SQLite database does?"""
    try:
        if not path.is_file():
            return False
        with open(path, "rb") as file:
            return file.read(len(_SQLITE)) == _SQLITE
    except OSError:
        return False  # which the reader of the text will report


class Source:
    """A file's decompressed content, block by block.

    Attributes:
        cut: the compressed stream ended, or broke, before its end.
    """

    def __init__(self, path: Path, notes: NoteBook):
        self._path = path
        self._notes = notes
        self.cut = False

    def blocks(self) -> Iterator[bytes]:
        """Decompressed content in order; `TraceError` where the file cannot be opened."""
        with _readable(self._path), open(self._path, "rb") as file:
            yield from self._expand(file, _NESTING)

    def _expand(self, file: BinaryIO, nesting: int) -> Iterator[bytes]:
        magic = file.read(4)
        file.seek(0)
        if nesting and magic.startswith(_GZIP):
            inner: Iterator[bytes] = self._gzip(file)
        elif nesting and magic == _ZSTD:
            inner = self._zstd(file)
        elif nesting and magic == _ZIP:
            yield from self._zip(file, nesting)
            return
        else:
            while block := file.read(_READ_BYTES):
                yield block
            return
        first = next(inner, b"")
        if first[:4] in (_ZIP, _ZSTD) or first.startswith(_GZIP):
            # An archive inside an archive is rare and small: worth no streaming.
            yield from self._expand(io.BytesIO(self._whole(first, inner)), nesting - 1)
        else:
            yield first
            yield from inner

    def _whole(self, first: bytes, others: Iterator[bytes]) -> bytes:
        parts, held = [first], len(first)
        for block in others:
            parts.append(block)
            held += len(block)
            if held > _MOST_INNER_BYTES:
                raise TraceError(
                    "an archive inside an archive that holds too much",
                    where=str(self._path),
                    expected=f"at most {_MOST_INNER_BYTES} bytes",
                    remedy="unpack the outer one first",
                )
        return b"".join(parts)

    def _gzip(self, file: BinaryIO) -> Iterator[bytes]:
        stream = _decompressor(wbits=31)
        member = file.tell()  # where the member at hand starts, and what came out of it
        known = 0
        data = file.read(_READ_BYTES)
        block = b""
        while data or block:  # without input, what the stream still holds
            place = file.tell() - len(data)
            try:
                # Bounded: repetitive text shrinks a thousandfold, and comes out in one piece.
                block = stream.decompress(data, _READ_BYTES)
            except _INFLATE_ERRORS:
                yield self._salvage(file, member, known)
                self._cut("damaged-compression", f"compressed byte {place}")
                return
            known += len(block)
            yield block
            if stream.eof:
                data = (stream.unused_data or file.read(_READ_BYTES)).lstrip(b"\0")
                if not data or not data.startswith(_GZIP[: len(data)]):
                    return  # the end, or padding after the last member
                member, known = file.tell() - len(data), 0
                stream = _decompressor(wbits=31)
            else:
                data = stream.unconsumed_tail or file.read(_READ_BYTES)
        self._cut("truncated", f"compressed byte {file.tell()}")

    def _salvage(self, file: BinaryIO, member: int, known: int) -> bytes:
        """The output between its first `known` bytes and the damage, found by a second pass."""
        stream = zlib.decompressobj(wbits=31)
        file.seek(member)
        seen = 0
        rescued = []
        step = _SALVAGE_BYTES
        while data := file.read(step):
            before = stream.copy()
            try:
                block = stream.decompress(data)
            except zlib.error:
                if step == 1:
                    break
                stream, step = before, 1  # to the very byte
                file.seek(-len(data), 1)
                continue
            rescued.append(block[max(0, known - seen) :])
            seen += len(block)
        return b"".join(rescued)

    def _zstd(self, file: BinaryIO) -> Iterator[bytes]:
        reader, errors = _zstd_reader(file, self._path)
        try:
            while block := reader.read(_READ_BYTES):
                yield block
        except errors:
            self._cut("truncated", f"compressed byte {file.tell()}")

    def _zip(self, file: BinaryIO, nesting: int) -> Iterator[bytes]:
        try:
            with zipfile.ZipFile(file) as archive:
                members = [m for m in archive.infolist() if not m.is_dir() and m.file_size]
                if len(members) != 1:
                    raise TraceError(
                        "an archive of several files",
                        where=str(self._path),
                        got=f"{len(members)} files",
                        expected="one trace",
                        remedy="unpack it into a folder",
                    )
                with archive.open(members[0]) as member:
                    yield from self._expand(member, nesting - 1)  # type: ignore[arg-type]
        except RuntimeError as error:  # of which "not implemented" is one
            raise TraceError(
                "an archive that cannot be unpacked here",
                where=str(self._path),
                got=" ".join(str(error).split())[:80],
                expected="one of zip's usual kinds, without a password",
                remedy="unpack it first",
            ) from None
        except _ZIP_ERRORS:
            self._cut("damaged-compression")

    def _cut(self, code: str, place: str | None = None) -> None:
        self.cut = True
        self._notes.add(code, place)


def _zstd_reader(file: BinaryIO, path: Path):
    try:
        from compression import zstd  # type: ignore[import-not-found] # Python 3.14

        return zstd.ZstdFile(file), (zstd.ZstdError, EOFError)
    except ImportError:
        pass
    try:
        import zstandard
    except ImportError:
        raise TraceError(
            "compressed with zstd, which needs a package that is not installed",
            where=str(path),
            remedy="pip install zstandard, or unpack the file first",
        ) from None
    decompressor = zstandard.ZstdDecompressor()
    reader = decompressor.stream_reader(file, read_across_frames=True)
    return reader, (zstandard.ZstdError, EOFError)


@contextmanager
def _readable(path: Path):
    try:
        yield
    except FileNotFoundError:
        raise TraceError(
            "no such file", where=str(path), expected="a trace file or a folder of traces"
        ) from None
    except IsADirectoryError:
        raise TraceError("a folder, not a file", where=str(path)) from None
    except OSError as error:
        raise TraceError(f"cannot be read: {error.strerror or error}", where=str(path)) from None
    except MemoryError:
        raise out_of_memory(str(path)) from None


def out_of_memory(where: str) -> TraceError:
    """The error for a file that needs more memory than there is."""
    return TraceError(
        "not enough memory to read it",
        where=where,
        remedy="read fewer files at once (workers=1), record fewer steps, or use a larger machine",
    )
