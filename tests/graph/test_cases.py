"""The shared cases that are about dependencies and replay, with their right values."""

import json
from pathlib import Path

import numpy as np
import pytest

from jaxperf.graph import (
    DependencyKind,
    ExecutionGraph,
    TaskClass,
    TaskKind,
    build_graph,
    classify_kernel,
    launch_statistics,
)
from jaxperf.replay import Timeline, replay
from jaxperf.replay._breakdown import device_activity
from jaxperf.trace import Trace, read_run
from tests.graph.asked import (
    bounding_path,
    codes,
    dependencies,
    device_task,
    measured_steps_us,
    on_device,
    replayed,
    task_names,
)


class Case:
    """One folder of the cases: its files as graphs, and its right values with their tolerance."""

    def __init__(self, folder: Path):
        self.folder = folder
        values = json.loads((folder / "expected.json").read_text())["values"]
        self.values = {value["name"]: value for value in values}

    def right(self, name: str):
        """The right value, equal to whatever lies within its tolerance."""
        value = self.values[name]
        return pytest.approx(value["value"], abs=value["tol_abs"], rel=0)

    def trace(self, file: str = "trace.json") -> Trace:
        (trace,) = read_run([self.folder / file]).traces
        return trace

    def graph(self, file: str = "trace.json") -> ExecutionGraph:
        return build_graph(read_run([self.folder / file]))


@pytest.fixture
def case(shared, request) -> Case:
    return Case(shared / "cases" / request.param)


def of(name: str):
    return pytest.mark.parametrize("case", [name], indirect=True, ids=[""])


# ---------------------------------------------------------------------------------------
# What a kernel is


@of("06-sub-microsecond")
def test_kernels_shorter_than_a_microsecond_keep_their_durations(case):
    graph = case.graph()
    tiny_us = graph.duration_ns[on_device(graph)] / 1e3
    assert len(tiny_us) == case.right("count")
    assert tiny_us.sum() == case.right("sum")
    assert tiny_us.mean() == case.right("mean")
    assert tiny_us.min() == case.right("min")
    assert tiny_us.max() == case.right("max")
    assert (tiny_us > 0).all()


@of("06-sub-microsecond")
def test_idle_time_between_kernels_shorter_than_a_microsecond(case):
    graph = case.graph()
    span = breakdown(graph)
    assert span.compute_us == case.right("gpu_busy")
    assert span.total_us == case.right("gpu_span")
    assert span.idle_us == case.right("gpu_idle")


@of("09-collective-names")
def test_collectives_of_every_spelling_count_as_communication(case):
    span = breakdown(case.graph())
    communication_us = span.overlap_us + span.exposed_communication_us
    assert span.compute_us + span.overlap_us == case.right("compute")
    assert communication_us == case.right("communication")
    assert span.overlap_us == case.right("communication_overlapped_with_compute")
    assert 100 * span.overlap_us / communication_us == case.right(
        "overlap_percent_of_communication"
    )
    assert span.exposed_communication_us == case.right("exposed_communication")
    assert span.memory_us == case.right("memory")
    assert span.total_us - span.idle_us == case.right("gpu_busy")
    assert span.idle_us == case.right("gpu_idle")
    assert span.total_us == case.right("gpu_span")


@of("09-collective-names")
def test_an_annotation_on_the_device_is_no_task(case):
    graph = case.graph()
    assert on_device(graph).sum() == 6
    assert "nccl:all_reduce" not in task_names(graph)


@of("09-collective-names")
def test_metadata_tells_the_collective_where_the_kernel_is_generic(case):
    graph, trace = case.graph(), case.trace()
    (generic,) = [i for i, name in enumerate(task_names(graph)) if "Generic" in name]
    assert graph.kind[generic] == TaskKind.COLLECTIVE
    assert trace.collectives[trace.collective[graph.event[generic]]].name == "reduce_scatter"


def breakdown(graph: ExecutionGraph):
    """Where the measured time goes, from the first start to the last end on the device."""
    start_us, end_us = graph.start_ns / 1e3, graph.end_ns / 1e3
    activity = device_activity(graph, Timeline(start_us, end_us), graph.ranks[0])
    assert activity is not None
    mine = on_device(graph)
    return activity.between(start_us[mine].min(), end_us[mine].max())


@pytest.mark.parametrize(
    "name",
    [
        "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)",
        "ncclKernel_AllGather_RING_LL_Sum_int8_t(ncclDevComm*, unsigned long, ncclWork*)",
        "ncclDevKernel_Generic(ncclDevComm*, channelMasks, ncclWork*)",
        "nccldevkernel_sendrecv",
        "void deep_ep::internode_ll::dispatch<true, 3, 10, 7168>",
        "multimem_all_reduce_kernel<c10::BFloat16>",
        "void vllm::cross_device_reduce_1stage<__nv_bfloat16, 8>",
    ],
)
def test_no_collective_is_taken_for_computation(name):
    assert classify_kernel(name) is TaskClass.COMMUNICATION


# ---------------------------------------------------------------------------------------
# Waiting on the host


@of("10-blocking-sync")
def test_a_blocking_call_replays_as_measured(case):
    graph = case.graph()
    assert measured_steps_us(graph) == [case.right("iteration_time")]
    assert replayed(graph).steps_us == [case.right("replay_unchanged")]


@of("10-blocking-sync")
@pytest.mark.parametrize(
    ("factor", "name"), [(0.5, "what_if.long_kernel_half"), (0.0, "what_if.long_kernel_zero")]
)
def test_waiting_shrinks_with_the_kernel_that_is_waited_for(case, factor, name):
    assert replayed(case.graph(), {"name:long_kernel": factor}).steps_us == [case.right(name)]


@of("10-blocking-sync")
def test_the_kernel_and_not_the_wait_for_it_is_on_the_critical_path(case):
    graph = case.graph()
    (step,) = graph.steps
    path = bounding_path(replayed(graph), step.end_task)
    time_us: dict[str, float] = {}
    for task in path:
        name = task_names(graph)[task]
        time_us[name] = time_us.get(name, 0.0) + float(graph.duration_ns[task]) / 1e3
    assert time_us["long_kernel"] == case.right("critical_path.long_kernel")
    # The tail after the kernel's end.
    assert time_us.get("cudaDeviceSynchronize", 0.0) <= 5.0


# ---------------------------------------------------------------------------------------
# Launches


@of("11-kernel-before-launch")
def test_a_kernel_stamped_before_its_launch_is_counted_and_keeps_its_link(case):
    found = launch_statistics(case.trace())
    assert found.linked == case.right("linked_kernels")
    assert found.early == case.right("launch_before_start_anomalies")
    assert found.worst_early_us == case.right("worst_skew")
    # The mean is that of the one which is not early.
    assert found.mean_delay_us == pytest.approx(4.0)
    graph = case.graph()
    assert dependencies(graph, DependencyKind.LAUNCH) == {
        ("cudaLaunchKernel", "early_kernel"),
        ("cudaLaunchKernel", "normal_kernel"),
    }
    assert "device-clock-shifted" in codes(graph)


@of("11-kernel-before-launch")
def test_a_kernel_stamped_before_its_launch_replays(case):
    graph = case.graph()
    assert measured_steps_us(graph) == [case.right("iteration_time")]
    assert replayed(graph).steps_us == [case.right("replay_unchanged")]


@of("11-kernel-before-launch")
@pytest.mark.parametrize("host", [1.0, 0.1, 10.0])
def test_no_kernel_replays_before_its_launch(case, host):
    graph = case.graph()
    answer = replayed(graph, {"host": host})
    launches = graph.dependency == DependencyKind.LAUNCH
    call, kernel = graph.source[launches], graph.target[launches]
    assert (answer.start_ns[kernel] >= answer.start_ns[call]).all()


@of("12-launch-names")
def test_launches_are_matched_whatever_their_name(case):
    found = launch_statistics(case.trace())
    assert found.linked == case.right("matched")
    assert found.orphans == case.right("orphans")
    assert found.mean_delay_us == case.right("mean_launch_delay")
    assert found.longest_queue == case.right("max_queue_length")


@of("12-launch-names")
def test_an_orphan_keeps_its_place_in_the_stream(case):
    graph = case.graph()
    assert (graph.dependency == DependencyKind.LAUNCH).sum() == case.right("matched")
    order = [(f"device_work_{i}", f"device_work_{i + 1}") for i in range(8)]
    order.append(("device_work_8", "launched_before_capture"))
    assert dependencies(graph, DependencyKind.STREAM_ORDER) == set(order)
    (note,) = [note for note in graph.notes if note.code == "launch-missing"]
    assert note.text.startswith("1 of 10 ")


# ---------------------------------------------------------------------------------------
# Steps


@of("13-iteration-window")
def test_device_work_belongs_to_the_step_that_launched_it(case):
    graph = case.graph("with_steps.json")
    assert [step.name for step in graph.steps] == ["ProfilerStep#5", "ProfilerStep#6"]
    assert len(graph.steps) == case.right("with_steps.steps")
    assert np.mean(measured_steps_us(graph)) == case.right("with_steps.mean_iteration_time")
    mine = on_device(graph)
    for index, name in enumerate(["gpu_time.step5", "gpu_time.step6"]):
        time_us = graph.duration_ns[mine & (graph.step == index)].sum() / 1e3
        assert time_us == case.right(name)
    assert replayed(graph).steps_us == pytest.approx([100.0, 100.0], abs=0.5)


@of("13-iteration-window")
def test_without_step_marks_the_capture_is_one_iteration(case):
    result = replay(case.folder / "no_steps.json")
    assert result.steps == ()
    assert result.graph.steps == ()
    assert result.window.measured_us == case.right("no_steps.iteration_time")
    assert result.window.replayed_us == pytest.approx(190.0, abs=0.5)
    assert "no-steps" in {note.code for note in result.notes}
    graph = result.graph
    assert graph.duration_ns[on_device(graph)].sum() / 1e3 == case.right("no_steps.gpu_busy")


# ---------------------------------------------------------------------------------------
# Streams

BOTH_FILES = pytest.mark.parametrize("file", ["trace.json", "orphan_c.json"])


@of("14-same-stream-order")
@BOTH_FILES
@pytest.mark.parametrize(
    ("change", "name"),
    [
        ({}, "replay_unchanged"),
        ({"name:^B$": 0.0}, "what_if.B_zero"),
        ({"name:^A$": 0.5}, "what_if.A_half"),
    ],
)
def test_kernels_of_a_stream_follow_each_other(case, file, change, name):
    answer = replayed(case.graph(file), change)
    assert answer.end_us("C") == case.right(name)
    assert answer.start_us("B") >= answer.end_us("A")
    assert answer.start_us("C") >= answer.end_us("B")


@of("14-same-stream-order")
def test_kernels_ten_times_faster(case):
    answer = replayed(case.graph(), {"name:^[ABC]$": 0.1})
    assert answer.end_us("C") == case.right("what_if.all_kernels_10x_faster")


@of("14-same-stream-order")
@BOTH_FILES
def test_the_critical_path_holds_every_kernel_of_the_stream(case, file):
    graph = case.graph(file)
    path = bounding_path(replayed(graph), device_task(graph, "C"))
    kernels = [task for task in path if on_device(graph)[task]]
    assert graph.duration_ns[kernels].sum() / 1e3 == case.right("critical_path.kernel_time")


@of("15-cross-stream-event")
@pytest.mark.parametrize(
    ("change", "name"),
    [
        ({}, "replay_unchanged"),
        ({"name:^P$": 0.5}, "what_if.P_half"),
        ({"name:^R$": 0.0}, "what_if.R_zero"),
        ({"name:^R$": 4.0}, "what_if.R_times_4"),
    ],
)
def test_a_kernel_waits_for_an_event_of_another_stream(case, change, name):
    answer = replayed(case.graph(), change)
    assert answer.window_us == case.right(name)
    assert answer.start_us("Q") >= answer.end_us("P")


@of("15-cross-stream-event")
def test_the_wait_ties_two_kernels_and_is_none_itself(case):
    graph = case.graph()
    assert sorted(np.array(task_names(graph))[on_device(graph)]) == ["P", "Q", "R"]
    assert dependencies(graph, DependencyKind.EVENT_WAIT) == {("P", "Q")}
    names = [task_names(graph)[i] for i in bounding_path(replayed(graph), device_task(graph, "Q"))]
    assert "P" in names
    assert "R" not in names
