"""Chrome JSON as `jax.profiler` writes it on GPUs, made of Kineto traces of the same run.

Process and thread names, arguments as texts, and the order (names first) are those of XLA's
profiler. It writes no categories, no rows of synchronisation, and a step as an annotation with a
number. Nothing of the package is used.
"""

import gzip
import json
import re
from pathlib import Path
from typing import Any

HOST = 701


def write_jax(kineto: Path, path: Path) -> Path:
    """The events of a Kineto trace in the JAX profiler's shape."""
    document = json.loads(gzip.decompress(kineto.read_bytes()))
    rows = [event for event in document["traceEvents"] if event["ph"] == "X"]
    events = []
    for event in rows:
        if event["cat"] in ("cpu_op", "user_annotation", "cuda_runtime", "cuda_driver"):
            events.append(_on_host(event))
        elif event["cat"] in ("kernel", "gpu_memcpy", "gpu_memset"):
            events.append(_on_device(event))
    names = [_named(HOST, None, "/host:CPU")]
    names += [_named(HOST, tid, "python") for tid in _threads(events, HOST)]
    for device in sorted({event["pid"] for event in events} - {HOST}):
        names.append(_named(device, None, f"/device:GPU:{device - 1}"))
        streams = _threads(events, device)
        names += [_named(device, tid, f"Stream #{tid}(Compute)") for tid in streams]
    return write(path, [*names, *events, {}])


def write(path: Path, events: list[dict[str, Any]]) -> Path:
    """A document of the given events."""
    head = {"displayTimeUnit": "ns", "metadata": {"highres-ticks": True}}
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(gzip.compress(json.dumps(head | {"traceEvents": events}).encode()))
    return path


def _threads(events: list[dict[str, Any]], process: int) -> list[int]:
    return sorted({event["tid"] for event in events if event["pid"] == process})


def _named(pid: int, tid: int | None, name: str) -> dict[str, Any]:
    row = {"ph": "M", "pid": pid, "args": {"name": name}}
    if tid is None:
        return row | {"name": "process_name"}
    return row | {"name": "thread_name", "tid": tid}


def _on_host(event: dict[str, Any]) -> dict[str, Any]:
    row = {"ph": "X", "pid": HOST, **{key: event[key] for key in ("tid", "ts", "dur", "name")}}
    if step := re.fullmatch(r"ProfilerStep#(\d+)", event["name"]):
        return row | {"name": "train", "args": {"step_num": step[1]}}
    correlation = event.get("args", {}).get("correlation")
    if correlation is None:
        return row
    graph = " (CudaGraph:17)" if "GraphLaunch" in event["name"] else ""
    args = {"correlation_id": str(correlation), "device_id": "0", "context_id": "$$1"}
    return row | {"name": event["name"] + graph, "args": args}


def _on_device(event: dict[str, Any]) -> dict[str, Any]:
    given = event["args"]
    args = {"correlation_id": str(given["correlation"]), "context_id": "$$1"}
    name = event["name"]
    if copy := re.fullmatch(r"Memcpy (\w)to(\w) \((\w+) -> (\w+)\)", name):
        name = f"Memcpy{copy[1]}2{copy[2]}"
        source, target = copy[3].lower(), copy[4].lower()
        size = given["bytes"]
        args["memcpy_details"] = f"kind_src:{source} kind_dst:{target} size:{size} dest:0 async:1"
    elif name.startswith("Memset"):
        name = "Memset"
        args["memset_details"] = f"kind:device num_bytes:{given['bytes']} async:1"
    else:
        grid, block = (",".join(map(str, given[key])) for key in ("grid", "block"))
        args["kernel_details"] = (
            f"regs:32 static_shared:0 dynamic_shared:0 grid:{grid} block:{block} occ_pct:50"
        )
        args |= {"hlo_module": "jit_step", "hlo_op": "fusion.1"}
    return {
        "ph": "X", "pid": given["device"] + 1, "tid": given["stream"], "ts": event["ts"],
        "dur": event["dur"], "name": name, "args": args,
    }  # fmt: skip
