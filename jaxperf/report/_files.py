"""Writing a result without ever leaving half of it, or writing over another."""

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from jaxperf.errors import OutputError


@contextmanager
def new_file(path: str | os.PathLike, overwrite: bool = False) -> Iterator[BinaryIO]:
    """A file that appears under its name only when it is complete.

    It is written beside its place and renamed at the end, so a crash leaves nothing.

    Args:
        path: where the file shall be.
        overwrite: replace a file that is there.

    Yields:
        The file, open for writing bytes.

    Raises:
        OutputError: the file exists, its folder does not, or it cannot be written.
    """
    target = Path(path)
    check_new_file(target, overwrite)
    try:
        handle, partial = tempfile.mkstemp(prefix=f".{target.name}.", dir=target.parent)
        try:
            with os.fdopen(handle, "wb") as file:
                yield file
            os.chmod(partial, 0o666 & ~_umask())  # a temporary file is private; a result is not
            os.replace(partial, target)
        except BaseException:
            Path(partial).unlink(missing_ok=True)
            raise
    except OSError as error:
        raise OutputError(
            "cannot be written",
            where=str(target),
            got=error.strerror or str(error),
            remedy="choose another place, or make room there",
        ) from error


def check_new_file(path: str | os.PathLike, overwrite: bool = False) -> None:
    """Refuse a place for a result before the work that makes it.

    Args:
        path: where a file shall be written.
        overwrite: whether a file that is there may be replaced.

    Raises:
        OutputError: the file exists, or its folder does not.
    """
    target = Path(path)
    if target.is_dir():
        raise OutputError("is a folder", where=str(target), expected="the name of a file")
    if target.exists() and not overwrite:
        raise OutputError(
            "exists already", where=str(target), remedy="choose another name, or overwrite it"
        )
    if not target.parent.is_dir():
        raise OutputError(
            "its folder does not exist",
            where=str(target),
            remedy=f"create {target.parent} first",
        )


def _umask() -> int:
    # The mask can only be read by setting it.
    mask = os.umask(0)
    os.umask(mask)
    return mask
