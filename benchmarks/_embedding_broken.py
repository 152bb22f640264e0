"""Broken logs at the command line: how each ends."""

import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from _tables import markdown

IDS = np.random.default_rng(0).zipf(1.3, 2000) % 1000


def table(_shared: Path) -> str:
    with tempfile.TemporaryDirectory() as folder:
        rows = [_row(Path(folder), *case) for case in _cases(Path(folder))]
    met = sum(row[1:3] == (2, 1) for row in rows)
    columns = ("log", "exit", "lines", "what it says")
    return f"{markdown(columns, rows)}\n\n{met} of {len(rows)} end in exit 2 and one line."


def _cases(folder: Path) -> Iterator[tuple[str, Path, str]]:
    """What is broken, the file, and the format that is asked for."""
    contents = {
        "a negative id, text": (b"1\n2\n-3\n", "auto"),
        "negative ids, 64 bits": (np.where(IDS == 7, -7, IDS).astype("<i8").tobytes(), "int64-le"),
        "empty file": (b"", "auto"),
        "no ids": (b"\n\n", "auto"),
        "words": (b"a\nb\n", "auto"),
        "cut off within an id": (IDS.astype(">i8").tobytes()[:-3], "int64-be"),
        "64 bits, wrong byte order asked": (IDS.astype("<i8").tobytes(), "int64-be"),
        "32 bits, wrong byte order asked": (IDS.astype("<i4").tobytes(), "int32-be"),
        "32 bits, 64 asked": (IDS.astype(">i4").tobytes(), "int64-be"),
        "64 bits, 32 asked": (IDS.astype(">i8").tobytes(), "int32-be"),
        "random bytes": (np.random.default_rng(0).bytes(4000), "auto"),
    }
    for index, (name, (content, format)) in enumerate(contents.items()):
        path = folder / f"{index}.log"
        path.write_bytes(content)
        yield name, path, format
    arrays = {
        "lengths that do not agree with ids": {"ids": [1, 2, 3], "lengths": [2, 2]},
        "offsets that fall": {"ids": [1, 2, 3], "offsets": [0, 2, 1, 3]},
        "an id beyond the rows given": {"ids": [1, 7], "rows": 7},
        "one table of two is empty": {"a_ids": [1], "b_ids": np.zeros(0, int)},
        "tables of different bags": {
            **{"a": [1], "a_lengths": [1]},
            **{"b": [1, 2], "b_lengths": [1, 1]},
        },
    }
    for index, (name, of_file) in enumerate(arrays.items()):
        path = folder / f"{index}.npz"
        np.savez(
            path, allow_pickle=False, **{key: np.array(value) for key, value in of_file.items()}
        )
        yield f"{name}, .npz", path, "auto"


def _row(folder: Path, name: str, path: Path, format: str) -> tuple[str, int, int, str]:
    command = [sys.executable, "-m", "jaxperf", "embedding", "profile", str(path), "--json"]
    ended = subprocess.run(
        [*command, "--format", format], capture_output=True, text=True, check=False
    )
    lines = ended.stderr.splitlines()
    said = lines[0].replace(f"{folder}/", "").removeprefix("jaxperf: ") if lines else "a profile"
    return name, ended.returncode, len(lines), f"`{said}`"
