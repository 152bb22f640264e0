"""Tasks on accelerators from graphs and work: which they are, what is known, what they send."""

from dataclasses import replace

import msgspec
import numpy as np
import pytest

from jaxperf.config import load_hardware, load_power
from jaxperf.cost import (
    COLLECTIVE_OPERATIONS,
    PRECISIONS,
    Work,
    collective_work,
    matmul_work,
    memory_work,
    unknown_work,
)
from jaxperf.energy.power._builder import power_tasks, sent_bytes
from jaxperf.energy.power._node import node_power
from jaxperf.graph import TaskClass, TaskKind
from jaxperf.replay import Timeline
from tests.helpers import make_graph

H100 = load_hardware("h100")
ONE = np.ones(1)
COLUMNS = tuple(vars(unknown_work(1)))


def joined(works: list[Work]) -> Work:
    return Work(**{name: np.concatenate([getattr(w, name) for w in works]) for name in COLUMNS})


def tasks_of(works: list[Work], kinds: list[TaskKind], classes: list[TaskClass], arrival=None):
    """One task each, of 10 us, one after the other."""
    n = len(works)
    graph = replace(
        make_graph(np.full(n, 10_000), [], task_class=classes), kind=np.array(kinds, np.int8)
    )
    if arrival is not None:
        graph = replace(graph, arrival=np.array(arrival, np.int32))
    start_us = 10.0 * np.arange(n)
    timeline = Timeline(start_us, start_us + 10.0)
    return power_tasks(graph, timeline, joined(works), H100, 0.0, 10.0 * n)


def sent(operation: str, size: float, ranks: int, stride: int = 1, per_node: int = 8):
    index = np.array([COLLECTIVE_OPERATIONS.index(operation)])
    node, network = sent_bytes(index, size * ONE, ranks * ONE, stride * ONE, per_node)
    return float(node[0]), float(network[0])


# What is sent
# ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "operation, part",
    [
        ("all_reduce", 1.75),
        ("all_gather", 0.875),
        ("reduce_scatter", 0.875),
        ("all_to_all", 0.875),
        ("broadcast", 0.875),
    ],
)
def test_a_rank_of_a_node_sends_its_part_inside_the_node(operation, part):
    assert sent(operation, 800.0, 8) == pytest.approx((part * 800.0, 0.0))


def test_a_pair_sends_all_of_a_message():
    assert sent("send_receive", 800.0, 2) == (800.0, 0.0)
    assert sent("send_receive", 800.0, 2, stride=8) == (0.0, 800.0)


def test_one_rank_of_a_node_passes_the_ring_on_to_the_next():
    node, network = sent("all_reduce", 1600.0, 16)
    assert node + network == pytest.approx(2 * 15 / 16 * 1600.0)
    assert network == pytest.approx((node + network) / 8)


def test_ranks_on_different_nodes_send_only_between_them():
    assert sent("all_gather", 800.0, 4, stride=8) == pytest.approx((0.0, 600.0))


def test_an_all_to_all_goes_where_the_peers_are():
    # Of 15 peers of two nodes of eight, 7 are in the own node.
    node, network = sent("all_to_all", 1600.0, 16)
    assert node == pytest.approx(700.0) and network == pytest.approx(800.0)


def test_a_rank_alone_sends_nothing_and_the_unknown_stays_so():
    assert sent("all_reduce", 800.0, 1) == (0.0, 0.0)
    assert sent("send_receive", 800.0, 1) == (0.0, 0.0)
    nothing = sent_bytes(np.array([-1, 0]), np.full(2, np.nan), np.full(2, 8.0), np.ones(2), 8)
    assert np.all(np.isnan(nothing))


# Tasks
# ---------------------------------------------------------------------------------------


def test_only_what_runs_on_accelerators_draws_their_power():
    kinds = [TaskKind.HOST_WORK, TaskKind.KERNEL, TaskKind.ARRIVAL, TaskKind.MEMSET]
    classes = [TaskClass.HOST, TaskClass.GEMM, TaskClass.COMMUNICATION, TaskClass.MEMCPY]
    tasks = tasks_of([unknown_work(1)] * 4, kinds, classes)
    assert tasks.task.tolist() == [1, 3]
    assert not tasks.is_known.any()
    assert tasks.start_us.tolist() == [10.0, 30.0]


def test_a_multiply_has_its_operations_and_bytes_and_follows_the_clock():
    large = matmul_work(8192, 8192, 8192)
    small = matmul_work(8192, 64, 8192)
    tasks = tasks_of([large, small], [TaskKind.KERNEL] * 2, [TaskClass.GEMM] * 2)
    assert tasks.is_known.all()
    assert tasks.flops[0] == 2 * 8192**3
    assert tasks.precision.tolist() == [PRECISIONS.index("bf16")] * 2
    assert tasks.clock_share[0] > 0.99
    # 64 rows: 4 us of memory for every 1 us of computation.
    ratio = (small.flops[0] / 989.4e12) / (small.memory_bytes[0] / 3.35e12)
    assert tasks.clock_share[1] == pytest.approx(ratio**2.5 / (1 + ratio**2.5))


def test_the_clock_share_is_the_elasticity_of_the_time():
    # (t_c^p + t_m^p)^(1/p), when the clock and with it the peak is a thousandth higher.
    work = matmul_work(8192, 300, 8192)
    tasks = tasks_of([work], [TaskKind.KERNEL], [TaskClass.GEMM])
    memory_s = work.memory_bytes[0] / 3.35e12

    def logarithm(clock):
        return np.log((work.flops[0] / (989.4e12 * clock)) ** 2.5 + memory_s**2.5) / 2.5

    slope = (logarithm(1.001) - logarithm(0.999)) / (np.log(1.001) - np.log(0.999))
    assert tasks.clock_share[0] == pytest.approx(-slope, rel=1e-5)


def test_streams_and_copies_do_not_follow_the_clock():
    copy = replace(unknown_work(1), memory_bytes=1e6 * ONE)
    tasks = tasks_of(
        [memory_work(TaskClass.ELEMENTWISE, 3e6, 3e6), copy],
        [TaskKind.KERNEL, TaskKind.MEMCPY],
        [TaskClass.ELEMENTWISE, TaskClass.MEMCPY],
    )
    assert tasks.is_known.all()
    assert tasks.memory_bytes.tolist() == [12e6, 1e6]
    assert tasks.clock_share.tolist() == [0.0, 0.0]


def test_a_collective_draws_from_its_arrival_and_reads_and_writes_what_it_sends():
    message = collective_work("all_reduce", 8e6, 8)
    tasks = tasks_of(
        [unknown_work(1), message],
        [TaskKind.ARRIVAL, TaskKind.COLLECTIVE],
        [TaskClass.COMMUNICATION] * 2,
        arrival=[-1, 0],
    )
    assert (tasks.start_us[0], tasks.duration_us[0]) == (0.0, 20.0)
    assert tasks.node_bytes[0] == pytest.approx(14e6)
    assert tasks.memory_bytes[0] == pytest.approx(28e6)
    assert tasks.clock_share[0] == 0.0


def test_work_that_is_known_in_part_is_unknown():
    partly = replace(matmul_work(64, 64, 64), memory_bytes=np.full(1, np.nan))
    untyped = replace(matmul_work(64, 64, 64), precision=np.full(1, -1, np.int8))
    message = replace(collective_work("all_reduce", 8e6, 8), stride=np.full(1, np.nan))
    kinds = [TaskKind.KERNEL, TaskKind.KERNEL, TaskKind.COLLECTIVE]
    classes = [TaskClass.GEMM, TaskClass.GEMM, TaskClass.COMMUNICATION]
    tasks = tasks_of([partly, untyped, message], kinds, classes)
    assert not tasks.is_known.any()
    for column in (tasks.flops, tasks.memory_bytes, tasks.node_bytes, tasks.network_bytes):
        assert column.tolist() == [0.0, 0.0, 0.0]
    assert tasks.clock_share.tolist() == [0.9, 0.9, 0.0]


# Nodes
# ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("gpus, nodes, unused", [(8, 1, 0), (16, 2, 0), (20, 3, 4), (1, 1, 7)])
def test_what_is_left_of_the_last_node_idles(gpus, nodes, unused):
    power = load_power("h100")
    found = node_power(500.0 * gpus, gpus, 8, power.node, power.idle_w)
    inside = 500.0 * gpus + unused * 70.0 + nodes * power.node.host_w
    assert found.nodes == nodes
    assert found.dc_w == pytest.approx(inside)
    assert found.ac_w == pytest.approx(inside / 0.96)


def test_fans_take_a_share_of_all_else_in_the_node():
    power = load_power("h100")
    fans = msgspec.structs.replace(power.node, fan_share=0.1)
    found = node_power(4000.0, 8, 8, fans, power.idle_w)
    assert found.dc_w == pytest.approx(1.1 * (4000.0 + power.node.host_w))


def test_switches_are_counted_at_the_wall_as_they_are_given():
    power = load_power("h100")
    alone = node_power(8e3, 16, 8, power.node, power.idle_w)
    beside = node_power(8e3, 16, 8, power.node, power.idle_w, switches_w=10 * 1610.0)
    assert beside.ac_w - alone.ac_w == pytest.approx(16_100.0)
    # MLPerf multiplies an estimate at the wall by the efficiency of conversion for DC.
    assert beside.dc_w - alone.dc_w == pytest.approx(0.96 * 16_100.0)


def test_a_series_of_nodes_keeps_its_shape():
    power = load_power("h100")
    series = node_power(np.array([1e3, 5e3]), 8, 8, power.node, power.idle_w)
    one = node_power(5e3, 8, 8, power.node, power.idle_w)
    assert np.shape(series.ac_w) == (2,)
    assert np.asarray(series.ac_w)[1] == pytest.approx(one.ac_w)
