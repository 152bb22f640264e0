"""Bytes of a file, decompressed as they are needed; the kind of compression is told by content."""

import io
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from jaxperf.errors import TraceError
from jaxperf.trace._notes import NoteBook

try:
    # About 1.5 times faster than zlib on traces.
    from isal.igzip_lib import IsalError as _IsalError
    from isal.isal_zlib import decompressobj as _decompressor

    _INFLATE_ERRORS: tuple[type[Exception], ...] = (zlib.error, _IsalError)
except ImportError:
    from zlib import decompressobj as _decompressor

    _INFLATE_ERRORS = (zlib.error,)

_GZIP = b"\x1f\x8b"
_ZIP = b"PK\x03\x04"
_ZSTD = b"\x28\xb5\x2f\xfd"
_INPUT_BYTES = 1 << 20
_NESTING = 3


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
            while block := file.read(_INPUT_BYTES):
                yield block
            return
        first = next(inner, b"")
        if first[:4] in (_ZIP, _ZSTD) or first.startswith(_GZIP):
            # An archive inside an archive is rare and small: worth no streaming.
            whole = io.BytesIO(first + b"".join(inner))
            yield from self._expand(whole, nesting - 1)
        else:
            yield first
            yield from inner

    def _gzip(self, file: BinaryIO) -> Iterator[bytes]:
        stream = _decompressor(wbits=31)
        member_start = 0
        fed = 0
        data = file.read(_INPUT_BYTES)
        while data:
            try:
                block = stream.decompress(data)
            except _INFLATE_ERRORS:
                yield self._salvage(file, member_start, fed)
                self._cut("damaged-compression", f"compressed byte {fed}")
                return
            fed += len(data) - len(stream.unused_data)
            if block:
                yield block
            if stream.eof:
                data = stream.unused_data.lstrip(b"\0") or file.read(_INPUT_BYTES)
                if not data.startswith(_GZIP):
                    return  # zeros or other padding after the last member
                fed = member_start = file.tell() - len(data)
                stream = _decompressor(wbits=31)
            else:
                data = file.read(_INPUT_BYTES)
        if not stream.eof:
            if rest := stream.flush():
                yield rest
            self._cut("truncated", f"compressed byte {fed}")

    def _salvage(self, file: BinaryIO, start: int, good: int) -> bytes:
        """What can be had of the input after `good`, found byte by byte by a second pass."""
        stream = zlib.decompressobj(wbits=31)
        file.seek(start)
        remaining = good - start
        while remaining > 0:
            data = file.read(min(_INPUT_BYTES, remaining))
            remaining -= len(data)
            stream.decompress(data)
        rescued = []
        try:
            while byte := file.read(1):
                rescued.append(stream.decompress(byte))
        except zlib.error:
            pass
        return b"".join(rescued)

    def _zstd(self, file: BinaryIO) -> Iterator[bytes]:
        reader, errors = _zstd_reader(file, self._path)
        try:
            while block := reader.read(_INPUT_BYTES):
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
        except (zipfile.BadZipFile, EOFError, zlib.error):
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
