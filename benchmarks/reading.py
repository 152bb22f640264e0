"""How fast and in how much memory traces are read, beside the standard library's `json.loads`.

    python benchmarks/reading.py SHARED [--write docs/performance.md]

Each reader runs in a process of its own, on the same file. CPU time is that of the process from
after its imports to the result; peak memory is the whole process, interpreter included. The plain
file is text; the compressed one is the same text through gzip, decompressed by both readers.
"""

import gzip
import json
import shutil
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from _script import make_tables, progress
from _synthetic import write_trace
from _tables import markdown, number

MEGABYTES = 300
REAL = 2
"""So many of the largest files of the shared folder."""
REPEATS = 3
COLUMNS = (
    "trace",
    "MB",
    "complete events",
    "CPU s",
    "`json` CPU s",
    "ratio",
    "peak / text",
    "`json` peak / text",
)
CHILD = Path(__file__).with_name("_load_once.py")


def table(shared: Path) -> str:
    """The synthetic trace, plain and compressed, and the largest real ones."""
    traces = sorted((shared / "traces").rglob("*.json.gz"), key=lambda path: path.stat().st_size)
    with tempfile.TemporaryDirectory() as folder:
        plain, packed = Path(folder, "synthetic.json"), Path(folder, "synthetic.json.gz")
        write_trace(plain, MEGABYTES)
        with open(plain, "rb") as text, gzip.open(packed, "wb", compresslevel=6) as out:
            shutil.copyfileobj(text, out, 1 << 20)
        files = {"synthetic, plain": plain, "synthetic, gzip": packed}
        files |= {f"{path.parent.name}/{path.name}": path for path in traces[: -REAL - 1 : -1]}
        lines = [_line(name, path) for name, path in files.items()]
    return markdown(COLUMNS, lines)


def _line(name: str, path: Path) -> list[str]:
    ours, theirs = _measure("jaxperf", path), _measure("json", path)
    assert ours["events"] == theirs["events"], (ours, theirs)
    size = _text_bytes(path)
    line = [
        name,
        number(size / 1e6, 0),
        f"{ours['events']:,}",
        number(ours["cpu_s"]),
        number(theirs["cpu_s"]),
        number(ours["cpu_s"] / theirs["cpu_s"]),
        number(ours["peak_bytes"] / size),
        number(theirs["peak_bytes"] / size),
    ]
    progress(line)
    return line


def _measure(reader: str, path: Path) -> dict[str, float]:
    """Median CPU time and largest peak over the repeats."""
    command = [sys.executable, CHILD, reader, path]
    texts = [subprocess.check_output(command, text=True) for _ in range(REPEATS)]
    runs = [json.loads(text.removeprefix("RESULT ")) for text in texts]
    return {
        "cpu_s": statistics.median(run["cpu_s"] for run in runs),
        "peak_bytes": max(run["peak_bytes"] for run in runs),
        "events": runs[0]["events"],
    }


def _text_bytes(path: Path) -> int:
    """Bytes of the file, decompressed."""
    if path.suffix != ".gz":
        return path.stat().st_size
    with gzip.open(path) as file:
        return sum(len(block) for block in iter(lambda: file.read(1 << 20), b""))


if __name__ == "__main__":
    sys.exit(make_tables(__doc__, {"reading": table}))
