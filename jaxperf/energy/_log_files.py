"""A folder of logs, or an archive of one, as files by name."""

import bz2
import gzip
import io
import lzma
import os
import tarfile
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from jaxperf._bounded import TooManyBytes, read_at_most
from jaxperf.errors import LogError

_MOST_BYTES = 2 << 30
"""All files of one archive together: far above any submission, far below a machine's memory."""

_PACKED: Mapping[bytes, Callable] = {
    b"\x1f\x8b": lambda file: gzip.GzipFile(fileobj=file),
    b"\xfd7zXZ\x00": lzma.LZMAFile,
    b"BZh": bz2.BZ2File,
}

_ARCHIVE_ENDINGS = (".tar", ".tgz", ".tar.gz", ".tar.xz", ".tar.bz2")


@dataclass(frozen=True)
class LogFiles:
    """The files of one folder or archive.

    Attributes:
        source: the folder or archive, as the user named it.
        readers: by the path below it, with `/` between its parts, what reads the file.
    """

    source: str
    readers: Mapping[str, Callable[[], bytes]]

    @property
    def names(self) -> tuple[str, ...]:
        """Paths of all files, sorted."""
        return tuple(sorted(self.readers))

    def __contains__(self, name: str) -> bool:
        return name in self.readers

    def read(self, name: str) -> bytes:
        """The content of a file.

        Raises:
            LogError: there is no such file, or it cannot be read.
        """
        if name not in self.readers:
            raise LogError("missing file", where=self.where(name))
        try:
            return self.readers[name]()
        except OSError as error:
            raise LogError("cannot be read", where=self.where(name), got=error.strerror) from None

    def text(self, name: str) -> str:
        """The content of a file as text; bytes that are not UTF-8 become a mark."""
        return self.read(name).decode("utf-8", errors="replace")

    def where(self, name: str, line: int | None = None) -> str:
        """A place for a message: the file, and its line, counted from 1."""
        place = f"{self.source}/{name}" if name else self.source
        return place if line is None else f"{place}, line {line}"

    def below(self, folder: str) -> "LogFiles":
        """The files of a folder of these."""
        prefix = f"{folder}/"
        return LogFiles(
            self.where(folder),
            {
                name.removeprefix(prefix): read
                for name, read in self.readers.items()
                if name.startswith(prefix)
            },
        )


def open_logs(source: str | os.PathLike[str]) -> LogFiles:
    """The files of a folder, or of a tar archive of one.

    Args:
        source: the folder or the archive; its compression is told by content.

    Returns:
        The files. Those of an archive are in memory, those of a folder are read when asked for.

    Raises:
        LogError: there is nothing there, it is neither, or it is damaged or too large.

    Example:
        >>> import pathlib, tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     _ = pathlib.Path(folder, "node_0.txt").write_text("")
        ...     list(open_logs(folder).names)
        ['node_0.txt']
    """
    path = Path(source)
    if path.is_dir():
        found = (Path(at) / name for at, _, names in os.walk(source) for name in names)
        return LogFiles(
            str(source), {file.relative_to(path).as_posix(): file.read_bytes for file in found}
        )
    try:
        content = path.read_bytes()
    except OSError as error:
        raise LogError("cannot be read", where=str(source), got=error.strerror) from None
    return LogFiles(str(source), _archive_files(content, str(source)))


def is_archive(source: str | os.PathLike[str]) -> bool:
    """Whether a path is named as a tar archive is.

    Example:
        >>> is_archive("submission.tar.xz"), is_archive("node.csv")
        (True, False)
    """
    return os.fspath(source).endswith(_ARCHIVE_ENDINGS)


def _archive_files(content: bytes, source: str) -> dict[str, Callable[[], bytes]]:
    files: dict[str, Callable[[], bytes]] = {}
    left = _MOST_BYTES
    try:
        # Whole and bounded first: a header may ask for as much as a file of any length.
        plain = _plain(content, source)
        with tarfile.open(fileobj=io.BytesIO(plain), mode="r:") as archive:
            for member in archive:
                if not member.isfile():
                    continue
                left -= member.size
                if left < 0:
                    raise _too_much(source)
                reader = archive.extractfile(member)
                if reader is not None:
                    files[_inside(member.name)] = _held(reader.read())
    except (tarfile.TarError, lzma.LZMAError, zlib.error, EOFError, OSError) as error:
        raise LogError(
            "not a folder, and not a whole tar archive", where=source, got=str(error)
        ) from None
    return files


def _plain(content: bytes, source: str) -> bytes:
    for magic, opened in _PACKED.items():
        if content.startswith(magic):
            with opened(io.BytesIO(content)) as stream:
                try:
                    return read_at_most(stream, _MOST_BYTES)
                except TooManyBytes:
                    raise _too_much(source) from None
    return content


def _too_much(source: str) -> LogError:
    return LogError(
        "holds too much",
        where=source,
        expected=f"at most {_MOST_BYTES} bytes in all",
        remedy="unpack it, and name the folder of one submission",
    )


def _inside(name: str) -> str:
    # Nothing is written to disk, so a path that climbs out of the archive harms nobody.
    return PurePosixPath(name).as_posix().removeprefix("./")


def _held(content: bytes) -> Callable[[], bytes]:
    return lambda: content
