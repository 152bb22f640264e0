"""Profiles of JAX: one made here on the CPU, and GPU ones in its shape of runs that are known."""

from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxperf.errors import TraceError
from jaxperf.graph import build_graph
from jaxperf.trace import Category, read_file, read_run
from tests.graph.asked import replayed
from tests.scenarios import SCENARIOS
from tests.trace.jax_files import HOST, write, write_jax
from tests.trace.written import codes, names

WHAT_IF_PERCENT = 0.5  # as in tests/graph/test_scenarios.py


@pytest.fixture(scope="module")
def cpu_profile(tmp_path_factory) -> Path:
    """Three steps of a matrix product on the CPU, as `jax.profiler.trace` writes them."""
    folder = tmp_path_factory.mktemp("profile")
    double = jax.jit(lambda x: x @ x)
    matrix = jnp.ones((64, 64), jnp.float32)
    double(matrix).block_until_ready()
    with jax.profiler.trace(str(folder)):
        for step in range(3):
            with jax.profiler.StepTraceAnnotation("train", step_num=step):
                double(matrix).block_until_ready()
    return folder


def test_the_folder_of_a_real_profile_is_read(cpu_profile):
    run = read_run(cpu_profile)
    (trace,) = run.traces
    assert [aside.reason for aside in run.set_aside] == ["an XPlane profile of JAX"]
    assert not np.isin(trace.category, [Category.KERNEL, Category.MEMCPY]).any()
    assert "steps-from-ranges" in codes(trace)
    graph = build_graph(run)
    assert [step.name for step in graph.steps] == [f"ProfilerStep#{n}" for n in range(3)]
    measured = [(step.end_ns - step.begin_ns) / 1e3 for step in graph.steps]
    assert replayed(graph).steps_us == pytest.approx(measured, rel=1e-3)


def test_the_rows_of_the_python_tracer_are_python(cpu_profile):
    (trace,) = read_run(cpu_profile).traces
    python = [name.startswith("$") for name in names(trace)]
    assert (trace.category[python] == Category.PYTHON).all()
    assert any(python)


@pytest.mark.parametrize("name", ["several_waits", "graph_launch", "blocking_copy", "two_devices"])
def test_a_gpu_profile_is_the_same_run_as_the_kineto_trace(tmp_path, name):
    (kineto,) = SCENARIOS[name].write(tmp_path / "kineto", cuda_sync_rows=False)
    expected = build_graph(read_run(kineto))
    found = build_graph(read_run(write_jax(kineto, tmp_path / "vm.trace.json.gz")))
    columns = ("duration_ns", "start_ns", "task_class", "step", "source", "target", "lag_ns")
    for column in (*columns, "dependency"):
        assert np.array_equal(getattr(found, column), getattr(expected, column)), column
    for change in SCENARIOS[name].changes[:3]:
        right = SCENARIOS[name].run(change).steps_us
        assert replayed(found, change).steps_us == pytest.approx(right, rel=WHAT_IF_PERCENT / 100)


def named(kind: str, pid: int, name: str, tid: int = 0) -> dict:
    return {"ph": "M", "name": kind, "pid": pid, "tid": tid, "args": {"name": name}}


def row(name: str, pid: int, tid: int, ts: float, dur: float = 2.0, **args: str) -> dict:
    return {"ph": "X", "pid": pid, "tid": tid, "ts": ts, "dur": dur, "name": name, "args": args}


def test_what_the_rows_of_a_device_say(tmp_path):
    copy = "kind_src:device kind_dst:pageable size:4096 dest:0 async:1"
    details = "regs:32 static_shared:0 dynamic_shared:0 grid:16,2,1 block:256,1,1 occ_pct:100"
    events = [
        named("process_name", 1001, "/device:GPU:3 (pid 7)"),
        named("thread_name", 1001, "Stream #22(Compute,MemcpyD2H)", 22),
        named("thread_name", 1001, "XLA Modules", 99),
        named("process_name", HOST, "/host:CPU"),
        named("thread_name", HOST, "python", 5),
        row("cuGraphLaunch (CudaGraph:5)", HOST, 5, 1, correlation_id="8"),
        row("gemm_fusion_dot_3", 1001, 22, 10, correlation_id="8", kernel_details=details),
        row("jit_step(123)", 1001, 99, 10, 9),
        row("MemcpyD2H", 1001, 22, 14, correlation_id="9", memcpy_details=copy),
        row("Memset", 1001, 22, 17, memset_details="kind:device num_bytes:64 async:1"),
    ]
    (trace,) = read_file(write(tmp_path / "vm.trace.json.gz", events))
    assert trace.category.tolist() == [
        Category.DRIVER,
        Category.OTHER,
        Category.KERNEL,
        Category.MEMCPY,
        Category.MEMSET,
    ]
    assert names(trace)[0] == "cuGraphLaunch"
    assert names(trace)[3] == "Memcpy DtoH (Device -> Pageable)"
    assert trace.correlation[[0, 2, 3]].tolist() == [8, 8, 9]
    assert trace.bytes[3:].tolist() == [4096, 64]
    assert trace.shapes[trace.shape[2]] == "[[16, 2, 1], [256, 1, 1]]"
    assert trace.lanes[trace.lane[2]].name == "GPU 3 stream 22"


def test_details_that_say_nothing_are_absent(tmp_path):
    events = [
        named("process_name", 1, "/device:GPU:0"),
        named("thread_name", 1, "Stream #7(Compute)", 7),
        row("MemcpyH2D", 1, 7, 1, memcpy_details="kind_src: size:x"),
        row("fusion", 1, 7, 5, kernel_details="grid:1,,2 block:"),
        {"ph": "X", "pid": 1, "tid": 7, "ts": 9, "dur": 1, "name": "bare"},
    ]
    (trace,) = read_file(write(tmp_path / "vm.trace.json.gz", events))
    assert names(trace) == ["MemcpyH2D", "fusion", "bare"]
    assert trace.category.tolist() == [Category.MEMCPY, Category.KERNEL, Category.KERNEL]
    assert trace.shape.tolist() == [-1, -1, -1]


def test_a_full_profile_may_lack_what_came_later(tmp_path, monkeypatch):
    monkeypatch.setattr("jaxperf.trace._columns.MOST_EVENTS", 4)
    for count, noted in ((3, False), (4, True)):
        rows = [row("work", HOST, 1, 10 * number) for number in range(count)]
        events = [named("process_name", HOST, "/host:CPU"), *rows]
        (trace,) = read_file(write(tmp_path / f"{count}.trace.json.gz", events))
        assert ("jax-events-capped" in codes(trace)) == noted


def profile(folder: Path, time: str, *hosts: str) -> Path:
    """A folder of `jax.profiler` with the profile of some hosts."""
    inside = folder / "plugins" / "profile" / time
    for number, host in enumerate(hosts):
        events = [named("process_name", HOST, "/host:CPU"), row(time, HOST, 1, 100 + number)]
        write(inside / f"{host}.trace.json.gz", events)
        (inside / f"{host}.xplane.pb").write_bytes(b"\n\x0b\0\1")
    return inside


def test_of_several_profiles_the_newest_is_read(tmp_path):
    earlier = profile(tmp_path, "2026_01_02_03_04_05", "vm")
    profile(tmp_path, "2026_01_02_03_09_00", "vm")
    run = read_run(tmp_path)
    assert names(run.traces[0]) == ["2026_01_02_03_09_00"]
    asides = {aside.file: aside.reason for aside in run.set_aside}
    assert asides[str(earlier)] == "an earlier profile; the newest is read"
    assert names(read_run(earlier).traces[0]) == ["2026_01_02_03_04_05"]


def test_hosts_are_ranks_in_order_of_their_names(tmp_path):
    inside = profile(tmp_path, "now", "node-a", "node-b")
    write(inside / "perfetto_trace.json.gz", [row("copy", 1, 1, 1)])
    for place in (tmp_path, inside):
        run = read_run(place)
        found = [(trace.rank, Path(trace.files[0]).name) for trace in run.traces]
        assert found == [(0, "node-a.trace.json.gz"), (1, "node-b.trace.json.gz")]
        assert "ranks-from-order" in {note.code for note in run.notes}


def test_an_xplane_file_is_named_with_what_to_read(tmp_path):
    inside = profile(tmp_path, "now", "vm")
    with pytest.raises(TraceError, match="an XPlane profile of JAX.*trace.json.gz beside it"):
        read_run(inside / "vm.xplane.pb")
