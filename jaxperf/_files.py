"""Writing a file without ever leaving half of it, or writing over another."""

import contextlib
import os
import shutil
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from jaxperf.errors import OutputError

_REMEDY = "choose another place, or make room there"


@contextmanager
def new_file(path: str | os.PathLike[str], overwrite: bool = False) -> Iterator[BinaryIO]:
    """A file that appears under its name only when it is complete.

    It is written under a hidden name beside its place and renamed at the end, so that whatever
    ends the process leaves the old file or the new one, and an error or an interrupt no other.
    A link is followed: what it points to is written.

    Args:
        path: where the file shall be.
        overwrite: replace a file that is there; the new one gets its permissions.

    Yields:
        The file, open for writing bytes.

    Raises:
        OutputError: the file exists, its folder does not, or it cannot be written.
    """
    check_new_file(path, overwrite)
    try:
        target = Path(path).resolve()
        # Short, so that it fits wherever the name itself does.
        partial = target.with_name(f".{os.urandom(8).hex()}")
        try:
            with open(partial, "xb") as file:
                yield file
                file.flush()
                # Else the new name may outlive a loss of power, and the content not. It is also
                # here that a disk behind a network says that it is full.
                os.fsync(file.fileno())
            check_new_file(target, overwrite)  # for as long as writing took, others could write
            if target.exists():
                shutil.copymode(target, partial)
            os.replace(partial, target)
        except BaseException:
            with contextlib.suppress(OSError):
                partial.unlink(missing_ok=True)
            raise
    except OSError as error:
        raise _cannot_be_written(path, error) from error


def check_new_file(path: str | os.PathLike[str], overwrite: bool = False) -> None:
    """Refuse a place for a result before the work that makes it.

    Args:
        path: where a file shall be written.
        overwrite: whether a file that is there may be replaced.

    Raises:
        OutputError: the file exists, or is none that could be replaced; or its folder does not
            exist, or takes no files.
    """
    where = str(path)
    try:
        mode = _mode(Path(path))
        folder = Path(path).resolve().parent
        folder_mode = _mode(folder)
    except OSError as error:
        raise _cannot_be_written(path, error) from error
    if stat.S_ISDIR(mode):
        raise OutputError("is a folder", where=where, expected="the name of a file")
    if mode and not stat.S_ISREG(mode):
        # Renaming would put a file in the place of a device or a pipe, for everybody.
        raise OutputError("is a device or a pipe", where=where, expected="the name of a file")
    if mode and not overwrite:
        raise OutputError(
            "exists already", where=where, remedy="choose another name, or overwrite it"
        )
    if not stat.S_ISDIR(folder_mode):
        raise OutputError("its folder does not exist", where=where, remedy=f"create {folder} first")
    if not os.access(folder, os.W_OK | os.X_OK):
        raise OutputError("its folder takes no files", where=where, remedy="choose another place")


def _mode(path: Path) -> int:
    """Of what kind what is there is; 0 where nothing is."""
    try:
        return path.stat().st_mode
    except (FileNotFoundError, NotADirectoryError):
        return 0


def _cannot_be_written(path: str | os.PathLike[str], error: OSError) -> OutputError:
    got = error.strerror or str(error)
    return OutputError("cannot be written", where=str(path), got=got, remedy=_REMEDY)
