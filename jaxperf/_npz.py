"""The arrays of an .npz that anybody may have written."""

import io
import lzma
import struct
import tokenize
import zipfile
import zlib

import numpy as np

from jaxperf._bounded import TooManyBytes

MOST_BYTES = 4 << 30
"""All arrays of one file together, unpacked: a small file may say that it holds any number."""

# What `zipfile` and `numpy` raise of damaged content.
_DAMAGE = (
    *(zipfile.BadZipFile, zlib.error, lzma.LZMAError, struct.error, EOFError, OSError),
    *(ValueError, TypeError, IndexError, KeyError, AttributeError, OverflowError),
    *(RuntimeError, SyntaxError, tokenize.TokenError, MemoryError),
)


class NotArrays(Exception):
    """It is no .npz, or a damaged one; the message says what in a few words."""


def npz_arrays(content: bytes, most_bytes: int = MOST_BYTES) -> dict[str, np.ndarray]:
    """The arrays of an .npz by name; nothing of it is executed.

    Args:
        content: of the file.
        most_bytes: that its arrays may take together.

    Raises:
        NotArrays: it is none, or is damaged.
        TooManyBytes: its arrays take more.

    Example:
        >>> file = io.BytesIO()
        >>> np.savez(file, ids=np.arange(3))
        >>> npz_arrays(file.getvalue())["ids"].tolist()
        [0, 1, 2]
    """
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            held = sum(member.file_size for member in archive.infolist())
        if held > most_bytes:
            raise TooManyBytes(f"{held} bytes")
        with np.load(io.BytesIO(content), allow_pickle=False) as file:
            return {name: np.asarray(file[name]) for name in file.files}
    except _DAMAGE as error:
        words = str(error).splitlines() or [type(error).__name__]
        raise NotArrays(words[0][:200]) from None
