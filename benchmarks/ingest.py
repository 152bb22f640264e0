"""Time and memory of reading a run of 8 to 64 ranks.

    python benchmarks/ingest.py SHARED [--write docs/performance.md]

The eight ranks of the simulated job `gpt_dp2_pp2_tp2` are repeated as files of their own, each with
its rank in its name and in its text. Every size runs in a process of its own. CPU time is that of
the workers and of the process that collects what they read; the peak of a worker is that of the
largest one, its interpreter included. The collecting process holds the columns of all ranks.
"""

import gzip
import re
import resource
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from _processes import PEAK_UNIT, in_own_process, peak_bytes
from _script import make_tables, progress
from _tables import markdown, number

from jaxperf.trace import read_run

COPIES = (1, 2, 4, 8)
REPEATS = 2
WORKERS = 2
COLUMNS = (
    "ranks",
    "events",
    "wall s",
    "CPU s",
    "CPU ms a rank",
    "peak MB of a worker",
    "peak MB of the collecting process",
)
_RANK = re.compile(rb'("distributedInfo": *\{[^}]*?"rank": *)\d+')


def table(shared: Path) -> str:
    """One line a size."""
    lines = []
    for copies in COPIES:
        lines.append(line(least(shared, copies)))
        progress(lines[-1])
    return f"{markdown(COLUMNS, lines)}\n\n{WORKERS} workers."


def least(shared: Path, copies: int) -> dict[str, float]:
    """What reading takes at least, of a few runs in processes of their own."""
    with tempfile.TemporaryDirectory() as folder:
        repeat_files(shared / "oracle" / "gpt_dp2_pp2_tp2", Path(folder), copies)
        found = [in_own_process(measure, Path(folder)) for _ in range(REPEATS)]
    return {name: min(each[name] for each in found) for name in found[0]}


def repeat_files(run: Path, folder: Path, copies: int) -> None:
    """The traces of a run so many times, each as another rank."""
    files = sorted(run.glob("*.json.gz"))
    for copy in range(copies):
        for place, file in enumerate(files):
            rank = place + copy * len(files)
            text = _RANK.sub(rb"\g<1>%d" % rank, gzip.decompress(file.read_bytes()))
            target = folder / f"rank{rank}.pt.trace.json.gz"
            target.write_bytes(gzip.compress(text, compresslevel=1))


def measure(folder: Path) -> dict[str, float]:
    """Read a folder once."""
    begin = time.perf_counter()
    run = read_run(folder, workers=WORKERS)
    wall_s = time.perf_counter() - begin
    own = resource.getrusage(resource.RUSAGE_SELF)
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    assert [trace.rank for trace in run.traces] == list(range(len(run.traces)))
    return {
        "ranks": len(run.traces),
        "events": sum(trace.events for trace in run.traces),
        "wall_s": wall_s,
        "cpu_s": sum(u.ru_utime + u.ru_stime for u in (own, children)),
        "worker_bytes": children.ru_maxrss * PEAK_UNIT,
        "own_bytes": peak_bytes(),
    }


def line(result: dict[str, float]) -> Sequence[object]:
    """One line of the table."""
    return [
        result["ranks"],
        f"{result['events']:,}",
        number(result["wall_s"]),
        number(result["cpu_s"]),
        number(1e3 * result["cpu_s"] / result["ranks"], 1),
        number(result["worker_bytes"] / 1e6, 0),
        number(result["own_bytes"] / 1e6, 0),
    ]


if __name__ == "__main__":
    sys.exit(make_tables(__doc__, {"ingest": table}))
