"""How fast and in how much memory traces are read, beside the standard library's `json.loads`.

    python benchmarks/reading.py [--megabytes 512] [--trace FILE]... [--record]

Each reader runs in a process of its own, on the same file. CPU time is that of the process from
after its imports to the result; peak memory is the whole process, interpreter included. The plain
file is text; the compressed one is the same text through gzip, decompressed by both readers.
"""

import argparse
import gzip
import json
import platform
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
SHARED = ROOT.parent / "shared" / "traces"
REPEATS = 3
CHILD = """
import gzip, json, resource, sys
def used():
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime
reader, path = sys.argv[1:]
if reader == "jaxperf":
    from jaxperf.trace import read_file
    before = used()
    events = sum(trace.events for trace in read_file(path))
else:
    before = used()
    opened = gzip.open(path) if path.endswith(".gz") else open(path, "rb")
    with opened as file:
        data = json.loads(file.read())
    events = sum(event.get("ph") == "X" for event in data["traceEvents"])
peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
peak *= 1 if sys.platform == "darwin" else 1024
print(json.dumps({"cpu_s": used() - before, "peak_bytes": peak, "events": events}))
"""


def synthetic_events(events: int) -> Iterator[str]:
    """Rows as Kineto writes them: operators, launches, kernels, their arrows, Python frames."""
    draw = random.Random(0)
    time_us = 3_600_000_000_000.0
    for index in range(0, events, 6):
        time_us += draw.uniform(5, 50)
        operator = draw.choice(["aten::addmm", "aten::native_layer_norm", "aten::copy_"])
        kernel = draw.choice(["ampere_bf16_s16816gemm_bf16_128x64_ldg8_f2f_stages_64x4_tn", "vec4"])
        size = draw.choice([1024, 4096, 16384])
        yield (
            f'"ph": "X", "cat": "cpu_op", "name": "{operator}", "pid": 4242, "tid": 4242,\n'
            f'    "ts": {time_us:.3f}, "dur": 31.250,\n'
            f'    "args": {{\n      "External id": {index + 1},"Sequence number": {index},'
            f' "Fwd thread id": 0, "Record function id": 0, "Concrete Inputs": ["", "", "1", ""],'
            f' "Input type": ["c10::BFloat16", "c10::BFloat16", "Scalar", ""],'
            f' "Input Strides": [[{size}, 1], [1, {size}], [], []],'
            f' "Input Dims": [[512, {size}], [{size}, 1024], [], []], "Ev Idx": {index}\n    }}'
        )
        yield (
            f'"ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel", "pid": 4242,'
            f' "tid": 4242,\n    "ts": {time_us + 10:.3f}, "dur": 5.120,\n    "args": {{\n'
            f'      "External id": {index + 1},"cbid": 211, "correlation": {index}\n    }}'
        )
        yield (
            f'"ph": "s", "id": {index}, "pid": 4242, "tid": 4242, "ts": {time_us + 10:.3f},\n'
            f'    "cat": "ac2g", "name": "ac2g"'
        )
        yield (
            f'"ph": "X", "cat": "kernel", "name": "{kernel}", "pid": 0, "tid": 7,\n'
            f'    "ts": {time_us + 20:.3f}, "dur": 12.032,\n    "args": {{\n'
            f'      "External id": {index + 1},"queued": 0, "device": 0, "context": 1,'
            f' "stream": 7, "correlation": {index},\n      "registers per thread": 168,'
            f' "shared memory": 81920, "blocks per SM": 2.370370,\n      "warps per SM": 9.481482,'
            f' "grid": [8, {size // 128}, 1],\n      "block": [128, 1, 1],'
            f' "est. achieved occupancy %": 15\n    }}'
        )
        yield (
            f'"ph": "f", "id": {index}, "pid": 0, "tid": 7, "ts": {time_us + 20:.3f},\n'
            f'    "cat": "ac2g", "name": "ac2g", "bp": "e"'
        )
        yield (
            f'"ph": "X", "cat": "python_function", "name": "torch/nn/modules/linear.py(125):'
            f' forward", "pid": 4242, "tid": 4242,\n    "ts": {time_us - 2:.3f}, "dur": 35.500,\n'
            f'    "args": {{\n      "Python parent id": 1, "Python id": {index},'
            f' "Ev Idx": {index}\n    }}'
        )


def write_synthetic(path: Path, megabytes: int) -> None:
    """A trace of about so many megabytes of text."""
    events = int(megabytes * 1e6 / 307)
    with open(path, "w") as file:
        file.write('{\n  "schemaVersion": 1,\n  "baseTimeNanoseconds": 1727743122000000000,\n')
        file.write('  "distributedInfo": {"backend": "nccl", "rank": 0, "world_size": 1},\n')
        file.write('  "traceEvents": [\n  {\n    "ph": "M", "name": "process_name", "pid": 4242\n')
        for event in synthetic_events(events):
            file.write("  },\n  {\n    " + event + "\n")
        file.write('  }\n  ],\n  "traceName": "synthetic"\n}\n')


def measure(reader: str, path: Path) -> dict[str, float]:
    """Median CPU time and largest peak over the repeats."""
    runs = []
    for _ in range(REPEATS):
        command = [sys.executable, "-c", CHILD, reader, str(path)]
        done = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True)
        runs.append(json.loads(done.stdout))
    return {
        "cpu_s": statistics.median(run["cpu_s"] for run in runs),
        "peak_bytes": max(run["peak_bytes"] for run in runs),
        "events": runs[0]["events"],
    }


def compare(name: str, path: Path, text_bytes: int) -> dict[str, object]:
    """One row of the table, as a record; prints it."""
    ours, theirs = measure("jaxperf", path), measure("json", path)
    assert ours["events"] == theirs["events"], (ours, theirs)
    record = {
        "benchmark": "reading",
        "trace": name,
        "text_bytes": text_bytes,
        "events": ours["events"],
        "cpu_s": round(ours["cpu_s"], 3),
        "json_cpu_s": round(theirs["cpu_s"], 3),
        "cpu_ratio": round(ours["cpu_s"] / theirs["cpu_s"], 3),
        "peak_ratio": round(ours["peak_bytes"] / text_bytes, 3),
        "json_peak_ratio": round(theirs["peak_bytes"] / text_bytes, 3),
    }
    print(
        f"{name:44} {text_bytes / 1e6:7.0f} {record['events']:9} {record['cpu_s']:7.2f} "
        f"{record['json_cpu_s']:7.2f} {record['cpu_ratio']:6.2f} {record['peak_ratio']:6.2f} "
        f"{record['json_peak_ratio']:6.2f}",
        flush=True,
    )
    return record


def text_size(path: Path) -> int:
    """Bytes of the file, decompressed."""
    if path.suffix != ".gz":
        return path.stat().st_size
    with gzip.open(path) as file:
        return sum(len(block) for block in iter(lambda: file.read(1 << 20), b""))


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--megabytes", type=int, default=512)
    parser.add_argument("--trace", type=Path, action="append", default=[])
    parser.add_argument("--record", action="store_true", help="append to benchmarks/history/")
    options = parser.parse_args()
    traces = (
        options.trace
        or sorted(SHARED.rglob("*.json.gz"), key=lambda path: path.stat().st_size, reverse=True)[:2]
    )
    print(f"{'trace':44} {'MB':>7} {'events':>9} {'CPU s':>7} {'json s':>7} {'ratio':>6} "
          f"{'peak':>6} {'json':>6}")  # fmt: skip
    records = []
    with tempfile.TemporaryDirectory() as folder:
        plain = Path(folder, "synthetic.json")
        write_synthetic(plain, options.megabytes)
        size = plain.stat().st_size
        records.append(compare("synthetic, plain", plain, size))
        packed = Path(folder, "synthetic.json.gz")
        with open(plain, "rb") as text, gzip.open(packed, "wb", compresslevel=6) as out:
            for block in iter(lambda: text.read(1 << 20), b""):
                out.write(block)
        records.append(compare("synthetic, gzip", packed, size))
    for trace in traces:
        records.append(compare(f"{trace.parent.name}/{trace.name}"[-44:], trace, text_size(trace)))
    if options.record:
        history = ROOT / "benchmarks" / "history"
        history.mkdir(exist_ok=True)
        machine = {"python": platform.python_version(), "machine": platform.machine()}
        with open(history / "reading.jsonl", "a") as file:
            for record in records:
                file.write(json.dumps({"time": int(time.time()), **machine, **record}) + "\n")


if __name__ == "__main__":
    main()
