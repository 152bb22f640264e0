"""Loads traces once with one reader, and tells what that took: a program for a process of its own.

    python _load_once.py {jaxperf,json,hta} FILE...

Seconds are those of the processors after the reader's imports; memory is the whole process, or the
largest that it started. HTA's Python need not have jaxperf.
"""

import json
import resource
import sys
from pathlib import Path

from _processes import PEAK_UNIT, peak_bytes


def main(reader: str, *paths: str) -> None:
    load = {"jaxperf": _jaxperf, "json": _json, "hta": _hta}[reader]()
    before_s = _used_s()
    events = load(paths)
    used_s = _used_s() - before_s
    children = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * PEAK_UNIT
    found = {"cpu_s": used_s, "peak_bytes": max(peak_bytes(), children), "events": events}
    print(f"RESULT {json.dumps(found)}", flush=True)


def _used_s() -> float:
    each = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(usage.ru_utime + usage.ru_stime for usage in each)


def _jaxperf():
    from jaxperf.trace import read_run

    return lambda paths: sum(trace.events for trace in read_run(paths).traces)


def _json():
    import gzip

    def load(paths):
        (path,) = paths
        with gzip.open(path) if path.endswith(".gz") else open(path, "rb") as file:
            data = json.loads(file.read())
        return sum(event.get("ph") == "X" for event in data["traceEvents"])

    return load


def _hta():
    # `hta.py` of this folder is not the package.
    sys.path.remove(str(Path(__file__).parent))
    from hta.trace_analysis import TraceAnalysis  # pyright: ignore[reportMissingImports]

    def load(paths):
        TraceAnalysis(trace_files=dict(enumerate(paths)), trace_dir="")

    return load


if __name__ == "__main__":
    main(*sys.argv[1:])
