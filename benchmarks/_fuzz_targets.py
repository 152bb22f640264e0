"""What is fuzzed: every function of the package that reads what it did not write just before.

The places that open a file (`grep -rnE "open\\(|read_text|read_bytes|np\\.load|decode\\(" jaxperf`)
and their targets:

    trace/_sources, _document, _reader, _run    trace, sources, graph
    trace/_shards                               shards
    trace/_nsight*, _execution_trace            nsight, execution-trace
    interchange/_chakra*                        chakra
    graph/_classes, config/*, cost/_fit,
      workload/_step_fit_file, estimate         toml-text, hardware .. step-factors
    cost/_operator_inputs                       operator-inputs
    energy/_mllog, training/*                   mllog, training
    energy/inference/*                          loadgen, ptdaemon, inference
    energy/_series_files, _content,
      calibration/_readings                     series, readings
    energy/_log_files, _score                   archive, score
    energy/_tiny*                               tiny
    energy/published/_facts                     facts
    embedding/locality/*                        accesses, arrays, popularity
    embedding/hierarchy/_curves                 curve
    embedding/torchrec/*                        torchrec
    search/_saved                               search

`energy/inference/_check_sources`, `report/_html` and `config_folder` read files of the package; the
pickles of `trace/_worker` and `search/_processes` come from children of the same process.
"""

import atexit
import gzip
import io
import json
import lzma
import os
import random
import shutil
import tarfile
import zipfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np

from benchmarks import _fuzz_mutation as change
from benchmarks._fuzz_mutation import Mutation, pack, unpack

Read = Callable[[bytes], object]


@dataclass(frozen=True)
class Target:
    """A reader, what it is given, and how much.

    Attributes:
        name: of it.
        reader: imports what is fuzzed, and gives what reads one input.
        seeds: inputs to begin with.
        mutation: of inputs.
        executions: its part of ten million.
        longest: bytes of an input.
        guided: the part of the executions that coverage guides.
    """

    name: str
    reader: Callable[[], Read]
    seeds: Callable[[], list[bytes]]
    mutation: Mutation
    executions: int = 200_000
    longest: int = 1 << 14
    guided: float = 0.2


class NotAnInput(Exception):
    """What a mutation made is not of the form that its target takes: no execution."""


def _folder() -> Path:
    place = Path("/dev/shm" if os.path.isdir("/dev/shm") else os.environ.get("TMPDIR", "/tmp"))
    folder = place / f"jaxperf-fuzz-{os.getpid()}"
    if not folder.exists():
        folder.mkdir()
        atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder


def _file(name: str) -> tuple[str, Callable[[bytes], None]]:
    """A file that lies in memory, and what writes it."""
    path = str(_folder() / name)

    def write(data: bytes) -> None:
        with open(path, "wb") as file:
            file.write(data)

    return path, write


class _replaced:
    """One name of a module is another while this is entered."""

    def __init__(self, module: Any, name: str, other: object):
        self._module, self._name, self._other = module, name, other

    def __enter__(self) -> None:
        self._before = getattr(self._module, self._name)
        setattr(self._module, self._name, self._other)

    def __exit__(self, *error: object) -> None:
        setattr(self._module, self._name, self._before)


def _unpacked(data: bytes) -> Any:
    try:
        return unpack(data)
    except Exception:
        raise NotAnInput from None


def _packed_files(data: bytes) -> dict[str, bytes]:
    found = _unpacked(data)
    if not isinstance(found, dict) or not all(type(each) is bytes for each in found.values()):
        raise NotAnInput
    return found


def _log_files(data: bytes):
    from jaxperf.energy._log_files import LogFiles

    return LogFiles("logs", {name: (lambda c=c: c) for name, c in _packed_files(data).items()})


# Traces
# ---------------------------------------------------------------------------------------


def _events(rank: int = 0, world: int = 1, base: float = 1000.0) -> list[dict[str, Any]]:
    """A step with an operator, launches, kernels, a copy, a collective, waits and arrows."""

    def row(
        cat: str, name: str, ts: float, dur: float, tid: Any = 100, pid: Any = 100, **args: Any
    ):
        named = {key.replace("_", " "): value for key, value in args.items()}
        return {
            **{"ph": "X", "cat": cat, "name": name, "pid": pid, "tid": tid},
            **{"ts": base + ts, "dur": dur, "args": named},
        }

    def launch(number: int, ts: float, name: str, start: float, dur: float, stream: int, cat: str):
        args = {"device": 0, "stream": stream, "correlation": number, "External id": number}
        call = row("cuda_runtime", "cudaLaunchKernel", ts, 2, correlation=number)
        work = row(cat, name, start, dur, stream, 0)
        work["args"] = args | {"grid": [8, 1, 1], "block": [128, 1, 1], "blocks per SM": 0.5}
        arrow = {"cat": "ac2g", "name": "ac2g", "id": number, "pid": 100, "tid": 100}
        ends = {"cat": "ac2g", "name": "ac2g", "id": number, "pid": 0, "tid": stream, "bp": "e"}
        return [
            call,
            work,
            arrow | {"ph": "s", "ts": base + ts},
            ends | {"ph": "f", "ts": base + start},
        ]

    op = row("cpu_op", "aten::mm", 2, 20)
    op["args"] = {
        **{"External id": 1, "Sequence number": 5, "Fwd thread id": 0},
        **{"Input Dims": [[8, 16], [16, 4]], "Input type": ["float", "float"]},
        **{"Concrete Inputs": ["", ""]},
    }
    nccl = launch(3, 30, "ncclDevKernel_AllReduce_Sum_f32_RING_LL", 60, 30, 20, "kernel")
    nccl[1]["args"] |= {
        **{"Collective name": "allreduce", "In msg nelems": 64, "Out msg nelems": 64},
        **{"Group size": world, "dtype": "Float", "Process Group Name": "0", "Seq": 1},
        **{"Process Group Ranks": str(list(range(world)))},
    }
    copy = launch(4, 36, "Memcpy DtoH (Device -> Pageable)", 92, 4, 7, "gpu_memcpy")
    copy[1]["args"]["bytes"] = 4096
    sync = row("cuda_sync", "Stream Synchronize", 40, 60, 7, 0)
    sync["args"] = {
        **{"cuda_sync_kind": "Stream Synchronize", "stream": 7, "correlation": 5, "device": 0},
        **{"wait_on_stream": 20, "wait_on_cuda_event_record_corr_id": 3},
    }
    named = {"ph": "M", "name": "thread_name", "pid": 0, "tid": 7, "ts": 0}
    labels = {"ph": "M", "name": "process_labels", "pid": 0, "tid": 0, "ts": 0}
    return [
        named | {"args": {"name": "stream 7"}},
        labels | {"args": {"labels": "GPU 0"}},
        row("user_annotation", "ProfilerStep#1", 0, 120),
        op,
        *launch(1, 5, "ampere_sgemm_128x64", 20, 25, 7, "kernel"),
        *launch(2, 25, "vectorized_elementwise_kernel", 46, 5, 7, "kernel"),
        *nccl,
        *copy,
        row("cuda_runtime", "cudaStreamSynchronize", 40, 60, correlation=5),
        sync,
        {"ph": "B", "name": "part", "pid": 100, "tid": 101, "ts": base + 1},
        {"ph": "E", "name": "part", "pid": 100, "tid": 101, "ts": base + 9},
        row("user_annotation", "ProfilerStep#2", 120, 30),
    ]


def _trace_text(rank: int = 0, world: int = 1, base: float = 1000.0) -> bytes:
    document = {
        "schemaVersion": 1,
        "deviceProperties": [{"id": 0, "name": "NVIDIA H100 80GB HBM3", "numSms": 132}],
        "distributedInfo": {"backend": "nccl", "rank": rank, "world_size": world},
        "baseTimeNanoseconds": 1_700_000_000_000_000_000,
        "traceEvents": _events(rank, world, base),
        "traceName": "a.json",
    }
    return json.dumps(document).encode()


def _traces() -> list[bytes]:
    rows = _events()
    exact = [event | {"ts": 1.7e15 + 0.125} for event in rows if event["ph"] == "X"]
    fused = [
        {**event, "args": {**event.get("args", {}), "rank": rank, "pid_raw": 100}}
        for rank in (0, 1)
        for event in rows[3:7]
    ]
    jax = [
        {"ph": "M", "name": "process_name", "pid": 3, "args": {"name": "/device:GPU:0"}},
        {"ph": "M", "name": "thread_name", "pid": 3, "tid": 1, "args": {"name": "Stream #14"}},
        {"ph": "X", "name": "fusion", "pid": 3, "tid": 1, "ts": 5, "dur": 2, "args": {}},
    ]
    return [
        _trace_text(),
        json.dumps(rows).encode(),
        json.dumps({"traceEvents": exact}).encode(),
        json.dumps({"traceEvents": fused}).encode(),
        json.dumps({"traceEvents": jax}).encode(),
        json.dumps(rows[4]).encode() + b"\n" + json.dumps(rows[5]).encode(),
        _trace_text()[:1500],
    ]


def _read_trace() -> Read:
    from jaxperf.trace import read_run

    path, write = _file("trace.json")

    def read(data: bytes) -> None:
        write(data)
        read_run(path)

    return read


def _zip(data: bytes, name: str = "trace.json", members: int = 1) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        for number in range(members):
            archive.writestr(f"{number}{name}" if number else name, data)
    return file.getvalue()


def _zstd(data: bytes) -> bytes:
    import zstandard

    return zstandard.ZstdCompressor().compress(data)


_SHORT = json.dumps([{"ph": "X", "name": "a", "pid": 1, "tid": 1, "ts": 5, "dur": 2}] * 3).encode()


def _compressed() -> list[bytes]:
    gz = gzip.compress(_SHORT, mtime=0)
    return [
        *(gz, gz + gz, gz + b"\0" * 64, gzip.compress(gz, mtime=0), gz[: len(gz) // 2]),
        *(_zip(_SHORT), _zip(gz), gzip.compress(_zip(_SHORT)), _zip(_zip(_SHORT))),
        *(_zip(_SHORT, members=2), _zip(_SHORT, "../../trace.json"), _zip(b"")),
        *(_zstd(_SHORT), _zstd(gz), gzip.compress(_zstd(_SHORT)), _zstd(_SHORT) * 2),
    ]


def _repacked(data: bytes, draw: random.Random) -> bytes:
    """Noise on compressed bytes; or other content, packed anew in up to five layers."""
    if draw.random() < 0.7:
        return change.noise(data, draw)
    data = change.json_text(_SHORT, draw)
    for _ in range(1 + draw.getrandbits(2)):
        pack_up = draw.choice((lambda d: gzip.compress(d, 1, mtime=0), _zip, _zstd))
        data = pack_up(data)
        if draw.getrandbits(2) == 0:
            data = change.noise(data, draw)
    return data


def _read_graph() -> Read:
    from jaxperf.compiled import compile_program
    from jaxperf.graph import build_graph
    from jaxperf.trace import read_run

    paths, writes = zip(*(_file(f"graph-rank{rank}.json") for rank in (0, 1)), strict=True)

    def read(data: bytes) -> None:
        parts = data.split(b"\0\0")[:2]
        for write, part in zip(writes, parts, strict=False):
            write(part)
        compile_program(build_graph(read_run(paths[: len(parts)])))

    return read


def _graphs() -> list[bytes]:
    two = b"\0\0".join(_trace_text(rank, 2, 1000.0 + 3 * rank) for rank in (0, 1))
    return [_trace_text(), two]


def _each_trace(data: bytes, draw: random.Random) -> bytes:
    parts = data.split(b"\0\0")[:2]
    at = draw.randrange(len(parts))
    # Damaged text is the other target's; here it must become a graph.
    parts[at] = change.json_text(parts[at], draw)
    return b"\0\0".join(part.replace(b"\0\0", b"") for part in parts)


def _shard_arrays() -> dict[str, np.ndarray]:
    from jaxperf.trace import read_file
    from jaxperf.trace._shards import _arrays

    path, write = _file("shard.json")
    write(_trace_text())
    return _arrays(Path(path), read_file(path))


def _shards() -> list[bytes]:
    file = io.BytesIO()
    np.savez(file, **_shard_arrays())  # pyright: ignore[reportArgumentType]
    arrays = {
        name: [array.dtype.str, list(array.shape), array.tobytes()]
        for name, array in _shard_arrays().items()
    }
    return [b"\0" + file.getvalue(), b"\1" + pack(arrays), b"\1" + pack(arrays)]


def _read_shard() -> Read:
    from jaxperf.trace import _shards

    folder = _folder() / "shards"
    folder.mkdir(exist_ok=True)
    path = folder / "trace-000000-of-1-in-1.npz"
    path.write_bytes(b"")
    load = _shards._read_arrays

    def made(data: bytes) -> dict[str, np.ndarray]:
        found = {}
        for name, (kind, shape, content) in _unpacked(data).items():
            try:
                found[name] = np.frombuffer(content, kind).reshape(shape)
            except (ValueError, TypeError):
                raise NotAnInput from None
        return found

    def read(data: bytes) -> None:
        if data[:1] == b"\0":
            path.write_bytes(data[1:])
            arrays = load(path)
        else:
            try:
                arrays = made(data[1:])
            except (ValueError, TypeError, AttributeError):
                raise NotAnInput from None
        with _replaced(_shards, "_read_arrays", lambda path: arrays):
            _shards.merge_shards(folder)

    return read


def _shard_mutation(data: bytes, draw: random.Random) -> bytes:
    if data[:1] == b"\0":
        return b"\0" + change.noise(data[1:], draw)
    arrays = unpack(data[1:])
    name = draw.choice(list(arrays))
    kind, shape, content = arrays[name]
    how = draw.randrange(6)
    if how == 0:
        del arrays[name]
    elif how == 1:
        arrays[name] = [
            draw.choice(("<i8", "<i4", "|i1", "<f4", "|u1", "|b1", "<U1")),
            shape,
            content,
        ]
    elif how == 2 and shape:
        size = np.dtype(kind).itemsize
        less = draw.randrange(shape[0] + 1)
        arrays[name] = [kind, [less, *shape[1:]], content[: less * size]]
    elif name.endswith((".others", "source")):
        content = change.json_text(content, draw)
        arrays[name] = [kind, [len(content)], content]
    else:
        size = np.dtype(kind).itemsize
        values = bytearray(content)
        if len(values) >= size > 0:
            at = draw.randrange(len(values) // size) * size
            odd = draw.choice((-1, 0, 1, 2**31 - 1, -(2**31), 2**62, -(2**63)))
            values[at : at + size] = odd.to_bytes(8, "little", signed=True)[:size].ljust(
                size, b"\0"
            )
        arrays[name] = [kind, shape, bytes(values)]
    return b"\1" + pack(arrays)


def _nsight_tables() -> dict[str, list[list[Any]]]:
    """The tables of a small export of Nsight Systems: names of the columns, then rows."""
    import sqlite3

    from tests.trace.nsight_files import NsightFile, global_id

    path = _folder() / "made.sqlite"
    path.unlink(missing_ok=True)
    here = {"globalPid": global_id(7), "contextId": 1, "deviceId": 0, "streamId": 7}
    thread = {"globalTid": global_id(7, 7)}
    kind = "CUPTI_ACTIVITY_KIND_"
    with NsightFile(path) as file:
        name, call = file.string("gemm"), file.string("cudaLaunchKernel_v7000")
        work = here | {"start": 40, "end": 90, "correlationId": 1}
        sizes = {f"{part}{axis}": 1 for part in ("grid", "block") for axis in "XYZ"}
        file.add(f"{kind}KERNEL", **work, **sizes, demangledName=name, shortName=name)
        file.add(f"{kind}MEMCPY", **work | {"start": 95, "end": 99}, bytes=4, copyKind=1)
        file.add(f"{kind}MEMSET", **work | {"start": 99, "end": 110}, bytes=4)
        file.add(f"{kind}GRAPH_TRACE", **work | {"start": 120, "end": 130}, graphId=1)
        file.add(f"{kind}RUNTIME", start=20, end=30, correlationId=1, nameId=call, **thread)
        file.add(f"{kind}SYNCHRONIZATION", **work, syncType=2, eventId=1, eventSyncId=1)
        file.add(f"{kind}CUDA_EVENT", timestamp=35, **here, eventId=1, eventSyncId=1)
        for step in (1, 2):
            times = {"start": 100 * step - 90, "end": 100 * step}
            file.add("NVTX_EVENTS", **times, eventType=59, text=f"step {step}", **thread)
        file.add("TARGET_INFO_SESSION_START_TIME", utcEpochNs=1_700_000_000_000_000_000)
        file.add("TARGET_INFO_GPU", id=0, name="NVIDIA H100 80GB HBM3", smCount=132, cuDevice=0)
        file.add("TARGET_INFO_CUDA_DEVICE", gpuId=0, cudaId=0, pid=7)
        file.add("PROCESSES", globalPid=global_id(7), pid=7, name="python")
        file.add("ThreadNames", nameId=name, globalTid=global_id(7, 7))
        file.add("MPI_RANKS", globalTid=global_id(7, 7), rank=3)
    found = {}
    connection = sqlite3.connect(path)
    for (table,) in connection.execute("SELECT name FROM sqlite_master").fetchall():
        rows = connection.execute(f"SELECT * FROM {table}")
        found[table] = [[each[0] for each in rows.description], *map(list, rows.fetchall())]
    connection.close()
    return found


def _database(tables: Any) -> bytes:
    import sqlite3

    connection = sqlite3.connect(":memory:")
    try:
        for table, (columns, *rows) in tables.items():
            names = ", ".join(f'"{column}"' for column in columns)
            connection.execute(f'CREATE TABLE "{table}" ({names})')
            marks = ", ".join("?" * len(columns))
            connection.executemany(f'INSERT INTO "{table}" VALUES ({marks})', rows)
        connection.commit()
        return connection.serialize()
    except (sqlite3.Error, ValueError, TypeError, OverflowError, AttributeError):
        raise NotAnInput from None
    finally:
        connection.close()


def _nsight() -> list[bytes]:
    tables = _nsight_tables()
    return [b"\0" + _database(tables), b"\1" + pack(tables), b"\1" + pack(tables)]


def _read_nsight() -> Read:
    from jaxperf.graph import build_graph
    from jaxperf.trace import read_run

    path, write = _file("report.sqlite")

    def read(data: bytes) -> None:
        write(data[1:] if data[:1] == b"\0" else _database(_unpacked(data[1:])))
        build_graph(read_run(path))

    return read


def _nsight_mutation(data: bytes, draw: random.Random) -> bytes:
    if data[:1] == b"\0":
        return b"\0" + change.noise(data[1:], draw)
    return b"\1" + change.toml_tree(data[1:], draw)


def _chakra() -> list[bytes]:
    from jaxperf.graph import build_graph
    from jaxperf.interchange import write_chakra
    from jaxperf.trace import read_run

    path, write = _file("chakra-rank0.json")
    write(_trace_text())
    run = read_run(path)
    (file,) = write_chakra(build_graph(run), _folder(), run=run, overwrite=True)
    own = file.read_bytes()
    return [own, own.replace(b"jaxperf_format", b"another_format")]


def _read_chakra() -> Read:
    from jaxperf.compiled import compile_program
    from jaxperf.interchange import read_chakra

    path, write = _file("fuzzed.0.et")

    def read(data: bytes) -> None:
        write(data)
        compile_program(read_chakra(path))

    return read


def _execution_traces() -> list[bytes]:
    attributes = [{"name": "rf_id", "value": 1}, {"name": "tid", "value": 1}]
    inputs = {
        "shapes": [[8, 16], [16, 4]],
        "types": ["Tensor(float)"] * 2,
        "values": [[1, 2, 0, 8, 4, "cuda:0"], 1],
    }
    newer = {"name": "aten::mm", "inputs": inputs, "attrs": attributes}
    older = {
        **{"name": "aten::mm", "rf_id": 1, "tid": 1, "inputs": inputs["values"]},
        **{"input_shapes": inputs["shapes"], "input_types": ["GenericList[Tensor(float)]", "Int"]},
    }
    return [json.dumps({"schema": "1.1", "nodes": [each]}).encode() for each in (newer, older)]


def _read_execution_trace() -> Read:
    from jaxperf.trace import read_file
    from jaxperf.trace._execution_trace import with_execution_trace

    path, write = _file("rank0.json")
    rows = [event for event in _events() if event.get("cat") == "cpu_op"]
    write(json.dumps([{**row, "args": {"External id": 1}} for row in rows]).encode())
    (trace,) = read_file(path)

    def read(data: bytes) -> None:
        write(data)
        with_execution_trace(trace, path)

    return read


def _read_operator_inputs() -> Read:
    from jaxperf.cost._operator_inputs import read_inputs

    def read(data: bytes) -> None:
        texts = data.decode("utf-8", "replace").split("\n")
        found = read_inputs(*(text or None for text in (*texts, "", "", "")[:3]))
        if found is not None:
            for i in range(min(len(found.shapes), 4) + 1):
                for ask in (found.elements, found.bytes, found.list_of, found.flag):
                    ask(i)
                for ask in (found.number, found.numbers, found.flags):
                    ask(i)
            found.tensors()

    return read


def _operator_inputs() -> list[bytes]:
    return [
        b'[[8, 16], [], [[2, 3], [4]]]\n["float", "Scalar", "TensorList"]\n["", "1.5", "[1, 2]"]',
        b'[[1]]\n["c10::BFloat16"]\n["[True, False]"]',
    ]


# Configuration
# ---------------------------------------------------------------------------------------


def _toml_loaders() -> dict[str, Callable[[Any], object]]:
    """By target, what loads a file from its path."""
    from jaxperf import config
    from jaxperf.cost._fit import fitted_model, load_fit
    from jaxperf.estimate._compute import load_any_fit
    from jaxperf.graph import load_classes
    from jaxperf.workload._step_fit_file import built_in_step_factors, load_step_factors

    # What comes with the package is read before TOML is replaced.
    h100, job = config.load_hardware("h100"), config.load_job("llama3-8b")
    for known in (config.built_in_power, config.built_in_servers, built_in_step_factors):
        known()

    def hardware(path: Any) -> None:
        found = config.load_hardware(path)
        config.hardware_numbers(found)
        config.node_and_network(found)

    return {
        "hardware": hardware,
        "job": config.load_job,
        "space": lambda path: config.check_space(config.load_space(path), job, h100),
        "power": config.load_power,
        "memory": config.load_memory,
        "server": config.load_server,
        "tables": config.load_tables,
        "scenarios": config.load_scenarios,
        "classes": lambda path: load_classes(path),
        "fit": lambda path: fitted_model(load_fit(path), h100),
        "step-factors": load_step_factors,
        "any-fit": load_any_fit,
    }


def _toml_texts() -> dict[str, list[str]]:
    """By target, files that come with the package, and small ones for the others."""
    root = Path(__file__).parents[1] / "configs"

    def of(folder: str, *names: str) -> list[str]:
        return [(root / folder / f"{name}.toml").read_text() for name in names]

    space = """gpus = 8
gpu_usd_per_hour = 2.5
objectives = ["step_us", "memory_bytes"]
[choices]
tensor_parallel = [1, 2]
recompute = ["none", "full"]
[ranges]
"memory_bytes_per_s" = {first = 1e12, last = 2e12, points = 3, scale = "log"}
[limits]
memory_bytes = 8e10
"""
    fit = """hardware = ["NVIDIA H100 80GB HBM3"]
leaves = ["a", "b"]
covariance = [[1.0, 0.5], [0.5, 1.0]]
[numbers]
"memory.latency_us" = [1.0, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13]
[hardware_range]
memory_bytes = [1.0, 2.0]
"""
    scenarios = """[[scenario]]
name = "quicker"
scale = {gemm = 0.5}
set = {memory_bytes_per_s = 1e12, hardware = "a100"}
[[scenario]]
"""
    classes = '[[kernel]]\nclass = "gemm"\npattern = "^my_(own|other)+"\n'
    steps = of("steps", "h100")
    alike = """name = "a"
batch_size = 8
[[tables]]
name = "t"
rows = 10
dimension = 8
count = 3
accesses = "a.txt"
zipf_exponent = 1.0
"""
    return {
        "hardware": of("hardware", "h100", "v100"),
        "job": of("jobs", "llama3-8b", "deepseek-v3", "mixtral-8x7b"),
        "space": [space],
        "power": of("power", "h100"),
        "memory": of("memory", "ddr5-64gb", "nand-pm9a3-7680gb"),
        "server": of("servers", "h100-nand"),
        "tables": [*of("tables", "demo"), alike],
        "scenarios": [scenarios],
        "classes": [classes],
        "fit": [fit],
        "step-factors": steps,
        "any-fit": [*steps, fit],
    }


TOML_TARGETS = tuple(_toml_texts())


def _toml_seeds(name: str) -> Callable[[], list[bytes]]:
    import tomllib

    return lambda: [pack(tomllib.loads(text)) for text in _toml_texts()[name]]


def _toml_values(name: str) -> Callable[[], Read]:
    """The loader with its TOML parser replaced: what is fuzzed is all that follows the parsing."""

    def reader() -> Read:
        from jaxperf.config import _toml

        load = _toml_loaders()[name]
        path, write = _file(f"{name}.toml")
        write(b"")
        tree: list[Any] = [None]
        parser = SimpleNamespace(loads=lambda text: tree[0])

        def read(data: bytes) -> None:
            tree[0] = _unpacked(data)
            if not isinstance(tree[0], dict):
                raise NotAnInput
            with _replaced(_toml, "tomllib", parser):
                load(path)

        return read

    return reader


def _toml_text_reader() -> Read:
    loaders = list(_toml_loaders().values())
    path, write = _file("text.toml")

    def read(data: bytes) -> None:
        write(data[1:])
        loaders[(data or b"\0")[0] % len(loaders)](path)

    return read


def _toml_text_seeds() -> list[bytes]:
    texts = _toml_texts().values()
    shortest = [min(each, key=len).encode()[:900] for each in texts]
    return [bytes([number]) + text for number, text in enumerate(shortest)]


# Energy
# ---------------------------------------------------------------------------------------


def _mllog_line(key: str, time_ms: Any, value: Any = None, **metadata: Any) -> str:
    line = {"key": key, "value": value, "time_ms": time_ms, "metadata": metadata}
    return ":::MLLOG " + json.dumps(line)


def _node_log() -> bytes:
    lines = [
        _mllog_line("power_measurement_start", 0),
        _mllog_line("conversion_eff", 0, 0.9),
        *(_mllog_line("power_reading", 1000 * second, 500.0 + second) for second in range(4)),
        _mllog_line("power_measurement_stop", 3000),
    ]
    return "\n".join(lines).encode() + b"\n"


def _result_log() -> bytes:
    lines = [
        _mllog_line("submission_benchmark", 0, "gpt3"),
        _mllog_line("submission_platform", 0, "1xH100"),
        _mllog_line("global_batch_size", 0, 8),
        _mllog_line("run_start", 500),
        _mllog_line("tracked_stats", 900, {"throughput": 4.0}),
        _mllog_line("run_stop", 2500, None, status="success"),
    ]
    return "".join(f"0: {line}\n" for line in lines).encode()


def _switch_log() -> bytes:
    return _mllog_line("interconnect_power_est", 0, 40).encode() + b"\n"


def _read_mllog() -> Read:
    from jaxperf.energy._mllog import read_events
    from jaxperf.energy.training._power_logs import read_power_log
    from jaxperf.energy.training._result_logs import read_result_log

    readers = (
        lambda content: read_events(content, "log"),
        lambda content: read_result_log(content, "log", "result_0"),
        lambda content: read_power_log(content, "log", "node_0.txt"),
    )
    return lambda data: readers[(data or b"\0")[0] % 3](data[1:])


def _mllogs() -> list[bytes]:
    logs = (_node_log(), _result_log(), _switch_log())
    return [bytes([number]) + log for number in range(3) for log in logs]


def _training() -> list[bytes]:
    power = {f"power/result_{run}/node_0.txt": _node_log() for run in range(2)}
    results = {f"result_{run}.txt": _result_log() for run in range(2)}
    others = {
        "power/result_0/sw_0.txt": _switch_log(),
        "system.json": b'{"number_of_nodes": "1", "system_name": "a"}',
        "scaling.json": b'{"scaling_factor": 1.01}',
    }
    return [pack(power | results | others)]


def _read_training() -> Read:
    from jaxperf.energy.training import score_training

    return lambda data: score_training(_log_files(data))


def _session() -> dict[str, bytes]:
    from tests.energy.inference_sessions import made_session

    logs = made_session(load_s=5.0).logs()
    return {name: logs.read(name) for name in logs.names}


def _inference() -> list[bytes]:
    return [pack(_session())]


def _read_inference() -> Read:
    from jaxperf.energy.inference import score_inference

    return lambda data: score_inference(_log_files(data))


def _read_loadgen() -> Read:
    from jaxperf.energy.inference._loadgen import read_loadgen, read_summary

    def read(data: bytes) -> None:
        detail, _, summary = data.partition(b"\0\0")
        read_loadgen(detail, "detail", read_summary(summary))

    return read


def _loadgen() -> list[bytes]:
    session = _session()
    detail = session["run_1/mlperf_log_detail.txt"]
    summary = b"Scenario : Server\nCompleted samples per second : 28.46\nResult is : VALID\n"
    server = detail.replace(b"Offline", b"Server")
    return [detail + b"\0\0" + summary, server, detail]


def _read_ptdaemon() -> Read:
    from jaxperf.energy.inference._ptdaemon import read_daemon_messages, read_samples

    readers = (lambda content: read_samples(content, "spl.txt"), read_daemon_messages)
    return lambda data: readers[(data or b"\0")[0] % 2](data[1:])


def _ptdaemon() -> list[bytes]:
    session = _session()
    samples = b"\n".join(session["run_1/spl.txt"].split(b"\n")[:6])
    return [b"\0" + samples, b"\1" + session["power/ptd_logs.txt"]]


_TABLES = (
    b"time,watts\n0,100\n1,101.5\n2,300\n",
    b"timestamp, index, power.draw [W]\n2024/06/01 12:00:00.123, 0, 70.50 W\n"
    b"2024/06/01 12:00:01.123, 0, 71.50 W\n2024/06/01 12:00:00.200, 1, [N/A]\n",
    b"time;hostname;power_kw\n1717243200;a;1\n1717243201;a;1.5\n1717243200;b;2\n1717243201;b;2\n",
    b"time,host,energy [J]\n1717243200000,a,10\n1717243201000,a,200\n1717243202000,a,5\n",
    b"begin\tend\tpower_w\n2024-06-01T12:00:00Z\t2024-06-01T12:00:01Z\t10\n"
    b"2024-06-01T12:00:01Z\t2024-06-01T12:00:02Z\t12\n",
    b"1717243200.5,70,a\n1717243201.5,71,a\n",
    b'"time","power"\n"2024-10-27 02:30:00","1 kW"\n"2024-10-27 02:10:00","2 kW"\n',
    b"    Instantaneous power reading:                   220 Watts\n"
    b"    IPMI timestamp:                           Sat Jun  1 12:00:00 2024\n"
    b"    Instantaneous power reading:                   230 Watts\n"
    b"    IPMI timestamp:                           06/01/2024 12:00:10 UTC\n",
)
_ZONES = (None, "Europe/Berlin", "+02:00", "America/St_Johns")


def _read_series() -> Read:
    from jaxperf.energy._series_files import parse_power_series, parse_window
    from jaxperf.energy._series_score import score_series

    def read(data: bytes) -> None:
        first, content = (data or b"\0")[0], data[1:]
        zone = _ZONES[first % 4]
        if first % 16 == 15:
            parse_window(content, "window.json", zone=zone)
            return
        series, notes = parse_power_series(
            content, "power.csv", zone=zone, wrap_j=300.0 if first & 64 else None
        )
        if first & 128:
            score_series(list(series), None, notes, "power.csv")

    return read


def _series() -> list[bytes]:
    packed = [gzip.compress(_TABLES[0], mtime=0), lzma.compress(_TABLES[0])]
    texts = [*_TABLES, _TABLES[1].decode().encode("utf-16"), *packed]
    window = b'{"start": "2024-06-01T12:00Z", "stop": 1717243205.5}'
    return [b"\x0f" + window, *(bytes([n % 4 + 128 * (n % 2)]) + t for n, t in enumerate(texts))]


def _read_readings() -> Read:
    from jaxperf.energy.calibration._readings import readings_of

    path, write = _file("readings.txt")

    def read(data: bytes) -> None:
        write(data)
        readings_of(path, "UTC", 0.95)

    return read


def _readings() -> list[bytes]:
    return [_node_log(), *_TABLES[:5]]


def _tar(files: Mapping[str, bytes], mode: Any = "w") -> bytes:
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode=mode) as archive:
        for name, content in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    return file.getvalue()


_NODES = {"./node_0.csv": _TABLES[0], "a/node_1.csv": _TABLES[0], "../../b.txt": b"x"}


def _archives() -> list[bytes]:
    links = io.BytesIO()
    with tarfile.open(fileobj=links, mode="w") as archive:
        for kind in (tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.DIRTYPE, tarfile.FIFOTYPE):
            member = tarfile.TarInfo("link")
            member.type, member.linkname = kind, "/etc/passwd"
            archive.addfile(member)
    packed = [_tar(_NODES, f"w:{kind}") for kind in ("gz", "xz", "bz2")]
    return [_tar(_NODES), links.getvalue(), *packed]


def _read_archive() -> Read:
    from jaxperf.energy._log_files import open_logs

    path, write = _file("logs.tar")

    def read(data: bytes) -> None:
        write(data)
        files = open_logs(path)
        for name in files.names:
            files.text(name)

    return read


def _archive_mutation(data: bytes, draw: random.Random) -> bytes:
    """Noise; or, so that headers keep their check sums, other headers."""
    if draw.random() < 0.5:
        return change.noise(data, draw)
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w", format=draw.randrange(3)) as archive:
        for _ in range(1 + draw.getrandbits(1)):
            member = tarfile.TarInfo(
                draw.choice(("a.csv", "../a", "/a", "a/" * 60, "a" * 300, "é"))
            )
            member.size = draw.choice((0, 3, 512, 600))
            member.type = draw.choice((b"0", b"1", b"2", b"3", b"5", b"7", b"x", b"g", b"L", b"S"))
            member.linkname = draw.choice(("", "a.csv", "/etc/passwd"))
            member.mtime = draw.choice((0, 1, 8**11 - 1))
            archive.addfile(member, io.BytesIO(draw.randbytes(member.size)))
    made = file.getvalue()
    return change.noise(made, draw) if draw.getrandbits(1) else made


def _scores() -> list[bytes]:
    tables = {"node_a.csv": _TABLES[0], "node_b.csv": _TABLES[0]}
    window = {"window.json": b'{"start": 0, "stop": 2}'}
    (training,) = _training()
    return [pack(tables | window), pack({".hidden.csv": b"", "b/c.csv": _TABLES[3]}), training]


def _read_score() -> Read:
    """The verb; what it opens is replaced by files in memory."""
    from jaxperf.energy import _score, score

    folder = _folder()

    def read(data: bytes) -> None:
        files = _log_files(data)
        with _replaced(_score, "open_logs", lambda path: files):
            score(folder)

    return read


def _tiny() -> list[bytes]:
    from tests.energy.test_energy_tiny import bench

    logs = bench()
    files = {name: logs.read(name) for name in logs.names}
    trials = [
        {"power": {"samples": [1e-3] * 12, "timestamps": [["a", 0], ["b", 2], ["c", 9]]}}
        for _ in range(5)
    ]
    other = {
        **{name: content for name, content in files.items() if "trace1" not in name},
        "energy/results.json": json.dumps(trials).encode(),
    }
    return [pack(files), pack(other)]


def _read_tiny() -> Read:
    from jaxperf.energy._tiny import score_tiny

    return lambda data: score_tiny(_log_files(data))


def _facts() -> list[bytes]:
    head = "round,scale,public_id,org,system,accelerator,total_accelerators,model,"
    head += "scenario,metric,unit,value\n"
    rows = (
        "v4.1,datacenter,1,A,S,G,8,ResNet,Offline,throughput,samples/s,1000\n"
        "v4.1,datacenter,1,A,S,G,8,ResNet,Offline,power,W,500\n"
        'v5.0,edge,2,B,"T, two",,,ResNet,SingleStream,energy_per_stream,mJ,3.5\n'
        "v1.2,tiny,3,C,U,,1,kws01,,energy_per_inference,uJ,250\n"
    )
    text = (head + rows).encode()
    return [text, gzip.compress(text, mtime=0), lzma.compress(text)]


def _read_facts() -> Read:
    from jaxperf.energy.published import read_facts

    path, write = _file("facts.csv")

    def read(data: bytes) -> None:
        write(data)
        read_facts(path)

    return read


# Embeddings
# ---------------------------------------------------------------------------------------


def _accesses() -> list[bytes]:
    ids = np.array([3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5, 8] * 8)
    binary = [ids.astype(kind).tobytes() for kind in (">i4", "<i4", ">i8", "<i8")]
    texts = [b"3 1\n3\n", b"3\n1\n4\n", b"3,1,4\r\n1,5\r\n\r\n9", gzip.compress(b"1\n2\n", mtime=0)]
    packed = io.BytesIO()
    np.savez(packed, t0_indices=ids, t0_lengths=np.full(12, 8), t0_rows=np.int64(10))
    contents = [*texts, lzma.compress(b"1\n2\n"), *binary, packed.getvalue()]
    chosen = [0, 1, 3, 4, 5, 6]
    return [bytes([0]) + each for each in contents] + [
        bytes([number]) + binary[number % 4] for number in chosen
    ]


def _read_accesses() -> Read:
    from jaxperf.embedding.locality._access_log import read_access_logs
    from jaxperf.embedding.locality._log_content import LOG_FORMATS

    path, write = _file("accesses")

    def read(data: bytes) -> None:
        first = (data or b"\0")[0]
        write(data[1:])
        read_access_logs(
            path, format=LOG_FORMATS[first % len(LOG_FORMATS)], rows=10 if first & 128 else None
        )

    return read


def _access_mutation(data: bytes, draw: random.Random) -> bytes:
    return (change.lines if draw.getrandbits(1) else change.noise)(data, draw)


def _arrays() -> list[bytes]:
    """Arrays of an .npz by name, as type, shape and numbers."""
    ids = list(range(12))
    return [
        pack({"t0_indices": ["<i8", [12], ids], "t0_offsets": ["<i8", [3], [0, 5, 12]]}),
        pack({"values": ["<i4", [12], ids], "lengths": ["<i4", [2, 3], [2, 2, 2, 2, 2, 2]]}),
        pack(
            {
                "indices": ["<i8", [12], ids],
                "offsets": ["<i8", [5], [0, 3, 6, 9, 12]],
                "keys": ["<U2", [2], ["a", "b"]],
                "num_embeddings": ["<i8", [2], [20, 30]],
                "batch_size": ["<i8", [], [2]],
                "num_tables": ["<i8", [], [2]],
                "per_sample_weights": ["<f4", [12], [0.5] * 12],
            }
        ),
    ]


def _read_arrays() -> Read:
    """What the arrays of an .npz are taken for; the archive itself is noise of `accesses`."""
    from jaxperf.embedding.locality import _access_log, _log_arrays

    path, write = _file("arrays.npz")
    write(b"PK\x03\x04")

    def made(kind: Any, shape: Any, values: Any) -> np.ndarray:
        array = np.array(values).astype(kind)
        if array.size > 1 << 16 or array.dtype == object:
            raise NotAnInput
        return np.resize(array, shape) if array.size else array

    def read(data: bytes) -> None:
        try:
            arrays = {name: made(*each) for name, each in _unpacked(data).items()}
        except (ValueError, TypeError, ArithmeticError, AttributeError, RuntimeWarning):
            raise NotAnInput from None
        if sum(array.nbytes for array in arrays.values()) > 1 << 20:
            raise NotAnInput
        with _replaced(_log_arrays, "_arrays", lambda content, where: arrays):
            _access_log.read_access_logs(path)

    return read


def _array_mutation(data: bytes, draw: random.Random) -> bytes:
    arrays = unpack(data)
    name = draw.choice(list(arrays)) if arrays else "ids"
    kind, shape, values = arrays.get(name, ["<i8", [1], [0]])
    how = draw.randrange(6)
    if how == 0:
        kind = draw.choice(
            ("<i8", "<u8", "|i1", "<f8", "<U3", "|b1", ">i4", "<M8[ns]", "<c8", "|S3")
        )
    elif how == 1:
        shape = draw.choice(([], [0], [1], [len(values)], [2, 2], [1, 1, 1], [0, 5]))
    elif how == 2 and values:
        values[draw.randrange(len(values))] = draw.choice((-1, 0, 1, 2**31, 2**62, -(2**63), 13))
    elif how == 3:
        arrays.pop(name, None)
        name = draw.choice(
            ("t0_ids", "t1_indices", "lengths", "rows", "keys", "a/weights", "_ids", "", "offsets")
        )
    elif how == 4 and values:
        values = values[: draw.randrange(len(values) + 1)]
        shape = [len(values)]
    else:
        values = [*values, *values[:3]]
        shape = [len(values)]
    arrays[name] = [kind, shape, values]
    return pack(arrays)


_STATS = (
    b"day.pt\nLocality stats after processing 1 batches of size 64\n"
    b"Avg # of indices: 400\nAvg # of unique cols: 200\nAvg col size: 2.0\n"
    b"(0, 1]: 0.500\n(1+: 0.500\n(0, 1]: 0.250\n(1+: 0.750\n"
)


def _read_popularity() -> Read:
    from jaxperf.embedding.locality import _popularity_files as files

    path, write = _file("popularity")

    def stats(path: str) -> None:
        for each in files.read_locality_stats(path):
            files.popularity_of_stats(each)

    readers = (stats, files.read_popularity, files.popularity_format)

    def read(data: bytes) -> None:
        write(data[1:])
        readers[(data or b"\0")[0] % 3](path)

    return read


def _popularity() -> list[bytes]:
    bins = b'{"popularityBuckets": [1, 3, 10], "popularityWeights": [5, 5, 1]}'
    return [b"\0" + _STATS, b"\1" + bins, b"\2" + _STATS, b"\2" + bins]


def _popularity_mutation(data: bytes, draw: random.Random) -> bytes:
    return (change.json_text if data.lstrip()[:1] == b"{" else change.lines)(data, draw)


def _read_curve() -> Read:
    from jaxperf.embedding.hierarchy._curves import csv_curve

    path, write = _file("curve.csv")

    def read(data: bytes) -> None:
        write(data)
        csv_curve(path, 1000.0)

    return read


def _read_torchrec() -> Read:
    from jaxperf.embedding.torchrec import _measured, _plan_files

    path, write = _file("plan.json")
    readers = (
        _plan_files.read_sharding_plan,
        _plan_files.read_offload_statistics,
        _measured.read_measured_lookups,
    )

    def read(data: bytes) -> None:
        write(data[1:])
        readers[(data or b"\0")[0] % 3](path)

    return read


def _torchrec() -> list[bytes]:
    shard = {"shard_sizes": [10, 128], "shard_offsets": [0, 0], "placement": "rank:3/cuda:3"}
    table = {"sharding_type": "table_wise", "compute_kernel": "fused", "ranks": [3]}
    cached = table | {"sharding_spec": {"shards": [shard]}, "cache_params": {"load_factor": 0.1}}
    statistics = {"cacheability": 0.5, "expected_lookups": 100, "height": 1000}
    measured: dict[str, Any] = {"label": "sgd_gpu_t1", "caching": True, "num_tables": 1}
    measured |= {"cache_footprint_ratio": 0.5, "num_embeddings_per_feature": [100]}
    measured |= {"embedding_dim": 8, "pooling_mode": "none", "optimizer_type": "sgd"}
    measured |= {"avg_n_total": 50.0, "avg_n_unique": 30.0, "batch_size": 8, "alpha": 1.05}
    measured |= {f"trc_{name}_ms": 1.0 for name in ("forward", "backward", "train", "eval")}
    documents = (
        {"ebc": {"ads": cached, "users": table}},
        {"ads": statistics | {"mrc_hist_counts": [60.0, 40.0]}},
        [measured],
    )
    return [bytes([n]) + json.dumps(each).encode() for n, each in enumerate(documents)]


# Searches
# ---------------------------------------------------------------------------------------


def _search_parts():
    from jaxperf.config import Job, SearchSpace, load_hardware
    from jaxperf.search._parts import parts_of
    from jaxperf.search._problem import pose

    widths: dict[str, Any] = {"hidden_size": 256, "attention_heads": 4, "vocabulary_size": 512}
    job = Job(layers=2, sequence_length=256, **widths)
    axes = {"tensor_parallel": (1, 2), "micro_batch_size": (1, 2)}
    space = SearchSpace("small", axes, objectives=("step_us", "tokens_per_s_per_gpu"))
    return parts_of(pose(job, load_hardware("h100"), space), "exhaustive", 4)


def _read_search() -> Read:
    """A chunk of a search; its digest is mended, or nothing would come past it."""
    import hashlib

    from jaxperf.search._saved import open_folder

    folder = open_folder(_folder() / "search", _search_parts())
    path = folder._file(0)
    name = folder._search.encode()

    def read(data: bytes) -> None:
        content = data.replace(b"SEARCH", name)
        if not content.startswith(b"{\0"):
            digest = hashlib.sha256(content).hexdigest().encode()
            content = b'{"sha256": "' + digest + b'", "content": ' + content + b"}"
        with open(path, "wb") as file:
            file.write(content)
        folder.all_chunks()

    return read


def _search() -> list[bytes]:
    counts = {"refused": {"a rule": 1}, "over": {}, "excluded": {"work": 1}}
    chunk = {"search": "SEARCH", "chunk": 0, "shards": 1, "points": 4, "evaluated": 2, **counts}
    return [
        json.dumps(chunk | {"index": [1, 2], "cost": [[1.0, 2.0], [0.5, 3.0]]}).encode(),
        b'{\0"sha256": "", "content": {}}',
    ]


_CURVE = b"rows,hit_ratio\n1,0.1\n10,0.4\n1000,0.9\n"
_MOST, _SOME, _LEAST = 1_200_000, 500_000, 200_000
_LINES, _FILES = change.chosen(change.lines), change.files(change.by_ending)

TARGETS: dict[str, Target] = {
    target.name: target
    for target in (
        Target("trace", _read_trace, _traces, change.json_text, _LEAST),
        Target("sources", _read_trace, _compressed, _repacked, _LEAST),
        Target("graph", _read_graph, _graphs, _each_trace, _LEAST, 1 << 15, guided=0.1),
        Target("shards", _read_shard, _shards, _shard_mutation, _LEAST, 1 << 16),
        Target("nsight", _read_nsight, _nsight, _nsight_mutation, _LEAST, 1 << 17, guided=0.1),
        Target("chakra", _read_chakra, _chakra, change.noise),
        Target("execution-trace", _read_execution_trace, _execution_traces, change.json_text),
        Target(
            "operator-inputs",
            _read_operator_inputs,
            _operator_inputs,
            change.lines,
            _MOST,
            guided=1.0,
        ),
        *(
            Target(name, _toml_values(name), _toml_seeds(name), change.toml_tree)
            for name in TOML_TARGETS
        ),
        Target("toml-text", _toml_text_reader, _toml_text_seeds, _LINES),
        Target("mllog", _read_mllog, _mllogs, _LINES, _MOST, guided=1.0),
        Target("training", _read_training, _training, _FILES),
        Target("loadgen", _read_loadgen, _loadgen, change.lines, _MOST, guided=1.0),
        Target("ptdaemon", _read_ptdaemon, _ptdaemon, _LINES, _MOST, guided=1.0),
        Target("inference", _read_inference, _inference, _FILES, _LEAST, 1 << 16),
        Target("series", _read_series, _series, _LINES, _LEAST),
        Target("readings", _read_readings, _readings, change.lines),
        Target("archive", _read_archive, _archives, _archive_mutation),
        Target("score", _read_score, _scores, _FILES),
        Target("tiny", _read_tiny, _tiny, _FILES),
        Target("facts", _read_facts, _facts, change.lines, _SOME, guided=1.0),
        Target("accesses", _read_accesses, _accesses, change.chosen(_access_mutation)),
        Target("arrays", _read_arrays, _arrays, _array_mutation),
        Target("popularity", _read_popularity, _popularity, change.chosen(_popularity_mutation)),
        Target("curve", _read_curve, lambda: [_CURVE], change.lines),
        Target("torchrec", _read_torchrec, _torchrec, change.chosen(change.json_text)),
        Target("search", _read_search, _search, change.json_text, _SOME, guided=1.0),
    )
}
