"""One phenomenon each, in captures written by hand."""

import numpy as np
import pytest

from jaxperf.errors import GraphError
from jaxperf.graph import DependencyKind, TaskKind, launch_statistics
from tests.graph.asked import (
    codes,
    dependencies,
    device_task,
    measured_steps_us,
    on_device,
    replayed,
    task_names,
)
from tests.graph.several import note
from tests.graph.written import AUTOGRAD, MAIN, WATCHDOG, Capture

LAUNCH, STREAM_ORDER = DependencyKind.LAUNCH, DependencyKind.STREAM_ORDER
EVENT_WAIT, HOST_SYNC = DependencyKind.EVENT_WAIT, DependencyKind.HOST_SYNC


def replays_as_measured(graph, within_us: float = 0.5) -> bool:
    """Every step, and every start on the device."""
    answer = replayed(graph)
    mine = on_device(graph)
    late_us = (answer.start_ns - graph.start_ns)[mine] / 1e3
    assert answer.steps_us == pytest.approx(measured_steps_us(graph), abs=within_us)
    return bool((np.abs(late_us) <= within_us).all())


# ---------------------------------------------------------------------------------------
# Launches


def graph_launch() -> Capture:
    capture = Capture()
    capture.step(0, 300)
    correlation = capture.call("cudaGraphLaunch", 10, 30)
    for i in range(20):
        capture.work(f"a{i}", 50 + 6 * i, 5, correlation, stream=7)
    for i in range(10):
        capture.work(f"b{i}", 52 + 6 * i, 5, correlation, stream=8)
    return capture


def test_one_graph_launch_owns_its_kernels_on_every_stream(tmp_path):
    graph = graph_launch().graph(tmp_path)
    assert on_device(graph).sum() == 30
    assert replays_as_measured(graph)
    assert {("cudaGraphLaunch", "a0"), ("cudaGraphLaunch", "b0")} <= dependencies(graph, LAUNCH)
    order = dependencies(graph, STREAM_ORDER)
    assert order == {(f"{s}{i}", f"{s}{i + 1}") for s, n in (("a", 19), ("b", 9)) for i in range(n)}
    assert "launch-missing" not in codes(graph)


def test_every_kernel_of_a_graph_launch_moves_with_it(tmp_path):
    graph = graph_launch().graph(tmp_path)
    before, after = replayed(graph), replayed(graph, {"name:cudaGraphLaunch": 3.0})
    mine = on_device(graph)
    assert (after.start_ns - before.start_ns)[mine].tolist() == [60_000.0] * 30


def test_a_kernel_of_a_graph_launch_moves_those_behind_it_on_its_stream_only(tmp_path):
    graph = graph_launch().graph(tmp_path)
    before, after = replayed(graph), replayed(graph, {"name:^a10$": 11.0})
    assert after.end_us("a19") - before.end_us("a19") == pytest.approx(50.0)
    assert after.end_us("b9") == before.end_us("b9")


def test_branches_of_a_graph_launch_run_at_once_and_what_follows_waits_for_all(tmp_path):
    capture = Capture()
    capture.step(0, 300)
    correlation = capture.call("cudaGraphLaunch", 10, 30)
    capture.work("fork", 50, 20, correlation)
    capture.work("long", 72, 100, correlation)
    capture.work("short", 75, 60, correlation)
    capture.work("join", 174, 10, correlation)
    graph = capture.graph(tmp_path)
    assert replays_as_measured(graph)
    assert dependencies(graph, STREAM_ORDER) == {
        ("fork", "long"),
        ("fork", "short"),
        ("long", "join"),
        ("short", "join"),
    }
    assert replayed(graph, {"name:short": 0.1}).start_us("join") == pytest.approx(174.0, abs=0.5)
    assert replayed(graph, {"name:short": 3.0}).start_us("join") >= 75.0 + 180.0
    assert replayed(graph, {"name:long": 2.0}).start_us("short") == pytest.approx(75.0, abs=0.5)
    assert "stream-overlaps" in codes(graph)


def test_work_from_before_the_capture_holds_up_what_was_launched_in_it(tmp_path):
    capture = Capture()
    capture.step(0, 400)
    for i in range(5):
        capture.work(f"orphan{i}", 2 + 51 * i, 50)
    capture.launch("first", 10, 257, 40)
    capture.launch("second", 20, 298, 40)
    graph = capture.graph(tmp_path)
    assert replays_as_measured(graph)
    assert note(graph, "launch-missing").text.startswith("5 of 7 ")
    assert ("orphan4", "first") in dependencies(graph, STREAM_ORDER)
    faster = replayed(graph, {"name:orphan": 0.5})
    assert faster.start_us("first") == pytest.approx(257 - 5 * 25, abs=1.0)
    assert faster.start_us("second") - faster.end_us("first") == pytest.approx(1.0, abs=0.5)


QUEUE = 6


def full_queue(kernel_us: float, launches: int = 14) -> Capture:
    """Launches that block with `QUEUE` kernels pending: each returns 4 us after there is room."""
    capture = Capture()
    time, ends = 5.0, []
    for i in range(launches):
        begin = time
        if i >= QUEUE:
            time = max(time, ends[i - QUEUE])
        start = max(time + 6, ends[-1] + 1 if ends else 0)
        ends.append(start + kernel_us)
        capture.launch(f"k{i}", begin, start, kernel_us, call_us=time + 4 - begin)
        time += 4 + 2
    capture.step(0, time + 5)
    return capture


def test_the_length_of_a_full_launch_queue_is_read_off(tmp_path):
    graph = full_queue(50).graph(tmp_path)
    assert replays_as_measured(graph)
    assert f" {QUEUE} pieces " in note(graph, "launch-queue-full").text
    full = graph.dependency == DependencyKind.QUEUE_FULL
    names = task_names(graph)
    # Launch i needs the place of kernel i - 6.
    assert [names[i] for i in graph.source[full]] == [f"k{i}" for i in range(14 - QUEUE)]
    launched = np.flatnonzero(np.array(names) == "cudaLaunchKernel")
    assert graph.target[full].tolist() == launched[QUEUE:].tolist()


@pytest.mark.parametrize("factor", [0.5, 2.0, 5.0])
def test_launches_of_a_full_queue_go_at_the_pace_of_the_device(tmp_path, factor):
    (right_us,) = measured_steps_us(full_queue(50 * factor).graph(tmp_path))
    graph = full_queue(50).graph(tmp_path)
    assert replayed(graph, {"name:^k": factor}).steps_us == [pytest.approx(right_us, rel=0.005)]


def test_waiting_for_room_is_no_duration(tmp_path):
    graph = full_queue(50).graph(tmp_path)
    calls = np.array(task_names(graph)) == "cudaLaunchKernel"
    assert (graph.duration_ns[calls] == 4_000).all()


def test_a_queue_that_is_full_nearly_all_the_time_is_seen(tmp_path):
    graph = full_queue(50, launches=100).graph(tmp_path)
    assert f" {QUEUE} pieces " in note(graph, "launch-queue-full").text


def test_a_queue_that_was_never_full_limits_nothing(tmp_path):
    capture = Capture()
    capture.step(0, 100)
    for i in range(20):
        capture.launch(f"k{i}", 4 * i, 10 + 51 * i, 50, call_us=3)
    graph = capture.graph(tmp_path)
    assert DependencyKind.QUEUE_FULL not in graph.dependency
    assert "launch-queue-full" not in codes(graph)


def test_a_slow_device_clock_is_set_right_and_the_replay_is_exact(tmp_path):
    offset_us = -100.0
    capture = Capture()
    for i in range(20):
        at = 10 + 60 * i
        capture.launch(f"k{i}", at, at + 6 + offset_us, 20)
        capture.call("cudaDeviceSynchronize", at + 5, 24)
    capture.step(0, 1250)
    graph = capture.graph(tmp_path)
    assert "device-clock-shifted" in codes(graph)
    shift_us = graph.start_ns[device_task(graph, "k0")] / 1e3 - (16 + offset_us - (-84.0))
    # Time zero is the first event as written; launches take a few microseconds.
    assert shift_us == pytest.approx(100.0, abs=5.0)
    assert replays_as_measured(graph)
    assert replayed(graph, {"name:^k": 2.0}).steps_us == [pytest.approx(1250 + 400, abs=2.0)]
    assert replayed(graph, {"name:^k": 0.5}).steps_us == [pytest.approx(1250 - 200, abs=2.0)]


@pytest.mark.parametrize("factor", [1.0, 0.5, 0.1, 5.0])
def test_work_that_starts_before_its_call_returns_never_starts_before_it_begins(tmp_path, factor):
    capture = Capture()
    for i in range(20):
        call_us = 8 + i % 7
        # The call does its part 6 us before it returns.
        capture.launch(f"k{i}", 60 * i, 60 * i + call_us - 6, 20, call_us=call_us)
    capture.step(0, 1250)
    graph = capture.graph(tmp_path)
    assert replays_as_measured(graph)
    answer = replayed(graph, {"host": factor})
    launches = graph.dependency == LAUNCH
    call, kernel = graph.source[launches], graph.target[launches]
    assert (answer.start_ns[kernel] >= answer.start_ns[call]).all()


# ---------------------------------------------------------------------------------------
# Streams and devices


def test_an_overlap_of_two_microseconds_keeps_the_order_of_a_stream(tmp_path):
    capture = Capture()
    capture.step(0, 300)
    capture.launch("a", 0, 10, 100)
    capture.launch("b", 5, 108, 50)
    capture.launch("c", 10, 159, 50)
    graph = capture.graph(tmp_path)
    assert replays_as_measured(graph)
    assert dependencies(graph, STREAM_ORDER) == {("a", "b"), ("b", "c")}
    assert note(graph, "stream-overlaps").text.startswith("1 ")
    longer = replayed(graph, {"name:^a$": 2.0})
    assert longer.start_us("b") == pytest.approx(208.0, abs=0.5)
    assert longer.start_us("c") == pytest.approx(259.0, abs=0.5)


def two_devices(device: int) -> Capture:
    capture = Capture()
    capture.step(0, 400)
    for i in range(3):
        capture.launch(f"a{i}", 10 + 20 * i, 20 + 101 * i, 100, device=0)
        capture.launch(f"b{i}", 15 + 20 * i, 25 + 31 * i, 30, device=device)
    return capture


def test_streams_of_one_number_on_two_devices_are_two_streams(tmp_path):
    graph = two_devices(1).graph(tmp_path)
    lanes = [lane for lane in graph.lanes if lane.is_stream]
    assert [(lane.device, lane.stream) for lane in lanes] == [(0, 7), (1, 7)]
    assert dependencies(graph, STREAM_ORDER) == {
        ("a0", "a1"),
        ("a1", "a2"),
        ("b0", "b1"),
        ("b1", "b2"),
    }
    slower = replayed(graph, {"name:^a": 3.0})
    assert slower.end_us("b2") == replayed(graph).end_us("b2")


def cross_stream(
    capture: Capture, *, rows: bool = True, record: int | None = None, named: int = 7
) -> None:
    """`before` on stream 7 is recorded, `after` on stream 9 waits; `later` is behind the record."""
    capture.launch("before", 0, 10, 100)
    recorded = capture.call("cudaEventRecord", 6)
    wait = capture.call("cudaStreamWaitEvent", 8)
    if rows:
        capture.sync_row(
            "Stream Wait Event",
            8,
            1,
            wait,
            stream=9,
            wait_on_stream=named,
            wait_on_cuda_event_record_corr_id=recorded if record is None else record,
            wait_on_cuda_event_id=1,
        )
    capture.launch("after", 10, 112, 30, stream=9)
    capture.launch("later", 15, 111, 200)
    capture.step(0, 50)


@pytest.mark.parametrize("rows", [True, False])
def test_a_wait_is_for_the_work_before_the_record_and_not_for_the_whole_stream(tmp_path, rows):
    capture = Capture()
    cross_stream(capture, rows=rows)
    graph = capture.graph(tmp_path)
    assert replays_as_measured(graph)
    assert dependencies(graph, EVENT_WAIT) == {("before", "after")}
    assert ("waits-inferred" in codes(graph)) == (not rows)
    assert replayed(graph, {"name:later": 5.0}).end_us("after") == pytest.approx(142, abs=0.5)


def test_a_wait_without_a_record_is_for_all_work_so_far(tmp_path):
    capture = Capture()
    cross_stream(capture, record=-1)
    graph = capture.graph(tmp_path)
    assert dependencies(graph, EVENT_WAIT) == {("before", "after")}


def test_rows_that_name_no_stream_are_as_none(tmp_path):
    capture = Capture()
    cross_stream(capture, record=-1, named=-1)
    graph = capture.graph(tmp_path)
    assert dependencies(graph, EVENT_WAIT) == {("before", "after")}
    assert "waits-inferred" in codes(graph)


def test_the_baseline_knows_nothing_between_streams(tmp_path):
    capture = Capture()
    cross_stream(capture)
    graph = capture.graph(tmp_path, between_streams=False)
    assert EVENT_WAIT not in graph.dependency
    assert not graph.unexplained_ns.any()


def test_a_wait_that_the_times_contradict_is_left_out(tmp_path):
    capture = Capture()
    capture.launch("before", 0, 10, 100)
    recorded = capture.call("cudaEventRecord", 6)
    wait = capture.call("cudaStreamWaitEvent", 8)
    capture.sync_row("Stream Wait Event", 8, 1, wait, stream=9, wait_on_stream=7,
                     wait_on_cuda_event_record_corr_id=recorded)  # fmt: skip
    capture.launch("after", 10, 20, 30, stream=9)
    graph = capture.graph(tmp_path)
    assert EVENT_WAIT not in graph.dependency
    assert note(graph, "waits-contradicted").text.startswith("1 ")


def test_a_wait_that_nothing_explains_is_left_out(tmp_path):
    capture = Capture()
    capture.call("cudaStreamWaitEvent", 5)
    capture.launch("alone", 10, 20, 30)
    graph = capture.graph(tmp_path)
    assert EVENT_WAIT not in graph.dependency
    assert note(graph, "waits-unresolved").text.startswith("1 ")


def show_latency(capture: Capture) -> None:
    """Ten launches onto an idle stream: work starts 2 us after its call, however long that is."""
    for i in range(10):
        call_us = 2 + i % 4
        capture.launch(f"k{i}", 10 * i, 10 * i + call_us + 2, 2, call_us=call_us)


def test_a_late_start_just_after_the_end_of_other_work_is_a_wait(tmp_path):
    capture = Capture()
    show_latency(capture)
    capture.launch("before", 120, 126, 300)
    capture.launch("after", 130, 428, 30, stream=9)
    graph = capture.graph(tmp_path)
    assert dependencies(graph, EVENT_WAIT) == {("before", "after")}
    assert note(graph, "waits-inferred-from-times").text.startswith("1 ")
    assert replayed(graph, {"name:before": 0.5}).start_us("after") == pytest.approx(278, abs=3.0)


def test_a_delay_that_nothing_explains_is_kept(tmp_path):
    capture = Capture()
    capture.step(0, 400)
    show_latency(capture)
    capture.launch("late", 120, 320, 30)
    graph = capture.graph(tmp_path)
    assert replays_as_measured(graph)
    assert note(graph, "starts-unexplained").text.startswith("1 ")
    own = graph.unexplained_ns[graph.target == device_task(graph, "late")]
    assert own.max() / 1e3 == pytest.approx(320 - 126, abs=3.0)
    before, after = replayed(graph), replayed(graph, {"name:cudaLaunchKernel": 2.0})
    # Ten calls of 2 to 5 us, and its own of 4.
    moved_us = after.start_us("late") - before.start_us("late")
    assert moved_us == pytest.approx(33.0 + 4.0, abs=0.5)


# ---------------------------------------------------------------------------------------
# Waiting on the host


@pytest.mark.parametrize("stream", [-1, 4294967295])
def test_waiting_for_a_device_is_waiting_for_all_its_streams(tmp_path, stream):
    capture = Capture()
    capture.launch("a", 0, 10, 100)
    capture.launch("b", 5, 15, 150, stream=9)
    correlation = capture.call("cudaDeviceSynchronize", 10, 158)
    capture.sync_row("Context Sync", 10, 155, correlation, stream=stream)
    capture.op("after", 170, 30)
    capture.step(0, 200)
    graph = capture.graph(tmp_path)
    assert replays_as_measured(graph)
    synced = dependencies(graph, HOST_SYNC)
    assert synced == {("a", "cudaDeviceSynchronize"), ("b", "cudaDeviceSynchronize")}
    assert replayed(graph, {"name:^b$": 0.5}).steps_us == [pytest.approx(200 - 55, abs=1.0)]
    assert replayed(graph, {"name:^a$": 3.0}).steps_us == [pytest.approx(200 + 145, abs=1.0)]


def test_waiting_for_a_device_is_not_waiting_for_another(tmp_path):
    capture = Capture()
    capture.launch("a", 0, 10, 100, device=0)
    capture.launch("b", 5, 15, 400, device=1)
    correlation = capture.call("cudaDeviceSynchronize", 10, 103)
    capture.sync_row("Context Sync", 10, 101, correlation, stream=-1)
    capture.step(0, 120)
    graph = capture.graph(tmp_path)
    assert dependencies(graph, HOST_SYNC) == {("a", "cudaDeviceSynchronize")}


@pytest.mark.parametrize("stream", [7, 20])
def test_waiting_for_an_event_is_waiting_for_the_stream_that_the_profiler_names(tmp_path, stream):
    capture = Capture()
    capture.launch("short", 0, 10, 5)
    record = capture.call("cudaEventRecord", 20)
    correlation = capture.call("cudaEventSynchronize", 30, 2)
    capture.sync_row("Event Sync", 30, 2, correlation, stream=-1, wait_on_stream=stream,
                     wait_on_cuda_event_record_corr_id=record)  # fmt: skip
    graph = capture.graph(tmp_path)
    # No work was ever launched on stream 20, so its events have happened at once.
    expected = {("short", "cudaEventSynchronize")} if stream == 7 else set()
    assert dependencies(graph, HOST_SYNC) == expected


def test_a_loop_of_queries_is_one_wait(tmp_path):
    capture = Capture()
    capture.launch("slow", 0, 10, 2000)
    capture.call("cudaEventRecord", 6)
    for i in range(1000):
        capture.call("cudaEventQuery", 13 + 2 * i, 1)
    capture.op("after", 2020, 30)
    capture.step(0, 2060)
    graph = capture.graph(tmp_path)
    assert replays_as_measured(graph)
    assert graph.tasks < 50
    assert note(graph, "blocking-inferred").text.startswith("1 ")
    assert ("slow", "cudaEventQuery") in dependencies(graph, HOST_SYNC)
    assert replayed(graph, {"name:slow": 0.5}).steps_us == [pytest.approx(1060, abs=5.0)]
    assert replayed(graph, {"name:slow": 2.0}).steps_us == [pytest.approx(4060, abs=5.0)]


def watched(capture: Capture) -> None:
    """The main thread computes for 80 us between launches; a watchdog asks every 10 us."""
    for i in range(20):
        capture.op("aten::mm", 100 * i, 20)
        capture.launch(f"k{i}", 100 * i + 5, 100 * i + 15, 50)
    for i in range(200):
        capture.call("cudaEventQuery", 10 * i + 3, 1, thread=WATCHDOG)
    capture.step(0, 2000)


def test_nobody_waits_for_a_watchdog(tmp_path):
    capture = Capture()
    watched(capture)
    graph = capture.graph(tmp_path)
    assert replays_as_measured(graph)
    assert DependencyKind.HAND_OVER not in graph.dependency
    assert replayed(graph, {"name:cudaEventQuery": 9.0}).steps_us == [pytest.approx(2000, abs=0.5)]
    assert replayed(graph, {"host": 2.0}).steps_us == [pytest.approx(4000, rel=0.01)]


def test_a_blocking_copy_waits_for_the_work_before_it(tmp_path):
    graph = copied("Memcpy DtoH (Device -> Pageable)", call_us=128).graph(tmp_path)
    assert replays_as_measured(graph)
    assert dependencies(graph, HOST_SYNC) == {
        ("Memcpy DtoH (Device -> Pageable)", "cudaMemcpyAsync")
    }
    assert replayed(graph, {"name:gemm": 0.5}).steps_us == [pytest.approx(150, abs=1.0)]
    assert replayed(graph, {"name:gemm": 2.0}).steps_us == [pytest.approx(300, abs=1.0)]


def test_a_copy_to_pinned_memory_waits_for_nothing(tmp_path):
    graph = copied("Memcpy DtoH (Device -> Pinned)", call_us=5).graph(tmp_path)
    assert replays_as_measured(graph)
    assert HOST_SYNC not in graph.dependency
    assert replayed(graph, {"name:gemm": 2.0}).steps_us == [pytest.approx(200, abs=0.5)]


def test_a_copy_from_pageable_memory_that_returned_early_waits_for_nothing(tmp_path):
    graph = copied("Memcpy HtoD (Pageable -> Device)", call_us=9).graph(tmp_path)
    assert HOST_SYNC not in graph.dependency


def copied(copy: str, call_us: float) -> Capture:
    """A kernel, and a copy behind it from 111 to 121 us."""
    capture = Capture()
    capture.launch("gemm", 0, 10, 100)
    capture.launch(copy, 5, 111, 10, call="cudaMemcpyAsync", call_us=call_us)
    capture.op("after", 140, 40)
    capture.step(0, 200)
    return capture


# ---------------------------------------------------------------------------------------
# Threads


def backward_pass(steps: int = 3) -> Capture:
    """The main thread is silent for 500 us of each step while autograd's works for 460 of them."""
    capture = Capture()
    for s in range(steps):
        at = 1000 * s
        capture.step(at, 1000)
        capture.op("forward", at + 10, 300)
        for i in range(10):
            capture.op("MmBackward0", at + 330 + 46 * i, 46, thread=AUTOGRAD)
        capture.op("optimizer", at + 810, 150)
    return capture


def test_a_thread_that_waits_for_another_is_done_when_the_other_is(tmp_path):
    graph = backward_pass().graph(tmp_path)
    assert replays_as_measured(graph)
    handed = dependencies(graph, DependencyKind.HAND_OVER)
    assert any(target == "MmBackward0" for _, target in handed)
    assert any(source == "MmBackward0" for source, _ in handed)
    faster = replayed(graph, {"name:MmBackward0": 0.5}).steps_us
    assert faster == pytest.approx([1000 - 230] * 3, abs=1.0)
    slower = replayed(graph, {"name:MmBackward0": 3.0}).steps_us
    assert slower == pytest.approx([1000 + 920] * 3, abs=1.0)


def test_what_a_thread_waits_for_starts_when_the_thread_before_is_done(tmp_path):
    graph = backward_pass().graph(tmp_path)
    longer = replayed(graph, {"name:forward": 2.0})
    assert longer.steps_us == pytest.approx([1300.0] * 3, abs=1.0)


def test_waiting_for_another_thread_is_no_duration(tmp_path):
    graph = backward_pass().graph(tmp_path)
    lanes = [lane.name for lane in graph.lanes]
    main = np.array([str(MAIN) in name for name in lanes])[graph.lane]
    # 3 steps of 10 + 300 + 20 before, 20 + 150 + 40 after.
    assert graph.duration_ns[main].sum() / 1e3 == pytest.approx(3 * 540, abs=1.0)


def test_threads_that_work_beside_each_other_are_not_tied(tmp_path):
    capture = Capture()
    for i in range(20):
        capture.op("aten::mm", 100 * i, 60)
        capture.op("loader", 73 * i, 50, thread=AUTOGRAD)
    capture.step(0, 2000)
    graph = capture.graph(tmp_path)
    assert DependencyKind.HAND_OVER not in graph.dependency
    assert replayed(graph, {"name:loader": 4.0}).steps_us == [pytest.approx(2000, abs=0.5)]


# ---------------------------------------------------------------------------------------
# Beside dependencies


def test_a_capture_in_which_nothing_was_guessed_has_no_notes(tmp_path):
    capture = Capture()
    capture.step(0, 100)
    capture.op("aten::mm", 5, 60)
    for i in range(3):
        capture.launch(f"gemm{i}", 10 + 20 * i, 16 + 20 * i, 10)
    assert capture.graph(tmp_path).notes == ()


def test_a_trace_without_launches_has_no_launch_delay(tmp_path):
    capture = Capture()
    capture.work("orphan", 0, 10)
    found = launch_statistics(capture.trace(tmp_path))
    assert (found.linked, found.orphans, found.early, found.longest_queue) == (0, 1, 0, 0)
    assert found.worst_early_us == 0.0
    assert np.isnan(found.mean_delay_us)


def test_a_trace_without_anything_to_replay_is_refused(tmp_path):
    capture = Capture()
    capture.sync_row("Context Sync", 0, 1, 1, stream=-1)
    with pytest.raises(GraphError, match="nothing to replay"):
        capture.graph(tmp_path)


def test_a_return_runs_beside_the_call_where_there_was_nothing_to_wait_for(tmp_path):
    capture = Capture()
    for i in range(4):
        # The first two find the kernel done, the others wait for it.
        duration = 20 if i < 2 else 70
        capture.launch(f"k{i}", 200 * i, 200 * i + 8, duration)
        capture.op("between", 200 * i + 5, 40)
        capture.call("cudaStreamSynchronize", 200 * i + 50, 2 if i < 2 else 31)
    capture.step(0, 800)
    graph = capture.graph(tmp_path)
    assert replays_as_measured(graph)
    returns = graph.kind == TaskKind.HOST_RETURN
    assert (graph.duration_ns[returns] == 3_000).all()
    # 30 us longer: the first ends at 58 of 200, its call would return 3 us later.
    slower = replayed(graph, {"name:^k0$": 2.5})
    assert slower.steps_us == [pytest.approx(800 + 58 + 3 - 52, abs=1.0)]


def test_steps_are_those_of_the_thread_that_has_most_of_them(tmp_path):
    graph = backward_pass().graph(tmp_path)
    assert [step.name for step in graph.steps] == [f"ProfilerStep#{i}" for i in (1, 2, 3)]
    start_ns = replayed(graph).start_ns
    assert [start_ns[step.begin_task] for step in graph.steps] == [0, 1_000_000, 2_000_000]
